"""Short axes: written out where their steps share work, stored side by side; folds that need other loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.order import Loops
from hlokit.cpu.steps import KernelStep

FORCES = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[50,DIM] parameter(0)
  a = f32[50,50,DIM] broadcast(x), dimensions={0,2}
  b = f32[50,50,DIM] broadcast(x), dimensions={1,2}
  d = f32[50,50,DIM] subtract(a, b)
  s = f32[50,50,DIM] multiply(d, d)
  zero = f32[] constant(0)
  r = f32[50,50] reduce(s, zero), dimensions={2}, to_apply=sum
  one = f32[] constant(1)
  ones = f32[50,50] broadcast(one), dimensions={}
  soft = f32[50,50] add(r, ones)
  w = f32[50,50] rsqrt(soft)
  wb = f32[50,50,DIM] broadcast(w), dimensions={0,1}
  f = f32[50,50,DIM] multiply(d, wb)
  ROOT t = f32[50,DIM] reduce(f, zero), dimensions={1}, to_apply=sum
}
"""


def kernels(compiled: Any) -> list[Loops]:
    return [step.loops for step in compiled.program.block.steps if isinstance(step, KernelStep)]


@pytest.mark.parametrize("dim", [1, 2, 3, 4, 7, 9])
def test_what_components_share_is_computed_once(dim: int) -> None:
    x = np.random.default_rng(dim).normal(size=(50, dim)).astype(np.float32)
    compiled = hk.compile(hk.parse(FORCES.replace("DIM", str(dim))), threads=1)
    d = x[:, None].astype(np.float64) - x[None]
    want = (d / np.sqrt((d * d).sum(-1) + 1)[..., None]).sum(1)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-5)
    if 1 < dim <= 7:
        (loops,) = kernels(compiled)
        assert len(loops.stores) == dim, "one loop over pairs, with a sum for each component"


@pytest.mark.parametrize("dtype", ["f32", "f64", "u8", "bf16", "pred", "c64"])
@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("rows", [5, 64, 77, 100])
def test_arrays_side_by_side(dtype: str, count: int, rows: int) -> None:
    names = [f"p{k}" for k in range(count)]
    lines = "".join(
        f"  {n} = {dtype}[{rows}] parameter({k})\n  c{n} = {dtype}[{rows},1] reshape({n})\n"
        for k, n in enumerate(names)
    )
    joined = ", ".join(f"c{n}" for n in names)
    root = f"  ROOT r = {dtype}[{rows},{count}] concatenate({joined}), dimensions={{1}}\n"
    compiled = hk.compile(hk.parse(f"HloModule m\nENTRY e {{\n{lines}{root}}}"), threads=1)
    rng = np.random.default_rng(count)
    numpy = hk.parse(f"HloModule m\nENTRY e {{ ROOT x = {dtype}[1] parameter(0) }}").entry.root.shape.dtype.numpy
    arrays = [(rng.normal(size=rows) * 50).astype(np.float32).astype(numpy) for _ in names]
    np.testing.assert_array_equal(compiled(*arrays), np.stack(arrays, -1))


def test_stores_side_by_side_are_whole_vectors() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[96] parameter(0)
  b = f32[96] parameter(1)
  c = f32[96] parameter(2)
  ca = f32[96,1] reshape(a)
  cb = f32[96,1] reshape(b)
  cc = f32[96,1] reshape(c)
  ROOT r = f32[96,3] concatenate(ca, cb, cc), dimensions={1}
}"""
    compiled = hk.compile(hk.parse(text), threads=1)
    assert "scatter" not in compiled.as_text("llvm")


NORM = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[4,49,GROUPS,EACH] parameter(0)
  zero = f32[] constant(0)
  s = f32[4,GROUPS] reduce(x, zero), dimensions={1,3}, to_apply=sum
  sb = f32[4,49,GROUPS,EACH] broadcast(s), dimensions={0,2}
  y = f32[4,49,GROUPS,EACH] subtract(x, sb)
  flat = f32[4,7,7,ALL] reshape(y)
  ROOT r = f32[4,7,7,ALL] add(flat, flat)
}
"""


@pytest.mark.parametrize(("groups", "each"), [(6, 16), (12, 8), (3, 40), (5, 5)])
def test_folds_of_groups_are_done_once(groups: int, each: int) -> None:
    text = NORM.replace("GROUPS", str(groups)).replace("EACH", str(each)).replace("ALL", str(groups * each))
    compiled = hk.compile(hk.parse(text), threads=1)
    x = np.random.default_rng(0).normal(size=(4, 49, groups, each)).astype(np.float32)
    want = 2 * (x - x.sum((1, 3), keepdims=True)).reshape(4, 7, 7, -1)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-4)
    for loops in kernels(compiled):
        assert loops.parallel <= 2, "the steps that share a sum are not counted with others"


def test_sums_of_rows_and_of_columns_are_not_done_for_each_element() -> None:
    text = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[60,70] parameter(0)
  zero = f32[] constant(0)
  rows = f32[60] reduce(x, zero), dimensions={1}, to_apply=sum
  columns = f32[70] reduce(x, zero), dimensions={0}, to_apply=sum
  rb = f32[60,70] broadcast(rows), dimensions={0}
  cb = f32[60,70] broadcast(columns), dimensions={1}
  d = f32[60,70] subtract(x, rb)
  ROOT r = f32[60,70] subtract(d, cb)
}"""
    compiled = hk.compile(hk.parse(text), threads=1)
    x = np.random.default_rng(0).normal(size=(60, 70)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), x - x.sum(1, keepdims=True) - x.sum(0), rtol=1e-4, atol=1e-4)
    assert len(kernels(compiled)) == 2
