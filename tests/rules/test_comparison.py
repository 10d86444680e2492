"""CMP, CLAMP, SEL: comparisons, clamp and select."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.types.shape import Shape
from tests.rules.elementwise_programs import array, assert_same, bits, evaluate, infer, nan, parse
from tests.rules.labels import rejects, rule

# -- comparisons

ORDERED = bits("f32", [0xFFC00000, 0xFF800000, 0xBF800000, 0x80000000, 0, 0x3F800000, 0x7F800000, 0x7FC00000])
PLAIN = {
    "eq": np.equal,
    "ne": np.not_equal,
    "ge": np.greater_equal,
    "gt": np.greater,
    "le": np.less_equal,
    "lt": np.less,
}


@rule("CMP-1", "CMP-3")
@pytest.mark.parametrize("function", PLAIN)
def test_compare_floats(function: str) -> None:
    lhs, rhs = (m.ravel() for m in np.meshgrid(ORDERED, ORDERED, indexing="ij"))
    for element_type in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16):
        got = evaluate(function, lhs.astype(element_type), rhs.astype(element_type))
        assert got.dtype == bool
        np.testing.assert_array_equal(got, PLAIN[function](lhs, rhs))
    assert infer(function, hk.f32[2, 1], hk.f32[1, 3]) is hk.pred[2, 3]


@rule("CMP-4", "CMP-5", "CMP-12")
@pytest.mark.parametrize("function", PLAIN)
def test_compare_total_order(function: str) -> None:
    rank = np.arange(8)
    lhs, rhs = (m.ravel() for m in np.meshgrid(ORDERED, ORDERED, indexing="ij"))
    i, j = (m.ravel() for m in np.meshgrid(rank, rank, indexing="ij"))
    np.testing.assert_array_equal(evaluate(f"{function}_total_order", lhs, rhs), PLAIN[function](i, j))
    narrow = [a.astype(ml_dtypes.bfloat16) for a in (lhs, rhs)]
    np.testing.assert_array_equal(evaluate(f"{function}_total_order", *narrow), PLAIN[function](i, j))
    payloads = bits("f32", [0x7FC00000, 0xFFC00001]), bits("f32", [0x7FC00001, 0xFFC00000])
    np.testing.assert_array_equal(evaluate(f"{function}_total_order", *payloads), PLAIN[function](0, [1, 1]))


@rule("CMP-4")
@pytest.mark.parametrize("element_type", ["f8e4m3fnuz", "f8e5m2fnuz", "f8e4m3b11fnuz", "f8e8m0fnu"])
def test_total_order_of_types_without_minus_zero(element_type: str) -> None:
    """Their bits are no sign and magnitude: NaN is where -0 would be, or there is no sign."""
    every = bits(element_type, np.arange(256))
    values = every.astype(np.float32)
    minus_nan_first = np.where(np.isnan(values), -np.inf if element_type != "f8e8m0fnu" else np.inf, values)
    i, j = (m.ravel() for m in np.meshgrid(np.arange(256), np.arange(256)))
    got = evaluate("lt_total_order", every[i], every[j])
    np.testing.assert_array_equal(got, minus_nan_first[i] < minus_nan_first[j])
    ordered = evaluate(lambda x: hk.sort([x], hk.lt_total_order), every)
    np.testing.assert_array_equal(ordered.view(np.uint8), every.view(np.uint8)[np.argsort(minus_nan_first)])


@rule("CMP-12")
def test_compare_less_of_all_pairs() -> None:
    lhs, rhs = np.meshgrid(ORDERED, ORDERED, indexing="ij")
    np.testing.assert_array_equal(evaluate("lt_total_order", lhs, rhs), np.triu(np.ones((8, 8), bool), 1))
    plain = evaluate("lt", lhs, rhs)
    assert not plain[[0, 7]].any() and not plain[:, [0, 7]].any()
    assert not plain[3, 4] and not plain[4, 3] and plain[1, 2]


@rule("CMP-6", "CMP-9", "CMP-8")
def test_compare_integers_and_pred() -> None:
    assert evaluate("gt", array("u8", [200]), array("u8", [100]))
    assert not evaluate("gt", array("s8", [-56]), array("s8", [100]))
    assert evaluate("lt", array("u4", [7]), array("u4", [15])) and evaluate("lt", array("s4", [-1]), array("s4", [7]))
    assert evaluate("lt", array("pred", [False]), array("pred", [True]))
    assert evaluate("lt_total_order", array("s32", [-1]), array("s32", [0]))
    assert evaluate("ge_total_order", array("u32", [2**32 - 1]), array("u32", [0]))
    for element_type, default in [
        ("f32", "FLOAT"),
        ("c64", "FLOAT"),
        ("s4", "SIGNED"),
        ("u8", "UNSIGNED"),
        ("pred", "UNSIGNED"),
    ]:
        shape = hk.dtype(element_type)[1]
        infer(lambda x, d=default: hk.compare(x, x, "EQ", d), shape)


@rule("CMP-7", "CMP-8", "HOP-6", "BEY-18")
def test_compare_types() -> None:
    x = hk.f32[2]
    assert infer(lambda a: hk.compare(a, a, (), "LT", "TOTALORDER"), x) is hk.pred[2]
    assert infer(lambda a, b: hk.compare(a, b, [0], "LT"), hk.f32[2], hk.f32[2, 3]) is hk.pred[2, 3]
    for element_type, given, label in [
        ("f32", "SIGNED", "CMP-7"),
        ("s32", "FLOAT", "CMP-7"),
        ("s32", "UNSIGNED", "CMP-7"),
        ("pred", "SIGNED", "CMP-7"),
        ("s32", "TOTALORDER", "CMP-8"),
        ("c64", "TOTALORDER", "CMP-8"),
    ]:
        with rejects(label):
            infer(lambda a, t=given: hk.compare(a, a, "EQ", t), hk.dtype(element_type)[2])
        with rejects(label):
            parse("pred[2] compare(p0, p0), direction=EQ, type=" + given, f"{element_type}[2]")
    assert infer(lambda a: hk.compare(a, a, direction="LT", compare_type="TOTALORDER"), x) is hk.pred[2]
    for direction in ("LESS", ()):
        with rejects("HINST-6"):
            infer(lambda a, d=direction: hk.compare(a, a, d), x)


@rule("CMP-10", "CMP-11")
def test_compare_complex() -> None:
    lhs, rhs = (
        array("c64", [1 + 2j, 1 + 2j, complex(nan, 0), -0.0]),
        array("c64", [1 + 2j, 1 + 3j, complex(nan, 0), 0.0]),
    )
    np.testing.assert_array_equal(evaluate("eq", lhs, rhs), [True, False, False, True])
    np.testing.assert_array_equal(evaluate("ne", lhs, rhs), [False, True, True, False])
    for function in ("ge", "gt", "le", "lt"):
        with rejects("CMP-11"):
            infer(function, hk.c64[2], hk.c64[2])


# -- clamp and select


@rule("CLAMP-1", "CLAMP-2", "CLAMP-6", "CLAMP-7", "CLAMP-8", "CLAMP-9")
def test_clamp() -> None:
    scalars = array("s32", 0), array("s32", [-1, 5, 9]), array("s32", 6)
    assert_same(evaluate("clamp", *scalars), array("s32", [0, 5, 6]))
    low, high = [0, 0, 0, nan, 0, 5, 5], [6, 6, 6, 6, nan, 1, 2]
    got = evaluate("clamp", array("f32", low), array("f32", [-1, nan, 7, 1, 1, 1, 3]), array("f32", high))
    assert_same(got, array("f32", [0, nan, 6, nan, nan, 1, 2]))
    assert_same(evaluate("clamp", array("u4", 3), array("u4", [1, 15]), array("u4", 9)), array("u4", [3, 9]))


@rule("CLAMP-3", "CLAMP-4", "CLAMP-5", "CLAMP-10", "BCAST-19")
def test_clamp_shapes() -> None:
    x, s = hk.f32[2, 3], hk.f32[()]
    for shapes in [(s, x, s), (x, x, s), (x, s, x), (x, s, s), (s, s, x)]:
        assert infer("clamp", *shapes) is x
    assert infer("clamp", s, s, s) is s
    wrong = [(hk.f32[3], x, s), (s, x, hk.f32[2, 1]), (x, hk.f32[3, 2], x), (hk.f32[3], s, hk.f32[2])]
    for shapes in [*wrong, (hk.f32["<=2", 3], x, s), (s, x, hk.f32[2, "<=3"])]:
        with rejects("CLAMP-4"):
            infer("clamp", *shapes)
    for shapes in [(hk.s32[()], x, s), (s, x, hk.f64[2, 3])]:
        with rejects("CLAMP-3"):
            infer("clamp", *shapes)
    with rejects("CLAMP-10"):
        infer("clamp", hk.c64[2], hk.c64[2], hk.c64[2])
    assert_same(evaluate("clamp", array("s8", [0, 1]), array("s8", 5), array("s8", [3, 9])), array("s8", [3, 5]))


@rule("SEL-1", "SEL-2", "SEL-6", "SEL-7", "SEL-10", "SEL-11")
def test_select() -> None:
    v1, v2 = array("s32", [1, 2, 3, 4]), array("s32", [100, 200, 300, 400])
    assert_same(evaluate("select", np.array([True, False, False, True]), v1, v2), array("s32", [1, 200, 300, 4]))
    assert_same(evaluate("select", np.array(True), v1, v2), v1)
    assert_same(
        evaluate("select", np.array([True, False]), array("f32", [1, nan]), array("f32", [nan, 2])),
        array("f32", [1, 2]),
    )
    assert_same(
        evaluate("select", np.array([True, False]), array("bf16", 1), array("bf16", [7, 8])), array("bf16", [1, 8])
    )
    assert_same(evaluate("select", np.array([True, False]), array("u4", 1), array("u4", 2)), array("u4", [1, 2]))
    assert infer("select", hk.pred[2], hk.c64[2], hk.c64[2]) is hk.c64[2]


@rule("SEL-7")
def test_select_of_numbers() -> None:
    """A number takes the type of the other value, never that of pred."""
    x = array("bf16", [-1, 2])
    assert_same(evaluate(lambda v: hk.select(hk.gt(v, 0), v, 0.5), x), array("bf16", [0.5, 2]))
    assert_same(evaluate(lambda v: hk.select(hk.gt(v, 0), 0, v), x), array("bf16", [-1, 0]))
    assert_same(evaluate(lambda v: hk.select(True, v, 0), x), x)
    assert_same(evaluate(lambda v: hk.select(hk.gt(v, 0), 7, 8), x), array("s32", [8, 7]))
    with rejects("BUILDER-7"):
        infer(lambda v: hk.select(hk.gt(v, 0), v, 0.5), hk.s32[2])


@rule("SEL-3", "SEL-4", "SEL-5")
def test_select_refuses() -> None:
    for label, *shapes in [
        ("SEL-3", hk.s32[2], hk.f32[2], hk.f32[2]),
        ("SEL-4", hk.pred[2], hk.f32[2], hk.s32[2]),
        ("SEL-4", hk.pred[2], hk.f32[2], hk.f32[3]),
        ("SEL-5", hk.pred[3], hk.f32[2], hk.f32[2]),
        ("SEL-5", hk.pred[1, 2], hk.f32[2], hk.f32[2]),
    ]:
        with rejects(label):
            infer("select", *shapes)


@rule("SEL-8", "SEL-9")
def test_select_tuples() -> None:
    def chosen(pred: hk.XlaOp, x: hk.XlaOp, y: hk.XlaOp) -> hk.XlaOp:
        return hk.select(pred, hk.tuple_(x.builder, [x, y]), hk.tuple_(x.builder, [y, x]))

    x, y = array("f32", [1]), array("f32", [2])
    for pred, want in [(True, (x, y)), (False, (y, x))]:
        for got, part in zip(evaluate(chosen, np.array(pred), x, y), want, strict=True):
            assert_same(got, part)
    pair = Shape.tuple([hk.f32[1], hk.f32[1]])
    for shapes in [
        (hk.pred[()], pair, hk.f32[1]),
        (hk.pred[()], pair, Shape.tuple([hk.f32[1]])),
        (hk.pred[1], pair, pair),
    ]:
        with rejects("SEL-9"):
            infer("select", *shapes)
