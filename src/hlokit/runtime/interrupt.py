"""Ctrl-C in machine code, and Python that machine code calls.

Python notes a signal and runs its handler when Python code runs next. A long native loop calls `i32
hlokit_interrupted()` now and then (it reads the clock; more often than every few us is waste): every 50 ms, on the
main thread, it lets Python run the handlers of the signals that came. It gives 1 if one raised an exception; then the
loop is to be left: the exception is raised again as soon as the thread is back in Python code. It also gives 1 on the
threads of `stop_threads`.

`i32 hlokit_step(ptr function, i64 number, ptr table)` calls a Python function of two integers and gives 1 if an
exception escaped it, which may be an interrupt before its first line: so no ctypes callback will do, which drops these.
The machine code is then to be left, and `raise_kept` raises the exception.

An exception that is to be raised again waits while a handler of another signal runs: raised at the handler's first
line, it would take that signal's effect away.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, reduce
from traceback import walk_stack, walk_tb
from types import CodeType
from typing import Any

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.target import Target, host
from hlokit.forks import lock

_KEY = "hlokit interrupt"
EVERY_NS = 50_000_000
_LOOK_NS = 1_000_000
"""How often an exception that waits for the end of a handler looks whether it has ended."""
_MOST = 1024
"""Threads that can be stopped at a time."""
_stopped: list[int] = []
_lock = lock()


def symbols() -> dict[str, int]:
    """For libraries that call the functions."""
    return {name: _code().address(name) for name in _SYMBOLS}


_SYMBOLS = ("hlokit_interrupted", "hlokit_main_thread", "hlokit_raised", "hlokit_raise_later")


def step_address() -> int:
    """Of `hlokit_step`; its first argument is the id of the Python function, which somebody must hold."""
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


def raise_kept() -> None:
    """Raises the exception that escaped a step of this thread, if there is one."""
    get: Any = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.c_void_p
    state: dict[str, Any] = ctypes.cast(get(), ctypes.py_object).value
    error = state.pop(_KEY, None)
    if error is not None:
        raise error


def python_functions(text: str) -> dict[str, int]:
    """The addresses of what an LLVM text declares of CPython."""
    public = hasattr(ctypes.pythonapi, "Py_IsFinalizing")
    names = {name: name for name in re.findall(r"declare .*@(Py\w+)", text)}
    names["hlokit_finalizing"] = "Py_IsFinalizing" if public else "_Py_IsFinalizing"
    return {
        name: ctypes.cast(getattr(ctypes.pythonapi, own), ctypes.c_void_p).value or 0 for name, own in names.items()
    }


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


@cache
def _code() -> Library:
    target = host()
    functions = python_functions(_TEXT)
    functions["PyExc_Exception"] = ctypes.addressof(ctypes.c_void_p.in_dll(ctypes.pythonapi, "PyExc_Exception"))
    library = Library([compiled(text(target), target, name="interrupt")], functions)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(_in_handler))  # pending calls may outlive this module's variables
    ctypes.c_uint64.from_address(library.address("hlokit_in_handler")).value = id(_in_handler)
    place = ctypes.c_uint64.from_address(library.address("hlokit_main_thread"))

    def note() -> None:
        place.value = threading.main_thread().ident or 0

    note()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=note)
    return library


def text(target: Target) -> str:
    """The function's LLVM text."""
    clock = "1" if "linux" in target.triple else "6"
    words = {"$CLOCK": clock, "$EVERY": str(EVERY_NS), "$KEY": _KEY, "$MOST": str(_MOST), "$LOOK": str(_LOOK_NS)}
    return reduce(lambda found, word: found.replace(*word), words.items(), _TEXT)


_TEXT = """
@hlokit_main_thread = global i64 0
@hlokit_stops = global i64 0
@hlokit_stopped = global [$MOST x i64] zeroinitializer
@hlokit_in_handler = global ptr null
@last = internal global i64 0
@looked = internal global i64 0
@key = internal constant [17 x i8] c"$KEY\\00"

declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare i32 @PyErr_GivenExceptionMatches(ptr, ptr)
declare void @PyErr_SetInterrupt()
declare void @PyErr_SetObject(ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)
declare i32 @PyObject_IsTrue(ptr)
declare ptr @PyObject_Type(ptr)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyLong_FromVoidPtr(ptr)
declare ptr @PyThreadState_GetDict()
declare i32 @PyThreadState_SetAsyncExc(i64, ptr)
declare i32 @PyDict_SetItemString(ptr, ptr, ptr)
declare i32 @Py_AddPendingCall(ptr, ptr)
declare void @Py_DecRef(ptr)
declare i32 @hlokit_finalizing()

@PyExc_Exception = external global ptr

define i32 @hlokit_interrupted() {
entry:
  %stops = load atomic i64, ptr @hlokit_stops monotonic, align 8
  %any = icmp ne i64 %stops, 0
  br i1 %any, label %search, label %ticks

search:
  %me = call i64 @pthread_self()
  br label %next

next:
  %k = phi i64 [ 0, %search ], [ %after, %more ]
  %thread.at = getelementptr i64, ptr @hlokit_stopped, i64 %k
  %thread = load atomic i64, ptr %thread.at monotonic, align 8
  %found = icmp eq i64 %thread, %me
  br i1 %found, label %stop, label %more

more:
  %after = add i64 %k, 1
  %left = icmp ult i64 %after, %stops
  br i1 %left, label %next, label %ticks

stop:
  ret i32 1

ticks:
  %now = call i64 @clock()
  %then = load atomic i64, ptr @last monotonic, align 8
  %passed = sub i64 %now, %then
  %due = icmp ugt i64 %passed, $EVERY
  br i1 %due, label %who, label %no

who:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @hlokit_main_thread
  %is_main = icmp eq i64 %self, %main
  br i1 %is_main, label %ask, label %no

ask:
  store atomic i64 %now, ptr @last monotonic, align 8
  %state = call i32 @PyGILState_Ensure()
  %status = call i32 @PyErr_CheckSignals()
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %release, label %catch

catch:
  %error = call ptr @hlokit_raised()
  call void @hlokit_raise_later(ptr %error)
  br label %release

release:
  call void @PyGILState_Release(i32 %state)
  %result = icmp ne i32 %status, 0
  %one = zext i1 %result to i32
  ret i32 %one

no:
  ret i32 0
}

; The exception that is pending, with its traceback, which is no longer pending.
define ptr @hlokit_raised() {
  %type.at = alloca ptr
  %value.at = alloca ptr
  %trace.at = alloca ptr
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %trace.at)
  call void @PyErr_NormalizeException(ptr %type.at, ptr %value.at, ptr %trace.at)
  %type = load ptr, ptr %type.at
  %value = load ptr, ptr %value.at
  %trace = load ptr, ptr %trace.at
  %none = icmp eq ptr %trace, null
  br i1 %none, label %done, label %traced

traced:
  call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  call void @Py_DecRef(ptr %trace)
  br label %done

done:
  call void @Py_DecRef(ptr %type)
  ret ptr %value
}

; Nanoseconds of a clock that does not go back.
define internal i64 @clock() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %large = mul i64 %seconds, 1000000000
  %now = add i64 %large, %rest
  ret i64 %now
}

; A pending call of Python's: raises the exception, or puts the call off while a handler runs.
define internal i32 @raise_now(ptr %error) {
entry:
  %now = call i64 @clock()
  %then = load i64, ptr @looked
  %passed = sub i64 %now, %then
  %soon = icmp ult i64 %passed, $LOOK
  br i1 %soon, label %wait, label %look

look:
  %function = load ptr, ptr @hlokit_in_handler
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr null, i64 0, ptr null)
  %none = icmp eq ptr %answer, null
  br i1 %none, label %other, label %told

told:
  %truth = call i32 @PyObject_IsTrue(ptr %answer)
  call void @Py_DecRef(ptr %answer)
  %handles = icmp eq i32 %truth, 1
  br i1 %handles, label %note, label %raise

note:
  store i64 %now, ptr @looked
  br label %wait

wait:
  %status = call i32 @Py_AddPendingCall(ptr @raise_now, ptr %error)
  %taken = icmp eq i32 %status, 0
  br i1 %taken, label %later, label %raise

later:
  ret i32 0

; a handler came up meanwhile, and raised another
other:
  %again = call i32 @Py_AddPendingCall(ptr @raise_now, ptr %error)
  ret i32 -1

raise:
  %type = call ptr @PyObject_Type(ptr %error)
  call void @PyErr_SetObject(ptr %type, ptr %error)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %error)
  ret i32 -1
}

; Raises the exception as soon as this thread is back in Python code; takes its reference. The main thread gets the same
; object, any other one of the same type: Python has no more. The interpreter's lock is held.
define void @hlokit_raise_later(ptr %error) {
  %down = call i32 @hlokit_finalizing()
  %ends = icmp ne i32 %down, 0
  br i1 %ends, label %drop, label %on

on:
  %self = call i64 @pthread_self()
  %main = load i64, ptr @hlokit_main_thread
  %is_main = icmp eq i64 %self, %main
  br i1 %is_main, label %pend, label %other

pend:
  %status = call i32 @Py_AddPendingCall(ptr @raise_now, ptr %error)
  %taken = icmp eq i32 %status, 0
  br i1 %taken, label %done, label %full

full:
  call void @PyErr_SetInterrupt()
  br label %drop

other:
  %type = call ptr @PyObject_Type(ptr %error)
  call i32 @PyThreadState_SetAsyncExc(i64 %self, ptr %type)
  call void @Py_DecRef(ptr %type)
  br label %drop

drop:
  call void @Py_DecRef(ptr %error)
  br label %done

done:
  ret void
}

define i32 @hlokit_step(ptr %function, i64 %number, ptr %table) {
  %arguments = alloca [2 x ptr], align 8
  %second.at = getelementptr i8, ptr %arguments, i64 8
  %state = call i32 @PyGILState_Ensure()
  %first = call ptr @PyLong_FromLongLong(i64 %number)
  %second = call ptr @PyLong_FromVoidPtr(ptr %table)
  store ptr %first, ptr %arguments
  store ptr %second, ptr %second.at
  %no.first = icmp eq ptr %first, null
  %no.second = icmp eq ptr %second, null
  %neither = or i1 %no.first, %no.second
  br i1 %neither, label %called, label %call

call:
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %arguments, i64 2, ptr null)
  br label %called

called:
  %result = phi ptr [ null, %0 ], [ %answer, %call ]
  call void @Py_DecRef(ptr %first)
  call void @Py_DecRef(ptr %second)
  %failed = icmp eq ptr %result, null
  br i1 %failed, label %keep, label %fine

keep:
  %error = call ptr @hlokit_raised()
  %base = load ptr, ptr @PyExc_Exception
  %plain = call i32 @PyErr_GivenExceptionMatches(ptr %error, ptr %base)
  %self = call i64 @pthread_self()
  %main = load i64, ptr @hlokit_main_thread
  %is_main = icmp eq i64 %self, %main
  %is_interrupt = icmp eq i32 %plain, 0
  %later = and i1 %is_main, %is_interrupt
  br i1 %later, label %interrupt, label %error.kept

interrupt:
  call void @hlokit_raise_later(ptr %error)
  br label %release

error.kept:
  %dict = call ptr @PyThreadState_GetDict()
  call i32 @PyDict_SetItemString(ptr %dict, ptr @key, ptr %error)
  call void @Py_DecRef(ptr %error)
  br label %release

fine:
  call void @Py_DecRef(ptr %result)
  br label %release

release:
  %status = phi i32 [ 1, %interrupt ], [ 1, %error.kept ], [ 0, %fine ]
  call void @PyGILState_Release(i32 %state)
  ret i32 %status
}
"""
