"""Machine code between pages that nobody may touch: `with guarded(at_end=True): hk.compile(module)(*inputs)`.

Inside, all arrays that compiled code works on (arguments, results, constants, each temporary by itself, and each array
that functions have on the stack) end right before such a page and begin after one, or the other way round: one access
outside and the process dies by SIGSEGV. Temporaries lie at multiples of 64 bytes as usual; the bytes between their end
and the page are looked at afterwards. Arrays of the stack are aligned as they ask, and full of ones.

What writes functions keeps those that many programs share (`functools.cache`): run guarded code in a process of its own.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np

from hlokit.cpu.llvm import I32, I64, POINTER, Definition, Function, Pointer, Prototype, Type
from hlokit.cpu.llvm.references import MARK
from hlokit.cpu.lower import buffers
from hlokit.cpu.lower.buffers import ALIGNMENT, Assignment, Home
from hlokit.runtime import call, executable, plan

PAGE = mmap.PAGESIZE
_PATTERN = 0xA5
_Array = np.ndarray[Any, Any]


class Overrun(AssertionError):
    """Something was written behind a temporary's end."""


def _pages(size: int) -> int:
    return max(1, -(-size // PAGE)) * PAGE


def _forbid(memory: mmap.mmap, ranges: Sequence[tuple[int, int]]) -> int:
    """Takes the pages away; gives the memory's address."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    for offset, size in ranges:
        if libc.mprotect(ctypes.c_void_p(address + offset), ctypes.c_size_t(size), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    return address


def fenced(shape: tuple[int, ...], dtype: np.dtype[Any], at_end: bool) -> _Array:
    """An array between two forbidden pages: right before the second, or right after the first."""
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    room = _pages(size)
    memory = mmap.mmap(-1, room + 2 * PAGE)
    _forbid(memory, [(0, PAGE), (PAGE + room, PAGE)])
    start = PAGE + (room - size if at_end else 0)
    return np.frombuffer(memory, np.uint8, size, start).view(dtype).reshape(shape)


def fenced_copy(value: Any, at_end: bool) -> Any:
    """A value whose arrays lie so."""
    if isinstance(value, tuple):
        return tuple(fenced_copy(part, at_end) for part in value)  # pyright: ignore[reportUnknownVariableType]
    if value is None:
        return None
    array = np.asarray(value)
    copy = fenced(array.shape, array.dtype, at_end)
    copy[...] = array
    return copy


class _Layout:
    """Where temporaries lie, and the pages between."""

    def __init__(self, at_end: bool) -> None:
        self.at_end = at_end
        self.size = 0
        self.gaps: list[tuple[int, int]] = []
        self.slack: list[tuple[int, int]] = []

    def place(self, found: Assignment) -> None:
        homes = list(dict.fromkeys(h for h in found.homes.values() if h.kind == "arena" and h.last >= 0))
        homes.sort(key=lambda home: (home.first, home.buffers[0].number))
        found.lives = homes
        self.gaps, self.slack, top = [(0, PAGE)], [], PAGE
        for home in homes:
            top = self._one(home, top)
        self.size = found.nbytes = top if homes else 0

    def _one(self, home: Home, top: int) -> int:
        size = max(ALIGNMENT, -(-home.nbytes // ALIGNMENT) * ALIGNMENT)
        room = _pages(size)
        home.offset = top + (room - size if self.at_end else 0)
        end = home.offset + home.nbytes
        self.slack.append((end, top + room - end))
        self.gaps.append((top + room, PAGE))
        return top + room + PAGE


class _Arena:
    """The temporaries of one executable."""

    layout: _Layout

    def __init__(self, size: int) -> None:
        self.address = 0
        if not size:
            return
        layout = self.layout
        assert size == layout.size
        self.memory = mmap.mmap(-1, size)
        self.slack = layout.slack
        self.view = np.frombuffer(self.memory, np.uint8)
        for start, length in self.slack:
            self.view[start : start + length] = _PATTERN
        self.address = _forbid(self.memory, layout.gaps)

    def take(self) -> _Arena:
        return self

    def give(self, _: Any) -> None:
        for start, length in self.slack:
            if (self.view[start : start + length] != _PATTERN).any():
                raise Overrun(f"bytes behind a temporary's end, from {start}, are changed")


@contextmanager
def guarded(at_end: bool = True) -> Generator[None]:
    """Executables made inside work on guarded memory only, when they are called inside. No cache."""
    layout = _Layout(at_end)
    made = plan.made

    def with_constants(*args: Any, **options: Any) -> Any:
        found = made(*args, **options)
        return replace(found, constants=tuple(fenced_copy(c, at_end) for c in found.constants))

    arena = type("Arena", (_Arena,), {"layout": layout})
    arguments = call.Caller._arguments  # pyright: ignore[reportPrivateUsage]
    with (
        guarded_stack(at_end),
        patch.dict("os.environ", {"HLOKIT_CACHE_DIR": ""}),
        patch.object(buffers, "_place", layout.place),
        patch.object(plan, "made", with_constants),
        patch.object(call, "native_call", lambda: None),
        patch.object(call, "Arena", arena),
        patch.object(call, "empty", lambda shape, dtype, size: fenced(shape, dtype, at_end)),
        patch.object(call.Caller, "_arguments", lambda self, given: fenced_list(arguments(self, given), at_end)),
    ):
        assert executable.plans is plan
        yield


def fenced_list(arrays: Sequence[_Array], at_end: bool) -> list[_Array]:
    return [fenced_copy(array, at_end) for array in arrays]


_MMAP = Prototype("mmap", POINTER, [POINTER, I64, I32, I32, I32, I64])
_MPROTECT = Prototype("mprotect", I32, [POINTER, I64, I32])
_MUNMAP = Prototype("munmap", I32, [POINTER, I64])
_DEFINITION = Function.definition


@dataclass(frozen=True)
class _Taken:
    """An array of a function, as the LLVM text that takes it and gives it back."""

    name: str
    size: int
    align: int
    at_end: bool

    @property
    def room(self) -> int:
        return _pages(self.size)

    @property
    def slack(self) -> int:
        """Bytes between its end and the forbidden page, or the room's end."""
        return (self.room - self.size) % self.align if self.at_end else self.room - self.size

    def taken(self) -> list[str]:
        mode, flags = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        name, start = self.name, self.room - self.slack - self.size if self.at_end else 0
        return [
            f"  {name}.all = call ptr {_called('mmap')}"
            f"ptr null, i64 {self.room + 2 * PAGE}, i32 0, i32 {flags}, i32 -1, i64 0)",
            f"  {name}.room = getelementptr i8, ptr {name}.all, i64 {PAGE}",
            f"  {name}.done = call i32 {_called('mprotect')}ptr {name}.room, i64 {self.room}, i32 {mode})",
            f"  call void @llvm.memset.p0.i64(ptr {name}.room, i8 -1, i64 {self.room}, i1 false)",
            f"  {name} = getelementptr i8, ptr {name}.room, i64 {start}",
        ]

    def given_back(self, number: int) -> list[str]:
        """Dies, as at a forbidden page, if bytes of the slack are changed (the first 64 of it)."""
        name, shown, bits = self.name, f"{self.name}.at{number}", 8 * min(self.slack, 64)
        check = [
            f"  {shown}.end = getelementptr i8, ptr {name}, i64 {self.size}",
            f"  {shown}.slack = load i{bits}, ptr {shown}.end, align 1",
            f"  {shown}.whole = icmp eq i{bits} {shown}.slack, -1",
            f"  {shown}.to = select i1 {shown}.whole, ptr {name}.room, ptr inttoptr (i64 8 to ptr)",
            f"  store volatile i8 0, ptr {shown}.to, align 1",
        ]
        given = f"  {shown}.gone = call i32 {_called('munmap')}ptr {name}.all, i64 {self.room + 2 * PAGE})"
        return [*(check if bits else []), given]


@contextmanager
def guarded_stack(at_end: bool = True) -> Generator[None]:
    """Functions written inside have their arrays in pages of their own, which they take when they begin and give back
    where they return. Numbers of up to eight bytes, and arrays whose size is known at run time only, stay on the stack."""

    def alloca(self: Function, type: Type, count: int = 1, align: int = 64, name: str = "") -> str:
        name = name or self.fresh("stack")
        size = type.size * count
        self.stack += size
        if size <= I64.bytes:
            self._entry.append(f"  {name} = alloca {type.text}, i64 {count}, align {align}")  # pyright: ignore[reportPrivateUsage]
            return name
        array = _Taken(name, size, align, at_end)
        self.symbols.update({function.name: function for function in (_MMAP, _MPROTECT, _MUNMAP)})
        self._entry += array.taken()  # pyright: ignore[reportPrivateUsage]
        self.__dict__.setdefault("guarded", []).append(array)
        return name

    def scratch(self: Function, type: Type, align: int = 64) -> Pointer:
        known: dict[Any, str] = self.__dict__.setdefault("scratches", {})
        if (type.text, align) not in known:
            known[type.text, align] = alloca(self, type, 1, align)
        return Pointer(self, known[type.text, align])

    def definition(self: Function) -> Definition:
        taken: list[_Taken] = self.__dict__.get("guarded", [])
        written, self.lines = self.lines, []
        for number, line in enumerate(written):
            if line.startswith("  ret "):
                self.lines += [row for array in taken for row in array.given_back(number)]
            self.lines.append(line)
        try:
            return _DEFINITION(self)
        finally:
            self.lines = written

    with (
        patch.object(Function, "alloca", alloca),
        patch.object(Function, "scratch", scratch),
        patch.object(Function, "definition", definition),
    ):
        yield


def _called(name: str) -> str:
    return f"{MARK}@{name}({MARK}"
