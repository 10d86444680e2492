"""Slices at fixed positions and at positions known at run time."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.forms.affine import Affine, Index
from hlokit.forms.cost import Cost, taken
from hlokit.forms.emitter import Emitter, Reader, Value
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Dynamic, valid_part, whole_buffer
from hlokit.types.attributes import Dims, SliceRanges
from hlokit.types.shape import UNBOUNDED, Shape


class Slice(Op, name="slice"):
    """Every stride-th element from start up to limit, in each dimension."""

    ranges: SliceRanges = attr(text="slice", proto="slice_dimensions")

    rounding = None
    arity = 1
    form = "index"
    rules = "SLICE"
    same_elements = True
    whole_values = True
    shape_required = True

    def infer(self, operand: Shape) -> Shape:
        check(operand.is_array, "SLICE-12", "operand", operand, "an array")
        check(len(self.ranges) == operand.rank, "SLICE-3", "slice", self.ranges, "one range per dimension")
        sizes: list[int] = []
        for size, (start, limit, stride) in zip(operand.dimensions, self.ranges, strict=True):
            check(start >= 0, "SLICE-4", "start index", start, ">= 0")
            check(stride > 0, "SLICE-7", "stride", stride, "> 0")
            if limit == size == UNBOUNDED and start == 0 and stride == 1:
                sizes.append(UNBOUNDED)
                continue
            check(limit >= start, "SLICE-5", "limit index", limit, ">= the start index")
            check(limit <= size or size == UNBOUNDED, "SLICE-6", "limit index", limit, "<= the operand's size")
            sizes.append(-((start - limit) // stride))
        if not operand.is_dynamic:
            return operand.with_dimensions(sizes)
        bounded = [f and d != UNBOUNDED for f, d in zip(operand.dynamic, operand.dimensions, strict=True)]
        return operand.with_dimensions(sizes, [f and n != 1 for f, n in zip(bounded, sizes, strict=True)])

    def resized(self, operands: Sequence[Shape], result: Shape) -> "Slice":
        sizes = zip(self.ranges, operands[0].dimensions, result.dimensions, strict=True)
        return Slice(tuple((0, n, 1) if n == m and r[0] == 0 and r[2] == 1 else r for r, n, m in sizes))

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return taken(operands, result)

    def reference(self, operand: Array | Dynamic, shape: Shape, operand_shapes: list[Shape]) -> Array:
        """Dynamic dimensions end at their run-time size, unless the result is fixed: that may read padding (DYN-7)."""
        ranges = [slice(*range_) for range_ in self.ranges]
        if operand_shapes[0].is_dynamic:
            sizes = valid_part(operand).shape
            operand = whole_buffer(operand, operand_shapes[0].dimensions)
            for d, (start, limit, stride) in enumerate(self.ranges):
                if shape.dynamic[d]:
                    ranges[d] = slice(start, min(limit, sizes[d]), stride)
        return operand[tuple(ranges)]  # type: ignore[index]

    def thins(self) -> bool:
        return any(stride > 1 for _, _, stride in self.ranges)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        return operand(tuple(start + stride * i for i, (start, _, stride) in zip(index, self.ranges, strict=True)))


class DynamicSlice(Op, name="dynamic-slice"):
    """The slice of sizes `dynamic_slice_sizes` at the index operands, moved inside if it extends beyond the end.

    The index operands are one scalar per dimension or, in old text, one vector (DSLICE-10).
    """

    dynamic_slice_sizes: Dims = attr()

    rounding = None
    form = "index"
    rules = "DSLICE"
    chooses_places = True
    same_elements = True
    whole_values = True
    shape_required = True

    def infer(self, *operands: Shape) -> Shape:
        check(bool(operands), "HINST-5", "operands", "none", "an array and its start indices")
        operand = operands[0]
        check(operand.is_array, "DSLICE-1", "operand", operand, "an array")
        _check_starts(operand, operands[1:])
        sizes = self.dynamic_slice_sizes
        check(len(sizes) == operand.rank, "DSLICE-7", "dynamic_slice_sizes", sizes, "one per dimension of the operand")
        for size, bound in zip(sizes, operand.dimensions, strict=True):
            inside = size >= 0 and (size <= bound or bound == UNBOUNDED)
            check(inside, "DSLICE-8", "dynamic_slice_sizes", sizes, "sizes within the operand's")
        return operand.with_dimensions(sizes)

    def resized(self, operands: Sequence[Shape], result: Shape) -> "DynamicSlice":
        return DynamicSlice(result.dimensions)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return taken(operands, result)

    def reference(self, operand: Array | Dynamic, *indices: Array, operand_shapes: list[Shape]) -> Array:
        buffer = whole_buffer(operand, operand_shapes[0].dimensions)
        starts = clamped_starts(indices, buffer.shape, self.dynamic_slice_sizes)
        return buffer[_box(starts, self.dynamic_slice_sizes)]

    def element(self, emit: Emitter, index: Index, operand: Reader, *indices: Reader) -> Value:
        starts = _starts(emit, indices, operand.shape.dimensions, self.dynamic_slice_sizes)
        return operand(tuple(start + i for start, i in zip(starts, index, strict=True)))


class DynamicUpdateSlice(Op, name="dynamic-update-slice"):
    """The operand in which `update` replaces the slice at the index operands, moved inside as by dynamic-slice."""

    rounding = None
    form = "index"
    rules = "DUS"
    chooses_places = True
    whole_values = True
    shape_required = True

    def infer(self, *operands: Shape) -> Shape:
        check(len(operands) >= 2, "HINST-5", "operands", len(operands), "an array, its update and start indices")
        operand, update = operands[:2]
        check(operand.is_array and update.is_array, "DUS-1", "operand and update", (operand, update), "arrays")
        check(update.rank == operand.rank, "DUS-3", "rank of update", update.rank, operand.rank)
        check(update.dtype is operand.dtype, "DUS-4", "element type of update", update.dtype, operand.dtype)
        for size, bound in zip(update.dimensions, operand.dimensions, strict=True):
            check(size <= bound or bound == UNBOUNDED, "DUS-5", "size of update", update, operand)
        _check_starts(operand, operands[2:], "DUS-6", "DUS-6")
        if not update.is_dynamic:
            return operand.logical
        covers = _covers(operand, update)
        return operand.logical.with_dynamic([f or c for f, c in zip(operand.dynamic, covers, strict=True)])

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        _, update, *indices = operands
        return Cost(bytes_accessed=2 * update.nbytes + sum(i.nbytes for i in indices[:1]))

    def reference(
        self, operand: Array | Dynamic, update: Array | Dynamic, *indices: Array, operand_shapes: list[Shape]
    ) -> Array | Dynamic:
        outer, inner = operand_shapes[:2]
        result = whole_buffer(operand, outer.dimensions).copy()
        starts = clamped_starts(indices, outer.dimensions, inner.dimensions)
        written = valid_part(update)
        result[_box(starts, written.shape)] = written
        if not outer.is_dynamic and not inner.is_dynamic:
            return result
        own = valid_part(operand).shape
        sizes = [w if c else n for c, w, n in zip(_covers(outer, inner), written.shape, own, strict=True)]
        return Dynamic(result, tuple(sizes))

    def element(self, emit: Emitter, index: Index, operand: Reader, update: Reader, *indices: Reader) -> Value:
        sizes = update.shape.dimensions
        starts = _starts(emit, indices, operand.shape.dimensions, sizes)
        places = tuple(i - start for i, start in zip(index, starts, strict=True))
        inside = [emit.inrange(place, 0, size) for place, size in zip(places, sizes, strict=True)]
        return emit.guarded(inside, lambda: update(places), lambda: operand(index))


def _covers(operand: Shape, update: Shape) -> list[bool]:
    """Whether, for each dimension, the update is dynamic in it and as large as the operand (DYN-8)."""
    sizes = zip(update.dimensions, operand.dimensions, strict=True)
    return [flag and size == bound for flag, (size, bound) in zip(update.dynamic, sizes, strict=True)]


def clamped_starts(indices: tuple[Any, ...], bounds: tuple[int, ...], sizes: tuple[int, ...]) -> list[int]:
    """Start indices moved into [0, bound - size]; compared as the numbers they are, signed or unsigned (DSLICE-4)."""
    starts = indices[0] if len(indices) == 1 and np.ndim(indices[0]) == 1 else indices
    return [max(0, min(int(start), bound - size)) for start, bound, size in zip(starts, bounds, sizes, strict=True)]


def _starts(
    emit: Emitter, indices: tuple[Reader, ...], bounds: tuple[int, ...], sizes: tuple[int, ...]
) -> list[Affine]:
    """Same as clamped_starts."""
    if len(indices) == 1 and indices[0].shape.rank == 1:
        starts = [indices[0]((Affine.of(d),)) for d in range(len(bounds))]
    else:
        starts = [index(()) for index in indices]
    limits = (bound - size + 1 for bound, size in zip(bounds, sizes, strict=True))
    return [emit.as_index(start, 0, limit) for start, limit in zip(starts, limits, strict=True)]


def _box(starts: list[int], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(start, start + size) for start, size in zip(starts, sizes, strict=True))


def _check_starts(operand: Shape, indices: tuple[Shape, ...], number: str = "DSLICE-5", kind: str = "DSLICE-6") -> None:
    """One scalar per dimension or one vector of them (DSLICE-10), all of one integral type."""
    if len(indices) == 1 and indices[0].is_array and indices[0].rank == 1:
        check(indices[0].dimensions[0] == operand.rank, number, "start indices", indices[0], f"{operand.rank} elements")
        check(indices[0].dtype.is_integral, kind, "start indices", indices[0], "an integral type")
        return
    check(len(indices) == operand.rank, number, "start indices", len(indices), operand.rank)
    for index in indices:
        fits = index.is_scalar and index.dtype is indices[0].dtype and index.dtype.is_integral
        check(fits, kind, "start indices", indices, "scalars of one integral type")
