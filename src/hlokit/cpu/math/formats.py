"""Conversion between element types in registers, with HLO's meaning (numerics.convert): rounded once, saturated."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hlokit.cpu.llvm import I32, Value, joined, scalar_type, type_of
from hlokit.ops.numerics import bits_of, integer_range, narrow
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


@dataclass(frozen=True)
class Format:
    """A float of 8 bits or fewer: sign, exponent, mantissa.

    least      exponent of the least normal number
    greatest   bits of the greatest finite magnitude
    over       bits that a greater magnitude becomes (its sign is added, unless `signless`)
    nan        bits of NaN, None if there is none
    infinity   bits of infinity, None if there is none; NaNs are the codes above it, or else `nan` and its negative
    signless   neither zero nor NaN has a sign: NaN is in the place of -0
    """

    mantissa: int
    least: int
    greatest: int
    over: int
    nan: int | None
    infinity: int | None = None
    signless: bool = False
    width: int = 8


FORMATS = {
    "f4e2m1fn": Format(1, 0, 7, 7, None, width=4),
    "f6e2m3fn": Format(3, 0, 31, 31, None, width=6),
    "f6e3m2fn": Format(2, -2, 31, 31, None, width=6),
    "f8e3m4": Format(4, -2, 0x6F, 0x70, 0x78, 0x70),
    "f8e4m3": Format(3, -6, 0x77, 0x78, 0x7C, 0x78),
    "f8e5m2": Format(2, -14, 0x7B, 0x7C, 0x7E, 0x7C),
    "f8e4m3fn": Format(3, -6, 0x7E, 0x7F, 0x7F),
    "f8e4m3b11fnuz": Format(3, -10, 0x7F, 0x80, 0x80, signless=True),
    "f8e4m3fnuz": Format(3, -7, 0x7F, 0x80, 0x80, signless=True),
    "f8e5m2fnuz": Format(2, -15, 0x7F, 0x80, 0x80, signless=True),
}


def convert(value: Value, source: DType, target: DType) -> Value:
    """`value` of `source` in the register type of `target`."""
    if source is target:
        return value
    if target.kind == "pred":
        return _is_nonzero(value, source)
    if source.kind == "pred":
        one, zero = (_number(value, n, target) for n in (1, 0))
        return value.select(one, zero)
    if source.is_floating and target.is_floating:
        return _float_to_float(value, source, target)
    if source.is_floating:
        return _float_to_integer(value, source, target)
    if target.is_floating:
        return _integer_to_float(value, source, target)
    return _resize(value, source, target)


def _is_nonzero(value: Value, source: DType) -> Value:
    if source.is_floating:
        return widen(value, source).compare("une", 0.0)
    return value.compare("ne", 0)


def _number(like: Value, number: int, target: DType) -> Value:
    """0 or 1 in any type, in as many lanes as `like` has."""
    type = like.type.like(scalar_type(target))
    if target.is_floating and not type.is_float:
        number = int(bits_of(narrow(float(number), target.numpy)))
    return like.fn.constant(number, type)


# -- integers


def extended(value: Value, dtype: DType) -> Value:
    """An integer below a byte, without the bits above its own, which mean nothing in memory.

    Not by shifts: x86 has none of bytes.
    """
    value = value & ((1 << dtype.bits) - 1)
    sign = 1 << (dtype.bits - 1)
    return (value ^ sign) - sign if dtype.is_signed else value


def _resize(value: Value, source: DType, target: DType) -> Value:
    """Modulo 2^bits; below a byte the register's upper bits copy the sign or are zero."""
    scalar = scalar_type(target)
    if int(scalar[1:]) > value.bits:
        value = value.cast("sext" if source.is_signed else "zext", scalar)
    elif int(scalar[1:]) < value.bits:
        value = value.cast("trunc", scalar)
    return _wrap_small(value, target)


def _wrap_small(value: Value, target: DType) -> Value:
    if target.bits >= 8:
        return value
    if not target.is_signed:
        return value & ((1 << target.bits) - 1)
    return (value << (8 - target.bits)).sar(8 - target.bits)


def _float_to_integer(value: Value, source: DType, target: DType) -> Value:
    """Towards zero; out of range saturates, NaN gives 0. (LLVM's saturating conversions go lane by lane.)"""
    value = widen(value, source)
    low, high = integer_range(target)
    is_signed = target.is_signed or target.bits < 32
    inside = value.value(0.0).where(value.compare("uge", float(high + 1)), value)
    inside = value.value(float(low)).where(inside < float(low), inside)
    whole = inside.cast("fptosi" if is_signed else "fptoui", f"i{max(32, target.bits)}")
    whole = whole.value(high).where(value.compare("oge", float(high + 1)), whole)
    return whole if target.bits >= 32 else whole.cast("trunc", scalar_type(target))


def _integer_to_float(value: Value, source: DType, target: DType) -> Value:
    instruction = "sitofp" if source.is_signed else "uitofp"
    if target.bits >= 32:
        return value.cast(instruction, scalar_type(target))
    if source.bits <= 16:
        return from_f32(value.cast(instruction, "float"), target)
    if source.bits == 64:
        value = _fit_in_f64(value, source)
    return from_f32(_round_to_odd(value.cast(instruction, "double")), target)


def _fit_in_f64(value: Value, source: DType) -> Value:
    """An integer of 64 bits that f64 holds exactly and every narrower type rounds as the given one."""
    high = value.sar(53) if source.is_signed else value >> 53
    inexact = high.compare("ne", 0) & high.compare("ne", -1) & (value & 0xFFF).compare("ne", 0)
    return ((value & ~0xFFF) | 0x1000).where(inexact, value)


# -- floats


def widen(value: Value, source: DType) -> Value:
    """A float of any type as float or double, exactly; of narrow types also where denormals of float are zeros."""
    if source.bits >= 32:
        return value
    if source.name == "f16":
        return value.cast("fpext", "float")
    if source.name == "bf16":
        return (value.cast("zext", "i32") << 16).as_float()
    code = value.cast("zext", "i32")
    if source.name == "f8e8m0fnu":
        bits = (code << 23).where(code.compare("ne", 0), 0x0040_0000)
        return (bits.where(code.compare("ne", 0xFF), 0x7FC0_0000)).as_float()
    return _decode(code, FORMATS[source.name])


def _decode(code: Value, f: Format) -> Value:
    sign = code & (1 << (f.width - 1))
    magnitude = code & ((1 << (f.width - 1)) - 1)
    bits = magnitude << (23 - f.mantissa)
    small = (bits + ((127 + f.least) << 23)).as_float() - 2.0**f.least  # less the leading bit that it has not
    size = small.where(bits.compare("ult", 1 << 23), (bits + ((126 + f.least) << 23)).as_float())
    if f.infinity is not None:
        beyond = _float(code, 0x7FC0_0000).where(magnitude.ne(f.infinity), _float(code, 0x7F80_0000))
        size = beyond.where(magnitude.compare("uge", f.infinity), size)
    elif f.nan is not None and not f.signless:
        size = _float(code, 0x7FC0_0000).where(magnitude.eq(f.nan), size)
    signed = (size.as_bits() | (sign << (32 - f.width))).as_float()
    if f.signless and f.nan is not None:
        signed = _float(code, 0xFFC0_0000).where(code.eq(f.nan), signed)
    return signed


def _float(like: Value, bits: int) -> Value:
    """The float with these bits, in as many lanes as `like` has."""
    return like.fn.constant(struct.unpack("<f", bits.to_bytes(4, "little"))[0], like.type.like("float"))


def _float_to_float(value: Value, source: DType, target: DType) -> Value:
    value = widen(value, source)
    if target is dtypes.f64:
        return value.cast("fpext", "double")
    if target is dtypes.f32:
        return value.cast("fptrunc", "float")
    return from_f32(_round_to_odd(value) if value.scalar == "double" else value, target)


def _round_to_odd(value: Value) -> Value:
    """double to float, towards zero with the last bit set where inexact: rounding this further rounds once."""
    rounded = value.cast("fptrunc", "float")
    exact = rounded.cast("fpext", "double")
    too_big = exact.abs() > value.abs()
    bits = rounded.as_bits()
    bits = (bits - 1).where(too_big, bits)
    return (bits | 1).where(exact.compare("one", value), bits).as_float()


def from_f32(value: Value, target: DType) -> Value:
    """A float rounded to nearest even in a type of fewer bits."""
    if target is dtypes.f32:
        return value
    if target.name == "f16":
        return value.cast("fptrunc", "half")
    bits = value.as_bits()
    if target.name == "bf16":
        return _to_bf16(value, bits)
    if target.name == "f8e8m0fnu":
        return _encode_exponent(bits)
    return _encode(value, bits, FORMATS[target.name])


def _to_bf16(value: Value, bits: Value) -> Value:
    """The upper half, rounded; a NaN stays one, quiet."""
    target = value.fn.target
    if target.has("avx512bf16") and target.has("avx512dq") and value.lanes >= 16:
        return joined([_to_bf16_by_instruction(piece) for piece in value.split(16)])
    rounded = bits + (((bits >> 16) & 1) + 0x7FFF)
    quiet = bits | 0x40_0000
    return (rounded.where(value.compare("ord", value), quiet) >> 16).cast("trunc", "i16")


def _to_bf16_by_instruction(value: Value) -> Value:
    """vcvtneps2bf16 takes denormals for zeros: they are lifted to the next exponent for the time of it."""
    fn = value.fn
    denormal = fn.call_for(value.type.mask, "llvm.x86.avx512.fpclass.ps.512", value, fn.constant(32, I32))
    bits = value.as_bits()
    lifted = (bits + (1 << 23)).where(denormal, bits).as_float()
    rounded = fn.call_for(type_of("bfloat", 16), "llvm.x86.avx512bf16.cvtneps2bf16.512", lifted)
    halves = rounded.as_bits()
    return (halves - (1 << 7)).where(denormal, halves)


def _encode_exponent(bits: Value) -> Value:
    """The nearest power of two, of two the greater; NaN unless positive and below 1.5 * 2^127."""
    rounded = (bits + 0x40_0000) >> 23
    least = bits.compare("ugt", 0x40_0000).cast("zext", "i32")  # ml_dtypes rounds these up
    code = least.where(bits.compare("ult", 0x80_0000), rounded)
    is_positive = (bits - 1).compare("ult", 0x7F7F_FFFF)
    return code.where(is_positive, 0xFF).cast("trunc", "i8")


def _encode(value: Value, bits: Value, f: Format) -> Value:
    shift = 23 - f.mantissa
    magnitude = bits & 0x7FFF_FFFF
    normal = (magnitude + (((magnitude >> shift) & 1) + ((1 << (shift - 1)) - 1))) >> shift
    normal = normal - ((f.least + 126) << f.mantissa)
    # below the least normal number, adding 2^23 of its unit rounds there
    unit = 2.0 ** (f.least - f.mantissa + 23)
    small = (magnitude.as_float() + unit).as_bits() - value.value(unit).as_bits()
    code = small.where(magnitude.as_float() < 2.0**f.least, normal)
    code = code.where(code.compare("ule", f.greatest), f.over)
    sign = (bits >> (32 - f.width)) & (1 << (f.width - 1))
    ordered = value.compare("ord", value)
    if f.signless:
        signed = (code | sign).where(code.compare("ne", 0), 0)
        return signed.where(ordered, 0x80).cast("trunc", "i8")
    if f.nan is None:
        # ml_dtypes gives NaN the sign's complement and no magnitude
        return (code | sign).where(ordered, sign ^ (1 << (f.width - 1))).cast("trunc", "i8")
    return (code.where(ordered, f.nan) | sign).cast("trunc", "i8")
