"""Ctrl-C in machine code, and Python that machine code calls.

Python notes a signal and runs its handler when Python code runs next. A long native loop calls `i32
hlokit_interrupted()` now and then (it reads the clock; more often than every few us is waste): every 50 ms, on the
main thread, it lets Python run the handlers of the signals that came. It gives 1 if one raised an exception; then the
loop is to be left: the exception is raised again as soon as the thread is back in Python code. It also gives 1 on the
threads of `stop_threads`, and on those for which the word that they have under `stop_key` is not 0.

`i32 hlokit_step(ptr function, i64 number, ptr table)` calls a Python function of two integers and gives 1 if an
exception escaped it, which may be an interrupt before its first line: so no ctypes callback will do, which drops these.
The machine code is then to be left, and `raise_kept` raises the exception.

An exception that is to be raised again waits while a handler of another signal runs: raised at the handler's first
line, it would take that signal's effect away.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from traceback import walk_stack, walk_tb
from types import CodeType
from typing import Any

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.libc import PTHREAD_GETSPECIFIC, PTHREAD_SELF, monotonic_ns
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import I32, I64, POINTER, Function, Global, IfElse, Module, Prototype, Value
from hlokit.cpu.target import Target, host
from hlokit.errors import EvaluationError
from hlokit.forks import lock, once
from hlokit.runtime import cpython

_KEY = "hlokit interrupt"
EVERY_NS = 50_000_000
_LOOK_NS = 1_000_000
"""The time between two looks of an exception that waits for the end of a handler."""
_MOST = 1024
"""Threads that can be stopped at a time."""
_stopped: list[int] = []
_lock = lock()


def symbols() -> dict[str, int]:
    """For libraries that call the functions."""
    return {name: _code().address(name) for name in _SYMBOLS}


_SYMBOLS = ("hlokit_interrupted", "hlokit_main_thread", "hlokit_raised", "hlokit_raise_later")


def step_address() -> int:
    """The address of `hlokit_step`; its first argument is the id of the Python function, which somebody must hold."""
    return _code().address("hlokit_step")


def stop_threads(threads: Sequence[int]) -> Callable[[], None]:
    """Native loops on these threads are left as soon as they ask. Gives a function that calls it off again."""
    threads = list(threads)

    def note() -> None:
        library = _code()
        table = (ctypes.c_uint64 * _MOST).from_address(library.address("hlokit_stopped"))
        count = min(len(_stopped), _MOST)
        table[:count] = _stopped[:count]
        ctypes.c_uint64.from_address(library.address("hlokit_stops")).value = count

    def call_off() -> None:
        with _lock:
            for thread in threads:
                _stopped.remove(thread)
            note()

    with _lock:
        _stopped.extend(threads)
        note()
    return call_off


def stop_key() -> int:
    """The key under which a thread has the address of a word, or null (pthread_setspecific): see above."""
    return ctypes.c_uint64.from_address(_code().address(_STOP_KEY.name)).value


def raise_kept() -> None:
    """Raises the exception that escaped a step of this thread, if there is one."""
    get: Any = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.c_void_p
    state: dict[str, Any] = ctypes.cast(get(), ctypes.py_object).value
    error = state.pop(_KEY, None)
    if error is not None:
        raise error


def is_interrupt(error: BaseException) -> bool:
    """Whether the handler of a signal raised it, or it is a KeyboardInterrupt or another exception that is no error.

    Such an exception may come between any two bytecodes, and is about none of them.
    """
    if not isinstance(error, Exception):
        return True
    codes = _handler_codes()
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))


def _handler_codes() -> set[CodeType]:
    """The code of the Python functions that handle signals."""
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    functions = [getattr(handler, "__func__", handler) for handler in handlers if callable(handler)]
    called = [type(function).__call__ for function in functions]
    codes = [getattr(function, "__code__", None) for function in [*functions, *called]]
    return {code for code in codes if isinstance(code, CodeType)}


def _in_handler() -> bool:
    """Whether this thread runs the handler of a signal."""
    codes = _handler_codes()
    return any(frame.f_code in codes for frame, _ in walk_stack(sys._getframe()))  # pyright: ignore[reportPrivateUsage]


@once
def _code() -> Library:
    target = host()
    module = written(target)
    library = Library([compiled(module, target, name="interrupt")], cpython.addresses(module))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_in_handler))  # pending calls may outlive this module's variables
    ctypes.c_uint64.from_address(library.address(_IN_HANDLER.name)).value = id(_in_handler)
    key = ctypes.c_ulong(0)
    process: Any = ctypes.pythonapi
    if process.pthread_key_create(ctypes.byref(key), None):
        raise EvaluationError("the process has no key left for values of its threads (pthread_key_create)")
    ctypes.c_uint64.from_address(library.address(_STOP_KEY.name)).value = key.value
    place = ctypes.c_uint64.from_address(library.address(MAIN_THREAD.name))

    def note() -> None:
        place.value = threading.main_thread().ident or 0

    note()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=note)
    return library


INTERRUPTED = Prototype("hlokit_interrupted", I32)
STEP = Prototype("hlokit_step", I32, {"function": POINTER, "number": I64, "table": POINTER})
RAISED = Prototype("hlokit_raised", POINTER)
RAISE_LATER = Prototype("hlokit_raise_later", None, {"error": POINTER})
_CLOCK = Prototype("clock", I64)
_RAISE_NOW = Prototype("raise_now", I32, {"error": POINTER})

MAIN_THREAD = Global("hlokit_main_thread", I64, external=True)
_MAIN_THREAD = Global(MAIN_THREAD.name, I64, exported=True)
_STOPS = Global("hlokit_stops", I64, exported=True)
_STOPPED = Global("hlokit_stopped", I64, _MOST, exported=True)
_STOP_KEY = Global("hlokit_stop_key", I64, exported=True)
_LAST = Global("last", I64)
"""When Python was last let run handlers."""
_IN_HANDLER = Global("hlokit_in_handler", POINTER, exported=True)
"""The Python function _in_handler."""
_LOOKED = Global("looked", I64)
"""When it last said yes."""


def written(target: Target) -> Module:
    """The functions."""
    module = Module()
    for function in (_interrupted(), _raised(), _raise_later(), _step()):
        module.add(function, exported=True)
    for function in (_clock(target), _raise_now()):
        module.add(function)
    module.use(_IN_HANDLER)
    return module


def _interrupted() -> Function:
    f = Function.of(INTERRUPTED)
    stops = f.address(_STOPS).load(ordering="monotonic")
    with f.when(stops.ne(0)):
        thread = f.call(PTHREAD_SELF)
        with f.loop(0, stops) as loop:
            stopped = f.address(_STOPPED)[loop.index].load(ordering="monotonic")
            with f.when(stopped.eq(thread)):
                f.returns(1)
    with f.when(~_is_main(f)):
        word = f.call(PTHREAD_GETSPECIFIC, f.address(_STOP_KEY).load()).to(I64)
        f.return_if(word.is_null(), 0)
        f.returns(word.load(ordering="monotonic").ne(0).zext(32))
    now, last = f.call(_CLOCK), f.address(_LAST)
    is_early = (now - last.load(ordering="monotonic")).compare("ule", EVERY_NS)
    with f.when(is_early):
        f.returns(0)
    last.store(now, ordering="monotonic")
    state = f.call(cpython.GIL_STATE_ENSURE)
    status = f.call(cpython.ERR_CHECK_SIGNALS)
    with f.when(status.ne(0)):
        f.call(RAISE_LATER, f.call(RAISED))
    f.call(cpython.GIL_STATE_RELEASE, state)
    f.returns(status.ne(0).zext(32))
    return f


def _is_main(f: Function) -> Value:
    return f.call(PTHREAD_SELF).eq(f.address(_MAIN_THREAD).load())


def _raised() -> Function:
    """The exception that is pending, with its traceback, which is no longer pending."""
    f = Function.of(RAISED)
    places = [f.local(POINTER) for _ in range(3)]
    f.call(cpython.ERR_FETCH, *places)
    f.call(cpython.ERR_NORMALIZE_EXCEPTION, *places)
    type, value, traceback = (place.load_pointer() for place in places)
    with f.when(~traceback.is_null()):
        f.call(cpython.EXCEPTION_SET_TRACEBACK, value, traceback)
        f.call(cpython.PY_DEC_REF, traceback)
    f.call(cpython.PY_DEC_REF, type)
    f.returns(value)
    return f


def _raise_now() -> Function:
    """A pending call of Python's: raises the exception, or puts the call off while a handler runs."""
    f = Function.of(_RAISE_NOW)
    error, now, looked = f.pointer("error"), f.call(_CLOCK), f.address(_LOOKED)
    wait, throw = f.new_block("wait"), f.new_block("throw")
    f.go_on_if((now - looked.load()).compare("uge", _LOOK_NS), wait)
    answer = f.call(cpython.OBJECT_VECTORCALL, f.address(_IN_HANDLER).load_pointer(), None, 0, None)
    with f.when(answer.is_null()):  # a handler came up meanwhile, and raised another
        f.call(cpython.PY_ADD_PENDING_CALL, f.address(_RAISE_NOW), error)
        f.returns(-1)
    handles = f.call(cpython.OBJECT_IS_TRUE, answer)
    f.call(cpython.PY_DEC_REF, answer)
    f.go_on_if(handles.eq(1), throw)
    looked.store(now)
    f.jump(wait)
    f.start(wait)
    status = f.call(cpython.PY_ADD_PENDING_CALL, f.address(_RAISE_NOW), error)
    f.go_on_if(status.eq(0), throw)
    f.returns(0)
    f.start(throw)
    type = f.call(cpython.OBJECT_TYPE, error)
    f.call(cpython.ERR_SET_OBJECT, type, error)
    f.call(cpython.PY_DEC_REF, type)
    f.call(cpython.PY_DEC_REF, error)
    f.returns(-1)
    return f


def _clock(target: Target) -> Function:
    f = Function.of(_CLOCK)
    f.returns(monotonic_ns(f, target))
    return f


def _raise_later() -> Function:
    """Raises the exception as soon as this thread is back in Python code; takes its reference.

    The main thread gets the same object, any other one of the same type: Python has no more. The interpreter's lock is
    held.
    """
    f = Function.of(RAISE_LATER)
    error = f.pointer("error")
    with f.when(f.call(cpython.PY_IS_FINALIZING).eq(0)):
        is_main = IfElse(f, _is_main(f))
        status = f.call(cpython.PY_ADD_PENDING_CALL, f.address(_RAISE_NOW), error)
        with f.when(status.eq(0)):
            f.returns()
        f.call(cpython.ERR_SET_INTERRUPT)  # the queue of pending calls is full
        is_main.otherwise()
        type = f.call(cpython.OBJECT_TYPE, error)
        f.call(cpython.THREAD_STATE_SET_ASYNC_EXC, f.call(PTHREAD_SELF), type)
        f.call(cpython.PY_DEC_REF, type)
        is_main.end()
    f.call(cpython.PY_DEC_REF, error)
    f.returns()
    return f


def _step() -> Function:
    f = Function.of(STEP)
    operands, result = f.local(POINTER, 2), f.local(POINTER)
    state = f.call(cpython.GIL_STATE_ENSURE)
    number = f.call(cpython.LONG_FROM_LONG_LONG, f.argument("number"))
    table = f.call(cpython.LONG_FROM_VOID_PTR, f.pointer("table"))
    operands.store(number)
    operands[1].store(table)
    result.store(None)
    with f.when(~(number.is_null() | table.is_null())):
        result.store(f.call(cpython.OBJECT_VECTORCALL, f.pointer("function"), operands, 2, None))
    f.call(cpython.PY_DEC_REF, number)
    f.call(cpython.PY_DEC_REF, table)
    failed = result.load_pointer().is_null()
    has_failed = IfElse(f, failed)
    error = f.call(RAISED)
    is_plain = f.call(cpython.ERR_GIVEN_EXCEPTION_MATCHES, error, f.address(cpython.EXC_EXCEPTION).load_pointer())
    is_interrupt = IfElse(f, _is_main(f) & is_plain.eq(0))
    f.call(RAISE_LATER, error)
    is_interrupt.otherwise()
    key = f.address(Global.text("key", _KEY))
    f.call(cpython.DICT_SET_ITEM_STRING, f.call(cpython.THREAD_STATE_GET_DICT), key, error)
    f.call(cpython.PY_DEC_REF, error)
    is_interrupt.end()
    has_failed.otherwise()
    f.call(cpython.PY_DEC_REF, result.load_pointer())
    has_failed.end()
    f.call(cpython.GIL_STATE_RELEASE, state)
    f.returns(failed.zext(32))
    return f
