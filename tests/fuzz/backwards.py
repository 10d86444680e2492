"""Compiled programs whose chunks go one by one, the last first: what a chunk does may not depend on those before it.

Chunks that two threads take in any order mostly end in the order that hides such a fault. Short kernels have several
chunks here, too.
"""

from __future__ import annotations

import os
from contextlib import ExitStack

from hlokit.cpu.jit import pool, pool_code
from hlokit.cpu.jit.pool_code import PARALLEL
from hlokit.cpu.llvm import Function
from tests.fuzz.machine_code import many_chunks

_many_chunks = ExitStack()
_installed = False


def go_backwards() -> None:
    """For all programs that this process compiles from now on, without the cache. RuntimeError: it has begun before."""
    global _installed
    if _installed:
        return
    if pool.code.is_made:
        raise RuntimeError("the pool's code was made before: chunks would go as usual")
    os.environ["HLOKIT_CACHE_DIR"] = ""
    _many_chunks.enter_context(many_chunks())
    pool_code._parallel = _parallel  # pyright: ignore[reportPrivateUsage]
    _installed = True


def _parallel() -> Function:
    f = Function.of(PARALLEL)
    chunks = f.argument("chunks")
    with f.loop(f.index(0), chunks) as loop:
        last = chunks - loop.index
        f.pointer("function").call(None, f.pointer("table"), last - 1, last)
    f.returns()
    return f
