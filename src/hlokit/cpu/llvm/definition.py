"""Finished functions, as objects: what they call and name, their constants, their stack; printed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hlokit.cpu.llvm.references import MARK, Operation, is_constant, operation
from hlokit.cpu.llvm.symbols import Global, Prototype

COLD = '"hlokit-cold"'
"""The attribute of functions whose own instructions take next to no time of a program's: they call what does."""
SHARED = '"hlokit-shared"'
"""The attribute of functions that are the same in many programs; its value names those that are made together."""
_ALIGN = "align 64"
"""Attribute of functions that are not cold: where a short loop lies in the lines of the cache is worth 5 %."""


class Definition:
    """A finished function. Nothing changes it: what renames or merges functions makes new ones.

    attributes  LLVM's words, but for what is_cold, shared and personality say
    body        the lines, with their references (see references.py)
    stack       bytes that it takes of the stack for itself, by `alloca`
    uses        the prototypes and globals that it names
    has_metadata, streams   it has instructions with metadata; stores past the caches among them
    """

    __slots__ = (
        "_symbols",
        "attributes",
        "body",
        "has_metadata",
        "is_cold",
        "name",
        "parameters",
        "personality",
        "result",
        "shared",
        "stack",
        "streams",
        "uses",
    )

    def __init__(
        self,
        name: str,
        parameters: Sequence[tuple[str, str]],
        result: str,
        attributes: str,
        body: str,
        *,
        is_cold: bool = False,
        shared: str = "",
        personality: Prototype[Any] | None = None,
        stack: int = 0,
        uses: Iterable[Prototype[Any] | Global] = (),
        has_metadata: bool = False,
        streams: bool = False,
    ) -> None:
        self.name, self.parameters, self.result, self.attributes = name, parameters, result, attributes
        self.body, self.is_cold, self.shared, self.personality = body, is_cold, shared, personality
        self.stack, self.uses = stack, tuple(uses)
        self.has_metadata, self.streams = has_metadata, streams
        self._symbols: tuple[str, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Definition) and self.body == other.body and self.head("") == other.head("")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Definition({self.name})"

    def _with(
        self, name: str | None = None, body: str | None = None, parameters: Sequence[tuple[str, str]] | None = None
    ) -> Definition:
        """The same but for what is given."""
        return Definition(
            self.name if name is None else name,
            self.parameters if parameters is None else parameters,
            self.result,
            self.attributes,
            self.body if body is None else body,
            is_cold=self.is_cold,
            shared=self.shared,
            personality=self.personality,
            stack=self.stack,
            uses=self.uses,
            has_metadata=self.has_metadata,
            streams=self.streams,
        )

    @property
    def is_inlined(self) -> bool:
        """Whether its callers have it in them."""
        return "alwaysinline" in self.attributes.split()

    @property
    def is_apart(self) -> bool:
        """Whether nothing inlines it."""
        return "noinline" in self.attributes.split()

    @property
    def symbols(self) -> tuple[str, ...]:
        """The functions and globals that it names, in their order."""
        if self._symbols is None:
            found = dict.fromkeys(r for r in self.body.split(MARK)[1::2] if r[0] == "@")
            own = [self.personality.name] if self.personality is not None else []
            self._symbols = (*own, *dict.fromkeys(_name(reference) for reference in found))
        return self._symbols

    @property
    def references(self) -> int:
        """The number of references in the body."""
        return self.body.count(MARK) // 2

    @property
    def addresses(self) -> list[str]:
        """The symbols whose addresses it takes."""
        return [r[1:] for r in self.body.split(MARK)[1::2] if r[0] == "@" and r[-1] != "("]

    @property
    def skeleton(self) -> tuple[str | None, ...]:
        """All of the body but its constants."""
        pieces: list[str | None] = [*self.body.split(MARK)]
        for k in range(1, len(pieces), 2):
            piece = pieces[k]
            if piece is not None and is_constant(piece):
                pieces[k] = None
        return tuple(pieces)

    @property
    def constants(self) -> list[str]:
        """The constants in whose places variables may stand."""
        return [r for r in self.body.split(MARK)[1::2] if is_constant(r)]

    # -- others made of it

    def renamed(self, name: str, names: Mapping[str, str] | None = None) -> Definition:
        """Under another name, with the symbols that it names by their new ones."""
        if not names or names.keys().isdisjoint(self.symbols):
            return self._with(name=name)
        pieces = self.body.split(MARK)
        for k in range(1, len(pieces), 2):
            piece = pieces[k]
            if piece[0] == "@":
                own = _name(piece)
                pieces[k] = f"@{names.get(own, own)}{'(' if piece[-1] == '(' else ''}"
        return self._with(name=name, body=MARK.join(pieces))

    def generalized(self, names: Sequence[str | None]) -> Definition:
        """With i64 parameters more. `names`: for each constant the parameter in its place, or None."""
        pieces, left = self.body.split(MARK), iter(names)
        shown = pieces[:1]
        for reference, text in zip(pieces[1::2], pieces[2::2], strict=True):
            name = next(left) if is_constant(reference) else None
            shown += [f"{MARK}{reference}{MARK}" if name is None else f"%{name}", text]
        more = [("i64", name) for name in dict.fromkeys(name for name in names if name is not None)]
        return self._with(parameters=[*self.parameters, *more], body="".join(shown))

    def calling(self, calls: Mapping[str, tuple[str, Sequence[str]]]) -> Definition:
        """With other functions called, for those of these names, and i64 operands more."""
        if calls.keys().isdisjoint(self.symbols):
            return self
        pieces = self.body.split(MARK)
        more: Sequence[str] = ()
        for k in range(1, len(pieces), 2):
            piece = pieces[k]
            if piece[-1] == "(":
                own = _name(piece)
                name, more = calls.get(own, (own, ()))
                pieces[k] = f"@{name}("
            elif piece == ")" and more:
                pieces[k - 1] += "".join(f", i64 {value}" for value in more)
                more = ()
        return self._with(body=MARK.join(pieces))

    def replacing(self, function: Callable[[Operation], Prototype[Any] | None]) -> Definition:
        """With functions called in the place of Operations, where there is one."""
        pieces = self.body.split(MARK)
        references, is_changed = pieces[1::2], False
        for k in range(len(references)):
            found = operation(references, k)
            called = function(found) if found is not None else None
            if found is None or called is None:
                continue
            is_changed = True
            if references[k][0] == "@":
                pieces[2 * k + 1] = f"@{called.name}("
            else:
                pieces[2 * k] += f"call {called.result} "
                pieces[2 * k + 1] = f"@{called.name}("
                pieces[2 * k + 2] = f"{found.operand.text}{pieces[2 * k + 2]}"
                pieces[2 * k + 3] = ")"
        return self._with(body=MARK.join(pieces)) if is_changed else self

    # -- printing

    def head(self, linkage: str, cold: str = COLD) -> str:
        """The line before the body, from the result on. `cold`: the attributes of what is cold."""
        parameters = ", ".join([f"{type} %{name}" for type, name in self.parameters])
        attributes = f"{self.attributes} {cold if self.is_cold else _ALIGN}"
        if self.shared:
            attributes += f' {SHARED}="{self.shared}"'
        if self.personality is not None:
            attributes += f" personality ptr @{self.personality.name}"
        return f"{linkage}{self.result} @{self.name}({parameters}) {attributes}"

    def text(self, linkage: str = "internal ", cold: str = COLD) -> str:
        """As LLVM reads it."""
        return f"define {self.head(linkage, cold)} {{\n{self.body.replace(MARK, '')}"

    def declaration(self) -> str:
        """For a module that calls it and has it not."""
        return f"declare {self.head('')}"


def _name(reference: str) -> str:
    return reference[1:-1] if reference[-1] == "(" else reference[1:]
