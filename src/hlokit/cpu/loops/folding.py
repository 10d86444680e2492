"""Folds: loops over dimensions of the iteration space, prefix folds along an axis, and unrolled short folds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from math import prod
from typing import Any

from hlokit.analysis.reducers import is_semigroup
from hlokit.cpu import costs
from hlokit.cpu.loops.arithmetic import NodeEmitter, parts_of
from hlokit.cpu.loops.called import CalledFunction, Turned
from hlokit.cpu.loops.expr import Expressions, Fold, LoopAxis, Node, Pair, identity_name, index_deps
from hlokit.cpu.loops.space import Dimension, IterationSpace
from hlokit.cpu.lower.leaf import Leaf, Source
from hlokit.cpu.lower.retries import Materialise, Split, Turn
from hlokit.forms.affine import Affine, Index
from hlokit.forms.emitter import Condition
from hlokit.forms.fold import FoldDimension
from hlokit.forms.primitives import PRIMITIVES
from hlokit.hlo.instruction import Instruction
from hlokit.ops.movement import Concatenate
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_UNROLLED = 32
"""Folds of at most so many steps are written out."""
_SHORT = 4
"""Cumulative folds along an axis of at most so many elements are computed window by window."""
_WRITTEN = 160
"""Instructions in all steps of a fold up to which it is: more take longer to compile than a loop takes to run."""


class ElementReader:
    """A reader of an operand: gives its elements as `element` computes or loads them."""

    def __init__(self, element: Callable[[Leaf, Index], Any], leaf: Leaf) -> None:
        self.element = element
        self.leaf = leaf
        self.shape = leaf.shape

    def __call__(self, index: Index) -> Any:
        return self.element(self.leaf, index)


@dataclass(eq=False)
class FoldBuilder:
    """Folds of one kernel over dimensions of its iteration space.

    bound        the axes that each fold binds whose bodies are being built; None for one that is written out
    inside       the axes on which the fold depends whose bodies are being built
    looped_over  the axes of all loops of folds whose bodies are being built
    _folded_for  the axes on which folds that are in no other fold depend
    _scanned     the axes along which cumulative folds go
    _scanned_for these and those on which cumulative folds depend
    """

    arithmetic: NodeEmitter
    space: IterationSpace
    source: Source
    bound: list[int | None] = field(default_factory=list[int | None], init=False)
    inside: int = field(default=0, init=False)
    looped_over: int = field(default=0, init=False)
    _folded_for: list[int] = field(default_factory=list[int], init=False)
    _scanned: set[LoopAxis] = field(default_factory=set[LoopAxis], init=False)
    _scanned_for: int = field(default=0, init=False)

    def value(self, instruction: Instruction, readers: Sequence[ElementReader], index: Index) -> Sequence[Any]:
        """The results' elements at an index."""
        spec = instruction.op.fold([r.shape for r in readers])
        combiner = CalledFunction(self.arithmetic, dict(instruction.called_by_role())[spec.combiner])
        operands, inits = readers[: spec.count], [readers[k](()) for k in spec.inits]
        sizes = operands[0].shape.dimensions
        if 0 in sizes:
            return inits
        scanned = [k for k, d in enumerate(spec.dimensions) if d.size > 1]
        if len(scanned) == 1 and all(d.is_kept for d in spec.dimensions if d.size <= 1):
            (k,) = scanned
            d, results = spec.dimensions[k], next(instruction.shape.leaves()).dimensions
            is_long = sizes[k] > _SHORT
            if is_long and d.is_scan(sizes[k]):
                return self._scan(instruction, operands, inits, combiner, index, k, forwards=True)
            may_turn = (is_long or self.arithmetic.strict) and d.is_reverse_scan(sizes[k], results)
            if may_turn and self._may_turn(inits, combiner):
                return self._scan(instruction, operands, inits, Turned(combiner), index, k, forwards=False)
        steps = prod(d.size for d in spec.dimensions)
        leaves = [operand.leaf for operand in operands]
        numbers = steps * (2 if any(leaf.shape.dtype.is_complex for leaf in leaves) else 1)
        few = steps <= _UNROLLED and (numbers <= costs.DEINTERLEAVED or not self._gathers(spec.dimensions, leaves))
        if few and self._is_small(leaves, spec.dimensions, _WRITTEN // steps):
            self.bound.append(None)
            values = self._written_out(spec.dimensions, operands, inits, combiner, index)
            self.bound.pop()
            return values
        return self._looped(instruction, spec.dimensions, operands, inits, combiner, index)

    def _gathers(self, dimensions: Sequence[FoldDimension], leaves: Sequence[Leaf]) -> bool:
        """Whether lanes would be gathered at each step from an array whose elements are met once, some of them twice or
        among padding, where a loop reads along the rows. Inside a loop of another fold, which takes the lanes then,
        gathers are worth it."""
        sizes, parts = leaves[0].shape.dimensions, 2 if leaves[0].shape.dtype.is_complex else 1
        if parts * _apart(dimensions, sizes) <= costs.DEINTERLEAVED or any(axes is not None for axes in self.bound):
            return False
        return any(2 * leaf.shape.size > prod(sizes) for leaf in self._in_memory(leaves))

    def _in_memory(self, leaves: Sequence[Leaf]) -> Iterator[Leaf]:
        """The leaves in memory that these are made from."""
        waiting = [*leaves]
        seen: set[Leaf] = set()
        while waiting:
            leaf = waiting.pop()
            if leaf in seen:
                continue
            seen.add(leaf)
            if self.source.buffer(leaf) is not None:
                yield leaf
            else:
                waiting += [self.source.leaf(o) for o in leaf.instruction.operands if o.shape.is_array]

    def _is_small(self, leaves: Sequence[Leaf], dimensions: Sequence[FoldDimension], most: int) -> bool:
        """Whether elements of the leaves are made by no more instructions than `most`, from what lies in memory.

        Of a concatenation along a dimension that is folded whole each step takes one operand alone.
        """
        total = 0.0
        whole = frozenset(d.size for d in dimensions if d.output is None)
        waiting = [(leaf, 1.0, whole) for leaf in leaves]
        seen: set[Leaf] = set()
        while waiting and total <= most:
            leaf, times, sizes = waiting.pop()
            instruction = leaf.instruction
            if leaf in seen or self.source.buffer(leaf) is not None:
                continue
            seen.add(leaf)
            op = instruction.op
            if op.form == "fold":
                spec = op.fold([operand.shape for operand in instruction.operands])
                steps = prod(d.size for d in spec.dimensions)
                times *= steps if steps <= _UNROLLED else 1
            if op.form != "index":
                total += times
            operands = [self.source.leaf(o) for o in instruction.operands if o.shape.is_array]
            if isinstance(op, Concatenate) and (size := leaf.shape.dimensions[op.dimension]) in sizes:
                parts = [operand.shape.dimensions[op.dimension] for operand in operands]
                shares = zip(operands, parts, strict=True)
                waiting += [(operand, times * part / size, frozenset((part,))) for operand, part in shares if part]
            else:
                waiting += [(operand, times, sizes) for operand in operands]
        return total <= most

    def _looped(
        self,
        instruction: Instruction,
        dimensions: Sequence[FoldDimension],
        operands: Sequence[ElementReader],
        inits: Sequence[Any],
        combiner: CalledFunction,
        index: Index,
    ) -> Sequence[Any]:
        """A fold with loops over the dimensions that have more than one step."""
        own = index_deps(index)
        for guard in self.arithmetic.guards:  # they are about the axes round the fold, and hold in it
            own |= guard.deps
        self._check_columns(instruction, own)
        self._check_nesting(instruction, own)
        bound: list[LoopAxis] = []
        steps: list[Affine] = []
        for d in dimensions:
            step = Affine.of(0)
            if d.size > 1:
                dimension = self._bound_dimension(d.size, own)
                own |= dimension.deps
                bound += dimension.axes
                step = dimension.affine
            steps.append(step)
        places, conditions = self._places(dimensions, operands[0].shape.dimensions, index, steps)
        valid = self.arithmetic.conjunction(conditions)
        if valid is False:
            return inits
        bits = sum(axis.bit for axis in bound)
        self.bound.append(bits)
        outside, self.inside, self.looped_over = (self.inside, self.looped_over), own, self.looped_over | bits
        bodies = self.arithmetic.where([] if valid is True else [valid], lambda: [o(places) for o in operands])
        self.inside, self.looped_over = outside
        self.bound.pop()
        return self._folded(inits, bodies, combiner, tuple(bound), None if valid is True else valid)

    def _check_columns(self, instruction: Instruction, own: int) -> None:
        """Columns of a large array are folded before: with them the kernel would go through it column by column."""
        around = self.space.around
        if not around or not around[-1].bit & own:
            return
        missing = [k for k, axis in enumerate(around) if axis.extent > 1 and not axis.bit & own]
        operand = self.source.leaf(instruction.operands[0]).shape
        if missing and operand.nbytes >= costs.SECOND_CACHE_BYTES * prod(axis.extent for axis in around[: missing[0]]):
            raise Materialise(self.source.leaf(instruction, 0), "rows are gone through, of which it folds columns")

    def _check_nesting(self, instruction: Instruction, own: int) -> None:
        """One of two folds, of which each needs an axis that the other does not, is computed anew for all of them."""
        if any(axes is not None for axes in self.bound):
            return
        if any(own & ~other and other & ~own for other in self._folded_for):
            raise Materialise(self.source.leaf(instruction, 0), "another fold needs other loops around it")
        self._folded_for.append(own)

    def _places(
        self, dimensions: Sequence[FoldDimension], sizes: Sequence[int], index: Index, steps: Sequence[Affine]
    ) -> tuple[Index, list[Condition]]:
        """The operands' index at a step of each dimension, and where it is one."""
        emit = self.arithmetic
        places: list[Affine] = []
        conditions: list[Condition] = []
        for d, size, step in zip(dimensions, sizes, steps, strict=True):
            start = index[d.output] * d.stride if d.output is not None else Affine.of(0)
            place = start + step * d.dilation - d.low
            if d.base_dilation > 1:
                conditions.append(emit.inrange(emit.mod(place, d.base_dilation), 0, 1))
                place = emit.floordiv(place, d.base_dilation)
            conditions.append(emit.inrange(place, 0, size))
            places.append(place)
        return tuple(places), conditions

    def _bound_dimension(self, extent: int, own: int) -> Dimension:
        """The first one of this extent that is not in the fold's own index: so equal bodies become one node.

        Not one that a cumulative fold goes along or depends on: what that gives is known in the main nest alone.
        """
        own |= self._scanned_for
        for dimension in self.space.dimensions:
            if dimension.extent == extent and not dimension.deps & own:
                return dimension
        return self.space.dimension(extent)

    def _folded(
        self,
        inits: Sequence[Any],
        bodies: Sequence[Any],
        combiner: CalledFunction | Turned,
        bound: tuple[LoopAxis, ...],
        valid: Node | None,
        scan: LoopAxis | None = None,
    ) -> Sequence[Any]:
        emit = self.arithmetic
        results, slots = self._combining(inits, bodies, combiner)
        dtype = results[0].dtype
        is_extreme = len(results) == 1 and identity_name(results[0]) in ("max", "min")
        if is_extreme and dtype.is_floating and dtype.bits < 32:  # nothing rounds, so it is narrowed once, at the end
            inits, bodies = ([emit.convert(v, dtypes.f32) for v in values] for values in (inits, bodies))
            holes = [hole(emit.expressions, dtypes.f32, k) for k in (0, 1)]
            extreme = emit.primitive(PRIMITIVES[identity_name(results[0]) or ""], holes, dtypes.f32)
            fold = Fold(bound, parts_of(inits), parts_of(bodies), (extreme,), slots, valid, scan)  # type: ignore[arg-type]
            return [emit.convert(v, dtype) for v in fold_results(emit.expressions, fold, [dtypes.f32])]
        fold = Fold(bound, parts_of(inits), parts_of(bodies), results, slots, valid, scan)
        return fold_results(emit.expressions, fold, [v.dtype for v in inits])

    def _combining(
        self, inits: Sequence[Any], bodies: Sequence[Any], combiner: CalledFunction | Turned
    ) -> tuple[tuple[Node, ...], tuple[tuple[int, int], ...]]:
        """The combiner on holes, and what these hold: accumulators, then elements."""
        values = [*inits, *bodies]
        holes = [hole(self.arithmetic.expressions, v.dtype, k) for k, v in enumerate(values)]
        results = self.arithmetic.under((), lambda: combiner.results(*holes))
        return parts_of(results), tuple(each.data for each in parts_of(holes))

    def _scan(
        self,
        instruction: Instruction,
        operands: Sequence[ElementReader],
        inits: Sequence[Any],
        combiner: CalledFunction | Turned,
        index: Index,
        dimension: int,
        *,
        forwards: bool,
    ) -> Sequence[Any]:
        """Folds up to each element, or from it on, where the kernel goes along the whole axis; else they are stored."""
        place = index[dimension]
        reading = {Affine.of(a): a for a in self.space.axes}
        backwards = {Affine.of(a) * -1 + (a.extent - 1): a for a in reading.values()}
        axis = reading.get(place) or backwards.get(place)
        others = index_deps((*index[:dimension], *index[dimension + 1 :]))
        size = operands[0].shape.dimensions[dimension]
        if axis is None or axis.extent != size or self.arithmetic.guards or (others | self.looped_over) & axis.bit:
            raise Materialise(self.source.leaf(instruction, 0), "a cumulative fold read elsewhere than along its axis")
        if others & self.looped_over:
            raise Materialise(self.source.leaf(instruction, 0), "a cumulative fold for each step of another fold")
        if (place in reading) is not forwards:
            walked = self.space.dimensions[self.space.number(axis)]
            may_turn = self.space.turned is not None and not walked.turned and len(walked.axes) == 1
            if not may_turn or self.bound or axis in self._scanned:
                raise Materialise(self.source.leaf(instruction, 0), "a cumulative fold against its kernel's direction")
            raise Turn(axis)
        if self._scanned - {axis}:
            raise Materialise(self.source.leaf(instruction, 0), "another cumulative fold goes along another axis")
        self._scanned.add(axis)
        self._scanned_for |= axis.bit | others
        self.bound.append(axis.bit)
        bodies = [self._scanned_element(operand, index, axis) for operand in operands]
        self.bound.pop()
        return self._folded(inits, bodies, combiner, (), None, axis)

    def _scanned_element(self, operand: ElementReader, index: Index, axis: LoopAxis) -> Any:
        """An element that a cumulative fold along an axis takes; its array is stored, if it would split that axis."""
        try:
            return operand(index)
        except Split as split:
            if split.axis is not axis:
                raise
            raise Materialise(operand.leaf, "a cumulative fold along an axis that it would split") from split

    def _may_turn(self, inits: Sequence[Any], combiner: CalledFunction) -> bool:
        """Whether a fold may go from the last element to the first: as one of f(first, f(second, ...)). In strict code
        where the reference goes so (RWIN-5)."""
        if self.arithmetic.strict:
            op = combiner.computation.single_op
            return op is not None and op.commutative
        combined, _ = self._combining(inits, inits, combiner)
        if len(combined) != 1:
            return False
        if identity_name(combined[0]) is not None:
            return True
        return inits[0].op == "const" and is_semigroup(combiner.computation, inits[0].data)

    def _written_out(
        self,
        dimensions: Sequence[FoldDimension],
        operands: Sequence[ElementReader],
        inits: Sequence[Any],
        combiner: CalledFunction,
        index: Index,
    ) -> Sequence[Any]:
        """A fold of few steps, without a loop."""
        emit = self.arithmetic
        values = list(inits)
        for step in product(*(range(d.size) for d in dimensions)):
            steps = [Affine.of(k) for k in step]
            places, conditions = self._places(dimensions, operands[0].shape.dimensions, index, steps)
            valid = emit.conjunction(conditions)
            if valid is False:
                continue
            combined = partial(_combined, combiner, values, operands, places)
            if valid is True:
                values = combined()
            else:
                values = [emit.choose(valid, a, b) for a, b in zip(emit.where([valid], combined), values, strict=True)]
        return values


def _apart(dimensions: Sequence[FoldDimension], sizes: Sequence[int]) -> int:
    """Elements from what a result meets at a step to what the next one meets."""
    apart = 1
    for d, size in zip(reversed(dimensions), reversed(sizes), strict=True):
        if d.output is None:
            apart *= size
        elif size > 1:
            return apart * d.stride
    return apart


def _combined(
    combiner: CalledFunction, values: Sequence[Any], operands: Sequence[ElementReader], places: Index
) -> list[Any]:
    return list(combiner.results(*values, *(operand(places) for operand in operands)))


def hole(expressions: Expressions, dtype: DType, place: int) -> Any:
    """A value that a fold's combiner is given."""
    if dtype.is_complex:
        return Pair(dtype, *(expressions.node("hole", dtype.real, (), (place, k)) for k in (0, 1)))
    return expressions.node("hole", dtype, (), (place, 0))


def fold_results(expressions: Expressions, fold: Fold, types: Sequence[DType]) -> list[Any]:
    """The final accumulators of a fold as values of these types."""
    node = expressions.node("fold", fold.inits[0].dtype, (), fold)
    number = count()
    values: list[Any] = []
    for dtype in types:
        parts = [expressions.node("part", dtype.real, (node,), next(number)) for _ in range(1 + dtype.is_complex)]
        values.append(Pair(dtype, *parts) if dtype.is_complex else parts[0])
    return values
