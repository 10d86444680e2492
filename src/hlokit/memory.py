"""The memory that the process may use: the machine's, reduced by the process's limits (`ulimit -v`, control groups)."""

from __future__ import annotations

import gc
import mmap
import os
import struct
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar

from hlokit.errors import ArgumentError, HlokitError, OutOfMemoryError
from hlokit.forks import lock

_P = ParamSpec("_P")
_T = TypeVar("_T")
_UNKNOWN = 2**36
"""The size where the system does not say it."""


def most() -> int:
    """Bytes that the process may have in all."""
    return min([_physical(), *_resource_limits(), *(_number(folder, maximum) for folder, maximum, _ in _groups())])


def of_a_call() -> int:
    """Bytes that a call of a program may need: HLOKIT_MEMORY_LIMIT, else all that the process may have.

    Raises ArgumentError for a HLOKIT_MEMORY_LIMIT that is not a number of bytes.
    """
    text = os.environ.get("HLOKIT_MEMORY_LIMIT", "").strip()
    if not text:
        return most()
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"HLOKIT_MEMORY_LIMIT={text!r} is not a number of bytes: expected 1 or more")
    return int(text)


def left() -> int:
    """Bytes that the process may still have under its limits; the machine's memory where there are none."""
    limits = _resource_limits()
    found = [_physical()]
    if limits:
        found.append(min(limits) - _mapped())
    for folder, maximum, current in _groups():
        limit = _number(folder, maximum)
        if limit < _physical():
            found.append(limit - _number(folder, current) + _reclaimable(folder))
    return max(0, min(found))


def require(size: int, what: str) -> None:
    """Raises OutOfMemoryError if the process may not have `size` bytes more, which `what` is to take."""
    available = left()
    if size > available:
        raise OutOfMemoryError(f"{what} takes some {size:,} bytes; {available:,} are left of the process's limit")


def with_arrays_checked(size: Callable[[], int], function: Callable[[], _T]) -> _T:
    """The result of `function`, which computes values of `size()` bytes together by NumPy.

    Where that may come near the limit of a control group, each large array, also those that NumPy's functions make on
    the way, is asked for first: a MemoryError of NumPy's comes before the system ends the process.
    """
    if not _checks or not any(_number(folder, maximum) < _physical() for folder, maximum, _ in _groups()):
        return function()
    return _checks[-1](function) if size() * _ON_THE_WAY > left() else function()


@contextmanager
def beside_arrays(size: int) -> Generator[None]:
    """Round a function of NumPy's that takes so many bytes for itself: an array that nobody writes to stands for them.
    Raises MemoryError."""
    import numpy as np

    placeholder = np.empty(size, np.uint8)
    yield
    del placeholder


_ON_THE_WAY = 16
"""Arrays on the way to a result take at most so many times its bytes; those of most functions take less."""
_checks: list[Callable[[Callable[[], Any]], Any]] = []


def check_arrays_by(check: Callable[[Callable[[], Any]], Any]) -> None:
    """`check(function)` is to run a function with NumPy's arrays checked: that takes machine code."""
    _checks.append(check)


_pausing = lock()
_pauses: dict[object, bool] = {}
"""For each function that is in it now and pauses the collector, whether that was on: compiles in threads overlap."""


def uncollected(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, during which Python does not look for cyclic garbage: a compile keeps most of what it makes, and
    looking through all of it again and again takes a third of its time. The function must not let the process fork."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        own = object()
        try:
            with _pausing:
                _pauses[own] = gc.isenabled() or any(_pauses.values())
                gc.disable()
            return function(*args, **kwargs)
        finally:
            with _pausing:
                if _pauses.pop(own, False) and not _pauses:
                    _promotion.promote()
                    gc.enable()

    return run


class Promotion:
    """Moves what a long compile made to the oldest generation of Python's collector, which would else go through all of
    it at once when it is on again: a tenth of the compile's time, and most is still needed.

    Some is garbage, which only a full collection frees: at most MOST objects are moved between two of these.
    """

    LEAST, MOST = 20_000, 1_000_000

    def __init__(self) -> None:
        self.promoted = self.collections = 0

    def promote(self) -> None:
        """Moves all younger objects, if they are many. To be called before the collector is on again."""
        made = gc.get_count()[0]
        if made < self.LEAST or gc.get_freeze_count():  # frozen ones, which are the application's, would not stay so
            return
        collections: int = gc.get_stats()[2]["collections"]
        if collections != self.collections:
            self.promoted, self.collections = 0, collections
        if self.promoted + made <= self.MOST:
            self.promoted += made
            gc.freeze()
            gc.unfreeze()


_promotion = Promotion()


def named(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, whose MemoryErrors are OutOfMemoryErrors."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except MemoryError as error:
            if isinstance(error, HlokitError):
                raise
            raise OutOfMemoryError(str(error) or "out of memory") from None

    return run


def drop_unchanged(library: str) -> None:
    """Gives back the pages of a loaded library that nobody can write to: those that are needed again come back from the
    system's cache of files, 64 KB in about a microsecond. `library`: part of the file's name."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as mappings:
            first = next((line for line in mappings if library in line), "")
        start, path = int(first.partition("-")[0] or "0", 16), first.rstrip("\n").split(None, 5)[-1:]
        if not path:
            return
        with open(path[0], "rb") as file:
            head = file.read(4096)
        if not head.startswith(b"\x7fELF\2\1"):
            return
        advise = ctypes.CDLL(None).madvise
        (table,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
        for place in range(table, table + size * count, size):
            kind, flags, _, address, _, _, length = struct.unpack_from("<IIQQQQQ", head, place)
            # by the file's table: the system also shows what was relocated at the start as read-only
            if kind == _PT_LOAD and not flags & _PF_W:
                begin, end = (start + address) & -mmap.PAGESIZE, start + address + length
                advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_DONTNEED)
    except (OSError, ValueError, AttributeError, struct.error):  # a system that does not say it: they stay
        return


_PT_LOAD, _PF_W, _MADV_DONTNEED = 1, 2, 4


@cache
def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return _UNKNOWN


def _resource_limits() -> list[int]:
    try:
        import resource
    except ImportError:
        return []
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [soft] if soft != resource.RLIM_INFINITY else []


def _mapped() -> int:
    """Bytes of address space that are taken."""
    if sys.platform != "linux":
        return 0
    try:
        with open("/proc/self/statm", encoding="utf-8") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


@cache
def _groups() -> list[tuple[str, str, str]]:
    """The control groups that limit memory, each with the names of its files for the limit and for what is taken."""
    if sys.platform != "linux":
        return []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found: list[tuple[str, str, str]] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = "/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            folder = os.path.join(root, *parts[:depth])
            if os.path.exists(os.path.join(folder, names[0])):
                found.append((folder, *names))
    return found


def _number(folder: str, name: str) -> int:
    """The number in the file; the machine's memory for `max`, and where it cannot be read."""
    try:
        file = os.open(f"{folder}/{name}", os.O_RDONLY)  # a third of the time of `open`: each compilation asks some ten
        try:
            return int(os.read(file, 64))
        finally:
            os.close(file)
    except (OSError, ValueError):
        return _physical()


def _reclaimable(folder: str) -> int:
    """Bytes of files that the group's limit counts and that the system drops when it needs them."""
    try:
        with open(os.path.join(folder, "memory.stat"), encoding="utf-8") as file:
            return sum(int(line.split()[1]) for line in file if line.startswith(("inactive_file ", "active_file ")))
    except (OSError, ValueError):
        return 0
