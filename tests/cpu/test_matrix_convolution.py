"""Convolutions in matrix registers: against f64, numbers beyond their range, all kinds of shapes."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx_convolution_plan import AmxPlan, amx_plan
from hlokit.cpu.kernels.contraction.routine import contraction
from hlokit.cpu.kernels.contraction.windows import window_space
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target
from hlokit.ops.convolution import Convolution
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape
from hlokit.types.window import WindowDimension
from tests.cpu import test_convolution as small
from tests.cpu.native import avx2, host
from tests.cpu.test_convolution import KERNEL_GRADIENT, NCHW, NHWC, SAME, check, compiled, make, operands

pytestmark = pytest.mark.skipif(not host().has("amx-bf16"), reason="a machine with matrix registers")

CASES = {
    "nhwc": (make(NHWC, [SAME] * 2), (2, 14, 19, 64), (3, 3, 64, 48)),
    "nchw": (make(NCHW, [SAME] * 2), (2, 64, 14, 19), (40, 64, 3, 3)),
    "stride_2": (make(NHWC, [WindowDimension(3, 2, 0, 1)] * 2), (2, 28, 28, 64), (3, 3, 64, 64)),
    "stride_2_nchw": (make(NCHW, [WindowDimension(3, 2, 0, 1)] * 2), (2, 64, 32, 32), (96, 64, 3, 3)),
    "in_goes": (make(NHWC, [SAME] * 2), (8, 7, 7, 512), (3, 3, 512, 96)),
    "one_by_one": (make(NCHW, [WindowDimension(1)] * 2), (1, 96, 28, 28), (192, 96, 1, 1)),
    "groups": (make(NHWC, [SAME] * 2, 2), (2, 14, 14, 64), (3, 3, 32, 64)),
}  # fmt: skip


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small and unfit shapes too."""
    monkeypatch.setattr(costs, "AMX_FEW", 0)
    monkeypatch.setattr(costs, "VECTOR_CYCLES", 1e9)
    monkeypatch.setattr(costs, "FEW_PRODUCTS", 0)


def amx_plan_for(op: Convolution, lhs: Shape, rhs: Shape, target: Target) -> AmxPlan | None:
    """The plan of a convolution on this machine."""
    space = window_space(op.contraction([lhs, rhs]), [lhs, rhs], op.infer(lhs, rhs), target)
    return amx_plan(space, target)


def uses(op: Convolution, lhs: Shape, rhs: Shape) -> bool:
    return amx_plan_for(op, lhs, rhs, host()) is not None


def error(op: Convolution, got: Any, left: Any, right: Any) -> float:
    """The largest error where results are finite, in units of 2^-24 of the sum of the products' sizes."""
    wide = make(op.dim_labels, list(op.window.dimensions), op.feature_group_count, result=dtypes.f64)
    with np.errstate(all="ignore"):
        a, b = left.astype(np.float64), right.astype(np.float64)
        want, size = wide.reference(a, b), wide.reference(np.abs(a), np.abs(b))
        is_finite = np.abs(want) < np.finfo(np.float32).max
        found = np.abs(got - want)[is_finite] / (size[is_finite] + 1e-300)
    return float(found.max(initial=0) * 2**24)


@cache
def made(name: str, in_matrix_registers: bool) -> Any:
    """The convolution, and operands."""
    op, left, right = CASES[name]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(costs, "VECTOR_CYCLES", 1e9 if in_matrix_registers else 0)
        assert uses(op, lhs, rhs) == in_matrix_registers
        return compiled(op, lhs, rhs)[0], operands(lhs, rhs)


@pytest.mark.parametrize("name", CASES)
def test_no_less_accurate_than_vectors(name: str) -> None:
    (run, (a, b)), (former, _) = made(name, True), made(name, False)
    op = CASES[name][0]
    assert 0.1 < error(op, run(a, b), a, b) <= error(op, former(a, b), a, b)


SIZES = [(1e-36, 1.0), (1.0, 1e-33), (1e-17, 1e-17), (1e-37, 1e37), (1e19, 1e17), (1e-25, 1e-3)]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["nhwc", "nchw"])
def test_sizes_whose_parts_are_lost(name: str, sizes: tuple[float, float]) -> None:
    (run, operands), (former, _) = made(name, True), made(name, False)
    a, b = (x * np.float32(size) for x, size in zip(operands, sizes, strict=True))
    op = CASES[name][0]
    assert error(op, run(a, b), a, b) <= max(8.0, 1.5 * error(op, former(a, b), a, b))


SPECIAL = {
    "inf": (np.inf, 0.5),
    "nan": (np.nan, 0.5),
    "inf_weights": (0.5, -np.inf),
    "both": (np.inf, np.nan),
    "all_bits": (np.uint32(0xFFFFFFFF).view(np.float32), 0.5),
    "last_bit": (0.5, np.uint32(0x7F800001).view(np.float32)),
    "largest": (3.4e38, 1e-10),
}


@pytest.mark.parametrize("kind", SPECIAL)
@pytest.mark.parametrize("name", ["nchw", "stride_2", "in_goes"])
def test_special_numbers(name: str, kind: str) -> None:
    """They are where the reference has them, and nothing else suffers."""
    op = CASES[name][0]
    run, originals = made(name, True)
    a, b = (x.copy() for x in originals)
    rng = np.random.default_rng(1)
    for x, value in zip((a, b), SPECIAL[kind], strict=True):
        x.reshape(-1)[rng.integers(0, x.size, 2)] = value
    got = run(a, b)
    with np.errstate(all="ignore"):
        want = op.reference(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[np.isinf(want)], want[np.isinf(want)])
    assert np.isfinite(got[np.isfinite(want)]).all()
    assert error(op, got, a, b) <= 8


@pytest.mark.filterwarnings("ignore:invalid value")
def test_padding_is_multiplied() -> None:
    """CONV-6: an infinite weight meets padding's zeros, but none of those that fill lines and registers."""
    op, left, right = make(NHWC, [SAME] * 2), (2, 14, 19, 40), (3, 3, 40, 40)
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    assert uses(op, lhs, rhs)
    a, b = operands(lhs, rhs)
    a, b = np.abs(a), np.abs(b)
    b[0, 1, 39, 39] = np.inf
    got, want = compiled(op, lhs, rhs)[0](a, b), op.reference(a, b)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(got), np.isinf(want))
    assert np.isnan(want).any() and np.isinf(want).any()


SHAPES = [
    "nhwc_7x7_stride_2_of_3", "nhwc_to_nchw", "kernel_gradient", "kernel_gradient_stride_2", "input_gradient_stride_2",
    "depthwise_nchw", "batch_groups", "one_dimension", "three_dimensions", "matrix_product", "negative_padding",
]  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    small.test_shapes(name)


@pytest.mark.parametrize("seed", range(100, 110))
def test_random(seed: int) -> None:
    small.test_random(seed)


@pytest.mark.parametrize("seed", range(12))
def test_small_chunks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that do not divide the outputs, panels apart, features in goes."""
    monkeypatch.setattr(costs, "AMX_PATCH_BYTES", 1 << 16)
    monkeypatch.setattr(costs, "AMX_WORKING_BYTES", 1 << 15)
    monkeypatch.setattr(costs, "AMX_CONVOLUTION_CHUNK", 1 << 8)
    numbers = (NHWC, NCHW)[seed % 2]
    window = [WindowDimension(3, 1 + seed % 3, 1, 1, 1, 1 + seed // 6), WindowDimension(2, 1 + seed // 3 % 2, 1, 0)]
    features, image, kernel = (96, 64, 7)[seed % 3], (13, 21 + seed), (3, 2)
    lhs = (2, *image, features) if numbers is NHWC else (2, features, *image)
    rhs = (*kernel, features, 70) if numbers is NHWC else (70, features, *kernel)
    op = make(numbers, window)
    assert uses(op, dtypes.f32[lhs], dtypes.f32[rhs])
    check(op, dtypes.f32[lhs], dtypes.f32[rhs])


@pytest.mark.parametrize("batch", [3, 32])
def test_taps_in_goes(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "AMX_WORKING_BYTES", 1 << 17)
    window = [WindowDimension(16, 1, 1, 1), WindowDimension(15, 1, 1, 1)]
    op = make(KERNEL_GRADIENT, window)
    lhs, rhs = dtypes.f32[batch, 16, 15, 40], dtypes.f32[batch, 16, 15, 24]
    plan = amx_plan_for(op, lhs, rhs, host())
    assert plan is not None
    assert plan.split is not None
    check(op, lhs, rhs)


@pytest.mark.parametrize("numbers", ["nhwc", "nchw"])
@pytest.mark.parametrize(
    ("operand", "result"), [("bf16", "bf16"), ("bf16", "f32"), ("s8", "s32"), ("u8", "s32"), ("s8", "f32")]
)
def test_types(operand: str, result: str, numbers: str) -> None:
    for features in (5, 70):
        nhwc, nchw = ((2, 6, 17, features), (3, 3, features, 40)), ((2, features, 6, 17), (40, features, 3, 3))
        op = make({"nhwc": NHWC, "nchw": NCHW}[numbers], [SAME] * 2, result=dtypes.dtype(result))
        lhs, rhs = (dtypes.dtype(operand)[shape] for shape in (nhwc if numbers == "nhwc" else nchw))
        assert uses(op, lhs, rhs)
        check(op, lhs, rhs)


@pytest.mark.parametrize("name", ["nhwc_3x3", "nchw_3x3", "input_gradient_stride_2"])
def test_epilogue_gets_each_element_once(name: str) -> None:
    small.test_epilogue_gets_each_element_once(name)


FENCED = """
import sys
from unittest import mock
import numpy as np
from hlokit.cpu.kernels.contraction import costs
from tests.cpu import test_convolution as small
from tests.cpu.test_matrix_convolution import CASES, SHAPES
from tests.fuzz.guard import fenced

costs.AMX_FEW, costs.VECTOR_CYCLES, costs.FEW_PRODUCTS = 0, 1e9, 0
cases = [CASES[name] for name in ("nchw", "stride_2")] + [small.CASES[name] for name in SHAPES]
cases += [small.CASES[name] for name in ("nhwc_3x3", "nchw_3x3", "nchw_1x1")]
for operand, result in (("f32", "f32"), ("bf16", "f32"), ("s8", "s32")):
    for op, *shapes in cases:
        op = small.make(op.dim_labels, op.window.dimensions, op.feature_group_count, op.batch_group_count,
                        small.dtypes.dtype(result))
        lhs, rhs = (small.dtypes.dtype(operand)[shape] for shape in shapes)
        run, out = small.compiled(op, lhs, rhs)
        for at_end in (True, False):
            arrays = []
            for array in small.operands(lhs, rhs):
                arrays.append(fenced(array.shape, array.dtype, at_end))
                arrays[-1][...] = array
            with mock.patch.object(np, "empty", lambda shape, dtype: fenced(shape, np.dtype(dtype), at_end)):
                run(*arrays)
print("all")
"""


@pytest.mark.slow
def test_touches_nothing_outside() -> None:
    done = subprocess.run([sys.executable, "-c", FENCED], capture_output=True, text=True)
    assert done.stdout == "all\n", done.stderr[-2000:]


def test_chosen_by_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for features, is_chosen in ((64, True), (3, False)):
        op, lhs, rhs = make(NHWC, [SAME] * 2), dtypes.f32[2, 28, 28, features], dtypes.f32[3, 3, features, 64]
        assert uses(op, lhs, rhs) == is_chosen
    assert not uses(op, dtypes.f32[2, 4, 4, 64], dtypes.f32[3, 3, 64, 16])
    gradient = make(KERNEL_GRADIENT, [WindowDimension(28, 1, 1, 1)] * 2)
    assert uses(gradient, *[dtypes.f32[8, 28, 28, 64]] * 2)  # where vectors sum in goes, too


def test_machines_without_them() -> None:
    op, left, right = CASES["nhwc"]
    lhs, rhs = dtypes.f32[left], dtypes.f32[right]
    assert amx_plan_for(op, lhs, rhs, avx2()) is None
    check(op, lhs, rhs, avx2())


def test_strict_has_none() -> None:
    op, left, right = CASES["nhwc"]
    shapes = dtypes.f32[left], dtypes.f32[right]
    assert contraction(Call(op, shapes, (op.infer(*shapes),), host(), strict=True), Module()) is None
