"""Runs on several devices: GRP, AGATHER, ARED, A2A, CPERM, RSCAT, REPID, INFEED, OUTFEED, COMM rules on a grid."""

from __future__ import annotations

import threading
from itertools import chain
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.collectives import (
    AllGatherDone,
    AllGatherStart,
    AllReduceDone,
    AllReduceStart,
)
from hlokit.ops.communication import Recv, RecvDone, Send, SendDone
from hlokit.ops.exchanges import CollectivePermuteDone, CollectivePermuteStart
from hlokit.types.shape import TOKEN, Shape
from tests.devices.programs import F, add, on, program
from tests.rules.grid import FOUR, TWO, same
from tests.rules.labels import rejects, rule

# -- the documents' examples


@rule("AGATHER-7")
def test_all_gather_on_two_replicas() -> None:
    same(on(2, lambda b, x: hk.all_gather(x, 0, 2), TWO), [[1.0, 2.5, 3.0, 5.25]] * 2)


@rule("ARED-8", "CRSUM-1")
def test_all_reduce_on_two_replicas() -> None:
    same(on(2, lambda b, x: hk.all_reduce(x, add), TWO), [[4.0, 7.75]] * 2)
    same(on(2, lambda b, x: hk.cross_replica_sum(x), TWO), [[4.0, 7.75]] * 2)


@rule("RSCAT-8")
def test_reduce_scatter_on_two_replicas() -> None:
    values = [np.array([1.0, 2.25], F), np.array([3.0, 5.25], F)]
    same(on(2, lambda b, x: hk.reduce_scatter(x, add, 0, 2), values), [[4.0], [7.5]])


@rule("A2A-1", "A2A-2", "A2A-8")
def test_all_to_all_of_f32_4_16_on_four_cores() -> None:
    values = [np.arange(64, dtype=F).reshape(4, 16) + 100 * r for r in range(4)]
    results = on(4, lambda b, x: hk.all_to_all(x, 1, 0, 4), values)
    assert [r.shape for r in results] == [(16, 4)] * 4
    same(results, [np.concatenate([v[:, 4 * r : 4 * r + 4] for v in values]) for r in range(4)])


# -- groups


@rule("GRP-1", "GRP-2", "ARED-9", "ARED-10", "GRP-9")
@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], [[44, 67.75]] * 4),
        ([[0, 2], [1, 3]], [[11, 22.5], [33, 45.25], [11, 22.5], [33, 45.25]]),
        ([[0, 1, 2], [3]], [[14, 27.75], [14, 27.75], [14, 27.75], [30, 40]]),
        (hk.ReplicaGroups.iota(2, 2, [2, 2], [1, 0]), [[11, 22.5], [33, 45.25], [11, 22.5], [33, 45.25]]),
    ],
    ids=["all", "pairs", "three and one", "iota"],
)
def test_all_reduce_within_groups(groups: Any, expected: Any) -> None:
    same(on(4, lambda b, x: hk.all_reduce(x, add, groups), FOUR), expected)


@rule("GRP-4", "GRP-7", "BEY-67")
@pytest.mark.parametrize(
    ("replicas", "groups", "options", "members"),
    [
        (4, [[0, 1], [2, 3]], {}, [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (4, [[0, 1], [2, 3]], {"channel_id": 1}, [[0, 2, 1, 3], [4, 6, 5, 7]]),
        (
            4,
            [[0, 1, 2, 3], [4, 5, 6, 7]],
            {"channel_id": 1, "use_global_device_ids": True},
            [[0, 1, 2, 3], [4, 5, 6, 7]],
        ),
    ],
    ids=["cross-replica", "cross-replica-and-partition", "flattened"],
)
def test_process_groups_of_two_partitions(replicas: int, groups: Any, options: Any, members: Any) -> None:
    def gathered(b: hk.Builder) -> hk.XlaOp:
        number = b.replica_id() * np.uint32(2) + b.partition_id()
        return hk.all_gather(hk.reshape(number, [1]), 0, len(members[0]), groups, **options)

    results = hk.evaluate(program(gathered), *[[]] * 8, replicas=replicas, partitions=2)
    for device, result in enumerate(results):
        assert result.tolist() == next(group for group in members if device in group)


@rule("GRP-4", "A2A-10", "CPERM-2")
def test_exchanges_with_a_channel_are_between_partitions() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> list[hk.XlaOp]:
        return [hk.all_to_all(x, 0, 0, 2, [[1, 0]], channel_id=1), hk.collective_permute(x, [(0, 1)], 2)]

    values = [np.array([10 * d, 10 * d + 1], np.int32) for d in range(4)]
    results = hk.evaluate(program(function, hk.s32[2]), *([v] for v in values), replicas=2, partitions=2)
    assert [r[0].tolist() for r in results] == [[11, 1], [10, 0], [31, 21], [30, 20]]
    assert [r[1].tolist() for r in results] == [[0, 0], [0, 1], [0, 0], [20, 21]]


@rule("GRP-2", "GRP-3", "CPERM-5", "AGATHER-4", "RSCAT-4", "A2A-5", "A2A-4")
@pytest.mark.parametrize(
    ("label", "function"),
    [
        ("GRP-2", lambda b, x: hk.all_reduce(x, add, [[0, 1, 2]])),
        ("GRP-2", lambda b, x: hk.all_reduce(x, add, [[0]])),
        ("CPERM-5", lambda b, x: hk.collective_permute(x, [(0, 2)])),
        ("AGATHER-4", lambda b, x: hk.all_gather(x, 0, 3)),
        ("RSCAT-4", lambda b, x: hk.reduce_scatter(x, add, 0, 3)),
        ("A2A-5", lambda b, x: hk.all_to_all_tuple([x, x, x])),
        ("A2A-4", lambda b, x: hk.all_to_all(x, 0, 0, 3)),
    ],
)
def test_groups_that_do_not_fit_the_devices(label: str, function: Any) -> None:
    values = [np.zeros(3, F)] * 2
    with rejects(label):
        on(2, function, values)


# -- the other collectives


@rule("AGATHER-6", "AGATHER-8", "AGATHER-2", "AGATHER-5")
def test_all_gather_within_groups() -> None:
    results = on(4, lambda b, x: hk.all_gather_tuple([x, -x], 0, 2, [[2, 0], [3, 1]]), FOUR)
    wanted = [np.concatenate([FOUR[i] for i in group]) for group in ([2, 0], [3, 1], [2, 0], [3, 1])]
    same([r[0] for r in results], wanted)
    same([r[1] for r in results], [-w for w in wanted])


@rule("ARED-2", "ARED-3", "ARED-7")
def test_all_reduce_folds_any_computation_in_group_order() -> None:
    results = on(4, lambda b, x: hk.all_reduce_tuple([x, x + x], lambda a, c: a - c, [[3, 0, 1, 2]]), FOUR)
    wanted = FOUR[3] - FOUR[0] - FOUR[1] - FOUR[2]
    for result in results:
        same(list(result), [wanted, wanted + wanted])


@rule("RSCAT-2", "RSCAT-7", "RSCAT-9")
def test_reduce_scatter_within_groups() -> None:
    same(on(4, lambda b, x: hk.reduce_scatter(x, add, 0, 2, [[2, 0], [3, 1]]), FOUR), [[22.5], [45.25], [11], [33]])


@rule("A2A-7", "A2A-9", "A2A-10", "A2A-11", "BEY-61")
def test_all_to_all_in_group_order() -> None:
    values = [np.array([[10 * r, 10 * r + 1, 10 * r + 2, 10 * r + 3]], F) for r in range(4)]
    results = on(4, lambda b, x: hk.all_to_all(x, 1, 1, 4, [[3, 2, 1, 0]]), values)
    assert results[0].tolist() == [[33, 23, 13, 3]]
    pairs = on(2, lambda b, x: hk.all_to_all_tuple([x, -x], replica_groups=[[1, 0]]), TWO)
    same(list(pairs[0]), [-TWO[1], -TWO[0]])
    same(list(pairs[1]), [TWO[1], TWO[0]])


@rule("CPERM-2", "CPERM-3", "CPERM-6", "CPERM-7")
def test_collective_permute_gives_zeros_to_those_that_are_no_target() -> None:
    results = on(4, lambda b, x: hk.collective_permute(x, [(0, 1), (1, 2), (3, 3)]), FOUR)
    same(results, [[0, 0], [1, 2.5], [3, 5.25], [30, 40]])
    flags = on(2, lambda b, x: hk.collective_permute(hk.gt(x, 0.0), []), TWO)
    same(flags, [[False, False]] * 2)


@rule("BEY-63", "BEY-65")
def test_broadcast_and_ragged_exchange() -> None:
    same(on(4, lambda b, x: hk.collective_broadcast(x, [[2, 0]]), FOUR), [FOUR[2], [0, 0], FOUR[2], [0, 0]])

    def ragged(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        table = lambda *v: b.constant(np.array(v, np.int32))  # noqa: E731
        start = hk.reshape(hk.convert_element_type(b.replica_id(), hk.s32), [1])
        targets = hk.concat_in_dim([start, start], 0)
        return hk.ragged_all_to_all(x, table(0, 1), table(1, 1), x * 0.0, targets, table(1, 1))

    same(on(2, ragged, TWO), [[1.0, 3.0], [2.5, 5.25]])


@rule("REPID-2", "BEY-66", "EXEC-2")
def test_ids_are_those_of_the_grid() -> None:
    module = program(lambda b: [b.replica_id(), b.partition_id()])
    results = hk.evaluate(module, *[[]] * 6, replicas=3, partitions=2)
    assert [tuple(map(int, r)) for r in results] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@rule("HASYNC-6", "BEY-56", "HOP-31", "HOP-32", "HOP-35")
def test_starts_and_dones() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> list[hk.XlaOp]:
        inner = b.create_sub_builder("add")
        combiner = inner.build_computation(inner.parameter(0, hk.f32[()]) + inner.parameter(1, hk.f32[()]))
        gathered = Shape.tuple((x.shape, hk.f32[4]))
        moved = Shape.tuple((x.shape, x.shape, hk.u32[()], hk.u32[()]))
        starts = [
            emit(AllReduceStart(), x, called=[combiner]),
            emit(AllGatherStart(None, (), False, 0, False, gathered), x),
            emit(CollectivePermuteStart(None, [(0, 1)], (), moved), x),
        ]
        dones = (AllReduceDone(), AllGatherDone(), CollectivePermuteDone())
        return [emit(done, start) for done, start in zip(dones, starts, strict=True)]

    results = on(2, function, TWO)
    for result, moved in zip(results, ([0, 0], TWO[0]), strict=True):
        same(list(result), [[4.0, 7.75], [1.0, 2.5, 3.0, 5.25], moved])


# -- queues


@rule("INFEED-2", "OUTFEED-2")
def test_every_device_has_its_own_queues() -> None:
    def function(b: hk.Builder) -> hk.XlaOp:
        value = b.infeed(hk.f32[()])
        total = hk.all_reduce(value, add)
        hk.outfeed(total - value, hk.f32[()])
        return total

    results, outfed = hk.evaluate(
        program(function), [], [], replicas=2, infeed=[[F(1.0)], [F(2.0)]], return_outfeed=True
    )
    assert [float(r) for r in results] == [3, 3] and [[float(v) for v in queue] for queue in outfed] == [[2], [1]]


@rule("INFEED-2", "OUTFEED-2")
@pytest.mark.parametrize("count", [1, 2])
def test_outfed_values_can_be_read_while_the_program_runs(count: int) -> None:
    """What a device reads next depends on what it has just sent."""

    def function(b: hk.Builder) -> hk.XlaOp:
        value = b.infeed(hk.f32[2])
        hk.outfeed(value * value, hk.f32[2])
        return b.infeed(hk.f32[2]) - value

    module = program(function)
    for machine in (False, True):
        outfed: list[Any] = [[] for _ in range(count)]
        infeed = [chain([np.full(2, d + 2.5, np.float32)], (v + 1 for v in outfed[d])) for d in range(count)]
        feeds: dict[str, Any] = {"infeed": infeed if count > 1 else infeed[0]}
        feeds["outfeed"] = outfed if count > 1 else outfed[0]
        arguments: list[Any] = [[]] * count if count > 1 else []
        if machine:
            found = hk.compile(module, replicas=count)(*arguments, **feeds)
        else:
            found = hk.evaluate(module, *arguments, replicas=count, **feeds)
        squares = [(d + 2.5) ** 2 for d in range(count)]
        same(found if count > 1 else [found], [[s + 1 - (d + 2.5)] * 2 for d, s in enumerate(squares)])
        assert [[value.tolist() for value in queue] for queue in outfed] == [[[s] * 2] for s in squares]


@rule("INFEED-9")
def test_an_empty_queue_stops_every_device() -> None:
    def function(b: hk.Builder) -> hk.XlaOp:
        return hk.all_reduce(b.infeed(hk.f32[()]), add)

    with pytest.raises(hk.EvaluationError, match=r"replica 1: .*INFEED-9"):
        hk.evaluate(program(function), [], [], replicas=2, infeed=[[1.0], []])


@rule("COMM-14")
def test_host_transfers() -> None:
    to_host, from_host = hk.ChannelHandle(2, "device_to_host"), hk.ChannelHandle(3, "host_to_device")

    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        sent = hk.send_to_host(hk.all_reduce(x, add), b.create_token(), x.shape, to_host)
        return hk.recv_from_host(sent, x.shape, from_host)[0]

    kept: list[dict[int, list[Any]]] = [{}, {}]
    given = [{3: (np.negative(v) for v in kept[d][2])} if d else {3: [TWO[1]]} for d in range(1)]
    given += [{3: [TWO[0]]}]
    same(on(2, function, TWO, from_host=given, to_host=kept), [TWO[1], TWO[0]])
    same([kept[0][2][0], kept[1][2][0]], [[4.0, 7.75]] * 2)
    module = program(function, hk.f32[2])
    with rejects("COMM-14"):
        hk.evaluate(module, TWO[0])
    with rejects("COMM-14"):
        hk.evaluate(module, TWO[0], from_host={3: [np.zeros(3, F)]})


# -- send and recv


def _sends(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
    hk.send(x, hk.ChannelHandle(1))
    return hk.recv(b, x.shape, hk.ChannelHandle(2))


def _answers(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
    received = hk.recv(b, x.shape, hk.ChannelHandle(1))
    hk.send(received * x, hk.ChannelHandle(2))
    return received


@rule("COMM-1", "COMM-2", "COMM-11")
def test_programs_talk_over_channels() -> None:
    one, other = program(_sends, hk.f32[2], name="one"), program(_answers, hk.f32[2], name="other")
    same(hk.evaluate_mpmd([(one, [TWO[0]]), (other, [TWO[1]])]), [TWO[0] * TWO[1], TWO[0]])
    results = hk.evaluate_mpmd(
        [(one, [TWO[0]]), (other, [TWO[1]]), (one, [TWO[1]]), (other, [TWO[1]])], replicas=2, partitions=2
    )
    same(results, [TWO[0] * TWO[1], TWO[0], TWO[1] * TWO[1], TWO[1]])


@rule("GRP-6")
def test_collectives_of_different_programs_meet_at_their_channel() -> None:
    one = program(lambda b, x: hk.all_reduce(x, add, channel_id=5), hk.f32[2], name="one")
    other = program(lambda b, x: hk.all_reduce(-x, add, channel_id=5) * 2.0, hk.f32[2], name="other")
    same(hk.evaluate_mpmd([(one, [TWO[0]]), (other, [TWO[1]])]), [TWO[0] - TWO[1], (TWO[0] - TWO[1]) * 2])
    apart = [program(lambda b, x: hk.all_reduce(x, add), hk.f32[2], name=name) for name in "ab"]
    with rejects("GRP-8"):
        hk.evaluate_mpmd([(module, [TWO[0]]) for module in apart])
    shorter = program(lambda b, x: hk.all_reduce(x, add, channel_id=5), hk.f32[1], name="shorter")
    with rejects("GRP-6"):
        hk.evaluate_mpmd([(one, [TWO[0]]), (shorter, [TWO[0][:1]])])


@rule("COMM-3")
def test_a_channel_has_one_sender_and_one_receiver() -> None:
    one, other = program(_sends, hk.f32[2], name="one"), program(_answers, hk.f32[2], name="other")
    with rejects("COMM-3"):
        hk.evaluate_mpmd([(one, [TWO[0]]), (other, [TWO[1]]), (one, [TWO[0]])])
    longer = program(_answers, hk.f32[3], name="longer")
    with rejects("COMM-3"):
        hk.evaluate_mpmd([(one, [TWO[0]]), (longer, [np.zeros(3, F)])])


@rule("COMM-16", "CPERM-3")
def test_pairs_say_who_sends_to_whom() -> None:
    text = """
HloModule ring

ENTRY main {
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}
  s = (f32[2], u32[], token[]) send(x, t), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}
  d = token[] send-done(s), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}
  e = (f32[2], token[]) recv-done(r), channel_id=1, frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,2}}"}
  ROOT y = f32[2] get-tuple-element(e), index=0
}
"""
    results = hk.evaluate(hk.parse(text), *([x] for x in FOUR[:3]), replicas=3)
    same(results, [[0, 0], FOUR[0], FOUR[1]])


@rule("COMM-9", "COMM-10", "COMM-13")
def test_a_tuple_is_sent_whole() -> None:
    pair = Shape.tuple((hk.f32[2], hk.s32[()]))
    context = Shape.tuple((pair, hk.u32[()], TOKEN))

    def sends(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return emit(SendDone(1), emit(Send(1), hk.tuple_(b, [x, np.int32(7)]), b.create_token()))

    def receives(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return emit(RecvDone(1), emit(Recv(1, False, context), b.create_token(), shape=context))[0]

    results = hk.evaluate_mpmd([(program(f, hk.f32[2], name=f.__name__), [TWO[0]]) for f in (sends, receives)])
    assert results[0] is None and np.array_equal(results[1][0], TWO[0]) and results[1][1] == 7


# -- the call


@rule("EXEC-2")
def test_the_header_says_how_many_devices_there_are() -> None:
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2])
    module.replica_count = 2
    same(hk.evaluate(module, [TWO[0]], [TWO[1]]), [[4.0, 7.75]] * 2)
    same([hk.evaluate(module, TWO[0], replicas=1)], [TWO[0]])
    with rejects("EXEC-2"):
        hk.evaluate(module, TWO[0], replicas=0)


@rule("EXEC-3")
def test_arguments_come_device_by_device() -> None:
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[2])
    for args in ([TWO[0]], [[TWO[0]]], [[TWO[0]], TWO[1]], [[TWO[0]], []], [[TWO[0]], [TWO[1], TWO[1]]]):
        with pytest.raises(hk.ArgumentError, match="EXEC-3"):
            hk.evaluate(module, *args, replicas=2)
    with pytest.raises(hk.ArgumentError, match="infeed"):
        hk.evaluate(module, [TWO[0]], [TWO[1]], replicas=2, infeed=[[]])


@rule("HSHARD-7")
def test_shardings_are_refused_but_for_one_device_with_the_global_values() -> None:
    text = """
HloModule sharded, num_partitions=2

ENTRY main {
  x = f32[4] parameter(0), sharding={devices=[2]0,1}
  ROOT y = f32[4] add(x, x), sharding={replicated}
}
"""
    module = hk.parse(text)
    values = np.arange(4, dtype=F)
    with pytest.raises(hk.UnsupportedError, match=r"x: sharding=.*HSHARD-7"):
        hk.evaluate(module, [values], [values])
    assert np.array_equal(hk.evaluate(module, values, partitions=1), values + values)
    replicated = hk.parse(text.replace("devices=[2]0,1", "replicated"))
    same(hk.evaluate(replicated, [values], [values]), [values + values] * 2)


def test_results_are_the_callers_own() -> None:
    results = on(2, lambda b, x: hk.collective_permute(x, [(0, 0), (1, 1)]), TWO)
    kept = [a.copy() for a in TWO]
    for result in results:
        result += 1
    same(TWO, kept)
    shared = on(3, lambda b, x: hk.collective_broadcast(x, [[0, 1, 2]]), FOUR[:3])
    shared[0][:] = 9
    same(shared[1:], [FOUR[0]] * 2)


@rule("RNG-7")
def test_random_numbers_differ_from_device_to_device_and_not_from_run_to_run() -> None:
    def function(b: hk.Builder) -> hk.XlaOp:
        return hk.rng_uniform(b.constant(F(0)), b.constant(F(1)), hk.f32[4])

    module = program(function)
    first, again = (hk.evaluate(module, [], [], replicas=2, seed=3) for _ in range(2))
    same(first, again)
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first[0], hk.evaluate(module, seed=3))


# -- devices that fail


def _threads() -> int:
    return sum(thread.name.startswith("replica") for thread in threading.enumerate())


def test_a_device_that_fails_stops_the_others_with_its_error() -> None:
    def function(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        return hk.all_reduce(x, add)

    def breaks(instruction: hk.Instruction, values: Any) -> None:
        if instruction.opcode == "all-reduce" and values[0][0] == 3.0:
            raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken") as caught:
        on(2, function, TWO, before=breaks)
    assert caught.value.__notes__ == ["on replica 1"] and _threads() == 0


def test_an_interrupt_stops_all_devices() -> None:
    import _thread

    module = program(lambda b, x: hk.while_(lambda s: hk.lt(s, F(9)), lambda s: s * F(1), x), hk.f32[()])
    steps = 0

    def interrupts(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == 20:
            _thread.interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        hk.evaluate(module, [1.0], [2.0], replicas=2, before=interrupts)
    assert _threads() == 0
