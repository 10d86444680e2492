"""The examples and data rows of the reference's collectives, on both engines, built with the builder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.devices.programs import F, add, program
from tests.rules.grid import FOUR, TWO, same
from tests.rules.labels import rule

RUNS: dict[str, Callable[..., Any]] = {
    "interpreted": lambda module, *args, **counts: hk.evaluate(module, *args, **counts),
    "compiled": lambda module, *args, **counts: hk.compile(module, **counts)(*args),
    "strict": lambda module, *args, **counts: hk.compile(module, strict=True, **counts)(*args),
}


@pytest.fixture(params=RUNS.values(), ids=RUNS)
def on(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What a function of (builder, x) gives on replicas with an array each."""

    def run(function: Callable[..., Any], arrays: Sequence[Any], **counts: int) -> Any:
        module = program(function, hk.dtype(arrays[0].dtype)[arrays[0].shape])
        return request.param(module, *([a.copy()] for a in arrays), **(counts or {"replicas": len(arrays)}))

    return run


# -- the documents' examples


@rule("AGATHER-7")
def test_all_gather_on_two_replicas(on: Any) -> None:
    same(on(lambda b, x: hk.all_gather(x, 0, 2), TWO), [[1.0, 2.5, 3.0, 5.25]] * 2)


@rule("ARED-8", "CRSUM-1")
def test_all_reduce_on_two_replicas(on: Any) -> None:
    same(on(lambda b, x: hk.all_reduce(x, add), TWO), [[4.0, 7.75]] * 2)
    same(on(lambda b, x: hk.cross_replica_sum(x), TWO), [[4.0, 7.75]] * 2)


@rule("RSCAT-8")
def test_reduce_scatter_on_two_replicas(on: Any) -> None:
    values = [np.array([1.0, 2.25], F), np.array([3.0, 5.25], F)]
    same(on(lambda b, x: hk.reduce_scatter(x, add, 0, 2), values), [[4.0], [7.5]])


@rule("A2A-1", "A2A-2", "A2A-8")
def test_all_to_all_of_f32_4_16_on_four_cores(on: Any) -> None:
    values = [np.arange(64, dtype=F).reshape(4, 16) + 100 * r for r in range(4)]
    results = on(lambda b, x: hk.all_to_all(x, 1, 0, 4), values)
    same(results, [np.concatenate([v[:, 4 * r : 4 * r + 4] for v in values]) for r in range(4)])


# -- the data of AGATHER-8, on four replicas

ALL = [1, 2.5, 3, 5.25, 10, 20, 30, 40]


@rule("AGATHER-2", "AGATHER-6", "AGATHER-8", "GRP-1")
@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[2, 0], [3, 1]], [[10, 20, 1, 2.5], [30, 40, 3, 5.25]] * 2),
        ([[0, 2], [1, 3]], [[1, 2.5, 10, 20], [3, 5.25, 30, 40]] * 2),
        ([], [ALL] * 4),
    ],
)
def test_all_gather_in_group_order(on: Any, groups: Any, expected: Any) -> None:
    same(on(lambda b, x: hk.all_gather(x, 0, len(groups) or 4, groups), FOUR), expected)


@rule("ARED-2", "ARED-9", "ARED-10", "GRP-3")
@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[0, 2], [1, 3]], [[11, 22.5], [33, 45.25]] * 2),
        ([[0, 1, 2], [3]], [[14, 27.75]] * 3 + [[30, 40]]),
        ([], [[44, 67.75]] * 4),
    ],
)
def test_all_reduce_by_groups(on: Any, groups: Any, expected: Any) -> None:
    same(on(lambda b, x: hk.all_reduce(x, add, groups), FOUR), expected)


@rule("ARED-7")
def test_any_computation_in_group_order(on: Any) -> None:
    """Neither associative nor commutative: (x, y) -> x - 2 y, from the first member of the list on."""
    found = on(lambda b, x: hk.all_reduce(x, lambda p, q: p - q * 2.0, [[2, 0, 1], [3]]), FOUR)
    first = FOUR[2] - 2 * FOUR[0] - 2 * FOUR[1]
    same(found, [first, first, first, FOUR[3]])


@rule("RSCAT-2", "RSCAT-9")
@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([[0, 2], [1, 3]], [[11], [33], [22.5], [45.25]]),
        ([[2, 0], [3, 1]], [[22.5], [45.25], [11], [33]]),
    ],
)
def test_reduce_scatter_by_position_in_the_group(on: Any, groups: Any, expected: Any) -> None:
    same(on(lambda b, x: hk.reduce_scatter(x, add, 0, 2, groups), FOUR), expected)


@rule("CPERM-2", "CPERM-3", "CPERM-6", "CPERM-7")
def test_permutes(on: Any) -> None:
    found = on(lambda b, x: hk.collective_permute(x, [(0, 1), (1, 2), (3, 3)]), FOUR)
    same(found, [[0, 0], [1, 2.5], [3, 5.25], [30, 40]])
    same(on(lambda b, x: hk.collective_permute(x, []), FOUR), [[0, 0]] * 4)
    truths = [np.array([True, False])] * 2
    same(on(lambda b, x: hk.collective_permute(x, [(0, 1)]), truths), [[False, False], [True, False]])


@rule("A2A-10", "A2A-11")
def test_all_to_all_along_one_dimension(on: Any) -> None:
    values = [np.array([[10 * r + k for k in range(4)]], np.int32) for r in range(4)]
    found = on(lambda b, x: hk.all_to_all(x, 1, 1, 4, [[0, 1, 2, 3]]), values)
    same(found, [[[r, 10 + r, 20 + r, 30 + r]] for r in range(4)])
    found = on(lambda b, x: hk.all_to_all(x, 1, 1, 4, [[3, 2, 1, 0]]), values)
    assert found[0].tolist() == [[33, 23, 13, 3]]


@rule("A2A-7")
def test_all_to_all_in_the_listed_order(on: Any) -> None:
    """Groups {1,2,3},{4,5,0}: member j gets block j of each, in the order of the list."""
    groups = [[1, 2, 3], [4, 5, 0]]
    values = [np.array([10 * r, 10 * r + 1, 10 * r + 2], np.int32) for r in range(6)]
    found = on(lambda b, x: hk.all_to_all(x, 0, 0, 3, groups), values)
    for group in groups:
        for position, member in enumerate(group):
            assert found[member].tolist() == [10 * sender + position for sender in group]


@rule("A2A-9")
def test_all_to_all_of_tuples(on: Any) -> None:
    values = [np.array([10 * r], np.int32) for r in range(3)]
    one, two = np.int32([1]), np.int32([2])
    found = on(lambda b, x: hk.all_to_all_tuple([x, x + one, x + two], [[2, 0, 1]]), values)
    for position, member in enumerate([2, 0, 1]):
        assert [int(part[0]) for part in found[member]] == [10 * sender + position for sender in (2, 0, 1)]


@rule("GRP-10")
def test_one_replica() -> None:
    """Collectives of one participant give back what they get."""

    def every(b: hk.Builder, x: hk.XlaOp) -> list[hk.XlaOp]:
        return [
            hk.all_gather(x, 0, 1), hk.all_reduce(x, add), hk.reduce_scatter(x, add, 0, 1), hk.all_to_all(x, 0, 0, 1),
            hk.collective_permute(x, [(0, 0)]),
        ]  # fmt: skip

    module = program(every, hk.f32[2])
    for result in (hk.evaluate(module, TWO[0]), hk.compile(module)(TWO[0])):
        same(result, [TWO[0]] * 5)


@rule("COMM-16")
@pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
@pytest.mark.parametrize(
    "pairs", ["{{0,1},{1,9}}", "{{0,1,1}}", "{{0,1},{1,1}}", "{{0,1},{0,0}}", "{{0,-1}}", "{{0,%s}}" % ("1" * 5000)]
)  # fmt: skip
def test_pairs_that_name_no_devices(run: Any, pairs: str) -> None:
    told = f'channel_id=1, frontend_attributes={{_xla_send_recv_source_target_pairs="{pairs}"}}'
    module = hk.parse(f"""
HloModule m
ENTRY main {{
  x = f32[2] parameter(0)
  t = token[] after-all()
  r = (f32[2], u32[], token[]) recv(t), {told}
  s = (f32[2], u32[], token[]) send(x, t), {told}
  d = token[] send-done(s), {told}
  e = (f32[2], token[]) recv-done(r), {told}
  ROOT y = f32[2] get-tuple-element(e), index=0
}}
""")
    with pytest.raises(hk.EvaluationError, match=r"r: _xla_send_recv_source_target_pairs=.*COMM-16"):
        run(module, [TWO[0]], [TWO[1]], replicas=2)


@rule("REPID-2", "GRP-4", "GRP-7")
@pytest.mark.parametrize(
    ("groups", "options", "expected"),
    [
        ([[0, 1], [2, 3]], {}, [[0, 2], [1, 3], [0, 2], [1, 3], [4, 6], [5, 7], [4, 6], [5, 7]]),
        ([[0, 1], [2, 3]], {"channel_id": 1}, [[0, 2, 1, 3]] * 4 + [[4, 6, 5, 7]] * 4),
        (
            [[0, 1, 2, 3], [4, 5, 6, 7]],
            {"channel_id": 1, "use_global_device_ids": True},
            [[0, 1, 2, 3]] * 4 + [[4, 5, 6, 7]] * 4,
        ),
    ],
    ids=["cross-replica", "cross-replica-and-partition", "flattened"],
)
def test_group_modes_on_four_replicas_of_two_partitions(on: Any, groups: Any, options: Any, expected: Any) -> None:
    def gathered(b: hk.Builder, x: hk.XlaOp) -> hk.XlaOp:
        number = b.replica_id() * np.uint32(2) + b.partition_id()
        return hk.all_gather(hk.reshape(number, [1]), 0, len(expected[0]), groups, **options)

    found = on(gathered, [np.zeros(1, F)] * 8, replicas=4, partitions=2)
    assert [result.tolist() for result in found] == expected
