"""buffer-removal: makes buffers the arrays that they hold, for a compiler that assigns all memory itself."""

from __future__ import annotations

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.custom import BUFFER_TARGETS, CustomCall
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import constant_like


class BufferRemoval(Pass):
    """Pin(x) == Unpin(x) == x and CreateBuffer() == 0 (CCALL-11, CCALL-12)."""

    name = "buffer-removal"

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            held = [i for i in computation.instructions if i.shape.without_buffers() is not i.shape]
            for instruction in held:
                instruction.shape = instruction.shape.without_buffers()
                if (attribute := instruction.op.result_shape) is not None:
                    instruction.op = instruction.op.replace(**{attribute.name: instruction.shape})
            calls = [i for i in computation.instructions if _target(i) in BUFFER_TARGETS]
            for call in calls:
                computation.replace(call, call.operands[0] if call.operands else constant_like(computation, call, 0))
            if held or calls:
                computation.version += 1
                changed = True
                computation.remove_dead()
        return changed


def _target(instruction: Instruction) -> str:
    return instruction.op.custom_call_target if isinstance(instruction.op, CustomCall) else ""
