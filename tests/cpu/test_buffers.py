"""Buffer assignment: who shares memory with whom, and that nothing that is still needed is overwritten."""

import itertools
import random

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.compiler import Program, compile_program
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.buffers import ALIGNMENT, Assignment, assign
from hlokit.cpu.lower.steps import ConditionalStep, CopyStep, HostStep, StepBlock, WhileStep
from hlokit.cpu.target import baseline

numbers = itertools.count()


def buffer(name: str, size: int = 16) -> Buffer:
    return Buffer(name, hk.f32, size, next(numbers))


def step(reads: str = "", writes: str = "", **named: Buffer) -> HostStep:
    return HostStep(
        (), tuple(named[n] for n in reads.split()), tuple(named[n] for n in writes.split()), "made for the test"
    )


def copy(source: Buffer, result: Buffer, reason: str = "a test") -> CopyStep:
    return CopyStep((), (source,), (result,), reason)


def assert_apart(found: Assignment) -> None:
    """What lives at one time lies in different places, aligned, inside the arena."""
    homes = list(dict.fromkeys(home for home in found.homes.values() if home.kind == "arena" and home.last >= 0))
    for home in homes:
        assert home.offset % ALIGNMENT == 0 and home.offset + home.nbytes <= found.nbytes
    for one, two in itertools.combinations(homes, 2):
        if one.first <= two.last and two.first <= one.last and one.nbytes and two.nbytes:
            assert one.offset + one.nbytes <= two.offset or two.offset + two.nbytes <= one.offset, (one, two)


def program(text: str, donated: tuple[int, ...] = ()) -> Program:
    found = compile_program(hk.parse(f"HloModule m\n\n{text}\n"), baseline("x86-64-avx2"), donated=donated)
    assert_apart(found.assignment)
    return found


def test_memory_is_used_again_when_its_buffer_is_dead() -> None:
    b = {name: buffer(name) for name in ["a", "t", "u", "v", "r"]}
    steps = [step("a", "t", **b), step("t", "u", **b), step("u", "v", **b), step("v", "r", **b)]
    found = assign(StepBlock(steps), [b["a"]], [b["r"]], [])
    assert found.nbytes == 2 * ALIGNMENT
    assert found.homes[b["t"]].offset == found.homes[b["v"]].offset != found.homes[b["u"]].offset
    assert_apart(found)


def test_gaps_are_filled_and_joined() -> None:
    chance = random.Random(0)
    for _ in range(30):
        made = [buffer(f"b{k}", chance.randrange(1, 200)) for k in range(20)]
        steps = []
        for k, one in enumerate(made):
            reads = tuple(chance.sample(made[:k], min(k, chance.randrange(3))))
            steps.append(HostStep((), reads, (one,), "random"))
        found = assign(StepBlock(steps), [], [], [])
        assert_apart(found)
        alive = max(
            sum(max(ALIGNMENT, -(-h.nbytes // ALIGNMENT) * ALIGNMENT) for h in found.lives if h.first <= t <= h.last)
            for t in range(50)
        )
        assert alive <= found.nbytes <= 2 * alive


def test_the_holder_of_the_peak() -> None:
    b = {"a": buffer("a", 16), "large": buffer("large", 1000), "small": buffer("small", 10), "r": buffer("r", 16)}
    steps = [step("a", "small", **b), step("small", "large", **b), step("large", "r", **b)]
    found = assign(StepBlock(steps), [b["a"]], [b["r"]], [])
    assert found.holder() == ("large", 4000)


def test_copies_of_what_is_read_no_more_vanish() -> None:
    a, t, u, r = (buffer(n) for n in "atur")
    block = StepBlock([HostStep((), (a,), (t,), ""), copy(t, u), HostStep((), (u,), (u,), ""), copy(u, r)])
    found = assign(block, [a], [r], [])
    assert found.homes[t] is found.homes[u] is found.homes[r] and found.copies == [] and found.nbytes == 0


def test_copies_of_what_is_needed_stay() -> None:
    a, t, u, r = (buffer(n) for n in "atur")
    block = StepBlock(
        [HostStep((), (a,), (t,), ""), copy(t, u), HostStep((), (u,), (u,), ""), HostStep((), (t, u), (r,), "")]
    )
    found = assign(block, [a], [r], [])
    assert found.homes[t] is not found.homes[u] and [size for _, size, _ in found.copies] == [64]


def test_what_nobody_changes_is_not_copied() -> None:
    a, t, r, c = (buffer(n) for n in "atrc")
    block = StepBlock([copy(a, t), HostStep((), (t, a), (r,), ""), copy(c, buffer("k"))])
    found = assign(block, [a], [r], [c])
    assert found.homes[t] is found.homes[a] and found.copies == []
    changed = StepBlock([copy(a, t), HostStep((), (t,), (t,), ""), HostStep((), (t,), (r,), "")])
    assert assign(changed, [a], [r], []).copies


def test_a_copy_stays_where_its_source_changes_meanwhile() -> None:
    a, t, u, r = (buffer(n) for n in "atur")
    first = HostStep((), (a,), (t,), "")
    block = StepBlock([first, copy(t, u), HostStep((), (t,), (t,), ""), HostStep((), (u, t), (r,), "")])
    assert assign(block, [a], [r], []).copies


def test_a_donated_argument_is_the_result() -> None:
    a, r = buffer("a"), buffer("r")
    for donated, aliases in [((0,), {0: 0}), ((), {})]:
        found = assign(StepBlock([copy(a, r)]), [a], [r], [], donated)
        assert found.aliases == aliases and found.overwritten == list(aliases.values())
    twice = [buffer("r"), buffer("s")]
    found = assign(StepBlock([copy(a, twice[0]), copy(a, twice[1])]), [a], twice, [], (0,))
    assert found.aliases == {1: 0} and len(found.copies) == 1


def test_a_dead_argument_gives_its_memory_to_a_result() -> None:
    a, b, r = buffer("a"), buffer("b"), buffer("r")
    assert assign(StepBlock([HostStep((), (b,), (r,), "")]), [a, b], [r], [], (0, 1)).aliases == {0: 0}
    other = Buffer("a", hk.s32, 16, next(numbers))
    assert assign(StepBlock([HostStep((), (b,), (r,), "")]), [other, b], [r], [], (0,)).aliases == {}


def test_the_two_places_of_a_loop_live_as_long_as_it() -> None:
    a, i, j, p, r = (buffer(n) for n in "aijpr")
    body = StepBlock([HostStep((), (i,), (j,), "")], (j,))
    condition = StepBlock([HostStep((), (i,), (p,), "")], (p,))
    loop = WhileStep((), (i,), (i,), condition, p, body, ((i, j),))
    found = assign(StepBlock([copy(a, i), loop, copy(i, r)]), [a], [r], [])
    one, two = found.homes[i], found.homes[j]
    assert {one.slot, two.slot} == {0, 1} and (one.first, one.last) == (two.first, two.last)
    assert_apart(found)


def test_results_of_branches_are_written_in_their_place() -> None:
    s, a, t, u, r = (buffer(n) for n in "satur")
    branches = tuple(
        StepBlock([HostStep((), (a,), (own,), ""), copy(own, r, "the result of a branch")]) for own in (t, u)
    )
    found = assign(StepBlock([ConditionalStep((), (s, a), (r,), None, branches)]), [s, a], [r], [])  # type: ignore[arg-type]
    assert found.homes[t] is found.homes[u] is found.homes[r] and found.copies == []


# -- kernels in place


def test_temporaries_are_overwritten_by_elementwise_kernels() -> None:
    found = program(
        "lt {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT l = pred[] compare(a, b), direction=LT\n}\n"
        "ENTRY e {\n  x = f32[4096] parameter(0)\n  s = f32[4096] sort(x), dimensions={0}, to_apply=lt\n"
        "  n = f32[4096] negate(s)\n  ROOT t = f32[4096] sort(n), dimensions={0}, to_apply=lt\n}"
    ).assignment
    by_name = {b.name.partition(".")[0]: home for b, home in found.homes.items() if "scratch" not in b.name}
    assert by_name["s"] is by_name["n"] is not by_name["t"]


@pytest.mark.parametrize(
    ("body", "in_place"),
    [
        ("ROOT r = f32[64,64] negate(x)", True),
        ("n = f32[64,64] negate(x)\n  ROOT r = f32[64,64] add(n, x)", True),
        ("ROOT r = s32[64,64] bitcast-convert(x)", False),  # another element type: the array is not aligned for it
        ("t = f32[64,64] transpose(x), dimensions={1,0}\n  ROOT r = f32[64,64] add(t, x)", False),
        ("t = f32[64,64] reverse(x), dimensions={0}\n  ROOT r = f32[64,64] add(t, x)", False),
        ("ROOT r = s16[64,64] convert(x)", False),
        ("ROOT r = f32[4096] reshape(x)", True),
        ("a = f32[64,64] negate(x)\n  b = f32[64,64] abs(x)\n  ROOT r = (f32[64,64], f32[64,64]) tuple(a, b)", True),
        (
            "i = s32[64,64] iota(), iota_dimension=0\n  c = s32[64,64] convert(x)\n  s = s32[64,64] add(i, c)\n"
            "  y = f32[64,64] convert(s)\n  ROOT r = f32[64,64] add(y, x)",
            True,
        ),
    ],
)
def test_kernels_over_a_donated_argument(body: str, in_place: bool) -> None:
    text = f"ENTRY e {{\n  x = f32[64,64] parameter(0)\n  {body}\n}}"
    assert bool(program(text, (0,)).assignment.aliases) is in_place
    module = hk.parse(f"HloModule m\n\n{text}\n")
    x = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    expected, result = hk.evaluate(module, x), hk.compile(module, donate=(0,))(x.copy())
    pairs = zip(expected, result) if isinstance(expected, tuple) else [(expected, result)]
    for one, two in pairs:
        np.testing.assert_array_equal(one, two)


def test_elementwise_bodies_of_loops_work_in_place() -> None:
    state = "(s32[], f32[4096], f32[4096], s32[])"
    found = program(
        f"""body {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  x = f32[4096] get-tuple-element(p), index=1
  k = f32[4096] get-tuple-element(p), index=2
  n = s32[] get-tuple-element(p), index=3
  z = f32[4096] multiply(x, k)
  ROOT t = {state} tuple(next, z, k, n)
}}
condition {{
  p = {state} parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=3
  ROOT lt = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[4096] parameter(0)
  k = f32[4096] parameter(1)
  n = s32[] parameter(2)
  zero = s32[] constant(0)
  t = {state} tuple(zero, x, k, n)
  w = {state} while(t), condition=condition, body=body
  ROOT r = f32[4096] get-tuple-element(w), index=1
}}"""
    )
    assert any(isinstance(step, WhileStep) for step in found.block.steps)
    assert found.assignment.slots == [] and found.assignment.nbytes < 4096 * 4  # one place for x, none for k
    assert [size for _, size, _ in found.assignment.copies if size > 4] == [4 * 4096]  # x is the caller's


def test_a_counter_goes_up_when_all_have_seen_it() -> None:
    """The kernel of the counter's next value moves behind what reads the counter; others stay where they are."""
    found = program(
        """body {
  p = (s32[], f32[64,8], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  x = f32[64,8] get-tuple-element(p), index=1
  n = s32[] get-tuple-element(p), index=2
  c = f32[] convert(i)
  row = f32[1,8] broadcast(c), dimensions={}
  y = f32[64,8] dynamic-update-slice(x, row, i, zero)
  ROOT t = (s32[], f32[64,8], s32[]) tuple(next, y, n)
}
condition {
  p = (s32[], f32[64,8], s32[]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=2
  ROOT lt = pred[] compare(i, n), direction=LT
}
ENTRY e {
  x = f32[64,8] parameter(0)
  n = s32[] parameter(1)
  zero = s32[] constant(0)
  t = (s32[], f32[64,8], s32[]) tuple(zero, x, n)
  w = (s32[], f32[64,8], s32[]) while(t), condition=condition, body=body
  ROOT r = f32[64,8] get-tuple-element(w), index=1
}"""
    )
    (loop,) = [step for step in found.block.steps if isinstance(step, WhileStep)]
    assert loop.body.steps[-1].name.startswith("next") and len(set(loop.body.steps)) == len(loop.body.steps)
    assert found.assignment.slots == []
