"""Programs with next to no work: what a call costs."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.programs.program import Program


def add(a: Any, b: Any) -> Any:
    return a + b


def add_one(*arguments: Any) -> Any:
    return tuple(x + 1 for x in arguments)


PROGRAMS = (
    Program("dispatch", "tiny_add_1elt", lambda draw: (np.float32(1), np.float32(2)), add, numpy=add, torch=add),
    Program(
        "dispatch", "tiny_20args", lambda draw: tuple(draw.normal(4) for _ in range(20)), add_one,
        numpy=add_one, torch=add_one,
    ),
)  # fmt: skip
