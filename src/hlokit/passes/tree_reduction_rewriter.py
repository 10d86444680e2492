"""tree-reduction-rewriter: a long reduction in two stages, the first of which has parts for several threads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.analysis.reducers import neutral_value
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.movement import Pad
from hlokit.ops.reduction import Reduce
from hlokit.ops.structure import Constant
from hlokit.passes.pipeline import Pass
from hlokit.passes.simplify.rules import is_plain, reshaped
from hlokit.types.literal import Literal
from hlokit.types.window import PaddingDimension


@dataclass(frozen=True)
class TreeReductionRewriter(Pass):
    """reduce(x) over a leading dimension (and others) is the reduction of `parts` reductions.

    For operands of `least` elements and more, reducers that are one op with a neutral value, and leading dimensions of
    twice as many elements as parts. There are half to twice as many parts where these come out even, each of more than
    32 elements; else neutral values fill the last of `parts`. Sums of floats are grouped otherwise.
    """

    name = "tree-reduction-rewriter"
    parts: int = 16
    least: int = 1 << 15

    def run(self, module: HloModule) -> bool:
        changed = False
        for computation in module.all_computations:
            for instruction in computation.post_order():
                if isinstance(instruction.op, Reduce) and is_plain(instruction) and not instruction.shape.is_tuple:
                    two = self._stages(instruction, instruction.op.dimensions, computation)
                    if two is not None:
                        computation.replace(instruction, two)
                        changed = True
            changed |= computation.remove_dead() > 0
        return changed

    def _stages(self, reduce: Instruction, dimensions: tuple[int, ...], computation: Computation) -> Instruction | None:
        operand, init = reduce.operands
        sizes, neutral = operand.shape.dimensions, neutral_value(reduce.called[0])
        leading = next((d for d, n in enumerate(sizes) if n != 1), None)
        if neutral is None or leading is None or leading not in dimensions or operand.shape.size < self.least:
            return None
        if sizes[leading] < 2 * self.parts:
            return None
        count = self._count(sizes[leading])
        dtype = operand.shape.dtype
        first = computation.add(Constant(Literal.of(dtype.numpy.type(neutral), dtype[()])))
        part = -(-sizes[leading] // count)
        missing = part * count - sizes[leading]
        if missing:
            padding = [PaddingDimension(0, missing if d == leading else 0) for d in range(len(sizes))]
            operand = computation.add(Pad(tuple(padding)), [operand, first])
        split = reshaped(operand, (*sizes[:leading], count, part, *sizes[leading + 1 :]))
        inner = tuple(d if d < leading else d + 1 for d in sorted(dimensions))
        parts = computation.add(Reduce(inner), [split, first], reduce.called)
        assert math.prod(parts.shape.dimensions) == count * reduce.shape.size
        at = sum(1 for d in range(leading) if d not in inner)
        return computation.add(Reduce((at,)), [parts, init], reduce.called, shape=reduce.shape)

    def _count(self, size: int) -> int:
        """The number of parts: the one nearest to `parts` that divides the dimension into long ones."""
        around = sorted(range(self.parts // 2, 2 * self.parts + 1), key=lambda n: abs(n - self.parts))
        return next((n for n in around if n and size % n == 0 and size // n > _SHORT), self.parts)


_SHORT = 32
"""Elements of a part that a kernel may write out side by side, and with all parts in it: too much code."""
