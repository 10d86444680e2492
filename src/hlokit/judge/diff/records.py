"""The parts of a diff: pairs of instructions, computations and modules, with the differences between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule

Kind = Literal["same", "changed", "moved", "a", "b"]


@dataclass(frozen=True)
class Change:
    """One thing that differs: what ("shape", "operand 1", "dimensions"), and its text in either module."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Pair:
    """Instructions that correspond, or one alone, None in the place of the other.

    changes   what differs between them, but for what follows from changes of others
    moved     they stand in computations that do not correspond, or at another place of the schedule
    """

    a: Instruction | None
    b: Instruction | None
    changes: tuple[Change, ...] = ()
    moved: bool = False

    @property
    def kind(self) -> Kind:
        if self.a is None or self.b is None:
            return "a" if self.b is None else "b"
        return "changed" if self.changes else "moved" if self.moved else "same"


@dataclass(frozen=True)
class ComputationDiff:
    """Two computations that correspond, or one alone, and their instructions, in an order that keeps both of theirs as
    far as they agree. What has moved to another computation is in the pairs of either."""

    a: Computation | None
    b: Computation | None
    changes: tuple[Change, ...] = ()
    pairs: tuple[Pair, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.changes and all(pair.kind == "same" for pair in self.pairs)


@dataclass(frozen=True, repr=False)
class Differences:
    """The differences of module `b` from module `a`.

    changes        of the modules' headers
    computations   every computation, in the order of `b`, then those of `a` alone
    """

    a: HloModule
    b: HloModule
    changes: tuple[Change, ...] = ()
    computations: tuple[ComputationDiff, ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs except what was to be ignored."""
        return not self.changes and all(c.a and c.b and c.is_equal for c in self.computations)

    @cached_property
    def counts(self) -> dict[Kind, int]:
        """The numbers of instructions that are the same, changed, moved, only in `a`, only in `b`."""
        counts: dict[Kind, int] = {"same": 0, "changed": 0, "moved": 0, "a": 0, "b": 0}
        for pair in {id(p): p for c in self.computations for p in c.pairs}.values():
            counts[pair.kind] += 1
        return counts
