"""What the tests of elementwise rules share: values of any element type, one-op programs, and exact comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.types.shape import Shape

inf, nan = np.inf, np.nan

FLOATS = ["f16", "bf16", "f32", "f64", "f8e3m4", "f8e4m3", "f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2"]
FLOATS += ["f8e5m2fnuz", "f8e8m0fnu", "f4e2m1fn", "f6e2m3fn", "f6e3m2fn"]
SIGNED = ["s1", "s2", "s4", "s8", "s16", "s32", "s64"]
UNSIGNED = ["u1", "u2", "u4", "u8", "u16", "u32", "u64"]
COMPLEX = ["c64", "c128"]
PRED = ["pred"]
ALL = FLOATS + SIGNED + UNSIGNED + COMPLEX + PRED


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


def typed(element_type: str, want: Any) -> np.ndarray[Any, Any]:
    return array(*want) if isinstance(want, tuple) else array(element_type, want)


def named(rows: list[Any]) -> list[str]:
    """Test ids: the rule and the rest of what tells rows apart."""
    return [f"{row[0]}: {' '.join(str(part) for part in row[1:3])}" for row in rows]


def parse(line: str, *parameters: str) -> hk.HloModule:
    """The module whose root this line makes of parameters p0, p1, ..."""
    heads = "".join(f"  p{n} = {shape} parameter({n})\n" for n, shape in enumerate(parameters))
    return hk.parse(f"HloModule m\n\nENTRY e {{\n{heads}  ROOT r = {line}\n}}\n")


def root_text(line: str, *parameters: str) -> str:
    return next(text for text in str(parse(line, *parameters)).splitlines() if "ROOT" in text).split(" = ")[1]
