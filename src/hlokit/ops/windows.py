"""Windows sliding over arrays: reduce-window, select-and-scatter."""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from hlokit.forms.cost import Cost, moved
from hlokit.forms.fold import Fold, FoldDimension
from hlokit.forms.graph import Called, Graph, Node
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.ops.control_flow import Call, Map
from hlokit.ops.expansion import Writing
from hlokit.ops.movement import Iota, Pad
from hlokit.ops.reduction import (
    Reduce,
    as_declared,
    check_reducer,
    check_same_dimensions,
    cut_to_least,
    in_reducer_types,
    left_fold,
    results_of,
    split_operands,
)
from hlokit.ops.slicing import Slice
from hlokit.ops.sort_order import stable_order
from hlokit.types import dtype as dtypes
from hlokit.types.shape import UNBOUNDED, ProgramShape, Shape
from hlokit.types.window import PaddingDimension, Window, WindowDimension, dilated

_MAX_S32 = 2**31 - 1

_MOST_TERMS = 16
"""Windows over one element that select-and-scatter's expansion writes out."""

Slices: TypeAlias = tuple[slice, ...]


def output_sizes(base: Sequence[int], window: Window) -> list[int]:
    """The number of positions that the window takes in each dimension (WIN-4)."""
    dimensions = window.dimensions
    return [UNBOUNDED if n == UNBOUNDED else d.output_size(n) for n, d in zip(base, dimensions, strict=True)]


def placements(base: Sequence[int], window: Window) -> Iterator[tuple[Slices, Slices]]:
    """For each offset within the window, row-major: the window positions where it meets an element, and those elements.

    Padding and the holes of base dilation are not elements; offsets that meet none are left out.
    """
    counts = output_sizes(base, window)
    for met in itertools.product(*map(overlaps, window.dimensions, base, counts)):
        yield tuple(positions for _, positions, _ in met), tuple(elements for _, _, elements in met)


def overlaps(d: WindowDimension, base: int, count: int) -> list[tuple[int, slice, slice]]:
    """Each offset within one dimension of the window that meets an element, with the positions and the elements."""
    met = ((k, _overlap(d, k, base, count)) for k in _offsets(d, base, count))
    return [(k, *pair) for k, pair in met if pair is not None]


def _offsets(d: WindowDimension, base: int, count: int) -> Sequence[int]:
    """In order, all offsets that can meet an element: few of a vast window of which most is padding or holes."""
    first = max(0, -(((count - 1) * d.stride - d.padding_low) // d.window_dilation))
    last = min(d.size - 1, (d.padding_low + dilated(base, d.base_dilation) - 1) // d.window_dilation)
    if last - first <= base * count:
        return range(first, last + 1)
    places = (e * d.base_dilation + d.padding_low - o * d.stride for o in range(count) for e in range(base))
    offsets = {p // d.window_dilation for p in places if p % d.window_dilation == 0}
    return sorted(k for k in offsets if first <= k <= last)


def _overlap(d: WindowDimension, k: int, base: int, count: int) -> tuple[slice, slice] | None:
    """The window positions o whose offset `k` lies on an element, and the elements: both are arithmetic progressions.

    That is where o * stride + shift is a multiple of the base dilation, from 0 up to the last element.
    """
    shift = k * d.window_dilation - d.padding_low
    common = math.gcd(d.stride, d.base_dilation)
    if shift % common:
        return None
    every = d.base_dilation // common
    first = -shift // common * pow(d.stride // common, -1, every) % every
    before = -(first * d.stride + shift)
    if before > 0:
        first += every * -(-before // (every * d.stride))
    last = min(count - 1, (dilated(base, d.base_dilation) - 1 - shift) // d.stride)
    if first > last:
        return None
    steps = (last - first) // every + 1
    element, element_step = (first * d.stride + shift) // d.base_dilation, every * d.stride // d.base_dilation
    positions = slice(first, first + (steps - 1) * every + 1, every)
    return positions, slice(element, element + (steps - 1) * element_step + 1, element_step)


class ReduceWindow(Op, name="reduce-window"):
    """Combines the elements in the window at each position with `to_apply`, starting from the init values.

    The accumulator is the left argument; elements go in row-major window order, but from the last one in a cumulative
    fold from the end by one commutative op (RWIN-5); padding and holes are skipped (RWIN-6).
    """

    window: Window = attr(Window())

    rounding = SUMMED
    roles = ("to_apply",)
    form = "fold"
    rules = "RWIN"
    precision_by_shape = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        arrays, inits = split_operands(operands, "RWIN-2")
        check_same_dimensions(arrays, "RWIN-2")
        window, rank = self.window, arrays[0].rank
        check(len(window.dimensions) == rank, "RWIN-3", "window dimensions", len(window.dimensions), rank)
        window.check()
        check_reducer(to_apply, list(arrays), inits, wide=True)
        sizes = output_sizes(arrays[0].dimensions, window)
        results = [a.with_dimensions(sizes, a.dynamic) for a in arrays]
        results = [r.with_dtype(leaf.dtype) for r, leaf in zip(results, to_apply.result.leaves(), strict=True)]
        return Shape.tuple(results) if to_apply.result.is_tuple else results[0]

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        each = result.elements[0] if result.is_tuple else result
        return moved(operands, result) + called[0].times(each.size * max(0, _window_size(self.window) - 1))

    def reference(self, *operands: Array, to_apply: Function, shape: Shape | None = None) -> Any:
        arrays, inits = (in_reducer_types(part, to_apply) for part in split_operands(operands, "RWIN-2"))
        arrays = cut_to_least(arrays)
        bounds = arrays[0].shape if shape is None else next(shape.leaves()).dimensions
        return as_declared(self._folded(arrays, inits, to_apply, bounds), shape)

    def _folded(
        self, arrays: tuple[Array, ...], inits: tuple[Array, ...], to_apply: Function, bounds: Sequence[int]
    ) -> Any:
        """The folds; `bounds` are the declared sizes of the results, where the arrays' are those of this run."""
        base = arrays[0].shape
        shape = tuple(output_sizes(base, self.window))
        axis, backward = scan_axis(self.window, base) or (None, False)
        if axis is not None and not backward:
            return _running_fold(arrays, inits, axis, to_apply)
        if axis is not None and self.window.dimensions[axis].size >= bounds[axis] and to_apply.is_commutative:
            return np.flip(_running_fold((np.flip(arrays[0], axis),), inits, axis, to_apply), axis)
        if all(d == WindowDimension(n, d.stride) for d, n in zip(self.window.dimensions, base, strict=True)):
            return left_fold([a.reshape(-1, *shape) for a in arrays], inits, shape, to_apply)
        accumulators: list[Array] = [np.full(shape, init, init.dtype) for init in inits]
        for positions, elements in placements(base, self.window):
            folded = [a[positions].copy() for a in accumulators]  # a result may be another's accumulator as it is
            results = results_of(to_apply, to_apply.batched(*folded, *(a[elements] for a in arrays)))
            for accumulator, result in zip(accumulators, results, strict=True):
                accumulator[positions] = result
        return tuple(accumulators) if to_apply.result.is_tuple else accumulators[0]

    def fold(self, operands: Sequence[Shape]) -> Fold:
        dimensions = [
            FoldDimension(i, d.size, d.stride, d.padding_low, d.window_dilation, d.base_dilation)
            for i, d in enumerate(self.window.dimensions)
        ]
        return Fold(tuple(dimensions), len(operands) // 2)


def scan_axis(window: Window, base: Sequence[int]) -> tuple[int, bool] | None:
    """The one axis along which position o of the window covers the elements 0..o, as in a cumulative sum, or, backward
    (True), those from o on; None for other windows."""
    axes = [axis for axis, d in enumerate(window.dimensions) if d != WindowDimension(1)]
    if len(axes) != 1 or window.dimensions[axes[0]].size < base[axes[0]]:
        return None
    d = window.dimensions[axes[0]]
    if d == WindowDimension(d.size, padding_low=d.size - 1):
        return axes[0], False
    return (axes[0], True) if d == WindowDimension(d.size, padding_high=d.size - 1) else None


def _running_fold(arrays: tuple[Array, ...], inits: tuple[Array, ...], axis: int, function: Function) -> Any:
    """Each result is one step from its neighbour's: the same left fold in n steps instead of n^2 / 2."""
    shape = np.delete(arrays[0].shape, axis)
    current: Sequence[Array] = [np.broadcast_to(init, shape) for init in inits]
    ufunc = function.fold_ufunc()
    if ufunc is not None:
        whole = np.concatenate([np.expand_dims(current[0], axis), arrays[0]], axis)
        return ufunc.accumulate(whole, axis=axis, dtype=whole.dtype)[(slice(None),) * axis + (slice(1, None),)]
    outputs = [np.empty_like(a) for a in arrays]
    for i in range(arrays[0].shape[axis]):
        here = (slice(None),) * axis + (i,)
        current = results_of(function, function.batched(*current, *(a[here] for a in arrays)))
        for output, value in zip(outputs, current, strict=True):
            output[here] = value
    return tuple(outputs) if function.result.is_tuple else outputs[0]


class SelectAndScatter(Op, name="select-and-scatter"):
    """At each window position `select` chooses an operand element; `scatter` combines the source element with it.

    The window is read in row-major order; an element stays picked while `select(it, the next)` is true (SAS-8).
    """

    window: Window = attr(Window())

    rounding = SUMMED
    arity = 3
    roles = ("select", "scatter")
    form = "expand"
    rules = "SAS"

    def infer(self, operand: Shape, source: Shape, init: Shape, select: ProgramShape, scatter: ProgramShape) -> Shape:
        check(operand.is_array, "SAS-4", "operand", operand, "an array")
        scalar, window, rank = operand.dtype[()], self.window, operand.rank
        check(len(window.dimensions) == rank, "SAS-6", "window dimensions", len(window.dimensions), rank)
        window.check()
        if any(d.base_dilation != 1 or d.window_dilation != 1 for d in window.dimensions):
            check(False, "SAS-6", "window", "dilations", "none")
        found = [p.static for p in select.parameters]
        check(found == [scalar, scalar], "SAS-2", "select parameters", found, (scalar, scalar))
        check(select.result.static is dtypes.pred[()], "SAS-2", "select result", select.result, "pred[]")
        sizes = output_sizes(operand.dimensions, window)
        check(source.dtype is operand.dtype, "SAS-4", "source type", source.dtype, operand.dtype)
        check(source.dimensions == tuple(sizes), "SAS-4", "source dimensions", source.dimensions, sizes)
        check(init.static is scalar, "SAS-5", "init_value", init, scalar)
        check_reducer(scatter, [operand], (init,), "scatter")
        check(not scatter.result.is_tuple, "SAS-3", "scatter result", scatter.result, scalar)
        return operand.logical

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        source = operands[1].size
        select, scatter = called
        picked = select.times(source * max(0, _window_size(self.window) - 1))
        return moved(operands, result) + picked + scatter.times(source)

    def reference(self, operand: Array, source: Array, init: Array, select: Function, scatter: Function) -> Array:
        targets, source = cut_to_least((picked(operand, self.window, select), source))
        output: Array = np.full(operand.size, init, init.dtype)
        is_picked = targets >= 0
        scatter_in_rounds(output, targets[is_picked], source[is_picked], scatter)
        return output.reshape(operand.shape)

    def expand(self, graph: Graph, operand: Node, source: Node, init: Node, select: Called, scatter: Called) -> Node:
        """Folds only: the position that each window picks, then the windows over each element that picked it.

        Where few windows can cover an element, each of them is a term; else they are folded.
        """
        write, shape = Writing(graph), operand.shape
        count = dtypes.s32 if shape.size <= _MAX_S32 else dtypes.s64
        position = write.reshape(graph.add(Iota(0, count[shape.size])), shape.dimensions)
        picked = self._picks(write, operand, position, select)
        nothing, nowhere = write.scalar(0, shape.dtype), write.scalar(-1, count)
        if math.prod(map(_most_covering, self.window.dimensions)) <= _MOST_TERMS:
            total = write.broadcast(init, (), shape.logical)
            new_ones = _covering(write, source, nothing, self.window, shape.dimensions)
            their_picks = _covering(write, picked, nowhere, self.window, shape.dimensions)
            for new, its_pick in zip(new_ones, their_picks, strict=True):
                combined = graph.add(Map(tuple(range(shape.rank))), total, new, called=[scatter])
                total = write.select(write.compare("EQ", its_pick, position), combined, total)
            return total
        sources = _sliding(write, source, nothing, self.window, shape.dimensions)
        picks = _sliding(write, picked, nowhere, self.window, shape.dimensions)
        offsets = tuple(range(0, 2 * shape.rank, 2))
        mine = write.broadcast(position, [d + 1 for d in offsets], sources.shape)
        scalar = shape.dtype[()]

        def combine(graph: Graph, total: Node, pick: Node, own: Node, new: Node, its_pick: Node, element: Node) -> Node:
            inner = Writing(graph)
            combined = graph.add(Call(False), total, new, called=[scatter])
            result = inner.select(inner.compare("EQ", its_pick, element), combined, total)
            return inner.tuple(result, pick, own)

        combiner = graph.computation([scalar, count[()], count[()]] * 2, combine)
        folded = graph.add(Reduce(offsets), sources, picks, mine, init, nowhere, nowhere, called=[combiner])
        return write.part(folded, 0)

    def _picks(self, write: Writing, operand: Node, position: Node, select: Called) -> Node:
        """The position of the element that each window position picks; -1 where it meets none."""
        element, count = operand.shape.dtype, position.shape.dtype

        def better(graph: Graph, best: Node, at: Node, value: Node, place: Node) -> Node:
            inner = Writing(graph)
            some = inner.compare("GE", at, inner.scalar(0, count))
            kept = inner.both(some, graph.add(Call(False), best, value, called=[select]))
            return inner.tuple(inner.select(kept, best, value), inner.select(kept, at, place))

        combiner = write.graph.computation([element[()], count[()]] * 2, better)
        inits = write.scalar(0, element), write.scalar(-1, count)
        found = write.graph.add(ReduceWindow(self.window), operand, position, *inits, called=[combiner])
        return write.part(found, 1)


def picked(operand: Array, window: Window, select: Function) -> Array:
    """The flat index of the element that each window position picks; -1 where it meets none."""
    shape = tuple(output_sizes(operand.shape, window))
    flat_index: Array = np.reshape(np.arange(operand.size), operand.shape)
    targets: Array = np.full(shape, -1)
    best = np.zeros(shape, operand.dtype)
    for positions, elements in placements(operand.shape, window):
        value, kept = operand[elements], targets[positions] >= 0
        kept = kept & select.batched(best[positions], value)
        targets[positions] = np.where(kept, targets[positions], flat_index[elements])
        best[positions] = np.where(kept, best[positions], value)
    return targets


def scatter_in_rounds(output: Array, targets: Array, source: Array, scatter: Function) -> None:
    """output[t] = scatter(output[t], s) in order: round r takes the r-th update of every target at once."""
    order = stable_order(targets)
    targets, source = targets[order], source[order]
    starts = np.flatnonzero(np.diff(targets, prepend=-1))
    lengths = np.diff(starts, append=len(targets))
    for turn in range(max(lengths, default=0)):
        now = starts[lengths > turn] + turn
        output[targets[now]] = scatter.batched(output[targets[now]], source[now])


def _sliding(write: Writing, x: Node, nothing: Node, window: Window, sizes: Sequence[int]) -> Node:
    """[offset, element, offset, element, ...]: x at the window position that covers the element from that offset.

    Offsets count from the last place of the window, so that positions ascend with them; `nothing` where no position
    stands so. Element t at offset k is place t + k of x, spread by the stride: the rows of a matrix that has the places
    in order, and one more in each row than there are, are moved by one each. The arithmetic of affines undoes all that.
    """
    for i, (d, size) in enumerate(zip(window.dimensions, sizes, strict=True)):
        axis, rank = 2 * i, x.shape.rank
        length = size + d.size - 1
        low = d.size - 1 - d.padding_low
        spread = PaddingDimension(low, length - low - dilated(x.shape.dimensions[axis], d.stride), d.stride - 1)
        x = write.graph.add(_pad_one(axis, rank, spread), x, nothing)
        before, behind = x.shape.dimensions[:axis], x.shape.dimensions[axis + 1 :]
        rows = x.shape.with_dimensions((*before, d.size, length, *behind))
        x = write.broadcast(x, [a + (a >= axis) for a in range(rank)], rows)
        x = write.reshape(x, (*before, d.size * length, *behind))
        x = write.graph.add(_pad_one(axis, rank, PaddingDimension(0, d.size)), x, nothing)
        x = write.reshape(x, (*before, d.size, length + 1, *behind))
        ranges = [(0, n, 1) for n in (*before, d.size, size, *behind)]
        x = write.graph.add(Slice(tuple(ranges)), x)
    return x


def _most_covering(d: WindowDimension) -> int:
    return -(-d.size // d.stride)


def _covering(write: Writing, x: Node, nothing: Node, window: Window, sizes: Sequence[int]) -> Iterator[Node]:
    """x at the window positions that may cover an element, for all elements: one array for each of them, ascending.

    Those that cover element e are among the `_most_covering` ones up to (e + low padding) // stride. A quotient is a
    reshape of what is repeated; `nothing` where there is no such position. One that ends before e is given too.
    """
    rank, cuts = x.shape.rank, list[tuple[int, int]]()
    for axis, (d, size) in enumerate(zip(window.dimensions, sizes, strict=True)):
        before = max(0, -(d.padding_low // d.stride))  # positions that a negative padding leaves out
        first = d.padding_low + before * d.stride
        cuts.append((first, -(-(size + first) // d.stride)))
        low = _most_covering(d) - 1 + before
        padding = PaddingDimension(low, cuts[-1][1] - before - x.shape.dimensions[axis], 0)
        x = write.graph.add(_pad_one(axis, rank, padding), x, nothing)
    for steps in itertools.product(*(range(_most_covering(d)) for d in window.dimensions)):
        ranges = [(step, step + count, 1) for step, (_, count) in zip(steps, cuts, strict=True)]
        near = write.graph.add(Slice(tuple(ranges)), x)
        counts = near.shape.dimensions
        split = [n for count, d in zip(counts, window.dimensions, strict=True) for n in (count, d.stride)]
        near = write.broadcast(near, range(0, 2 * rank, 2), near.shape.with_dimensions(split))
        near = write.reshape(near, [count * d.stride for count, d in zip(counts, window.dimensions, strict=True)])
        ranges = [(first, first + size, 1) for (first, _), size in zip(cuts, sizes, strict=True)]
        yield write.graph.add(Slice(tuple(ranges)), near)


def _pad_one(axis: int, rank: int, padding: PaddingDimension) -> Pad:
    """A pad of one dimension."""
    return Pad(tuple(padding if d == axis else PaddingDimension(0, 0) for d in range(rank)))


def _window_size(window: Window) -> int:
    """The number of elements under a position of the window."""
    return math.prod(d.size for d in window.dimensions)
