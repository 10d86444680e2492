"""StableHLO's elementwise operations: most are HLO's under the same name."""

from __future__ import annotations

import math
from typing import Any

from hlokit.builder import elementwise as build
from hlokit.builder.core import XlaOp
from hlokit.hlo.op import Op
from hlokit.ops import comparison, conversion, elementwise, transcendental
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import DialectAttribute
from hlokit.text.numbers import float_text
from hlokit.types import dtype as dtypes

PLAIN: dict[str, type[Op]] = {
    "abs": elementwise.Abs,
    "add": elementwise.Add,
    "and": elementwise.And,
    "atan2": elementwise.Atan2,
    "ceil": elementwise.Ceil,
    "complex": elementwise.Complex,
    "count_leading_zeros": elementwise.CountLeadingZeros,
    "divide": elementwise.Divide,
    "floor": elementwise.Floor,
    "imag": elementwise.Imag,
    "is_finite": elementwise.IsFinite,
    "maximum": elementwise.Maximum,
    "minimum": elementwise.Minimum,
    "multiply": elementwise.Multiply,
    "negate": elementwise.Negate,
    "not": elementwise.Not,
    "or": elementwise.Or,
    "popcnt": elementwise.PopulationCount,
    "power": elementwise.Power,
    "real": elementwise.Real,
    "remainder": elementwise.Remainder,
    "round_nearest_afz": elementwise.RoundNearestAfz,
    "round_nearest_even": elementwise.RoundNearestEven,
    "shift_left": elementwise.ShiftLeft,
    "shift_right_arithmetic": elementwise.ShiftRightArithmetic,
    "shift_right_logical": elementwise.ShiftRightLogical,
    "sign": elementwise.Sign,
    "subtract": elementwise.Subtract,
    "xor": elementwise.Xor,
}
"""Operations without attributes that matter."""

ACCURATE: dict[str, type[Op]] = {
    "cbrt": transcendental.Cbrt,
    "cosine": transcendental.Cosine,
    "exponential": transcendental.Exponential,
    "exponential_minus_one": transcendental.ExponentialMinusOne,
    "log": transcendental.Log,
    "log_plus_one": transcendental.LogPlusOne,
    "logistic": transcendental.Logistic,
    "rsqrt": transcendental.Rsqrt,
    "sine": transcendental.Sine,
    "sqrt": transcendental.Sqrt,
    "tan": transcendental.Tan,
    "tanh": transcendental.Tanh,
}
"""Operations with a result_accuracy."""

MHLO_ACCURATE: dict[str, type[Op]] = {
    "acos": transcendental.Acos,
    "acosh": transcendental.Acosh,
    "asin": transcendental.Asin,
    "asinh": transcendental.Asinh,
    "atanh": transcendental.Atanh,
    "cosh": transcendental.Cosh,
    "erf": transcendental.Erf,
    "sinh": transcendental.Sinh,
}
"""Operations that mhlo has as HLO has them; chlo composes them of others."""


def _plain(op_class: type[Op]) -> Rule:
    def rule(site: Site) -> XlaOp:
        return site.emit(op_class(), *site.exactly(op_class.arity or 0))

    return rule


def _stochastic_convert(site: Site) -> XlaOp:
    operand, random = site.exactly(2)
    return site.emit(conversion.StochasticConvert(site.array_result()), operand, random)


def _accurate(op_class: type[Op]) -> Rule:
    def rule(site: Site) -> XlaOp:
        return site.emit(op_class(_accuracy(site)), *site.exactly(1))

    return rule


def _accuracy(site: Site) -> tuple[str, ...] | None:
    """#stablehlo.result_accuracy<atol = .., rtol = .., ulps = .., mode = ..>."""
    if not site.has("result_accuracy"):
        return None
    given = site.parameters("result_accuracy")
    mode: Any = given.get("mode", "DEFAULT")
    mode = str(mode.value if isinstance(mode, DialectAttribute) else mode).lower()
    if mode != "tolerance":
        return None if mode == "default" else (mode,)
    parts = [given.get(name, 0) for name in ("atol", "rtol", "ulps")]
    if not all(isinstance(part, (int, float)) and math.isfinite(part) for part in parts):
        raise site.error(f"{site.name}: result_accuracy has parts that are no numbers")
    return ("tolerance", *(float_text(float(part), dtypes.f64) for part in parts[:2]), str(int(parts[2])))


def _compare(site: Site) -> XlaOp:
    """compare: the direction, and TOTALORDER for floats; the other types say what the elements' type says."""
    words = [w for w in site.operation.words if isinstance(w, str)]
    lhs, rhs = site.exactly(2)
    direction = site.word("comparison_direction", default=words[0] if words else "")
    kind = site.word("compare_type", default=words[1] if len(words) > 1 else "NOTYPE")
    if kind not in ("NOTYPE", "FLOAT", "SIGNED", "UNSIGNED", "TOTALORDER"):
        raise site.error(f"{site.name}: {kind[:40]} is no type of comparison")
    is_total = kind == "TOTALORDER" and lhs.dtype.is_floating
    return site.emit(comparison.Compare(direction, "TOTALORDER" if is_total else None), lhs, rhs)


def _select(site: Site) -> XlaOp:
    return build.select(*site.exactly(3))


def _clamp(site: Site) -> XlaOp:
    return build.clamp(*site.exactly(3))


def _convert(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    return build.convert_element_type(operand, site.result().dtype)


def _bitcast_convert(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    return build.bitcast_convert_type(operand, site.result().dtype)


def _reduce_precision(site: Site) -> XlaOp:
    """format = e5m10, or exponent_bits and mantissa_bits."""
    (operand,) = site.exactly(1)
    if site.has("format"):
        exponent, found, mantissa = site.word("format").lower().removeprefix("e").partition("m")
        if not (found and exponent.isdecimal() and mantissa.isdecimal() and len(exponent + mantissa) < 8):
            raise site.error(f"{site.name}: a format is e5m10 or the like")
        bits = int(exponent), int(mantissa)
    else:
        bits = site.integer("exponent_bits"), site.integer("mantissa_bits")
    return site.emit(conversion.ReducePrecision(*bits), operand)


RULES: dict[str, Rule] = {
    **{name: _plain(op_class) for name, op_class in PLAIN.items()},
    **{name: _accurate(op_class) for name, op_class in ACCURATE.items()},
    "bitcast_convert": _bitcast_convert,
    "clamp": _clamp,
    "compare": _compare,
    "convert": _convert,
    "reduce_precision": _reduce_precision,
    "select": _select,
}

MHLO_RULES: dict[str, Rule] = {
    **{name: _accurate(op_class) for name, op_class in MHLO_ACCURATE.items()},
    "copy": _plain(elementwise.Copy),
    "stochastic_convert": _stochastic_convert,
}
"""mhlo.NAME, where it is not what stablehlo.NAME or chlo.NAME is."""
