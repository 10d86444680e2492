"""UN, BIN and the elementwise ops of BEY: values by tables, refusals by tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.builder.core import emit
from hlokit.hlo.op import OPS, infer_shape
from hlokit.ops.elementwise import Add, Clamp, Select
from hlokit.types.layout import Layout
from hlokit.types.shape import NIL, TOKEN, Shape
from tests.rules.elementwise_programs import (
    ALL,
    COMPLEX,
    FLOATS,
    PRED,
    SIGNED,
    UNSIGNED,
    array,
    assert_close,
    assert_same,
    evaluate,
    inf,
    infer,
    named,
    nan,
    typed,
)
from tests.rules.labels import rejects, rule

MIN, MAX = -(2**31), 2**31 - 1
PI = np.pi

# -- unary: rule, function, element type, operand, result (a pair: its element type, its values)

UNARY_EXACT: list[tuple[str, str, str, Any, Any]] = [
    ("ABS-1", "abs", "s32", [MIN, -5, 0, 7], [MIN, 5, 0, 7]),
    ("ABS-1", "abs", "s4", [-8, -3, 7], [-8, 3, 7]),
    ("ABS-2", "abs", "f32", [-0.0, -inf, nan, -1.5], [0.0, inf, nan, 1.5]),
    ("ABS-2", "abs", "bf16", [-0.0, -inf, nan, -1.5], [0.0, inf, nan, 1.5]),
    ("ABS-3", "abs", "c64", [3 + 4j, 3e38j], ("f32", [5, 3e38])),
    ("ABS-3", "abs", "c128", [3 + 4j, complex(-inf, nan)], ("f64", [5, inf])),
    ("NEG-1", "neg", "s32", [MIN, 5], [MIN, -5]),
    ("NEG-1", "neg", "u32", [1, 0], [2**32 - 1, 0]),
    ("NEG-1", "neg", "u2", [1, 2], [3, 2]),
    ("NEG-2", "neg", "f32", [0.0, -0.0, 1, -inf], [-0.0, 0.0, -1, inf]),
    ("NEG-2", "neg", "c64", [complex(0.0, -0.0), 1 - 2j], [complex(-0.0, 0.0), -1 + 2j]),
    ("SIGN-1", "sign", "f32", [-3, 5, 0.0, -0.0, nan, inf], [-1, 1, 0.0, -0.0, nan, 1]),
    ("SIGN-2", "sign", "s8", [-128, 0, 7], [-1, 0, 1]),
    ("SIGN-3", "sign", "c64", [3 + 4j, 0, complex(nan, 1)], [0.6 + 0.8j, 0, complex(nan, nan)]),
    ("CEIL-1", "ceil", "f32", [-0.5, 1.2, -1.2, nan, inf, -inf], [-0.0, 2, -1, nan, inf, -inf]),
    ("FLOOR-1", "floor", "f32", [-0.0, 1.2, -1.2, nan, inf, -inf], [-0.0, 1, -2, nan, inf, -inf]),
    ("ROUND-1", "round", "f32", [0.5, -0.5, 2.5, -2.5, 1.4], [1, -1, 3, -3, 1]),
    ("ROUND-2", "round", "f32", [0.49999997, 8388609.0, -0.49999997], [0.0, 8388609.0, -0.0]),
    ("ROUND-3", "round_nearest_even", "f32", [0.5, -0.5, 1.5, 2.5, -2.5], [0.0, -0.0, 2, 2, -2]),
    ("ROUND-4", "round", "f32", [-0.0, 0.0, nan, inf, -inf], [-0.0, 0.0, nan, inf, -inf]),
    ("ROUND-4", "round_nearest_even", "f32", [-0.0, 0.0, nan, inf, -inf], [-0.0, 0.0, nan, inf, -inf]),
    ("ISFINITE-1", "is_finite", "f32", [1, inf, -inf, nan], ("pred", [True, False, False, False])),
    ("ISFINITE-1", "is_finite", "f8e5m2", [1, inf, nan], ("pred", [True, False, False])),
    ("REAL-1", "real", "c64", [1 + 2j], ("f32", [1])),
    ("REAL-1", "real", "c128", [1 + 2j], ("f64", [1])),
    ("REAL-1", "real", "bf16", [-0.0, nan, 3], [-0.0, nan, 3]),
    ("IMAG-1", "imag", "c64", [1 + 2j, complex(1, -0.0)], ("f32", [2, -0.0])),
    ("IMAG-1", "imag", "f32", [nan, -1], [0.0, 0.0]),
    ("NOT-1", "not_", "pred", [True, False], [False, True]),
    ("NOT-1", "not_", "s32", [5], [-6]),
    ("NOT-1", "not_", "u32", [5], [4294967290]),
    ("NOT-1", "not_", "u4", [5], [10]),
    ("POPCNT-1", "population_count", "s32", [5, MIN, MAX, -1], [2, 1, 31, 32]),
    ("POPCNT-1", "population_count", "u32", [2**32 - 1], [32]),
    ("POPCNT-1", "population_count", "s4", [-1, -8], [4, 1]),
    ("BEY-14", "clz", "s32", [0, 1, 5, -1], [32, 31, 29, 0]),
    ("BEY-14", "clz", "u8", [1, 0], [7, 8]),
    ("BEY-14", "clz", "u64", [1, 2**63], [63, 0]),
    ("BEY-14", "clz", "s16", [0, 255], [16, 8]),
    ("BEY-11", "conj", "c64", [1 + 2j, 3j], [1 - 2j, -3j + 0.0]),
    ("BEY-11", "conj", "f32", [1.5], ("c64", [complex(1.5, -0.0)])),
    ("BEY-19", "copy", "f32", [1, nan], [1, nan]),
    ("BEY-4", "expm1", "f32", [-0.0, -inf, inf], [-0.0, -1, inf]),
    ("BEY-5", "log1p", "f32", [-0.0, -1, -1.5, inf], [-0.0, -inf, nan, inf]),
    ("EXP-1", "exp", "f32", [inf, -inf, nan, 100, 0], [inf, 0, nan, inf, 1]),
    ("EXP-2", "exp", "c64", [complex(-inf, -inf), complex(-inf, nan)], [complex(0, -0.0), 0j]),
    ("BEY-81", "exp2", "f32", [inf, -inf, nan, 128, 0, -3, 10, -149], [inf, 0, nan, inf, 1, 0.125, 1024, 2.0**-149]),
    ("BEY-81", "log2", "f32", [0.0, -0.0, -1, inf, 1, 8, 2.0**-149], [-inf, -inf, nan, inf, 0, 3, -149]),
    ("LOG-1", "log", "f32", [0.0, -0.0, -1, inf, 1], [-inf, -inf, nan, inf, 0]),
    ("LOG-1", "log", "c64", [0j], [complex(-inf, 0)]),
    ("LOGISTIC-1", "logistic", "f32", [0, inf, -inf, nan], [0.5, 1, 0, nan]),
    ("SQRT-1", "sqrt", "f32", [-0.0, -1, inf, 4], [-0.0, nan, inf, 2]),
    ("SQRT-1", "sqrt", "c64", [-1 + 0j], [1j]),
    ("SQRT-2", "sqrt", "c64", [complex(-1, -0.0)], [complex(0.0, -1)]),
    ("RSQRT-1", "rsqrt", "f32", [0.0, -0.0, inf, -1, 4], [inf, -inf, 0, nan, 0.5]),
    ("CBRT-1", "cbrt", "f32", [-8, -0.0, inf, -inf], [-2, -0.0, inf, -inf]),
    ("TANH-1", "tanh", "f32", [-0.0, inf, -inf], [-0.0, 1, -1]),
    ("COS-1", "cos", "f32", [inf, -inf, 0], [nan, nan, 1]),
    ("BEY-1", "sin", "f32", [inf, -inf, -0.0], [nan, nan, -0.0]),
    ("BEY-2", "tan", "f32", [inf, -inf, -0.0], [nan, nan, -0.0]),
    ("BEY-3", "erf", "f32", [inf, -inf, -0.0, nan], [1, -1, -0.0, nan]),
]

UN8 = [0.5, -0.5, 2.5, -8, 100]
UNARY_CLOSE: list[tuple[str, str, str, Any, Any]] = [
    ("UN-8", "exp", "f32", UN8, [1.6487212, 0.6065307, 12.182494, 3.3546e-4, inf]),
    ("UN-8", "log", "f32", UN8, [-0.6931472, nan, 0.9162908, nan, 4.6051702]),
    ("UN-8", "tanh", "f32", UN8, [0.4621172, -0.4621172, 0.9866143, -1, 1]),
    ("UN-8", "logistic", "f32", UN8, [0.6224593, 0.3775407, 0.9241418, 3.3535e-4, 1]),
    ("UN-8", "cbrt", "f32", UN8, [0.7937005, -0.7937005, 1.3572088, -2, 4.6415887]),
    ("UN-8", "rsqrt", "f32", UN8, [1.4142135, nan, 0.6324555, nan, 0.1]),
    ("UN-9", "exp", "c64", [3 + 4j], [-13.128783 - 15.200785j]),
    ("UN-9", "log", "c64", [3 + 4j], [1.609438 + 0.9272952j]),
    ("UN-9", "sqrt", "c64", [3 + 4j], [2 + 1j]),
    ("UN-9", "rsqrt", "c64", [3 + 4j], [0.4 - 0.2j]),
    ("UN-9", "tanh", "c64", [3 + 4j], [1.0007095 + 0.0049083j]),
    ("UN-9", "logistic", "c64", [3 + 4j], [1.0320722 - 0.0401955j]),
    ("UN-9", "cos", "c64", [3 + 4j], [-27.034946 - 3.8511534j]),
    ("COS-1", "cos", "f32", [100], [0.8623189]),
    ("BEY-1", "sin", "c64", [1 + 1j], [1.2984576 + 0.6349639j]),
    ("BEY-2", "tan", "f32", [0.5, 2], [0.5463025, -2.1850398]),
    ("BEY-3", "erf", "f32", [0.5, 1], [0.5204999, 0.8427008]),
    ("BEY-81", "exp2", "f32", [0.5, -1.5], [1.4142135, 0.35355338]),
    ("BEY-81", "log2", "f32", [3, 0.1], [1.5849625, -3.321928]),
    ("BEY-4", "expm1", "f64", [1e-10], [1.00000000005e-10]),
    ("BEY-4", "expm1", "c64", [1e-6 + 0j], [1.0000005e-6 + 0j]),
    ("BEY-5", "log1p", "f64", [1e-10], [9.9999999995e-11]),
    ("BEY-5", "log1p", "c64", [1e-6 + 0j, 1j], [9.999995e-7, 0.34657359 + 0.78539816j]),
]


@pytest.mark.parametrize("row", UNARY_EXACT, ids=named(UNARY_EXACT))
def test_unary_exactly(row: Any) -> None:
    _, function, element_type, operand, want = row
    assert_same(evaluate(function, array(element_type, operand)), typed(element_type, want))


@pytest.mark.parametrize("row", UNARY_CLOSE, ids=named(UNARY_CLOSE))
def test_unary_closely(row: Any) -> None:
    _, function, element_type, operand, want = row
    assert_close(evaluate(function, array(element_type, operand)), typed(element_type, want), 1e-5)


@rule("ABS-2", "NEG-2")
@pytest.mark.parametrize("element_type", ["f16", "bf16", "f32", "f64", "f8e5m2"])
def test_sign_bit_of_nan(element_type: str) -> None:
    minus_nan = np.copysign(array(element_type, nan).astype(np.float64), -1).astype(hk.dtype(element_type).numpy)
    assert np.signbit(minus_nan.astype(np.float64))
    assert not np.signbit(evaluate("abs", minus_nan).astype(np.float64))
    assert not np.signbit(evaluate("neg", minus_nan).astype(np.float64))


@rule("UN-1", "UN-2", "UN-4")
@pytest.mark.parametrize("sizes", [(), (0,), (2, 3), (2, 0, 3)])
def test_unary_keeps_the_shape(sizes: tuple[int, ...]) -> None:
    operand = np.arange(np.prod(sizes), dtype=np.float32).reshape(sizes)
    assert infer("floor", hk.f32[sizes]) is hk.f32[sizes]
    assert_same(evaluate("neg", operand), -operand)
    assert_same(evaluate("exp", operand[..., None][..., 0]), np.exp(operand.astype(np.float64)).astype(np.float32))


@rule("UN-5", "DYN-1")
def test_dynamic_dimensions_are_kept() -> None:
    bounded = hk.f32["<=5", 2]
    assert infer("abs", bounded) is bounded
    assert infer("is_finite", bounded) is hk.pred["<=5", 2]
    assert infer("reduce_precision", bounded, exponent_bits=5, mantissa_bits=10) is bounded
    assert infer(lambda x: hk.convert_element_type(x, hk.s32), bounded) is hk.s32["<=5", 2]
    assert infer(lambda x: hk.clamp(0, x, 1), bounded) is bounded
    assert infer("select", hk.pred["<=5", 2], hk.f32[5, 2], hk.f32[5, 2]) is bounded


@rule("HLAY-7")
def test_layout_is_the_operands() -> None:
    shape = hk.f32[2, 3].with_layout(Layout((0, 1)))
    assert infer("neg", shape) is shape
    assert infer("add", shape, shape) is shape
    assert infer("is_finite", shape).layout is shape.layout


@rule("UN-7", "BEY-17")
def test_result_accuracy_is_carried_and_changes_nothing() -> None:
    operand = np.array([0.3, 2.0], np.float32)
    for accuracy in (("highest",), ("tolerance", 0.5, 0.25, 2)):
        assert_same(evaluate("exp", operand, result_accuracy=accuracy), evaluate("exp", operand))
        builder = hk.Builder("t")
        op: Any = hk.tanh(builder.parameter(0, hk.f32[2]), accuracy).instruction.op
        assert op.result_accuracy == accuracy
    assert hk.OPS["tanh"](result_accuracy="highest") is hk.OPS["tanh"](result_accuracy=("highest",))


# rule of the refusal, functions, the element types they take
UNARY_TYPES: list[tuple[str, str, list[str]]] = [
    ("ABS-4", "abs", SIGNED + FLOATS + COMPLEX),
    ("NEG-3", "neg", SIGNED + UNSIGNED + FLOATS + COMPLEX),
    ("SIGN-4", "sign", SIGNED + FLOATS + COMPLEX),
    ("UN-6", "ceil floor round round_nearest_even cbrt erf", FLOATS),
    ("UN-6", "cos exp log logistic rsqrt sqrt tanh sin tan expm1 log1p", FLOATS + COMPLEX),
    ("ISFINITE-2", "is_finite", FLOATS),
    ("REAL-2", "real imag", FLOATS + COMPLEX),
    ("NOT-2", "not_", PRED + SIGNED + UNSIGNED),
    ("UN-6", "population_count clz", SIGNED + UNSIGNED),
]


@pytest.mark.parametrize("row", UNARY_TYPES, ids=named(UNARY_TYPES))
def test_unary_element_types(row: tuple[str, str, list[str]]) -> None:
    label, functions, allowed = row
    for function in functions.split():
        for element_type in ALL:
            shape = hk.dtype(element_type)[2]
            if element_type in allowed:
                infer(function, shape)
                evaluate(function, np.zeros(2, shape.dtype.numpy))
            else:
                with rejects(label):
                    infer(function, shape)


@rule("UN-3")
@pytest.mark.parametrize("function", ["abs", "neg", "exp", "not_", "is_finite", "real", "population_count"])
@pytest.mark.parametrize("shape", [NIL, Shape.tuple([hk.f32[2]]), TOKEN], ids=["()", "(f32[2])", "token"])
def test_unary_of_no_array(function: str, shape: Shape) -> None:
    with rejects("UN-3"):
        infer(function, shape)


@rule("BEY-6")
def test_inverse_and_hyperbolic_opcodes() -> None:
    for opcode, value, want in [
        ("acos", 0.5, 1.0471976),
        ("acosh", 2, 1.316958),
        ("asin", 0.5, 0.52359878),
        ("asinh", 0.5, 0.48121183),
        ("atan", 0.5, 0.46364761),
        ("atanh", 0.5, 0.54930614),
        ("cosh", 0.5, 1.1276259),
        ("sinh", 0.5, 0.52109531),
    ]:
        got = evaluate(lambda x, op=OPS[opcode]: emit(op(), x), array("f32", [value]))
        assert_close(got, array("f32", [want]))
        with rejects("UN-6"):
            infer(lambda x, op=OPS[opcode]: emit(op(), x), hk.s32[1])


# -- binary: rule, function, element type, lhs, rhs, result

A6, B6 = [7, MIN, MIN, MAX, 0, 5, 5], [0, 0, -1, 0, 0, 3, -3]
BINARY_EXACT: list[tuple[str, str, str, Any, Any, Any]] = [
    ("BIN-6", "add", "s32", [MAX], [1], [MIN]),
    ("BIN-6", "sub", "u8", [0], [1], [255]),
    ("BIN-6", "mul", "s8", [127], [3], [125]),
    ("BIN-6", "mul", "u32", [2**32 - 1], [3], [4294967293]),
    ("BIN-6", "add", "s4", [7], [1], [-8]),
    ("BIN-6", "add", "f32", [inf, 0.1, -0.0], [-inf, 0.2, -0.0], [nan, np.float32(0.1) + np.float32(0.2), -0.0]),
    ("BIN-7", "add", "pred", [True, True, False], [True, False, False], [True, True, False]),
    ("BIN-7", "mul", "pred", [True, True, False], [True, False, False], [True, False, False]),
    ("BIN-7", "max", "pred", [True, True, False], [True, False, False], [True, True, False]),
    ("BIN-7", "min", "pred", [True, True, False], [True, False, False], [True, False, False]),
    ("BIN-8", "and_", "s8", [-1, 12], [5, 10], [5, 8]),
    ("BIN-8", "or_", "u4", [12], [3], [15]),
    ("BIN-8", "and_", "pred", [True, True], [True, False], [True, False]),
    ("BIN-8", "or_", "pred", [False, True], [False, False], [False, True]),
    ("DIV-1", "div", "f32", [1, -1, 0, inf, 1], [0.0, 0.0, 0, inf, -0.0], [inf, -inf, nan, nan, -inf]),
    ("DIV-2", "div", "s32", [5, -7, -7, 7], [-3, 2, -2, 2], [-1, -3, 3, 3]),
    ("DIV-3", "div", "s8", [5, 0, -128], [0, 0, 0], [-1, -1, -1]),
    ("DIV-3", "div", "u4", [5, 0], [0, 0], [15, 15]),
    ("DIV-4", "div", "s32", [MIN], [-1], [MIN]),
    ("DIV-4", "div", "s4", [-8], [-1], [-8]),
    ("DIV-5", "div", "c64", [3 + 4j], [1 + 1j], [3.5 + 0.5j]),
    ("DIV-6", "div", "s32", A6, B6, [-1, -1, MIN, -1, -1, 1, -1]),
    ("DIV-6", "rem", "s32", A6, B6, [7, MIN, 0, MAX, 0, 2, 2]),
    ("DIV-6", "div", "u32", [7, 0, 2**32 - 1, 5], [0, 0, 0, 7], [2**32 - 1] * 3 + [0]),
    ("DIV-6", "rem", "u32", [7, 0, 2**32 - 1, 5], [0, 0, 0, 7], [7, 0, 2**32 - 1, 5]),
    ("REM-1", "rem", "s32", [5, -7], [-3, 3], [2, -1]),
    ("REM-2", "rem", "s16", [5, -9], [0, 0], [5, -9]),
    ("REM-3", "rem", "s32", [MIN], [-1], [0]),
    ("REM-4", "rem", "f32", [5.5, -5.5, 5.5, -0.0], [2, 2, -2, 1], [1.5, -1.5, 1.5, -0.0]),
    (
        "REM-4",
        "rem",
        "f32",
        [3, inf, 3, 1e30],
        [-inf, 2, 0, 7],
        [3, nan, nan, np.fmod(np.float32(1e30), np.float32(7))],
    ),
    ("MAX-1", "max", "f32", [nan, 1, nan], [1, nan, nan], [nan, nan, nan]),
    ("MAX-1", "min", "bf16", [nan, 1], [1, nan], [nan, nan]),
    ("MAX-2", "max", "f32", [-0.0, 0.0, -0.0, -1], [0.0, -0.0, -0.0, 0], [0.0, 0.0, -0.0, 0.0]),
    ("MAX-2", "min", "f32", [-0.0, 0.0, 0.0, 1], [0.0, -0.0, 0.0, 0], [-0.0, -0.0, 0.0, 0.0]),
    ("MAX-3", "max", "u8", [200], [100], [200]),
    ("MAX-3", "max", "s8", [-56], [100], [100]),
    ("MAX-3", "min", "u4", [15], [1], [1]),
    (
        "BEY-8",
        "pow",
        "f32",
        [nan, 1, -1, 0, -0.0, -0.0, 0, -2, inf],
        [0, nan, inf, -1, -1, -3, -2, 0.5, -1],
        [1, 1, 1, inf, -inf, -inf, inf, nan, 0],
    ),
    (
        "BEY-9",
        "pow",
        "s32",
        [3, 2, 1, -1, -1, 2, 0, 0],
        [21, 31, -5, -3, -2, -1, -1, 0],
        [1870418611, MIN, 1, -1, 1, 0, 0, 1],
    ),
    ("BEY-9", "pow", "u4", [3, 2], [2, 4], [9, 0]),
    ("BEY-12", "xor", "pred", [True, True], [True, False], [False, True]),
    ("BEY-12", "xor", "s32", [6, -1], [3, 1], [5, -2]),
    ("BEY-13", "shift_left", "s32", [1, 1, 1, 5], [31, 32, -1, 1], [MIN, 0, 0, 10]),
    ("BEY-13", "shift_right_arithmetic", "s32", [-8, -8, 8, 8], [1, 40, 32, -1], [-4, -1, 0, 0]),
    ("BEY-13", "shift_right_logical", "s32", [-8, -8, -8], [1, 32, -1], [2147483644, 0, 0]),
    ("BEY-13", "shift_right_logical", "s4", [-8, -1], [1, 3], [4, 1]),
    ("BEY-13", "shift_left", "u4", [3, 3], [2, 4], [12, 0]),
    ("BEY-13", "shift_right_arithmetic", "u8", [128, 64], [1, 1], [192, 32]),
    ("BEY-15", "mulhi", "s32", [MIN, 2**30], [MIN, 8], [2**30, 2]),
    ("BEY-15", "mulhi", "u64", [2**64 - 1], [2**64 - 1], [2**64 - 2]),
    ("BEY-15", "mulhi", "s64", [-(2**63), -1], [-(2**63), 1], [2**62, -1]),
    ("BEY-15", "mulhi", "s4", [7, -8], [7, 7], [3, -4]),
    ("BEY-10", "complex", "f32", [1, inf], [2, nan], ("c64", [1 + 2j, complex(inf, nan)])),
    ("BEY-10", "complex", "f64", [-0.0], [2], ("c128", [complex(-0.0, 2)])),
]
BINARY_CLOSE: list[tuple[str, str, str, Any, Any, Any]] = [
    ("BEY-7", "atan2", "f32", [0, -0.0, 0, -0.0, 1], [-1, -1, 1, 1, 0], [PI, -PI, 0.0, -0.0, PI / 2]),
    (
        "BEY-7",
        "atan2",
        "f32",
        [inf, inf, -inf, nan, 1],
        [inf, -inf, inf, 1, nan],
        [PI / 4, 3 * PI / 4, -PI / 4, nan, nan],
    ),
    ("BEY-7", "atan2", "c64", [1 + 0j], [1 + 0j], [PI / 4 + 0j]),
    ("BEY-8", "pow", "c64", [1 + 1j], [2 + 0j], [2j]),
    ("BEY-8", "pow", "c64", [0j, 0j, 0j], [0.5 + 1j, 0j, 2 + 0j], [0j, 1 + 0j, 0j]),
    ("BEY-8", "pow", "c64", [0j, 0j], [1j, -0.5 + 1j], [complex(np.nan, np.nan)] * 2),
    ("BEY-8", "pow", "f32", [2.5], [1.5], [3.9528471]),
]


@pytest.mark.parametrize("row", BINARY_EXACT, ids=named(BINARY_EXACT))
def test_binary_exactly(row: Any) -> None:
    _, function, element_type, lhs, rhs, want = row
    assert_same(evaluate(function, array(element_type, lhs), array(element_type, rhs)), typed(element_type, want))


@pytest.mark.parametrize("row", BINARY_CLOSE, ids=named(BINARY_CLOSE))
def test_binary_closely(row: Any) -> None:
    _, function, element_type, lhs, rhs, want = row
    got = evaluate(function, array(element_type, lhs), array(element_type, rhs))
    if got.dtype.kind == "c":
        np.testing.assert_allclose(got, typed(element_type, want), rtol=1e-5, atol=1e-6)
    else:
        assert_close(got, typed(element_type, want), 1e-5)


@rule("BIN-1")
def test_binary_shape() -> None:
    assert infer("add", hk.bf16[2, 3], hk.bf16[2, 3]) is hk.bf16[2, 3]
    assert infer("mul", hk.bf16[2, 1], hk.bf16[1, 3]) is hk.bf16[2, 3]


@rule("BIN-9", "BCAST-3")
def test_ranks_without_broadcast_dimensions() -> None:
    assert infer("add", hk.f32[2, 3], hk.f32[()]) is hk.f32[2, 3]
    with rejects("BCAST-3"):
        infer("add", hk.f32[2, 3], hk.f32[3])


BINARY_TYPES: list[tuple[str, str, list[str]]] = [
    ("BIN-4", "add mul", ALL),
    ("MAX-4", "max min", [t for t in ALL if t not in COMPLEX]),
    ("BIN-4", "sub div", [t for t in ALL if t != "pred"]),
    ("BIN-5", "and_ or_", PRED + SIGNED + UNSIGNED),
    ("BEY-12", "xor", PRED + SIGNED + UNSIGNED),
    ("BEY-13", "shift_left shift_right_logical shift_right_arithmetic", SIGNED + UNSIGNED),
    ("BEY-15", "mulhi", SIGNED + UNSIGNED),
    ("BEY-7", "atan2", FLOATS + COMPLEX),
    ("BEY-8", "pow", [t for t in ALL if t != "pred"]),
    ("BEY-10", "complex", ["f32", "f64"]),
]


@pytest.mark.parametrize("row", BINARY_TYPES, ids=named(BINARY_TYPES))
def test_binary_element_types(row: tuple[str, str, list[str]]) -> None:
    label, functions, allowed = row
    for function in functions.split():
        for element_type in ALL:
            shape = hk.dtype(element_type)[2]
            if element_type in allowed:
                infer(function, shape, shape)
                evaluate(function, np.ones(2, shape.dtype.numpy), np.ones(2, shape.dtype.numpy))
            else:
                with rejects(label):
                    infer(function, shape, shape)


@rule("BIN-4", "REM-5")
def test_remainder_element_types() -> None:
    with rejects("BIN-4"):
        infer("rem", hk.pred[2], hk.pred[2])
    with rejects("REM-5"):
        infer("rem", hk.c64[2], hk.c64[2])


@rule("BIN-2", "TYPE-6", "TYPE-7", "CMP-2", "BCAST-17")
@pytest.mark.parametrize("types", [("f32", "s32"), ("f32", "f64"), ("bf16", "f32"), ("pred", "u8"), ("c64", "f32")])
def test_operands_of_two_element_types(types: tuple[str, str]) -> None:
    lhs, rhs = (hk.dtype(t)[2] for t in types)
    for function, label in [("add", "BIN-2"), ("max", "BIN-2"), ("lt", "CMP-2"), ("eq_total_order", "CMP-2")]:
        with rejects(label):
            infer(function, lhs, rhs)
    with rejects("BIN-2"):
        infer_shape(Add(), [lhs, rhs])
    with rejects("BIN-2"):
        infer("add", lhs, rhs.dtype[()])


@rule("BIN-3")
@pytest.mark.parametrize("shape", [NIL, Shape.tuple([hk.f32[2]]), TOKEN], ids=["()", "(f32[2])", "token"])
def test_binary_of_no_array(shape: Shape) -> None:
    for function in ("add", "and_", "lt"):
        for operands in ((shape, shape), (hk.f32[2], shape), (shape, hk.f32[2])):
            with rejects("BIN-3"):
                infer(function, *operands)


@rule("BUILDER-15", "HINST-8")
def test_instructions_do_not_broadcast() -> None:
    for rhs in (hk.f32[()], hk.f32[1], hk.f32[3], hk.f32[2, 2]):
        with rejects("BUILDER-15"):
            infer_shape(Add(), [hk.f32[2], rhs])
    assert infer_shape(Clamp(), [hk.f32[()], hk.f32[2], hk.f32[()]]) is hk.f32[2]
    assert infer_shape(Select(), [hk.pred[()], hk.f32[2], hk.f32[2]]) is hk.f32[2]


@rule("BEY-30")
def test_unbounded_dimensions_take_the_other_size() -> None:
    assert infer("add", hk.f32["?"], hk.f32["?"]) is hk.f32["?"]
    assert infer("add", hk.f32["?"], hk.f32[5]) is hk.f32[5]
    assert infer("add", hk.f32["<=5"], hk.f32["?"]) is hk.f32["<=5"]


@rule("BEY-12")
def test_and_or_of_many_fold_from_the_right() -> None:
    operands = [array("u8", [v]) for v in (15, 7, 3, 1)]
    assert evaluate("and_", *operands) == 1 and evaluate("or_", *operands) == 15
    builder = hk.Builder("t")
    a, b, c = (builder.parameter(n, hk.u8[1]) for n in range(3))
    root = hk.or_(a, b, c).instruction
    assert root.operands[0] is a.instruction and root.operands[1].operands == (b.instruction, c.instruction)
    assert hk.and_(a, b, [0]).shape is hk.u8[1]


@rule("BEY-78")
def test_operators() -> None:
    x, y = array("s32", [12, -7]), array("s32", [5, 2])
    for operator, want in [
        (lambda a, b: -a, [-12, 7]),
        (lambda a, b: ~a, [-13, 6]),
        (lambda a, b: a + b, [17, -5]),
        (lambda a, b: a - b, [7, -9]),
        (lambda a, b: a * b, [60, -14]),
        (lambda a, b: a / b, [2, -3]),
        (lambda a, b: a % b, [2, -1]),
        (lambda a, b: a & b, [4, 0]),
        (lambda a, b: a | b, [13, -5]),
        (lambda a, b: a ^ b, [9, -5]),
        (lambda a, b: a << b, [384, -28]),
        (lambda a, b: a >> b, [0, -2]),
        (lambda a, b: 1 - a, [-11, 8]),
    ]:
        assert_same(evaluate(operator, x, y), array("s32", want))
    assert_same(evaluate(lambda a: a >> 1, array("u8", [128])), array("u8", [64]))


@rule("RSQRT-1")
def test_rsqrt_of_complex_infinities_is_zero() -> None:
    inf, nan = float("inf"), float("nan")
    b = hk.Builder("t")
    module = b.build(hk.rsqrt(b.parameter(0, hk.c64[4])))
    got = hk.evaluate(module, np.array([complex(inf, inf), complex(1, -inf), complex(-inf, nan), complex(-2, inf)], np.complex64))
    assert (got == 0).all() and np.signbit(got.imag).tolist()[:2] == [True, False]
