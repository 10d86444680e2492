"""Sums in types narrower than f32: what rounding may change of them, and what it may not."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.spread import near

TYPES: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
DOT = """HloModule m
ENTRY e {{
  x = {type}[16,{terms}] parameter(0)
  y = {type}[{terms},16] parameter(1)
  ROOT r = {type}[16,16] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
SUM = """HloModule m
sum {{ a = {type}[] parameter(0) b = {type}[] parameter(1) ROOT s = {type}[] add(a, b) }}
ENTRY e {{
  x = {type}[16,{terms}] parameter(0)
  z = {type}[] constant(0)
  ROOT r = {type}[16] reduce(x, z), dimensions={{1}}, to_apply=sum
}}"""


def dot_of(name: str, terms: int) -> tuple[hk.HloModule, list[Any]]:
    rng = np.random.default_rng(terms)
    arguments = [rng.normal(size=size).astype(TYPES[name]) for size in ((16, terms), (terms, 16))]
    return hk.parse(DOT.format(type=name, terms=terms)), arguments


@pytest.mark.parametrize("terms", [8, 64, 512])
@pytest.mark.parametrize("name", TYPES)
def test_dots_that_add_in_the_type_or_in_f32_are_allowed(name: str, terms: int) -> None:
    """DOTG-17 leaves the order of the sum and the precision on the way open."""
    module, (x, y) = dot_of(name, terms)
    inside = np.zeros((16, 16), TYPES[name])
    for k in reversed(range(terms)):
        inside = inside + x[:, k : k + 1] * y[k : k + 1]
    outside = (x.astype(np.float32) @ y.astype(np.float32)).astype(TYPES[name])
    want = hk.evaluate(module, x, y)
    assert near((inside,), (want,), module, [x, y], 0) is None
    assert near((outside,), (want,), module, [x, y], 0) is None


def test_a_dot_of_512_ones_that_adds_in_bf16_is_allowed() -> None:
    """It is off by half: 256 and 1 are 256 in bf16, so the sum stays there. DOTG-17 allows it, and so does the bound."""
    ones = np.ones((16, 512), ml_dtypes.bfloat16)
    module = hk.parse(DOT.format(type="bf16", terms=512))
    inside = np.add.accumulate(ones, axis=1, dtype=ml_dtypes.bfloat16)[:, -1:].repeat(16, 1)
    want = hk.evaluate(module, ones, ones.T)
    assert (inside[0, 0], want[0, 0]) == (256, 512)
    assert near((inside,), (want,), module, [ones, ones.T], 0) is None


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0, 4.0])
@pytest.mark.parametrize("terms", [8, 64, 512])
@pytest.mark.parametrize("name", TYPES)
def test_zeros_doubled_and_negated_results_of_dots_are_wrong(name: str, terms: int, factor: float) -> None:
    module, arguments = dot_of(name, terms)
    want = hk.evaluate(module, *arguments)
    wrong = (want.astype(np.float32) * np.float32(factor)).astype(TYPES[name])
    assert near((wrong,), (want,), module, arguments, 0) is not None


@pytest.mark.parametrize("factor", [0.0, -1.0, 2.0])
@pytest.mark.parametrize("name", TYPES)
def test_zeros_doubled_and_negated_sums_are_wrong(name: str, factor: float) -> None:
    module = hk.parse(SUM.format(type=name, terms=8))
    x = np.random.default_rng(0).normal(size=(16, 8)).astype(TYPES[name])
    want = hk.evaluate(module, x)
    wrong = (want.astype(np.float32) * np.float32(factor)).astype(TYPES[name])
    assert near((wrong,), (want,), module, [x], 0) is not None
    turned = np.add.accumulate(x[:, ::-1], axis=1, dtype=TYPES[name])[:, -1]
    assert near((turned,), (want,), module, [x], 0) is None
