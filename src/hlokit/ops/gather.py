"""Gather: many slices of one operand, each starting at an index vector."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hlokit.forms.affine import Affine, Index
from hlokit.forms.cost import Cost, taken
from hlokit.forms.emitter import Emitter, Reader, Value
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Dynamic, valid_part, whole_buffer
from hlokit.types.attributes import Dims
from hlokit.types.shape import UNBOUNDED, Shape


class Gather(Op, name="gather"):
    """Slices of the operand, one for each index vector in `start_indices`, which gives the start of the slice.

    To take rows 3 and 0 of f32[4,5] with the indices s32[2] {3, 0}: `slice_sizes` {1,5} makes each slice a row;
    `collapsed_slice_dims` {0} removes dimension 0, of size 1, from the slices; `start_index_map` {0} says that an index
    is a position in dimension 0; `index_vector_dim` 1, the rank of the indices, makes each number an index vector; and
    `offset_dims` {1} makes the row dimension 1 of the result, which is f32[2,5].

    With `start_index_map` {0}, each index vector has one entry: a position along operand dimension 0.
    `index_vector_dim` is the dimension of `start_indices` along which the entries of a vector lie: the rows of s32[2,3]
    are vectors with 1, its columns with 0, and with 2 each number is a vector. If a slice would extend beyond the
    operand, its start is clamped so that it fits, as in dynamic-slice. `offset_dims` are the result dimensions that
    index into a slice, once its collapsed and batching dimensions are removed; the other dimensions of the result
    enumerate the index vectors.
    """

    offset_dims: Dims = attr(proto="gather_dimension_numbers.offset_dims")
    collapsed_slice_dims: Dims = attr(proto="gather_dimension_numbers.collapsed_slice_dims")
    start_index_map: Dims = attr(proto="gather_dimension_numbers.start_index_map")
    operand_batching_dims: Dims = attr((), proto="gather_dimension_numbers.operand_batching_dims")
    start_indices_batching_dims: Dims = attr((), proto="gather_dimension_numbers.start_indices_batching_dims")
    index_vector_dim: int = attr(proto="gather_dimension_numbers.index_vector_dim")
    slice_sizes: Dims = attr(proto="gather_slice_sizes")
    indices_are_sorted: bool = attr(False)

    rounding = None
    arity = 2
    form = "index"
    rules = "GATHER"
    chooses_places = True
    whole_values = True

    def infer(self, operand: Shape, start_indices: Shape) -> Shape:
        check(operand.is_array and start_indices.is_array, "GATHER-34", "operands", (operand, start_indices), "arrays")
        check(start_indices.dtype.is_integral, "GATHER-5", "start_indices", start_indices, "an integral type")
        batch = batch_dimensions(start_indices, self.index_vector_dim, "GATHER-6")
        self._check_dimension_numbers(operand, start_indices, len(self.offset_dims) + len(batch))
        self._check_slice_sizes(operand)
        kept = self._kept(operand.rank)
        sizes = [(start_indices.dimensions[d], start_indices.dynamic[d]) for d in batch]
        for position, d in zip(self.offset_dims, kept, strict=True):
            whole = self.slice_sizes[d] == operand.dimensions[d]
            sizes.insert(position, (self.slice_sizes[d], operand.dynamic[d] and whole))
        return operand.with_dimensions([n for n, _ in sizes], [f for _, f in sizes])

    def _check_dimension_numbers(self, operand: Shape, start_indices: Shape, output_rank: int) -> None:
        rank, vector = operand.rank, vector_length(start_indices, self.index_vector_dim)
        offset, collapsed, batching = self.offset_dims, self.collapsed_slice_dims, self.operand_batching_dims
        check_ascending(offset, output_rank, "GATHER-9", "offset_dims")
        check_ascending(collapsed, rank, "GATHER-10", "collapsed_slice_dims")
        check(
            len(self.start_index_map) == vector, "GATHER-7", "entries of start_index_map", self.start_index_map, vector
        )
        check_distinct(self.start_index_map, rank, "GATHER-8", "start_index_map")
        check(len(self.slice_sizes) == rank, "GATHER-4", "entries of slice_sizes", self.slice_sizes, rank)
        covered = len(offset) + len(collapsed) + len(batching)
        check(covered == rank, "GATHER-3", "offset, collapsed and batching dimensions", covered, rank)
        if batching or self.start_indices_batching_dims:
            pairs = (batching, self.start_indices_batching_dims)
            check_batching(operand, start_indices, pairs, self.index_vector_dim, "BEY-31")
            apart = not {*collapsed} & {*batching}
            check(apart, "BEY-31", "operand_batching_dims", batching, "none of collapsed_slice_dims")

    def _check_slice_sizes(self, operand: Shape) -> None:
        for size, bound in zip(self.slice_sizes, operand.dimensions, strict=True):
            inside = 0 <= size <= bound or (bound == UNBOUNDED and size >= 0)
            check(inside, "GATHER-11", "slice_sizes", self.slice_sizes, "sizes within the operand's")
        for d in self.collapsed_slice_dims:
            check(self.slice_sizes[d] == 1, "GATHER-12", "slice size of a collapsed dimension", self.slice_sizes[d], 1)
        for d in self.operand_batching_dims:
            check(self.slice_sizes[d] <= 1, "BEY-31", "slice size of a batching dimension", self.slice_sizes[d], "<= 1")

    def _kept(self, rank: int) -> list[int]:
        """Operand dimensions that the result has (GATHER-18)."""
        return remaining(rank, self.collapsed_slice_dims, self.operand_batching_dims)

    def resized(self, operands: Sequence[Shape], result: Shape) -> "Gather":
        sizes = list(self.slice_sizes)
        for position, d in zip(self.offset_dims, self._kept(operands[0].rank), strict=True):
            sizes[d] = result.dimensions[position]
        return self.replace(slice_sizes=tuple(sizes))

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        return taken(operands, result)

    def reference(
        self, operand: Array | Dynamic, start_indices: Array | Dynamic, shape: Shape, operand_shapes: list[Shape]
    ) -> Array:
        buffer, indices = whole_buffer(operand, operand_shapes[0].dimensions), valid_part(start_indices)
        vectors = index_vectors(indices, self.index_vector_dim)
        counts = vectors.shape[:-1]
        limits = [n - size for n, size in zip(buffer.shape, self.slice_sizes, strict=True)]
        starts: list[Array] = [np.zeros((), np.int64)] * buffer.ndim
        for k, d in enumerate(self.start_index_map):
            starts[d] = clamped(vectors[..., k], limits[d])
        pairs = (self.operand_batching_dims, self.start_indices_batching_dims)
        for d, coordinates in batch_coordinates(pairs, self.index_vector_dim, counts).items():
            starts[d] = coordinates
        batching = self.operand_batching_dims  # whose slices are of one element, even of size 0 (GATHER-32)
        extents = (min(1, n) if d in batching else self.slice_sizes[d] for d, n in enumerate(buffer.shape))
        slices = _windows(buffer, tuple(extents))
        taken = slices[tuple(np.broadcast_to(s, counts) for s in starts)] if starts else np.broadcast_to(slices, counts)
        kept = self._kept(buffer.ndim)
        taken = taken.reshape((*counts, *(self.slice_sizes[d] for d in kept)))
        taken = np.moveaxis(taken, range(len(counts), taken.ndim), self.offset_dims)
        if not shape.is_dynamic:
            return taken
        sizes, ends = valid_part(operand).shape, list(taken.shape)
        for position, d in zip(self.offset_dims, kept, strict=True):
            ends[position] = sizes[d] if shape.dynamic[position] else ends[position]
        return taken[tuple(map(slice, ends))]

    def element(self, emit: Emitter, index: Index, operand: Reader, start_indices: Reader) -> Value:
        counts = [i for position, i in enumerate(index) if position not in self.offset_dims]
        places = [Affine.of(0)] * operand.shape.rank
        for position, d in zip(self.offset_dims, self._kept(operand.shape.rank), strict=True):
            places[d] = index[position]
        for k, d in enumerate(self.start_index_map):
            start = start_indices(vector_entry(counts, self.index_vector_dim, start_indices.shape.rank, k))
            places[d] += emit.as_index(start, 0, operand.shape.dimensions[d] - self.slice_sizes[d] + 1)
        for d, of_indices in zip(self.operand_batching_dims, self.start_indices_batching_dims, strict=True):
            places[d] = counts[of_indices - (of_indices > self.index_vector_dim)]
        return operand(tuple(places))


def _windows(array: Array, sizes: Dims) -> Array:
    """A view [place..., window...]; as bytes on the way, since NumPy's strided views do not know f8e5m2's code."""
    raw = array.view("V1") if array.itemsize == 1 else array
    return np.lib.stride_tricks.sliding_window_view(raw, sizes).view(array.dtype)


# -- index vectors, which Scatter has too


def batch_dimensions(indices: Shape, index_vector_dim: int, label: str) -> list[int]:
    """The dimensions of `indices` that count index vectors."""
    check(
        0 <= index_vector_dim <= indices.rank, label, "index_vector_dim", index_vector_dim, "at most the indices' rank"
    )
    return [d for d in range(indices.rank) if d != index_vector_dim]


def vector_length(indices: Shape, index_vector_dim: int) -> int:
    """Entries of an index vector: 1 where `index_vector_dim` is one behind the last dimension (GATHER-21)."""
    return 1 if index_vector_dim == indices.rank else indices.dimensions[index_vector_dim]


def check_ascending(dimensions: Dims, rank: int, label: str, name: str) -> None:
    ascends = all(a < b for a, b in pairwise(dimensions))
    if not ascends or not all(0 <= d < rank for d in dimensions):
        check(False, label, name, dimensions, f"ascending, in [0, {rank})")


def check_distinct(dimensions: Dims, rank: int, label: str, name: str) -> None:
    if len(set(dimensions)) != len(dimensions) or not all(0 <= d < rank for d in dimensions):
        check(False, label, name, dimensions, f"distinct, in [0, {rank})")


def check_batching(operand: Shape, indices: Shape, pairs: tuple[Dims, Dims], index_vector_dim: int, label: str) -> None:
    """Batching dimensions come in pairs of one size: ascending ones of the operand, distinct ones of the indices."""
    of_operand, of_indices = pairs
    check(len(of_operand) == len(of_indices), label, "batching dimensions", pairs, "as many of each")
    check_ascending(of_operand, operand.rank, label, "batching dimensions of the operand")
    check_distinct(of_indices, indices.rank, label, "batching dimensions of the indices")
    check(index_vector_dim not in of_indices, label, "batching dimensions", of_indices, "not index_vector_dim")
    sizes = [(operand.dimensions[a], indices.dimensions[b]) for a, b in zip(*pairs, strict=True)]
    equal = all(a == b or UNBOUNDED in (a, b) for a, b in sizes)
    check(equal, label, "sizes of batching dimensions", sizes, "equal pairs")


def remaining(rank: int, *removed: Dims) -> list[int]:
    return [d for d in range(rank) if not any(d in dimensions for dimensions in removed)]


def index_vectors(indices: Array, index_vector_dim: int) -> Array:
    """The index vectors along the last dimension."""
    return indices[..., None] if index_vector_dim == indices.ndim else np.moveaxis(indices, index_vector_dim, -1)


def vector_entry(counts: Sequence[Affine], index_vector_dim: int, rank: int, k: int) -> Index:
    """The places of entry `k` of the index vectors in indices of this rank."""
    if index_vector_dim == rank:
        return tuple(counts)
    return (*counts[:index_vector_dim], Affine.of(k), *counts[index_vector_dim:])


def clamped(indices: Array, limit: int) -> Array:
    """Moved into [0, limit]; unsigned values are what they are, not negative (GATHER-26)."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(limit))
    return np.clip(indices.astype(np.int64), 0, limit)


def batch_coordinates(pairs: tuple[Dims, Dims], index_vector_dim: int, counts: tuple[int, ...]) -> dict[int, Array]:
    """The coordinate of every index vector in each batching dimension of the operand (GATHER-32)."""
    found: dict[int, Array] = {}
    for d, of_indices in zip(*pairs, strict=True):
        axis = of_indices - (of_indices > index_vector_dim)
        spread = [1] * len(counts)
        spread[axis] = -1
        found[d] = np.arange(counts[axis]).reshape(spread)
    return found
