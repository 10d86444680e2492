"""Progress: a bar with the remaining time of long work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

Advance = Callable[..., None]
"""Called as advance(done, text=...): the total amount done so far, and the current work."""


@contextmanager
def progress(what: str, total: float | None) -> Generator[Advance]:
    """A bar on standard error, if that is a terminal; it is removed when the work is done.

    `total`: the amount of work; None if it is unknown, in which case the bar only shows activity.
    """
    if not is_terminal():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = [TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeElapsedColumn()]
    columns += [TextColumn("left"), TimeRemainingColumn()] if total is not None else []
    with Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        task = bar.add_task(what, total=total)

        def advance(done: float, text: str = "") -> None:
            bar.update(task, completed=done, description=f"{what}: {text}" if text else what)

        yield advance


def _nothing(done: float, text: str = "") -> None:
    pass


def is_terminal() -> bool:
    """Whether bars are shown: standard error is a terminal."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # closed, or none
        return False
