"""Progress: a line on the terminal while a compile goes on for more than a second."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from hlokit.forks import lock

AFTER = 1.0
"""Seconds."""


@contextmanager
def progress(name: str) -> Generator[Callable[[str], None], None, None]:
    """Gives a function that is told what is going on. Only where standard error is a terminal."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # closed, or none
        is_terminal = False
    if not is_terminal:
        yield lambda stage: None
        return
    line = _Line(name)
    timer = threading.Timer(AFTER, line.start)
    timer.daemon = True
    timer.start()
    try:
        yield line.say
    finally:
        timer.cancel()
        line.stop()


class _Line:
    def __init__(self, name: str) -> None:
        self.name = name
        self._text = "passes"
        self._status: Any = None
        self._done = False
        self._lock = lock()

    def say(self, stage: str) -> None:
        with self._lock:
            self._text = stage
            if self._status is not None:
                self._status.update(self._shown())

    def start(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._done:
                self._status = Console(stderr=True).status(self._shown())
                self._status.start()

    def stop(self) -> None:
        with self._lock:
            self._done = True
            if self._status is not None:
                self._status.stop()

    def _shown(self) -> str:
        from rich.markup import escape

        return f"compiling {escape(self.name)}: {escape(self._text)}"
