"""Modules in the writing: functions, tables and declarations by name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from hlokit.cpu.llvm.function import Function
from hlokit.cpu.llvm.types import float_constant

SYMBOL = re.compile(r"@([\w.$]+)")
"""The name of a function or a global."""


class Module:
    """An LLVM module in the writing. Intrinsics need no declaration."""

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.exported: dict[str, None] = {}
        self.declared: dict[str, str] = {}

    def add(self, function: Function, *, exported: bool = False) -> None:
        """Takes a finished function. Equal names must mean equal functions; an exported one can be looked up."""
        self.add_text(function.name, function.text(), exported=exported)

    def add_text(self, name: str, text: str, *, exported: bool = False) -> None:
        if self.functions.setdefault(name, text) != text:
            raise AssertionError(f"two functions named {name}")
        if exported:
            self.exported[name] = None

    def declare(self, name: str, parameters: Sequence[str]) -> None:
        """A function of C that whoever loads the code must know, of no result."""
        self.declared[name] = f"declare void @{name}({', '.join(parameters)})"

    def table(self, name: str, scalar: str, values: Iterable[Any]) -> str:
        """A constant array; gives its name with @."""
        shown = [float_constant(v, scalar) if scalar in ("float", "double", "half") else str(int(v)) for v in values]
        rows = ", ".join(f"{scalar} {v}" for v in shown)
        text = f"@{name} = internal unnamed_addr constant [{len(shown)} x {scalar}] [{rows}], align 64"
        if self.globals.setdefault(name, text) != text:
            raise AssertionError(f"two tables named {name}")
        return f"@{name}"

    def text(self) -> str:
        functions = [
            text.replace("define internal", "define", 1) if name in self.exported else text
            for name, text in self.functions.items()
        ]
        return "\n\n".join([*self.globals.values(), *self.declared.values(), *functions]) + "\n"
