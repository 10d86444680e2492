"""CONV: convolution, and what BEY adds to it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit import ConvolutionDimensionNumbers
from hlokit.hlo.op import infer_shape
from hlokit.ops.convolution import Convolution
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, run, s32, same, shape

INF, NAN = float("inf"), float("nan")
Array = np.ndarray[Any, Any]


def iota(*sizes: int) -> Array:
    return f32(np.arange(np.prod(sizes)).reshape(sizes))


def conv(**options: Any) -> Callable[[Any, Any], Any]:
    """A convolution in default dimension order (CONV-1)."""

    def program(lhs: Any, rhs: Any) -> Any:
        n = options.get("n", lhs.rank - 2)
        return hk.conv_general_dilated(
            lhs,
            rhs,
            options.get("stride", [1] * n),
            options.get("pad", [(0, 0)] * n),
            options.get("lhs_dilation", []),
            options.get("rhs_dilation", []),
            options.get("numbers", ConvolutionDimensionNumbers.default(n)),
            options.get("features", 1),
            options.get("batches", 1),
            window_reversal=options.get("reversal"),
            preferred_element_type=options.get("preferred"),
        )

    return program


def slow_conv(lhs: Array, rhs: Array, **options: Any) -> Array:
    """CONV-6 element by element, in default dimension order, without groups."""
    n = lhs.ndim - 2
    stride, pad = options.get("stride", [1] * n), options.get("pad", [(0, 0)] * n)
    hole, step = options.get("lhs_dilation") or [1] * n, options.get("rhs_dilation") or [1] * n
    flip = options.get("reversal") or [False] * n
    rhs = rhs[:, :, *(slice(None, None, -1 if f else 1) for f in flip)]
    base = [(s - 1) * d + 1 if s else 0 for s, d in zip(lhs.shape[2:], hole)]
    extent = [low + b + high for (low, high), b in zip(pad, base)]
    window = [(s - 1) * d + 1 for s, d in zip(rhs.shape[2:], step)]
    out = [(e - w) // s + 1 if 0 < w <= e else 0 for e, w, s in zip(extent, window, stride)]
    result = np.zeros((lhs.shape[0], rhs.shape[0], *out), lhs.dtype)
    for o in itertools.product(*map(range, out)):
        for k in itertools.product(*map(range, rhs.shape[2:])):
            p = [oi * s + ki * d - low for oi, s, ki, d, (low, _) in zip(o, stride, k, step, pad)]
            if all(0 <= pi < b and pi % h == 0 for pi, b, h in zip(p, base, hole)):
                here = lhs[:, :, *(pi // h for pi, h in zip(p, hole))]
                result[:, :, *o] += here @ rhs[:, :, *k].T
    return result


LINE = [0, 1, 2, 3, 4]
LINE_ROWS: list[tuple[str, list[float], list[float], dict[str, Any], list[float]]] = [
    ("CONV-31, CONV-6: plain", LINE, [1, 10, 100], {}, [210, 321, 432]),
    ("CONV-31, CONV-25, BEY-45: reversed", LINE, [1, 10, 100], {"reversal": [True]}, [12, 123, 234]),
    ("CONV-31, CONV-9: padding and stride", LINE, [1, 10, 100], {"pad": [(1, 2)], "stride": [2]}, [100, 321, 43]),
    ("CONV-31, CONV-8: negative padding", LINE, [1, 10, 100], {"pad": [(-1, -1)]}, [321]),
    (
        "CONV-32, CONV-10: dilations",
        LINE,
        [1, 10],
        {"lhs_dilation": [2], "rhs_dilation": [3], "pad": [(1, 0)]},
        [10, 0, 20, 1, 30, 2, 40],
    ),
    ("CONV-32, CONV-8: dilated, then cut", LINE, [1, 10], {"lhs_dilation": [2], "pad": [(-1, -2)]}, [10, 1, 20, 2, 30]),
    ("CONV-26: window larger than the base", LINE, [1] * 6, {}, []),
    ("CONV-27: zero times infinity", [INF, 2, 3], [0, 1], {"pad": [(1, 1)]}, [INF, NAN, 3, 0]),
    ("CONV-9: (2,3)", [1], [1], {"pad": [(2, 3)]}, [0, 0, 1, 0, 0, 0]),
    ("CONV-28: empty base in padding", [], [1, 1], {"pad": [(1, 2)]}, [0, 0]),
]


@pytest.mark.parametrize(
    ("lhs", "rhs", "options", "expected"), [r[1:] for r in LINE_ROWS], ids=[r[0] for r in LINE_ROWS]
)
def test_convolution_of_a_line(lhs: Any, rhs: Any, options: dict[str, Any], expected: Any) -> None:
    same(run(conv(**options), f32([[lhs]]), f32([[rhs]])), f32([[expected]]))


@rule("CONV-30", "CONV-7", "CONV-1")
def test_convolution_of_a_plane() -> None:
    ones = f32(np.ones((1, 1, 2, 2)))
    expected = f32([[[[10, 14, 18], [26, 30, 34], [42, 46, 50]]]])
    same(run(lambda x, k: hk.conv(x, k, [1, 1], "VALID"), iota(1, 1, 4, 4), ones), expected)
    same(run(lambda x, k: hk.conv_with_general_padding(x, k, [1, 1], [(0, 0)] * 2), iota(1, 1, 4, 4), ones), expected)


@rule("CONV-35", "CONV-2")
def test_no_spatial_dimension_is_a_matrix_product() -> None:
    same(run(conv(), iota(2, 3), iota(4, 3)), f32([[5, 14, 23, 32], [14, 50, 86, 122]]))


@rule("CONV-33", "CONV-20")
def test_feature_groups() -> None:
    got = run(conv(features=2), iota(1, 4, 2), iota(4, 2, 1))
    same(got, f32([[[2, 3], [6, 11], [46, 55], [66, 79]]]))


@rule("CONV-34", "CONV-22", "CONV-5")
def test_batch_groups() -> None:
    got = run(conv(batches=2), iota(4, 1, 2), f32([1, 2]).reshape(2, 1, 1))
    same(got, f32([[[0, 1], [8, 10]], [[2, 3], [12, 14]]]))


@rule("CONV-21")
def test_depthwise() -> None:
    x, filters = iota(2, 5, 3), iota(3, 1, 3, 2)  # [h, w, in, mult]
    numbers = ConvolutionDimensionNumbers(0, 2, [1], 1, 2, [0], 0, 2, [1])
    kernel = filters.reshape(3, 1, 6)
    got = run(lambda x, k: hk.conv_general(x, k, [1], [(0, 0)], numbers, feature_group_count=3), x, kernel)
    expected = [slow_conv(x[:, None, :, i], kernel[:, 0, o].reshape(1, 1, 3))[:, 0] for o in range(6) for i in [o // 2]]
    same(got, np.stack(expected, -1))


@rule("CONV-36", "CONV-5")
def test_output_features_are_independent_filters() -> None:
    kernel = iota(5, 1, 2)
    got = run(conv(), f32([[LINE]]), kernel)
    assert got.shape == (1, 5, 4)
    for o in range(5):
        same(got[:, o : o + 1], slow_conv(f32([[LINE]]), kernel[o : o + 1]))


@rule("CONV-6", "CONV-8", "CONV-10", "CONV-4", "CONV-25")
@pytest.mark.parametrize("seed", range(40))
def test_convolutions_against_the_definition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 3))
    lhs = f32(rng.integers(-4, 5, (2, 3, *rng.integers(0, 6, n))))
    rhs = f32(rng.integers(-4, 5, (2, 3, *rng.integers(1, 4, n))))
    options: dict[str, Any] = {
        "stride": rng.integers(1, 4, n).tolist(),
        "pad": rng.integers(-3, 4, (n, 2)).tolist(),
        "lhs_dilation": rng.integers(1, 4, n).tolist(),
        "rhs_dilation": rng.integers(1, 4, n).tolist(),
        "reversal": [bool(r) for r in rng.integers(0, 2, n)],
    }
    expected = slow_conv(lhs, rhs, **options)
    same(run(conv(**options), lhs, rhs), expected)
    assert shape(conv(**options), hk.f32[lhs.shape], hk.f32[rhs.shape]).dimensions == expected.shape


@rule("CONV-3", "BEY-47")
def test_any_order_of_dimensions() -> None:
    lhs, rhs = iota(2, 3, 5, 6), iota(4, 3, 2, 3)
    expected = run(conv(), lhs, rhs)
    numbers = ConvolutionDimensionNumbers(2, 0, [3, 1], 3, 1, [2, 0], 1, 2, [0, 3])
    moved = [np.empty(0)] * 2
    for i, (array, order) in enumerate(((lhs, numbers.lhs), (rhs, numbers.rhs))):
        moved[i] = array.transpose(np.argsort(order)).copy()
    got = run(lambda x, k: hk.conv_general(x, k, [1, 1], [(0, 0)] * 2, numbers), *moved)
    same(got, expected.transpose(np.argsort(numbers.output)))
    valid = run(lambda x, k: hk.conv_with_general_dimensions(x, k, [1, 1], "VALID", numbers), *moved)
    same(valid, got)


@rule("CONV-13", "CONV-14")
@pytest.mark.parametrize(("size", "kernel", "stride"), [(5, 3, 1), (6, 2, 1), (7, 3, 2), (10, 2, 7), (4, 4, 3)])
def test_same_padding(size: int, kernel: int, stride: int) -> None:
    lhs, rhs = iota(1, 1, size), iota(1, 1, kernel)
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    got = run(lambda x, k: hk.conv(x, k, [stride], "SAME"), lhs, rhs)
    assert got.shape[2] == -(-size // stride)
    same(got, slow_conv(lhs, rhs, stride=[stride], pad=[(total // 2, total - total // 2)]))


@rule("CONV-29")
def test_integer_convolutions_wrap() -> None:
    same(run(conv(), np.int8([[[100, 100]]]), np.int8([[[2, 2]]])), np.int8([[[-112]]]))
    same(run(conv(preferred=hk.s32), np.int8([[[100, 100]]]), np.int8([[[2, 2]]])), s32([[[400]]]))
    big = np.int64([[[2**62, 3]]])
    same(run(conv(), big, np.int64([[[4, 5]]])), np.int64([[[15]]]))


@rule("CONV-28")
def test_empty_batch_and_features() -> None:
    same(run(conv(), f32(np.ones((0, 2, 3))), f32(np.ones((4, 2, 1)))), f32(np.ones((0, 4, 3))))
    same(run(conv(), f32(np.ones((2, 0, 3))), f32(np.ones((4, 0, 1)))), f32(np.zeros((2, 4, 3))))


@rule("DOTG-17", "CONV-24")
def test_narrow_convolutions_round_once() -> None:
    lhs = np.array([[[16.0] + [0.5] * 64]], ml_dtypes.bfloat16)
    same(run(conv(), lhs, np.ones((1, 1, 65), ml_dtypes.bfloat16)), np.array([[[48]]], ml_dtypes.bfloat16))


def test_large_convolutions_go_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    lhs, rhs = iota(3, 2, 7, 6), iota(4, 2, 3, 2)
    whole = run(conv(), lhs, rhs)
    for block in (1, 50, 400):
        monkeypatch.setattr("hlokit.ops.convolution._BLOCK", block)
        same(run(conv(), lhs, rhs), whole)


LHS, RHS = hk.f32[4, 6, 5], hk.f32[6, 6, 3]
BAD_CONVOLUTIONS: list[tuple[str, hk.Shape, hk.Shape, dict[str, Any]]] = [
    ("CONV-2: strides for another rank", LHS, RHS, {"n": 2, "numbers": ConvolutionDimensionNumbers.default(2)}),
    ("CONV-37: ranks", LHS, hk.f32[6, 6], {}),
    ("CONV-3: lhs", LHS, RHS, {"numbers": ConvolutionDimensionNumbers(0, 0, [2], 1, 0, [2], 0, 1, [2])}),
    ("CONV-3: rhs", LHS, RHS, {"numbers": ConvolutionDimensionNumbers(0, 1, [2], 1, 0, [3], 0, 1, [2])}),
    ("CONV-3: output", LHS, RHS, {"numbers": ConvolutionDimensionNumbers(0, 1, [2], 1, 0, [2], 0, -1, [2])}),
    ("CONV-3: too many", LHS, RHS, {"numbers": ConvolutionDimensionNumbers(0, 1, [2, 3], 1, 0, [2], 0, 1, [2])}),
    ("CONV-11: stride", LHS, RHS, {"stride": [0]}),
    ("CONV-11: lhs dilation", LHS, RHS, {"lhs_dilation": [0]}),
    ("CONV-11: rhs dilation", LHS, RHS, {"rhs_dilation": [-1]}),
    ("CONV-11: kernel size", LHS, hk.f32[6, 6, 0], {}),
    ("WIN-3: CONV-12, strides", LHS, RHS, {"stride": [1, 1]}),
    ("WIN-3: CONV-12, padding", LHS, RHS, {"pad": [(0, 0)] * 2}),
    ("WIN-3: CONV-12, lhs dilation", LHS, RHS, {"lhs_dilation": [1, 1]}),
    ("WIN-3: CONV-12, rhs dilation", LHS, RHS, {"rhs_dilation": [1, 1]}),
    ("WIN-3: CONV-12, reversal", LHS, RHS, {"reversal": [True, True]}),
    ("CONV-15: none", LHS, RHS, {"features": 0}),
    ("CONV-15: negative", LHS, RHS, {"batches": -1}),
    ("CONV-15: both", LHS, hk.f32[6, 3, 3], {"features": 2, "batches": 2}),
    ("CONV-16: features", LHS, hk.f32[6, 5, 3], {}),
    ("CONV-16: grouped features", LHS, hk.f32[6, 6, 3], {"features": 2}),
    ("CONV-16: indivisible", LHS, hk.f32[6, 1, 3], {"features": 4}),
    ("CONV-17: output features", LHS, hk.f32[5, 3, 3], {"features": 2}),
    ("CONV-18: batch", LHS, RHS, {"batches": 3}),
    ("CONV-19: output features", LHS, hk.f32[5, 6, 3], {"batches": 2}),
    ("CONV-24: types", LHS, hk.f64[6, 6, 3], {}),
    ("CONV-37: tuple", hk.Shape.tuple([LHS]), RHS, {"n": 1}),
    ("DYN-13: output features", LHS, hk.f32["<=6", 6, 3], {}),
]


@pytest.mark.parametrize(("label", "lhs", "rhs", "options"), BAD_CONVOLUTIONS, ids=[r[0] for r in BAD_CONVOLUTIONS])
def test_bad_convolutions_are_rejected(label: str, lhs: hk.Shape, rhs: hk.Shape, options: dict[str, Any]) -> None:
    with rejects(label.split(":")[0]):
        shape(conv(**options), lhs, rhs)


@rule("CONV-23")
def test_the_window_is_as_large_as_the_kernel() -> None:
    op = Convolution(hk.Window.make([2]), ConvolutionDimensionNumbers.default(1), output_shape=hk.f32[4, 6, 4])
    with rejects("CONV-23"):
        infer_shape(op, [LHS, RHS])


@rule("DYN-13")
def test_dynamic_dimensions_of_a_convolution() -> None:
    assert shape(conv(), hk.f32["<=4", 6, "<=5"], RHS) is hk.f32["<=4", 6, "<=3"]
    assert shape(conv(), LHS, hk.f32[6, 6, "<=3"]) is hk.f32[4, 6, "<=3"]
    program = lambda x, k, n: conv()(hk.set_dimension_size(x, n, 2), k)  # noqa: E731
    same(run(program, f32([[LINE]]), f32([[[1, 10]]]), s32(3)), f32([[[10, 21]]]))


@rule("BEY-46")
def test_dynamic_convolutions_are_custom_calls() -> None:
    b = hk.Builder("t")
    x, k, sizes = b.parameter(0, LHS), b.parameter(1, RHS), b.parameter(2, hk.s32[3])
    arguments = ([1], [(1, 1)], [], [], ConvolutionDimensionNumbers.default(1), 1, 1, "HIGH", "PADDING_SAME")
    for call, target, operands in (
        (hk.dynamic_conv_forward, "DynamicConvolutionForward", [x, k]),
        (hk.dynamic_conv_input_grad, "DynamicConvolutionInputGrad", [sizes, x, k]),
        (hk.dynamic_conv_kernel_grad, "DynamicConvolutionKernelGrad", [x, k]),
    ):
        instruction = call(*operands, *arguments).instruction
        op = instruction.op
        assert (instruction.opcode, op.custom_call_target, op.padding_type) == ("custom-call", target, "PADDING_SAME")
        assert instruction.operands == tuple(o.instruction for o in operands)
        assert instruction.shape.static is hk.f32[4, 6, 5] and op.window.dimensions[0].padding_low == 1


@rule("HOP-16")
def test_text() -> None:
    program = conv(stride=[2], pad=[(1, 2)], rhs_dilation=[2], reversal=[True], features=2)
    b = hk.Builder("test", source_info=False)
    text = str(b.build(program(b.parameter(0, hk.f32[4, 6, 5]), b.parameter(1, hk.f32[6, 3, 3]))))
    window = "window={size=3 stride=2 pad=1_2 rhs_dilate=2 rhs_reversal=1}"
    assert f"{window}, dim_labels=bf0_oi0->bf0, feature_group_count=2\n" in text
    assert str(hk.parse(text)) == text


@rule("HOP-16")
@pytest.mark.parametrize("spelling", ["convolution_kind", "conv_kind"])
def test_both_spellings_of_the_kind(spelling: str) -> None:
    op = f"convolution(a, b), window={{size=3}}, dim_labels=bf0_oi0->bf0, {spelling}=wgrad"
    lines = ["a = f32[4,6,5] parameter(0)", "b = f32[6,6,3] parameter(1)", f"ROOT r = f32[4,6,3] {op}"]
    module = hk.parse("\n".join(["HloModule m", "ENTRY e {", *lines, "}"]))
    assert "bf0_oi0->bf0, convolution_kind=wgrad" in str(module)
