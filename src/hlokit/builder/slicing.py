"""Slices given by fewer numbers (xla/hlo/builder/lib/slicing.h, BEY-80)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.builder.core import XlaOp
from hlokit.builder.domain import reject
from hlokit.builder.indexing import dynamic_slice, dynamic_update_slice, gather, slice
from hlokit.types.dimension_numbers import GatherDimensionNumbers

__all__ = [
    "dynamic_slice_in_minor_dims",
    "dynamic_update_slice_in_minor_dims",
    "slice_in_minor_dims",
    "torch_index_select",
    "update_slice",
    "update_slice_in_minor_dims",
]


def slice_in_minor_dims(x: XlaOp, start: Sequence[int], end: Sequence[int]) -> XlaOp:
    """x[..., start[0]:end[0], ..., start[-1]:end[-1]]; the dimensions before are kept whole (BEY-80, SLICE rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    start : sequence of int
        The first index, for each of the last dimensions.
    end : sequence of int
        The index before which the slice ends, for each of them.

    Returns
    -------
    XlaOp
        An array that has end - start elements in these dimensions.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80, SLICE-3 to SLICE-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.slice_in_minor_dims(b.constant([[1, 2, 3], [4, 5, 6]]), [1], [3])))
    array([[2, 3],
           [5, 6]], dtype=int32)
    """
    major = _major_sizes("slice_in_minor_dims", x, len(start))
    return slice(x, (*(0 for _ in major), *start), (*major, *end))


def update_slice(x: XlaOp, update: XlaOp, start: Sequence[int]) -> XlaOp:
    """x with `update` written at the constant indices `start` (BEY-80, DUS rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    update : XlaOp
        The values to write: of the rank and element type of `x`, no dimension larger.
    start : sequence of int
        The index of the first element that is written, one for each dimension.

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80, DUS-3 to DUS-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.update_slice(b.constant([0, 1, 2, 3]), b.constant([7, 8]), [1])))
    array([0, 7, 8, 3], dtype=int32)
    """
    return dynamic_update_slice(x, update, list(start))


def update_slice_in_minor_dims(x: XlaOp, update: XlaOp, start: Sequence[int]) -> XlaOp:
    """x with `update` written at `start` in the last dimensions and at 0 in the others (BEY-80, DUS rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    update : XlaOp
        The values to write: of the rank and element type of `x`, no dimension larger.
    start : sequence of int
        The first index that is written, for the last dimensions.

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80, DUS-3 to DUS-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.update_slice_in_minor_dims(b.constant([[0, 1, 2], [3, 4, 5]]), b.constant([[7], [8]]), [1])
    >>> hk.evaluate(b.build(result))
    array([[0, 7, 2],
           [3, 8, 5]], dtype=int32)
    """
    major = _major_sizes("update_slice_in_minor_dims", x, len(start))
    return update_slice(x, update, [*(0 for _ in major), *start])


def dynamic_slice_in_minor_dims(x: XlaOp, starts: Sequence[Any], sizes: Sequence[int]) -> XlaOp:
    """dynamic_slice in the last dimensions; the others are kept whole (BEY-80, DSLICE rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    starts : sequence of XlaOp or number
        Scalars of one integral type, for the last dimensions.
    sizes : sequence of int
        The sizes of the slice in these dimensions.

    Returns
    -------
    XlaOp
        An array that has these sizes in its last dimensions.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80, DSLICE-5 to DSLICE-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.dynamic_slice_in_minor_dims(b.constant([[0, 1, 2], [3, 4, 5]]), [b.constant(1)], [2])
    >>> hk.evaluate(b.build(result))
    array([[1, 2],
           [4, 5]], dtype=int32)
    """
    major = _major_sizes("dynamic_slice_in_minor_dims", x, len(starts))
    return dynamic_slice(x, _with_zeros(major, starts), (*major, *sizes))


def dynamic_update_slice_in_minor_dims(x: XlaOp, update: XlaOp, starts: Sequence[Any]) -> XlaOp:
    """dynamic_update_slice that starts at 0 in all but the last dimensions (BEY-80, DUS rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    update : XlaOp
        The values to write: of the rank and element type of `x`, no dimension larger.
    starts : sequence of XlaOp or number
        Scalars of one integral type, for the last dimensions.

    Returns
    -------
    XlaOp
        An array of the shape of `x`.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-80, DUS-3 to DUS-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.dynamic_update_slice_in_minor_dims(
    ...     b.constant([[0, 1, 2], [3, 4, 5]]), b.constant([[7], [8]]), [b.constant(2)]
    ... )
    >>> hk.evaluate(b.build(result))
    array([[0, 1, 7],
           [3, 4, 8]], dtype=int32)
    """
    major = _major_sizes("dynamic_update_slice_in_minor_dims", x, len(starts))
    return dynamic_update_slice(x, update, _with_zeros(major, starts))


def torch_index_select(x: XlaOp, index: XlaOp, dim: int) -> XlaOp:
    """The slices of x at the positions index[i] along `dim`; the result has index's dimensions in its place (BEY-80).

    Positions out of bounds are clamped (GATHER rules).

    Parameters
    ----------
    x : XlaOp
        An array.
    index : XlaOp
        Integers: positions along `dim`.
    dim : int
        The dimension of `x` that is indexed.

    Returns
    -------
    XlaOp
        The dimensions of `x`, with those of `index` in place of `dim`.

    Raises
    ------
    ShapeError
        `index` is not integral or `dim` not a dimension of `x` (BEY-80), or a constraint does not hold: GATHER-3 to
        GATHER-5.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.torch_index_select(b.constant([[1, 2, 3], [4, 5, 6]]), b.constant([2, 0]), 1)))
    array([[3, 1],
           [6, 4]], dtype=int32)
    """
    if not 0 <= dim < x.rank:
        raise reject("BEY-80", "torch_index_select", "operand", f"a dimension {dim}", x)
    sizes = x.shape.dimensions
    return gather(
        x,
        index,
        GatherDimensionNumbers(
            offset_dims=(*range(dim), *range(dim + index.rank, x.rank - 1 + index.rank)),
            collapsed_slice_dims=(dim,),
            start_index_map=(dim,),
            index_vector_dim=index.rank,
        ),
        (*sizes[:dim], 1, *sizes[dim + 1 :]),
    )


def _major_sizes(function: str, x: XlaOp, minor: int) -> tuple[int, ...]:
    """The sizes of the dimensions before the last `minor` ones."""
    if minor > x.rank:
        raise reject("BEY-80", function, "operand", f"rank {minor} at least", x)
    return x.shape.dimensions[: x.rank - minor]


def _with_zeros(major: Sequence[int], starts: Sequence[Any]) -> list[Any]:
    """`starts` after a zero of the same type for each major dimension."""
    given = next((s for s in starts if isinstance(s, XlaOp)), None)
    zero: Any = 0 if given is None else given.builder.constant_r0(0, given.dtype)
    return [*(zero for _ in major), *starts]
