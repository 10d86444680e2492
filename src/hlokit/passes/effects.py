"""The turns of effects, for passes that put other instructions in the place of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter.order import communication_of


class Turns:
    """In which order the effects of a module's computations happen.

    Those of communication have no turns: no value depends on them, and they run in the order in which devices wait
    least for each other.
    """

    def __init__(self) -> None:
        self._known: dict[Computation, bool] = {}
        self._communicates = communication_of()

    def of(self, computation: Computation) -> list[Instruction]:
        """The instructions with effects in their order."""
        return [i for i in computation.post_order() if self._has_effect(i) and not self._communicates(i)]

    def keep(self, computation: Computation, before: Sequence[Instruction], ids: Mapping[Instruction, range]) -> None:
        """Each effect waits for the last one. `before`: what `of` gave; `ids`: what now stands for some of them."""
        if not any(effect in ids for effect in before):
            return
        live = {i.id: i for i in computation.instructions if self._has_effect(i)}
        turns = [live[n] for effect in before for n in ids.get(effect, (effect.id,)) if n in live]
        for first, second in pairwise(turns):
            if first not in second.operands and first not in second.control_predecessors:
                second.ensure_extra().control_predecessors.append(first)

    def _has_effect(self, instruction: Instruction) -> bool:
        return has_side_effect(instruction, self._known)
