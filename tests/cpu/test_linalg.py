"""Cholesky and triangular solve in machine code against the reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hlokit.cpu.kernels.cholesky import cholesky
from hlokit.cpu.kernels.routine import Call, Routine
from hlokit.cpu.kernels.triangular_solve import triangular_solve
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target
from hlokit.ops.linalg import TRANSPOSES, Cholesky, TriangularSolve
from hlokit.types.dtype import dtype
from hlokit.types.shape import Shape, shape_of
from tests.cpu.native import Native, avx2, host

TYPES = ["f32", "f64", "c64", "c128"]
TARGETS = {"host": host, "avx2": avx2}
PRECISION = {"f32": 1e-4, "c64": 1e-4, "f64": 1e-12, "c128": 1e-12}


class Compiled:
    """A routine's machine code."""

    def __init__(self, call: Call, make: Any) -> None:
        module = Module()
        routine = make(call, module)
        assert isinstance(routine, Routine)
        self.routine, self.results = routine, call.results
        self.text = module.text()
        self.native = Native(self.text, call.target)

    def __call__(self, *operands: Any, backwards: bool = False) -> list[Any]:
        """The results, with the chunks in order, two at a time, or backwards and one at a time."""
        results = [np.full(s.dimensions, 77, s.dtype.numpy) for s in self.results]
        scratch = np.full(self.routine.scratch + 64, 0xC1, np.uint8)
        arrays = [*map(np.ascontiguousarray, operands), *results]
        aligned = -scratch.ctypes.data % 64
        table = np.array([*(a.ctypes.data for a in arrays), scratch.ctypes.data + aligned], np.uint64)
        for phase in self.routine.phases:
            step = 1 if backwards else 2
            chunks = range(0, phase.chunks, step)
            for begin in reversed(chunks) if backwards else chunks:
                self.native(phase.function, table, begin, min(begin + step, phase.chunks))
        return results


def shapes(*arrays: Any) -> tuple[Shape, ...]:
    return tuple(shape_of(a) for a in arrays)


def random_array(element: str, *sizes: int) -> Any:
    random = np.random.default_rng(sum(sizes))
    real = random.normal(size=sizes)
    values = real + 1j * random.normal(size=sizes) if element.startswith("c") else real
    return values.astype(dtype(element).numpy)


def assert_near(got: Any, wanted: Any, element: str) -> None:
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    scale = np.abs(wanted).max() if wanted.size else 0
    np.testing.assert_allclose(got, wanted, 0, PRECISION[element] * max(1, scale))


def system(element: str, size: int, batch: tuple[int, ...] = ()) -> Any:
    """Triangles whose inverses are of moderate size."""
    return random_array(element, *batch, size, size) / size + 2 * np.eye(size, dtype=dtype(element).numpy)


def solver(a: Any, b: Any, target: Target, **attributes: Any) -> tuple[TriangularSolve, Compiled]:
    op = TriangularSolve(**attributes)
    return op, Compiled(Call(op, shapes(a, b), shapes(b), target), triangular_solve)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transpose", TRANSPOSES)
def test_triangular_solve_in_every_way(element: str, target: str, transpose: str) -> None:
    size, count = 13, 5
    a = system(element, size, (2,))
    for left, lower, unit in itertools.product((False, True), repeat=3):
        b = random_array(element, 2, *((size, count) if left else (count, size)))
        op, compiled = solver(
            a, b, TARGETS[target](), left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose
        )
        assert_near(compiled(a, b)[0], op.reference(a, b), element)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize(("size", "count"), [(1, 1), (8, 48), (48, 49), (150, 100), (300, 1), (5, 200), (0, 3), (3, 0)])
def test_triangular_solve_of_sizes(element: str, size: int, count: int) -> None:
    a, b = system(element, size), random_array(element, size, count)
    op, compiled = solver(a, b, host(), left_side=True, lower=True)
    (x,) = compiled(a, b)
    assert_near(x, op.reference(a, b), element)
    assert compiled(a, b, backwards=True)[0].tobytes() == x.tobytes()


@pytest.mark.parametrize("element", TYPES)
def test_the_other_triangle_is_not_read(element: str) -> None:
    size = 60
    a, b = system(element, size), random_array(element, size, 3)
    a[np.triu_indices(size, 1)] = np.nan
    op, compiled = solver(a, b, host(), left_side=True, lower=True)
    assert_near(compiled(a, b)[0], op.reference(a, b), element)


@pytest.mark.parametrize("element", ["f32", "f64", "c64", "c128"])
@pytest.mark.parametrize("size", [1e-42, 1e-37, 1e37, np.inf])
def test_diagonals_out_of_the_ordinary(element: str, size: float) -> None:
    a = np.diag([size, 1]).astype(dtype(element).numpy)
    b = np.array([[size], [1]]).astype(a.dtype) if np.isfinite(size) else np.ones((2, 1), a.dtype)
    _, compiled = solver(a, b, host(), left_side=True, lower=True)
    np.testing.assert_allclose(compiled(a, b)[0], [[1 if np.isfinite(size) else 0], [1]], 1e-5)


def definite(element: str, size: int, batch: tuple[int, ...] = ()) -> Any:
    a = random_array(element, *batch, size, size)
    identity = np.eye(size, dtype=a.dtype)
    return a @ a.conj().swapaxes(-1, -2) / max(1, size) + identity


def factorizer(a: Any, lower: bool, target: Target) -> tuple[Cholesky, Compiled]:
    op = Cholesky(lower)
    return op, Compiled(Call(op, shapes(a), shapes(a), target), cholesky)


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(("size", "batch"), [(1, ()), (13, (3,)), (48, ()), (110, ()), (65, (5,))])
def test_cholesky(element: str, target: str, lower: bool, size: int, batch: tuple[int, ...]) -> None:
    a = definite(element, size, batch)
    read = (np.tril if lower else np.triu)(a)
    other = np.where(read == a, a, np.nan)
    op, compiled = factorizer(a, lower, TARGETS[target]())
    (factor,) = compiled(other)
    assert_near(factor, op.reference(a), element)
    assert compiled(other, backwards=True)[0].tobytes() == factor.tobytes()


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("size", [3, 70])
@pytest.mark.parametrize("batch", [2, 40])
def test_a_matrix_without_factor_is_nan(element: str, size: int, batch: int) -> None:
    a = definite(element, size, (batch,))
    a[1, size - 1, size - 1] = -1
    a[0, 2, 1] = np.nan
    op, compiled = factorizer(a, True, host())
    (factor,) = compiled(a)
    assert np.isnan(factor[:2]).all()
    assert_near(factor[2:], op.reference(a)[2:], element)


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 0)])
def test_cholesky_of_nothing(sizes: tuple[int, ...]) -> None:
    a = np.zeros(sizes, np.float32)
    _, compiled = factorizer(a, True, host())
    assert compiled(a)[0].shape == sizes
