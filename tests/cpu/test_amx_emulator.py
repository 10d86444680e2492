"""Tests that need AMX, on machines with AVX-512 alone: see amx_emulator."""

import subprocess
import sys
from pathlib import Path

import pytest

from hlokit.cpu.target import host, this_machine

_ROOT = Path(__file__).parents[2]
_NEEDED = "avx512f", "avx512bw", "avx512vl"


def _passed(*arguments: str) -> str:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.cpu.amx_emulator",
        "-p",
        "no:cacheprovider",
        *arguments,
    ]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    return done.stdout


pytestmark = pytest.mark.skipif(
    host() != this_machine().with_threads(host().threads)
    or host().has("amx-tile")
    or not all(host().has(feature) for feature in _NEEDED),
    reason="a machine with AVX-512 and without AMX",
)


def test_products_are_right() -> None:
    names = "integers_are_exact and False and s8-s32 or sizes_and_orders and turned0"
    out = _passed("tests/cpu/test_matrix_registers.py", "tests/cpu/test_parts.py", "-k", names)
    assert "passed" in out and "skipped" not in out, out


@pytest.mark.slow
def test_all_that_need_them() -> None:
    names = "test_matrix_registers.py", "test_parts.py", "test_matrix_convolution.py"
    assert "skipped" not in _passed(*(f"tests/cpu/{name}" for name in names), "-m", "slow or not slow")
