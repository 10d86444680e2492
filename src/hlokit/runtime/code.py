"""Code: a plan's machine code in this process."""

from __future__ import annotations

from contextlib import suppress

from hlokit.cpu.jit.objects import Library
from hlokit.cpu.jit.pool import pool
from hlokit.cpu.target import available_threads
from hlokit.forks import once
from hlokit.runtime.plan import RUNTIME, Plan, functions
from hlokit.stack import in_background


@once
def prepare() -> None:
    """Starts a thread that makes the code that programs link to, the same for all, unless there is only one core: 40 ms
    without the cache, while a first program is read, optimised and lowered."""
    if available_threads() > 1:
        in_background(_linked_to)


def _linked_to() -> None:
    with suppress(Exception):  # a program that needs it raises the same
        pool()
        functions(tuple(RUNTIME))


class Code:
    """Machine code that was loaded, with all that it needs.

    entry       its address
    constants   addresses of the constants that its table has, in order
    workers     address of the threads that take part in a call; 0 where it has no work for them
    """

    def __init__(self, plan: Plan, threads: int | None) -> None:
        workers = pool(threads) if plan.parallel else None
        symbols = {**(workers.symbols if workers else {}), **functions(plan.runtime)}
        if plan.lapack:
            from hlokit.cpu.kernels.linalg.lapack import lapack_addresses

            symbols |= lapack_addresses(plan.lapack)
        self._library = Library(plan.objects, symbols)
        self._keep = workers, plan
        self.entry = self._library.address("hlokit_entry")
        self.constants: list[int] = [array.__array_interface__["data"][0] for array in plan.constants]
        self.workers = workers.address if workers else 0
