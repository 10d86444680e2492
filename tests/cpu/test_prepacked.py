"""Operands that stay the same in a loop are packed before it."""

from __future__ import annotations

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.lower.steps import PackStep, Step, WhileStep


@pytest.fixture(autouse=True)
def packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on CPUs on which packing pays."""
    monkeypatch.setattr(costs, "KEPT_ROWS_OF", {})


LOOP = """HloModule m
cond {{ s = ({state}) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(4)
 ROOT c = pred[] compare(i, n), direction=LT }}
body {{ s = ({state}) parameter(0) i = s32[] get-tuple-element(s), index=0
 h = {h} get-tuple-element(s), index=1 w = {w} get-tuple-element(s), index=2 o = s32[] constant(1)
 j = s32[] add(i, o) {step} ROOT r = ({state}) tuple(j, t, {next}) }}
ENTRY e {{ x = {h} parameter(0) w = {w} parameter(1) z = s32[] constant(0)
 s = ({state}) tuple(z, x, w)
 l = ({state}) while(s), condition=cond, body=body ROOT r = {h} get-tuple-element(l), index=1 }}"""


def run(h: str, w: str, step: str, following: str = "w") -> list[Step]:
    """Compiles a loop of four passes, compares it with the reference; gives the packs before the loop."""
    text = LOOP.format(state=f"s32[], {h}, {w}", h=h, w=w, step=step, next=following)
    module = hk.parse(text)
    executable = hk.compile(module, threads=1)
    random = np.random.default_rng(0)
    arrays = [0.1 * random.standard_normal(p.shape.dimensions).astype(np.float32) for p in module.entry.parameters]
    want = hk.evaluate(module, *arrays)
    np.testing.assert_allclose(executable(*arrays), want, atol=1e-5 * np.abs(want).max(), rtol=0)
    steps = executable.program.block.steps
    assert any(isinstance(s, WhileStep) for s in steps)
    return [s for s in steps if isinstance(s, PackStep)]


@pytest.mark.parametrize(("m", "n"), [(32, 256), (40, 130), (33, 1030)])
def test_weights_are_packed_once(m: int, n: int) -> None:
    step = f"t = f32[{m},{n}] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}"
    (pack,) = run(f"f32[{m},{n}]", f"f32[{n},{n}]", step)
    assert pack.instructions[0].name == "t"


def test_with_an_epilogue() -> None:
    step = """d = f32[32,256] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0} a = f32[32,256] tanh(d)
 t = f32[32,256] add(a, h)"""
    assert len(run("f32[32,256]", "f32[256,256]", step)) == 1


def test_weights_the_other_way_round() -> None:
    step = "t = f32[40,600] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}"
    assert len(run("f32[40,600]", "f32[600,600]", step)) == 1


def test_the_first_operand_may_be_packed() -> None:
    step = "t = f32[600] dot(w, h), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    assert len(run("f32[600]", "f32[600,600]", step)) <= 1


def test_what_changes_is_not_hoisted() -> None:
    step = """t = f32[32,256] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
 v = f32[256,256] negate(w)"""
    assert not run("f32[32,256]", "f32[256,256]", step, "v")
