"""Program: a computation as steps on buffers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush

from hlokit.cpu.kernels.routine import KERNELS
from hlokit.cpu.loops.build import MAX_DEPTH
from hlokit.cpu.loops.expr import Buffer, reachable
from hlokit.cpu.loops.nest import Store
from hlokit.cpu.loops.order import STREAM_BYTES, arrange
from hlokit.cpu.lower.drafts import Draft
from hlokit.cpu.lower.grouping import Grouping
from hlokit.cpu.lower.leaf import Leaf, array_leaves
from hlokit.cpu.lower.retries import NoElementLoop
from hlokit.cpu.lower.steps import Block, ConditionalStep, CopyStep, HostStep, KernelStep, RoutineStep, Step, WhileStep
from hlokit.cpu.lower.traits import is_small_update, leaf_count, makes_nothing
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import Conditional, While, is_fixed
from hlokit.ops.custom import CustomCall
from hlokit.ops.slicing import DynamicUpdateSlice
from hlokit.ops.structure import Parameter


class Lowering(Grouping):
    """One computation on its way to steps."""

    def lower(self) -> Block:
        """The steps. A loop that was taken for one over elements and is none is tried as a loop over steps."""
        while True:
            given = dict(self.stored)
            try:
                return self._lowered()
            except NoElementLoop as found:
                self.context.step_loops.add(found.loop)
                self.stored, self._leaves = given, {}
                self._together, self._apart = {}, set()

    def _lowered(self) -> Block:
        root = self.computation.root
        results = [self.leaf(root, k) for k in range(leaf_count(root.shape))]
        live = self._live()
        for instruction in self.order:
            if instruction not in live or isinstance(instruction.op, Parameter):
                continue
            if self._is_fusible(instruction) and instruction.op.form != "scatter" and instruction not in self._hosted:
                continue
            if makes_nothing(instruction):
                continue
            for operand in self._needed_in_memory(instruction):
                self._store(operand, f"{instruction.opcode} {instruction.name} reads it from memory")
            for k in range(leaf_count(instruction.shape)):
                self._store(self.leaf(instruction, k), "other kernels cannot hold it")
        for leaf in results:
            self._store(leaf, "a result")
        self._store_small_updates()
        self._store_deep(live, _DEEP)
        kernels = self._kernels()
        steps = self._steps(kernels, live)
        return Block(self._ordered(steps), tuple(self.stored[leaf] for leaf in results), self)

    def _needed_in_memory(self, instruction: Instruction) -> Iterator[Leaf]:
        if instruction.op.form == "scatter":
            return  # its kernel reads indices and updates by element
        for operand in instruction.operands:
            for k in range(leaf_count(operand.shape)):
                yield self.leaf(operand, k)

    def _store_small_updates(self) -> None:
        """An update of a small part of an array is done in place: its update is stored, and the array that it is of."""
        for instruction in self.order:
            if isinstance(instruction.op, DynamicUpdateSlice) and Leaf(instruction, 0) in self.stored:
                if is_small_update(instruction):
                    self._store(self.leaf(instruction.operands[0]), "it is updated in place")

    # -- steps

    def _steps(self, kernels: Sequence[Draft], live: set[Instruction]) -> list[Step]:
        steps: list[Step] = []
        made: dict[Instruction, Step] = {}
        for kernel in kernels:
            if not kernel.stores:
                continue
            for step in self._kernel_steps(kernel):
                steps.append(step)
                for leaf in kernel.roots:
                    made[leaf.instruction] = step
        for instruction in self.order:
            if instruction not in live or instruction in made or isinstance(instruction.op, Parameter):
                continue
            if makes_nothing(instruction):
                continue
            if self._is_fusible(instruction) and instruction not in self._hosted:
                continue
            steps += self._other_steps(instruction)
        return steps

    def _kernel_steps(self, kernel: Draft) -> list[Step]:
        instructions = tuple(dict.fromkeys(leaf.instruction for leaf in kernel.roots))
        writes = tuple(dict.fromkeys(store.buffer for store in kernel.stores))
        steps: list[Step] = []
        if instructions[0].op.form == "scatter":
            for k, buffer in enumerate(self._scatter_buffers(instructions[0])):
                steps += self._filled(instructions[0], k, buffer, kernel.fills.get(k))
        if kernel.source is not None:
            steps.append(CopyStep(instructions, (kernel.source,), writes, "an array that is updated in place"))
        if not any(b.size for b in writes) or any(axis.extent == 0 for axis in kernel.axes):
            return steps
        loops = arrange(
            kernel.axes,
            kernel.stores,
            vector_bytes=self.context.target.vector_bytes,
            serial=kernel.serial,
            strict=self.context.strict,
            stream_bytes=STREAM_BYTES * (2 if self.is_pass else 1),
        )
        reads = tuple(_buffers_read(kernel.stores))
        if kernel.source is not None or instructions[0].op.form == "scatter":
            reads = tuple(dict.fromkeys((*reads, *writes)))
        roots = tuple((leaf, self.stored.get(leaf, kernel.stores[0].buffer)) for leaf in kernel.roots)
        steps.append(KernelStep(instructions, reads, writes, loops, kernel.source, roots))
        return steps

    def _filled(self, user: Instruction, number: int, buffer: Buffer, fill: Draft | None) -> list[Step]:
        """Steps that put a leaf's elements into a buffer which is then changed."""
        source = self.stored.get(self.leaf(user.operands[number]))
        if source is not None or fill is None:
            assert source is not None
            return [CopyStep((user,), (source,), (buffer,), "an array that is scattered into")]
        return self._kernel_steps(fill)

    def _other_steps(self, instruction: Instruction) -> list[Step]:
        op = instruction.op
        reads = [self.stored[leaf] for o in instruction.operands for leaf in self._array_leaves(o)]
        writes = [self.stored[leaf] for leaf in self._array_leaves(instruction) if leaf.instruction is instruction]
        if isinstance(op, While) and not is_fixed(*instruction.called):
            return self._while(instruction, reads, writes)
        if isinstance(op, Conditional):
            return self._conditional(instruction, reads, writes)
        if op.form in ("kernel", "contraction") and instruction not in self._hosted:
            is_kernel = op.form == "kernel"
            routine = op.kernel([o.shape for o in instruction.operands]).routine if is_kernel else op.opcode
            if routine in KERNELS:
                functions = dict(instruction.called_by_role())
                return [RoutineStep((instruction,), tuple(reads), tuple(writes), routine, functions)]
        if isinstance(op, CustomCall) and instruction not in self._hosted:
            routine = f"custom-call:{op.custom_call_target}"
            if routine in KERNELS:
                return [RoutineStep((instruction,), tuple(reads), tuple(writes), routine, {})]
        reason = self._hosted.get(instruction, f"{op.opcode} is evaluated by the reference")
        if isinstance(op, While):
            reason = "its condition never changes: the reference says so where it is true"
        self.context.reasons.add(instruction.name, "not compiled", reason)
        return [HostStep((instruction,), tuple(reads), tuple(writes), reason)]

    def _while(self, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
        by_role = dict(instruction.called_by_role())
        name = instruction.name
        shapes = array_leaves(instruction.shape)
        body_lowering = Lowering(by_role["body"], [writes], self.context, is_pass=True)
        body = body_lowering.lower()
        condition = Lowering(by_role["condition"], [writes], self.context).lower()
        carries: list[tuple[Buffer, Buffer]] = []
        taken, own = set[Buffer](), set(writes)
        for k, (current, result) in enumerate(zip(writes, body.results, strict=True)):
            if result is current:
                continue
            if result in self.context.fresh and result not in taken and result not in own:
                taken.add(result)
                carries.append((current, result))
                continue
            spare = self.context.buffer(f"{name}.next{k}", shapes[k])
            body.steps.append(
                CopyStep((instruction,), (result,), (spare,), "a value that the next pass takes as it is")
            )
            carries.append((current, spare))
        copies: list[Step] = [
            CopyStep((instruction,), (initial,), (current,), "where a loop starts")
            for initial, current in zip(reads, writes, strict=True)
        ]
        inner = _touched(body.steps) | _touched(condition.steps)
        outside = tuple(b for b in inner if b not in own)
        step = WhileStep(
            (instruction,),
            tuple(dict.fromkeys([*writes, *outside])),
            tuple(writes),
            condition,
            condition.results[0],
            body,
            tuple(carries),
        )
        return [*copies, step]

    def _conditional(self, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
        selector, *operands = instruction.operands
        branches: list[Block] = []
        ((_, computations),) = instruction.called_by_role()
        for operand, computation in zip(operands, computations, strict=True):
            arguments = [self.stored[leaf] for leaf in self._array_leaves(operand)]
            block = Lowering(computation, [arguments], self.context).lower()
            for result, write in zip(block.results, writes, strict=True):
                block.steps.append(CopyStep((instruction,), (result,), (write,), "the result of a branch"))
            branches.append(block)
        outside: dict[Buffer, None] = {}
        for block in branches:
            outside |= dict.fromkeys(b for b in _touched(block.steps) if b not in writes)
        return [
            ConditionalStep(
                (instruction,), tuple(dict.fromkeys([*reads, *outside])), tuple(writes), selector, tuple(branches)
            )
        ]

    # -- order

    def _ordered(self, steps: list[Step]) -> list[Step]:
        """The steps so that each comes after what makes its operands, else in the instructions' order."""
        makers: dict[Buffer, list[int]] = {}
        for k, step in enumerate(steps):
            for buffer in step.writes:
                makers.setdefault(buffer, []).append(k)
        missing = [0] * len(steps)
        followers: list[list[int]] = [[] for _ in steps]

        def after(before: int, then: int) -> None:
            followers[before].append(then)
            missing[then] += 1

        effects: int | None = None
        for k, step in enumerate(steps):
            for buffer in step.reads:
                for maker in makers.get(buffer, ()):
                    if maker != k and not (buffer in step.writes and maker > k):
                        after(maker, k)
            for buffer in step.writes:
                for maker in makers[buffer]:
                    if maker < k and buffer not in step.reads:
                        after(maker, k)
            if any(self.context.has_effect(i) for i in step.instructions):
                if effects is not None:
                    after(effects, k)
                effects = k
        doing: dict[Instruction, list[int]] = {}
        for k, step in enumerate(steps):
            for instruction in step.instructions:
                doing.setdefault(instruction, []).append(k)
        for k, step in enumerate(steps):
            for instruction in step.instructions:
                for before in instruction.control_predecessors:
                    for j in doing.get(before, ()):
                        if j != k:
                            after(j, k)
        ready = [(self._when(steps[k]), k) for k in range(len(steps)) if not missing[k]]
        heapify(ready)
        order: list[Step] = []
        while ready:
            _, k = heappop(ready)
            order.append(steps[k])
            for then in followers[k]:
                missing[then] -= 1
                if not missing[then]:
                    heappush(ready, (self._when(steps[then]), then))
        if len(order) != len(steps):
            raise AssertionError(f"{self.computation.name}: steps need each other")
        return order

    def _when(self, step: Step) -> int:
        return max((self.position.get(i, 0) for i in step.instructions), default=0)


_DEEP = 3 * MAX_DEPTH
"""Instructions in a row: where values are used again, building meets its limit later."""


def _buffers_read(stores: Sequence[Store]) -> Iterator[Buffer]:
    roots = [r for s in stores for r in (s.node, *s.guards)]
    for store in stores:
        roots += [key.node for key, _ in store.place.terms if hasattr(key, "node")]  # type: ignore[attr-defined]
    found: dict[Buffer, None] = {}
    for node in reachable(roots):
        if node.op in ("load", "current"):
            found[node.data[0]] = None
    return iter(found)


def _touched(steps: Sequence[Step]) -> dict[Buffer, None]:
    """Every buffer that the steps, and the steps in them, read or write."""
    found: dict[Buffer, None] = {}
    for step in steps:
        found |= dict.fromkeys((*step.reads, *step.writes))
    return found
