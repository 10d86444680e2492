"""Kernels that are joined: no two of them may need each other."""

import numpy as np
import pytest

import hlokit as hk
from tests.fuzz.properties import leaves

TEXT = """HloModule m
add { p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT r = f32[] add(p, q) }
ENTRY e {
  x = f32[64,5] parameter(0)
  y = f32[64,5] parameter(1)
  zero = f32[] constant(0)
  first = f32[64,5] sinh(x)
  sums = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  spread = f32[64,5] broadcast(sums), dimensions={0}
  last = f32[64,5] multiply(spread, x)
  moved = f32[64,5] multiply(first, x)
  others = f32[64] reduce(moved, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[64,5], f32[64], f32[64,5], f32[64]) tuple(first, sums, last, others)
}
"""


def test_two_joined_kernels_do_not_need_each_other() -> None:
    """{first, last} and {sums, others} would: last reads sums, others reads first, which stands before all of them."""
    module = hk.parse(TEXT)
    x, y = np.random.default_rng(0).normal(size=(2, 64, 5)).astype(np.float32)
    for got, want in zip(hk.compile(module)(x, y), hk.evaluate(module, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


ORDERED = """HloModule m
ENTRY e {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  first = f32[8,8] multiply(x, y)
  early = f32[8,8] dot(first, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  late = f32[8,8] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, control-predecessors={early}
  second = f32[8,8] subtract(x, late)
  ROOT r = (f32[8,8], f32[8,8], f32[8,8]) tuple(first, early, second)
}
"""
EFFECTS = """HloModule m, replica_count=2
add { p = f32[] parameter(0)
      q = f32[] parameter(1)
      ROOT r = f32[] add(p, q) }
ENTRY e {
  x = f32[8,8] parameter(0)
  y = f32[8,8] parameter(1)
  first = f32[8,8] multiply(x, y)
  moved = f32[8,8] dot(first, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  early = f32[8,8] all-reduce(moved), replica_groups={{0,1}}, to_apply=add
  late = f32[8,8] all-reduce(x), replica_groups={{0,1}}, to_apply=add
  second = f32[8,8] subtract(x, late)
  ROOT r = (f32[8,8], f32[8,8], f32[8,8]) tuple(first, early, second)
}
"""


@pytest.mark.parametrize("text", [ORDERED, EFFECTS], ids=["control", "effects"])
def test_joined_kernels_keep_the_order_of_others(text: str) -> None:
    """first and second read x and y; between them stand early and late, of which late must wait for early."""
    module = hk.parse(text)
    x, y = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    given = [(x, y)] * module.replica_count if module.replica_count > 1 else [x, y]
    got, want = hk.compile(module)(*given), hk.evaluate(module, *given)
    for a, b in zip(leaves(tuple(got)), leaves(tuple(want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_a_kernel_may_wait_for_another() -> None:
    module = hk.parse(ORDERED)
    x, y = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)
    for got, want in zip(hk.compile(module)(x, y), hk.evaluate(module, x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
