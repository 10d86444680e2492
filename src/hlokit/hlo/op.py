"""Op: one class per opcode, with all information about the op. The registry of all of them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, dataclass_transform, get_args
from weakref import WeakValueDictionary

from hlokit.errors import ShapeError
from hlokit.forms.affine import Index
from hlokit.forms.contraction import Contraction
from hlokit.forms.cost import Cost, moved
from hlokit.forms.emitter import Emitter, Value
from hlokit.forms.fold import Fold
from hlokit.forms.graph import Graph, Node
from hlokit.forms.kernel import Kernel
from hlokit.forms.scatter import Scattering, Target
from hlokit.forms.widening import computed_wide
from hlokit.hlo.communication import CommunicationTraits
from hlokit.types.attributes import KIND_OF_TYPE, RESULT_SHAPE, Kind
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.values import Device, Transfer

_REQUIRED: Any = object()


@dataclass(frozen=True)
class Attribute:
    """One attribute of an op: its name in Python and in text, its kind, and how text and proto treat it.

    always   printed even when it has its default value
    unsaid   values that only repeat what the operands' types say: accepted, never printed (HOP-5)
    also     older spellings that the parser accepts
    proto    path of the field in HloInstructionProto, where it is not the text name
    """

    name: str
    text: str
    kind: Kind
    default: Any
    always: bool
    also: tuple[str, ...]
    proto: str
    hidden: bool
    unsaid: tuple[Any, ...]

    @property
    def required(self) -> bool:
        return self.default is _REQUIRED


@dataclass(frozen=True)
class _Declared:
    default: Any
    text: str | None
    always: bool
    also: tuple[str, ...]
    proto: str | None
    hidden: bool
    unsaid: tuple[Any, ...] = ()


def attr(
    default: Any = _REQUIRED,
    *,
    text: str | None = None,
    always: bool = False,
    also: tuple[str, ...] = (),
    proto: str | None = None,
    hidden: bool = False,
    unsaid: tuple[Any, ...] = (),
) -> Any:
    """Declares how an op's field is written (see Attribute). A field without default is required in text.

    `hidden` fields are not attributes in text: parameter numbers, constants.
    """
    return _Declared(default, text, always, also, proto, hidden, unsaid)


class Rounding(NamedTuple):
    """The distance from the reference's result at which another implementation's is still right.

    ulps    units in the last place of the result
    parts   roundings of the greatest magnitude among the operands: of sums, whose terms may cancel
    takes_other_steps   intermediate results are others than the reference's: they may overflow where its do not
    """

    ulps: float = 0.0
    parts: float = 0.0
    takes_other_steps: bool = False


ROUNDED = Rounding()
"""The nearest number: nothing else is right."""
COMPOSED = Rounding(4)
"""A few operations, each rounded, where the numbers are complex or the quotient is not that of the type."""
APPROXIMATED = Rounding(16)
"""A polynomial or a table."""
SUMMED = Rounding(64, 64)
"""Sums and products of many terms, in any order."""
REARRANGED = Rounding(64, 64, takes_other_steps=True)
"""Sums that an implementation takes apart in a way of its own."""

OPS: dict[str, type[Op]] = {}
"""The registry: every op class by opcode."""

_interned: WeakValueDictionary[Any, Op] = WeakValueDictionary()
"""Ops by class and attribute values; those without attributes by class alone."""


@dataclass_transform(frozen_default=True, field_specifiers=(attr,))
class Op:
    """An operation with its attributes: frozen, interned, compared by `is`.

    A subclass with `name=` is an op of the language. It gives:

    - attributes: annotated fields, in the order in which text prints them;
    - `infer(*operand_shapes, **called)`: the result's shape, after every check of the op's rules. `called` are the
      called computations by role, as ProgramShape (a list of them for a role of `list_roles`);
    - `reference(*operands, **called)`: the meaning in NumPy. Arrays come and go as ndarrays (of the run-time size
      where a dimension is dynamic), tuples as Python tuples, tokens as TOKEN_VALUE. Called computations are
      functions (interpreter.Callee). A parameter named `process` receives the device's state
      (interpreter.Process), one named `shape` the instruction's shape, `operand_shapes` those of the operands,
      `backend_config` that text (custom-call's opaque);
    - traits: `commutative`, `side_effect`, `arity` (None: any number), `flops(...)`, `communication`;
    - `form`: how it is lowered (docs/add_a_form.md), and the method of that form: `scalar` for map, `element` for
      index, `fold`, `scatter` with `target`, `kernel`, `contraction`, `expand`. The called computations and groups
      are all that control and communicate ops have to say.

        >>> hk.OPS["transpose"]((1, 0))
        Transpose(dimensions=(1, 0))
        >>> hk.OPS["transpose"]((1, 0)) is hk.OPS["transpose"]([1, 0])
        True
    """

    __slots__ = ("__weakref__",)

    opcode: ClassVar[str] = ""
    """Its name in HLO text."""
    attributes: ClassVar[tuple[Attribute, ...]] = ()
    """Its attributes, in the order in which text prints them."""
    roles: ClassVar[tuple[str, ...]] = ()
    """The names of the computations that it calls, such as "to_apply"."""
    list_roles: ClassVar[tuple[str, ...]] = ()
    """The names of lists of computations that it calls, such as "branch_computations"."""
    calls_reversed: ClassVar[bool] = False
    """XLA keeps the called computations in the reverse of the roles' order: in proto, and to order computations."""
    form: ClassVar[str] = ""
    """The form by which it is lowered; empty: none."""
    computes_wide: ClassVar[bool] = True
    """A map op's rule is for the types that compute (forms/widening.py); else it takes every type as it is."""
    rules: ClassVar[str] = ""
    """Labels of the rule book, or their prefixes, in addition to those of the base classes: "BIN", "BEY-8 BEY-9"."""
    example: ClassVar[str] = ""
    """HLO text in which it stands, for an op that no function of the builder makes: computations, the entry last."""
    arity: ClassVar[int | None] = None
    """The number of operands; None: any number."""
    least_operands: ClassVar[int] = 0
    """The number of operands that `infer` names; with `arity` None it may take more."""
    commutative: ClassVar[bool] = False
    """Its two operands may change places."""
    side_effect: ClassVar[bool] = False
    """It has an effect besides its value: it is never removed."""
    asks_device: ClassVar[bool] = False
    """Its value depends on the device that it runs on: no compile-time constant, though without effect (BUILDER-12)."""
    elementwise: ClassVar[bool] = False
    """The reference works on operands of any one shape, elementwise: it may be evaluated on whole batches."""
    transcendental: ClassVar[bool] = False
    """A function of real numbers that takes a polynomial or a table: what analyses count apart from arithmetic."""
    free: ClassVar[bool] = False
    """It costs nothing: no element is computed or moved."""
    passes_on: ClassVar[bool] = False
    """Its value is the first operand's, as it is: it only orders, marks or copies."""
    reads_layout: ClassVar[bool] = False
    """Its value depends on the layout of its operand; no other's does (HLAY-7)."""
    same_elements: ClassVar[bool] = False
    """Every element of its result is one of its first operand's, as it is."""
    rounding: ClassVar[Rounding | None] = ROUNDED
    """The error that its result may have; None: it computes no element, or none that must be rounded."""
    chooses_places: ClassVar[bool] = False
    """Whether the values of operands choose the elements that it takes or changes."""
    communication: ClassVar[CommunicationTraits] = CommunicationTraits()
    """Traits of communication: its part in exchanges among devices, and in an asynchronous operation."""
    calls_through: ClassVar[bool] = False
    """Its value is that of its one called computation on its operands."""
    picks: ClassVar[int | None] = None
    """Its value is that element of its operand, a tuple."""
    whole_values: ClassVar[bool] = False
    """The reference moves values without looking inside: it receives dynamic arrays as they are (values.Dynamic)."""
    shape_required: ClassVar[bool] = False
    """Text must write its result shape, which a ResultShape field holds."""
    shape_implied: ClassVar[bool] = False
    """Text may leave out the shape that a ResultShape field holds: its element type is then the first operand's."""
    shape_ignored: ClassVar[bool] = False
    """Text may write any result shape, as XLA's reader takes it: the inferred one is the instruction's (HINST-2)."""
    precision_by_shape: ClassVar[bool] = False
    """A result shape that is given decides which floating type its elements have."""
    flags_by_shape: ClassVar[bool] = False
    """A result shape that is given decides which of its dimensions are dynamic (set-dimension-size)."""
    ignored_attributes: ClassVar[tuple[str, ...]] = ()
    """Attributes that text may give and that change nothing."""
    result_shape: ClassVar[Attribute | None] = None
    """The attribute that is the result's shape, if it has one."""

    def __init_subclass__(cls, *, name: str | None = None) -> None:
        inherited = list(cls.attributes)
        for field_name, annotation in inspect.get_annotations(cls).items():
            if "ClassVar" in str(annotation):
                continue
            declared = cls.__dict__.get(field_name, _REQUIRED)
            inherited.append(_attribute(field_name, annotation, declared))
        cls.attributes = tuple(inherited)
        cls.result_shape = next((a for a in inherited if a.kind is RESULT_SHAPE), None)
        if cls.result_shape is not None:
            cls.shape_required = not cls.shape_implied
        if "infer" in cls.__dict__:
            cls.least_operands = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in _operands_of(cls.infer))
        if name is not None:
            known = OPS.get(name)
            if known is not None and known.__module__.startswith("hlokit."):  # a notebook may define its own ones again
                raise TypeError(f"the opcode {name} is that of {known.__module__}.{known.__qualname__}")
            cls.opcode = name
            OPS[name] = cls

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        key = (cls, *cls._values(args, kwargs)) if cls.attributes or args or kwargs else cls
        found = _interned.get(key)
        if found is not None:
            return found  # type: ignore[return-value]
        op = object.__new__(cls)
        for attribute, value in zip(cls.attributes, key[1:] if isinstance(key, tuple) else (), strict=True):
            object.__setattr__(op, attribute.name, value)
        return _interned.setdefault(key, op)  # type: ignore[return-value]

    @classmethod
    def _values(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The attributes' values in their normal form, in order."""
        attributes = cls.attributes
        if len(args) > len(attributes):
            raise TypeError(f"{cls.__name__} takes {len(attributes)} attributes, got {len(args)}")
        values: list[Any] = []
        attribute, value = None, _REQUIRED
        try:
            for attribute, value in zip(attributes, args):  # as many as there are args
                values.append(attribute.kind.normal(value))
            for attribute in attributes[len(args) :]:
                value = kwargs.pop(attribute.name, attribute.default) if kwargs else attribute.default
                if value is _REQUIRED:
                    raise TypeError(f"{cls.__name__} needs the attribute {attribute.name}")
                values.append(value if value is attribute.default else attribute.kind.normal(value))
        except (TypeError, ValueError, OverflowError, AttributeError):
            if value is _REQUIRED or attribute is None:
                raise
            expected = attribute.kind.expected or attribute.kind.name
            raise ShapeError("HINST-6", f"{cls.opcode} {attribute.name}", repr(value), expected) from None
        if kwargs:
            raise TypeError(f"{cls.__name__} has no attribute {', '.join(kwargs)}")
        return values

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be deleted")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, a.name) for a in self.attributes)

    def __repr__(self) -> str:
        shown = ", ".join(f"{a.name}={getattr(self, a.name)}" for a in self.attributes)
        return f"{type(self).__name__}({shown})"

    def replace(self, **changes: Any) -> Self:
        """This op with some attributes changed.

        Parameters
        ----------
        changes : Any
            New values by attribute name.

        Returns
        -------
        Op
            The op of the same class that has them; interned, as every op is.

        Raises
        ------
        TypeError
            The op has no attribute of that name.
        ShapeError
            A value is not of the attribute's kind (HINST-6).

        Examples
        --------
        >>> hk.OPS["transpose"]((1, 0)).replace(dimensions=(0, 1))
        Transpose(dimensions=(0, 1))
        """
        values = {a.name: getattr(self, a.name) for a in self.attributes}
        return type(self)(**{**values, **changes})

    def completed(self, operands: Sequence[Shape]) -> Self:
        """This op with the attributes filled in that text may omit because the operands determine them.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' shapes.

        Returns
        -------
        Op
            The op itself if nothing is missing.

        Examples
        --------
        >>> hk.OPS["map"]().completed([hk.f32[2, 3]])
        Map(dimensions=(0, 1))
        """
        return self

    def resized(self, operands: Sequence[Shape], result: Shape) -> Self:
        """This op for other sizes of operands and result.

        For passes that change sizes along dimensions that the op treats alike, such as the partitioner, which splits
        them. Attributes that repeat the sizes change; the others stay.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' shapes, with the new sizes.
        result : Shape
            The result's shape, with the new sizes.

        Returns
        -------
        Op
            The op for these shapes.

        Examples
        --------
        >>> hk.OPS["dynamic-slice"]((4, 2)).resized([hk.f32[8, 3], hk.s32, hk.s32], hk.f32[4, 3])
        DynamicSlice(dynamic_slice_sizes=(4, 3))
        """
        return self if self.result_shape is None else self.replace(**{self.result_shape.name: result})

    def is_exact(self, *operands: Shape) -> bool:
        """Whether the op's form computes the reference's bits, if the primitive functions do.

        Strict code runs the reference where this is false.

        Parameters
        ----------
        operands : Shape
            The operands' shapes.

        Returns
        -------
        bool
            True unless the op's card says otherwise.

        Examples
        --------
        >>> hk.OPS["multiply"]().is_exact(hk.f32[4], hk.f32[4])
        True
        >>> hk.OPS["multiply"]().is_exact(hk.c64[4], hk.c64[4])
        False
        """
        return True

    def kept(self, result: Shape) -> int:
        """The number of leading arrays of the result that are the operands' own buffers.

        Parameters
        ----------
        result : Shape
            The result's shape.

        Returns
        -------
        int
            0, except for the start of an asynchronous operation (`communication.keeps_operands`).

        Examples
        --------
        >>> hk.OPS["add"]().kept(hk.f32[4])
        0
        """
        return sum(leaf.is_array for leaf in result.elements[0].leaves()) if self.communication.keeps_operands else 0

    def associates(self, dtype: DType) -> bool:
        """Whether op(op(x, y), z) == op(x, op(y, z)) for all values of a type, NaN apart.

        Parameters
        ----------
        dtype : DType
            The operands' element type.

        Returns
        -------
        bool
            True allows a fold with this op to be computed in any order.

        Examples
        --------
        >>> hk.OPS["add"]().associates(hk.s32), hk.OPS["add"]().associates(hk.f32)
        (True, False)
        """
        return False

    def neutral(self, dtype: DType) -> Any:
        """The value e for which op(x, e) == x bit for bit, for every x of a real type.

        Parameters
        ----------
        dtype : DType
            The operands' element type.

        Returns
        -------
        Any
            The value as a Python number, or None if there is none.

        Examples
        --------
        >>> hk.OPS["add"]().neutral(hk.s32), hk.OPS["add"]().neutral(hk.f32)
        (0, -0.0)
        """
        return None

    def has_side_effect(self) -> bool:
        """Whether running this op is observable, so that it must not be removed or repeated.

        Returns
        -------
        bool
            The trait `side_effect`, unless the attributes decide (custom-call).

        Examples
        --------
        >>> hk.OPS["add"]().has_side_effect()
        False
        """
        return self.side_effect

    def spreads(self) -> bool:
        """Whether the operand's elements lie apart in the result, with other elements between them.

        The index map then divides positions by a distance.

        Returns
        -------
        bool
            True for a pad with interior padding.

        Examples
        --------
        >>> hk.OPS["pad"](((0, 0, 1),)).spreads()
        True
        """
        return False

    def thins(self) -> bool:
        """Whether the result's elements lie apart in the operand.

        The index map then multiplies positions by a distance.

        Returns
        -------
        bool
            True for a slice with a stride.

        Examples
        --------
        >>> hk.OPS["slice"](((0, 8, 2),)).thins()
        True
        """
        return False

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """The cost of one run, with the computations that it calls.

        By default, operands and the result are moved once, unless the op is `free`; a map computes each element of
        the result, a contraction multiplies and adds.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' shapes.
        result : Shape
            The result's shape.
        called : sequence of Cost
            The cost of one run of each called computation.

        Returns
        -------
        Cost
            Floating-point operations, transcendental functions, and bytes read and written.

        Examples
        --------
        >>> hk.OPS["add"]().cost([hk.f32[8], hk.f32[8]], hk.f32[8], [])
        Cost(flops=8, transcendentals=0, bytes_accessed=96)
        """
        if self.free:
            return Cost()
        found = moved(operands, result)
        if self.form == "contraction":
            return found + Cost(2 * math.prod(d.size for d in self.contraction(operands).dimensions))
        if self.form != "map" or self.passes_on:
            return found
        return found + (Cost(transcendentals=result.size) if self.transcendental else Cost(result.size))

    def operations(self, operands: Sequence[Shape], result: Shape, called: Sequence[float]) -> float:
        """The approximate number of arithmetic operations of one run.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' shapes.
        result : Shape
            The result's shape.
        called : sequence of float
            The number of operations of one run of each called computation.

        Returns
        -------
        float
            The `flops` and `transcendentals` of `cost`, added.

        Examples
        --------
        >>> hk.OPS["add"]().operations([hk.f32[8], hk.f32[8]], hk.f32[8], [])
        8
        """
        cost = self.cost(operands, result, [Cost(count) for count in called])
        return cost.flops + cost.transcendentals

    # -- the facts a subclass gives

    def infer(self, *operands: Any, **called: Any) -> Shape:
        """The result's shape, after every check of the op's rules.

        Parameters
        ----------
        operands : Shape
            The operands' shapes.
        called : ProgramShape or list of ProgramShape
            The called computations by role; a list for a role of `list_roles`.

        Returns
        -------
        Shape
            The result's shape.

        Raises
        ------
        ShapeError
            The operands, attributes or called computations break a rule, which the error names by its label.
        NotImplementedError
            The class has no shape rule.

        Examples
        --------
        >>> hk.OPS["transpose"]((1, 0)).infer(hk.f32[2, 3]).dimensions
        (3, 2)
        """
        raise NotImplementedError(f"{self.opcode} has no shape rule")

    def reference(self, *operands: Any, **called: Any) -> Any:
        """The op's meaning in NumPy: what `hk.evaluate` runs.

        Parameters
        ----------
        operands : array, tuple or token
            The operands' values. A dynamic array has its run-time sizes; tuples are Python tuples; a token is
            TOKEN_VALUE.
        called : callable
            The called computations by role, as functions of values (interpreter.Callee). Also passed are the
            parameters that the method names: `process` (the device's state), `shape` (the instruction's),
            `operand_shapes` and `backend_config`.

        Returns
        -------
        Any
            The result, in the same form.

        Raises
        ------
        EvaluationError
            The values cannot be computed with; the message names the rule.
        NotImplementedError
            The class has no reference.

        Examples
        --------
        >>> hk.OPS["transpose"]((1, 0)).reference(np.array([[1, 2]]))
        array([[1],
               [2]])
        """
        raise NotImplementedError(f"{self.opcode} has no reference")

    # -- the method of its form; shapes are static, called computations come by role as functions of values

    def scalar(self, emit: Emitter, *values: Any, **called: Any) -> Value:
        """Form map: computes an element of the result from the operands' elements.

        Parameters
        ----------
        emit : Emitter
            Writes operations on scalars, and returns their values.
        values : Value
            One element of each operand, in the types that compute (see `mapped`).
        called : callable
            The called computations by role, as functions of values.

        Returns
        -------
        Value
            The element of the result.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} has no scalar rule")

    def element(self, emit: Emitter, index: Index, *readers: Any, **called: Any) -> Value:
        """Form index: computes the result's element at an index by reading the operands. Map ops have it too.

        Parameters
        ----------
        emit : Emitter
            Writes operations on scalars, and returns their values.
        index : Index
            The element's index: one affine value for each dimension of the result.
        readers : callable
            One for each operand: a function from an index to the operand's element there, with the operand's `shape`.
        called : callable
            The called computations by role, as functions of values.

        Returns
        -------
        Value
            The element of the result.

        Raises
        ------
        NotImplementedError
            The op is of neither form.
        """
        if self.form != "map":
            raise NotImplementedError(f"{self.opcode} has no index form")
        return self.mapped(emit, *(read(index if read.shape.rank else ()) for read in readers), **called)

    def mapped(self, emit: Emitter, *values: Value, **called: Any) -> Value:
        """`scalar` for values of the operands' own types: computed in a wider type and rounded once.

        Parameters
        ----------
        emit : Emitter
            Writes operations on scalars, and returns their values.
        values : Value
            One element of each operand, in the operand's type.
        called : callable
            The called computations by role, as functions of values.

        Returns
        -------
        Value
            The element of the result, in the result's type.
        """
        return computed_wide(self.scalar, emit, values) if self.computes_wide else self.scalar(emit, *values, **called)

    def fold(self, operands: Sequence[Shape]) -> Fold:
        """Form fold: says which elements each element of the result combines.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' static shapes.

        Returns
        -------
        Fold
            The dimensions that are folded or kept, with windows, and the role of the computation that combines.

        Raises
        ------
        NotImplementedError
            The op is not of this form.

        Examples
        --------
        >>> hk.OPS["reduce"]([1]).fold([hk.f32[2, 3], hk.f32]).combiner
        'to_apply'
        """
        raise NotImplementedError(f"{self.opcode} is not a fold")

    def scatter(self, operands: Sequence[Shape]) -> Scattering:
        """Form scatter: says how updates are combined; `target` says where each one goes.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' static shapes.

        Returns
        -------
        Scattering
            The number of operands, the dimensions of the window, and the role of the computation that combines.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} is not a scatter")

    def target(self, emit: Emitter, index: Index, *readers: Any) -> Target:
        """Form scatter: the element of the operand that an update goes to.

        Parameters
        ----------
        emit : Emitter
            Writes operations on scalars, and returns their values.
        index : Index
            The index of an element of the updates.
        readers : callable
            One for each operand: a function from an index to the operand's element there.

        Returns
        -------
        Target
            An index within the operand's bounds, and the conditions under which the update is applied at all.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} is not a scatter")

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        """Form kernel: names the routine that computes the op, and what may be fused with it.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' static shapes.

        Returns
        -------
        Kernel
            The routine's description.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} has no kernel")

    def contraction(self, operands: Sequence[Shape]) -> Contraction:
        """Form contraction: says which elements are multiplied, and which products each element of the result adds up.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' static shapes.

        Returns
        -------
        Contraction
            The dimensions of the product, each with its part in the operands and the result.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} is not a contraction")

    def transfer(self, operands: Sequence[Shape], results: Sequence[Shape], process: Device) -> Transfer | None:
        """Form communicate: says which device's data each array of the result is made from.

        Parameters
        ----------
        operands : sequence of Shape
            The operands' shapes: static arrays.
        results : sequence of Shape
            The shapes of the arrays of the result.
        process : Device
            The device that runs the op.

        Returns
        -------
        Transfer or None
            The sources; None where `reference` must run, also to report what is wrong.
        """
        return None

    def expand(self, graph: Graph, *operands: Any, **called: Any) -> Node:
        """Form expand: writes the op in terms of other ops.

        Parameters
        ----------
        graph : Graph
            The graph that receives the ops.
        operands : Node
            The operands' nodes.
        called : Any
            The called computations by role.

        Returns
        -------
        Node
            The node whose value is the result.

        Raises
        ------
        NotImplementedError
            The op is not of this form.
        """
        raise NotImplementedError(f"{self.opcode} has no expansion")


def _operands_of(infer: Any) -> list[inspect.Parameter]:
    """The parameters of an `infer` that take operands: those before a `*rest`, if it has one; else none is counted."""
    parameters = list(inspect.signature(infer).parameters.values())[1:]
    rest = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), 0)
    return parameters[:rest]


def _attribute(name: str, annotation: Any, declared: Any) -> Attribute:
    if not isinstance(declared, _Declared):
        declared = _Declared(declared, None, False, (), None, False)
    kind = next((a for a in get_args(annotation) if isinstance(a, Kind)), None) or KIND_OF_TYPE.get(annotation)
    if kind is None:
        raise TypeError(f"attribute {name}: {annotation} has no Kind")
    text = declared.text or name
    default = declared.default if declared.default is _REQUIRED else kind.normal(declared.default)
    proto = declared.proto or text
    return Attribute(name, text, kind, default, declared.always, declared.also, proto, declared.hidden, declared.unsaid)


def infer_shape(op: Op, operands: Sequence[Shape], called: Sequence[tuple[str, Any]] = ()) -> Shape:
    """`op.infer`, with the operand count checked (HINST-5) and the op and its operands put into a ShapeError."""
    try:
        if op.arity is not None and len(operands) != op.arity:
            raise ShapeError("HINST-5", "operands", len(operands), op.arity)
        if len(operands) < op.least_operands and op.arity is None:
            raise ShapeError("HINST-5", "operands", len(operands), f"at least {op.least_operands}")
        return op.infer(*operands, **dict(called)) if called else op.infer(*operands)
    except ShapeError as error:
        if error.op is None:
            error.op, error.operands = op.opcode, tuple(operands)
        raise


def same_result(op: Op, given: Shape, inferred: Shape) -> bool:
    """Whether a result shape that is given agrees with the inferred one: but for layouts (HINST-2)."""
    if given is inferred or given.logical is inferred.logical:
        return True
    if op.precision_by_shape and _same_but_precision(given.logical, inferred.logical):
        return True
    return op.flags_by_shape and given.static is inferred.static


def _same_but_precision(a: Shape, b: Shape) -> bool:
    """Whether two shapes differ in no more than in which floating type elements have."""
    if a.is_tuple and b.is_tuple and len(a.elements) == len(b.elements):
        return all(map(_same_but_precision, a.elements, b.elements))
    return a is b or (a.dtype.is_floating and b.dtype.is_floating and a.with_dtype(b.dtype) is b)


def check(condition: bool, label: str, argument: str, found: object, expected: object) -> None:
    """Raises ShapeError with the rule's label unless `condition` holds."""
    if not condition:
        raise ShapeError(label, argument, found, expected)
