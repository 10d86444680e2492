"""Build: asks forms for elements at affine indices; the result is one expression DAG per kernel."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hlokit.analysis.loops import Counter, counter, invariants
from hlokit.analysis.reducers import is_semigroup
from hlokit.cpu.expr import (
    HOLE,
    Axis,
    Buffer,
    Expressions,
    Fold,
    Node,
    Pair,
    RuntimeInt,
    affine_deps,
    affine_of,
    children,
    identity_name,
    reachable,
)
from hlokit.cpu.half import in_half
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Affine, Index, row_major
from hlokit.forms.emitter import Condition, Emitter, Value
from hlokit.forms.fold import FoldDimension
from hlokit.forms.primitives import PRIMITIVES, Primitive
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_sequence
from hlokit.ops.control_flow import While
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

MAX_DEPTH = 40
"""Instructions inlined into each other: forms call each other through readers, a few Python frames each."""

_UNROLLED = 32
"""Folds of at most so many steps are written out."""

_MAX_NODES = 6000

_STAGE = 1 << 15


class Leaf(NamedTuple):
    """An array: the k-th array leaf of an instruction's value, found through tuples."""

    instruction: Instruction
    number: int

    @property
    def shape(self) -> Shape:
        shape = self.instruction.shape
        return shape if shape.is_array else list(array_leaves(shape))[self.number]


def array_leaves(shape: Shape) -> Iterator[Shape]:
    """The arrays in a shape: tokens hold nothing."""
    return (leaf for leaf in shape.leaves() if leaf.is_array)


class Cut(Exception):
    """Building found that a leaf should be stored: inlining it costs more than memory does."""

    def __init__(self, leaf: Leaf, reason: str) -> None:
        super().__init__(reason)
        self.leaf = leaf


class Reference(Exception):
    """Strict code has no machine code of the reference's bits for this leaf's instruction."""

    def __init__(self, leaf: Leaf, reason: str) -> None:
        super().__init__(reason)
        self.leaf = leaf


class Split(Exception):
    """An index would be affine if this axis were two: `factor` is the extent of the inner one."""

    def __init__(self, axis: Axis, factor: int) -> None:
        super().__init__(axis.name)
        self.axis = axis
        self.factor = factor


class Turn(Exception):
    """A cumulative fold from the end goes along this axis: its dimension has to be walked backwards."""

    def __init__(self, axis: Axis) -> None:
        super().__init__(axis.name)
        self.axis = axis


class Group:
    """A dimension's extent as axes, outer first: one axis, or several where reshapes cut it.

    `turned`: its places are counted from the last to the first.
    """

    def __init__(self, extent: int, axes: Sequence[Axis], turned: bool = False) -> None:
        self.extent = extent
        self.axes = tuple(axes)
        self.turned = turned
        self.affine = Affine.of(0)
        for axis in axes:
            self.affine = self.affine * axis.extent + axis
        if turned:
            self.affine = self.affine * -1 + (extent - 1)
        self.deps = 0
        for axis in axes:
            self.deps |= axis.bit


class Known:
    """A reader of a scalar that is there already."""

    def __init__(self, value: Any, shape: Shape) -> None:
        self.value = value
        self.shape = shape

    def __call__(self, index: Index) -> Any:
        return self.value


class Reader:
    """A reader of an operand."""

    def __init__(self, build: Build, leaf: Leaf) -> None:
        self.build = build
        self.leaf = leaf
        self.shape = leaf.shape

    def __call__(self, index: Index) -> Any:
        return self.build.element(self.leaf, index)


class Source:
    """What a kernel reads: where leaves come from, and which of them lie in memory."""

    def leaf(self, instruction: Instruction, number: int = 0) -> Leaf:
        raise NotImplementedError

    def buffer(self, leaf: Leaf) -> Buffer | None:
        raise NotImplementedError

    def constant(self, literal: Literal) -> Buffer:
        raise NotImplementedError


class Build(Emitter):
    """The expressions of one kernel, by what earlier tries found.

    splits     factors of its groups by their number
    turned     numbers of groups that are walked backwards; None: none may be
    half       whether the machine computes in f16
    """

    def __init__(
        self,
        source: Source,
        splits: Mapping[int, Sequence[int]],
        *,
        turned: AbstractSet[int] | None = None,
        strict: bool = False,
        half: bool = False,
    ) -> None:
        self.source = source
        self.splits = splits
        self.turned = turned
        self.strict = strict
        self.half = half
        self.expressions = Expressions()
        self.groups: list[Group] = []
        self.guards: tuple[Node, ...] = ()
        self.memo: dict[tuple[Any, ...], Any] = {}
        self.bindings: dict[Leaf, Callable[[Index], Any]] = {}
        self._passes: tuple[int, ...] = ()
        self._folding: list[int | None] = []
        self._folded_for: list[int] = []  # the axes on which folds that are in no other fold depend
        self._inside = 0  # axes that the fold whose body is being built depends on
        self.around: Sequence[Axis] = ()  # the kernel's loops, outermost first, where nothing else orders them
        self.reads: dict[Leaf, dict[Index, int]] = {}
        self.weights: dict[Leaf, int] = {}
        self.spent: dict[Leaf, int] = {}
        self._open: list[Leaf] = []
        self._bits = 1
        self._scanned: set[Axis] = set()  # along which cumulative folds go
        self._runtime: dict[tuple[Node, int, int], RuntimeInt] = {}

    # -- axes

    def group(self, extent: int) -> Group:
        """A new dimension of the iteration space."""
        factors = self.splits.get(len(self.groups), (extent,))
        axes: list[Axis] = []
        for factor in factors:
            self._bits += 1
            axes.append(Axis(f"i{self._bits - 2}", factor, 1 << (self._bits - 1)))
        self.groups.append(Group(extent, axes, self.turned is not None and len(self.groups) in self.turned))
        return self.groups[-1]

    def index(self, sizes: Sequence[int]) -> Index:
        """One new group for each dimension that has not just one place."""
        return tuple(self.group(n).affine if n != 1 else Affine.of(0) for n in sizes)

    # -- what is read

    def readers(self, instruction: Instruction) -> list[Reader]:
        return [Reader(self, self.source.leaf(operand)) for operand in instruction.operands]

    def element(self, leaf: Leaf, index: Index) -> Any:
        """The element of an array: loaded if it lies in memory, else computed here."""
        buffer = self.source.buffer(leaf)
        op = leaf.instruction.op
        if buffer is not None and isinstance(op, Constant) and leaf.shape == op.literal.shape and not leaf.number:
            if all(i.is_constant for i in index):
                return self.literal(op.literal, index)
        if buffer is not None:
            return self.load(buffer, leaf.shape, index)
        bound = self.bindings.get(leaf)
        if bound is not None:
            return bound(index)
        key = (leaf, index, self.guards, self._passes)
        found = self.memo.get(key)
        if found is None:
            if self._folding and leaf.instruction.op.form == "fold":
                self._check_stage(leaf, index)
            if not isinstance(leaf.instruction.op, Broadcast):  # its operand is counted, at fewer places
                self._count(leaf, index)
            if len(self._open) >= MAX_DEPTH:
                raise Cut(leaf, "the chain of instructions is too long for one kernel")
            before, costly = self.expressions.work, self.expressions.costly
            self._open.append(leaf)
            found = self.memo[key] = self._computed(leaf, index)
            self._open.pop()
            weight = max(0, self.expressions.work - before - 1) * self._repeats(leaf)  # one load there is anyway
            self.weights[leaf] = max(self.weights.get(leaf, 0), weight)
            self._check_invariant(leaf, index, weight + 10 * (self.expressions.costly - costly), found)
            if len(self.expressions.nodes) > _MAX_NODES:
                raise Cut(max(self.reads, key=lambda leaf: len(self.reads[leaf])), "the kernel is too large")
        return found

    def _check_stage(self, leaf: Leaf, index: Index) -> None:
        """A long fold whose results are folded again is a stage of its own: it has more places to share out."""
        bound = self._folding[-1]
        deps = 0
        for affine in index:
            deps |= affine_deps(affine)
        read = self.reads.get(leaf, {})
        again = deps & bound if bound is not None else read and index not in read
        operand = self.source.leaf(leaf.instruction.operands[0]).shape
        if again and operand.size >= _STAGE and operand.size >= 64 * leaf.shape.size:
            raise Cut(leaf, "the first stage of a fold in two")

    def _check_invariant(self, leaf: Leaf, index: Index, cost: int, value: Any) -> None:
        """What does not depend on an outer loop, yet on one in it, is computed again in each of its steps."""
        if cost < _COSTLY_INVARIANT or not self.around or self._passes or not leaf.shape.rank:
            return
        deps = 0
        for affine in index:
            deps |= affine_deps(affine)
        last = max((k for k, axis in enumerate(self.around) if axis.bit & (deps | self._inside)), default=-1)
        steps = prod(axis.extent for axis in self.around[: last + 1] if not axis.bit & deps)
        elements = self._let_through(deps)
        if steps < _MANY_STEPS or not too_often(elements * steps, elements, cost):
            return
        if any(node.op == "fold" for node in reachable(parts_of([value]))):
            return  # loops are ordered by what folds depend on
        raise Cut(leaf, f"it is the same in {steps} steps of a loop around it")

    def _count(self, leaf: Leaf, index: Index) -> None:
        """Cuts while building: as soon as it is clear that a leaf is computed too often."""
        indices = self.reads.setdefault(leaf, {})
        if index in indices:
            return
        deps = 0
        for affine in index:
            deps |= affine_deps(affine)
        indices[index] = deps
        spent = self.spent[leaf] = self.spent.get(leaf, 0) + self._let_through(deps)
        if len(indices) > 1 and too_often(spent, leaf.shape.size, self.weights.get(leaf, 1)):
            raise Cut(leaf, f"computed {spent} times for {leaf.shape.size} elements")

    def _let_through(self, deps: int) -> int:
        """The number of places of a set of axes where the guards hold, as far as each of them asks for one axis."""
        steps = {axis: axis.extent for group in self.groups for axis in group.axes if axis.bit & deps}
        for guard in self.guards:
            test = guard.args[0] if guard.op == "not" else guard
            if test.op != "range" or len(test.data[0].terms) != 1:
                continue
            (axis, c), low, high = test.data[0].terms[0], *test.data[1:]
            if axis in steps:
                inside = min(axis.extent, -(-(high - low) // abs(c)))
                steps[axis] = min(steps[axis], axis.extent - inside if guard.op == "not" else inside)
        return prod(steps.values())

    def extent_of(self, deps: int) -> int:
        """The number of places of a set of axes."""
        return prod(axis.extent for group in self.groups for axis in group.axes if axis.bit & deps)

    def left_to_reference(self, what: str) -> NoReturn:
        """Strict code cannot have this: the instruction that is being built is evaluated by the reference."""
        reason = f"strict: {what} has the reference's bits there alone"
        if self._open:
            raise Reference(self._open[-1], reason)
        raise UnsupportedError(reason)

    def check_exact(self, instruction: Instruction) -> None:
        """Strict code computes what the reference computes, bit for bit."""
        if self.strict and not instruction.op.is_exact(*(o.shape for o in instruction.operands)):
            self.left_to_reference(instruction.opcode)

    def _computed(self, leaf: Leaf, index: Index) -> Any:
        instruction = leaf.instruction
        op = instruction.op
        self.check_exact(instruction)
        if op.form == "fold":
            return self._fold(instruction, index)[leaf.number]
        if isinstance(op, While):
            return self._loop(instruction, leaf.number, index)
        called = {role: CalledFunction(self, c) for role, c in instruction.called_by_role()}
        value = op.element(self, index, *self.readers(instruction), **called)
        if value.dtype is not leaf.shape.dtype:
            raise AssertionError(f"{op.opcode} gave {value.dtype} for {leaf.shape}")
        return value

    def load(self, buffer: Buffer, shape: Shape, index: Index) -> Any:
        """An element in memory; guarded unless the index is inside for all values of the axes."""
        if shape.size == 0:
            return self.constant(0, shape.dtype)
        inside = all(a.low >= 0 and a.high < n for a, n in zip(index, shape.dimensions, strict=True))
        guards = () if inside else self.guards
        place = row_major(index, shape.dimensions)
        if not shape.dtype.is_complex:
            return self.expressions.node("load", shape.dtype, guards, (buffer, place))
        parts = [self.expressions.node("load", buffer.dtype, guards, (buffer, place * 2 + k)) for k in (0, 1)]
        return Pair(shape.dtype, *parts)

    # -- folds

    def _fold(self, instruction: Instruction, index: Index) -> Sequence[Any]:
        op = instruction.op
        readers = self.readers(instruction)
        spec = op.fold([r.shape for r in readers])
        combiner = CalledFunction(self, dict(instruction.called_by_role())[spec.combiner])
        operands, inits = readers[: spec.count], [readers[k](()) for k in spec.inits]
        sizes = operands[0].shape.dimensions
        if 0 in sizes:
            return inits
        scanned = [k for k, d in enumerate(spec.dimensions) if d.size > 1]
        if len(scanned) == 1 and sizes[scanned[0]] > 4 and all(d.is_kept for d in spec.dimensions if d.size <= 1):
            (k,) = scanned
            if spec.dimensions[k].is_scan(sizes[k]):
                return self._scan(instruction, operands, inits, combiner, index, k, forwards=True)
            if spec.dimensions[k].is_reverse_scan(sizes[k]) and not self.strict and self._may_turn(inits, combiner):
                return self._scan(instruction, operands, inits, Turned(combiner), index, k, forwards=False)
        steps = prod(d.size for d in spec.dimensions)
        places: list[Affine] = []
        bound: list[Axis] = []
        own = 0
        for affine in index:
            own |= affine_deps(affine)
        for guard in self.guards:  # they are about the axes round the fold, and hold in it
            own |= guard.deps
        conditions: list[Condition] = []
        if steps <= _UNROLLED:
            self._folding.append(None)
            values = self._written_out(spec.dimensions, sizes, operands, inits, combiner, index)
            self._folding.pop()
            return values
        self._check_nesting(instruction, own)
        for d, size in zip(spec.dimensions, sizes, strict=True):
            step = Affine.of(0)
            if d.size > 1:
                group = self._bound_group(d.size, own)
                own |= group.deps
                bound += group.axes
                step = group.affine
            place, found = self._place(d, size, index, step)
            places.append(place)
            conditions += found
        valid = self._all(conditions)
        if valid is False:
            return inits
        outer = self.guards
        if valid is not True:
            self.guards = self._with(outer, valid)
        self._folding.append(sum(axis.bit for axis in bound))
        inside, self._inside = self._inside, own
        bodies = [operand(tuple(places)) for operand in operands]
        self._inside = inside
        self._folding.pop()
        self.guards = outer
        return self._folded(inits, bodies, combiner, tuple(bound), None if valid is True else valid)

    def _check_nesting(self, instruction: Instruction, own: int) -> None:
        """One of two folds, of which each needs an axis that the other does not, is computed anew for all of them."""
        if any(axes is not None for axes in self._folding):
            return
        if any(own & ~other and other & ~own for other in self._folded_for):
            raise Cut(self.source.leaf(instruction, 0), "another fold needs other loops around it")
        self._folded_for.append(own)

    def _place(self, d: FoldDimension, size: int, index: Index, step: Affine) -> tuple[Affine, list[Condition]]:
        """The operand's place at a step, and where it is one."""
        start = index[d.output] * d.stride if d.output is not None else Affine.of(0)
        place = start + step * d.dilation - d.low
        conditions: list[Condition] = []
        if d.base_dilation > 1:
            conditions.append(self.inrange(self.mod(place, d.base_dilation), 0, 1))
            place = self.floordiv(place, d.base_dilation)
        conditions.append(self.inrange(place, 0, size))
        return place, conditions

    def _bound_group(self, extent: int, own: int) -> Group:
        """The first group of this extent that is not in the fold's own index: so equal bodies become one node."""
        for group in self.groups:
            if group.extent == extent and not group.deps & own:
                return group
        return self.group(extent)

    def _folded(
        self,
        inits: Sequence[Any],
        bodies: Sequence[Any],
        combiner: CalledFunction | Turned,
        bound: tuple[Axis, ...],
        valid: Node | None,
        scan: Axis | None = None,
    ) -> Sequence[Any]:
        results, slots = self._combining(inits, bodies, combiner)
        dtype = results[0].dtype
        is_extreme = len(results) == 1 and identity_name(results[0]) in ("max", "min")
        if is_extreme and dtype.is_floating and dtype.bits < 32:  # nothing rounds, so it is narrowed once, at the end
            inits, bodies = ([self.convert(v, dtypes.f32) for v in values] for values in (inits, bodies))
            holes = [self._hole(dtypes.f32, k) for k in (0, 1)]
            extreme = self.primitive(PRIMITIVES[identity_name(results[0]) or ""], holes, dtypes.f32)
            fold = Fold(bound, parts_of(inits), parts_of(bodies), (extreme,), slots, valid, scan)  # type: ignore[arg-type]
            node = self.expressions.node("fold", dtypes.f32, (), fold)
            return [self.convert(v, dtype) for v in self._assembled(node, [dtypes.f32])]
        fold = Fold(bound, parts_of(inits), parts_of(bodies), results, slots, valid, scan)
        node = self.expressions.node("fold", fold.inits[0].dtype, (), fold)
        return self._assembled(node, [v.dtype for v in inits])

    def _combining(
        self, inits: Sequence[Any], bodies: Sequence[Any], combiner: CalledFunction | Turned
    ) -> tuple[tuple[Node, ...], tuple[tuple[int, int], ...]]:
        """The combiner on holes, and what these hold: accumulators, then elements."""
        accumulators = [self._hole(v.dtype, k) for k, v in enumerate(inits)]
        elements = [self._hole(v.dtype, k + len(inits)) for k, v in enumerate(bodies)]
        outer, self.guards = self.guards, ()
        results = combiner.results(*accumulators, *elements)
        self.guards = outer
        return parts_of(results), tuple(hole.data for hole in parts_of([*accumulators, *elements]))

    def _hole(self, dtype: DType, place: int) -> Any:
        if dtype.is_complex:
            parts = [self.expressions.node("hole", dtype.real, (), (place, k)) for k in (0, 1)]
            return Pair(dtype, *parts)
        return self.expressions.node("hole", dtype, (), (place, 0))

    def _assembled(self, node: Node, types: Sequence[DType]) -> list[Any]:
        values: list[Any] = []
        k = 0
        for dtype in types:
            if dtype.is_complex:
                both = [self.expressions.node("part", dtype.real, (node,), k + j) for j in (0, 1)]
                values.append(Pair(dtype, *both))
                k += 2
            else:
                values.append(self.expressions.node("part", dtype, (node,), k))
                k += 1
        return values

    def _scan(
        self,
        instruction: Instruction,
        operands: Sequence[Reader],
        inits: Sequence[Any],
        combiner: CalledFunction | Turned,
        index: Index,
        dimension: int,
        *,
        forwards: bool,
    ) -> Sequence[Any]:
        """Folds up to each element, or from it on, where the kernel goes along the whole axis; else they are stored."""
        place = index[dimension]
        reading = {Affine.of(a): a for g in self.groups for a in g.axes}
        backwards = {Affine.of(a) * -1 + (a.extent - 1): a for a in reading.values()}
        axis = reading.get(place) or backwards.get(place)
        others = 0
        for k, affine in enumerate(index):
            others |= affine_deps(affine) if k != dimension else 0
        if axis is None or axis.extent != operands[0].shape.dimensions[dimension] or self.guards or others & axis.bit:
            raise Cut(self.source.leaf(instruction, 0), "a cumulative fold read elsewhere than along its axis")
        if (place in reading) is not forwards:
            group = next(g for g in self.groups if axis in g.axes)
            if self.turned is None or group.turned or len(group.axes) > 1 or self._folding or axis in self._scanned:
                raise Cut(self.source.leaf(instruction, 0), "a cumulative fold against its kernel's direction")
            raise Turn(axis)
        self._scanned.add(axis)
        self._folding.append(axis.bit)
        bodies = [operand(index) for operand in operands]
        self._folding.pop()
        return self._folded(inits, bodies, combiner, (), None, axis)

    def _may_turn(self, inits: Sequence[Any], combiner: CalledFunction) -> bool:
        """Whether a fold may go from the last element to the first: as one of f(first, f(second, ...))."""
        combined, _ = self._combining(inits, inits, combiner)
        if len(combined) != 1:
            return False
        if identity_name(combined[0]) is not None:
            return True
        return inits[0].op == "const" and is_semigroup(combiner.computation, inits[0].data)

    def _written_out(
        self,
        dimensions: Sequence[Any],
        sizes: Sequence[int],
        operands: Sequence[Reader],
        inits: Sequence[Any],
        combiner: CalledFunction,
        index: Index,
    ) -> Sequence[Any]:
        values = list(inits)
        outer = self.guards
        for flat in range(prod(d.size for d in dimensions)):
            places: list[Affine] = []
            conditions: list[Condition] = []
            rest = flat
            for d in reversed(dimensions):
                rest, step = divmod(rest, d.size)
                places.append(Affine.of(step))
            for k, (d, size) in enumerate(zip(dimensions, sizes, strict=True)):
                place, found = self._place(d, size, index, places[-1 - k])
                conditions += found
                places[-1 - k] = place
            valid = self._all(conditions)
            if valid is False:
                continue
            if valid is True:
                values = list(combiner.results(*values, *(o(tuple(reversed(places))) for o in operands)))
                continue
            self.guards = self._with(outer, valid)
            new = combiner.results(*values, *(o(tuple(reversed(places))) for o in operands))
            self.guards = outer
            values = [self._select(valid, a, b) for a, b in zip(new, values, strict=True)]
        return values

    # -- counted loops, whose bodies work element by element

    def _repeats(self, leaf: Leaf) -> int:
        found = counter(leaf.instruction) if isinstance(leaf.instruction.op, While) else None
        return found.trips if found is not None else 1

    def _loop(self, loop: Instruction, number: int, index: Index) -> Any:
        """An element after all passes: a fold over them, whose accumulators are the state's elements at this index.

        UnsupportedError where a pass reads the state elsewhere than at this index.
        """
        found = counter(loop)
        if found is None or found.index is None or (self.guards and index):
            raise UnsupportedError(f"{loop.name}: no counted loop over elements")
        init = loop.operands[0]
        kept = invariants(loop)
        if number in kept:
            return self.element(self.source.leaf(init, number), index)
        shapes = loop.shape.elements
        if number == found.index:
            return self.constant(found.start + found.trips * found.step, shapes[number].dtype)
        key = ("loop", loop, index, self._passes)
        values = self.memo.get(key)
        if values is None:
            guards, self.guards = self.guards, ()  # a loop over scalars is the same whoever reads it
            values = self.memo[key] = self._passed(loop, found, kept, shapes[number].dimensions, index)
            self.guards = guards
        return values[number]

    def _passed(
        self, loop: Instruction, count: Counter, kept: Sequence[int], dimensions: tuple[int, ...], index: Index
    ) -> dict[int, Any]:
        init, body = loop.operands[0], loop.called[1]
        shapes = loop.shape.elements
        state = [
            k
            for k in range(len(shapes))
            if k not in kept and k != count.index and shapes[k].dimensions in (dimensions, ())
        ]
        starts = {k: self.element(self.source.leaf(init, k), index if shapes[k].rank else ()) for k in state}
        if not count.trips:
            return starts
        place = 1000 * (len(self._passes) + 1)
        holes = {k: self._hole(shapes[k].dtype, place + j) for j, k in enumerate(state)}
        trip = self.group(count.trips)
        outer, saved = self._passes, dict(self.bindings)
        self._passes = (*outer, len(self.groups))
        for k in range(len(shapes)):
            self.bindings[Leaf(body.parameters[0], k)] = self._carried(loop, k, holes, kept, count, trip, index)
        results = {k: self.element(self.source.leaf(body.root, k), index if shapes[k].rank else ()) for k in state}
        self.bindings, self._passes = saved, outer
        inits, combined = parts_of(list(starts.values())), parts_of(list(results.values()))
        own = parts_of(list(holes.values()))
        combined, bodies, slots = self._with_elements(combined, own, place + 500)
        fold = Fold(trip.axes, inits, bodies, combined, slots, ordered=True)
        node = self.expressions.node("fold", inits[0].dtype, (), fold)
        return dict(zip(state, self._assembled(node, [starts[k].dtype for k in state]), strict=True))

    def _carried(
        self,
        loop: Instruction,
        k: int,
        holes: Mapping[int, Any],
        kept: Sequence[int],
        count: Counter,
        trip: Group,
        index: Index,
    ) -> Callable[[Index], Any]:
        """What a pass reads of the state's element k."""
        shape = loop.shape.elements[k]
        own = index if shape.rank else ()

        def read(at: Index) -> Any:
            if k == count.index:
                return self.expressions.node("number", shape.dtype, (), trip.affine * count.step + count.start)
            if k in kept:
                inner, self._passes = self._passes, self._passes[:-1]
                value = self.element(self.source.leaf(loop.operands[0], k), at)
                self._passes = inner
                return value
            if k not in holes or at != own:
                raise UnsupportedError(f"{loop.name}: a pass reads the state at other indices")
            return holes[k]

        return read

    def _with_elements(
        self, combined: Sequence[Node], own: Sequence[Node], place: int
    ) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[tuple[int, int], ...]]:
        """The combiner with all that needs no accumulator taken out: these are the elements it is given."""
        taken: dict[Node, Node] = {}
        new: dict[Node, Node] = {}
        needed = set(own)
        for node in reachable(combined):  # whether a node needs an accumulator, children first
            if node not in needed and any(child in needed for child in children(node)):
                needed.add(node)
                affine = affine_of(node)
                if affine is not None and affine_deps(affine) & ~HOLE:
                    raise UnsupportedError("a pass of the loop has indices that depend on its state and on axes")
        stack = [(node, False) for node in reversed(combined)]
        while stack:
            node, done = stack.pop()
            if node in new:
                continue
            if node not in needed and node.op != "const":
                hole = self.expressions.node("hole", node.dtype, (), (place + len(taken), 0))
                taken[node] = new[node] = hole
            elif done or not node.args or node.op == "part":
                args = [new.get(a, a) for a in node.args]
                new[node] = self.expressions.node(node.op, node.dtype, args, node.data)
            else:
                stack.append((node, True))
                stack += [(a, False) for a in node.args if a not in new]
        slots = tuple(h.data for h in (*own, *taken.values()))
        return tuple(new[n] for n in combined), tuple(taken), slots

    # -- what forms write with

    def primitive(self, primitive: Primitive, operands: Sequence[Value], dtype: DType) -> Value:
        name = primitive.name
        if self.strict and name in _APPROXIMATED:
            self.left_to_reference(name)
        if name == "complex":
            return Pair(dtype, operands[0], operands[1])  # type: ignore[arg-type]
        if name in ("real", "imag"):
            return getattr(operands[0], name)
        if name == "select":
            return self._select(operands[0], operands[1], operands[2])
        nodes: Any = tuple(operands)
        if name in ("to_bits", "from_bits") and _is_integer_of_bytes(dtype) and _is_integer_of_bytes(nodes[0].dtype):
            if nodes[0].dtype is dtype:
                return nodes[0]
            if nodes[0].op == "const" and nodes[0].dtype.bits == dtype.bits:
                return self.expressions.const(nodes[0].data.view(dtype.numpy), dtype)
        if dtype is dtypes.pred and name in _TESTS and all(n.op == "const" and _is_whole(n.dtype) for n in nodes):
            return self.expressions.flag(bool(_TESTS[name](int(nodes[0].data), int(nodes[1].data))))
        if name in _COMPARED and nodes[0].op == "convert" and nodes[1].op == "const":
            narrow = self._narrow_comparison(name, *nodes)
            if narrow is not None:
                return narrow
        if self.half and (narrow := in_half(self.expressions, name, nodes, dtype)) is not None:
            return narrow
        found = self._affine_result(name, nodes, dtype)
        if found is None and name == "add" and dtype.is_integral:
            found = self.expressions.integer_sum(nodes[0], nodes[1])
        return found or self.expressions.node(name, dtype, nodes)

    def _narrow_comparison(self, name: str, wide: Node, constant: Node) -> Value | None:
        """A comparison of a widened integer with a constant: in the integer's own type."""
        value = wide.args[0]
        if not (value.dtype.is_integral and wide.dtype.is_integral) or value.dtype.bits < 8:
            return None
        (least, most), (low, high) = _limits(value.dtype), _limits(wide.dtype)
        if least < low or most > high or value.dtype.kind == "pred":
            return None
        number = int(constant.data)
        if least <= number <= most:
            return self.primitive(PRIMITIVES[name], (value, self.expressions.const(number, value.dtype)), dtypes.pred)
        below = number > most  # the value is less than the constant
        return self.expressions.flag(below if name in ("lt", "le") else not below if name in ("gt", "ge") else False)

    def _select(self, condition: Any, then: Any, otherwise: Any) -> Any:
        if then is otherwise:
            return then
        if condition.op == "const":
            return then if condition.data else otherwise
        if isinstance(then, Pair):
            real = self._select(condition, then.real, otherwise.real)
            return Pair(then.dtype, real, self._select(condition, then.imag, otherwise.imag))
        return self.expressions.node("select", then.dtype, (condition, then, otherwise))

    def _affine_result(self, name: str, nodes: tuple[Node, ...], dtype: DType) -> Node | None:
        """Integer arithmetic on what indices count stays affine where nothing can wrap; comparisons become ranges."""
        affines = [_affine_of(node) for node in nodes]
        if None in affines or all(a.is_constant for a in affines if a is not None) or not affines:
            return None
        a, b = affines[0], affines[-1]
        assert a is not None and b is not None
        result: Affine | None = None
        if name == "convert" and dtype.is_integral:
            result = a
        elif name == "add":
            result = a + b
        elif name == "sub":
            result = a - b
        elif name == "mul" and (a.is_constant or b.is_constant):
            result = a * b.constant if b.is_constant else b * a.constant
        elif name in _COMPARED:
            low, high = _COMPARED[name]
            known = self.inrange(a - b, low, high)
            return self.expressions.flag(known) if isinstance(known, bool) else known  # type: ignore[return-value]
        if result is None or not _fits(result, dtype):
            return None
        return self.expressions.node("number", dtype, (), result)

    def constant(self, value: Any, dtype: DType) -> Value:
        if dtype.is_complex:
            parts = [self.expressions.const(part, dtype.real) for part in _components(value, dtype)]
            return Pair(dtype, *parts)
        return self.expressions.const(value, dtype)

    def literal(self, literal: Literal, index: Index) -> Value:
        is_there = isinstance(literal.value, np.ndarray) and not literal.shape.dtype.is_complex
        if is_there and all(i.is_constant for i in index):
            place = tuple(i.constant for i in index)
            if all(0 <= i < n for i, n in zip(place, literal.shape.dimensions, strict=True)):
                return self.constant(literal.value[place], literal.shape.dtype)  # type: ignore[index]
        return self.load(self.source.constant(literal), literal.shape, index)

    def number(self, affine: Affine) -> Value:
        dtype = dtypes.s32 if _fits(affine, dtypes.s32) else dtypes.s64
        if affine.is_constant:
            return self.expressions.const(affine.constant, dtype)
        return self.expressions.node("number", dtype, (), affine)

    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        low, high = max(low, affine.low), min(high, affine.high + 1)
        return self.expressions.node("range", dtypes.pred, (), (affine, low, high))

    def inrange(self, affine: Any, low: int, high: int) -> Condition:
        known = super().inrange(affine, low, high)
        if isinstance(known, bool):
            return known
        if known in self.guards:
            return True
        return False if self._not(known) in self.guards else known

    def branch(self, conditions: Sequence[Value], then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        condition: Any = self._all(conditions)
        if isinstance(condition, bool):
            return then() if condition else otherwise()
        outer = self.guards
        self.guards = self._with(outer, *conditions)
        first = then()
        self.guards = self._with(outer, self._not(condition))
        second = otherwise()
        self.guards = outer
        return self._select(condition, first, second)

    def as_index(self, value: Value, low: int, high: int, inside: bool = False) -> Affine:
        node: Any = value
        if node.op == "const":
            return Affine.of(max(low, min(int(node.data), high - 1)))
        affine = _affine_of(node)
        if affine is not None and affine.low >= low and affine.high < high:
            return affine
        if high - low == 1:
            return Affine.of(low)
        least, most = _limits(node.dtype)
        if node.dtype.bits < 8:
            node = self.convert(node, dtypes.s8 if node.dtype.is_signed else dtypes.u8)
        if low > least and not inside:
            node = self.max(node, min(low, most))
        if high - 1 < most and not inside:
            node = self.min(node, max(high - 1, least))
        if max(low, least) > high - 1 or low > most:  # all values of the type lie on one side
            return Affine.of(high - 1 if max(low, least) > high - 1 else low)
        node = self.convert(node, dtypes.s32 if low >= -(2**31) and high <= 2**31 else dtypes.s64)
        return Affine.of(self._runtime_int(node, low, high - 1))

    def quotient(self, affine: Affine, divisor: int) -> Affine:
        for key, c in affine.terms:
            if isinstance(key, Axis) and c > 0 and divisor % c == 0:
                factor = divisor // c
                if 1 < factor < key.extent and key.extent % factor == 0:
                    raise Split(key, factor)
        offset = -(affine.low // divisor) if affine.low < 0 else 0
        number: Any = self.number(affine + offset * divisor)
        node: Any = self.div(number, divisor)
        return self._runtime_int(node, affine.low // divisor + offset, affine.high // divisor + offset) - Affine.of(
            offset
        )

    def _runtime_int(self, node: Node, low: int, high: int) -> Affine:
        key = (node, low, high)
        found = self._runtime.get(key)
        if found is None:
            found = self._runtime[key] = RuntimeInt(node, low, high)
        return Affine.of(found)

    # -- guards

    def _all(self, conditions: Sequence[Condition]) -> Any:
        """Their conjunction: a node, or what is known."""
        total: Any = True
        for condition in conditions:
            if isinstance(condition, bool):
                if not condition:
                    return False
                continue
            total = condition if total is True else self.expressions.node("and", dtypes.pred, (total, condition))  # type: ignore[arg-type]
        return total

    def _not(self, condition: Any) -> Node:
        if condition.op == "not":
            return condition.args[0]
        return self.expressions.node("not", dtypes.pred, (condition,))

    def _with(self, guards: tuple[Node, ...], *more: Any) -> tuple[Node, ...]:
        return guards + tuple(m for m in more if m not in guards)


class CalledFunction:
    """A called computation of scalars, by the forms of its ops."""

    def __init__(self, build: Build, computation: Computation) -> None:
        self.build = build
        self.computation = computation

    def __call__(self, *arguments: Any) -> Any:
        values: dict[Instruction, Any] = {}
        for instruction in self.computation.post_order():
            values[instruction] = self._value(instruction, arguments, values)
        return values[self.computation.root]

    def results(self, *arguments: Any) -> tuple[Any, ...]:
        """The results as a tuple, also where there is one."""
        value: Any = self(*arguments)
        return tuple(value) if is_sequence(value) else (value,)

    def _value(self, instruction: Instruction, arguments: Sequence[Any], values: dict[Instruction, Any]) -> Any:
        op: Any = instruction.op
        operands = [values[o] for o in instruction.operands]
        if op.opcode == "parameter":
            return arguments[op.number]
        if op.opcode == "tuple":
            return tuple(operands)
        if op.opcode == "get-tuple-element":
            return operands[0][op.index]
        if op.opcode in ("call", "fusion"):
            return CalledFunction(self.build, instruction.called[0])(*operands)
        if op.form not in ("map", "index") or not instruction.shape.is_scalar:
            raise UnsupportedError(f"{instruction.name}: {op.opcode} in a computation of scalars")
        self.build.check_exact(instruction)
        called = {role: CalledFunction(self.build, c) for role, c in instruction.called_by_role()}
        readers = [Known(o, i.shape) for o, i in zip(operands, instruction.operands, strict=True)]
        return op.element(self.build, (), *readers, **called)


@dataclass(frozen=True)
class Turned:
    """A combiner that takes the element first, then the accumulator."""

    combiner: CalledFunction

    def results(self, accumulator: Any, element: Any) -> tuple[Any, ...]:
        return self.combiner.results(element, accumulator)


def too_often(evaluations: int, elements: int, cost: int) -> bool:
    """More work than writing a leaf and reading it again."""
    return (evaluations - elements) * cost > 8 * elements + 20000


_COSTLY_INVARIANT = 8
_MANY_STEPS = 8
"""From here on a value that is the same in all steps of a loop is stored before it."""

_APPROXIMATED = frozenset(["exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "atan2", "erf", "pow", "cbrt"])
"""Primitives that the reference and machine code compute by different polynomials."""

_COMPARED = {
    "lt": (-(2**62), 0),
    "le": (-(2**62), 1),
    "gt": (1, 2**62),
    "ge": (0, 2**62),
    "eq": (0, 1),
}
"""Of the difference: where the comparison holds."""


_TESTS: dict[str, Callable[[int, int], int]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": min,
    "or": max,
}
"""Of constants that are whole numbers or truth values."""


def _is_integer_of_bytes(dtype: DType) -> bool:
    return dtype.is_integral and dtype.bits >= 8 and dtype is not dtypes.pred


def _is_whole(dtype: DType) -> bool:
    return dtype.is_integral or dtype is dtypes.pred


def _affine_of(node: Node) -> Affine | None:
    if node.op == "number":
        return node.data
    return Affine.of(int(node.data)) if node.op == "const" and node.dtype.is_integral else None


def _limits(dtype: DType) -> tuple[int, int]:
    bits = dtype.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def _fits(affine: Affine, dtype: DType) -> bool:
    least, most = _limits(dtype)
    return dtype.bits >= 8 and least <= affine.low and affine.high <= most


def _components(value: Any, dtype: DType) -> tuple[Any, Any]:
    whole: Any = np.asarray(value).astype(dtype.numpy)[()]
    return whole.real, whole.imag


def parts_of(values: Sequence[Any]) -> tuple[Node, ...]:
    """Complex values as their components, in line."""
    return tuple(p for v in values for p in ((v.real, v.imag) if isinstance(v, Pair) else (v,)))
