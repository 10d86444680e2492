"""Machine code between pages that nobody may touch: `with guarded(at_end=True): hk.compile(module)(*inputs)`.

Inside, all arrays that compiled code works on (arguments, results, constants, and each temporary by itself) end right
before such a page and begin after one, or the other way round: one access outside and the process dies by SIGSEGV.
Temporaries lie at multiples of 64 bytes as usual; the bytes between their end and the page are looked at afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np

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
