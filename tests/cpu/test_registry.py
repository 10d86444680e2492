"""Routines are found by name, and imported no sooner."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hlokit.cpu.kernels import routine
from hlokit.cpu.kernels.routine import KERNELS


@pytest.mark.parametrize("name", list(routine._MODULES))
def test_modules_hold_the_routines_they_are_named_for(name: str) -> None:
    assert name in KERNELS
    assert callable(KERNELS[name])


def test_other_names_are_not_there() -> None:
    assert "nonsense" not in KERNELS
    assert "custom-call:nonsense" not in KERNELS
    assert "custom-call:lapack_spotrf_ffi" in KERNELS
    with pytest.raises(KeyError):
        KERNELS["nonsense"]


def test_a_program_without_routines_imports_none() -> None:
    code = (
        "import sys, hlokit.runtime.compile; "
        "print([m for m in sys.modules if m.startswith('hlokit.cpu.kernels.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "gemm" not in done.stdout
    assert "convolution" not in done.stdout
