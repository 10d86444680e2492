"""The search of a reduction: delta debugging over the edits of a program."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.judge.deadline import Deadline
from hlokit.judge.reduce.case import Case, fitted
from hlokit.judge.reduce.edits import EDITS, BecomeRoot, Edit

_REFERENCE_LIMIT = 60.0
"""Seconds that the reference may take for the values that take the place of instructions."""
Check = Callable[..., bool]
"""is_bad(module), or is_bad(module, *arguments) where a reduction has arguments: whether the fault shows."""


@dataclass(frozen=True)
class Step:
    """An edit that kept the fault: its name, at how many places, and the size of the module after it."""

    edit: str
    places: int
    size: int


@dataclass
class Reduction:
    """The result of `hk.reduce_module`.

    Attributes
    ----------
    module : HloModule
        The smallest program found that shows the fault.
    arguments : list or None
        Its arguments, if any were given.
    steps : list of Step
        The edits that led there.
    tries : int
        The number of programs that were checked.
    is_complete : bool
        Whether no edit makes it smaller; False if the time limit ended the search.
    """

    module: HloModule
    arguments: list[Any] | None = None
    steps: list[Step] = field(default_factory=list[Step])
    tries: int = 0
    is_complete: bool = False

    def __repr__(self) -> str:
        size = sum(len(c) for c in self.module.all_computations)
        end = "" if self.is_complete else ", the time limit ended it"
        return f"<Reduction to {size} instructions in {len(self.steps)} steps of {self.tries} tries{end}>"


def reduce_module(
    module: HloModule,
    is_bad: Check,
    arguments: Sequence[Any] | None = None,
    time_limit: float | None = None,
    on_step: Callable[[Step, HloModule, list[Any] | None], None] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Reduction:
    """A smaller program that shows the same fault, within seconds of the clock's: see `hk.reduce_module`."""
    given = None if arguments is None else list(arguments)
    start = Case(module.clone(), given, {} if given is None else _values(module, given))
    start.module.settle()
    if time_limit is not None and time_limit <= 0:
        raise ArgumentError(f"time_limit: found {time_limit}, expected seconds above 0")
    search = _Search(start, is_bad, time_limit, on_step, clock)
    if not search.shows(start):
        raise ArgumentError(f"is_bad is False of {module.name} itself: there is no fault to keep")
    search.run()
    best = search.best
    return Reduction(best.module, best.arguments, search.steps, search.tries, search.is_complete)


def _values(module: HloModule, arguments: Sequence[Any]) -> dict[str, Any]:
    """The values of the entry's instructions on the reference, as far as it gets."""
    from hlokit.devices.evaluate import evaluate

    values: dict[str, Any] = {}

    def keep(instruction: Instruction, value: tuple[Any, ...]) -> None:
        if instruction.parent is module.entry:
            values[instruction.name] = value[0]

    with suppress(HlokitError):
        evaluate(module, *arguments, before=Deadline(_REFERENCE_LIMIT), after=keep)
    return values


class _TimeIsUp(Exception):
    """The time limit has passed."""


class _Search:
    def __init__(
        self,
        start: Case,
        is_bad: Check,
        time_limit: float | None,
        on_step: Callable[..., None] | None,
        clock: Callable[[], float],
    ) -> None:
        self.best = start
        self.is_bad = is_bad
        self.clock = clock
        self.end = None if time_limit is None else clock() + time_limit
        self.on_step = on_step
        self.steps: list[Step] = []
        self.tries = 0
        self.is_complete = False
        self.tried: set[int] = set()

    def run(self) -> None:
        try:
            self._keep_unused()
            self._enter_called()
            self._bisect_root()
            while sum(self._over(edit) for edit in EDITS):
                pass
            self.is_complete = True
        except _TimeIsUp:
            pass

    def shows(self, case: Case) -> bool:
        """Whether the fault shows. The check gets a copy, which it may change."""
        if self.end is not None and self.clock() > self.end:
            raise _TimeIsUp
        self.tries += 1
        return bool(self.is_bad(case.module.clone(), *(case.arguments or ())))

    def _keep_unused(self) -> None:
        """Makes a value that nothing uses the result, if it shows the fault: other edits would remove it as dead."""
        entry = self.best.module.entry
        unused = [i.name for i in entry.instructions if not i.users and i is not entry.root and not i.shape.is_token]
        for name in unused:
            case = self.best.copy()
            instruction = case.find(entry.name, name)
            if instruction is not None and instruction.opcode != "parameter":
                case.module.entry.set_root(instruction)
                if self._accept(case, BecomeRoot.name, 1):
                    return

    def _enter_called(self) -> None:
        """Makes a called computation the program, if the fault is in what no result needs, which other edits remove."""
        live = self.best.copy()
        if not live.finish() or live.key == self.best.key or self.shows(live):
            return
        for computation in sorted(self.best.module.computations(), key=len):
            if computation is self.best.module.entry:
                continue
            unused = [i.name for i in computation.instructions if not i.users and i is not computation.root]
            for name in (computation.root.name, *unused):
                if self._accept_entry(computation.name, name):
                    return

    def _accept_entry(self, computation: str, root: str) -> bool:
        """Takes a called computation for the program, one of its values for the result; its arguments are ones."""
        case = self.best.copy()
        instruction = case.find(computation, root)
        if instruction is None or instruction.parent is None or instruction.shape.is_token:
            return False
        case.module.entry_or_none = instruction.parent
        instruction.parent.set_root(instruction)
        if case.arguments is not None:
            case.arguments = [fitted(None, p.shape) for p in instruction.parent.parameters]
        case.values = {}
        return self._accept(case, "entry", 1)

    def _bisect_root(self) -> None:
        """Makes the earliest value that shows the fault the result, if all later ones do: most often they do."""
        order = [i.name for i in self.best.module.entry.post_order() if not i.shape.is_token]
        low, high = 0, len(order) - 1
        entry = self.best.module.entry.name
        while low < high:
            middle = (low + high) // 2
            case = self.best.copy()
            instruction = case.find(entry, order[middle])
            if instruction is not None and instruction is not case.module.entry.root:
                case.module.entry.set_root(instruction)
                if self._accept(case, BecomeRoot.name, 1):
                    high = middle
                    continue
            low = middle + 1

    def _over(self, edit: Edit) -> bool:
        """Tries an edit at all its places, at half of them, and so on to one at a time. Whether any was kept."""
        kept = False
        sites = list(edit.sites(self.best))
        size = len(sites)
        while size:
            first = 0
            while first < len(sites):
                if self._at(edit, sites[first : first + size]):
                    kept = True
                first += size
            if size == 1:
                break
            size = (size + 1) // 2
            sites = list(edit.sites(self.best))
            size = min(size, len(sites))
        return kept

    def _at(self, edit: Edit, sites: Sequence[Any]) -> bool:
        case = self.best.copy()
        done = 0
        for site in sites:
            try:
                done += edit.apply(case, site)
            except HlokitError:
                if len(sites) == 1:
                    return False
        return bool(done) and self._accept(case, edit.name, done)

    def _accept(self, case: Case, edit: str, places: int) -> bool:
        """Takes a case for the best one, if it is legal, was not tried before and shows the fault."""
        if not case.finish():
            return False
        key = hash(case.key)
        if key in self.tried:
            return False
        self.tried.add(key)
        if not self.shows(case):
            return False
        self.best = case
        step = Step(edit, places, case.size)
        self.steps.append(step)
        if self.on_step is not None:
            self.on_step(step, case.module.clone(), case.arguments)
        return True
