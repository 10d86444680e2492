"""Kernels that look through all updates at each call: each thread calls one once, for its share of the chunks."""

from __future__ import annotations

from hlokit.cpu.jit.pool_code import STATE
from hlokit.cpu.kernels.routine import PHASE
from hlokit.cpu.llvm import I64, POINTER, Function, IfElse, Pointer, Record, Value

_JOB = Record("Joined", {"table": POINTER, "calls": I64})


def written(name: str, kernel: str, chunks: int) -> Function:
    """A function each chunk of which calls the kernel once, for an equal share of the kernel's chunks."""
    f = Function(name, PHASE, is_cold=True)
    job = f.pointer("table", _JOB)
    begin, end = (f.argument(side) * chunks // job["calls"].load() for side in ("begin", "end"))
    f.call(kernel, job["table"].load_pointer(), begin, end)
    f.returns()
    return f


def job(fn: Function, pool: Pointer, table: Pointer, chunks: int) -> tuple[Pointer, Value]:
    """The function's table for a kernel that has this one, and the number of calls. `pool` may be null."""
    state = pool.to(STATE)
    has_pool = IfElse(fn, pool.ne(None))
    threads = state["wanted"].load().zext(64) + 1
    has_pool.otherwise(threads)
    (threads,) = has_pool.end(fn.constant(1, I64))
    calls = threads.smin(chunks)
    made = fn.local(_JOB)
    made["table"].store(table)
    made["calls"].store(calls)
    return made, calls
