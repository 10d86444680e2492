"""Program: a computation as steps on buffers, from leaves in memory through fusion to ordered steps."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu import costs
from hlokit.cpu.kernels.routine import KERNELS
from hlokit.cpu.loops.build import MAX_DEPTH
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.chain_cuts import store_deep
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.drafts import Draft
from hlokit.cpu.lower.fusion import Fusion
from hlokit.cpu.lower.leaf import Leaf, array_leaves
from hlokit.cpu.lower.leaves import Leaves
from hlokit.cpu.lower.retries import NoElementLoop
from hlokit.cpu.lower.scatters import result_buffers
from hlokit.cpu.lower.schedule import ordered
from hlokit.cpu.lower.steps import (
    CallStep,
    ConditionalStep,
    CopyStep,
    HostStep,
    KernelStep,
    RoutineStep,
    Step,
    StepBlock,
    Subprogram,
    WhileStep,
)
from hlokit.cpu.lower.traits import is_small_update, makes_nothing
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.control_flow import Call, Conditional, While, is_fixed
from hlokit.ops.custom import CustomCall
from hlokit.ops.slicing import DynamicUpdateSlice
from hlokit.ops.structure import Constant, Parameter


def lower(
    computation: Computation, arguments: Sequence[Sequence[Buffer]], context: Context, *, is_pass: bool = False
) -> StepBlock:
    """The steps of a computation on buffers: first which leaves lie in memory, then the kernels, then their order.

    arguments  for each parameter the buffers of its leaves
    is_pass    whether it is a loop's body

    A loop that was taken for one over elements and is none is tried as a loop over steps.
    """
    while True:
        leaves = Leaves(computation, arguments, context, is_pass)
        try:
            return _lowered(leaves)
        except NoElementLoop as found:
            context.step_loops.add(found.loop)


def _lowered(leaves: Leaves) -> StepBlock:
    results = list(leaves.of(leaves.computation.root))
    live = leaves.live()
    alone = [i for i in leaves.order if i in live and not isinstance(i.op, (Parameter, Constant))]
    for instruction in alone:
        is_kernel = leaves.is_kernel(instruction)
        if (is_kernel and instruction.op.form != "scatter") or makes_nothing(instruction):
            continue
        if not is_kernel:  # a scatter's reads indices and updates by element
            takes_parts = _takes_parts(instruction, leaves.context)
            for leaf in leaves.operands(instruction):
                if not takes_parts or leaves.part(leaf) is None:
                    leaves.store(leaf, f"{instruction.opcode} {instruction.name} reads it from memory")
        for leaf in leaves.of(instruction):
            leaves.store(leaf, f"{instruction.opcode} is a separate step")
    for leaf in results:
        leaves.store(leaf, "a result")
    _store_small_updates(leaves)
    store_deep(leaves, live, _DEEP)
    steps: list[Step] = []
    made: set[Instruction] = set()
    for kernel in Fusion(leaves).kernels():
        if kernel.stores:
            steps += _kernel_steps(leaves, kernel)
            made |= {leaf.instruction for leaf in kernel.roots}
    for instruction in alone:
        if instruction not in made and not makes_nothing(instruction) and not leaves.is_kernel(instruction):
            steps += _other_steps(leaves, instruction)
    return StepBlock(ordered(steps, leaves), tuple(leaves.stored[leaf] for leaf in results), leaves)


def _store_small_updates(leaves: Leaves) -> None:
    """An update of a small part of an array is done in place: its update is stored, and the array that it is of."""
    for instruction in leaves.order:
        if isinstance(instruction.op, DynamicUpdateSlice) and Leaf(instruction, 0) in leaves.stored:
            if is_small_update(instruction):
                leaves.store(leaves.leaf(instruction.operands[0]), "it is updated in place")


# -- steps


def _kernel_steps(leaves: Leaves, kernel: Draft) -> list[Step]:
    """A kernel's step, after those that fill what it changes in place; no kernel where it has no elements."""
    instructions = tuple(dict.fromkeys(leaf.instruction for leaf in kernel.roots))
    writes = kernel.writes
    is_scatter = instructions[0].op.form == "scatter"
    steps: list[Step] = []
    if is_scatter:
        for k, buffer in enumerate(result_buffers(leaves, instructions[0])):
            steps += _filled(leaves, instructions[0], k, buffer, kernel.fills.get(k))
    if kernel.source is not None:
        steps.append(CopyStep(instructions, (kernel.source,), writes, "an array that is updated in place"))
    if not any(b.size for b in writes) or any(axis.extent == 0 for axis in kernel.axes):
        return steps
    context = leaves.context
    loops = kernel.arranged(
        vector_bytes=context.target.vector_bytes,
        strict=context.strict,
        stream_bytes=costs.STREAM_BYTES * (2 if leaves.is_pass else 1),
    )
    reads = kernel.reads
    if kernel.source is not None or is_scatter:
        reads = tuple(dict.fromkeys((*reads, *writes)))
    roots = tuple((leaf, leaves.stored.get(leaf, writes[0])) for leaf in kernel.roots)
    steps.append(KernelStep(instructions, reads, writes, loops, kernel.source, roots))
    return steps


def _filled(leaves: Leaves, user: Instruction, number: int, buffer: Buffer, fill: Draft | None) -> list[Step]:
    """Steps that put an operand's elements into a buffer which is then changed."""
    source = leaves.leaf(user.operands[number])
    if source not in leaves.stored and fill is not None:
        return _kernel_steps(leaves, fill)
    return [CopyStep((user,), (leaves.stored[source],), (buffer,), "an array that is scattered into")]


def _other_steps(leaves: Leaves, instruction: Instruction) -> list[Step]:
    """The steps of an instruction that is not a kernel over elements: control flow, a routine, the reference."""
    op, context = instruction.op, leaves.context
    reads: list[Buffer] = []
    starts: dict[int, int] = {}
    for number, leaf in enumerate(leaves.operands(instruction)):
        buffer, start = leaves.part(leaf) or (leaves.stored[leaf], 0)
        reads.append(buffer)
        if start:
            starts[number] = start
    writes = [leaves.stored[leaf] for leaf in leaves.of(instruction) if leaf.instruction is instruction]
    if isinstance(op, While) and not is_fixed(*instruction.called):
        return _while(context, instruction, reads, writes)
    if isinstance(op, Conditional):
        return _conditional(leaves, instruction, reads, writes)
    if isinstance(op, Call):
        return [_call(context, instruction, reads, writes)]
    routine = _routine(instruction) if instruction not in context.hosted else ""
    if routine in KERNELS:
        functions = {} if isinstance(op, CustomCall) else dict(instruction.called_by_role())
        return [RoutineStep((instruction,), tuple(reads), tuple(writes), routine, functions, starts=starts)]
    reason = context.hosted.get(instruction, f"{op.opcode} is evaluated by the reference")
    if isinstance(op, While):
        reason = "its condition never changes: the reference says so where it is true"
    context.reasons.add(instruction.name, "not compiled", reason)
    return [HostStep((instruction,), tuple(reads), tuple(writes), reason)]


def _takes_parts(instruction: Instruction, context: Context) -> bool:
    """Whether an instruction reads operands that are parts of arrays where these lie: a routine for any such shapes."""
    shapes = (instruction.shape, *(operand.shape for operand in instruction.operands))
    is_known = instruction.opcode in ("dot", "convolution") and not any(shape.is_dynamic for shape in shapes)
    return is_known and not context.strict and instruction not in context.hosted


def _routine(instruction: Instruction) -> str:
    """The name in KERNELS under which there may be a routine for the instruction."""
    op = instruction.op
    if isinstance(op, CustomCall):
        return f"custom-call:{op.custom_call_target}"
    if op.form == "kernel":
        return op.kernel([operand.shape for operand in instruction.operands]).routine
    return op.opcode if op.form == "contraction" else ""


def _while(context: Context, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
    by_role = dict(instruction.called_by_role())
    name = instruction.name
    shapes = array_leaves(instruction.shape)
    body = lower(by_role["body"], [writes], context, is_pass=True)
    condition = lower(by_role["condition"], [writes], context)
    carries: list[tuple[Buffer, Buffer]] = []
    taken, own = set[Buffer](), set(writes)
    for k, (current, result) in enumerate(zip(writes, body.results, strict=True)):
        if result is current:
            continue
        if result in context.fresh and result not in taken and result not in own:
            taken.add(result)
            carries.append((current, result))
            continue
        spare = context.buffer(f"{name}.next{k}", shapes[k])
        body.steps.append(CopyStep((instruction,), (result,), (spare,), "a value that the next pass takes as it is"))
        carries.append((current, spare))
    copies: list[Step] = [
        CopyStep((instruction,), (initial,), (current,), "where a loop starts")
        for initial, current in zip(reads, writes, strict=True)
    ]
    outside = [b for b in _from_outside([*body.steps, *condition.steps]) if b not in own]
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


def _conditional(leaves: Leaves, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> list[Step]:
    selector, *operands = instruction.operands
    branches: list[StepBlock] = []
    ((_, computations),) = instruction.called_by_role()
    for operand, computation in zip(operands, computations, strict=True):
        block = lower(computation, [[leaves.stored[leaf] for leaf in leaves.of(operand)]], leaves.context)
        for result, write in zip(block.results, writes, strict=True):
            block.steps.append(CopyStep((instruction,), (result,), (write,), "the result of a branch"))
        branches.append(block)
    outside = [b for block in branches for b in _from_outside(block.steps)]
    touched = tuple(dict.fromkeys([*reads, *outside]))
    return [ConditionalStep((instruction,), touched, tuple(writes), selector, tuple(branches))]


def _call(context: Context, instruction: Instruction, reads: list[Buffer], writes: list[Buffer]) -> CallStep:
    (callee,) = instruction.called
    found = context.subprograms.get(callee)
    if found is None:
        found = _subprogram(context, callee)
        context.subprograms[callee] = found  # after those that it calls
    step = CallStep((instruction,), (*reads, *found.constants), tuple(writes), found)
    found.calls.append(step)
    return step


def _subprogram(context: Context, computation: Computation) -> Subprogram:
    parameters = parameter_buffers(computation, context)
    arguments = [buffer for buffers in parameters for buffer in buffers]
    block = lower(computation, parameters, context)
    results = own_results(block, context)
    known = set(context.constants.values())
    constants = tuple(buffer for buffer in _touched(block.steps) if buffer in known)
    name = f"hlokit_call{len(context.subprograms)}"
    return Subprogram(computation, name, block, [*arguments, *constants], results, constants)


def parameter_buffers(computation: Computation, context: Context) -> list[list[Buffer]]:
    """A buffer for each leaf of each parameter."""
    parameters = computation.parameters
    return [[context.buffer(p.name, leaf, fresh=False) for leaf in array_leaves(p.shape)] for p in parameters]


def own_results(block: StepBlock, context: Context) -> list[Buffer]:
    """A buffer of its own for each result: what is an argument, a constant or given twice is copied."""
    results: list[Buffer] = []
    for k, buffer in enumerate(block.results):
        own = buffer
        if buffer not in context.fresh or buffer in results:
            own = context.like(f"result{k}", buffer)
            block.steps.append(CopyStep((), (buffer,), (own,), "an argument, a constant or a value given twice"))
        results.append(own)
    return results


_DEEP = 3 * MAX_DEPTH
"""Instructions in a row: where values are used again, building meets its limit later."""


def _touched(steps: Sequence[Step]) -> dict[Buffer, None]:
    """Every buffer that the steps, and the steps in them, read or write."""
    found: dict[Buffer, None] = {}
    for step in steps:
        found |= dict.fromkeys((*step.reads, *step.writes))
    return found


def _from_outside(steps: Sequence[Step]) -> list[Buffer]:
    """The buffers that the steps read and none of them writes."""
    written = {buffer for step in steps for buffer in step.writes}
    return [buffer for buffer in _touched(steps) if buffer not in written]
