"""Going back and forth in a run changes nothing: every time has the same place and the same values, however it is reached."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.debugger.debugger import Debugger
from hlokit.hlo.values import is_sequence
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from tests.fuzz.devices import module_of, random_program
from tests.golden.programs import BUNDLED, program_names, read_program


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, tuples and tokens too."""
    if is_sequence(a):
        return len(a) == len(b) and all(map(same, a, b))
    return a is b if a is None else a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def snapshot(d: Debugger) -> tuple[object, ...]:
    """The place, and the values of the innermost computation."""
    if d.is_finished:
        return ("end",)
    frames = [(f.computation.name, f.role, f.position, f.loop and f.loop.passes) for f in d.frames]
    ran = [s.instruction for s in d.frames[-1].steps[: d.frames[-1].position]]
    return (frames, [(i.name, repr(d.value(i.name))) for i in ran])


@pytest.mark.parametrize("seed", range(20))
def test_random_programs(seed: int) -> None:
    """The result is the reference's, and every time looks the same on the way back, with much memory or none."""
    module = random_module(seed)
    given = arguments(module, seed)
    try:
        expected = hk.evaluate(module, *given)
    except hk.EvaluationError as error:
        pytest.skip(f"does not run: {error}")
    d = hk.debug(module, *given, memory_limit=0 if seed % 2 else None)
    seen: list[tuple[object, ...]] = [snapshot(d)]
    while not d.is_finished:
        d.into()
        seen.append(snapshot(d))
    assert same(d.result, expected)
    source = np.random.default_rng(seed)
    for time in source.integers(0, len(seen), 12):
        d.go(int(time)) if time <= d.time else d.run(f"if {time} < 0")
        if d.time == time:
            assert snapshot(d) == seen[time]
    while d.time:
        d.back_into()
        assert snapshot(d) == seen[d.time]


@pytest.mark.parametrize("name", program_names(BUNDLED)[:6])
def test_whole_programs(name: str) -> None:
    """A step over each instruction of the entry gives the reference's result; steps back undo each of them."""
    program = read_program(BUNDLED, name)
    module = hk.parse(program.hlo)
    d = hk.debug(module, *program.inputs)
    while not d.is_finished:
        assert d.step().kind in ("step", "end")
    assert same(d.result, hk.evaluate(module, *program.inputs))
    steps = 0
    while d.time:
        d.back()
        assert len(d.frames) == 1
        steps += 1
    assert steps == sum(i.opcode != "parameter" for i in module.entry.instructions)


@pytest.mark.parametrize("seed", range(10))
def test_devices(seed: int) -> None:
    """Devices that meet give what they give together, and each goes back by itself."""
    program = random_program(seed)
    module = module_of(program)
    given = program.arguments
    expected = hk.evaluate(module, *given, replicas=program.replicas, partitions=program.partitions)
    d = Debugger(module, given, replicas=program.replicas, partitions=program.partitions)
    if d.devices == 1:
        pytest.skip("a program of one device")
    assert d.run().kind == "end"
    for device in range(d.devices):
        d.select(device)
        assert same(d.result, expected[device])
    d.select(seed % d.devices)
    end = d.time
    while d.time:
        d.back()
    assert d.run().kind == "end"
    assert d.time == end
    assert same(d.result, expected[d.device])


LOOP = """HloModule m
body { s = (s32[], f32[4]) parameter(0)
 i = s32[] get-tuple-element(s), index=0
 x = f32[4] get-tuple-element(s), index=1
 one = s32[] constant(1)
 j = s32[] add(i, one)
 half = f32[] constant(0.5)
 h = f32[4] broadcast(half), dimensions={}
 y = f32[4] subtract(x, h)
 l = f32[4] log(y)
 z = f32[4] add(l, x)
 ROOT r = (s32[], f32[4]) tuple(j, z) }
cond { t = (s32[], f32[4]) parameter(0)
 k = s32[] get-tuple-element(t), index=0
 n = s32[] constant(5)
 ROOT lt = pred[] compare(k, n), direction=LT }
ENTRY e { a = f32[4] parameter(0)
 zero = s32[] constant(0)
 st = (s32[], f32[4]) tuple(zero, a)
 w = (s32[], f32[4]) while(st), condition=cond, body=body
 ROOT o = f32[4] get-tuple-element(w), index=1 }
"""


def loop() -> Debugger:
    return hk.debug(hk.parse(LOOP), [1, 2, 3, 4])


def test_first_nan_in_a_loop() -> None:
    """It stops behind the instruction, in the pass where it is, with the operands at hand."""
    d = loop()
    stop = d.run("nan")
    assert stop.text == "1 NaN in %l, none in its operands"
    assert stop.evaluated is not None
    assert stop.evaluated.instruction.name == "l"
    assert d.frames[0].loop is not None
    assert d.frames[0].loop.passes == 1
    ((operand, value),) = d.operands("l")
    assert operand.name == "y"
    assert value[0] < 0 < value[1]
    assert [(o.name) for o, _ in d.operands("s")] == ["w"]


def test_steps() -> None:
    """Over, into, out, and each of them back."""
    d = loop()
    d.run("w")
    assert d.next is not None
    assert d.next.name == "w"
    before = d.time
    d.into()
    assert (d.next.name, len(d.frames), d.frames[-1].role) == ("k", 2, "condition")
    d.step()
    d.step()
    d.step()
    assert (d.next.name, d.frames[-1].role) == ("i", "body")
    d.back_out()
    assert (d.next.name, d.time) == ("w", before)
    d.step()
    assert d.next.name == "o"
    d.back_into()
    assert (d.next.name, d.frames[-1].role) == ("lt", "condition")
    d.back_out()
    d.into()
    d.out()
    assert d.next.name == "o"
    d.back()
    assert d.next.name == "w"


def test_conditions() -> None:
    d = loop()
    d.break_at("iteration:w:3")
    d.break_at("if name == 'j' and value == 2")
    assert d.run().text == "breakpoint 2: %j: if name == 'j' and value == 2"
    assert d.run().text == "breakpoint 1: iteration 3 of %w"
    assert d.frames[0].loop is not None
    assert d.frames[0].loop.passes == 3
    assert d.run_back().text == "breakpoint 2: %j: if name == 'j' and value == 2"
    assert d.run_back("opcode:while").kind == "breakpoint"
    assert d.next is not None
    assert d.next.name == "w"
    assert d.run_back().kind == "start"
    assert [b.hits for b in d.breakpoints] == [1, 1]
    d.remove(1)
    d.remove(2)
    assert d.run().kind == "end"


def test_change() -> None:
    """A value that was put in counts from there on, also after going back and on again."""
    d = loop()
    d.run("l")
    d.change("y", [1, 1, 1, 1])
    d.run("h")
    assert list(d.value("x")) == [1, 2, 3, 4]
    d.back_out()
    d.run("z")
    assert list(d.value("l")) == [0, 0, 0, 0]
    d.go(0)
    with pytest.raises(hk.ArgumentError, match="is in the computation body, which does not run here"):
        d.change("y", [1, 1, 1, 1])


def test_values_that_were_let_go() -> None:
    """Without memory for them, values are computed again when they are asked for."""
    d = hk.debug(hk.parse(LOOP), [1, 2, 3, 4], memory_limit=0)
    d.run("z")
    assert list(d.value("h")) == [0.5] * 4
    assert list(d.value("y")) == [0.5, 1.5, 2.5, 3.5]
    assert d.next is not None
    assert d.next.name == "z"


def test_refusals() -> None:
    d = loop()
    for text in ("nothing", "opcode:nothing", "line:12", "iteration:zero:1", "iteration:w", "if (", "if 1 +"):
        with pytest.raises(hk.ArgumentError):
            d.break_at(text)
    with pytest.raises(hk.ArgumentError, match="has not run yet"):
        d.value("w")
    with pytest.raises(hk.ArgumentError, match="has not finished"):
        _ = d.result
    with pytest.raises(hk.ArgumentError, match="expected f32"):
        d.change("a", [1, 2, 3])
    with pytest.raises(hk.ArgumentError, match="NameError at %zero"):
        d.run("if nothing")
    for bad in (-1, d.time + 1):
        with pytest.raises(hk.ArgumentError, match="has been at"):
            d.go(bad)
    with pytest.raises(hk.ArgumentError, match="there is no breakpoint 3"):
        d.remove(3)
    with pytest.raises(hk.ArgumentError, match="there are 1 devices"):
        d.select(1)


DEADLOCK = """HloModule m, replica_count=2
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[2] parameter(0) y = f32[2] negate(x)
 r = f32[2] all-reduce(y), replica_groups={{0,1}}, to_apply=add ROOT z = f32[2] negate(r) }
"""


def test_two_devices() -> None:
    """One is stepped to the collective and waits; the other comes; a changed value reaches both."""
    d = hk.debug(hk.parse(DEADLOCK), [[1, 2]], [[3, 4]])
    d.step()
    assert d.step().kind == "waits"
    assert d.waiting == ["replica 0 waits at all-reduce r in e for replica 1"]
    d.select(1)
    d.step()
    d.step()
    assert list(d.value("r")) == [-4, -6]
    d.select(0)
    assert d.step().kind == "step"
    assert list(d.value("r")) == [-4, -6]
    d.back()
    d.change("y", [0, 0])
    assert d.run().kind == "end"
    for device in (0, 1):
        d.select(device)
        assert list(d.result) == [3, 4]


def test_program_that_fails() -> None:
    """An instruction that cannot run stops the debugger before it, where values can be looked at and changed."""
    module = hk.parse("""HloModule m
ENTRY e { x = f32[2] parameter(0) t = token[] after-all() i = (f32[2], token[]) infeed(t)
 y = f32[2] get-tuple-element(i), index=0 ROOT z = f32[2] add(x, y) }""")
    d = hk.debug(module, [1, 2])
    stop = d.run()
    assert (stop.kind, d.next and d.next.name) == ("error", "i")
    assert "INFEED-9" in stop.text
    fed = hk.debug(module, [1, 2], infeed=[np.array([5, 6], np.float32)])
    fed.run()
    assert list(fed.result) == [6, 8]
    fed.go(0)
    fed.run()
    assert list(fed.result) == [6, 8]


def test_random_numbers_are_the_same_again() -> None:
    module = hk.parse("""HloModule m
ENTRY e { a = f32[] constant(0) b = f32[] constant(1) x = f32[4] rng(a, b), distribution=rng_uniform
 y = f32[4] rng(a, b), distribution=rng_uniform ROOT z = (f32[4], f32[4]) tuple(x, y) }""")
    d = hk.debug(module, seed=3)
    d.run()
    first = d.result
    assert same(first, hk.evaluate(module, seed=3))
    d.go(0)
    d.run("y")
    d.run()
    assert same(d.result, first)
