"""The machine's limits, measured and kept in the cache's folder, for comparison in profiles."""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from hlokit.cpu.jit.cache import Cache, Key
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.llvm import I64, POINTER, Function, Module, type_of
from hlokit.cpu.target import Target, available_threads, host
from hlokit.runtime.arena import Buffer
from hlokit.stack import Thread

_CACHED = 1 << 20
"""Bytes that any core's own cache holds, near enough."""
_CHAINS = 12
"""Independent accumulators: enough to hide the latency of two units."""
_TRIES = 9
_BEYOND = 1.05
"""A limit may be exceeded so much, by what the clock's frequency varies."""
_BEYOND_CACHES = 256 << 20
_NEAR, _AGAIN = 64 << 10, 1000
"""Bytes of a copy within a cache, and how often it is done."""


@dataclass(frozen=True)
class Limits:
    """Rates of all threads together.

    flops    f32 operations a second, a multiply-add being two; f64 half of it
    memory   bytes a second, reads and writes that go past the caches together
    cached   bytes a second of a copy within 128 KB a core
    """

    flops: float
    memory: float
    cached: float

    def bandwidth(self, size: int) -> float:
        """Bytes a second for what touches so many bytes."""
        return self.cached if size <= _CACHED else self.memory


@cache
def limits() -> Limits:
    """This machine's: from the cache, else measured, which takes half a second."""
    key = _key()
    found = Cache().lookup(key)
    return Limits(**json.loads(found)) if found is not None else _stored(key, _measured(host()))


def limits_for(flops: float) -> Limits:
    """This machine's, measured once more if so many operations a second are beyond them: they may have been measured
    while others used the cores."""
    found = limits()
    if flops <= _BEYOND * found.flops:
        return found
    limits.cache_clear()
    return _stored(_key(), max(found, _measured(host()), key=lambda measured: measured.flops))


def _key() -> Key:
    return Key.of("limits", target=str(host()), threads=available_threads(), machine=_machine(), format=5)


def _stored(key: Key, found: Limits) -> Limits:
    Cache().store(key, json.dumps(asdict(found)).encode())
    return found


def _machine() -> str:
    """The processor's name: machines of one kind of LLVM's differ in speed."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "")
    except OSError:
        return ""


def _measured(target: Target) -> Limits:
    module = Module()
    lanes = target.vector_bytes // 4
    _arithmetic(module, lanes)
    _copying(module, "past", lanes, nontemporal=True)
    _copying(module, "near", lanes, _AGAIN)
    library = Library([compile_object(module, target)])
    threads = available_threads()
    chains, past, near = (_function(library, name) for name in ("chains", "past", "near"))
    steps = 1_000_000
    scratch = [_aligned(4096) for _ in range(threads)]
    amount = 2.0 * _CHAINS * lanes * steps
    flops = _rate(lambda k: chains(_at(scratch[k]), _at(scratch[k]), steps), threads, amount)
    size = _BEYOND_CACHES // 2 // threads // 4096 * 4096
    pairs = [(Buffer(size), Buffer(size)) for _ in range(threads)]
    line = 8 * target.vector_bytes
    for source, _ in pairs:
        ctypes.memset(source.address, 1, size)  # pages that were never written are all the same one of zeros
    memory = _rate(lambda k: past(pairs[k][1].address, pairs[k][0].address, size // line), threads, 2.0 * size)
    cached = _rate(
        lambda k: near(pairs[k][1].address, pairs[k][0].address, _NEAR // line), threads, 2.0 * _NEAR * _AGAIN
    )
    return Limits(flops, memory, cached)


def _rate(work: Callable[[int], None], threads: int, amount: float) -> float:
    """`amount` a thread, in all threads at once, the best of some tries, a second."""
    return threads * amount / min(_together(work, threads) for _ in range(_TRIES))


def _together(work: Callable[[int], None], threads: int) -> float:
    """Seconds from the first thread's start to the last one's end.

    The threads read the clock: on a busy machine the caller may not run again before they are done.
    """
    start = threading.Barrier(threads)
    begun, ended = [0.0] * threads, [0.0] * threads

    def run(number: int) -> None:
        start.wait()
        begun[number] = time.perf_counter()
        work(number)
        ended[number] = time.perf_counter()

    for worker in [Thread(partial(run, number)) for number in range(threads)]:
        worker.join()
    return max(ended) - min(begun)


def _function(library: Library, name: str) -> Callable[[int, int, int], None]:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    function = kind(library.address(name))
    function.keep = library  # type: ignore[attr-defined]
    return function


def _aligned(size: int) -> np.ndarray[Any, Any]:
    memory = np.zeros(size + 4096, np.uint8)
    start = -memory.__array_interface__["data"][0] % 4096
    return memory[start : start + size]


def _at(array: np.ndarray[Any, Any]) -> int:
    return array.__array_interface__["data"][0]


_PARAMETERS = [("ptr noalias", "to"), ("ptr noalias", "of"), (I64, "count")]
_F32 = type_of("float")


def _arithmetic(module: Module, lanes: int) -> None:
    """Chains of multiply-adds, `count` each."""
    f = Function("chains", [(POINTER, "to"), (POINTER, "of"), (I64, "count")])
    source, result = (f.pointer(name, _F32, 4 * lanes) for name in ("of", "to"))
    x = source.load(lanes, volatile=True)
    starts = [source.load(lanes, volatile=True) for _ in range(_CHAINS)]  # volatile: each its own
    with f.loop(0, f.argument("count"), carries=starts) as loop:
        loop.next = [chain.fma(x, x) for chain in loop.carried]
    for chain in loop.results:
        result.store(chain, volatile=True)
    f.returns()
    module.add(f, exported=True)


def _copying(module: Module, name: str, lanes: int, again: int = 1, *, nontemporal: bool = False) -> None:
    """Copies `count` times eight vectors, all of it `again` times."""
    f = Function(name, _PARAMETERS)
    size = 4 * lanes
    source, result = (f.pointer(name, _F32, size) for name in ("of", "to"))
    with f.loop(0, again), f.loop(0, f.argument("count")) as loop:
        for k in range(8):
            place = loop.index * (8 * size) + k * size
            (result + place).store((source + place).load(lanes), nontemporal=nontemporal)
    f.returns()
    module.add(f, exported=True)
