"""BCAST and DYN-BCAST: what the builder inserts before a two-operand elementwise op, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.broadcasting import broadcast_sizes
from hlokit.types.shape import Shape
from tests.rules.elementwise_programs import array, assert_same, evaluate, infer
from tests.rules.labels import rejects, rule

MATRIX = [[1, 2, 3], [4, 5, 6]]

# rule, lhs, rhs, broadcast_dimensions, sum
SUMS: list[tuple[str, Any, Any, list[int], Any]] = [
    ("BCAST-21", MATRIX, [7, 8, 9], [1], [[8, 10, 12], [11, 13, 15]]),
    ("BCAST-22", MATRIX, 7, [], [[8, 9, 10], [11, 12, 13]]),
    ("BCAST-2", 7, MATRIX, [], [[8, 9, 10], [11, 12, 13]]),
    ("BCAST-4", [7, 8, 9], MATRIX, [1], [[8, 10, 12], [11, 13, 15]]),
    ("BCAST-4", MATRIX, [10, 20], [0], [[11, 12, 13], [24, 25, 26]]),
    ("BCAST-10", [[5], [6]], [[[1, 2]], [[3, 4]]], [0, 2], [[[6, 7]], [[9, 10]]]),
    ("BCAST-14", [[1], [2]], [[10, 20, 30]], [], [[11, 21, 31], [12, 22, 32]]),
    ("BCAST-24", [[0] * 3] * 3, [7, 8, 9], [1], [[7, 8, 9]] * 3),
    ("BCAST-24", [[0] * 3] * 3, [7, 8, 9], [0], [[7] * 3, [8] * 3, [9] * 3]),
    ("BCAST-28", [1, 2, 3, 4], [[5, 6]], [0], [[6, 7], [7, 8], [8, 9], [9, 10]]),
]


@pytest.mark.parametrize("row", SUMS, ids=[f"{row[0]}: bd={row[3]}" for row in SUMS])
def test_value(row: Any) -> None:
    _, lhs, rhs, dimensions, want = row
    got = evaluate("add", array("s32", lhs), array("s32", rhs), broadcast_dimensions=dimensions)
    assert_same(got, array("s32", want))


# rule, lhs, rhs, broadcast_dimensions, result
SHAPES: list[tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("BCAST-9", (3,), (2, 3, 4), (1,), (2, 3, 4)),
    ("BCAST-11", (2, 1), (2, 3), (), (2, 3)),
    ("BCAST-12", (0, 1), (1, 4), (), (0, 4)),
    ("BCAST-12", (1,), (2, 0), (1,), (2, 0)),
    ("BCAST-16", (2, 3), (2, 3), (0, 1), (2, 3)),
    ("BCAST-16", (2, 1), (1, 3), (0, 1), (2, 3)),
    ("BCAST-25", (2, 3, 4), (3, 4), (1, 2), (2, 3, 4)),
    ("BCAST-26", (2, 3, 4, 5), (4,), (2,), (2, 3, 4, 5)),
    ("BCAST-26", (2, 3, 4, 5), (4, 5), (2, 3), (2, 3, 4, 5)),
    ("BCAST-26", (2, 3, 4, 5), (3, 4), (1, 2), (2, 3, 4, 5)),
    ("BCAST-26", (2, 3, 4, 5), (2, 5), (0, 3), (2, 3, 4, 5)),
    ("BCAST-27", (1, 2, 5), (7, 2, 5), (), (7, 2, 5)),
    ("BCAST-27", (7, 2, 5), (7, 1, 5), (), (7, 2, 5)),
    ("BCAST-27", (2, 1), (1, 3), (), (2, 3)),
    ("BCAST-29", (1, 2), (4, 3, 1), (1, 2), (4, 3, 2)),
    ("BCAST-30", (), (2, 3), (), (2, 3)),
    ("BCAST-30", (3,), (4, 3), (1,), (4, 3)),
    ("BCAST-30", (2, 3), (2, 3, 4), (0, 1), (2, 3, 4)),
    ("BCAST-30", (2, 1), (2, 3, 4), (0, 2), (2, 3, 4)),
    ("BCAST-30", (2, 3), (2, 1, 4), (0, 1), (2, 3, 4)),
]


@pytest.mark.parametrize("row", SHAPES, ids=[f"{r[0]}: {list(r[1])} {list(r[2])} bd={list(r[3])}" for r in SHAPES])
def test_shape_and_value_either_way_round(row: Any) -> None:
    """BCAST-18: the value is that of the operands aligned by hand."""
    _, lhs, rhs, dimensions, want = row
    x, y = (
        np.arange(np.prod(lhs), dtype=np.int32).reshape(lhs),
        100 * np.arange(np.prod(rhs), dtype=np.int32).reshape(rhs),
    )
    small, large = (lhs, rhs) if len(lhs) < len(rhs) else (rhs, lhs)
    aligned = [1] * len(large)
    for size, d in zip(small, dimensions or range(len(large) - len(small), len(large)), strict=True):
        aligned[d] = size
    a, b = (v.reshape(aligned if v.shape == small and len(small) < len(large) else v.shape) for v in (x, y))
    for first, second, want_sum in [(x, y, a - b), (y, x, b - a)]:
        got = evaluate("sub", first, second, broadcast_dimensions=dimensions)
        assert got.shape == want
        assert_same(got, want_sum)


@rule("BCAST-1", "BCAST-3", "BCAST-23")
def test_ranks_are_never_guessed() -> None:
    for lhs, rhs in [((2, 3), (3,)), ((3,), (2, 3)), ((4, 3, 3), (3, 3))]:
        with rejects("BCAST-3"):
            infer("add", hk.f32[lhs], hk.f32[rhs])
        with rejects("BCAST-3"):
            infer("lt", hk.f32[lhs], hk.f32[rhs], broadcast_dimensions=[])


# label of the refusal, the example it belongs to, lhs, rhs, broadcast_dimensions
REFUSALS: list[tuple[str, str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
    ("BCAST-8", "BCAST-23", (2, 3), (3,), (0,)),
    ("BCAST-5", "BCAST-5", (2, 3), (), (0,)),
    ("BCAST-5", "BCAST-5", (2, 3), (3,), (0, 1)),
    ("BCAST-5", "BCAST-5", (2, 3, 4), (3, 4), (1,)),
    ("BCAST-6", "BCAST-6", (4, 3), (3,), (2,)),
    ("BCAST-7", "BCAST-26", (2, 3, 4, 5), (4, 3), (2, 1)),
    ("BCAST-7", "BCAST-26", (2, 3, 4, 5), (3, 3), (1, 1)),
    ("BCAST-13", "BCAST-27", (7, 2, 5), (7, 2, 6), ()),
    ("BCAST-13", "BCAST-13", (2, 3), (3, 2), ()),
    ("BCAST-16", "BCAST-16", (2, 2), (2, 2), (1, 0)),
    ("BCAST-16", "BCAST-16", (2, 2), (2, 2), (0,)),
    ("BCAST-8", "BCAST-31", (3,), (4, 3), (0,)),
    ("BCAST-8", "BCAST-31", (2, 1), (2, 3, 4), (1, 2)),
    ("BCAST-3", "BCAST-31", (3,), (4, 3), ()),
    ("BCAST-5", "BCAST-31", (3,), (4, 3), (1, 1)),
    ("BCAST-6", "BCAST-31", (3,), (4, 3), (2,)),
    ("BCAST-6", "BCAST-31", (3,), (4, 3), (-1,)),
    ("BCAST-16", "BCAST-31", (2, 3), (2, 3), (1, 0)),
]


@pytest.mark.parametrize("row", REFUSALS, ids=[f"{r[1]}: {list(r[2])} {list(r[3])} bd={list(r[4])}" for r in REFUSALS])
def test_refusals(row: Any) -> None:
    label, _, lhs, rhs, dimensions = row
    builder = hk.Builder("t")
    x, y = builder.parameter(0, hk.f32[lhs]), builder.parameter(1, hk.f32[rhs])
    for first, second in [(x, y), (y, x)]:
        with rejects(label):
            hk.add(first, second, dimensions)
    assert len(builder.computation) == 2, "a refusal leaves nothing behind"


@rule("BCAST-9", "BCAST-15", "BCAST-18", "BCAST-29")
def test_what_is_inserted() -> None:
    """In-dim by one broadcast; then sizes of 1 by reshape and broadcast; scalars by one broadcast."""

    def inserted(lhs: Shape, rhs: Shape, dimensions: tuple[int, ...] = ()) -> list[str]:
        builder = hk.Builder("t")
        hk.add(builder.parameter(0, lhs), builder.parameter(1, rhs), dimensions)
        return [f"{i.opcode} {i.shape}" for i in builder.computation.instructions[2:-1]]

    assert inserted(hk.f32[2, 3], hk.f32[2, 3]) == []
    assert inserted(hk.f32[2, 3], hk.f32[()]) == ["broadcast f32[2,3]"]
    assert inserted(hk.f32[2, 3], hk.f32[3], (1,)) == ["broadcast f32[2,3]"]
    assert inserted(hk.f32[2, 1], hk.f32[2, 3]) == ["reshape f32[2]", "broadcast f32[2,3]"]
    assert inserted(hk.f32[1, 2], hk.f32[4, 3, 1], (1, 2)) == [
        "broadcast f32[4,1,2]", "reshape f32[4,2]", "broadcast f32[4,3,2]",
        "reshape f32[4,3]", "broadcast f32[4,3,2]",
    ]  # fmt: skip


@rule("BCAST-17")
def test_result_type_is_the_ops() -> None:
    assert infer("lt", hk.f32[2, 3], hk.f32[3], broadcast_dimensions=[1]) is hk.pred[2, 3]
    assert infer("complex", hk.f32[2, 3], hk.f32[()]) is hk.c64[2, 3]


@rule("BCAST-19")
def test_three_operands_expand_scalars_alone() -> None:
    with rejects("CLAMP-4"):
        infer("clamp", hk.f32[1, 3], hk.f32[2, 3], hk.f32[2, 3])
    with rejects("SEL-5"):
        infer("select", hk.pred[1, 3], hk.f32[2, 3], hk.f32[2, 3])


@rule("BCAST-20", "DYN-BCAST-1", "DYN-BCAST-2")
def test_dynamic_dimensions_merge() -> None:
    for lhs, rhs, dimensions, want in [
        (hk.f32["<=5"], hk.f32["<=5"], (), hk.f32["<=5"]),
        (hk.f32["<=5", 2], hk.f32[5, "<=2"], (), hk.f32["<=5", "<=2"]),
        (hk.f32["<=5"], hk.f32[5], (), hk.f32["<=5"]),
        (hk.f32["<=5"], hk.f32[1], (), hk.f32["<=5"]),
        (hk.f32["<=5"], hk.f32[()], (), hk.f32["<=5"]),
        (hk.f32["<=5", 3], hk.f32[3], (1,), hk.f32["<=5", 3]),
        (hk.f32[5, 3], hk.f32["<=3"], (1,), hk.f32[5, "<=3"]),
        (hk.f32["<=5", 3], hk.f32[5, 1], (), hk.f32["<=5", 3]),
    ]:
        assert infer("add", lhs, rhs, broadcast_dimensions=dimensions) is want
        assert infer("mul", rhs, lhs, broadcast_dimensions=dimensions) is want


@rule("DYN-BCAST-1")
def test_dynamic_value() -> None:
    def program(x: hk.XlaOp, size: hk.XlaOp) -> hk.XlaOp:
        return hk.set_dimension_size(x, size, 0) + x

    got = evaluate(program, array("f32", [1, 2, 3, 4]), array("s32", 3))
    assert_same(got, array("f32", [2, 4, 6]))


@rule("DYN-BCAST-3")
def test_dynamic_bounds_that_differ() -> None:
    for lhs, rhs, dimensions in [
        (hk.f32["<=5"], hk.f32[4], ()),
        (hk.f32["<=5"], hk.f32["<=4"], ()),
        (hk.f32[5], hk.f32["<=1"], ()),
        (hk.f32["<=5", 3], hk.f32["<=4"], (0,)),
    ]:
        with rejects("DYN-BCAST-3"):
            broadcast_sizes(lhs, rhs, dimensions)
        with rejects("DYN-BCAST-3"):
            infer("add", rhs, lhs, broadcast_dimensions=dimensions)
