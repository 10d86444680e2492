"""Ops that change how values are represented: convert, bitcast-convert, reduce-precision, stochastic-convert."""

from typing import Any

import numpy as np

from hlokit.errors import ShapeError
from hlokit.forms.affine import Affine, Index
from hlokit.forms.emitter import Emitter, Reader, Value
from hlokit.forms.widening import wide_type
from hlokit.hlo.op import Op, check
from hlokit.hlo.values import Array
from hlokit.ops.elementwise import FLOATING, Unary, merged, reject_kind
from hlokit.ops.numerics import bits_of, convert, element_type, float_format, from_bits, narrow, widen, widen_precisely
from hlokit.ops.scalar_rules import joined, part_of, reduce_precision, stochastic_convert
from hlokit.types.attributes import ResultShape
from hlokit.types.dtype import DType, unsigned_of
from hlokit.types.layout import Layout
from hlokit.types.shape import Shape


class Convert(Op, name="convert"):
    """The operand's values in another element type: rounded to nearest even, truncated, wrapped or saturated."""

    output_shape: ResultShape

    arity = 1
    form = "map"
    computes_wide = False
    rules = "CONV-TYPE"
    elementwise = True

    def infer(self, operand: Shape) -> Shape:
        _check_arrays(operand, self.output_shape, "CONV-TYPE-2")
        if self.output_shape.dimensions != operand.dimensions:
            raise ShapeError("CONV-TYPE-1", "result dimensions", self.output_shape, operand)
        return operand.with_dtype(self.output_shape.dtype)

    def reference(self, operand: Array) -> Any:
        return convert(operand, self.output_shape.dtype.numpy)

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        return emit.convert(operand, self.output_shape.dtype)


class BitcastConvert(Op, name="bitcast-convert"):
    """The operand's bits as another element type; parts of a wider type are along the last dimension, lowest first."""

    output_shape: ResultShape

    rounding = None
    arity = 1
    form = "index"
    rules = "BITCAST"
    elementwise = True  # of scalars, which is where it counts: their bit widths are equal

    def infer(self, operand: Shape) -> Shape:
        _check_arrays(operand, self.output_shape, "BITCAST-6")
        source, target = operand.dtype, self.output_shape.dtype
        if source is target:
            return operand
        if source.is_complex != target.is_complex:
            raise ShapeError("BITCAST-7", "element types", (source, target), "both complex or neither")
        if source.is_complex or "pred" in (source.kind, target.kind):
            raise ShapeError("BITCAST-10", "element types", (source, target), "equal, or neither pred nor complex")
        if source.bits == target.bits:
            return operand.with_dtype(target)
        wide, part = max(source.bits, target.bits), min(source.bits, target.bits)
        check(wide % part == 0, "BITCAST-5", "bit widths", (source.bits, target.bits), "one a multiple of the other")
        if source.bits > target.bits:
            return _with_parts(operand, target, wide // part)
        return _without_parts(operand, target, wide // part)

    def reference(self, operand: Array) -> Any:
        target = self.output_shape.dtype
        source = element_type(operand.dtype)
        if source.bits == target.bits:
            return from_bits(bits_of(operand), target.numpy) if source is not target else operand
        bits = _unpacked(operand, source.bits)
        shape = operand.shape if source.bits > target.bits else operand.shape[:-1]
        parts = (source.bits // target.bits,) if source.bits > target.bits else ()
        return _packed(bits.reshape(*shape, *parts, target.bits), target)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        source, target = operand.shape.dtype, self.output_shape.dtype
        if source.bits > target.bits:
            return part_of(emit, operand(index[:-1]), index[-1], target)
        if source.bits < target.bits:
            parts = range(target.bits // source.bits)
            return joined(emit, [operand((*index, Affine.of(k))) for k in parts], target)
        return operand(index) if source is target else emit.from_bits(emit.to_bits(operand(index)), target)


def _check_arrays(operand: Shape, result: Shape, label: str) -> None:
    check(operand.is_array, label, "operand", operand, "an array")
    check(result.is_array, label, "new element type", result, "an array element type")


def _with_parts(operand: Shape, target: DType, count: int) -> Shape:
    """A new last dimension, the fastest in memory (BITCAST-2)."""
    order = (operand.rank, *operand.layout_or_default.minor_to_major)
    return Shape.array(target, (*operand.dimensions, count), (*operand.dynamic, False), Layout(order))


def _without_parts(operand: Shape, target: DType, count: int) -> Shape:
    """The last dimension gone (BITCAST-3)."""
    check(operand.rank > 0 and operand.dimensions[-1] == count, "BITCAST-4", "last dimension", operand, count)
    check(not operand.dynamic[-1], "DYN-15", "last dimension", operand, "a static one")
    last = operand.rank - 1
    order = tuple(d for d in operand.layout_or_default.minor_to_major if d != last)
    return Shape.array(target, operand.dimensions[:-1], operand.dynamic[:-1], Layout(order))


def _unpacked(array: Array, bits: int) -> Array:
    """The bits of each element along a new last axis, least significant first."""
    raw = np.ascontiguousarray(array).view(np.uint8).reshape(*array.shape, array.dtype.itemsize)
    return np.unpackbits(raw, axis=-1, bitorder="little")[..., :bits]


def _packed(bits: Array, element: DType) -> Array:
    """The elements whose bits lie along the last axis."""
    raw = np.packbits(bits, axis=-1, bitorder="little")
    return np.ascontiguousarray(raw).view(element.numpy).reshape(bits.shape[:-1])


class ReducePrecision(Unary, name="reduce-precision"):
    """The value rounded to a float of these widths: infinity above its range, zero below it."""

    exponent_bits: int
    mantissa_bits: int

    rules = "RPREC"
    computes_wide = False
    kinds, kinds_rule = FLOATING, "RPREC-2"

    def infer(self, operand: Shape) -> Shape:
        check(self.exponent_bits >= 1, "RPREC-3", "exponent_bits", self.exponent_bits, ">= 1")
        check(self.mantissa_bits >= 0, "RPREC-4", "mantissa_bits", self.mantissa_bits, ">= 0")
        return super().infer(operand)

    def reference(self, operand: Array) -> Any:
        own = float_format(operand.dtype)
        wide = widen(operand)
        rounded = wide
        if self.mantissa_bits < own.mantissa_bits:
            rounded = _round_mantissa(wide, own.least_exponent, self.mantissa_bits)
        if self.exponent_bits < own.exponent_bits:
            rounded = _clamp_exponent(rounded, self.exponent_bits)
        return narrow(np.where(np.isfinite(wide), rounded, wide), operand.dtype)

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        own = float_format(operand.dtype.numpy)
        mantissa = self.mantissa_bits if self.mantissa_bits < own.mantissa_bits else None
        bias = (1 << (self.exponent_bits - 1)) - 1 if self.exponent_bits < own.exponent_bits else None
        wide = emit.convert(operand, wide_type(operand.dtype))
        return emit.convert(reduce_precision(emit, wide, own.least_exponent, mantissa, bias), operand.dtype)


def _round_mantissa(wide: Array, least_exponent: int, mantissa_bits: int) -> Array:
    """To this many fraction bits, ties to even, on the type's own grid: its denormals have fewer (RPREC-5)."""
    _, exponent = np.frexp(wide)
    lowest = np.maximum(exponent - 1, least_exponent)
    steps = np.ldexp(wide, mantissa_bits - lowest)
    return np.ldexp(np.rint(steps), lowest - mantissa_bits)


def _clamp_exponent(value: Array, exponent_bits: int) -> Array:
    """Infinity above the range of so many exponent bits, zero below its normal numbers (RPREC-6)."""
    bias = (1 << (exponent_bits - 1)) - 1
    _, exponent = np.frexp(value)
    is_above = np.isinf(value) | (exponent - 1 > bias)
    clamped = np.where(is_above, np.inf, np.where(exponent - 1 <= -bias, 0.0, np.abs(value)))
    return np.copysign(np.where(value == 0, 0.0, clamped), value).astype(value.dtype)


class StochasticConvert(Op, name="stochastic-convert"):
    """Rounds away from zero if random / 2^bits is below the fraction that truncation loses, else truncates (BEY-16)."""

    output_shape: ResultShape

    arity = 2
    form = "map"
    computes_wide = False
    rules = "BEY-16"
    elementwise = True

    def infer(self, operand: Shape, random: Shape) -> Shape:
        if operand.dtype.kind not in FLOATING:
            reject_kind(operand, "operand", FLOATING, "UN-3", "BEY-16")
        if random.dtype is not unsigned_of(operand.dtype.bits):
            raise ShapeError("BEY-16", "random", random, f"unsigned of {operand.dtype.bits} bits")
        target = self.output_shape.dtype
        check(target.is_integral or target.is_floating, "BEY-16", "new element type", target, "integral or floating")
        return merged(operand, random.with_dtype(operand.dtype)).with_dtype(target)

    def reference(self, operand: Array, random: Array) -> Any:
        target = self.output_shape.dtype
        value = widen_precisely(operand)
        size = np.abs(value)
        lower, upper = _neighbours(size, target)
        fraction = np.where(upper > lower, (size - lower) / (upper - lower), 0.0)
        threshold = bits_of(random).astype(np.float64) * 2.0 ** -element_type(operand.dtype).bits
        chosen = np.where(np.isfinite(size), np.where(threshold < fraction, upper, lower), size)
        return convert(np.copysign(chosen, value), target.numpy)

    def scalar(self, emit: Emitter, operand: Value, random: Value) -> Value:
        return stochastic_convert(emit, operand, random, self.output_shape.dtype)


def _neighbours(size: Array, target: DType) -> tuple[Array, Array]:
    """The values of the target type next to `size` >= 0, below (or equal) and above, as f64."""
    if target.is_integral:
        lower = np.floor(size)
        return lower, lower + 1
    nearest = narrow(size, target.numpy)
    bits = bits_of(nearest)
    lower = from_bits(np.where(widen_precisely(nearest) > size, bits - 1, bits).astype(bits.dtype), target.numpy)
    upper = from_bits((bits_of(lower) + 1).astype(bits.dtype), target.numpy)
    return widen_precisely(lower), widen_precisely(upper)
