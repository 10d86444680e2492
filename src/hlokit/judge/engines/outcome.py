"""Outcome: the result of running a program on an engine, or the way in which it failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Status = Literal["ok", "error", "unsupported", "crash", "timeout"]


@dataclass(frozen=True)
class Outcome:
    """A run of a program.

    status    "ok"; "error": the engine refused or failed with a message; "unsupported": it said that it lacks
              something; "crash": its process ended; "timeout": it took longer than it may
    leaves    the arrays of the result, in order; empty unless it is ok
    message   what the engine said, or how its process ended
    seconds   from the request to the answer
    printed   the end of what a command printed, or a process that ended
    """

    status: Status
    leaves: tuple[np.ndarray[Any, Any], ...] = ()
    message: str = ""
    seconds: float = 0.0
    printed: str = ""

    def __str__(self) -> str:
        return self.status + (f": {self.message}" if self.message else "")
