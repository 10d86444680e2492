"""The cells of the map: programs of one operation, by what it is, its form and its size.

A cell is a point of its family's grid. An axis whose values are numbers is ordered; the others are kinds. Two cells are
neighbours if they differ in one axis, there by one step where it is ordered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jax, jnp, lax

Value = str | int
Spec = tuple[tuple[int, ...], str] | tuple[tuple[int, ...], str, int]
"""Sizes and type of an argument; of integers that are indices: their bound."""

LARGEST_BYTES = 256 << 20
"""Of arguments and results together."""


@dataclass(frozen=True)
class Cell:
    """A point of a family's grid.

    family     "convolution", "product", ...
    axes       name and value of each coordinate
    function   what is computed, in JAX
    arguments  what of
    flops      arithmetic that no formulation avoids, 2 a multiply-add
    peak       the kind of that arithmetic (limits.PEAKS)
    """

    family: str
    axes: tuple[tuple[str, Value], ...]
    function: Callable[..., Any]
    arguments: tuple[Spec, ...]
    flops: float = 0.0
    peak: str = "f32"

    @property
    def name(self) -> str:
        return f"{self.family}/" + ",".join(f"{name}={value}" for name, value in self.axes)


def sizes(step: int) -> list[int]:
    """Three decades in `step` steps a decade, from 1."""
    return [round(10 ** (power / step)) for power in range(3 * step + 1)]


# Convolutions

FORMS = ("plain", "stride", "dilation", "groups", "depthwise", "batch groups")


def _convolution(form: str, groups: int, x: Any, w: Any) -> Any:
    stride = 2 if form == "stride" else 1
    dilation = 2 if form == "dilation" else 1
    is_batch = form == "batch groups"
    return lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", rhs_dilation=(dilation, dilation), dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=1 if is_batch else groups, batch_group_count=groups if is_batch else 1,
    )  # fmt: skip


def _gradient(form: str, groups: int, of: int, shape: tuple[int, ...], other: Any, result: Any) -> Any:
    """Of the image (0) or the kernel (1), whose shape is `shape`."""

    def forward(value: Any) -> Any:
        return _convolution(form, groups, value, other) if of == 0 else _convolution(form, groups, other, value)

    return jax.linear_transpose(forward, jax.ShapeDtypeStruct(shape, other.dtype))(result)


def convolutions(step: int) -> Iterator[Cell]:
    """Of `size` million flops as nearly as whole images allow, with as many features in as out."""
    fine = step > 1
    for form in FORMS:
        for side in (1, 3, 5, 7) if fine else (1, 3, 7):
            for channels in (1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512) if fine else (1, 3, 8, 32, 128, 512):
                for size in sizes(step):
                    yield from _convolution_cells(form, side, channels, size)


def _convolution_cells(form: str, side: int, channels: int, size: int) -> Iterator[Cell]:
    groups = {"groups": 4, "depthwise": channels, "batch groups": 4}.get(form, 1)
    if form in ("groups", "depthwise", "batch groups") and (channels == 1 or channels % groups):
        return
    stride = 2 if form == "stride" else 1
    deep = channels if form == "batch groups" else channels // groups
    pixels = size * 1e6 / (2 * side * side * deep * channels)  # of results
    batch = 4 * (4 if form == "batch groups" else 1)
    extent = round(math.sqrt(pixels / 4)) * stride
    image = (batch, extent, extent, channels)
    if extent < 4 or math.prod(image) * 8 > LARGEST_BYTES:
        return
    kernel = (side, side, deep, channels)
    result = (4, extent // stride, extent // stride, channels)
    flops = 2.0 * side * side * deep * math.prod(result)
    axes = (("form", form), ("side", side), ("channels", channels), ("size", size))
    f32 = "float32"
    cases: list[tuple[str, Callable[..., Any], tuple[Spec, ...]]] = [
        ("forward", partial(_convolution, form, groups), ((image, f32), (kernel, f32))),
        ("of image", partial(_gradient, form, groups, 0, image), ((kernel, f32), (result, f32))),
        ("of kernel", partial(_gradient, form, groups, 1, kernel), ((image, f32), (result, f32))),
    ]
    for kind, function, arguments in cases:
        yield Cell("convolution", (("kind", kind), *axes), function, arguments, flops)


# Products

TYPES = ("float32", "float64", "bfloat16", "float16", "int8", "int32", "complex64", "complex128")
_PEAKS = {"float64": "f64", "bfloat16": "bf16", "int8": "i8", "complex128": "f64"}


def _product(left: int, right: int, batch: int, wide: Any, a: Any, b: Any) -> Any:
    """left and right: the contracted axis of each after the batch's."""
    offset = 1 if batch else 0
    batched = (0,) if batch else ()
    dimensions = (((left + offset,), (right + offset,)), (batched, batched))
    return lax.dot_general(a, b, dimensions, preferred_element_type=wide)


def products(step: int) -> Iterator[Cell]:
    """size: the root of the elements of rhs, from 3 to 3,000."""
    for kind in ("vector-matrix", "matrix-vector", "thin", "narrow", "square", "batched"):
        for layout in ("nn", "nt", "tn", "tt"):
            for dtype in TYPES if step > 1 or layout == "nn" else ("float32",):
                for size in sizes(step):
                    side = max(2, round(3.2 * size))
                    m, k, n, batch = {
                        "vector-matrix": (1, side, side, 0), "matrix-vector": (side, side, 1, 0),
                        "thin": (16, side, side, 0), "narrow": (side, 16, side, 0), "square": (side, side, side, 0),
                        "batched": (round(side**0.5) * 2, round(side**0.5) * 2, round(side**0.5) * 2, side // 4),
                    }[kind]  # fmt: skip
                    if (kind == "batched" and not batch) or (kind == "square" and size > 320):
                        continue
                    a, left = ((m, k), 1) if layout[0] == "n" else ((k, m), 0)
                    b, right = ((k, n), 0) if layout[1] == "n" else ((n, k), 1)
                    first = (batch,) if batch else ()
                    flops = 2.0 * m * k * n * max(1, batch) * (4 if "complex" in dtype else 1)
                    wide = np.int32 if dtype == "int8" else None
                    axes = (("kind", kind), ("layout", layout), ("type", dtype), ("size", size))
                    yield Cell(
                        "product", axes, partial(_product, left, right, batch, wide),
                        ((first + a, dtype), (first + b, dtype)), flops, _PEAKS.get(dtype, "f32"),
                    )  # fmt: skip


# What memory bounds. size: thousands of elements.


def _shapes(elements: int) -> dict[str, tuple[tuple[int, ...], int]]:
    """A shape and an axis of it, by name."""
    root = round(math.sqrt(elements))
    narrow, wide = 8, elements // 8
    return {
        "all": ((elements,), 0),
        "rows": ((root, root), 1),
        "columns": ((root, root), 0),
        "short rows": ((wide, narrow), 1),
        "long columns": ((wide, narrow), 0),
        "middle": ((narrow, root // 2, max(1, root // 4)), 1),
    }


def _over_axis(name: str, axis: int, x: Any) -> Any:
    if name.startswith("cum"):
        return getattr(lax, name)(x, axis=axis)
    return getattr(jnp, name)(x, axis=axis)


def folds(family: str, functions: Sequence[str], types: Sequence[str]) -> Callable[[int], Iterator[Cell]]:
    """Functions of an array and an axis."""

    def make(step: int) -> Iterator[Cell]:
        for name in functions:
            for dtype in types:
                for size in sizes(step):
                    for shape, (dims, axis) in _shapes(size * 1000).items():
                        axes = (("kind", name), ("type", dtype), ("shape", shape), ("size", size))
                        yield Cell(family, axes, partial(_over_axis, name, axis), ((dims, dtype),))

    return make


def _sort(kind: str, axis: int, x: Any) -> Any:
    if kind == "argsort":
        return jnp.argsort(x, axis=axis)
    if kind == "pairs":
        return lax.sort((x, x + x), dimension=axis, num_keys=2)
    if kind == "top 8":
        return lax.top_k(jnp.moveaxis(x, axis, -1), 8)
    return lax.sort(x, dimension=axis)


def sorts(step: int) -> Iterator[Cell]:
    for kind in ("sort", "argsort", "pairs", "top 8"):
        for dtype in ("float32", "float64", "int32", "int64", "int8", "bfloat16"):
            for size in sizes(step):
                for shape, (dims, axis) in _shapes(size * 1000).items():
                    if shape == "middle" or dims[axis] < 8:
                        continue
                    axes = (("kind", kind), ("type", dtype), ("shape", shape), ("size", size))
                    yield Cell("sort", axes, partial(_sort, kind, axis), ((dims, dtype),))


def _scatter(kind: str, segments: int, x: Any, index: Any) -> Any:
    if kind == "gather":
        return jnp.take(x, index, axis=0)
    if kind == "segment sum":
        return jax.ops.segment_sum(x, index, segments)
    zeros = jnp.zeros((segments, *x.shape[1:]), x.dtype)
    return getattr(zeros.at[index], kind)(x)


def scatters(step: int) -> Iterator[Cell]:
    for kind in ("gather", "segment sum", "set", "add", "max"):
        for dtype in ("float32", "float64", "int32", "bfloat16"):
            for width in (1, 16, 256):
                for size in sizes(step):
                    rows = size * 1000 // width
                    if rows < 4:
                        continue
                    segments = max(2, rows // 4)
                    spec = (rows,) if width == 1 else (rows, width)
                    axes = (("kind", kind), ("type", dtype), ("width", width), ("size", size))
                    bound = rows if kind == "gather" else segments
                    arguments: tuple[Spec, ...] = ((spec, dtype), ((rows,), "int32", bound))
                    yield Cell("scatter", axes, partial(_scatter, kind, segments), arguments)


def _linalg(kind: str, x: Any) -> Any:
    if kind.startswith("fft"):
        return jnp.fft.fft(x, axis=int(kind[-1]))
    if kind == "cholesky":
        return jnp.linalg.cholesky(x @ x.T + 9.0 * jnp.eye(x.shape[0], dtype=x.dtype))
    return jnp.linalg.qr(x)[1]


def linalg(step: int) -> Iterator[Cell]:
    for kind in ("fft 0", "fft 1", "cholesky", "qr"):
        for dtype in ("complex64", "complex128") if kind.startswith("fft") else ("float32", "float64"):
            for size in sizes(step):
                side = round(math.sqrt(size * 1000))
                if kind.startswith("fft"):
                    side = 1 << (side.bit_length() - 1)
                n = float(side)
                flops = {"cholesky": 2 * n**3 + n**3 / 3, "qr": 4 * n**3 / 3}.get(kind, 5 * n * n * math.log2(n))
                axes = (("kind", kind), ("type", dtype), ("size", size))
                peak = _PEAKS.get(dtype, "f64" if dtype == "float64" else "f32")
                yield Cell("linalg", axes, partial(_linalg, kind), (((side, side), dtype),), flops, peak)


FAMILIES: dict[str, Callable[[int], Iterator[Cell]]] = {
    "convolution": convolutions,
    "product": products,
    "reduction": folds("reduction", ("sum", "max", "argmax"), ("float32", "bfloat16", "int32", "complex64")),
    "scan": folds("scan", ("cumsum", "cummax", "cumlogsumexp"), ("float32", "float64", "int32")),
    "sort": sorts,
    "scatter": scatters,
    "linalg": linalg,
}


def cells(step: int) -> list[Cell]:
    """All cells with `step` sizes a decade."""
    return [cell for make in FAMILIES.values() for cell in make(step)]


def drawn(cell: Cell) -> list[Any]:
    """Its arguments, the same at each call."""
    draw = np.random.default_rng(1)
    found: list[Any] = []
    for spec in cell.arguments:
        shape, dtype = spec[:2]
        if len(spec) == 3:
            found.append(draw.integers(0, spec[2], shape).astype(dtype))
        elif dtype.startswith("int"):
            found.append(draw.integers(-100, 100, shape).astype(dtype))
        elif dtype.startswith("complex"):
            found.append((draw.standard_normal(shape) + 1j * draw.standard_normal(shape)).astype(dtype))
        else:
            found.append(draw.standard_normal(shape).astype(getattr(ml_dtypes, dtype, dtype)))
    return found
