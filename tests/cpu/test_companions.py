"""Kernels with many sines, exponentials and the like call them: same bits, little text, compiled once."""

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.jit import objects as jit
from hlokit.cpu.math import companions

DRAWN = np.random.default_rng(0).standard_normal(33)


def chain(op: str, links: int, dtype: hk.DType = hk.f32, size: int = 33) -> hk.HloModule:
    b = hk.Builder("chain")
    x = y = b.parameter(0, dtype[size], "x")
    for _ in range(links):
        y = hk.add(getattr(hk, op)(hk.abs(y)), x)
    return b.build(y)


@pytest.mark.parametrize("op", ["sin", "cos", "exp", "log", "tanh", "erf", "cbrt", "expm1", "log1p"])
@pytest.mark.parametrize("dtype", [hk.f32, hk.f64])
def test_called_or_inlined_the_bits_are_the_same(op: str, dtype: hk.DType, monkeypatch: pytest.MonkeyPatch) -> None:
    argument = (0.1 * DRAWN).astype(dtype.numpy)
    module = chain(op, 4, dtype)
    inlined = hk.compile(module)
    monkeypatch.setattr(companions, "MANY", 1)
    called = hk.compile(module)
    assert "call" in called.as_text("llvm") and f"@hlokit_{op}_" in called.as_text("llvm")
    assert f"@hlokit_{op}_" not in inlined.as_text("llvm")
    assert called(argument).tobytes() == inlined(argument).tobytes()


@pytest.mark.parametrize("op", ["pow", "atan2", "rem"])
def test_functions_of_two_arguments_are_called_too(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    b = hk.Builder("two")
    x, y = (b.parameter(k, hk.f32[33], "xy"[k]) for k in range(2))
    module = b.build(getattr(hk, op)(hk.abs(x), y))
    arguments = [DRAWN.astype(np.float32), DRAWN[::-1].astype(np.float32)]
    inlined = hk.compile(module)(*arguments)
    monkeypatch.setattr(companions, "MANY", 1)
    called = hk.compile(module)
    assert f"@hlokit_{op}_" in called.as_text("llvm")
    assert called(*arguments).tobytes() == inlined.tobytes()


def test_large_angles_in_any_lane() -> None:
    argument = np.array([1e30, 1.0, np.inf, 3e5, -1e9, np.nan, 0.0, -0.0] * 5, np.float32)[:33]
    b = hk.Builder("angles")
    module = b.build(hk.sin(b.parameter(0, hk.f32[33], "x")))
    with np.errstate(invalid="ignore"):
        exact = np.sin(argument.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(hk.compile(module)(argument), exact, rtol=1e-6)


def test_the_text_of_a_long_chain_grows_by_a_call() -> None:
    short, long = (len(hk.compile(chain("sin", links)).as_text("llvm")) for links in (40, 120))
    assert (long - short) / 80 < 2000  # inlined, a sine of 32 lanes and of one takes 10,000


def test_functions_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second program makes its own kernel alone."""
    monkeypatch.setenv("HLOKIT_CACHE_DIR", "")
    jit.forget()
    hk.compile(chain("tanh", 20))
    known = dict(jit._made_before)
    hk.compile(chain("tanh", 24))
    assert sum("@hlokit_tanh_" in text for text, *_ in known) >= 1
    assert jit._made_before == known
