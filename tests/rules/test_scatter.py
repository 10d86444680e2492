"""Scatter: SCATTER, BEY-33 .. BEY-35; gather and scatter in text: HOP-13, HOP-14."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, s32, shape
from tests.rules.running import from_text, value
from tests.rules.test_indexing import CUBE, GATHER_33, PAIR, PAIRS, J, K, P, case, take, wrong


def add(x: Any, y: Any) -> Any:
    return x + y


def second(x: Any, y: Any) -> Any:
    return y


def apply(combine: Callable[..., Any], **numbers: Any) -> Callable[..., Any]:
    """A scatter with these numbers; those left out are empty."""
    options = {name: numbers.pop(name) for name in ("indices_are_sorted", "unique_indices") if name in numbers}
    return lambda x, i, u: hk.scatter(x, i, u, combine, hk.ScatterDimensionNumbers(**numbers), **options)


ONES = {"inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}
TWOS = {"update_window_dims": [1], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}
ZEROS = np.zeros(5, np.float32)
BLOCKS = {"update_window_dims": [0, 1], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 0}
PAIRWISE = {"inserted_window_dims": [0, 1], "scatter_dims_to_operand_dims": [1, 0], "index_vector_dim": 0}
OVERLAP = s32([[0], [3], [4], [-1]])
WINDOWED = f32([[1, 2], [3, 4], [5, 6], [7, 8]])

SCATTERS = [
    case(
        "SCATTER-28 SCATTER-1 SCATTER-19",
        apply(add, **ONES),
        (ZEROS, s32([[0], [1], [1], [5], [-1]]), f32([1, 2, 3, 4, 5])),
        [1, 5, 0, 0, 0],
    ),
    case(
        "SCATTER-29 SCATTER-21",
        apply(lambda x, y: x - y, **ONES),
        (f32([10, 20]), s32([[0], [0], [1]]), f32([1, 2, 3])),
        [7, 17],
    ),
    case("SCATTER-29 SCATTER-22", apply(second, **ONES), (f32([10, 20]), s32([[0], [0], [1]]), f32([1, 2, 3])), [2, 3]),
    case(
        "SCATTER-30",
        apply(add, **BLOCKS),
        (np.zeros((3, 3), np.float32), s32([1]), np.ones((2, 2), np.float32)),
        [[0, 0, 0], [1, 1, 0], [1, 1, 0]],
    ),
    case(
        "SCATTER-32",
        apply(add, **PAIRWISE),
        (np.zeros((3, 3), np.float32), s32([[0, 1], [1, 0]]), f32([1, 1])),
        [[0, 1, 0], [1, 0, 0], [0, 0, 0]],
    ),
    case("SCATTER-20", apply(add, **TWOS), (ZEROS, OVERLAP, WINDOWED), [1, 2, 0, 3, 4]),
    case(
        "SCATTER-24", apply(add, **ONES), (ZEROS, np.array([[2**32 - 1], [1]], np.uint32), f32([1, 2])), [0, 2, 0, 0, 0]
    ),
    case(
        "SCATTER-24 u64",
        apply(add, **ONES),
        (ZEROS, np.array([[2**64 - 1], [1]], np.uint64), f32([1, 2])),
        [0, 2, 0, 0, 0],
    ),
    case("SCATTER-25 no index", apply(add, **ONES), (f32([1, 2]), np.zeros((0, 1), np.int32), f32([])), [1, 2]),
    case(
        "SCATTER-25 no index, any computation",
        apply(lambda x, y: x - y, **ONES),
        (f32([1, 2]), np.zeros((0, 1), np.int32), f32([])),
        [1, 2],
    ),
    case("SCATTER-26", apply(add, index_vector_dim=0), (f32(10), np.zeros(0, np.int32), f32(5)), 15),
    case(
        "SCATTER-23 BEY-35",
        apply(add, indices_are_sorted=True, unique_indices=True, **ONES),
        (ZEROS, s32([[3], [1], [1]]), f32([1, 2, 3])),
        [0, 5, 0, 1, 0],
    ),
    case(
        "SCATTER-22 order of any computation",
        apply(lambda x, y: x + x - y, **ONES),
        (s32([1, 1]), s32([[0], [1], [0], [0]]), s32([1, 5, 2, 3])),
        [-3, -3],
    ),
    case(
        "SCATTER-22 row-major in the updates",
        apply(second, update_window_dims=[0], scatter_dims_to_operand_dims=[0], index_vector_dim=1),
        (s32([0, 0, 0]), s32([[0], [1]]), s32([[1, 2], [3, 4]])),
        [1, 3, 4],
    ),
    case(
        "SCATTER-16 SCATTER-18 integers wrap",
        apply(add, **ONES),
        (np.array([100], np.int8), s32([[0], [0]]), np.array([100, 100], np.int8)),
        [44],
    ),
    case(
        "SCATTER-18 pred", apply(hk.or_, **ONES), (np.array([False, True]), s32([[0]]), np.array([True])), [True, True]
    ),
    case(
        "SCATTER-33",
        apply(
            add,
            update_window_dims=[2],
            inserted_window_dims=[1],
            scatter_dims_to_operand_dims=[1],
            input_batching_dims=[0],
            scatter_indices_batching_dims=[0],
            index_vector_dim=2,
        ),
        (np.zeros((3, 2, 2), np.float32), GATHER_33, np.ones((3, 2, 2), np.float32)),
        [[[1, 1], [1, 1]], [[0, 0], [2, 2]], [[0, 0], [0, 0]]],
    ),
]


@pytest.mark.parametrize(("function", "inputs", "expected"), SCATTERS)
def test_scatter(function: Callable[..., Any], inputs: Any, expected: Any) -> None:
    got = value(function, *inputs)
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert got.tolist() == expected.tolist()


@rule("SCATTER-2")
def test_scatter_into_a_constant_and_of_one_operand_in_a_list() -> None:
    def into(operands: Any, updates: Callable[[Any], Any]) -> Any:
        numbers = {"update_window_dims": [], **ONES}
        return lambda i, u: hk.scatter(operands, i, updates(u), add, numbers)

    for operands, updates in [(ZEROS, lambda u: u), ([ZEROS], lambda u: u), ([ZEROS], lambda u: [u])]:
        assert value(into(operands, updates), s32([[3], [1]]), f32([1, 2])).tolist() == [0, 2, 0, 1, 0]


@rule("SCATTER-31", "SCATTER-1", "BEY-34")
def test_scatter_of_two_operands() -> None:
    def combine(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + c, hk.max(b, d)

    def program(x: Any, y: Any, i: Any, u: Any, v: Any) -> Any:
        return hk.scatter([x, y], i, [u, v], combine, ONES)

    first, other = value(program, f32([10, 20]), s32([1, 2]), s32([[0], [0], [1]]), f32([1, 2, 3]), s32([5, 0, 0]))
    assert first.tolist() == [13, 23] and other.tolist() == [5, 2]
    assert first.dtype == np.float32 and other.dtype == np.int32


@rule("SCATTER-18", "SCATTER-22")
@pytest.mark.parametrize(
    "combine", [add, second, lambda x, y: x - y * x, hk.max], ids=["add", "second", "other", "max"]
)
def test_scatter_agrees_with_the_definition_element_by_element(combine: Callable[..., Any]) -> None:
    rng = np.random.default_rng(7)
    start, updates = rng.standard_normal((4, 6), np.float32), rng.standard_normal((2, 9, 3), np.float32)
    indices = rng.integers(-1, 5, (9, 2)).astype(np.int32)
    numbers = {"update_window_dims": [0, 2], "scatter_dims_to_operand_dims": [1, 0], "index_vector_dim": 1}
    expected = start.copy()
    scalar = {add: np.add, second: lambda x, y: y, hk.max: np.maximum}.get(combine, lambda x, y: x - y * x)
    for u in np.ndindex(*updates.shape):
        column, row = indices[u[1]]
        if 0 <= row <= 4 - 2 and 0 <= column <= 6 - 3:
            place = (row + u[0], column + u[2])
            expected[place] = scalar(expected[place], updates[u])
    assert value(apply(combine, **numbers), start, indices, updates).tobytes() == expected.tobytes()


@rule("SCATTER-35", "GATHER-17")
def test_gather_of_what_was_scattered() -> None:
    back = take([1], collapsed_slice_dims=[0], start_index_map=[0], index_vector_dim=1)
    where = s32([[4], [0], [2]])
    assert value(lambda x, i, u: back(apply(second, **ONES)(x, i, u), i), ZEROS, where, f32([1, 2, 3])).tolist() == [
        1,
        2,
        3,
    ]


def scattered(combine: Callable[..., Any] = add, **changes: Any) -> Callable[..., Any]:
    return apply(
        combine,
        **{
            "update_window_dims": [1],
            "inserted_window_dims": [0],
            "scatter_dims_to_operand_dims": [0],
            "index_vector_dim": 1,
            **changes,
        },
    )


U = hk.f32[4, 2]
TOGETHER = {
    "update_window_dims": [2],
    "inserted_window_dims": [1],
    "scatter_dims_to_operand_dims": [1],
    "input_batching_dims": [0],
    "scatter_indices_batching_dims": [0],
    "index_vector_dim": 2,
}


def two(x: Any, y: Any, i: Any, u: Any, v: Any) -> Any:
    return hk.scatter([x, y], i, [u, v], lambda a, b, c, d: (a, b), ONES)


V5, V3, I3 = hk.f32[5], hk.f32[3], hk.s32[3, 1]

WRONG_SCATTERS = [
    wrong(
        "SCATTER-2: fewer updates",
        lambda x, i, u: hk.scatter([x, x], i, [u], add, ONES),
        V5,
        I3,
        V3,
    ),
    wrong("SCATTER-2: nothing", lambda x, i: hk.scatter([], i, [], add, ONES), V5, I3),
    wrong("SCATTER-3: operands", two, V5, hk.f32[4], I3, V3, V3),
    wrong("SCATTER-3: updates", two, V5, V5, I3, V3, hk.f32[4]),
    wrong("SCATTER-4", scattered(), P, J, hk.s32[4, 2]),
    wrong("SCATTER-5", scattered(), P, hk.f32[4, 1], U),
    wrong("SCATTER-6: too large", scattered(index_vector_dim=3), P, J, U),
    wrong("SCATTER-6: negative", scattered(index_vector_dim=-1), P, J, U),
    wrong("SCATTER-7", scattered(), P, J, hk.f32[4, 2, 1]),
    wrong("SCATTER-8: range", scattered(update_window_dims=[2]), P, J, U),
    wrong("SCATTER-8: descending", apply(add, update_window_dims=[1, 0], index_vector_dim=0), P, hk.s32[0], U),
    wrong("SCATTER-9: range", scattered(inserted_window_dims=[2]), P, J, U),
    wrong("SCATTER-9: repeated", scattered(inserted_window_dims=[0, 0]), P, J, U),
    wrong("SCATTER-10", scattered(inserted_window_dims=[]), P, J, U),
    wrong("SCATTER-11", scattered(scatter_dims_to_operand_dims=[0, 1]), P, J, U),
    wrong("SCATTER-12: range", scattered(scatter_dims_to_operand_dims=[2]), P, J, U),
    wrong("SCATTER-12: repeated", scattered(scatter_dims_to_operand_dims=[0, 0]), P, hk.s32[4, 2], U),
    wrong("SCATTER-13", scattered(), P, J, hk.f32[4, 3]),
    wrong("SCATTER-14", scattered(), P, J, hk.f32[5, 2]),
    wrong("SCATTER-15 REDUCER-4: type", scattered(lambda x, y: hk.ge(x, y)), P, J, U),
    wrong("SCATTER-15 REDUCER-2: two results", scattered(lambda x, y: (x, y)), P, J, U),
    wrong("SCATTER-15 REDUCER-2: not a scalar", scattered(lambda x, y: hk.broadcast(x, [2])), P, J, U),
    wrong("SCATTER-34", scattered(), PAIR, J, U),
    wrong("BEY-33: unequal sizes", apply(add, **{**TOGETHER, "scatter_indices_batching_dims": [1]}), CUBE, K, CUBE),
    wrong("BEY-33: mapped as well", apply(add, **{**TOGETHER, "scatter_dims_to_operand_dims": [0]}), CUBE, K, CUBE),
    wrong("BEY-33: inserted as well", apply(add, **{**TOGETHER, "inserted_window_dims": [0]}), CUBE, K, CUBE),
    wrong("BEY-33: unequal lengths", apply(add, **{**TOGETHER, "scatter_indices_batching_dims": []}), CUBE, K, CUBE),
]


@pytest.mark.parametrize(("labels", "function", "shapes"), WRONG_SCATTERS)
def test_scatter_rejected(labels: list[str], function: Callable[..., Any], shapes: tuple[hk.Shape, ...]) -> None:
    with rejects(*labels):
        shape(function, *shapes)


GATHER_TEXT = "offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,2}"
SCATTER_TEXT = (
    "update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
    "to_apply=add"
)
MODULE = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

ENTRY e {{
  x = f32[5,2] parameter(0)
  i = s32[2,1] parameter(1)
  g = f32[2,2] gather(x, i), {gather}
  ROOT s = f32[5,2] scatter(x, i, g), {scatter}
}}"""


@rule("HOP-13", "HOP-14")
def test_gather_and_scatter_in_text() -> None:
    text = MODULE.format(gather=GATHER_TEXT + ", indices_are_sorted=true", scatter=SCATTER_TEXT)
    assert from_text(text, PAIRS, s32([[4], [4]])).tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [24, 27]]
    printed = str(hk.parse(f"HloModule t\n{text}"))
    assert GATHER_TEXT + ", indices_are_sorted=true" in printed
    assert SCATTER_TEXT.replace("=add", "=%add") in printed


@rule("HOP-14")
def test_optional_attributes_of_scatter_in_text() -> None:
    scatter = (
        "update_window_dims={}, inserted_window_dims={1}, scatter_dims_to_operand_dims={1}, input_batching_dims={0}, "
        "scatter_indices_batching_dims={0}, index_vector_dim=1, indices_are_sorted=true, unique_indices=true, "
        "to_apply=add"
    )
    lines = ["y = s32[5,1] iota(), iota_dimension=0", "u = f32[5] parameter(2)"]
    text = MODULE.format(gather=GATHER_TEXT, scatter=scatter).replace("scatter(x, i, g)", "scatter(x, y, u)")
    text = text.replace("  ROOT s = f32[5,2]", "".join(f"  {line}\n" for line in lines) + "  ROOT s = f32[5,2]")
    assert scatter.replace("=add", "=%add") in str(hk.parse(f"HloModule t\n{text}"))


@rule("HOP-13", "HOP-14")
@pytest.mark.parametrize("missing", [*GATHER_TEXT.split(", "), *SCATTER_TEXT.split(", ")])
def test_a_missing_attribute_of_gather_or_scatter(missing: str) -> None:
    gather, scatter = (", ".join(a for a in text.split(", ") if a != missing) for text in (GATHER_TEXT, SCATTER_TEXT))
    with pytest.raises(hk.HlokitError):
        hk.parse("HloModule t\n" + MODULE.format(gather=gather, scatter=scatter))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@rule("SCATTER-18")
def test_products_of_complex_numbers_are_those_of_multiply(dtype: type[Any]) -> None:
    """Bit for bit: a scatter of one update may become a multiply."""
    source = np.random.default_rng(0)
    x, u = (source.normal(size=(2, 50, 2)).astype(np.dtype(dtype).type(0).real.dtype) for _ in range(2))
    x, u = (np.ascontiguousarray(a).view(dtype)[0, :, 0] for a in (x, u))
    element = "c64" if dtype is np.complex64 else "c128"
    text = f"""HloModule m
f {{ a = {element}[] parameter(0) b = {element}[] parameter(1) ROOT c = {element}[] multiply(a, b) }}
ENTRY e {{
  x = {element}[50] parameter(0)
  i = s32[50,1] iota(), iota_dimension=0
  u = {element}[50] parameter(1)
  s = {element}[50] scatter(x, i, u), update_window_dims={{}}, inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=1, to_apply=f
  m = {element}[50] multiply(x, u)
  ROOT t = ({element}[50], {element}[50]) tuple(s, m)
}}"""
    scattered, multiplied = hk.evaluate(hk.parse(text), x, u)
    assert scattered.tobytes() == multiplied.tobytes()
    exact = hk.compile(hk.parse(text), strict=True)(x, u)
    assert exact[0].tobytes() == scattered.tobytes()
