"""Chunks of work that another thread can abort: functions of the pool's module.

What runs chunks is machine code that only computes: it holds no lock, owns no memory and calls nothing but C's memory
and mathematical functions. So it can be left at any instruction. `guarded` calls it after `sigsetjmp`; who wants to end
the job sets the job's word `stop` and sends SIGURG to the threads that may be at it, whose handler jumps out. Nothing
is asked for in the loops themselves. What a chunk was writing is left half done: nobody may look at it.

Routines of LAPACK are not of this kind: between `hlokit_hold` and `hlokit_go_on` a thread is left alone.

SIGURG is a signal that processes ignore unless they ask for it. Its handler is ours only while somebody ends a job, and
threads take it only inside `guarded`.

    void guarded(ptr stop, ptr function, ptr table, i64 begin, i64 end)   function(table, begin, end), or part of it
    void hlokit_ending(), hlokit_ended()    round the time in which signals are sent: the handler is there
    i32 hlokit_guard_prepare()              once a process, before anything else; 0 if all is well
"""

from __future__ import annotations

from hlokit.cpu.jit.libc import (
    OPAQUE,
    PTHREAD_GETSPECIFIC,
    PTHREAD_KEY_CREATE,
    PTHREAD_SETSPECIFIC,
    PTHREAD_SIGMASK,
    SCHED_YIELD,
    SIGACTION,
    is_linux,
    sig_setmask,
    sig_unblock,
    sigurg,
    spin_lock,
    spin_unlock,
)
from hlokit.cpu.llvm import I8, I32, I64, POINTER, Field, Function, Global, Module, Pointer, Prototype, Record
from hlokit.cpu.target import Target

GUARDED = Prototype("guarded", None, {"stop": POINTER, "function": POINTER, "table": POINTER, "begin": I64, "end": I64})
PREPARE = Prototype("hlokit_guard_prepare", I32)
RESET = Prototype("hlokit_guard_reset", None)
HOLD = Prototype("hlokit_hold", None)
GO_ON = Prototype("hlokit_go_on", None)
ENDING = Prototype("hlokit_ending", None)
ENDED = Prototype("hlokit_ended", None)
_JUMP = Prototype("jump", None, {"number": I32})
_LEAVE_IF_STOPPED = Prototype("leave_if_stopped", None, {"guard": POINTER})
_SIGLONGJMP = Prototype("siglongjmp", None, [POINTER, I32], attributes="noreturn")

_GUARD = Record(
    "Guard",
    {
        "is_on": I32,
        "stop": POINTER,
        "outer": POINTER,
        "modes": I64,
        "blocked": Field(I8, OPAQUE, align=64),
        "place": Field(I8, 832),
    },
)
"""The state of a thread while it is in `guarded`.

is_on    whether the thread may be made to jump
stop     the job's word
outer    the guard outside this one
modes    of floating-point arithmetic
blocked  the signals that were blocked
place    where to jump: a sigjmp_buf
"""
_GUARDS = Global("guards", I64)
"""The pthread_key_t of each thread's innermost guard."""
_ENDINGS = Global("endings", I32)
"""The number of threads between `hlokit_ending` and `hlokit_ended`."""
_ENDINGS_LOCK = Global("endings.lock", I32)


def write(module: Module, target: Target) -> None:
    """Adds the functions."""
    for function in (_prepare(), _hold(), _go_on(), _ending(target), _ended(target), _reset(target)):
        module.add(function, exported=True)
    for function in (_guarded(target), _jump(), _leave_if_stopped()):
        module.add(function)


def _sigaction(target: Target) -> Record:
    """C's struct sigaction."""
    if is_linux(target):
        mask = Field(I8, OPAQUE)
        return Record("sigaction", {"handler": POINTER, "mask": mask, "flags": I32, "restorer": POINTER})
    return Record("sigaction", {"handler": POINTER, "mask": I32, "flags": I32})


def _sa_restart(target: Target) -> int:
    return 0x10000000 if is_linux(target) else 2


def _former_action(f: Function, target: Target) -> Pointer:
    """The action of SIGURG that was there before ours."""
    return f.address(Global("former.action", _sigaction(target), align=16))


def _prepare() -> Function:
    f = Function.of(PREPARE)
    f.returns(f.call(PTHREAD_KEY_CREATE, f.address(_GUARDS), None))
    return f


def _guarded(target: Target) -> Function:
    f = Function.of(GUARDED, "noinline")
    sigsetjmp = Prototype(
        "__sigsetjmp" if is_linux(target) else "sigsetjmp", I32, [POINTER, I32], attributes="returns_twice"
    )
    stop = f.pointer("stop", I32)
    guard, signals = f.local(_GUARD), f.local(I8, OPAQUE, 8)
    key = f.address(_GUARDS)
    outer = f.call(PTHREAD_GETSPECIFIC, key.load())
    # volatile: what is read after the jump must lie in memory
    guard["is_on"].store(0, volatile=True)
    guard["stop"].store(stop, volatile=True)
    guard["outer"].store(outer, volatile=True)
    _save_modes(guard["modes"], target)
    f.memset(signals, 0, OPAQUE)
    signals.to(I64).store(1 << (sigurg(target) - 1))
    f.call(PTHREAD_SETSPECIFIC, key.load(), guard)
    f.call(PTHREAD_SIGMASK, sig_unblock(target), signals, guard["blocked"])
    left = f.new_block("left")
    f.go_on_if(f.call(sigsetjmp, guard["place"], 0).eq(0), left)
    guard["is_on"].store(1, ordering="seq_cst", volatile=True)
    f.go_on_if(stop.load(ordering="seq_cst").eq(0), left)
    f.pointer("function").call(None, f.pointer("table"), f.argument("begin"), f.argument("end"))
    f.jump(left)
    f.start(left)
    guard["is_on"].store(0, ordering="seq_cst", volatile=True)
    _restore_modes(guard["modes"], target)
    f.call(PTHREAD_SETSPECIFIC, key.load(), guard["outer"].load_pointer(volatile=True))
    f.call(PTHREAD_SIGMASK, sig_setmask(target), guard["blocked"], None)
    f.returns()
    return f


def _save_modes(place: Pointer, target: Target) -> None:
    if target.arch == "x86_64":
        place.fn.call("llvm.x86.sse.stmxcsr", place)
    else:
        place.store(place.fn.call_for(I64, "llvm.aarch64.get.fpcr"))


def _restore_modes(place: Pointer, target: Target) -> None:
    if target.arch == "x86_64":
        place.fn.call("llvm.x86.sse.ldmxcsr", place)
    else:
        place.fn.call("llvm.aarch64.set.fpcr", place.load())


def _innermost(f: Function) -> Pointer:
    """The thread's guard; if it has none the function returns."""
    guard = f.call(PTHREAD_GETSPECIFIC, f.address(_GUARDS).load()).to(_GUARD)
    with f.when(guard.is_null()):
        f.returns()
    return guard


def _jump() -> Function:
    """The signal's handler."""
    f = Function.of(_JUMP)
    guard = _innermost(f)
    with f.when(guard["is_on"].load(ordering="seq_cst").ne(0)):
        f.call(_LEAVE_IF_STOPPED, guard)
    f.returns()
    return f


def _leave_if_stopped() -> Function:
    f = Function.of(_LEAVE_IF_STOPPED)
    guard = f.pointer("guard", _GUARD)
    with f.when(guard["stop"].load_pointer(I32).load(ordering="seq_cst").ne(0)):
        guard["is_on"].store(0, ordering="seq_cst")
        f.call(_SIGLONGJMP, guard["place"], 1)
        f.unreachable()
    f.returns()
    return f


def _hold() -> Function:
    """From here on this thread's work is not ended."""
    f = Function.of(HOLD)
    _innermost(f)["is_on"].store(0, ordering="seq_cst")
    f.returns()
    return f


def _go_on() -> Function:
    """From here on it is again; at once, if the job has been stopped meanwhile."""
    f = Function.of(GO_ON)
    guard = _innermost(f)
    guard["is_on"].store(1, ordering="seq_cst")
    f.call(_LEAVE_IF_STOPPED, guard)
    f.returns()
    return f


def _ending(target: Target) -> Function:
    f = Function.of(ENDING)
    action = f.local(_sigaction(target), align=16)
    lock, endings = f.address(_ENDINGS_LOCK), f.address(_ENDINGS)
    spin_lock(lock, SCHED_YIELD)
    others = endings.load()
    endings.store(others + 1)
    with f.when(others.eq(0)):
        f.memset(action, 0, action.element.bytes)
        action["handler"].store(f.address(_JUMP))
        action["flags"].store(_sa_restart(target))
        f.call(SIGACTION, sigurg(target), action, _former_action(f, target))
    spin_unlock(lock)
    f.returns()
    return f


def _ended(target: Target) -> Function:
    f = Function.of(ENDED)
    lock, endings = f.address(_ENDINGS_LOCK), f.address(_ENDINGS)
    spin_lock(lock, SCHED_YIELD)
    others = endings.load() - 1
    endings.store(others)
    with f.when(others.eq(0)):
        f.call(SIGACTION, sigurg(target), _former_action(f, target), None)
    spin_unlock(lock)
    f.returns()
    return f


def _reset(target: Target) -> Function:
    """In the child of a fork: whoever was ending a job is not in it."""
    f = Function.of(RESET)
    f.address(_ENDINGS_LOCK).store(0)
    endings = f.address(_ENDINGS)
    with f.when(endings.load().ne(0)):
        endings.store(0)
        f.call(SIGACTION, sigurg(target), _former_action(f, target), None)
    f.returns()
    return f
