"""The convolution routine against the reference op: layouts, windows, groups, types, epilogues."""

from __future__ import annotations

import ctypes
import math
import random
from typing import Any

import numpy as np
import pytest

from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.convolution import ConvolutionPlan, plan_convolution
from hlokit.cpu.kernels.contraction.convolution_plan import planned
from hlokit.cpu.kernels.contraction.depthwise import FeaturePatch
from hlokit.cpu.kernels.contraction.direct_convolution import TiledConvolution
from hlokit.cpu.kernels.contraction.elements import write
from hlokit.cpu.kernels.contraction.routine import contraction
from hlokit.cpu.kernels.contraction.windows import along_inputs, window_space
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import BASELINES, Target, baseline, parse
from hlokit.ops.convolution import Convolution
from hlokit.types import dtype as dtypes
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers as Numbers
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape
from hlokit.types.window import Window, WindowDimension
from tests.cpu.native import avx2, host

NHWC = Numbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, (1, 2))
NCHW = Numbers.default(2)
KERNEL_GRADIENT = Numbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
"""f01b_i01o->01bf, as JAX writes it for NHWC."""


def compiled(op: Convolution, lhs: Shape, rhs: Shape, target: Target | None = None, **more: Any) -> tuple[Any, Shape]:
    out, module, target = op.infer(lhs, rhs), Module(), target or host()
    routine = contraction(Call(op, (lhs, rhs), (out,), target, **more), module)
    assert routine is not None
    library = Library([compile_object(module, target, opt=1)])
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)

    def run(left: np.ndarray[Any, Any], right: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        result = np.empty(out.dimensions, out.dtype.numpy)
        scratch = np.full(routine.scratch + 64, 0xFF, np.uint8)
        aligned = -scratch.ctypes.data % 64 + scratch.ctypes.data
        table = (ctypes.c_void_p * 4)(left.ctypes.data, right.ctypes.data, result.ctypes.data, aligned)
        for phase in routine.phases:
            for chunk in reversed(range(phase.chunks)):
                kind(library.address(phase.function))(table, chunk, chunk + 1)
        return result

    return run, out


def operands(lhs: Shape, rhs: Shape, seed: int = 0) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)

    def one(shape: Shape) -> np.ndarray[Any, Any]:
        dtype = shape.dtype
        if dtype.is_complex:
            return (rng.normal(size=shape.dimensions) + 1j * rng.normal(size=shape.dimensions)).astype(dtype.numpy)
        if dtype.is_floating:
            values = rng.normal(size=shape.dimensions)
            return (np.abs(values) if dtype.name == "f8e8m0fnu" else values).astype(dtype.numpy)
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        high = 2 if dtype.kind == "pred" else low + min(1 << dtype.bits, 1 << 63)
        return rng.integers(low, high, shape.dimensions, np.int64).astype(dtype.numpy)

    return [one(lhs), one(rhs)]


def check(op: Convolution, lhs: Shape, rhs: Shape, target: Target | None = None) -> None:
    left, right = operands(lhs, rhs)
    run, out = compiled(op, lhs, rhs, target)
    got, want = run(left, right), op.reference(left, right)
    if want.size == 0:
        return
    if want.dtype.kind == "b" or (not lhs.dtype.is_floating and out.dtype.is_integral):
        np.testing.assert_array_equal(got, want)
        return
    kind = np.complex128 if out.dtype.is_complex else np.float64
    exact = got.astype(kind), want.astype(kind)
    narrow = {"f64": 1e-12, "c128": 1e-12, "bf16": 0.01, "f16": 2e-3, "f8e4m3fn": 0.07, "f8e5m2": 0.13}
    bound = max(narrow.get(out.dtype.name, 1e-5), 1e-12 if lhs.dtype.real.bits == 64 else 1e-5)
    size = np.abs(exact[1]).max()
    assert np.abs(exact[0] - exact[1]).max() <= bound * size + (1 if out.dtype.is_integral else 0)


def make(
    numbers: Numbers, window: list[WindowDimension], features: int = 1, batches: int = 1, result: DType = dtypes.f32
) -> Convolution:
    return Convolution(
        window=Window(tuple(window)),
        dim_labels=numbers,
        feature_group_count=features,
        batch_group_count=batches,
        operand_precision=(),
        convolution_kind="unset",
        output_shape=result[()],
    )


SAME = WindowDimension(3, padding_low=1, padding_high=1)
CASES = {
    "nhwc_3x3": (make(NHWC, [SAME] * 2), (2, 15, 29, 20), (3, 3, 20, 70)),
    "nhwc_7x7_stride_2_of_3": (
        make(NHWC, [WindowDimension(7, 2, 2, 3)] * 2), (1, 32, 40, 3), (7, 7, 3, 40),
    ),
    "nchw_3x3": (make(NCHW, [SAME] * 2), (2, 20, 15, 29), (35, 20, 3, 3)),
    "nchw_1x1": (make(NCHW, [WindowDimension(1)] * 2), (2, 20, 14, 14), (64, 20, 1, 1)),
    "nhwc_to_nchw": (
        make(Numbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 1, (2, 3)), [SAME] * 2), (2, 7, 7, 20), (3, 3, 20, 33),
    ),
    "small_images": (make(NHWC, [SAME] * 2), (5, 7, 7, 64), (3, 3, 64, 32)),
    "rows_of_2048_bytes": (make(NHWC, [WindowDimension(1)] * 2), (2, 7, 7, 512), (1, 1, 512, 16)),
    "kernel_gradient": (
        make(KERNEL_GRADIENT, [WindowDimension(28, 1, 1, 1)] * 2), (8, 28, 28, 40), (8, 28, 28, 24),
    ),
    "kernel_gradient_in_goes": (
        make(KERNEL_GRADIENT, [WindowDimension(61, 1, 1, 1)] * 2), (3, 61, 61, 5), (3, 61, 61, 7),
    ),
    "kernel_gradient_stride_2": (
        make(KERNEL_GRADIENT, [WindowDimension(14, 1, 0, 1, 1, 2)] * 2), (4, 28, 28, 17), (4, 14, 14, 20),
    ),
    "input_gradient_stride_2": (
        make(NHWC, [WindowDimension(3, 1, 1, 2, 2, 1, True)] * 2), (2, 9, 9, 20), (3, 3, 20, 40),
    ),
    "depthwise": (make(NHWC, [SAME] * 2, 40), (2, 12, 17, 40), (3, 3, 1, 40)),
    "depthwise_stride_2": (make(NHWC, [WindowDimension(3, 2, 1, 1)] * 2, 40), (2, 12, 17, 40), (3, 3, 1, 40)),
    "depthwise_multiplier_2": (make(NHWC, [SAME] * 2, 40), (2, 12, 17, 40), (3, 3, 1, 80)),
    "depthwise_nchw": (make(NCHW, [SAME] * 2, 40), (2, 40, 12, 17), (40, 1, 3, 3)),
    "depthwise_kernel_gradient": (
        make(KERNEL_GRADIENT, [WindowDimension(20, 1, 1, 1)] * 2, 1, 40), (2, 20, 20, 40), (2, 20, 20, 40),
    ),
    "groups_of_16": (make(NHWC, [SAME] * 2, 3), (2, 9, 9, 48), (3, 3, 16, 96)),
    "batch_groups": (make(NHWC, [SAME] * 2, 1, 2), (4, 9, 9, 6), (3, 3, 6, 8)),
    "one_dimension": (
        make(Numbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)), [WindowDimension(5, 1, 2, 2)]), (2, 100, 16), (5, 16, 32),
    ),
    "three_dimensions": (
        make(Numbers(0, 4, (1, 2, 3), 3, 4, (0, 1, 2), 0, 4, (1, 2, 3)), [SAME] * 3), (2, 5, 6, 7, 4), (3, 3, 3, 4, 20),
    ),
    "matrix_product": (make(Numbers(0, 1, (), 1, 0, (), 0, 1, ()), []), (50, 70), (90, 70)),
    "negative_padding": (make(NHWC, [WindowDimension(3, 1, -1, -2)] * 2), (2, 9, 9, 3), (3, 3, 3, 17)),
    "no_features": (make(NHWC, [SAME] * 2), (2, 9, 9, 0), (3, 3, 0, 17)),
    "no_batch": (make(NHWC, [SAME] * 2), (0, 9, 9, 3), (3, 3, 3, 17)),
    "window_beyond_the_image": (make(NHWC, [WindowDimension(9)] * 2), (1, 3, 3, 3), (9, 9, 3, 4)),
    "kernel_gradient_of_one_feature": (
        make(KERNEL_GRADIENT, [WindowDimension(149, 1, 1, 1)] * 2), (2, 149, 149, 1), (2, 149, 149, 1),
    ),
    "kernel_gradient_of_one_feature_stride_2": (
        make(KERNEL_GRADIENT, [WindowDimension(37, 1, 2, 3, 1, 2)] * 2), (3, 74, 74, 1), (3, 37, 37, 1),
    ),
    "kernel_gradient_of_one_feature_dilated": (
        make(KERNEL_GRADIENT, [WindowDimension(53, 2, 2, 2)] * 2), (3, 53, 53, 1), (3, 53, 53, 1),
    ),
    "kernel_gradient_unpadded": (
        make(KERNEL_GRADIENT, [WindowDimension(59)] * 2), (3, 63, 61, 12), (3, 59, 59, 40),
    ),
    "kernel_gradient_of_nchw": (
        make(Numbers(1, 0, (2, 3), 0, 1, (2, 3), 0, 1, (2, 3)), [WindowDimension(39, 1, 1, 1)] * 2), (2, 3, 39, 39),
        (2, 4, 39, 39),
    ),
    "kernel_gradient_of_groups": (
        make(KERNEL_GRADIENT, [WindowDimension(31, 1, 1, 1)] * 2, 1, 3), (4, 31, 31, 15), (4, 31, 31, 51),
    ),
    "kernel_gradient_of_a_long_signal": (
        make(Numbers(2, 0, (1,), 0, 2, (1,), 1, 2, (0,)), [WindowDimension(50_001, 1, 2, 2)]), (1, 50_001, 1),
        (1, 50_001, 2),
    ),
    "long_window": (
        make(Numbers(0, 2, (1,), 1, 2, (0,), 0, 2, (1,)), [WindowDimension(101, 1, 50, 50)]), (2, 301, 1), (101, 1, 1),
    ),
    "to_1": (make(NHWC, [SAME] * 2), (2, 9, 13, 64), (3, 3, 64, 1)),
    "to_3": (make(NHWC, [SAME] * 2), (2, 9, 13, 64), (3, 3, 64, 3)),
    "to_4_unpadded": (make(NHWC, [WindowDimension(3)] * 2), (2, 9, 13, 48), (3, 3, 48, 4)),
    "to_3_of_nchw": (
        make(Numbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 1, (2, 3)), [SAME] * 2), (2, 9, 13, 64), (3, 3, 64, 3),
    ),
    "to_3_by_weights_along_features": (
        make(Numbers(0, 3, (1, 2), 3, 2, (0, 1), 0, 3, (1, 2)), [SAME] * 2), (2, 9, 13, 64), (3, 3, 3, 64),
    ),
    "to_2_in_groups": (make(NHWC, [SAME] * 2, 3), (2, 9, 13, 96), (3, 3, 32, 6)),
    "to_3_in_goes": (make(NHWC, [WindowDimension(33, 1, 16, 16)] * 2), (1, 40, 40, 128), (33, 33, 128, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_shapes(name: str) -> None:
    op, lhs, rhs = CASES[name]
    check(op, dtypes.f32[lhs], dtypes.f32[rhs])


TYPES = [
    ("bf16", "bf16"), ("f16", "f32"), ("f64", "f64"), ("f64", "f16"), ("s8", "s32"), ("u8", "u8"), ("s64", "s64"),
    ("s4", "s32"), ("c64", "c64"), ("c128", "c128"), ("f8e4m3fn", "f32"), ("f32", "f8e5m2"), ("pred", "pred"),
    ("f32", "s32"), ("s32", "f32"),
]  # fmt: skip


@pytest.mark.parametrize(("operand", "result"), TYPES)
def test_types(operand: str, result: str) -> None:
    op = make(NHWC, [WindowDimension(3, 1, 1, 0)] * 2, result=dtypes.dtype(result))
    check(op, dtypes.dtype(operand)[2, 6, 7, 5], dtypes.dtype(operand)[3, 3, 5, 17])


FEW = [name for name in CASES if name.startswith("to_")]


@pytest.mark.parametrize("name", FEW)
def test_few_features_are_summed_along_inputs(name: str) -> None:
    """Vectors of output features would have empty lanes."""
    op, left, right = CASES[name]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    machines = [host(), avx2(), baseline("x86-64")] if "x86" in host().triple else [host()]
    for machine in machines:
        space = window_space(op.contraction((lhs, rhs)), (lhs, rhs), op.infer(lhs, rhs), machine)
        lanes = space.arithmetic.lanes(machine)
        assert (along_inputs(space, lanes) is not None) == (2 * space.output.size <= lanes)
        check(op, lhs, rhs, machine)


@pytest.mark.parametrize(("operand", "result"), [("bf16", "bf16"), ("f64", "f64"), ("s8", "s32"), ("f16", "f32")])
def test_few_features_of_types(operand: str, result: str) -> None:
    op = make(NHWC, [SAME] * 2, result=dtypes.dtype(result))
    check(op, dtypes.dtype(operand)[2, 6, 7, 64], dtypes.dtype(operand)[3, 3, 64, 3])


@pytest.mark.parametrize("name", ["nhwc_3x3", "nchw_3x3", "depthwise"])
def test_without_avx512(name: str) -> None:
    if "x86" not in host().triple:
        pytest.skip("an x86 machine's")
    op, lhs, rhs = CASES[name]
    check(op, dtypes.f32[lhs], dtypes.f32[rhs], avx2())


@pytest.mark.parametrize("seed", range(40))
def test_random(seed: int) -> None:
    """Dimension orders, strides, paddings, dilations, reversals and groups at random."""
    r = random.Random(seed)
    count = r.choice([1, 2, 2, 3])
    lhs_order, rhs_order, out_order = (r.sample(range(count + 2), count + 2) for _ in range(3))
    features, batches = r.choice([(1, 1), (1, 1), (3, 1), (17, 1), (1, 3)])
    inputs, outputs = r.choice([1, 2, 5, 17]), r.choice([1, 2, 17, 40])
    sizes, window = [r.choice([1, 3, 8, 15]) for _ in range(count)], list[WindowDimension]()
    for n in sizes:
        low, high = r.randint(-1, 4), r.randint(-1, 4)
        dilations = r.choice([1, 1, 2, 3]), r.choice([1, 1, 2])
        window.append(
            WindowDimension(r.choice([1, 2, 3, n]), r.choice([1, 1, 2, 3]), low, high, *dilations, r.random() < 0.2)
        )
    left = dict(zip(lhs_order, [r.choice([1, 2, 9]) * batches, inputs * features, *sizes], strict=True))
    right = dict(zip(rhs_order, [outputs * features * batches, inputs, *(w.size for w in window)], strict=True))
    numbers = Numbers(
        lhs_order[0], lhs_order[1], lhs_order[2:], rhs_order[1], rhs_order[0], rhs_order[2:],
        out_order[0], out_order[1], out_order[2:],
    )  # fmt: skip
    op = make(numbers, window, features, batches)
    lhs, rhs = (dtypes.f32[tuple(d[i] for i in range(count + 2))] for d in (left, right))
    check(op, lhs, rhs)


@pytest.mark.parametrize(("size", "features"), [(373, 1), (116, 32)])
def test_kernel_gradients_read_their_operands_once(size: int, features: int) -> None:
    """Chunks have parts of the sums: with outputs of their own each would lay out all of the image."""
    op = make(KERNEL_GRADIENT, [WindowDimension(size, 1, 1, 1)] * 2)
    shapes = (dtypes.f32[4, size, size, features],) * 2
    call = Call(op, shapes, (op.infer(*shapes),), baseline("x86-64-avx512"))
    whole = plan_convolution(call, op.contraction(shapes))
    assert isinstance(whole, ConvolutionPlan)
    (part,) = whole.parts
    assert isinstance(part, TiledConvolution)
    plan = part.plan
    assert plan.keeps_rhs and plan.parts == plan.chunks > 1 and plan.tap_blocks >= plan.parts
    assert plan.space.together == (16 if features == 1 else 1)
    assert math.prod(a.extent for a in plan.axes) * plan.tap_blocks < 2.5 * math.prod(shapes[0].dimensions)


@pytest.mark.parametrize("features", [160, 509])
@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64], ids=str)
def test_weights_of_small_images_are_read_where_they_lie(
    dtype: DType, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panel after the other, the next one prefetched by the tiles of the one before."""
    monkeypatch.setattr(costs, "KEPT_WEIGHTS", 4096)
    monkeypatch.setattr(costs, "KEPT_WEIGHTS_OF", {})
    op = make(NHWC, [SAME] * 2, result=dtype)
    lhs, rhs = dtype[1, 7, 7, 96], dtype[3, 3, 96, features]
    call = Call(op, (lhs, rhs), (op.infer(lhs, rhs),), baseline("x86-64-avx512"))
    whole = plan_convolution(call, op.contraction((lhs, rhs)))
    assert isinstance(whole, ConvolutionPlan)
    (part,) = whole.parts
    assert isinstance(part, TiledConvolution)
    assert part.plan.keeps_rhs and part.plan.prefetched
    check(op, lhs, rhs)


def test_lanes_beyond_the_taps_are_not_multiplied() -> None:
    """What lies behind a row's last tap may be infinite."""
    op = make(KERNEL_GRADIENT, [WindowDimension(53)] * 2)
    lhs, rhs = dtypes.f32[1, 55, 55, 1], dtypes.f32[1, 53, 53, 1]
    run, _ = compiled(op, lhs, rhs)
    left, right = operands(lhs, rhs)
    left[:, :, 54] = np.inf
    got, want = run(left, right), op.reference(left, right)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    assert np.isfinite(want).sum() == 6


@pytest.mark.parametrize(
    "name", [name for name in CASES if name not in ("to_3_in_goes", "kernel_gradient_of_a_long_signal")]
)
def test_sums_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks and caches: taps in many goes, whose last has fewer."""
    monkeypatch.setattr(costs, "PATCH_BYTES", 1 << 14)
    monkeypatch.setattr(costs, "CONVOLUTION_CHUNK", 1 << 12)
    op, lhs, rhs = CASES[name]
    check(op, dtypes.f32[lhs], dtypes.f32[rhs])


@pytest.mark.parametrize("name", ["nhwc_3x3", "small_images", "input_gradient_stride_2"])
def test_all_panels_tile_by_tile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a result is large and takes little work."""
    monkeypatch.setattr(costs, "LARGE_RESULT", 0)
    monkeypatch.setattr(costs, "SHORT_PANEL", 1 << 30)
    op, lhs, rhs = CASES[name]
    rhs = (*rhs[:3], rhs[3] * 9)  # several panels, the last of which is not full
    shapes = dtypes.f32[lhs], dtypes.f32[rhs]
    plan = planned(window_space(op.contraction(shapes), shapes, op.infer(*shapes), host()), host())
    assert plan is not None and plan.by_rows
    check(op, *shapes)


@pytest.mark.parametrize("seed", range(20))
def test_random_tile_by_tile(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "LARGE_RESULT", 0)
    monkeypatch.setattr(costs, "SHORT_PANEL", 1 << 30)
    test_random(seed)


@pytest.mark.parametrize("seed", range(40))
def test_random_sums_in_parts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "PATCH_BYTES", 1 << 12)
    monkeypatch.setattr(costs, "CONVOLUTION_CHUNK", 1 << 8)
    monkeypatch.setattr(costs, "FEW_PRODUCTS", 1)
    test_random(seed)


def test_patches_have_room_for_whole_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that are turned end in a vector, places of which may lie beyond the line: on the stack, once."""
    laid_out: list[FeaturePatch] = []
    init = FeaturePatch.__init__

    def noted(self: FeaturePatch, *args: Any) -> None:
        laid_out.append(self)
        init(self, *args)

    monkeypatch.setattr(FeaturePatch, "__init__", noted)
    monkeypatch.setattr(f"{__name__}.check", lambda *arguments: made(*arguments))

    def made(op: Convolution, lhs: Shape, rhs: Shape) -> None:
        for name in BASELINES:
            contraction(Call(op, (lhs, rhs), (op.infer(lhs, rhs),), baseline(name)), Module())

    for seed in range(40):
        test_random(seed)
    assert any(patch.turned is not None for patch in laid_out)
    for patch in laid_out:
        plan, last = patch.plan, 0
        for number, axis in enumerate(plan.axes):
            places = -(-axis.extent // plan.lanes) * plan.lanes if number == patch.turned else axis.extent
            last += (places - 1) * axis.place
        assert last + patch.panel.vectors * plan.lanes <= plan.patch


def dilated(size: int, *by: int) -> list[WindowDimension]:
    return [WindowDimension(size, 1, size // 2, size // 2 + d - 1, d) for d in by]


DILATED = {
    "nhwc_1x1": (make(NHWC, dilated(1, 2, 2)), (2, 9, 9, 40), (1, 1, 40, 37)),
    "nchw_1x1": (make(NCHW, dilated(1, 2, 2)), (2, 40, 9, 9), (37, 40, 1, 1)),
    "nchw_1x1_by_3_and_7": (make(NCHW, dilated(1, 3, 7)), (2, 40, 9, 9), (37, 40, 1, 1)),
    "nhwc_3x3_by_5": (make(NHWC, dilated(3, 5, 5)), (2, 9, 9, 40), (3, 3, 40, 37)),
    "nhwc_7x7_by_8": (make(NHWC, dilated(7, 8, 8)), (1, 9, 9, 20), (7, 7, 20, 17)),
    "groups": (make(NHWC, dilated(1, 2, 2), 2), (2, 9, 9, 40), (1, 1, 20, 38)),
    "few_features": (make(NHWC, dilated(1, 2, 2)), (4, 19, 19, 8), (1, 1, 8, 3)),
    "one_feature": (make(NHWC, dilated(1, 2, 2)), (4, 19, 19, 8), (1, 1, 8, 1)),
    "one_place_to_a_row": (make(NCHW, [*dilated(1, 2), WindowDimension(1, 1, 1, -1, 3)]), (4, 8, 40, 1), (30, 8, 1, 1)),
    "to_bytes": (make(NHWC, dilated(1, 2, 2), result=dtypes.u8), (4, 19, 19, 8), (1, 1, 8, 17)),
    "window_dilation_too": (make(NHWC, [WindowDimension(3, 1, 2, 3, 2, 2)] * 2), (2, 9, 9, 20), (3, 3, 20, 20)),
    "to_pred": (make(NCHW, dilated(1, 2, 2), result=dtypes.pred), (2, 40, 9, 9), (37, 40, 1, 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", DILATED)
def test_holes_are_not_multiplied(name: str) -> None:
    """Outputs are computed by the taps that meet inputs; those that meet none are zeros."""
    op, left, right = DILATED[name]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    check(op, lhs, rhs)
    module = Module()
    contraction(Call(op, (lhs, rhs), (op.infer(lhs, rhs),), host()), module)
    assert "convolution_scalar" not in module.text()
    if "x86" in host().triple:
        check(op, lhs, rhs, avx2())


EPILOGUES = {
    **{n: CASES[n] for n in ("to_3", "to_3_of_nchw")},
    **{n: CASES[n] for n in ("nhwc_3x3", "nchw_3x3", "kernel_gradient", "depthwise", "input_gradient_stride_2")},
    **{f"dilated_{n}": DILATED[n] for n in ("nhwc_1x1", "nchw_1x1", "nchw_1x1_by_3_and_7")},
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_epilogue_gets_each_element_once(name: str) -> None:
    op, left, right = EPILOGUES[name]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    sizes = op.infer(lhs, rhs).dimensions

    def store(f: Function, index: Any, parts: Any, mask: Any) -> None:
        number = f.index(0)
        for i, size in zip(index, sizes, strict=True):
            number = number * size + i
        write(dtypes.f32, f.table(2), number, [parts[0] - 1.0], mask)

    run, _ = compiled(op, lhs, rhs, store=store)
    a, b = operands(lhs, rhs)
    want = op.reference(a, b)
    np.testing.assert_allclose(run(a, b), want - 1, atol=1e-5 * np.abs(want).max())


def test_strict_is_for_integers() -> None:
    op, lhs, rhs = CASES["nhwc_3x3"]
    shapes = dtypes.f32[lhs], dtypes.f32[rhs]
    assert contraction(Call(op, shapes, (op.infer(*shapes),), host(), strict=True), Module()) is None
    op = make(NHWC, [SAME] * 2, result=dtypes.s32)
    shapes = dtypes.s8[lhs], dtypes.s8[rhs]
    assert contraction(Call(op, shapes, (op.infer(*shapes),), host(), strict=True), Module()) is not None


def test_machines_without_multiply_add_multiply_and_add() -> None:
    """A call of C's fma for each product would take five times as long."""
    op, left, right = CASES["nhwc_3x3"]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    texts = []
    for target in (parse("x86-64"), parse("x86-64-avx2")):
        module = Module()
        contraction(Call(op, (lhs, rhs), (op.infer(lhs, rhs),), target), module)
        texts.append(module.text())
    assert ["llvm.fma" in text for text in texts] == [False, True]


def test_equal_calls_give_equal_text() -> None:
    op, lhs, rhs = CASES["nchw_3x3"]
    texts: list[str] = []
    for _ in range(2):
        module, shapes = Module(), (dtypes.f32[lhs], dtypes.f32[rhs])
        contraction(Call(op, shapes, (op.infer(*shapes),), host()), module)
        texts.append(module.text())
    assert texts[0] == texts[1]


def test_infinite_input_times_zero_is_nan() -> None:
    """CONV-27."""
    op = make(Numbers.default(1), [WindowDimension(2, 1, 1, 1)])
    run, _ = compiled(op, dtypes.f32[1, 1, 3], dtypes.f32[1, 1, 2])
    got = run(np.array([[[np.inf, 2, 3]]], np.float32), np.array([[[0, 1]]], np.float32))
    np.testing.assert_array_equal(got, np.array([[[np.inf, np.nan, 3, 0]]], np.float32))
