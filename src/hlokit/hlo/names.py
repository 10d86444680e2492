"""Unique names: a name that is taken gets a numeric suffix (HCOMP-10)."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SUFFIX = re.compile(r"\.([0-9]+)$")


class Names:
    """The names in use, and the next free number for each stem."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """`wanted` if it is free, else its stem with the next free number: add, add.1, add.2, ..."""
        name = wanted
        if name in self._taken:
            stem = _SUFFIX.sub("", wanted)
            number = self._next.get(stem, 1)
            while f"{stem}.{number}" in self._taken:
                number += 1
            self._next[stem] = number + 1
            name = f"{stem}.{number}"
        self._taken.add(name)
        return name
