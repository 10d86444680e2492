"""Epilogues: loops over a routine's result, which the routine runs on elements as it finishes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

from hlokit.cpu.emit.elements import Elements
from hlokit.cpu.emit.scope import BufferTable, Emission
from hlokit.cpu.llvm import Function, Index, Value
from hlokit.cpu.loops.expr import Buffer, Expressions, LoopAxis, Node, RuntimeInt, affine_of, reachable
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.loops.order import arrange
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.steps import ConditionalStep, Epilogue, KernelStep, RoutineStep, StepBlock, WhileStep
from hlokit.cpu.target import Target
from hlokit.forms.affine import Affine
from hlokit.hlo.instruction import Instruction
from hlokit.types import dtype as dtypes

_MOST_NODES = 200
"""The most nodes of an epilogue, which is written out for each shape of a tile."""

_BESIDE = 2
"""Vectors of a row of a tile."""
_LANES = 64
"""At most, of 8 bits; those of floats are sums in 32 bits or more."""


def fuse(block: StepBlock, context: Context) -> None:
    """Moves kernels of loops into the routines whose result they read, in the block and all blocks in it.

    Strict code stays as it is: a routine may take denormals for zeros.
    """
    if context.strict:
        return
    gone = _Fusing(context).all(block)
    entries = context.reasons.entries
    entries[:] = [e for e in entries if e[0] not in gone or e[1] != "not fused"]


class _Fusing:
    """Goes through the blocks. `gone`: names of what no longer lies in memory."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.gone: set[str] = set()

    def all(self, block: StepBlock) -> set[str]:
        for step in block.steps:
            if isinstance(step, WhileStep):
                self.all(step.condition)
                self.all(step.body)
            elif isinstance(step, ConditionalStep):
                for branch in step.branches:
                    self.all(branch)
        self._block(block)
        return self.gone

    def _block(self, block: StepBlock) -> None:
        made = {s.writes[0]: s for s in block.steps if isinstance(s, RoutineStep) and len(s.writes) == 1}
        readers = Counter(buffer for step in block.steps for buffer in set(step.reads))
        vanished: set[Buffer] = set()
        for kernel in list(block.steps):
            if (
                not isinstance(kernel, KernelStep)
                or made.keys().isdisjoint(kernel.reads)
                or not is_elementwise(kernel)
            ):
                continue
            routines = [made[buffer] for buffer in kernel.reads if buffer in made]
            fused = self._taken(block, kernel, routines, readers)
            if fused is None:
                continue
            epilogue = fused.epilogue
            assert epilogue is not None
            routine = epilogue.routine
            del made[routine.writes[0]]
            readers.subtract([*set(routine.reads), *set(kernel.reads)])
            readers.update(set(fused.reads))
            if not epilogue.is_kept:
                vanished.add(routine.writes[0])
                self.gone |= {i.name for i in routine.instructions}
        if block.leaves is not None and vanished:
            stored = block.leaves.stored
            for leaf in [leaf for leaf, buffer in stored.items() if buffer in vanished]:
                del stored[leaf]

    def _taken(
        self, block: StepBlock, kernel: KernelStep, routines: Sequence[RoutineStep], readers: Mapping[Buffer, int]
    ) -> RoutineStep | None:
        """The kernel in the last of the routines for which that is possible."""
        steps = block.steps
        at = steps.index(kernel)
        for k in sorted((steps.index(routine) for routine in routines), reverse=True):
            routine = steps[k]
            assert isinstance(routine, RoutineStep)
            if k > at or not _has_epilogue(routine, kernel):
                continue
            result = routine.writes[0]
            whole = kernel.loops.whole
            loops = kernel.loops if whole is None else Loops(*whole)
            place = _place(loops, result, 2 if routine.instructions[0].shape.dtype.is_complex else 1)
            if place is None:
                continue
            between = steps[k + 1 : at]
            if not any(result in other.reads or result in other.writes for other in between):
                to = at
            elif not any(buffer in other.writes for other in between for buffer in kernel.reads):
                to = k
            else:
                continue
            if whole is not None:
                kernel.loops = arrange(*whole, vector_bytes=self.context.target.vector_bytes, writes_out=False)
            fused = _fused(routine, kernel, place, is_kept=readers[result] > 1 or result in block.results)
            steps[to] = fused
            del steps[k if to == at else at]
            self.context.reasons.add(kernel.name, "fused", f"the epilogue of {routine.name}")
            return fused
        return None


def _has_epilogue(routine: RoutineStep, kernel: KernelStep) -> bool:
    instruction = routine.instructions[0]
    return (
        _hands_over(instruction)
        and len(routine.writes) == 1
        and routine.writes[0] in kernel.reads
        and not instruction.control_predecessors
        and not any(i.control_predecessors for i in kernel.instructions)
        and instruction.shape.rank > 0
        and not instruction.shape.is_dynamic
    )


def _hands_over(instruction: Instruction) -> bool:
    """Whether the routine of this instruction knows Call.store: that of contractions, but for those with groups."""
    op = instruction.op
    return op.form == "contraction" and op.contraction([o.shape for o in instruction.operands]).groups is None


def _fused(routine: RoutineStep, kernel: KernelStep, place: Affine, *, is_kept: bool) -> RoutineStep:
    result = routine.writes[0]
    reads = tuple(dict.fromkeys([*routine.reads, *(b for b in kernel.reads if b is not result)]))
    writes = (*kernel.writes, result) if is_kept else kernel.writes
    return RoutineStep(
        (*routine.instructions, *kernel.instructions),
        reads,
        writes,
        routine.routine,
        routine.functions,
        prologue=routine.prologue,
        starts=routine.starts,
        epilogue=Epilogue(routine, kernel, place, is_kept),
    )


# -- which kernels


def is_elementwise(kernel: KernelStep) -> bool:
    """Whether a routine can make the kernel's elements one by one: none is a fold, and none depends on others."""
    loops = kernel.loops
    if kernel.source is not None or loops.serial or loops.parted is not None or not loops.order:
        return False
    if any(store.guards or store.buffer in kernel.reads for store in loops.stores):
        return False
    nodes = nodes_of(loops)
    if any(node.dtype is dtypes.f8e8m0fnu for node in nodes):  # 2^-127 is a denormal of f32: denormals.py
        return False
    if any(i.opcode == "divide" and i.shape.dtype.is_complex for i in kernel.instructions):
        return False  # it multiplies by a reciprocal, which of large numbers is a denormal
    return len(nodes) <= _MOST_NODES and not any(node.op in ("fold", "current") for node in nodes)


def nodes_of(loops: Loops) -> list[Node]:
    """All that the stores need."""
    places = [key.node for s in loops.stores for key, _ in s.place.terms if isinstance(key, RuntimeInt)]
    return reachable([*(store.node for store in loops.stores), *places])


def _place(loops: Loops, result: Buffer, step: int) -> Affine | None:
    """Where the kernel reads the result, if it does so at each of its elements once, by rows as all else goes.

    Elements have `step` parts.
    """
    nodes = nodes_of(loops)
    loads = {affine_of(node) for node in nodes if node.op == "load" and node.data[0] is result}
    first = min((a for a in loads if a is not None), key=lambda a: a.constant, default=None)
    if first is None or first.constant or loads != {first + k for k in range(step)}:
        return None
    axes = by_rows(loops.order, first, step)
    if axes is None or prod(axis.extent for axis in axes) * step != result.size:
        return None
    lane = axes[-1]
    for store in loops.stores:
        if store.place.coefficient(lane) not in (1, 2) or any(
            isinstance(key, RuntimeInt) for key, _ in store.place.terms
        ):
            return None
        if len([key for key, _ in store.place.terms]) != len(axes):
            return None
    for node in nodes:
        if node.op == "load" and not _is_along(node.data[1], lane):
            return None
    return first


def by_rows(order: Sequence[LoopAxis], place: Affine, step: int) -> list[LoopAxis] | None:
    """The axes, outermost first, that count the place by `step`; None where they do not count it each once."""
    axes = sorted((axis for axis in order if axis.extent > 1), key=lambda axis: -place.coefficient(axis))
    if len(axes) != len(place.terms) or not axes:
        return None
    for axis in reversed(axes):
        if place.coefficient(axis) != step:
            return None
        step *= axis.extent
    return axes


def _is_along(place: Affine, lane: LoopAxis) -> bool:
    """Whether lanes are close together in memory, or one place."""
    if any(isinstance(key, RuntimeInt) and key.node.deps & lane.bit for key, _ in place.terms):
        return False
    return abs(place.coefficient(lane)) <= 2


def suits(epilogue: Epilogue, sizes: Sequence[int]) -> bool:
    """Whether vectors along the last dimension of a result of these sizes lie along the kernel's last axis."""
    groups = _groups(sizes, _axes(epilogue))
    size, extent = groups[-1][0][-1][1], groups[-1][1][-1].extent
    lanes = _LANES // 4 if epilogue.routine.writes[0].dtype.is_floating else _LANES
    return extent % size == 0 or (size % extent == 0 and extent % lanes == 0)


def _axes(epilogue: Epilogue) -> list[LoopAxis]:
    step = 2 if epilogue.is_complex else 1
    axes = by_rows(epilogue.kernel.loops.order, epilogue.place, step)
    assert axes is not None
    return axes


def _groups(sizes: Sequence[int], axes: Sequence[LoopAxis]) -> list[tuple[list[tuple[int, int]], list[LoopAxis]]]:
    """Dimensions as (number, size), and the axes that count them: runs of equal products."""
    dims = [(k, n) for k, n in enumerate(sizes) if n > 1]
    groups: list[tuple[list[tuple[int, int]], list[LoopAxis]]] = []
    d = a = 0
    while d < len(dims):
        some, counted = [dims[d]], [axes[a]]
        d, a = d + 1, a + 1
        have, want = some[0][1], counted[0].extent
        while have != want:
            if have < want:
                some.append(dims[d])
                have *= dims[d][1]
                d += 1
            else:
                counted.append(axes[a])
                want *= axes[a].extent
                a += 1
        groups.append((some, counted))
    return groups


# -- writing


class EpilogueWriter:
    """The Store of an epilogue. `buffers`: what the table has from entry `first` on, in the order of first use."""

    def __init__(self, epilogue: Epilogue, sizes: Sequence[int], first: int, target: Target) -> None:
        self.epilogue, self.sizes, self.first, self.target = epilogue, tuple(sizes), first, target
        loops = epilogue.kernel.loops
        self.axes = _axes(epilogue)
        nodes = nodes_of(loops)
        result = epilogue.routine.writes[0]
        step = 2 if epilogue.is_complex else 1
        # what a guard lets through or not is there in any case
        self.parts = [[n for n in nodes if n.op == "load" and n.data[0] is result and n.data[1] is epilogue.place + k]
                      for k in range(step)]  # fmt: skip
        stores = list(loops.stores)
        if epilogue.is_kept:
            expressions = Expressions()
            for k, loads in enumerate(self.parts):
                load = loads[0] if loads else expressions.node("load", result.dtype, (), (result, epilogue.place + k))
                self.parts[k] = loads or [load]
                stores.append(Store(result, epilogue.place + k, load))
        self.loops = Loops([*loops.order], stores)
        self.buffers: list[Buffer] = []
        self.tables: dict[Function, BufferTable] = {}

    def __call__(self, fn: Function, index: Sequence[Index], parts: Sequence[Value], mask: Value | None) -> None:
        fn.target = self.target
        emission = Emission.of(fn, self.loops)
        emission.beside = _BESIDE
        scope, table = emission.root, self.tables.setdefault(fn, BufferTable(fn, self.buffers, self.first))
        scope.axes = self._counted(index)
        scope.axes.update({axis: fn.index(0) for axis in self.loops.order if axis.extent == 1})
        if parts[0].lanes > 1:
            scope.lane_axis, scope.lanes, scope.mask = self.axes[-1], parts[0].lanes, mask
        for loads, part in zip(self.parts, parts, strict=True):
            scope.memo.update(dict.fromkeys(loads, part))
        Elements(emission, table).stores.write(self.loops.stores, scope)

    def _counted(self, index: Sequence[Index]) -> dict[LoopAxis, Index]:
        """The axes' counters at this index of the result."""
        found: dict[LoopAxis, Index] = {}
        for dims, axes in _groups(self.sizes, self.axes):
            place = index[dims[0][0]]
            for k, size in dims[1:]:
                place = place * size + index[k]
            for axis in reversed(axes[1:]):
                found[axis], place = place % axis.extent, place // axis.extent
            found[axes[0]] = place
        return found
