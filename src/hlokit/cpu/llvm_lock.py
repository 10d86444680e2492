"""llvmlite's lock, replaced by one that no interrupt leaves held.

llvmlite calls LLVM under a lock whose `__enter__` and `__exit__` are Python code. If a signal handler (such as
Ctrl-C's) raises after the lock was taken and before `__enter__` ends, the lock is never released: every other thread
that calls LLVM waits forever, for example jaxlib's compiling threads. Here both methods are C code, in which no
handler runs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

_Callback = Callable[[], object]
_RLock: Any = type(threading.RLock())


class _Lock(_RLock):
    """In place of llvmlite's; as there, functions can be registered that are called when it was taken and before it is
    released, as Numba's are. Then it is what llvmlite's was."""

    def __init__(self) -> None:
        self._cblist: list[tuple[_Callback, _Callback]] = []

    def register(self, acquired: _Callback, released: _Callback) -> None:
        """Adds a pair of functions."""
        self._cblist.append((acquired, released))
        self.__class__ = _LockWithCallbacks

    def unregister(self, acquired: _Callback, released: _Callback) -> None:
        """Removes a pair of functions."""
        self._cblist.remove((acquired, released))
        if not self._cblist:
            self.__class__ = _Lock


class _LockWithCallbacks(_Lock):
    def __enter__(self) -> None:
        self.acquire()
        for acquired, _ in self._cblist:
            acquired()

    def __exit__(self, *error: object) -> None:
        for _, released in self._cblist:
            released()
        self.release()


def replace(library: Any) -> None:
    """Gives llvmlite's library, `ffi.lib`, the lock; a version of llvmlite that has another lock keeps it."""
    old: Any = getattr(library, "_lock", None)
    if type(old).__name__ != "_LLVMLock" or getattr(old, "_cblist", True):
        return
    made = _Lock()
    with old:
        library._lock = made
        for function in list(library._fntab.values()):
            function._lock = made
