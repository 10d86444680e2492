"""Build: asks forms for elements at affine indices; the result is one expression DAG per kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from hlokit.cpu.loops.arithmetic import parts_of
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.loops.element_loops import ElementLoops
from hlokit.cpu.loops.expr import index_deps, reachable
from hlokit.cpu.lower.leaf import Leaf
from hlokit.cpu.lower.retries import Materialise, too_often
from hlokit.forms.affine import Index
from hlokit.ops.control_flow import While
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant

MAX_DEPTH = 40
"""Instructions inlined into each other: forms call each other through readers, a few Python frames each."""

_MAX_NODES = 6000

_STAGE = 1 << 15
"""Elements from which on a fold of a fold's results is worth two kernels."""

_COSTLY_INVARIANT = 8
_MANY_STEPS = 8
"""From here on a value that is the same in all steps of a loop is stored before it."""


@dataclass(eq=False)
class Build(ElementLoops):
    """The expressions of one kernel, by what earlier tries found (`splits`, `turned`).

    reads    the indices at which each leaf is computed here
    weights  nodes that an element of each leaf takes
    spent    how many elements of each leaf are computed
    """

    reads: dict[Leaf, set[Index]] = field(default_factory=dict[Leaf, set[Index]], init=False)
    weights: dict[Leaf, int] = field(default_factory=dict[Leaf, int], init=False)
    spent: dict[Leaf, int] = field(default_factory=dict[Leaf, int], init=False)

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
                raise Materialise(leaf, "the chain of instructions is too long for one kernel", is_size=True)
            before, costly = self.expressions.work, self.expressions.costly
            self._open.append(leaf)
            found = self.memo[key] = self._computed(leaf, index)
            self._open.pop()
            weight = max(0, self.expressions.work - before - 1) * self._repeats(leaf)  # one load there is anyway
            self.weights[leaf] = max(self.weights.get(leaf, 0), weight)
            self._check_invariant(leaf, index, weight + 10 * (self.expressions.costly - costly), found)
            if len(self.expressions.nodes) > _MAX_NODES:
                raise Materialise(
                    max(self.reads, key=lambda leaf: len(self.reads[leaf])), "the kernel is too large", is_size=True
                )
        return found

    def _check_stage(self, leaf: Leaf, index: Index) -> None:
        """A long fold whose results are folded again is a stage of its own: it has more places to share out."""
        bound = self._folding[-1]
        read = self.reads.get(leaf, ())
        again = index_deps(index) & bound if bound is not None else read and index not in read
        operand = self.source.leaf(leaf.instruction.operands[0]).shape
        if again and operand.size >= _STAGE and operand.size >= 64 * leaf.shape.size:
            raise Materialise(leaf, "the first stage of a fold in two")

    def _check_invariant(self, leaf: Leaf, index: Index, cost: int, value: Any) -> None:
        """Cuts values that do not depend on an outer loop, yet on one in it: each of its steps computes them again."""
        if cost < _COSTLY_INVARIANT or not self.around or self._passes or not leaf.shape.rank:
            return
        deps = index_deps(index)
        last = max((k for k, axis in enumerate(self.around) if axis.bit & (deps | self._inside)), default=-1)
        steps = prod(axis.extent for axis in self.around[: last + 1] if not axis.bit & deps)
        elements = self._let_through(deps)
        if steps < _MANY_STEPS or not too_often(elements * steps, elements, cost):
            return
        if any(node.op == "fold" for node in reachable(parts_of([value]))):
            return  # loops are ordered by what folds depend on
        raise Materialise(leaf, f"it is the same in {steps} steps of a loop around it")

    def _count(self, leaf: Leaf, index: Index) -> None:
        """Cuts while building: as soon as it is clear that a leaf is computed too often."""
        indices = self.reads.setdefault(leaf, set())
        if index in indices:
            return
        indices.add(index)
        spent = self.spent[leaf] = self.spent.get(leaf, 0) + self._let_through(index_deps(index))
        if len(indices) > 1 and too_often(spent, leaf.shape.size, self.weights.get(leaf, 1)):
            raise Materialise(leaf, f"computed {spent} times for {leaf.shape.size} elements")

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
