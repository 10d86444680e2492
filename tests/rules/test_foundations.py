"""TYPE, SHAPE and LAYOUT rules."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.ops.movement import Bitcast
from hlokit.types.dtype import DTYPES, DType, dtype_of_number
from hlokit.types.layout import Layout
from hlokit.types.shape import NIL, OPAQUE, TOKEN, UNBOUNDED, Shape
from tests.rules.elementwise_programs import (
    COMPLEX,
    FLOATS,
    SIGNED,
    UNSIGNED,
    array,
    assert_same,
    evaluate,
    inf,
    infer,
    nan,
)
from tests.rules.labels import rejects, rule

NOT_ARRAYS = ["token", "opaque", "tuple", "buffer"]


def chosen(has: str) -> list[str]:
    return sorted(name for name, element in DTYPES.items() if getattr(element, has))


# -- types


@rule("TYPE-1", "BEY-79")
def test_array_types() -> None:
    assert chosen("is_array") == sorted(["pred", *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX])
    assert sorted(DTYPES) == sorted([*chosen("is_array"), *NOT_ARRAYS])
    for name in NOT_ARRAYS:
        with rejects("TYPE-1"):
            Shape.array(hk.dtype(name), (2,))
    for unknown in ("f33", "i32", object()):
        with rejects("TYPE-1"):
            hk.dtype(unknown)
    with rejects("TYPE-1"):
        dtype_of_number(999)


@rule("BEY-79")
def test_widths() -> None:
    widths = {"pred": 8, "f8e8m0fnu": 8, "f4e2m1fn": 4, "bf16": 16, "c64": 64, "c128": 128, "s1": 1, "u2": 2, "s4": 4}
    assert all(hk.dtype(name).bits == bits for name, bits in widths.items())
    assert all(hk.dtype(name).bits == int(name[1:]) for name in SIGNED + UNSIGNED)
    assert all(hk.dtype(name).numpy.itemsize == max(1, hk.dtype(name).bits // 8) for name in chosen("is_array"))


@rule("TYPE-2")
def test_integral_types() -> None:
    assert chosen("is_integral") == sorted(SIGNED + UNSIGNED)


@rule("TYPE-3")
def test_signed_types() -> None:
    assert chosen("is_signed") == sorted(SIGNED + FLOATS)


@rule("TYPE-4")
@pytest.mark.parametrize("function", ["sub", "div", "pow", "shift_left"])
def test_pred_is_not_arithmetic(function: str) -> None:
    with rejects("BIN-4", "BEY-8", "BEY-13"):
        infer(function, hk.pred[2], hk.pred[2])
    assert infer(function, hk.u1[2], hk.u1[2]) is hk.u1[2]


@rule("TYPE-5")
def test_component_types() -> None:
    assert hk.c64.real is hk.f32 and hk.c128.real is hk.f64
    assert infer("real", hk.c128[2]) is hk.f64[2]


@rule("TYPE-6", "TYPE-7")
def test_one_element_type() -> None:
    for lhs, rhs in [(hk.f32, hk.s32), (hk.f32, hk.bf16), (hk.f64, hk.f32), (hk.s8, hk.u8)]:
        with rejects("BIN-2"):
            infer("add", lhs[2], rhs[2])


@rule("TYPE-8")
@pytest.mark.parametrize("name", SIGNED[1:] + UNSIGNED[1:])
def test_integers_wrap(name: str) -> None:
    element = hk.dtype(name)
    least = -(1 << (element.bits - 1)) if element.is_signed else 0
    greatest = least + (1 << element.bits) - 1
    one = array(name, [1])
    assert_same(evaluate("add", array(name, [greatest]), one), array(name, [least]))
    assert_same(evaluate("sub", array(name, [least]), one), array(name, [greatest]))
    squared = array(name, [greatest * greatest % (1 << element.bits) if not element.is_signed else 1])
    assert_same(evaluate("mul", array(name, [greatest]), array(name, [greatest])), squared)


@rule("TYPE-9")
def test_floats_are_ieee_and_silent() -> None:
    x = array("f32", [16777216, 16777216, 3e38, -1, 0])
    y = array("f32", [1, 3, 3e38, 0, 0])
    assert_same(evaluate("add", x, y), array("f32", [16777216, 16777220, inf, -1, 0]))
    assert_same(evaluate("div", x, y), array("f32", [16777216, np.float32(16777216) / np.float32(3), 1, -inf, nan]))
    assert_same(evaluate("sqrt", x), array("f32", [4096, 4096, np.sqrt(np.float32(3e38)), nan, 0]))
    assert_same(
        evaluate("convert_element_type", array("f64", [0.1, 1e39]), new_element_type="f32"), array("f32", [0.1, inf])
    )


@rule("TYPE-10")
def test_narrow_floats_round_once() -> None:
    """In the type itself and in f32 these products round alike only if f32 is rounded once."""
    for name in ("bf16", "f16", "f8e4m3fn", "f8e5m2", "f8e3m4"):
        values = array(name, np.linspace(-3, 3, 61))
        wide = values.astype(np.float32)
        assert_same(evaluate("mul", values, values[::-1].copy()), (wide * wide[::-1]).astype(values.dtype))
        assert_same(evaluate("div", values, array(name, np.full(61, 3))), (wide / np.float32(3)).astype(values.dtype))
        assert_same(
            evaluate("rem", values, array(name, np.full(61, 0.75))),
            np.fmod(wide, np.float32(0.75)).astype(values.dtype),
        )
    assert_same(evaluate("add", array("bf16", [256]), array("bf16", [1])), array("bf16", [256]))


@rule("TYPE-12")
def test_pred_is_false_or_true() -> None:
    both = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert_same(evaluate("add", *both), np.array([False, True, True, True]))
    assert_same(evaluate("mul", *both), np.array([False, False, False, True]))
    assert evaluate("convert_element_type", array("s32", [2]), new_element_type="pred").view(np.uint8)[0] == 1


@pytest.mark.parametrize(
    ("value", "want"),
    [(bool, hk.pred), (int, hk.s32), (float, hk.f32), (complex, hk.c64), (np.int64, hk.s64), (ml_dtypes.int4, hk.s4),
     ("bf16", hk.bf16), (np.dtype("float16"), hk.f16), (hk.u8, hk.u8)],
)  # fmt: skip
def test_types_by_other_names(value: object, want: DType) -> None:
    assert hk.dtype(value) is want


# -- shapes


@rule("SHAPE-1")
def test_kinds_of_shapes() -> None:
    nested = Shape.tuple([hk.f32[2, "<=3"], Shape.tuple([TOKEN]), NIL, OPAQUE, Shape.buffer(hk.s8[4])])
    assert str(nested) == "(f32[2,<=3], (token[]), (), opaque[], b(s8[4]))"
    assert hk.parse_shape(str(nested)) is nested
    assert [s.is_array for s in nested.elements] == [True, False, False, False, False]
    assert hk.f32[2, "<=3"].dynamic == (False, True) and hk.f32[2, "<=3"].dimensions == (2, 3)


@rule("SHAPE-1")
def test_one_dynamic_flag_per_dimension() -> None:
    assert Shape.array(hk.f32, ["<=2", 3], [False, True]) is hk.f32["<=2", "<=3"]
    for flags in ([True], [True, False, True]):
        with rejects("SHAPE-1"):
            Shape.array(hk.f32, [2, 3], flags)


@rule("SHAPE-2")
def test_ranks() -> None:
    assert (hk.f32[()].rank, hk.f32[()].true_rank, hk.f32[()].is_scalar) == (0, 0, True)
    assert (hk.f32[1, 5, 1].rank, hk.f32[1, 5, 1].true_rank, hk.f32[1].is_scalar) == (3, 1, False)
    assert hk.f32[0, 5].true_rank == 1


@rule("SHAPE-3")
def test_sizes() -> None:
    assert hk.f32["?"].dimensions == (UNBOUNDED,) == (-(2**63),) and hk.f32["?"].dynamic == (True,)
    assert str(hk.f32["?", 2]) == "f32[?,2]"
    for bad in (-1, 2**63, "x", "<=-1"):
        with rejects("SHAPE-3"):
            hk.f32[bad]
    with rejects("HSHAPE-1"):
        hk.parse_shape("f32[-2]")


@rule("SHAPE-4")
def test_element_counts() -> None:
    assert hk.f32[()].size == 1 and hk.f32[3, 0, 2].size == 0
    assert_same(
        evaluate("add", np.zeros((3, 0), np.float32), np.zeros((3, 0), np.float32)), np.zeros((3, 0), np.float32)
    )


@rule("SHAPE-5")
def test_same_shape() -> None:
    column_major = hk.f32[2, 3].with_layout(Layout((0, 1)))
    assert column_major is not hk.f32[2, 3]
    assert column_major.static is hk.f32["<=2", 3].static is hk.f32[2, 3].static
    assert Shape.tuple([column_major, TOKEN]).static is Shape.tuple([hk.f32[2, "<=3"], TOKEN]).static
    assert infer("add", column_major, hk.f32[2, "<=3"]).logical is hk.f32[2, "<=3"]
    assert hk.f32[2, 3].static is not hk.f32[3, 2].static is not hk.f32[6].static


@rule("SHAPE-6")
def test_same_dimensions_of_other_types() -> None:
    """Select's pred and stochastic-convert's random need the dimensions alone."""
    assert infer("select", hk.pred[2, 3], hk.bf16[2, 3], hk.bf16[2, 3]) is hk.bf16[2, 3]
    assert infer("stochastic_convert_type", hk.f32[2], hk.u32[2], new_element_type="s8") is hk.s8[2]


@rule("SHAPE-7")
def test_negative_dimension_numbers() -> None:
    x = np.array([[3, 1, 2]], np.float32)
    assert_same(evaluate(lambda v: hk.sort([v], dimension=-1), x), np.array([[1, 2, 3]], np.float32))
    with rejects("TRANSP-3"):
        infer("transpose", hk.f32[2, 3], permutation=[-1, 0])
    with rejects("BCAST-6"):
        infer("add", hk.f32[2, 3], hk.f32[3], broadcast_dimensions=[-1])


def test_dimension_numbers_of_a_dot_as_pairs() -> None:
    pairs: list[Any] = [(((1,), (0,)), ((), ())), [[[1], [0]], [[], []]]]
    for numbers in pairs:
        assert infer("dot_general", hk.f32[2, 3], hk.f32[3, 4], dimension_numbers=numbers) is hk.f32[2, 4]
    wrong: list[Any] = [((1,), (0,)), ([1], [0], [], []), (1, 0), "((1,), (0,))"]
    for numbers in wrong:
        with rejects("HINST-6"):
            infer("dot_general", hk.f32[2, 3], hk.f32[3, 4], dimension_numbers=numbers)


@rule("SHAPE-8")
def test_dimensions_are_listed_from_0() -> None:
    assert hk.f32[4, 5, 6].dimensions == (4, 5, 6) == hk.parse_shape("f32[4,5,6]").dimensions
    assert infer("slice", hk.f32[4, 5], start_indices=[1, 2], limit_indices=[2, 5], strides=[1, 1]) is hk.f32[1, 3]


# -- layouts

LETTERS = np.array([[1, 2, 3], [4, 5, 6]], np.int32)  # a b c / d e f


def in_memory(layout: Layout) -> list[int]:
    """The elements of LETTERS in the order in which this layout puts them."""
    shape = hk.s32[2, 3].with_layout(layout)
    return evaluate(lambda x: emit(Bitcast(hk.s32[6]), x), LETTERS, shapes=[shape]).tolist()


@rule("LAYOUT-1", "LAYOUT-3")
def test_first_of_minor_to_major_varies_fastest() -> None:
    assert in_memory(Layout((0, 1))) == [1, 4, 2, 5, 3, 6]
    assert in_memory(Layout((1, 0))) == [1, 2, 3, 4, 5, 6]


@rule("LAYOUT-2")
def test_default_layout_is_row_major() -> None:
    assert hk.f32[2, 3, 4].layout_or_default.minor_to_major == (2, 1, 0)
    assert hk.f32[2, 3].with_layout(Layout((1, 0))) is hk.f32[2, 3]
    assert hk.parse_shape("f32[2,3]{1,0}") is hk.f32[2, 3] is hk.parse_shape("f32[2,3]")


@rule("LAYOUT-4")
def test_layout_changes_no_value() -> None:
    shape = hk.s32[2, 3].with_layout(Layout((0, 1)))
    for function in ("neg", "population_count", lambda x: hk.transpose(x, [1, 0]), lambda x: hk.reshape(x, [6])):
        assert_same(evaluate(function, LETTERS, shapes=[shape]), evaluate(function, LETTERS))


@rule("LAYOUT-5")
@pytest.mark.parametrize("order", [(0,), (0, 0), (1, 2), (2, 1, 0), ()])
def test_layout_is_a_permutation(order: tuple[int, ...]) -> None:
    with rejects("LAYOUT-5"):
        hk.f32[2, 3].with_layout(Layout(order))


@rule("LAYOUT-7")
def test_other_layout_fields_are_carried_by_text() -> None:
    for layout in (
        "{1,0:T(8,128)(2,1)}",
        "{1,0:T(8,128)E(4)S(5)}",
        "{0,1:L(8)}",
        "{1,0:SC(1:200,400)}",
        "{1,0:#(u8)*(u32)}",
    ):
        shape = hk.parse_shape(f"f32[20,30]{layout}")
        assert shape.to_text() == f"f32[20,30]{layout}"
        assert shape.logical is hk.f32[20, 30]
        assert infer("neg", shape) is shape
