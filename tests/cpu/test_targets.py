"""The same programs for other machines: run where this one can, else assembled."""

from __future__ import annotations

import platform

import pytest

import hlokit as hk
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.jit import compile_object
from hlokit.cpu.target import baseline
from tests.golden.compare import compare_outputs
from tests.golden.player import flatten
from tests.golden.programs import BUNDLED, read_program

PROGRAMS = ("layernorm_grad", "sort_argsort", "cumulative_sums", "bf16_matmul_chain", "conv3d", "complex_arithmetic")

is_x86 = platform.machine() in ("x86_64", "AMD64")


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["x86-64", "x86-64-avx2"])
@pytest.mark.skipif(not is_x86, reason="needs an x86-64 processor")
def test_older_processors(target: str, name: str) -> None:
    program = read_program(BUNDLED, name)
    result = hk.compile(hk.parse(program.hlo), target=baseline(target))(*program.inputs)
    assert compare_outputs(flatten(result), program.outputs, program.tolerance) is None


@pytest.mark.parametrize("name", PROGRAMS)
def test_aarch64_is_assembled(name: str) -> None:
    target = baseline("aarch64")
    code = compile_object(compile_program(hk.parse(read_program(BUNDLED, name).hlo), target).text, target)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64
