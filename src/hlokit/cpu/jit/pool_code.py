"""The thread pool's machine code.

Chunks are claimed one by one: a thread that the system has put aside delays one chunk, not its share of all. The caller
begins with the first chunk, workers with the last: what one job leaves in a core's cache, the next mostly finds there.
Who finds the pool at work, from another thread or from inside a chunk, runs its chunks itself, until the pool is free:
then it hands out those that are left. More than 65535 chunks are claimed some at a time.

The state, in memory that is never freed:

    ticket    epoch << 32 | first << 16 | left: nobody has claimed the `left` pieces of work from `first` on. A claim
              is a compare-and-swap that takes off the first or the last; the job's fields are read after it, and
              cannot change before the piece that it claimed is counted as done
    base      the first chunk that is handed out
    piece     chunks in a piece of work;  many: how many pieces
    done      pieces finished; waiting: the caller sleeps on it
    stop      null, or a word of the one who runs the job: when it is not 0, chunks are left undone (guard.py)
    sleepers  workers that may be asleep; they sleep on the ticket's epoch
    busy      the lock of the one who runs a job
    started   _NEW, _RUNNING or _CLOSED for good;  closing: workers are to end
    wanted    workers that there are to be;  created: those that the system has made
"""

from __future__ import annotations

from collections.abc import Callable

from hlokit.cpu.jit import guard
from hlokit.cpu.jit.libc import (
    GETRUSAGE,
    OPAQUE,
    PTHREAD_ATTR_DESTROY,
    PTHREAD_ATTR_INIT,
    PTHREAD_ATTR_SETSTACKSIZE,
    PTHREAD_COND_BROADCAST,
    PTHREAD_COND_INIT,
    PTHREAD_COND_WAIT,
    PTHREAD_CREATE,
    PTHREAD_JOIN,
    PTHREAD_KILL,
    PTHREAD_MUTEX_INIT,
    PTHREAD_MUTEX_LOCK,
    PTHREAD_MUTEX_UNLOCK,
    PTHREAD_SIGMASK,
    RUSAGE,
    RUSAGE_THREAD,
    SCHED_ATTR,
    SYSCALL,
    USLEEP,
    blocked_signals,
    futex_wait,
    futex_wake,
    is_linux,
    monotonic_ns,
    sig_setmask,
    sigurg,
    spin_pause,
    spin_unlock,
)
from hlokit.cpu.llvm import (
    I1,
    I8,
    I32,
    I64,
    POINTER,
    Field,
    Function,
    IfElse,
    Module,
    Pointer,
    Prototype,
    Record,
    Value,
    While,
)
from hlokit.cpu.target import Target

SPIN_NS = 200_000
"""The time that a worker looks for the next job before it sleeps, on cores that nobody else wants."""
BUSY_SPIN_NS = 10_000
CALM_NS = 100_000_000
"""The same for CALM_NS after the system has given its core to another process. A thread that looks for work uses up its
share of a core that others want: it is then put aside in the midst of a chunk, which all others wait for."""
CALLER_SPIN_NS = 50_000
"""The time that the caller looks for the chunks of others to end before it sleeps: about what a sleep costs."""
_SLICE_NS = 100_000
"""The slice of time that workers ask Linux for (6.12 and newer), the shortest there is. Their share stays the same. A
worker that is woken runs at once with a short slice; with the usual one, after the slice of who has its core."""
_CLOSE_NS = 200_000_000
"""The time that exit waits for a running job before it leaves the workers to themselves."""
_STACK = 16 << 20
"""Bytes of a worker's stack."""
_MOST_PIECES = 65535

STATE = Record(
    "Pool",
    {
        "ticket": I64,
        "done": Field(I32, align=64),
        "waiting": I32,
        "function": Field(POINTER, align=64),
        "table": POINTER,
        "base": I64,
        "chunks": I64,
        "piece": I64,
        "many": I64,
        "stop": POINTER,
        "sleepers": Field(I32, align=64),
        "busy": Field(I32, align=64),
        "started": I32,
        "closing": I32,
        "wanted": I32,
        "created": I32,
        "mutex": Field(I8, OPAQUE, align=64),
        "condition": Field(I8, OPAQUE),
        "threads": Field(I64, 0),
    },
)
"""The state. What several threads write to has cache lines of its own."""
_NEW, _RUNNING, _CLOSED = 0, 1, 2
BYTES = 16384
"""Size of the state: the last field holds as many threads as fit."""

_JOB = {"pool": POINTER, "function": POINTER, "table": POINTER, "chunks": I64}
PARALLEL = Prototype("hlokit_parallel", None, _JOB)
PARALLEL_UNTIL = Prototype("hlokit_parallel_until", None, {**_JOB, "stop": POINTER})
SIGNAL = Prototype("hlokit_signal", None, {"pool": POINTER, "stop": POINTER})
CLOSE = Prototype("hlokit_close", None, {"pool": POINTER})
TEAM_TAKE = Prototype("hlokit_team_take", I1, {"pool": POINTER, "count": I64})
TEAM_RUN = Prototype("hlokit_team_run", None, {"pool": POINTER, "function": POINTER, "table": POINTER, "count": I64})
TEAM_LEAVE = Prototype("hlokit_team_leave", None, {"pool": POINTER})
"""For functions that wait for each other: a pool of as many threads runs each on one of its own."""
_ADVANCE = Prototype("advance", None, {"pool": POINTER, "pieces": I64})
_PARTICIPATE = Prototype("participate", I1, {"pool": POINTER, "ascending": I1})
_WORKER = Prototype("worker", POINTER, {"pool": POINTER})
_START = Prototype("start", None, {"pool": POINTER})
_NOW = Prototype("now", I64)
_PREPARE = Prototype("prepare", None, {"pool": POINTER})
_SLEEP = Prototype("sleep", None, {"pool": POINTER, "word": POINTER, "value": I32})
_WAKE = Prototype("wake", None, {"pool": POINTER, "word": POINTER, "count": I32})


def written(target: Target, has_futex: bool | None = None) -> Module:
    """The pool's functions and guard.py's. `has_futex`: threads sleep by Linux' system call; else by a condition
    variable."""
    module = Module()
    teams = _team_take(), _team_run(target), _team_leave()
    for function in (_parallel(), _parallel_until(target), _signal(target), _close(), *teams):
        module.add(function, exported=True)
    sleeping = _futex(target) if (is_linux(target) if has_futex is None else has_futex) else _condition_variable()
    for function in (_advance(), _participate(), _worker(target), _start(target), _now(target), *sleeping):
        module.add(function)
    guard.write(module, target)
    return module


def _parallel() -> Function:
    f = Function.of(PARALLEL)
    f.call(PARALLEL_UNTIL, f.pointer("pool"), f.pointer("function"), f.pointer("table"), f.argument("chunks"), None)
    f.returns()
    return f


def _parallel_until(target: Target) -> Function:
    f = Function.of(PARALLEL_UNTIL)
    pool, function, table, stop = f.pointer("pool", STATE), f.pointer("function"), f.pointer("table"), f.pointer("stop")
    chunks = f.argument("chunks")
    serial, closed, start, publish, taken = map(f.new_block, ("serial", "closed", "start", "publish", "taken"))
    f.go_on_if(pool.ne(None), serial)
    is_wanted = pool["wanted"].load().ne(0) & (chunks >= 2) & (chunks <= 2**31 - 1)
    f.go_on_if(is_wanted, serial)
    busy = pool["busy"]
    _, is_mine = busy.cmpxchg(0, 1, "acquire", "monotonic")
    f.go_on_if(is_mine, taken)
    f.switch(pool["started"].load(), {_NEW: start, _RUNNING: publish}, closed)
    f.start(closed)
    spin_unlock(busy)
    f.jump(serial)
    f.start(start)
    f.call(_START, pool)
    f.jump(publish)

    f.start(publish)
    _hand_out(pool, function, table, f.index(0), chunks, stop, target)
    f.returns()

    f.start(taken)
    piece = _piece(chunks)
    alone = While(f, [f.index(0)])
    (begin,) = alone.values
    alone.test(begin < chunks)
    end = (begin + piece).smin(chunks)
    _run(stop, function, table, begin, end)
    with f.when((end < chunks) & busy.load(ordering="monotonic").eq(0)):
        _, is_mine = busy.cmpxchg(0, 1, "acquire", "monotonic")
        with f.when(is_mine):
            with f.when(pool["started"].load().eq(_RUNNING)):
                _hand_out(pool, function, table, end, chunks, stop, target)
                f.returns()
            spin_unlock(busy)
    alone.again(end)
    f.returns()

    f.start(serial)
    with f.when(chunks >= 1):
        _run(stop, function, table, f.index(0), chunks)
    f.returns()
    return f


def _piece(chunks: Value) -> Value:
    """Chunks that are claimed at a time."""
    return (chunks + (_MOST_PIECES - 1)) // _MOST_PIECES


def _hand_out(
    pool: Pointer, function: Pointer, table: Pointer, base: Value, chunks: Value, stop: Pointer | None, target: Target
) -> None:
    """Runs a job's chunks from `base` on, with the workers, for the one who has the lock; when all are done the lock is
    free again."""
    f, done = pool.fn, pool["done"]
    unlock = f.new_block("unlock")
    pool["function"].store(function)
    pool["table"].store(table)
    pool["base"].store(base)
    pool["chunks"].store(chunks)
    pool["stop"].store(stop, ordering="monotonic")
    piece = _piece(chunks)
    pool["piece"].store(piece)
    pieces = (chunks - base - 1) // piece + 1
    pool["many"].store(pieces)
    done.store(0, ordering="monotonic")
    f.call(_ADVANCE, pool, pieces)
    f.call(_PARTICIPATE, pool, True)
    every = pieces.trunc(32)

    def look() -> None:
        f.go_on_if(done.load(ordering="acquire").ne(every), unlock)

    _spin(f, target, look, f.constant(CALLER_SPIN_NS, I64))
    pool["waiting"].store(1, ordering="seq_cst")
    resting = While(f, [])
    now = done.load(ordering="seq_cst")
    resting.test(now.ne(every))
    f.call(_SLEEP, pool, done, now)
    resting.again()
    pool["waiting"].store(0, ordering="monotonic")
    f.jump(unlock)
    f.start(unlock)
    spin_unlock(pool["busy"])


def _team_take() -> Function:
    """Takes the lock if each of so many functions, which may wait for each other, would have its own thread; an i1."""
    f = Function.of(TEAM_TAKE)
    pool, count = f.pointer("pool", STATE), f.argument("count")
    start, running, refuse, back = (f.new_block(name) for name in ("start", "running", "refuse", "back"))
    busy = pool["busy"]
    _, is_mine = busy.cmpxchg(0, 1, "acquire", "monotonic")
    f.go_on_if(is_mine, refuse)
    f.switch(pool["started"].load(), {_NEW: start, _RUNNING: running}, back)
    f.start(start)
    f.call(_START, pool)
    f.jump(running)
    f.start(running)
    f.go_on_if(pool["created"].load().zext(64) + 1 >= count, back)
    f.returns(True)
    f.start(back)
    spin_unlock(busy)
    f.jump(refuse)
    f.start(refuse)
    f.returns(False)
    return f


def _team_run(target: Target) -> Function:
    """Calls function(table, n, n + 1) for each n below `count`, all at the same time; frees the lock that was taken."""
    f = Function.of(TEAM_RUN)
    pool, function, table = f.pointer("pool", STATE), f.pointer("function"), f.pointer("table")
    _hand_out(pool, function, table, f.index(0), f.argument("count"), None, target)
    f.returns()
    return f


def _team_leave() -> Function:
    """Frees the lock."""
    f = Function.of(TEAM_LEAVE)
    spin_unlock(f.pointer("pool", STATE)["busy"])
    f.returns()
    return f


def _run(stop: Pointer, function: Pointer, table: Pointer, begin: Value, end: Value) -> None:
    """Runs chunks; they can be ended midway if there is a word for it."""
    f = stop.fn
    is_plain = IfElse(f, stop.is_null())
    function.call(None, table, begin, end)
    is_plain.otherwise()
    f.call(guard.GUARDED, stop, function, table, begin, end)
    is_plain.end()


def _spin(f: Function, target: Target, look: Callable[[], None], limit: Value) -> None:
    """Looks for something again and again for `limit` nanoseconds; `look` leaves for another block once it is there."""
    begin = f.call(_NOW)
    spinning = While(f, [])
    with f.loop(0, 32):
        look()
        spin_pause(f, target)
    spinning.test((f.call(_NOW) - begin).compare("ule", limit))
    spinning.again()


def _signal(target: Target) -> Function:
    """To the workers, if they may be at the job of this word."""
    f = Function.of(SIGNAL)
    pool, stop = f.pointer("pool", STATE), f.pointer("stop")
    with f.when(pool["stop"].load_pointer(ordering="monotonic").ne(stop)):
        f.returns()
    with f.loop(0, pool["created"].load().zext(64)) as loop:
        f.call(PTHREAD_KILL, pool["threads"][loop.index].load(), sigurg(target))
    f.returns()
    return f


def _advance() -> Function:
    """The next epoch, with so many pieces of work to claim; wakes as many sleepers as there is work for beside the
    caller, all of them where there is none."""
    f = Function.of(_ADVANCE)
    pool = f.pointer("pool", STATE)
    ticket = pool["ticket"]
    epoch = (ticket.load(ordering="monotonic") + (1 << 32)) & -(1 << 32)
    pieces = f.argument("pieces")
    ticket.store(epoch | pieces, ordering="seq_cst")
    with f.when(pool["sleepers"].load(ordering="seq_cst").ne(0)):
        f.call(_WAKE, pool, _epoch(pool), pieces.eq(0).select(f.constant(2**31 - 1, I64), pieces - 1).trunc(32))
    f.returns()
    return f


def _epoch(pool: Pointer) -> Pointer:
    """The ticket's upper half."""
    return pool["ticket"].to(I32)[1]


def _participate() -> Function:
    """Claims and runs pieces of work until none is left, the first ones first or last; whether there was one."""
    f = Function.of(_PARTICIPATE)
    pool, ascending = f.pointer("pool", STATE), f.argument("ascending")
    change = ascending.select(f.constant(65535, I64), -1)
    claims = While(f, [f.constant(0, I32)])
    (ran,) = claims.values
    ticket = pool["ticket"].load(ordering="acquire")
    left = ticket & 65535
    claims.test(left.ne(0))
    _, is_mine = pool["ticket"].cmpxchg(ticket, ticket + change, "acq_rel", "acquire", weak=True)
    claimed = IfElse(f, is_mine)
    first = (ticket & (2**32 - 1)) >> 16
    piece = pool["piece"].load()
    begin = pool["base"].load() + ascending.select(first, first + left - 1) * piece
    end = (begin + piece).smin(pool["chunks"].load())
    function, table, stop = (pool[name].load_pointer() for name in ("function", "table", "stop"))
    _run(stop, function, table, begin, end)
    claimed.otherwise(ran + 1)
    (now,) = claimed.end(ran)
    claims.again(now)
    with f.when(ran.ne(0)):
        many = pool["many"].load().trunc(32)  # the next job's, once these pieces are counted
        done = pool["done"].atomicrmw("add", ran) + ran
        is_last = done.eq(many)
        with f.when(is_last), f.when(pool["waiting"].load(ordering="seq_cst").ne(0)):
            f.call(_WAKE, pool, pool["done"], 1)
    f.returns(ran.ne(0))
    return f


def _worker(target: Target) -> Function:
    f = Function.of(_WORKER)
    pool = f.pointer("pool", STATE)
    top, work, end = f.new_block("top"), f.new_block("work"), f.new_block("end")

    def has_work(ordering: str) -> Value:
        return pool["ticket"].load(ordering=ordering).trunc(16).ne(0)

    def look() -> None:
        f.go_on_if(~has_work("monotonic"), work)
        f.go_on_if(pool["closing"].load(ordering="monotonic").eq(0), end)

    switches, shared = f.local(I64), f.local(I64)
    switches.store(0)
    shared.store(f.call(_NOW) - CALM_NS)
    if is_linux(target):
        _ask_for_slice(f, target)
    f.jump(top)
    f.start(top)
    now, so_far = f.call(_NOW), _switches(f, target)
    with f.when(so_far.ne(switches.load())):
        switches.store(so_far)
        shared.store(now)
    is_shared = (now - shared.load()).compare("ult", CALM_NS)
    _spin(f, target, look, is_shared.select(f.constant(BUSY_SPIN_NS, I64), SPIN_NS))
    pool["sleepers"].atomicrmw("add", 1)
    ticket = pool["ticket"].load(ordering="seq_cst")
    is_called = ticket.trunc(16).ne(0) | pool["closing"].load(ordering="seq_cst").ne(0)
    with f.when(~is_called):
        f.call(_SLEEP, pool, _epoch(pool), (ticket >> 32).trunc(32))
    pool["sleepers"].atomicrmw("sub", 1)
    f.jump(top)
    f.start(work)
    f.call(_PARTICIPATE, pool, False)
    f.jump(top)
    f.start(end)
    f.returns(None)
    return f


def _switches(f: Function, target: Target) -> Value:
    """The times that the system has given this thread's core to another thread; 0 where it does not say."""
    if not is_linux(target):
        return f.constant(0, I64)
    usage = f.local(RUSAGE)
    f.call(GETRUSAGE, RUSAGE_THREAD, usage)
    return usage["nivcsw"].load()


def _ask_for_slice(f: Function, target: Target) -> None:
    """Sets this thread's slice; all else that the system schedules it by stays. Older systems ignore slices."""
    attributes, own, no_flags = f.local(SCHED_ATTR), f.constant(0, I64), f.constant(0, I64)
    number = 314 if target.arch == "x86_64" else 274  # sched_setattr; sched_getattr is the next
    attributes["policy"].store(-1)
    size = f.constant(SCHED_ATTR.bytes, I64)
    f.call(SYSCALL, f.constant(number + 1, I64), own, attributes, size, no_flags)
    with f.when(attributes["policy"].load().eq(0)):  # SCHED_OTHER
        attributes["runtime"].store(_SLICE_NS)
        f.call(SYSCALL, f.constant(number, I64), own, attributes, no_flags)


def _start(target: Target) -> Function:
    """Creates the workers, as many as the system lets; the caller holds the lock."""
    f = Function.of(_START)
    pool = f.pointer("pool", STATE)
    signals, former, attributes = blocked_signals(f, target), f.local(I8, OPAQUE, 8), f.local(I8, OPAQUE, 8)
    f.call(_PREPARE, pool)
    wanted = pool["wanted"].load().zext(64)
    f.call(PTHREAD_SIGMASK, sig_setmask(target), signals, former)
    f.call(PTHREAD_ATTR_INIT, attributes)
    f.call(PTHREAD_ATTR_SETSTACKSIZE, attributes, _STACK)
    threads = While(f, [f.index(0)])
    (number,) = threads.values
    threads.test(number < wanted)
    error = f.call(PTHREAD_CREATE, pool["threads"][number], attributes, f.address(_WORKER), pool)
    threads.test(error.eq(0))
    threads.again(number + 1)
    pool["created"].store(number.trunc(32))
    f.call(PTHREAD_ATTR_DESTROY, attributes)
    f.call(PTHREAD_SIGMASK, sig_setmask(target), former, None)
    pool["started"].store(_RUNNING)
    f.returns()
    return f


def _close() -> Function:
    """Stops and joins the workers. One that is in a job after _CLOSE_NS is left alone; it stops after the job."""
    f = Function.of(CLOSE)
    pool = f.pointer("pool", STATE)
    begin = f.call(_NOW)
    tries = While(f, [])
    _, is_mine = pool["busy"].cmpxchg(0, 1, "acquire", "monotonic")
    tries.test(~is_mine)
    f.call(USLEEP, 200)
    with f.when((f.call(_NOW) - begin).compare("ugt", _CLOSE_NS)):
        pool["closing"].store(1, ordering="seq_cst")
        f.returns()
    tries.again()
    pool["closing"].store(1, ordering="seq_cst")
    f.call(_ADVANCE, pool, 0)
    with f.loop(0, pool["created"].load().zext(64)) as loop:
        f.call(PTHREAD_JOIN, pool["threads"][loop.index].load(), None)
    pool["created"].store(0)
    pool["started"].store(_CLOSED)
    spin_unlock(pool["busy"])
    f.returns()
    return f


def _now(target: Target) -> Function:
    f = Function.of(_NOW)
    f.returns(monotonic_ns(f, target))
    return f


# -- sleeping until a word is no longer `value`, and waking who does


def _futex(target: Target) -> list[Function]:
    prepare = Function.of(_PREPARE)
    prepare.returns()
    sleep, wake = Function.of(_SLEEP), Function.of(_WAKE)
    futex_wait(sleep.pointer("word"), sleep.argument("value"), target)
    sleep.returns()
    futex_wake(wake.pointer("word"), target, wake.argument("count").zext(64))
    wake.returns()
    return [prepare, sleep, wake]


def _condition_variable() -> list[Function]:
    prepare, sleep, wake = (Function.of(prototype) for prototype in (_PREPARE, _SLEEP, _WAKE))
    pool = prepare.pointer("pool", STATE)
    prepare.call(PTHREAD_MUTEX_INIT, pool["mutex"], None)
    prepare.call(PTHREAD_COND_INIT, pool["condition"], None)
    prepare.returns()
    pool = sleep.pointer("pool", STATE)
    sleep.call(PTHREAD_MUTEX_LOCK, pool["mutex"])
    now = sleep.pointer("word", I32).load(ordering="seq_cst")
    with sleep.when(now.eq(sleep.argument("value"))):
        sleep.call(PTHREAD_COND_WAIT, pool["condition"], pool["mutex"])
    sleep.call(PTHREAD_MUTEX_UNLOCK, pool["mutex"])
    sleep.returns()
    pool = wake.pointer("pool", STATE)
    wake.call(PTHREAD_MUTEX_LOCK, pool["mutex"])
    wake.call(PTHREAD_COND_BROADCAST, pool["condition"])
    wake.call(PTHREAD_MUTEX_UNLOCK, pool["mutex"])
    wake.returns()
    return [prepare, sleep, wake]
