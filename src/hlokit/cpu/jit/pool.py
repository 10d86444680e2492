"""The thread pool, in machine code, so that it depends neither on Python's lock nor on Python's speed.

`void hlokit_parallel(ptr pool, ptr function, ptr table, i64 chunks)` calls `function(table, begin, end)` until it was
called for every chunk, and returns when all are done. The caller takes part. What a chunk computes depends on its
number alone, so results do not depend on who runs it. pool_code.py has the code, and how work is shared out.

Workers start at the first job. After each they look for the next for 200 us, or for 10 where other processes want their
cores, then sleep. They take no signals, which are Python's.
"""

from __future__ import annotations

import atexit
import ctypes
import os

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.memory import private_memory
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool_code import BYTES, STATE, TEAM_LEAVE, TEAM_RUN, TEAM_TAKE, written
from hlokit.cpu.target import available_threads, host
from hlokit.errors import EvaluationError
from hlokit.forks import lock, once

MAX_THREADS = (BYTES - STATE.offset("threads")) // 8


class Pool:
    """A pool of `threads` threads, the caller among them.

    address   of its state: hlokit_parallel's first argument
    parallel  of the function hlokit_parallel
    """

    def __init__(self, threads: int, address: int, code: Library) -> None:
        self.threads = threads
        self.address = address
        self.parallel = code.address("hlokit_parallel")
        self._code = code
        self._close = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("hlokit_close"))

    @property
    def team(self) -> dict[str, int]:
        """For libraries that run functions which wait for each other, one on each thread."""
        return {prototype.name: self._code.address(prototype.name) for prototype in (TEAM_TAKE, TEAM_RUN, TEAM_LEAVE)}

    @property
    def symbols(self) -> dict[str, int]:
        """For the libraries that use it: the function, and the state as a global, `@hlokit_pool`."""
        return {"hlokit_parallel": self.parallel, "hlokit_pool": self.address}

    def close(self) -> None:
        """Stops and joins the workers; later jobs run in their caller."""
        self._close(self.address)

    def reset(self) -> None:
        """As new: for the child of a fork, which has none of the threads."""
        ctypes.memset(self.address, 0, BYTES)
        _word(self.address, STATE.offset("wanted")).value = self.threads - 1


def pool(threads: int | None = None, use: str = "") -> Pool:
    """The process's pool of so many threads (by default, those of available_threads); there is one for each number, and
    each use."""
    count = max(1, min(threads if threads is not None else available_threads(), MAX_THREADS))
    with _lock:
        if (count, use) not in _pools:
            _pools[count, use] = _made(count)
        return _pools[count, use]


_pools: dict[tuple[int, str], Pool] = {}
_lock = lock()


def _made(threads: int) -> Pool:
    memory = private_memory(BYTES)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))  # workers that are not joined at exit still look at it
    made = Pool(threads, ctypes.addressof(ctypes.c_char.from_buffer(memory)), code())
    made.reset()
    return made


@once
def code() -> Library:
    """The pool's functions, and those of hlokit.cpu.jit.guard."""
    target = host()
    library = Library([compiled(written(target), target, name="thread pool")])
    if ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("hlokit_guard_prepare"))():
        raise EvaluationError("the process has no key left for values of its threads (pthread_key_create)")
    atexit.register(_close_all)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_after_fork)
    return library


def _close_all() -> None:
    for each in list(_pools.values()):
        each.close()


def _after_fork() -> None:
    for each in _pools.values():
        each.reset()
    ctypes.CFUNCTYPE(None)(code().address("hlokit_guard_reset"))()


def _word(address: int, offset: int) -> ctypes.c_int32:
    return ctypes.c_int32.from_address(address + offset)
