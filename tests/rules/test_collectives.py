"""Collectives: GRP, AGATHER, ARED, CRSUM, RSCAT, REPID and their kin; the exchanging ones are in test_exchanges.py.

Programs run on one device; what several devices do together is tested on the ops' references, on pretended devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.hlo.computation import Computation
from hlokit.ops.collectives import (
    AllGather,
    AllGatherDone,
    AllGatherStart,
    AllReduce,
    AllReduceDone,
    AllReduceStart,
    PartitionId,
    ReduceScatter,
    ReplicaId,
)
from hlokit.ops.exchanges import (
    AllToAll,
    CollectivePermute,
    CollectivePermuteDone,
    CollectivePermuteStart,
)
from hlokit.types.shape import NIL, TOKEN, Shape
from tests.rules.grid import ADD, FOUR, TWO, F, build, combiner, on_devices, one_each, run, same
from tests.rules.labels import rejects, rule

# -- groups


@rule("GRP-1", "AGATHER-1", "AGATHER-2", "AGATHER-8")
def test_no_groups_means_one_group_of_all() -> None:
    gather = AllGather(None, (), False, 0, False, hk.f32[8])
    same(on_devices(gather, one_each(FOUR)), [np.concatenate(FOUR)] * 4)


GROUP_ROWS = [
    ("GRP-2", [[0, 1], []], None, False),
    ("GRP-2", [[0, 1], [1, 2]], None, False),
    ("GRP-2", [[0, 2]], None, False),
    ("GRP-2", [[-1, 0]], None, False),
    ("GRP-3", [[0, 1], [2]], None, False),
    ("GRP-5", [[0, 1]], None, True),
    ("GRP-5", [], 1, True),
]


@pytest.mark.parametrize(
    ("label", "groups", "channel", "flattened"),
    GROUP_ROWS,
    ids=[
        "GRP-2: empty group",
        "GRP-2: id twice",
        "GRP-2: id missing",
        "GRP-2: negative",
        "GRP-3: unequal sizes",
        "GRP-5: no channel",
        "GRP-5: no groups",
    ],
)
def test_groups_rejected(label: str, groups: Any, channel: int | None, flattened: bool) -> None:
    with rejects(label):
        build(lambda x: hk.all_gather(x, 0, 2, groups, channel, None, flattened), hk.f32[2])


@rule("GRP-3")
def test_groups_of_all_reduce_may_differ_in_size() -> None:
    assert build(lambda x: hk.all_reduce(x, ADD, [[0, 1, 2], [3]]), hk.f32[2]).shape is hk.f32[2]


@rule("GRP-4", "GRP-7", "BEY-67")
@pytest.mark.parametrize(
    ("channel", "flattened", "groups", "expected"),
    [
        (None, False, [[0, 1], [2, 3]], [[0, 2], [1, 3], [4, 6], [5, 7]]),
        (1, False, [[0, 1], [2, 3]], [[0, 2, 1, 3], [4, 6, 5, 7]]),
        (1, True, [[0, 1, 2, 3], [4, 5, 6, 7]], [[0, 1, 2, 3], [4, 5, 6, 7]]),
    ],
    ids=["GRP-4: replicas", "GRP-4: replicas and partitions", "GRP-4: flattened"],
)
def test_modes_of_groups(channel: int | None, flattened: bool, groups: Any, expected: list[list[int]]) -> None:
    """Device 2r+p is replica r, partition p; sums show who takes part, the gathered order the order."""
    size = len(expected[0])
    gather = AllGather(channel, groups, False, 0, flattened, hk.s32[size])
    ids = [np.array([i], np.int32) for i in range(8)]
    results = on_devices(gather, one_each(ids), partitions=2)
    for device, result in enumerate(results):
        assert result.tolist() == next(group for group in expected if device in group)


@rule("GRP-4")
def test_all_to_all_and_permute_with_a_channel_are_among_partitions() -> None:
    values = [np.array([10 * i, 10 * i + 1], np.int32) for i in range(4)]
    exchanged = on_devices(AllToAll(1, (), False, 0), one_each(values), partitions=2)
    same(exchanged, [[0, 10], [1, 11], [20, 30], [21, 31]])
    moved = on_devices(CollectivePermute(1, [(0, 1)]), one_each(values), partitions=2)
    same(moved, [[0, 0], values[0], [0, 0], values[2]])


@rule("GRP-9", "BEY-59")
@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (hk.ReplicaGroups.iota(2, 2, [4]), ((0, 1), (2, 3))),
        (hk.ReplicaGroups.iota(2, 2, [2, 2], [1, 0]), ((0, 2), (1, 3))),
    ],
)
def test_iota_groups(groups: hk.ReplicaGroups, expected: Any) -> None:
    assert groups.expand(4) == expected
    assert build(lambda x: hk.all_reduce(x, ADD, groups), hk.f32[2]).instruction.op is AllReduce(None, groups)
    results = on_devices(AllReduce(None, groups), one_each(FOUR), ADD)
    same(results, on_devices(AllReduce(None, expected), one_each(FOUR), ADD))


@rule("GRP-10", "CPERM-2")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: hk.all_gather(x, 0, 1),
        lambda x: hk.all_reduce(x, ADD),
        lambda x: hk.reduce_scatter(x, ADD, 0, 1),
        lambda x: hk.all_to_all(x, 0, 0, 1),
        lambda x: hk.all_to_all_tuple([x])[0],
        lambda x: hk.collective_permute(x, [(0, 0)]),
        lambda x: hk.collective_broadcast(x, [[0]]),
    ],
    ids=["gather", "reduce", "scatter", "all-to-all", "tuple", "permute", "broadcast"],
)
def test_collectives_of_one_device_are_the_identity(function: Any) -> None:
    same([run(function, FOUR[0])], [FOUR[0]])


@rule("GRP-2", "AGATHER-4")
def test_groups_that_do_not_fit_the_devices_are_refused_at_run_time() -> None:
    with rejects("GRP-2"):
        run(lambda x: hk.all_reduce(x, ADD, [[0, 1]]), FOUR[0])
    with rejects("AGATHER-4"):
        run(lambda x: hk.all_gather(x, 0, 4), FOUR[0])
    with rejects("CPERM-5"):
        run(lambda x: hk.collective_permute(x, [(0, 1)]), FOUR[0])
    with rejects("RSCAT-4"):
        run(lambda x: hk.reduce_scatter(x, ADD, 0, 2), FOUR[0])
    with rejects("A2A-5"):
        run(lambda x: hk.all_to_all_tuple([x, x]), FOUR[0])


@rule("GRP-10")
def test_a_block_of_a_dynamic_array_has_its_run_time_size() -> None:
    program = lambda x: hk.reduce_scatter(hk.set_dimension_size(x, np.int32(1), 0), ADD, 0, 1)  # noqa: E731
    same([run(program, FOUR[0])], [FOUR[0][:1]])


# -- all-gather


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[0, 2], [1, 3]], [[0, 2], [1, 3], [0, 2], [1, 3]]),
        ([[2, 0], [3, 1]], [[2, 0], [3, 1], [2, 0], [3, 1]]),
    ],
    ids=["AGATHER-6", "AGATHER-8"],
)
def test_all_gather_concatenates_in_group_order(groups: Any, expected: list[list[int]]) -> None:
    results = on_devices(AllGather(None, groups, False, 0, False, hk.f32[4]), one_each(FOUR))
    same(results, [np.concatenate([FOUR[i] for i in order]) for order in expected])


@rule("AGATHER-7")
def test_all_gather_of_two() -> None:
    same(on_devices(AllGather(None, (), False, 0, False, hk.f32[4]), one_each(TWO)), [[1.0, 2.5, 3.0, 5.25]] * 2)


@rule("AGATHER-1", "AGATHER-5", "BEY-60", "BEY-62")
def test_shapes_of_all_gather() -> None:
    assert build(lambda x: hk.all_gather(x, 1, 4), hk.f32[2, 3]).shape is hk.f32[2, 12]
    pair = Shape.tuple((hk.f32[2], hk.s32[3]))
    gathered = Shape.tuple((hk.f32[8], hk.s32[12]))
    assert build(lambda t: hk.all_gather(t, 0, 4), pair).shape is gathered
    assert build(lambda x, y: hk.all_gather_tuple([x, y], 0, 4), hk.f32[2], hk.s32[3]).shape is gathered
    assert build(lambda x: hk.all_gather_tuple([x], 0, 4), hk.f32[2]).shape is Shape.tuple((hk.f32[8],))
    fixed = build(lambda x: hk.all_gather(x, 1, 4, layout=hk.Layout((0, 1))), hk.f32[2, 3])
    assert str(fixed.shape) == "f32[2,12]{0,1}" and fixed.instruction.op.constrain_layout  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("label", "arguments"),
    [
        ("AGATHER-3", (1, 2)),
        ("AGATHER-3", (-1, 2)),
        ("AGATHER-4", (0, 0)),
        ("AGATHER-4", (0, 2, [[0, 1, 2]])),
    ],
    ids=["AGATHER-3: above", "AGATHER-3: below", "AGATHER-4: zero", "AGATHER-4: not the group size"],
)
def test_all_gather_rejects(label: str, arguments: tuple[Any, ...]) -> None:
    with rejects(label):
        build(lambda x: hk.all_gather(x, *arguments), hk.f32[3])


@rule("TOKEN-6", "AGATHER-1")
def test_all_gather_cards_check_themselves() -> None:
    with rejects("TOKEN-6"):
        build(lambda x: emit(AllGather(None, (), False, 0, False, TOKEN), x), TOKEN)
    for result in (hk.f32[5], hk.s32[4], hk.f32[4, 1]):
        with rejects("AGATHER-1"):
            build(lambda x, r=result: emit(AllGather(None, (), False, 0, False, r), x), hk.f32[2])


# -- all-reduce


@rule("ARED-2", "ARED-8")
def test_all_reduce_of_two() -> None:
    same(on_devices(AllReduce(), one_each(TWO), ADD), [[4.0, 7.75]] * 2)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[0, 2], [1, 3]], [[11, 22.5], [33, 45.25], [11, 22.5], [33, 45.25]]),
        ([[0, 1, 2], [3]], [[14, 27.75], [14, 27.75], [14, 27.75], [30, 40]]),
        ([], [[44, 67.75]] * 4),
    ],
    ids=["ARED-9 ARED-10: pairs", "ARED-10: three and one", "ARED-10: all"],
)
def test_all_reduce_adds_within_groups(groups: Any, expected: Any) -> None:
    same(on_devices(AllReduce(None, groups), one_each(FOUR), ADD), expected)


@rule("ARED-7")
def test_all_reduce_folds_in_group_order() -> None:
    subtract = combiner(lambda x, y: x - y)
    results = on_devices(AllReduce(None, [[1, 0]]), one_each(TWO), subtract)
    same(results, [TWO[1] - TWO[0]] * 2)


@rule("ARED-1", "ARED-3", "ARED-5", "BEY-60")
def test_all_reduce_of_tuples() -> None:
    pair = Shape.tuple((hk.f32[2], hk.f32[3, 1]))
    assert build(lambda x: hk.all_reduce(x, ADD), hk.f32[2, 3]).shape is hk.f32[2, 3]
    assert build(lambda t: hk.all_reduce(t, ADD), pair).shape is pair
    single = Shape.tuple((hk.f32[2],))
    assert build(lambda t: hk.all_reduce(t, ADD), single).shape is single
    assert build(lambda x: hk.all_reduce_tuple([x], ADD), hk.f32[2]).shape is single
    results = on_devices(AllReduce(), [(a, -a) for a in TWO], ADD)
    same(results[0], [[4.0, 7.75], [-4.0, -7.75]])


@pytest.mark.parametrize(
    ("label", "shape", "called"),
    [
        ("ARED-4", NIL, ADD),
        ("ARED-4", Shape.tuple((Shape.tuple((hk.f32[2],)),)), ADD),
        ("ARED-4", Shape.tuple((hk.f32[2], hk.s32[2])), ADD),
        ("ARED-4", TOKEN, ADD),
        ("ARED-6", hk.s32[2], ADD),
        ("ARED-6", hk.f32[2], combiner(lambda x, y: hk.lt(x, y))),
    ],
    ids=[
        "ARED-4: empty",
        "ARED-4: nested",
        "ARED-4: types",
        "ARED-4: token",
        "ARED-6: parameters",
        "ARED-6: result",
    ],
)
def test_all_reduce_rejects(label: str, shape: Shape, called: Computation) -> None:
    with rejects(label):
        build(lambda x: hk.all_reduce(x, called), shape)


@rule("ARED-6", "RSCAT-10")
@pytest.mark.parametrize(("own", "wide"), [("bf16", "f32"), ("f32", "bf16")])
@pytest.mark.parametrize(("operation", "size"), [("all-reduce(x)", 3), ("reduce-scatter(x), dimensions={0}", 1)])
def test_combiners_of_another_floating_type(operation: str, size: int, own: str, wide: str) -> None:
    """Each sum is taken in the combiner's type and rounded to the operand's: 1 + 2^-7 + 2^-9 has more bits than bf16."""
    module = hk.parse(f"""HloModule m, replica_count=3
    add {{ a = {wide}[] parameter(0) b = {wide}[] parameter(1) ROOT c = {wide}[] add(a, b) }}
    ENTRY e {{ x = {own}[3] parameter(0) ROOT r = {own}[{size}] {operation}, replica_groups={{}}, to_apply=add }}""")
    dtype = module.entry.parameters[0].shape.dtype.numpy
    given = [np.full(module.entry.parameters[0].shape.dimensions, value).astype(dtype) for value in (1, 2**-7, 2**-9)]
    wanted = np.float32(1 + 2**-7)  # in either type, the last summand is lost
    for results in (
        hk.evaluate(module, *[[x] for x in given]),
        hk.evaluate(hk.optimize(module), *[[x] for x in given]),
        hk.compile(module)(*[[x] for x in given]),
    ):
        assert all((np.asarray(result, np.float32) == wanted).all() for result in results)


@rule("CRSUM-1")
def test_cross_replica_sum_is_all_reduce_by_addition() -> None:
    handle = build(lambda x: hk.cross_replica_sum(x, [[0, 1]]), hk.pred[2])
    instruction = handle.instruction
    assert instruction.opcode == "all-reduce" and instruction.called[0].root.opcode in ("add", "or")
    flags = [np.array([True, False]), np.array([True, True])]
    same(on_devices(instruction.op, one_each(flags), instruction.called[0]), [[True, True]] * 2)


@rule("CRSUM-2")
def test_cross_replica_sum_of_nothing() -> None:
    with rejects("CRSUM-2"):
        build(lambda x: hk.cross_replica_sum(x), NIL)


# -- reduce-scatter


@rule("RSCAT-2", "RSCAT-8")
def test_reduce_scatter_of_two() -> None:
    values = [np.array([1.0, 2.25], F), np.array([3.0, 5.25], F)]
    same(on_devices(_scatter((), hk.f32[1]), one_each(values), ADD), [[4.0], [7.5]])


def _scatter(groups: Any, result: Shape, dimension: int = 0) -> ReduceScatter:
    return ReduceScatter(None, groups, False, False, dimension, result)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [([[0, 2], [1, 3]], [[11], [33], [22.5], [45.25]]), ([[2, 0], [3, 1]], [[22.5], [45.25], [11], [33]])],
    ids=["RSCAT-9: in order", "RSCAT-9: reversed"],
)
def test_reduce_scatter_by_position_in_the_group(groups: Any, expected: Any) -> None:
    same(on_devices(_scatter(groups, hk.f32[1]), one_each(FOUR), ADD), expected)


@rule("RSCAT-1", "RSCAT-7")
def test_shapes_of_reduce_scatter() -> None:
    assert build(lambda x: hk.reduce_scatter(x, ADD, 1, 4), hk.f32[2, 8]).shape is hk.f32[2, 2]
    pair = Shape.tuple((hk.f32[2], hk.f32[4]))
    assert build(lambda t: hk.reduce_scatter(t, ADD, 0, 2), pair).shape is Shape.tuple((hk.f32[1], hk.f32[2]))
    results = on_devices(_scatter((), Shape.tuple((hk.f32[1], hk.f32[1]))), [(a, -a) for a in TWO], ADD)
    same(results[1], [[7.75], [-7.75]])


@pytest.mark.parametrize(
    ("label", "shape", "called", "arguments"),
    [
        ("RSCAT-3", hk.f32[3], ADD, (0, 2)),
        ("RSCAT-4", hk.f32[4], ADD, (0, 0)),
        ("RSCAT-4", hk.f32[4], ADD, (0, 2, [[0, 1, 2, 3]])),
        ("RSCAT-5", hk.f32[4], ADD, (1, 2)),
        ("RSCAT-5", hk.f32[4], ADD, (-1, 2)),
        ("RSCAT-6", hk.f32[4], ADD, (0, 2, [[0, 1], [2]])),
        ("RSCAT-7", Shape.tuple((hk.f32[4], hk.s32[4])), ADD, (0, 2)),
        ("RSCAT-7", NIL, ADD, (0, 2)),
        ("RSCAT-10", hk.s32[4], ADD, (0, 2)),
    ],
    ids=[
        "RSCAT-3: remainder",
        "RSCAT-4: zero",
        "RSCAT-4: not the group size",
        "RSCAT-5: above",
        "RSCAT-5: below",
        "RSCAT-6: unequal groups",
        "RSCAT-7: types",
        "RSCAT-7: empty",
        "RSCAT-10: combiner",
    ],
)
def test_reduce_scatter_rejects(label: str, shape: Shape, called: Computation, arguments: tuple[Any, ...]) -> None:
    with rejects(label):
        build(lambda x: hk.reduce_scatter(x, called, *arguments), shape)


# -- ids, asynchronous forms


@rule("REPID-1", "REPID-2", "REPID-3", "BEY-66", "HOP-37")
def test_ids() -> None:
    builder = hk.Builder("test")
    replica, partition = builder.replica_id(), builder.partition_id()
    assert replica.shape is partition.shape is hk.u32[()]
    assert not builder.is_constant(replica) and not builder.is_constant(partition)
    assert hk.evaluate(builder.build([replica, partition])) == (0, 0)
    nothing = [()] * 6
    assert [int(v) for v in on_devices(ReplicaId(), nothing, partitions=2)] == [0, 0, 1, 1, 2, 2]
    assert [int(v) for v in on_devices(PartitionId(), nothing, partitions=2)] == [0, 1] * 3


def _start_and_done(start: Any, done: Any, *operands: Any, called: Sequence[Computation] = ()) -> hk.XlaOp:
    return emit(done, emit(start, *operands, called=called))


@rule("BEY-56", "HASYNC-6", "HOP-31", "HOP-32", "HOP-35")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: _start_and_done(AllReduceStart(), AllReduceDone(), x, called=[ADD]),
        lambda x: _start_and_done(AllGatherStart(None, (), False, 0, False, _pair(x, x)), AllGatherDone(), x),
        lambda x: _start_and_done(
            AllGatherStart(None, (), False, 0, False, Shape.tuple((Shape.tuple((x.shape,)), x.shape))),
            AllGatherDone(),
            x,
        ),
        lambda x: _start_and_done(
            CollectivePermuteStart(None, [(0, 0)], (), Shape.tuple((x.shape, x.shape, hk.u32[()], hk.u32[()]))),
            CollectivePermuteDone(),
            x,
        ),
    ],
    ids=["all-reduce", "all-gather", "all-gather of a tuple", "collective-permute"],
)
def test_start_and_done_are_the_plain_op(function: Any) -> None:
    same([run(function, FOUR[0])], [FOUR[0]])


def _pair(x: hk.XlaOp, y: hk.XlaOp) -> Shape:
    return Shape.tuple((x.shape, y.shape))


@pytest.mark.parametrize(
    ("label", "op"),
    [
        ("HOP-32", AllGatherStart(None, (), False, 0, False, hk.f32[4])),
        ("HOP-32", AllGatherStart(None, (), False, 0, False, Shape.tuple((hk.f32[3], hk.f32[6])))),
        ("HOP-32", AllGatherDone()),
        ("HOP-35", CollectivePermuteStart(None, [], (), hk.f32[2])),
        ("HOP-35", CollectivePermuteStart(None, [], (), Shape.tuple((hk.f32[2], hk.f32[3])))),
        ("HOP-35", CollectivePermuteDone()),
    ],
)
def test_states_have_their_form(label: str, op: Any) -> None:
    with rejects(label):
        build(lambda x: emit(op, x), hk.f32[2])
