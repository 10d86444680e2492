"""Stack frames: the stack that functions take by `alloca`, along the calls among them."""

from __future__ import annotations

from collections.abc import Mapping

from hlokit.cpu.llvm import Definition

OWN = 1 << 15
"""Bytes for all that LLVM IR does not show: saved registers, C's functions, the pool's."""


def deepest(functions: Mapping[str, Definition], name: str) -> int:
    """Bytes that the function `name` and those that it calls ask for at most at a time. `functions`: all, by name."""
    found: dict[str, int] = {}
    callees: dict[str, list[str]] = {}
    stack = [name]
    while stack:
        one = stack[-1]
        if one not in callees:
            callees[one] = [c for c in functions[one].symbols if c in functions and c != one]
            stack += [c for c in callees[one] if c not in callees]
        else:
            stack.pop()
            found[one] = functions[one].stack + max((found.get(c, 0) for c in callees[one]), default=0)
    return found[name]
