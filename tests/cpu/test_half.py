"""f16 is computed in itself where the machine can, with the bits of f32 rounded after each step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.math.half import computes_half
from hlokit.cpu.target import host
from hlokit.judge.closeness.equality import differs
from hlokit.ops.numerics import bits_of

SPECIAL = [0.0, 1.0, 1.5, 2.0, 65504.0, 6e-8, 1e-5, 6.1e-5, 3e-3, 255.9, np.inf, np.nan]


def values() -> list[Any]:
    """Each special value with each; every exponent."""
    special = np.array([s * v for v in SPECIAL for s in (1, -1)], np.float16)
    rng = np.random.default_rng(0)
    anything = [rng.integers(0, 1 << 16, 4000, dtype=np.uint16).view(np.float16) for _ in range(2)]
    near = [rng.standard_normal(4000).astype(np.float16) for _ in range(2)]
    grid = np.meshgrid(special, special)
    return [np.concatenate([g.ravel(), a, n]) for g, a, n in zip(grid, anything, near, strict=True)]


def program(size: int) -> hk.Module:
    b = hk.Builder("half")
    x, y = (b.parameter(k, hk.f16[size]) for k in range(2))
    half = b.constant(0.5, hk.f16)
    results = [hk.add(hk.mul(x, y), y), hk.sub(x, y), hk.div(x, y), hk.sqrt(hk.abs(x)), hk.neg(x), hk.max(x, y)]
    results += [
        hk.min(x, y),
        hk.mul(x, half),
        hk.lt(x, y),
        hk.ge(x, half),
        hk.ne(x, y),
        hk.max(x, b.constant(0.0, hk.f16)),
    ]
    return b.build(results)


def same_bits(got: Any, wanted: Any) -> bool:
    if got.dtype == bool:
        return bool((got == wanted).all())
    return bool(((bits_of(got) == bits_of(wanted)) | (np.isnan(got) & np.isnan(wanted))).all())


@pytest.mark.parametrize("missing", [[], ["avx512fp16"]], ids=["host", "without"])
@pytest.mark.parametrize("strict", [False, True])
def test_bits_are_those_of_f32_rounded(strict: bool, missing: list[str]) -> None:
    operands = values()
    module = program(len(operands[0]))
    results = hk.compile(module, strict=strict, target=host().without(*missing))(*operands)
    for got, wanted in zip(results, hk.evaluate(module, *operands), strict=True):
        assert same_bits(got, wanted)


@pytest.mark.skipif(not computes_half(host()), reason="needs AVX512-FP16")
def test_nothing_is_converted() -> None:
    b = hk.Builder("chain")
    x, y = (b.parameter(k, hk.f16[4096]) for k in range(2))
    text = hk.compile(b.build(hk.add(hk.mul(x, y), b.constant(0.5, hk.f16)))).as_text("asm")
    assert "vmulph" in text
    assert "vaddph" in text
    assert "vfmadd" not in text
    assert "vcvt" not in text


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("op", ["maximum", "minimum"])
@pytest.mark.parametrize("type", ["bf16", "f16"])
def test_extremes_of_narrow_types_are_not_rounded_in_between(type: str, op: str, strict: bool) -> None:
    """The greater of two bf16 is a bf16: a chain of them is rounded once, if at all."""
    module = hk.parse(f"""HloModule m
ENTRY e {{
  x = {type}[8,40] parameter(0)
  a = {type}[1,40] slice(x), slice={{[0:1], [0:40]}}
  b = {type}[1,40] slice(x), slice={{[1:2], [0:40]}}
  c = {type}[1,40] slice(x), slice={{[2:3], [0:40]}}
  d = {type}[1,40] slice(x), slice={{[3:4], [0:40]}}
  ab = {type}[1,40] {op}(a, b)
  cd = {type}[1,40] {op}(c, d)
  ROOT r = {type}[1,40] {op}(ab, cd)
}}
""")
    listing = hk.compile(module, strict=strict, target="x86-64-avx2").as_text("loops")
    assert listing.count(f"convert.{type}") == 1 and listing.count("convert.f32") == 4
    generator = np.random.default_rng(0)
    special = np.array([np.nan, -np.inf, np.inf, 0.0, -0.0, 1e-40, 6e-8, 1.0])
    x = generator.choice(special, (8, 40)).astype(getattr(hk, type).numpy)
    compiled, expected = hk.compile(module, strict=strict)(x), hk.evaluate(module, x)
    assert differs(compiled, expected) is None
