"""The breakpoint on a difference from f64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.debugger.wide import ulps_between
from hlokit.errors import ArgumentError
from tests.golden.programs import BUNDLED, program_names, read_program


def test_ulps() -> None:
    one = np.float32([1, 1, 1])
    assert ulps_between(one, np.float64([1, 1, 1]))[0] == 0
    assert ulps_between(one, np.float64([1, 1 + 2**-23, 1])) == (1, f"[1]: found 1.0, f64 has {1 + 2**-23}")
    assert ulps_between(np.float32([0]), np.float64([2.0**-149]))[0] == 1
    assert ulps_between(np.float32([np.inf, np.nan]), np.float64([1e39, np.nan]))[0] == 0
    assert ulps_between(np.float32([np.inf]), np.float64([1e38]))[0] == np.inf
    assert ulps_between(np.float32([np.nan]), np.float64([1]))[0] == np.inf
    assert ulps_between(np.complex64([1 + 1j]), np.complex128([1 + 1.5j]))[0] == 2**22
    assert ulps_between(np.array([1], ml_dtypes.bfloat16), np.float64([1 + 2**-7]))[0] == 1
    assert ulps_between(np.zeros((0,), np.float32), np.zeros(0)) == (0, "")


def test_cancellation_is_found_where_it_happens() -> None:
    """Every instruction alone rounds as it should: the difference is what the run has gathered."""
    module = hk.parse("""HloModule m
    ENTRY e { x = f32[2] parameter(0) big = f32[] constant(1e6) b = f32[2] broadcast(big), dimensions={}
      sum = f32[2] add(x, b) back = f32[2] subtract(sum, b) ROOT r = f32[2] multiply(back, back) }""")
    d = hk.debug(module, [0.1, 0.25])
    stop = d.run("ulps:1000")
    assert stop.kind == "breakpoint" and stop.evaluated is not None and stop.evaluated.instruction.name == "back"
    assert "ulps from f64 at [0]: found 0.125, f64 has 0.1" in str(stop)
    assert d.run("ulps:1000").kind == "end"
    assert hk.debug(module, [0.25, 0.5]).run("ulps:0.5").kind == "end"


LOOP = """HloModule m
body { s = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 x = f32[] get-tuple-element(s), index=1
  one = s32[] constant(1) n = s32[] add(i, one) tenth = f32[] constant(0.1) more = f32[] add(x, tenth)
  ROOT r = (s32[], f32[]) tuple(n, more) }
cond { s = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(1000)
  ROOT r = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[] parameter(0) z = s32[] constant(0) t = (s32[], f32[]) tuple(z, x)
  w = (s32[], f32[]) while(t), condition=cond, body=body ROOT r = f32[] get-tuple-element(w), index=1 }"""


def test_rounding_is_gathered_through_loops() -> None:
    d = hk.debug(hk.parse(LOOP), 0.0)
    stop = d.run("ulps:50")
    assert stop.evaluated is not None and stop.evaluated.instruction.name == "more"
    passes = d.frames[0].loop.passes  # pyright: ignore[reportOptionalMemberAccess]
    x = [np.float32(0)]
    while abs(float(x[-1]) - (len(x) - 1) * float(np.float32(0.1))) <= 50 * np.spacing(x[-1]):
        x.append(x[-1] + np.float32(0.1))
    assert passes == len(x) - 2 > 100
    assert d.run_back("ulps:50").kind in ("breakpoint", "start")


@pytest.mark.parametrize("name", program_names(BUNDLED)[:8])
def test_recorded_programs_run_beside_f64(name: str) -> None:
    """Nothing but the numbers differs: no instruction is off by 2^23 ulps, which is another number altogether."""
    program = read_program(BUNDLED, name)
    d: Any = hk.debug(hk.parse(program.hlo), *program.inputs)
    d.break_at("ulps:1e30")
    assert d.run().kind == "end"
    wide = d.breakpoints[0].condition.wide
    assert wide._known or not any(i.shape.is_array and i.shape.dtype.is_floating for i in d.module.instructions())


@pytest.mark.parametrize("text", ["ulps:", "ulps:x", "ulps:-1", "ulps:nan", "ulps:1e999"])
def test_conditions_that_are_none(text: str) -> None:
    with pytest.raises(ArgumentError, match="is not ulps:NUMBER"):
        hk.debug(hk.parse(LOOP), 0.0).break_at(text)
