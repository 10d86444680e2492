"""Ctrl-C in machine code.

Python notes a signal and runs its handler when Python code runs next. A long native loop calls `i32
hlokit_interrupted()` now and then (it reads the clock; more often than every few us is waste): every 50 ms, on the
main thread, it lets Python run the handlers of the signals that came. It gives 1 if one raised an exception; then the
loop is to be left, and `raise_interrupt` raises the exception. It also gives 1 on the threads of `stop_threads`.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any

from hlokit.cpu.cache import compiled
from hlokit.cpu.jit import Library
from hlokit.cpu.target import Target, host

_KEY = "hlokit interrupt"
EVERY_NS = 50_000_000
_MOST = 1024
"""Threads that can be stopped at a time."""
_stopped: list[int] = []
_lock = threading.Lock()


def symbols() -> dict[str, int]:
    """For libraries that call the function."""
    return {"hlokit_interrupted": _code().address("hlokit_interrupted")}


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


def raise_interrupt() -> None:
    """Raises the exception that made `hlokit_interrupted` give 1 on this thread, if there is one."""
    get: Any = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.c_void_p
    state: dict[str, Any] = ctypes.cast(get(), ctypes.py_object).value
    error = state.pop(_KEY, None)
    if error is not None:
        raise error


@cache
def _code() -> Library:
    target = host()
    names = re.findall(r"declare .*@(Py\w+)", _TEXT)
    functions = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0 for name in names}
    library = Library([compiled(text(target), target, name="interrupt")], functions)
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
    words = {"$CLOCK": clock, "$EVERY": str(EVERY_NS), "$KEY": _KEY, "$MOST": str(_MOST)}
    return reduce(lambda found, word: found.replace(*word), words.items(), _TEXT)


_TEXT = """
@hlokit_main_thread = global i64 0
@hlokit_stops = global i64 0
@hlokit_stopped = global [$MOST x i64] zeroinitializer
@last = internal global i64 0
@key = internal constant [17 x i8] c"$KEY\\00"

declare i32 @clock_gettime(i32, ptr)
declare i64 @pthread_self()
declare i32 @PyGILState_Ensure()
declare void @PyGILState_Release(i32)
declare i32 @PyErr_CheckSignals()
declare void @PyErr_Fetch(ptr, ptr, ptr)
declare void @PyErr_NormalizeException(ptr, ptr, ptr)
declare i32 @PyException_SetTraceback(ptr, ptr)
declare ptr @PyThreadState_GetDict()
declare i32 @PyDict_SetItemString(ptr, ptr, ptr)
declare void @Py_DecRef(ptr)

define i32 @hlokit_interrupted() {
entry:
  %time = alloca [2 x i64], align 8
  %type.at = alloca ptr
  %value.at = alloca ptr
  %trace.at = alloca ptr
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
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest.at
  %large = mul i64 %seconds, 1000000000
  %now = add i64 %large, %rest
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
  call void @PyErr_Fetch(ptr %type.at, ptr %value.at, ptr %trace.at)
  call void @PyErr_NormalizeException(ptr %type.at, ptr %value.at, ptr %trace.at)
  %type = load ptr, ptr %type.at
  %value = load ptr, ptr %value.at
  %trace = load ptr, ptr %trace.at
  %none = icmp eq ptr %trace, null
  br i1 %none, label %keep, label %traced

traced:
  call i32 @PyException_SetTraceback(ptr %value, ptr %trace)
  br label %keep

keep:
  %dict = call ptr @PyThreadState_GetDict()
  call i32 @PyDict_SetItemString(ptr %dict, ptr @key, ptr %value)
  call void @Py_DecRef(ptr %type)
  call void @Py_DecRef(ptr %value)
  call void @Py_DecRef(ptr %trace)
  br label %release

release:
  call void @PyGILState_Release(i32 %state)
  %result = icmp ne i32 %status, 0
  %one = zext i1 %result to i32
  ret i32 %one

no:
  ret i32 0
}
"""
