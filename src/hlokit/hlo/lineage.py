"""Lineage: which instructions of a program each instruction of the rewritten program comes from.

A `Recorder` listens to the edits of `Computation` (copies and replacements) while it is `recording`; a pass that knows
more than its edits say calls `came_from`. Nothing is recorded otherwise.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from hlokit.errors import ArgumentError

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.hlo.module import HloModule


class Mark(IntEnum):
    """The relation of an instruction to one that it comes from. The nearest relation is the least."""

    SAME = 0
    """It has the same value; in a loop or a called computation, the value that the origin has in one of its runs."""
    PART = 1
    """It is a step in computing the origin's value."""
    MADE = 2
    """A rewrite of the origin brought it, though it computes nothing of its value: a loop's state, a layout."""

    def __str__(self) -> str:
        return ("same value", "part of", "made for")[self]


Origins: TypeAlias = "dict[Instruction, Mark]"
"""Origins of an instruction, with the relation to each."""


class Recorder:
    """The edits of one pass. `before`: the instructions that there were when it began."""

    def __init__(self, before: Iterable[Instruction]) -> None:
        self._before = set(before)
        self._from: dict[Instruction, Origins] = {}

    def came_from(self, new: Instruction, old: Instruction, mark: Mark) -> None:
        """`new` comes from `old`."""
        if new is not old:
            known = self._from.setdefault(new, {})
            known[old] = min(mark, known.get(old, mark))

    def replaced(self, old: Instruction, new: Instruction) -> None:
        """`new` stands for `old`; what was made to compute it, and is not accounted for, is part of `old`."""
        pending = [new] if not self._is_known(new) else []
        self.came_from(new, old, Mark.SAME)
        while pending:
            for operand in pending.pop().operands:
                if not self._is_known(operand):
                    self.came_from(operand, old, Mark.PART)
                    pending.append(operand)

    def _is_known(self, instruction: Instruction) -> bool:
        return instruction in self._before or instruction in self._from

    def found(self, module: HloModule) -> dict[Instruction, Origins]:
        """The origins of every instruction that the module has now, among those that there were before."""
        origins: dict[Instruction, Origins] = {}
        for computation in reversed(module.computations()):  # callers first
            for instruction in computation.instructions:
                origins[instruction] = self._resolved(instruction)
        callers = _callers(module)
        for computation in reversed(module.computations()):
            order = computation.post_order()
            for instruction in reversed(order):
                if not origins[instruction]:
                    near = list(instruction.users) or callers.get(computation, [])
                    origins[instruction] = _made_for(near, origins)
            for instruction in order:
                if not origins[instruction]:
                    origins[instruction] = _made_for(instruction.operands, origins)
        return origins

    def _resolved(self, instruction: Instruction) -> Origins:
        """Follows edits back to instructions that were there before."""
        found: Origins = {}
        seen: Origins = {}
        pending = [(instruction, Mark.SAME)]
        while pending:
            one, mark = pending.pop()
            if seen.get(one, 3) <= mark:
                continue
            seen[one] = mark
            if one in self._before:
                found[one] = mark
                if mark is not Mark.SAME:
                    continue
            pending += [(old, max(mark, step)) for old, step in self._from.get(one, {}).items()]
        return found


def _callers(module: HloModule) -> dict[Computation, list[Instruction]]:
    found: dict[Computation, list[Instruction]] = {}
    for computation in module.all_computations:
        for instruction in computation.instructions:
            for callee in instruction.called:
                found.setdefault(callee, []).append(instruction)
    return found


def _made_for(near: Iterable[Instruction], origins: Mapping[Instruction, Origins]) -> Origins:
    """The smallest set of origins of the instructions round one of which no edit told."""
    sets = [found for i in near if (found := origins.get(i))]
    return dict.fromkeys(min(sets, key=len), Mark.MADE) if sets else {}


_ACTIVE: ContextVar[Recorder | None] = ContextVar("hlokit_lineage", default=None)


def active() -> Recorder | None:
    """The recorder that listens in this context, if any."""
    return _ACTIVE.get()


def came_from(new: Instruction, old: Instruction, mark: Mark = Mark.SAME) -> None:
    """Tells a recorder, if one listens, where an instruction comes from: for passes that know more than edits say.

    Parameters
    ----------
    new : Instruction
        The instruction that a pass made.
    old : Instruction
        What it was made of.
    mark : Mark, optional
        How it relates to it.
    """
    recorder = _ACTIVE.get()
    if recorder is not None:
        recorder.came_from(new, old, mark)


@contextmanager
def recording(before: Iterable[Instruction]) -> Generator[Recorder]:
    """A recorder that listens to all edits in this context until the end of the block.

    Parameters
    ----------
    before : iterable of Instruction
        The instructions that origins are to be among.

    Returns
    -------
    context manager of Recorder
        The recorder.
    """
    recorder = Recorder(before)
    token = _ACTIVE.set(recorder)
    try:
        yield recorder
    finally:
        _ACTIVE.reset(token)


@dataclass(frozen=True)
class Origin:
    """An instruction that another comes from or goes to, and how the two relate.

    >>> b = hk.Builder()
    >>> module = b.build(hk.neg(hk.neg(b.parameter(0, hk.f32[2], "x"))))
    >>> hk.optimize(module, lineage=True).lineage.origins("x")[0]
    x: same value
    """

    instruction: Instruction
    mark: Mark

    def __repr__(self) -> str:
        return f"{self.instruction.name}: {self.mark}"


@dataclass(frozen=True)
class Stage:
    """The program after a pass that changed it. `origins`: of its instructions, among those of the stage before."""

    name: str
    module: HloModule
    origins: Mapping[Instruction, Mapping[Instruction, Mark]]


class Lineage:
    """Which instructions of `source` each instruction of `module` comes from.

    Attributes
    ----------
    source : HloModule
        The program as it was given.
    module : HloModule
        The program that was made of it.
    stages : list of Stage
        The program as it was given, and after each pass that changed it, where they were kept.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.parameter(0, hk.f32[2], "x")
    >>> lineage = hk.optimize(b.build(hk.exp(x * 1.0)), lineage=True).lineage
    >>> lineage.origins(lineage.module.entry.root)
    [exponential.4: same value]
    >>> lineage.origins("x")  # x * 1.0 is x
    [x: same value, multiply.3: same value]
    """

    def __init__(
        self,
        source: HloModule,
        module: HloModule,
        origins: Mapping[Instruction, Mapping[Instruction, Mark]],
        stages: Iterable[Stage] = (),
    ) -> None:
        self.source = source
        self.module = module
        self.stages = list(stages)
        self._origins = {i: _listed(found) for i, found in origins.items()}
        self._results: dict[Instruction, list[Origin]] | None = None

    def __repr__(self) -> str:
        counts = [len(found) for found in self._origins.values()]
        return f"<Lineage {self.source.name}: {len(counts)} instructions, at most {max(counts, default=0)} origins>"

    def origins(self, instruction: Instruction | str) -> list[Origin]:
        """The instructions of the source that an instruction of the module comes from, the nearest relation first.

        Parameters
        ----------
        instruction : Instruction or str
            An instruction of the module, or its name.

        Returns
        -------
        list of Origin
            The instructions, each with its mark; never empty.

        Raises
        ------
        ArgumentError
            It is not of this module.
        """
        return self._origins[self._named(self.module, self._origins, instruction)]

    def results(self, instruction: Instruction | str) -> list[Origin]:
        """The instructions of the module that come from an instruction of the source: the other way round.

        Parameters
        ----------
        instruction : Instruction or str
            An instruction of the source, or its name.

        Returns
        -------
        list of Origin
            The instructions, each with its mark; empty where nothing is left of it.

        Raises
        ------
        ArgumentError
            It is not of the source.
        """
        if self._results is None:
            self._results = {}
            for new, found in self._origins.items():
                for origin in found:
                    self._results.setdefault(origin.instruction, []).append(Origin(new, origin.mark))
            for results in self._results.values():
                results.sort(key=lambda origin: origin.mark)
        return self._results.get(self._named(self.source, self._of_source, instruction), [])

    def sizes(self) -> dict[Instruction, int]:
        """The number of origins of each instruction, the most first.

        Returns
        -------
        dict of Instruction to int
            The numbers.
        """
        counts = {i: len(found) for i, found in self._origins.items()}
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    def moved_to(self, module: HloModule, twins: Mapping[Instruction, Instruction]) -> Lineage:
        """The same lineage of another module that the same passes made.

        Parameters
        ----------
        module : HloModule
            The other module.
        twins : mapping of Instruction to Instruction
            The instruction of this lineage's module for each of the other's.

        Returns
        -------
        Lineage
            The lineage, whose last stage stays as it is.
        """
        origins = {i: {o.instruction: o.mark for o in self._origins[twin]} for i, twin in twins.items()}
        return Lineage(self.source, module, origins, self.stages)

    @cached_property
    def _of_source(self) -> set[Instruction]:
        return set(self.source.instructions())

    @staticmethod
    def _named(module: HloModule, members: Collection[Instruction], wanted: Instruction | str) -> Instruction:
        if not isinstance(wanted, str):
            if wanted in members:
                return wanted
            raise ArgumentError(f"%{wanted.name} is not an instruction of this lineage's {module.name}")
        found = next((i for i in module.instructions() if i.name == wanted), None)
        if found is None:
            raise ArgumentError(f"{module.name} has no instruction {wanted!r}")
        return found


def _listed(found: Mapping[Instruction, Mark]) -> list[Origin]:
    return [Origin(i, mark) for i, mark in sorted(found.items(), key=lambda item: item[1])]


def composed(
    later: Mapping[Instruction, Mapping[Instruction, Mark]], earlier: Mapping[Instruction, Mapping[Instruction, Mark]]
) -> dict[Instruction, Origins]:
    """Origins over two rewrites: the farther relation of the two counts, the nearest over all ways."""
    result: dict[Instruction, Origins] = {}
    for new, between in later.items():
        found: Origins = {}
        result[new] = found
        for middle, mark in between.items():
            for old, first in earlier[middle].items():
                both = max(mark, first)
                found[old] = min(both, found.get(old, both))
    return result


def cloned(module: HloModule) -> tuple[HloModule, dict[Instruction, Origins]]:
    """A copy of a module, and the instruction that each of its instructions copies."""
    with recording(i for c in module.all_computations for i in c.instructions) as recorder:
        copy = module.clone()
    return copy, recorder.found(copy)


def identity(module: HloModule) -> dict[Instruction, Origins]:
    """Each instruction is its own origin."""
    return {i: {i: Mark.SAME} for c in module.all_computations for i in c.instructions}
