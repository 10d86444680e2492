"""The smallest program that shows a finding: a reduction that starts with the kernel or instruction that was named."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hlokit.devices.evaluate import evaluate
from hlokit.errors import HlokitError
from hlokit.hlo.module import HloModule
from hlokit.judge.closeness.equality import differs, leaves
from hlokit.judge.closeness.spread import near, rules_that_allow
from hlokit.judge.compare.comparing import EXACT, Comparison, Judgement, is_foreign, kind_of
from hlokit.judge.deadline import Deadline
from hlokit.judge.devices import devices_of
from hlokit.judge.engines.engine import Engine
from hlokit.judge.extract import extracted
from hlokit.judge.reduce.case import Case
from hlokit.judge.reduce.search import Reduction, reduce_module

_LEAST_LIMIT = 2.0
"""Seconds that a run of a reduction may take at least."""
_REFERENCE_LIMIT = 20.0
"""Seconds that the reference may take for the program that a reduction begins with."""
_MORE, _LEAST_STEPS = 10, 1000
"""The reference of a smaller program may run this many times the instructions of the first, and so many more."""
_MEMORY = 1 << 30
"""Bytes that the reference may take for an array of a program that is tried."""


class Shows:
    """Whether an engine shows a finding on a program: it fails with the same message but for names and numbers, or its
    result differs from the reference's by more than rounding or a rule lets it.

    A program with a loop whose reference takes many times the instructions of the first one does not show it: what a
    reduction makes of a loop may never end, and an engine that runs it would have to be ended and started again.
    """

    def __init__(self, judgement: Judgement, engine: Engine) -> None:
        self.engine = engine
        self.failure = "" if judgement.outcome.status == "ok" else kind_of(str(judgement.outcome))
        self.foreign = is_foreign(engine)
        self.exact = engine.name.partition("@")[0] in EXACT
        self.seconds = _REFERENCE_LIMIT
        """That the reference may take: of smaller programs a few times what it took before."""
        self.steps: int | None = None
        """Instructions that the reference may run."""

    def __call__(self, module: HloModule, *arguments: Any) -> bool:
        expected: tuple[Any, ...] | None = None
        if not self.failure or any(i.opcode == "while" for i in module.instructions()):
            start, ends = time.monotonic(), Deadline(self.seconds, self.steps)
            try:
                expected = tuple(leaves(evaluate(module, *arguments, memory_limit=_MEMORY, before=ends)))
            except HlokitError:
                if ends.has_ended or not self.failure:
                    return False
            self.seconds = min(self.seconds, max(_LEAST_LIMIT, 10 * (time.monotonic() - start)))
            self.steps = self.steps or _MORE * ends.taken + _LEAST_STEPS
        outcome = self.engine.run(module, arguments)
        if self.failure or outcome.status != "ok":
            return outcome.status != "ok" and kind_of(str(outcome)) == self.failure
        return expected is not None and self._is_wrong(module, arguments, expected, outcome.leaves)

    def _is_wrong(
        self, module: HloModule, arguments: Sequence[Any], expected: tuple[Any, ...], found: tuple[Any, ...]
    ) -> bool:
        if len(expected) != len(found) or differs(found, expected) is None:
            return False
        if self.exact:
            return True
        try:
            if near(found, expected, module, arguments, 0, seconds=self.seconds) is None:
                return False
            return not self.foreign or not rules_that_allow(found, expected, module, arguments, self.seconds)
        except HlokitError:
            return False


def least(
    comparison: Comparison,
    judgement: Judgement,
    engine: Engine,
    time_limit: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Reduction:
    """The least program found that shows a finding of a comparison on the engine, in so many seconds of the clock's.

    Programs for several devices stay as they are.
    Begins with the kernel or the instruction that the judgement names, if it shows the fault by itself.

    Raises ArgumentError if the program does not show it again.
    """
    limit = engine.seconds
    if judgement.outcome.status != "timeout":  # what a reduction tries may never end
        engine.seconds = min(limit, max(_LEAST_LIMIT, 10 * judgement.outcome.seconds))
    try:
        return _least(comparison, judgement, Shows(judgement, engine), time_limit, clock)
    finally:
        engine.seconds = limit


def _least(
    comparison: Comparison, judgement: Judgement, shows: Shows, time_limit: float | None, clock: Callable[[], float]
) -> Reduction:
    if devices_of(comparison.module) > 1:
        return Reduction(comparison.module, list(comparison.arguments))
    for case in _parts(comparison, judgement):
        if shows(case.module, *(case.arguments or ())):
            return reduce_module(case.module, shows, case.arguments, time_limit, clock=clock)
    if not shows(comparison.module, *comparison.arguments):
        shows.engine.restart()  # what earlier programs left in memory may hide a fault
    return reduce_module(comparison.module, shows, comparison.arguments, time_limit, clock=clock)


def _parts(comparison: Comparison, judgement: Judgement) -> Iterator[Case]:
    """The kernel and the instruction that the judgement names, as programs of their own."""
    if judgement.part is not None:
        yield judgement.part
    name = judgement.instruction.removeprefix("ROOT ").partition(" ")[0]
    if name:
        try:
            yield extracted(comparison.module, name, arguments=comparison.arguments)
        except HlokitError:
            return
