"""Collectives between threads without the reference: the interpreter's bytes, whatever the types, sizes and groups."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.runtime import collectives, host_steps
from tests.devices.programs import F, add, is_replica, program
from tests.rules.labels import rule

TYPES = ["s4", "u4", "s8", "u16", "s32", "u64", "f8e4m3fn", "bf16", "f16", "f32", "f64", "c64", "c128"]
SMALL, LARGE = 1001, 20_001
"""Rows of three: one device moves all, in blocks of which the last is not full; all devices share in the work."""


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """No collective goes to the reference."""
    reference = host_steps._evaluate

    def evaluated(process: Any, instruction: Any, table: int) -> None:
        assert instruction.op.asks_device, f"{instruction.name} goes to the reference"
        reference(process, instruction, table)

    monkeypatch.setattr(host_steps, "_evaluate", evaluated)


def values(dtype: hk.DType, dimensions: Sequence[int], seed: int) -> Any:
    """Numbers of all sizes; for types without fractions whole ones."""
    rng = np.random.default_rng(seed)
    drawn: Any = rng.standard_normal(dimensions) * 2.0 ** rng.integers(-3, 3, dimensions)
    if dtype.is_complex:
        drawn = drawn + 1j * rng.standard_normal(dimensions)
    elif dtype.kind != "floating":
        drawn = rng.integers(0, 8, dimensions)
    return drawn.astype(dtype.numpy)


def flat(result: Any) -> list[Any]:
    return [part for each in result for part in flat(each)] if isinstance(result, (tuple, list)) else [result]


def check(module: hk.HloModule, args: Sequence[Sequence[Any]], counts: tuple[int, int] = (0, 1), **options: Any) -> Any:
    """Machine code gives the interpreter's bytes, a replica for each list of arguments, without Python where that is
    possible, and with it; gives the results."""
    grid = {"replicas": counts[0] or len(args), "partitions": counts[1]}
    wanted = hk.evaluate(module, *args, **grid)
    run: Any = hk.compile(module, **grid, **options)
    for number in range(4):
        if number == 2:
            run.grid = None
        result = run(*([np.array(a) for a in own] for own in args))
        assert [(a.dtype, a.shape) for a in flat(result)] == [(a.dtype, a.shape) for a in flat(wanted)]
        assert [a.tobytes() for a in flat(result)] == [a.tobytes() for a in flat(wanted)]
    return result


def check_on(count: int, function: Callable[[Any], Any], dtype: hk.DType, *dimensions: int, **options: Any) -> Any:
    module = program(lambda b, x: function(x), dtype[dimensions])
    return check(module, [[values(dtype, dimensions, r)] for r in range(count)], **options)


ON_THREE: dict[str, Callable[[Any], Any]] = {
    "all-reduce": lambda x: hk.all_reduce(x, add),
    "all-gather": lambda x: hk.all_gather(x, 1, 3),
    "reduce-scatter": lambda x: hk.reduce_scatter(x, add, 1, 3),
    "all-to-all": lambda x: hk.all_to_all(x, 1, 1, 3),
    "collective-permute": lambda x: hk.collective_permute(x, [(0, 2), (2, 1)]),
    "collective-broadcast": lambda x: hk.collective_broadcast(x, [[1, 0]]),
}


@pytest.mark.parametrize("rows", [0, SMALL, LARGE])
@pytest.mark.parametrize("kind", ON_THREE)
def test_types(kind: str, rows: int, native: None) -> None:
    """Blocks lie along the inner dimension: they are rows of one element."""
    types = [hk.dtype(name) for name in TYPES]
    builder = hk.Builder("types")
    operands = [builder.parameter(n, dtype[rows, 3]) for n, dtype in enumerate(types)]
    module = builder.build(hk.tuple_(builder, [ON_THREE[kind](x) for x in operands]))
    check(module, [[values(dtype, (rows, 3), r) for dtype in types] for r in range(3)])


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_blocks_of_the_outer_and_of_a_middle_dimension(rows: int, native: None) -> None:
    check_on(3, lambda x: hk.all_gather(x, 0, 3), hk.f32, rows, 3)
    check_on(3, lambda x: hk.all_to_all(x, 0, 0, 3), hk.s16, rows // 3 * 3, 3)
    check_on(3, lambda x: hk.reduce_scatter(x, add, 0, 3), hk.f64, rows // 3 * 3, 3)
    check_on(2, lambda x: hk.reduce_scatter(x, add, 1, 2), hk.bf16, 3, rows // 7 * 2, 7)
    check_on(2, lambda x: hk.all_gather(x, 1, 2), hk.u8, 3, rows // 7, 7)


def nested(x: Any, y: Any) -> Any:
    """Calls, constants and a choice; not commutative."""
    return hk.select(hk.gt(x, y), hk.call(x.builder, add, [x, x * 0.5]), y - x * 0.25)


REDUCERS: dict[str, Callable[[Any, Any], Any]] = {
    "subtract": lambda x, y: x - y,
    "divide": lambda x, y: x / y,
    "maximum": hk.max,
    "first": lambda x, y: x,
    "second": lambda x, y: y,
    "constant": lambda x, y: x.builder.constant(F(3)),
    "nested": nested,
}


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", REDUCERS)
def test_reducers(name: str, strict: bool, native: None) -> None:
    for rows in (1, SMALL, LARGE):
        check_on(4, lambda x: hk.all_reduce(x, REDUCERS[name]), hk.f32, rows, 3, strict=strict)


def test_reducers_without_exact_machine_code(native: None) -> None:
    """They fold by the interpreter, where the operands lie."""
    for rows in (1, SMALL, LARGE):
        check_on(3, lambda x: hk.all_reduce(x, lambda p, q: hk.tanh(p) + q), hk.f32, rows, 3)
        check_on(3, lambda x: hk.reduce_scatter(x, lambda p, q: hk.tanh(p) * q, 1, 3), hk.f32, rows, 3)


def test_special_values(native: None) -> None:
    special = F([np.inf, -np.inf, 0.0, -0.0, 1e-45, np.finfo(F).max, 1.0, -1.0])
    pairs = [np.repeat(special, len(special)), np.tile(special, len(special))]
    for reducer in (add, hk.max, hk.min, lambda x, y: x * y):
        module = program(lambda b, x, r=reducer: hk.all_reduce(x, r), hk.f32[64])
        check(module, [[p] for p in pairs])


GROUPED = """
HloModule grouped

add {
  x = s32[] parameter(0)
  y = s32[] parameter(1)
  ROOT sum = s32[] add(x, y)
}

ENTRY main {
  p = s32[6] parameter(0)
  ROOT r = $SHAPE $OP
}
"""


@rule("GRP-1", "GRP-4", "GRP-9")
@pytest.mark.parametrize(
    "op",
    [
        "all-reduce(p), replica_groups={}, to_apply=add",
        "all-reduce(p), replica_groups={{0,2,1},{3}}, to_apply=add",
        "all-reduce(p), replica_groups={{3,1},{0,2}}, channel_id=1, to_apply=add",
        "all-reduce(p), replica_groups={{7,1,4},{0,2},{3},{5,6}}, channel_id=1, use_global_device_ids=true, to_apply=add",
        "all-reduce(p), replica_groups=[2,4]<=[4,2]T(1,0), channel_id=1, use_global_device_ids=true, to_apply=add",
        "all-gather(p), replica_groups=[2,2]<=[4], dimensions={0}",
        "reduce-scatter(p), replica_groups={{0,3},{2,1}}, dimensions={0}, to_apply=add",
        "all-to-all(p), replica_groups={{1,0}}, dimensions={0}, channel_id=3",
        "all-to-all(p), replica_groups={{1,3},{0,2}}, dimensions={0}",
        "collective-permute(p), source_target_pairs={{0,1}}, channel_id=2",
        "collective-permute(p), source_target_pairs={{3,1},{1,3}}",
        "collective-broadcast(p), replica_groups={{2,0},{3}}",
    ],
)
def test_groups(op: str, native: None) -> None:
    """Four replicas of two partitions."""
    shape = {"all-gather": "s32[12]", "reduce-scatter": "s32[3]"}.get(op.partition("(")[0], "s32[6]")
    module = hk.parse(GROUPED.replace("$OP", op).replace("$SHAPE", shape))
    check(module, [[np.int32([10**k] * 5 + [k])] for k in range(8)], (4, 2))


@rule("BEY-60", "BEY-61")
def test_several_operands(native: None) -> None:
    def function(b: hk.Builder, x: Any, y: Any) -> Any:
        pair = [x, hk.slice(x, [0, 0], [2, 3], [1, 1])]
        parts = [
            hk.all_reduce_tuple(pair, REDUCERS["subtract"]),
            hk.all_gather_tuple(pair, 1, 2),
            hk.reduce_scatter(hk.tuple_(b, [hk.transpose(x, [1, 0]), y]), add, 1, 2),
            hk.all_to_all_tuple([x, x * F(2)]),
            hk.multi_collective_permute([y, x], [(1, 0)]),
            hk.collective_broadcast([x, y], [[1, 0]]),
        ]
        return hk.tuple_(b, parts)

    for rows in (2, LARGE // 2 * 2):
        module = program(function, hk.f32[rows, 3], hk.f32[5, 4])
        check(module, [[values(hk.f32, (rows, 3), r), values(hk.f32, (5, 4), r + 9)] for r in range(2)])


STARTED = """
HloModule started

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT sum = f32[] add(x, y)
}

ENTRY main {
  p = f32[6] parameter(0)
  q = f32[2,3] parameter(1)
  a = f32[6] all-reduce-start(p), to_apply=add
  g = ((f32[6], f32[2,3]), (f32[12], f32[4,3])) all-gather-start(p, q), dimensions={0}
  c = (f32[6], f32[6], u32[], u32[]) collective-permute-start(p), source_target_pairs={{0,1}}
  d = f32[6] all-reduce-done(a)
  h = (f32[12], f32[4,3]) all-gather-done(g)
  e = f32[6] collective-permute-done(c)
  ROOT r = (f32[6], (f32[12], f32[4,3]), f32[6]) tuple(d, h, e)
}
"""


@rule("HASYNC-6", "HOP-32", "HOP-35")
def test_started_and_done(native: None) -> None:
    """Neither the state's operands nor what is done are copied."""
    module = hk.parse(STARTED)
    check(module, [[values(hk.f32, (6,), r), values(hk.f32, (2, 3), r)] for r in range(2)])
    steps = hk.compile(module, replicas=2).executable.program.block.steps
    assert [step.name for step in steps] == ["a", "g", "c"]


STATE = """
HloModule state

ENTRY main {
  p = f32[6] parameter(0)
  q = f32[6] add(p, p)
  c = (f32[6], f32[6], u32[], u32[]) collective-permute-start(q), source_target_pairs={{0,1}}
  k = f32[6] get-tuple-element(c), index=0
  e = f32[6] collective-permute-done(c)
  ROOT r = (f32[6], f32[6], f32[6]) tuple(k, e, q)
}
"""


def test_a_states_operands_are_values_as_others(native: None) -> None:
    check(hk.parse(STATE), [[values(hk.f32, (6,), r)] for r in range(2)])


@pytest.mark.parametrize("rows", [2, LARGE])
def test_loops_and_branches(rows: int, native: None) -> None:
    """The operand's memory is written to as soon as the collective is over."""

    def function(b: hk.Builder, x: Any) -> Any:
        def body(v: Any) -> Any:
            return hk.all_reduce(v, REDUCERS["subtract"]) * F(0.5) + hk.collective_permute(v, [(0, 1), (1, 0)])

        def turns(count: Any, v: Any) -> tuple[Any, Any]:
            return count - np.int32(1), body(v)

        state = hk.tuple_(b, [b.constant(np.int32(9)), x])
        last = hk.while_(
            lambda s: hk.gt(hk.get_tuple_element(s, 0), np.int32(0)),
            lambda s: hk.tuple_(s.builder, list(turns(hk.get_tuple_element(s, 0), hk.get_tuple_element(s, 1)))),
            state,
        )
        v = hk.get_tuple_element(last, 1)
        return hk.conditional(hk.lt(b.constant(F(1)), F(2)), v, body, v, lambda w: w)

    module = program(function, hk.f32[rows, 3])
    args = [[values(hk.f32, (rows, 3), r)] for r in range(2)]
    check(module, args)
    check(module, args, donate=[0])


@rule("GRP-6")
def test_two_instructions_of_one_channel_meet(native: None) -> None:
    def function(b: hk.Builder, x: Any) -> Any:
        def first(v: Any) -> Any:
            return hk.all_reduce(v, add, channel_id=hk.ChannelHandle(5)) * F(2)

        def second(v: Any) -> Any:
            return hk.all_reduce(v, add, channel_id=hk.ChannelHandle(5)) * F(3)

        return hk.conditional(is_replica(b, 0), x, first, x, second)

    for rows in (2, LARGE):
        check_on(2, lambda x: function(x.builder, x), hk.f32, rows, 3)


def test_a_donated_array_that_several_devices_have_is_copied(native: None) -> None:
    module = program(lambda b, x, y: hk.all_reduce(x + y, add), hk.f32[LARGE], hk.f32[LARGE])
    shared, own = values(hk.f32, (LARGE,), 0), [values(hk.f32, (LARGE,), r + 1) for r in range(3)]
    args = [[shared, own[0]], [shared, own[1]], [own[2], shared]]
    wanted = hk.evaluate(module, *args, replicas=3)
    before = shared.copy()
    run: Any = hk.compile(module, replicas=3, donate=[0])
    assert run.executable.plan.overwritten == (0,)
    for _ in range(3):
        result = run(*([a if a is shared else a.copy() for a in pair] for pair in args))
        assert [a.tobytes() for a in result] == [a.tobytes() for a in wanted]
        assert shared.tobytes() == before.tobytes()


def test_calls_at_the_same_time(native: None) -> None:
    run: Any = hk.compile(program(lambda b, x: hk.all_reduce(x, add), hk.s32[LARGE]), replicas=3)
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(10):
            results = run(*([np.full(LARGE, number + r, np.int32)] for r in range(3)))
            wrong.extend(number for r in results if (r != 3 * number + 3).any())

    threads = [threading.Thread(target=call, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_device_that_fails_at_its_share_stops_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    run: Any = hk.compile(program(lambda b, x: hk.all_reduce(x, add), hk.f32[LARGE]), replicas=3)
    run.grid = None
    args = [[values(hk.f32, (LARGE,), r)] for r in range(3)]
    first = run(*args)
    share = collectives._Plan.share

    def fails(plan: Any, given: Any, part: int, parts: int | None = None) -> None:
        if part == 1:
            raise MemoryError("no memory")
        share(plan, given, part, parts)

    with monkeypatch.context() as patch, pytest.raises(MemoryError, match="no memory"):
        patch.setattr(collectives._Plan, "share", fails)
        run(*args)
    assert all(np.array_equal(a, b) for a, b in zip(first, run(*args), strict=True))


def test_a_device_that_fails_elsewhere_does_not_disturb_those_that_share() -> None:
    """Replica 2's queue is empty while the others fold."""

    def function(b: hk.Builder, x: Any) -> Any:
        def pair(v: Any) -> Any:
            return hk.all_reduce(v, add, [[0, 1], [2]])

        return hk.conditional(is_replica(b, 2), x, lambda v: v + v.builder.infeed(hk.f32[()]), x, pair)

    run: Any = hk.compile(program(function, hk.f32[LARGE * 20]), replicas=3)
    args = [[np.full(LARGE * 20, r, F)] for r in range(3)]
    for _ in range(5):
        with pytest.raises(hk.EvaluationError, match=r"replica 2: .*INFEED-9"):
            run(*args, infeed=[[], [], []])
    results = run(*args, infeed=[[], [], [F(5)]])
    assert [r[0] for r in results] == [1, 1, 7]


def test_threads_wait_for_the_next_run() -> None:
    run: Any = hk.compile(program(lambda b, x: hk.all_reduce(x, add), hk.f32[2]), replicas=2)
    run([F([1, 2])], [F([3, 4])])
    threads = set(threading.enumerate())
    for _ in range(5):
        run([F([1, 2])], [F([3, 4])])
    assert set(threading.enumerate()) <= threads
