"""cse: merges instructions that compute the same value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.structure import OptBarrier
from hlokit.passes.pipeline import Pass


class CommonSubexpressions(Pass):
    """Two instructions of the same op, operands, called computations and shape have the same value.

    Not those with a side effect, nor rng: two draws are two numbers (RNG-9).
    """

    name = "cse"

    def run(self, module: HloModule) -> bool:
        changed = False
        effects: dict[Computation, bool] = {}
        for computation in module.all_computations:
            first: dict[Any, Instruction] = {}
            same: dict[Instruction, Instruction] = {}
            for instruction in computation.post_order():
                if is_repeatable(instruction, effects):
                    kept = first.setdefault(_key(instruction, same), instruction)
                    if kept is not instruction:
                        same[instruction] = kept
            computation.replace_all(same)
            changed |= computation.remove_dead() > 0
            changed |= bool(same)
        return changed


def is_repeatable(instruction: Instruction, effects: dict[Computation, bool]) -> bool:
    """Computing it once more, or once less, changes nothing but time. Barriers stay (OPTBAR-3)."""
    if isinstance(instruction.op, OptBarrier) or instruction.control_predecessors:
        return False
    return not has_side_effect(instruction, effects)


def _key(instruction: Instruction, same: Mapping[Instruction, Instruction]) -> tuple[Any, ...]:
    """`same`: what was computed before, in the place of operands. Ops and shapes are interned; a custom call also takes
    its backend_config."""
    extra = instruction.extra
    config = (extra.backend_config, extra.sharding) if extra is not None else ("", None)
    operands = tuple(same.get(o, o) for o in instruction.operands)
    return (instruction.op, operands, instruction.called, instruction.shape, config)
