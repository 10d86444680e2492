"""Profiles: every step is there, runs are counted, the trace is one that viewers read."""

import json
import threading
import time
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.lower.steps import KernelStep
from hlokit.errors import HlokitError
from hlokit.runtime import limits as machine_limits
from hlokit.runtime.limits import Limits, limits
from hlokit.runtime.profile import kernel_bytes

LOOP = """HloModule loop
body {
  p = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[32,32] get-tuple-element(p), index=1
  one = s32[] constant(1)
  next = s32[] add(i, one)
  z = f32[32,32] tanh(x)
  y = f32[32,32] dot(z, z), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (s32[], f32[32,32]) tuple(next, y)
}
condition {
  p = (s32[], f32[32,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(10)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[32,32] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[32,32]) tuple(zero, x)
  w = (s32[], f32[32,32]) while(t), condition=condition, body=body
  ROOT r = f32[32,32] get-tuple-element(w), index=1
}
"""
X = np.eye(32, dtype=np.float32)


@pytest.fixture(scope="module")
def profile() -> object:
    return hk.compile(hk.parse(LOOP)).profile(X, repeat=3)


def test_steps_of_loops_are_counted(profile) -> None:
    steps = {step.name: step for step in profile.steps if step.kind != "copy"}
    assert steps["y"].runs == 10 and steps["y"].around == ("w",)
    assert steps["y"].kind == "routine" and steps["y"].flops == 2 * 32**3 and steps["y"].bytes == 2 * 4096
    assert steps["z"].runs == 10 and steps["z"].transcendentals == 1024 and steps["z"].bytes == 2 * 4096
    assert all(step.seconds > 0 for step in steps.values())
    assert steps["y"].flops_per_second == pytest.approx(10 * 2 * 32**3 / steps["y"].seconds)
    assert profile.total > 0 and profile.traced > 0


def test_the_table_shows_the_dearest_first(profile) -> None:
    text = str(profile)
    assert "w > y (routine)" in text and "GB/s" in text and "limits:" in text
    order = [line for line in text.splitlines() if line.strip().startswith("w >")]
    assert len(order) >= 2 and ("y" in order[0] or "z" in order[0])


def test_the_trace_is_what_viewers_read(profile, tmp_path: Path) -> None:
    profile.save(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert sum(event["name"] == "y" for event in spans) == 10
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in spans)
    starts = [event["ts"] for event in spans]
    assert starts == sorted(starts) and starts[0] == 0


def test_results_are_the_programs_own() -> None:
    executable = hk.compile(hk.parse(LOOP))
    before = executable(X)
    executable.profile(X, repeat=1)
    np.testing.assert_array_equal(executable(X), before)


def test_more_events_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hlokit.runtime.profile._EVENTS", 7)
    profile = hk.compile(hk.parse(LOOP)).profile(X, repeat=1)
    assert len(profile.events) == 7 and profile.lost > 0
    assert next(step for step in profile.steps if step.name == "y").runs == 10


def test_steps_of_the_reference_are_timed() -> None:
    text = "ENTRY e {\n x = f32[] parameter(0)\n o = f32[] constant(9)\n ROOT r = f32[4] rng(x, o), distribution=rng_uniform\n}"
    profile = hk.compile(hk.parse(text)).profile(np.float32(0), repeat=1)
    assert [step.kind for step in profile.steps] == ["reference"]


def test_bytes_of_a_part_of_an_array() -> None:
    text = """ENTRY e {
        x = f32[1000] parameter(0)
        i = s32[] parameter(1)
        s = f32[10] dynamic-slice(x, i), dynamic_slice_sizes={10}
        ROOT r = f32[10] negate(s)
    }"""
    program = hk.compile(hk.parse(text)).program
    (step,) = (s for s in program.block.steps if isinstance(s, KernelStep))
    assert kernel_bytes(step) == 40 + 40 + 4


def test_steps_name_the_line_that_they_come_from() -> None:
    """Also what passes write anew, and what a called function computes, whose instructions have no line."""
    text = """HloModule lines
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
before { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = pred[] compare(a, b), direction=LT }
sorted { x = f32[600,600] parameter(0) ROOT s = f32[600,600] sort(x), dimensions={0}, to_apply=before, metadata={op_name="sort"} }
ENTRY e {
  x = f32[600,600] parameter(0)
  zero = f32[] constant(0)
  s = f32[600,600] call(x), to_apply=sorted, metadata={op_name="jit(f)/jit(sort)" source_file="/there/script.py" source_line=3}
  ROOT r = f32[] reduce(s, zero), dimensions={0,1}, to_apply=add, metadata={source_file="/there/script.py" source_line=4}
}"""
    profile = hk.compile(hk.parse(text)).profile(np.ones((600, 600), np.float32), repeat=1)
    sources = [step.source for step in profile.steps]
    assert sources[0] == "/there/script.py:3" and len(sources) > 2
    assert set(sources[1:]) == {"/there/script.py:4"}
    assert "/there/script.py:3" in str(profile)
    assert "line" not in str(hk.compile(hk.parse(LOOP)).profile(X, repeat=1))


def test_repeat_is_checked() -> None:
    with pytest.raises(HlokitError, match="repeat=0"):
        hk.compile(hk.parse(LOOP)).profile(X, repeat=0)


def test_rates_do_not_count_time_before_the_caller_runs_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine the thread that measures may be the last one to run: the rate is no higher for it."""

    class Late(threading.Barrier):
        def wait(self, timeout: float | None = None) -> int:
            number = super().wait(timeout)
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.1)
            return number

    monkeypatch.setattr(threading, "Barrier", Late)
    assert machine_limits._together(lambda number: time.sleep(0.03), 2) >= 0.03


def test_limits_are_measured_once() -> None:
    found = limits()
    assert isinstance(found, Limits) and found.flops > 1e8 and found.memory > 1e7 and found.cached > 1e7
    assert limits() is found


def test_limits_that_a_step_exceeds_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = [Limits(1e9, 2e9, 3e9), Limits(4e9, 1e9, 3e9)]
    monkeypatch.setattr(machine_limits, "limits", cache(lambda: measured[0]))
    monkeypatch.setattr(machine_limits, "_measured", lambda target: measured[1])
    monkeypatch.setattr(machine_limits, "_stored", lambda key, found: found)
    assert machine_limits.limits_for(1.04e9) is measured[0]
    assert machine_limits.limits_for(1.06e9) is measured[1]


def test_packing_before_a_loop_is_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "KEPT_ROWS_OF", {})  # as on CPUs on which packing pays
    text = """HloModule loop
    body { p = (s32[], f32[32,256], f32[256,256]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      x = f32[32,256] get-tuple-element(p), index=1
      w = f32[256,256] get-tuple-element(p), index=2
      one = s32[] constant(1)
      next = s32[] add(i, one)
      y = f32[32,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      ROOT t = (s32[], f32[32,256], f32[256,256]) tuple(next, y, w) }
    condition { p = (s32[], f32[32,256], f32[256,256]) parameter(0)
      i = s32[] get-tuple-element(p), index=0
      n = s32[] constant(10)
      ROOT c = pred[] compare(i, n), direction=LT }
    ENTRY e { x = f32[32,256] parameter(0)
      w = f32[256,256] parameter(1)
      zero = s32[] constant(0)
      t = (s32[], f32[32,256], f32[256,256]) tuple(zero, x, w)
      l = (s32[], f32[32,256], f32[256,256]) while(t), condition=condition, body=body
      ROOT r = f32[32,256] get-tuple-element(l), index=1 }"""
    module = hk.parse(text)
    x, w = np.ones((32, 256), np.float32), np.eye(256, dtype=np.float32)
    profile = hk.compile(module).profile(x, w, repeat=1)
    assert [step.runs for step in profile.steps if step.kind == "packing"] == [1]
    np.testing.assert_array_equal(hk.compile(module, shadow=True)(x, w), x)
