"""Loops over several handles and some folds (xla/hlo/builder/lib/loops.h and arithmetic.h, BEY-80)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlokit.builder.constants import max_value, min_value, zero
from hlokit.builder.control import tuple_, while_
from hlokit.builder.core import XlaOp
from hlokit.builder.elementwise import and_, eq, gt, lt, min, ne, or_, select
from hlokit.builder.movement import iota
from hlokit.builder.reduction import reduce, reduce_all
from hlokit.errors import BuildError, MisuseError
from hlokit.hlo.values import is_sequence
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

__all__ = ["any", "arg_max", "arg_min", "for_each_index", "while_loop"]


def while_loop(
    condition: Callable[..., XlaOp], body: Callable[..., Sequence[XlaOp]], initial_values: Sequence[XlaOp]
) -> list[XlaOp]:
    """`values = initial_values; while condition(*values): values = body(*values)`, as a list of handles (BEY-80).

    `body` returns as many values as it takes, with the same shapes (WHILE-6); `condition` returns a pred[] (WHILE-4).

    Parameters
    ----------
    condition : callable
        condition(*values): a handle of shape pred[].
    body : callable
        body(*values), handles in and out: a new value for each, of the same shape.
    initial_values : sequence of XlaOp
        The values for the first iteration.

    Returns
    -------
    list of XlaOp
        The values for which the condition is false.

    Raises
    ------
    ShapeError
        The condition or the body does not have these shapes: WHILE-4, WHILE-5, WHILE-6.
    MisuseError
        The body returns a handle that is not in a list.

    Examples
    --------
    >>> b = hk.Builder()
    >>> i, power = hk.while_loop(lambda i, p: i < 5, lambda i, p: [i + 1, p * 2], [b.constant(0), b.constant(1)])
    >>> hk.evaluate(b.build(power))
    array(32, dtype=int32)
    """

    def unfinished(state: XlaOp) -> XlaOp:
        return condition(*state)

    def step(state: XlaOp) -> Sequence[XlaOp]:
        return _values_of("while_loop", body(*state))

    return list(while_(unfinished, step, tuple_(_first("while_loop", initial_values).builder, list(initial_values))))


def for_each_index(
    num_iterations: int,
    index_type: DType,
    body: Callable[..., Sequence[XlaOp]],
    initial_values: Sequence[XlaOp],
) -> list[XlaOp]:
    """`for i in range(num_iterations): values = body(i, *values)`, i a scalar of `index_type` (BEY-80).

    Parameters
    ----------
    num_iterations : int
        The number of times that the body runs.
    index_type : DType
        The integral type of the index.
    body : callable
        body(i, *values), handles in and out: a new value for each, of the same shape.
    initial_values : sequence of XlaOp
        The values for the first iteration.

    Returns
    -------
    list of XlaOp
        The values after the last iteration.

    Raises
    ------
    ShapeError
        The body's values are not of the initial shapes: WHILE-4, WHILE-5, WHILE-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> (total,) = hk.for_each_index(5, hk.s32, lambda i, total: [total + i], [b.constant(0)])
    >>> hk.evaluate(b.build(total))
    array(10, dtype=int32)
    """

    def unfinished(index: XlaOp, *values: XlaOp) -> XlaOp:
        return index < num_iterations

    def step(index: XlaOp, *values: XlaOp) -> list[XlaOp]:
        return [index + 1, *_values_of("for_each_index", body(index, *values))]

    start = _first("for_each_index", initial_values).builder.constant_r0(0, index_type)
    return while_loop(unfinished, step, [start, *initial_values])[1:]


def _first(function: str, initial_values: Sequence[XlaOp]) -> XlaOp:
    if not len(initial_values):
        raise BuildError(f"{function}: initial_values: found none, expected at least one", "BEY-80")
    return initial_values[0]


def _values_of(function: str, given: object) -> list[XlaOp]:
    """The results of `body`, as a list."""
    if isinstance(given, XlaOp) and given.shape.is_tuple:
        return list(given)
    if not is_sequence(given):
        raise MisuseError(f"{function}: body: it gives {given!r}, expected a sequence of handles")
    return list(given)


def any(predicates: XlaOp) -> XlaOp:
    """Whether any element of a pred array is true, as pred[] (BEY-80).

    Parameters
    ----------
    predicates : XlaOp
        A pred array of any shape.

    Returns
    -------
    XlaOp
        A pred[]: whether one element is true. False for an empty array.

    Raises
    ------
    ShapeError
        `predicates` is not a pred array (REDUCER-5).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.any(b.constant([False, True]))))
    array(True)
    """
    return reduce_all(predicates, predicates.builder.constant_r0(False), or_)


def arg_max(input: XlaOp, output_type: DType, axis: int) -> XlaOp:
    """The position of the first largest element along `axis`; NaN counts as larger than all numbers (BEY-80).

    Parameters
    ----------
    input : XlaOp
        A real array.
    output_type : DType
        The integral element type of the result.
    axis : int
        The dimension that is searched.

    Returns
    -------
    XlaOp
        Positions, of the input's dimensions without `axis`.

    Raises
    ------
    ShapeError
        The input is not such an array (BEY-80), or `axis` is not one of its dimensions (IOTA-5).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.arg_max(b.constant([[1.0, 5.0, 2.0], [7.0, 0.0, 7.0]]), hk.s32, 1)))
    array([1, 0], dtype=int32)
    """
    return _arg(input, output_type, axis, gt, min_value(input.builder, input.dtype))


def arg_min(input: XlaOp, output_type: DType, axis: int) -> XlaOp:
    """The position of the first smallest element along `axis`; NaN counts as smaller than all numbers (BEY-80).

    Parameters
    ----------
    input : XlaOp
        A real array.
    output_type : DType
        The integral element type of the result.
    axis : int
        The dimension that is searched.

    Returns
    -------
    XlaOp
        Positions, of the input's dimensions without `axis`.

    Raises
    ------
    ShapeError
        The input is not such an array (BEY-80), or `axis` is not one of its dimensions (IOTA-5).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.arg_min(b.constant([[1.0, 5.0, 2.0], [7.0, 0.0, 7.0]]), hk.s32, 1)))
    array([0, 1], dtype=int32)
    """
    return _arg(input, output_type, axis, lt, max_value(input.builder, input.dtype))


def _arg(input: XlaOp, output_type: DType, axis: int, wins: Callable[[XlaOp, XlaOp], XlaOp], worst: XlaOp) -> XlaOp:
    def better(value: XlaOp, index: XlaOp, other: XlaOp, other_index: XlaOp) -> list[XlaOp]:
        first = or_(wins(value, other), ne(value, value))
        tie = or_(eq(value, other), and_(ne(value, value), ne(other, other)))
        chosen = select(first, index, other_index)
        return [select(first, value, other), select(tie, min(index, other_index), chosen)]

    positions = iota(input.builder, Shape.array(output_type, input.shape.dimensions), axis)
    return reduce([input, positions], [worst, zero(input.builder, output_type)], better, [axis])[1]
