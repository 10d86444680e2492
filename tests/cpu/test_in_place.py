"""Results that lie where an operand did."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.loops.expr import Buffer, Expressions, LoopAxis
from hlokit.cpu.loops.nest import Loops, Store
from hlokit.cpu.lower.buffers import is_in_place
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes

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


UPDATE = "u = f32[40,5] dynamic-update-slice(x, new, i, z)"
SCATTER = """w = s32[1] reshape(i) u = f32[40,5] scatter(x, w, new), update_window_dims={0,1}, inserted_window_dims={},
  scatter_dims_to_operand_dims={0}, index_vector_dim=0, to_apply=latter"""


@pytest.mark.parametrize("update", [UPDATE, SCATTER], ids=["update", "scatter"])
def test_a_row_made_of_others_is_written_in_place(update: str) -> None:
    """In a loop: what reads the array comes first, and nothing of the array is copied."""
    module = hk.parse(f"""HloModule m
latter {{ p = f32[] parameter(0) ROOT q = f32[] parameter(1) }}
body {{
  s = (s32[], f32[40,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[40,5] get-tuple-element(s), index=1
  k = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] subtract(i, k)
  row = f32[1,5] dynamic-slice(x, j, z), dynamic_slice_sizes={{1,5}}
  old = f32[1,5] dynamic-slice(x, i, z), dynamic_slice_sizes={{1,5}}
  new = f32[1,5] add(row, old)
  {update}
  n = s32[] add(i, k)
  ROOT r = (s32[], f32[40,5]) tuple(n, u)
}}
more {{
  s = (s32[], f32[40,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(40)
  ROOT r = pred[] compare(i, k), direction=LT
}}
ENTRY main {{
  x = f32[40,5] parameter(0)
  k = s32[] constant(1)
  s = (s32[], f32[40,5]) tuple(k, x)
  w = (s32[], f32[40,5]) while(s), condition=more, body=body
  ROOT r = f32[40,5] get-tuple-element(w), index=1
}}""")
    x = np.random.default_rng(0).integers(0, 9, (40, 5)).astype(np.float32)
    compiled = hk.compile(module)
    np.testing.assert_array_equal(compiled(x), hk.evaluate(module, x))
    np.testing.assert_array_equal(compiled(x), np.cumsum(x, 0))
    assert not [r for r in compiled.reasons if r[1] == "copied" and "800 bytes" in r[2] and "starts" not in r[2]]


def test_two_arrays_updated_from_one_of_them_are_written_in_place() -> None:
    """In a loop: the update of the second reads the first, whose own update, and the copy before it, come after."""
    module = hk.parse("""HloModule m
latter { p = s32[] parameter(0) ROOT q = s32[] parameter(1) }
body {
  s = (s32[], s32[64,5], s32[64,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = s32[64,5] get-tuple-element(s), index=1
  y = s32[64,5] get-tuple-element(s), index=2
  k = s32[] constant(1)
  z = s32[] constant(0)
  j = s32[] subtract(i, k)
  row = s32[1,5] dynamic-slice(x, j, z), dynamic_slice_sizes={1,5}
  r = s32[5] reshape(row)
  steps = s32[5] iota(), iota_dimension=0
  ib = s32[5] broadcast(i), dimensions={}
  five = s32[] constant(5)
  fives = s32[5] broadcast(five), dimensions={}
  up = s32[5] add(r, ib)
  column = s32[5] remainder(up, fives)
  rows = s32[5,1] reshape(ib)
  columns = s32[5,1] reshape(steps)
  at = s32[5,2] concatenate(rows, columns), dimensions={1}
  x1 = s32[64,5] scatter(x, at, column), update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=latter
  double = s32[5] multiply(r, column)
  y1 = s32[64,5] scatter(y, at, double), update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={0,1}, index_vector_dim=1, to_apply=latter
  n = s32[] add(i, k)
  ROOT t = (s32[], s32[64,5], s32[64,5]) tuple(n, x1, y1)
}
more {
  s = (s32[], s32[64,5], s32[64,5]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(64)
  ROOT r = pred[] compare(i, k), direction=LT
}
ENTRY e {
  x = s32[64,5] parameter(0)
  y = s32[64,5] parameter(1)
  one = s32[] constant(1)
  s = (s32[], s32[64,5], s32[64,5]) tuple(one, x, y)
  w = (s32[], s32[64,5], s32[64,5]) while(s), condition=more, body=body
  a = s32[64,5] get-tuple-element(w), index=1
  b = s32[64,5] get-tuple-element(w), index=2
  ROOT r = (s32[64,5], s32[64,5]) tuple(a, b)
}""")
    compiled = hk.compile(module)
    body = compiled.as_text("loops").partition("body:")[2]
    copies = [line for line in body.splitlines() if "copy %" in line]
    assert len(copies) == 2 and all("nothing to do" in line for line in copies), copies
    x = np.arange(320, dtype=np.int32).reshape(64, 5)
    for got, wanted in zip(compiled(x, x + 1), hk.evaluate(module, x, x + 1), strict=True):
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("rows", "is_once"), [(1, True), (2, False)])
def test_what_a_loop_stores_again_in_each_step_is_not_in_place(rows: int, is_once: bool) -> None:
    """Two results of one kernel, of which the smaller one does not depend on the outer loop: where it lay in place of
    what both are made of, the outer loop's next step would read it."""
    expressions = Expressions()
    outer, inner = LoopAxis("i", rows, 1), LoopAxis("j", 47, 2)
    read, large, small = Buffer("r", dtypes.f32, 47, 0), Buffer("l", dtypes.f32, 47 * rows, 1), Buffer("s", dtypes.f32, 47, 2)
    j = Affine.of(inner)
    element = expressions.node("load", dtypes.f32, (), (read, j))
    twice = expressions.node("add", dtypes.f32, (element, element))
    stores = [Store(large, Affine.of(outer) * 47 + j, twice), Store(small, j, element)]
    loops = Loops([outer, inner], stores)
    assert is_in_place(loops, read, small) is is_once
