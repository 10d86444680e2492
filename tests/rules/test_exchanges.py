"""Collectives that only exchange values: A2A, CPERM, BEY-61, BEY-63 .. BEY-65."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.exchanges import AllToAll, CollectiveBroadcast, CollectivePermute, RaggedAllToAll
from hlokit.types.shape import NIL, TOKEN, Shape
from tests.rules.grid import FOUR, TWO, F, build, on_devices, one_each, run, same
from tests.rules.labels import rejects, rule

# -- all-to-all


@pytest.mark.parametrize(
    ("group", "first"),
    [([0, 1, 2, 3], [0, 10, 20, 30]), ([3, 2, 1, 0], [33, 23, 13, 3])],
    ids=["A2A-10: in order", "A2A-10: reversed"],
)
def test_all_to_all_transposes_blocks(group: list[int], first: list[int]) -> None:
    rows = [np.arange(10 * r, 10 * r + 4, dtype=np.int32)[None] for r in range(4)]
    results = on_devices(AllToAll(None, [group], False, 1), one_each(rows))
    assert results[0].tolist() == [first]
    if group[0] == 0:
        same(results, [[[r, 10 + r, 20 + r, 30 + r]] for r in range(4)])


@rule("A2A-2", "A2A-7")
def test_all_to_all_goes_by_the_listed_order() -> None:
    values = [np.arange(10 * r, 10 * r + 3, dtype=np.int32) for r in range(6)]
    groups = [[1, 2, 3], [4, 5, 0]]
    results = on_devices(AllToAll(None, groups, False, 0), one_each(values))
    for group in groups:
        for position, device in enumerate(group):
            assert results[device].tolist() == [10 * sender + position for sender in group]


@rule("A2A-1", "A2A-8", "A2A-11", "BEY-62")
def test_shapes_of_all_to_all() -> None:
    assert build(lambda x: hk.all_to_all(x, 1, 0, 4), hk.f32[4, 16]).shape is hk.f32[16, 4]
    assert build(lambda x: hk.all_to_all(x, 0, 1, 2), hk.f32[4, 6]).shape is hk.f32[2, 12]
    assert build(lambda x: hk.all_to_all(x, 1, 1, 4), hk.f32[4, 16]).shape is hk.f32[4, 16]


@rule("A2A-2", "A2A-8")
@pytest.mark.parametrize(("split", "concat"), [(1, 0), (0, 1), (0, 2), (2, 1)])
def test_split_and_concat_may_differ(split: int, concat: int) -> None:
    count, shape = 2, (2, 4, 6)
    handle = build(lambda x: hk.all_to_all(x, split, concat, count), hk.s32[shape])
    after = _after(handle)
    values = [np.arange(48, dtype=np.int32).reshape(shape) + 100 * r for r in range(count)]
    results = on_devices(AllToAll(None, (), False, split), one_each(values))
    for receiver, exchanged in enumerate(results):
        expected = np.concatenate([np.split(v, count, split)[receiver] for v in values], concat)
        same([after(exchanged)], [expected])


def _after(handle: hk.XlaOp) -> Callable[[Any], Any]:
    """What the program does after its all-to-all, as a function."""
    chain: list[Any] = []
    instruction = handle.instruction
    while instruction.opcode != "all-to-all":
        chain.append(instruction.op)
        (instruction,) = instruction.operands

    def follow(value: Any) -> Any:
        builder = hk.Builder("after")
        root = builder.parameter(0, hk.dtype(value.dtype)[value.shape])
        for op in reversed(chain):
            root = emit(op, root)
        return hk.evaluate(builder.build(root), value)

    return follow


@rule("A2A-9", "BEY-61")
def test_tuple_form_of_all_to_all() -> None:
    handle = build(lambda x, y: hk.all_to_all_tuple([x, y]), hk.f32[2], hk.f32[2])
    assert handle.shape is Shape.tuple((hk.f32[2], hk.f32[2]))
    operands = [tuple(np.array([10 * r + i], F) for i in range(2)) for r in range(2)]
    first, second = on_devices(AllToAll(), operands)
    same(first, [[0], [10]])
    same(second, [[1], [11]])
    assert build(lambda x: hk.all_to_all_tuple(x, 0, 1, 2), hk.f32[4, 3]).shape is hk.f32[2, 6]


@pytest.mark.parametrize(
    ("label", "shape", "arguments"),
    [
        ("A2A-3", hk.f32[3, 4], (2, 0, 2)),
        ("A2A-3", hk.f32[3, 4], (1, 5, 2)),
        ("A2A-4", hk.f32[3, 4], (0, 0, 2)),
        ("A2A-5", hk.f32[3, 4], (0, 0, 0)),
        ("A2A-5", hk.f32[3, 4], (1, 1, 2, [[0, 1, 2, 3]])),
        ("A2A-6", Shape.tuple((hk.f32[2],)), (0, 0, 2)),
    ],
    ids=[
        "A2A-3: split",
        "A2A-3: concat",
        "A2A-4: remainder",
        "A2A-5: zero",
        "A2A-5: not the group size",
        "A2A-6: tuple",
    ],
)
def test_all_to_all_rejects(label: str, shape: Shape, arguments: tuple[Any, ...]) -> None:
    with rejects(label):
        build(lambda x: hk.all_to_all(x, *arguments), shape)


@pytest.mark.parametrize(
    ("label", "shapes", "op"),
    [
        ("A2A-4", (hk.f32[3],), AllToAll(None, [[0, 1]], False, 0)),
        ("A2A-5", (hk.f32[2],), AllToAll(None, [[0, 1]])),
        ("A2A-6", (hk.f32[2], hk.f32[2]), AllToAll(None, (), False, 0)),
        ("A2A-6", (Shape.tuple((hk.f32[2],)),), AllToAll()),
        ("A2A-9", (hk.f32[2], hk.f32[3]), AllToAll()),
        ("A2A-9", (hk.f32[2], hk.s32[2]), AllToAll()),
    ],
    ids=["A2A-4: card", "A2A-5: card", "A2A-6: card", "A2A-6: tuple", "A2A-9: sizes", "A2A-9: types"],
)
def test_all_to_all_card_rejects(label: str, shapes: tuple[Shape, ...], op: AllToAll) -> None:
    with rejects(label):
        build(lambda *x: emit(op, *x), *shapes)


# -- collective-permute, collective-broadcast, ragged-all-to-all


@rule("CPERM-1", "CPERM-2", "CPERM-3", "CPERM-7")
def test_collective_permute() -> None:
    assert build(lambda x: hk.collective_permute(x, [(0, 1)]), hk.f32[2]).shape is hk.f32[2]
    results = on_devices(CollectivePermute(None, [(0, 1), (1, 2), (3, 3)]), one_each(FOUR))
    same(results, [[0, 0], [1, 2.5], [3, 5.25], [30, 40]])


@rule("CPERM-3", "CPERM-6")
def test_who_is_no_target_gets_zeros() -> None:
    flags = [np.array([True]), np.array([True])]
    same(on_devices(CollectivePermute(None, []), one_each(flags)), [[False], [False]])
    same(on_devices(CollectivePermute(None, [(0, 1)]), one_each(TWO)), [[0, 0], TWO[0]])
    same(on_devices(CollectivePermute(None, [(1, 1)]), one_each(TWO)), [[0, 0], TWO[1]])
    same([run(lambda x: hk.collective_permute(x, []), FOUR[0])], [[0, 0]])


@pytest.mark.parametrize(
    ("label", "shape", "pairs"),
    [
        ("CPERM-4", hk.f32[2], [(0, 1), (2, 1)]),
        ("CPERM-4", hk.f32[2], [(0, 1), (0, 2)]),
        ("CPERM-5", hk.f32[2], [(0, -1)]),
        ("CPERM-8", TOKEN, [(0, 1)]),
        ("CPERM-8", NIL, [(0, 1)]),
        ("HGRP-7", hk.f32[2], [(0, 1, 2)]),
    ],
    ids=[
        "CPERM-4: target",
        "CPERM-4: source",
        "CPERM-5: negative",
        "CPERM-8: token",
        "CPERM-8: tuple",
        "HGRP-7: triple",
    ],
)
def test_collective_permute_rejects(label: str, shape: Shape, pairs: Any) -> None:
    with rejects(label):
        build(lambda x: hk.collective_permute(x, pairs), shape)


@rule("BEY-64")
def test_several_operands_in_one_permute() -> None:
    pair = Shape.tuple((hk.f32[2], hk.s32[3]))
    handle = build(lambda x, y: hk.multi_collective_permute([x, y], [(0, 1)]), *pair.elements)
    assert handle.shape is pair
    first, second = on_devices(CollectivePermute(None, [(0, 1)]), [(a, -a) for a in TWO])
    same(first, [[0, 0], [0, 0]])
    same(second, [TWO[0], -TWO[0]])


@rule("BEY-64", "HOP-35")
def test_permute_in_place_moves_slices() -> None:
    op = CollectivePermute(None, [(0, 1)], [[1, 2]])
    source, target = np.arange(6, dtype=F).reshape(2, 3), np.full((2, 3), -1, F)
    starts = (np.int32(1), np.int32(1)), (np.int32(0), np.int32(5))
    results = on_devices(op, [(source + 10 * r, target, *starts) for r in range(2)])
    same(results, [target, [[-1, 4, 5], [-1, -1, -1]]])
    many = CollectivePermute(None, [(0, 0)], [[1, 1], [1, 1]])
    places = ((np.int32(0), np.int32(0)), (np.int32(1), np.int32(2)))
    (result,) = on_devices(many, [(source, target, places, places[::-1])])
    same([result], [[[5, -1, -1], [-1, -1, 0]]])
    with rejects("BEY-64"):
        build(lambda x: emit(op, x), hk.f32[2, 3])


PLACE = Shape.tuple((hk.s32[()], hk.s32[()]))
TWO_PLACES = Shape.tuple((PLACE, PLACE))


@rule("BEY-64")
def test_operands_of_a_permute_in_place() -> None:
    def given(sizes: list[list[int]], *shapes: Shape) -> Shape:
        return build(lambda *p: emit(CollectivePermute(None, [(0, 0)], sizes), *p), *shapes).shape

    array, other = hk.f32[2, 3], hk.f32[4, 4]
    pair = Shape.tuple((array, array))
    assert given([[1, 2]], array, other, PLACE, PLACE) is other
    assert given([[1, 2], [2, 3]], array, other, TWO_PLACES, TWO_PLACES) is other
    assert given([[1, 2], [2, 3]], pair, pair, TWO_PLACES, TWO_PLACES) is pair
    for sizes, *shapes in (
        ([[1, 2]], array, array, hk.s32[()], hk.s32[()]),
        ([[1, 2]], array, array, PLACE, TWO_PLACES),
        ([[1, 2]], array, array, Shape.tuple((hk.s32[()],)), PLACE),
        ([[1, 2]], array, array, Shape.tuple((hk.f32[()], hk.s32[()])), PLACE),
        ([[1]], array, array, PLACE, PLACE),
        ([[1, 4]], array, array, PLACE, PLACE),
        ([[1, 4]], other, array, PLACE, PLACE),
        ([[1, -1]], array, array, PLACE, PLACE),
        ([[1, 2]], array, hk.f64[2, 3], PLACE, PLACE),
        ([[1, 2]], pair, pair, PLACE, TWO_PLACES),
    ):
        with rejects("BEY-64"):
            given(sizes, *shapes)


@rule("BEY-63", "HOP-36")
def test_collective_broadcast() -> None:
    assert build(lambda x: hk.collective_broadcast(x, [[0, 1]]), hk.f32[2]).shape is hk.f32[2]
    results = on_devices(CollectiveBroadcast(None, [[2, 0], [1]]), one_each(FOUR))
    same(results, [FOUR[2], FOUR[1], FOUR[2], [0, 0]])
    pair = build(lambda x, y: hk.collective_broadcast([x, y]), hk.f32[2], hk.s32[1])
    assert pair.shape is Shape.tuple((hk.f32[2], hk.s32[1]))
    with rejects("BEY-63"):
        build(lambda x: hk.collective_broadcast(x), TOKEN)


@rule("BEY-65", "HOP-36")
def test_ragged_all_to_all() -> None:
    """Device 0 keeps one row and sends two; device 1 sends one and keeps none; what nobody writes stays."""
    tables = [
        ([0, 1], [1, 2], [0, 0], [1, 1]),
        ([0, 1], [1, 0], [1, 2], [2, 0]),
    ]
    inputs = [np.array([1, 2, 3], F), np.array([10, 20, 30], F)]
    operands = [
        (x, np.full(4, -1, F), *(np.array(t, np.int32) for t in row)) for x, row in zip(inputs, tables, strict=True)
    ]
    results = on_devices(RaggedAllToAll(), operands)
    same(results, [[1, 10, -1, -1], [2, 3, -1, -1]])


@rule("BEY-65")
def test_ragged_all_to_all_with_several_updates_for_each_member() -> None:
    """As a vector, and as a matrix with a row for each member."""
    starts, sizes, targets, received = [0, 2, 1, 0], [1, 1, 1, 0], ([0, 3, 1, 0], [1, 2, 2, 0]), [1, 1, 1, 1]
    x, initial = np.array([1, 2, 3], F), np.full(4, -1, F)
    for shape in ((4,), (2, 2)):
        operands = []
        for device, own in enumerate(targets):
            tables = [np.array(t, np.int32).reshape(shape) for t in (starts, sizes, own, received)]
            operands.append(((x, 10 * x)[device], initial, *tables))
        same(on_devices(RaggedAllToAll(), operands), [[1, 10, 30, 3], [-1, 2, 20, -1]])


T2 = hk.s32[2]


@rule("BEY-65")
def test_ragged_all_to_all_checks() -> None:
    shapes = (hk.f32[3, 5], T2, T2, hk.f32[4, 5], T2, T2)
    handle = build(lambda *x: hk.ragged_all_to_all(*x), *shapes)
    assert handle.shape is hk.f32[4, 5] and handle.instruction.operands[1].shape is hk.f32[4, 5]
    for position, bad in [(0, hk.f32[()]), (3, hk.f32[4, 6]), (3, hk.s32[4, 5]), (1, hk.f32[2]), (4, hk.s32[3])]:
        wrong = (*shapes[:position], bad, *shapes[position + 1 :])
        with rejects("BEY-65"):
            build(lambda *x: hk.ragged_all_to_all(*x), *wrong)
    far = (np.zeros(3, F), *[np.array([3], np.int32)] * 2, np.zeros(3, F), *[np.array([0], np.int32)] * 2)
    with rejects("BEY-65"):
        run(lambda *x: hk.ragged_all_to_all(*x), *far)
