"""Arithmetic of element types: the wider type they compute in, and the one rounding or wrapping back (TYPE-8, TYPE-10).

NumPy has the narrow types through ml_dtypes, whose arithmetic and casts are slow and in part round twice. Therefore
every reference widens first, computes with NumPy's types and narrows once.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from hlokit.hlo.values import Array
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

NumpyType = np.dtype[Any]

_F16, _F32, _F64, _C128 = (np.dtype(name) for name in ("float16", "float32", "float64", "complex128"))
_S8, _U8 = np.dtype("int8"), np.dtype("uint8")


@cache
def element_type(storage: NumpyType) -> DType:
    """The element type that arrays of `storage` hold."""
    return dtypes.dtype(storage)


@cache
def _wide(storage: NumpyType) -> NumpyType:
    element = element_type(storage)
    if element.is_floating and element.bits < 32:
        return _F32
    if element.is_integral and element.bits < 8:
        return _S8 if element.is_signed else _U8
    return storage


@cache
def _precise(storage: NumpyType) -> NumpyType:
    return {"floating": _F64, "complex": _C128}.get(element_type(storage).kind, storage)


def widen(array: Array) -> Array:
    """`array` in the type it computes in: f32 for narrower floats, a byte for sub-byte integers, else its own."""
    return _cast(array, _wide(array.dtype))


def widen_precisely(array: Array) -> Array:
    """`array` in f64 or c128, for functions that no hardware rounds correctly in the type itself."""
    wide = widen(array)
    return _cast(wide, _precise(wide.dtype))


def _cast(array: Array, wanted: NumpyType) -> Array:
    return np.asarray(array) if array.dtype == wanted else np.asarray(array).astype(wanted)


def narrow(value: Any, storage: NumpyType) -> Array:
    """`value` of a wide type in `storage`: floats rounded once to nearest even, integers modulo 2^bits (TYPE-8)."""
    array = np.asarray(value)
    if array.dtype == storage:
        return array
    element = element_type(storage)
    if element.is_integral and element.bits < 8:
        return array.astype(_wide(storage)).astype(storage)
    if element.is_floating and element.bits < 32 and array.dtype == _F64:
        array = _round_to_odd(array)
    return array.astype(storage)


def _round_to_odd(array: Array) -> Array:
    """f64 to f32, towards zero with the last bit set where inexact: rounding this to a narrower type rounds once."""
    rounded = array.astype(_F32)
    exact = rounded.astype(_F64)
    bits = rounded.view(np.uint32)
    inexact = (exact != array) & ~np.isnan(array)
    truncated = bits - (inexact & (np.abs(exact) > np.abs(array)))
    return np.where(inexact, truncated | np.uint32(1), bits).astype(np.uint32).view(_F32)


def convert(array: Array, storage: NumpyType) -> Array:
    """The elements of `array` as values of the element type that `storage` holds (CONV-TYPE-3 and following)."""
    source, target = element_type(array.dtype), element_type(storage)
    if source is target:
        return array
    if source.is_complex and not target.is_complex:
        return convert(array.real, storage)
    if target.kind == "pred":
        return widen(array) != 0
    if source.is_floating and target.is_integral:
        return _float_to_integer(widen_precisely(array), target)
    if source.kind == "pred":
        array = np.asarray(array).astype(np.uint8)
    if target.is_floating and target.bits < 32 and not source.is_floating:
        return narrow(_integer_to_f64(widen(array)), storage)
    return narrow(widen(array), storage)


def _integer_to_f64(array: Array) -> Array:
    """f64 that rounds to any narrower type as the integer itself does: from 2^53 up, bit 12 stands for all below it."""
    if array.dtype.itemsize == 8:
        low, high = array & 0xFFF, array >> 53
        is_inexact = (high != 0) & (high != -1) & (low != 0)
        array = np.where(is_inexact, (array ^ low) | 0x1000, array)
    return array.astype(_F64)


def _float_to_integer(array: Array, target: DType) -> Array:
    """Truncates; out of range saturates, NaN gives 0 (CONV-TYPE-6, CONV-TYPE-7)."""
    signed = target.is_signed
    low, high = integer_range(target)
    whole = np.trunc(array)
    below, above = whole < low, whole >= float(high + 1)
    carrier = np.int64 if signed else np.uint64
    safe = np.where(below | above | np.isnan(whole), 0.0, whole).astype(carrier)
    return narrow(np.where(above, carrier(high), np.where(below, carrier(low), safe)), target.numpy)


class FloatFormat(NamedTuple):
    """The layout of a floating type's bits: widths, and the exponent of its least normal number."""

    exponent_bits: int
    mantissa_bits: int
    least_exponent: int


@cache
def float_format(storage: NumpyType) -> FloatFormat:
    import ml_dtypes

    finfo: Any = ml_dtypes.finfo  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    info = finfo(storage)
    return FloatFormat(int(info.nexp), int(info.nmant), int(info.minexp))


def integer_range(element: DType) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    if element.is_signed:
        return -(1 << (element.bits - 1)), (1 << (element.bits - 1)) - 1
    return 0, (1 << element.bits) - 1


# -- bits


def bits_of(array: Array) -> Array:
    """The elements' bits as unsigned integers, those of sub-byte types in the low bits of a byte."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    raw = array.view(f"u{array.dtype.itemsize}")
    bits = element_type(array.dtype).bits
    return raw & np.uint8((1 << bits) - 1) if bits < 8 else raw


def signed_bits_of(array: Array) -> Array:
    """The elements' bits as signed integers of the element's width."""
    bits = element_type(array.dtype).bits
    signed = bits_of(array).view(f"i{array.dtype.itemsize}")
    return (signed << (8 - bits)) >> (8 - bits) if bits < 8 else signed


def ordered_bits(array: Array) -> Array:
    """Integers in the total order of floats: negative ones count down from -0 (CMP-5).

    The "fnu" types have no sign bit, or NaN in the place of -0: theirs are the bits of the same values in f32.
    """
    if "fnu" in element_type(array.dtype).name:
        array = widen(array)
    signed = signed_bits_of(array)
    greatest = (1 << (element_type(array.dtype).bits - 1)) - 1
    return np.where(signed < 0, signed ^ greatest, signed)


def from_bits(bits: Array, storage: NumpyType) -> Array:
    """The elements of `storage` with these bits; of sub-byte types the low bits of each byte."""
    width = element_type(storage).bits
    if width < 8:
        bits = bits & np.uint8((1 << width) - 1)
    return np.asarray(bits).view(storage)
