"""Trivial programs: an engine that fails on them fails on every program."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.hlo.module import HloModule
from hlokit.judge.engines.engine import Engine
from hlokit.judge.engines.outcome import Outcome
from hlokit.text.parser import parse_hlo

_TEXTS = (
    "HloModule constant\nENTRY e { ROOT c = f32[] constant(1) }",
    "HloModule sum\nENTRY e { x = f32[2] parameter(0) ROOT s = f32[2] add(x, x) }",
)


def trivial_programs() -> list[tuple[HloModule, list[Any]]]:
    """Programs that have no instruction in common, with arguments: a constant, and a sum."""
    constant, total = map(parse_hlo, _TEXTS)
    return [(constant, []), (total, [np.array([1, 2], np.float32)])]


def fails_always(engine: Engine) -> Outcome | None:
    """The engine's outcome for a trivial program, if it gives results of none; else None."""
    outcome = Outcome("ok")
    for module, arguments in trivial_programs():
        outcome = engine.run(module, arguments)
        if outcome.status == "ok":
            return None
    return outcome
