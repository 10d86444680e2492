"""Loops that are done by the product or convolution whose result they read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.epilogue import nodes_of
from hlokit.cpu.lower.steps import RoutineStep
from hlokit.forms.primitives import COSTLY

DOT = "d = f32[{m},{n}] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
BIAS = " bb = f32[{m},{n}] broadcast(b), dimensions={{1}} s = f32[{m},{n}] add(d, bb)"
OPERANDS = "x = f32[{m},{k}] parameter(0) w = f32[{k},{n}] parameter(1) b = f32[{n}] parameter(2) "
SIZES = [(1, 40, 33), (14, 17, 32), (40, 600, 70), (64, 100, 1), (70, 33, 64)]


def compiled(text: str) -> tuple[Any, list[RoutineStep]]:
    """The executable, and the routines that have an epilogue."""
    executable = hk.compile(hk.parse(text), threads=1)
    steps = executable.program.block.steps
    return executable, [s for s in steps if isinstance(s, RoutineStep) and s.epilogue is not None]


def drawn(text: str) -> list[Any]:
    random = np.random.default_rng(1)
    arrays: list[Any] = []
    for shape in hk.parse(text).entry.parameters:
        dtype = shape.shape.dtype.numpy
        values = random.standard_normal(shape.shape.dimensions)
        if dtype.kind == "c":
            values = values + 1j * random.standard_normal(shape.shape.dimensions)
        arrays.append((values * 5).astype(dtype) if dtype.kind == "i" else values.astype(dtype))
    return arrays


def check(text: str, count: int = 1, tolerance: float = 2e-5) -> list[RoutineStep]:
    """Compiles, sees that so many routines have an epilogue, and compares with the reference."""
    executable, fused = compiled(text)
    arrays = drawn(text)
    got, want = executable(*arrays), hk.evaluate(hk.parse(text), *arrays)
    assert len(fused) == count
    for a, b in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        wide = np.complex128 if a.dtype.kind == "c" else np.float64
        assert np.abs(a.astype(wide) - b.astype(wide)).max() <= tolerance * max(1.0, np.abs(b.astype(wide)).max())
    return fused


@pytest.mark.parametrize(("rows", "is_apart"), [(64, True), (8, False)])
def test_a_costly_value_for_all_elements_is_computed_before(rows: int, is_apart: bool) -> None:
    """Once, as a step of its own, and not for each vector; of few elements it is not worth a step."""
    shape = f"f32[{rows},80]"
    text = f"""HloModule m
ENTRY e {{
  x = f32[{rows},30] parameter(0)
  w = f32[30,80] parameter(1)
  number = f32[] parameter(2)
  rate = f32[] constant(0.9)
  power = f32[] power(rate, number)
  scale = f32[] divide(rate, power)
  d = {shape} dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  scales = {shape} broadcast(scale), dimensions={{}}
  ROOT r = {shape} multiply(d, scales)
}}"""
    (step,) = check(text)
    assert step.epilogue is not None
    functions = {node.op for node in nodes_of(step.epilogue.kernel.loops)} & COSTLY
    assert functions == (set() if is_apart else {"pow", "div"})


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_bias_and_activation(m: int, k: int, n: int) -> None:
    text = "HloModule m\nENTRY e {{ " + OPERANDS + DOT + BIAS + " ROOT t = f32[{m},{n}] tanh(s) }}"
    (step,) = check(text.format(m=m, k=k, n=n))
    assert step.epilogue is not None
    assert not step.epilogue.is_kept


@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_several_results_and_the_product_itself(m: int, k: int, n: int) -> None:
    more = (
        " q = f32[{m},{n}] multiply(s, d) h = bf16[{m},{n}] convert(s) p = pred[{m},{n}] compare(d, bb), direction=GT"
    )
    root = " ROOT t = (f32[{m},{n}], f32[{m},{n}], bf16[{m},{n}], pred[{m},{n}]) tuple(d, q, h, p) }}"
    text = ("HloModule m\nENTRY e {{ " + OPERANDS + DOT + BIAS + more + root).format(m=m, k=k, n=n)
    (step,) = check(text, tolerance=1e-2)
    assert step.epilogue is not None
    assert step.epilogue.is_kept


def test_other_products_of_the_sum_are_operands() -> None:
    text = """HloModule m
ENTRY e { x = f32[32,64] parameter(0) w = f32[64,48] parameter(1) h = f32[32,20] parameter(2) v = f32[20,48] parameter(3)
 a = f32[32,48] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[32,48] dot(h, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = f32[32,48] add(a, b) ROOT t = f32[32,48] tanh(s) }"""
    check(text)


@pytest.mark.parametrize("heads", [(2, 64), (8, 16), (4, 32)])
def test_a_transpose_that_leaves_the_last_dimension(heads: tuple[int, int]) -> None:
    h, d = heads
    text = f"""HloModule m
ENTRY e {{ x = f32[12,40] parameter(0) w = f32[40,128] parameter(1)
 a = f32[12,128] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 r = f32[3,4,{h},{d}] reshape(a) n = f32[3,4,{h},{d}] negate(r) ROOT t = f32[3,{h},4,{d}] transpose(n), dimensions={{0,2,1,3}} }}"""
    check(text)


def test_what_is_folded_is_not_fused() -> None:
    text = """HloModule m
add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }
ENTRY e { x = f32[12,40] parameter(0) w = f32[40,128] parameter(1) z = f32[] constant(0)
 a = f32[12,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t = f32[12,128] tanh(a) ROOT r = f32[12] reduce(t, z), dimensions={1}, to_apply=add }"""
    check(text, 0)


def test_a_reader_in_between_gets_the_product() -> None:
    """b needs a, and the loops need both: they go to the second product."""
    text = """HloModule m
ENTRY e { x = f32[32,32] parameter(0) w = f32[32,32] parameter(1)
 a = f32[32,32] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 b = f32[32,32] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT s = f32[32,32] multiply(a, b) }"""
    (step,) = check(text)
    assert step.instructions[0].name == "b"


def test_complex_products() -> None:
    text = """HloModule m
ENTRY e { x = c64[17,33] parameter(0) w = c64[33,19] parameter(1) b = c64[17,19] parameter(2)
 a = c64[17,19] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 s = c64[17,19] multiply(a, b) r = f32[17,19] abs(a) ROOT t = (c64[17,19], f32[17,19]) tuple(s, r) }"""
    check(text)


def test_integers() -> None:
    text = """HloModule m
ENTRY e { x = s8[30,40] parameter(0) w = s8[40,50] parameter(1)
 a = s32[30,50] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 ROOT c = f32[30,50] convert(a) }"""
    check(text)


@pytest.mark.parametrize(("features", "size"), [(48, 14), (17, 9), (3, 4)])
def test_convolutions(features: int, size: int) -> None:
    shape = f"f32[2,{size},{size},{features}]"
    text = f"""HloModule m
ENTRY e {{ x = f32[2,{size},{size},32] parameter(0) w = f32[3,3,32,{features}] parameter(1) b = f32[{features}] parameter(2)
 a = {shape} convolution(x, w), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
 bb = {shape} broadcast(b), dimensions={{3}} s = {shape} add(a, bb) z = f32[] constant(0)
 zz = {shape} broadcast(z), dimensions={{}} ROOT r = {shape} maximum(s, zz) }}"""
    check(text)


def test_a_convolution_whose_features_are_not_last() -> None:
    text = """HloModule m
ENTRY e { x = f32[2,32,15,15] parameter(0) w = f32[48,32,3,3] parameter(1) b = f32[48] parameter(2)
 a = f32[2,48,8,8] convolution(x, w), window={size=3x3 stride=2x2 pad=1_1x1_1}, dim_labels=bf01_oi01->bf01
 bb = f32[2,48,8,8] broadcast(b), dimensions={1} ROOT s = f32[2,48,8,8] add(a, bb) }"""
    check(text)


def test_strict_code_keeps_its_steps() -> None:
    text = """HloModule m
ENTRY e { x = s8[30,40] parameter(0) w = s8[40,50] parameter(1)
 a = s32[30,50] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} ROOT c = f32[30,50] convert(a) }"""
    executable = hk.compile(hk.parse(text), strict=True)
    assert not any(isinstance(s, RoutineStep) and s.epilogue for s in executable.program.block.steps)


def test_in_a_loop() -> None:
    text = """HloModule m
body { s = (s32[], f32[16,32], f32[32,32]) parameter(0) i = s32[] get-tuple-element(s), index=0
 h = f32[16,32] get-tuple-element(s), index=1 w = f32[32,32] get-tuple-element(s), index=2 o = s32[] constant(1)
 j = s32[] add(i, o) d = f32[16,32] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 t = f32[16,32] tanh(d) ROOT r = (s32[], f32[16,32], f32[32,32]) tuple(j, t, w) }
cond { s = (s32[], f32[16,32], f32[32,32]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(5)
 ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[16,32] parameter(0) w = f32[32,32] parameter(1) z = s32[] constant(0)
 s = (s32[], f32[16,32], f32[32,32]) tuple(z, x, w)
 l = (s32[], f32[16,32], f32[32,32]) while(s), condition=cond, body=body ROOT r = f32[16,32] get-tuple-element(l), index=1 }"""
    check(text, 0, tolerance=1e-4)  # five products in a row: each rounds, fused or not


def test_in_place() -> None:
    """w - d in the memory of a donated w; not where the product itself reads w."""
    text = """HloModule m
ENTRY e { x = f32[64,48] parameter(0) y = f32[64,80] parameter(1) w = f32[48,80] parameter(2)
 d = f32[48,80] dot(x, y), lhs_contracting_dims={0}, rhs_contracting_dims={0}
 ROOT s = f32[48,80] subtract(w, d) }"""
    executable = hk.compile(hk.parse(text), threads=1, donate=(2,))
    assert executable.program.assignment.aliases == {0: 2}
    x, y, w = drawn(text)
    want = w - x.T @ y
    np.testing.assert_allclose(executable(x, y, w), want, atol=1e-4)
    text = text.replace("f32[64,48]", "f32[64,64]").replace("[48,80]", "[64,80]").replace("dot(x, y)", "dot(x, w)")
    executable = hk.compile(hk.parse(text), threads=1, donate=(2,))
    assert not executable.program.assignment.aliases
    x, y, w = drawn(text)
    want = w - x.T @ w
    np.testing.assert_allclose(executable(x, y, w), want, atol=1e-4)


def test_a_loop_that_does_not_look_at_the_product_is_none() -> None:
    """A window of one element has nothing to choose from: select-and-scatter needs the product's sizes only."""
    text = (
        "HloModule m\n"
        "choose { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = pred[] compare(a, b), direction=LE }\n"
        "fold { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] multiply(a, b) }\n"
        "ENTRY e { x = f32[4,1] parameter(0) y = f32[1,1] parameter(1) "
        "d = f32[4,1] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0} v = f32[4] reshape(d) "
        "s = f32[3] constant({2, 1.25, 4}) i = f32[] constant(-0.75) "
        "ROOT r = f32[4] select-and-scatter(v, s, i), window={size=1 stride=2 pad=1_1}, select=choose, scatter=fold }"
    )
    check(text, count=0)
