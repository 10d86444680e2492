"""Store: values by name, with which processes find each other."""

from __future__ import annotations

from typing import Protocol


class Store(Protocol):
    """Values by name, which all processes share. EvaluationError: it cannot be reached any more."""

    def put(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, seconds: float) -> bytes | None:
        """The value, once there is one; None if there is none in time."""
        ...
