"""REDUCER, REDUCE, WIN, RWIN, SAS, and what BEY adds to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.op import infer_shape
from hlokit.ops.reduction import Reduce
from hlokit.ops.windows import ReduceWindow, SelectAndScatter
from hlokit.types.shape import TOKEN
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, run, s32, same, shape

INF, NAN = float("inf"), float("nan")


def add(a: Any, b: Any) -> Any:
    return a + b


def subtract(a: Any, b: Any) -> Any:
    return a - b


def argmax(best: Any, where: Any, value: Any, index: Any) -> Any:
    """The combiner of REDUCE-16."""
    newer = hk.ge(value, best)
    return hk.select(newer, value, best), hk.select(newer, index, where)


def sum_and_max(a: Any, b: Any, c: Any, d: Any) -> Any:
    return a + c, hk.max(b, d)


def computation(parameters: list[hk.Shape], body: Callable[..., Any]) -> Any:
    b = hk.Builder("reducer")
    result = body(b, *(b.parameter(i, p) for i, p in enumerate(parameters)))
    return b.build_computation(result)


SCALAR = hk.f32[()]
ADD = computation([SCALAR, SCALAR], lambda b, x, y: x + y)


# -- reducers and reduce


REDUCERS: list[tuple[str, list[hk.Shape], Callable[..., Any]]] = [
    ("REDUCER-1: one parameter", [SCALAR], lambda b, x: x),
    ("REDUCER-1: three parameters", [SCALAR] * 3, lambda b, x, y, z: x + y),
    ("REDUCER-2: not a scalar", [SCALAR] * 2, lambda b, x, y: hk.broadcast(x, [2])),
    ("REDUCER-2: two results", [SCALAR] * 2, lambda b, x, y: [x, y]),
    ("REDUCER-4: parameter of rank 1", [SCALAR, hk.f32[2]], lambda b, x, y: x),
    ("REDUCER-4: parameters of another type", [hk.s32[()]] * 2, lambda b, x, y: x),
    ("REDUCER-4: result of another type", [SCALAR] * 2, lambda b, x, y: hk.ge(x, y)),
    ("REDUCER-4, REDUCER-7: wider float", [hk.f64[()]] * 2, lambda b, x, y: x),
]


@pytest.mark.parametrize(("label", "parameters", "body"), REDUCERS, ids=[r[0] for r in REDUCERS])
@rule("REDUCE-7", "RWIN-4")
def test_bad_reducers_are_rejected(label: str, parameters: list[hk.Shape], body: Callable[..., Any]) -> None:
    called = computation(parameters, body)
    label = label[: len("REDUCER-1")]
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2, 3])
    with rejects(label):
        hk.reduce(x, 0.0, called, [0])
    with rejects(label):
        hk.reduce_window(x, 0.0, called, [1, 2], [1, 1], "VALID")
    with rejects(label):
        source = b.parameter(1, hk.f32[2, 2])
        hk.select_and_scatter(x, hk.ge, [1, 2], [1, 1], "VALID", source, 0.0, called)


@rule("EXEC-4")
def test_one_rule_set_for_all_reducers() -> None:
    unary = computation([SCALAR], lambda b, x: x)
    for program, labels in (
        (lambda x: hk.reduce(x, 0.0, unary, [0]), ("REDUCER-1",)),
        (lambda x: hk.reduce_window(x, 0.0, unary, [1], [1], "VALID"), ("REDUCER-1",)),
        (lambda x: hk.all_reduce(x, unary), ("REDUCER-1", "ARED-6")),
    ):
        with rejects(*labels):
            shape(program, hk.f32[2])


@rule("REDUCER-5", "SAS-5")
def test_init_is_a_scalar_of_the_operands_type() -> None:
    for init in (hk.f32[3], hk.s32[()], hk.f64[()]):
        with rejects("REDUCER-5"):
            shape(lambda x, i: hk.reduce(x, i, ADD, [0]), hk.f32[2], init)
        with rejects("REDUCER-5"):
            shape(lambda x, i: hk.reduce_window(x, i, ADD, [1], [1], "VALID"), hk.f32[2], init)
        with rejects("SAS-5"):
            shape(lambda x, i: hk.select_and_scatter(x, hk.ge, [1], [1], "VALID", x, i, ADD), hk.f32[2], init)


@rule("REDUCER-3")
def test_result_of_a_reducer_that_gives_a_one_tuple() -> None:
    same(run(lambda x: hk.reduce(x, 0.0, lambda a, b: (a + b,), [0]), f32([1, 2, 3])), (f32(6),))


@rule("REDUCER-6", "REDUCE-16", "REDUCE-17", "BEY-48")
def test_accumulated_values_come_before_new_ones() -> None:
    program = lambda v, k: hk.reduce([v, k], [-INF, -1], argmax, [0])  # noqa: E731
    same(run(program, f32([3, 9, 9, 2]), s32([0, 1, 2, 3])), (f32(9), s32(2)))
    rows = f32([[3, 9, 9, 2], [NAN, 1, 0, 1]]).T
    same(run(program, rows, s32([[0, 1, 2, 3]] * 2).T), (f32([9, 1]), s32([2, 3])))


PLANES = f32([[[1, 2, 3], [4, 5, 6]]] * 4)
REDUCE_ROWS = [
    ("REDUCE-14: dims {0}", PLANES, [0], [[4, 8, 12], [16, 20, 24]]),
    ("REDUCE-14: dims {2}", PLANES, [2], [[6, 15]] * 4),
    ("REDUCE-14: dims {0,1}", PLANES, [0, 1], [20, 28, 36]),
    ("REDUCE-6: dims {1,0}", PLANES, [1, 0], [20, 28, 36]),
    ("REDUCE-14: all", PLANES, [0, 1, 2], 84),
    ("REDUCE-15: dims {0}", PLANES[0], [0], [5, 7, 9]),
    ("REDUCE-15: dims {1}", PLANES[0], [1], [6, 15]),
    ("REDUCE-1: order of the others is kept", f32(np.ones((2, 3, 4))), [1], [[3] * 4] * 2),
    ("REDUCE-10: empty extent gives init", f32(np.ones((0, 2))), [0], [0, 0]),
    ("REDUCE-10: empty result", f32(np.ones((0, 2))), [1], []),
    ("REDUCE-12: NaN through add", f32([[1, NAN], [2, 3]]), [1], [NAN, 5]),
]


@pytest.mark.parametrize(("operand", "dims", "expected"), [r[1:] for r in REDUCE_ROWS], ids=[r[0] for r in REDUCE_ROWS])
def test_reduce_by_add(operand: Any, dims: list[int], expected: Any) -> None:
    same(run(lambda x: hk.reduce(x, 0.0, add, dims), operand), f32(expected))


@rule("BEY-48")
def test_reduce_all() -> None:
    same(run(lambda x: hk.reduce_all(x, 1.0, add), PLANES), f32(85))


@rule("REDUCE-8", "REDUCE-9", "REDUCE-13", "REDUCE-18")
def test_left_fold_in_index_order() -> None:
    same(run(lambda x: hk.reduce(x, 10, subtract, [0]), s32([1, 2, 3])), s32(4))
    reverse = lambda a, b: b - a  # noqa: E731
    same(run(lambda x: hk.reduce(x, 1, reverse, [0]), s32([10, 20, 35])), s32(35 - (20 - (10 - 1))))
    half = lambda a, b: a * 2.0 + b  # noqa: E731
    same(run(lambda x: hk.reduce(x, 0.0, half, [0, 1]), f32([[1, 0], [0, 0]])), f32(8))


@rule("REDUCE-8", "TYPE-10")
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.complex64])
@pytest.mark.parametrize("outputs", [1, 3, 700])
def test_every_step_is_rounded(dtype: Any, outputs: int) -> None:
    x = np.random.default_rng(0).standard_normal((70, outputs)).astype(dtype)
    expected = np.zeros(outputs, dtype)
    wide = np.result_type(np.float32, dtype) if dtype is np.complex64 else np.float32
    for row in x:
        expected = (expected.astype(wide) + row.astype(wide)).astype(dtype)
    got = run(lambda x: hk.reduce(x, 0.0, add, [0]), x)
    assert got.dtype == dtype and got.tobytes() == expected.tobytes()


@rule("REDUCE-8")
@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_folds_that_any_order_leaves_alone(count: int) -> None:
    x = np.random.default_rng(1).integers(-100, 100, (count, 3)).astype(np.int8)
    with np.errstate(over="ignore"):
        same(run(lambda x: hk.reduce(x, 5, add, [0]), x), (x.sum(0, dtype=np.int64) + 5).astype(np.int8))
    same(run(lambda x: hk.reduce(x, -128, hk.max, [0]), x), np.max(x, 0, initial=-128))
    same(run(lambda x: hk.reduce(x, 0, hk.xor, [0]), x), np.bitwise_xor.reduce(x, 0))
    bits = x > 0
    same(run(lambda x: hk.reduce(x, True, hk.and_, [0]), bits), bits.all(0))
    same(run(lambda x: hk.reduce(x, False, hk.add, [0]), bits), bits.any(0))


@rule("REDUCE-12")
def test_nan_handling_is_the_computations() -> None:
    x = f32([[1, NAN, 3], [4, 5, 6]])
    same(run(lambda x: hk.reduce(x, -INF, hk.max, [1]), x), f32([NAN, 6]))
    ignore = lambda a, b: hk.select(hk.gt(b, a), b, a)  # noqa: E731
    same(run(lambda x: hk.reduce(x, -INF, ignore, [1]), x), f32([3, 6]))


@rule("REDUCE-11", "REDUCE-19")
def test_reducing_no_dimension_applies_the_computation_once() -> None:
    same(run(lambda x: hk.reduce(x, 10.0, add, []), f32([1, 2])), f32([11, 12]))
    same(run(lambda x: hk.reduce(x, 10.0, add, []), f32(1)), f32(11))


@rule("REDUCE-2", "RWIN-2", "BUILDER-11")
def test_operand_and_init_counts() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[2])
    for operands, inits in (([x], []), ([x, x], [0.0]), ([x], [0.0, 0.0]), ([], [])):
        with rejects("REDUCE-2"):
            hk.reduce(operands, inits, add, [0])
        with rejects("RWIN-2"):
            hk.reduce_window(operands, inits, add, [1], [1], "VALID")
    for op, label in ((Reduce((0,)), "REDUCE-2"), (ReduceWindow(hk.Window.make([1])), "RWIN-2")):
        for count in (0, 1, 3):
            with rejects(label):
                infer_shape(op, [hk.f32[2]] * count, [("to_apply", ADD.program_shape)])


@pytest.mark.parametrize(
    ("label", "parameters", "dims"),
    [
        pytest.param("REDUCE-3", [hk.f32[2, 3], hk.s32[2, 4]], [0], id="REDUCE-3: other dimensions"),
        pytest.param("REDUCE-4", [hk.f32[2, 3], hk.s32[2, 3]], [2], id="REDUCE-4: too large"),
        pytest.param("REDUCE-4", [hk.f32[2, 3], hk.s32[2, 3]], [-1], id="REDUCE-4: negative"),
        pytest.param("REDUCE-5", [hk.f32[2, 3], hk.s32[2, 3]], [0, 0], id="REDUCE-5: twice"),
    ],
)
def test_bad_reductions_are_rejected(label: str, parameters: list[hk.Shape], dims: list[int]) -> None:
    with rejects(label):
        shape(lambda v, k: hk.reduce([v, k], [0.0, 0], argmax, dims), *parameters)


@rule("REDUCE-3")
def test_operands_are_arrays_of_any_types() -> None:
    b = hk.Builder("t")
    with rejects("REDUCE-3"):
        infer_shape(Reduce((0,)), [hk.Shape.tuple([hk.f32[2]]), SCALAR], [("to_apply", ADD.program_shape)])
    v, k = b.parameter(0, hk.f32[2, 3]), b.parameter(1, hk.s32[2, 3])
    assert hk.reduce([v, k], [0.0, 0], argmax, [0]).shape is hk.Shape.tuple([hk.f32[3], hk.s32[3]])


@rule("DYN-10")
def test_reduce_keeps_flags_and_uses_valid_elements() -> None:
    dynamic = lambda x, n: hk.set_dimension_size(x, n, 0)  # noqa: E731
    assert shape(lambda x, n: hk.reduce(dynamic(x, n), 0.0, add, [1]), hk.f32[5, 2], hk.s32[()]) is hk.f32["<=5"]
    same(run(lambda x, n: hk.reduce(dynamic(x, n), 0.0, add, [0]), f32(np.ones((5, 2))), s32(3)), f32([3, 3]))
    same(run(lambda x, n: hk.reduce(dynamic(x, n), 0.0, add, [1]), f32(np.ones((5, 2))), s32(3)), f32([2, 2, 2]))


# -- windows


@rule("WIN-1")
def test_window_defaults() -> None:
    d = hk.Window.make([3]).dimensions[0]
    assert (d.size, d.stride, d.padding_low, d.padding_high) == (3, 1, 0, 0)
    assert (d.base_dilation, d.window_dilation, d.reversal) == (1, 1, False)


@pytest.mark.parametrize("field", range(4), ids=[f"WIN-2: {f}" for f in ("size", "stride", "base", "window")])
@pytest.mark.parametrize("value", [0, -1])
@rule("RWIN-4")
def test_non_positive_window_numbers_are_rejected(field: int, value: int) -> None:
    size, stride, base, window = (value if i == field else 1 for i in range(4))
    with rejects("WIN-2"):
        arguments = ([size], [stride], [base], [window], [(0, 0)])
        shape(lambda x: hk.reduce_window_with_general_padding(x, 0.0, add, *arguments), hk.f32[4])


@pytest.mark.parametrize("position", range(4), ids=[f"WIN-3: {f}" for f in ("strides", "base", "window", "padding")])
@rule("RWIN-4")
def test_window_lists_have_one_entry_per_dimension(position: int) -> None:
    lists: list[Any] = [[1, 1], [1, 1], [1, 1], [(0, 0)] * 2]
    lists[position] = lists[position][:1]
    with rejects("WIN-3"):
        shape(lambda x: hk.reduce_window_with_general_padding(x, 0.0, add, [1, 1], *lists), hk.f32[4, 4])
    lists[position] = []
    assert (
        shape(lambda x: hk.reduce_window_with_general_padding(x, 0.0, add, [1, 1], *lists), hk.f32[4, 4])
        is hk.f32[4, 4]
    )


@rule("WIN-4", "RWIN-1")
@pytest.mark.parametrize(
    ("window", "size"),
    [
        ({"sizes": [3]}, 8),
        ({"sizes": [3], "strides": [2]}, 4),
        ({"sizes": [3], "padding": [(1, 2)]}, 11),
        ({"sizes": [3], "padding": [(-1, -2)]}, 5),
        ({"sizes": [3], "base_dilations": [3]}, 26),
        ({"sizes": [3], "window_dilations": [4]}, 2),
        ({"sizes": [11]}, 0),
        ({"sizes": [1], "padding": [(-5, -5)]}, 0),
    ],
)
def test_output_sizes(window: dict[str, Any], size: int) -> None:
    op = ReduceWindow(hk.Window.make(**window))
    assert infer_shape(op, [hk.f32[10], SCALAR], [("to_apply", ADD.program_shape)]) is hk.f32[size]


@rule("WIN-5", "WIN-7")
def test_make_padding() -> None:
    assert hk.make_padding([4], [2], [1], "SAME") == ((0, 1),)
    assert hk.make_padding([5, 7], [3, 3], [2, 3], "SAME") == ((1, 1), (1, 1))
    assert hk.make_padding([10], [2], [7], "SAME") == ((0, 0),)
    assert hk.make_padding([5, 7], [3, 3], [2, 3], "VALID") == ((0, 0), (0, 0))
    with rejects("WIN-5"):
        hk.make_padding([5], [3], [1], "FULL")


@rule("WIN-6")
def test_make_padding_wants_equal_lengths() -> None:
    for padding in ("SAME", "VALID"):
        with rejects("WIN-6"):
            hk.make_padding([5, 5], [3], [1, 1], padding)


@rule("BUILDER-2")
def test_errors_in_window_lists_name_op_and_line() -> None:
    b = hk.Builder("t")
    x = b.parameter(0, hk.f32[4, 4])
    with pytest.raises(hk.ShapeError, match=r"reduce-window\(f32\[4,4\]\): .*test_reduction_windows\.py:\d+"):
        hk.reduce_window(x, 0.0, add, [2, 2], [1], "VALID")
    assert isinstance(b.first_error, hk.ShapeError)


# -- reduce-window


def window_sum(
    operand: Any, size: int, *, stride: int = 1, pad: Any = (0, 0), base: int = 1, window: int = 1, init: float = 0
) -> Any:
    lists = ([size], [stride], [base], [window], [pad])
    return run(lambda x: hk.reduce_window_with_general_padding(x, init, add, *lists), f32(operand))


ONE_TO_FIVE = [1, 2, 3, 4, 5]
WINDOW_ROWS: list[tuple[str, list[int], dict[str, Any], list[float]]] = [
    ("RWIN-14: base dilation", [1, 2, 3, 4], {"size": 2, "base": 2}, [1, 2, 2, 3, 3, 4]),
    ("RWIN-14: window dilation", ONE_TO_FIVE, {"size": 2, "window": 3}, [5, 7]),
    ("RWIN-14, RWIN-7: negative padding", ONE_TO_FIVE, {"size": 2, "pad": (-1, -1)}, [5, 7]),
    ("RWIN-6: init enters once", ONE_TO_FIVE, {"size": 2, "pad": (1, 1), "init": 100}, [101, 103, 105, 107, 109, 105]),
    ("RWIN-8: never fits", ONE_TO_FIVE, {"size": 6}, []),
    ("RWIN-10: only padding", [], {"size": 2, "pad": (1, 2), "init": 7}, [7, 7]),
    ("RWIN-16: neighbours", ONE_TO_FIVE, {"size": 2}, [3, 5, 7, 9]),
    ("RWIN-16: no overlap", ONE_TO_FIVE, {"size": 2, "stride": 2}, [3, 7]),
    ("RWIN-5: all of it", ONE_TO_FIVE, {"size": 5}, [15]),
    ("RWIN-5: running sum", ONE_TO_FIVE, {"size": 5, "pad": (4, 0), "init": 1}, [2, 4, 7, 11, 16]),
    ("RWIN-5: window longer than the array", ONE_TO_FIVE, {"size": 7, "pad": (6, 0)}, [1, 3, 6, 10, 15]),
]


@pytest.mark.parametrize(
    ("operand", "window", "expected"), [r[1:] for r in WINDOW_ROWS], ids=[r[0] for r in WINDOW_ROWS]
)
def test_reduce_window_by_add(operand: list[int], window: dict[str, Any], expected: list[float]) -> None:
    same(window_sum(operand, **window), f32(expected))


@rule("RWIN-12", "RWIN-13", "RWIN-1")
def test_reduce_window_examples() -> None:
    least = float(np.finfo(np.float32).min)
    iota = f32(np.arange(24).reshape(4, 6))
    same(run(lambda x: hk.reduce_window(x, least, hk.max, (2, 3), (2, 3), "VALID"), iota), f32([[8, 11], [20, 23]]))
    x = f32([10000, 1000, 100, 10, 1])
    same(run(lambda x: hk.reduce_window(x, -least, hk.min, [3], [2], "VALID"), x), f32([100, 1]))
    same(run(lambda x: hk.reduce_window(x, -least, hk.min, [3], [2], "SAME"), x), f32([1000, 10, 1]))


@rule("RWIN-15", "BEY-48", "RWIN-1")
def test_variadic_reduce_window() -> None:
    program = lambda x, y: hk.reduce_window([x, y], [0.0, -1], sum_and_max, [2], [1], "VALID")  # noqa: E731
    same(run(program, f32([1, 2, 3]), s32([4, 9, 6])), (f32([3, 5]), s32([9, 9])))
    running = lambda x, y: hk.reduce_window_with_general_padding(  # noqa: E731
        [x, y], [0.0, -1], sum_and_max, [3], [1], [], [], [(2, 0)]
    )
    same(run(running, f32([1, 2, 3]), s32([4, 9, 6])), (f32([1, 3, 6]), s32([4, 9, 9])))


@rule("RWIN-5", "RWIN-11")
def test_left_fold_in_window_order() -> None:
    digits = lambda a, b: a * 10 + b  # noqa: E731
    x = s32([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    same(run(lambda x: hk.reduce_window(x, 0, digits, [2, 2], [1, 1], "VALID"), x), s32([[1245, 2356], [4578, 5689]]))
    same(run(lambda x: hk.reduce_window(x, 0, digits, [3, 3], [1, 1], "VALID"), x), s32([[123456789]]))
    running = lambda x: hk.reduce_window_with_general_padding(x, 0, digits, [1, 3], [1, 1], [], [], [(0, 0), (2, 0)])  # noqa: E731
    same(run(running, x), s32([[1, 12, 123], [4, 45, 456], [7, 78, 789]]))


@rule("RWIN-5", "RWIN-11")
def test_a_cumulative_sum_from_the_end_is_folded_from_the_end() -> None:
    x = np.random.default_rng(0).normal(size=(3, 500)).astype(np.float32)
    backward = lambda x: hk.reduce_window_with_general_padding(x, 0.5, hk.add, [1, 600], [1, 1], [], [], [(0, 0), (0, 599)])  # noqa: E731
    ends = np.concatenate([np.full((3, 1), 0.5, np.float32), x[:, ::-1]], 1)
    same(run(backward, x), np.cumsum(ends, axis=1, dtype=np.float32)[:, :0:-1])
    digits = lambda a, b: a * 10 + b  # noqa: E731
    running = lambda x: hk.reduce_window_with_general_padding(x, 0, digits, [3], [1], [], [], [(0, 2)])  # noqa: E731
    same(run(running, s32([1, 2, 3])), s32([123, 23, 3]))


@rule("RWIN-5", "RWIN-6", "RWIN-7")
def test_windows_against_the_definition() -> None:
    rng = np.random.default_rng(2)
    for _ in range(150):
        base, size = int(rng.integers(0, 7)), int(rng.integers(1, 5))
        stride, dilation, hole = (int(n) for n in rng.integers(1, 4, 3))
        low, high = (int(n) for n in rng.integers(-4, 5, 2))
        x = rng.integers(1, 10, base)
        padded = {low + i * hole: int(v) for i, v in enumerate(x)}
        extent = low + high + (0 if base == 0 else (base - 1) * hole + 1)
        count = (
            0
            if extent <= 0 or (size - 1) * dilation + 1 > extent
            else (extent - (size - 1) * dilation - 1) // stride + 1
        )
        sums = [sum(padded.get(o * stride + k * dilation, 0) for k in range(size)) for o in range(count)]
        got = window_sum(x, size, stride=stride, pad=(low, high), base=hole, window=dilation)
        same(got, f32(sums))


@rule("RWIN-6", "WIN-4")
def test_huge_windows_cost_only_what_they_meet() -> None:
    far = 10**12
    same(window_sum(ONE_TO_FIVE, far, pad=(far, 0)), f32([0, 1, 3, 6, 10, 15]))
    same(window_sum(ONE_TO_FIVE, 1, base=far, stride=far), f32(ONE_TO_FIVE))
    same(window_sum(ONE_TO_FIVE, 2, base=far, window=far, stride=far + far), f32([3, 7]))


@rule("RWIN-9")
def test_reduce_window_of_a_scalar() -> None:
    same(run(lambda x: hk.reduce_window(x, 10.0, add, [], [], "VALID"), f32(1)), f32(11))


@rule("RWIN-2", "RWIN-3")
def test_bad_reduce_windows_are_rejected() -> None:
    with rejects("RWIN-3"):
        arguments = ([2], [1], [1], [1], [(0, 0)])
        shape(lambda x: hk.reduce_window_with_general_padding(x, 0.0, add, *arguments), hk.f32[4, 4])
    with rejects("RWIN-2"):
        shape(lambda x, y: hk.reduce_window([x, y], [0.0, 0], sum_and_max, [1], [1], "VALID"), hk.f32[4], hk.s32[5])


@rule("DYN-11")
def test_window_dimensions_keep_flags() -> None:
    def program(x: Any, n: Any) -> Any:
        return hk.reduce_window(hk.set_dimension_size(x, n, 0), 0.0, add, [2], [1], "VALID")

    assert shape(program, hk.f32[5], hk.s32[()]) is hk.f32["<=4"]
    same(run(program, f32(ONE_TO_FIVE), s32(3)), f32([3, 5]))
    sas = lambda x, s: hk.select_and_scatter(x, hk.ge, [1], [1], "VALID", s, 0.0, add)  # noqa: E731
    assert shape(sas, hk.f32["<=5"], hk.f32["<=5"]) is hk.f32["<=5"]


# -- select-and-scatter


def select_and_scatter(
    operand: Any, source: Any, size: Any, stride: Any, pad: Any, init: float = 0, select: Any = hk.ge
) -> Any:
    return run(
        lambda x, s: hk.select_and_scatter_with_general_padding(x, select, size, stride, pad, s, init, add),
        f32(operand),
        f32(source),
    )


FIGURE_1 = [[7, 2, 5, 3, 10, 2], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]]
FIGURE_2 = [[7, 2, 5, 3, 8], [3, 8, 9, 3, 4], [1, 5, 7, 5, 6], [0, 6, 2, 10, 2]]
FIGURE_1_OUT = [[0, 0, 0, 0, 6, 0], [0, 0, 2, 0, 0, 0], [0, 0, 3, 0, 0, 0], [0, 0, 0, 0, 0, 1]]
FIGURE_2_OUT = [[0, 0, 0, 0, 0], [0, 0, 8, 0, 0], [0, 0, 3, 0, 0], [0, 0, 0, 1, 0]]
NONE_2D = [(0, 0), (0, 0)]
SAS_ROWS: list[tuple[Any, ...]] = [
    ("SAS-13: figure 1", FIGURE_1, [[2, 6], [3, 1]], [2, 3], [2, 3], NONE_2D, 0, hk.ge, FIGURE_1_OUT),
    ("SAS-14, SAS-7: figure 2", FIGURE_2, [[2, 6], [3, 1]], [2, 3], [2, 2], NONE_2D, 0, hk.ge, FIGURE_2_OUT),
    ("SAS-9: GE keeps the first", [5, 5, 5], [10], [3], [1], [(0, 0)], 1, hk.ge, [11, 1, 1]),
    ("SAS-9: GT takes the last", [5, 5, 5], [10], [3], [1], [(0, 0)], 1, hk.gt, [1, 1, 11]),
    ("SAS-10: padding", [-1, -2, -3], [10, 20, 30, 40, 50], [1], [1], [(1, 1)], 0, hk.ge, [20, 30, 40]),
    ("SAS-11: NaN", [1, NAN, 3], [10], [3], [1], [(0, 0)], 0, hk.ge, [0, 0, 10]),
    ("SAS-15: overlap and padding", [1, 2, 3], [10, 20, 30, 40], [2], [1], [(1, 1)], 0, hk.ge, [10, 20, 70]),
    ("SAS-8: least", [3, 1, 2], [10], [3], [1], [(0, 0)], 0, hk.le, [0, 10, 0]),
    ("SAS-16: always the first argument", [1, 3, 2], [1], [3], [1], [(0, 0)], 0, lambda a, b: hk.eq(a, a), [1, 0, 0]),
    ("SAS-1: empty source", [1, 3, 2], [], [4], [1], [(0, 0)], 5, hk.ge, [5, 5, 5]),
]


@pytest.mark.parametrize("row", [r[1:] for r in SAS_ROWS], ids=[r[0] for r in SAS_ROWS])
@rule("BEY-49")
def test_select_and_scatter_values(row: Any) -> None:
    *arguments, expected = row
    same(select_and_scatter(*arguments), f32(expected))


@rule("SAS-12")
def test_windows_update_in_row_major_order() -> None:
    digits = lambda a, b: a * 10 + b  # noqa: E731
    program = lambda x, s: hk.select_and_scatter(x, hk.ge, [3], [1], "SAME", s, 0, digits)  # noqa: E731
    same(run(program, s32([1, 9, 1, 1]), s32([1, 2, 3, 4])), s32([0, 123, 4, 0]))


PRED2 = computation([SCALAR, SCALAR], lambda b, x, y: hk.ge(x, y))


@pytest.mark.parametrize(
    ("label", "operand", "source", "window", "select", "scatter"),
    [
        pytest.param("SAS-2", hk.f32[4], hk.f32[2], [2], ADD, ADD, id="SAS-2: no pred"),
        pytest.param("SAS-2", hk.s32[4], hk.s32[2], [2], PRED2, add, id="SAS-2: other type"),
        pytest.param("SAS-2", hk.f32[4], hk.f32[2], [2], computation([SCALAR], lambda b, x: x), ADD, id="SAS-2: unary"),
        pytest.param("REDUCER-4", hk.f32[4], hk.f32[2], [2], hk.ge, PRED2, id="SAS-3: scatter gives pred"),
        pytest.param("SAS-3", hk.f32[4], hk.f32[2], [2], hk.ge, lambda a, b: (a,), id="SAS-3: a tuple"),
        pytest.param("SAS-4", hk.f32[4], hk.f32[3], [2], hk.ge, ADD, id="SAS-4: source size"),
        pytest.param("SAS-4", hk.f32[4], hk.f64[2], [2], hk.ge, ADD, id="SAS-4: source type"),
        pytest.param("SAS-6", hk.f32[4, 4], hk.f32[2, 2], [2], hk.ge, ADD, id="SAS-6: window rank"),
        pytest.param("WIN-2", hk.f32[4], hk.f32[2], [0], hk.ge, ADD, id="SAS-6: size 0"),
    ],
)
def test_bad_select_and_scatters_are_rejected(
    label: str, operand: hk.Shape, source: hk.Shape, window: Any, select: Any, scatter: Any
) -> None:
    pad = [(0, 0)] * len(window)

    def program(x: Any, s: Any) -> Any:
        return hk.select_and_scatter_with_general_padding(x, select, window, [2] * len(window), pad, s, 0, scatter)

    with rejects(label):
        shape(program, operand, source)


@rule("SAS-6")
def test_select_and_scatter_has_no_dilations() -> None:
    called = [("select", PRED2.program_shape), ("scatter", ADD.program_shape)]
    for window in (hk.Window.make([2], window_dilations=[2]), hk.Window.make([2], base_dilations=[2])):
        with rejects("SAS-6"):
            infer_shape(SelectAndScatter(window), [hk.f32[4], hk.f32[2], SCALAR], called)


@rule("SAS-4")
def test_select_and_scatter_takes_an_array() -> None:
    called = [("select", PRED2.program_shape), ("scatter", ADD.program_shape)]
    for operand in (hk.Shape.tuple([hk.f32[4]]), TOKEN):
        with rejects("SAS-4"):
            infer_shape(SelectAndScatter(hk.Window.make([2])), [operand, hk.f32[3], SCALAR], called)


# -- as text


@rule("ARED-6", "MAP-7", "RNG-2", "REDUCER-4", "SORT-3")
@pytest.mark.parametrize(
    "instruction",
    [
        "f32[3] all-reduce(x), replica_groups={}, to_apply=add",
        "f32[3] map(x, x), dimensions={0}, to_apply=add",
        "f32[] reduce(x, z), dimensions={0}, to_apply=add",
        "f32[3] sort(x), dimensions={0}, to_apply=less",
        "f32[3] rng(z, z), distribution=rng_uniform",
    ],
)
def test_scalars_may_have_tiles_and_memory_spaces(instruction: str) -> None:
    module = hk.parse(f"""HloModule m
    add {{ a = f32[]{{:T(128)}} parameter(0) b = f32[]{{:T(128)}} parameter(1) ROOT c = f32[]{{:S(1)}} add(a, b) }}
    less {{ a = f32[]{{:T(128)}} parameter(0) b = f32[] parameter(1) ROOT c = pred[]{{:S(1)}} compare(a, b), direction=LT }}
    ENTRY e {{ x = f32[3] parameter(0) z = f32[]{{:T(128)}} constant(0) ROOT r = {instruction} }}""")
    expected = hk.evaluate(hk.parse(re.sub(r"\{:[TS]\(\d+\)\}", "", str(module))), f32([1, 2, 3]))
    if "distribution" not in instruction:
        np.testing.assert_array_equal(hk.evaluate(module, f32([1, 2, 3])), expected)
    assert hk.verify(module) is None and ":T(128)" in str(module)


@pytest.mark.parametrize("missing", ["dimensions={1}", "to_apply=add"], ids=["HOP-17: dimensions", "HOP-17: to_apply"])
def test_a_missing_attribute_of_reduce(missing: str) -> None:
    line = "reduce(x, z), dimensions={1}, to_apply=add"
    module = """HloModule m
    add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }
    ENTRY e { x = f32[2,3] parameter(0) z = f32[] constant(0) ROOT r = %s %s }"""
    hk.parse(module % ("f32[2]", line))
    with rejects("HINST-6"):
        hk.parse(module % ("f32[2,3]" if "dimensions" in missing else "f32[2]", line.replace(f", {missing}", "")))


@pytest.mark.parametrize(
    ("label", "program", "parameters", "expected"),
    [
        ("HOP-17", lambda x: hk.reduce(x, 0.0, add, [1]), [hk.f32[2, 3]], "dimensions={1}, to_apply=%"),
        (
            "HOP-18",
            lambda x: hk.reduce_window(x, 0.0, add, [2, 1], [1, 1], "VALID"),
            [hk.f32[2, 3]],
            "window={size=2x1}, to_apply=%",
        ),
        (
            "HOP-18",
            lambda x: hk.select_and_scatter(x, hk.ge, [2], [2], "VALID", x, 0.0, add),
            [hk.f32[0]],
            "window={size=2 stride=2}, select=%",
        ),
        (
            "HOP-23",
            lambda x, s: hk.batch_norm_training(x, s, s, 0.5, 1),
            [hk.f32[3, 2], hk.f32[2]],
            "epsilon=0.5, feature_index=1",
        ),
        (
            "HOP-43",
            lambda x, c: hk.scan([x], [c], lambda x, c: (x + c, c), 0, is_reverse=True),
            [hk.f32[3], hk.f32[()]],
            "dimensions={0}, num_carries=1, is_reverse=true, is_associative=false, to_apply=%",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("HOP") else "",
)
def test_text(label: str, program: Any, parameters: list[hk.Shape], expected: str) -> None:
    b = hk.Builder("test")
    text = str(b.build(program(*(b.parameter(i, p) for i, p in enumerate(parameters)))))
    assert expected in text
    assert str(hk.parse(text)) == text
