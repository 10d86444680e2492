"""Entries that take more stack than their caller has run on a thread of their own.

`i32 hlokit_on_stack(ptr function, ptr bases, i64 bytes)` gives what `function(bases)` gives. Which part of memory a
thread's stack is, the system is asked once a thread. A caller on some other stack, as of a coroutine, counts as one
with none.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool_text import signals_blocked
from hlokit.cpu.target import Target, host
from hlokit.errors import EvaluationError
from hlokit.stack import SIZE


def symbols() -> dict[str, int]:
    """For libraries that call the function."""
    return {"hlokit_on_stack": _code().address("hlokit_on_stack")}


def raise_refused() -> None:
    """Raises EvaluationError if `hlokit_on_stack` had no thread to run on when this thread last called it."""
    if ctypes.CFUNCTYPE(ctypes.c_int32)(_code().address("hlokit_stack_refused"))():
        raise EvaluationError("the thread's stack is too small for the program, and the system has no other thread")


@cache
def _code() -> Library:
    target = host()
    library = Library([compiled(text(target), target, name="stack")])
    if ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("hlokit_stack_prepare"))():
        raise EvaluationError("the process has no key left for values of its threads (pthread_key_create)")
    return library


def text(target: Target) -> str:
    """The functions' LLVM text."""
    linux = "linux" in target.triple
    values = {
        "SETMASK": "2" if linux else "3",
        "SIGNALS": str(signals_blocked(linux)),
        "SIZE": str(SIZE),
        "ROOM": str(1 << 20),
    }
    return re.sub(r"\$([A-Z]+)", lambda match: values[match[1]], _TEXT + (_LINUX if linux else _DARWIN))


_TEXT = """
@bounds = internal global i64 0
@refused = internal global i64 0

declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)
declare i64 @pthread_self()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare ptr @malloc(i64)
declare void @free(ptr)

define i32 @hlokit_stack_prepare() {
  %one = call i32 @pthread_key_create(ptr @bounds, ptr @free)
  %two = call i32 @pthread_key_create(ptr @refused, ptr null)
  %error = or i32 %one, %two
  ret i32 %error
}

define i32 @hlokit_stack_refused() {
  %key = load i64, ptr @refused
  %value = call ptr @pthread_getspecific(i64 %key)
  call i32 @pthread_setspecific(i64 %key, ptr null)
  %known = icmp ne ptr %value, null
  %result = zext i1 %known to i32
  ret i32 %result
}

define i32 @hlokit_on_stack(ptr %function, ptr %bases, i64 %bytes) noinline {
entry:
  %here = call ptr @llvm.frameaddress.p0(i32 0)
  %key = load i64, ptr @bounds
  %found = call ptr @pthread_getspecific(i64 %key)
  %unknown = icmp eq ptr %found, null
  br i1 %unknown, label %ask, label %compare

ask:
  %asked = call ptr @ask(i64 %key)
  %failed = icmp eq ptr %asked, null
  br i1 %failed, label %elsewhere, label %compare

compare:
  %bounds = phi ptr [ %found, %entry ], [ %asked, %ask ]
  %low = load i64, ptr %bounds
  %size_at = getelementptr i8, ptr %bounds, i64 8
  %size = load i64, ptr %size_at
  %place = ptrtoint ptr %here to i64
  %left = sub i64 %place, %low
  %inside = icmp ult i64 %left, %size
  %enough = icmp uge i64 %left, %bytes
  %fits = and i1 %inside, %enough
  br i1 %fits, label %call, label %elsewhere

call:
  %own = call i32 %function(ptr %bases)
  ret i32 %own

elsewhere:
  %other = call i32 @elsewhere(ptr %function, ptr %bases, i64 %bytes)
  ret i32 %other
}

; The lowest address of this thread's stack and its size, noted for later; null if the system does not say.
define internal ptr @ask(i64 %key) noinline {
entry:
  %found = alloca [2 x i64], align 8
  %error = call i32 @stack(ptr %found)
  %fine = icmp eq i32 %error, 0
  br i1 %fine, label %keep, label %fail

keep:
  %kept = call ptr @malloc(i64 16)
  %none = icmp eq ptr %kept, null
  br i1 %none, label %fail, label %note

note:
  call void @llvm.memcpy.p0.p0.i64(ptr %kept, ptr %found, i64 16, i1 false)
  call i32 @pthread_setspecific(i64 %key, ptr %kept)
  ret ptr %kept

fail:
  ret ptr null
}

define internal i32 @elsewhere(ptr %function, ptr %bases, i64 %bytes) noinline {
entry:
  %job = alloca { ptr, ptr, i32 }, align 8
  %thread = alloca i64, align 8
  %signals = alloca [128 x i8], align 8
  %former = alloca [128 x i8], align 8
  %attributes = alloca [128 x i8], align 8
  store ptr %function, ptr %job
  %bases_at = getelementptr i8, ptr %job, i64 8
  store ptr %bases, ptr %bases_at
  %status_at = getelementptr i8, ptr %job, i64 16
  %more = add i64 %bytes, $ROOM
  %size = call i64 @llvm.umax.i64(i64 %more, i64 $SIZE)
  %pages = add i64 %size, 65535
  %whole = and i64 %pages, -65536
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  store i64 $SIGNALS, ptr %signals
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %signals, ptr %former)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 %whole)
  %error = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @run, ptr %job)
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %former, ptr null)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %refuse, label %wait

wait:
  %id = load i64, ptr %thread
  call i32 @pthread_join(i64 %id, ptr null)
  %status = load i32, ptr %status_at
  ret i32 %status

refuse:
  %refused = load i64, ptr @refused
  call i32 @pthread_setspecific(i64 %refused, ptr @refused)
  ret i32 1
}

define internal ptr @run(ptr %job) {
  %function = load ptr, ptr %job
  %bases_at = getelementptr i8, ptr %job, i64 8
  %bases = load ptr, ptr %bases_at
  %status_at = getelementptr i8, ptr %job, i64 16
  %status = call i32 %function(ptr %bases)
  store i32 %status, ptr %status_at
  ret ptr null
}
"""

_LINUX = """
declare i32 @pthread_getattr_np(i64, ptr)
declare i32 @pthread_attr_getstack(ptr, ptr, ptr)

define internal i32 @stack(ptr %found) {
entry:
  %attributes = alloca [128 x i8], align 8
  %self = call i64 @pthread_self()
  %error = call i32 @pthread_getattr_np(i64 %self, ptr %attributes)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %end, label %get

get:
  %size_at = getelementptr i8, ptr %found, i64 8
  call i32 @pthread_attr_getstack(ptr %attributes, ptr %found, ptr %size_at)
  call i32 @pthread_attr_destroy(ptr %attributes)
  br label %end

end:
  ret i32 %error
}
"""

_DARWIN = """
declare i64 @pthread_get_stackaddr_np(i64)
declare i64 @pthread_get_stacksize_np(i64)

define internal i32 @stack(ptr %found) {
  %self = call i64 @pthread_self()
  %high = call i64 @pthread_get_stackaddr_np(i64 %self)
  %size = call i64 @pthread_get_stacksize_np(i64 %self)
  %low = sub i64 %high, %size
  store i64 %low, ptr %found
  %size_at = getelementptr i8, ptr %found, i64 8
  store i64 %size, ptr %size_at
  ret i32 0
}
"""
