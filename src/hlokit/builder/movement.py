"""Builder functions: data movement."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hlokit.builder.core import XlaOp, emit, rejected
from hlokit.builder.handle import first_handle
from hlokit.errors import HlokitError, ShapeError
from hlokit.ops.movement import Broadcast, Concatenate, Iota, Pad, Reverse, Transpose
from hlokit.ops.reshaping import DynamicReshape, Reshape, reshaped
from hlokit.types import dtype as dtypes
from hlokit.types.integers import integers
from hlokit.types.shape import UNBOUNDED, Shape

if TYPE_CHECKING:
    from hlokit.builder.core import Builder

__all__ = [
    "broadcast",
    "broadcast_in_dim",
    "collapse",
    "concat_in_dim",
    "concatenate",
    "dynamic_reshape",
    "pad",
    "pad_in_dim",
    "reshape",
    "reshape_with_inferred_dimension",
    "rev",
    "transpose",
]


def broadcast(operand: XlaOp, broadcast_sizes: Sequence[int]) -> XlaOp:
    """Repeats an array along new leading dimensions of these sizes: [broadcast_sizes ++ operand's].

    Rules BRD.

    Parameters
    ----------
    operand : XlaOp
        An array of dimensions D.
    broadcast_sizes : sequence of int
        The sizes of the new leading dimensions S.

    Returns
    -------
    XlaOp
        An array of dimensions S ++ D: result[i.., j..] = operand[j..].

    Raises
    ------
    ShapeError
        A constraint does not hold: BRD-3, BRD-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.broadcast(b.constant([1, 2]), [3])))
    array([[1, 2],
           [1, 2],
           [1, 2]], dtype=int32)
    """
    _check_array(operand, "broadcast", "BRD-6")
    sizes = _checked_sizes(broadcast_sizes, operand, "broadcast", "BRD-3", "broadcast_sizes")
    shape, new = operand.shape, len(sizes)
    output = shape.with_dimensions((*sizes, *shape.dimensions), (*[False] * new, *shape.dynamic))
    return emit(Broadcast(tuple(range(new, output.rank)), output), operand)


def broadcast_in_dim(operand: XlaOp, out_dim_size: Sequence[int], broadcast_dimensions: Sequence[int]) -> XlaOp:
    """An array of the sizes `out_dim_size` in which operand dimension i is dimension broadcast_dimensions[i].

    Dimensions that no entry names, and operand dimensions of size 1, are repeated. Rules BIDIM.

    Parameters
    ----------
    operand : XlaOp
        An array.
    out_dim_size : sequence of int
        The sizes of the result's dimensions.
    broadcast_dimensions : sequence of int
        For each dimension of the operand the dimension of the result that it becomes, ascending; its size there is the
        same, or 1 in the operand.

    Returns
    -------
    XlaOp
        An array of dimensions `out_dim_size` and the operand's element type.

    Raises
    ------
    ShapeError
        A constraint does not hold: BIDIM-3 to BIDIM-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.broadcast_in_dim(b.constant([1, 2]), [2, 3], [0])))
    array([[1, 1, 1],
           [2, 2, 2]], dtype=int32)
    """
    _check_array(operand, "broadcast", "BRD-6")
    out_dim_size = _checked_sizes(out_dim_size, operand, "broadcast", "BIDIM-8", "out_dim_size")
    broadcast_dimensions = integer_list(broadcast_dimensions, operand, "broadcast", "BIDIM-5", "broadcast_dimensions")
    try:
        _check_broadcast_dimensions(operand, out_dim_size, broadcast_dimensions)
    except ShapeError as error:
        from hlokit.builder import advice

        error.instead = advice.in_dimensions("x", operand.shape, out_dim_size)
        raise
    shape = operand.shape
    flags = [False] * len(out_dim_size)
    for i, d in enumerate(broadcast_dimensions):
        flags[d] = shape.dynamic[i]
    output = shape.with_dimensions(out_dim_size, flags)
    kept = [i for i, d in enumerate(broadcast_dimensions) if shape.dimensions[i] != 1 or out_dim_size[d] == 1]
    if len(kept) < shape.rank:
        operand = reshape(operand, [shape.dimensions[i] for i in kept])
    return emit(Broadcast(tuple(broadcast_dimensions[i] for i in kept), output), operand)


def _check_broadcast_dimensions(operand: XlaOp, sizes: Sequence[int], dimensions: Sequence[int]) -> None:
    shape, rank = operand.shape, len(sizes)

    def check(condition: bool, label: str, argument: str, found: object, expected: object) -> None:
        check_call(condition, operand, "broadcast", label, argument, found, expected)

    check(len(dimensions) == shape.rank, "BIDIM-3", "entries of broadcast_dimensions", dimensions, shape.rank)
    check(shape.rank <= rank, "BIDIM-4", "out_dim_size", sizes, "at least as many sizes as the operand has")
    inside = all(0 <= d < rank for d in dimensions)
    check(inside, "BIDIM-5", "broadcast_dimensions", dimensions, "dimensions of the result")
    ascends = all(a < b for a, b in pairwise(dimensions))
    check(ascends, "BIDIM-6", "broadcast_dimensions", dimensions, "strictly increasing")
    for size, d in zip(shape.dimensions, dimensions, strict=True):
        fits = size in (1, sizes[d]) or UNBOUNDED in (size, sizes[d])
        check(fits, "BIDIM-7", "out_dim_size", sizes, "the operand's sizes, where those are not 1")


def reshape(operand: XlaOp, new_sizes: Sequence[int] | Shape, dimensions: Sequence[int] | None = None) -> XlaOp:
    """The operand's elements, in row-major order, as an array of other dimensions.

    Rules RESHAPE, DYN-5.

    Parameters
    ----------
    operand : XlaOp
        An array.
    new_sizes : sequence of int or Shape
        The sizes of the result, of as many elements as the operand has; or a Shape, which may have dynamic dimensions
        (BEY-22).
    dimensions : sequence of int, optional
        The order, slowest first, in which the operand's dimensions are read; by default their own order. With another
        order, the operand is transposed first.

    Returns
    -------
    XlaOp
        An array of dimensions `new_sizes`.

    Raises
    ------
    ShapeError
        A constraint does not hold: RESHAPE-2, RESHAPE-3, RESHAPE-6, BEY-22.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reshape(b.constant([[1, 2, 3], [4, 5, 6]]), [3, 2])))
    array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    """
    _check_array(operand, "reshape", "RESHAPE-1")
    if dimensions is not None:
        given, order = integer_list(dimensions, operand, "reshape", "RESHAPE-6", "dimensions"), range(operand.rank)
        is_permutation = sorted(given) == [*order]
        check_call(is_permutation, operand, "reshape", "RESHAPE-6", "dimensions", given, "all of the operand's")
        if given != tuple(order):
            operand = transpose(operand, dimensions)
    if isinstance(new_sizes, Shape):
        return emit(Reshape(None, new_sizes), operand)
    return _reshape(operand, new_sizes, None)


def reshape_with_inferred_dimension(operand: XlaOp, new_sizes: Sequence[int], inferred_dimension: int) -> XlaOp:
    """`reshape` that states which dimension of the result takes a dynamic size, where several are possible.

    Rules BEY-23, DYN-5.

    Parameters
    ----------
    operand : XlaOp
        An array, which may have a dynamic dimension.
    new_sizes : sequence of int
        The sizes of the result, of as many elements as the operand has.
    inferred_dimension : int
        The dimension of the result that takes the dynamic size.

    Returns
    -------
    XlaOp
        An array of dimensions `new_sizes`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-23, RESHAPE-2, RESHAPE-3, RESHAPE-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.reshape_with_inferred_dimension(b.constant([1, 2, 3, 4]), [2, 2], 0)))
    array([[1, 2],
           [3, 4]], dtype=int32)
    """
    _check_array(operand, "reshape", "RESHAPE-1")
    return _reshape(operand, new_sizes, inferred_dimension)


def _reshape(operand: XlaOp, sizes: Sequence[int], inferred_dimension: int | None) -> XlaOp:
    sizes = _checked_sizes(sizes, operand, "reshape", "RESHAPE-3", "new_sizes")
    try:
        output = reshaped(operand.shape, sizes, inferred_dimension)
    except ShapeError as error:
        raise rejected(error, "reshape", operand) from None
    return emit(Reshape(inferred_dimension, output), operand)


def dynamic_reshape(
    operand: XlaOp, dim_sizes: Sequence[Any], new_size_bounds: Sequence[int], dims_are_dynamic: Sequence[bool]
) -> XlaOp:
    """`reshape` to sizes that are known at run time: s32 scalars, one per dimension of the result.

    The bounds determine the result's buffer, and the flags which of its dimensions are dynamic. Rule BEY-24.

    Parameters
    ----------
    operand : XlaOp
        An array.
    dim_sizes : sequence of XlaOp or number
        The sizes at run time: an s32 scalar for each dimension of the result.
    new_size_bounds : sequence of int
        The bounds of the sizes: the dimensions of the result's buffer.
    dims_are_dynamic : sequence of bool
        For each dimension of the result whether it is dynamic.

    Returns
    -------
    XlaOp
        An array of dimensions `new_size_bounds`, of which those marked are dynamic.

    Raises
    ------
    ShapeError
        The arguments do not match each other or the operand (BEY-24, RESHAPE-2, RESHAPE-3).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = hk.set_dimension_size(b.constant([1, 2, 3, 4]), b.constant(2), 0)
    >>> hk.evaluate(b.build(hk.dynamic_reshape(x, [1, 2], [1, 4], [False, True])))
    array([[1, 2]], dtype=int32)
    """
    _check_array(operand, "dynamic-reshape", "BEY-24")
    lengths = (len(dim_sizes), len(new_size_bounds), len(dims_are_dynamic))
    equal = len(set(lengths)) == 1
    check_call(equal, operand, "dynamic-reshape", "BEY-24", "lengths of sizes, bounds, flags", lengths, "one length")
    bounds = _checked_sizes(new_size_bounds, operand, "dynamic-reshape", "RESHAPE-3", "new_size_bounds")
    output = operand.shape.with_dimensions(bounds, dims_are_dynamic)
    sizes = [s if isinstance(s, XlaOp) else operand.builder.constant(s, dtypes.s32) for s in dim_sizes]
    return emit(DynamicReshape(output), operand, *sizes)


def collapse(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Merges consecutive dimensions into one at the position of the first; with none or one, returns the operand.

    Rules COLLAPSE.

    Parameters
    ----------
    operand : XlaOp
        An array.
    dimensions : sequence of int
        Consecutive dimensions, ascending.

    Returns
    -------
    XlaOp
        An array with one dimension in place of these, of the product of their sizes.

    Raises
    ------
    ShapeError
        A constraint does not hold: COLLAPSE-3, COLLAPSE-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.collapse(b.constant([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), [1, 2])))
    array([[1, 2, 3, 4],
           [5, 6, 7, 8]], dtype=int32)
    """
    first_handle(operand)
    dimensions = integer_list(dimensions, operand, "reshape", "COLLAPSE-4", "dimensions")
    inside = all(0 <= d < operand.rank for d in dimensions)
    check_call(inside, operand, "reshape", "COLLAPSE-4", "dimensions", dimensions, "dimensions of the operand")
    consecutive = all(a + 1 == b for a, b in pairwise(dimensions))
    check_call(consecutive, operand, "reshape", "COLLAPSE-3", "dimensions", dimensions, "increasing, consecutive")
    if len(dimensions) <= 1:
        return operand
    first, last = dimensions[0], dimensions[-1]
    sizes = operand.shape.dimensions
    return reshape(operand, [*sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :]])


def transpose(operand: XlaOp, permutation: Sequence[int]) -> XlaOp:
    """Permutes dimensions: dimension i of the result is the operand's permutation[i].

    Rules TRANSP.

    Parameters
    ----------
    operand : XlaOp
        An array of rank r.
    permutation : sequence of int
        The numbers 0 to r - 1 in some order.

    Returns
    -------
    XlaOp
        An array whose dimension i has the size of the operand's dimension permutation[i].

    Raises
    ------
    ShapeError
        A constraint does not hold: TRANSP-3.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.transpose(b.constant([[1, 2, 3], [4, 5, 6]]), [1, 0])))
    array([[1, 4],
           [2, 5],
           [3, 6]], dtype=int32)
    """
    permutation = integer_list(permutation, operand, "transpose", "TRANSP-3", "permutation")
    return emit(Transpose(permutation), operand)


def rev(operand: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Reverses the order of elements in these dimensions. Rules REV.

    Parameters
    ----------
    operand : XlaOp
        An array.
    dimensions : sequence of int
        The dimensions, none twice.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: REV-3, REV-4.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.rev(b.constant([[1, 2], [3, 4]]), [1])))
    array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return emit(Reverse(integer_list(dimensions, operand, "reverse", "REV-3", "dimensions")), operand)


def concat_in_dim(operands: Sequence[XlaOp], dimension: int) -> XlaOp:
    """Arrays of one rank and element type, one after the other along `dimension`. Rules CONCAT.

    Parameters
    ----------
    operands : sequence of XlaOp
        Arrays of one rank and element type, whose dimensions except `dimension` are equal. At least one.
    dimension : int
        The dimension along which they follow each other.

    Returns
    -------
    XlaOp
        An array in which this dimension has the sum of the operands' sizes.

    Raises
    ------
    ShapeError
        A constraint does not hold: CONCAT-3 to CONCAT-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.concat_in_dim([b.constant([[1, 2]]), b.constant([[3, 4], [5, 6]])], 0)))
    array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    """
    given: Any = operands
    if not isinstance(given, Iterable) or (isinstance(given, XlaOp) and not given.shape.is_tuple):
        raise _no_operands(operands, dimension)
    listed = list(operands)
    if not listed:
        raise ShapeError("CONCAT-3", "operands", "none", "at least one")
    return emit(Concatenate(dimension), *listed)


def _no_operands(operands: Any, dimension: Any) -> HlokitError:
    """The error for what is not a list of operands: the other argument's place, or handles that are not in a list."""
    swapped = isinstance(dimension, (list, tuple))
    found: list[Any] = list(dimension) if swapped else [operands, dimension]  # pyright: ignore[reportUnknownArgumentType]
    handles = [operand for operand in found if isinstance(operand, XlaOp)]
    axis = next((n for n in (operands, dimension) if isinstance(n, int)), 0)
    shown = operands.shape if isinstance(operands, XlaOp) else repr(operands)
    instead = f"hk.concat_in_dim([{', '.join('xyz'[: len(handles)])}], {axis})"
    error = ShapeError("CONCAT-3", "operands", shown, "a sequence of handles", instead if handles else "")
    return rejected(error, "concatenate", *handles) if handles else error


concatenate = concat_in_dim


def pad(operand: XlaOp, padding_value: Any, padding_config: Sequence[Any]) -> XlaOp:
    """Puts `padding_value` around the elements and between them.

    Rules PAD.

    Parameters
    ----------
    operand : XlaOp
        An array.
    padding_value : XlaOp, number or array
        A scalar of the operand's element type.
    padding_config : sequence of (int, int, int)
        For each dimension (low, high, interior), (low, high) or a PaddingDimension: `interior` values between
        neighbours, then `low` before and `high` after all; negative `low` and `high` remove elements.

    Returns
    -------
    XlaOp
        An array; a dimension of size n has size low + high + n + interior * (n - 1).

    Raises
    ------
    ShapeError
        A constraint does not hold: PAD-2 to PAD-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.pad(b.constant([1, 2, 3]), 0, [(2, 1, 1)])))
    array([0, 0, 1, 0, 2, 0, 3, 0], dtype=int32)
    """
    return emit(Pad(padding_config), operand, padding_value)  # pyright: ignore[reportArgumentType]  # which Pad checks


def pad_in_dim(operand: XlaOp, padding_value: Any, dimno: int, pad_lo: int, pad_hi: int) -> XlaOp:
    """`pad` around one dimension (BEY-26). Rules PAD.

    Parameters
    ----------
    operand : XlaOp
        An array.
    padding_value : XlaOp, number or array
        A scalar of the operand's element type.
    dimno : int
        The dimension.
    pad_lo, pad_hi : int
        The number of values inserted before and after; negative ones remove elements.

    Returns
    -------
    XlaOp
        An array in which this dimension is larger by `pad_lo` + `pad_hi`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-26, PAD-2, PAD-3, PAD-4, PAD-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.pad_in_dim(b.constant([[1, 2], [3, 4]]), 0, 1, 1, 0)))
    array([[0, 1, 2],
           [0, 3, 4]], dtype=int32)
    """
    first_handle(operand)
    check_call(0 <= dimno < operand.rank, operand, "pad", "BEY-26", "dimno", dimno, "a dimension of the operand")
    return pad(operand, padding_value, [(pad_lo, pad_hi, 0) if d == dimno else (0, 0, 0) for d in range(operand.rank)])


def iota(builder: Builder, shape: Shape, iota_dimension: int) -> XlaOp:
    """An array of `shape` whose elements are their indices in `iota_dimension`. Rules IOTA. Raises ShapeError."""
    return builder.emit(Iota(iota_dimension, shape), ())


def check_call(
    condition: bool, operand: XlaOp, opcode: str, label: str, argument: str, found: object, expected: object
) -> None:
    """Raises ShapeError with the rule's label unless `condition`, which must hold before an op can be made, does."""
    if not condition:
        raise rejected(ShapeError(label, argument, found, expected), opcode, operand)


def _check_array(operand: XlaOp, opcode: str, label: str) -> None:
    first_handle(operand)
    check_call(operand.shape.is_array, operand, opcode, label, "operand", operand.shape, "an array")


def integer_list(values: Sequence[int], operand: XlaOp, opcode: str, label: str, name: str) -> tuple[int, ...]:
    """`values`, of an argument that is needed before an op can be made. Raises ShapeError if they are not integers."""
    try:
        return integers(values, label, name)
    except ShapeError as error:
        raise rejected(error, opcode, first_handle(operand)) from None


def _checked_sizes(values: Sequence[int], operand: XlaOp, opcode: str, label: str, name: str) -> tuple[int, ...]:
    sizes = integer_list(values, operand, opcode, label, name)
    check_call(all(n >= 0 or n == UNBOUNDED for n in sizes), operand, opcode, label, name, sizes, "sizes >= 0")
    return sizes
