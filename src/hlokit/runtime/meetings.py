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
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import host
from hlokit.forks import lock
from hlokit.runtime.share import native_share

MARKED = 1 << 16
YIELDS = 500
"""How often a member gives way before it marks the round: 0.1 ms or more."""
_TABLES = 64
_SITE_WORDS = 5


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
        self._library = Library([compiled(_text(), target, name="meetings")], {"hlokit_share": native_share().address})
        self.address = self._library.address("hlokit_switch")


_lock = lock()


def _native() -> _Native:
    with _lock:
        return _made()


@cache
def _made() -> _Native:
    return _Native()


def _text() -> str:
    module = Module()
    module.add(_switch(), exported=True)
    declared = "declare ptr @pthread_getspecific(i64)\ndeclare i32 @sched_yield()\n"
    return declared + "declare void @hlokit_share(ptr, i64, ptr, i64, i64)\n" + module.text()


def _switch() -> Function:
    fn = Function("hlokit_switch", [("ptr", "context"), ("i64", "step"), ("ptr", "table")], "i32")

    def word(base: str, number: int | str, type: str = "i64") -> str:
        return fn.let(f"load {type}, ptr {fn.let(f'getelementptr i64, ptr {base}, i64 {number}')}")

    def only_if(condition: str, otherwise: str) -> None:
        on = fn.new_block("on")
        fn.branch(condition, on, otherwise)
        fn.start(on)

    python, done = fn.new_block("python"), fn.new_block("done")
    place = fn.let(f"call ptr @pthread_getspecific(i64 {word('%context', 1)})")
    only_if(fn.let(f"icmp ne ptr {place}, null"), python)
    site = word(place, "%step", "ptr")
    only_if(fn.let(f"icmp ne ptr {site}, null"), python)
    meeting, position, members = word(site, 0, "ptr"), word(site, 1), word(site, 2)
    tables = fn.let(f"getelementptr i8, ptr {meeting}, i64 {_TABLES}")
    fn.do(f"store ptr %table, ptr {fn.let(f'getelementptr ptr, ptr {tables}, i64 {position}')}")
    before = fn.let(f"atomicrmw add ptr {meeting}, i64 1 seq_cst, align 8")
    only_if(fn.let(f"icmp eq i64 {fn.let(f'and i64 {before}, {MARKED}')}, 0"), python)
    own = fn.let(f"lshr i64 {before}, 32")
    come = fn.let(f"add i64 {fn.let(f'and i64 {before}, {MARKED - 1}')}, 1")
    last, wait = fn.new_block("last"), fn.new_block("wait")
    fn.branch(fn.let(f"icmp eq i64 {come}, {members}"), last, wait)

    fn.start(last)
    fn.do(f"call void @hlokit_share(ptr {word(site, 3, 'ptr')}, i64 {word(site, 4)}, ptr {tables}, i64 0, i64 1)")
    following = fn.let(f"shl i64 {fn.let(f'add i64 {own}, 1')}, 32")
    fn.do(f"store atomic i64 {following}, ptr {meeting} seq_cst, align 8")
    fn.jump(done)

    fn.start(wait)
    look, yields, again = fn.new_block("look"), fn.fresh("yields"), fn.fresh("again")
    fn.jump(look)
    fn.start(look)
    place_of_phi = len(fn.lines)
    state = fn.let(f"load atomic i64, ptr {meeting} seq_cst, align 8")
    only_if(fn.let(f"icmp eq i64 {fn.let(f'lshr i64 {state}, 32')}, {own}"), done)
    only_if(fn.let(f"icmp eq i64 {fn.let(f'and i64 {state}, {MARKED}')}, 0"), python)
    fn.let("call i32 @sched_yield()")
    fn.lines.append(f"  {again} = add i64 {yields}, 1")
    missing = fn.let(f"icmp ult i64 {fn.let(f'and i64 {state}, {MARKED - 1}')}, {members}")
    tired = fn.let(f"icmp ugt i64 {again}, {YIELDS}")
    mark, on = fn.new_block("mark"), fn.new_block("again")
    fn.branch(fn.let(f"and i1 {missing}, {tired}"), mark, on)
    fn.start(mark)
    marked = fn.let(f"or i64 {state}, {MARKED}")
    tried = fn.let(f"cmpxchg ptr {meeting}, i64 {state}, i64 {marked} seq_cst seq_cst, align 8")
    fn.branch(fn.let(f"extractvalue {{ i64, i1 }} {tried}, 1"), python, on)
    fn.start(on)
    fn.jump(look)
    phi = f"  {yields} = phi i64 [ 0, %{wait} ], [ {again}, %{on} ]"
    fn.lines.insert(place_of_phi, phi)

    fn.start(python)
    arguments = f"ptr {word('%context', 2, 'ptr')}, i64 %step, ptr %table"
    status = fn.let(f"call i32 {word('%context', 0, 'ptr')}({arguments})")
    fn.do(f"ret i32 {status}")
    fn.start(done)
    fn.do("ret i32 0")
    return fn
