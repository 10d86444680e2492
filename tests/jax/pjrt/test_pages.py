"""The memory behind large buffers: used again whole or in part."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import ctypes
from pathlib import Path
from hlokit.interop.pjrt.buffers import STORAGE
from hlokit.interop.pjrt.memory import read_word
from hlokit.interop.pjrt.native import native

def taken(size, value):
    storage = native().allocate(size)
    address = read_word(storage + STORAGE.offset("data"))
    ctypes.memset(address, value, size)
    return storage, address

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

M = 1 << 20
"""


def run(script: str) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT + script], check=True)


def test_memory_that_came_back_serves_smaller_buffers() -> None:
    run("""
storage, whole = taken(64 * M, 1)
assert whole % (2 * M) == 0
native().release(storage)
before = resident()
parts = [taken(size, number + 2) for number, size in enumerate([7 * M + 4096, 20 * M, 30 * M])]
assert parts[0][1] == whole
assert parts[1][1] == whole + 8 * M and parts[2][1] == whole + 28 * M
assert resident() < before + 2 * M
for number, ((_, address), size) in enumerate(zip(parts, [7 * M + 4096, 20 * M, 30 * M])):
    assert ctypes.string_at(address, size) == bytes([number + 2]) * size
last = taken(5 * M, 9)  # 6 MB are left
assert last[1] == whole + 58 * M
for storage, _ in [*parts, last]:
    native().release(storage)
assert [taken(size, 1)[1] for size in [20 * M, 30 * M, 5 * M, 7 * M + 4096]] == [
    parts[1][1], parts[2][1], last[1], parts[0][1],
]
""")


@pytest.mark.skipif(sys.platform != "linux", reason="memory goes back to the system there")
def test_what_is_left_of_memory_too_small_to_wait_goes_back() -> None:
    run("""
storage, whole = taken(10 * M, 1)
native().release(storage)
before = resident()
storage, address = taken(9 * M + 4096, 2)
assert address == whole
assert resident() < before - M // 2
native().release(storage)
assert taken(9 * M + 4096, 3)[1] == whole
""")


@pytest.mark.skipif(
    not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="needs a kernel with huge pages"
)
@pytest.mark.parametrize(("limit", "expected"), [(10**12, "['hg', 'hg']"), (0, "['nh', 'nh']")])
def test_small_pages_are_taken_once_a_huge_one_was_slow(limit: int, expected: str) -> None:
    run(f"""
from hlokit.interop.pjrt import pages
from tests.runtime.test_arena import flags
pages.SLOW_NS = {limit}
kept = [taken(8 * M, 1) for _ in range(2)]
assert [flag for _, address in kept for flag in flags(address) if flag in ("hg", "nh")] == {expected}
""")


def test_small_and_large_memory_beyond_the_slots() -> None:
    run("""
from hlokit.interop.pjrt.pages import SLOTS
for size in (100_000, 3 * M + 5):
    made = [taken(size + 4096 * number, number % 251) for number in range(2 * SLOTS)]
    for number, (_, address) in enumerate(made):
        assert ctypes.string_at(address, 64) == bytes([number % 251]) * 64
    for storage, _ in made:
        native().release(storage)
again = [taken(3 * M + 5 + 4096 * number, 1) for number in range(2 * SLOTS)]
assert len({address for _, address in again}) == 2 * SLOTS
""")
