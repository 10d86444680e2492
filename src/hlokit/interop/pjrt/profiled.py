"""Profiled programs (HLOKIT_PROFILE): the time of each step over all calls, in a table that is written at exit."""

from __future__ import annotations

import atexit
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from hlokit.errors import ArgumentError
from hlokit.hlo.computation import counted
from hlokit.interop.pjrt.kept import compiled
from hlokit.interop.pjrt.running import Compiled, Runner, profile_file
from hlokit.runtime.profile import StepLog, StepProfile, step_profiles, table_of, time_text

if TYPE_CHECKING:
    from hlokit.cpu.emit.traced import Traced
    from hlokit.interop.pjrt.programs import Program
    from hlokit.runtime.executable import Executable

_STEPS = 30
"""Steps that the table shows."""
_PROGRAMS = 10
"""Programs that it shows."""


@dataclass(frozen=True)
class _Timed:
    """A program whose steps are timed."""

    executable: Executable
    traced: Traced
    log: StepLog

    def steps(self) -> list[StepProfile]:
        """Its steps, with their times and runs in all calls so far."""
        sums = self.log.sums()
        return step_profiles(self.executable, self.traced, sums[:, 0] * 1e-9, sums[:, 1])


_programs: list[_Timed] = []


def profiled(program: Program) -> Runner:
    """Runs the program's machine code on one device, and times its steps.

    ArgumentError: the file for the table cannot be written.
    """
    from hlokit.cpu.emit.traced import timed
    from hlokit.runtime.instrumented import twin

    _write_at_exit(profile_file())
    executable = compiled(program).executable
    assert executable is not None
    traced = timed(executable.program, executable.target)
    log = StepLog(len(traced.steps), 0)
    _programs.append(_Timed(executable, traced, log))
    return Compiled(program, twin(executable, traced, (log.address,), log))


@cache
def _write_at_exit(file: str) -> None:
    """Once for a file, with the first program: the time since then is that of the script. ArgumentError for a file that
    cannot be written."""
    path, start = Path(file), time.perf_counter()
    try:
        path.write_text("", encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"HLOKIT_PROFILE={file!r}: {error.strerror}, expected a file that can be written") from None
    atexit.register(lambda: path.write_text(report(time.perf_counter() - start), encoding="utf-8"))


def report(seconds: float) -> str:
    """The programs and steps that took the most of so many seconds."""
    steps = [(each, each.steps()) for each in _programs]
    found = [(each.executable.source.name, own) for each, own in steps if any(step.runs for step in own)]
    whole = sum(step.seconds for _, own in found for step in own)
    programs = counted(len(found), "program")
    lines = [f"{time_text(whole)} in the steps of {programs}, of {time_text(seconds)} since the first was compiled"]
    times = [(sum(step.seconds for step in own), name, own) for name, own in found]
    times.sort(key=lambda one: (-one[0], one[1]))
    for took, name, own in times[:_PROGRAMS]:
        calls = max((step.runs for step in own if not step.around), default=0)
        lines.append(f"  {took / (whole or 1):4.0%}  {name}: {time_text(took)} in {counted(calls, 'call')}")
    if len(times) > _PROGRAMS:
        lines.append(f"  ... {len(times) - _PROGRAMS} more")
    rows = [(name, step) for name, own in found for step in own if step.runs]
    return "\n".join(lines) + "\n\n" + table_of(rows, _STEPS)
