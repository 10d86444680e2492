"""What one of several processes does with a cache's folder: python -m tests.runtime.cache_worker ROLE SECONDS.

store    stores and looks up entries by turns; what it finds must be what was stored
damage   cuts entries short, changes their bytes, empties them
clear    removes all entries, again and again
compile  compiles and runs programs
die      ends while it stores, by SIGKILL

Prints how often it did so. Any exception, and a wrong payload, ends it with a status.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable

import numpy as np

import hlokit as hk
from hlokit.cpu.jit.cache import Cache, Key

KEYS = 20


def key(number: int) -> Key:
    return Key.of(f"program {number % 4}", text="t" * 300, number=number)


def payload(number: int) -> bytes:
    return random.Random(number).randbytes(1000 * (number + 1))


def store(turn: int) -> None:
    number = turn % KEYS
    cache = Cache()
    if turn % 3 == 0:
        cache.store(key(number), payload(number), 0.1)
    found = cache.lookup(key(number))
    assert found is None or found == payload(number)
    if turn % 10 == 0:
        cache.explain(key(number))
        cache.shrink()


def damage(turn: int) -> None:
    for entry in Cache().entries()[:1]:
        try:
            data = entry.path.read_bytes()
            changed = (data[: len(data) // 2], data[:-1] + b"?", b"", data + b"x")[turn % 4]
            temporary = entry.path.with_suffix(".changed")
            temporary.write_bytes(changed)
            temporary.replace(entry.path)
        except FileNotFoundError:
            continue
    time.sleep(0.01)


def clear(turn: int) -> None:
    Cache().clear()
    time.sleep(0.02)


def compile(turn: int) -> None:
    size = turn % 5 + 1
    module = hk.parse(f"HloModule m{size}\nENTRY e {{ x = f32[{size}] parameter(0)\n ROOT y = f32[{size}] negate(x) }}")
    np.testing.assert_array_equal(hk.compile(module)(np.ones(size, np.float32)), -np.ones(size, np.float32))


def die(turn: int) -> None:
    replace = os.replace
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
    Cache().store(key(turn % KEYS), payload(turn % KEYS))
    os.replace = replace


ROLES: dict[str, Callable[[int], None]] = {
    "store": store,
    "damage": damage,
    "clear": clear,
    "compile": compile,
    "die": die,
}


def main(role: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    turn = 0
    while time.monotonic() < end:
        ROLES[role](turn)
        turn += 1
    print(turn)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
