"""A stand-in for the package hlokit that only writes down what is called: to try the player without the library."""

from __future__ import annotations

from typing import Any


class Handle:
    """What a call returns: its text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Recorder:
    """Has every attribute; each is a function that records its call in `calls`."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.count = 0

    def Builder(self, name: str) -> Recorder:
        del name
        return self

    def __getattr__(self, name: str) -> Any:
        def record(*arguments: Any, **keywords: Any) -> Handle:
            given = [repr(value) for value in arguments] + [f"{key}={value!r}" for key, value in keywords.items()]
            self.calls.append(f"{name}({', '.join(given)})")
            self.count += 1
            return Handle(f"v{self.count}")

        if name.startswith("__"):
            raise AttributeError(name)
        return record
