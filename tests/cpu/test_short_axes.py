"""Short axes: written out where their steps share work, stored side by side; folds that need other loops."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.loops.substitution import nodes_of
from hlokit.cpu.lower.steps import KernelStep

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


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "u8"])
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8])
@pytest.mark.parametrize("rows", [31, 100])
def test_rows_of_few_and_one_row(dtype: str, count: int, rows: int) -> None:
    """Read with a stride and stored side by side, also where rows are a part of longer ones."""
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{rows},{count + 2}] parameter(0)
  y = {dtype}[{count}] parameter(1)
  s = {dtype}[{rows},{count}] slice(x), slice={{[0:{rows}],[1:{count + 1}]}}
  b = {dtype}[{rows},{count}] broadcast(y), dimensions={{1}}
  ROOT r = {dtype}[{rows},{count}] add(s, b)
}}"""
    module = hk.parse(text)
    numpy = module.entry.root.shape.dtype.numpy
    rng = np.random.default_rng(0)
    x, y = ((rng.normal(size=size) * 20).astype(np.float32).astype(numpy) for size in ((rows, count + 2), (count,)))
    np.testing.assert_array_equal(hk.compile(module, threads=1)(x, y), x[:, 1:-1] + y)


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


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32"])
@pytest.mark.parametrize(
    ("shapes", "numbers", "subscripts"),
    [
        (((70, 4, 3), (70, 3)), "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}", "bij,bj->bi"),
        (((3, 70), (4, 3, 70)), "lhs_batch_dims={1}, rhs_batch_dims={2}, lhs_contracting_dims={0}, rhs_contracting_dims={1}", "jb,ijb->bi"),
        (((90, 3), (3, 2)), "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "ij,jk->ik"),
        (((3, 2), (90, 3)), "lhs_contracting_dims={0}, rhs_contracting_dims={1}", "jk,ij->ki"),
        (((2, 100, 3), (3, 2)), "lhs_contracting_dims={2,0}, rhs_contracting_dims={0,1}", "kij,jk->i"),
        (((65, 2, 2), (65, 2, 2)), "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}", "bij,bjk->bik"),
        (((70, 5), (70, 6)), "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}", "bi,bj->bij"),
        (((5, 70), (70, 6)), "lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={}, rhs_contracting_dims={}", "ib,bj->bij"),
        (((70, 1), (1, 66)), "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "ik,kj->ij"),
        (((70,), (3, 66)), "lhs_contracting_dims={}, rhs_contracting_dims={}", "i,jk->ijk"),
    ],
)  # fmt: skip
def test_sums_of_few_products(dtype: str, shapes: tuple[tuple[int, ...], ...], numbers: str, subscripts: str) -> None:
    rng = np.random.default_rng(0)
    numpy = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[dtype]
    x, y = ((rng.normal(size=shape) * 5).astype(numpy) for shape in shapes)
    want = np.einsum(subscripts, x, y)
    kinds = [f"{dtype}[{','.join(map(str, a.shape))}]" for a in (x, y, want)]
    text = f"HloModule m\nENTRY e {{\n  x = {kinds[0]} parameter(0)\n  y = {kinds[1]} parameter(1)\n"
    compiled = hk.compile(hk.parse(f"{text}  ROOT r = {kinds[2]} dot(x, y), {numbers}\n}}"), threads=1)
    np.testing.assert_allclose(compiled(x, y), want, rtol=1e-5, atol=1e-5)
    assert len(kernels(compiled)) == len(compiled.program.block.steps) == 1


@pytest.mark.parametrize("dtype", ["f32", "f64", "s32"])
@pytest.mark.parametrize(
    ("shapes", "numbers", "subscripts"),
    [
        (((70, 50), (50, 70)), "lhs_contracting_dims={0,1}, rhs_contracting_dims={1,0}", "ij,ji->"),
        (((70, 50), (50, 70)), "lhs_batch_dims={0}, rhs_batch_dims={1}, lhs_contracting_dims={1}, rhs_contracting_dims={0}", "ij,ji->i"),
        (((70, 50), (70, 50)), "lhs_batch_dims={1}, rhs_batch_dims={1}, lhs_contracting_dims={0}, rhs_contracting_dims={0}", "ij,ij->j"),
        (((9, 20, 33), (9, 33, 20)), "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2,1}, rhs_contracting_dims={1,2}", "bij,bji->b"),
        (((9, 20, 33), (20, 9, 33)), "lhs_batch_dims={1}, rhs_batch_dims={0}, lhs_contracting_dims={0,2}, rhs_contracting_dims={1,2}", "ijk,jik->j"),
        (((9, 20, 33), (33, 20, 9)), "lhs_contracting_dims={0,1,2}, rhs_contracting_dims={2,1,0}", "ijk,kji->"),
        (((9, 20, 33), (9, 20, 33)), "lhs_batch_dims={1,0}, rhs_batch_dims={1,0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}", "ijk,ijk->ji"),
    ],
)  # fmt: skip
def test_sums_of_scattered_products(
    dtype: str, shapes: tuple[tuple[int, ...], ...], numbers: str, subscripts: str
) -> None:
    rng = np.random.default_rng(0)
    numpy = {"f32": np.float32, "f64": np.float64, "s32": np.int32}[dtype]
    x, y = ((rng.normal(size=shape) * 5).astype(numpy) for shape in shapes)
    want = np.einsum(subscripts, x.astype(np.float64), y.astype(np.float64)).astype(numpy)
    kinds = [f"{dtype}[{','.join(map(str, a.shape))}]" for a in (x, y, want)]
    text = f"HloModule m\nENTRY e {{\n  x = {kinds[0]} parameter(0)\n  y = {kinds[1]} parameter(1)\n"
    compiled = hk.compile(hk.parse(f"{text}  ROOT r = {kinds[2]} dot(x, y), {numbers}\n}}"))
    sizes = np.einsum(subscripts, np.abs(x.astype(np.float64)), np.abs(y.astype(np.float64)))
    rounding = {"f32": 1e-6, "f64": 1e-14, "s32": 0}[dtype]
    assert (np.abs(compiled(x, y).astype(np.float64) - want) <= rounding * sizes).all()


def test_outer_products_keep_what_is_special() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5, -2.0, 1e30, -1e30], np.float32)
    module = hk.parse("""HloModule m
ENTRY e {
  x = f32[9] parameter(0)
  y = f32[9] parameter(1)
  ROOT r = f32[9,9] dot(x, y), lhs_contracting_dims={}, rhs_contracting_dims={}
}""")
    compiled, want = hk.compile(module, threads=1), hk.evaluate(module, special, special)
    got = compiled(special, special)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))
    assert len(kernels(compiled)) == len(compiled.program.block.steps) == 1


@pytest.mark.parametrize("side", [0, 1])
def test_a_product_is_made_in_the_order_in_which_it_is_read(side: int) -> None:
    z = "f32[13,20,11] parameter(2)"
    w = "f32[30,11,13] dot(y, x), lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={2}"
    dot = "dot(w, z), lhs_contracting_dims={2,1}, rhs_contracting_dims={0,2}"
    shape = "f32[30,20]"
    if side:
        dot, shape = "dot(z, w), lhs_contracting_dims={0,2}, rhs_contracting_dims={2,1}", "f32[20,30]"
    text = f"""HloModule m
ENTRY e {{
  x = f32[30,13,17] parameter(0)
  y = f32[30,11,17] parameter(1)
  z = {z}
  w = {w}
  ROOT r = {shape} {dot}
}}"""
    module = hk.parse(text)
    rng = np.random.default_rng(0)
    x, y, z = (rng.normal(size=s).astype(np.float32) for s in ((30, 13, 17), (30, 11, 17), (13, 20, 11)))
    want = np.einsum("bik,ioj,bjk->bo", x, z, y)
    compiled = hk.compile(module, threads=1)
    np.testing.assert_allclose(compiled(x, y, z), want.T if side else want, rtol=1e-4, atol=1e-4)
    assert "[30,13,11]" in compiled.as_text("hlo") and "[30,11,13]" not in compiled.as_text("hlo")


@pytest.mark.parametrize("columns", [2, 4])
def test_a_product_with_few_columns_keeps_its_epilogue(columns: int) -> None:
    text = f"""HloModule m
ENTRY e {{
  x = f32[100,40] parameter(0)
  y = f32[40,{columns}] parameter(1)
  b = f32[{columns}] parameter(2)
  d = f32[100,{columns}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  w = f32[100,{columns}] broadcast(b), dimensions={{1}}
  ROOT r = f32[100,{columns}] add(d, w)
}}"""
    compiled = hk.compile(hk.parse(text), threads=1)
    rng = np.random.default_rng(0)
    x, y, b = (rng.normal(size=size).astype(np.float32) for size in ((100, 40), (40, columns), (columns,)))
    np.testing.assert_allclose(compiled(x, y, b), x @ y + b, rtol=1e-4, atol=1e-4)
    assert len(compiled.program.block.steps) == 1


@pytest.mark.parametrize("dtype", ["f32", "f64", "c64"])
def test_long_sums_go_by_parts(dtype: str) -> None:
    """Equal bits for any number of threads; what follows the product is done once."""
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[512,400,7] parameter(0)
  y = {dtype}[512,400,5] parameter(1)
  d = {dtype}[7,5] dot(x, y), lhs_contracting_dims={{0,1}}, rhs_contracting_dims={{0,1}}
  ROOT r = {dtype}[7,5] add(d, d)
}}
"""
    module = hk.parse(text)
    draw = np.random.default_rng(0)
    x, y = (draw.normal(size=p.shape.dimensions).astype(p.shape.dtype.numpy) for p in module.entry.parameters)
    one, two = (hk.compile(module, threads=threads)(x, y) for threads in (1, 2))
    assert one.tobytes() == two.tobytes()
    wide = np.complex128 if dtype == "c64" else np.float64
    want = 2 * np.tensordot(x.astype(wide), y.astype(wide), ([0, 1], [0, 1]))
    np.testing.assert_allclose(one, want, rtol=0, atol=1e-10 if dtype == "f64" else 5e-3)
    (product,) = [i for i in hk.compile(module).program.module.entry.instructions if i.opcode == "dot"]
    assert product.shape.dimensions == (16, 7, 5)


@pytest.mark.parametrize("columns, is_written_out", [(8, True), (9, False), (32, False)])
def test_short_rows_of_an_array_are_folded_by_a_loop(columns: int, is_written_out: bool) -> None:
    """Lanes far apart would be gathered at each step; a loop over each row reads it as it lies."""
    text = f"""HloModule m
    sum {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
    ENTRY e {{ x = f32[300,{columns}] parameter(0) zero = f32[] constant(0)
      ROOT r = f32[300] reduce(x, zero), dimensions={{1}}, to_apply=sum }}"""
    compiled = hk.compile(hk.parse(text))
    assert ("fold add" not in compiled.as_text("loops")) is is_written_out
    x = np.random.default_rng(columns).integers(-9, 9, (300, columns)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x), x.sum(1))


def test_short_folds_of_what_is_read_again_and_again_are_written_out() -> None:
    """The distances of all pairs: lanes are gathered once for all rows."""
    text = FORCES.replace("DIM", "16").replace("ROOT t", "t").replace("r = f32[50,50] reduce", "ROOT r = f32[50,50] reduce")
    compiled = hk.compile(hk.parse(text))
    assert "fold add" not in compiled.as_text("loops")
    x = np.random.default_rng(0).integers(-9, 9, (50, 16)).astype(np.float32)
    np.testing.assert_array_equal(compiled(x), ((x[:, None] - x[None]) ** 2).sum(-1))


@pytest.mark.parametrize("is_nested", [False, True])
def test_folds_over_concatenated_polynomials_are_written_out(is_nested: bool) -> None:
    """Each of seven steps computes its own polynomial, and not all of them: the weights of a Runge-Kutta method."""
    b = hk.Builder("weighted")
    x, weights = b.parameter(0, hk.f32[32]), b.parameter(1, hk.f32[7, 32])
    rows = [x * (0.5 + k) * (x - float(k)) * (x * x - 1.0) * (x + 0.25) for k in range(7)]
    parts = [hk.reshape(row, [1, 32]) for row in rows]
    if is_nested:
        parts = [hk.concatenate(parts[:3], 0), hk.concatenate(parts[3:], 0)]
    module = b.build(hk.reduce(hk.concatenate(parts, 0) * weights, b.constant(0.0), hk.add, [0]))
    compiled = hk.compile(module)
    assert "fold add" not in compiled.as_text("loops")
    draw = np.random.default_rng(0)
    given = draw.normal(size=32).astype(np.float32), draw.normal(size=(7, 32)).astype(np.float32)
    np.testing.assert_allclose(compiled(*given), hk.evaluate(module, *given), rtol=1e-4, atol=1e-4)


def test_the_one_column_of_a_short_concatenation_is_stored_first() -> None:
    """What a scan over words appends to the 15 that it keeps: scalars would make it row by row."""
    b = hk.Builder("appended")
    words = b.parameter(0, hk.u32[1000, 16])
    first, last = (hk.slice_in_dim(words, k, k + 1, 1, 1) for k in (0, 14))
    mixed = hk.xor(hk.shift_right_logical(first, b.constant(3, hk.u32)), hk.shift_left(last, b.constant(7, hk.u32)))
    new = mixed * 5 + hk.xor(first, last) * 3 + hk.and_(first, last)
    for k in range(6):
        new = hk.xor(new * (k + 2), hk.shift_right_logical(new, b.constant(k, hk.u32)))
    module = b.build(hk.concatenate([hk.slice_in_dim(words, 1, 16, 1, 1), new], 1))
    compiled = hk.compile(module)
    assert any("for each of 1000 rows" in why for _, _, why in compiled.reasons), compiled.reasons
    x = np.random.default_rng(0).integers(0, 2**32, (1000, 16), np.uint32)
    np.testing.assert_array_equal(compiled(x), hk.evaluate(module, x))


def test_stacked_products_go_by_vectors_along_what_they_are_stored_beside() -> None:
    """Six products of a row's number are stored side by side: not by vectors along the outer axis."""
    b = hk.Builder("stacked")
    w, x = b.parameter(0, hk.f32[48, 400]), b.parameter(1, hk.f32[400, 6])
    wide = hk.broadcast_in_dim(hk.exp(w), [48, 400, 6], [0, 1])
    module = b.build(wide * hk.broadcast_in_dim(x, [48, 400, 6], [1, 2]))
    compiled = hk.compile(module)
    (loops,) = kernels(compiled)
    assert loops.vector is not None and loops.vector.extent == 400 and loops.tile is None
    draw = np.random.default_rng(0)
    given = draw.random((48, 400), np.float32), draw.random((400, 6), np.float32)
    np.testing.assert_allclose(compiled(*given), hk.evaluate(module, *given), rtol=1e-5)


def test_a_fold_in_a_fold_that_is_the_same_in_an_outer_loop_is_stored_first() -> None:
    """Sums over l of products with sums over k of what i does not name: these are computed once for all i."""
    b = hk.Builder("nested")
    x, y = b.parameter(0, hk.s32[500, 32]), b.parameter(1, hk.s32[32, 48])
    terms = b.iota(hk.s32[32, 48], 1)
    for k in range(5):
        terms = hk.xor(y * k + terms, terms * 3)
    inner = hk.reduce(terms, b.constant(0), hk.xor, [1])
    both = hk.and_(x, hk.broadcast_in_dim(inner, [500, 32], [1]))
    module = b.build(hk.reduce(both, b.constant(0), hk.xor, [1]))
    compiled = hk.compile(module)
    assert any("it is the same in" in why for _, _, why in compiled.reasons), compiled.reasons
    draw = np.random.default_rng(0)
    given = draw.integers(0, 999, (500, 32), np.int32), draw.integers(0, 999, (32, 48), np.int32)
    np.testing.assert_array_equal(compiled(*given), hk.evaluate(module, *given))


def test_transforms_of_halves_compile_in_kernels_of_bounded_size() -> None:
    """Each of eleven concatenations of halves would double what the kernel of the last one computes."""
    b = hk.Builder("subsets")
    z = b.parameter(0, hk.s32[2048])
    for k in range(11):
        z = hk.reshape(z, [2048 >> k + 1, 2, 1 << k])
        low, high = (hk.slice_in_dim(z, n, n + 1, 1, 1) for n in (0, 1))
        z = hk.reshape(hk.concatenate([low, high + low], 1), [2048])
    module = b.build(z)
    compiled = hk.compile(module)
    assert len(compiled.as_text("llvm")) < 500_000
    x = np.random.default_rng(0).integers(-50, 50, 2048).astype(np.int32)
    np.testing.assert_array_equal(compiled(x), hk.evaluate(module, x))


def test_steps_that_are_written_out_share_gathered_places() -> None:
    """The sum and the difference of two elements that an array of indices picks: each index is read once."""
    text = """HloModule m
ENTRY e {
  x = f32[1000] parameter(0)
  i = s32[400,1] parameter(1)
  g = f32[400] gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1}
  p = f32[200,2] reshape(g)
  a = f32[200,1] slice(p), slice={[0:200],[0:1]}
  b = f32[200,1] slice(p), slice={[0:200],[1:2]}
  s = f32[200,1] add(a, b)
  d = f32[200,1] subtract(a, b)
  ROOT r = f32[200,2] concatenate(s, d), dimensions={1}
}
"""
    compiled = hk.compile(hk.parse(text), threads=1)
    rng = np.random.default_rng(0)
    x, i = rng.normal(size=1000).astype(np.float32), rng.integers(0, 1000, (400, 1)).astype(np.int32)
    a, b = x[i[:, 0]].reshape(200, 2).T
    np.testing.assert_array_equal(compiled(x, i), np.stack([a + b, a - b], -1))
    (loops,) = kernels(compiled)
    buffers = [node.data[0].name for node in nodes_of(loops.stores) if node.op == "load"]
    assert len(loops.stores) == 2 and len(buffers) == 4, "two indices, two elements"


BESIDE = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[300,200] parameter(0)
  w = f32[COUNT,200] parameter(1)
  zero = f32[] constant(0)
  xb = f32[300,COUNT,200] broadcast(x), dimensions={0,2}
  wb = f32[300,COUNT,200] broadcast(w), dimensions={1,2}
  m = f32[300,COUNT,200] multiply(xb, wb)
  s = f32[300,COUNT] reduce(m, zero), dimensions={2}, to_apply=sum
  ROOT r = f32[300,TOTAL] concatenate(x, s), dimensions={1}
}
"""


@pytest.mark.parametrize("count", [1, 3, 20, 250])
def test_folds_beside_an_array_are_computed_where_they_are(count: int) -> None:
    """Of a concatenation's operands a fold is made once for each element of its own, not for those of the others."""
    compiled = hk.compile(hk.parse(BESIDE.replace("COUNT", str(count)).replace("TOTAL", str(200 + count))), threads=1)
    rng = np.random.default_rng(count)
    x, w = rng.normal(size=(300, 200)).astype(np.float32), rng.normal(size=(count, 200)).astype(np.float32)
    want = np.concatenate([x, x.astype(np.float64) @ w.T.astype(np.float64)], 1)
    np.testing.assert_allclose(compiled(x, w), want, rtol=1e-4, atol=1e-4)
    folds = [(node, loops) for loops in kernels(compiled) for node in nodes_of(loops.stores) if node.op == "fold"]
    places = [prod(axis.extent for axis in loops.order if axis.bit & fold.deps) for fold, loops in folds]
    assert sum(places) == 300 * count


def test_a_fold_for_one_place_does_not_depend_on_where_it_is() -> None:
    """What is read where a test of another axis holds is read without the test: the sum is made once."""
    text = """HloModule m
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[60,70] parameter(0)
  zero = f32[] constant(0)
  p = f32[90,100] pad(x, zero), padding=-5_35x-7_37
  s = f32[] reduce(p, zero), dimensions={0,1}, to_apply=sum
  o = f32[1,1] reshape(s)
  q = f32[60,70] pad(o, zero), padding=3_56x5_64
  ROOT r = f32[60,70] add(x, q)
}
"""
    compiled = hk.compile(hk.parse(text), threads=1)
    x = np.random.default_rng(3).normal(size=(60, 70)).astype(np.float32)
    want = x.astype(np.float64)
    want[3, 5] += x[5:, 7:].sum(dtype=np.float64)
    np.testing.assert_allclose(compiled(x), want, rtol=1e-4, atol=1e-4)
    for loops in kernels(compiled):
        assert not any(node.deps for node in nodes_of(loops.stores) if node.op == "fold")
