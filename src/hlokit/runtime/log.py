"""hlokit's logger. The module `logging` is imported when there is something to say: it would cost every start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from logging import Logger


def logger() -> Logger:
    """The logger named hlokit."""
    import logging

    return logging.getLogger("hlokit")
