"""Runs that show how far rounding may bring a result: how many there are, and where their loops end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness import spread
from hlokit.judge.closeness.spread import Spread

ROOTS = """HloModule roots
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
body {
  s = (s32[], f32[60], f32[60], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[60] get-tuple-element(s), index=1
  x = f32[60] get-tuple-element(s), index=2
  one = s32[] constant(1)
  next = s32[] add(i, one)
  q = f32[60] divide(a, x)
  t = f32[60] add(x, q)
  half = f32[] constant(0.5)
  halves = f32[60] broadcast(half), dimensions={}
  y = f32[60] multiply(t, halves)
  d = f32[60] subtract(y, x)
  r = f32[60] divide(d, y)
  e = f32[60] abs(r)
  zero = f32[] constant(0)
  step = f32[] reduce(e, zero), dimensions={0}, to_apply=most
  ROOT u = (s32[], f32[60], f32[60], f32[]) tuple(next, a, y, step)
}
condition {
  s = (s32[], f32[60], f32[60], f32[]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  step = f32[] get-tuple-element(s), index=3
  n = s32[] constant(5000)
  few = pred[] compare(i, n), direction=LT
  eps = f32[] constant(1e-7)
  far = pred[] compare(step, eps), direction=GT
  ROOT c = pred[] and(few, far)
}
ENTRY e {
  a = f32[60] parameter(0)
  i = s32[] constant(0)
  one = f32[] constant(1)
  s = (s32[], f32[60], f32[60], f32[]) tuple(i, a, a, one)
  w = (s32[], f32[60], f32[60], f32[]) while(s), condition=condition, body=body
  ROOT x = f32[60] get-tuple-element(w), index=2
}"""
SINE = """HloModule m
ENTRY e { x = f32[9] parameter(0) y = f32[9] sine(x) ROOT z = f32[9] add(y, x) }"""


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the computations that runs compute, once for each time."""
    names: list[str] = []
    original = spread._Perturbed.value_of

    def value_of(self: Any, computation: Any, arguments: Any) -> Any:
        names.append(computation.name)
        return original(self, computation, arguments)

    monkeypatch.setattr(spread._Perturbed, "value_of", value_of)
    return names


def test_a_loop_that_ends_where_steps_are_small_does_not_run_on(computed: list[str]) -> None:
    """Its steps are off by more than that in each pass: a run took all 5,000 passes, and a verdict on igammac minutes."""
    module, numbers = hk.parse(ROOTS), np.linspace(1, 9, 60, dtype=np.float32)
    expected = hk.evaluate(module, numbers)
    passes = 0

    def count(instruction: Any, *_: Any) -> None:
        nonlocal passes
        passes += instruction.name == "far"

    hk.evaluate(module, numbers, before=count)
    assert passes < 12
    found = Spread(module, [numbers])
    assert found.near((np.sqrt(numbers),), (expected,)) is None
    assert found.near((np.sqrt(numbers) * np.float32(1.001),), (expected,)) is not None
    runs = computed.count("e")
    assert runs > 40
    assert computed.count("condition") <= runs * (2 * passes + 17)


def test_what_is_asked_of_the_same_program_shares_runs(computed: list[str]) -> None:
    module, numbers = hk.parse(SINE), np.linspace(1, 9, 9, dtype=np.float32)
    expected = hk.evaluate(module, numbers)
    found = Spread(module, [numbers])
    assert not found.hangs_on_signs((expected * np.float32(1.5),), (expected,))
    assert len(computed) == 1  # there is no NaN, whose sign might matter
    for factor in (1.5, 1.4):
        wrong = expected * np.float32(factor)
        for overflows in (False, True):
            assert found.near((wrong,), (expected,), overflows=overflows) is not None
        assert not found.rules_that_allow((wrong,), (expected,))
    assert len(computed) == 1 + 4 + 12 + 24 + 2  # the last two look for rules


def test_bounds_are_those_of_the_verdicts() -> None:
    """A result within the bound of each of its elements is near, one beyond that of one element is not."""
    module, numbers = hk.parse(SINE), np.linspace(1, 9, 9, dtype=np.float32)
    expected = hk.evaluate(module, numbers)
    found = Spread(module, [numbers])
    assert found.near((expected * np.float32(1.5),), (expected,)) is not None
    room = np.array([found.bound((expected,), 0, (k,)) for k in range(9)], np.float32)
    assert np.all((room > 1e-7) & (room < 1e-4))
    assert found.near((expected + 0.9 * room,), (expected,)) is None
    room[1:] = 0
    assert found.near((expected + 1.2 * room,), (expected,)) is not None


def test_what_nothing_uses_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reducer with arrays that nothing uses was computed for each element, in each of hundreds of runs."""
    module = hk.parse("""HloModule m
most {
  a = f64[] parameter(0)
  b = f64[] parameter(1)
  x = f64[3,32,32] broadcast(a), dimensions={}
  y = f64[3,32,32] exponential(x)
  ROOT m = f64[] maximum(a, b)
}
ENTRY e { x = f64[100] parameter(0) z = f64[] constant(0) ROOT r = f64[] reduce(x, z), dimensions={0}, to_apply=most }""")
    opcodes: list[str] = []
    original = spread._off

    def off(value: Any, instruction: Any, *others: Any) -> Any:
        opcodes.append(instruction.opcode)
        return original(value, instruction, *others)

    monkeypatch.setattr(spread, "_off", off)
    given = np.linspace(0, 1, 100)
    assert Spread(module, [given]).near((np.float64(0.5),), (np.float64(1),)) is not None
    assert "reduce" in opcodes
    assert "exponential" not in opcodes
    assert any(i.opcode == "exponential" for i in module.instructions())


SPECIAL = """HloModule m
most {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] {0}(a, b) }}
ENTRY e {{ x = f32[64] parameter(0) z = f32[] constant({1}) ROOT r = f32[] reduce(x, z), dimensions={{0}}, to_apply=most }}"""


@pytest.mark.parametrize(
    ("op", "start", "first", "value", "is_wrong"),
    [
        ("maximum", "-inf", np.nan, np.nan, False),
        ("maximum", "-inf", np.nan, -np.inf, True),
        ("maximum", "-inf", np.nan, 1.0, True),
        ("maximum", "-inf", np.inf, np.nan, True),
        ("maximum", "-inf", np.inf, -np.inf, True),
        ("add", "0", -np.inf, -np.inf, False),
        ("add", "0", -np.inf, np.nan, True),
        ("add", "0", 1e38, np.inf, False),
        ("add", "0", 1e38, np.nan, False),  # of numbers that overflow, as some in other orders do not
    ],
)
def test_infinities_and_nans_that_come_from_the_arguments_are_compared(
    op: str, start: str, first: float, value: float, is_wrong: bool
) -> None:
    module, numbers = hk.parse(SPECIAL.format(op, start)), np.ones(64, np.float32)
    numbers[:8] = first
    found = Spread(module, [numbers]).near((np.float32(value),), (hk.evaluate(module, numbers),))
    assert (found is not None) == is_wrong, found


PRODUCT = """HloModule m
product {{ a = {0}[] parameter(0) b = {0}[] parameter(1) ROOT m = {0}[] {1}(a, b) }}
ENTRY e {{ x = {0}[6] parameter(0) z = {0}[] constant({2}) ROOT r = {0}[] reduce(x, z), dimensions={{0}}, to_apply=product }}"""


@pytest.mark.parametrize(
    ("dtype", "op", "numbers", "value", "is_wrong"),
    [
        ("f16", "multiply", [300, 0.01, 300, 0.01, 300, 0.01], np.inf, False),  # 300 * 300 * 300 goes beyond
        ("f16", "multiply", [300, 0.1, 30, 0.1, 3, 0.1], np.inf, True),
        ("f16", "multiply", [1e-3, 100, 1e-3, 100, 1e-3, 100], 0.0, False),  # 1e-9 vanishes
        ("f16", "multiply", [0.1, 10, 0.1, 10, 0.1, 10], 0.0, True),
        ("f16", "multiply", [300, 300, 1, 1, 1, 0], 0.0, False),  # the reference's is inf * 0
        ("f16", "add", [6e4, -6e4, 6e4, -6e4, 1, 1], np.inf, False),
        ("f16", "add", [6e3, -6e3, 6e3, -6e3, 1, 1], np.inf, True),
        ("f32", "multiply", [1e20, 1e-20, 1e20, 1e-20, 1, 1], np.inf, False),
    ],
)
def test_folds_that_overflow_in_another_order(
    dtype: str, op: str, numbers: list[float], value: float, is_wrong: bool
) -> None:
    module = hk.parse(PRODUCT.format(dtype, op, "0" if op == "add" else "1"))
    given = np.array(numbers, np.float16 if dtype == "f16" else np.float32)
    found = Spread(module, [given]).near((given.dtype.type(value),), (hk.evaluate(module, given),))
    assert (found is not None) == is_wrong, found


@pytest.mark.parametrize(
    ("op", "argument", "value", "is_wrong"),
    [
        ("exponential", -99.0, False, False),  # a denormal, for which machine code has 0
        ("exponential", -80.0, False, True),
        ("exponential", -120.0, True, True),
        ("negate", 1e-40, False, True),  # denormals of exact ops are kept
    ],
)
def test_whether_a_denormal_is_zero(op: str, argument: float, value: bool, is_wrong: bool) -> None:
    module = hk.parse(f"HloModule m\nENTRY e {{ x = f32[3] parameter(0) y = f32[3] {op}(x) ROOT r = pred[3] convert(y) }}")
    given = np.full(3, argument, np.float32)
    found = Spread(module, [given]).near((np.full(3, value),), (hk.evaluate(module, given),))
    assert (found is not None) == is_wrong, found


@pytest.mark.parametrize("op", ["multiply", "power", "add"])
def test_complex_numbers_of_run_time_sizes(op: str) -> None:
    module = hk.parse(f"""HloModule m
a {{ u = c64[] parameter(0) v = c64[] parameter(1) ROOT w = c64[] add(u, v) }}
ENTRY e {{
  x = c64[4] parameter(0)
  n = s32[] parameter(1)
  d = c64[<=4] set-dimension-size(x, n), dimensions={{0}}
  p = c64[<=4] {op}(d, d)
  z = c64[] constant((0,0))
  ROOT r = c64[] reduce(p, z), dimensions={{0}}, to_apply=a
}}""")
    given = [np.arange(1, 5).astype(np.complex64) + 1j, np.int32(3)]
    right = hk.evaluate(module, *given)
    found = Spread(module, given)
    assert found.near((np.complex64(right * (1 + 2e-7)),), (right,)) is None
    assert found.near((np.complex64(right * 2),), (right,)) is not None
