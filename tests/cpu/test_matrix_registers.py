"""Products in matrix registers (AMX)."""

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.target import host, parse

_SIZES = [(8, 64, 8), (32, 128, 32), (33, 129, 35), (100, 300, 70), (17, 2100, 31), (9, 67, 513)]
_TYPES = [(hk.s8, hk.s32), (hk.u8, hk.u32), (hk.u8, hk.s32), (hk.s8, hk.s8), (hk.s4, hk.s32)]
_needs_registers = pytest.mark.skipif(not host().has("amx-int8"), reason="a CPU with AMX")


def _product(type, result, m, k, n, *, turned):
    b = hk.Builder("product")
    x, y = b.parameter(0, type[m, k]), b.parameter(1, type[(n, k) if turned else (k, n)])
    numbers = hk.DotDimensionNumbers([1], [1 if turned else 0])
    return b.build(hk.dot_general(x, y, numbers, preferred_element_type=result))


def _text(module, target):
    return hk.compile(module, target=target).as_text("asm")


@pytest.mark.parametrize(("type", "instruction"), [(hk.s8, "tdpbssd"), (hk.u8, "tdpbuud"), (hk.bf16, "tdpbf16ps")])
def test_target_with_them_has_code_for_them(type, instruction):
    """Made on any machine."""
    module = _product(type, hk.f32 if type is hk.bf16 else hk.s32, 40, 100, 40, turned=False)
    target = parse("x86-64-avx512,+amx-tile,+amx-int8,+amx-bf16")
    assert instruction in _text(module, target)
    assert instruction not in _text(module, target.without("amx-int8", "amx-bf16"))


@_needs_registers
@pytest.mark.parametrize(("type", "result"), _TYPES, ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_integers_are_exact(type, result, turned):
    numbers = np.random.default_rng(0)
    for m, k, n in _SIZES:
        module = _product(type, result, m, k, n, turned=turned)
        args = [
            numbers.integers(0, 256, p.shape.dimensions).astype(np.uint8).view(np.int8).astype(p.shape.dtype.numpy)
            for p in module.entry.parameters
        ]
        executable = hk.compile(module)
        assert "tdpb" in executable.as_text("asm")
        np.testing.assert_array_equal(executable(*args), hk.evaluate(module, *args))
        assert executable(*args).tobytes() == hk.compile(module, threads=1)(*args).tobytes()


@_needs_registers
@pytest.mark.parametrize("k", [1000, 40_000])
def test_bytes_with_a_result_of_f32_do_not_wrap(k):
    """40,000 * 255 * 255 is no i32."""
    module = _product(hk.u8, hk.f32, 8, k, 8, turned=False)
    args = [np.full(p.shape.dimensions, 255, np.uint8) for p in module.entry.parameters]
    executable = hk.compile(module)
    assert ("tdpb" in executable.as_text("asm")) == (k == 1000)
    np.testing.assert_allclose(executable(*args), np.full((8, 8), 65025.0 * k), rtol=1e-5)


@_needs_registers
@pytest.mark.parametrize("turned", [False, True])
def test_bf16_sums_in_f32(turned):
    numbers = np.random.default_rng(1)
    for m, k, n in _SIZES:
        module = _product(hk.bf16, hk.f32, m, k, n, turned=turned)
        args = [numbers.standard_normal(p.shape.dimensions).astype(ml_dtypes.bfloat16) for p in module.entry.parameters]
        executable = hk.compile(module)
        assert "tdpbf16ps" in executable.as_text("asm")
        x, y = (a.astype(np.float64) for a in args)
        exact = x @ (y.T if turned else y)
        # each sum is of k products: the error grows with their absolute values
        bound = (np.abs(x) @ np.abs(y.T if turned else y)) * np.sqrt(k) * 2.0**-23
        assert (np.abs(executable(*args) - exact) <= bound).all()
        assert executable(*args).tobytes() == hk.compile(module, threads=1)(*args).tobytes()


@_needs_registers
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_completes_a_unit_touches_nothing(value):
    """k = 33 leaves one factor: what stands beside it must be 0, not what lies there."""
    module = _product(hk.bf16, hk.f32, 16, 33, 16, turned=False)
    x, y = np.ones((16, 33), ml_dtypes.bfloat16), np.ones((33, 16), ml_dtypes.bfloat16)
    x[5, 32] = value
    got = hk.compile(module)(x, y)
    np.testing.assert_array_equal(got, hk.evaluate(module, x, y))
    assert np.isfinite(np.delete(got, 5, axis=0)).all()


@_needs_registers
def test_batched_products():
    b = hk.Builder("batched")
    x, y = b.parameter(0, hk.s8[7, 20, 70]), b.parameter(1, hk.s8[7, 70, 40])
    module = b.build(hk.dot_general(x, y, hk.DotDimensionNumbers([2], [1], [0], [0]), preferred_element_type=hk.s32))
    numbers = np.random.default_rng(2)
    args = [numbers.integers(-128, 128, p.shape.dimensions).astype(np.int8) for p in module.entry.parameters]
    np.testing.assert_array_equal(hk.compile(module)(*args), hk.evaluate(module, *args))


_LDTILECFG = bytes.fromhex("c4e27849")


def test_exported_objects_do_not_need_permission(tmp_path):
    """A target that names them gets them."""
    module = _product(hk.s8, hk.s32, 40, 100, 40, turned=False)
    own, _ = hk.export_object(module, path=tmp_path / "own.o")
    target = "x86-64-avx512,+amx-tile,+amx-int8,+amx-bf16"
    asked, _ = hk.export_object(module, target, tmp_path / "asked.o")
    assert _LDTILECFG not in own.read_bytes()
    assert _LDTILECFG in asked.read_bytes()
