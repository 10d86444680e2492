"""Builder: makes a computation op by op, checking each as it is added. The op functions end here."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, TypeVar

import numpy as np

from hlokit.builder.documentation import completed
from hlokit.builder.finish import adopt_callees
from hlokit.builder.handle import XlaOp
from hlokit.builder.handle import handles as handles
from hlokit.errors import BuildError, HlokitError, ShapeError
from hlokit.hlo.computation import Computation, counted
from hlokit.hlo.instruction import Extra, Instruction, Metadata
from hlokit.hlo.module import Alias, HloModule
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_sequence
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant, Parameter
from hlokit.tracebacks import own_frames, public, public_methods
from hlokit.types.dtype import DTYPES, DType, dtype
from hlokit.types.integers import integer
from hlokit.types.literal import Literal, as_array
from hlokit.types.shape import ProgramShape, Shape
from hlokit.types.sharding import Sharding

_PACKAGE = str(Path(__file__).parents[1])

ComputationLike: TypeAlias = "Computation | HloModule | Callable[..., Any]"
"""A computation as op functions take it: a built one, or a Python function of handles."""


def _misuse(error: Exception, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception:
    from hlokit.builder.misuse import misuse

    return misuse(error, function, args, kwargs)


@public_methods(but=("emit", "handle"), misuse=_misuse)  # which op functions call
class Builder:
    """Builds one computation (BUILDER rules). Op functions append to the builder of their operands.

    Every op is checked when it is appended: if it breaks a rule, ShapeError is raised with the file and line of the
    code that made it. The first error is kept in `first_error` (BUILDER-2).

    Parameters
    ----------
    name : str, optional
        The computation's name.
    source_info : bool, optional
        Whether to give every instruction the file and line of the code that made it, as metadata.

    Attributes
    ----------
    computation : Computation
        The computation that it builds.
    first_error : HlokitError or None
        The first error of an op function (BUILDER-2).
    infeed_token : XlaOp or None
        The token of the last infeed that had none, after which the next follows (INFEED-5).

    Examples
    --------
    >>> b = hk.Builder("axpy")
    >>> x, y = b.parameter(0, hk.f32[3], "x"), b.parameter(1, hk.f32[3], "y")
    >>> module = b.build(2.0 * x + y)
    >>> hk.evaluate(module, [1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    array([12., 24., 36.], dtype=float32)
    """

    def __init__(self, name: str = "main", *, source_info: bool = True) -> None:
        self.name = name
        self.computation = Computation(name)
        self.source_info = source_info
        self.first_error: HlokitError | None = None
        self._is_built = False
        self._reported = False
        self._count = 0
        self._sharding: Sharding | None = None
        self._metadata: Metadata | None = None
        self._frontend_attributes: dict[str, str] = {}
        self._aliases: list[Alias] = []
        self._donors: list[tuple[int, tuple[int, ...]]] = []
        self.infeed_token: XlaOp | None = None  # of the last tokenless infeed; the next follows it (INFEED-5)

    def __repr__(self) -> str:
        state = ", built" if self._is_built else ""
        return f"<Builder {self.name}: {counted(len(self.computation), 'instruction')}{state}>"

    # -- values without operands

    def parameter(
        self, number: int, shape: Shape | DType, name: str = "", replicated_at_leaf_buffers: Sequence[bool] = ()
    ) -> XlaOp:
        """The argument of this number (BUILDER-5).

        Parameters
        ----------
        number : int
            The number of the parameter, from 0.
        shape : Shape or DType
            Its shape; an element type stands for its scalar.
        name : str, optional
            Its name; by default one is made up.
        replicated_at_leaf_buffers : sequence of bool, optional
            For each leaf of the shape, whether it is the same on all replicas (BEY-20). Empty: not stated.

        Returns
        -------
        XlaOp
            The parameter.

        Raises
        ------
        BuildError
            The number is negative or taken (BUILDER-6), or there are not as many flags as leaves (BEY-20).
        ShapeError
            `shape` is not a shape.

        Examples
        --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[2, 3], "x")
        >>> hk.evaluate(b.build(x + 1.0), np.zeros((2, 3), np.float32))
        array([[1., 1., 1.],
               [1., 1., 1.]], dtype=float32)
        """
        try:
            if isinstance(number, (Shape, DType)):  # pyright: ignore[reportUnnecessaryIsInstance]
                instead = f"b.parameter({shape!r}, {_written(number)})"
                raise ShapeError("BUILDER-6", "parameter number", number, "an integer", instead)
            number = integer(number, "BUILDER-6", "parameter number")
            shape = as_shape(shape, f"b.parameter({number}, {{}})")
        except ShapeError as error:
            raise self._record(error) from None
        if number < 0 or self.computation.has_parameter(number):
            problem = "negative" if number < 0 else "taken"
            raise self._record(BuildError(f"parameter number {number} is {problem}", "BUILDER-6"))
        leaves, flags = len(list(shape.leaves())), len(replicated_at_leaf_buffers)
        if flags not in (0, leaves):
            message = f"replicated_at_leaf_buffers: found {flags} flags, expected {leaves}"
            raise self._record(BuildError(message, "BEY-20"))
        handle = self.emit(Parameter(number, shape), (), name=name or None, shape=shape)
        if replicated_at_leaf_buffers:
            handle.instruction.ensure_extra().parameter_replication = tuple(map(bool, replicated_at_leaf_buffers))
        return handle

    def constant(self, value: Any, dtype: DType | None = None, shape: Shape | None = None) -> XlaOp:
        """A constant. An array of several equal elements becomes a broadcast of a scalar (BUILDER-8).

        Parameters
        ----------
        value : number, array or Literal
            A value that NumPy or DLPack can read, or a Literal.
        dtype : DType, optional
            The element type; by default that of the value, for Python numbers by BUILDER-7.
        shape : Shape, optional
            The shape, which may have a layout; used instead of `dtype`.

        Returns
        -------
        XlaOp
            The constant.

        Raises
        ------
        ShapeError
            The value is not an array, or does not fit the type or shape (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.constant(1.5).shape, b.constant([1, 2]).shape, b.constant([1, 2], hk.bf16).shape
        (f32[], s32[2], bf16[2])
        """
        if shape is None and dtype is not None and not isinstance(value, Literal):
            value = as_array(value, dtype)
        literal = Literal.of(value, shape)
        array = literal.value
        if isinstance(array, np.ndarray) and array.size > 1 and literal.shape.layout is None and _all_equal(array):
            scalar = self.emit(Constant(Literal(literal.shape.dtype[()], array.reshape(-1)[0:1].reshape(()))), ())
            return self.emit(Broadcast((), literal.shape), (scalar,))
        return self.emit(Constant(literal), (), shape=literal.shape)

    def constant_literal(self, literal: Literal) -> XlaOp:
        """The constant of this literal (BUILDER-7).

        Parameters
        ----------
        literal : Literal
            The value.

        Returns
        -------
        XlaOp
            The constant.

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.constant_literal(hk.Literal.of([1, 2]))))
        array([1, 2], dtype=int32)
        """
        return self.constant(literal)

    def constant_r0(self, value: Any, dtype: DType | None = None) -> XlaOp:
        """A scalar constant (BUILDER-7).

        Parameters
        ----------
        value : number
            The value.
        dtype : DType, optional
            The element type; by default as Python numbers have it by BUILDER-7.

        Returns
        -------
        XlaOp
            The constant, a scalar.

        Raises
        ------
        ShapeError
            The value is not a scalar (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.constant_r0(1.5)))
        array(1.5, dtype=float32)
        """
        return self._constant_of_rank(0, value, dtype)

    def constant_r1(self, values: Any, value: Any = None, dtype: DType | None = None) -> XlaOp:
        """A vector constant: its values, or a length and the one value of all elements (BUILDER-7).

        Parameters
        ----------
        values : sequence of numbers, or int
            The elements; or their number, if `value` is given.
        value : number, optional
            The value of all elements.
        dtype : DType, optional
            The element type; by default as Python numbers have it by BUILDER-7.

        Returns
        -------
        XlaOp
            The constant, a vector.

        Raises
        ------
        ShapeError
            The values are not a vector (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.constant_r1(3, 7)))
        array([7, 7, 7], dtype=int32)
        """
        if value is None:
            return self._constant_of_rank(1, values, dtype)
        from hlokit.builder.movement import broadcast

        return broadcast(self._constant_of_rank(0, value, dtype), [values])

    def constant_r2(self, values: Any, dtype: DType | None = None) -> XlaOp:
        """A matrix constant from its rows (BUILDER-7).

        Parameters
        ----------
        values : sequence of sequences of numbers
            The rows.
        dtype : DType, optional
            The element type; by default as Python numbers have it by BUILDER-7.

        Returns
        -------
        XlaOp
            The constant, a matrix.

        Raises
        ------
        ShapeError
            The values are not a matrix (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.constant_r2([[1, 2], [3, 4]])))
        array([[1, 2],
               [3, 4]], dtype=int32)
        """
        return self._constant_of_rank(2, values, dtype)

    def constant_from_array(self, array: Any, shape_with_layout: Shape | None = None) -> XlaOp:
        """The constant of an array, with a layout where the shape has one (BEY-21).

        Parameters
        ----------
        array : array
            A value that NumPy or DLPack can read.
        shape_with_layout : Shape, optional
            The shape, with the layout; by default the array's, row-major.

        Returns
        -------
        XlaOp
            The constant.

        Raises
        ------
        ShapeError
            The array does not have this shape (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.constant_from_array(np.int32([1, 2]))))
        array([1, 2], dtype=int32)
        """
        return self.constant(array, shape=shape_with_layout)

    def _constant_of_rank(self, rank: int, value: Any, dtype: DType | None) -> XlaOp:
        array = as_array(value, dtype)
        if array.ndim != rank:
            raise self._record(ShapeError("BUILDER-7", "constant rank", array.ndim, rank))
        return self.constant(array)

    def iota(self, shape: Shape | DType, iota_dimension: int = 0, size: int | None = None) -> XlaOp:
        """Counts along a dimension of `shape` (IOTA rules); `iota(element_type, size)` is a vector (BEY-29).

        Parameters
        ----------
        shape : Shape or DType
            The result's shape; an element type, if `size` is given.
        iota_dimension : int, optional
            The dimension that counts.
        size : int, optional
            The size of a vector.

        Returns
        -------
        XlaOp
            An array whose elements are their indices in `iota_dimension`.

        Raises
        ------
        ShapeError
            A constraint does not hold: IOTA-4 to IOTA-7.

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.iota(hk.s32[2, 3], 1)))
        array([[0, 1, 2],
               [0, 1, 2]], dtype=int32)
        """
        from hlokit.builder.movement import iota

        if isinstance(shape, Shape):
            return iota(self, shape, iota_dimension)
        if not _is_element_type(shape):
            raise self._record(_no_shape(shape, f"b.iota({{}}, {iota_dimension})"))
        return iota(self, dtype(shape)[iota_dimension if size is None else size], 0)

    def replica_id(self) -> XlaOp:
        """The number of the replica that runs the program, u32[] (REPID rules).

        Returns
        -------
        XlaOp
            A u32[].

        Raises
        ------
        BuildError
            The builder has been built (BUILDER-3).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.replica_id()), [], [], replicas=2)
        [array(0, dtype=uint32), array(1, dtype=uint32)]
        """
        from hlokit.builder.collectives import replica_id

        return replica_id(self)

    def partition_id(self) -> XlaOp:
        """The number of the partition that runs the program, u32[] (BEY-66).

        Returns
        -------
        XlaOp
            A u32[].

        Raises
        ------
        BuildError
            The builder has been built (BUILDER-3).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.partition_id()), [], [], partitions=2)
        [array(0, dtype=uint32), array(1, dtype=uint32)]
        """
        from hlokit.builder.collectives import partition_id

        return partition_id(self)

    def create_token(self) -> XlaOp:
        """A token that waits for nothing (BEY-53).

        Returns
        -------
        XlaOp
            A token.

        Raises
        ------
        BuildError
            The builder has been built (BUILDER-3).

        Examples
        --------
        >>> hk.Builder().create_token().shape
        token[]
        """
        from hlokit.builder.communication import create_token

        return create_token(self)

    def after_all(self, tokens: Sequence[XlaOp]) -> XlaOp:
        """A token that waits for all of `tokens` (TOKEN rules).

        Parameters
        ----------
        tokens : sequence of XlaOp
            The tokens; there may be none.

        Returns
        -------
        XlaOp
            A token.

        Raises
        ------
        ShapeError
            An operand is not a token (TOKEN-4).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.after_all([b.create_token(), b.create_token()]).shape
        token[]
        """
        from hlokit.builder.communication import after_all

        return after_all(self, tokens)

    def infeed(self, shape: Shape, config: str = "") -> XlaOp:
        """The next value of the device's infeed queue (INFEED rules).

        Parameters
        ----------
        shape : Shape
            The item's shape: an array's, or a tuple of arrays'.
        config : str, optional
            Text that is stored with the instruction.

        Returns
        -------
        XlaOp
            The item.

        Raises
        ------
        ShapeError
            The shape is not one of these (INFEED-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.infeed(hk.f32[2])), infeed=[np.float32([1.0, 2.0])])
        array([1., 2.], dtype=float32)
        """
        from hlokit.builder.communication import infeed

        return infeed(self, shape, config)

    def call(self, computation: ComputationLike, operands: Sequence[Any]) -> XlaOp:
        """The value of a computation on operands, of which there may be none (CALL rules).

        Parameters
        ----------
        computation : Computation, HloModule or callable
            The computation: of any parameters and result.
        operands : sequence of XlaOp or number
            The arguments, each of the parameter's shape.

        Returns
        -------
        XlaOp
            The computation's result.

        Raises
        ------
        ShapeError
            The operands do not match the parameters of the computation: CALL-3, CALL-4.

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build(b.call(lambda x: x * 2, [b.constant(21)])))
        array(42, dtype=int32)
        """
        from hlokit.builder.control import call

        return call(self, computation, operands)

    def infeed_with_token(self, token: XlaOp, shape: Shape, config: str = "") -> XlaOp:
        """The next value of the device's infeed queue, and a token (INFEED rules).

        Parameters
        ----------
        token : XlaOp
            The token that says after what this happens.
        shape : Shape
            The item's shape: an array's, or a tuple of arrays'.
        config : str, optional
            Text that is stored with the instruction.

        Returns
        -------
        XlaOp
            The tuple (item, token).

        Raises
        ------
        ShapeError
            `token` is not a token (INFEED-10), or the shape is not one of these (INFEED-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> item, token = b.infeed_with_token(b.create_token(), hk.f32[2])
        >>> hk.evaluate(b.build(item), infeed=[np.float32([1.0, 2.0])])
        array([1., 2.], dtype=float32)
        """
        from hlokit.builder.communication import infeed_with_token

        return infeed_with_token(token, shape, config)

    # -- appending

    def emit(
        self,
        op: Op,
        operands: Sequence[XlaOp],
        called: Sequence[Computation] = (),
        *,
        shape: Shape | None = None,
        name: str | None = None,
    ) -> XlaOp:
        """Appends an instruction after checking the op's rules; op functions end here.

        Parameters
        ----------
        op : Op
            The op with its attributes.
        operands : sequence of XlaOp
            The operands.
        called : sequence of Computation, optional
            The computations that the op calls, in the order of its roles.
        shape : Shape, optional
            The result's shape, if the op does not determine it.
        name : str, optional
            The instruction's name; by default one is made up.

        Returns
        -------
        XlaOp
            The instruction's value.

        Raises
        ------
        ShapeError
            A rule of the op is broken.
        BuildError
            An operand belongs to another builder, or the builder has been built (BUILDER-3).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.emit(hk.OPS["negate"](), [b.constant([1, 2])]).shape
        s32[2]
        """
        if self._is_built:
            raise BuildError(f"builder {self.name} has been built: it accepts no more ops", "BUILDER-3")
        for operand in operands:
            if operand.builder is not self:
                raise self._record(BuildError(f"{op.opcode}: {self._foreign(operand)}", "BUILDER-3"))
        self._count += 1
        try:
            instruction = self.computation.add(
                op,
                [o.instruction for o in operands],
                called,
                shape=shape,
                name=name or f"{op.opcode}.{self._count}",
            )
        except ShapeError as error:
            if error.location is None:
                error.location = "{}:{}".format(*_caller())
            raise self._record(error) from None
        if self.source_info or self._sharding or self._metadata or self._frontend_attributes:
            instruction.extra = self._extra()
        return XlaOp(self, instruction)

    def handle(self, value: Any, like: XlaOp | None = None) -> XlaOp:
        """`value` if it is a handle, else a constant with this value; a Python number takes the element type of `like`.

        Parameters
        ----------
        value : XlaOp, number or array
            The value.
        like : XlaOp, optional
            The handle whose element type a Python number takes.

        Returns
        -------
        XlaOp
            The handle.

        Raises
        ------
        ShapeError
            The value is not an array (BUILDER-7).

        Examples
        --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.bf16[2])
        >>> b.handle(x) is x, b.handle(3, x).shape
        (True, bf16[])
        """
        if isinstance(value, XlaOp):
            return value
        weak = isinstance(value, (bool, int, float, complex)) and like is not None and like.shape.is_array
        return self.constant(value, like.dtype if weak and like is not None else None)

    def _extra(self) -> Extra:
        metadata = None
        if self._metadata is not None:
            metadata = self._metadata.copied()
        if self.source_info:
            metadata = metadata or Metadata()
            if not metadata.source_file:
                metadata.source_file, metadata.source_line = _caller()
        return Extra(metadata, self._sharding, dict(self._frontend_attributes))

    def _record(self, error: HlokitError) -> HlokitError:
        self.first_error = self.first_error or error
        return error

    # -- what sticks to the instructions appended while it is set (BUILDER-14)

    @contextmanager
    def sharding(self, sharding: Sharding | str | None) -> Generator[None]:
        """Gives this sharding (a Sharding or its text) to instructions appended inside.

        Parameters
        ----------
        sharding : Sharding, str or None
            The sharding, or its text.

        Returns
        -------
        context manager
            Instructions appended inside get the sharding.

        Raises
        ------
        ParseError
            The text is not a sharding.

        Examples
        --------
        >>> b = hk.Builder(source_info=False)
        >>> with b.sharding("{replicated}"):
        ...     x = b.parameter(0, hk.f32[2])
        >>> print(x.instruction)
        %parameter.1 = f32[2]{0} parameter(0), sharding={replicated}
        """
        before = self._sharding
        self.set_sharding(sharding)
        try:
            yield
        finally:
            self._sharding = before

    def set_sharding(self, sharding: Sharding | str | None) -> None:
        """Gives this sharding (a Sharding or its text) to instructions appended from now on; None: none.

        Parameters
        ----------
        sharding : Sharding, str or None
            The sharding, or its text; None: none.

        Raises
        ------
        ParseError
            The text is not a sharding.

        Examples
        --------
        >>> b = hk.Builder(source_info=False)
        >>> b.set_sharding("{replicated}")
        >>> print(b.parameter(0, hk.f32[2]).instruction)
        %parameter.1 = f32[2]{0} parameter(0), sharding={replicated}
        """
        if isinstance(sharding, str):
            from hlokit.text.groups import parse_sharding

            sharding = parse_sharding(sharding)
        self._sharding = sharding

    def clear_sharding(self) -> None:
        """Appends instructions without a sharding from now on.

            >>> b = hk.Builder(source_info=False)
            >>> b.set_sharding("{replicated}")
            >>> b.clear_sharding()
            >>> print(b.parameter(0, hk.f32[2]).instruction)
            %parameter.1 = f32[2]{0} parameter(0)
        """
        self._sharding = None

    @contextmanager
    def metadata(self, **fields: Any) -> Generator[None]:
        """Gives these metadata fields to instructions appended inside: op_type, op_name, source_file, source_line, ...

        Parameters
        ----------
        fields : Any
            Fields of the metadata by name: op_type, op_name, source_file, source_line, ...

        Returns
        -------
        context manager
            Instructions appended inside get these fields.

        Raises
        ------
        TypeError
            There is no field of this name.

        Examples
        --------
        >>> b = hk.Builder(source_info=False)
        >>> with b.metadata(op_name="layer1/scale"):
        ...     x = b.parameter(0, hk.f32[2])
        >>> print(x.instruction)
        %parameter.1 = f32[2]{0} parameter(0), metadata={op_name="layer1/scale"}
        """
        before = self._metadata
        self._metadata = Metadata(**fields)
        try:
            yield
        finally:
            self._metadata = before

    @property
    def current_metadata(self) -> Metadata | None:
        """The metadata of which instructions appended from now on receive a copy.

            >>> b = hk.Builder()
            >>> with b.metadata(op_name="layer1"):
            ...     b.current_metadata.op_name
            'layer1'
        """
        return self._metadata

    def set_metadata(self, metadata: Metadata | None) -> None:
        """Gives a copy of this metadata to instructions appended from now on; None: only the source line.

        Parameters
        ----------
        metadata : Metadata or None
            The metadata; None: only the source line.

        Examples
        --------
        >>> b = hk.Builder(source_info=False)
        >>> with b.metadata(op_name="layer1"):
        ...     kept = b.current_metadata
        >>> b.set_metadata(kept)
        >>> print(b.parameter(0, hk.f32[2]).instruction)
        %parameter.1 = f32[2]{0} parameter(0), metadata={op_name="layer1"}
        """
        self._metadata = metadata

    @contextmanager
    def frontend_attributes(self, attributes: dict[str, str]) -> Generator[None]:
        """Gives these frontend attributes to instructions appended inside, in addition to those already set.

        Parameters
        ----------
        attributes : dict of str
            Values by name.

        Returns
        -------
        context manager
            Instructions appended inside have these attributes, in addition to those already set.

        Examples
        --------
        >>> b = hk.Builder(source_info=False)
        >>> with b.frontend_attributes({"stage": "1"}):
        ...     x = b.parameter(0, hk.f32[2])
        >>> print(x.instruction)
        %parameter.1 = f32[2]{0} parameter(0), frontend_attributes={stage="1"}
        """
        before = self._frontend_attributes
        self._frontend_attributes = {**before, **attributes}
        try:
            yield
        finally:
            self._frontend_attributes = before

    # -- questions

    def get_shape(self, op: XlaOp) -> Shape:
        """The inferred shape of a handle (BUILDER-9).

        Parameters
        ----------
        op : XlaOp
            The handle.

        Returns
        -------
        Shape
            Its shape.

        Raises
        ------
        BuildError
            The handle belongs to another builder (BUILDER-3).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.get_shape(b.constant([1, 2]))
        s32[2]
        """
        return self._mine(op).shape

    def get_program_shape(self, root: XlaOp | None = None) -> ProgramShape:
        """The parameters' shapes and the root's (BUILDER-9).

        Parameters
        ----------
        root : XlaOp, optional
            The result; by default the instruction added last.

        Returns
        -------
        ProgramShape
            The shapes of the parameters and of the root.

        Raises
        ------
        BuildError
            The root belongs to another builder (BUILDER-3), or parameters are missing (BUILDER-5).
        ShapeError
            There is no instruction (HCOMP-5).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.get_program_shape(hk.neg(b.parameter(0, hk.f32[2], "x")))
        (x: f32[2]) -> f32[2]
        """
        result = (self._mine(root).instruction if root is not None else self.computation.root).shape
        parameters = self.computation.parameters
        return ProgramShape([p.shape for p in parameters], result, [p.name for p in parameters])

    def is_constant(self, op: XlaOp) -> bool:
        """Whether `op` depends neither on a parameter nor on anything stateful (BUILDER-12).

        Parameters
        ----------
        op : XlaOp
            The handle.

        Returns
        -------
        bool
            Whether its value depends neither on a parameter nor on anything stateful.

        Raises
        ------
        BuildError
            The handle belongs to another builder (BUILDER-3).

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.is_constant(b.constant(1.0) * 2.0), b.is_constant(b.parameter(0, hk.f32))
        (True, False)
        """
        stack, seen = [self._mine(op).instruction], set[int]()
        while stack:
            instruction = stack.pop()
            if instruction.id in seen:
                continue
            seen.add(instruction.id)
            if _is_stateful(instruction) or instruction.opcode == "parameter":
                return False
            stack.extend(instruction.operands)
        return True

    def build_constant_sub_graph(self, op: XlaOp) -> HloModule:
        """A module without parameters that computes `op`.

        Parameters
        ----------
        op : XlaOp
            The handle, for which `is_constant` holds.

        Returns
        -------
        HloModule
            The module.

        Raises
        ------
        BuildError
            The value depends on a parameter or on something stateful (BUILDER-12).

        Examples
        --------
        >>> b = hk.Builder()
        >>> hk.evaluate(b.build_constant_sub_graph(b.constant(3.0) * 2.0))
        array(6., dtype=float32)
        """
        if not self.is_constant(op):
            raise BuildError(f"{op!r} is not a compile-time constant", "BUILDER-12")
        module = HloModule(f"{self.name}.constant")
        module.add_computation(self.computation.part(op.instruction, self.name, module), entry=True)
        adopt_callees(module)
        return module

    # -- module features

    def set_up_alias(
        self, output_index: Sequence[int], param_number: int, param_index: Sequence[int] = (), kind: str = "may-alias"
    ) -> None:
        """The output at this index may (or must) share a parameter's buffer; checked at build (BUILDER-13).

        Parameters
        ----------
        output_index : sequence of int
            The position in the result: indices of nested tuples. Empty: the result itself.
        param_number : int
            The parameter.
        param_index : sequence of int, optional
            The position in the parameter.
        kind : str, optional
            "may-alias" or "must-alias".

        Raises
        ------
        BuildError
            At build: a position does not exist, or is given twice (BUILDER-13).

        Examples
        --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[2])
        >>> b.set_up_alias((), 0)
        >>> b.build(x + 1.0).input_output_alias[0].kind
        'may-alias'
        """
        self._aliases.append(Alias(tuple(output_index), param_number, tuple(param_index), kind))

    def add_buffer_donor(self, param_number: int, param_index: Sequence[int] = ()) -> None:
        """A parameter's buffer may be reused; checked at build (BUILDER-13).

        Parameters
        ----------
        param_number : int
            The parameter.
        param_index : sequence of int, optional
            The position in the parameter: indices of nested tuples.

        Raises
        ------
        BuildError
            At build: the position does not exist (BUILDER-13).

        Examples
        --------
        >>> b = hk.Builder()
        >>> x = b.parameter(0, hk.f32[2])
        >>> b.add_buffer_donor(0)
        >>> b.build(x + 1.0).buffer_donor
        [(0, ())]
        """
        self._donors.append((param_number, tuple(param_index)))

    # -- finishing

    def create_sub_builder(self, name: str) -> Builder:
        """A builder for a computation that ops of this one will call (BUILDER-10).

        Parameters
        ----------
        name : str
            The name of its computation.

        Returns
        -------
        Builder
            The new builder.

        Examples
        --------
        >>> b = hk.Builder()
        >>> body = b.create_sub_builder("double")
        >>> double = body.build_computation(body.parameter(0, hk.s32) * 2)
        >>> hk.evaluate(b.build(b.call(double, [b.constant(21)])))
        array(42, dtype=int32)
        """
        return Builder(name, source_info=self.source_info)

    def report_error(self, error: HlokitError) -> None:
        """Makes `build` raise this error (unless an earlier one was reported) (BEY-77).

        Parameters
        ----------
        error : HlokitError
            The error.

        Examples
        --------
        >>> b = hk.Builder()
        >>> b.report_error(hk.BuildError("the frontend gave up"))
        >>> try:
        ...     b.build(b.constant(1))
        ... except hk.BuildError as error:
        ...     print(error)
        the frontend gave up
        """
        self._record(error)
        self._reported = True

    def build_computation(self, root: XlaOp | Sequence[XlaOp] | None = None) -> Computation:
        """The computation, which ops of other builders can call. The builder accepts no more ops afterwards.

        Without `root` the last op is the result (BUILDER-4); a sequence of handles makes a tuple.
        Raises BuildError: BUILDER-5 when parameter numbers have holes, BUILDER-4 without any op.

        Parameters
        ----------
        root : XlaOp or sequence of XlaOp, optional
            The result; a sequence stands for its tuple. By default the instruction added last.

        Returns
        -------
        Computation
            The computation.

        Raises
        ------
        BuildError
            The builder has been built (BUILDER-3), there is no root, or parameters are missing (BUILDER-5); or the
            error that was reported.

        Examples
        --------
        >>> b = hk.Builder("double")
        >>> b.build_computation(b.parameter(0, hk.f32) * 2.0)
        <Computation double: (f32[]) -> f32[], 3 instructions>
        """
        if self._reported and self.first_error is not None:
            raise self.first_error
        if self._is_built:
            raise BuildError(f"builder {self.name} has been built", "BUILDER-3")
        if root is not None and not isinstance(root, XlaOp):
            from hlokit.builder.control import tuple_

            given: Any = root
            if not isinstance(given, Iterable):
                message = f"root: found {given!r}, expected a handle or a sequence of handles"
                raise self._record(BuildError(message, "BUILDER-4"))
            root = tuple_(self, list(root))
        if not len(self.computation):
            raise self._record(BuildError(f"builder {self.name} has no op that can be the root", "BUILDER-4"))
        numbers: list[int] = [p.op.number for p in self.computation.parameters]  # type: ignore[attr-defined]
        if numbers != list(range(len(numbers))):
            message = f"parameter numbers {numbers} do not cover 0..{len(numbers) - 1}"
            raise self._record(BuildError(message, "BUILDER-5"))
        self.computation.set_root(self._mine(root).instruction if root is not None else self.computation.root)
        self._is_built = True
        return self.computation

    def build(self, root: XlaOp | Sequence[XlaOp] | None = None) -> HloModule:
        """A module with this computation as its entry. Called computations are included, and names are made unique.

        Parameters
        ----------
        root : XlaOp or sequence of XlaOp, optional
            The result; a sequence stands for its tuple. By default the instruction added last.

        Returns
        -------
        HloModule
            The module.

        Raises
        ------
        BuildError
            The builder has been built (BUILDER-3), there is no root, or parameters are missing (BUILDER-5); or the
            error that was reported.

        Examples
        --------
        >>> b = hk.Builder("pair")
        >>> x = b.parameter(0, hk.s32)
        >>> hk.evaluate(b.build([x, x + 1]), 4)
        (array(4, dtype=int32), array(5, dtype=int32))
        """
        entry = self.build_computation(root)
        module = HloModule(self.name)
        module.add_computation(entry, entry=True)
        adopt_callees(module)
        module.settle()
        module.input_output_alias = self._aliases
        module.buffer_donor = self._donors
        if self._aliases or self._donors:
            from hlokit.hlo.verifier import verify

            verify(module)
        return module

    def _mine(self, op: XlaOp) -> XlaOp:
        if op.builder is not self:
            raise BuildError(self._foreign(op), "BUILDER-3")
        return op

    def _foreign(self, op: XlaOp) -> str:
        """The message for a handle of another builder."""
        other = op.builder.name
        same = other == self.name
        owner = f"another builder, which is named {other} too" if same else f"builder {other}, not to {self.name}"
        return (
            f"{op!r} belongs to {owner}: make all operands with one builder, or write "
            "b.call(other.build_computation(x), operands); a computation has no values but those of its own parameters"
        )


def emit(op: Op, *operands: Any, called: Sequence[Computation] = (), shape: Shape | None = None) -> XlaOp:
    """Appends `op` to the builder of its operands, at least one of which is a handle.

    Operands that are not handles become constants, Python numbers in the element type of the first handle.
    """
    first = next((o for o in operands if isinstance(o, XlaOp)), None)
    if first is None:
        raise BuildError(f"{op.opcode}: none of the operands is a handle of a builder", "BUILDER-3")
    builder = first.builder
    return builder.emit(op, [builder.handle(o, first) for o in operands], called, shape=shape)


def rejected(error: ShapeError, opcode: str, *operands: XlaOp) -> HlokitError:
    """`error`, found before there was an op to emit, completed as `emit` completes it: raise what this returns."""
    error.op, error.operands = opcode, tuple(o.shape for o in operands)
    error.location = "{}:{}".format(*_caller())
    return operands[0].builder._record(error)  # pyright: ignore[reportPrivateUsage]


OpFunction = TypeVar("OpFunction", bound=Callable[..., Any])


def checks_as(opcode: str) -> Callable[[OpFunction], OpFunction]:
    """Makes the ShapeErrors of an op function that checks its arguments before there is an op like those of `emit`."""

    def decorate(function: OpFunction) -> OpFunction:
        @wraps(function)
        def checked(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except ShapeError as error:
                given = [*arguments, *options.values()]
                listed = [handle for part in given if is_sequence(part) for handle in part]
                operands = [handle for handle in [*given, *listed] if isinstance(handle, XlaOp)]
                if error.op is not None or not operands:
                    raise
                raise rejected(error, opcode, *operands) from None

        return checked  # type: ignore[return-value]

    return decorate


def computation_of(computation: ComputationLike, parameters: Sequence[Shape], builder: Builder) -> Computation:
    """`computation` itself, a module's entry, or what a Python function of handles builds for these parameters.

    The function gets one handle per parameter and returns a handle, a sequence of handles (a tuple) or a constant.
    """
    if isinstance(computation, Computation):
        return computation
    if isinstance(computation, HloModule):
        return computation.entry
    if not callable(computation):
        raise BuildError(f"expected a computation or a Python function, got {computation!r}", "BUILDER-10")
    name = getattr(computation, "__name__", "function")
    inner = builder.create_sub_builder("lambda" if name == "<lambda>" else name)
    arguments = [inner.parameter(i, shape.logical) for i, shape in enumerate(parameters)]
    try:
        result = computation(*arguments)
    except TypeError as error:
        if _takes(computation, len(parameters)):
            raise
        shapes = ", ".join(map(str, parameters))
        raise BuildError(f"{error}; its arguments are handles of ({shapes})", "BUILDER-10") from None
    if result is None or isinstance(result, str):
        raise BuildError(f"{name} gave {result!r}, not a handle, a sequence of handles or a constant", "BUILDER-10")
    if isinstance(result, (tuple, list)):
        return inner.build_computation([inner.handle(r) for r in result])  # pyright: ignore[reportUnknownVariableType]
    return inner.build_computation(inner.handle(result))


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a Python function takes so many arguments, as far as can be known."""
    try:
        inspect.signature(function).bind(*range(count))
    except ValueError:
        return True
    except TypeError:
        return False
    return True


def as_shape(shape: Shape | DType | Any, instead: str = "{}") -> Shape:
    """The shape that an argument is; an element type stands for its scalar shape.

    Raises ShapeError (SHAPE-1) for what is neither, in which `instead` is the call to write, with {} for the shape.
    """
    if isinstance(shape, Shape):
        return shape
    if _is_element_type(shape):
        return dtype(shape)[()]
    raise _no_shape(shape, instead)


def _is_element_type(given: Any) -> bool:
    return isinstance(given, (DType, type, np.dtype)) or (isinstance(given, str) and given in DTYPES)


def _no_shape(given: Any, instead: str) -> ShapeError:
    from hlokit.builder import advice

    meant, shown = advice.of_shape(given), repr(given)
    found = shown if len(shown) <= 60 and "\n" not in shown else f"an object of type {type(given).__name__}"
    expected = "a shape, or the element type of a scalar"
    return ShapeError("SHAPE-1", "shape", found, expected, instead.format(meant) if meant else "")


def _written(shape: Shape | DType) -> str:
    from hlokit.builder import advice

    return advice.written(as_shape(shape))


def _all_equal(array: np.ndarray[Any, Any]) -> bool:
    """Every element has the bits of the first."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((flat == flat[0]).all())


def op_function(value: Any) -> Any:
    """A function of the facade made public: its errors name the call where they name no op; what is not a function."""
    if not isinstance(value, FunctionType):
        return value
    made = public(value, _complete, _misuse)
    made.__module__ = "hlokit"
    made.__doc__ = completed(value)
    return made


def _complete(error: HlokitError, name: str, arguments: tuple[Any, ...]) -> None:
    """A BuildError names the function; a ShapeError too, its operands and the caller's line, if no op has completed it.

    The call to write instead is left out where the caller called another function, which is made of this one.
    """
    if isinstance(error, BuildError) and not error.function:
        error.function = name
    if not isinstance(error, ShapeError):
        return
    if error.op is None:
        listed = [part for argument in arguments for part in (argument if is_sequence(argument) else [argument])]
        error.op, error.operands = name, tuple(part.shape for part in listed if isinstance(part, XlaOp))
    error.location = error.location or "{}:{}".format(*_caller())
    builders = {module for module in own_frames(error) if module.startswith("hlokit.builder.")}
    if error.instead and not builders <= _ADVISING:
        error.instead = ""


_ADVISING = {f"hlokit.builder.{name}" for name in ("elementwise", "movement", "broadcasting", "core", "handle")}
"""Modules of the functions that say what to write instead, and of those that they call."""


def _caller() -> tuple[str, int]:
    """File and line of the nearest frame outside this package."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return ("", 0) if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _is_stateful(instruction: Instruction) -> bool:
    from hlokit.hlo.computation import has_side_effect

    return instruction.op.asks_device or has_side_effect(instruction)
