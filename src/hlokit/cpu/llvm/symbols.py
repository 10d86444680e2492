"""Symbols: other functions by their prototypes, and globals.

    MALLOC = Prototype("malloc", POINTER, [I64])
    COUNT = Global("count", I64)
    node = fn.call(MALLOC, NODE.bytes)
    fn.address(COUNT).store(1)

A module that takes the function declares what it calls and defines the globals that it names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Self, TypedDict, TypeVar, Unpack, cast, overload

from hlokit.cpu.llvm.pointers import Pointer
from hlokit.cpu.llvm.records import Record
from hlokit.cpu.llvm.types import I8, PointerType, Type
from hlokit.cpu.llvm.values import Value

if TYPE_CHECKING:
    from hlokit.cpu.llvm.function import Function

R = TypeVar("R", bound="Pointer | Value | None", covariant=True)


class _Options(TypedDict, total=False):
    variadic: bool
    attributes: str


_Parameters = Sequence[Type] | Mapping[str, Type]


class Prototype(Generic[R]):
    """A function's name and types: of one of C, or of one of ours that another one calls.

    parameters  their types; with names for a function that `Function.of` is to write
    variadic    it takes any operands after these
    attributes  "noreturn", "returns_twice", ...: of the declaration and of each call
    """

    @overload
    def __init__(
        self: Prototype[Pointer], name: str, result: PointerType, parameters: _Parameters = (), **more: Unpack[_Options]
    ) -> None: ...
    @overload
    def __init__(
        self: Prototype[None], name: str, result: None, parameters: _Parameters = (), **more: Unpack[_Options]
    ) -> None: ...
    @overload
    def __init__(
        self: Prototype[Value], name: str, result: Type, parameters: _Parameters = (), **more: Unpack[_Options]
    ) -> None: ...
    def __init__(self, name: str, result: Type | None, parameters: _Parameters = (), **more: Unpack[_Options]) -> None:
        self.name = name
        self.result = result
        self.parameters = tuple(parameters.values() if isinstance(parameters, Mapping) else parameters)
        self.names = tuple(parameters) if isinstance(parameters, Mapping) else ()
        self.variadic = more.get("variadic", False)
        self.attributes = more.get("attributes", "")
        self.write: Callable[[], Function] | None = None

    def companion(self, write: Callable[[], Function]) -> Self:
        """The same, of a function that goes into every module whose functions call it; `write` writes it."""
        self.write = write
        return self

    @property
    def named(self) -> dict[str, Type]:
        """The parameters by name."""
        return dict(zip(self.names, self.parameters, strict=True))

    @property
    def types(self) -> str:
        """The parameters' types, as LLVM spells them."""
        return ", ".join([*(type.text for type in self.parameters), *(["..."] if self.variadic else [])])

    def declaration(self) -> str:
        """For a module that has no function of this name."""
        attributes = f" {self.attributes}" if self.attributes else ""
        return f"declare {self.result or 'void'} @{self.name}({self.types}){attributes}"


class Global:
    """Memory of a module: `count` elements of a type, zeros unless `initial` says what is in them.

    initial   a number, or of an array a list of them, or bytes; the address of a symbol; of a Record a dict of
              values by field, the others being zero
    exported  it can be looked up
    external  whoever loads the code says where it is
    unnamed_addr  its address is compared with no other
    """

    def __init__(
        self,
        name: str,
        type: Type,
        count: int = 1,
        *,
        initial: Any = None,
        exported: bool = False,
        external: bool = False,
        constant: bool = False,
        align: int = 0,
        unnamed_addr: bool = False,
    ) -> None:
        self.name, self.type, self.count, self.initial = name, type, count, initial
        self.exported, self.external, self.constant = exported, external, constant
        self.align, self.unnamed_addr = align, unnamed_addr

    @staticmethod
    def text(name: str, text: str | bytes) -> Global:
        """A constant text, with a zero after it."""
        data = (text.encode() if isinstance(text, str) else text) + b"\0"
        return Global(name, I8, len(data), initial=data, constant=True)

    @property
    def used(self) -> list[Global | Prototype[Any]]:
        """The symbols whose addresses are in it."""
        return list(_symbols(self.initial))

    @property
    def is_own(self) -> bool:
        """Whether there can be one of it in each object that uses it."""
        return self.external or (self.constant and not self.exported)

    def renamed(self, name: str) -> Global:
        """The same under another name. It must not hold addresses."""
        made = copy(self)
        made.name = name
        return made

    def definition(self) -> str:
        """The line of the module."""
        return f"@{self.name} = {self._described}"

    @cached_property
    def _described(self) -> str:
        if self.external:
            return f"external global {self.type}"
        linkage = ("" if self.exported else "internal ") + ("unnamed_addr " if self.unnamed_addr else "")
        kind = "constant" if self.constant else "global"
        align = f", align {self.align}" if self.align else ""
        return f"{linkage}{kind} {' '.join(_array(self.type, self.count, self.initial))}{align}"


def _array(type: Type, count: int, initial: Any) -> tuple[str, str]:
    """The type and the constant of a global or a field."""
    if isinstance(initial, bytes):
        return f"[{len(initial)} x i8]", f'c"{_escaped(initial)}"'
    if count == 1 and initial.__class__ is not list:
        return _element(type, initial)
    if initial is None:
        return f"[{count} x {type}]", "zeroinitializer"
    elements = [_element(type, value) for value in initial]
    return f"[{count} x {elements[0][0]}]", f"[{', '.join(map(' '.join, elements))}]"


def _element(type: Type, value: Any) -> tuple[str, str]:
    if isinstance(value, (Global, Prototype)):
        return "ptr", f"@{value.name}"
    if not isinstance(type, Record):
        return type.text, type.constant(None if type.scalar == "ptr" else value or 0)
    if not value:
        return type.text, "zeroinitializer"
    # a packed struct, whose padding is written out
    parts: list[tuple[str, str]] = []
    end = 0
    for field in type.fields.values():
        parts += [_padding(field.offset - end), _array(field.type, field.count, value.get(field.name))]
        end = field.end
    parts.append(_padding(type.bytes - end))
    parts = [part for part in parts if part[0]]
    return f"<{{ {', '.join(kind for kind, _ in parts)} }}>", f"<{{ {', '.join(map(' '.join, parts))} }}>"


def _padding(size: int) -> tuple[str, str]:
    return (f"[{size} x i8]", "zeroinitializer") if size else ("", "")


def _escaped(data: bytes) -> str:
    if len(data) > 100:
        return "\\" + data.hex("\\").upper()  # as fast as can be
    return _UNSAFE.sub(lambda match: f"\\{ord(match[0]):02X}", data.decode("latin-1"))


_UNSAFE = re.compile(r"[^ !#-\[\]-~]")


def _symbols(initial: Any) -> Iterator[Global | Prototype[Any]]:
    if isinstance(initial, (Global, Prototype)):
        yield initial
    elif isinstance(initial, dict):
        yield from _symbols([*cast("dict[str, Any]", initial).values()])
    elif isinstance(initial, list):
        for value in cast("list[Any]", initial):
            yield from _symbols(value)
