"""The op functions of one and two operands, as tables: name in XLA, name in hlokit."""

from typing import Any

import hlokit as hk
from hlokit.interop.xla_client.ops.arguments import Op, OptionalInts, ResultAccuracyOf
from hlokit.interop.xla_client.ops.signatures import OpFunction

_UNARY = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
    "BesselI0e": "bessel_i0e", "BesselI1e": "bessel_i1e", "Cbrt": "cbrt", "Ceil": "ceil", "Clz": "clz", "Conj": "conj",
    "Cos": "cos", "Cosh": "cosh", "Digamma": "digamma", "Erf": "erf", "ErfInv": "erf_inv", "Erfc": "erfc",
    "Exp": "exp", "Expm1": "expm1", "Floor": "floor", "Imag": "imag", "IsFinite": "is_finite", "Lgamma": "lgamma",
    "Log": "log", "Log1p": "log1p", "Neg": "neg", "Not": "not_", "OptimizationBarrier": "optimization_barrier",
    "PopulationCount": "population_count", "Real": "real", "Reciprocal": "reciprocal", "Round": "round",
    "Rsqrt": "rsqrt", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Sqrt": "sqrt", "Square": "square", "Tan": "tan",
    "Tanh": "tanh",
}  # fmt: skip
ACCURATE = frozenset(("Cbrt", "Cos", "Erf", "Exp", "Expm1", "Log", "Log1p", "Rsqrt", "Sin", "Sqrt", "Tan", "Tanh"))
"""Functions that later releases of jaxlib also call with a ResultAccuracy."""
_BINARY = {
    "Add": "add", "And": "and_", "Atan2": "atan2", "Complex": "complex", "Div": "div", "Eq": "eq", "Ge": "ge",
    "Gt": "gt", "Le": "le", "Lt": "lt", "Max": "max", "Min": "min", "Mul": "mul", "Ne": "ne", "Or": "or_",
    "Pow": "pow", "Rem": "rem", "ShiftLeft": "shift_left", "ShiftRightArithmetic": "shift_right_arithmetic",
    "ShiftRightLogical": "shift_right_logical", "Sub": "sub", "Xor": "xor",
}  # fmt: skip


def _unary(name: str, function: Any) -> OpFunction:
    def call(arg: Op, /) -> hk.XlaOp:
        return function(arg)

    def accurate(operand: Op, result_accuracy: ResultAccuracyOf) -> hk.XlaOp:
        return function(operand, result_accuracy)

    call.__doc__ = (function.__doc__ or "").partition("\n\n")[0]
    made = OpFunction(name, call, 1, "XlaOp")
    return made.overload(accurate) if name in ACCURATE else made


def _binary(name: str, function: Any) -> OpFunction:
    def call(lhs: Op, rhs: Op, broadcast_dimensions: OptionalInts = None) -> hk.XlaOp:
        return function(lhs, rhs, broadcast_dimensions=broadcast_dimensions or ())

    call.__doc__ = (function.__doc__ or "").partition("\n\n")[0]
    return OpFunction(name, call, 1, "XlaOp")


ELEMENTWISE: dict[str, OpFunction] = {
    **{name: _unary(name, getattr(hk, function)) for name, function in _UNARY.items()},
    **{name: _binary(name, getattr(hk, function)) for name, function in _BINARY.items()},
}
