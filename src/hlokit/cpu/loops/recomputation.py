"""Recomputation: how often a kernel computes each inlined leaf, and when this costs more than memory accesses."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.loops.arithmetic import NodeEmitter, parts_of
from hlokit.cpu.loops.expr import LoopAxis, Node, index_deps, reachable, runtime_nodes
from hlokit.cpu.loops.folding import FoldBuilder
from hlokit.cpu.loops.space import IterationSpace
from hlokit.cpu.loops.unrolled import WRITTEN_OUT
from hlokit.cpu.lower.leaf import Leaf, Source
from hlokit.cpu.lower.retries import Materialise, too_often
from hlokit.forms.affine import Index
from hlokit.ops.movement import Broadcast

_STAGE = 1 << 15
"""Elements from which on a fold of a fold's results is worth two kernels."""

_GATHER = 16
"""Nodes that take as long as the gather of an element: a lane of a vector of them takes a cycle."""
_COSTLY_INVARIANT = 8
_MANY_ELEMENTS = 4096
"""Elements of a broadcast from which on a kernel for the one value that it spreads costs little."""
_MANY_ROWS = 256
"""Rows from which on vectors down them are worth a kernel."""
_SHORT_ROWS = 4
"""Vectors of a row up to which a part of it that is less than one vector matters."""
_MANY_GUARDS, _MANY_PLACES, _MANY_NODES = 16, 64, 200
"""From here on what a kernel computes at one place under so many guards, or at so many places, is stored if this takes
so many nodes in all."""
_MASKED = 1.5
"""The most evaluations of a fold for each of its elements that is needed."""
_MANY_STEPS = 8
"""From here on a value that is the same in all steps of a loop is stored before it."""


@dataclass(eq=False)
class Recomputation:
    """The counts of one kernel. Its checks raise Materialise for a leaf that should be stored.

    reads    the indices at which each leaf is computed here
    weights  nodes that an element of each leaf takes
    spent    how many elements of each leaf are computed
    """

    arithmetic: NodeEmitter
    space: IterationSpace
    source: Source
    folds: FoldBuilder
    reads: dict[Leaf, set[Index]] = field(default_factory=dict[Leaf, set[Index]], init=False)
    weights: dict[Leaf, int] = field(default_factory=dict[Leaf, int], init=False)
    spent: dict[Leaf, int] = field(default_factory=dict[Leaf, int], init=False)
    _written: dict[Leaf, int] = field(default_factory=dict[Leaf, int], init=False)
    _places: dict[tuple[int, tuple[Node, ...]], int] = field(
        default_factory=dict[tuple[int, tuple[Node, ...]], int], init=False
    )

    def count(self, leaf: Leaf, index: Index) -> None:
        """Counts the elements at one more index, as soon as it is asked for."""
        indices = self.reads.setdefault(leaf, set())
        if index in indices:
            return
        indices.add(index)
        spent = self.spent[leaf] = self.spent.get(leaf, 0) + self._let_through(index_deps(index))
        if len(indices) > 1 and too_often(spent, leaf.shape.size, self.weights.get(leaf, 1)):
            raise Materialise(leaf, f"computed {spent} times for {leaf.shape.size} elements")

    def weigh(self, leaf: Leaf, nodes: int) -> None:
        """Notes how many nodes an element has taken, under guards of its own. Cuts what is written under many, or at
        many places: a chain of concatenations of halves has twice as many with each."""
        if nodes > self.weights.get(leaf, -1):
            self.weights[leaf] = nodes
        written = self._written[leaf] = self._written.get(leaf, 0) + 1
        places = len(self.reads.get(leaf, ()))
        if not places or not leaf.shape.rank:
            return
        again = written - places
        if again >= _MANY_GUARDS and again * nodes > _MANY_NODES:
            raise Materialise(leaf, f"the kernel would compute it under {written} guards")
        if places >= _MANY_PLACES and places * nodes > _MANY_NODES:
            raise Materialise(leaf, f"the kernel would have code for {places} of its elements")

    def most_read(self) -> Leaf:
        """The leaf that is computed at the most indices."""
        return max(self.reads, key=lambda leaf: len(self.reads[leaf]))

    def check_stage(self, leaf: Leaf, index: Index) -> None:
        """A long fold whose results are folded again is a stage of its own: it has more places to share out."""
        if not self.folds.bound:
            return
        bound = self.folds.bound[-1]
        read = self.reads.get(leaf, ())
        again = index_deps(index) & bound if bound is not None else read and index not in read
        operand = self.source.leaf(leaf.instruction.operands[0]).shape
        if again and operand.size >= _STAGE and operand.size >= 64 * leaf.shape.size:
            raise Materialise(leaf, "the first stage of a fold in two")

    def check_gathered(self, leaf: Leaf, index: Index, gathers: int) -> None:
        """Cuts what is picked anywhere and takes several gathers for each element, as a concatenation's parts do."""
        if gathers < 2 or not any(node.deps for affine in index for node in runtime_nodes(affine)):
            return
        elements = self._let_through(index_deps(index))
        if elements * (gathers - 1) * _GATHER > 8 * leaf.shape.size + 20000:
            raise Materialise(leaf, f"{gathers} gathers would make each of {elements} elements")

    def check_invariant(self, leaf: Leaf, index: Index, cost: int, value: Any) -> None:
        """Cuts values that do not depend on an outer loop, yet on one in it: each of its steps computes them again."""
        around = self.space.around
        if not around or not leaf.shape.rank:
            return
        if _is_apart(value, around[-1]):
            cost += _GATHER
        if cost < _COSTLY_INVARIANT:
            return
        deps = index_deps(index)
        last = max((k for k, axis in enumerate(around) if axis.bit & (deps | self.folds.inside)), default=-1)
        steps = self._let_through(sum(axis.bit for axis in around[: last + 1] if not axis.bit & deps))
        elements = self._let_through(deps)
        if steps < _MANY_STEPS or not too_often(elements * steps, elements, cost):
            return
        if not deps & self.folds.looped_over and any(node.op == "fold" for node in reachable(parts_of([value]))):
            return  # loops are ordered by what folds depend on, but for those in another fold
        raise Materialise(leaf, f"it is the same in {steps} steps of a loop around it")

    def check_thin(self, leaf: Leaf, index: Index, cost: int, value: Any) -> None:
        """Cuts what the guards let through for a few places of short rows alone, as a concatenation's operand of one
        column: vectors along the rows would compute it for all their lanes, or scalars one row at a time."""
        if not self.space.around:
            return
        axis = self.space.around[-1]
        elements = self._let_through(index_deps(index))
        is_scalar = not any(part.deps & axis.bit for part in parts_of([value]))
        if is_scalar and (cost <= _GATHER or elements < _MANY_ROWS):
            return
        places = self._let_through(axis.bit)
        lanes = LINE_BYTES // leaf.shape.dtype.numpy.itemsize
        if places >= lanes or not WRITTEN_OUT < axis.extent <= _SHORT_ROWS * lanes:
            return
        if places and too_often(elements * lanes // places, elements, cost):
            way = f"scalars would compute it for each of {elements} rows"
            raise Materialise(leaf, way if is_scalar else f"vectors would compute it for {lanes} places, not {places}")

    def check_masked_fold(self, leaf: Leaf, index: Index, value: Any) -> None:
        """Cuts a fold that the guards let through at only some places, as a concatenation's operand: the select comes
        after the fold, which would be computed at all places. Short axes do not count: they are written out."""
        folded = 0
        for result in parts_of([value]):
            node = result.args[0] if result.op == "convert" else result  # maxima of narrow floats are made in f32
            if node.op != "part" or node.args[0].data.scan is not None:
                return
            folded |= node.deps
        long = sum(axis.bit for axis in self.space.axes if axis.extent > WRITTEN_OUT)
        computed = prod(axis.extent for axis in self.space.axes if axis.bit & folded & long)
        places = self._let_through(index_deps(index) & long)
        if computed >= _MASKED * places:
            raise Materialise(leaf, f"a fold for {computed} places where it is at {places}")

    def check_spread(self, leaf: Leaf, value: Any) -> None:
        """Cuts a single costly value that is broadcast to many elements.

        All kernels that read it would compute it, and routines' epilogues for each vector.
        """
        if not isinstance(leaf.instruction.op, Broadcast) or leaf.shape.size < _MANY_ELEMENTS:
            return
        operand = self.source.leaf(leaf.instruction.operands[0])
        if operand.shape.size == 1 and not any(node.op == "fold" for node in reachable(parts_of([value]))):
            raise Materialise(operand, f"one costly value for {leaf.shape.size} elements")

    def _let_through(self, deps: int) -> int:
        """The number of places of a set of axes where the guards hold, as far as each of them asks for one axis."""
        key = (deps, self.arithmetic.guards)
        found = self._places.get(key)
        if found is None:
            found = self._places[key] = self._counted(deps)
        return found

    def _counted(self, deps: int) -> int:
        steps = {axis: axis.extent for axis in self.space.axes if axis.bit & deps}
        for guard in self.arithmetic.guards:
            test = guard.args[0] if guard.op == "not" else guard
            if test.op != "range" or len(test.data[0].terms) != 1:
                continue
            (axis, c), low, high = test.data[0].terms[0], *test.data[1:]
            if axis in steps:
                inside = min(axis.extent, -(-(high - low) // abs(c)))
                steps[axis] = min(steps[axis], axis.extent - inside if guard.op == "not" else inside)
        return prod(steps.values())


def _is_apart(value: Any, axis: LoopAxis) -> bool:
    """Whether it is an element in memory, at each step of the axis in another line."""
    first = parts_of([value])[0]
    return first.op == "load" and abs(first.data[1].coefficient(axis)) * first.dtype.numpy.itemsize >= LINE_BYTES
