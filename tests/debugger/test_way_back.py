"""Programs with a hidden NaN or overflow: the instruction, its pass and its source line are found from the result."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.debugger.commands import Session
from hlokit.debugger.way_back import way_back
from hlokit.hlo.sources import source_lines
from hlokit.interop.pjrt.watched import Watched

HARMLESS = ["tanh({x})", "negate({x})", "add({x}, {x})", "abs({x})", "sine({x})", "maximum({x}, {x})"]
CULPRITS = {
    "log": ("nan", "negative", "log({x})"),
    "sqrt": ("nan", "negative", "sqrt({x})"),
    "divide": ("nan", "zero", "divide({x}, {x})"),
    "exponential": ("inf", "huge", "exponential({x})"),
    "multiply": ("inf", "huger", "multiply({x}, {x})"),
    "reduce": ("nan", "opposite", "reduce({x}, none), dimensions={{0}}, to_apply=sum"),
}
SPOILT = {"negative": "-1", "zero": "0", "huge": "1000", "huger": "1e30"}


def program(seed: int) -> tuple[str, str, int | None]:
    """A program, the kind of numbers that its result has, and the pass in which they arise, if that is in a loop."""
    source = random.Random(seed)
    kind, spoilt, culprit = CULPRITS[list(CULPRITS)[seed % len(CULPRITS)]]
    context = ("entry", "loop", "fusion", "branch", "call in a loop")[seed // len(CULPRITS) % 5]
    passes, at = source.randint(2, 7), 0
    is_loop = "loop" in context
    if is_loop:  # a later pass would cut infinities off
        at = source.randrange(passes) if kind == "nan" else passes - 1
    lines: list[str] = []
    last = "x"

    def chain(prefix: str, count: int) -> None:
        nonlocal last
        for k in range(count):
            name = f"{prefix}{k}"
            lines.append(f"  {name} = f32[8] {source.choice(HARMLESS).format(x=last)}")
            last = name

    chain("before", source.randint(0, 4))
    if spoilt == "opposite":
        lines += ["  bad = f32[8] constant({inf, -inf, 0, 0, 0, 0, 0, 0})"]
    else:
        lines += [f"  number = f32[] constant({SPOILT[spoilt]})", "  bad = f32[8] broadcast(number), dimensions={}"]
    lines += [
        f"  when = s32[] constant({at})",
        "  is_now = pred[] compare(i, when), direction=EQ",
        "  mask = pred[8] broadcast(is_now), dimensions={}",
        f"  safe = f32[8] clamp(least, {last}, most)",
        "  chosen = f32[8] select(mask, bad, safe)",
    ]
    lines[:0] = [
        "  quarter = f32[] constant(0.25)", "  least = f32[8] broadcast(quarter), dimensions={}",
        "  whole = f32[] constant(1)", "  most = f32[8] broadcast(whole), dimensions={}", "  none = f32[] constant(0)",
    ]  # fmt: skip
    where = 'metadata={source_file="model.py" source_line=42}'
    if culprit.startswith("reduce"):
        lines.append(f"  culprit = f32[] {culprit.format(x='chosen')}, {where}")
        lines.append("  spread = f32[8] broadcast(culprit), dimensions={}")
        last = "spread"
    else:
        lines.append(f"  culprit = f32[8] {culprit.format(x='chosen')}, {where}")
        last = "culprit"
    if kind == "nan":
        chain("after", source.randint(0, 4))
    text = "\n".join(lines)
    work = f"work {{\n  i = s32[] parameter(0)\n  x = f32[8] parameter(1)\n{text}\n  ROOT w = f32[8] copy({last})\n}}\n"
    add = "sum {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b)\n}\n"
    return f"HloModule m\n{add}{work}{CONTEXTS[context].replace('PASSES', str(passes))}", kind, at if is_loop else None


LOOP = """
body {
  state = (s32[], f32[8]) parameter(0)
  count = s32[] get-tuple-element(state), index=0
  value = f32[8] get-tuple-element(state), index=1
  one = s32[] constant(1)
  next = s32[] add(count, one)
  DONE
  ROOT r = (s32[], f32[8]) tuple(next, done)
}
condition {
  before = (s32[], f32[8]) parameter(0)
  passed = s32[] get-tuple-element(before), index=0
  all = s32[] constant(PASSES)
  ROOT goes = pred[] compare(passed, all), direction=LT
}
ENTRY e {
  p = f32[8] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[8]) tuple(zero, p)
  loop = (s32[], f32[8]) while(start), condition=condition, body=body
  ROOT result = f32[8] get-tuple-element(loop), index=1
}
"""
CALL = "call(count, value), to_apply=work"
FUSION = "fusion(count, value), kind=kLoop, calls=work"
ENTRY = "ENTRY e {\n  p = f32[8] parameter(0)\n  zero = s32[] constant(0)\n  ROOT done = f32[8] HOW\n}\n"
CONTEXTS = {
    "entry": ENTRY.replace("HOW", "call(zero, p), to_apply=work"),
    "fusion": ENTRY.replace("HOW", "fusion(zero, p), kind=kLoop, calls=work"),
    "loop": LOOP.replace("DONE", f"done = f32[8] {FUSION}"),
    "call in a loop": LOOP.replace("DONE", f"done = f32[8] {CALL}"),
    "branch": """
left {
  l = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(l), index=0
  v = f32[8] get-tuple-element(l), index=1
  ROOT called = f32[8] call(j, v), to_apply=work
}
right {
  q = f32[8] parameter(0)
  ROOT n = f32[8] negate(q)
}
ENTRY e {
  p = f32[8] parameter(0)
  zero = s32[] constant(0)
  pair = (s32[], f32[8]) tuple(zero, p)
  ROOT done = f32[8] conditional(zero, pair, p), branch_computations={left, right}
}
""",
}


@pytest.mark.parametrize("seed", range(60))
def test_hidden_numbers(seed: int) -> None:
    """The way back ends at the instruction that was put in, in the right pass, with the right line."""
    text, kind, at = program(seed)
    module = hk.parse(text)
    d = hk.debug(module, np.linspace(0.3, 0.9, 8, dtype=np.float32))
    assert d.run().kind == "end"
    crumbs = way_back(d, kind)
    assert crumbs[-1].instruction.name == "culprit"
    assert [str(line) for line in source_lines(crumbs[-1].instruction)] == ["model.py:42"]
    assert d.next is not None
    assert d.next.name == "culprit"
    if at is not None:
        assert [f.loop.passes for f in d.frames if f.loop is not None] == [at]
    d.step()
    assert np.isnan(d.value("culprit")).any() if kind == "nan" else np.isinf(d.value("culprit")).any()


@pytest.mark.parametrize("seed", range(0, 60, 7))
def test_watched_programs(seed: int) -> None:
    """Machine code whose results have the numbers raises an error with the instruction, its line and a session."""
    text, kind, _ = program(seed)
    module = hk.parse(text)
    watched = Watched(module, hk.compile(module), kind)
    with pytest.raises(hk.EvaluationError, match="arise here") as raised:
        watched(np.linspace(0.3, 0.9, 8, dtype=np.float32))
    said = str(raised.value)
    assert "%culprit = " in said.splitlines()[1]
    assert "model.py:42" in said
    found = re.search(r"hlokit debug (\S+)", said)
    assert found is not None
    from pathlib import Path

    from hlokit.debugger.saved import restored

    path = Path(found[1])
    again, _ = restored(path.read_bytes())
    path.unlink()
    assert again.next is not None
    assert again.next.name == "culprit"


def test_numbers_of_machine_code_alone() -> None:
    """A NaN that the reference does not have is the machine code's: its kernels are compared."""
    module = hk.parse("HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")

    def spoilt(x: Any) -> Any:
        return x * np.float32("nan")

    watched = Watched(module, spoilt, "nan")
    with pytest.raises(hk.EvaluationError, match="The reference has none, and each kernel by itself agrees with it"):
        watched(np.ones(2, np.float32))


def test_numbers_of_the_arguments() -> None:
    """What an argument has is no finding; asked for, the way leads to the parameter."""
    module = hk.parse("HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = f32[2] negate(x) }")
    spoilt = np.array([np.nan, 1], np.float32)
    assert np.isnan(Watched(module, hk.compile(module), "nan")(spoilt)[0])
    session = Session(hk.debug(module, spoilt))
    session.execute("run")
    assert session.execute("why nan").splitlines()[0] == "%x = parameter in e"
    session.execute("run")
    assert session.execute("why inf") == "the result has no infinities"


def test_a_way_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it ends at the first instruction of the run that makes them."""
    monkeypatch.setattr("hlokit.debugger.way_back._MOST", 3)
    text, kind, at = program(6)
    d = hk.debug(hk.parse(text), np.linspace(0.3, 0.9, 8, dtype=np.float32))
    d.run()
    assert way_back(d, kind)[-1].instruction.name == "culprit"
    assert [f.loop.passes for f in d.frames if f.loop is not None] == [at]
