"""Synchronisation in machine code: small collectives of devices that arrive at about the same time need no Python.

The function that a program calls for its steps of the reference first looks whether the step is a collective that moves
little. Then it counts itself in; who comes last does all the work and opens the next round; the others wait, giving way
to other threads. Who has waited for long marks the round: all its members then meet in Python instead, which notices
deadlocks, cancellations and interrupts. So such a round is either machine code's or Python's, for all of them.

In a run without Python (runtime/native_grid.py), of devices that surely come to the same steps, nobody marks: who has
waited for long sleeps. A device that stops midway says so in the RUN, and the others stop at their next meeting. What
moves more is shared out there: all members do their part of the work, and nobody goes on before all have.

A meeting, of one group at one step in one run, is a word, and 64 bytes from it the members' tables:

    round << 32 | MARKED if it is Python's | members that have come
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.libc import (
    PTHREAD_GETSPECIFIC,
    SCHED_YIELD,
    futex_wait,
    futex_wake,
    is_linux,
    spin_pause,
)
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import I32, I64, POINTER, Field, Function, IfElse, Module, Pointer, Prototype, Record, Value, While
from hlokit.cpu.target import Target, host
from hlokit.forks import lock
from hlokit.runtime.share import SHARE, native_share

MARKED = 1 << 16
YIELDS = 500
"""The number of times that a member gives way before it marks the round: 0.1 ms or more."""
_LEAST, _MOST = 8, 256
"""The least and the most times that a member of a run without Python looks for the others before it sleeps: 1 to 30 us.
They become fewer where looking was in vain, as on cores that other processes want."""
_PAUSES = 8
RUN = Record(
    "Run", {"failed": Field(I64, align=64), "patience": I64, "bell": Field(I32, align=64), "sleepers": I32}
)
"""A run without Python. `failed`: a device stopped midway; `bell` changes when those who sleep are to look again;
`patience`: the number of times that members look for others."""
_MEETING = Record("Meeting", {"state": I64, "tables": Field(POINTER, 0, align=64)})
_SITE = Record(
    "Site",
    {
        "meeting": POINTER,
        "position": I64,
        "members": I64,
        "jobs": POINTER,
        "count": I64,
        "is_shared": I64,
        "run": POINTER,
    },
)
"""A Site in memory; without a meeting `position` is the step's result. `run`: null where Python runs the devices."""
_CONTEXT = Record("Context", {"python": POINTER, "key": I64, "own": POINTER})
"""The argument of `Switch`: the function of Python, which gets `own`, and the key of this thread's places."""
_TABLES = _MEETING.offset("tables")
_SITE_WORDS = _SITE.bytes // 8


@dataclass(frozen=True)
class Site:
    """A step on a device: its group, as a number among the step's, the device's position, and the work.

    members     0: the result is the `position` itself, as of partition-id
    is_shared   all members do a part of the work
    """

    group: int
    position: int
    members: int
    jobs: int
    count: int
    is_shared: bool = False


class Meetings:
    """Memory for the meetings of a program's runs. `sites`: for each device and step what to do there, or None."""

    def __init__(self, sites: Sequence[Sequence[Site | None]]) -> None:
        self._sites = sites
        self._free: list[Round] = []

    @property
    def are_any(self) -> bool:
        return any(site is not None for own in self._sites for site in own)

    def without_python(self) -> Round | None:
        """Memory for runs of machine code alone, one after another; None if some steps take Python."""
        return Round(self._sites, True) if all(site is not None for own in self._sites for site in own) else None

    def take(self) -> Round:
        """Memory for one run, in its first round."""
        try:
            made = self._free.pop()
        except IndexError:
            made = Round(self._sites)
        made.clear()
        return made

    def give(self, used: Round) -> None:
        """No thread is in the run any more."""
        self._free.append(used)


class Round:
    """The meetings of a run. `places`: of each device, the address of its pointers by step, which `Switch` takes.

    run   of a run without Python (`is_native`) the address of its RUN, with which the memory of `size` bytes begins
          that is to be zero before a run
    """

    def __init__(self, sites: Sequence[Sequence[Site | None]], is_native: bool = False) -> None:
        meetings: dict[tuple[int, int], int] = {}
        size = RUN.bytes if is_native else 0
        for own in sites:
            for number, site in enumerate(own):
                if site is not None and site.members and (number, site.group) not in meetings:
                    meetings[number, site.group] = size
                    size += _TABLES + -(-8 * site.members // 64) * 64
        self.size = size
        count = sum(len(own) + _SITE_WORDS * len(own) for own in sites)
        self._memory = ctypes.create_string_buffer(size + 64 + 8 * count)
        self._start = -(-ctypes.addressof(self._memory) // 64) * 64
        self.run = self._start if is_native else 0
        words = (ctypes.c_int64 * count).from_address(self._start + size)
        place = 0
        self.places: list[int] = []
        self._words: dict[tuple[int, int], int] = {}
        for device, own in enumerate(sites):
            self.places.append(ctypes.addressof(words) + 8 * place)
            for number, site in enumerate(own):
                if site is None:
                    continue
                at = place + len(own) + _SITE_WORDS * number
                meeting = self._start + meetings[number, site.group] if site.members else 0
                work = site.jobs, site.count, site.is_shared, self.run
                words[at : at + _SITE_WORDS] = [meeting, site.position, site.members, *work]
                words[place + number] = ctypes.addressof(words) + 8 * at
                if meeting:
                    self._words[device, number] = meeting
            place += len(own) * (1 + _SITE_WORDS)

    def clear(self) -> None:
        ctypes.memset(self._start, 0, self.size)

    def next(self, device: int, number: int) -> None:
        """The members of the device's group have met in Python: none of them goes on before this."""
        address = self._words.get((device, number))
        if address is not None:
            word = ctypes.c_uint64.from_address(address)
            word.value = ((word.value >> 32) + 1) % 2**32 << 32


class Switch:
    """The function i32 (ptr context, i64 step, ptr table): meets in machine code or calls `python`, another such, with
    a context of its own.

    address, context   of the function, and what it is to be given
    """

    def __init__(self, python: int, context: int) -> None:
        native = _native()
        self.address = native.address
        self._words = (ctypes.c_int64 * 3)(python, native.key, context)
        self.context = ctypes.addressof(self._words)

    @staticmethod
    def enter(place: int) -> None:
        """From now on this thread is the device that has the place; 0: none."""
        native = _native()
        native.set(native.key, place or None)


def thread_key() -> int:
    """The key under which each thread has its device's place (pthread_getspecific)."""
    return _native().key


class _Native:
    def __init__(self) -> None:
        process: Any = ctypes.pythonapi  # which is the whole process
        key = ctypes.c_ulong(0)
        if process.pthread_key_create(ctypes.byref(key), None):
            raise MemoryError("no more thread-specific keys")
        self.key = key.value
        self.set: Callable[[int, int | None], int] = process.pthread_setspecific
        process.pthread_setspecific.argtypes = [ctypes.c_ulong, ctypes.c_void_p]
        target = host()
        code = compiled(_written(target), target, name="meetings")
        self._library = Library([code], {SHARE.name: native_share().address})
        self.address = self._library.address(_SWITCH.name)


_lock = lock()


def _native() -> _Native:
    with _lock:
        return _made()


@cache
def _made() -> _Native:
    return _Native()


_SWITCH = Prototype("hlokit_switch", I32, {"context": POINTER, "step": I64, "table": POINTER})
_MEET = Prototype("meet", I32, {"site": POINTER, "table": POINTER})
_ARRIVE = Prototype("arrive", I32, {"meeting": POINTER, "members": I64, "run": POINTER})
_OPEN = Prototype("open", None, {"meeting": POINTER, "run": POINTER})
_LAST, _OPENED, _FAILED = 0, 1, 2


def _written(target: Target) -> Module:
    module = Module()
    module.add(_switch(), exported=True)
    for function in (_meet(), _arrive(target), _open(target)):
        module.add(function)
    return module


def _switch() -> Function:
    f = Function.of(_SWITCH)
    context, step, table = f.pointer("context", _CONTEXT), f.argument("step"), f.pointer("table", POINTER)
    python = f.new_block("python")
    place = f.call(PTHREAD_GETSPECIFIC, context["key"].load()).to(POINTER)
    f.go_on_if(place.ne(None), python)
    site = place[step].load_pointer(_SITE)
    f.go_on_if(site.ne(None), python)
    meeting, members = site["meeting"].load_pointer(_MEETING), site["members"].load()
    with f.when(members.eq(0)):
        table.load_pointer(I32).store(site["position"].load().trunc(32))
        f.returns(0)
    with f.when(site["run"].load_pointer().ne(None)):
        f.returns(f.call(_MEET, site, table))
    state, tables = meeting["state"], meeting["tables"]
    tables[site["position"].load()].store(table)
    before = state.atomicrmw("add", 1)
    f.go_on_if((before & MARKED).eq(0), python)
    own = before >> 32
    is_last = IfElse(f, ((before & (MARKED - 1)) + 1).eq(members))
    f.call(SHARE, site["jobs"].load_pointer(), site["count"].load(), tables, 0, 1)
    state.store((own + 1) << 32, ordering="seq_cst")
    is_last.otherwise()
    waiting = While(f, [f.constant(0, I64)])
    (yields,) = waiting.values
    now = state.load(ordering="seq_cst")
    waiting.test((now >> 32).eq(own))
    f.go_on_if((now & MARKED).eq(0), python)
    f.call(SCHED_YIELD)
    again = yields + 1
    is_missing = (now & (MARKED - 1)).compare("ult", members)
    with f.when(is_missing & again.compare("ugt", YIELDS)):
        _, is_marked = state.cmpxchg(now, now | MARKED)
        f.go_on_if(~is_marked, python)
    waiting.again(again)
    is_last.end()
    f.returns(0)
    f.start(python)
    f.returns(context["python"].load_pointer().call(I32, context["own"].load_pointer(), step, table))
    return f


def _meet() -> Function:
    """Meets without Python: 0, or 1 if a device has stopped midway."""
    f = Function.of(_MEET)
    site = f.pointer("site", _SITE)
    meeting, run = site["meeting"].load_pointer(_MEETING), site["run"].load_pointer()
    position, members = site["position"].load(), site["members"].load()
    tables, is_shared = meeting["tables"], site["is_shared"].load().ne(0)
    tables[position].store(f.pointer("table"))
    jobs, count = site["jobs"].load_pointer(), site["count"].load()
    is_last = _arrived(meeting, members, run)
    with f.when(is_last & ~is_shared):
        f.call(SHARE, jobs, count, tables, 0, 1)
    with f.when(is_last):
        f.call(_OPEN, meeting, run)
    with f.when(is_shared):
        f.call(SHARE, jobs, count, tables, position, members)
        with f.when(_arrived(meeting, members, run)):
            f.call(_OPEN, meeting, run)
    f.returns(0)
    return f


def _arrived(meeting: Pointer, members: Value, run: Pointer) -> Value:
    """Counts a member in, and waits for the others; whether it is the last, who opens. Leaves with 1 for a failure."""
    f = meeting.fn
    found = f.call(_ARRIVE, meeting, members, run)
    f.return_if(found.eq(_FAILED), 1)
    return found.eq(_LAST)


def _arrive(target: Target) -> Function:
    f = Function.of(_ARRIVE)
    state, run = f.pointer("meeting", _MEETING)["state"], f.pointer("run", RUN)
    before = state.atomicrmw("add", 1)
    own = before >> 32
    f.return_if(((before & (MARKED - 1)) + 1).eq(f.argument("members")), _LAST)

    def is_open() -> Value:
        return (state.load(ordering="seq_cst") >> 32).ne(own)

    def has_failed() -> Value:
        return run["failed"].load(ordering="seq_cst").ne(0)

    patience = run["patience"].load(ordering="monotonic").smax(_LEAST)
    with f.loop(0, patience):
        with f.when(is_open()):
            run["patience"].store((patience + _LEAST).smin(_MOST), ordering="monotonic")
            f.returns(_OPENED)
        f.return_if(has_failed(), _FAILED)
        with f.loop(0, _PAUSES):
            spin_pause(f, target)
    run["patience"].store(patience >> 1, ordering="monotonic")
    sleeping = While(f, [])
    run["sleepers"].atomicrmw("add", 1)
    bell = run["bell"].load(ordering="seq_cst")
    is_over = is_open() | has_failed()
    with f.when(~is_over):
        if is_linux(target):
            futex_wait(run["bell"], bell, target)
        else:
            f.call(SCHED_YIELD)
    run["sleepers"].atomicrmw("sub", 1)
    f.return_if(is_open(), _OPENED)
    f.return_if(has_failed(), _FAILED)
    sleeping.again()
    f.unreachable()
    return f


def _open(target: Target) -> Function:
    """Opens the next round, and wakes who sleeps."""
    f = Function.of(_OPEN)
    state = f.pointer("meeting", _MEETING)["state"]
    state.store(((state.load() >> 32) + 1) << 32, ordering="seq_cst")
    ring(f.pointer("run", RUN), target)
    f.returns()
    return f


def ring(run: Pointer, target: Target) -> None:
    """Has those who sleep in this RUN look again."""
    f = run.fn
    if not is_linux(target):
        return
    with f.when(run["sleepers"].load(ordering="seq_cst").ne(0)):
        run["bell"].atomicrmw("add", 1)
        futex_wake(run["bell"], target)
