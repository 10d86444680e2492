"""Functions: called computations, classified by what they compute."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction


class Functions:
    """Numbers of called computations: equal ones have the same."""

    def __init__(self) -> None:
        self._numbers: dict[Computation, int] = {}
        self._forms: dict[Hashable, int] = {}

    def number(self, computation: Computation) -> int:
        """The number of all computations that compute what this one does, in the same way."""
        found = self._numbers.get(computation)
        if found is None:
            order = computation.post_order()
            places = {instruction: k for k, instruction in enumerate(order)}
            form: list[Hashable] = [computation.execution_thread, computation.backend_config, places[computation.root]]
            for i in order:
                operands = tuple(places[operand] for operand in i.operands)
                extra = () if i.extra is None else _told(i.extra, places)
                form.append((i.op, i.shape, operands, tuple(map(self.number, i.called)), extra))
            found = self._numbers[computation] = self._forms.setdefault(tuple(form), len(self._forms))
        return found


def _told(extra: Extra, places: Mapping[Instruction, int]) -> Hashable:
    """The further attributes of an instruction that may matter."""
    before = tuple(places[instruction] for instruction in extra.control_predecessors)
    return before, extra.backend_config, extra.sharding, tuple(extra.frontend_attributes.items())
