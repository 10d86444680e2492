"""Functions: called computations by what they compute."""

from __future__ import annotations

from collections.abc import Hashable

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction


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
            form = tuple(
                (i.op, i.shape, tuple(places[o] for o in i.operands), tuple(map(self.number, i.called)), _config(i))
                for i in order
            )
            form = (*form, places[computation.root])
            found = self._numbers[computation] = self._forms.setdefault(form, len(self._forms))
        return found


def _config(instruction: Instruction) -> str:
    return instruction.extra.backend_config if instruction.extra is not None else ""
