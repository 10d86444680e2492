"""What compiling long programs takes, counted in calls and kernels: it grows as the program does."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.compiler import Program, compile_program
from hlokit.cpu.llvm import COLD
from hlokit.cpu.lower.fusion import Fusion, SharedKernels
from hlokit.cpu.lower.steps import KernelStep
from hlokit.cpu.target import BASELINES, Target, baseline, host
from hlokit.hlo.module import HloModule
from tests.counting import function_calls


def compiled(module: HloModule) -> Program:
    return compile_program(module, host())


def stencil(steps: int) -> HloModule:
    """Steps of a three-point stencil, written out by pads and slices."""
    b = hk.Builder("stencil")
    x, zero = b.parameter(0, hk.f32[256]), b.constant(0.0, hk.f32)
    for _ in range(steps):
        padded = hk.pad(x, zero, [(1, 1, 0)])
        left, right = hk.slice(padded, [0], [256], [1]), hk.slice(padded, [2], [258], [1])
        x = 0.5 * x + 0.25 * (left + right)
    return b.build(x)


def chain(length: int) -> HloModule:
    b = hk.Builder("chain")
    x, y = b.parameter(0, hk.f32[4096]), b.parameter(1, hk.f32[4096])
    for _ in range(length):
        x = hk.max(x * y, y)
    return b.build(x)


def rows(steps: int) -> HloModule:
    """Folds each of which needs the one before, and all that lies between."""
    b = hk.Builder("rows")
    x, zero = b.parameter(0, hk.f32[64, 256]), b.constant(0.0, hk.f32)
    for _ in range(steps):
        x = x + hk.tanh(x - hk.broadcast_in_dim(hk.reduce(x, zero, hk.add, [1]), [64, 256], [0]))
    return b.build(x)


def products(count: int) -> HloModule:
    b = hk.Builder("products")
    x, w = b.parameter(0, hk.f32[64, 64]), b.parameter(1, hk.f32[64, 64])
    for _ in range(count):
        x = hk.dot(hk.transpose(x, [1, 0]), w)
    return b.build(x)


def results(count: int) -> HloModule:
    """A tuple of many values that have nothing to do with each other, taken apart and put together again."""
    b = hk.Builder("results")
    x = b.parameter(0, hk.f32[64])
    whole = hk.tuple_(b, [hk.optimization_barrier(x * (k + 0.5)) for k in range(count)])
    return b.build(hk.tuple_(b, [hk.get_tuple_element(whole, k) for k in range(count)]))


def mixed(x: hk.XlaOp, y: hk.XlaOp, rounds: int) -> tuple[hk.XlaOp, hk.XlaOp]:
    """Two values that need each other in each round, as in counter-based random numbers."""
    for k in range(rounds):
        x = x + y
        y = ((y << (k % 13 + 1)) | (y >> (31 - k % 13))) ^ x
    return x, y


def growth(make: Callable[[int], HloModule], small: int) -> float:
    """Calls for four times the program, over calls for the program."""
    first, second = (make(n) for n in (small, 4 * small))
    compiled(make(2))
    return function_calls(lambda: compiled(second)) / function_calls(lambda: compiled(first))


def test_chain_is_linear() -> None:
    assert growth(chain, 100) < 5


def test_stencil_is_linear() -> None:
    assert growth(stencil, 10) < 6


def test_rows_are_linear() -> None:
    assert growth(rows, 12) < 5.5


def test_many_results_are_linear() -> None:
    assert growth(results, 120) < 4.2


def test_rows_of_folds_go_into_several_kernels() -> None:
    steps = [step for step in compiled(rows(24)).block.steps if isinstance(step, KernelStep)]
    assert 3 <= len(steps) <= 12


def test_equal_products_are_written_once() -> None:
    one, many = compiled(products(1)), compiled(products(40))
    assert many.text.count("@tile_") < 3 * one.text.count("@tile_")
    assert len(many.written.module.functions) <= 2 * len(one.written.module.functions)


def test_different_products_share_their_tiles() -> None:
    b = hk.Builder("two")
    x, y = b.parameter(0, hk.f32[64, 64]), b.parameter(1, hk.f32[64, 128])
    text = compiled(b.build(hk.dot(hk.dot(x, x), y))).text
    tiles = [line.split("(")[0] for line in text.splitlines() if line.startswith("define") and "@tile_" in line]
    assert len({name.partition(".r")[0] for name in tiles}) == len(tiles)


def test_long_chains_are_cut_where_little_is_alive() -> None:
    b = hk.Builder("keys")
    keys = b.parameter(0, hk.u32[2])
    first, second = mixed(keys, keys ^ 7, 24)
    scalars = [hk.reshape(hk.slice(v, [k], [k + 1], [1]), []) for v in (first, second) for k in (0, 1)]
    large = [hk.broadcast(v, [5000]) + b.iota(hk.u32[5000], 0) for v in scalars]
    module = b.build(hk.xor(*mixed(large[0] ^ large[2], large[1] ^ large[3], 24)))
    program = compiled(module)
    stored = [buffer.size for step in program.block.steps for buffer in step.writes]
    assert sum(size == 5000 for size in stored) == 1, stored
    given = np.array([3, 2**31 + 5], np.uint32)
    np.testing.assert_array_equal(hk.compile(module)(given), hk.evaluate(module, given))


def second_order(length: int) -> HloModule:
    """x(k + 1) = f(x(k), x(k - 1)): two values live across each cut."""
    b = hk.Builder("second_order")
    before, x = b.parameter(0, hk.f32[4096]), b.parameter(1, hk.f32[4096])
    for _ in range(length):
        before, x = x, hk.max(x * 0.5 + before * 0.25, before - x)
    return b.build(hk.tuple_(b, [x, before]))


def test_values_that_live_side_by_side_are_made_by_one_kernel() -> None:
    module = second_order(100)
    program = compiled(module)
    assert len(program.block.steps) <= 10, [step.instructions[0].name for step in program.block.steps]
    given = [np.linspace(-1, 1, 4096, dtype=np.float32), np.linspace(2, -3, 4096, dtype=np.float32)]
    for found, expected in zip(hk.compile(module)(*given), hk.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("is_seen_late", [False, True])
def test_values_that_need_each_other_through_a_product_are_made_apart(
    is_seen_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    parted: list[int] = []
    part = SharedKernels.part
    monkeypatch.setattr(SharedKernels, "part", lambda self, members: (parted.append(len(members)), part(self, members)))
    if is_seen_late:  # as where what is between them is stored after they were put together
        monkeypatch.setattr(Fusion, "_reach", SimpleNamespace(between=lambda *_: False))
    b = hk.Builder("apart")
    x, w = b.parameter(0, hk.f32[64, 64]), b.parameter(1, hk.f32[64, 64])
    shared = x
    for _ in range(6):
        shared = 0.5 * hk.tanh(shared) + 0.3 * hk.exp(-shared * shared)
    first = hk.sin(shared)
    product = hk.dot(first, w)
    module = b.build(hk.tuple_(b, [first, hk.cos(shared) + product]))
    given = [np.linspace(-1, 1, 4096, dtype=np.float32).reshape(64, 64), np.eye(64, dtype=np.float32)[::-1].copy()]
    for found, expected in zip(hk.compile(module)(*given), hk.evaluate(module, *given), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert bool(parted) == is_seen_late


KINDS = {
    "dot": "dot(f32[300,700] x, f32[700,90] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "row": "dot(f32[1,9000] x, f32[90,9000] y), lhs_contracting_dims={1}, rhs_contracting_dims={1}",
    "bytes": "dot(s8[300,700] x, s8[700,90] y), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "convolution(f32[2,40,40,64] x, f32[3,3,64,80] y), window={size=3x3 pad=1_1x1_1},"
    " dim_labels=b01f_01io->b01f",
    "sort": "sort(f32[300000] x), dimensions={0}, to_apply=less",
    "cholesky": "cholesky(f32[200,200] x), lower=true",
}
RESULTS = {"dot": "f32[300,90]", "row": "f32[1,90]", "bytes": "s32[300,90]", "convolution": "f32[2,40,40,80]"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [host(), *map(baseline, BASELINES)], ids=["host", *BASELINES])
def test_cold_functions_compute_nothing(kind: str, target: Target) -> None:
    """They are made at level 0: sums in them would be slow."""
    operands = dict(re.findall(r"(\w+\[[\d,]+\]) ([xy])", KINDS[kind]))
    parameters = "\n".join(f"  {name} = {shape} parameter({k})" for k, (shape, name) in enumerate(operands.items()))
    result, op = RESULTS.get(kind, next(iter(operands))), re.sub(r"\w+\[[\d,]+\] ([xy])", r"\1", KINDS[kind])
    less = (
        "less {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = pred[] compare(a, b), direction=LT\n}\n"
    )
    text = f"HloModule m\n{less}ENTRY e {{\n{parameters}\n  ROOT r = {result} {op}\n}}\n"
    written = compile_program(hk.parse(text), target).text
    functions = re.findall(r"^define .*?^}", written, re.MULTILINE | re.DOTALL)
    cold = [f for f in functions if COLD in f.partition("\n")[0]]
    assert cold and not any(re.search(r" (fmul|fadd|fsub) |@llvm\.(fma|masked)|\.tdp|vpdp", f) for f in cold)


@pytest.mark.parametrize(("length", "is_loop"), [(2, False), (20, True)])
def test_short_folds_of_long_chains_are_loops(length: int, is_loop: bool) -> None:
    """Written out, each of 16 steps would have the whole chain again."""
    b = hk.Builder("normalised")
    x = b.parameter(0, hk.f32[16, 64])
    y = x
    for _ in range(length):
        y = hk.max(y * 0.5 + 0.25, x)
    module = b.build(hk.reduce(y, b.constant(0.0), hk.add, [0]))
    given = np.linspace(-2, 2, 1024, dtype=np.float32).reshape(16, 64)
    expected = hk.evaluate(module, given)
    executable = hk.compile(module)
    np.testing.assert_allclose(executable(given), expected, rtol=1e-5)
    np.testing.assert_array_equal(hk.compile(module, strict=True)(given), expected)
    assert ("fold add over" in executable.as_text("loops")) is is_loop
    assert executable.program.text.count("fmul") + executable.program.text.count("fmuladd") <= 50


def test_packing_padded_bits_is_a_loop_along_the_words() -> None:
    """Written out, each of 32 steps would gather a byte of each of 16 rows."""
    b = hk.Builder("packed")
    bits = b.parameter(0, hk.pred[93, 93])
    padded = hk.pad(bits, b.constant(False), [(0, 0, 0), (0, 3, 0)])
    words = hk.convert_element_type(hk.reshape(padded, [93, 3, 32]), hk.u32)
    shifted = hk.shift_left(words, b.iota(hk.u32[93, 3, 32], 2))
    module = b.build(hk.reduce(shifted, b.constant(0, hk.u32), hk.add, [2]))
    compiled = hk.compile(module)
    assert "fold add over" in compiled.as_text("loops")
    given = np.random.default_rng(0).random((93, 93)) < 0.5
    np.testing.assert_array_equal(compiled(given), hk.evaluate(module, given))
