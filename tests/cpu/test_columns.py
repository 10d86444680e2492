"""Folds down the columns of large arrays, which go through memory row by row (emit/columns.py)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.emit.columns import ColumnFolds

REGIONS = """HloModule m
sum { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] add(a, b) }
most { a = TYPE[] parameter(0) b = TYPE[] parameter(1) ROOT r = TYPE[] maximum(a, b) }
where { a = TYPE[] parameter(0) i = s32[] parameter(1) b = TYPE[] parameter(2) j = s32[] parameter(3)
  later = pred[] compare(b, a), direction=GT
  x = TYPE[] select(later, b, a) k = s32[] select(later, j, i) ROOT r = (TYPE[], s32[]) tuple(x, k) }
"""


@pytest.fixture
def rowwise(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of folds that went row by row together."""
    found: list[int] = []
    write = ColumnFolds._write

    def counted(self: ColumnFolds, group: list[Any], *given: Any) -> None:
        found.append(len(group))
        write(self, group, *given)

    monkeypatch.setattr(ColumnFolds, "_write", counted)
    return found


def program(shape: str, body: str, dtype: str = "f32") -> hk.HloModule:
    text = f"{REGIONS} ENTRY e {{ x = TYPE[{shape}] parameter(0) zero = TYPE[] constant(0) {body} }}"
    return hk.parse(text.replace("TYPE", dtype))


def agrees(module: hk.HloModule, x: Any, **options: Any) -> None:
    """Whether the compiled module gives what the reference gives, with the same bits on three threads."""
    one = hk.compile(module, threads=1)(x)
    three = hk.compile(module, threads=3)(x)
    exact = hk.compile(module, strict=True, threads=1)(x)
    want = hk.evaluate(module, x)
    for a, b, c, d in zip(*(r if isinstance(r, tuple) else (r,) for r in (one, three, exact, want)), strict=True):
        np.testing.assert_array_equal(a.view(np.uint8), b.view(np.uint8))
        np.testing.assert_array_equal(c, d)
        wide = (np.asarray(v).astype(np.float64) for v in (a, d))
        np.testing.assert_allclose(*wide, **({"rtol": 1e-5} | options))


@pytest.mark.parametrize("more", [0, 7])
@pytest.mark.parametrize(
    ("dtype", "numpy"),
    [("f32", np.float32), ("f64", np.float64), ("bf16", ml_dtypes.bfloat16), ("s8", np.int8), ("s32", np.int32)],
)
def test_sums_down_long_columns_go_row_by_row(rowwise: list[int], dtype: str, numpy: Any, more: int) -> None:
    columns = 8192 // np.dtype(numpy).itemsize + more
    x = np.random.default_rng(0).integers(-1, 2, (3, 301, columns)).astype(numpy)
    body = f"ROOT r = TYPE[3,{columns}] reduce(x, zero), dimensions={{1}}, to_apply=sum"
    agrees(program(f"3,301,{columns}", body, dtype), x, rtol=0)
    assert rowwise


@pytest.mark.parametrize("columns", [17, 79, 129, 250, 300])
@pytest.mark.parametrize("of", ["sum", "most"])
def test_columns_that_fill_no_whole_number_of_wide_steps_go_in_two_steps_at_most(columns: int, of: str) -> None:
    """Each of them goes down all rows, and a single vector's chain of operations leaves the machine waiting."""
    x = np.random.default_rng(0).integers(-9, 10, (3, 200, columns)).astype(np.float32)
    module = program(f"3,200,{columns}", f"ROOT r = f32[3,{columns}] reduce(x, zero), dimensions={{1}}, to_apply={of}")
    agrees(module, x, rtol=0)
    text = hk.compile(module, threads=1).as_text("llvm")
    kernel = text[text.index("@k") :].partition("\n}")[0]
    assert kernel.count(", 200\n") <= 2


def test_maxima_over_a_middle_axis_go_row_by_row(rowwise: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(3, 500, 1000)).astype(np.float32)
    x[1, 7, 3] = np.nan
    body = "ROOT r = f32[3,1000] reduce(x, zero), dimensions={1}, to_apply=most"
    agrees(program("3,500,1000", body), x)
    assert rowwise


def test_the_first_greatest_of_each_column_is_found_row_by_row(rowwise: list[int]) -> None:
    x = np.random.default_rng(0).integers(0, 40, (3, 500, 1000)).astype(np.float32)
    body = """i = s32[3,500,1000] iota(), iota_dimension=1 none = s32[] constant(0) least = f32[] constant(-inf)
    ROOT r = (f32[3,1000], s32[3,1000]) reduce(x, i, least, none), dimensions={1}, to_apply=where"""
    agrees(program("3,500,1000", body), x)
    assert rowwise


def test_two_sums_that_read_the_same_rows_go_through_them_once(rowwise: list[int]) -> None:
    x = np.random.default_rng(0).normal(size=(3, 500, 1000)).astype(np.float32)
    body = """y = f32[3,500,1000] multiply(x, x)
    a = f32[3,1000] reduce(x, zero), dimensions={1}, to_apply=sum
    b = f32[3,1000] reduce(y, zero), dimensions={1}, to_apply=sum
    ROOT r = (f32[3,1000], f32[3,1000]) tuple(a, b)"""
    agrees(program("3,500,1000", body), x, rtol=1e-3, atol=1e-4)
    assert set(rowwise) == {2}


def test_what_a_sum_needs_of_another_is_kept_row_by_row(rowwise: list[int]) -> None:
    """Squares of differences from a mean of the same columns, and an exponential that is the same in all rows: that is not
    computed for each."""
    x = np.random.default_rng(0).normal(size=(3, 500, 1000)).astype(np.float32)
    body = """c = f32[] constant(0.002) cb = f32[3,1000] broadcast(c), dimensions={}
    s = f32[3,1000] reduce(x, zero), dimensions={1}, to_apply=sum
    mean = f32[3,1000] multiply(s, cb) wide = f32[3,500,1000] broadcast(mean), dimensions={0,2}
    d = f32[3,500,1000] subtract(x, wide) y = f32[3,500,1000] multiply(d, d)
    ROOT r = f32[3,1000] reduce(y, zero), dimensions={1}, to_apply=sum"""
    agrees(program("3,500,1000", body), x)
    assert rowwise


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        ("3,100,1000", "ROOT r = f32[3,1000] reduce(x, zero), dimensions={1}, to_apply=sum"),  # in the caches
        ("3,15000,60", "ROOT r = f32[3,60] reduce(x, zero), dimensions={1}, to_apply=sum"),  # short rows
        ("3,40,10000", "ROOT r = f32[3,10000] reduce(x, zero), dimensions={1}, to_apply=sum"),  # too long for a cache
    ],
)
def test_other_columns_are_summed_in_registers(rowwise: list[int], shape: str, body: str) -> None:
    x = np.random.default_rng(0).normal(size=[int(n) for n in shape.split(",")]).astype(np.float32)
    agrees(program(shape, body), x, rtol=1e-4, atol=1e-4)
    assert not rowwise


@pytest.mark.parametrize("columns", [2048, 2100, 2051])
@pytest.mark.parametrize(("op", "limit", "start"), [("or", 3, "false"), ("and", -3, "true")])
def test_truth_values_of_columns_are_found_row_by_row(
    rowwise: list[int], op: str, limit: int, start: str, columns: int
) -> None:
    """Vectors of several widths keep them and read them again."""
    text = f"""HloModule m
both {{ a = pred[] parameter(0) b = pred[] parameter(1) ROOT r = pred[] {op}(a, b) }}
ENTRY e {{
  x = f32[512,{columns}] parameter(0)
  limit = f32[] constant({limit})
  limits = f32[512,{columns}] broadcast(limit), dimensions={{}}
  above = pred[512,{columns}] compare(x, limits), direction=GT
  start = pred[] constant({start})
  ROOT found = pred[{columns}] reduce(above, start), dimensions={{0}}, to_apply=both
}}"""
    x = np.random.default_rng(0).normal(size=(512, columns)).astype(np.float32)
    agrees(hk.parse(text), x)
    assert rowwise
