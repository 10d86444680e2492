"""Running one op function in tests: built, evaluated, printed, parsed and evaluated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hlokit as hk

Arrays = Any


def value(function: Callable[..., Any], *arrays: Any, **options: Any) -> Any:
    """What the op function gives for these arrays, both from the builder and through its own text."""
    module = built(function, *(hk.Shape.array(hk.dtype(a.dtype), a.shape) for a in arrays))
    result = hk.evaluate(module, *arrays, **options)
    again = hk.evaluate(hk.parse(str(module)), *arrays, **options)
    for one, other in zip(leaves(result), leaves(again), strict=True):
        assert one.dtype == other.dtype and one.tobytes() == other.tobytes()
    return result


def built(function: Callable[..., Any], *shapes: hk.Shape) -> hk.HloModule:
    b = hk.Builder("t")
    return b.build(function(*(b.parameter(i, shape) for i, shape in enumerate(shapes))))


def from_text(body: str, *arrays: Any, **options: Any) -> Any:
    return hk.evaluate(hk.parse(f"HloModule t\n{body}"), *arrays, **options)


def leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, tuple) else [value]


def f32(*values: Any) -> Arrays:
    return np.array(values, np.float32)


def c64(*values: Any) -> Arrays:
    return np.array(values, np.complex64)


def u64(*values: int) -> Arrays:
    return np.array(values, np.uint64)
