"""Callbacks that each device calls with its own part of a value: `jax.debug.callback(partitioned=True)`."""

from __future__ import annotations

from dataclasses import replace

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interop.jax.callbacks import OF_PARTS
from hlokit.interop.pjrt.propagation import shardings
from hlokit.interop.pjrt.shards import Part, meets, parts
from hlokit.ops.custom import CustomCall
from hlokit.ops.slicing import Slice
from hlokit.passes.call_inliner import CallInliner
from hlokit.passes.pipeline import Pipeline


def call_with_parts(module: HloModule, partitions: int) -> None:
    """Makes of each such call in a program that runs once, on whole values, one for each device, with its parts."""
    if partitions == 1 or not any(map(_wants_parts, module.instructions())) or meets(module):
        return
    Pipeline((CallInliner(),)).run(module)  # a function does not know where its arguments are
    known = shardings(module)
    for call in [i for i in module.instructions() if _wants_parts(i)]:
        computation = call.parent
        assert computation is not None
        values = [(value, parts(known[value], value.shape, partitions)) for value in call.operands]
        for device in range(partitions):
            operands = [_cut(value, where[device], computation) for value, where in values]
            op = call.op.resized([operand.shape for operand in operands], call.shape)
            made = computation.add(op, operands)
            made.extra = replace(call.extra) if call.extra is not None else None
        computation.remove(call)
    module.settle()


def _wants_parts(instruction: Instruction) -> bool:
    """Whether it calls such a callback, whose result nobody takes and for whose turn nobody waits."""
    op = instruction.op
    if not isinstance(op, CustomCall) or op.custom_call_target != OF_PARTS or instruction.users:
        return False
    is_root = instruction.parent is not None and instruction.parent.root is instruction
    return not (is_root or instruction.control_predecessors) and all(o.shape.is_array for o in instruction.operands)


def _cut(value: Instruction, part: Part, computation: Computation) -> Instruction:
    """A part of a value."""
    ranges = [piece.indices(size) for piece, size in zip(part, value.shape.dimensions, strict=True)]
    if all(limit - start == size for (start, limit, _), size in zip(ranges, value.shape.dimensions, strict=True)):
        return value
    return computation.add(Slice(tuple(ranges)), [value])
