"""`hk.reduce_module`: the least program that shows a fault, with its arguments."""

import re
import time
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.judge.closeness.spread import near
from hlokit.judge.compare import least
from hlokit.judge.compare.comparing import Judgement
from hlokit.judge.deadline import Deadline
from hlokit.judge.engines.engine import Engine
from hlokit.judge.engines.outcome import Outcome
from hlokit.judge.reduce import search
from tests.golden.programs import BUNDLED, program_names, read_program

DEEP = """HloModule deep, frontend_attributes={a="b"}
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }
inner { x = f32[64,32] parameter(0) e = f32[64,32] exponential(x) ROOT l = f32[64,32] log(e), metadata={op_name="f"} }
body { t = (s32[], f32[64,32]) parameter(0) i = s32[] get-tuple-element(t), index=0 v = f32[64,32] get-tuple-element(t), index=1
  one = s32[] constant(1) n = s32[] add(i, one) w = f32[64,32] fusion(v), kind=kLoop, calls=inner
  ROOT r = (s32[], f32[64,32]) tuple(n, w) }
cond { t = (s32[], f32[64,32]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(50)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e {
  x = f32[64,32] parameter(0)
  y = f32[64,32] parameter(1)
  p = f32[64,32] add(x, y)
  zero = s32[] constant(0)
  start = (s32[], f32[64,32]) tuple(zero, p)
  loop = (s32[], f32[64,32]) while(start), condition=cond, body=body
  v = f32[64,32] get-tuple-element(loop), index=1
  q = f32[64,32] multiply(v, x)
  z = f32[] constant(0)
  r = f32[64] reduce(q, z), dimensions={1}, to_apply=sum
  ROOT out = (f32[64], f32[64,32]) tuple(r, q)
}"""


def has(*opcodes: str) -> Any:
    return lambda module, *arguments: set(opcodes) <= {i.opcode for i in module.instructions()}


def test_one_instruction_of_a_nest_is_all_that_is_left() -> None:
    module = hk.parse(DEEP)
    text = str(module)
    found = hk.reduce_module(module, has("log"))
    assert str(module) == text
    assert [i.opcode for i in found.module.entry.post_order()] == ["parameter", "log"]
    assert found.module.entry.root.shape.size == 1
    assert "metadata" not in str(found.module)
    assert "frontend" not in str(found.module)
    assert found.is_complete
    hk.verify(found.module)


@pytest.mark.parametrize("opcodes", [("while",), ("reduce",), ("reduce", "while"), ("fusion", "multiply")])
def test_what_is_wanted_stays(opcodes: tuple[str, ...]) -> None:
    found = hk.reduce_module(hk.parse(DEEP), has(*opcodes))
    assert has(*opcodes)(found.module)
    assert sum(len(c) for c in found.module.all_computations) <= 16
    hk.verify(found.module)


def test_arguments_follow() -> None:
    """The fault: the largest element of the result is above 100. Arguments stay those of the parameters."""
    b = hk.Builder()
    x, y, unused = (b.parameter(i, hk.f32[8]) for i in range(3))
    module = b.build(hk.exp(hk.sin(x) + y * y) + hk.abs(unused))
    given = [np.zeros(8, np.float32), np.arange(8, dtype=np.float32), np.ones(8, np.float32)]

    def is_bad(module: hk.HloModule, *arguments: Any) -> bool:
        shapes = [p.shape.dimensions for p in module.entry.parameters]
        assert [np.shape(a) for a in arguments] == shapes
        return bool(np.max(hk.evaluate(module, *arguments)) > 100)

    found = hk.reduce_module(module, is_bad, given)
    assert found.arguments is not None
    assert is_bad(found.module, *found.arguments)
    assert len(found.module.entry) <= 2


def test_every_try_is_legal_and_has_the_arguments_of_its_parameters() -> None:
    tried = 0

    def is_bad(module: hk.HloModule) -> bool:
        nonlocal tried
        tried += 1
        hk.verify(module)
        assert hk.diff(hk.parse(module.to_text("short_parsable")), module).is_equal
        return any(i.opcode == "dot" for i in module.instructions())

    for name in program_names(BUNDLED)[1:6]:
        module = hk.parse(read_program(BUNDLED, name).hlo)
        if any(i.opcode == "dot" for i in module.instructions()):
            found = hk.reduce_module(module, is_bad)
            assert sum(len(c) for c in found.module.all_computations) <= 10
    assert tried > 20


def test_a_fault_that_is_not_there_is_refused() -> None:
    module = hk.parse(DEEP)
    with pytest.raises(hk.ArgumentError, match="there is no fault to keep"):
        hk.reduce_module(module, has("sort"))
    with pytest.raises(hk.ArgumentError, match="expected seconds above 0"):
        hk.reduce_module(module, has("log"), time_limit=0)
    with pytest.raises(hk.ArgumentError, match="expected an HloModule"):
        hk.reduce_module(DEEP, has("log"))  # type: ignore[arg-type]


def test_the_time_limit_gives_the_best_so_far() -> None:
    def slow(module: hk.HloModule) -> bool:
        time.sleep(0.05)
        return has("log")(module)

    found = hk.reduce_module(hk.parse(DEEP), slow, time_limit=0.3)
    assert not found.is_complete
    assert has("log")(found.module)
    assert "the time limit ended it" in repr(found)


def test_steps_are_told_as_they_are_made() -> None:
    seen: list[int] = []
    found = hk.reduce_module(
        hk.parse(DEEP), has("log"), on_step=lambda step, module, arguments: seen.append(len(module.instructions()))
    )
    assert seen == [step.size for step in found.steps]
    assert len(seen) > 3


def test_what_a_check_raises_comes_through() -> None:
    def broken(module: hk.HloModule) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        hk.reduce_module(hk.parse(DEEP), broken)


def test_a_check_that_is_always_true_ends_with_one_instruction() -> None:
    found = hk.reduce_module(hk.parse(DEEP), lambda module: True)
    assert len(found.module.instructions()) == 1


def test_the_same_reduction_again() -> None:
    first, second = (hk.reduce_module(hk.parse(DEEP), has("reduce", "while")) for _ in range(2))
    assert str(first.module) == str(second.module)
    assert re.search("while", str(first.module))


def test_what_a_loop_hands_on_is_dropped() -> None:
    """Also what only the element itself is made of."""
    text = """HloModule m
body { t = (s32[], f32[8], f32[8], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0
  a = f32[8] get-tuple-element(t), index=1 b = f32[8] get-tuple-element(t), index=2 c = f32[4] get-tuple-element(t), index=3
  one = s32[] constant(1) n = s32[] add(i, one) s = f32[8] sine(a)
  ROOT r = (s32[], f32[8], f32[8], f32[4]) tuple(n, s, b, c) }
cond { t = (s32[], f32[8], f32[8], f32[4]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(5)
  ROOT l = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[8] parameter(0) y = f32[4] parameter(1) z = s32[] constant(0)
  init = (s32[], f32[8], f32[8], f32[4]) tuple(z, x, x, y)
  w = (s32[], f32[8], f32[8], f32[4]) while(init), condition=cond, body=body
  v = f32[8] get-tuple-element(w), index=1 u = f32[4] get-tuple-element(w), index=3
  ROOT r = (f32[8], f32[4]) tuple(v, u) }"""
    found = hk.reduce_module(hk.parse(text), has("while", "sine"))
    loop = next(i for i in found.module.instructions() if i.opcode == "while")
    assert len(loop.shape.elements) <= 2
    assert "loop state" in {step.edit for step in found.steps}


def test_a_fault_in_what_nothing_uses() -> None:
    module = hk.parse("""HloModule m
ENTRY e {
  x = f32[4] parameter(0)
  dead = f32[4] cosine(x)
  y = f32[4] negate(x)
  z = f32[4] sine(y)
  ROOT t = (f32[4], f32[4]) tuple(y, z)
}""")
    found = hk.reduce_module(module, lambda m: any(i.opcode == "cosine" for i in m.instructions()))
    assert [i.opcode for i in found.module.entry.instructions] == ["parameter", "cosine"]


def test_a_fault_in_a_dead_value_of_a_called_computation() -> None:
    """The fault: there is a concatenate, in a branch whose conditional no result needs."""
    text = """HloModule m
one {
  x = f32[2] parameter(0)
  a = f32[2] sine(x)
  c = f32[4] concatenate(a, x), dimensions={0}
  ROOT s = f32[2] slice(c), slice={[0:2]}
}
two { x = f32[2] parameter(0) ROOT n = f32[2] negate(x) }
body {
  t = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  y = f32[2] get-tuple-element(t), index=1
  p = pred[] compare(i, i), direction=EQ
  dead = f32[2] conditional(p, y, y), true_computation=one, false_computation=two
  k = s32[] constant(1)
  j = s32[] add(i, k)
  z = f32[2] cosine(y)
  ROOT r = (s32[], f32[2]) tuple(j, z)
}
cond {
  t = (s32[], f32[2]) parameter(0)
  i = s32[] get-tuple-element(t), index=0
  m = s32[] constant(3)
  ROOT l = pred[] compare(i, m), direction=LT
}
ENTRY e {
  x = f32[2] parameter(0)
  i = s32[] constant(0)
  t = (s32[], f32[2]) tuple(i, x)
  w = (s32[], f32[2]) while(t), condition=cond, body=body
  ROOT o = f32[2] get-tuple-element(w), index=1
}
"""

    def is_bad(module: hk.HloModule, *arguments: Any) -> bool:
        hk.verify(module)
        hk.evaluate(module, *arguments)
        return any(i.opcode == "concatenate" for i in module.instructions())

    found = hk.reduce_module(hk.parse(text), is_bad, [np.zeros(2, np.float32)])
    assert found.arguments is not None
    assert is_bad(found.module, *found.arguments)
    assert sum(len(c) for c in found.module.all_computations) <= 3


ENDLESS = """HloModule endless
body { t = (s32[], f32[3]) parameter(0) i = s32[] get-tuple-element(t), index=0 v = f32[3] get-tuple-element(t), index=1
  one = s32[] constant(1) n = s32[] add(i, one) w = f32[3] exponential(v) ROOT r = (s32[], f32[3]) tuple(n, w) }
cond { t = (s32[], f32[3]) parameter(0) i = s32[] get-tuple-element(t), index=0 o = s32[] or(i, i) ROOT c = pred[] compare(i, o), direction=EQ }
ENTRY e { x = f32[3] parameter(0) n = f32[3] negate(x) z = s32[] constant(0) s = (s32[], f32[3]) tuple(z, n)
  ROOT w = (s32[], f32[3]) while(s), condition=cond, body=body }"""


class _Answers(Engine):
    """An engine that gives zeros for any program."""

    def run(self, module: hk.HloModule, arguments: Any) -> Outcome:
        return Outcome("ok", tuple(np.zeros(s.dimensions, s.dtype.numpy) for s in module.entry.root.shape.leaves()))


def test_a_program_that_never_ends_on_the_reference_does_not_hold_the_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(least, "_REFERENCE_LIMIT", 0.2)
    monkeypatch.setattr(search, "_REFERENCE_LIMIT", 0.2)
    module = hk.parse(ENDLESS)
    found = hk.reduce_module(module, has("while", "negate"), [np.ones(3, np.float32)], time_limit=5)
    assert has("while", "negate")(found.module)
    with _Answers("answers") as engine:
        shows = least.Shows(Judgement("answers", Outcome("ok"), "wrong"), engine)
        assert not shows(module, np.ones(3, np.float32))
        finite = hk.parse("ENTRY e { x = f32[3] parameter(0) ROOT n = f32[3] negate(x) }")
        assert shows(finite, np.ones(3, np.float32))


def test_runs_with_other_rounding_are_ended_too() -> None:
    text = """HloModule spin
body { v = f32[] parameter(0) h = f32[] constant(0.5) ROOT w = f32[] multiply(v, h) }
cond { v = f32[] parameter(0) one = f32[] constant(1) ROOT c = pred[] compare(v, one), direction=NE }
ENTRY e { x = f32[] parameter(0) ROOT w = f32[] while(x), condition=cond, body=body }"""
    module, given = hk.parse(text), [np.float32(4)]
    assert hk.evaluate(module, *given) == 1
    assert near((np.float32(2),), (np.float32(1),), module, given, 0, seconds=60) is None  # which is open, then


def test_long_runs_of_the_reference_are_ended() -> None:
    text = """HloModule slow
body { t = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 v = f32[] get-tuple-element(t), index=1
  one = s32[] constant(1) j = s32[] add(i, one) w = f32[] cosine(v) ROOT r = (s32[], f32[]) tuple(j, w) }
cond { t = (s32[], f32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 n = s32[] constant(1000000000)
  ROOT c = pred[] compare(i, n), direction=LT }
ENTRY e { x = f32[] parameter(0) z = s32[] constant(0) t = (s32[], f32[]) tuple(z, x)
  l = (s32[], f32[]) while(t), condition=cond, body=body ROOT w = f32[] get-tuple-element(l), index=1 }"""
    with pytest.raises(hk.EvaluationError, match=r"no result within 0\.2 s"):
        near((np.float32(2),), (np.float32(1),), hk.parse(text), [np.float32(4)], 0, seconds=0.2)


def test_an_element_that_only_a_condition_takes_is_kept() -> None:
    text = """HloModule m
body { t = (s32[], s32[], f32[3]) parameter(0) n = s32[] get-tuple-element(t), index=0 i = s32[] get-tuple-element(t), index=1
  v = f32[3] get-tuple-element(t), index=2 one = s32[] constant(1) j = s32[] add(i, one) w = f32[3] exponential(v)
  ROOT r = (s32[], s32[], f32[3]) tuple(n, j, w) }
cond { t = (s32[], s32[], f32[3]) parameter(0) n = s32[] get-tuple-element(t), index=0 i = s32[] get-tuple-element(t), index=1
  ROOT c = pred[] compare(n, i), direction=GT }
ENTRY e { n = s32[] parameter(0) x = f32[3] parameter(1) z = s32[] constant(0) s = (s32[], s32[], f32[3]) tuple(n, z, x)
  ROOT w = (s32[], s32[], f32[3]) while(s), condition=cond, body=body }"""
    found = hk.reduce_module(hk.parse(text), has("while", "exponential", "compare"))
    assert has("while", "exponential", "compare")(found.module)
    hk.verify(found.module)


def test_an_op_of_several_arrays_keeps_one() -> None:
    """Also where its computation takes an element of the one that goes."""
    scatter = """HloModule m
f { a = s32[] parameter(0) b = f32[] parameter(1) k = u8[] parameter(2) c = s32[] parameter(3) d = f32[] parameter(4)
  l = u8[] parameter(5) s = s32[] add(a, c) t = f32[] add(b, d) ROOT r = (s32[], f32[], u8[]) tuple(s, t, k) }
ENTRY e { x = s32[4] parameter(0) y = f32[4] parameter(1) w = u8[4] parameter(2) i = s32[2,1] parameter(3)
  u = s32[2] parameter(4) v = f32[2] parameter(5) q = u8[2] parameter(6)
  ROOT r = (s32[4], f32[4], u8[4]) scatter(x, y, w, i, u, v, q), update_window_dims={}, inserted_window_dims={0},
    scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f }"""
    sort = """HloModule m
g { a = s32[] parameter(0) b = s32[] parameter(1) k = f32[] parameter(2) l = f32[] parameter(3)
  ROOT c = pred[] compare(k, l), direction=LT }
ENTRY e { x = s32[4] parameter(0) y = f32[4] parameter(1) s = (s32[4], f32[4]) sort(x, y), dimensions={0}, to_apply=g
  ROOT r = s32[4] get-tuple-element(s), index=0 }"""
    for text, opcode in ((scatter, "scatter"), (sort, "sort")):
        module = hk.parse(text)
        given = [np.zeros(p.shape.dimensions, p.shape.dtype.numpy) for p in module.entry.parameters]
        found = hk.reduce_module(module, has(opcode), given)
        hk.verify(found.module)
        assert found.arguments is not None
        hk.evaluate(found.module, *found.arguments)
        assert "array" in {step.edit for step in found.steps}
        assert found.module.entry.root.shape.is_array
        assert len(found.module.instructions()) <= 7


def test_a_loop_of_one_array_needs_no_tuple() -> None:
    text = """HloModule m
b { t = (s32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 o = s32[] constant(1) n = s32[] add(i, o)
  ROOT r = (s32[]) tuple(n) }
c { t = (s32[]) parameter(0) i = s32[] get-tuple-element(t), index=0 o = s32[] constant(3)
  ROOT r = pred[] compare(i, o), direction=LT }
ENTRY e { z = s32[] constant(0) t = (s32[]) tuple(z) ROOT w = (s32[]) while(t), condition=c, body=b }"""

    def ends_at_three(module: hk.HloModule) -> bool:
        if not has("while", "compare", "add")(module):
            return False
        try:
            result = hk.evaluate(module, before=Deadline(60, steps=100))
        except hk.HlokitError:
            return False
        return np.asarray(result[0] if isinstance(result, tuple) else result).tolist() == 3

    found = hk.reduce_module(hk.parse(text), ends_at_three)
    assert found.module.entry.root.shape.is_array
    assert len(found.module.instructions()) <= 8


class _Counts(Engine):
    """An engine that fails on programs with a loop, and counts them."""

    runs = 0

    def run(self, module: hk.HloModule, arguments: Any) -> Outcome:
        self.runs += 1
        return Outcome("error", (), "no loops")


def test_an_engine_does_not_run_loops_that_never_end() -> None:
    loop = """HloModule m
b { i = s32[] parameter(0) o = s32[] constant(1) ROOT n = s32[] add(i, o) }
c { i = s32[] parameter(0) o = s32[] constant(END) ROOT r = pred[] compare(i, o), direction=NE }
ENTRY e { z = s32[] parameter(0) ROOT w = s32[] while(z), condition=c, body=b }"""
    with _Counts("counts") as engine:
        shows = least.Shows(Judgement("counts", Outcome("error", (), "no loops"), "failed"), engine)
        assert shows(hk.parse(loop.replace("END", "5")), np.int32(0))
        assert not shows(hk.parse(loop.replace("END", "-1")), np.int32(0))
        assert engine.runs == 1


class _Spoilt(Engine):
    """An engine that answers wrongly once in a process."""

    was_asked = False

    def run(self, module: hk.HloModule, arguments: Any) -> Outcome:
        value, self.was_asked = np.float32(0 if self.was_asked else 7), True
        return Outcome("ok", (np.asarray(value),))

    def restart(self) -> None:
        self.was_asked = False


def test_what_shows_in_a_new_process_alone_is_reduced() -> None:
    module = hk.parse("HloModule m\nENTRY e { ROOT c = f32[] constant(0) }")
    with _Spoilt("spoilt") as engine:
        found = hk.compare_engines(module, engines=[engine])
        (judgement,) = found.judgements
        assert judgement.is_finding
        assert len(least.least(found, judgement, engine).module.instructions()) == 1
