"""Random arrays of every element type, including special values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.hlo.module import HloModule
from hlokit.judge.devices import devices_of
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-3, 100.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3e38)
_INTEGERS = (0, 1, -1, 2, 3, 7, -128, 127, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def random_array(
    source: np.random.Generator, element: DType, sizes: Sequence[int], wild: float = 0.3, denormals: bool = True
) -> Any:
    """An array of the type: small values, and with chance `wild` an element is one of the type's special ones."""
    shape = tuple(sizes)
    if element.kind == "pred":
        return np.asarray(source.integers(0, 2, shape), bool)
    if element.is_complex:
        parts = [random_array(source, element.real, shape, wild, denormals) for _ in range(2)]
        value = np.empty(shape, element.numpy)
        value.real, value.imag = parts
        return value
    special = source.random(shape) < wild
    if element.is_floating:
        plain = np.round(source.normal(0, 2, shape), 2)
        chosen = np.where(special, source.choice(_FLOATS if denormals else _FLOATS[:-2], shape), plain)
        if element is dtypes.f8e8m0fnu:  # no sign, no zero; XLA's text of 2^-127 reads back as 2^-126
            chosen = np.maximum(np.abs(chosen), 2.0**-126)
        with np.errstate(all="ignore"):
            wide = np.asarray(chosen, np.float32 if element.bits < 32 else element.numpy)
            return wide.astype(element.numpy)
    low = 0 if element.kind == "unsigned" else -1 << (element.bits - 1)
    high = (1 << (element.bits - (element.kind == "signed"))) - 1
    wide = np.uint64 if element.kind == "unsigned" else np.int64
    plain = source.integers(max(low, -3), min(high, 6), shape, endpoint=True).astype(wide)
    edges = np.array([min(max(v, low), high) for v in _INTEGERS], wide)
    chosen = np.where(special, edges[source.integers(0, len(edges), shape)], plain)
    return np.asarray(chosen).astype(element.numpy)


def random_value(source: np.random.Generator, shape: Shape, wild: float = 0.3, denormals: bool = True) -> Any:
    """A value of the shape; arrays of full size, also where a dimension is dynamic."""
    if shape.is_tuple:
        return tuple(random_value(source, part, wild, denormals) for part in shape.elements)
    return random_array(source, shape.dtype, shape.dimensions, wild, denormals) if shape.is_array else None


def arguments(module: HloModule, seed: int, wild: float = 0.3, denormals: bool = True) -> list[Any]:
    """One value per parameter of the module; for several devices a list for each."""
    source, count = np.random.default_rng(seed), devices_of(module)
    found = [[random_value(source, p.shape, wild, denormals) for p in module.entry.parameters] for _ in range(count)]
    return found if count > 1 else found[0]
