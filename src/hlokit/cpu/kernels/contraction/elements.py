"""Elements of arrays in contractions: read and converted, or converted and written, one vector at a time.

A contraction computes in float, double, i32 and i64; a complex number is a pair of the first two.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm import Function, Index, LaneMask, Pointer, Type, Value, memory_type, type_of
from hlokit.cpu.math.formats import convert, extended, widen
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_COMPUTED = {"float": dtypes.f32, "double": dtypes.f64, "i32": dtypes.s32, "i64": dtypes.s64}


def element_bytes(dtype: DType) -> int:
    """Bytes of an element in memory."""
    return max(1, dtype.bits // 8)


def memory_of(dtype: DType) -> Type:
    """The type of an element in memory; of one part of a complex number."""
    return type_of(memory_type(dtype.real))


def lanes_up_to(fn: Function, count: int, lanes: int) -> LaneMask | None:
    """The first `count` lanes; None for all."""
    return LaneMask(fn, count, lanes) if count < lanes else None


def read(dtype: DType, base: Pointer, place: Index, lanes: int, wide: Type, mask: Value | None = None) -> list[Value]:
    """Elements from number `place` on in a type that computes: one value, or the two parts of complex numbers."""
    memory = memory_of(dtype)
    if not dtype.is_complex:
        return [widened(base.to(memory)[place].load(lanes, mask), dtype, wide)]
    first = base.to(memory.array(2))[place].to(memory)
    if lanes == 1:
        parts = (first.load(), first[1].load())
    else:
        parts = first.load(2 * lanes, _of_pairs(mask)).deinterleaved()
    return [widened(part, dtype.real, wide) for part in parts]


def _of_pairs(mask: Value | None) -> Value | None:
    """A mask of complex numbers as one of their parts."""
    return None if mask is None else mask.shuffled([lane // 2 for lane in range(2 * mask.lanes)])


def widened(value: Value, dtype: DType, wide: Type) -> Value:
    """An element as it lies in memory in a type that computes; integers that do not fit are cut."""
    if dtype.is_floating:
        value = widen(value, dtype)
        return value.cast("fpext" if value.bits < wide.bits else "fptrunc", wide.scalar)
    is_signed = dtype.kind == "signed"
    if dtype.bits < 8 and dtype.kind != "pred":
        value = extended(value, dtype)
    if wide.is_float:
        return value.cast("sitofp" if is_signed else "uitofp", wide.scalar)
    return value.cast("trunc" if value.bits > wide.bits else "sext" if is_signed else "zext", wide.scalar)


def rounded(value: Value, dtype: DType) -> Value:
    """A sum in the register type of `dtype`: rounded once, saturated, wrapped, or whether it is not zero."""
    return convert(value, _COMPUTED[value.scalar], dtype)


def write(dtype: DType, base: Pointer, place: Index, parts: Sequence[Value], mask: Value | None = None) -> None:
    """Values of a register type, of complex numbers both parts, to elements from number `place` on."""
    memory, value = memory_of(dtype), parts[0]
    if dtype.is_complex:
        first = base.to(memory.array(2))[place].to(memory)
        if value.lanes > 1:
            first.store(value.interleaved(parts[1]), _of_pairs(mask))
            return
        first.store(value)
        first[1].store(parts[1])
        return
    if dtype.kind == "pred":
        value = value.zext(8)
    elif dtype.is_integral and dtype.bits < 8:
        value = value & ((1 << dtype.bits) - 1)
    base.to(memory)[place].store(value, mask)
