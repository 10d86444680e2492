"""BNT, BNI, BNG: batch normalisation. BEY-50: scan."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from tests.rules.labels import rejects, rule
from tests.rules.programs import f32, run, same, shape

NAN = float("nan")


def add(a: Any, b: Any) -> Any:
    return a + b


ADDER = hk.Builder("adder")
ADD = ADDER.build_computation(ADDER.parameter(0, hk.f32[()]) + ADDER.parameter(1, hk.f32[()]))

X = f32([[1, 2], [3, 4], [5, 9]])
SCALE, OFFSET, EPSILON = f32([1, 2]), f32([0.5, -1]), 0.001
MEAN, VARIANCE = f32([3, 5]), f32([2.6666667, 8.6666667])
DY = f32([[1, 0], [0, 1], [2, -1]])


@rule("BNT-1", "BNT-2", "BNT-7")
def test_batch_norm_training() -> None:
    y = f32([[-0.7245152, -3.0379808], [0.5, -1.679327], [1.7245152, 1.7173078]])
    same(run(lambda x, s, o: hk.batch_norm_training(x, s, o, EPSILON, 1), X, SCALE, OFFSET), (y, MEAN, VARIANCE), 1e-6)
    flipped = run(lambda x, s, o: hk.batch_norm_training(x, s, o, EPSILON, 0), X.T.copy(), SCALE, OFFSET)
    same(flipped, (y.T, MEAN, VARIANCE), 1e-6)


@rule("BNT-6")
def test_statistics_of_nothing_are_nan() -> None:
    empty = f32(np.ones((0, 2)))
    same(
        run(lambda x, s, o: hk.batch_norm_training(x, s, o, EPSILON, 1), empty, SCALE, OFFSET),
        (empty, *[f32([NAN] * 2)] * 2),
    )


@rule("BNI-1", "BNI-2", "BNI-4")
def test_batch_norm_inference() -> None:
    y = f32([[-0.9138601, -3.9996252], [0.5, -1.9998751], [1.9138601, 2.9995003]])
    program = lambda x, s, o, m, v: hk.batch_norm_inference(x, s, o, m, v, EPSILON, 1)  # noqa: E731
    same(run(program, X, SCALE, OFFSET, MEAN, f32([2, 4])), y, 1e-6)


@rule("BNG-1", "BNG-2", "BNG-3", "BNG-6")
def test_batch_norm_grad() -> None:
    gradient = f32([[0.3060141, -0.3918742], [-0.6122577, 0.5487023], [0.3062436, -0.1568281]])
    program = lambda x, s, m, v, dy: hk.batch_norm_grad(x, s, m, v, dy, EPSILON, 1)  # noqa: E731
    same(run(program, X, SCALE, MEAN, VARIANCE, DY), (gradient, f32([1.2245153, -1.6983175]), f32([3, 0])), 1e-5)


@rule("BNT-8")
def test_dynamic_feature_dimension_reaches_the_statistics() -> None:
    vector = hk.f32["<=2"]
    expected = hk.Shape.tuple([hk.f32[3, "<=2"], vector, vector])
    program = lambda x, s, o: hk.batch_norm_training(x, s, o, EPSILON, 1)  # noqa: E731
    assert shape(program, hk.f32[3, "<=2"], vector, vector) is expected


V2, V3 = hk.f32[2], hk.f32[3]
BAD_NORMS: list[tuple[str, str, list[hk.Shape], int]] = [
    ("BNT-3: integers", "training", [hk.s32[3, 2], V2, V2], 1),
    ("BNT-3: scalar", "training", [hk.f32[()], V2, V2], 0),
    ("BNT-4: feature index", "training", [hk.f32[3, 2], V2, V2], 2),
    ("BNT-4: negative feature index", "training", [hk.f32[3, 2], V2, V2], -1),
    ("BNT-5: scale size", "training", [hk.f32[3, 2], V3, V2], 1),
    ("BNT-5: offset rank", "training", [hk.f32[3, 2], V2, hk.f32[1, 2]], 1),
    ("BNT-5: offset type", "training", [hk.f32[3, 2], V2, hk.f64[2]], 1),
    ("BNT-4: BNI-3", "inference", [hk.f32[3, 2], V2, V2, V2, V2], 2),
    ("BNT-5: BNI-3", "inference", [hk.f32[3, 2], V3, V2, V2, V2], 1),
    ("BNI-3: mean", "inference", [hk.f32[3, 2], V2, V2, V3, V2], 1),
    ("BNI-3: variance", "inference", [hk.f32[3, 2], V2, V2, V2, hk.f64[2]], 1),
    ("BNG-4: operand type", "grad", [hk.s32[3, 2], V2, V2, V2, hk.s32[3, 2]], 1),
    ("BNG-4: gradient type", "grad", [hk.f32[3, 2], V2, V2, V2, hk.f64[3, 2]], 1),
    ("BNG-4: gradient size", "grad", [hk.f32[3, 2], V2, V2, V2, hk.f32[2, 2]], 1),
    ("BNG-5: feature index", "grad", [hk.f32[3, 2], V2, V2, V2, hk.f32[3, 2]], 2),
    ("BNG-5: scale", "grad", [hk.f32[3, 2], V3, V2, V2, hk.f32[3, 2]], 1),
    ("BNG-5: mean", "grad", [hk.f32[3, 2], V2, V3, V2, hk.f32[3, 2]], 1),
    ("BNG-5: variance", "grad", [hk.f32[3, 2], V2, V2, V3, hk.f32[3, 2]], 1),
]


@pytest.mark.parametrize(("label", "kind", "parameters", "feature"), BAD_NORMS, ids=[r[0] for r in BAD_NORMS])
def test_bad_batch_norms_are_rejected(label: str, kind: str, parameters: list[hk.Shape], feature: int) -> None:
    function = getattr(hk, f"batch_norm_{kind}")
    with rejects(label.split(":")[0]):
        shape(lambda *p: function(*p, EPSILON, feature), *parameters)


# -- scan


@rule("BEY-50")
def test_scan_examples() -> None:
    x, carry = f32([1, 2, 3, 4]), f32(10)
    twice = lambda x, c: (x + c, x + c)  # noqa: E731
    same(run(lambda x, c: hk.scan([x], [c], twice, 0), x, carry), (f32([11, 13, 16, 20]), f32(20)))
    reverse = lambda x, c: hk.scan([x], [c], twice, 0, is_reverse=True)  # noqa: E731
    same(run(reverse, x, carry), (f32([20, 19, 17, 14]), f32(20)))
    mixed = lambda x, c: (x - c, x * c)  # noqa: E731
    same(run(lambda x, c: hk.scan([x], [c], mixed, 0, 4), x, carry), (f32([-9, -8, -17, -56]), f32(240)))


@rule("BEY-50")
def test_scan_of_matrices_along_dimension_1_and_of_nothing() -> None:
    x = f32(np.arange(6).reshape(2, 3))
    step = lambda x, c: (hk.reduce(x, 0.0, add, [0]), c + x)  # noqa: E731
    same(run(lambda x, c: hk.scan([x], [c], step, 0), x.T.copy(), f32([0, 0])), (f32([3, 5, 7]), f32([3, 12])))
    columns = run(lambda x, c: hk.scan([x], [c], lambda x, c: (c, c + x), 1), x, f32([0, 0]))
    same(columns, (f32([[0, 0, 1], [0, 3, 7]]), f32([3, 12])))
    without_input = run(lambda c: hk.scan([], [c], lambda c: (c, c + c), 0, 3), f32(1))
    same(without_input, (f32([1, 2, 4]), f32(8)))
    same(run(lambda x, c: hk.scan([x], [c], lambda x, c: (x, c), 0), f32([]), f32(1)), (f32([]), f32(1)))


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(lambda x, c: hk.scan([x], [c], lambda x, c: (x, c), 2), id="BEY-50: dimension"),
        pytest.param(lambda x, c: hk.scan([x], [c], lambda x, c: (x, c), 0, 5), id="BEY-50: size"),
        pytest.param(lambda x, c: hk.scan([], [c], lambda c: (c, c), 0), id="BEY-50: no size"),
        pytest.param(lambda x, c: hk.scan([x, c], [c], lambda x, y, c: (x, c), 0), id="BEY-50: scalar input"),
        pytest.param(lambda x, c: hk.scan([x], [c], lambda x, c: (c, x), 0), id="BEY-50: carry shape"),
        pytest.param(lambda x, c: hk.scan([x], [c], ADD, 0), id="BEY-50: parameters"),
    ],
)
def test_bad_scans_are_rejected(program: Any) -> None:
    with rejects("BEY-50"):
        shape(program, hk.f32[2, 3], hk.f32[()])
