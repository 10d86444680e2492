"""Products in parts: f32 and f16 as sums of bf16 in matrix registers, against f64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.lower.steps import PackStep
from hlokit.cpu.target import host, parse

Array = np.ndarray[Any, Any]
PLAIN = host().without("amx-tile", "amx-bf16", "amx-int8")
needs_registers = pytest.mark.skipif(not host().has("amx-bf16"), reason="a CPU with AMX")
SIZES = [(160, 100, 176), (129, 1100, 257)]
CHOICE = {name: getattr(costs, name) for name in ("AMX_GAIN", "AMX_LEAST_NS")}
TURNS = [(False, False), (True, False), (False, True), (True, True)]
LEAST = 2.0**-126
MATRICES = "x86-64-avx512,+amx-tile,+amx-int8,+amx-bf16"


@pytest.fixture(autouse=True)
def _small_products_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which this way is not worth it go it all the same."""
    monkeypatch.setattr(costs, "AMX_GAIN", 0.0)
    monkeypatch.setattr(costs, "AMX_LEAST_NS", 0)


def product(
    m: int, k: int, n: int, type: hk.DType = hk.f32, *, turned: tuple[bool, bool] = (False, False), batch: int = 0
) -> hk.HloModule:
    b = hk.Builder("product_in_parts")  # the cache goes by the text
    more = (batch,) if batch else ()
    x = b.parameter(0, type[(*more, *((k, m) if turned[0] else (m, k)))])
    y = b.parameter(1, type[(*more, *((n, k) if turned[1] else (k, n)))])
    skipped = list(range(len(more)))
    inner = [len(more) + (0 if turned[0] else 1)], [len(more) + (1 if turned[1] else 0)]
    numbers = hk.DotDimensionNumbers(*inner, skipped, skipped)
    return b.build(hk.dot_general(x, y, numbers, preferred_element_type=hk.f32))


def numbers(module: hk.HloModule, seed: int = 0) -> list[Array]:
    random = np.random.default_rng(seed)
    return [random.standard_normal(p.shape.dimensions).astype(p.shape.dtype.numpy) for p in module.entry.parameters]


def compiled(module: hk.HloModule) -> Any:
    executable = hk.compile(module)
    assert "tdpbf16ps" in executable.as_text("asm")
    return executable


def check(got: Array, x: Array, y: Array) -> None:
    """Sums of k products to some units of rounding of what is summed; what is below the least number may be 0."""
    with np.errstate(all="ignore"):
        wide = [np.where(np.abs(a) < LEAST, 0, a).astype(np.float64) for a in (x, y)]
        want, size = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    # near the end of the range sums may overflow or not, as they are grouped
    sure = ~np.isfinite(size) | (size < 2.0**127)
    np.testing.assert_array_equal(np.isnan(got)[sure], np.isnan(want)[sure])
    infinite = sure & np.isinf(want)
    np.testing.assert_array_equal(got[infinite], want[infinite])
    plain = sure & np.isfinite(size)
    bound = size * 2.0**-21 + x.shape[-1] * LEAST
    assert (np.abs(got[plain] - want[plain]) <= bound[plain]).all()


@needs_registers
@pytest.mark.parametrize("turned", TURNS)
@pytest.mark.parametrize("type", [hk.f32, hk.f16, hk.bf16], ids=str)
def test_sizes_and_orders(type: hk.DType, turned: tuple[bool, bool]) -> None:
    for m, k, n in SIZES:
        module = product(m, k, n, type, turned=turned)
        x, y = numbers(module)
        check(compiled(module)(x, y), x.T if turned[0] else x, y.T if turned[1] else y)


def test_products_of_all_sizes_share_their_functions() -> None:
    sizes = [((160, 96, 192), (False, False)), ((320, 512, 64), (False, False)), ((64, 1024, 96), (False, True))]
    programs = [hk.compile(product(*s, turned=t), target=MATRICES).program for s, t in sizes]
    shared = [jit.split(program.written.module, 1)[0] for program in programs]
    assert len(shared[0]) == 2 and shared[0] == shared[1]
    assert "@parts_panel_f32." in shared[0][0] and "@parts_slow_tile_f32." in shared[0][1]
    assert set(shared[0]) < set(shared[2]) and len(shared[2]) == 4, "one side goes across"


@needs_registers
def test_threads_do_not_matter() -> None:
    module = product(500, 600, 500)
    x, y = numbers(module)
    assert compiled(module)(x, y).tobytes() == hk.compile(module, threads=1)(x, y).tobytes()


@needs_registers
@pytest.mark.parametrize("draw", ["normal", "uniform", "spread"])
def test_errors_are_no_larger_than_without_registers(draw: str) -> None:
    random = np.random.default_rng(3)
    for m, k, n in [(128, 256, 128), (128, 2000, 128)]:
        module = product(m, k, n)
        x, y = numbers(module, 4)
        if draw == "uniform":
            x, y = np.abs(x), np.abs(y)
        if draw == "spread":
            x, y = (a * np.exp(random.uniform(-10, 10, a.shape)).astype(np.float32) for a in (x, y))
        want = x.astype(np.float64) @ y.astype(np.float64)
        size = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
        errors = [np.abs(e(x, y) - want) / size for e in (compiled(module), hk.compile(module, target=PLAIN))]
        assert errors[0].max() <= 1.2 * errors[1].max()
        assert errors[0].mean() <= errors[1].mean()


def bits(pattern: int) -> np.float32:
    return np.uint32(pattern).view(np.float32)


SPECIAL = [np.inf, -np.inf, np.nan, bits(0x7FFFFFFF), bits(0xFFFFFFFF), bits(0x7F800001), 3.4028235e38, -3.39e38, 2e38]
SMALL = [1e-30, 1e-36, 2e-38, 1e-39, 1e-45, 2.0**-102, 2.0**-103, -0.0]


@needs_registers
@pytest.mark.parametrize("turned", [(False, False), (True, True)])
def test_special_values(turned: tuple[bool, bool]) -> None:
    """One element of a panel, of either side or of both, and zeros beside it."""
    module = product(130, 140, 137, turned=turned)
    executable = compiled(module)

    def run(x: Array, y: Array) -> None:
        check(executable(*(np.ascontiguousarray(a.T) if t else a for a, t in zip((x, y), turned, strict=True))), x, y)

    random = np.random.default_rng(0)
    for value in [*SPECIAL, *SMALL]:
        for left, right in ((True, False), (False, True), (True, True)):
            x, y = (random.standard_normal(s).astype(np.float32) for s in ((130, 140), (140, 137)))
            if left:
                x[129, 139], x[3, 70] = value, value
                y[70, 5] = 0
            if right:
                y[139, 136], y[70, 2] = value, value
                x[40, 70] = 0
            run(x, y)


@needs_registers
def test_ranges() -> None:
    """All sizes of both sides: what has parts too small or too large for the registers is made without them."""
    module = product(130, 140, 137)
    executable = compiled(module)
    scales = [1e-37, 1e-30, 1e-16, 1, 1e15, 1e30, 1e37]
    for i, left in enumerate(scales):
        for j, right in enumerate(scales):
            x, y = numbers(module, 7 * i + j)
            with np.errstate(over="ignore"):
                x, y = x * np.float32(left), y * np.float32(right)
            check(executable(x, y), x, y)


@needs_registers
def test_rows_of_tiny_numbers_are_moved_exactly() -> None:
    """A product with a permutation: parts of these would be lost in the registers."""
    module = product(128, 128, 128)
    y = (np.random.default_rng(1).uniform(1, 2, (128, 128)) * 1e-36).astype(np.float32)
    order = np.random.default_rng(2).permutation(128)
    np.testing.assert_array_equal(compiled(module)(np.eye(128, dtype=np.float32)[order], y), y[order])


@needs_registers
def test_a_permutation_of_plain_numbers_is_exact() -> None:
    module = product(128, 128, 128)
    _, y = numbers(module)
    order = np.random.default_rng(2).permutation(128)
    np.testing.assert_array_equal(compiled(module)(np.eye(128, dtype=np.float32)[order], y), y[order])


@needs_registers
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 65504, 6e-8])
def test_special_values_of_f16(value: float) -> None:
    module = product(130, 140, 137, hk.f16)
    x, y = numbers(module)
    x[129, 139], y[3, 5], x[7, 3] = value, value, 0
    check(compiled(module)(x, y), x, y)


@needs_registers
def test_batches() -> None:
    module = product(150, 130, 140, turned=(False, True), batch=3)
    x, y = numbers(module)
    y[1, 3, 4] = np.inf
    got = compiled(module)(x, y)
    for i in range(3):
        check(got[i], x[i], y[i].T)


@needs_registers
def test_axes_of_several_dimensions() -> None:
    """Heads between rows and columns: lhs's inner axis is two dimensions, rhs's as well, in another order."""
    b = hk.Builder("heads_in_parts")
    x, w = b.parameter(0, hk.f32[4, 3, 48, 64]), b.parameter(1, hk.f32[3, 64, 150])
    module = b.build(hk.dot_general(x, w, hk.DotDimensionNumbers([1, 3], [0, 1])))
    x, y = numbers(module)
    check(compiled(module)(x, y).reshape(192, 150), x.transpose(0, 2, 1, 3).reshape(192, 192), y.reshape(192, 150))


@needs_registers
@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("kamc", "kn"),  # rows of two dimensions that are not one: vectors along rows, some cut off
        ("amk", "kbnc"),  # the same for columns
        ("amkj", "kanj"),  # the inner axis of two, along memory on one side alone
        ("jamk", "kjn"),
    ],
)
@pytest.mark.parametrize("type", [hk.f32, hk.bf16], ids=str)
def test_axes_of_several_strides(type: hk.DType, left: str, right: str) -> None:
    sizes = {"a": 3, "b": 2, "c": 48, "j": 32, "k": 64, "m": 40, "n": 80}
    both = [letter for letter in left if letter in right and letter != "a"]
    batch = ["a"] if "a" in right else []
    b = hk.Builder("axes_of_several_strides")
    x, y = (b.parameter(i, type[tuple(sizes[c] for c in side)]) for i, side in enumerate((left, right)))
    places = [[side.index(c) for c in letters] for letters in (both, batch) for side in (left, right)]
    module = b.build(hk.dot_general(x, y, hk.DotDimensionNumbers(*places), preferred_element_type=hk.f32))
    values = numbers(module)
    free = [c for side in (left, right) for c in side if c not in both and c not in batch]
    want = np.einsum(f"{left},{right}->{''.join(batch + free)}", *(v.astype(np.float64) for v in values))
    np.testing.assert_allclose(compiled(module)(*values), want, rtol=0, atol=1e-3)


@needs_registers
@pytest.mark.parametrize("k", [130, 1100])
def test_with_an_epilogue(k: int) -> None:
    b = hk.Builder("epilogue_in_parts")
    x, y = b.parameter(0, hk.f32[150, k]), b.parameter(1, hk.f32[k, 140])
    bias = b.parameter(2, hk.f32[140])
    total = hk.add(hk.dot(x, y), hk.broadcast_in_dim(bias, [150, 140], [1]))
    module = b.build(hk.max(total, b.constant(0.0, hk.f32)))
    args = numbers(module)
    args[0][5, 6] = 1e-36
    got = compiled(module)(*args)
    want = np.maximum(args[0].astype(np.float64) @ args[1] + args[2], 0)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.sqrt(k))


LOOP = """HloModule m
cond { s = (s32[], f32[128,256], f32[256,256]) parameter(0) i = s32[] get-tuple-element(s), index=0
 n = s32[] constant(4) ROOT c = pred[] compare(i, n), direction=LT }
body { s = (s32[], f32[128,256], f32[256,256]) parameter(0) i = s32[] get-tuple-element(s), index=0
 h = f32[128,256] get-tuple-element(s), index=1 w = f32[256,256] get-tuple-element(s), index=2 o = s32[] constant(1)
 j = s32[] add(i, o) t = f32[128,256] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT r = (s32[], f32[128,256], f32[256,256]) tuple(j, t, w) }
ENTRY e { x = f32[128,256] parameter(0) w = f32[256,256] parameter(1) z = s32[] constant(0)
 s = (s32[], f32[128,256], f32[256,256]) tuple(z, x, w)
 l = (s32[], f32[128,256], f32[256,256]) while(s), condition=cond, body=body
 ROOT r = f32[128,256] get-tuple-element(l), index=1 }"""


@needs_registers
@pytest.mark.parametrize("tiny", [False, True])
def test_packed_before_a_loop(tiny: bool) -> None:
    module = hk.parse(LOOP)
    executable = compiled(module)
    assert any(isinstance(step, PackStep) for step in executable.program.block.steps)
    x, w = (0.1 * a for a in numbers(module))
    if tiny:
        w[3, 4] = 1e-37
    want = x.astype(np.float64) @ np.linalg.matrix_power(w.astype(np.float64), 4)
    np.testing.assert_allclose(executable(x, w), want, rtol=1e-4, atol=1e-6 * np.abs(want).max())


@needs_registers
def test_bf16_in_a_loop() -> None:
    """What is packed before a loop must be what the product in it reads."""
    module = hk.parse(LOOP.replace("f32", "bf16"))
    x, w = (a * a.dtype.type(0.05) for a in numbers(module))
    want = hk.evaluate(module, x, w).astype(np.float32)
    got = compiled(module)(x, w).astype(np.float32)
    np.testing.assert_allclose(got, want, atol=0.02 * np.abs(want).max(), rtol=0)


def test_targets() -> None:
    """Code for machines with and without the registers is made on any machine; strict code never has them."""
    module = product(128, 128, 128)
    target = parse(MATRICES)
    assert "tdpbf16ps" in hk.compile(module, target=target).as_text("asm")
    assert "tdpbf16ps" not in hk.compile(module, target=target.without("amx-bf16")).as_text("asm")
    if host().has("amx-bf16"):
        assert "tdpbf16ps" not in hk.compile(module, strict=True).as_text("asm")


@pytest.mark.parametrize(
    ("sides", "type", "goes"),
    [
        ((512, 512, 512), hk.f32, True),
        ((384, 1536, 384), hk.f32, True),
        ((192, 192, 192), hk.f32, True),
        ((1024, 1024, 1024), hk.f16, True),
        ((64, 64, 64), hk.f32, False),
        ((8, 4096, 4096), hk.f32, False),
        ((2048, 2048, 17), hk.f32, False),
        ((512, 32, 512), hk.f32, False),
        ((8, 512, 512), hk.f16, False),
    ],
)
def test_large_products_go_this_way(
    sides: tuple[int, int, int], type: hk.DType, goes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in CHOICE.items():
        monkeypatch.setattr(costs, name, value)
    executable = hk.compile(product(*sides, type), target=parse(MATRICES))
    assert ("tdpbf16ps" in executable.as_text("asm")) is goes
