"""fft in machine code against NumPy in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hlokit.cpu.kernels.fft.stockham import factors
from hlokit.cpu.kernels.fft.twiddles import roots
from hlokit.cpu.kernels.routine import KERNELS, Call
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target, baseline
from hlokit.ops.fourier import Fft
from hlokit.types.dtype import dtype
from hlokit.types.shape import shape_of
from tests.cpu.native import avx2, host
from tests.cpu.routines import Routines

_WIDE = {"f32": "f64", "f64": "f64", "c64": "c128", "c128": "c128"}
_COMPLEX = {"f32": "c64", "f64": "c128"}
_LENGTHS = [1, 2, 3, 4, 6, 8, 16, 25, 30, 31, 37, 64, 77, 94, 211, 512, 1024]
_SHAPES = [
    ((12, 20), 2),
    ((3, 12, 20), 2),
    ((6, 5, 33), 3),
    ((2, 7, 17, 3), 1),
    ((0, 4), 1),
    ((5, 1040, 3), 2),
    ((1040, 33), 2),
]


def _elements(element: str, sizes: tuple[int, ...]) -> Any:
    random = np.random.default_rng(len(sizes) + sum(sizes))
    values = random.standard_normal(sizes)
    if element[0] == "c":
        values = values + 1j * random.standard_normal(sizes)
    return values.astype(dtype(element).numpy)


def _call(
    kind: str, operand: Any, lengths: tuple[int, ...], target: Target | None = None, strict: bool = False
) -> Call:
    op = Fft(fft_type=kind, fft_length=lengths)  # type: ignore[call-arg]
    shape = shape_of(operand)
    return Call(op, (shape,), (op.infer(shape),), target or host(), strict=strict)


def _check(kind: str, element: str, sizes: tuple[int, ...], rank: int, target: Target | None = None) -> None:
    """`sizes` are those of the real or longer side."""
    operand_sizes = (*sizes[:-1], sizes[-1] // 2 + 1) if kind == "IRFFT" and sizes[-1] else sizes
    operand = _elements(element, operand_sizes)
    call = _call(kind, operand, sizes[-rank:], target)
    routines = Routines(call, KERNELS["fft"])
    wide = dtype(_WIDE[call.results[0].dtype.name])[call.results[0].dimensions]
    expected = call.op.reference(operand.astype(dtype(_WIDE[element]).numpy), wide)  # type: ignore[attr-defined]
    (result,) = routines(operand)
    assert np.array_equal(result, routines(operand, backwards=True)[0])
    size = np.abs(expected).max(initial=0)
    assert (
        np.abs(result - expected).max(initial=0)
        <= (8e-7 if result.dtype.itemsize <= 8 and element in ("f32", "c64") else 2e-15) * size
    )


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("length", _LENGTHS)
def test_lengths(length: int, kind: str) -> None:
    """All radices; rows that fill the lanes, and not."""
    _check(kind, "f32" if kind == "RFFT" else "c64", (19, length), 1)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("wide", [False, True])
def test_types(wide: bool, kind: str) -> None:
    real, complex_ = ("f64", "c128") if wide else ("f32", "c64")
    _check(kind, real if kind == "RFFT" else complex_, (3, 60), 1)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize(("sizes", "rank"), _SHAPES, ids=str)
def test_dimensions(sizes: tuple[int, ...], rank: int, kind: str) -> None:
    _check(kind, "f64" if kind == "RFFT" else "c128", sizes, rank)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("length", [64, 1500, 3000, 2310, 41 * 43, 65536])
def test_split(length: int, kind: str) -> None:
    """Long lines, and few of them, are matrices."""
    _check(kind, "f32" if kind == "RFFT" else "c64", (2, length), 1)


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize("sizes", [(1 << 21,), (2, 4 * 37 * 41 * 43), (37 * 41 * 43,)], ids=str)
def test_three_parts(sizes: tuple[int, ...], kind: str) -> None:
    """Lengths that are no products of two short ones, or whose halves are none."""
    _check(kind, "f32" if kind == "RFFT" else "c64", sizes, 1)


@pytest.mark.parametrize("kind", ["FFT", "IRFFT"])
def test_three_parts_across(kind: str) -> None:
    _check(kind, "c128", (37 * 41 * 43, 3), 2)


@pytest.mark.parametrize("kind", ["FFT", "IRFFT"])
@pytest.mark.parametrize("element", ["c64", "c128"])
@pytest.mark.parametrize("target", [avx2(), baseline("x86-64")], ids=["avx2", "sse2"])
def test_other_targets(target: Target, element: str, kind: str) -> None:
    if not host().triple.startswith("x86_64"):
        pytest.skip("not this machine's")
    _check(kind, element, (9, 30, 36), 2, target)


def test_ends_of_real_spectra() -> None:
    """The imaginary parts of the first element and of the middle one count for nothing."""
    for length in (16, 15):
        spectrum = _elements("c64", (3, length // 2 + 1))
        plain = spectrum.copy()
        plain.imag[:, 0] = 0
        if length % 2 == 0:
            plain.imag[:, -1] = 0
        routines = Routines(_call("IRFFT", spectrum, (length,)), KERNELS["fft"])
        assert np.array_equal(routines(spectrum)[0], routines(plain)[0])


def test_rows_are_apart() -> None:
    """No row touches another one: not by its NaNs, not by its size."""
    rows = _elements("f32", (5, 32))
    alone = Routines(_call("RFFT", rows, (32,)), KERNELS["fft"])(rows)[0]
    rows[1], rows[3] = np.nan, 1e30
    assert np.array_equal(Routines(_call("RFFT", rows, (32,)), KERNELS["fft"])(rows)[0][::2], alone[::2])


@pytest.mark.parametrize("kind", ["FFT", "IFFT", "RFFT", "IRFFT"])
@pytest.mark.parametrize(
    ("sizes", "element", "rank"),
    [
        ((1, 211), "f32", 1),
        ((2, 521), "f32", 1),
        ((19, 521), "f64", 1),
        ((2, 4106), "f32", 1),
        ((10007,), "f32", 1),
        ((521, 3), "f64", 2),
        ((2, 521, 37), "f32", 2),
    ],
    ids=str,
)
def test_chirp(sizes: tuple[int, ...], element: str, rank: int, kind: str) -> None:
    """Lengths with a large prime factor."""
    _check(kind, element if kind == "RFFT" else _COMPLEX[element], sizes, rank)


@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
@pytest.mark.parametrize(
    ("sizes", "element", "target"),
    [
        ((2, 930), "c64", host()),  # 31 x 30: some lanes are idle
        ((3, 4096), "c128", host()),
        ((5, 8192), "c64", host()),
        ((7, 64), "c64", avx2()),
        ((3, 480), "c128", avx2()),
    ],
    ids=str,
)
def test_rows_one_by_one(sizes: tuple[int, ...], element: str, target: Target, kind: str) -> None:
    _check(kind, element, sizes, 1, target)


@pytest.mark.parametrize("target", [avx2(), baseline("x86-64")], ids=["avx2", "sse2"])
def test_chirp_on_other_targets(target: Target) -> None:
    if not host().triple.startswith("x86_64"):
        pytest.skip("not this machine's")
    _check("FFT", "c64", (2, 521, 5), 2, target)


def test_left_to_the_reference() -> None:
    assert KERNELS["fft"](_call("FFT", _elements("c64", (8,)), (8,), strict=True), Module()) is None


@pytest.mark.parametrize("n", [1, 2, 3, 7, 12, 1000, 4096])
def test_roots(n: int) -> None:
    numbers = np.arange(3 * n)
    exact = np.exp(-2j * np.pi * (numbers % n) / n)
    assert np.abs(roots(numbers, n) - exact).max() < 4e-16 * 4
    assert (roots(np.array([0]), n) == 1).all()
    if n % 8 == 0:
        assert (roots(np.arange(4) * n // 4, n) == [1, -1j, -1, 1j]).all()


def test_factors() -> None:
    for n in range(1, 2000):
        found = factors(n)
        assert found is None or np.prod(found, dtype=int) == n
    assert factors(37) is None
