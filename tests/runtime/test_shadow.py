"""Shadow mode: a wrong kernel is found where it is, and nothing else is called wrong."""

import gc
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.routine import KERNELS
from hlokit.cpu.math import primitives
from hlokit.errors import ShadowMismatch
from hlokit.files.arrays import arguments_from_arrays
from hlokit.runtime import shadow

LOOP = """HloModule loop
body {
  p = (s32[], f32[24], f32[24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[24] get-tuple-element(p), index=1
  y = f32[24] get-tuple-element(p), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  turned = f32[24] reverse(x), dimensions={0}
  z = f32[24] subtract(turned, y)
  s = f32[24] sine(z)
  ROOT t = (s32[], f32[24], f32[24]) tuple(next, s, x)
}
condition {
  p = (s32[], f32[24], f32[24]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(20)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[24] parameter(0)
  y = f32[24] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[24], f32[24]) tuple(zero, x, y)
  w = (s32[], f32[24], f32[24]) while(t), condition=condition, body=body
  ROOT r = f32[24] get-tuple-element(w), index=1
}
"""
X = np.arange(24, dtype=np.float32)
Y = np.linspace(-1, 1, 24, dtype=np.float32)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code generation takes subtract for add on floats."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    monkeypatch.setitem(primitives._FLOAT_BINARY, "sub", "fadd")


def test_right_programs_pass(tmp_path: Path) -> None:
    module = hk.parse(LOOP)
    shadow = hk.compile(module, shadow=tmp_path)
    np.testing.assert_allclose(shadow(X, Y), hk.evaluate(module, X, Y), rtol=1e-5)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("wrong")
def test_a_wrong_kernel_in_a_loop_is_found(tmp_path: Path) -> None:
    module = hk.parse(LOOP)
    with pytest.raises(ShadowMismatch) as caught:
        hk.compile(module, shadow=tmp_path)(X, Y)
    error = caught.value
    assert error.instructions == ["turned", "z", "s"] and error.index == (0,)
    assert error.expected == pytest.approx(np.sin(X[23] - Y[0]), rel=1e-5)
    assert error.found == pytest.approx(np.sin(X[23] + Y[0]), rel=1e-5)
    assert "turned" in str(error) and str(error.reproducer) in str(error)


@pytest.mark.usefixtures("wrong")
def test_the_reproducer_stands_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ShadowMismatch) as caught:
        hk.compile(hk.parse(LOOP), shadow=tmp_path)(X, Y)
    path = Path(str(caught.value.reproducer))
    assert path.parent == tmp_path
    module = hk.load(path)
    hk.verify(module)
    with np.load(path.with_suffix(".npz")) as arrays:
        arguments = arguments_from_arrays(module, arrays)
        gave = arrays["kernel0"]
    assert hk.evaluate(module, *arguments)[0] == np.float32(caught.value.expected)
    assert gave[0] == np.float32(caught.value.found)
    np.testing.assert_array_equal(hk.compile(module)(*arguments), gave)  # as wrong as it was
    monkeypatch.undo()
    assert hk.compile(module)(*arguments)[0] == pytest.approx(caught.value.expected, rel=1e-5)


@pytest.mark.usefixtures("wrong")
def test_a_wrong_branch_is_found(tmp_path: Path) -> None:
    text = """HloModule m
    a { x = f32[4] parameter(0)
        ROOT r = f32[4] add(x, x) }
    b { x = f32[4] parameter(0)
        y = f32[4] multiply(x, x)
        ROOT r = f32[4] subtract(y, x) }
    ENTRY e { p = s32[] parameter(0)
        x = f32[4] parameter(1)
        ROOT r = f32[4] conditional(p, x, x), branch_computations={a, b} }"""
    shadow = hk.compile(hk.parse(text), shadow=tmp_path)
    x = np.float32([1, 2, 3, 4])
    np.testing.assert_array_equal(shadow(np.int32(0), x), 2 * x)
    with pytest.raises(ShadowMismatch, match=r"the kernel gave 2.0, the interpreter 0.0; 4 elements"):
        shadow(np.int32(1), x)


def test_a_wrong_routine_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sorts along the other dimension."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    right = KERNELS["sort"]
    text = """HloModule m
    lt { x = s32[] parameter(0)
         y = s32[] parameter(1)
         ROOT r = pred[] compare(x, y), direction=LT }
    ENTRY e { x = s32[4,4] parameter(0)
         ROOT s = s32[4,4] sort(x), dimensions={0}, to_apply=lt }"""
    other = hk.parse(text.replace("dimensions={0}", "dimensions={1}")).entry.root.op
    monkeypatch.setitem(KERNELS, "sort", lambda call, module: right(replace(call, op=other), module))
    with pytest.raises(ShadowMismatch) as caught:
        hk.compile(hk.parse(text), shadow=tmp_path)(np.arange(16, dtype=np.int32)[::-1].reshape(4, 4).copy())
    assert caught.value.instructions == ["s"] and caught.value.found == 12 and caught.value.expected == 3


def test_arrays_changed_in_place(tmp_path: Path) -> None:
    """Updates and scatters: the operand is what lay there before."""
    text = """HloModule m
    add { x = s32[] parameter(0)
          y = s32[] parameter(1)
          ROOT r = s32[] add(x, y) }
    ENTRY e { x = s32[64] parameter(0)
          i = s32[] parameter(1)
          k = s32[5,1] parameter(2)
          u = s32[5] parameter(3)
          p = s32[64] add(x, x)
          v = s32[3] slice(x), slice={[4:7]}
          d = s32[64] dynamic-update-slice(p, v, i)
          ROOT s = s32[64] scatter(d, k, u), update_window_dims={}, inserted_window_dims={0},
              scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add }"""
    module = hk.parse(text)
    arguments = (
        np.arange(64, dtype=np.int32), np.int32(9), np.int32([[1], [1], [90], [-1], [63]]), np.int32([5, 6, 7, 8, 9])
    )  # fmt: skip
    got = hk.compile(module, shadow=tmp_path, donate=(0,))(*(a.copy() for a in arguments))
    np.testing.assert_array_equal(got, hk.evaluate(module, *arguments))


def test_what_rounding_decides_is_not_wrong(tmp_path: Path) -> None:
    """Differences of nearly equal numbers, and integers that hang on them."""
    text = """HloModule m
    ENTRY e { x = f32[64] parameter(0)
        c = f32[] constant(1000)
        d = f32[64] broadcast(c), dimensions={}
        s = f32[64] sine(x)
        y = f32[64] multiply(s, d)
        f = f32[64] floor(y)
        r = f32[64] subtract(y, f)
        g = f32[64] exponential(y)
        k = s32[64] convert(g)
        i = f32[64] iota(), iota_dimension=0
        j = f32[64] sine(i)
        l = f32[64] multiply(j, d)
        m = f32[64] multiply(l, d)
        n = s32[64] convert(m)
        ROOT t = (f32[64], s32[64], s32[64]) tuple(r, k, n) }"""
    x = np.linspace(-0.01, 0.01, 64, dtype=np.float32)
    module = hk.parse(text)
    results = hk.compile(module, shadow=tmp_path)(x)
    for got, plain in zip(results, hk.compile(module)(x), strict=True):
        np.testing.assert_array_equal(got, plain)
    assert not list(tmp_path.iterdir()), "nothing is reported"


@pytest.mark.parametrize("dtype", ["bf16", "f16", "c64", "f64", "u8", "pred"])
def test_types(tmp_path: Path, dtype: str) -> None:
    op = "or" if dtype == "pred" else "multiply"
    text = f"ENTRY e {{\n x = {dtype}[3,5] parameter(0)\n y = {dtype}[5,3] transpose(x), dimensions={{1,0}}\n ROOT r = {dtype}[5,3] {op}(y, y)\n}}"
    module = hk.parse(text)
    x = np.arange(15).reshape(3, 5).astype(ml_dtypes.bfloat16 if dtype == "bf16" else hk.dtype(dtype).numpy)
    for strict in (False, True):
        np.testing.assert_array_equal(hk.compile(module, shadow=tmp_path, strict=strict)(x), hk.evaluate(module, x))


def test_what_watched_code_calls_lives_as_long_as_it() -> None:
    module = hk.parse("HloModule m\nENTRY e { x = f32[4] parameter(0)  ROOT r = f32[4] negate(x) }")
    executable = hk.compile(module, shadow=True)
    gc.collect()
    watching = [one for one in gc.get_objects() if isinstance(one, shadow._Shadow)]
    assert any(one.executable is executable for one in watching)
    assert executable(np.ones(4, np.float32)).tolist() == [-1] * 4
