"""Programs that were written after a round of work on speed, to see what it was worth, forty each time."""

from __future__ import annotations

from bench.programs.held_out import first, second, third
from bench.programs.program import Program

HELD_OUT: dict[int, tuple[Program, ...]] = {
    1: tuple(first.PROGRAMS),
    2: tuple(second.PROGRAMS),
    3: tuple(third.PROGRAMS),
}
