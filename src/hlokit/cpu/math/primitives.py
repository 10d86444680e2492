"""The scalar primitives as LLVM instructions, in one lane or many."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlokit.cpu.llvm import I32, Function, Value, joined, register_type, scalar_type, type_of
from hlokit.cpu.math import formats, functions
from hlokit.cpu.math.half import computes_half
from hlokit.errors import UnsupportedError
from hlokit.ops.numerics import bits_of, signed_bits_of
from hlokit.types.dtype import DType

_FLOAT_BINARY = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}
_INTEGER_BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor",
    "shl": "shl", "shr": "lshr", "sar": "ashr",
}  # fmt: skip
_COMPARISONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_FLOAT_INTRINSICS = {
    "abs": "fabs", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round_even": "roundeven",
    "copysign": "copysign", "sqrt": "sqrt",
}  # fmt: skip


def emit(name: str, dtype: DType, operands: Sequence[Value], result: DType, *, strict: bool = False) -> Value:
    """Appends the primitive `name` to the operands' function; gives its result in the register type of `result`.

    dtype     of the operands, but for select's first; not complex
    operands  in register types, all with the same number of lanes, but for select's first, which may be one for all
    strict    a sum of a product is rounded twice; else it may be rounded once (`contract`), as XLA has it

    May end the function's current block (rare cases are branches); the result is valid in fn.block afterwards.
    UnsupportedError for a primitive or type that has no code.
    """
    if name == "select":
        condition, then, otherwise = operands
        return condition.select(then, otherwise)
    if name == "convert":
        return formats.convert(operands[0], dtype, result)
    if name in ("to_bits", "from_bits"):
        return _reinterpret(name, operands[0], dtype, result)
    if name in _COMPARISONS:
        return _compare(name, dtype, *operands)
    if dtype.name in ("f16", "f32", "f64"):
        return _floating(name, *operands, contracts=not strict and dtype.bits > 16)
    if not dtype.is_floating and not dtype.is_complex:
        return _integral(name, dtype, *operands)
    raise _unsupported(name, dtype)


def _unsupported(name: str, dtype: DType) -> UnsupportedError:
    return UnsupportedError(f"primitive {name} of {dtype} has no machine code")


def _compare(name: str, dtype: DType, x: Value, y: Value) -> Value:
    if dtype.name == "f16" and computes_half(x.fn.target):
        return x.compare(_COMPARISONS[name], y)
    if dtype.is_floating:
        return formats.widen(x, dtype).compare(_COMPARISONS[name], formats.widen(y, dtype))
    signed = "s" if dtype.is_signed else "u"
    return x.compare(name if name in ("eq", "ne") else signed + name, y)


def _reinterpret(name: str, x: Value, dtype: DType, result: DType) -> Value:
    if name == "to_bits":
        if dtype.kind == "pred":
            return x.cast("zext", "i8")
        bits = x.as_bits() if x.type.is_float else x
        return bits & ((1 << dtype.bits) - 1) if dtype.bits < 8 and dtype.is_signed else bits
    if result.kind == "pred":
        return x.compare("ne", 0)
    width = max(8, result.bits)
    bits = x.cast("trunc", f"i{width}") if x.bits > width else x.cast("zext", f"i{width}")
    if result.bits < 8:
        bits = bits & ((1 << result.bits) - 1)
        unused = 8 - result.bits
        return (bits << unused).sar(unused) if result.kind == "signed" else bits
    return bits.cast("bitcast", scalar_type(result))


# -- floats


def _floating(name: str, x: Value, y: Value | None = None, *, contracts: bool = False) -> Value:
    if y is not None:
        if name in _FLOAT_BINARY:
            contract = " contract" if contracts and name in ("add", "sub", "mul") else ""
            return x.binary(_FLOAT_BINARY[name] + contract, y)
        if name in ("max", "min"):
            return _extreme(name, x, y)
    if name == "neg":
        return -x
    others = [] if y is None else [y]
    if name in _FLOAT_INTRINSICS:
        return x.intrinsic(_FLOAT_INTRINSICS[name], *others)
    if name in functions.FUNCTIONS:
        return functions.FUNCTIONS[name](x, *others)
    raise UnsupportedError(f"primitive {name} of {x.scalar} has no machine code")


def _extreme(name: str, x: Value, y: Value) -> Value:
    """The greater or the lesser: NaN if either is, +0 above -0."""
    if x.fn.target.arch != "x86_64":
        return x.maximum(y) if name == "max" else x.minimum(y)
    if x.number is not None:
        x, y = y, x
    constant = y.number
    predicate = "ogt" if name == "max" else "olt"
    is_negative_zero = constant == 0 and math.copysign(1.0, constant) < 0
    if constant is not None and constant == constant and not (name == "min" and is_negative_zero):
        # as maxps(y, x): x if it is NaN, or both are zeros
        chosen = y.where(y.compare(predicate, x), x)
        return chosen + 0.0 if name == "max" and constant == 0 and not is_negative_zero else chosen
    return _extreme_of_any(predicate, x, y)


def _extreme_of_any(predicate: str, x: Value, y: Value) -> Value:
    """maxps both ways: they differ only in zeros, where the signs' and (or, for min) is right, and where one is NaN.

    vrange sorts zeros itself.
    """
    if x.bits > 16 and x.bits * x.lanes >= 512 and x.fn.target.has("avx512dq"):
        return _ranged(predicate, x, y).where(x.compare("ord", y), x + y)
    one, other = x.where(x.compare(predicate, y), y), y.where(y.compare(predicate, x), x)
    bits = one.as_bits() & other.as_bits() if predicate == "ogt" else one.as_bits() | other.as_bits()
    return bits.as_float().where(x.compare("ord", y), x + y)


def _ranged(predicate: str, x: Value, y: Value) -> Value:
    """The greater (ogt) or the lesser where neither is NaN, +0 above -0."""
    width = 512 // x.bits
    fn, kind = x.fn, x.type.of(width)
    name = f"llvm.x86.avx512.mask.range.{'ps' if x.bits == 32 else 'pd'}.512"
    which, mode = (fn.constant(number, I32) for number in (5 if predicate == "ogt" else 4, 4))
    others = (which, fn.zeros(kind), fn.constant(-1, type_of(f"i{width}")), mode)
    pairs = zip(x.split(width), y.split(width), strict=True)
    return joined([fn.call_for(kind, name, a, b, *others) for a, b in pairs])


# -- integers and pred


def _integral(name: str, dtype: DType, x: Value, y: Value | None = None) -> Value:
    signed = dtype.is_signed
    if y is None:
        return _integral_unary(name, dtype, x)
    if name in _INTEGER_BINARY:
        return x.binary(_INTEGER_BINARY[name], y)
    if name in ("max", "min"):
        return x.intrinsic(("s" if signed else "u") + name, y)
    if name in ("div", "rem"):
        return _divide(name, signed, x, y)
    if name == "mul_high":
        return _multiply_high(signed, x, y)
    raise _unsupported(name, dtype)


def _integral_unary(name: str, dtype: DType, x: Value) -> Value:
    operations: dict[str, Callable[[], Value]] = {
        "neg": lambda: 0 - x,
        "abs": lambda: x.intrinsic("abs", extra=", i1 false") if dtype.is_signed else x,
        "not": lambda: x ^ (True if x.scalar == "i1" else -1),
        "popcnt": lambda: x.intrinsic("ctpop"),
        "clz": lambda: x.intrinsic("ctlz", extra=", i1 false"),
    }
    if name not in operations:
        raise _unsupported(name, dtype)
    return operations[name]()


def _multiply_high(signed: bool, x: Value, y: Value) -> Value:
    extend, wide = "sext" if signed else "zext", f"i{2 * x.bits}"
    product = x.cast(extend, wide) * y.cast(extend, wide)
    return (product >> x.bits).cast("trunc", x.scalar)


def _divide(name: str, signed: bool, x: Value, y: Value) -> Value:
    """Integer division; by constants LLVM multiplies, scalars and 64 bits have the instruction."""
    instruction = ("s" if signed else "u") + name
    if x.lanes == 1 or x.bits == 64 or y.number is not None:
        return x.binary(instruction, y)
    # a quotient below 2^32 lies no nearer than 1/y to the next whole number, which f64 resolves (f32: below 2^16)
    scalar, sign = ("double" if x.bits == 32 else "float"), ("s" if signed else "u")
    numerator, denominator = (v.cast("sext" if signed else "zext", "i32") for v in (x, y))
    ratio = numerator.cast(f"{sign}itofp", scalar) / denominator.cast(f"{sign}itofp", scalar)
    quotient = ratio.cast(f"fpto{sign}i", "i32").cast("trunc", x.scalar)
    return quotient if name == "div" else x - quotient * y


# -- constants


def constant(fn: Function, value: Any, dtype: DType, lanes: int = 1) -> Value:
    """One element in every lane, in the register type, bit for bit. `value`: a number or NumPy scalar."""
    array = np.asarray(value)
    if array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)
    type = register_type(dtype)
    if dtype.kind == "pred" or dtype.is_integral:
        return fn.constant(int(signed_bits_of(array) if dtype.is_signed else bits_of(array)), type.of(lanes))
    bits = int(bits_of(array))
    if not type.is_float:
        return fn.constant(bits, type.of(lanes))
    shown = bits if dtype.bits != 32 else _f64_bits(bits)
    text = f"0xH{shown:04X}" if dtype.bits == 16 else f"0x{shown:016X}"
    return Value(fn, type, text, float(array)).splat(lanes)


def _f64_bits(bits: int) -> int:
    """f32's bits as the f64 of the same value, as LLVM spells floats; a NaN keeps its payload and its quiet bit."""
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7F_FFFF
    if exponent == 0xFF:
        return sign << 63 | 0x7FF << 52 | mantissa << 29
    number: float = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
    return struct.unpack("<Q", struct.pack("<d", number))[0]
