"""The programs, in the order of the report. Names and work are those of the table measured before hlokit existed."""

from __future__ import annotations

import re

from bench.programs import (
    app,
    convolution,
    dispatch,
    elementwise,
    fft,
    gather,
    gemm,
    growth,
    held_out,
    held_out_again,
    linalg,
    loop,
    model,
    movement,
    pool,
    random,
    reduction,
    scan,
    scatter,
    sort,
    transcendental,
)
from bench.programs.program import Program

PROGRAMS: tuple[Program, ...] = (
    *elementwise.PROGRAMS,
    *transcendental.PROGRAMS,
    *movement.PROGRAMS,
    *reduction.PROGRAMS,
    *gemm.PROGRAMS,
    *convolution.PROGRAMS,
    *pool.PROGRAMS,
    *model.PROGRAMS,
    *loop.PROGRAMS,
    *scan.PROGRAMS,
    *sort.PROGRAMS,
    *gather.PROGRAMS,
    *scatter.PROGRAMS,
    *random.PROGRAMS,
    *fft.PROGRAMS,
    *linalg.PROGRAMS,
    *dispatch.PROGRAMS,
    *app.PROGRAMS,
)

BY_NAME = {program.name: program for program in PROGRAMS}
HELD_OUT = tuple(held_out.PROGRAMS)
HELD_OUT_AGAIN = tuple(held_out_again.PROGRAMS)
CATEGORIES = tuple(dict.fromkeys(program.category for program in PROGRAMS))


def named(name: str) -> Program:
    """A program of the list, or held out, or FAMILY@SIZE of those that come in sizes."""
    if "@" in name:
        return growth.named(name)
    return BY_NAME.get(name) or next(program for program in (*HELD_OUT, *HELD_OUT_AGAIN) if program.name == name)


def select(only: str | None = None, categories: tuple[str, ...] = (), quick: bool = False) -> list[Program]:
    """Programs whose name holds the regular expression `only`, of these categories (none named: of all)."""
    return [
        program
        for program in PROGRAMS
        if (only is None or re.search(only, program.name))
        and (not categories or program.category in categories)
        and (program.quick or not quick)
    ]
