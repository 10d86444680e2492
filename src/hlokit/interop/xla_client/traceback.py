"""Traceback: a switch that exists for programs that set it. No tracebacks are collected."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager


class Traceback:
    enabled = True

    @staticmethod
    def get_traceback() -> None:
        return None


@contextmanager
def tracebacks(enabled: bool = True) -> Generator[None]:
    """Sets Traceback.enabled inside the block."""
    saved = Traceback.enabled
    Traceback.enabled = enabled
    try:
        yield
    finally:
        Traceback.enabled = saved
