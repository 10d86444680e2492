"""Results that lie where an operand did."""

from __future__ import annotations

import numpy as np

import hlokit as hk

SEVERAL_RESULTS = """HloModule several
greater {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT z = f32[] maximum(x, y)
}
ENTRY main {
  a = f32[64,128] parameter(0)
  b = f32[64,64] parameter(1)
  c = f32[64,128] dot(b, a), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  k = f32[] constant(3)
  least = f32[] constant(-inf)
  rows = f32[64] reduce(c, least), dimensions={1}, to_apply=greater
  first = f32[64,128] broadcast(rows), dimensions={0}
  three = f32[64,128] broadcast(k), dimensions={}
  second = f32[64,128] multiply(c, three)
  third = f32[64,128] add(second, first)
  one = f32[64,128] dot(b, first), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  two = f32[64,128] dot(b, second), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  sum = f32[64,128] dot(b, third), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all = (f32[64,128], f32[64,128], f32[64,128]) tuple(one, two, sum)
}"""


def test_operands_are_read_before_any_result_of_the_kernel_is_written() -> None:
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(s).astype(np.float32) for s in ((64, 128), (64, 64))]
    module = hk.parse(SEVERAL_RESULTS)
    for got, wanted in zip(hk.compile(module)(*arguments), hk.evaluate(module, *arguments), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-3)
