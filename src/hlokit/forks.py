"""Forks of a process with running threads: the child has none of these threads, but all locks that they held.

What LLVM, Python's import system and compiles hold cannot be given back in the child: a fork waits until no thread is
inside a function marked `unforked`. Locks that are held for an instant are free again in the child: `lock()`.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from contextvars import ContextVar
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class _Gate(threading.local):
    """Each thread's own lock, which it has while it is inside."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        with _registering:
            _gates.add(self.lock)


_registering = threading.RLock()
_gates: weakref.WeakSet[Any] = weakref.WeakSet()
_taken: list[Any] = []
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_inside: ContextVar[bool] = ContextVar("hlokit inside unforked", default=False)
"""Whether this thread, or the one that started it for a part of its work, has its gate."""
_gate = _Gate()


def unforked(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, during which no other thread can fork the process: os.fork waits."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if _inside.get():
            return function(*args, **kwargs)
        with _gate.lock:
            token = _inside.set(True)
            try:
                return function(*args, **kwargs)
            finally:
                _inside.reset(token)

    return run


def lock() -> threading.Lock:
    """A lock that is free in the child of a fork. What it guards must be whole at every instant."""
    made = threading.Lock()
    _locks.add(made)
    return made


class once(Generic[_T]):
    """`function`, whose result is made by the first thread that asks, while others wait for it. The child of a fork
    that came meanwhile makes its own."""

    def __init__(self, function: Callable[[], _T]) -> None:
        self._function = function
        self._made: list[_T] = []
        self._making = lock()

    def __call__(self) -> _T:
        if not self._made:
            with self._making:
                if not self._made:
                    self._made.append(self._function())
        return self._made[0]

    @property
    def is_made(self) -> bool:
        """Whether there is a result, or a thread makes it."""
        return bool(self._made) or self._making.locked()


def _before() -> None:
    """Takes all gates. An interrupt meanwhile would be dropped by Python: it comes again when the fork is over."""
    interrupted = False
    _registering.acquire()
    for gate in list(_gates):
        while True:
            try:
                gate.acquire()
                break
            except BaseException:
                interrupted = True
        _taken.append(gate)
    if interrupted:
        _interrupts.append(True)


_interrupts: list[bool] = []


def _after() -> None:
    while _taken:
        _taken.pop().release()
    _registering.release()
    if _interrupts:
        import _thread

        _interrupts.clear()
        _thread.interrupt_main()


def _after_in_child() -> None:
    for each in list(_locks):
        each._at_fork_reinit()
    _after()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
