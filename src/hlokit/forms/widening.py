"""Narrow types: scalar rules are written for wider types, and the result is rounded once (TYPE-8, TYPE-10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from hlokit.forms.emitter import Emitter, Value
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


@cache
def wide_type(dtype: DType) -> DType:
    """The type that values of `dtype` compute in: f32 for narrower floats, a byte for integers below that."""
    if dtype.is_floating and dtype.bits < 32:
        return dtypes.f32
    if dtype.is_integral and dtype.bits < 8:
        return dtypes.s8 if dtype.is_signed else dtypes.u8
    return dtype


def computed_wide(rule: Callable[..., Value], emit: Emitter, values: Sequence[Value]) -> Value:
    """`rule` on values of one type, in the type that computes; a result of that type is rounded or wrapped back."""
    narrow = values[0].dtype
    wide = wide_type(narrow)
    if wide is narrow:
        return rule(emit, *values)
    result = rule(emit, *(emit.convert(value, wide) for value in values))
    return emit.convert(result, narrow) if result.dtype is wide else result
