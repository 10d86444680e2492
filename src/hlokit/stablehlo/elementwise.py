"""StableHLO's elementwise operations: most are HLO's under the same name."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hlokit.builder import elementwise as build
from hlokit.builder import indexing, movement, reduction
from hlokit.builder.core import XlaOp
from hlokit.hlo.op import Op
from hlokit.ops import comparison, conversion, elementwise, transcendental
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import DialectAttribute
from hlokit.text.numbers import float_text
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

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
        if any(given.get(name, 0) != 0 for name in ("atol", "rtol", "ulps")):
            raise site.error(f"{site.name}: result_accuracy of mode {mode.upper()} has tolerances")
        return None if mode == "default" else (mode,)
    parts = [given.get(name, 0) for name in ("atol", "rtol", "ulps")]
    if not all(isinstance(part, (int, float)) and math.isfinite(part) for part in parts):
        raise site.error(f"{site.name}: result_accuracy has parts that are not numbers")
    return ("tolerance", *(float_text(float(part), dtypes.f64) for part in parts[:2]), str(int(parts[2])))


def _compare(site: Site) -> XlaOp:
    """compare: the direction, and TOTALORDER for floats; the other types say what the elements' type says."""
    words = [w for w in site.operation.words if isinstance(w, str)]
    lhs, rhs = site.exactly(2)
    direction = site.word("comparison_direction", default=words[0] if words else "")
    kind = site.word("compare_type", default=words[1] if len(words) > 1 else "NOTYPE")
    if kind not in ("NOTYPE", "FLOAT", "SIGNED", "UNSIGNED", "TOTALORDER"):
        raise site.error(f"{site.name}: {kind[:40]} is not a type of comparison")
    is_total = kind == "TOTALORDER" and lhs.dtype.is_floating
    return site.emit(comparison.Compare(direction, "TOTALORDER" if is_total else None, None), lhs, rhs)


def _select(site: Site) -> XlaOp:
    return build.select(*site.exactly(3))


def _clamp(site: Site) -> XlaOp:
    return build.clamp(*site.exactly(3))


def _convert(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    return build.convert_element_type(operand, site.result().dtype)


def _bitcast_convert(site: Site) -> XlaOp:
    """HLO's, and what that lacks: complex numbers of another size, and i1 as one bit."""
    (operand,) = site.exactly(1)
    target = site.result().dtype
    kinds = operand.dtype.kind, target.kind
    if operand.dtype is target:
        return operand
    if kinds == ("complex", "complex"):
        parts = build.bitcast_convert_type(_stacked(build.real(operand), build.imag(operand)), target.real)
        real, imaginary = _unstacked(site, parts, target.bits > operand.dtype.bits)
        return build.complex(real, imaginary)
    if "pred" in kinds and "complex" not in kinds:
        return _bits(site, operand) if kinds[1] == "pred" else _of_bits(site, operand, target)
    return build.bitcast_convert_type(operand, target)


def _stacked(*parts: XlaOp) -> XlaOp:
    """Arrays of one shape behind each other in a new last dimension."""
    sizes = parts[0].shape.dimensions
    return movement.concat_in_dim([movement.reshape(part, (*sizes, 1)) for part in parts], len(sizes))


def _unstacked(site: Site, pairs: XlaOp, is_inner: bool) -> list[XlaOp]:
    """Real and imaginary parts, which alternate in the last dimension."""
    sizes = site.result().dimensions if not is_inner else pairs.shape.dimensions[:-1]
    if pairs.shape.size != 2 * math.prod(sizes):
        raise site.error(f"{site.name}: {pairs.shape} as {site.result()}")
    pairs = movement.reshape(pairs, (*sizes, 2))
    parts = [indexing.slice_in_dim(pairs, i, i + 1, 1, len(sizes)) for i in range(2)]
    return [movement.reshape(part, sizes) for part in parts]


def _bits(site: Site, operand: XlaOp) -> XlaOp:
    """The bits of each element, the lowest first, in a new last dimension."""
    word = _word_of(site, operand.dtype)
    sizes = (*operand.shape.dimensions, operand.dtype.bits)
    if operand.dtype is not word:
        operand = build.bitcast_convert_type(operand, word)
    spread = movement.broadcast_in_dim(operand, sizes, tuple(range(len(sizes) - 1)))
    shifted = build.shift_right_logical(spread, movement.iota(site.builder, word[sizes], len(sizes) - 1))
    return build.ne(build.and_(shifted, site.builder.constant(1, word)), site.builder.constant(0, word))


def _of_bits(site: Site, operand: XlaOp, target: DType) -> XlaOp:
    """The elements whose bits stand in the last dimension."""
    word = _word_of(site, target)
    sizes = operand.shape.dimensions
    if not sizes or sizes[-1] != target.bits:
        raise site.error(f"{site.name}: {operand.shape}: the last dimension is not the {target.bits} bits of {target}")
    places = movement.iota(site.builder, word[sizes], len(sizes) - 1)
    shifted = build.shift_left(build.convert_element_type(operand, word), places)
    whole = reduction.reduce(shifted, site.builder.constant(0, word), build.or_, [len(sizes) - 1])
    return whole if word is target else build.bitcast_convert_type(whole, target)


def _word_of(site: Site, dtype: DType) -> DType:
    """The unsigned type of as many bits."""
    word = dtypes.DTYPES.get(f"u{dtype.bits}")
    if word is None or word.bits == 1:
        raise site.unsupported(f"the bits of {dtype}")
    return word


def _cbrt(site: Site) -> XlaOp:
    """Complex numbers too: the principal root."""
    (operand,) = site.exactly(1)
    if operand.dtype.is_complex:
        return build.pow(operand, site.builder.constant(1 / 3, operand.dtype))
    return site.emit(transcendental.Cbrt(_accuracy(site)), operand)


def _extreme(op_class: type[Op], is_first: Callable[[XlaOp, XlaOp], XlaOp]) -> Rule:
    """The more extreme of complex numbers: by the real parts, or if they are equal by the imaginary parts."""

    def rule(site: Site) -> XlaOp:
        lhs, rhs = site.exactly(2)
        if not lhs.dtype.is_complex or lhs.dtype is not rhs.dtype:
            return site.emit(op_class(), lhs, rhs)
        (a, b), (c, d) = ((build.real(z), build.imag(z)) for z in (lhs, rhs))
        later = build.and_(build.eq(a, c), is_first(b, d))
        return build.select(build.or_(is_first(a, c), later), lhs, rhs)

    return rule


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
    "cbrt": _cbrt,
    "clamp": _clamp,
    "compare": _compare,
    "convert": _convert,
    "maximum": _extreme(elementwise.Maximum, build.gt),
    "minimum": _extreme(elementwise.Minimum, build.lt),
    "reduce_precision": _reduce_precision,
    "select": _select,
}

MHLO_RULES: dict[str, Rule] = {
    **{name: _accurate(op_class) for name, op_class in MHLO_ACCURATE.items()},
    "copy": _plain(elementwise.Copy),
    "stochastic_convert": _stochastic_convert,
}
"""mhlo.NAME, where it is not what stablehlo.NAME or chlo.NAME is."""
