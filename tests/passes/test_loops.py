"""Trip counts, and the passes over while loops."""

from __future__ import annotations

from typing import Any

import pytest

import hlokit as hk
from hlokit.analysis.loops import counter, invariants, trip_count
from hlokit.analysis.ranges import value_range
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from tests.fuzz.properties import leaves


def counting(
    direction: str, start: int, bound: int, step: int, dtype: str = "s32", op: str = "add", config: str = ""
) -> HloModule:
    return hk.parse(f"""HloModule m
cond {{ p = ({dtype}[], f32[4]) parameter(0) i = {dtype}[] get-tuple-element(p), index=0 n = {dtype}[] constant({bound}) ROOT c = pred[] compare(i, n), direction={direction} }}
body {{ p = ({dtype}[], f32[4]) parameter(0) i = {dtype}[] get-tuple-element(p), index=0 x = f32[4] get-tuple-element(p), index=1
s = {dtype}[] constant({step}) j = {dtype}[] {op}(i, s) y = f32[4] add(x, x) ROOT t = ({dtype}[], f32[4]) tuple(j, y) }}
ENTRY e {{ x = f32[4] parameter(0) i = {dtype}[] constant({start}) t = ({dtype}[], f32[4]) tuple(i, x)
ROOT w = ({dtype}[], f32[4]) while(t), condition=cond, body=body{config} }}
""")


def loop_of(module: HloModule) -> Instruction:
    return next(i for i in module.instructions() if i.opcode == "while")


COUNTS = [
    ("LT", 0, 10, 1, "s32", 10), ("LT", 0, 10, 3, "s32", 4), ("LE", 0, 10, 3, "s32", 4), ("LE", 0, 9, 3, "s32", 4),
    ("LT", 5, 5, 1, "s32", 0), ("LT", 7, 5, -1, "s32", 0), ("LT", 4, 5, -1, "s32", None), ("GT", 10, 0, -1, "s32", 10),
    ("GE", 10, 0, -4, "s64", 3), ("GT", 10, 0, 1, "s32", None), ("NE", 0, 12, 3, "s32", 4), ("NE", 0, 13, 3, "s32", None),
    ("NE", 4, 4, 0, "s32", 0), ("EQ", 4, 4, 1, "s32", 1), ("EQ", 4, 5, 1, "s32", 0), ("EQ", 4, 4, 0, "s32", None),
    ("LT", 0, 127, 100, "s8", None), ("LT", 0, 200, 50, "u8", 4), ("LT", 0, 255, 16, "u8", None), ("LE", 0, 127, 1, "s8", None),
]  # fmt: skip


@pytest.mark.parametrize(("direction", "start", "bound", "step", "dtype", "trips"), COUNTS)
def test_trip_counts(direction: str, start: int, bound: int, step: int, dtype: str, trips: int | None) -> None:
    module = counting(direction, start, bound, step, dtype)
    found = counter(loop_of(module))
    assert (found.trips if found is not None else None) == trips
    if trips is not None:
        final, _ = hk.evaluate(module, [1.0] * 4)
        assert int(final) == start + trips * step and found is not None and found.index == 0


def test_subtraction_annotations_and_a_carried_bound() -> None:
    assert trip_count(loop_of(counting("GT", 6, 0, 2, op="subtract"))) == 3
    assert trip_count(loop_of(counting("LT", 9, 0, 0, config=', backend_config={"known_trip_count":{"n":"7"}}'))) == 7
    text = NEST.replace("CARRIED", "")
    assert trip_count(loop_of(hk.parse(text))) == 4 and invariants(loop_of(hk.parse(text))) == [2, 3, 4]


# i, x: used; n: bound, carried; w: weights, carried; d: carried, needed by nobody; g: grows, needed by nobody
NEST = """HloModule m
cond { p = (s32[], f32[4], s32[], f32[4,4], f32[2], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
n = s32[] get-tuple-element(p), index=2 ROOT c = pred[] compare(n, i), direction=GT }
body { p = (s32[], f32[4], s32[], f32[4,4], f32[2], f32[]) parameter(0) i = s32[] get-tuple-element(p), index=0
x = f32[4] get-tuple-element(p), index=1 n = s32[] get-tuple-element(p), index=2 w = f32[4,4] get-tuple-element(p), index=3
d = f32[2] get-tuple-element(p), index=4 g = f32[] get-tuple-element(p), index=5 one = s32[] constant(1) j = s32[] add(one, i)
e = f32[4,4] exponential(w) two = f32[] constant(2) b = f32[4,4] broadcast(two), dimensions={} f = f32[4,4] multiply(e, b)
y = f32[4] dot(f, x), lhs_contracting_dims={1}, rhs_contracting_dims={0} h = f32[] add(g, two)
ROOT t = (s32[], f32[4], s32[], f32[4,4], f32[2], f32[]) tuple(j, y, n, w, d, h) }
ENTRY e { x = f32[4] parameter(0) w = f32[4,4] parameter(1) d = f32[2] parameter(2) i = s32[] constant(0) n = s32[] constant(4)
g = f32[] constant(0) t = (s32[], f32[4], s32[], f32[4,4], f32[2], f32[]) tuple(i, x, n, w, d, g)
l = (s32[], f32[4], s32[], f32[4,4], f32[2], f32[]) while(t), condition=cond, body=body
y = f32[4] get-tuple-element(l), index=1 q = f32[2] get-tuple-element(l), index=4 ROOT r = (f32[4], f32[2]) tuple(y, q) }
"""
VALUES = [0.5, 1.0, -1.0, 0.25], [[0.1, 0.2, 0.3, 0.4]] * 4, [7.0, 8.0]


def optimized(module: HloModule, *passes: str) -> HloModule:
    after = hk.optimize(module, passes, verify_each=True)
    assert str(hk.optimize(module, passes)) == str(after)
    return after


def same_bits(before: HloModule, after: HloModule, *args: Any) -> bool:
    want, got = hk.evaluate(before, *args), hk.evaluate(after, *args)
    return [a.tobytes() for a in leaves(want)] == [a.tobytes() for a in leaves(got)]


def test_what_is_larger_than_it_is_made_of_stays() -> None:
    text = NEST.replace(
        "e = f32[4,4] exponential(w)",
        "v = f32[4,4,4096] broadcast(w), dimensions={0,1} k = f32[4,4,4096] tanh(v) z = f32[] constant(0) e = f32[4,4] slice-it(k)",
    )
    text = text.replace("slice-it(k)", "reduce(k, z), dimensions={2}, to_apply=add").replace(
        "HloModule m\n", "HloModule m\nadd { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }\n"
    )
    after = optimized(hk.parse(text), "while-loop-invariant-code-motion")
    assert max(s.size for s in loop_of(after).shape.elements) == 16


def test_effects_stay_in_the_loop() -> None:
    text = NEST.replace(
        "h = f32[] add(g, two)",
        "h = f32[] add(g, two) a = token[] after-all() o = token[] outfeed(e, a), outfeed_shape=f32[4,4]{1,0}",
    )
    module = hk.parse(text)
    after = optimized(module, "while-loop-simplifier", "while-loop-invariant-code-motion", "dce")
    results = [hk.evaluate(m, *VALUES, return_outfeed=True)[1] for m in (module, after)]
    assert len(results[0]) == len(results[1]) == 4


def test_random_loops_keep_their_bits() -> None:
    options = Options(
        opcodes=frozenset({"while", "add", "multiply", "tanh", "tuple", "dot", "reduce", "get-tuple-element"}),
        types=("f32", "s32", "pred"),
        instructions=6,
        dynamic=False,
    )
    passes = (
        "call-inliner",
        "while-loop-constant-sinking",
        "while-loop-invariant-code-motion",
        "while-loop-simplifier",
        "tuple-simplifier",
        "dce",
    )
    changed = 0
    for seed in range(90):
        module = random_module(seed, options)
        args = arguments(module, seed)
        try:
            hk.evaluate(module, *args)
        except hk.HlokitError:
            continue
        after = optimized(module, *passes)
        assert same_bits(module, after, *args), seed
        changed += str(after) != str(module)
    assert changed > 10


@pytest.mark.parametrize(("start", "decides"), [(0, True), (3, True), (-1, False)])
def test_what_the_counter_decides(start: int, decides: bool) -> None:
    module = hk.parse(
        f"""HloModule m
cond {{ p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(10) ROOT c = pred[] compare(i, n), direction=LT }}
body {{ p = (s32[], f32[4]) parameter(0) i = s32[] get-tuple-element(p), index=0 x = f32[4] get-tuple-element(p), index=1
zero = s32[] constant(0) negative = pred[] compare(i, zero), direction=LT four = s32[] constant(4) w = s32[] add(i, four)
k = s32[] select(negative, w, i) one = s32[] constant(1) j = s32[] add(i, one)
e = f32[1] dynamic-slice(x, k), dynamic_slice_sizes={{1}} b = f32[4] broadcast(e), dimensions={{}} y = f32[4] add(x, b)
ROOT t = (s32[], f32[4]) tuple(j, y) }}
ENTRY e {{ x = f32[4] parameter(0) i = s32[] constant({start}) t = (s32[], f32[4]) tuple(i, x)
ROOT w = (s32[], f32[4]) while(t), condition=cond, body=body }}
""".replace("b = f32[4] broadcast(e)", "s = f32[] reshape(e) b = f32[4] broadcast(s)")
    )
    after = optimized(module, "while-loop-range-simplifier", "algsimp", "dce")
    assert ("select" not in str(after)) is decides and same_bits(module, after, [1.0] * 4)


RANGES = [
    ("i", (0, 9)), ("add(i, c)", (5, 14)), ("subtract(c, i)", (-4, 5)), ("multiply(i, m)", (-27, 0)), ("and(i, c)", (0, 5)),
    ("shift-right-logical(i, one)", (0, 4)), ("remainder(i, c)", (0, 4)), ("divide(i, c)", (0, 1)), ("maximum(i, c)", (5, 9)),
    ("minimum(i, c)", (0, 5)), ("clamp(one, i, c)", (1, 5)), ("multiply(big, i)", (-(2**31), 2**31 - 1)), ("negate(i)", (-(2**31), 2**31 - 1)),
    ("select(p, c, m)", (-3, 5)), ("reverse(i), dimensions={0}", (0, 9)), ("divide(i, i)", (-(2**31), 2**31 - 1)),
]  # fmt: skip


@pytest.mark.parametrize(("body", "expected"), RANGES)
def test_ranges(body: str, expected: tuple[int, int]) -> None:
    def full(name: str, value: int) -> str:
        return f"{name}_ = s32[] constant({value}) {name} = s32[10] broadcast({name}_), dimensions={{}}\n"

    constants = full("c", 5) + full("m", -3) + full("one", 1) + full("big", 2**30)
    root = body if "(" in body else f"copy({body})"
    module = hk.parse(
        f"ENTRY e {{ p = pred[10] parameter(0) i = s32[10] iota(), iota_dimension=0\n{constants} ROOT r = s32[10] {root} }}"
    )
    assert value_range(module.entry.root) == expected


def test_what_a_loop_carries_keeps_its_layout() -> None:
    """The state's start lies in another layout than its parameter in the body, where a bitcast reads it."""
    module = hk.parse("""HloModule m
cond { p = (s32[], f32[2,3]{1,0}, f32[6], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 n = s32[] constant(3) ROOT c = pred[] compare(i, n), direction=LT }
body { p = (s32[], f32[2,3]{1,0}, f32[6], f32[6]) parameter(0) i = s32[] get-tuple-element(p), index=0 one = s32[] constant(1) j = s32[] add(i, one)
x = f32[2,3]{1,0} get-tuple-element(p), index=1 b = f32[6] bitcast(x) s = f32[6] get-tuple-element(p), index=2 y = f32[6] add(s, b)
d = f32[6] get-tuple-element(p), index=3 ROOT t = (s32[], f32[2,3]{1,0}, f32[6], f32[6]) tuple(j, x, y, d) }
ENTRY e { x = f32[2,3]{0,1} parameter(0) i = s32[] constant(0) z = f32[6] constant({0, 0, 0, 0, 0, 0}) t = (s32[], f32[2,3]{0,1}, f32[6], f32[6]) tuple(i, x, z, z)
w = (s32[], f32[2,3]{1,0}, f32[6], f32[6]) while(t), condition=cond, body=body ROOT r = f32[6] get-tuple-element(w), index=2 }
""")
    x = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    for names in (
        ["while-loop-simplifier"],
        ["while-loop-invariant-code-motion"],
        ["while-loop-unroller", "tuple-simplifier"],
    ):
        assert same_bits(module, optimized(module, *names), x)
    assert same_bits(module, hk.optimize(module), x)
