"""Dynamic dimensions: GDS, SDS, BEY-22 .. BEY-25, HOP-27, and DYN through every op."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.hlo.op import infer_shape
from hlokit.ops.movement import Broadcast
from hlokit.ops.reshaping import DynamicReshape
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, s32, shape
from tests.rules.running import built, from_text, value

TEN = np.arange(1, 11, dtype=np.float32)
GRID = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
SIZES = hk.s32[2]
D5, D34, S34 = hk.f32["<=5"], hk.f32["<=3", 4], hk.f32[3, 4]
INDEX, SCALAR = hk.s32[()], hk.f32[()]


def add(x: Any, y: Any) -> Any:
    return x + y


def total(x: hk.XlaOp) -> hk.XlaOp:
    return hk.reduce(x, 0.0, add, range(x.rank))


def size(x: hk.XlaOp, dimension: int = 0) -> hk.XlaOp:
    return hk.get_dimension_size(x, dimension)


# -- reading and setting sizes


@rule("GDS-1", "GDS-2")
def test_the_size_of_a_static_dimension_is_a_constant() -> None:
    module = built(lambda x: size(x, 1), S34)
    assert module.entry.root.opcode == "constant" and module.entry.root.shape is INDEX
    assert value(lambda x: size(x, 1), GRID) == 4


@rule("GDS-1", "GDS-2", "SDS-1", "SDS-2", "SDS-7")
@pytest.mark.parametrize("n", [0, 1, 10])
def test_the_size_of_a_dynamic_dimension_is_the_one_that_was_set(n: int) -> None:
    assert shape(lambda x, n: hk.set_dimension_size(x, n, 0), hk.f32[10], INDEX) is hk.f32["<=10"]

    def program(x: hk.XlaOp, n: hk.XlaOp) -> hk.XlaOp:
        dynamic = hk.set_dimension_size(x, n, 0)
        return hk.tuple_(x.builder, [size(dynamic), total(dynamic)])

    length, summed = value(program, TEN, s32(n))
    assert length.dtype == np.int32 and length == n and summed == TEN[:n].sum()


@rule("SDS-8", "SDS-5")
@pytest.mark.parametrize(("n", "expected"), [(5, (15, 120)), (6, (21, 720))])
def test_reductions_see_only_valid_elements(n: int, expected: tuple[int, int]) -> None:
    def program(x: hk.XlaOp, n: hk.XlaOp) -> hk.XlaOp:
        dynamic = hk.set_dimension_size(x, n, 0)
        return hk.tuple_(x.builder, [total(dynamic), hk.reduce(dynamic, 1.0, lambda a, b: a * b, [0])])

    assert value(program, TEN, s32(n)) == expected


@rule("SDS-2")
def test_a_larger_size_brings_the_data_back() -> None:
    restored = value(lambda x, n: hk.set_dimension_size(hk.set_dimension_size(x, n, 0), 8, 0), TEN, s32(2))
    assert np.array_equal(restored, TEN[:8])


@rule("SDS-7", "BEY-25")
def test_remove_dynamic_dimension_makes_it_static_at_its_bound() -> None:
    def program(x: hk.XlaOp, n: hk.XlaOp) -> hk.XlaOp:
        return hk.remove_dynamic_dimension(hk.set_dimension_size(x, n, 0), 0)

    assert shape(program, hk.f32[10], INDEX) is hk.f32[10]
    assert np.array_equal(value(program, TEN, s32(3)), TEN)
    with rejects("SDS-4"):
        shape(lambda x: hk.remove_dynamic_dimension(x, 1), D5)


@rule("SDS-6")
@pytest.mark.parametrize("n", [-3, 15])
def test_a_size_outside_the_bound_is_an_error_at_run_time(n: int) -> None:
    with pytest.raises(hk.EvaluationError, match="SDS-6"):
        value(lambda x, n: total(hk.set_dimension_size(x, n, 0)), TEN, s32(n))


@rule("SDS-9")
def test_the_static_shape_keeps_its_bound() -> None:
    dynamic = shape(lambda x, n: hk.set_dimension_size(x, n, 1), S34, INDEX)
    assert dynamic.static is S34 and dynamic.nbytes == S34.nbytes


TUPLE = hk.Shape.tuple([hk.f32[2]])
WRONG = [
    ("GDS-3", lambda x: size(x, 0), [TUPLE]),
    ("GDS-4", lambda x: size(x, 1), [D5]),
    ("GDS-4", lambda x: size(x, -1), [D5]),
    ("GDS-5", lambda x: size(x, 0), [hk.pred[2**31]]),
    ("SDS-3", lambda x, n: hk.set_dimension_size(x, n, 0), [TUPLE, INDEX]),
    ("SDS-3", lambda x, n: hk.set_dimension_size(x, n, 0), [hk.f32[5], hk.s64[()]]),
    ("SDS-3", lambda x, n: hk.set_dimension_size(x, n, 0), [hk.f32[5], hk.s32[1]]),
    ("SDS-4", lambda x, n: hk.set_dimension_size(x, n, 1), [hk.f32[5], INDEX]),
    ("SDS-4", lambda x, n: hk.set_dimension_size(x, n, -1), [hk.f32[5], INDEX]),
    ("SDS-4", lambda x, n: hk.set_dimension_size(x, n, 0), [hk.pred[2**31], INDEX]),
    ("DYN-2", lambda x: emit(Broadcast((1,), hk.f32[2, 5]), x), [D5]),
    ("DYN-2", lambda x: emit(Broadcast((1,), hk.f32["<=2", 5]), x), [hk.f32[5]]),
    ("DYN-5", lambda x: hk.reshape(x, [4, 3]), [hk.f32["<=2", 6]]),
    ("BEY-23", lambda x: hk.reshape_with_inferred_dimension(x, [3, 2], 2), [hk.f32["<=6"]]),
    ("BEY-24", lambda x, n: hk.dynamic_reshape(x, [n], [3, 2], [True, False]), [hk.f32[6], INDEX]),
    ("BEY-24", lambda x, n: hk.dynamic_reshape(x, [n, n], [3, 2], [True]), [hk.f32[6], INDEX]),
    ("BEY-24", lambda x, n: hk.dynamic_reshape(x, [n], [6], [True]), [hk.f32[6], hk.s64[()]]),
    ("BEY-24", lambda x, n: hk.dynamic_reshape(x, [n], [5], [True]), [hk.f32[6], INDEX]),
    ("DYN-BCAST-3", lambda x, y: x + y, [D5, hk.f32[4]]),
    ("DYN-4 PAD-5", lambda x, v: hk.pad(x, v, [(0, 0, 0)]), [hk.f32[5], D5]),
    ("DYN-15 IOTA-7", lambda x: x.builder.iota(D5, 0), [INDEX]),
    ("DYN-15", lambda x: hk.bitcast_convert_type(x, hk.f32), [hk.u8[2, "<=4"]]),
    ("DYN-13", lambda x, k: hk.conv(x, k, [1], "VALID"), [hk.f32[2, 3, 8], hk.f32["<=4", 3, 2]]),
    ("DYN-15", lambda a, b: hk.rng_uniform(a, b, D5), [hk.f32[()], hk.f32[()]]),
]


@pytest.mark.parametrize(("labels", "function", "shapes"), WRONG)
def test_rejected(labels: str, function: Callable[..., Any], shapes: list[hk.Shape]) -> None:
    with rejects(*labels.split(" ")):
        shape(function, *shapes)


@rule("BEY-24", "HINST-5")
def test_operands_of_a_dynamic_reshape_instruction() -> None:
    op = DynamicReshape(hk.f32["<=6"])
    assert infer_shape(op, [hk.f32[6], INDEX]) is hk.f32["<=6"]
    with rejects("BEY-24"):
        infer_shape(op, [hk.f32[6], INDEX, INDEX])
    with rejects("HINST-5"):
        infer_shape(op, [])


# -- which dimensions of a result are dynamic


def gathered(x: hk.XlaOp, i: hk.XlaOp) -> hk.XlaOp:
    """Rows of x."""
    numbers = {"offset_dims": [1], "collapsed_slice_dims": [0], "start_index_map": [0], "index_vector_dim": 1}
    return hk.gather(x, i, numbers, [1, x.shape.dimensions[1]])


def columns(sizes: list[int]) -> Callable[..., hk.XlaOp]:
    """A gather of columns; the slices take `sizes`."""
    numbers = {"offset_dims": [1], "collapsed_slice_dims": [1], "start_index_map": [1], "index_vector_dim": 1}
    return lambda x, i: hk.gather(x, i, numbers, sizes)


def scattered(x: hk.XlaOp, i: hk.XlaOp, u: hk.XlaOp) -> hk.XlaOp:
    numbers = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
    return hk.scatter(x, i, u, add, {**numbers, "index_vector_dim": 1})


def dot(x: hk.XlaOp, y: hk.XlaOp) -> hk.XlaOp:
    return hk.dot_general(x, y, hk.DotDimensionNumbers([1], [0]))


def batch_dot(x: hk.XlaOp, y: hk.XlaOp) -> hk.XlaOp:
    return hk.dot_general(x, y, hk.DotDimensionNumbers([2], [1], [0], [0]))


def conv(x: hk.XlaOp, k: hk.XlaOp) -> hk.XlaOp:
    return hk.conv(x, k, [1], "VALID")


def same(x: hk.XlaOp) -> hk.XlaOp:
    return x


P34 = hk.pred["<=3", 4]
SHAPES = [
    ("DYN-1", lambda x: -x, [D34], "f32[<=3,4]"),
    ("DYN-1", lambda x: hk.convert_element_type(x, hk.s8), [D34], "s8[<=3,4]"),
    ("DYN-1", lambda x: hk.reduce_precision(x, 5, 10), [D34], "f32[<=3,4]"),
    ("DYN-1", lambda x: hk.clamp(0.0, x, 1.0), [D34], "f32[<=3,4]"),
    ("DYN-1", lambda x: hk.rev(x, [0, 1]), [D34], "f32[<=3,4]"),
    ("DYN-1", hk.optimization_barrier, [D34], "f32[<=3,4]"),
    ("DYN-1", hk.select, [P34, D34, D34], "f32[<=3,4]"),
    ("DYN-1", hk.select, [hk.pred[3, 4], D34, S34], "f32[<=3,4]"),
    ("DYN-BCAST-1", add, [D34, S34], "f32[<=3,4]"),
    ("DYN-BCAST-1", add, [S34, D34], "f32[<=3,4]"),
    ("DYN-BCAST-1", hk.eq, [D34, hk.f32[3, "<=4"]], "pred[<=3,<=4]"),
    ("DYN-BCAST-2", add, [hk.f32[1, 4], D34], "f32[<=3,4]"),
    ("DYN-BCAST-2", lambda x, y: hk.add(x, y, [0]), [hk.f32["<=3"], S34], "f32[<=3,4]"),
    ("DYN-BCAST-2", lambda x, y: hk.add(x, y, [0]), [hk.f32[3], D34], "f32[<=3,4]"),
    ("DYN-BCAST-2", lambda x: x + 1.0, [D34], "f32[<=3,4]"),
    ("DYN-2", lambda x: hk.broadcast(x, [2]), [D34], "f32[2,<=3,4]"),
    ("DYN-2", lambda x: hk.broadcast_in_dim(x, [3, 2, 4], [0, 2]), [D34], "f32[<=3,2,4]"),
    ("DYN-3", lambda x, y: hk.concat_in_dim([x, y], 0), [S34, D34], "f32[<=6,4]"),
    ("DYN-3", lambda x, y: hk.concat_in_dim([x, y], 1), [S34, D34], "f32[<=3,8]"),
    ("DYN-4", lambda x: hk.pad(x, 0.0, [(1, 1, 1), (2, 0, 0)]), [D34], "f32[<=7,6]"),
    ("DYN-5", lambda x: hk.reshape(x, [12]), [D34], "f32[<=12]"),
    ("DYN-5", lambda x: hk.reshape(x, [1, 3, 2, 2]), [D34], "f32[1,<=3,2,2]"),
    ("DYN-5", lambda x: hk.reshape(x, [1, 2, 3]), [hk.f32["<=2", "<=3"]], "f32[1,<=2,<=3]"),
    ("DYN-5 BEY-23", lambda x: hk.reshape_with_inferred_dimension(x, [3, 2], 0), [hk.f32["<=6"]], "f32[<=3,2]"),
    ("DYN-5 BEY-23", lambda x: hk.reshape_with_inferred_dimension(x, [3, 2], 1), [hk.f32["<=6"]], "f32[3,<=2]"),
    ("BEY-22", lambda x: hk.reshape(x, hk.f32["<=6"]), [hk.f32["<=2", 3]], "f32[<=6]"),
    ("DYN-6", lambda x: hk.transpose(x, [1, 0]), [D34], "f32[4,<=3]"),
    ("DYN-7", lambda x: hk.slice(x, [0, 0], [2, 4]), [D34], "f32[<=2,4]"),
    ("DYN-7", lambda x: hk.slice(x, [0, 0], [1, 4]), [D34], "f32[1,4]"),
    ("DYN-7", lambda x, i: hk.dynamic_slice(x, [i, i], [3, 4]), [D34, INDEX], "f32[3,4]"),
    ("DYN-8", lambda x, u, i: hk.dynamic_update_slice(x, u, [i, i]), [D34, hk.f32[1, 1], INDEX], "f32[<=3,4]"),
    ("DYN-8", lambda x, u, i: hk.dynamic_update_slice(x, u, [i, i]), [S34, D34, INDEX], "f32[<=3,4]"),
    ("DYN-8", lambda x, u, i: hk.dynamic_update_slice(x, u, [i, i]), [S34, hk.f32["<=2", 4], INDEX], "f32[3,4]"),
    ("DYN-9", gathered, [S34, hk.s32["<=5", 1]], "f32[<=5,4]"),
    ("DYN-9", columns([3, 1]), [D34, hk.s32[5]], "f32[5,<=3]"),
    ("DYN-9", columns([2, 1]), [D34, hk.s32[5]], "f32[5,2]"),
    ("DYN-9", scattered, [D34, hk.s32["<=5"], hk.f32["<=5", 4]], "f32[<=3,4]"),
    ("DYN-10", lambda x: hk.reduce(x, 0.0, add, [1]), [D34], "f32[<=3]"),
    ("DYN-10", lambda x: hk.reduce(x, 0.0, add, [0]), [D34], "f32[4]"),
    ("DYN-10", lambda x: hk.map([x], lambda a: -a, [0, 1]), [D34], "f32[3,4]"),
    ("DYN-11", lambda x: hk.reduce_window(x, 0.0, add, [2, 2], [1, 1], "VALID"), [D34], "f32[<=2,3]"),
    ("DYN-12", dot, [D34, hk.f32[4, "<=7"]], "f32[<=3,<=7]"),
    ("DYN-12", dot, [hk.f32[3, "<=4"], hk.f32["<=4", 7]], "f32[3,7]"),
    ("DYN-12", batch_dot, [hk.f32["<=2", 3, 4], hk.f32["<=2", 4, 5]], "f32[<=2,3,5]"),
    ("DYN-13", conv, [hk.f32["<=2", 3, 8], hk.f32[4, 3, 2]], "f32[<=2,4,7]"),
    ("DYN-13", conv, [hk.f32[2, 3, "<=8"], hk.f32[4, 3, 2]], "f32[2,4,<=7]"),
    ("DYN-13", conv, [hk.f32[2, 3, 8], hk.f32[4, 3, "<=2"]], "f32[2,4,<=7]"),
    ("DYN-14", lambda x: hk.sort([x], hk.lt, 0), [D34], "f32[<=3,4]"),
    ("DYN-14", lambda x: hk.tuple_(x.builder, [x]), [D34], "(f32[<=3,4])"),
    ("DYN-14", lambda p, x, y: hk.conditional(p, x, same, y, same), [hk.pred[()], S34, D34], "f32[<=3,4]"),
    ("DYN-14", lambda x: x.builder.call(lambda a: a + a, [x]), [D34], "f32[<=3,4]"),
    ("DYN-15", lambda x: hk.bitcast_convert_type(x, hk.u8), [D5], "u8[<=5,4]"),
    ("BEY-24", lambda x, n: hk.dynamic_reshape(x, [n, n], [3, 2], [True, False]), [hk.f32[2, 3], INDEX], "f32[<=3,2]"),
]


@pytest.mark.parametrize(
    ("function", "shapes", "expected"), [row[1:] for row in SHAPES], ids=[f"{row[0]}: {row[3]}" for row in SHAPES]
)
def test_shape(function: Callable[..., hk.XlaOp], shapes: list[hk.Shape], expected: str) -> None:
    assert str(shape(function, *shapes).logical) == expected


# -- values: each row's function gets GRID with its first two rows valid; GRID; and the number 2

TOP = GRID[:2]
VALUES = [
    ("DYN-1", lambda d, x, n: hk.rev(-d, [0]), -TOP[::-1]),
    ("DYN-1", lambda d, x, n: hk.select(hk.gt(d, x), x, d), TOP),
    ("DYN-BCAST-1", lambda d, x, n: d + x, TOP * 2),
    ("DYN-BCAST-2", lambda d, x, n: hk.slice_in_dim(x, 0, 1) + d, TOP + TOP[0]),
    ("DYN-BCAST-2", lambda d, x, n: hk.mul(hk.reduce(d, 0.0, add, [1]), x, [0]), TOP * [[10], [26]]),
    ("DYN-2", lambda d, x, n: hk.broadcast_in_dim(d, [3, 2, 4], [0, 2]), TOP.repeat(2, 0).reshape(2, 2, 4)),
    ("DYN-3", lambda d, x, n: hk.concat_in_dim([d, x], 0), np.concatenate([TOP, GRID])),
    ("DYN-3", lambda d, x, n: hk.concat_in_dim([x, d], 1), np.concatenate([TOP, TOP], 1)),
    ("DYN-4", lambda d, x, n: hk.pad(d, 0.0, [(1, 1, 0), (0, 0, 0)]), np.pad(TOP, [(1, 1), (0, 0)])),
    ("DYN-5", lambda d, x, n: hk.reshape(d, [12]), TOP.reshape(8)),
    ("DYN-5", lambda d, x, n: hk.reshape(hk.set_dimension_size(x, n, 1), [12]), GRID[:, :2].reshape(6)),
    ("DYN-5 BEY-23", lambda d, x, n: hk.reshape_with_inferred_dimension(hk.reshape(d, [12]), [3, 4], 0), TOP),
    ("DYN-6", lambda d, x, n: hk.transpose(d, [1, 0]), TOP.T),
    ("DYN-7", lambda d, x, n: hk.slice(d, [1, 0], [3, 4]), TOP[1:]),
    ("DYN-7", lambda d, x, n: hk.slice(d, [2, 0], [3, 4]), GRID[2:]),
    ("DYN-7", lambda d, x, n: hk.dynamic_slice(d, [n, 0], [2, 4]), GRID[1:]),
    ("DYN-8", lambda d, x, n: hk.dynamic_update_slice(d, hk.slice_in_dim(-x, 0, 1), [1, 0]), [TOP[0], -TOP[0]]),
    ("DYN-8", lambda d, x, n: hk.dynamic_update_slice(x, -d, [0, 0]), -TOP),
    (
        "DYN-9",
        lambda d, x, n: gathered(x, hk.set_dimension_size(x.builder.constant(s32([2, 0, 1])), n, 0)),
        GRID[[2, 0]],
    ),
    ("DYN-9", lambda d, x, n: columns([3, 1])(d, x.builder.constant(s32([3, 9]))), GRID[:2, [3, 3]].T),
    (
        "DYN-9",
        lambda d, x, n: scattered(d, x.builder.constant(s32([0, 0])), hk.slice_in_dim(x, 1, 3)),
        [TOP[0] + [14, 16, 18, 20], TOP[1]],
    ),
    ("DYN-10", lambda d, x, n: hk.reduce(d, 0.0, add, [0]), TOP.sum(0)),
    ("DYN-10", lambda d, x, n: hk.map([d], lambda a: -a, [0, 1]), -GRID),
    ("DYN-11", lambda d, x, n: hk.reduce_window(d, 0.0, add, [2, 4], [1, 1], "VALID"), [[36]]),
    ("DYN-12", lambda d, x, n: dot(d, hk.transpose(x, [1, 0])), TOP @ GRID.T),
    ("DYN-12", lambda d, x, n: dot(hk.transpose(d, [1, 0]), x), TOP.T @ TOP),
    (
        "DYN-13",
        lambda d, x, n: conv(hk.reshape(d, [3, 1, 4]), x.builder.constant(f32([[[1, 1]]]))),
        (TOP[:, :3] + TOP[:, 1:])[:, None],
    ),
    ("DYN-14", lambda d, x, n: hk.sort([-d], hk.lt, 0), -TOP[::-1]),
    ("DYN-14", lambda d, x, n: hk.while_(lambda s: hk.lt(total(s), 100.0), lambda s: s + s, d), TOP * 4),
    ("DYN-14", lambda d, x, n: hk.conditional(hk.lt(n, 3), d, same, x, same), TOP),
    ("DYN-14", lambda d, x, n: x.builder.call(lambda a: a + a, [d]), TOP * 2),
]


@pytest.mark.parametrize(
    ("function", "expected"), [row[1:] for row in VALUES], ids=[f"{i} {row[0]}" for i, row in enumerate(VALUES)]
)
def test_value(function: Callable[..., hk.XlaOp], expected: Any) -> None:
    got = value(lambda x, n: function(hk.set_dimension_size(x, n, 0), x, n), GRID, s32(2))
    assert got.dtype == np.float32
    assert np.array_equal(got, np.asarray(expected, np.float32))


def lower_solve(a: hk.XlaOp, b: hk.XlaOp) -> hk.XlaOp:
    return hk.triangular_solve(a, b, True, True, False, "NO_TRANSPOSE")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        pytest.param(lambda d, x: hk.cholesky(d), [[2, 0, 0], [0, 2, 0]], id="cholesky"),
        pytest.param(lambda d, x: lower_solve(d, x), [[1, 0, 0], [0, 1, 0], [0, 0, 0]], id="solve, dynamic a"),
        pytest.param(lambda d, x: lower_solve(x, d), [[1, 0, 0], [0, 1, 0]], id="solve, dynamic b"),
    ],
)
def test_linear_algebra_uses_what_all_dimensions_of_one_size_have(function: Any, expected: Any) -> None:
    x = f32([[4, 0, 0], [0, 4, 0], [0, 0, 4]])
    got = value(lambda x, n: function(hk.set_dimension_size(x, n, 0), x), x, s32(2))
    np.testing.assert_array_equal(got, f32(expected))


@rule("DYN-5")
def test_a_size_that_fits_no_dimension_is_an_error_at_run_time() -> None:
    split = lambda x, n: hk.reshape_with_inferred_dimension(hk.set_dimension_size(x, n, 0), [2, 5], 0)  # noqa: E731
    assert value(split, TEN, s32(5)).tolist() == [[1, 2, 3, 4, 5]]
    with pytest.raises(hk.EvaluationError, match="DYN-5"):
        value(split, TEN, s32(7))


@rule("BEY-24")
def test_dynamic_reshape_takes_sizes_at_run_time() -> None:
    reshaped = lambda x, m, n: hk.dynamic_reshape(x, [m, n], [6, 2], [True, False])  # noqa: E731
    x = f32(range(12))
    got = value(lambda x, m, n: hk.tuple_(x.builder, [reshaped(x, m, n), size(reshaped(x, m, n))]), x, s32(6), s32(2))
    assert np.array_equal(got[0], x.reshape(6, 2)) and got[1] == 6
    for sizes in ((5, 2), (7, 2), (-6, -2)):
        with pytest.raises(hk.EvaluationError, match="BEY-24"):
            value(reshaped, x, *map(s32, sizes))


CALLS = """
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}

twice {{
  x = f32[5] parameter(0)
  ROOT y = f32[5] add(x, x)
}}

little {{
  x = f32[5] parameter(0)
  zero = f32[] constant(0)
  s = f32[] reduce(x, zero), dimensions={{0}}, to_apply=add
  ten = f32[] constant(10)
  ROOT b = pred[] compare(s, ten), direction=LT
}}

ENTRY e {{
  x = f32[5] parameter(0)
  n = s32[] constant(3)
  d = f32[<=5] set-dimension-size(x, n), dimensions={{0}}
  p = pred[] constant(true)
  ROOT r = {instruction}
}}"""


@rule("DYN-16")
@pytest.mark.parametrize(
    "instruction",
    [
        "f32[5] call(d), to_apply=twice",
        "f32[5] conditional(p, d, d), true_computation=twice, false_computation=twice",
        "f32[<=5] while(d), condition=little, body=twice",
    ],
)
def test_flags_of_called_computations_do_not_matter_but_bounds_do(instruction: str) -> None:
    """A static parameter gets a dynamic value whole."""
    text = "HloModule t\n" + CALLS.format(instruction=instruction)
    assert hk.evaluate(hk.parse(text), np.ones(5, np.float32)).tolist() == [2] * 5
    with pytest.raises(hk.HlokitError):
        hk.parse(text.replace("f32[5] parameter(0)\n  n", "f32[4] parameter(0)\n  n").replace("<=5", "<=4"))


@rule("DYN-17")
def test_a_parameter_may_be_dynamic() -> None:
    text = "ENTRY e {\n  x = f32[<=10] parameter(0)\n  ROOT n = s32[] get-dimension-size(x), dimensions={0}\n}"
    assert from_text(text, TEN[:7]) == 7
    with pytest.raises(hk.ArgumentError):
        from_text(text, np.zeros(11, np.float32))


@rule("HOP-27")
@pytest.mark.parametrize("dimensions", ["", ", dimensions={}", ", dimensions={0,1}"])
def test_size_instructions_name_exactly_one_dimension(dimensions: str) -> None:
    text = "ENTRY e {{\n  x = f32[3,4] parameter(0)\n  n = s32[] constant(2)\n  ROOT r = {}\n}}"
    for instruction in ("s32[] get-dimension-size(x)", "f32[<=3,4] set-dimension-size(x, n)"):
        from_text(text.format(instruction + ", dimensions={0}"), GRID)
        with pytest.raises(hk.HlokitError):
            from_text(text.format(instruction + dimensions), GRID)
    reshaped = from_text(
        text.format("f32[<=6,2] dynamic-reshape(x, six, n)").replace("ROOT", "six = s32[] constant(6)\n ROOT"), GRID
    )
    assert reshaped.shape == (6, 2)


@rule("BEY-28")
def test_export_forms_are_custom_calls() -> None:
    target = "mhlo.dynamic_broadcast_in_dim"
    module = built(lambda x, n: hk.mhlo_dynamic_broadcast_in_dim(x, n, [1], hk.f32["?", 5]), hk.f32[5], SIZES)
    assert f'custom_call_target="{target}"' in str(module) and "broadcast_dimensions=[1]" in str(module)
    module = built(lambda x, n: hk.mhlo_dynamic_reshape(x, n, hk.f32["?", "?"]), hk.f32[6], SIZES)
    assert 'custom_call_target="mhlo.dynamic_reshape"' in str(module)
    with pytest.raises(hk.UnsupportedError):
        hk.evaluate(module, np.zeros(6, np.float32), s32([2, 3]))
    for wrong in (hk.f32[6], hk.s32[6, 1], TUPLE):
        with rejects("BEY-28"):
            shape(lambda x, n, to=wrong: hk.mhlo_dynamic_reshape(x, n, to), hk.f32[6], SIZES)
    with rejects("BEY-28"):
        shape(lambda x, n: hk.mhlo_dynamic_broadcast_in_dim(x, n, [2], hk.f32["?", 5]), hk.f32[5], SIZES)
