"""Memory that calls leave behind is used again, never while somebody still has it, and not without bound."""

import gc
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from hlokit.runtime import arena
from hlokit.runtime.arena import HUGE_PAGE, LARGE, Arena, Buffer, HugePages, Recycler, capacity, empty

F32 = np.dtype("f4")
BIG = 3 * 2**20


@pytest.fixture
def recycler(monkeypatch: pytest.MonkeyPatch) -> Recycler:
    gc.collect()  # results in cycles that earlier tests left would come back to the new recycler
    fresh = Recycler(64 * 2**20)
    monkeypatch.setattr(arena, "recycler", fresh)
    monkeypatch.setattr(arena._returned, "__defaults__", (arena._loans, fresh.give))
    return fresh


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def result(size: int = BIG) -> np.ndarray:
    return empty((size // 4,), F32, size)


@pytest.mark.parametrize("size", [0, 1, 4096, 4097, LARGE, LARGE + 1, HUGE_PAGE, HUGE_PAGE + 1, 10**7])
def test_buffers_are_aligned_and_zero(size: int) -> None:
    buffer = Buffer(size)
    assert buffer.capacity == capacity(size) >= max(size, 1) and buffer.address % 64 == 0
    assert size <= LARGE or buffer.address % HUGE_PAGE == buffer.capacity % HUGE_PAGE == 0
    content = np.frombuffer(buffer.view, np.uint8)
    assert address(content) == buffer.address and content.nbytes == buffer.capacity and not content.any()
    content = np.ndarray((buffer.capacity,), np.uint8, buffer.view)
    content[:] = 1


def test_results_are_arrays_as_any_other(recycler: Recycler) -> None:
    array = empty((3, 2**18), F32, BIG)
    assert array.shape == (3, 2**18) and array.dtype == F32 and array.flags.c_contiguous and array.flags.writeable
    assert address(array) % HUGE_PAGE == 0
    array[:] = 1
    assert array.sum() == 3 * 2**18
    assert empty((5,), F32, 20).shape == (5,) and empty((), F32, 4).shape == ()


def test_a_result_comes_back_when_it_is_gone(recycler: Recycler) -> None:
    array = result()
    place = address(array)
    del array
    assert recycler.kept == capacity(BIG)
    again = result()
    assert address(again) == place and recycler.kept == 0
    assert address(result()) != place


def test_a_result_stays_while_a_view_of_it_lives(recycler: Recycler) -> None:
    array = result()
    place = address(array)
    views = [array[5:].reshape(-1, 1), memoryview(array), np.frombuffer(array, np.uint8), np.asarray(array).T]
    views += [array.base, np.from_dlpack(array), array.view(np.uint32)[3:], array.view(np.matrix)[1:]]
    del array
    while views:
        assert recycler.kept == 0
        other = result()
        assert address(other) != place
        del other
        recycler.clear()
        views.pop(0)
    assert recycler.kept == capacity(BIG)


def test_a_cycle_of_garbage_brings_it_back(recycler: Recycler) -> None:
    cycle: list[object] = [result()]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert recycler.kept == capacity(BIG)


def test_the_oldest_beyond_the_limit_are_freed(recycler: Recycler) -> None:
    arrays = [result((i + 2) * 2**21) for i in range(10)]  # 130 MB
    arrays.clear()
    assert recycler.kept <= recycler.limit
    sizes = [size for size, free in recycler._free.items() if free]
    assert sum(sizes) == recycler.kept and len(recycler._order) == len(sizes)
    recycler.clear()
    assert recycler.kept == 0


def test_results_of_several_threads(recycler: Recycler) -> None:
    failures: list[str] = []

    def work(number: int) -> None:
        for turn in range(60):
            arrays = [result(BIG), result(2**20)]
            for array in arrays:
                array[:: 2**12] = number
            if any((array[:: 2**12] != number).any() for array in arrays):
                failures.append(f"{number} {turn}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    gc.collect()
    assert recycler.kept == sum(buffer.capacity for buffer in recycler._order)


def test_what_cannot_be_had() -> None:
    with pytest.raises(MemoryError, match="bytes"):
        arena.recycler.take(2**60)


@pytest.mark.skipif(not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="needs a kernel with huge pages")
def test_small_pages_are_taken_once_a_huge_one_was_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = HugePages()
    monkeypatch.setattr(arena, "huge_pages", pages)
    monkeypatch.setattr(arena, "SLOW_NS", 10**12)
    kept = [Buffer(BIG)]
    assert "hg" in flags(kept[0].address) and not pages.slow
    monkeypatch.setattr(arena, "SLOW_NS", 0)
    kept.append(Buffer(BIG))
    assert "nh" in flags(kept[1].address) and pages.slow
    monkeypatch.setattr(arena, "SLOW_NS", 10**12)
    kept.append(Buffer(BIG))
    assert "nh" in flags(kept[2].address)
    assert not any(any(buffer.view) for buffer in kept)


def flags(address: int) -> list[str]:
    """What the kernel knows of the mapping at the address, as `hg`: huge pages are asked for."""
    inside = False
    for line in Path("/proc/self/smaps").read_text("utf-8", "surrogateescape").splitlines():
        if found := re.match("([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(found[1], 16) <= address < int(found[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return line.split()[1:]
    raise LookupError(address)


def test_an_arena_serves_calls_one_after_another_and_at_once(recycler: Recycler) -> None:
    temporaries = Arena(BIG)
    with temporaries.buffer() as first, temporaries.buffer() as second:
        assert first.address != second.address and min(first.capacity, second.capacity) >= BIG
    with temporaries.buffer() as third:
        assert third.address in (first.address, second.address)
    del temporaries
    assert recycler.kept == 2 * capacity(BIG)


def test_a_program_ends_quietly_with_results_alive() -> None:
    script = """
import numpy as np
from hlokit.runtime.arena import Arena, empty
kept = [empty((2**20,), np.dtype("f4"), 2**22) for _ in range(3)]
kept.append(kept)
temporaries = Arena(2**22)
temporaries.give(temporaries.take())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
