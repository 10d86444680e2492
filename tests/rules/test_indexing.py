"""Slices and gather: SLICE, DSLICE, DUS, GATHER, BEY-27 .. BEY-32, HOP-12."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.op import infer_shape
from hlokit.ops.gather import remaining
from hlokit.ops.slicing import DynamicSlice
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, s32, shape
from tests.rules.running import from_text, value

A = s32([0, 1, 2, 3, 4])
B = s32([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]])
TEN = np.arange(10, dtype=np.int32)
GRID = np.arange(12, dtype=np.float32).reshape(3, 4)


def case(id: str, function: Callable[..., Any], inputs: Any, expected: Any) -> Any:
    """A row: with these inputs the function gives the expected array (of the first input's type)."""
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    return pytest.param(function, inputs, np.asarray(expected, inputs[0].dtype), id=id)


def wrong(id: str, function: Callable[..., Any], *shapes: hk.Shape) -> Any:
    """A row: on parameters of these shapes the function is rejected by the rules that the id starts with."""
    return pytest.param(id.split(":")[0].split(" "), function, shapes, id=id)


# -- slices


def cut(start: list[int], limit: list[int], strides: list[int] | None = None) -> Callable[..., Any]:
    return lambda x: hk.slice(x, start, limit, strides)


def at(sizes: list[int]) -> Callable[..., Any]:
    return lambda x, *starts: hk.dynamic_slice(x, starts, sizes)


def put(x: Any, update: Any, *starts: Any) -> Any:
    return hk.dynamic_update_slice(x, update, starts)


SLICES = [
    case("SLICE-1 SLICE-2", cut([1, 0], [4, 3], [2, 2]), B, [[3, 5], [9, 11]]),
    case("SLICE-8 empty", cut([2], [2]), A, []),
    case("SLICE-8 scalar", cut([], []), s32(3), 3),
    case("SLICE-9", cut([2], [4]), A, [2, 3]),
    case("SLICE-10", cut([2, 1], [4, 3]), B, [[7, 8], [10, 11]]),
    case("SLICE-11 [1:8:3]", cut([1], [8], [3]), TEN, [1, 4, 7]),
    case("SLICE-11 [0:10:3]", cut([0], [10], [3]), TEN, [0, 3, 6, 9]),
    case("SLICE-11 [4:4]", cut([4], [4]), TEN, []),
    case("BEY-27", lambda x: hk.slice_in_dim(x, 0, 3, 2, 1), B, [[0, 2], [3, 5], [6, 8], [9, 11]]),
    case("DSLICE-9", at([0]), (A, s32(3)), []),
    case("DSLICE-11 DSLICE-1", at([2]), (A, s32(2)), [2, 3]),
    case("DSLICE-12 DSLICE-2", at([2, 2]), (B, s32(2), s32(1)), [[7, 8], [10, 11]]),
    case("DSLICE-13 DSLICE-3 too large", at([2]), (A, s32(4)), [3, 4]),
    case("DSLICE-13 DSLICE-3 negative", at([2]), (A, s32(-3)), [0, 1]),
    case("DSLICE-4 u32", at([2]), (A, np.uint32(4294967295)), [3, 4]),
    case("DSLICE-4 u64", at([2]), (A, np.uint64(2**63 + 5)), [3, 4]),
    case("DSLICE-4 u8", at([2]), (np.arange(300, dtype=np.int32), np.uint8(200)), [200, 201]),
    case("DSLICE-4 s8", at([2]), (np.arange(300, dtype=np.int32), np.int8(-128)), [0, 1]),
    case("DSLICE-2 a Python number", lambda x: hk.dynamic_slice(x, [3], [1]), f32([5, 6, 7, 8]), [8]),
    case("DUS-1 DUS-2 scalar", put, (s32(1), s32(2)), 2),
    case("DUS-7", put, (A, s32([]), s32(2)), A),
    case("DUS-9", put, (A, s32([5, 6]), s32(2)), [0, 1, 5, 6, 4]),
    case(
        "DUS-10",
        put,
        (B, s32([[12, 13], [14, 15], [16, 17]]), s32(1), s32(1)),
        [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]],
    ),
    case("DUS-11 too large", put, (A, s32([8, 9]), s32(4)), [0, 1, 2, 8, 9]),
    case("DUS-11 negative", put, (A, s32([8, 9]), s32(-4)), [8, 9, 2, 3, 4]),
    case(
        "DUS-8",
        lambda x, u, s: hk.concatenate([x, put(x, u, s), x], 0),
        (s32([1, 2]), s32([9]), s32(0)),
        [1, 2, 9, 2, 1, 2],
    ),
]


@pytest.mark.parametrize(("function", "inputs", "expected"), SLICES)
def test_slices(function: Callable[..., Any], inputs: Any, expected: Any) -> None:
    got = value(function, *inputs)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tolist() == expected.tolist()


X, PAIR, INDEX = hk.f32[5], hk.Shape.tuple([hk.f32[2]]), hk.s32[()]

WRONG_SLICES = [
    wrong("SLICE-3: lists of different lengths", cut([0], [1, 2]), X),
    wrong("SLICE-3: strides of another length", cut([0], [1], [1, 1]), X),
    wrong("SLICE-3: too many dimensions", cut([0, 0], [1, 1]), X),
    wrong("SLICE-4", cut([-1], [2]), X),
    wrong("SLICE-5", cut([3], [2]), X),
    wrong("SLICE-6", cut([0], [6]), X),
    wrong("SLICE-7: zero", cut([0], [5], [0]), X),
    wrong("SLICE-7: negative", cut([0], [5], [-1]), X),
    wrong("SLICE-12", cut([], []), PAIR),
    wrong("BEY-27: dimno", lambda x: hk.slice_in_dim(x, 0, 1, 1, -1), X),
    wrong("DSLICE-5: none for one dimension", at([2]), X),
    wrong("DSLICE-5: two for one dimension", at([2]), X, INDEX, INDEX),
    wrong("DSLICE-6: f32", at([2]), X, hk.f32[()]),
    wrong("DSLICE-6: pred", at([2]), X, hk.pred[()]),
    wrong("DSLICE-6: two types", at([2, 2]), hk.f32[5, 5], INDEX, hk.s64[()]),
    wrong("DSLICE-6: a vector", at([2]), X, hk.s32[1]),
    wrong("DSLICE-7", at([2, 2]), X, INDEX),
    wrong("DSLICE-8: too large", at([6]), X, INDEX),
    wrong("DSLICE-8: negative", at([-1]), X, INDEX),
    wrong("DUS-3", put, X, hk.f32[1, 1], INDEX),
    wrong("DUS-4", put, X, hk.s32[1], INDEX),
    wrong("DUS-5", put, X, hk.f32[6], INDEX),
    wrong("DUS-6: number", put, X, hk.f32[2], INDEX, INDEX),
    wrong("DUS-6: type", put, X, hk.f32[2], hk.f32[()]),
]


@pytest.mark.parametrize(("labels", "function", "shapes"), WRONG_SLICES)
def test_slices_rejected(labels: list[str], function: Callable[..., Any], shapes: tuple[hk.Shape, ...]) -> None:
    with rejects(*labels):
        shape(function, *shapes)


@rule("HOP-12", "DSLICE-10", "HINST-1")
def test_slices_in_text() -> None:
    text = """
    ENTRY e {{
      x = s32[5] parameter(0)
      i = s32[1] constant({{1}})
      part = s32[3] slice(x), slice={{[0:5:2]}}
      same = s32[3] slice(part), slice={{[0:3]}}
      two = {shape}dynamic-slice(same, i){sizes}
      ROOT r = s32[5] dynamic-update-slice(x, two, i)
    }}"""
    sizes = ", dynamic_slice_sizes={2}"
    assert from_text(text.format(shape="s32[2] ", sizes=sizes), A).tolist() == [0, 2, 4, 3, 4]
    for broken in ({"shape": "", "sizes": sizes}, {"shape": "s32[2] ", "sizes": ""}):
        with pytest.raises(hk.HlokitError):
            from_text(text.format(**broken), A)


@rule("DSLICE-10", "DSLICE-5", "DSLICE-6")
def test_a_vector_of_start_indices_in_old_text() -> None:
    op, x = DynamicSlice([2, 2]), hk.f32[4, 3]
    assert infer_shape(op, [x, hk.s32[2]]) is hk.f32[2, 2]
    with rejects("DSLICE-5"):
        infer_shape(op, [x, hk.s32[3]])
    with rejects("DSLICE-6"):
        infer_shape(op, [x, hk.f32[2]])


# -- gather


def take(slice_sizes: list[int], **numbers: Any) -> Callable[..., Any]:
    """A gather with these numbers; those left out are empty."""
    options = {"indices_are_sorted": numbers.pop("indices_are_sorted")} if "indices_are_sorted" in numbers else {}
    return lambda x, i: hk.gather(x, i, hk.GatherDimensionNumbers(**numbers), slice_sizes, **options)


ROWS = take([1, 2], offset_dims=[1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
WINDOWS = take([3], offset_dims=[1], start_index_map=[0], index_vector_dim=1)
PAIRS = f32([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]])
PLANE = np.arange(16 * 11, dtype=np.int32).reshape(16, 11)
CORNERS = np.array([[0, 0], [3, 2], [8, 5], [1, 4], [7, 1]], np.int64)
MANY = np.resize(CORNERS, (4, 5, 2))
BLOCK = {"start_index_map": [0, 1], "slice_sizes": [8, 6]}
GATHER_33 = s32([[[1], [0]], [[1], [1]], [[5], [-1]]])
BATCHING = {"operand_batching_dims": [0], "start_indices_batching_dims": [0], "index_vector_dim": 2}

GATHERS = [
    case("GATHER-28 GATHER-17 GATHER-26", ROWS, (PAIRS, s32([[0], [4], [9], [-3]])), [[0, 1], [8, 9], [8, 9], [0, 1]]),
    case("GATHER-29", WINDOWS, (TEN, s32([[0], [7], [9], [-3]])), [[0, 1, 2], [7, 8, 9], [7, 8, 9], [0, 1, 2]]),
    case(
        "GATHER-30",
        take([1, 1], collapsed_slice_dims=[0, 1], start_index_map=[0, 1], index_vector_dim=0),
        (GRID, s32([[0, 1], [2, 3]])),
        [2, 7],
    ),
    case(
        "GATHER-31 GATHER-18",
        take([1, 2], offset_dims=[0], collapsed_slice_dims=[0], start_index_map=[1], index_vector_dim=1),
        (GRID, s32([[1], [2]])),
        [[1, 2], [2, 3]],
    ),
    case(
        "GATHER-33 GATHER-32 BEY-32",
        take([1, 1, 2], offset_dims=[2], collapsed_slice_dims=[1], start_index_map=[1], **BATCHING),
        (np.arange(12, dtype=np.float32).reshape(3, 2, 2), GATHER_33),
        [[[2, 3], [0, 1]], [[6, 7], [6, 7]], [[10, 11], [8, 9]]],
    ),
    case(
        "GATHER-32 batching dimension behind index_vector_dim",
        take(
            [1, 1, 2],
            offset_dims=[2],
            collapsed_slice_dims=[1],
            start_index_map=[1],
            operand_batching_dims=[0],
            start_indices_batching_dims=[2],
            index_vector_dim=0,
        ),
        (np.arange(12, dtype=np.float32).reshape(3, 2, 2), GATHER_33.transpose(2, 1, 0)),
        [[[2, 3], [6, 7], [10, 11]], [[0, 1], [6, 7], [8, 9]]],
    ),
    case(
        "GATHER-32 BEY-31 slice size 0 of a batching dimension without elements",
        take([0, 1], collapsed_slice_dims=[1], start_index_map=[1], **{**BATCHING, "index_vector_dim": 1}),
        (np.zeros((0, 3), np.float32), np.zeros((0, 1), np.int32)),
        [],
    ),
    case(
        "GATHER-32 BEY-31 slice size 0 of a batching dimension",
        take([0, 1], collapsed_slice_dims=[1], start_index_map=[1], **{**BATCHING, "index_vector_dim": 1}),
        (GRID, s32([[1], [0], [3]])),
        [1, 4, 11],
    ),
    case(
        "GATHER-22 GATHER-1 GATHER-2 GATHER-14",
        take(offset_dims=[1, 2], index_vector_dim=1, **BLOCK),
        (PLANE, CORNERS),
        [PLANE[x : x + 8, y : y + 6] for x, y in CORNERS],
    ),
    case(
        "GATHER-23 GATHER-13 GATHER-15",
        take(offset_dims=[2, 3], index_vector_dim=2, **BLOCK),
        (PLANE, MANY),
        [[PLANE[x : x + 8, y : y + 6] for x, y in row] for row in MANY],
    ),
    case(
        "GATHER-24 GATHER-19",
        take([1, 11], offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=2),
        (PLANE, MANY[..., :1]),
        PLANE[MANY[..., 0]],
    ),
    case(
        "GATHER-21 index_vector_dim behind the last",
        take([1, 11], offset_dims=[2], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=2),
        (PLANE, MANY[..., 0]),
        PLANE[MANY[..., 0]],
    ),
    case(
        "GATHER-16 map in another order",
        take([1, 1], collapsed_slice_dims=[0, 1], start_index_map=[1, 0], index_vector_dim=0),
        (GRID, s32([3, 1])),
        7,
    ),
    case("GATHER-26 u32", ROWS, (PAIRS, np.array([[2**32 - 1]], np.uint32)), [[8, 9]]),
    case("GATHER-26 u64", ROWS, (PAIRS, np.array([[2**63 + 1]], np.uint64)), [[8, 9]]),
    case(
        "GATHER-27 empty index vectors",
        take([2], offset_dims=[1], index_vector_dim=1),
        (A, np.zeros((3, 0), np.int32)),
        [[0, 1]] * 3,
    ),
    case(
        "GATHER-27 one scalar index",
        take([2], offset_dims=[0], start_index_map=[0], index_vector_dim=0),
        (A, s32(2)),
        [2, 3],
    ),
    case(
        "GATHER-25 BEY-35",
        take([1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1, indices_are_sorted=True),
        (A, s32([3, 1])),
        [3, 1],
    ),
    case(
        "GATHER-11 slice size 0",
        take([0], offset_dims=[1], start_index_map=[0], index_vector_dim=1),
        (A, s32([9])),
        np.zeros((1, 0)),
    ),
    case("GATHER-15 no index", ROWS, (PAIRS, np.zeros((0, 1), np.int32)), np.zeros((0, 2))),
]


@pytest.mark.parametrize(("function", "inputs", "expected"), GATHERS)
def test_gather(function: Callable[..., Any], inputs: Any, expected: Any) -> None:
    got = value(function, *inputs)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tolist() == expected.tolist()


@rule("GATHER-20", "SCATTER-27", "SCATTER-17")
def test_remapped_dimensions() -> None:
    assert remaining(6, (0, 2)) == [1, 3, 4, 5]


GOOD = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}


def with_(slice_sizes: Any = (1, 2), **changes: Any) -> Callable[..., Any]:
    return take(slice_sizes, **{**GOOD, **changes})


P, J = hk.f32[5, 2], hk.s32[4, 1]
CUBE, K = hk.f32[3, 2, 2], hk.s32[3, 2, 1]
BATCHED = {
    "offset_dims": [2],
    "collapsed_slice_dims": [1],
    "start_index_map": [1],
    "slice_sizes": [1, 1, 2],
    **BATCHING,
}

WRONG_GATHERS = [
    wrong("GATHER-3", with_(collapsed_slice_dims=[]), P, J),
    wrong("GATHER-4", with_([1, 2, 1]), P, J),
    wrong("GATHER-5: f32", with_(), P, hk.f32[4, 1]),
    wrong("GATHER-5: pred", with_(), P, hk.pred[4, 1]),
    wrong("GATHER-6: too large", with_(index_vector_dim=3), P, J),
    wrong("GATHER-6: negative", with_(index_vector_dim=-1), P, J),
    wrong("GATHER-7", with_(start_index_map=[0, 1]), P, J),
    wrong("GATHER-8: range", with_(start_index_map=[2]), P, J),
    wrong("GATHER-8: repeated", with_(start_index_map=[0, 0]), P, hk.s32[4, 2]),
    wrong("GATHER-9: range", with_(offset_dims=[2]), P, J),
    wrong("GATHER-9: descending", take([1, 1], offset_dims=[2, 1], start_index_map=[0], index_vector_dim=1), P, J),
    wrong("GATHER-9: repeated", take([1, 1], offset_dims=[1, 1], start_index_map=[0], index_vector_dim=1), P, J),
    wrong("GATHER-10: range", with_(collapsed_slice_dims=[2]), P, J),
    wrong(
        "GATHER-10: descending",
        take([1, 1], collapsed_slice_dims=[1, 0], start_index_map=[0], index_vector_dim=1),
        P,
        J,
    ),
    wrong("GATHER-11: too large", with_([1, 3]), P, J),
    wrong("GATHER-11: negative", with_([1, -1]), P, J),
    wrong("GATHER-12: two", with_([2, 2]), P, J),
    wrong("GATHER-12: none", with_([0, 2]), P, J),
    wrong("GATHER-34", with_(), PAIR, J),
    wrong("BEY-31: unequal lengths", take(**{**BATCHED, "start_indices_batching_dims": []}), CUBE, K),
    wrong("BEY-31: unequal sizes", take(**{**BATCHED, "start_indices_batching_dims": [1]}), CUBE, K),
    wrong("BEY-31: index_vector_dim", take(**{**BATCHED, "start_indices_batching_dims": [2]}), hk.f32[1, 2, 2], K),
    wrong("BEY-31 GATHER-3: collapsed as well", take(**{**BATCHED, "collapsed_slice_dims": [0]}), CUBE, K),
    wrong("BEY-31: slice size", take(**{**BATCHED, "slice_sizes": [2, 1, 2]}), CUBE, K),
]


@pytest.mark.parametrize(("labels", "function", "shapes"), WRONG_GATHERS)
def test_gather_rejected(labels: list[str], function: Callable[..., Any], shapes: tuple[hk.Shape, ...]) -> None:
    with rejects(*labels):
        shape(function, *shapes)
