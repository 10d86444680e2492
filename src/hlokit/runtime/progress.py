"""Progress: the stages of a compilation, which check whether it is still wanted, and a line on the terminal where it
takes more than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from hlokit.forks import lock

AFTER = 1.0
"""Seconds."""


_check: ContextVar[Callable[[], None]] = ContextVar("check", default=lambda: None)


@contextmanager
def checked(check: Callable[[], None]) -> Generator[None]:
    """Compilations in this block call `check` between their stages: it may raise."""
    token = _check.set(check)
    try:
        yield
    finally:
        _check.reset(token)


def next_stage() -> None:
    """A stage of a compilation has ended, and another begins."""
    _check.get()()


class Say(Protocol):
    """Told the stage that begins, and the seconds of processor time that it takes if there is an estimate."""

    def __call__(self, stage: str, work: float = 0.0) -> None: ...


@contextmanager
def progress(name: str) -> Generator[Say]:
    """Gives a function that is told what is going on. Only where standard error is a terminal."""
    try:
        is_terminal = sys.stderr.isatty()
    except (AttributeError, ValueError):  # closed, or none
        is_terminal = False
    if not is_terminal:
        yield silent
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


def silent(stage: str, work: float = 0.0) -> None:
    """Says nothing."""


class _Line:
    def __init__(self, name: str) -> None:
        self.name = name
        self._stage = "passes"
        self._work = self._start = self._spent = 0.0
        self._status: Any = None
        self._done = False
        self._lock = lock()

    def say(self, stage: str, work: float = 0.0) -> None:
        self._stage, self._work = stage, work
        self._start, self._spent = time.monotonic(), time.process_time()

    def start(self) -> None:
        from rich.console import Console

        with self._lock:
            if not self._done:
                self._status = Console(stderr=True).status(self)
                self._status.start()

    def stop(self) -> None:
        with self._lock:
            self._done = True
            if self._status is not None:
                self._status.stop()

    def __rich__(self) -> str:
        """The line as it is now: the spinner asks for it several times a second."""
        from rich.markup import escape

        done = time.process_time() - self._spent
        left = (self._work - done) / max(done, 1e-3) * (time.monotonic() - self._start)
        estimate = f", about {left:.0f} s left" if left > 1 else ""
        return f"compiling {escape(self.name)}: {escape(self._stage)}{estimate}"
