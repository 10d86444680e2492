"""Unique names: one that occurs twice gets a number, as XLA's parser gives it (HCOMP-10)."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """Gives each name once: a second `x` becomes `x.1`, a second `x.3` the next free `x.N`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        for name in taken:
            self.unique(name)

    def unique(self, name: str) -> str:
        """`name`, if nobody has it, else its root with the least free number."""
        root, number, written = _split(name)
        used = self._used.setdefault(root, set())
        if number in used:
            number = self._next.get(root, 0)
            while number in used:
                number += 1
            self._next[root] = number + 1
        used.add(number)
        if number == 0:
            return f"{root}.0" if written else root
        return f"{root}.{number}"


def _split(name: str) -> tuple[str, int, bool]:
    """Root, numeric suffix (0 without) and whether there was one."""
    root, dot, suffix = name.rpartition(".")
    if root and dot and suffix.isdecimal() and len(suffix) < 19:
        return root, int(suffix), True
    return name, 0, False
