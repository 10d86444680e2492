"""Runs of several devices without Python: each device on a thread of its own, their meetings in machine code.

A program can run so if all its steps of the reference are collectives, or ask for the device, and if its devices surely
come to the same ones: then none can wait for ever. `i1 hlokit_grid_take(ptr grid)` has the threads wait for this call;
then `i32 hlokit_grid_run(ptr grid, ptr tables)` gives what the devices' entries give, each called with its table, and
lets go of the threads, as `hlokit_grid_leave(ptr grid)` does without a run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from hlokit.analysis.rendezvous import come_alike
from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.libc import PTHREAD_SETSPECIFIC
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool import MAX_THREADS, pool
from hlokit.cpu.jit.pool_code import TEAM_LEAVE, TEAM_RUN, TEAM_TAKE
from hlokit.cpu.llvm import I1, I32, I64, POINTER, Function, Module, Prototype, Record
from hlokit.cpu.target import ALIGNMENT, Target, available_threads, host
from hlokit.runtime.arena import Arena
from hlokit.runtime.call import Caller
from hlokit.runtime.grid_record import GRID
from hlokit.runtime.interrupt import stop_key
from hlokit.runtime.meetings import RUN, Round, ring, thread_key
from hlokit.runtime.plan import ON_STACK

if TYPE_CHECKING:
    from hlokit.runtime.devices import DeviceExecutable

_CALL = Record("Call", {"grid": POINTER, "tables": POINTER, "status": I32})
"""A run. `status`: what an entry gave that was not 0, if one did."""

TAKE = Prototype("hlokit_grid_take", I1, {"grid": POINTER})
RUN_ALL = Prototype("hlokit_grid_run", I32, {"grid": POINTER, "tables": POINTER})
LEAVE = Prototype("hlokit_grid_leave", None, {"grid": POINTER})
_RUN_SOME = Prototype("run_some", None, {"call": POINTER, "begin": I64, "end": I64})
_TEAM = "devices"


class NativeGrid:
    """A program that runs on its devices without Python.

    caller    what its entry takes and gives on one device
    devices   how many there are
    fixed     for each device the pointers that follow the results' in its table: constants, temporaries (here 0), and
              what else the entry wants, with threads for its kernels that no other device has
    address   of the GRID
    """

    def __init__(self, executable: DeviceExecutable, caller: Caller, meetings: Round) -> None:
        count = executable.replica_count * executable.partition_count
        self.caller, self.devices = caller, count
        self._keep = executable.executable, meetings
        threads = (executable.executable.threads or available_threads()) // count
        workers, *more = caller.more
        self.fixed: list[tuple[int, ...]] = []
        for device in range(count):
            own = pool(threads, f"device {device}").address if workers and threads > 1 else 0
            self.fixed.append((*caller.constants, 0, own, *more))
        team, code = pool(count, _TEAM), _code()
        self._places = (ctypes.c_uint64 * count)(*meetings.places)
        self._words = GRID.structure(
            take=code.address(TAKE.name),
            run=code.address(RUN_ALL.name),
            leave=code.address(LEAVE.name),
            devices=count,
            entry=caller.entry,
            pool=team.address,
            key=thread_key(),
            stop_key=stop_key(),
            places=ctypes.addressof(self._places),
            state=meetings.run,
            size=meetings.size,
        )
        self.address = ctypes.addressof(self._words)
        self._take = ctypes.PYFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(code.address(TAKE.name))
        self._run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(code.address(RUN_ALL.name))
        self._arena = Arena(max(ALIGNMENT, count * self._temporaries))

    @property
    def _temporaries(self) -> int:
        """Bytes between the temporaries of one device and of the next."""
        return -(-self.caller.temporaries // ALIGNMENT) * ALIGNMENT

    def call(self, args: Sequence[Sequence[Any]]) -> list[Any] | None:
        """The result of each device; None, without a run, if the threads are at another one."""
        caller, each = self.caller, self._temporaries
        ready = [caller.arrays(own) for own in args]
        words = [[*caller.addresses(*arrays), *own] for arrays, own in zip(ready, self.fixed, strict=True)]
        with self._arena.buffer() as buffer:
            for device, row in enumerate(words):
                row[len(row) - len(caller.more) - 1] = buffer.address + device * each
            tables: list[Any] = [(ctypes.c_uint64 * len(row))(*row) for row in words]
            starts = (ctypes.c_uint64 * self.devices)(*map(ctypes.addressof, tables))
            if not self._take(self.address):
                return None
            status = self._run(self.address, ctypes.addressof(starts))
        if status:
            caller.failed()
        return [given[0] if caller.unwrap else tuple(given) for _, given in ready]


def native_grid(executable: DeviceExecutable) -> NativeGrid | None:
    """The program as it runs without Python; None if it takes Python, or its devices may not meet."""
    own, counts = executable.executable, (executable.replica_count, executable.partition_count)
    caller, count = own.native_on_devices, counts[0] * counts[1]
    if caller is None or not 2 <= count <= MAX_THREADS or ON_STACK in own.plan.runtime:
        return None
    if own.hosts is None:
        return NativeGrid(executable, caller, Round([()] * count, True))
    meetings = own.hosts.without_python() if come_alike(executable.source, *counts) else None
    return NativeGrid(executable, caller, meetings) if meetings is not None else None


@cache
def _code() -> Library:
    target = host()
    return Library([compiled(_written(target), target, name="grid of devices")], pool(2, _TEAM).team)


def _written(target: Target) -> Module:
    module = Module()
    module.add(_run_some(target))
    for function in (_take(), _run_all(), _leave()):
        module.add(function, exported=True)
    return module


def _take() -> Function:
    f = Function.of(TAKE)
    grid = f.pointer("grid", GRID)
    f.returns(f.call(TEAM_TAKE, grid["pool"].load_pointer(), grid["devices"].load()))
    return f


def _run_all() -> Function:
    f = Function.of(RUN_ALL)
    grid, call = f.pointer("grid", GRID), f.local(_CALL, 1, 8)
    state = grid["state"].load_pointer(RUN)
    with f.when(state["failed"].load().ne(0)):
        f.memset(state, 0, grid["size"].load())
    call["grid"].store(grid)
    call["tables"].store(f.pointer("tables"))
    call["status"].store(0)
    f.call(TEAM_RUN, grid["pool"].load_pointer(), f.address(_RUN_SOME), call, grid["devices"].load())
    f.returns(call["status"].load())
    return f


def _leave() -> Function:
    f = Function.of(LEAVE)
    f.call(TEAM_LEAVE, f.pointer("grid", GRID)["pool"].load_pointer())
    f.returns()
    return f


def _run_some(target: Target) -> Function:
    """Runs devices one by one; a thread has one, unless they need not meet."""
    f = Function.of(_RUN_SOME)
    call = f.pointer("call", _CALL)
    grid, tables = call["grid"].load_pointer(GRID), call["tables"].load_pointer(POINTER)
    key, stop_key = grid["key"].load(), grid["stop_key"].load()
    places, state = grid["places"].load_pointer(POINTER), grid["state"].load_pointer(RUN)
    with f.loop(f.argument("begin"), f.argument("end")) as loop:
        f.call(PTHREAD_SETSPECIFIC, key, places[loop.index].load_pointer())
        f.call(PTHREAD_SETSPECIFIC, stop_key, state)
        status = grid["entry"].load_pointer().call(I32, tables[loop.index].load_pointer())
        f.call(PTHREAD_SETSPECIFIC, key, None)
        f.call(PTHREAD_SETSPECIFIC, stop_key, None)
        with f.when(status.ne(0)):
            call["status"].store(status, ordering="monotonic")
            state["failed"].store(1, ordering="seq_cst")
            ring(state, target)
    f.returns()
    return f
