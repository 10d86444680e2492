"""Small programs for tests of rules: build one over some arrays and run it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.types.shape import shape_of


def run(program: Callable[..., Any], *arguments: Any) -> Any:
    """The value of `program(*handles)` on the arguments, whose types and sizes are the parameters'."""
    arrays = [np.asarray(a) for a in arguments]
    b = hk.Builder("test")
    parameters = [b.parameter(i, shape_of(a)) for i, a in enumerate(arrays)]
    return hk.evaluate(b.build(program(*parameters)), *arrays)


def shape(program: Callable[..., Any], *parameters: hk.Shape) -> hk.Shape:
    """The inferred shape of `program(*handles)`."""
    b = hk.Builder("test")
    return program(*(b.parameter(i, p) for i, p in enumerate(parameters))).shape


def f32(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value, np.float32)


def s32(value: Any) -> np.ndarray[Any, Any]:
    return np.asarray(value, np.int32)


def same(got: Any, expected: Any, rtol: float = 0.0) -> None:
    """Equal dtype (where `expected` has one), shape and values; tuples element by element."""
    if isinstance(expected, tuple):
        assert isinstance(got, tuple) and len(got) == len(expected)
        for part, wanted in zip(got, expected, strict=True):
            same(part, wanted, rtol)
        return
    if isinstance(expected, np.ndarray):
        assert got.dtype == expected.dtype
    wanted = np.asarray(expected)
    assert got.shape == wanted.shape
    numbers = [np.asarray(a, np.float64) if a.dtype.kind not in "c" else a for a in (got, wanted)]
    np.testing.assert_allclose(*numbers, rtol=rtol)
