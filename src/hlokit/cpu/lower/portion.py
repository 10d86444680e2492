"""Portion: the computation of one step as a separate module, whose parameters are the arrays that the step reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.leaf import Leaf, array_leaves
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.steps import ConditionalStep, KernelStep, RoutineStep, Step, StepBlock, WhileStep
from hlokit.cpu.lower.traits import leaf_count
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.control_flow import While
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Portion:
    """The instructions of a step.

    operands   for each parameter of `module` the buffer that it is read from; None: its value does not matter
    results    for each leaf of the result the buffer that it is written to
    """

    module: HloModule
    operands: tuple[Buffer | None, ...]
    results: tuple[Buffer, ...]

    @property
    def fused(self) -> list[str]:
        """The names of its instructions, in order."""
        plain = (Parameter, Tuple, GetTupleElement, Constant)
        return [i.name for i in self.module.entry.post_order() if not isinstance(i.op, plain)]


def portions(block: StepBlock) -> Iterator[tuple[KernelStep | RoutineStep, Portion]]:
    """Those of all kernels and routines of a block and of what is inside it, one by one."""
    leaves = block.leaves
    assert leaves is not None
    owners = owners_of(leaves)
    for step in block.steps:
        if isinstance(step, RoutineStep):
            for leaf, buffer in _roots(step):
                if leaf not in owners.setdefault(buffer, []):
                    owners[buffer].append(leaf)
    for step in block.steps:
        if isinstance(step, (KernelStep, RoutineStep)):
            yield step, portion(step, leaves, owners)
        for inner in inner_blocks(step):
            yield from portions(inner)


def inner_blocks(step: Step) -> Sequence[StepBlock]:
    """The blocks of a loop or a conditional."""
    if isinstance(step, WhileStep):
        return step.condition, step.body
    return step.branches if isinstance(step, ConditionalStep) else ()


def owners_of(leaves: Leaves) -> dict[Buffer, list[Leaf]]:
    """The leaves that lie in each buffer."""
    found: dict[Buffer, list[Leaf]] = {}
    for leaf, buffer in leaves.stored.items():
        found.setdefault(buffer, []).append(leaf)
    return found


def portion(step: KernelStep | RoutineStep, leaves: Leaves, owners: dict[Buffer, list[Leaf]]) -> Portion:
    """The portion of one step of a computation with these leaves."""
    roots = _roots(step)
    computed = {leaf for leaf, _ in roots}
    known = {leaf: b for b in step.reads for leaf in owners.get(b, ()) if leaf not in computed}
    if isinstance(step, KernelStep):
        known |= _changed(step, leaves)
    return _Extraction(leaves, known, {leaf.instruction for leaf in computed}).portion(roots)


def _roots(step: KernelStep | RoutineStep) -> list[tuple[Leaf, Buffer]]:
    """The leaves that the step stores, and where."""
    if isinstance(step, KernelStep):
        return list(step.roots)
    if step.epilogue is not None:
        kept = _roots(step.epilogue.routine) if step.epilogue.is_kept else []
        return [*step.epilogue.kernel.roots, *kept]
    (instruction,) = step.instructions
    leaves = [Leaf(instruction, k) for k in range(leaf_count(instruction.shape))]
    return list(zip(leaves, step.writes, strict=True))


def _changed(step: KernelStep, leaves: Leaves) -> dict[Leaf, Buffer]:
    """Operands of a kernel that changes an array: before it they lie where the results will."""
    instruction = step.instructions[0]
    if step.source is None and instruction.op.form != "scatter":
        return {}
    pairs = [(leaves.leaf(instruction.operands[leaf.number]), buffer) for leaf, buffer in step.roots]
    return {leaf: buffer for leaf, buffer in pairs if leaf.instruction is not instruction}


@dataclass
class _Extraction:
    leaves: Leaves
    known: dict[Leaf, Buffer]
    own: set[Instruction]
    module: HloModule = field(default_factory=lambda: HloModule("portion"))
    operands: list[Buffer | None] = field(default_factory=list["Buffer | None"])

    def __post_init__(self) -> None:
        self.computation = Computation("main", self.module)
        self._arrays: dict[Leaf, Instruction] = {}
        self._wholes: dict[Instruction, Instruction] = {}
        self._called: dict[Computation, Computation] = {}

    def portion(self, roots: Sequence[tuple[Leaf, Buffer]]) -> Portion:
        values = [self.leaf(leaf) for leaf, _ in roots]
        root = values[0] if len(values) == 1 else self.computation.add(Tuple(), values)
        self.computation.set_root(root)
        for called in self._called.values():
            self.module.add_computation(called)
        self.module.add_computation(self.computation, entry=True)
        self.module.name = roots[0][0].instruction.name
        self.module.settle()
        return Portion(self.module, tuple(self.operands), tuple(buffer for _, buffer in roots))

    def leaf(self, leaf: Leaf) -> Instruction:
        """An array, computed here or read."""
        found = self._arrays.get(leaf)
        if found is None:
            found = self._arrays[leaf] = self._leaf(leaf)
        return found

    def _leaf(self, leaf: Leaf) -> Instruction:
        instruction = leaf.instruction
        if leaf in self.known:
            return self._parameter(leaf, self.known[leaf])
        if isinstance(instruction.op, Constant):
            return self.computation.add(Constant(_arrays(instruction.op.literal)[leaf.number]), name=instruction.name)
        if self._is_elsewhere(leaf):
            return self._parameter(leaf, None)
        whole = self._whole(instruction)
        for index in _path(instruction.shape, leaf.number):
            whole = self.computation.add(GetTupleElement(index), [whole])
        return whole

    def _is_elsewhere(self, leaf: Leaf) -> bool:
        """Made by another step and not read by this one: no result depends on it."""
        op = leaf.instruction.op
        if isinstance(op, Parameter):
            return True
        is_loop = isinstance(op, While) and leaf.instruction in self.leaves.context.step_loops
        is_plain = op.form in ("map", "index", "fold", "scatter") or isinstance(op, While)
        return leaf in self.leaves.stored and (is_loop or not is_plain) and leaf.instruction not in self.own

    def _parameter(self, leaf: Leaf, buffer: Buffer | None) -> Instruction:
        self.operands.append(buffer)
        name = leaf.instruction.name + (f".{leaf.number}" if leaf.instruction.shape.is_tuple else "")
        return self.computation.add(Parameter(len(self.operands) - 1, leaf.shape), name=name)

    def _whole(self, instruction: Instruction) -> Instruction:
        found = self._wholes.get(instruction)
        if found is None:
            self._wholes[instruction] = instruction  # its operands are inner ones
            operands = [self._operand(o) for o in instruction.operands]
            called = [self._callee(c) for c in instruction.called]
            found = self.computation.add_unchecked(
                instruction.op, operands, called, instruction.shape, instruction.name
            )
            if instruction.extra is not None and instruction.extra.backend_config:
                found.ensure_extra().backend_config = instruction.extra.backend_config
            self._wholes[instruction] = found
        return found

    def _operand(self, instruction: Instruction) -> Instruction:
        arrays = [self.leaf(self.leaves.leaf(instruction, k)) for k in range(leaf_count(instruction.shape))]
        return self._packed(instruction.shape, iter(arrays))

    def _packed(self, shape: Shape, arrays: Iterator[Instruction]) -> Instruction:
        if shape.is_tuple:
            return self.computation.add(Tuple(), [self._packed(part, arrays) for part in shape.elements])
        return next(arrays)

    def _callee(self, computation: Computation) -> Computation:
        found = self._called.get(computation)
        if found is None:
            found = computation.clone(computation.name, self.module)
            for instruction in found.instructions:
                instruction.called = tuple(self._callee(c) for c in instruction.called)
            self._called[computation] = found
        return found


def _path(shape: Shape, number: int) -> list[int]:
    """The tuple indices that lead to an array leaf."""
    path: list[int] = []
    while shape.is_tuple:
        for k, part in enumerate(shape.elements):
            count = len(array_leaves(part))
            if number < count:
                path.append(k)
                shape = part
                break
            number -= count
    return path


def _arrays(literal: Literal) -> list[Literal]:
    if isinstance(literal.value, tuple):
        return [leaf for part in literal.value for leaf in _arrays(part)]
    return [literal]
