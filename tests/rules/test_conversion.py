"""CONV-TYPE, BITCAST, RPREC, BEY-16: values in other types and precisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.hlo.op import infer_shape
from hlokit.ops.conversion import BitcastConvert, Convert, StochasticConvert
from hlokit.types.layout import Layout
from hlokit.types.shape import TOKEN, Shape
from tests.rules.elementwise_programs import ALL, COMPLEX, array, assert_same, evaluate, inf, infer, nan, parse
from tests.rules.labels import rejects, rule

MIN, MAX = -(2**31), 2**31 - 1

# -- conversions: rule, source type, values, target type, values

CONVERSIONS: list[tuple[str, str, Any, str, Any]] = [
    ("CONV-TYPE-12", "s32", [0, 1, 2], "f32", [0.0, 1.0, 2.0]),
    ("CONV-TYPE-3", "f32", [3.0, -2.0], "s32", [3, -2]),
    ("CONV-TYPE-4", "s32", [16777217], "f32", [16777216]),
    ("CONV-TYPE-4", "f32", [65519.9, 65520, -65520], "f16", [65504, inf, -inf]),
    ("CONV-TYPE-4", "f32", [3.4e38], "bf16", [inf]),
    ("CONV-TYPE-5", "s32", [300, -129], "s8", [44, 127]),
    ("CONV-TYPE-5", "s32", [-1], "u64", [2**64 - 1]),
    ("CONV-TYPE-5", "u32", [2**32 - 1], "s64", [2**32 - 1]),
    ("CONV-TYPE-5", "s32", [9, -9, 300], "s4", [-7, 7, -4]),
    ("CONV-TYPE-5", "s4", [-1, 7], "u16", [65535, 7]),
    ("CONV-TYPE-5", "u4", [15], "s2", [-1]),
    ("CONV-TYPE-6", "f32", [1.9, -1.9], "s32", [1, -1]),
    ("CONV-TYPE-6", "bf16", [1.9, -1.9], "s4", [1, -1]),
    ("CONV-TYPE-7", "f32", [1e20, -1e20, nan, inf], "s32", [MAX, MIN, 0, MAX]),
    ("CONV-TYPE-7", "f32", [-1, 300], "u8", [0, 255]),
    ("CONV-TYPE-7", "f32", [300], "s8", [127]),
    ("CONV-TYPE-7", "f64", [2.0**63, -(2.0**64), 2.0**62], "s64", [2**63 - 1, -(2**63), 2**62]),
    ("CONV-TYPE-7", "f64", [2.0**64, 2.0**63, -1], "u64", [2**64 - 1, 2**63, 0]),
    ("CONV-TYPE-7", "f32", [9, -9], "s4", [7, -8]),
    ("CONV-TYPE-8", "f32", [nan, 0.5, -0.0, 0], "pred", [True, True, False, False]),
    ("CONV-TYPE-8", "s64", [256, 0], "pred", [True, False]),
    ("CONV-TYPE-8", "pred", [True, False], "f8e4m3fn", [1, 0]),
    ("CONV-TYPE-8", "pred", [True, False], "s32", [1, 0]),
    ("CONV-TYPE-8", "pred", [True, False], "s1", [-1, 0]),
    ("CONV-TYPE-9", "c64", [1.9 + 5j, -2 + 1j], "s32", [1, -2]),
    ("CONV-TYPE-9", "f32", [1.5], "c128", [1.5 + 0j]),
    ("CONV-TYPE-9", "s4", [-3], "c64", [-3 + 0j]),
    ("CONV-TYPE-9", "c128", [0.1 + 0.2j], "c64", [np.complex64(0.1 + 0.2j)]),
    ("CONV-TYPE-10", "f32", [nan, -0.0, -1e-30], "f16", [nan, -0.0, -0.0]),
    ("CONV-TYPE-10", "f64", [nan, -0.0, 1e-60], "bf16", [nan, -0.0, 0.0]),
    ("CONV-TYPE-11", "f32", [464, 465, 1e5, inf, -inf], "f8e4m3fn", [448, nan, nan, nan, nan]),
    ("CONV-TYPE-11", "f32", [61439, 61440], "f8e5m2", [57344, inf]),
    ("CONV-TYPE-13", "f32", [nan, -0.0, 1.5], "f32", [nan, -0.0, 1.5]),
]


@pytest.mark.parametrize("row", CONVERSIONS, ids=[f"{r[0]}: {r[1]} to {r[3]}" for r in CONVERSIONS])
def test_convert(row: Any) -> None:
    _, source, values, target, want = row
    assert_same(evaluate("convert_element_type", array(source, values), new_element_type=target), array(target, want))


@rule("CONV-TYPE-4")
def test_convert_rounds_once() -> None:
    """f64 and 64-bit integers just above a tie of the narrow type: by way of f32 they would be ties."""
    above = np.array([1.00390625 + 2**-40, 1.00390625, 1.00390625 - 2**-40])
    got = evaluate("convert_element_type", above, new_element_type="bf16")
    assert_same(got, array("bf16", [1.0078125, 1.0, 1.0]))
    tie = (2**40 + 2**32) | 1
    for element_type in ("s64", "u64"):
        got = evaluate("convert_element_type", array(element_type, [tie, tie - 1]), new_element_type="bf16")
        assert_same(got, array("bf16", [2.0**40 + 2.0**33, 2.0**40]))
    large = array("s64", [(2**62 + 2**54) | 1, -((2**62 + 2**54) | 1)])
    got = evaluate("convert_element_type", large, new_element_type="bf16")
    assert_same(got, array("bf16", [2.0**62 + 2.0**55, -(2.0**62 + 2.0**55)]))
    got = evaluate("convert_element_type", np.array([1 + 2.0**-11 + 2.0**-40]), new_element_type="f16")
    assert_same(got, array("f16", [1 + 2.0**-10]))


@rule("CONV-TYPE-1", "BEY-79")
@pytest.mark.parametrize("source", ALL)
def test_convert_between_all_types(source: str) -> None:
    """One is one in every type that has it; f8e8m0fnu has no zero, the signed single bit only 0 and -1."""
    operand = np.ones((2, 1), np.uint8).astype(hk.dtype(source).numpy)
    for target in ALL:
        got = evaluate("convert_element_type", operand, new_element_type=target)
        assert got.dtype == hk.dtype(target).numpy and got.shape == (2, 1)
        if "s1" not in (source, target):
            assert complex(got.astype(np.complex64 if target in COMPLEX else np.float32)[0, 0]) == 1


@rule("CONV-TYPE-2")
def test_convert_of_no_array() -> None:
    for shape, target in [
        (TOKEN, "f32"),
        (Shape.tuple([hk.f32[1]]), "f32"),
        (hk.f32[1], "token"),
        (hk.f32[1], "tuple"),
    ]:
        with rejects("CONV-TYPE-2"):
            infer("convert_element_type", shape, new_element_type=target)


@rule("CONV-TYPE-2", "BITCAST-6")
def test_instructions_that_convert_no_array() -> None:
    pair = Shape.tuple([hk.f32[()]])
    for card, label in [(Convert, "CONV-TYPE-2"), (BitcastConvert, "BITCAST-6")]:
        for operand, result in [(pair, hk.f32[()]), (hk.f32[()], pair), (TOKEN, hk.f32[()])]:
            with rejects(label):
                infer_shape(card(result), [operand])


BITCASTS: list[tuple[str, str, Any, str, Any]] = [
    ("BITCAST-8", "f32", 1.0, "u8", [0, 0, 128, 63]),
    ("BITCAST-8", "u8", [1, 2, 3, 4], "u32", 67305985),
    ("BITCAST-8", "f64", 1.0, "u32", [0, 1072693248]),
    ("BITCAST-8", "u8", 0x21, "u4", [1, 2]),
    ("BITCAST-8", "s4", [-1, 1], "u8", 0x1F),
    ("BITCAST-8", "s8", [-1], "s2", [[-1, -1, -1, -1]]),
    ("BITCAST-12", "s32", [1065353216], "f32", [1.0]),
    ("BITCAST-12", "s32", [0x04030201], "s8", [[1, 2, 3, 4]]),
    ("BITCAST-1", "bf16", [1.0], "s16", [0x3F80]),
    ("BITCAST-1", "f4e2m1fn", [1.0, -1.0], "u4", [2, 10]),
    ("BITCAST-10", "pred", [True, False], "pred", [True, False]),
    ("BITCAST-10", "c64", [1 + 2j], "c64", [1 + 2j]),
]


@pytest.mark.parametrize("row", BITCASTS, ids=[f"{r[0]}: {r[1]} to {r[3]}" for r in BITCASTS])
def test_bitcast_convert(row: Any) -> None:
    _, source, values, target, want = row
    assert_same(evaluate("bitcast_convert_type", array(source, values), new_element_type=target), array(target, want))


@rule("BITCAST-9")
def test_bitcast_keeps_nan_bits() -> None:
    for pattern in (0x7F800001, 0xFFC12345):
        as_float = evaluate("bitcast_convert_type", array("u32", [pattern]), new_element_type="f32")
        assert evaluate("bitcast_convert_type", as_float, new_element_type="u32")[0] == pattern


@rule(
    "BITCAST-1",
    "BITCAST-2",
    "BITCAST-3",
    "BITCAST-4",
    "BITCAST-6",
    "BITCAST-7",
    "BITCAST-10",
    "BITCAST-11",
)
def test_bitcast_shapes() -> None:
    for source, target, want in [
        (hk.f32[10], "f16", hk.f16[10, 2]),
        (hk.f32[()], "f16", hk.f16[2]),
        (hk.f16[10, 2], "f32", hk.f32[10]),
        (hk.f32[2, 3], "s32", hk.s32[2, 3]),
        (hk.f32[0, 3], "u8", hk.u8[0, 3, 4]),
        (hk.u1[8], "s8", hk.s8[()]),
    ]:
        assert infer("bitcast_convert_type", source, new_element_type=target) is want
    for label, source, target in [
        ("BITCAST-4", hk.f16[()], "f32"),
        ("BITCAST-4", hk.f16[10, 3], "f32"),
        ("BITCAST-6", TOKEN, "f32"),
        ("BITCAST-6", Shape.tuple([hk.f32[1]]), "f32"),
        ("BITCAST-6", hk.f32[1], "opaque"),
        ("BITCAST-7", hk.f64[1], "c64"),
        ("BITCAST-7", hk.c64[2], "u8"),
        ("BITCAST-10", hk.pred[8], "u8"),
        ("BITCAST-10", hk.u8[1], "pred"),
        ("BITCAST-10", hk.c64[2], "c128"),
    ]:
        with rejects(label):
            infer("bitcast_convert_type", source, new_element_type=target)
    with rejects("BITCAST-11", "HINST-2"):
        parse("f16[10,3] bitcast-convert(p0)", "f32[10]")


@rule("DYN-15")
def test_bitcast_of_a_dynamic_last_dimension() -> None:
    assert infer("bitcast_convert_type", hk.f32["<=5"], new_element_type="u8") is hk.u8["<=5", 4]
    with rejects("DYN-15"):
        infer("bitcast_convert_type", hk.u8[5, "<=4"], new_element_type="f32")


def test_bitcast_layout_keeps_the_parts_together() -> None:
    column_major = hk.f32[2, 3].with_layout(Layout((0, 1)))
    wide = infer_shape(BitcastConvert(hk.u8[()]), [column_major])
    assert wide is Shape.array(hk.u8, (2, 3, 4), layout=Layout((2, 0, 1)))
    assert infer_shape(BitcastConvert(hk.f32[()]), [wide]) is column_major


# -- reduce-precision: rule, element type, exponent bits, mantissa bits, operand, result

PRECISIONS: list[tuple[str, str, int, int, Any, Any]] = [
    (
        "RPREC-9",
        "f32",
        5,
        10,
        [65504, 65519, 65520, -70000, 1 + 2**-11, 1 + 3 * 2**-11, 6.1e-5, -1e-9],
        [65504, 65504, inf, -inf, 1, 1.0019531, 0, -0.0],
    ),
    ("RPREC-9", "f32", 8, 0, [1.4, 1.5, 2.5, 3.0, 5, 6, -1.5], [1, 2, 2, 4, 4, 8, -2]),
    ("RPREC-9", "f32", 1, 23, [1.0, 1.5, 2], [0, 0, inf]),
    ("RPREC-9", "f32", 2, 1, [0.9, 1.25, 1.75, 3.5, 0.5], [1, 1, 2, inf, 0]),
    ("RPREC-5", "f32", 8, 7, [np.float32(3.4e38), 1.00390625], [inf, 1]),
    ("RPREC-6", "f64", 8, 52, [2.0**127, 2.0**128, 2.0**-126, -(2.0**-127)], [2.0**127, inf, 2.0**-126, -0.0]),
    ("RPREC-7", "bf16", 8, 7, [1.5, 1e-40, 3e38], [1.5, 1e-40, 3e38]),
    ("RPREC-7", "f16", 20, 30, [1.0009765625, 6e-8], [1.0009765625, 6e-8]),
    ("RPREC-7", "f32", 20, 0, [3.0, 1.5 * 2.0**-127, 2.0**-149], [4, 2.0**-126, 0]),
    ("RPREC-8", "f32", 5, 0, [nan, inf, -inf], [nan, inf, -inf]),
    ("RPREC-8", "f32", 1, 0, [nan, inf, -inf, -0.0], [nan, inf, -inf, -0.0]),
]


@pytest.mark.parametrize("row", PRECISIONS, ids=[f"{r[0]}: {r[1]} ({r[2]},{r[3]})" for r in PRECISIONS])
def test_reduce_precision(row: Any) -> None:
    _, element_type, exponent, mantissa, operand, want = row
    got = evaluate("reduce_precision", array(element_type, operand), exponent_bits=exponent, mantissa_bits=mantissa)
    assert_same(got, array(element_type, want))


@rule("RPREC-1", "RPREC-2", "RPREC-3", "RPREC-4")
def test_reduce_precision_refuses() -> None:
    assert infer("reduce_precision", hk.f64[2, 3], exponent_bits=1, mantissa_bits=0) is hk.f64[2, 3]
    for label, shape, exponent, mantissa in [
        ("RPREC-2", hk.s32[3], 5, 10),
        ("RPREC-2", hk.c64[3], 5, 10),
        ("RPREC-3", hk.f32[3], 0, 10),
        ("RPREC-4", hk.f32[3], 5, -1),
    ]:
        with rejects(label):
            infer("reduce_precision", shape, exponent_bits=exponent, mantissa_bits=mantissa)


@rule("BEY-16")
def test_stochastic_convert() -> None:
    random = array("u32", [0, 2**31, 2**30])
    got = evaluate("stochastic_convert_type", array("f32", [1.5, -2.5, 1.25]), random, new_element_type="s32")
    assert_same(got, array("s32", [2, -2, 1]))
    value = array("f32", [1.001953125] * 2 + [-1.001953125, nan, -inf])  # a quarter of the way to the next bf16
    random = array("u32", [2**30 - 1, 2**30, 0, 0, 0])
    got = evaluate("stochastic_convert_type", value, random, new_element_type="bf16")
    assert_same(got, array("bf16", [1.0078125, 1, -1.0078125, nan, -inf]))
    for operand, bits_, target in [
        (hk.s32[2], hk.u32[2], "s8"),
        (hk.f32[2], hk.u16[2], "bf16"),
        (hk.f32[2], hk.s32[2], "bf16"),
        (hk.f32[2], hk.u32[2], "pred"),
    ]:
        with rejects("BEY-16"):
            infer("stochastic_convert_type", operand, bits_, new_element_type=target)
    with rejects("BUILDER-15"):
        infer_shape(StochasticConvert(hk.bf16[2]), [hk.f32[2], hk.u32[3]])
