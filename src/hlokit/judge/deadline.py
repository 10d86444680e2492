"""Deadline: a hook of the interpreter that stops a run that takes too long."""

from __future__ import annotations

import time
from typing import Any

from hlokit.errors import EvaluationError


class Deadline:
    """`before=Deadline(10)`: EvaluationError after 10 seconds. A program that was changed may loop for ever.

    steps      the instructions that may run, those of loops as often as they run; None: any number
    taken      those that ran
    has_ended  whether it has ended the run
    """

    def __init__(self, seconds: float, steps: int | None = None) -> None:
        self.seconds, self.steps = seconds, steps
        self.end = time.monotonic() + seconds
        self.taken = 0
        self.has_ended = False

    def __call__(self, *_: Any) -> None:
        self.taken += 1
        if time.monotonic() > self.end:
            self.has_ended = True
            raise EvaluationError(f"the reference has no result within {self.seconds:g} s")
        if self.steps is not None and self.taken > self.steps:
            self.has_ended = True
            raise EvaluationError(f"the reference has no result within {self.steps:,} instructions")
