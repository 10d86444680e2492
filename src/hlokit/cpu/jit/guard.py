"""Chunks of work that another thread can end midway, as LLVM text of the pool's module.

What runs chunks is machine code that only computes: it holds no lock, owns no memory and calls nothing but C's memory
and mathematical functions. So it can be left at any instruction. `guarded` calls it after `sigsetjmp`; who wants to end
the job sets the job's word `stop` and sends SIGNAL to the threads that may be at it, whose handler jumps out. Nothing
is asked for in the loops themselves. What a chunk was writing is left half done: nobody may look at it.

Routines of LAPACK are not of this kind: between `hlokit_hold` and `hlokit_go_on` a thread is left alone.

SIGNAL is one that processes ignore unless they ask for it. Its handler is ours only while somebody ends a job, and
threads take it only inside `guarded`.

    void guarded(ptr stop, ptr function, ptr table, i64 begin, i64 end)   function(table, begin, end), or part of it
    void hlokit_ending(), hlokit_ended()    round the time in which signals are sent: the handler is there
    i32 hlokit_guard_prepare()              once a process, before anything else; 0 if all is well
"""

from __future__ import annotations

import re

from hlokit.cpu.target import Target


def text(target: Target) -> str:
    """The functions' LLVM text."""
    linux = "linux" in target.triple
    x86 = target.arch == "x86_64"
    values = {
        "SIGNAL": str(signal_number(target)),
        "SETJMP": "__sigsetjmp" if linux else "sigsetjmp",
        "BIT": str(1 << (signal_number(target) - 1)),
        "UNBLOCK": "1" if linux else "2",
        "SETMASK": "2" if linux else "3",
        "FLAGS_AT": "136" if linux else "12",  # of struct sigaction
        "RESTART": str(0x10000000 if linux else 2),
        "SAVE": "call void @llvm.x86.sse.stmxcsr(ptr %modes)" if x86 else _SAVE_ARM,
        "RESTORE": "call void @llvm.x86.sse.ldmxcsr(ptr %modes)" if x86 else _RESTORE_ARM,
    }
    return re.sub(r"\$([A-Z_]+)", lambda match: values[match[1]], _TEXT)


def signal_number(target: Target) -> int:
    """The number of SIGURG, which is sent to threads whose work is to end."""
    return 23 if "linux" in target.triple else 16


_SAVE_ARM = """%fpcr = call i64 @llvm.aarch64.get.fpcr()
  store i64 %fpcr, ptr %modes"""
_RESTORE_ARM = """%fpcr.then = load i64, ptr %modes
  call void @llvm.aarch64.set.fpcr(i64 %fpcr.then)"""

_TEXT = """
@guards = internal global i64 0
@endings = internal global i32 0
@endings.lock = internal global i32 0
@former.action = internal global [256 x i8] zeroinitializer, align 16

declare i32 @$SETJMP(ptr, i32) returns_twice
declare void @siglongjmp(ptr, i32) noreturn
declare i32 @sigaction(i32, ptr, ptr)
declare i32 @sched_yield()
declare i32 @pthread_key_create(ptr, ptr)
declare ptr @pthread_getspecific(i64)
declare i32 @pthread_setspecific(i64, ptr)

define i32 @hlokit_guard_prepare() {
  %error = call i32 @pthread_key_create(ptr @guards, ptr null)
  ret i32 %error
}

; A guard: 0 whether the thread may be made to jump, 8 the job's word, 16 the guard outside this one, 24 the modes of
; floating-point arithmetic, 64 the signals that were blocked, 192 where to jump.
define internal void @guarded(ptr %stop, ptr %function, ptr %table, i64 %begin, i64 %end) noinline {
entry:
  %guard = alloca [1024 x i8], align 64
  %signals = alloca [128 x i8], align 8
  %word_at = getelementptr i8, ptr %guard, i64 8
  %outer_at = getelementptr i8, ptr %guard, i64 16
  %modes = getelementptr i8, ptr %guard, i64 24
  %blocked = getelementptr i8, ptr %guard, i64 64
  %place = getelementptr i8, ptr %guard, i64 192
  %key = load i64, ptr @guards
  %outer = call ptr @pthread_getspecific(i64 %key)
  store volatile i32 0, ptr %guard
  store volatile ptr %stop, ptr %word_at
  store volatile ptr %outer, ptr %outer_at
  $SAVE
  call void @llvm.memset.p0.i64(ptr %signals, i8 0, i64 128, i1 false)
  store i64 $BIT, ptr %signals
  call i32 @pthread_setspecific(i64 %key, ptr %guard)
  call i32 @pthread_sigmask(i32 $UNBLOCK, ptr %signals, ptr %blocked)
  %jumped = call i32 @$SETJMP(ptr %place, i32 0) returns_twice
  %first = icmp eq i32 %jumped, 0
  br i1 %first, label %look, label %left

look:
  store atomic volatile i32 1, ptr %guard seq_cst, align 4
  %word = load atomic i32, ptr %stop seq_cst, align 4
  %stopped = icmp ne i32 %word, 0
  br i1 %stopped, label %left, label %run

run:
  call void %function(ptr %table, i64 %begin, i64 %end)
  br label %left

left:
  store atomic volatile i32 0, ptr %guard seq_cst, align 4
  $RESTORE
  %key.then = load i64, ptr @guards
  %outer.then = load volatile ptr, ptr %outer_at
  call i32 @pthread_setspecific(i64 %key.then, ptr %outer.then)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %blocked, ptr null)
  ret void
}

; The signal's handler.
define internal void @jump(i32 %number) {
entry:
  %key = load i64, ptr @guards
  %guard = call ptr @pthread_getspecific(i64 %key)
  %none = icmp eq ptr %guard, null
  br i1 %none, label %end, label %look

look:
  %on = load atomic i32, ptr %guard seq_cst, align 4
  %off = icmp eq i32 %on, 0
  br i1 %off, label %end, label %ask

ask:
  call void @leave_if_stopped(ptr %guard)
  br label %end

end:
  ret void
}

define internal void @leave_if_stopped(ptr %guard) {
entry:
  %word_at = getelementptr i8, ptr %guard, i64 8
  %stop = load ptr, ptr %word_at
  %word = load atomic i32, ptr %stop seq_cst, align 4
  %stopped = icmp ne i32 %word, 0
  br i1 %stopped, label %leave, label %end

leave:
  store atomic i32 0, ptr %guard seq_cst, align 4
  %place = getelementptr i8, ptr %guard, i64 192
  call void @siglongjmp(ptr %place, i32 1)
  unreachable

end:
  ret void
}

; From here on this thread's work is not ended.
define void @hlokit_hold() {
entry:
  %key = load i64, ptr @guards
  %guard = call ptr @pthread_getspecific(i64 %key)
  %none = icmp eq ptr %guard, null
  br i1 %none, label %end, label %hold

hold:
  store atomic i32 0, ptr %guard seq_cst, align 4
  br label %end

end:
  ret void
}

; From here on it is again; at once, if the job has been stopped meanwhile.
define void @hlokit_go_on() {
entry:
  %key = load i64, ptr @guards
  %guard = call ptr @pthread_getspecific(i64 %key)
  %none = icmp eq ptr %guard, null
  br i1 %none, label %end, label %go

go:
  store atomic i32 1, ptr %guard seq_cst, align 4
  call void @leave_if_stopped(ptr %guard)
  br label %end

end:
  ret void
}

define void @hlokit_ending() {
entry:
  %action = alloca [256 x i8], align 16
  call void @lock_endings()
  %others = load i32, ptr @endings
  %more = add i32 %others, 1
  store i32 %more, ptr @endings
  %first = icmp eq i32 %others, 0
  br i1 %first, label %install, label %done

install:
  call void @llvm.memset.p0.i64(ptr %action, i8 0, i64 256, i1 false)
  store ptr @jump, ptr %action
  %flags_at = getelementptr i8, ptr %action, i64 $FLAGS_AT
  store i32 $RESTART, ptr %flags_at
  call i32 @sigaction(i32 $SIGNAL, ptr %action, ptr @former.action)
  br label %done

done:
  store atomic i32 0, ptr @endings.lock release, align 4
  ret void
}

define void @hlokit_ended() {
entry:
  call void @lock_endings()
  %all = load i32, ptr @endings
  %others = sub i32 %all, 1
  store i32 %others, ptr @endings
  %last = icmp eq i32 %others, 0
  br i1 %last, label %restore, label %done

restore:
  call i32 @sigaction(i32 $SIGNAL, ptr @former.action, ptr null)
  br label %done

done:
  store atomic i32 0, ptr @endings.lock release, align 4
  ret void
}

define internal void @lock_endings() {
entry:
  br label %try

try:
  %exchange = cmpxchg ptr @endings.lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %end, label %wait

wait:
  call i32 @sched_yield()
  br label %try

end:
  ret void
}

; In the child of a fork: whoever was ending a job is not in it.
define void @hlokit_guard_reset() {
entry:
  store i32 0, ptr @endings.lock
  %count = load i32, ptr @endings
  %any = icmp ne i32 %count, 0
  br i1 %any, label %restore, label %end

restore:
  store i32 0, ptr @endings
  call i32 @sigaction(i32 $SIGNAL, ptr @former.action, ptr null)
  br label %end

end:
  ret void
}
"""
