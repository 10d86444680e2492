"""Op functions that call computations, create and read tuples, and order values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from hlokit.builder.core import Builder, ComputationLike, XlaOp, checks_as, computation_of, emit, handles, rejected
from hlokit.builder.handle import first_handle
from hlokit.errors import BuildError, MisuseError, ShapeError
from hlokit.ops.control_flow import Call, Conditional, Map, While
from hlokit.ops.structure import GetTupleElement, OptBarrier, Tuple
from hlokit.types import dtype as dtypes
from hlokit.types.integers import dims

__all__ = [
    "call",
    "composite_call",
    "conditional",
    "get_tuple_element",
    "map",
    "optimization_barrier",
    "tuple_",
    "while_",
]


def tuple_(builder: Builder, elements: Sequence[Any]) -> XlaOp:
    """A tuple of the elements, of which there may be none (TUPLE rules). Numbers become constants.

    Parameters
    ----------
    elements : sequence of XlaOp or number
        Values of any shapes; there may be none.

    Returns
    -------
    XlaOp
        A tuple.

    Raises
    ------
    BuildError
        An element belongs to another builder, or the builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.tuple_(b, [b.constant(1), b.constant([2.0, 3.0])])))
    (array(1, dtype=int32), array([2., 3.], dtype=float32))
    """
    return builder.emit(Tuple(), [builder.handle(e) for e in elements])


def get_tuple_element(tuple_data: XlaOp, index: int) -> XlaOp:
    """Element `index` of a tuple (GTE rules).

    Parameters
    ----------
    tuple_data : XlaOp
        A tuple.
    index : int
        The number of the element, from 0.

    Returns
    -------
    XlaOp
        The element.

    Raises
    ------
    ShapeError
        A constraint does not hold: GTE-3, GTE-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.get_tuple_element(hk.tuple_(b, [b.constant(1), b.constant(2)]), 1)))
    array(2, dtype=int32)
    """
    return emit(GetTupleElement(index), tuple_data)


def optimization_barrier(operand: XlaOp) -> XlaOp:
    """The operand, with a barrier across which optimisations move no computation (OPTBAR rules).

    Parameters
    ----------
    operand : XlaOp
        A value of any shape.

    Returns
    -------
    XlaOp
        The same value.

    Raises
    ------
    BuildError
        `operand` belongs to another builder, or its builder has been built (BUILDER-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.optimization_barrier(b.constant([1, 2]))))
    array([1, 2], dtype=int32)
    """
    return emit(OptBarrier(), operand)


def call(builder: Builder, computation: ComputationLike, operands: Sequence[Any]) -> XlaOp:
    """The value of `computation` on `operands`, of which there may be none (CALL rules).

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
        A constraint does not hold: CALL-3, CALL-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> double = hk.Builder("double")
    >>> body = double.build_computation(double.parameter(0, hk.s32) * 2)
    >>> hk.evaluate(b.build(hk.call(b, body, [b.constant(21)])))
    array(42, dtype=int32)
    """
    return _call(builder, Call(False), computation, operands)


def composite_call(
    builder: Builder,
    computation: ComputationLike,
    operands: Sequence[Any],
    name: str,
    attributes: str | None = None,
    version: int | None = None,
) -> XlaOp:
    """A call that backends may replace by an operation called `name` (BEY-51); the value is that of the call.

    `attributes` is text for the backend; both are stored as frontend attributes composite.*.

    Parameters
    ----------
    computation : Computation, HloModule or callable
        The computation, with any parameters and result.
    operands : sequence of XlaOp or number
        The arguments, each of the parameter's shape.
    name : str
        The name of the operation.
    attributes : str, optional
        Text that backends understand, as an MLIR dictionary.
    version : int, optional
        The version of the operation.

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
    >>> twice = hk.composite_call(b, lambda x: x + x, [b.constant([1, 2])], "my.twice")
    >>> hk.evaluate(b.build(twice))
    array([2, 4], dtype=int32)
    """
    labels = {"composite.name": name, "composite.attributes": attributes, "composite.version": version}
    with builder.frontend_attributes({key: str(value) for key, value in labels.items() if value is not None}):
        return _call(builder, Call(is_composite=True), computation, operands)


@checks_as("map")
def map(
    operands: XlaOp | Sequence[Any],
    computation: ComputationLike,
    dimensions: Sequence[int],
    static_operands: Sequence[XlaOp] = (),
) -> XlaOp:
    """`computation`, a function of scalars, at every index of operands of the same dimensions (MAP rules).

    Scalar operands are broadcast to the others' dimensions (MAP-5). `dimensions` must name all dimensions in order
    (MAP-6).

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        Arrays of the same dimensions; scalars are repeated.
    computation : Computation, HloModule or callable
        Takes a scalar of each operand's element type to one scalar.
    dimensions : sequence of int
        All dimensions of the operands, in order.
    static_operands : sequence of XlaOp, optional
        Must be empty (MAP-8).

    Returns
    -------
    XlaOp
        An array of the operands' dimensions, of the computation's element type.

    Raises
    ------
    ShapeError
        , also for `static_operands`, which nothing supports (MAP-8) (MAP-3 .. MAP-7).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.map([b.constant([1, 2]), b.constant([10, 20])], lambda x, y: x * y + 1, [0])))
    array([11, 41], dtype=int32)
    """
    if static_operands:
        raise ShapeError("MAP-8", "static_operands", len(static_operands), 0)
    listed = (operands,) if isinstance(operands, XlaOp) else tuple(operands)
    if not listed:
        raise ShapeError("MAP-3", "operands", 0, "at least one")
    values = _expanded(handles(*listed))
    scalars = [v.dtype[()] if v.shape.is_array else v.shape for v in values]
    called = computation_of(computation, scalars, values[0].builder)
    found = [p.shape for p in called.parameters]
    floating = [(a.dtype, b.dtype) for a, b in zip(found, scalars) if a.dtype.is_floating and b.dtype.is_floating]
    if any(a is not b for a, b in floating):  # as text may have it
        raise rejected(ShapeError("MAP-7", "to_apply parameters", found, scalars), "map", *values)
    return emit(Map(dims(dimensions, "dimensions")), *values, called=[called])


def while_(condition: ComputationLike, body: ComputationLike, init: XlaOp | Sequence[XlaOp]) -> XlaOp:
    """state = init; while condition(state): state = body(state) (WHILE rules).

    condition: T -> pred[], body: T -> T, for init of shape T; a sequence of handles is their tuple.

    Parameters
    ----------
    condition : Computation, HloModule or callable
        Takes a value of shape T to pred[].
    body : Computation, HloModule or callable
        Takes a value of shape T to one of shape T.
    init : XlaOp or sequence of XlaOp
        The value of shape T for the first iteration; a sequence of handles is their tuple.

    Returns
    -------
    XlaOp
        The value of shape T for which the condition is false.

    Raises
    ------
    ShapeError
        A constraint does not hold: WHILE-4 to WHILE-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.while_(lambda i: i < 100, lambda i: i * 2, b.constant(3))))
    array(192, dtype=int32)
    """
    if not isinstance(init, XlaOp):
        is_list = isinstance(init, Sequence)  # pyright: ignore[reportUnnecessaryIsInstance]
        (first, *_) = handles(*init) if is_list else handles(init)
        init = tuple_(first.builder, init)
    computations = [computation_of(f, [init.shape], init.builder) for f in (condition, body)]
    return emit(While(), init, called=computations)


_PREDICATED = ("pred", "true_operand", "true_computation", "false_operand", "false_computation")
_INDEXED = ("branch_index", "branch_computations", "branch_operands")


@overload
def conditional(
    pred: XlaOp,
    true_operand: Any,
    true_computation: ComputationLike,
    false_operand: Any,
    false_computation: ComputationLike,
) -> XlaOp: ...
@overload
def conditional(
    branch_index: XlaOp, branch_computations: Sequence[ComputationLike], branch_operands: Sequence[Any]
) -> XlaOp: ...
@checks_as("conditional")
def conditional(*arguments: Any, **named: Any) -> XlaOp:
    """The result of one of several computations, each with its own operand; the other branches do not run (COND rules).

    conditional(pred, true_operand, true_computation, false_operand, false_computation): by a pred[];
    conditional(branch_index, branch_computations, branch_operands): by an s32[]; an index outside [0, N) takes the last
    branch (COND-8). All branches return the same shape.

    Parameters
    ----------
    arguments : XlaOp, number or array
        See above.
    named : XlaOp, number or array
        The same arguments by name.

    Returns
    -------
    XlaOp
        The result of the branch that runs.

    Raises
    ------
    ShapeError
        A constraint does not hold: COND-2 to COND-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> pred = b.parameter(0, hk.pred)
    >>> module = b.build(hk.conditional(pred, b.constant(4.0), hk.sqrt, b.constant(3.0), hk.neg))
    >>> hk.evaluate(module, True), hk.evaluate(module, False)
    (array(2., dtype=float32), array(-3., dtype=float32))
    """
    names = _PREDICATED if len(arguments) + len(named) == len(_PREDICATED) else _INDEXED
    if (*sorted(names[len(arguments) :]),) != (*sorted(named),):
        given = ", ".join((*names[: len(arguments)], *named)) or "nothing"
        raise BuildError(f"conditional takes {', '.join(_PREDICATED)} or {', '.join(_INDEXED)}, got {given}", "COND-4")
    selector, *rest = (*arguments, *(named[name] for name in names[len(arguments) :]))
    operands, computations = (rest[0::2], rest[1::2]) if names is _PREDICATED else rest[::-1]
    if names is _INDEXED:
        for name, value in zip(names[1:], rest, strict=True):
            if not isinstance(value, (Sequence, XlaOp)) or (isinstance(value, XlaOp) and not value.shape.is_tuple):
                raise MisuseError(f"conditional({', '.join(names)}): {name} is {value!r}, expected a list")
    selector = first_handle(selector, *operands).builder.handle(selector)
    if names is _PREDICATED and selector.shape.static is not dtypes.pred[()]:
        raise ShapeError("COND-2", "pred", selector.shape, "pred[]")
    if names is _INDEXED and selector.shape.static is not dtypes.s32[()]:
        raise ShapeError("COND-3", "branch_index", selector.shape, "s32[]")
    if len(operands) != len(computations):
        raise ShapeError("COND-4", "branch_operands", len(operands), len(computations))
    builder = selector.builder
    values = [builder.handle(o) for o in operands]
    called = [computation_of(c, [v.shape], builder) for c, v in zip(computations, values, strict=True)]
    return emit(Conditional(), selector, *values, called=called)


def _call(builder: Builder, op: Call, computation: ComputationLike, operands: Sequence[Any]) -> XlaOp:
    values = [builder.handle(o) for o in operands]
    return builder.emit(op, values, [computation_of(computation, [v.shape for v in values], builder)])


def _expanded(values: Sequence[XlaOp]) -> Sequence[XlaOp]:
    """MAP-5: scalars broadcast to the dimensions of the array operands, if those agree on the element type."""
    shapes = {v.shape.static.dimensions for v in values if v.shape.is_array and v.rank}
    if len(shapes) != 1 or all(v.rank for v in values):
        return values
    from hlokit.builder.movement import broadcast

    (dimensions,) = shapes
    return [v if v.rank or not v.shape.is_array else broadcast(v, dimensions) for v in values]
