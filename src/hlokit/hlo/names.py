"""Names that are valid in HLO text, and unique names: a repeated one is given a number (HCOMP-10)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from hlokit.types.dtype import DTYPES

KEYWORDS = frozenset(
    {
        "true", "false", "inf", "nan", "HloModule", "ENTRY", "ROOT", "maximal", "replicated", "manual", "unreduced",
        "unknown", "last_tile_dim_replicate", "shard_as", "shard_like", "FileNames", "FunctionNames", "FileLocations",
        "StackFrames",
    }
)  # fmt: skip
"""Words that are not names unless written with % (LEX-8)."""
RESERVED = frozenset(DTYPES) - {"tuple", "buffer"}
"""Names that an instruction cannot have (LEX-9)."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*+\Z")
_NO_CHARACTER = re.compile(r"[^A-Za-z0-9_.\-]")


def is_identifier(name: str) -> bool:
    """Whether `name` is written as names are (LEX-4)."""
    return _IDENTIFIER.match(name) is not None


@lru_cache(1 << 16)
def identifier(name: str) -> str:
    """`name` if HLO text can hold it (LEX-4), else the nearest name that it can, with `_` for other characters.

    >>> identifier("jit(f)"), identifier("0th"), identifier("f32")
    ('jit_f_', '_th', 'f32_')
    """
    if not is_identifier(name):
        name = _NO_CHARACTER.sub("_", name)
        name = name if name[:1].isalpha() or name[:1] == "_" else f"_{name[1:]}"
    return f"{name}_" if name in KEYWORDS or name in RESERVED else name


class Names:
    """Gives each name once: a second `x` becomes `x.1`, a second `x.3` the next free `x.N`."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._used: dict[str, set[int]] = {}
        self._next: dict[str, int] = {}
        for name in taken:
            self.unique(name)

    def unique(self, name: str) -> str:
        """`name`, if nobody has it, else its root with the least free number."""
        return self._free(*_split(name))

    def valid(self, name: str) -> str:
        """The same of `identifier(name)`."""
        return self._free(*_split_identifier(name))

    def _free(self, root: str, number: int, own: str) -> str:
        used = self._used.get(root)
        if used is None:
            self._used[root] = {number}
            return own
        if number not in used:
            used.add(number)
            return own
        number = self._next.get(root, 0)
        while number in used:
            number += 1
        self._next[root] = number + 1
        used.add(number)
        return f"{root}.{number}" if number else root if own == root else f"{root}.0"


@lru_cache(1 << 16)  # names are made unique after each pass
def _split(name: str) -> tuple[str, int, str]:
    """Root, numeric suffix (0 without), and the name of both."""
    root, dot, suffix = name.rpartition(".")
    if root and dot and suffix.isdecimal() and len(suffix) < 19:
        return root, int(suffix), f"{root}.{int(suffix)}"
    return name, 0, name


@lru_cache(1 << 16)
def _split_identifier(name: str) -> tuple[str, int, str]:
    return _split(identifier(name))
