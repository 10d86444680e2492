"""One small program of each family of kernels, on each target that this machine can run, against the interpreter.

`make test-targets` runs all tests of machine code on each.
"""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest

import hlokit as hk
from tests.fuzz.properties import leaves
from tests.targets import targets

CALLED = {
    name: f"{name} {{ a = TYPE[] parameter(0)\n  b = TYPE[] parameter(1)\n  ROOT r = {result}[] {op} }}"
    for name, result, op in (
        ("add", "TYPE", "add(a, b)"),
        ("most", "TYPE", "maximum(a, b)"),
        ("below", "pred", "compare(a, b), direction=LT"),
    )
}
PLAIN = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
ALONG = "lhs_contracting_dims={1}, rhs_contracting_dims={1}"

FAMILIES: dict[str, tuple[str, str]] = {
    "arithmetic": ("f32 f64 f16 bf16 s8 s32 u64", "TYPE[5,37] add(multiply(TYPE[5,37] p0, TYPE[5,37] p1), p0)"),
    "small floats": ("f8e4m3fn f8e5m2 f4e2m1fn", "f32[3,37] convert(TYPE[3,37] p0)"),
    "to small floats": ("f32", "f8e4m3fn[3,37] convert(f32[3,37] p0)"),
    "to halves": ("f32 f64", "f16[3,37] convert(TYPE[3,37] p0)"),
    "integers": ("f32 f16", "s32[3,37] convert(TYPE[3,37] p0)"),
    "rounding": ("f32 f64 f16", "TYPE[3,37] floor(TYPE[3,37] p0)"),
    "exponentials": ("f32 f64 bf16", "TYPE[3,37] exponential(tanh(TYPE[3,37] p0))"),
    "logarithms": ("f32 f64", "TYPE[3,37] log(abs(TYPE[3,37] p0))"),
    "angles": ("f32 f64", "TYPE[3,37] sine(TYPE[3,37] p0)"),
    "powers": ("f32", "TYPE[3,37] power(abs(TYPE[3,37] p0), TYPE[3,37] p1)"),
    "remainders": ("f32 f64 s32", "TYPE[3,37] remainder(TYPE[3,37] p0, TYPE[3,37] p1)"),
    "roots": ("f32 f64", "TYPE[3,37] rsqrt(abs(TYPE[3,37] p0))"),
    "complex numbers": ("c64", "TYPE[3,37] multiply(TYPE[3,37] p0, TYPE[3,37] p1)"),
    "transposition": ("f32 s8 f64", "TYPE[19,33] transpose(TYPE[33,19] p0), dimensions={1,0}"),
    "rows' sums": ("f32 bf16 s32", "TYPE[5] reduce(TYPE[5,70] p0, TYPE[] zero), dimensions={1}, to_apply=add"),
    "columns' largest": ("f32 s8", "TYPE[70] reduce(TYPE[5,70] p0, TYPE[] zero), dimensions={0}, to_apply=most"),
    "windows": (
        "f32",
        "TYPE[3,35] reduce-window(TYPE[3,37] p0, TYPE[] zero), window={size=1x3}, to_apply=most",
    ),
    "gather": (
        "f32 s8",
        "TYPE[9,3] gather(TYPE[20,3] p0, s32[9] p1), offset_dims={1}, collapsed_slice_dims={0},"
        " start_index_map={0}, index_vector_dim=1, slice_sizes={1,3}",
    ),
    "scatter": (
        "s32",
        "TYPE[20] scatter(TYPE[20] p0, s32[9,1] p1, TYPE[9] p2), update_window_dims={}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    ),
    "products": ("f32 f64 f16 bf16 c64 f8e4m3fn s32", f"TYPE[20,37] dot(TYPE[20,65] p0, TYPE[65,37] p1), {PLAIN}"),
    "products of bytes": ("s8 u8", f"s32[20,37] dot(TYPE[20,130] p0, TYPE[130,37] p1), {PLAIN}"),
    "products of shorts": ("s16", f"s32[20,37] dot(TYPE[20,66] p0, TYPE[66,37] p1), {PLAIN}"),
    "products to f32": ("bf16", f"f32[20,37] dot(TYPE[20,130] p0, TYPE[130,37] p1), {PLAIN}"),
    "rows' products": ("f32 bf16 s8", f"TYPE[2,37] dot(TYPE[2,130] p0, TYPE[37,130] p1), {ALONG}"),
    "ragged products": (
        "f32 bf16",
        "TYPE[20,17] ragged-dot(TYPE[20,33] p0, TYPE[2,33,17] p1, s32[2] p2), lhs_contracting_dims={1},"
        " rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}",
    ),
    "convolutions": (
        "f32 bf16 s32",
        "TYPE[1,12,12,20] convolution(TYPE[1,12,12,8] p0, TYPE[3,3,8,20] p1), window={size=3x3 pad=1_1x1_1},"
        " dim_labels=b01f_01io->b01f",
    ),
    "convolutions of bytes": (
        "s8",
        "s32[1,12,12,20] convolution(TYPE[1,12,12,8] p0, TYPE[3,3,8,20] p1), window={size=3x3 pad=1_1x1_1},"
        " dim_labels=b01f_01io->b01f",
    ),
    "depthwise convolutions": (
        "f32",
        "TYPE[1,12,12,32] convolution(TYPE[1,12,12,32] p0, TYPE[3,3,1,32] p1), window={size=3x3 pad=1_1x1_1},"
        " dim_labels=b01f_01io->b01f, feature_group_count=32",
    ),
    "sorts": ("f32 s32 s64 f16 u8", "TYPE[3,130] sort(TYPE[3,130] p0), dimensions={1}, to_apply=below"),
    "sorts of columns": ("f32", "TYPE[40,9] sort(TYPE[40,9] p0), dimensions={0}, to_apply=below"),
    "largest": ("f32 s32", "(TYPE[3,5], s32[3,5]) topk(TYPE[3,130] p0), k=5, largest=true"),
    "Fourier transforms": ("c64", "TYPE[3,60] fft(TYPE[3,60] p0), fft_type=FFT, fft_length={60}"),
    "transforms of primes": ("c64", "TYPE[2,101] fft(TYPE[2,101] p0), fft_type=FFT, fft_length={101}"),
    "real transforms": ("f32", "c64[2,33] fft(TYPE[2,64] p0), fft_type=RFFT, fft_length={64}"),
    "Cholesky factors": ("f32 f64", "TYPE[2,37,37] cholesky(TYPE[2,37,37] p0), lower=true"),
    "triangular systems": (
        "f32 f64",
        "TYPE[37,9] triangular-solve(TYPE[37,37] p0, TYPE[37,9] p1), left_side=true, lower=true, unit_diagonal=false,"
        " transpose_a=NO_TRANSPOSE",
    ),
    "random bits": ("u64", "(TYPE[2], u32[100]) rng-bit-generator(TYPE[2] p0), algorithm=rng_philox"),
    "Threefry": ("u64", "(TYPE[2], u32[100]) rng-bit-generator(TYPE[2] p0), algorithm=rng_three_fry"),
}


def program(type: str, body: str) -> hk.HloModule:
    """The text with its typed operands as parameters, and operands that are ops as instructions of their own."""
    body = body.replace("TYPE", type)
    kinds = {name: shape for shape, name in re.findall(r"(\w+\[[\d,]*\]) (p\d|zero)", body)}
    lines = [f"  {name} = {shape} parameter({name[1]})" for name, shape in sorted(kinds.items()) if name != "zero"]
    if "zero" in kinds:
        lines.append(f"  zero = {kinds['zero']} constant(0)")
    body = re.sub(r"\w+\[[\d,]*\] (p\d|zero)", r"\1", body)
    shape = re.match(r"\(.*?\]\)|\w+\[[\d,]*\]", body)
    assert shape is not None
    number = 0
    while inner := re.search(r"(?<=[(])(\w+)\((p\d(?:, p\d)*)\)", body):
        lines.append(f"  v{number} = {shape[0]} {inner[0]}")
        body = body[: inner.start()] + f"v{number}" + body[inner.end() :]
        number += 1
    called = [text.replace("TYPE", type) for name, text in CALLED.items() if f"to_apply={name}" in body]
    text = "\n".join([*called, "ENTRY e {", *lines, f"  ROOT r = {body}", "}"])
    return hk.parse(f"HloModule m\n{text}")


def numbers(shape: hk.Shape, source: np.random.Generator) -> np.ndarray:
    """Small ones; matrices of systems are positive definite."""
    if shape.dimensions[-2:] == (37, 37):
        matrix = source.normal(0, 1, shape.dimensions)
        return (matrix @ np.swapaxes(matrix, -1, -2) + 37 * np.eye(37)).astype(shape.dtype.numpy)
    if shape.dtype.is_integral:
        low = 0 if shape.dtype.kind == "unsigned" else -5
        return source.integers(low, 6, shape.dimensions).astype(shape.dtype.numpy)
    values = source.normal(0, 2, shape.dimensions)
    if shape.dtype.is_complex:
        values = values + 1j * source.normal(0, 2, shape.dimensions)
    return values.astype(shape.dtype.numpy)


TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "c64": 2e-5, "f16": 4e-3, "bf16": 3e-2}
"""Of the largest element; types that are not here must be equal."""


@cache
def case(family: str, type: str) -> tuple[hk.HloModule, list[np.ndarray], list[np.ndarray]]:
    """The program, its arguments, and what the interpreter makes of them."""
    module, source = program(type, FAMILIES[family][1]), np.random.default_rng(7)
    given = [numbers(p.shape, source) for p in module.entry.parameters]
    with np.errstate(all="ignore"):
        return module, given, leaves(hk.evaluate(module, *given))


def apart(got: np.ndarray, want: np.ndarray) -> bool:
    if got.dtype != want.dtype or got.shape != want.shape:
        return True
    name = str(hk.dtype(got.dtype))
    if name not in TOLERANCE:
        return got.tobytes() != want.tobytes()
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in (got, want)]
    size = np.max(np.abs(wide[1]), initial=0.0, where=np.isfinite(wide[1]))
    return not np.allclose(*wide, rtol=TOLERANCE[name], atol=TOLERANCE[name] * size, equal_nan=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("target", [name for name in targets() if name != "host"])
def test_a_family(target: str, family: str) -> None:
    found: list[str] = []
    for type in FAMILIES[family][0].split():
        module, given, expected = case(family, type)
        result = leaves(hk.compile(module, target=targets()[target])(*given))
        found += [type for got, want in zip(result, expected, strict=True) if apart(got, want)]
    assert not found
