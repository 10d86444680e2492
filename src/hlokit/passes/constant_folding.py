"""constant-folding: computes instructions that depend only on constants, with the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.errors import HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interpreter.evaluate import run_instruction
from hlokit.interpreter.process import Process
from hlokit.ops.contraction import Dot
from hlokit.ops.convolution import Convolution
from hlokit.ops.movement import Broadcast
from hlokit.ops.structure import Constant
from hlokit.passes.cse import is_repeatable
from hlokit.passes.pipeline import Pass
from hlokit.types.literal import Literal


@dataclass(frozen=True)
class ConstantFolding(Pass):
    """Replaces an instruction whose operands are constants by its value, if that has at most `limit` elements.

    Without `sums`, sums of products of floats stay: machine code, which fuses products with sums where the machine
    can, gives the same for constants as for arguments.
    """

    name = "constant-folding"
    limit: int = 1 << 16
    sums: bool = True

    def run(self, module: HloModule) -> bool:
        changed = False
        process = Process()
        for computation in module.all_computations:
            folded = False
            for instruction in list(computation.post_order()):
                value = self._folded(process, instruction)
                if value is not None:
                    constant = computation.add(Constant(value), shape=instruction.shape, name=instruction.name)
                    computation.replace(instruction, constant)
                    folded = True
            if folded:
                computation.remove_dead()
            changed |= folded
        return changed

    def _folded(self, process: Process, instruction: Instruction) -> Literal | None:
        shape = instruction.shape
        literals = [o.op.literal for o in instruction.operands if isinstance(o.op, Constant)]
        if not literals or len(literals) < len(instruction.operands) or any(each.is_elided for each in literals):
            return None
        if isinstance(instruction.op, Broadcast) or not shape.is_array or shape.is_dynamic or shape.size > self.limit:
            return None  # a broadcast says more than its elements would
        if instruction.called or not is_repeatable(instruction, {}):
            return None
        if not self.sums and _sums_products(instruction):
            return None
        try:
            return Literal(shape, run_instruction(process, instruction, [each.to_python() for each in literals]))
        except HlokitError:
            return None  # it fails when it runs, if it runs


def _sums_products(instruction: Instruction) -> bool:
    """Whether an element of it is a sum of products that are rounded."""
    if not (instruction.shape.dtype.is_floating or instruction.shape.dtype.is_complex):
        return False
    match instruction.op:
        case Dot(lhs_contracting_dims=contracted):
            return math.prod(instruction.operands[0].shape.dimensions[d] for d in contracted) > 1
        case op:
            return isinstance(op, Convolution)
