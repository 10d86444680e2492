"""The order of side effects, for passes that replace one instruction by several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hlokit.hlo.computation import Computation, has_side_effect
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interpreter.order import communication_of, evaluation_order


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
        return [i for i in evaluation_order(computation) if self._has_effect(i) and not self._communicates(i)]

    def keep(self, computation: Computation, before: Sequence[Instruction], ids: Mapping[Instruction, range]) -> None:
        """Each effect waits for the last one. `before`: what `of` gave; `ids`: what now stands for some of them."""
        if not any(effect in ids for effect in before):
            return
        live = {i.id: i for i in computation.instructions if self._has_effect(i)}
        _in_turn(computation, [live[n] for effect in before for n in ids.get(effect, (effect.id,)) if n in live])

    def _has_effect(self, instruction: Instruction) -> bool:
        return has_side_effect(instruction, self._known)


def orders(module: HloModule) -> dict[Computation, list[Instruction]]:
    """The effects of each computation that has several, in their order."""
    turns = Turns()
    found = {computation: turns.of(computation) for computation in module.all_computations}
    return {computation: effects for computation, effects in found.items() if len(effects) > 1}


def restore(module: HloModule, before: Mapping[Computation, Sequence[Instruction]]) -> None:
    """Effects that are still there have the order again that `orders` gave: whatever needs them may have gone."""
    for computation, effects in orders(module).items() if before else ():
        live, known = set(effects), set(before.get(computation, ()))
        kept = [i for i in before.get(computation, ()) if i in live]
        if kept != [i for i in effects if i in known]:
            _in_turn(computation, kept)


def unscheduled(module: HloModule) -> None:
    """Takes the schedule away, which says nothing about what passes add; effects keep its order."""
    before = orders(module) if module.is_scheduled else {}
    module.is_scheduled = False
    restore(module, before)


def _in_turn(computation: Computation, effects: Sequence[Instruction]) -> None:
    """Each waits for the one before it."""
    for first, second in pairwise(effects):
        if first not in second.operands and first not in second.control_predecessors:
            computation.run_after(second, first)
