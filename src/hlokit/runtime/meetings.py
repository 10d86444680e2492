"""Meetings in machine code: small collectives of devices that come at about the same time need no Python.

The function that a program calls for its steps of the reference first looks whether the step is a collective that moves
little. Then it counts itself in; who comes last does all the work and opens the next round; the others wait, giving way
to other threads. Who has waited for long marks the round: all its members then meet in Python instead, which notices
deadlocks, cancellations and interrupts. So such a round is either machine code's or Python's, for all of them.

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
from hlokit.cpu.jit.libc import PTHREAD_GETSPECIFIC, SCHED_YIELD
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import I32, I64, POINTER, Field, Function, IfElse, Module, Prototype, Record, While
from hlokit.cpu.target import host
from hlokit.forks import lock
from hlokit.runtime.share import SHARE, native_share

MARKED = 1 << 16
YIELDS = 500
"""The number of times that a member gives way before it marks the round: 0.1 ms or more."""
_MEETING = Record("Meeting", {"state": I64, "tables": Field(POINTER, 0, align=64)})
_SITE = Record("Site", {"meeting": POINTER, "position": I64, "members": I64, "jobs": POINTER, "count": I64})
"""A Site in memory."""
_CONTEXT = Record("Context", {"python": POINTER, "key": I64, "own": POINTER})
"""The argument of `Switch`: the function of Python, which gets `own`, and the key of this thread's places."""
_TABLES = _MEETING.offset("tables")
_SITE_WORDS = _SITE.bytes // 8


@dataclass(frozen=True)
class Site:
    """A step on a device: its group, as a number among the step's, the device's position, and the work."""

    group: int
    position: int
    members: int
    jobs: int
    count: int


class Meetings:
    """Memory for the meetings of a program's runs. `sites`: for each device and step what to do there, or None.

    context   for `Switch`
    """

    def __init__(self, sites: Sequence[Sequence[Site | None]]) -> None:
        self._sites = sites
        self._free: list[Round] = []

    @property
    def are_any(self) -> bool:
        return any(site is not None for own in self._sites for site in own)

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
    """The meetings of a run. `places`: of each device, the address of its pointers by step, which `Switch` takes."""

    def __init__(self, sites: Sequence[Sequence[Site | None]]) -> None:
        meetings: dict[tuple[int, int], int] = {}
        size = 0
        for own in sites:
            for number, site in enumerate(own):
                if site is not None and (number, site.group) not in meetings:
                    meetings[number, site.group] = size
                    size += _TABLES + -(-8 * site.members // 64) * 64
        self._size = size
        count = sum(len(own) + _SITE_WORDS * len(own) for own in sites)
        self._memory = ctypes.create_string_buffer(size + 64 + 8 * count)
        self._start = -(-ctypes.addressof(self._memory) // 64) * 64
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
                meeting = self._start + meetings[number, site.group]
                words[at : at + _SITE_WORDS] = [meeting, site.position, site.members, site.jobs, site.count]
                words[place + number] = ctypes.addressof(words) + 8 * at
                self._words[device, number] = meeting
            place += len(own) * (1 + _SITE_WORDS)

    def clear(self) -> None:
        ctypes.memset(self._start, 0, self._size)

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
        self._library = Library([compiled(_written(), target, name="meetings")], {SHARE.name: native_share().address})
        self.address = self._library.address(_SWITCH.name)


_lock = lock()


def _native() -> _Native:
    with _lock:
        return _made()


@cache
def _made() -> _Native:
    return _Native()


_SWITCH = Prototype("hlokit_switch", I32, {"context": POINTER, "step": I64, "table": POINTER})


def _written() -> Module:
    module = Module()
    module.add(_switch(), exported=True)
    return module


def _switch() -> Function:
    f = Function.of(_SWITCH)
    context, step, table = f.pointer("context", _CONTEXT), f.argument("step"), f.pointer("table")
    python = f.new_block("python")
    place = f.call(PTHREAD_GETSPECIFIC, context["key"].load()).to(POINTER)
    f.go_on_if(place.ne(None), python)
    site = place[step].load_pointer(_SITE)
    f.go_on_if(site.ne(None), python)
    meeting, members = site["meeting"].load_pointer(_MEETING), site["members"].load()
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
