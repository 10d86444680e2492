"""Memory that compiling and dropping programs leaves behind.

    python -m tests.leaks [COUNT] [WAY ...]      20,000 of each way by default; some minutes each

Ways: `cold` makes machine code each time, `cached` takes it from the cache, `jax` goes through the platform for JAX.
Prints bytes a compile; the exit status is 1 if any is above LIMIT.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

_LIBC = ctypes.CDLL(None)
LIMIT = 512
"""Bytes a compile."""
_SETTLED = 700
"""Compiles after which what is kept for good is there."""
TEXT = """HloModule leak{0}
condition {{ i = s32[] parameter(0)
  n = s32[] constant({0})
  ROOT r = pred[] compare(i, n), direction=LT }}
body {{ i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] add(i, one) }}
ENTRY e {{ x = f32[{1},7] parameter(0)
  c = f32[] constant({0})
  b = f32[{1},7] broadcast(c), dimensions={{}}
  zero = s32[] constant(0)
  i = s32[] while(zero), condition=condition, body=body
  f = f32[] convert(i)
  g = f32[{1},7] broadcast(f), dimensions={{}}
  s = f32[{1},7] add(x, b)
  ROOT r = f32[{1},7] multiply(s, g) }}"""


def resident() -> int:
    """Bytes of memory that the process has, less what malloc keeps of memory that was freed: where it lies, and so whether
    malloc can use it again before it asks for more, is luck, worth a few MB at a time."""
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):  # glibc
        _LIBC.malloc_trim(0)
    with open("/proc/self/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cold() -> Iterator[None]:
    """Programs that are new each time, without a cache."""
    os.environ["HLOKIT_CACHE_DIR"] = ""
    yield from _programs(itertools.count(1))


def cached() -> Iterator[None]:
    """Five programs that the cache has."""
    os.environ["HLOKIT_CACHE_DIR"] = tempfile.mkdtemp()
    yield from _programs(k % 5 for k in itertools.count())


def _programs(numbers: Iterator[int]) -> Iterator[None]:
    import hlokit as hk

    for number in numbers:
        size = 8 + number % 5
        given = hk.compile(hk.parse(TEXT.format(number, size)))(np.ones((size, 7), np.float32))
        assert given[0, 0] == (number + 1) * number
        yield


def jax() -> Iterator[None]:
    """New functions under jax.jit; JAX's caches are cleared after every tenth."""
    os.environ["HLOKIT_CACHE_DIR"] = ""
    os.environ["JAX_PLATFORMS"] = "hlokit,cpu"
    import jax

    def made(number: int) -> Callable[[Any], Any]:
        return lambda x: x * number + 1

    for number in itertools.count():
        assert float(jax.jit(made(number))(2.0)) == 2 * number + 1
        if number % 10 == 9:
            jax.clear_caches()
        yield


WAYS = {"cold": cold, "cached": cached, "jax": jax}


def bytes_each(way: str, count: int, settled: int = _SETTLED) -> float:
    """What one compile leaves behind, in bytes, over `count` of them."""
    steps = WAYS[way]()
    for _ in itertools.islice(steps, settled):
        pass
    before = resident()
    for _ in itertools.islice(steps, count):
        pass
    return (resident() - before) / count


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 20_000
    worst = 0.0
    for way in arguments[1:] or list(WAYS):
        each = bytes_each(way, count)
        worst = max(worst, each)
        print(f"{way}: {each:.0f} bytes a compile over {count:,}", flush=True)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
