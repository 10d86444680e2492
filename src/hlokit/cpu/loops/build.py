"""Build: asks forms for elements at affine indices; the result is one expression DAG per kernel."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from hlokit.analysis.loops import counter
from hlokit.cpu.loops.arithmetic import NodeEmitter
from hlokit.cpu.loops.called import CalledFunction
from hlokit.cpu.loops.element_loops import ElementLoops
from hlokit.cpu.loops.expr import Node
from hlokit.cpu.loops.folding import ElementReader, FoldBuilder
from hlokit.cpu.loops.recomputation import Recomputation
from hlokit.cpu.loops.space import IterationSpace
from hlokit.cpu.lower.leaf import Leaf, Source
from hlokit.cpu.lower.retries import Inexact, Materialise, Reference
from hlokit.forms.affine import Affine, Index
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import While
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant

_ZERO = Affine.of(0)
MAX_DEPTH = 40
"""Instructions inlined into each other: forms call each other through readers, a few Python frames each."""

_MAX_NODES = 6000


class Build:
    """The elements of leaves as expressions of one kernel.

    source         where leaves come from, and which of them lie in memory
    roots          leaves that the kernel itself makes: these it does not load
    arithmetic     makes the nodes
    space          the kernel's dimensions
    recomputation  how often each leaf is computed
    """

    def __init__(self, source: Source, arithmetic: NodeEmitter, space: IterationSpace, roots: Collection[Leaf]) -> None:
        self.source = source
        self.arithmetic = arithmetic
        self.expressions = arithmetic.expressions
        self.space = space
        self.roots = roots
        self._folds = FoldBuilder(arithmetic, space, source)
        self._loops = ElementLoops(arithmetic, space, source, self.element)
        self.recomputation = Recomputation(arithmetic, space, source, self._folds)
        self._memo: dict[tuple[Leaf, Index, tuple[int, ...]], list[tuple[tuple[Node, ...], Any]]] = {}
        self._readers: dict[Instruction, list[ElementReader]] = {}
        self._depth = 0
        self._guards: tuple[Node, ...] = ()

    def readers(self, instruction: Instruction) -> list[ElementReader]:
        """Readers of an instruction's operands."""
        found = self._readers.get(instruction)
        if found is None:
            found = [ElementReader(self.element, self.source.leaf(operand)) for operand in instruction.operands]
            self._readers[instruction] = found
        return found

    def element(self, leaf: Leaf, index: Index) -> Any:
        """The element of an array: loaded if it lies in memory, else computed here."""
        if 1 in leaf.shape.dimensions:  # what is read at one place alone does not depend on the axis
            index = tuple(_ZERO if n == 1 else i for i, n in zip(index, leaf.shape.dimensions, strict=True))
        buffer = None if leaf in self.roots else self.source.buffer(leaf)
        if buffer is not None:
            op = leaf.instruction.op
            if isinstance(op, Constant) and leaf.shape == op.literal.shape and not leaf.number:
                if not any(i.terms for i in index):
                    return self.arithmetic.literal(op.literal, index)
            return self.arithmetic.load(buffer, leaf.shape, index)
        bound = self._loops.bindings.get(leaf)
        if bound is not None:
            return bound(index)
        guards, relied = self.arithmetic.guards, self.arithmetic.relied  # a value is reused where its own guards hold
        known = self._memo.setdefault((leaf, index, self._loops.passes), [])
        for needed, value in known:
            if all(guard in guards for guard in needed):
                relied.update(needed)
                return value
        self.arithmetic.relied = here = set[Node]()
        value = self._inlined(leaf, index)
        needed = tuple(guard for guard in guards if guard in here)
        known.append((needed, value))
        relied.update(needed)
        self.arithmetic.relied = relied
        if len(self.expressions.nodes) > _MAX_NODES:
            raise Materialise(self.recomputation.most_read(), "the kernel is too large", is_size=True)
        return value

    def _inlined(self, leaf: Leaf, index: Index) -> Any:
        """The element, computed here and counted; Materialise where the leaf should be stored."""
        instruction, recomputation = leaf.instruction, self.recomputation
        if instruction.op.form == "fold":
            recomputation.check_stage(leaf, index)
        if not isinstance(instruction.op, Broadcast):  # its operand is counted, at fewer places
            recomputation.count(leaf, index)
        if self._depth >= MAX_DEPTH:
            raise Materialise(leaf, "the chain of instructions is too long for one kernel", is_size=True)
        expressions = self.expressions
        before, costly, gathers = expressions.work, expressions.costly, expressions.gathers
        outside, self._guards = self._guards, self.arithmetic.guards
        self._depth += 1
        try:
            value = self._computed(leaf, index)
        except Inexact as found:
            raise Reference(leaf, str(found)) from None
        self._depth -= 1
        is_guarded, self._guards = self._guards != outside, outside
        loop = counter(instruction) if isinstance(instruction.op, While) else None
        weight = max(0, expressions.work - before - 1) * (loop.trips if loop is not None else 1)  # one load is anyway
        recomputation.weigh(leaf, weight)
        if not self._loops.passes:
            recomputation.check_gathered(leaf, index, expressions.gathers - gathers)
            functions = expressions.costly - costly
            recomputation.check_invariant(leaf, index, weight + 10 * functions, value)
            if is_guarded:
                recomputation.check_thin(leaf, index, weight + 10 * functions, value)
            if instruction.op.form == "fold" and self.arithmetic.guards:
                recomputation.check_masked_fold(leaf, index, value)
            if functions:
                recomputation.check_spread(leaf, value)
        return value

    def _computed(self, leaf: Leaf, index: Index) -> Any:
        instruction = leaf.instruction
        op = instruction.op
        self.arithmetic.check_exact(instruction)
        if op.form == "fold":
            return self._folds.value(instruction, self.readers(instruction), index)[leaf.number]
        if isinstance(op, While):
            return self._loops.value(instruction, leaf.number, index)
        called: dict[str, CalledFunction] = {}
        if instruction.called:
            called = {role: CalledFunction(self.arithmetic, c) for role, c in instruction.called_by_role()}
        value = op.element(self.arithmetic, index, *self.readers(instruction), **called)
        if value.dtype is not leaf.shape.dtype:
            raise AssertionError(f"{op.opcode} gave {value.dtype} for {leaf.shape}")
        return value
