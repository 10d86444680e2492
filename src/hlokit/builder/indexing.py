"""Builder functions: slices, gather, scatter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.builder.core import ComputationLike, XlaOp, computation_of, emit, handles, rejected
from hlokit.builder.handle import first_handle
from hlokit.builder.movement import check_call, integer_list
from hlokit.builder.reduction import check_types, made
from hlokit.errors import ShapeError
from hlokit.ops.gather import Gather
from hlokit.ops.scatter import Scatter
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.types import dtype as dtypes
from hlokit.types.dimension_numbers import GatherDimensionNumbers, ScatterDimensionNumbers

__all__ = ["dynamic_slice", "dynamic_update_slice", "gather", "scatter", "slice", "slice_in_dim"]


def slice(
    operand: XlaOp, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> XlaOp:
    """Every stride-th element from start up to limit, in each dimension; strides are 1 if not given.

    Rules SLICE.

    Parameters
    ----------
    operand : XlaOp
        An array.
    start_indices : sequence of int
        The first index in each dimension.
    limit_indices : sequence of int
        The index in each dimension before which the slice ends.
    strides : sequence of int, optional
        The step in each dimension; by default 1.

    Returns
    -------
    XlaOp
        An array; dimension d has ceil((limit_indices[d] - start_indices[d]) / strides[d]) elements.

    Raises
    ------
    ShapeError
        A constraint does not hold: SLICE-3 to SLICE-7, SLICE-12.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.slice(b.constant([0, 1, 2, 3, 4, 5]), [1], [6], [2])))
    array([1, 3, 5], dtype=int32)
    """
    first_handle(operand)
    starts = integer_list(start_indices, operand, "slice", "SLICE-3", "start_indices")
    limits = integer_list(limit_indices, operand, "slice", "SLICE-3", "limit_indices")
    steps = (1,) * len(starts) if strides is None else integer_list(strides, operand, "slice", "SLICE-3", "strides")
    lengths = (len(starts), len(limits), len(steps))
    equal = len(set(lengths)) == 1
    check_call(equal, operand, "slice", "SLICE-3", "lengths of starts, limits, strides", lengths, "one length")
    return emit(Slice(tuple(zip(starts, limits, steps, strict=True))), operand)


def slice_in_dim(operand: XlaOp, start: int, limit: int, stride: int = 1, dimno: int = 0) -> XlaOp:
    """`slice` in one dimension; the others are kept whole (BEY-27). Rules SLICE.

    Parameters
    ----------
    operand : XlaOp
        An array.
    start : int
        The first index.
    limit : int
        The index before which the slice ends.
    stride : int, optional
        The step.
    dimno : int, optional
        The dimension.

    Returns
    -------
    XlaOp
        An array in which this dimension has ceil((limit - start) / stride) elements.

    Raises
    ------
    ShapeError
        A constraint does not hold: BEY-27, SLICE-3 to SLICE-7.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.slice_in_dim(b.constant([[1, 2, 3], [4, 5, 6]]), 1, 3, dimno=1)))
    array([[2, 3],
           [5, 6]], dtype=int32)
    """
    first_handle(operand)
    check_call(0 <= dimno < operand.rank, operand, "slice", "BEY-27", "dimno", dimno, "a dimension of the operand")
    ranges = [(0, size, 1) for size in operand.shape.dimensions]
    ranges[dimno] = (start, limit, stride)
    return emit(Slice(tuple(ranges)), operand)


def dynamic_slice(operand: XlaOp, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> XlaOp:
    """The slice of sizes `slice_sizes` at indices known at run time, moved inside if it extends beyond the end.

    start_indices: a scalar per dimension, all of one integral type. Rules DSLICE.

    Parameters
    ----------
    operand : XlaOp
        An array.
    start_indices : sequence of XlaOp or number
        A scalar for each dimension of the operand, all of one integral type. They are moved so that the slice lies
        inside the operand.
    slice_sizes : sequence of int
        The sizes of the slice, none larger than the operand's.

    Returns
    -------
    XlaOp
        An array of dimensions `slice_sizes`.

    Raises
    ------
    ShapeError
        A constraint does not hold: DSLICE-5 to DSLICE-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.evaluate(b.build(hk.dynamic_slice(b.constant([0, 1, 2, 3, 4]), [b.constant(3)], [3])))
    array([2, 3, 4], dtype=int32)
    """
    starts = _starts(operand, start_indices, "dynamic-slice", "DSLICE-6")
    sizes = integer_list(slice_sizes, operand, "dynamic-slice", "DSLICE-7", "slice_sizes")
    return emit(DynamicSlice(sizes), operand, *starts)


def dynamic_update_slice(operand: XlaOp, update: Any, start_indices: Sequence[Any]) -> XlaOp:
    """The operand in which `update`, of its rank and element type, replaces the slice that starts at the indices.

    Start indices as for `dynamic_slice`. Rules DUS.

    Parameters
    ----------
    operand : XlaOp
        An array.
    update : XlaOp, number or array
        The values to write: of the operand's rank and element type, no dimension larger than the operand's.
    start_indices : sequence of XlaOp or number
        A scalar for each dimension of the operand, all of one integral type. They are moved so that the update lies
        inside the operand.

    Returns
    -------
    XlaOp
        An array of the operand's shape.

    Raises
    ------
    ShapeError
        A constraint does not hold: DUS-3 to DUS-6.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.dynamic_update_slice(b.constant([0, 1, 2, 3, 4]), b.constant([7, 8]), [b.constant(1)])
    >>> hk.evaluate(b.build(result))
    array([0, 7, 8, 3, 4], dtype=int32)
    """
    operand, update = handles(operand, update)
    starts = _starts(operand, start_indices, "dynamic-update-slice", "DUS-6")
    return emit(DynamicUpdateSlice(), operand, update, *starts)


def gather(
    operand: XlaOp,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers | Any,
    slice_sizes: Sequence[int],
    indices_are_sorted: bool = False,
) -> XlaOp:
    """Slices of one operand, one for each index vector, which start at the positions that the vectors give.

    Slices that would extend beyond the operand are moved inside. Rules GATHER; the page of the op has pictures.

    Parameters
    ----------
    operand : XlaOp
        The array from which slices are taken.
    start_indices : XlaOp, number or array
        Integers. Its dimension `index_vector_dim` holds the index vectors; if that is its rank, each element is a
        vector.
    dimension_numbers : GatherDimensionNumbers, mapping or object with its fields
        How vectors address the operand, and how slices are placed in the result. `start_index_map`: for each entry of a
        vector, the dimension of the operand that it indexes; the other dimensions start at 0. `offset_dims`: the
        dimensions of the result that run within a slice (without collapsed and batching ones); the remaining ones
        enumerate the vectors. `collapsed_slice_dims`: dimensions of the operand, of slice size 1, that the result does
        not have. `operand_batching_dims`, `start_indices_batching_dims`: pairs of dimensions that have one index
        (BEY-31).
    slice_sizes : sequence of int
        The sizes of a slice, one for each dimension of the operand, none larger than it.

    Returns
    -------
    XlaOp
        An array of the operand's element type: the dimensions of `start_indices` without that of the vectors, with
        those of a slice at `offset_dims`.

    Raises
    ------
    ShapeError
        A constraint does not hold: GATHER-3 to GATHER-12, GATHER-34, BEY-31.

    Examples
    --------
    >>> b = hk.Builder()
    >>> table, rows = b.constant([[1, 2], [3, 4], [5, 6]]), b.constant([2, 0])
    >>> numbers = hk.GatherDimensionNumbers(
    ...     offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1
    ... )
    >>> hk.evaluate(b.build(hk.gather(table, rows, numbers, [1, 2])))
    array([[5, 6],
           [1, 2]], dtype=int32)
    """
    operand, start_indices = handles(operand, start_indices)
    numbers = made(GatherDimensionNumbers.of, "gather", (operand, start_indices), dimension_numbers)
    op = Gather(
        tuple(numbers.offset_dims),
        tuple(numbers.collapsed_slice_dims),
        tuple(numbers.start_index_map),
        tuple(numbers.operand_batching_dims),
        tuple(numbers.start_indices_batching_dims),
        numbers.index_vector_dim,
        integer_list(slice_sizes, operand, "gather", "GATHER-4", "slice_sizes"),
        indices_are_sorted,
    )
    return emit(op, operand, start_indices)


def scatter(
    operands: Any,
    scatter_indices: Any,
    updates: Any,
    update_computation: ComputationLike,
    dimension_numbers: ScatterDimensionNumbers | Any,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
) -> XlaOp:
    """The operand with updates combined into windows that start at index vectors: the transpose of `gather`.

    Windows that extend beyond the operand are skipped; updates are applied in row-major order. Rules SCATTER; the page
    of the op has pictures.

    Parameters
    ----------
    operands : XlaOp or sequence of XlaOp
        An array, or N arrays of one shape.
    scatter_indices : XlaOp, number or array
        Integers. Its dimension `index_vector_dim` holds the index vectors.
    updates : XlaOp or sequence of XlaOp
        For each operand an array of its element type: the dimensions of `scatter_indices` without that of the vectors,
        with those of a window at `update_window_dims`.
    update_computation : Computation, HloModule or callable
        Takes (N current, N update) scalars to N scalars.
    dimension_numbers : ScatterDimensionNumbers, mapping or object with its fields
        How vectors address the operand, and how windows are placed in the updates. `update_window_dims`: the dimensions
        of the updates that run within a window; the others enumerate the vectors. `inserted_window_dims`: dimensions of
        the operand in which windows have size 1 and the updates no dimension. `scatter_dims_to_operand_dims`: for each
        entry of a vector, the dimension of the operand that it indexes. `input_batching_dims`,
        `scatter_indices_batching_dims`: pairs of dimensions that have one index (BEY-33).
    unique_indices : bool, optional
        A promise that no two windows overlap. No value depends on it.

    Returns
    -------
    XlaOp
        An array of the operand's shape; a tuple for N operands.

    Raises
    ------
    ShapeError
        A constraint does not hold: SCATTER-2 to SCATTER-15, SCATTER-34, BEY-33.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, places, updates = b.constant([1, 2, 3]), b.constant([2, 0, 2]), b.constant([10, 20, 30])
    >>> numbers = hk.ScatterDimensionNumbers(
    ...     update_window_dims=[], inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1
    ... )
    >>> hk.evaluate(b.build(hk.scatter(x, places, updates, hk.add, numbers)))
    array([21,  2, 43], dtype=int32)
    """
    given: list[Any] = [*operands] if isinstance(operands, (list, tuple)) else [operands]
    added: list[Any] = [*updates] if isinstance(operands, (list, tuple)) and np.iterable(updates) else [updates]
    if not given or len(added) != len(given):
        raise ShapeError("SCATTER-2", "operands and updates", (len(given), len(added)), "N >= 1 of each")
    first = first_handle(*given, scatter_indices, *added)
    arrays = [first.builder.handle(o) for o in given]
    are_arrays = all(array.shape.is_array for array in arrays)
    check_call(are_arrays, arrays[0], "scatter", "SCATTER-34", "operands", [a.shape for a in arrays], "arrays")
    numbers = made(ScatterDimensionNumbers.of, "scatter", arrays, dimension_numbers)
    op = Scatter(
        tuple(numbers.update_window_dims),
        tuple(numbers.inserted_window_dims),
        tuple(numbers.scatter_dims_to_operand_dims),
        tuple(numbers.input_batching_dims),
        tuple(numbers.scatter_indices_batching_dims),
        numbers.index_vector_dim,
        indices_are_sorted,
        unique_indices,
    )
    scalars = [array.dtype[()] for array in arrays]
    called = computation_of(update_computation, scalars + scalars, arrays[0].builder)
    added = [first.builder.handle(update) for update in added]
    for array, update in zip(arrays, added, strict=True):  # builders mix no floating types, as text may (REDUCER-7)
        fits = not update.shape.is_array or update.dtype is array.dtype
        check_call(fits, array, "scatter", "SCATTER-4", "element type of updates", update.shape, array.dtype)
    check_types(called, arrays, [], "scatter")
    return emit(op, *arrays, scatter_indices, *added, called=(called,))


def _starts(operand: XlaOp, indices: Sequence[Any], opcode: str, label: str) -> list[XlaOp]:
    """Start indices as handles; Python integers take the type of those that are handles, else s32."""
    first_handle(operand)
    if not np.iterable(indices):
        found = getattr(indices, "shape", indices)
        raise rejected(ShapeError(label, "start_indices", found, "a sequence of scalars"), opcode, operand)
    given = next((i for i in indices if isinstance(i, XlaOp)), None)
    element_type = given.dtype if given is not None and given.shape.is_array else dtypes.s32
    starts = [i if isinstance(i, XlaOp) else operand.builder.constant(i, element_type) for i in indices]
    scalars = all(s.shape.is_scalar for s in starts)
    check_call(scalars, operand, opcode, label, "start_indices", [s.shape for s in starts], "scalars")
    return starts
