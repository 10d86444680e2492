"""The thread pool's code, as LLVM text.

Chunks are claimed one by one: a thread that the system has put aside delays one chunk, not its share of all. The caller
begins with the first chunk, workers with the last: what one job leaves in a core's cache, the next mostly finds there.
Who finds the pool at work, from another thread or from inside a chunk, runs its chunks itself. More than 65535 chunks
are claimed some at a time.

The state, in memory that is never freed:

    ticket    epoch << 32 | first << 16 | left: nobody has claimed the `left` pieces of work from `first` on. A claim
              is a compare-and-swap that takes off the first or the last; the job's fields are read after it, and
              cannot change before the piece that it claimed is counted as done
    piece     chunks in a piece of work;  many: how many pieces
    done      pieces finished; waiting: the caller sleeps on it
    stop      null, or a word of the one who runs the job: when it is not 0, chunks are left undone (guard.py)
    sleepers  workers that may be asleep; they sleep on the ticket's epoch
    busy      the lock of the one who runs a job;  started: 0 no worker yet, 1 running, 2 closed for good
"""

from __future__ import annotations

import re

from hlokit.cpu.jit import guard
from hlokit.cpu.target import Target

SPIN_NS = 200_000
_CLOSE_NS = 200_000_000
"""How long exit waits for a running job before it leaves the workers to themselves."""

STATE = {
    "TICKET": 0, "EPOCH": 4, "DONE": 64, "WAITING": 68,
    "FUNCTION": 128, "TABLE": 136, "CHUNKS": 144, "PIECE": 152, "MANY": 160, "WORD": 168,
    "SLEEPERS": 192, "BUSY": 256, "STARTED": 260, "STOP": 264, "WANTED": 268, "CREATED": 272,
    "MUTEX": 320, "CONDITION": 448, "THREADS": 576,
}  # fmt: skip
"""Where the state's fields begin, in bytes. What several threads write to has cache lines of its own."""
BYTES = 16384
"""Of the state: the last field holds as many threads as fit."""


def text(target: Target, futex: bool | None = None) -> str:
    """The pool's LLVM text. `futex`: threads sleep by Linux' system call; else by a condition variable."""
    linux = "linux" in target.triple
    x86 = target.arch == "x86_64"
    sleeping = _FUTEX if (linux if futex is None else futex) else _CONDITION_VARIABLE
    values = {
        "PAUSE": "call void @llvm.x86.sse2.pause()" if x86 else "call void @llvm.aarch64.hint(i32 1)",
        "CLOCK": "1" if linux else "6",
        "SETMASK": "2" if linux else "3",
        "SIGNALS": str(signals_blocked(linux)),
        "FUTEX": "202" if x86 else "98",
        "KILL": str(guard.signal_number(target)),
        "SPIN": str(SPIN_NS),
        "CLOSE": str(_CLOSE_NS),
        **{name: str(place) for name, place in STATE.items()},
    }
    own = re.sub(r"\$([A-Z]+)", lambda match: values[match[1]], _POOL.replace("$SPINNING\n", _SPINNING) + sleeping)
    return own + guard.text(target)


def signals_blocked(linux: bool) -> int:
    """The signals that threads of our own do not take, as a set's first 64 bits: all but those that faults raise."""
    faults = [4, 5, 6, 7, 8, 11] if linux else [4, 5, 6, 8, 10, 11]  # ILL TRAP ABRT BUS FPE SEGV
    return -1 - sum(1 << (number - 1) for number in faults)


_POOL = """
declare i32 @clock_gettime(i32, ptr)
declare i32 @usleep(i32)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_kill(i64, i32)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)

define void @hlokit_parallel(ptr %pool, ptr %function, ptr %table, i64 %chunks) {
  call void @hlokit_parallel_until(ptr %pool, ptr %function, ptr %table, i64 %chunks, ptr null)
  ret void
}

define void @hlokit_parallel_until(ptr %pool, ptr %function, ptr %table, i64 %chunks, ptr %stop) {
entry:
  %none = icmp eq ptr %pool, null
  br i1 %none, label %serial, label %count

count:
  %wanted_at = getelementptr i8, ptr %pool, i64 $WANTED
  %wanted = load i32, ptr %wanted_at
  %alone = icmp eq i32 %wanted, 0
  %few = icmp slt i64 %chunks, 2
  %many = icmp sgt i64 %chunks, 2147483647
  %cannot = or i1 %few, %many
  %never = or i1 %alone, %cannot
  br i1 %never, label %serial, label %lock

lock:
  %busy = getelementptr i8, ptr %pool, i64 $BUSY
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %locked, label %serial

locked:
  %started_at = getelementptr i8, ptr %pool, i64 $STARTED
  %started = load i32, ptr %started_at
  switch i32 %started, label %closed [
    i32 0, label %start
    i32 1, label %publish
  ]

closed:
  store atomic i32 0, ptr %busy release, align 4
  br label %serial

start:
  call void @start(ptr %pool)
  br label %publish

publish:
  %function_at = getelementptr i8, ptr %pool, i64 $FUNCTION
  store ptr %function, ptr %function_at
  %table_at = getelementptr i8, ptr %pool, i64 $TABLE
  store ptr %table, ptr %table_at
  %chunks_at = getelementptr i8, ptr %pool, i64 $CHUNKS
  store i64 %chunks, ptr %chunks_at
  %word_at = getelementptr i8, ptr %pool, i64 $WORD
  store atomic ptr %stop, ptr %word_at monotonic, align 8
  %filled = add i64 %chunks, 65534
  %piece = udiv i64 %filled, 65535
  %piece_at = getelementptr i8, ptr %pool, i64 $PIECE
  store i64 %piece, ptr %piece_at
  %less = sub i64 %chunks, 1
  %others = udiv i64 %less, %piece
  %pieces = add i64 %others, 1
  %pieces_at = getelementptr i8, ptr %pool, i64 $MANY
  store i64 %pieces, ptr %pieces_at
  %done_at = getelementptr i8, ptr %pool, i64 $DONE
  store atomic i32 0, ptr %done_at monotonic, align 4
  call void @advance(ptr %pool, i64 %pieces)
  call i1 @participate(ptr %pool, i1 true)
  %all = trunc i64 %pieces to i32
  %begin = call i64 @now()
  br label %spin

spin:
  %turn = phi i32 [ 0, %publish ], [ %turns, %pause ], [ %turns, %clock ]
  %done = load atomic i32, ptr %done_at acquire, align 4
  %finished = icmp eq i32 %done, %all
  br i1 %finished, label %unlock, label %pause

$SPINNING
rest:
  %waiting_at = getelementptr i8, ptr %pool, i64 $WAITING
  store atomic i32 1, ptr %waiting_at seq_cst, align 4
  br label %resting

resting:
  %soon = load atomic i32, ptr %done_at seq_cst, align 4
  %enough = icmp eq i32 %soon, %all
  br i1 %enough, label %rested, label %sleep

sleep:
  call void @sleep(ptr %pool, ptr %done_at, i32 %soon)
  br label %resting

rested:
  store atomic i32 0, ptr %waiting_at monotonic, align 4
  br label %unlock

unlock:
  store atomic i32 0, ptr %busy release, align 4
  ret void

serial:
  %nothing = icmp slt i64 %chunks, 1
  br i1 %nothing, label %end, label %run

run:
  call void @chunks(ptr %stop, ptr %function, ptr %table, i64 0, i64 %chunks)
  br label %end

end:
  ret void
}

define internal void @chunks(ptr %stop, ptr %function, ptr %table, i64 %begin, i64 %end) alwaysinline {
entry:
  %plain = icmp eq ptr %stop, null
  br i1 %plain, label %call, label %guard

call:
  call void %function(ptr %table, i64 %begin, i64 %end)
  br label %done

guard:
  call void @guarded(ptr %stop, ptr %function, ptr %table, i64 %begin, i64 %end)
  br label %done

done:
  ret void
}

; To the workers, if they may be at the job of this word.
define void @hlokit_signal(ptr %pool, ptr %stop) {
entry:
  %word_at = getelementptr i8, ptr %pool, i64 $WORD
  %created_at = getelementptr i8, ptr %pool, i64 $CREATED
  %threads = getelementptr i8, ptr %pool, i64 $THREADS
  %word = load atomic ptr, ptr %word_at monotonic, align 8
  %theirs = icmp eq ptr %word, %stop
  br i1 %theirs, label %count, label %end

count:
  %created = load i32, ptr %created_at
  %number = zext i32 %created to i64
  br label %next

next:
  %i = phi i64 [ 0, %count ], [ %following, %send ]
  %more = icmp ult i64 %i, %number
  br i1 %more, label %send, label %end

send:
  %thread_at = getelementptr i64, ptr %threads, i64 %i
  %thread = load i64, ptr %thread_at
  call i32 @pthread_kill(i64 %thread, i32 $KILL)
  %following = add i64 %i, 1
  br label %next

end:
  ret void
}

; The next epoch, with so many pieces of work to claim; wakes who sleeps.
define internal void @advance(ptr %pool, i64 %pieces) {
  %ticket_at = getelementptr i8, ptr %pool, i64 $TICKET
  %old = load atomic i64, ptr %ticket_at monotonic, align 8
  %next = add i64 %old, 4294967296
  %epoch = and i64 %next, -4294967296
  %ticket = or i64 %epoch, %pieces
  store atomic i64 %ticket, ptr %ticket_at seq_cst, align 8
  %sleepers_at = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers_at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %end

wake:
  %epoch_at = getelementptr i8, ptr %pool, i64 $EPOCH
  call void @wake(ptr %pool, ptr %epoch_at)
  br label %end

end:
  ret void
}

; Claims and runs pieces of work until none is left, the first ones first or last; whether there was one.
define internal i1 @participate(ptr %pool, i1 %ascending) {
entry:
  %ticket_at = getelementptr i8, ptr %pool, i64 $TICKET
  %done_at = getelementptr i8, ptr %pool, i64 $DONE
  %waiting_at = getelementptr i8, ptr %pool, i64 $WAITING
  %function_at = getelementptr i8, ptr %pool, i64 $FUNCTION
  %table_at = getelementptr i8, ptr %pool, i64 $TABLE
  %chunks_at = getelementptr i8, ptr %pool, i64 $CHUNKS
  %piece_at = getelementptr i8, ptr %pool, i64 $PIECE
  %change = select i1 %ascending, i64 65535, i64 -1
  br label %look

look:
  %ran = phi i32 [ 0, %entry ], [ %ran, %claim ], [ %more, %run ]
  %ticket = load atomic i64, ptr %ticket_at acquire, align 8
  %left = and i64 %ticket, 65535
  %none = icmp eq i64 %left, 0
  br i1 %none, label %out, label %claim

claim:
  %less = add i64 %ticket, %change
  %exchange = cmpxchg weak ptr %ticket_at, i64 %ticket, i64 %less acq_rel acquire
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %run, label %look

run:
  %function = load ptr, ptr %function_at
  %table = load ptr, ptr %table_at
  %chunks = load i64, ptr %chunks_at
  %piece = load i64, ptr %piece_at
  %lower = and i64 %ticket, 4294967295
  %first = lshr i64 %lower, 16
  %end_of = add i64 %first, %left
  %last = sub i64 %end_of, 1
  %number = select i1 %ascending, i64 %first, i64 %last
  %begin = mul i64 %number, %piece
  %following = add i64 %begin, %piece
  %end_at = call i64 @llvm.smin.i64(i64 %following, i64 %chunks)
  %word_at = getelementptr i8, ptr %pool, i64 $WORD
  %stop = load ptr, ptr %word_at
  call void @chunks(ptr %stop, ptr %function, ptr %table, i64 %begin, i64 %end_at)
  %more = add i32 %ran, 1
  br label %look

out:
  %any = icmp ne i32 %ran, 0
  br i1 %any, label %count, label %end

count:
  %pieces_at = getelementptr i8, ptr %pool, i64 $MANY
  %total = load i64, ptr %pieces_at
  %all = trunc i64 %total to i32
  %before = atomicrmw add ptr %done_at, i32 %ran seq_cst
  %done = add i32 %before, %ran
  %is_last = icmp eq i32 %done, %all
  br i1 %is_last, label %check, label %end

check:
  %waiting = load atomic i32, ptr %waiting_at seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %tell, label %end

tell:
  call void @wake(ptr %pool, ptr %done_at)
  br label %end

end:
  ret i1 %any
}

define internal ptr @worker(ptr %pool) {
entry:
  %ticket_at = getelementptr i8, ptr %pool, i64 $TICKET
  %epoch_at = getelementptr i8, ptr %pool, i64 $EPOCH
  %stop_at = getelementptr i8, ptr %pool, i64 $STOP
  %sleepers_at = getelementptr i8, ptr %pool, i64 $SLEEPERS
  br label %top

top:
  %begin = call i64 @now()
  br label %spin

spin:
  %turn = phi i32 [ 0, %top ], [ %turns, %pause ], [ %turns, %clock ]
  %ticket = load atomic i64, ptr %ticket_at monotonic, align 8
  %left = trunc i64 %ticket to i16
  %idle = icmp eq i16 %left, 0
  br i1 %idle, label %look, label %work

work:
  call i1 @participate(ptr %pool, i1 false)
  br label %top

look:
  %stop = load atomic i32, ptr %stop_at monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %end, label %pause

$SPINNING
rest:
  atomicrmw add ptr %sleepers_at, i32 1 seq_cst
  %again = load atomic i64, ptr %ticket_at seq_cst, align 8
  %remaining = trunc i64 %again to i16
  %call = icmp ne i16 %remaining, 0
  %stopping = load atomic i32, ptr %stop_at seq_cst, align 4
  %quit = icmp ne i32 %stopping, 0
  %awake = or i1 %call, %quit
  br i1 %awake, label %up, label %sleep

sleep:
  %upper = lshr i64 %again, 32
  %epoch = trunc i64 %upper to i32
  call void @sleep(ptr %pool, ptr %epoch_at, i32 %epoch)
  br label %up

up:
  atomicrmw sub ptr %sleepers_at, i32 1 seq_cst
  br label %top

end:
  ret ptr null
}

; Creates the workers, as many as the system lets; the caller holds the lock.
define internal void @start(ptr %pool) {
entry:
  %signals = alloca [128 x i8], align 8
  %former = alloca [128 x i8], align 8
  %attributes = alloca [128 x i8], align 8
  call void @llvm.memset.p0.i64(ptr %signals, i8 -1, i64 128, i1 false)
  store i64 $SIGNALS, ptr %signals
  call void @prepare(ptr %pool)
  %wanted_at = getelementptr i8, ptr %pool, i64 $WANTED
  %wanted = load i32, ptr %wanted_at
  %count = zext i32 %wanted to i64
  %created_at = getelementptr i8, ptr %pool, i64 $CREATED
  %threads = getelementptr i8, ptr %pool, i64 $THREADS
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %signals, ptr %former)
  call i32 @pthread_attr_init(ptr %attributes)
  call i32 @pthread_attr_setstacksize(ptr %attributes, i64 16777216)
  br label %next

next:
  %i = phi i64 [ 0, %entry ], [ %following, %made ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %create, label %end

create:
  %thread = getelementptr i64, ptr %threads, i64 %i
  %error = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %pool)
  %failed = icmp ne i32 %error, 0
  br i1 %failed, label %end, label %made

made:
  %following = add i64 %i, 1
  br label %next

end:
  %created = trunc i64 %i to i32
  store i32 %created, ptr %created_at
  call i32 @pthread_attr_destroy(ptr %attributes)
  call i32 @pthread_sigmask(i32 $SETMASK, ptr %former, ptr null)
  %started_at = getelementptr i8, ptr %pool, i64 $STARTED
  store i32 1, ptr %started_at
  ret void
}

; Stops and joins the workers. One that is in a job after $CLOSE ns is left alone; it stops after the job.
define void @hlokit_close(ptr %pool) {
entry:
  %busy = getelementptr i8, ptr %pool, i64 $BUSY
  %stop_at = getelementptr i8, ptr %pool, i64 $STOP
  %started_at = getelementptr i8, ptr %pool, i64 $STARTED
  %created_at = getelementptr i8, ptr %pool, i64 $CREATED
  %threads = getelementptr i8, ptr %pool, i64 $THREADS
  %begin = call i64 @now()
  br label %try

try:
  %exchange = cmpxchg ptr %busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %locked, label %wait

wait:
  call i32 @usleep(i32 200)
  %time = call i64 @now()
  %waited = sub i64 %time, %begin
  %long = icmp ugt i64 %waited, $CLOSE
  br i1 %long, label %leave, label %try

leave:
  store atomic i32 1, ptr %stop_at seq_cst, align 4
  ret void

locked:
  store atomic i32 1, ptr %stop_at seq_cst, align 4
  call void @advance(ptr %pool, i64 0)
  %created = load i32, ptr %created_at
  %count = zext i32 %created to i64
  br label %next

next:
  %i = phi i64 [ 0, %locked ], [ %following, %join ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %join, label %end

join:
  %thread_at = getelementptr i64, ptr %threads, i64 %i
  %thread = load i64, ptr %thread_at
  call i32 @pthread_join(i64 %thread, ptr null)
  %following = add i64 %i, 1
  br label %next

end:
  store i32 0, ptr %created_at
  store i32 2, ptr %started_at
  store atomic i32 0, ptr %busy release, align 4
  ret void
}

define internal i64 @now() {
  %time = alloca [2 x i64], align 8
  call i32 @clock_gettime(i32 $CLOCK, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest_at
  %large = mul i64 %seconds, 1000000000
  %sum = add i64 %large, %rest
  ret i64 %sum
}
"""

_SPINNING = """pause:
  $PAUSE
  %turns = add i32 %turn, 1
  %phase = and i32 %turns, 31
  %check = icmp eq i32 %phase, 0
  br i1 %check, label %clock, label %spin

clock:
  %time = call i64 @now()
  %waited = sub i64 %time, %begin
  %long = icmp ugt i64 %waited, $SPIN
  br i1 %long, label %rest, label %spin

"""
"""What a thread does that looks for something at `spin` and has not found it; at `rest` it has looked for long."""

_FUTEX = """
declare i64 @syscall(i64, ...)

define internal void @prepare(ptr %pool) {
  ret void
}

define internal void @sleep(ptr %pool, ptr %word, i32 %value) {
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i32 %value, ptr null, ptr null, i64 0)
  ret void
}

define internal void @wake(ptr %pool, ptr %word) {
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i64 2147483647, ptr null, ptr null, i64 0)
  ret void
}
"""

_CONDITION_VARIABLE = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)

define internal void @prepare(ptr %pool) {
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %condition = getelementptr i8, ptr %pool, i64 $CONDITION
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define internal void @sleep(ptr %pool, ptr %word, i32 %value) {
entry:
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %condition = getelementptr i8, ptr %pool, i64 $CONDITION
  call i32 @pthread_mutex_lock(ptr %mutex)
  %now = load atomic i32, ptr %word seq_cst, align 4
  %same = icmp eq i32 %now, %value
  br i1 %same, label %wait, label %end

wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %end

end:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @wake(ptr %pool, ptr %word) {
  %mutex = getelementptr i8, ptr %pool, i64 $MUTEX
  %condition = getelementptr i8, ptr %pool, i64 $CONDITION
  call i32 @pthread_mutex_lock(ptr %mutex)
  call i32 @pthread_cond_broadcast(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}
"""
