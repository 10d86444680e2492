"""Quantised element types: reading them, and converting between integers and the numbers that they represent."""

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np

from hlokit.builder import elementwise, movement
from hlokit.builder.core import XlaOp
from hlokit.ops.elementwise import RoundNearestEven
from hlokit.stablehlo.tree import Quantized
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DTYPES, DType
from hlokit.types.shape import Shape

_NUMBER = r"[+\-]?(?:[0-9]{1,40}(?:\.[0-9]{0,60})?(?:[eE][+\-]?[0-9]{1,4})?)"
_PAIR = rf"({_NUMBER})(?::([+\-]?[0-9]{{1,18}}))?"
_QUANTIZED = re.compile(
    r"([iu])([0-9]{1,2})(?:<([+\-]?[0-9]{1,19}):([+\-]?[0-9]{1,19})>)?:(\w{1,12})"
    rf"(?::([0-9]{{1,9}}),\{{({_PAIR}(?:,{_PAIR})*)\}}|,({_PAIR}))\Z"
)


def read_quantized(text: str) -> Quantized | None:
    """The type in !quant.uniform<...>; None if it is nothing that this file knows, as scales of blocks."""
    found = _QUANTIZED.match(re.sub(r"\s", "", text))
    if found is None:
        return None
    sign, bits = found[1], int(found[2])
    storage = DTYPES.get(f"{'s' if sign == 'i' else 'u'}{bits}")
    expressed = DTYPES.get(found[5].lower())
    if storage is None or expressed is None or not expressed.is_floating or not 2 <= bits <= 32:
        return None
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if sign == "i" else (0, (1 << bits) - 1)
    low, high = int(found[3] or least), int(found[4] or most)
    axis = None if found[6] is None else int(found[6])
    pairs = re.findall(_PAIR, found[7] if found[6] is not None else found[12])
    scales = tuple(float(scale) for scale, _ in pairs)
    zeros = tuple(int(zero or 0) for _, zero in pairs)
    if not least <= low < high <= most or not all(low <= zero <= high for zero in zeros):
        return None
    if not all(0 < scale < math.inf for scale in scales):
        return None
    return Quantized(storage, expressed, low, high, scales, zeros, axis)


def has_fitting_scales(element: Quantized) -> bool:
    """Whether the expressed type has numbers as small and as large as the scales."""
    finfo: Any = ml_dtypes.finfo  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    limits = finfo(element.expressed.numpy)
    return all(float(limits.smallest_subnormal) <= scale <= float(limits.max) for scale in element.scales)


def fits_axis(shape: Shape, element: Quantized) -> bool:
    """Whether the axis is one of the shape's, with a scale for each of its indices."""
    axis = element.axis
    return axis is None or (axis < shape.rank and shape.dimensions[axis] == len(element.scales))


def same_but_axis(a: Quantized, b: Quantized) -> bool:
    """The same integers stand for the same numbers, where each has one pair or as many."""
    return (a.storage, a.expressed, a.scales, a.zero_points) == (b.storage, b.expressed, b.scales, b.zero_points)


def dequantized(value: XlaOp, element: Quantized) -> XlaOp:
    """(q - zero_point) * scale: the difference exactly, the rest in the expressed type."""
    wide = dtypes.s32 if element.storage.bits <= 16 else dtypes.s64
    difference = elementwise.convert_element_type(value, wide)
    if any(element.zero_points):
        difference = elementwise.sub(difference, _spread(value, element, element.zero_points, wide))
    number = elementwise.convert_element_type(difference, element.expressed)
    return elementwise.mul(number, _spread(value, element, element.scales, element.expressed))


def quantized(value: XlaOp, element: Quantized) -> XlaOp:
    """round_nearest_even(clamp(low, x / scale + zero_point, high)), in the expressed type."""
    expressed = element.expressed
    if value.dtype is not expressed:
        value = elementwise.convert_element_type(value, expressed)
    scaled = elementwise.div(value, _spread(value, element, element.scales, expressed))
    if any(element.zero_points):
        scaled = elementwise.add(scaled, _spread(value, element, element.zero_points, expressed))
    low, high = (value.builder.constant(number, expressed) for number in (element.low, element.high))
    rounded = value.builder.emit(RoundNearestEven(), [elementwise.clamp(low, scaled, high)])
    return elementwise.convert_element_type(rounded, element.storage)


def _spread(value: XlaOp, element: Quantized, numbers: tuple[Any, ...], dtype: DType) -> XlaOp:
    """One number, or those of the axis, in all of the value's dimensions."""
    sizes = value.shape.dimensions
    if element.axis is None:
        return movement.broadcast_in_dim(value.builder.constant(numbers[0], dtype), sizes, ())
    vector = value.builder.constant(np.array(numbers), dtype)
    return movement.broadcast_in_dim(vector, sizes, (element.axis,))
