"""Deadline: a hook of the interpreter that ends a run which takes too long."""

from __future__ import annotations

import time
from typing import Any

from hlokit.errors import EvaluationError


class Deadline:
    """`before=Deadline(10)`: EvaluationError after 10 seconds. A program that was changed may loop for ever."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = time.monotonic() + seconds

    def __call__(self, *_: Any) -> None:
        if time.monotonic() > self.end:
            raise EvaluationError(f"the reference has no result within {self.seconds:g} s")
