"""Long kernels run on a thread of their own, so that their caller hears signals meanwhile.

`i32 hlokit_interruptible(ptr pool, ptr function, ptr table, i64 chunks, i64 work)` does what `hlokit_parallel` does and
gives 0; or 1 as soon as `hlokit_interrupted` says that the loop is to be left: then no thread is at the job any more,
and what it was to write is half done. `work`: estimated nanoseconds on one thread; a short job is run by its caller,
which asks then, as is any where the system has no more threads. `pool` may be null for one chunk.

The caller sleeps, and asks `hlokit_interrupted` every 50 ms. How the threads are made to leave: hlokit.cpu.jit.guard.
"""

from __future__ import annotations

import re
from functools import cache

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.guard import signal_number
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool import code
from hlokit.cpu.jit.pool_text import STATE, signals_blocked
from hlokit.cpu.target import Target, host
from hlokit.runtime import interrupt
from hlokit.stack import SIZE

_SHORT_NS = 4_000_000
"""A thread's share of a job below which the caller takes part in it: to make a thread takes 25 us."""


def symbols() -> dict[str, int]:
    """For libraries that call the functions."""
    found = {"hlokit_interruptible": _code().address("hlokit_interruptible")}
    return found | {name: code().address(name) for name in ("hlokit_hold", "hlokit_go_on")}


_CALLED = ("hlokit_parallel_until", "hlokit_signal", "hlokit_ending", "hlokit_ended")


@cache
def _code() -> Library:
    target = host()
    functions = {name: code().address(name) for name in _CALLED} | interrupt.symbols()
    return Library([compiled(text(target), target, name="long kernels")], functions)


def text(target: Target) -> str:
    """The functions' LLVM text."""
    linux = "linux" in target.triple
    values = {
        "SETMASK": "2" if linux else "3",
        "SIGNALS": str(signals_blocked(linux)),
        "SIZE": str(SIZE),
        "SHORT": str(_SHORT_NS),
        "KILL": str(signal_number(target)),
        "WANTED": str(STATE["WANTED"]),
        "FUTEX": "202" if target.arch == "x86_64" else "98",
    }
    return re.sub(r"\$([A-Z]+)", lambda match: values[match[1]], _TEXT + (_LINUX if linux else _OTHERS))


_TEXT = """
declare i32 @hlokit_interrupted()
declare void @hlokit_parallel_until(ptr, ptr, ptr, i64, ptr)
declare void @hlokit_signal(ptr, ptr)
declare void @hlokit_ending()
declare void @hlokit_ended()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_kill(i64, i32)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)

; The job: 0 whether it is done, 4 whether it is to stop, 8 pool, 16 function, 24 table, 32 chunks.
define i32 @hlokit_interruptible(ptr %pool, ptr %function, ptr %table, i64 %chunks, i64 %work) {
entry:
  %job = alloca [64 x i8], align 64
  %thread_at = alloca i64, align 8
  %signals = alloca [128 x i8], align 8
  %former = alloca [128 x i8], align 8
  %attributes = alloca [128 x i8], align 8
  %stop = getelementptr i8, ptr %job, i64 4
  %pool_at = getelementptr i8, ptr %job, i64 8
  %function_at = getelementptr i8, ptr %job, i64 16
  %table_at = getelementptr i8, ptr %job, i64 24
  %chunks_at = getelementptr i8, ptr %job, i64 32
  %none = icmp eq ptr %pool, null
  br i1 %none, label %measure, label %count

count:
  %wanted_at = getelementptr i8, ptr %pool, i64 $WANTED
  %workers = load i32, ptr %wanted_at
  %threads = add i32 %workers, 1
  %wide = zext i32 %threads to i64
  %most = call i64 @llvm.smin.i64(i64 %wide, i64 %chunks)
  br label %measure

measure:
  %number = phi i64 [ 1, %entry ], [ %most, %count ]
  %some = call i64 @llvm.smax.i64(i64 %number, i64 1)
  %share = udiv i64 %work, %some
  %short = icmp ult i64 %share, $SHORT
  br i1 %short, label %here, label %there

here:
  call void @hlokit_parallel_until(ptr %pool, ptr %function, ptr %table, i64 %chunks, ptr null)
  %due = call i32 @hlokit_interrupted()
  ret i32 %due

there:
  store i64 0, ptr %job
  store ptr %pool, ptr %pool_at
  store ptr %function, ptr %function_at
  store ptr %table, ptr %table_at
  store i64 %chunks, ptr %chunks_at
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  store i64 $SIGNALS, ptr %signals
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %signals, ptr %former)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 $SIZE)
  %error = call i32 @pthread_create(ptr %thread_at, ptr %attributes, ptr @run, ptr %job)
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %former, ptr null)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %here, label %wait

wait:
  call void @sleep(ptr %job, i64 50000000)
  %finished = load atomic i32, ptr %job acquire, align 4
  %is_done = icmp ne i32 %finished, 0
  br i1 %is_done, label %join, label %ask

ask:
  %interrupted = call i32 @hlokit_interrupted()
  %left = icmp ne i32 %interrupted, 0
  br i1 %left, label %end, label %wait

end:
  call void @hlokit_ending()
  store atomic i32 1, ptr %stop seq_cst, align 4
  br label %send

send:
  %thread = load i64, ptr %thread_at
  call i32 @pthread_kill(i64 %thread, i32 $KILL)
  br i1 %none, label %rest, label %workers_too

workers_too:
  call void @hlokit_signal(ptr %pool, ptr %stop)
  br label %rest

rest:
  call void @sleep(ptr %job, i64 10000000)
  %over = load atomic i32, ptr %job acquire, align 4
  %is_over = icmp ne i32 %over, 0
  br i1 %is_over, label %ended, label %send

ended:
  call void @hlokit_ended()
  br label %join

join:
  %status = phi i32 [ 0, %wait ], [ 1, %ended ]
  %id = load i64, ptr %thread_at
  call i32 @pthread_join(i64 %id, ptr null)
  ret i32 %status
}

define internal ptr @run(ptr %job) {
  %stop = getelementptr i8, ptr %job, i64 4
  %pool_at = getelementptr i8, ptr %job, i64 8
  %function_at = getelementptr i8, ptr %job, i64 16
  %table_at = getelementptr i8, ptr %job, i64 24
  %chunks_at = getelementptr i8, ptr %job, i64 32
  %pool = load ptr, ptr %pool_at
  %function = load ptr, ptr %function_at
  %table = load ptr, ptr %table_at
  %chunks = load i64, ptr %chunks_at
  call void @hlokit_parallel_until(ptr %pool, ptr %function, ptr %table, i64 %chunks, ptr %stop)
  store atomic i32 1, ptr %job seq_cst, align 4
  call void @wake(ptr %job)
  ret ptr null
}
"""

_LINUX = """
declare i64 @syscall(i64, ...)

; Until the word is not 0, for so many nanoseconds at most, or less.
define internal void @sleep(ptr %word, i64 %most) {
  %time = alloca [2 x i64], align 8
  %rest_at = getelementptr i8, ptr %time, i64 8
  store i64 0, ptr %time
  store i64 %most, ptr %rest_at
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i32 0, ptr %time, ptr null, i64 0)
  ret void
}

define internal void @wake(ptr %word) {
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}
"""

_OTHERS = """
declare i32 @usleep(i32)

define internal void @sleep(ptr %word, i64 %most) {
  call i32 @usleep(i32 200)
  ret void
}

define internal void @wake(ptr %word) {
  ret void
}
"""
