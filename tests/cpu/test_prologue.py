"""Loops that make an operand of a product, done by the product as it reads the operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.lower.steps import KernelStep, RoutineStep
from tests.targets import targets

ROWS = "rhs_contracting_dims={0}"
COLUMNS = "rhs_contracting_dims={1}"
TARGETS = [None, *(text for text in ("x86-64-avx2", "x86-64") if text in targets().values())]


def compiled(text: str, target: str | None = None, threads: int = 2) -> tuple[Any, list[RoutineStep]]:
    """The executable, and the routines that have a prologue."""
    executable = hk.compile(hk.parse(text), threads=threads, **({"target": target} if target else {}))
    steps = executable.program.block.steps
    return executable, [s for s in steps if isinstance(s, RoutineStep) and s.prologue is not None]


def drawn(text: str) -> list[Any]:
    random = np.random.default_rng(1)
    arrays: list[Any] = []
    for parameter in hk.parse(text).entry.parameters:
        dtype, sizes = parameter.shape.dtype, parameter.shape.dimensions
        if dtype.is_integral:
            low, high = (-(1 << dtype.bits - 1), 1 << dtype.bits - 1) if dtype.is_signed else (0, 1 << dtype.bits)
            arrays.append(random.integers(low, high, sizes).astype(dtype.numpy))
        else:
            arrays.append(random.standard_normal(sizes).astype(np.float32).astype(dtype.numpy))
    return arrays


def check(text: str, count: int = 1, target: str | None = None, tolerance: float = 2e-5) -> Any:
    """Compiles, sees that so many routines have a prologue, and compares with the reference."""
    executable, fused = compiled(text, target)
    arrays = drawn(text)
    got, want = (np.asarray(x, np.float64) for x in (executable(*arrays), hk.evaluate(hk.parse(text), *arrays)))
    assert len(fused) == count, executable.as_text("loops")
    assert np.abs(got - want).max() <= tolerance * max(1.0, np.abs(want).max())
    return executable


def converted(m: int, k: int, n: int, kind: str, dims: str = ROWS) -> str:
    """x times a matrix that is converted from this type."""
    w = f"{k},{n}" if dims == ROWS else f"{n},{k}"
    return f"""HloModule m
ENTRY e {{ x = f32[{m},{k}] parameter(0) w = {kind}[{w}] parameter(1) c = f32[{w}] convert(w)
 ROOT d = f32[{m},{n}] dot(x, c), lhs_contracting_dims={{1}}, {dims} }}"""


def scaled(m: int, k: int, n: int, dims: str = ROWS) -> str:
    """The same of bytes with a scale for each column."""
    w, column = (f"{k},{n}", 1) if dims == ROWS else (f"{n},{k}", 0)
    return f"""HloModule m
ENTRY e {{ x = f32[{m},{k}] parameter(0) w = s8[{w}] parameter(1) s = f32[{n}] parameter(2) c = f32[{w}] convert(w)
 b = f32[{w}] broadcast(s), dimensions={{{column}}} f = f32[{w}] multiply(c, b)
 ROOT d = f32[{m},{n}] dot(x, f), lhs_contracting_dims={{1}}, {dims} }}"""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dims", [ROWS, COLUMNS])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 300, 133), (3, 77, 40), (8, 100, 200), (20, 70, 90)])
def test_converted_bytes_are_read_by_the_product(m: int, k: int, n: int, dims: str, target: str | None) -> None:
    check(converted(m, k, n, "s8", dims), target=target)
    check(scaled(m, k, n, dims), target=target)


@pytest.mark.parametrize("kind", ["u8", "s4", "u4", "f16", "f8e4m3fn", "s16", "pred"])
def test_types(kind: str) -> None:
    check(converted(2, 65, 70, kind), target=None)
    check(converted(2, 65, 70, kind, COLUMNS), target=None)


def test_a_scale_for_each_group_of_steps() -> None:
    for size, dims in ((16, "{0,1}"), (64, "{0,1}")):
        groups = 256 // size
        check(f"""HloModule m
ENTRY e {{ x = f32[1,256] parameter(0) w = s8[{groups},{size},48] parameter(1) s = f32[{groups},48] parameter(2)
 c = f32[{groups},{size},48] convert(w) b = f32[{groups},{size},48] broadcast(s), dimensions={{0,2}}
 f = f32[{groups},{size},48] multiply(c, b) r = f32[256,48] reshape(f)
 ROOT d = f32[1,48] dot(x, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
        check(f"""HloModule m
ENTRY e {{ x = f32[3,256] parameter(0) w = s8[48,{groups},{size}] parameter(1) s = f32[48,{groups}] parameter(2)
 c = f32[48,{groups},{size}] convert(w) b = f32[48,{groups},{size}] broadcast(s), dimensions={dims}
 f = f32[48,{groups},{size}] multiply(c, b) r = f32[48,256] reshape(f)
 ROOT d = f32[3,48] dot(x, r), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}} }}""")


def test_short_groups_along_the_columns() -> None:
    """Vectors would lie in several groups of 5: the product says so, and the matrix is made before."""
    text = """HloModule m
ENTRY e { x = f32[2,64] parameter(0) w = s8[64,10,5] parameter(1) s = f32[64,10] parameter(2)
 c = f32[64,10,5] convert(w) b = f32[64,10,5] broadcast(s), dimensions={0,1} f = f32[64,10,5] multiply(c, b)
 r = f32[64,50] reshape(f) ROOT d = f32[2,50] dot(x, r), lhs_contracting_dims={1}, rhs_contracting_dims={0} }"""
    check(text, 0)


def test_a_batch_of_matrices_and_the_matrix_first() -> None:
    check("""HloModule m
ENTRY e { x = f32[5,2,40] parameter(0) w = s8[5,40,70] parameter(1) c = f32[5,40,70] convert(w)
 ROOT d = f32[5,2,70] dot(x, c), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}, rhs_contracting_dims={1} }""")
    for contracted in (0, 1):
        x, n = ("70", 40) if contracted else ("40", 70)
        check(f"""HloModule m
ENTRY e {{ w = s8[40,70] parameter(0) x = f32[{x}] parameter(1) c = f32[40,70] convert(w)
 ROOT d = f32[{n}] dot(c, x), lhs_contracting_dims={{{contracted}}}, rhs_contracting_dims={{0}} }}""")


def test_a_prologue_and_an_epilogue() -> None:
    text = """HloModule m
ENTRY e { x = f32[1,40] parameter(0) w = s8[40,70] parameter(1) s = f32[70] parameter(2) c = f32[40,70] convert(w)
 d = f32[1,70] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[1,70] broadcast(s), dimensions={1} f = f32[1,70] multiply(d, b) ROOT t = f32[1,70] tanh(f) }"""
    executable = check(text)
    (step,) = executable.program.block.steps
    assert step.epilogue is not None
    listing = executable.as_text("loops")
    assert "for each element of operand 1:" in listing
    assert "for each element of its result:" in listing


def test_bf16_from_bytes() -> None:
    check("""HloModule m
ENTRY e { x = bf16[2,40] parameter(0) w = s8[40,70] parameter(1) c = bf16[40,70] convert(w)
 ROOT d = f32[2,70] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0} }""")


def test_what_others_read_or_is_a_result_is_stored() -> None:
    body = """x = f32[2,40] parameter(0) w = s8[40,70] parameter(1) c = f32[40,70] convert(w)
 d = f32[2,70] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    for more in (
        "ROOT t = (f32[2,70], f32[40,70]) tuple(d, c)",
        """y = f32[3,40] parameter(2) e = f32[3,70] dot(y, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT t = (f32[2,70], f32[3,70]) tuple(d, e)""",
    ):
        _, fused = compiled(f"HloModule m\nENTRY e {{ {body} {more} }}")
        assert not fused


def test_what_takes_more_memory_or_much_work_is_stored() -> None:
    for made in (
        "v = f32[40,70] parameter(2) c = f32[40,70] add(w, v)",
        "v = s8[40,70] parameter(2) f = f32[40,70] convert(v) c = f32[40,70] cosine(f)",
    ):
        text = f"""HloModule m
ENTRY e {{ x = f32[2,40] parameter(0) w = f32[40,70] parameter(1) {made}
 ROOT d = f32[2,70] dot(x, c), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"""
        check(text, 0)


def test_a_matrix_that_is_packed_again_and_again_is_converted_once() -> None:
    executable, fused = compiled(converted(3000, 64, 300, "s8"))
    assert not fused
    assert any(isinstance(step, KernelStep) for step in executable.program.block.steps)


def test_an_array_that_is_updated_between_is_converted_before() -> None:
    """The update of w, which is donated, is in place: the product must see what was there before."""
    text = """HloModule m
ENTRY e { w = s8[40,70] parameter(0) x = f32[2,40] parameter(1) z = s32[] constant(0) o = s8[1,70] constant({...})
 c = f32[40,70] convert(w) u = s8[40,70] dynamic-update-slice(w, o, z, z)
 d = f32[2,70] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT t = (s8[40,70], f32[2,70]) tuple(u, d) }""".replace("{...}", "{ {" + ",".join(["9"] * 70) + "} }")
    w, x = drawn(text)
    want = x @ w.astype(np.float32)
    updated, got = hk.compile(hk.parse(text), donate=(0,))(w.copy(), x)
    np.testing.assert_allclose(got, want, 1e-4, 1e-2)
    assert (np.asarray(updated)[0] == 9).all()


def test_the_bits_do_not_depend_on_the_number_of_threads() -> None:
    for text in (scaled(1, 900, 900), scaled(2, 900, 900, COLUMNS), converted(8, 2000, 600, "s8")):
        arrays = drawn(text)
        one, three = (np.asarray(compiled(text, threads=n)[0](*arrays)).tobytes() for n in (1, 3))
        assert one == three


def test_strict_code_converts_first() -> None:
    text = scaled(1, 60, 70)
    executable = hk.compile(hk.parse(text), strict=True)
    arrays = drawn(text)
    assert not any(isinstance(s, RoutineStep) and s.prologue for s in executable.program.block.steps)
    assert np.asarray(executable(*arrays)).tobytes() == np.asarray(hk.evaluate(hk.parse(text), *arrays)).tobytes()


def test_shadow_mode_checks_both_together() -> None:
    text = scaled(2, 60, 70)
    checked = hk.compile(hk.parse(text), shadow=True)
    arrays = drawn(text)
    np.testing.assert_array_equal(checked(*arrays), compiled(text)[0](*arrays))


def test_a_product_in_a_loop() -> None:
    text = """HloModule m
body { p = (s32[], f32[1,64], s8[64,64]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1)
 x = f32[1,64] get-tuple-element(p), index=1 w = s8[64,64] get-tuple-element(p), index=2 c = f32[64,64] convert(w)
 d = f32[1,64] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0} t = f32[1,64] tanh(d)
 n = s32[] add(i, one) ROOT r = (s32[], f32[1,64], s8[64,64]) tuple(n, t, w) }
condition { p = (s32[], f32[1,64], s8[64,64]) parameter(0) i = s32[] get-tuple-element(p), index=0
 k = s32[] constant(5) ROOT l = pred[] compare(i, k), direction=LT }
ENTRY e { x = f32[1,64] parameter(0) w = s8[64,64] parameter(1) z = s32[] constant(0)
 s = (s32[], f32[1,64], s8[64,64]) tuple(z, x, w)
 l = (s32[], f32[1,64], s8[64,64]) while(s), condition=condition, body=body ROOT y = f32[1,64] get-tuple-element(l), index=1 }"""
    arrays = drawn(text)
    got = np.asarray(hk.compile(hk.parse(text))(*arrays))
    np.testing.assert_allclose(got, hk.evaluate(hk.parse(text), *arrays), 1e-4, 1e-4)


@pytest.mark.parametrize("size", [2, 3, 8, 20])
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16"])
def test_one_row_by_one_column_that_is_made(dtype: str, size: int) -> None:
    """Neither side has a free index: no vector is read along it (a GMRES of one unknown, in JAX's tests)."""
    module = hk.parse(f"""HloModule m ENTRY e {{ x = {dtype}[1,{size}] parameter(0)  s = {dtype}[] parameter(1)
      i = {dtype}[{size}] iota(), iota_dimension=0  b = {dtype}[{size}] broadcast(s), dimensions={{}}
      y = {dtype}[{size}] add(i, b)
      ROOT d = {dtype}[1] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    numpy = module.entry.root.shape.dtype.numpy
    x, s = np.arange(size, dtype=np.float32).reshape(1, size).astype(numpy), np.asarray(0.5, numpy)
    assert np.asarray(hk.compile(module)(x, s)).tolist() == hk.evaluate(module, x, s).tolist()
