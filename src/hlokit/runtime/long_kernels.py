"""Long kernels, which run on a separate thread so that their caller can handle signals meanwhile.

`i32 hlokit_interruptible(ptr pool, ptr function, ptr table, i64 chunks, i64 work)` does what `hlokit_parallel` does and
gives 0; or 1 as soon as `hlokit_interrupted` says that the loop is to be left: then no thread is at the job any more,
and what it was to write is half done. `work`: estimated nanoseconds on one thread; a short job is run by its caller,
which asks then, as is any where the system has no more threads. `pool` may be null for one chunk.

The caller sleeps, and asks `hlokit_interrupted` every 50 ms. How the threads are made to leave: hlokit.cpu.jit.guard.
"""

from __future__ import annotations

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.guard import ENDED, ENDING, GO_ON, HOLD
from hlokit.cpu.jit.libc import (
    PTHREAD_JOIN,
    PTHREAD_KILL,
    TIMESPEC,
    USLEEP,
    create_thread,
    futex_wait,
    futex_wake,
    is_linux,
    sigurg,
)
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool import code
from hlokit.cpu.jit.pool_code import PARALLEL, PARALLEL_UNTIL, SIGNAL, STATE
from hlokit.cpu.llvm import I32, I64, POINTER, Field, Function, IfElse, Module, Prototype, Record, Repeat, While
from hlokit.cpu.target import Target, host
from hlokit.forks import once
from hlokit.runtime import interrupt
from hlokit.runtime.interrupt import EVERY_NS, INTERRUPTED
from hlokit.stack import SIZE

_AGAIN_NS = 10_000_000
"""After this time threads that have not left are sent the signal again."""
_SHORT_NS = 4_000_000
"""A thread's share of a job below which the caller takes part in it: to make a thread takes 25 us."""


def symbols() -> dict[str, int]:
    """For libraries that call the functions."""
    found = {"hlokit_interruptible": _code().address("hlokit_interruptible")}
    return found | {name: code().address(name) for name in (HOLD.name, GO_ON.name)}


_CALLED = (PARALLEL_UNTIL.name, SIGNAL.name, ENDING.name, ENDED.name)


@once
def _code() -> Library:
    target = host()
    functions = {name: code().address(name) for name in _CALLED} | interrupt.symbols()
    return Library([compiled(written(target), target, name="long kernels")], functions)


INTERRUPTIBLE = Prototype("hlokit_interruptible", I32, {**PARALLEL.named, "work": I64})
_RUN = Prototype("run", POINTER, {"job": POINTER})
_SLEEP = Prototype("sleep", None, {"word": POINTER, "most": I64})
_WAKE = Prototype("wake", None, {"word": POINTER})
_JOB = Record(
    "Job",
    {
        "is_done": Field(I32, align=64),
        "is_stopped": I32,
        "pool": POINTER,
        "function": POINTER,
        "table": POINTER,
        "chunks": I64,
    },
)


def written(target: Target) -> Module:
    """The functions."""
    module = Module()
    module.add(_interruptible(target), exported=True)
    for function in (_run(), *(_futex(target) if is_linux(target) else _polling())):
        module.add(function)
    return module


def _interruptible(target: Target) -> Function:
    f = Function.of(INTERRUPTIBLE)
    pool, chunks = f.pointer("pool", STATE), f.argument("chunks")
    own = (pool, f.pointer("function"), f.pointer("table"), chunks)
    job, thread = f.local(_JOB), f.local(I64)
    here, finished = f.new_block("here"), f.new_block("finished")
    has_pool = IfElse(f, pool.ne(None))
    threads = (pool["wanted"].load() + 1).zext(64).smin(chunks)
    has_pool.otherwise(threads)
    (threads,) = has_pool.end(f.constant(1, I64))
    share = f.argument("work") // threads.smax(1)
    f.go_on_if(share.compare("uge", _SHORT_NS), here)

    job["is_done"].store(0)
    job["is_stopped"].store(0)
    for name, value in zip(PARALLEL.names, own, strict=True):
        job[name].store(value)
    error = create_thread(f, target, thread, SIZE, f.address(_RUN), job)
    f.go_on_if(error.eq(0), here)
    waiting = While(f, [])
    f.call(_SLEEP, job["is_done"], EVERY_NS)
    f.go_on_if(job["is_done"].load(ordering="acquire").eq(0), finished)
    waiting.test(f.call(INTERRUPTED).eq(0))
    waiting.again()

    f.call(ENDING)
    job["is_stopped"].store(1, ordering="seq_cst")
    ending = Repeat(f, [])
    f.call(PTHREAD_KILL, thread.load(), sigurg(target))
    with f.when(pool.ne(None)):
        f.call(SIGNAL, pool, job["is_stopped"])
    f.call(_SLEEP, job["is_done"], _AGAIN_NS)
    ending.while_(job["is_done"].load(ordering="acquire").eq(0))
    f.call(ENDED)
    f.call(PTHREAD_JOIN, thread.load(), None)
    f.returns(1)

    f.start(finished)
    f.call(PTHREAD_JOIN, thread.load(), None)
    f.returns(0)

    f.start(here)
    f.call(PARALLEL_UNTIL, *own, None)
    f.returns(f.call(INTERRUPTED))
    return f


def _run() -> Function:
    f = Function.of(_RUN)
    job = f.pointer("job", _JOB)
    pool, function, table = (job[name].load_pointer() for name in ("pool", "function", "table"))
    f.call(PARALLEL_UNTIL, pool, function, table, job["chunks"].load(), job["is_stopped"])
    job["is_done"].store(1, ordering="seq_cst")
    f.call(_WAKE, job["is_done"])
    f.returns(None)
    return f


# -- sleeping until a word is not 0, for so many nanoseconds at most, or less; and waking who does


def _futex(target: Target) -> list[Function]:
    sleep, wake = Function.of(_SLEEP), Function.of(_WAKE)
    time = sleep.local(TIMESPEC)
    time["seconds"].store(0)
    time["nanoseconds"].store(sleep.argument("most"))
    futex_wait(sleep.pointer("word"), sleep.constant(0, I32), target, time)
    sleep.returns()
    futex_wake(wake.pointer("word"), target)
    wake.returns()
    return [sleep, wake]


def _polling() -> list[Function]:
    sleep, wake = Function.of(_SLEEP), Function.of(_WAKE)
    sleep.call(USLEEP, 200)
    sleep.returns()
    wake.returns()
    return [sleep, wake]
