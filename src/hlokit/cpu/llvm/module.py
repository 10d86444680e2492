"""Modules that are being written: functions and globals by name, as objects; printed at the end."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

from hlokit.cpu.llvm.definition import COLD, Definition
from hlokit.cpu.llvm.function import Function
from hlokit.cpu.llvm.pointers import METADATA
from hlokit.cpu.llvm.symbols import Global, Prototype
from hlokit.cpu.llvm.types import Type


class Module:
    """An LLVM module in the writing. Intrinsics need no declaration.

    functions   by name
    globals     likewise
    exported    the names of functions that can be looked up
    called      the prototypes of what its functions call, by name: those that it has no function for are declared
    """

    def __init__(self) -> None:
        self.functions: dict[str, Definition] = {}
        self.globals: dict[str, Global] = {}
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

    def add(self, function: Function | Definition, *, exported: bool = False) -> None:
        """Takes a finished function. Equal names must mean equal functions; an exported one can be looked up."""
        definition = function.definition() if isinstance(function, Function) else function
        name = definition.name
        known = self.functions.setdefault(name, definition)
        if known is not definition and known != definition:
            raise AssertionError(f"two functions named {name}")
        if exported:
            self.exported[name] = None
        for symbol in definition.uses:
            self.use(symbol)
        if definition.personality is not None:
            self.use(definition.personality)

    def end(self, function: Function, *, exported: bool = False) -> str:
        """Ends a function without result and takes it; gives its name."""
        function.returns()
        self.add(function, exported=exported)
        return function.name

    def add_by_text(self, function: Function, prefix: str, *, exported: bool = False) -> str:
        """Takes a finished function and names it by what it does, so that equal ones are one; gives the name."""
        function.name = ""
        definition = function.definition()
        function.name = f"{prefix}_{sha256(definition.text().encode()).hexdigest()[:16]}"
        self.add(definition.renamed(function.name), exported=exported)
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
        known = self.globals.setdefault(symbol.name, symbol)
        if known is not symbol and known.definition() != symbol.definition():
            raise AssertionError(f"two globals named {symbol.name}")
        for used in symbol.used:
            self.use(used)

    @property
    def external(self) -> list[str]:
        """The names of functions that are called and not here: whoever loads the code must know them."""
        return [name for name in self.called if name not in self.functions]

    def rename(self, name: str, new: str) -> None:
        """Gives a function that nothing calls another name; it can no longer be looked up."""
        self.exported.pop(name, None)
        self.functions[new] = self.functions.pop(name).renamed(new)

    def surround(self, prefix: str, before: Prototype[None], after: Prototype[None]) -> bool:
        """Has functions without parameters called before and after each call of functions without result whose names
        begin so and that are not here; whether there are such calls. What this has been done to already stays."""
        names = {name: f"surrounded_{name}" for name in self.external if name.startswith(prefix)}
        calling = [d for d in self.functions.values() if not names.keys().isdisjoint(d.symbols)]
        for definition in calling:
            if definition.name not in names.values():
                self.functions[definition.name] = definition.renamed(definition.name, names)
        for name, new in names.items() if calling else ():
            called = self.called[name]
            if new not in self.functions:
                parameters = [(type, f"x{k}") for k, type in enumerate(called.parameters)]
                with self.function(new, parameters) as f:
                    f.call(before)
                    f.call(called, *f.arguments())
                    f.call(after)
        return bool(calling)

    def table(self, name: str, type: Type, values: Iterable[Any]) -> Global:
        """A constant array."""
        initial = list(values)
        made = Global(name, type, len(initial), initial=initial, constant=True, align=64, unnamed_addr=True)
        self.use(made)
        return made

    def map(self, change: Callable[[Definition], Definition]) -> Module:
        """A module with each function as `change` gives it, of the same name, and the globals of this one."""
        made = Module()
        made.globals, made.exported, made.called = dict(self.globals), dict(self.exported), dict(self.called)
        made.functions = {name: change(definition) for name, definition in self.functions.items()}
        return made

    # -- printing

    @property
    def metadata(self) -> list[str]:
        """The lines that define metadata, if a function refers to them."""
        return [METADATA] if any(d.has_metadata for d in self.functions.values()) else []

    def text(self, cold: str = COLD) -> str:
        """As LLVM reads it. `cold`: the attributes of functions that are cold."""
        functions = [
            definition.text("" if name in self.exported else "internal ", cold)
            for name, definition in self.functions.items()
        ]
        declared = [self.called[name].declaration() for name in self.external]
        defined = [each.definition() for each in self.globals.values()]
        return "\n\n".join([*defined, *declared, *functions]) + "\n" + "".join(self.metadata)

    def part(self, names: Iterable[str], cold: str = COLD) -> str:
        """A text with these functions, which others link to; those that are inlined in them; and of the rest, and of
        globals, the declarations that they need.

        Its globals must be such that each part can have them: `Global.is_own`. `cold`: as for `text`.
        """
        here = {name: self.functions[name] for name in names if not self.functions[name].is_inlined}
        placed = [d.text("" if name in self.exported else "hidden ", cold) for name, d in here.items()]
        used = dict.fromkeys(symbol for d in here.values() for symbol in d.symbols)
        waiting = {name: d for name, d in self.functions.items() if name not in here}
        while found := [name for name in waiting if name in used]:
            for name in found:
                definition = waiting.pop(name)
                if definition.is_inlined:
                    placed.append(definition.text("" if name in self.exported else "internal "))
                    used |= dict.fromkeys(definition.symbols)
                else:
                    placed.append(definition.declaration())
        head = [each.definition() for name, each in self.globals.items() if name in used]
        head += [self.called[name].declaration() for name in self.external if name in used]
        return "\n".join([*head, *self.metadata, *placed])
