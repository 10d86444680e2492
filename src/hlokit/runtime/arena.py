"""Memory for temporaries and results, kept between calls.

The first touch of a page costs more than most kernels: 64 MB take 36 ms on fresh 4 KB pages, 6.8 ms on fresh huge
pages, 2.4 ms in memory used before. So memory that a call is done with waits for the next: an executable's temporaries
at once, a result's when the array that the user got, and every view of it, is gone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import numpy as np

from hlokit import memory
from hlokit.cpu.jit.memory import private_memory
from hlokit.errors import OutOfMemoryError

HUGE_PAGE = 2**21
LARGE = 2**20
"""Bytes above which memory lies on huge pages."""
SLOW_NS = 1_000_000
"""Nanoseconds of processor time of a first touch from which a huge page is slow: 0.1 ms are usual, 512 small pages take
0.8."""
RECYCLED = 2**19
"""Bytes from which results come from the recycler; smaller ones from NumPy, whose malloc reuses what it freed."""
LIMIT = 2**30
"""Bytes that the recycler keeps for later."""
_ASKED = 2**24
"""Bytes from which the process's limits are looked at first: 0.1 ms, where the first touch of the pages takes 2."""

_Array = np.ndarray[Any, Any]


class Buffer:
    """Fresh memory from the system: zeros, aligned to 64 bytes, above LARGE to huge pages. Freed with the object.
    Raises OutOfMemoryError where the process's limits leave less.

    capacity  bytes, at least as many as asked for
    view      its bytes, for NumPy
    """

    __slots__ = ("address", "capacity", "view")

    def __init__(self, size: int) -> None:
        self.capacity = capacity(size)
        large = self.capacity > LARGE
        if self.capacity >= _ASKED:  # beyond a group's limit the system kills who writes to it
            memory.require(self.capacity, "a buffer")
        mapped = private_memory(self.capacity + (HUGE_PAGE if large else 0))
        start = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        offset = -start % HUGE_PAGE if large else 0
        self.address = start + offset
        self.view = memoryview(mapped)[offset : offset + self.capacity]
        if large:
            huge_pages.ask(mapped, offset, self.view)


class HugePages:
    """Asks for huge pages, until one of this process has cost more than the small pages in its place.

    Virtual machines whose host takes back what lies free (free page reporting) get a huge page only after 512 faults of
    the host, 4 ms, unless it was free for less than 2 s; small ones mostly come from fragments that they have kept.
    """

    def __init__(self) -> None:
        self.slow = False

    def ask(self, mapped: mmap.mmap, offset: int, view: memoryview) -> None:
        """For the mapping's bytes from `offset` on, which `view` has."""
        with suppress(AttributeError, OSError):  # a system or a kernel without them
            mapped.madvise(mmap.MADV_NOHUGEPAGE if self.slow else mmap.MADV_HUGEPAGE, offset, len(view))
            for place in () if self.slow else range(0, len(view), HUGE_PAGE):
                before = time.thread_time_ns()
                view[place] = 0
                if time.thread_time_ns() - before > SLOW_NS:
                    self.slow = True
                    mapped.madvise(mmap.MADV_NOHUGEPAGE, offset, len(view))
                    return


huge_pages = HugePages()


def capacity(size: int) -> int:
    """The size of the buffer that holds `size` bytes: whole pages, above LARGE whole huge pages."""
    unit = HUGE_PAGE if size > LARGE else mmap.PAGESIZE
    return max(1, -(-size // unit)) * unit


class Recycler:
    """Buffers that wait to be used again. Keeps at most `limit` bytes of them; those that came back first go first.

    What comes back may do so at any time, in the midst of an allocation too, when Python's collector runs: so it
    is put in a queue that takes no lock, and sorted in by whoever next has the lock.
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.kept = 0
        self._free: dict[int, list[Buffer]] = {}
        self._order: deque[Buffer] = deque()
        self._returned: deque[Buffer] = deque()
        self._lock = threading.Lock()

    def take(self, size: int) -> Buffer:
        """Memory with anything in it: the buffer that came back last, or a fresh one. Raises OutOfMemoryError."""
        wanted = capacity(size)
        if self._returned:
            self._sort()
        with self._lock:
            free = self._free.get(wanted)
            if free:
                buffer = free.pop()
                self._order.remove(buffer)
                self.kept -= wanted
                return buffer
        return _fresh(self, size)

    def give(self, buffer: Buffer) -> None:
        """Takes back what nobody uses any more."""
        self._returned.append(buffer)
        self._sort()

    def clear(self) -> None:
        """Frees all that waits."""
        self._sort()
        with self._lock:
            self._free.clear()
            self._order.clear()
            self.kept = 0

    def forget(self) -> None:
        """For the child of a fork: whoever had the lock, perhaps midway, is not in it."""
        self._lock = threading.Lock()
        self._free, self._order, self.kept = {}, deque(), 0

    def _sort(self) -> None:
        while self._returned and self._lock.acquire(blocking=False):
            try:
                while self._returned:
                    self._keep(self._returned.popleft())
                while self.kept > self.limit:
                    oldest = self._order.popleft()
                    self._free[oldest.capacity].remove(oldest)
                    self.kept -= oldest.capacity
            finally:
                self._lock.release()

    def _keep(self, buffer: Buffer) -> None:
        self._free.setdefault(buffer.capacity, []).append(buffer)
        self._order.append(buffer)
        self.kept += buffer.capacity


def _fresh(recycler: Recycler, size: int) -> Buffer:
    try:
        return Buffer(size)
    except (OSError, OverflowError, ValueError, OutOfMemoryError):
        recycler.clear()
    try:
        return Buffer(size)
    except (OSError, OverflowError, ValueError) as error:
        raise OutOfMemoryError(f"{size:,} bytes: {error}") from None


recycler = Recycler()
"""The process's."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=recycler.forget)


class Arena:
    """An executable's memory for temporaries: one buffer for each call that runs at the moment, kept for the next."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._free: list[Buffer] = []

    def take(self) -> Buffer:
        """A buffer for one call; its content is what an earlier one left."""
        try:
            return self._free.pop()
        except IndexError:
            return recycler.take(self.size)

    def give(self, buffer: Buffer) -> None:
        """The call is done with it."""
        self._free.append(buffer)

    @contextmanager
    def buffer(self) -> Generator[Buffer, None, None]:
        taken = self.take()
        try:
            yield taken
        finally:
            self.give(taken)

    def __del__(self) -> None:
        for buffer in self._free:
            recycler.give(buffer)


def empty(shape: tuple[int, ...], dtype: np.dtype[Any], size: int) -> _Array:
    """An array of `size` bytes for a result, with anything in it. Its memory is used again when it is gone."""
    if size < RECYCLED:
        return np.empty(shape, dtype)
    maker = _maker.get()
    if maker is not None:
        return maker(shape, dtype)
    buffer = recycler.take(size)
    base: _Array = np.ndarray((size,), np.uint8, buffer.view)  # the base of each view of the result too
    loan = _Loan(base, _returned)
    loan.buffer = buffer
    _loans[id(loan)] = loan
    return np.ndarray(shape, dtype, base)


Maker = Callable[[tuple[int, ...], np.dtype[Any]], _Array]
_maker: ContextVar[Maker | None] = ContextVar("maker", default=None)


@contextmanager
def results_by(maker: Maker) -> Generator[None]:
    """In the block, large results of programs are arrays that `maker` makes, aligned to 64 bytes."""
    token = _maker.set(maker)
    try:
        yield
    finally:
        _maker.reset(token)


class _Loan(weakref.ref[_Array]):
    """Watches the base of a result's array."""

    __slots__ = ("buffer",)
    buffer: Buffer


_loans: dict[int, _Loan] = {}


def _returned(loan: Any, loans: dict[int, _Loan] = _loans, give: Callable[[Buffer], None] = recycler.give) -> None:
    """The last array on the memory is gone. What it needs is bound: at exit the module's names go first."""
    del loans[id(loan)]
    give(loan.buffer)
