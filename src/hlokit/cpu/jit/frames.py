"""Stack frames: the stack that LLVM text takes by `alloca`, along the calls among its functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

from hlokit.cpu.llvm import SYMBOL

OWN = 1 << 15
"""Bytes for all that text does not show: saved registers, C's functions, the pool's."""
_ALLOCA = re.compile(r" = alloca (.+?)(?:, i64 (\d+))?, align \d+$", re.MULTILINE)
_COUNT = re.compile(r"(\d+) x ")
_BYTES = {"i1": 1, "i8": 1, "i16": 2, "half": 2, "i32": 4, "float": 4, "i64": 8, "double": 8, "ptr": 8}


def frame(text: str) -> int:
    """Bytes that a function's text asks for, or a whole text's functions together."""
    return sum(
        prod(map(int, _COUNT.findall(type))) * _BYTES[_COUNT.sub("", type).strip("<[]> ")] * int(count or 1)
        for type, count in _ALLOCA.findall(text)
    )


def deepest(functions: Mapping[str, str], name: str) -> int:
    """Bytes that the function `name` and those that it calls ask for at most at a time. `functions`: all, by name."""
    found: dict[str, int] = {}
    callees: dict[str, list[str]] = {}
    stack = [name]
    while stack:
        one = stack[-1]
        if one not in callees:
            callees[one] = [c for c in dict.fromkeys(SYMBOL.findall(functions[one])) if c in functions and c != one]
            stack += [c for c in callees[one] if c not in callees]
        else:
            stack.pop()
            found[one] = frame(functions[one]) + max((found.get(c, 0) for c in callees[one]), default=0)
    return found[name]
