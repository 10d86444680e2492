"""Scatter: combines updates into an operand at positions given by index vectors."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.forms.affine import Affine, Index
from hlokit.forms.cost import Cost
from hlokit.forms.emitter import Condition, Emitter, Reader
from hlokit.forms.scatter import Scattering, Target
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array, Dynamic, Function, valid_part, whole_buffer
from hlokit.ops.gather import (
    batch_coordinates,
    batch_dimensions,
    check_ascending,
    check_batching,
    check_distinct,
    index_vectors,
    remaining,
    vector_entry,
    vector_length,
)
from hlokit.ops.reduction import as_declared, check_reducer, in_reducer_types, results_of
from hlokit.ops.sort_order import stable_order
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Dims
from hlokit.types.shape import UNBOUNDED, ProgramShape, Shape

_UFUNCS = {"add": np.add, "multiply": np.multiply, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}

_ZERO = np.zeros((), np.int64)


class Scatter(Op, name="scatter"):
    """The N operands, with updates combined into each by `to_apply(current..., update...)`.

    Operands are the N arrays, the indices, the N updates. `update_window_dims` are the dimensions of the updates that
    span a window of the operand; the others enumerate the index vectors. A window that is not entirely inside the
    operand is skipped (SCATTER-20); updates are applied in row-major order (SCATTER-22).
    """

    update_window_dims: Dims = attr(proto="scatter_dimension_numbers.update_window_dims")
    inserted_window_dims: Dims = attr(proto="scatter_dimension_numbers.inserted_window_dims")
    scatter_dims_to_operand_dims: Dims = attr(proto="scatter_dimension_numbers.scatter_dims_to_operand_dims")
    input_batching_dims: Dims = attr((), proto="scatter_dimension_numbers.input_batching_dims")
    scatter_indices_batching_dims: Dims = attr((), proto="scatter_dimension_numbers.scatter_indices_batching_dims")
    index_vector_dim: int = attr(proto="scatter_dimension_numbers.index_vector_dim")
    indices_are_sorted: bool = attr(False)
    unique_indices: bool = attr(False)

    rounding = SUMMED
    roles = ("to_apply",)
    form = "scatter"
    rules = "SCATTER"
    whole_values = True
    precision_by_shape = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        fits = len(operands) >= 3 and len(operands) % 2 == 1
        check(fits, "SCATTER-2", "operands", len(operands), "N >= 1 arrays, indices, N updates")
        check(all(o.is_array for o in operands), "SCATTER-34", "operands", operands, "arrays")
        n = len(operands) // 2
        arrays, indices, updates = list(operands[:n]), operands[n], list(operands[n + 1 :])
        for array, update in zip(arrays, updates, strict=True):
            check(array.dimensions == arrays[0].dimensions, "SCATTER-3", "operands", arrays, "equal dimensions")
            check(update.dimensions == updates[0].dimensions, "SCATTER-3", "updates", updates, "equal dimensions")
            fits = update.dtype is array.dtype or (update.dtype.is_floating and array.dtype.is_floating)
            check(fits, "SCATTER-4", "element type of updates", update.dtype, array.dtype)
        check(indices.dtype.is_integral, "SCATTER-5", "scatter_indices", indices, "an integral type")
        batch = batch_dimensions(indices, self.index_vector_dim, "SCATTER-6")
        self._check_dimension_numbers(arrays[0], indices, updates[0], len(batch))
        self._check_updates(arrays[0], [indices.dimensions[d] for d in batch], updates[0])
        check_reducer(to_apply, arrays, tuple(a.dtype[()] for a in arrays), wide=True)
        results = [a.logical.with_dtype(r.dtype) for a, r in zip(arrays, to_apply.result.leaves(), strict=True)]
        return results[0] if n == 1 else Shape.tuple(results)

    def _check_dimension_numbers(self, array: Shape, indices: Shape, updates: Shape, batch_rank: int) -> None:
        rank, vector = array.rank, vector_length(indices, self.index_vector_dim)
        window, inserted, batching = self.update_window_dims, self.inserted_window_dims, self.input_batching_dims
        places = self.scatter_dims_to_operand_dims
        update_rank = len(window) + batch_rank
        check(updates.rank == update_rank, "SCATTER-7", "rank of updates", updates.rank, update_rank)
        check_ascending(window, updates.rank, "SCATTER-8", "update_window_dims")
        check_ascending(inserted, rank, "SCATTER-9", "inserted_window_dims")
        covered = len(window) + len(inserted) + len(batching)
        check(covered == rank, "SCATTER-10", "window, inserted and batching dimensions", covered, rank)
        check(len(places) == vector, "SCATTER-11", "entries of scatter_dims_to_operand_dims", places, vector)
        check_distinct(places, rank, "SCATTER-12", "scatter_dims_to_operand_dims")
        if batching or self.scatter_indices_batching_dims:
            pairs, taken = (batching, self.scatter_indices_batching_dims), {*inserted, *places}
            check_batching(array, indices, pairs, self.index_vector_dim, "BEY-33")
            check(taken.isdisjoint(batching), "BEY-33", "input_batching_dims", batching, "no others' dimensions")

    def _check_updates(self, array: Shape, counts: list[int], updates: Shape) -> None:
        for u, d in zip(self.update_window_dims, self._window_dims(array.rank), strict=True):
            fits = updates.dimensions[u] <= array.dimensions[d] or array.dimensions[d] == UNBOUNDED
            check(fits, "SCATTER-13", "window of updates", updates, "no larger than the operand")
        counted = [updates.dimensions[u] for u in remaining(updates.rank, self.update_window_dims)]
        if counted != counts:
            fits = all(a == b or UNBOUNDED in (a, b) for a, b in zip(counted, counts, strict=True))
            check(fits, "SCATTER-14", "updates", updates, f"one window for each of {counts} index vectors")

    def _window_dims(self, rank: int) -> list[int]:
        """Operand dimensions that a window spans (SCATTER-17)."""
        return remaining(rank, self.inserted_window_dims, self.input_batching_dims)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """Each update is read, and so is the element it meets, which is written again."""
        count = len(operands) // 2
        updates = operands[count + 1 :]
        found = Cost(bytes_accessed=operands[count].nbytes + 3 * sum(u.nbytes for u in updates))
        return found + called[0].times(updates[0].size)

    def reference(
        self, *operands: Any, to_apply: Function, operand_shapes: list[Shape], shape: Shape | None = None
    ) -> Any:
        n = len(operands) // 2
        bounds = operand_shapes[0].dimensions
        given = in_reducer_types([whole_buffer(array, bounds) for array in operands[:n]], to_apply)
        results = [array.copy() for array in given]
        indices = valid_part(operands[n])
        updates = in_reducer_types([valid_part(update) for update in operands[n + 1 :]], to_apply)
        targets, applied = self.targets(bounds, indices, updates[0].shape)
        flat = [result.reshape(-1) for result in results]
        combine(flat, targets, [update[applied] for update in updates], to_apply)
        declared = as_declared(results[0] if n == 1 else tuple(results), shape)
        results = [declared] if n == 1 else list(declared)
        values = [_like(operand, result) for operand, result in zip(operands, results, strict=False)]
        return values[0] if n == 1 else tuple(values)

    def targets(self, bounds: tuple[int, ...], indices: Array, sizes: tuple[int, ...]) -> tuple[Array, Array]:
        """The flat operand index of every update element that is applied, and the mask of those, in row-major order."""
        vectors = index_vectors(indices, self.index_vector_dim)
        counts = vectors.shape[:-1]
        strides = np.cumprod((1, *bounds[:0:-1]), dtype=np.int64)[::-1]
        window = dict(zip(self._window_dims(len(bounds)), self.update_window_dims, strict=True))
        places = {d: _as_int64(vectors[..., k]) for k, d in enumerate(self.scatter_dims_to_operand_dims)}
        pairs = (self.input_batching_dims, self.scatter_indices_batching_dims)
        places |= batch_coordinates(pairs, self.index_vector_dim, counts)
        start, inside = np.zeros(counts, np.int64), np.ones(counts, bool)
        for d, bound in enumerate(bounds):
            place, length = places.get(d, _ZERO), sizes[window[d]] if d in window else 1
            inside &= (place >= 0) & (place <= bound - length)
            start += np.where(inside, place, 0) * strides[d]
        counting = remaining(len(sizes), self.update_window_dims)
        targets = _spread(start, counting, len(sizes))
        for d, u in window.items():
            targets = targets + _spread(np.arange(sizes[u]) * strides[d], [u], len(sizes))
        applied = np.broadcast_to(_spread(inside, counting, len(sizes)), sizes)
        return np.broadcast_to(targets, sizes)[applied], applied

    def scatter(self, operands: Sequence[Shape]) -> Scattering:
        window = zip(self.update_window_dims, self._window_dims(operands[0].rank), strict=True)
        return Scattering(len(operands) // 2, tuple(window))

    def target(self, emit: Emitter, index: Index, *readers: Reader) -> Target:
        indices, updates = readers[len(readers) // 2], readers[-1].shape
        bounds = readers[0].shape.dimensions
        counts = [index[u] for u in remaining(updates.rank, self.update_window_dims)]
        window = dict(zip(self._window_dims(len(bounds)), self.update_window_dims, strict=True))
        places = [index[window[d]] if d in window else Affine.of(0) for d in range(len(bounds))]
        for d, of_indices in zip(self.input_batching_dims, self.scatter_indices_batching_dims, strict=True):
            places[d] = counts[of_indices - (of_indices > self.index_vector_dim)]
        guards: list[Condition] = []
        for k, d in enumerate(self.scatter_dims_to_operand_dims):
            start = indices(vector_entry(counts, self.index_vector_dim, indices.shape.rank, k))
            last = bounds[d] - (updates.dimensions[window[d]] if d in window else 1)
            if last < 0:  # an empty operand: nothing goes anywhere
                return Target((False,), tuple(places))
            wide = emit.convert(start, dtypes.s64)  # unsigned numbers beyond it become negative: outside as well
            guards += [emit.ge(wide, 0), emit.le(wide, last)]
            places[d] += emit.as_index(start, 0, last + 1, inside=True)
        return Target(tuple(guards), tuple(places))


def combine(results: list[Array], targets: Array, updates: list[Array], function: Function) -> None:
    """results[t] = function(results[t], update) for each target t and its update, one after the other (SCATTER-22)."""
    parameters = [p.id for p in function.computation.parameters]
    root = function.computation.root
    returned = [o.id for o in (root.operands if root.opcode == "tuple" else [root])]
    if returned == parameters[len(results) :]:
        for result, update in zip(results, updates, strict=True):
            last = _last_of_each(targets)
            result[targets[last]] = update[last]
        return
    ufunc = _ufunc(function)
    if ufunc is not None:
        ufunc.at(results[0], targets, updates[0])
        return
    for turn in _turns(targets):
        places = targets[turn]
        combined = function.batched(*(r[places] for r in results), *(u[turn] for u in updates))
        for result, value in zip(results, results_of(function, combined), strict=True):
            result[places] = value


def _ufunc(function: Function) -> np.ufunc | None:
    """The ufunc that `function` is; rounding aside, of the types that NumPy itself has."""
    root = function.computation.root
    if function.result.is_tuple or not hasattr(np, root.shape.dtype.numpy.name):
        return None
    if root.shape.dtype.is_complex and root.opcode == "multiply":
        return None  # np.multiply.at rounds other than np.multiply
    found = function.fold_ufunc()
    return found or (_UFUNCS.get(root.opcode) if function.is_associative else None)


def _last_of_each(targets: Array) -> Array:
    """Positions of the last occurrence of every target: NumPy does not promise which of several writes stays."""
    order = stable_order(targets)
    grouped = targets[order]
    return order[np.append(grouped[1:] != grouped[:-1], True)[: len(order)]]


def _turns(targets: Array) -> list[Array]:
    """Positions in turns: a turn hits each target at most once, and what hits one target keeps its order."""
    if not len(targets):
        return []
    order = stable_order(targets)
    grouped = targets[order]
    first = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    starts = np.flatnonzero(first)
    occurrence = np.arange(len(targets)) - np.repeat(starts, np.diff(np.append(starts, len(targets))))
    by_turn = stable_order(occurrence)
    return np.split(order[by_turn], np.cumsum(np.bincount(occurrence))[:-1])


def _spread(array: Array, axes: list[int], rank: int) -> Array:
    """The dimensions of `array` at these axes of an array of this rank, sizes 1 elsewhere."""
    sizes = [1] * rank
    for axis, size in zip(axes, array.shape, strict=True):
        sizes[axis] = size
    return array.reshape(sizes)


def _as_int64(indices: Array) -> Array:
    """Indices as the numbers they are; unsigned ones beyond int64 are beyond every bound as well (SCATTER-24)."""
    if indices.dtype == np.uint64:
        indices = np.minimum(indices, np.uint64(2**63 - 1))
    return indices.astype(np.int64)


def _like(operand: Array | Dynamic, result: Array) -> Array | Dynamic:
    """The result with the run-time sizes of its operand (DYN-9)."""
    sizes = valid_part(operand).shape
    return result if sizes == result.shape else Dynamic(result, sizes)
