"""Kernels that are joined: no two of them may need each other."""

import numpy as np

import hlokit as hk

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
