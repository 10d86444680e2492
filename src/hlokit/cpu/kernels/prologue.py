"""Prologues: loops that compute an operand of a routine, run by the routine as it reads the operand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import TypeAlias

from hlokit.cpu import costs
from hlokit.cpu.emit.elements import Elements
from hlokit.cpu.emit.loads import to_memory
from hlokit.cpu.emit.scope import BufferTable, Emission
from hlokit.cpu.kernels.epilogue import by_rows, is_elementwise, nodes_of
from hlokit.cpu.kernels.routine import KERNELS, LOADERS, Call
from hlokit.cpu.llvm import I8, Function, Index, Value
from hlokit.cpu.loops.expr import Buffer, LoopAxis, Node, RuntimeInt
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.steps import ConditionalStep, KernelStep, Prologue, RoutineStep, StepBlock, WhileStep
from hlokit.cpu.target import Target
from hlokit.forms.primitives import COSTLY

_MOST_NODES = 32
"""The most nodes of a prologue, which is written out for each vector of an operand that a routine reads at once."""
CallOf: TypeAlias = Callable[[RoutineStep], Call]
"""The call that a step's routine is asked for."""


def fuse(block: StepBlock, context: Context, call: CallOf) -> None:
    """Moves cheap loops that read fewer bytes than they write into the routine that alone reads what they write, in the
    block and all blocks in it: a matrix that is kept in a narrow type and converted for a product.

    Strict code stays as it is: a routine may take denormals for zeros.
    """
    if context.strict:
        return
    for step in block.steps:
        if isinstance(step, WhileStep):
            fuse(step.condition, context, call)
            fuse(step.body, context, call)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                fuse(branch, context, call)
    made = {step.writes[0]: step for step in block.steps if isinstance(step, KernelStep) and _is_cheap(step)}
    if not made:
        return
    readers = Counter(buffer for step in block.steps for buffer in step.reads)
    readers.update(block.results)
    for step in list(block.steps):
        if isinstance(step, RoutineStep) and step.routine in KERNELS and step.routine in LOADERS:
            _fuse_into(block, step, {b: k for b, k in made.items() if readers[b] == 1}, context, call)


def _fuse_into(
    block: StepBlock, routine: RoutineStep, made: Mapping[Buffer, KernelStep], context: Context, call: CallOf
) -> None:
    """Moves the loops of the first operand that is made by such, and that the routine takes so, into the routine."""
    if routine.instructions[0].control_predecessors:
        return
    steps = block.steps
    for number, buffer in enumerate(routine.reads[: routine.count]):
        kernel = made.get(buffer)
        if kernel is None or number in routine.starts:
            continue
        between = steps[steps.index(kernel) + 1 : steps.index(routine)]
        if any(read in other.writes for other in between for read in kernel.reads):
            continue
        routine.prologue = Prologue(kernel, number)
        if not LOADERS[routine.routine](call(routine)):
            routine.prologue = None
            continue
        operands = list(routine.reads)
        operands[number] = kernel.reads[0]
        routine.reads = (*operands, *(b for b in kernel.reads if b not in operands))
        steps.remove(kernel)
        names = {instruction.name for instruction in kernel.instructions}
        entries = context.reasons.entries
        entries[:] = [e for e in entries if e[0] not in names or e[1] != "not fused"]
        context.reasons.add(kernel.name, "fused", f"the prologue of {routine.name}")
        if block.leaves is not None:
            stored = block.leaves.stored
            for leaf in [leaf for leaf, home in stored.items() if home is buffer]:
                del stored[leaf]
        return


def _is_cheap(kernel: KernelStep) -> bool:
    """Whether the loops make elements of one array in order, each by little work from fewer bytes than it has."""
    if len(kernel.writes) != 1 or not kernel.reads or not is_elementwise(kernel):
        return False
    if any(instruction.control_predecessors for instruction in kernel.instructions):
        return False
    loops = _plain(kernel)
    (result,) = kernel.writes
    if len(loops.stores) != 1 or sum(buffer.nbytes for buffer in kernel.reads) >= result.nbytes:
        return False
    axes = by_rows(loops.order, loops.stores[0].place, 1)
    if axes is None or result.size != prod(axis.extent for axis in axes):
        return False
    nodes = nodes_of(loops)
    if len(nodes) > _MOST_NODES or any(node.op in COSTLY for node in nodes):
        return False
    return all(_is_along(node, axes[-1]) for node in nodes if node.op == "load")


def _plain(kernel: KernelStep) -> Loops:
    """The loops as they were before short axes were written out."""
    order, stores = kernel.loops.whole or (kernel.loops.order, kernel.loops.stores)
    return Loops([*order], [*stores])


def _is_along(load: Node, lane: LoopAxis) -> bool:
    """Whether lanes read consecutive elements, or one, wherever they are."""
    place = load.data[1]
    is_affine = not any(isinstance(key, RuntimeInt) for key, _ in place.terms)
    return is_affine and not load.args and place.coefficient(lane) in (0, 1)


# -- writing


class PrologueLoader:
    """The Loader of a prologue. `buffers`: what the table has from entry `first` on, all that the loops read."""

    def __init__(self, prologue: Prologue, first: int, target: Target) -> None:
        self.number = prologue.number
        self.buffers = [*prologue.kernel.reads]
        self.nbytes = sum(buffer.nbytes for buffer in self.buffers)
        self._first, self._target = first, target
        self._loops = _plain(prologue.kernel)
        self._store: Store = self._loops.stores[0]
        axes = by_rows(self._loops.order, self._store.place, 1)
        assert axes is not None
        self._axes = axes
        self.run = axes[-1].extent

    def read(self, fn: Function, row: Index, column: Index, lanes: int, length: int, mask: Value | None) -> Value:
        emission = self._emission(fn, row, column, length)
        scope, store = emission.root, self._store
        if lanes > 1:
            scope.lane_axis, scope.lanes, scope.mask = self._axes[-1], lanes, mask
        elements = Elements(emission, BufferTable(fn, self.buffers, self._first))
        value = elements.values.spread(elements.values.value(store.node, scope), lanes, scope)
        return to_memory(value, store.buffer.dtype)

    def prefetch(self, fn: Function, row: Index, column: Index, lanes: int, length: int, ahead: int) -> None:
        emission = self._emission(fn, row, column, length)
        elements = Elements(emission, BufferTable(fn, self.buffers, self._first))
        for node in nodes_of(self._loops):
            if node.op == "load" and node.data[0].size == self._store.buffer.size:
                place = elements.addresses.address(node.data[0], node.data[1], emission.root)
                for line in range(0, lanes * node.data[0].dtype.bits // 8, costs.LINE_BYTES):
                    (place.pointer.to(I8) + (ahead + line)).prefetch()

    def _emission(self, fn: Function, row: Index, column: Index, length: int) -> Emission:
        """The loops' code at this place: what their axes count there."""
        fn.target = self._target
        emission = Emission.of(fn, self._loops)
        emission.asks = False  # the routine knows in which order it reads
        counted = emission.root.axes
        counted.update({axis: fn.index(0) for axis in self._loops.order if axis.extent == 1})
        inner, size = len(self._axes), 1
        while inner and size < length:
            inner -= 1
            size *= self._axes[inner].extent
        if size == length:
            _count(counted, self._axes[:inner], row)
            _count(counted, self._axes[inner:], column)
        else:
            _count(counted, self._axes, row * length + column)
        return emission


def _count(counted: dict[LoopAxis, Index], axes: Sequence[LoopAxis], place: Index) -> None:
    """The places that several axes count together."""
    for axis in reversed(axes[1:]):
        counted[axis], place = place % axis.extent, place // axis.extent
    for axis in axes[:1]:
        counted[axis] = place
