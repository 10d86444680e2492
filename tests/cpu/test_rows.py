"""Kernels over rows: what folds leave for the main loop, division by a row's value, extremes, windows, updates."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.lower.steps import KernelStep

SOFTMAX = """HloModule m
max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[5,COUNT] parameter(0)
  low = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = f32[5] reduce(x, low), dimensions={1}, to_apply=max
  mb = f32[5,COUNT] broadcast(m), dimensions={0}
  d = f32[5,COUNT] subtract(x, mb)
  e = f32[5,COUNT] exponential(d)
  s = f32[5] reduce(e, zero), dimensions={1}, to_apply=sum
  sb = f32[5,COUNT] broadcast(s), dimensions={0}
  ROOT r = f32[5,COUNT] divide(e, sb)
}
"""


@pytest.mark.parametrize("count", [5, 16, 70, 200, 513])
def test_softmax_of_rows(count: int) -> None:
    x = np.random.default_rng(count).normal(size=(5, count)).astype(np.float32) * 4
    compiled = hk.compile(hk.parse(SOFTMAX.replace("COUNT", str(count))), threads=1)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(compiled(x), wide / wide.sum(1, keepdims=True), rtol=2e-6)
    if count == 513:
        assert "kept in memory" in compiled.as_text("loops"), "exp is computed once, and kept"


@pytest.mark.parametrize(("count", "is_kept"), [(40000, True), (70000, False)])
def test_softmax_of_long_rows(count: int, is_kept: bool) -> None:
    x = np.random.default_rng(count).normal(size=(5, count)).astype(np.float32)
    compiled = hk.compile(hk.parse(SOFTMAX.replace("COUNT", str(count))), threads=1)
    wide = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(compiled(x), wide / wide.sum(1, keepdims=True), rtol=1e-5)
    assert ("kept in memory" in compiled.as_text("loops")) == is_kept


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("count", [7, 100])
def test_division_by_a_row_value_rounds_once(dtype: str, count: int) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[ROWS,{count}] parameter(0)
  s = {dtype}[ROWS] parameter(1)
  sb = {dtype}[ROWS,{count}] broadcast(s), dimensions={{0}}
  ROOT r = {dtype}[ROWS,{count}] divide(x, sb)
}}"""
    numpy = np.float32 if dtype == "f32" else np.float64
    limits = np.finfo(numpy)
    rng = np.random.default_rng(0)
    special = [
        0.0,
        -0.0,
        np.inf,
        -np.inf,
        np.nan,
        limits.max,
        limits.tiny,
        -limits.tiny,
        limits.smallest_subnormal,
        1.0,
    ]
    divisors = np.array([*special, *np.exp(rng.normal(size=200) * 3), *-np.exp(rng.normal(size=50) * 20)], numpy)
    x = (rng.normal(size=(len(divisors), count)) * 10).astype(numpy)
    x[:, : len(special)] = np.array(special[:count], numpy)
    with np.errstate(all="ignore"):
        want = x / divisors[:, None]
    got = hk.compile(hk.parse(text.replace("ROWS", str(len(divisors)))), threads=1)(x, divisors)
    normal = ~((np.abs(want) < limits.tiny) & (want != 0))
    np.testing.assert_array_equal(got[normal], want[normal])
    np.testing.assert_array_equal(np.signbit(got[normal & ~np.isnan(want)]), np.signbit(want[normal & ~np.isnan(want)]))
    np.testing.assert_allclose(got[~normal], want[~normal], rtol=0, atol=2 * limits.smallest_subnormal)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_extremes_of_rows(dtype: str, name: str) -> None:
    """NaN if one is, +0 above -0, whatever the lanes that they lie in."""
    text = f"""HloModule m
op {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {name}(a, b) }}
ENTRY e {{
  x = {dtype}[300,97] parameter(0)
  i = {dtype}[] constant({"-inf" if name == "maximum" else "inf"})
  ROOT r = {dtype}[300] reduce(x, i), dimensions={{1}}, to_apply=op
}}"""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(300, 97)).astype(np.float32 if dtype == "f32" else np.float64)
    x[100:200] = np.where(rng.random((100, 97)) < 0.02, 0.0, -0.0)
    if name == "minimum":
        x[100:200] = -x[100:200]
    x[150:200] = -np.abs(x[150:200]) if name == "maximum" else np.abs(x[150:200])
    x[200:, :] = np.where(rng.random((100, 97)) < 0.01, np.nan, x[200:, :])
    module = hk.parse(text)
    got, want = hk.compile(module, threads=1)(x), hk.evaluate(module, x)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[:200]), np.signbit(want[:200]))


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize(
    "size, stride, low, high", [(3, 2, 0, 1), (3, 2, 1, 1), (2, 2, 0, 0), (3, 1, 1, 1), (2, 3, -1, 2), (4, 2, 3, -1)]
)
def test_select_and_scatter_by_terms(rank: int, size: int, stride: int, low: int, high: int) -> None:
    rng = np.random.default_rng(size + stride)
    sizes = (9, 6)[:rank]
    counts = [(n + low + high - size) // stride + 1 for n in sizes]
    window = f"size={'x'.join([str(size)] * rank)} stride={'x'.join([str(stride)] * rank)} pad={'x'.join([f'{low}_{high}'] * rank)}"
    operand, source = (f"f32[{','.join(map(str, n))},20]" for n in (sizes, counts))
    window = window.replace(" ", "x1 ", 2) + "x0_0"
    module = hk.parse(f"""HloModule m
ge {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=GE }}
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = {operand} parameter(0)
  y = {source} parameter(1)
  z = f32[] constant(2)
  ROOT r = {operand} select-and-scatter(x, y, z), window={{{window}}}, select=ge, scatter=sum
}}""")
    x, y = (rng.integers(-3, 4, p.shape.dimensions).astype(np.float32) for p in module.entry.parameters)
    np.testing.assert_array_equal(hk.compile(module, threads=1)(x, y), hk.evaluate(module, x, y))


NORM = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[ROWS,300] parameter(0)
  zero = f32[] constant(0)
  squares = f32[ROWS,300] multiply(x, x)
  s = f32[ROWS] reduce(squares, zero), dimensions={1}, to_apply=sum
  n = f32[ROWS] rsqrt(s)
  nb = f32[ROWS,300] broadcast(n), dimensions={0}
  y = f32[ROWS,300] multiply(x, nb)
  columns = f32[300] reduce(y, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[ROWS,300], f32[ROWS], f32[300]) tuple(y, s, columns)
}
"""


@pytest.mark.parametrize("rows", [8, 64, 1000])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_of_rows_are_left_by_the_kernel_that_reads_them(rows: int, threads: int) -> None:
    x = np.random.default_rng(rows).normal(size=(rows, 300)).astype(np.float32)
    compiled = hk.compile(hk.parse(NORM.replace("ROWS", str(rows))), threads=threads)
    y, sums, columns = compiled(x)
    wide = x.astype(np.float64)
    squares = (wide * wide).sum(1)
    np.testing.assert_allclose(sums, squares, rtol=1e-5)
    np.testing.assert_allclose(y, wide / np.sqrt(squares)[:, None], rtol=1e-5)
    np.testing.assert_allclose(columns, (wide / np.sqrt(squares)[:, None]).sum(0), rtol=1e-4, atol=1e-4)
    stored = [
        {leaf.instruction.name for leaf, _ in step.roots}
        for step in compiled.program.block.steps
        if isinstance(step, KernelStep)
    ]
    assert any({"y", "s"} <= names for names in stored) == (rows >= 64)


@pytest.mark.parametrize("dtype", ["f32", "s32"])
@pytest.mark.parametrize("name", ["add", "maximum"])
@pytest.mark.parametrize("count", [1 << 14, 20000])
def test_long_prefix_folds_in_two_stages(dtype: str, name: str, count: int) -> None:
    init = 0 if name == "add" else "-inf" if dtype == "f32" else -(2**31)
    module = hk.parse(f"""HloModule m
op {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {name}(a, b) }}
ENTRY e {{
  x = {dtype}[{count}] parameter(0)
  i = {dtype}[] constant({init})
  ROOT r = {dtype}[{count}] reduce-window(x, i), window={{size={count} pad={count - 1}_0}}, to_apply=op
}}""")
    x = np.random.default_rng(0).normal(size=count).astype(np.float32)
    x = (x * 1000).astype(np.int32) if dtype == "s32" else x
    want = np.cumsum(x.astype(np.float64)) if name == "add" else np.maximum.accumulate(x)
    compiled = hk.compile(module, threads=1)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-5, atol=1e-3)
    whole = sum(b.size >= count for step in compiled.program.block.steps for b in step.writes)
    assert whole == 1 or count % 1024, "the scans of rows are not stored"


@pytest.mark.parametrize("fold", [False, True])
def test_costly_values_that_are_the_same_in_all_rows_are_computed_once(fold: bool) -> None:
    """Of a column each, and within a fold's body."""
    root = "ROOT r = f32[600,40] multiply(x, cb)"
    if fold:
        root = "z = f32[] constant(0)\n  p = f32[600,40] multiply(x, cb)\n  ROOT r = f32[600] reduce(p, z), dimensions={1}, to_apply=sum"
    text = f"""HloModule m
sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = f32[600,40] parameter(0)
  y = f32[40] parameter(1)
  c = f32[40] cosine(y)
  cb = f32[600,40] broadcast(c), dimensions={{1}}
  {root}
}}"""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(600, 40)).astype(np.float32), rng.normal(size=40).astype(np.float32)
    compiled = hk.compile(hk.parse(text), threads=1)
    want = x * np.cos(y)
    np.testing.assert_allclose(compiled(x, y), want.sum(1) if fold else want, rtol=1e-5, atol=1e-5)
    assert any("it is the same in" in why for _, _, why in compiled.reasons)


@pytest.mark.parametrize("type", ["f32", "s8", "c64"])
def test_a_column_that_each_row_reads_is_stored(type: str) -> None:
    """Its elements lie in lines of their own, all of which each row would read again: 300 times as long."""
    text = """HloModule m
ENTRY e {
  x = f32[300,512] parameter(0)
  y = f32[40,300] parameter(1)
  column = f32[300,1] slice(x), slice={[0:300],[7:8]}
  line = f32[300] reshape(column)
  all = f32[40,300] broadcast(line), dimensions={1}
  ROOT sum = f32[40,300] add(y, all)
}"""
    rng, numpy = np.random.default_rng(0), hk.parse_shape(f"{type}[]").dtype.numpy
    x, y = ((9 * rng.normal(size=shape)).astype(numpy) for shape in ((300, 512), (40, 300)))
    compiled = hk.compile(hk.parse(text.replace("f32", type)))
    np.testing.assert_array_equal(compiled(x, y), y + x[:, 7])
    assert any("it is the same in 40 steps" in why for _, _, why in compiled.reasons)


@pytest.mark.parametrize(("rows", "count", "asks"), [(1024, 1024, True), (64, 1024, False), (1100, 1000, True)])
def test_rows_of_large_arrays_are_asked_for(rows: int, count: int, asks: bool) -> None:
    """By the pass that goes through a row for the second time, not by every pass."""
    text = SOFTMAX.replace("COUNT", str(count)).replace("f32[5", f"f32[{rows}")
    compiled = hk.compile(hk.parse(text), threads=1)
    found = _asked(text)
    assert 4 <= found <= 8 if asks else not found
    x = np.random.default_rng(0).normal(size=(rows, count)).astype(np.float32)
    wide = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(compiled(x), wide / wide.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("root", "lines"),
    [
        ("f32[1024,512] exponential(x)", 4),
        ("f32[1024] reduce(x, zero), dimensions={1}, to_apply=sum", 4),
        ("f32[512] reduce(x, zero), dimensions={0}, to_apply=sum", 0),  # each row is a stream of its own
        ("f32[1024,64] slice(x), slice={[0:1024], [0:64]}", 0),  # another row's end would be asked for
        ("f32[9,512] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
         "index_vector_dim=1, slice_sizes={1,512}", 0),
        ("f32[1023,512] add(first, last)", 4),  # by the load that comes first to a line alone
    ],
)  # fmt: skip
def test_large_arrays_are_asked_for_along_their_rows(root: str, lines: int) -> None:
    text = f"""HloModule m
    sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
    ENTRY e {{ x = f32[1024,512] parameter(0) zero = f32[] constant(0)
      i = s32[9] constant({{5, 3, 900, 7, 7, 1000, 20, 30, 500}})
      first = f32[1023,512] slice(x), slice={{[0:1023], [0:512]}}
      last = f32[1023,512] slice(x), slice={{[1:1024], [0:512]}}
      ROOT r = {root} }}"""
    module = hk.parse(text)
    compiled = hk.compile(module, threads=1)
    x = np.random.default_rng(0).integers(-9, 9, (1024, 512)).astype(np.float32)
    np.testing.assert_allclose(compiled(x), hk.evaluate(module, x), rtol=1e-5)
    assert _asked(text) == lines


@pytest.mark.parametrize(
    ("rows", "size", "count", "lines"),
    [
        (2048, 512, 512, 4 + 4),  # and as many of the indices
        (2048, 512, 128, 16 + 4),  # a row is asked for in a quarter of the steps
        (2048, 512, 64, 0),  # most of a row is not read
        (256, 512, 512, 0),  # a small array
        (128, 8192, 8192, 4),  # a row that the nearest cache has no room for: of the indices
    ],
)
def test_the_next_row_is_asked_for_where_elements_are_picked_from_each(
    rows: int, size: int, count: int, lines: int
) -> None:
    text = f"""HloModule m
    ENTRY e {{ x = f32[{rows},{size}] parameter(0) i = s32[{rows},{count},1] parameter(1)
      ROOT g = f32[{rows},{count}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{1}}, start_index_map={{1}},
        operand_batching_dims={{0}}, start_indices_batching_dims={{0}}, index_vector_dim=2, slice_sizes={{1,1}} }}"""
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=(rows, size)).astype(np.float32), rng.integers(0, size, (rows, count)).astype(np.int32)
    compiled = hk.compile(hk.parse(text), threads=1)
    np.testing.assert_array_equal(compiled(x, i[..., None]), np.take_along_axis(x, i, 1))
    assert _asked(text) == lines


def _asked(text: str) -> int:
    """Lines that the code asks for: in each step of a loop as many as it goes on, which hangs on the vectors' width."""
    return hk.compile(hk.parse(text), target="x86-64-avx512").program.text.count("call void @llvm.prefetch")


@pytest.mark.parametrize("rows, columns, kernels", [(100, 130, 1), (701, 523, 3)])
def test_columns_of_a_large_array_are_folded_before_its_rows_are_gone_through(
    rows: int, columns: int, kernels: int
) -> None:
    text = f"""HloModule m
    sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
    ENTRY e {{ x = f32[{rows},{columns}] parameter(0) zero = f32[] constant(0)
      s = f32[{columns}] reduce(x, zero), dimensions={{0}}, to_apply=sum
      b = f32[{rows},{columns}] broadcast(s), dimensions={{1}}
      ROOT r = f32[{rows},{columns}] subtract(x, b) }}"""
    compiled = hk.compile(hk.parse(text), threads=1)
    x = np.random.default_rng(0).integers(-9, 9, (rows, columns)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x), x - x.sum(0))
    steps = compiled.program.block.steps
    assert len(steps) <= kernels
    assert (steps[-1].loops.order[0].extent != columns) == (kernels > 1)


def test_a_sum_of_functions_goes_by_vectors_although_its_rows_lie_apart() -> None:
    """Rows of ten numbers: what vectors lose by reading them one by one, the function gains many times."""
    module = hk.parse("""HloModule m
add { p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT s = f32[] add(p, q) }
ENTRY e {
  x = f32[500,10] parameter(0)
  w = f32[10] parameter(1)
  d = f32[500] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  v = f32[500] log-plus-one(d)
  z = f32[] constant(0)
  ROOT r = f32[] reduce(v, z), dimensions={0}, to_apply=add
}""")
    executable = hk.compile(module)
    assert "fold add over i in 500 from 0.0 [vectors along i]" in executable.as_text("loops")
    draw = np.random.default_rng(0)
    x, w = draw.random((500, 10), np.float32), draw.random(10, np.float32)
    assert np.allclose(executable(x, w), hk.evaluate(module, x, w), rtol=1e-5)


LEXICOGRAPHIC = """most { p = c64[] parameter(0) q = c64[] parameter(1)
  a = f32[] real(p) b = f32[] real(q) c = f32[] imag(p) d = f32[] imag(q)
  equal = pred[] compare(a, b), direction=EQ further = pred[] compare(c, d), direction=GT
  more = pred[] compare(a, b), direction=GT first = pred[] select(equal, further, more)
  ROOT r = c64[] select(first, p, q) }"""
SUM = "most { p = c64[] parameter(0) q = c64[] parameter(1) ROOT r = c64[] add(p, q) }"


@pytest.mark.parametrize("shape", [(1000,), (9, 100), (50, 8), (50, 3), (100, 40)])
@pytest.mark.parametrize("is_sum", [True, False])
def test_folds_of_complex_numbers_along_rows(is_sum: bool, shape: tuple[int, ...]) -> None:
    """Both parts of an accumulator go by vectors."""
    result = "c64[" + ",".join(map(str, shape[:-1])) + "]"
    sizes, last = ",".join(map(str, shape)), len(shape) - 1
    text = f"""HloModule m
    {SUM if is_sum else LEXICOGRAPHIC}
    ENTRY e {{
      x = c64[{sizes}] parameter(0)
      i = c64[] parameter(1)
      ROOT r = {result} reduce(x, i), dimensions={{{last}}}, to_apply=most
    }}"""
    source = np.random.default_rng(len(shape))
    x = (source.integers(-50, 50, shape) + 1j * source.integers(-50, 50, shape)).astype(np.complex64)
    module, start = hk.parse(text), np.complex64(3 - 2j)
    compiled = hk.compile(module, threads=1)
    np.testing.assert_array_equal(compiled(x, start), hk.evaluate(module, x, start))
    if shape[-1] >= 40:
        assert "vectors along" in compiled.as_text("loops")


def test_cumulative_sums_of_complex_numbers_along_rows() -> None:
    text = f"""HloModule m
    {SUM}
    ENTRY e {{
      x = c64[3,100] parameter(0)
      i = c64[] constant((0, 0))
      ROOT r = c64[3,100] reduce-window(x, i), window={{size=1x100 pad=0_0x99_0}}, to_apply=most
    }}"""
    source = np.random.default_rng(0)
    x = (source.integers(-50, 50, (3, 100)) + 1j * source.integers(-50, 50, (3, 100))).astype(np.complex64)
    np.testing.assert_array_equal(hk.compile(hk.parse(text), threads=1)(x), np.cumsum(x, 1))
