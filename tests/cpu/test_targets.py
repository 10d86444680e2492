"""The same programs for other machines: run where this one can, else assembled."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

import hlokit as hk
from hlokit.cpu import target as targets
from hlokit.cpu.compiler import compile_program
from hlokit.cpu.jit.objects import assembly, compile_object
from hlokit.cpu.target import baseline, parse
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
    code = compile_object(compile_program(hk.parse(read_program(BUNDLED, name).hlo), target).written.module, target)
    assert code[:4] == b"\x7fELF"
    assert int.from_bytes(code[18:20], "little") == 183  # EM_AARCH64


_FOLD = "r { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT c = TYPE[] OP(a, b) }\n"
_HOT = {
    **{
        f"multiply-add {type}": f"x = {type}[4096] parameter(0) y = {type}[4096] parameter(1) "
        f"m = {type}[4096] multiply(x, y) ROOT r = {type}[4096] add(m, x)"
        for type in ("f32", "bf16", "f16", "f64", "s8")
    },
    "exponential": "x = f32[4096] parameter(0) ROOT r = f32[4096] exponential(x)",
    "tanh": "x = f32[4096] parameter(0) ROOT r = f32[4096] tanh(x)",
    "compare and select": "x = f32[4096] parameter(0) y = f32[4096] parameter(1) "
    "c = pred[4096] compare(x, y), direction=LT ROOT r = f32[4096] select(c, x, y)",
    "sum of rows": "x = f32[64,512] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[64] reduce(x, z), dimensions={1}, to_apply=r",
    "sum of columns": "x = f32[64,512] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[512] reduce(x, z), dimensions={0}, to_apply=r",
    "cumulative sum": "x = f32[16,1024] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[16,1024] reduce-window(x, z), window={size=1x1024 pad=0_0x1023_0}, to_apply=r",
    "pooling": "x = f32[32,32,64] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[16,16,64] reduce-window(x, z), window={size=2x2x1 stride=2x2x1}, to_apply=r",
    "dilated window": "x = f32[4,7,3] parameter(0) z = f32[] constant(0) "
    "ROOT r = f32[5,12,6] reduce-window(x, z), window={size=3x2x2 pad=1_2x0_0x0_0 lhs_dilate=1x2x3}, to_apply=r",
    "transpose": "x = f32[256,256] parameter(0) ROOT r = f32[256,256] transpose(x), dimensions={1,0}",
    "gather of rows": "x = f32[1000,64] parameter(0) i = s32[128] parameter(1) "
    "ROOT r = f32[128,64] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
    "index_vector_dim=1, slice_sizes={1,64}",
    "dot": "x = f32[64,64] parameter(0) y = f32[64,64] parameter(1) "
    "ROOT r = f32[64,64] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
}


@pytest.mark.parametrize("name", _HOT)
def test_neon_code_is_vectors_without_a_branch_a_lane(name: str) -> None:
    """LLVM writes a masked load, store or gather that the machine has not as a test and a branch for each lane."""
    fold = _FOLD.replace("TYPE", "f32").replace("OP", "add") if "to_apply" in _HOT[name] else ""
    module = hk.parse(f"HloModule m\n{fold}ENTRY e {{ {_HOT[name]} }}\n")
    target = baseline("aarch64")
    text = compile_program(module, target).text
    assert "llvm.x86" not in text
    code = [line.split() for line in assembly(text, target).splitlines() if re.match(r"\t[a-z]", line)]
    operations = [words[0] for words in code]
    lane_tests = sum(operation in ("tbz", "tbnz") for operation in operations)
    assert lane_tests <= (2 if name == "dot" else 0)  # whether a tile adds to what is there
    called = {words[1] for words in code if words[0] == "bl"}
    assert not called & {f"{f}{s}" for f in ("exp", "tanh", "fma", "fmax", "fmin", "floor") for s in ("", "f")}
    assert sum(bool(re.search(r"\bv\d+\.(4s|2d|16b|8h)|\bq\d+", " ".join(words))) for words in code) >= 4


@pytest.mark.parametrize(("one", "other"), [("aarch64", "arm64"), ("x86_64", "amd64")])
def test_an_architecture_has_two_names(one: str, other: str) -> None:
    features = {"aarch64": "+fp-armv8,+neon", "x86_64": "+cx16,+avx512f,+avx512vl"}[one]
    cpu = "generic" if one == "aarch64" else "x86-64"
    for name in ("dot", "exponential", "compare and select"):
        module = hk.parse(f"HloModule m\nENTRY e {{ {_HOT[name]} }}\n")
        texts = {compile_program(module, parse(f"{a}-unknown-linux-gnu/{cpu},{features}")).text for a in (one, other)}
        assert len(texts) == 1


@pytest.mark.parametrize("cpu", ["x86-64-v4", "icelake-server", "sapphirerapids", "znver5"])
@pytest.mark.parametrize("features", [1, 2, 3, 4])
def test_sums_of_a_convolution_stay_in_registers(features: int, cpu: str) -> None:
    """LLVM kept all 28 sums of a tile in memory, for some CPUs, where three steps were in a row: half of the speed."""
    target = replace(baseline("x86-64-avx512"), cpu=cpu)
    module = hk.parse(
        f"HloModule m\nENTRY e {{ x = f32[8,112,112,{features}] parameter(0) w = f32[3,3,{features},64] parameter(1) "
        "ROOT r = f32[8,112,112,64] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f }\n"
    )
    functions = assembly(compile_program(module, target).text, target).split("\n\t.size\t")
    tiles = [text for text in functions if text.count("\tvfmadd") >= 28]
    assert tiles
    for tile in tiles:
        assert len(re.findall(r"\tvmov\w+\t%zmm\d+, -?\d*\(%rsp\)", tile)) <= 4


def test_a_cpu_with_amx_by_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A virtual machine may give its CPU the number of a model without AMX."""
    monkeypatch.setattr(targets, "_may_use_matrix_registers", lambda: True)
    for cpu, features, expected in (
        ("rocketlake", "avx512f amx-tile", "sapphirerapids"),
        ("rocketlake", "avx512f", "rocketlake"),
        ("graniterapids", "avx512f amx-tile", "graniterapids"),
    ):
        library = SimpleNamespace(
            get_process_triple=lambda: "x86_64-unknown-linux-gnu",
            get_host_cpu_name=partial(str, cpu),
            get_host_cpu_features=partial(dict.fromkeys, features.split(), True),
        )
        monkeypatch.setattr(targets, "llvm_library", lambda library=library: library)
        assert targets.this_machine.__wrapped__().cpu == expected
