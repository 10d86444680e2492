"""What the tests of elementwise rules share: values of any element type, one-op programs, and exact comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.types.shape import Shape

inf, nan = np.inf, np.nan


def array(element_type: str, values: Any) -> np.ndarray[Any, Any]:
    """`values` in this element type, integers modulo its width."""
    target = hk.dtype(element_type)
    if target.is_integral:
        carrier = np.int64 if target.is_signed else np.uint64
        return np.asarray(values, carrier).astype(target.numpy)
    return np.asarray(values).astype(target.numpy)


def bits(element_type: str, patterns: Any) -> np.ndarray[Any, Any]:
    """The elements with these bits."""
    storage = hk.dtype(element_type).numpy
    return np.asarray(patterns, f"u{storage.itemsize}").view(storage)


def evaluate(
    function: str | Callable[..., Any], *inputs: Any, shapes: Sequence[Shape] | None = None, **options: Any
) -> Any:
    """The value of a program of one op function (of hlokit, by name) on these arrays."""
    op = getattr(hk, function) if isinstance(function, str) else function
    builder = hk.Builder("test")
    shapes = shapes or [hk.dtype(i.dtype)[i.shape] for i in inputs]
    parameters = [builder.parameter(n, shape) for n, shape in enumerate(shapes)]
    with np.errstate(all="ignore"):
        return hk.evaluate(builder.build(op(*parameters, **options)), *inputs)


def infer(function: str | Callable[..., Any], *shapes: Shape, **options: Any) -> Shape:
    """The shape of an op function's result on parameters of these shapes."""
    op = getattr(hk, function) if isinstance(function, str) else function
    builder = hk.Builder("test")
    return op(*(builder.parameter(n, shape) for n, shape in enumerate(shapes)), **options).shape


def assert_same(got: Any, want: Any) -> None:
    """Same type, sizes, values and signs of zeros; NaNs agree."""
    assert got.dtype == want.dtype and got.shape == want.shape, (
        f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    )
    got, want = _comparable(got), _comparable(want)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind in "fc":
        for part in (np.real, np.imag):
            zeros = part(want) == 0
            np.testing.assert_array_equal(np.signbit(part(got))[zeros], np.signbit(part(want))[zeros], "signs of zeros")


def assert_close(got: Any, want: Any, rtol: float = 1e-6) -> None:
    """Within `rtol`; infinities, NaNs and signs of zeros exactly."""
    assert got.dtype == want.dtype and got.shape == want.shape
    got, want = _comparable(got), _comparable(want)
    np.testing.assert_allclose(got, want, rtol=rtol, atol=0)
    zeros = want == 0
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got)[zeros], np.signbit(want)[zeros], "signs of zeros")


def _comparable(values: Any) -> np.ndarray[Any, Any]:
    element = hk.dtype(values.dtype)
    if element.is_floating:
        return values.astype(np.float64)
    return values.astype(np.int64 if element.is_signed else np.uint64) if element.is_integral else values
