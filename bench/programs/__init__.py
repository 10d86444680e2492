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
    training,
    transcendental,
)
from bench.programs.held_out import HELD_OUT
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
CATEGORIES = tuple(dict.fromkeys(program.category for program in PROGRAMS))


def named(name: str) -> Program:
    """A program of the list, or held out, or FAMILY@SIZE of those that come in sizes, or training/LOOP."""
    if name.startswith("training/"):
        return training.named(name)
    if "@" in name:
        return growth.named(name)
    held_out = {program.name: program for programs in HELD_OUT.values() for program in programs}
    return (BY_NAME | held_out)[name]


def select(only: str | None = None, categories: tuple[str, ...] = (), quick: bool = False) -> list[Program]:
    """Programs whose name holds the regular expression `only`, of these categories (none named: of all)."""
    return [
        program
        for program in PROGRAMS
        if (only is None or re.search(only, program.name))
        and (not categories or program.category in categories)
        and (program.quick or not quick)
    ]
