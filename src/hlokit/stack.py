"""Threads with a stack of their own size, and functions that do not run on a small one.

`threading.stack_size` is one number for the whole process and belongs to the application, which may have set it low.
So threads are made here by `pthread_create`, and what needs more stack than its caller may have runs on such a thread.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from functools import cache, partial, wraps
from typing import Any, ParamSpec, TypeVar

from hlokit.errors import HlokitError

SIZE = 1 << 24
"""Bytes of stack of the threads that are made here. The system gives only what is touched."""
ENOUGH = 1 << 21
"""Bytes of its thread's stack with which Python code of this package runs where it was called."""

_P = ParamSpec("_P")
_T = TypeVar("_T")
_known = threading.local()
_alive: set[Thread] = set()
"""Those that nobody has joined yet: what they run on must outlive them."""
_joined: dict[int, Thread] = {}
"""The thread that waits, by the id of the one that it waits for."""


class NoThread(HlokitError):
    """The system has no more threads, or no memory for their stacks."""


class Thread:
    """Runs `target` on a thread with SIZE bytes of stack, whatever `threading.stack_size` says.

    `join` waits for it, and raises what it raised. On systems without POSIX threads it is a thread of Python's.
    Raises NoThread if the system has no thread for it.
    """

    def __init__(self, target: Callable[[], object]) -> None:
        self._target = target
        self._context: Context = copy_context()
        self._begun, self._done = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        self.ident = 0
        create = _create()
        self._end: Callable[[], object] = bool
        _alive.add(self)
        if create is None or sys.platform == "win32":
            thread = threading.Thread(target=self._run)
            thread.start()
            self._end = thread.join
            return
        self._entry = _ENTRY(self._enter)
        self._end = partial(ctypes.CDLL(None).pthread_join, ctypes.c_void_p(create(self._entry)), None)

    def _enter(self, _: object) -> None:
        try:
            self._run()
        finally:  # whatever an interrupt of this thread came between
            self._done.set()

    def _run(self) -> None:
        self.ident = threading.get_ident()
        self._begun.set()
        try:
            self._context.run(self._target)
        except BaseException as error:
            self._error = error
        finally:
            del self._target
            self._done.set()

    @property
    def is_done(self) -> bool:
        """Whether the target has returned or raised."""
        return self._done.is_set()

    def wait(self) -> None:
        """Waits until the target has returned or raised."""
        self._done.wait()

    def end(self) -> None:
        """Waits until the thread has ended, whatever comes of it. To be called once."""
        self._end()
        _alive.discard(self)

    def join(self) -> None:
        """Waits until the thread has ended. An exception of this thread's own, as Ctrl-C, is raised there too."""
        here = threading.get_ident()
        _joined[here] = self
        try:
            self._done.wait()
        except BaseException as error:
            self.raise_there(type(error))
            self.end()
            raise
        finally:
            del _joined[here]
        self.end()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this frame: a cycle would keep what the thread's frames hold

    def raise_there(self, kind: type[BaseException]) -> None:
        """Raises an exception of this type in the thread, or in the one that it waits for in turn: what waits hears
        nothing."""
        self._begun.wait()
        thread = self
        while (inner := _joined.get(thread.ident)) is not None and inner.ident:
            thread = inner
        if not thread._done.is_set():
            raising: Any = ctypes.pythonapi.PyThreadState_SetAsyncExc
            raising(ctypes.c_ulong(thread.ident), ctypes.py_object(kind))


def on_new_stack(function: Callable[[], _T]) -> _T:
    """The result of `function` on a thread of its own, on which Python's count of nested calls begins anew."""
    results: list[_T] = []
    Thread(lambda: results.append(function())).join()
    return results[0]


def interruptible(function: Callable[[], _T]) -> _T:
    """The result of `function`.

    On the main thread an exception that a signal's handler raises meanwhile, as Ctrl-C, ends this call at once, even
    where `function` is in a long call of NumPy or LAPACK: it runs on a thread of its own, which is left behind. There
    the same exception is raised as soon as Python code runs again; the process's exit waits for that. So it must be
    harmless that `function` goes on for a while, with what it refers to.

    >>> interruptible(lambda: 1 + 1)
    2
    """
    if threading.current_thread() is not threading.main_thread():
        return function()
    for thread in [thread for thread in _behind if thread.is_done]:
        _behind.remove(thread)
        thread.end()
    results: list[_T] = []
    try:
        thread = Thread(lambda: results.append(function()))
    except NoThread:
        return function()
    try:
        thread.wait()
    except BaseException as error:
        _behind.append(thread)
        thread.raise_there(type(error))
        _wait_at_exit()
        raise
    thread.join()
    return results[0]


def in_background(function: Callable[[], object]) -> None:
    """Runs `function`, which raises nothing, on a thread that only the process's exit waits for; not at all where the
    system has no more threads."""
    try:
        _behind.append(Context().run(Thread, function))  # of its own context: what its caller is in ends before it
    except NoThread:
        return
    _wait_at_exit()


_behind: list[Thread] = []
"""Threads that nobody waits for any more. The child of a fork has none of them."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_behind.clear)


@cache
def _wait_at_exit() -> None:
    """LAPACK's library frees at exit what its routines still work on. A second Ctrl-C meanwhile ends the process."""
    atexit.register(_joined_all)


def _joined_all() -> None:
    try:
        for thread in _behind:
            thread.wait()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)


def with_stack(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """`function`, which runs on a thread of its own where the caller's thread has less than ENOUGH bytes of stack."""

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        if size() >= ENOUGH:
            return function(*args, **kwargs)
        return on_new_stack(lambda: function(*args, **kwargs))

    return run


def run_all(targets: Sequence[Callable[[], object]]) -> None:
    """Runs the functions, each on a thread with SIZE bytes of stack but for the last, which runs here if this thread's
    stack suffices. Raises the first of their errors when all have ended."""
    here = size() >= ENOUGH
    others = [Thread(target) for target in (targets[:-1] if here else targets)]
    errors: list[BaseException] = []
    if here and targets:
        try:
            targets[-1]()
        except BaseException as error:
            errors.append(error)
    for thread in others:
        try:
            thread.join()
        except BaseException as error:
            errors.append(error)
    if errors:
        raise errors[0]


def size() -> int:
    """Bytes of the calling thread's stack; `sys.maxsize` where the system does not say."""
    try:
        return _known.size
    except AttributeError:
        _known.size = _asked()
        return _known.size


def _asked() -> int:
    if sys.platform.startswith("linux"):
        return _linux_size()
    if sys.platform == "darwin":
        get: Any = getattr(ctypes.pythonapi, "pthread_get_stacksize_np", None)
        if get is not None:
            get.restype, get.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
            return get(_self())
    return sys.maxsize


def _linux_size() -> int:
    if sys.platform == "win32":
        return sys.maxsize
    library = ctypes.CDLL(None)
    attributes, found, place = ctypes.create_string_buffer(128), ctypes.c_size_t(), ctypes.c_void_p()
    if library.pthread_getattr_np(_self(), attributes):
        return sys.maxsize
    library.pthread_attr_getstack(attributes, ctypes.byref(place), ctypes.byref(found))
    library.pthread_attr_destroy(attributes)
    return found.value


def _self() -> ctypes.c_void_p:
    """The calling thread: `threading.get_ident` is this word on POSIX systems."""
    return ctypes.c_void_p(threading.get_ident())


_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _create() -> Callable[[Any], int] | None:
    """Starts a POSIX thread at a callback, and gives its id; None where there are none."""
    if sys.platform == "win32":
        return None
    library = ctypes.CDLL(None)

    def create(entry: Any) -> int:
        thread, attributes = ctypes.c_void_p(), ctypes.create_string_buffer(128)
        library.pthread_attr_init(attributes)
        library.pthread_attr_setstacksize(attributes, ctypes.c_size_t(SIZE))
        error = library.pthread_create(ctypes.byref(thread), attributes, entry, None)
        library.pthread_attr_destroy(attributes)
        if error:
            raise NoThread(f"no thread with a stack of {SIZE:,} bytes can be made: error {error} of pthread_create")
        return thread.value or 0

    return create
