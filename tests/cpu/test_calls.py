"""Calls that are not inlined: the computation is compiled once, as a subprogram, and its calls are steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.lower.steps import CallStep
from hlokit.passes import call_inliner

_Array = np.ndarray[Any, Any]


def chain(length: int, name: str = "f") -> str:
    """A computation of so many steps on f32[8] and a scalar, which gives the array and its sum."""
    lines = [
        f"{name} {{",
        "x = f32[8] parameter(0)",
        "s = f32[] parameter(1)",
        "b = f32[8] broadcast(s), dimensions={}",
    ]
    lines += ["w = f32[8,8] constant({" + ", ".join("{" + ", ".join(["0.125"] * 8) + "}" for _ in range(8)) + "})"]
    last = "x"
    for k in range(length):
        op = ("sine", "tanh")[k % 2]
        lines.append(f"y{k} = f32[8] {op}({last})")
        lines.append(f"z{k} = f32[8] add(y{k}, b)")
        last = f"z{k}"
    lines += [
        f"d = f32[8] dot(w, {last}), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
        "zero = f32[] constant(0)",
        "t = f32[] reduce(d, zero), dimensions={0}, to_apply=sum",
        "ROOT r = (f32[8], f32[]) tuple(d, t) }",
    ]
    return "\n".join(lines)


SUM = "sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT a = f32[] add(p, q) }\n"
ENTRY = """
ENTRY e {
  x = f32[8] parameter(0)
  s = f32[] parameter(1)
  one = (f32[8], f32[]) call(x, s), to_apply=f
  h1 = f32[8] get-tuple-element(one), index=0
  t1 = f32[] get-tuple-element(one), index=1
  two = (f32[8], f32[]) call(h1, t1), to_apply=f
  x2 = f32[8] get-tuple-element(two), index=0
  n = f32[8] negate(x2)
  ROOT r = (f32[8], f32[], f32[8]) tuple(x2, t1, n)
}
"""


@pytest.fixture
def never_inlined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every computation that several calls share is too large to be copied."""
    monkeypatch.setattr(call_inliner, "LIMIT", 0)


def arguments() -> tuple[_Array, _Array]:
    return np.random.default_rng(0).normal(size=8).astype(np.float32), np.float32(0.25)


def check(text: str, *args: _Array) -> Any:
    """The compiled module, whose results are the interpreter's in each mode."""
    module = hk.parse(text)
    expected = hk.evaluate(module, *args)
    compiled = hk.compile(module)
    for engine in (compiled, hk.compile(module, shadow=True), hk.compile(module, threads=1)):
        for found, wanted in zip(engine(*args), expected, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    strict = hk.compile(module, strict=True)
    for found, wanted in zip(strict(*args), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not [reason for reason in compiled.reasons if reason[1] == "not compiled"]
    return compiled


def test_a_large_computation_that_two_calls_share_is_compiled_once() -> None:
    compiled = check("HloModule m\n" + SUM + chain(600) + ENTRY, *arguments())
    steps = [step for step in compiled.program.block.steps if isinstance(step, CallStep)]
    assert [step.subprogram.computation.name for step in steps] == ["f", "f"]
    assert steps[0].subprogram is steps[1].subprogram
    assert compiled.as_text("llvm").count("define internal i32 @hlokit_call0(") == 1


@pytest.mark.usefixtures("never_inlined")
def test_calls_in_calls_take_no_more_code_than_computations() -> None:
    """Each doubles the work of the last: 2^10 runs of the first, ten functions."""
    parts = [SUM, chain(1, "f0")]
    for k in range(1, 11):
        parts.append(
            f"f{k} {{ x = f32[8] parameter(0) s = f32[] parameter(1) a = (f32[8], f32[]) call(x, s), to_apply=f{k - 1}\n"
            "y = f32[8] get-tuple-element(a), index=0\n"
            f"ROOT b = (f32[8], f32[]) call(y, s), to_apply=f{k - 1} }}"
        )
    entry = ENTRY.replace("to_apply=f\n", "to_apply=f10\n")
    compiled = check("HloModule m\n" + "\n".join(parts) + entry, *arguments())
    assert [s.computation.name for s in compiled.program.subprograms] == [f"f{k}" for k in range(11)]


@pytest.mark.usefixtures("never_inlined")
def test_calls_in_loops_and_branches() -> None:
    text = """HloModule m
sum { p = f32[] parameter(0) q = f32[] parameter(1) ROOT a = f32[] add(p, q) }
g { x = f32[8,8] parameter(0) c = f32[8,8] constant({...})
  y = f32[8,8] dot(x, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = f32[8,8] tanh(y) }
body { s = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0
  x = f32[8,8] get-tuple-element(s), index=1 one = s32[] constant(1) j = s32[] add(i, one)
  y = f32[8,8] call(x), to_apply=g
  ROOT r = (s32[], f32[8,8]) tuple(j, y) }
cond { s = (s32[], f32[8,8]) parameter(0) i = s32[] get-tuple-element(s), index=0 n = s32[] constant(7)
  ROOT r = pred[] compare(i, n), direction=LT }
then { x = f32[8,8] parameter(0) ROOT y = f32[8,8] call(x), to_apply=g }
other { x = f32[8,8] parameter(0) ROOT y = f32[8,8] negate(x) }
ENTRY e { x = f32[8,8] parameter(0) p = pred[] parameter(1) z = s32[] constant(0)
  s = (s32[], f32[8,8]) tuple(z, x) w = (s32[], f32[8,8]) while(s), condition=cond, body=body
  y = f32[8,8] get-tuple-element(w), index=1
  v = f32[8,8] conditional(p, y, y), true_computation=then, false_computation=other
  ROOT r = (f32[8,8], f32[8,8]) tuple(v, y) }"""
    x = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    numbers = ", ".join("{" + ", ".join(f"{v:.3f}" for v in row) + "}" for row in x / 3)
    for flag in (True, False):
        compiled = check(text.replace("{...}", "{" + numbers + "}"), x, np.bool_(flag))
    assert len(compiled.program.subprograms) == 1


@pytest.mark.usefixtures("never_inlined")
def test_results_that_are_arguments_or_constants() -> None:
    text = """HloModule m
g { x = f32[4] parameter(0) y = f32[4] parameter(1) c = f32[4] constant({1, 2, 3, 4}) s = f32[4] subtract(x, y)
  ROOT r = (f32[4], f32[4], f32[4], f32[4]) tuple(y, c, s, s) }
ENTRY e { x = f32[4] parameter(0)
  a = (f32[4], f32[4], f32[4], f32[4]) call(x, x), to_apply=g
  b = f32[4] get-tuple-element(a), index=1
  ROOT r = (f32[4], f32[4], f32[4], f32[4]) call(b, x), to_apply=g }"""
    check(text, np.float32([5, -6, 7, 8]))


def test_a_call_that_waits_for_another_instruction_is_compiled() -> None:
    text = """HloModule m
g { x = f32[4] parameter(0) ROOT y = f32[4] exponential(x) }
ENTRY e { x = f32[4] parameter(0) n = f32[4] negate(x)
  y = f32[4] call(x), to_apply=g, control-predecessors={n}
  ROOT r = (f32[4], f32[4]) tuple(y, n) }"""
    compiled = check(text, np.float32([0, 1, 2, 3]))
    assert len(compiled.program.subprograms) == 1


@pytest.mark.usefixtures("never_inlined")
def test_a_donated_argument_that_a_call_writes_to() -> None:
    """Its result past the caches lies in the caller's array, wherever that begins."""
    size = 1 << 22
    text = f"""HloModule m, input_output_alias={{ {{0}}: (0, {{}}, must-alias) }}
g {{ x = f32[{size}] parameter(0) one = f32[] constant(1) b = f32[{size}] broadcast(one), dimensions={{}}
  ROOT y = f32[{size}] add(x, b) }}
ENTRY e {{ x = f32[{size}] parameter(0) h = f32[{size}] call(x), to_apply=g
  n = f32[{size}] negate(h)
  y = f32[{size}] call(n), to_apply=g
  ROOT r = (f32[{size}]) tuple(y) }}"""
    compiled = hk.compile(hk.parse(text))
    memory = np.zeros(size + 1, np.float32)
    (found,) = compiled(memory[1:])
    assert (found == 0).all()
    assert compiled.program.assignment.aligned


@pytest.mark.usefixtures("never_inlined")
def test_steps_of_the_reference_in_a_call() -> None:
    seen: list[float] = []

    def noted(x: _Array) -> _Array:
        seen.append(float(x[0]))
        return x + 1

    hk.register_custom_call("test_calls_noted", noted)
    text = """HloModule m
g { x = f32[2] parameter(0) y = f32[2] custom-call(x), custom_call_target="test_calls_noted"
  ROOT n = f32[2] negate(y) }
ENTRY e { x = f32[2] parameter(0) a = f32[2] call(x), to_apply=g ROOT b = f32[2] call(a), to_apply=g }"""
    np.testing.assert_array_equal(hk.compile(hk.parse(text))(np.float32([1, 2])), [1, 2])
    assert seen == [1.0, -2.0]


@pytest.mark.usefixtures("never_inlined")
def test_what_is_told_of_calls(tmp_path: Path) -> None:
    module = hk.parse("HloModule m\n" + SUM + chain(3) + ENTRY)
    compiled = hk.compile(module)
    listing = compiled.as_text("loops")
    assert listing.count("call of @hlokit_call0 for %") == 2 and listing.count("subprogram @hlokit_call0 of %f") == 1
    kinds = [step.kind for step in compiled.lineage.steps]
    assert kinds.count("call") == 2
    assert {o.instruction.name for s in compiled.lineage.steps_of("y1") for o in compiled.lineage.origins(s)} >= {"y1"}
    profile = compiled.profile(*arguments(), repeat=2)
    inside = [step for step in profile.steps if step.around]
    assert inside and all(step.runs == 2 for step in inside)
    object, header = hk.export_object(module, "x86-64-avx2", tmp_path / "m.o")
    assert object.stat().st_size and "M_ARENA_BYTES" in header.read_text(encoding="utf-8")
    assert compiled.memory_analysis().temp_size_in_bytes > 0
