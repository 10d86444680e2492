"""Modules in the writing: functions, tables and declarations by name."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from hlokit.cpu.llvm.function import Function
from hlokit.cpu.llvm.symbols import Global, Prototype
from hlokit.cpu.llvm.types import Type, float_constant

SYMBOL = re.compile(r"@([\w.$]+)")
"""The name of a function or a global."""


class Module:
    """An LLVM module in the writing. Intrinsics need no declaration.

    called   the prototypes of what its functions call, by name: those that it has no function for are declared
    """

    def __init__(self) -> None:
        self.functions: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.exported: dict[str, None] = {}
        self.called: dict[str, Prototype[Any]] = {}
        self._used: dict[str, Prototype[Any] | Global] = {}

    @contextmanager
    def function(
        self,
        name: str,
        parameters: Sequence[tuple[str | Type, str]],
        result: str | Type = "void",
        attributes: str = "",
        *,
        is_cold: bool = False,
        shared: str = "",
        fast_math: str = "",
    ) -> Generator[Function]:
        """A function, as Function has it, which the module takes when it is written; it returns then if not before."""
        function = Function(name, parameters, result, attributes, is_cold, shared, fast_math=fast_math)
        yield function
        if function.block:
            function.returns()
        self.add(function)

    def add(self, function: Function, *, exported: bool = False) -> None:
        """Takes a finished function. Equal names must mean equal functions; an exported one can be looked up."""
        self.add_text(function.name, function.text(), exported=exported)
        for symbol in function.symbols.values():
            self.use(symbol)
        if function.personality is not None:
            self.use(function.personality)

    def end(self, function: Function, *, exported: bool = False) -> str:
        """Ends a function without result and takes it; gives its name."""
        function.returns()
        self.add(function, exported=exported)
        return function.name

    def add_by_text(self, function: Function, prefix: str, *, exported: bool = False) -> str:
        """Takes a finished function and names it by what it does, so that equal ones are one; gives the name."""
        function.name = ""
        function.name = f"{prefix}_{sha256(function.text().encode()).hexdigest()[:16]}"
        self.add(function, exported=exported)
        return function.name

    def use(self, symbol: Prototype[Any] | Global) -> None:
        """Takes in what a function or a global names: it is declared, or defined."""
        if self._used.get(symbol.name) is symbol:
            return
        self._used[symbol.name] = symbol
        if isinstance(symbol, Prototype):
            self.called[symbol.name] = symbol
            if symbol.write is not None and symbol.name not in self.functions:
                self.add(symbol.write())
            return
        text = symbol.definition()
        if self.globals.setdefault(symbol.name, text) != text:
            raise AssertionError(f"two globals named {symbol.name}")
        for used in symbol.used:
            self.use(used)

    @property
    def external(self) -> list[str]:
        """The names of functions that are called and not here: whoever loads the code must know them."""
        return [name for name in self.called if name not in self.functions]

    def add_text(self, name: str, text: str, *, exported: bool = False) -> None:
        if self.functions.setdefault(name, text) != text:
            raise AssertionError(f"two functions named {name}")
        if exported:
            self.exported[name] = None

    def rename(self, name: str, new: str) -> None:
        """Gives a function that nothing calls another name; it can no longer be looked up."""
        self.exported.pop(name, None)
        self.functions[new] = self.functions.pop(name).replace(f"@{name}(", f"@{new}(", 1)

    def surround(self, prefix: str, before: Prototype[None], after: Prototype[None]) -> bool:
        """Has functions without parameters called before and after each call of those whose names begin so; whether
        there are such calls. Functions that this has been done to already stay."""
        call = re.compile(rf"^( *)call void @{prefix}.*$", re.MULTILINE)
        first, last = (f"call void @{function.name}()" for function in (before, after))
        calling = {name: text for name, text in self.functions.items() if f"call void @{prefix}" in text}
        for name, text in calling.items():
            if first not in text:
                self.functions[name] = call.sub(rf"\1{first}\n\g<0>\n\1{last}", text)
        for function in (before, after) if calling else ():
            self.use(function)
        return bool(calling)

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
        declared = [self.called[name].declaration() for name in self.external]
        return "\n\n".join([*self.globals.values(), *declared, *functions]) + "\n"
