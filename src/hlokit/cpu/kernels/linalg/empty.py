"""Plans of factorizations of matrices without elements."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module


@dataclass(frozen=True)
class InfoAlone:
    """The plan that sets info to 0 for each matrix, at this place of the table."""

    name: str
    place: int
    batch: int

    def write(self, module: Module) -> Routine:
        f = Function(self.name, PHASE)
        f.memset(f.table(self.place), 0, 4 * self.batch)
        return Routine((Phase(module.end(f, exported=True)),))
