"""Functions of C and POSIX that hlokit's own machine code calls, and helpers of their callers.

An opaque C object such as a mutex takes OPAQUE bytes, which is more than on any system.
"""

from __future__ import annotations

from hlokit.cpu.llvm import I8, I32, I64, POINTER, Field, Function, Pointer, Prototype, Record, Value, While
from hlokit.cpu.target import Target

OPAQUE = 128
"""Bytes of a sigset_t, a pthread_attr_t, a pthread_mutex_t or a pthread_cond_t, each less than that."""

MALLOC = Prototype("malloc", POINTER, [I64])
FREE = Prototype("free", None, [POINTER])
ALIGNED_ALLOC = Prototype("aligned_alloc", POINTER, [I64, I64])
POSIX_MEMALIGN = Prototype("posix_memalign", I32, [POINTER, I64, I64])
MMAP = Prototype("mmap", POINTER, [POINTER, I64, I32, I32, I32, I64])
MUNMAP = Prototype("munmap", I32, [POINTER, I64])
MADVISE = Prototype("madvise", I32, [POINTER, I64, I32])
STRLEN = Prototype("strlen", I64, [POINTER])
MEMCMP = Prototype("memcmp", I32, [POINTER, POINTER, I64])
SNPRINTF = Prototype("snprintf", I32, [POINTER, I64, POINTER], variadic=True)
SYSCALL = Prototype("syscall", I64, [I64], variadic=True)
USLEEP = Prototype("usleep", I32, [I32])
SCHED_YIELD = Prototype("sched_yield", I32)
CLOCK_GETTIME = Prototype("clock_gettime", I32, [I32, POINTER])
GETRUSAGE = Prototype("getrusage", I32, [I32, POINTER])
SIGACTION = Prototype("sigaction", I32, [I32, POINTER, POINTER])
SIGFILLSET = Prototype("sigfillset", I32, [POINTER])

PTHREAD_SELF = Prototype("pthread_self", I64)
PTHREAD_CREATE = Prototype("pthread_create", I32, [POINTER, POINTER, POINTER, POINTER])
PTHREAD_JOIN = Prototype("pthread_join", I32, [I64, POINTER])
PTHREAD_DETACH = Prototype("pthread_detach", I32, [I64])
PTHREAD_KILL = Prototype("pthread_kill", I32, [I64, I32])
PTHREAD_SIGMASK = Prototype("pthread_sigmask", I32, [I32, POINTER, POINTER])
PTHREAD_ATTR_INIT = Prototype("pthread_attr_init", I32, [POINTER])
PTHREAD_ATTR_SETSTACKSIZE = Prototype("pthread_attr_setstacksize", I32, [POINTER, I64])
PTHREAD_ATTR_DESTROY = Prototype("pthread_attr_destroy", I32, [POINTER])
PTHREAD_KEY_CREATE = Prototype("pthread_key_create", I32, [POINTER, POINTER])
PTHREAD_GETSPECIFIC = Prototype("pthread_getspecific", POINTER, [I64])
PTHREAD_SETSPECIFIC = Prototype("pthread_setspecific", I32, [I64, POINTER])
PTHREAD_MUTEX_INIT = Prototype("pthread_mutex_init", I32, [POINTER, POINTER])
PTHREAD_MUTEX_LOCK = Prototype("pthread_mutex_lock", I32, [POINTER])
PTHREAD_MUTEX_UNLOCK = Prototype("pthread_mutex_unlock", I32, [POINTER])
PTHREAD_MUTEX_DESTROY = Prototype("pthread_mutex_destroy", I32, [POINTER])
PTHREAD_COND_INIT = Prototype("pthread_cond_init", I32, [POINTER, POINTER])
PTHREAD_COND_WAIT = Prototype("pthread_cond_wait", I32, [POINTER, POINTER])
PTHREAD_COND_SIGNAL = Prototype("pthread_cond_signal", I32, [POINTER])
PTHREAD_COND_BROADCAST = Prototype("pthread_cond_broadcast", I32, [POINTER])
PTHREAD_COND_DESTROY = Prototype("pthread_cond_destroy", I32, [POINTER])

TIMESPEC = Record("timespec", {"seconds": I64, "nanoseconds": I64})
RUSAGE = Record("rusage", {"times": Field(I64, 4), "counts": Field(I64, 13), "nivcsw": I64, "unknown": Field(I64, 16)})
"""Linux' struct rusage of 64-bit systems; room for what later ones may add."""
RUSAGE_THREAD = 1
SCHED_ATTR = Record(
    "sched_attr",
    {
        "size": I32,
        "policy": I32,
        "flags": I64,
        "nice": I32,
        "priority": I32,
        "runtime": I64,
        "deadline": I64,
        "period": I64,
    },
)
"""Linux' struct sched_attr in its first form, 48 bytes."""


def is_linux(target: Target) -> bool:
    """Whether the system is Linux, whose numbers differ from macOS's."""
    return "linux" in target.triple


def sig_setmask(target: Target) -> int:
    """SIG_SETMASK: the first argument of pthread_sigmask that sets the whole mask."""
    return 2 if is_linux(target) else 3


def sig_unblock(target: Target) -> int:
    """SIG_UNBLOCK: the first argument of pthread_sigmask that takes signals out of the mask."""
    return 1 if is_linux(target) else 2


def sigurg(target: Target) -> int:
    """SIGURG, a signal that processes ignore unless they ask for it."""
    return 23 if is_linux(target) else 16


_FUTEX_WAIT, _FUTEX_WAKE = 128, 129
"""Operations among threads of one process."""


def futex_wait(word: Pointer, value: Value, target: Target, time: Pointer | None = None) -> None:
    """Linux: sleeps while the I32 has this value, until it is woken, or for a TIMESPEC at most."""
    f = word.fn
    zero = f.constant(0, I64)
    f.call(SYSCALL, _futex(target), word, f.constant(_FUTEX_WAIT, I64), value, time, None, zero)


def futex_wake(word: Pointer, target: Target, count: Value | int = 2**31 - 1) -> None:
    """Linux: wakes threads that sleep on the word, at most so many."""
    f = word.fn
    operation, zero = (f.constant(number, I64) for number in (_FUTEX_WAKE, 0))
    most = count if isinstance(count, Value) else f.constant(count, I64)
    f.call(SYSCALL, _futex(target), word, operation, most, None, None, zero)


def _futex(target: Target) -> int:
    """The number of the system call."""
    return 202 if target.arch == "x86_64" else 98


def monotonic_ns(f: Function, target: Target) -> Value:
    """The time of a clock that only goes forwards, in nanoseconds."""
    return _nanoseconds(f, 1 if is_linux(target) else 6)


def thread_ns(f: Function) -> Value:
    """Linux: the processor time of this thread, in nanoseconds."""
    return _nanoseconds(f, 3)


def _nanoseconds(f: Function, clock: int) -> Value:
    time = f.local(TIMESPEC)
    f.call(CLOCK_GETTIME, clock, time)
    return time["seconds"].load() * 1_000_000_000 + time["nanoseconds"].load()


def spin_lock(lock: Pointer, wait: Prototype[Value] | None = None) -> None:
    """Takes a lock, an I32 that is 0 when free. Each time that it is not `wait` is called, as `sched_yield`."""
    loop = While(lock.fn, [])
    _, taken = lock.cmpxchg(0, 1, "acquire", "monotonic")
    loop.test(~taken)
    if wait is not None:
        lock.fn.call(wait)
    loop.again()


def spin_unlock(lock: Pointer) -> None:
    lock.store(0, ordering="release")


def spin_pause(f: Function, target: Target) -> None:
    """Tells the processor that this is a loop that waits."""
    if target.arch == "x86_64":
        f.call("llvm.x86.sse2.pause")
    else:
        f.call("llvm.aarch64.hint", f.constant(1, I32))


def blocked_signals(f: Function, target: Target) -> Pointer:
    """A sigset_t of what threads of our own do not take: all but the signals that faults raise."""
    signals = f.local(I8, OPAQUE, 8)
    f.memset(signals, -1, OPAQUE)
    faults = (4, 5, 6, 7, 8, 11) if is_linux(target) else (4, 5, 6, 8, 10, 11)  # ILL TRAP ABRT BUS FPE SEGV
    signals.to(I64).store(-1 - sum(1 << (number - 1) for number in faults))
    return signals


def create_thread(
    f: Function, target: Target, thread: Pointer, stack: Value | int, run: Pointer, data: Pointer
) -> Value:
    """Starts a thread that runs `run(data)` and takes no signals, on so many bytes of stack: pthread_create's error."""
    signals, former, attributes = blocked_signals(f, target), f.local(I8, OPAQUE, 8), f.local(I8, OPAQUE, 8)
    f.call(PTHREAD_SIGMASK, sig_setmask(target), signals, former)
    f.call(PTHREAD_ATTR_INIT, attributes)
    f.call(PTHREAD_ATTR_SETSTACKSIZE, attributes, stack)
    error = f.call(PTHREAD_CREATE, thread, attributes, run, data)
    f.call(PTHREAD_ATTR_DESTROY, attributes)
    f.call(PTHREAD_SIGMASK, sig_setmask(target), former, None)
    return error
