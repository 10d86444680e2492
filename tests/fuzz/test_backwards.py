"""Chunks that go backwards (backwards.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = """
import ctypes
from tests.fuzz.backwards import go_backwards
go_backwards()
from hlokit.cpu import costs
from hlokit.cpu.jit.pool import pool
seen = []
chunk = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(lambda table, begin, end: seen.append((begin, end)))
parallel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
workers = pool(2)
parallel(workers.parallel)(workers.address, ctypes.cast(chunk, ctypes.c_void_p).value, None, 3)
print(seen, costs.SHARED_NS)
"""


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_last_chunk_goes_first() -> None:
    assert run("-c", SCRIPT) == "[(2, 3), (1, 2), (0, 1)] 0.0\n"


def test_no_program_depends_on_the_order_of_chunks() -> None:
    assert "0 findings" in run("-m", "tests.fuzz.run", "--compiled", "--backwards", "--count", "40", "--seed", "7")
