"""Cholesky and triangular solve in machine code against the reference."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from hlokit.cpu.jit.objects import compile_object
from hlokit.cpu.kernels.routine import KERNELS, Call, Routine
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import BASELINES, Target, baseline
from hlokit.ops.linalg import TRANSPOSES, Cholesky, TriangularSolve
from hlokit.types.dtype import dtype
from hlokit.types.shape import Shape, shape_of
from tests.cpu.native import Native, avx2, host

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
        self.native = Native(module, call.target)

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
    return op, Compiled(Call(op, shapes(a, b), shapes(b), target), KERNELS["triangular-solve"])


WAYS = list(itertools.product((False, True), (False, True), (False, True), TRANSPOSES))


@pytest.mark.parametrize(
    ("element", "target", "ways"),
    [
        ("f32", "host", WAYS[::2]),
        ("c64", "host", WAYS[1::2]),
        ("f64", "host", WAYS[::7]),
        ("c128", "host", WAYS[3::7]),
        ("f32", "avx2", WAYS[1::7]),
        ("c128", "avx2", WAYS[2::7]),
    ],
)
def test_triangular_solve_in_every_way(element: str, target: str, ways: list[Any]) -> None:
    size, count = 13, 5
    a = system(element, size, (2,))
    for left, lower, unit, transpose in ways:
        b = random_array(element, 2, *((size, count) if left else (count, size)))
        op, compiled = solver(
            a, b, TARGETS[target](), left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose
        )
        assert_near(compiled(a, b)[0], op.reference(a, b), element)


@pytest.mark.parametrize(
    ("element", "size", "count"),
    [
        ("f32", 1, 1),
        ("f32", 48, 49),
        ("f32", 5, 200),
        ("f32", 0, 3),
        ("c64", 3, 0),
        ("f32", 300, 1),
        ("f64", 512, 330),
        ("f64", 150, 100),
        ("c64", 150, 100),
        ("c128", 150, 20),
    ],
)
def test_triangular_solve_of_sizes(element: str, size: int, count: int) -> None:
    a, b = system(element, size), random_array(element, size, count)
    op, compiled = solver(a, b, host(), left_side=True, lower=True)
    (x,) = compiled(a, b)
    assert_near(x, op.reference(a, b), element)
    assert compiled(a, b, backwards=True)[0].tobytes() == x.tobytes()


@pytest.mark.parametrize(
    ("element", "target", "ways"),
    [
        ("f32", "host", WAYS[::5]),
        ("c64", "host", WAYS[1::5]),
        ("c128", "host", WAYS[2::7]),
        ("f64", "avx2", WAYS[1::7]),
        ("c64", "avx2", WAYS[3::11]),
    ],
)
def test_triangular_solve_in_lanes(element: str, target: str, ways: list[Any]) -> None:
    size, count, batch = 7, 6, (5, 7)
    a = system(element, size, batch)
    for left, lower, unit, transpose in ways:
        b = random_array(element, *batch, *((size, count) if left else (count, size)))
        op, compiled = solver(
            a, b, TARGETS[target](), left_side=left, lower=lower, unit_diagonal=unit, transpose_a=transpose
        )
        (x,) = compiled(a, b)
        assert_near(x, op.reference(a, b), element)
        assert compiled(a, b, backwards=True)[0].tobytes() == x.tobytes()


@pytest.mark.parametrize(("element", "batch"), [("f32", ()), ("c128", ()), ("f32", (20,)), ("c128", (20,))])
def test_the_other_triangle_is_not_read(element: str, batch: tuple[int, ...]) -> None:
    size = 9 if batch else 60
    a, b = system(element, size, batch), random_array(element, *batch, size, 3)
    a[(..., *np.triu_indices(size, 1))] = np.nan
    op, compiled = solver(a, b, host(), left_side=True, lower=True)
    assert_near(compiled(a, b)[0], op.reference(a, b), element)


@pytest.mark.parametrize("element", ["f32", "c64"])
@pytest.mark.parametrize("batch", [1, 20])
@pytest.mark.parametrize("size", [1e-42, 1e-37, 1e37, np.inf])
def test_diagonals_out_of_the_ordinary(element: str, size: float, batch: int) -> None:
    a = np.diag([size, 1]).astype(dtype(element).numpy)
    b = np.array([[size], [1]]).astype(a.dtype) if np.isfinite(size) else np.ones((2, 1), a.dtype)
    a, b = np.stack([a] * batch), np.stack([b] * batch)
    _, compiled = solver(a, b, host(), left_side=True, lower=True)
    np.testing.assert_allclose(compiled(a, b)[0], [[[1 if np.isfinite(size) else 0], [1]]] * batch, 1e-5)


def definite(element: str, size: int, batch: tuple[int, ...] = ()) -> Any:
    a = random_array(element, *batch, size, size)
    identity = np.eye(size, dtype=a.dtype)
    return a @ a.conj().swapaxes(-1, -2) / max(1, size) + identity


def factorizer(a: Any, lower: bool, target: Target) -> tuple[Cholesky, Compiled]:
    op = Cholesky(lower)
    return op, Compiled(Call(op, shapes(a), shapes(a), target), KERNELS["cholesky"])


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
    ("element", "target", "size", "batch"),
    [
        ("f32", "host", 1, ()),
        ("f32", "host", 48, ()),
        ("f32", "host", 110, ()),
        ("f64", "host", 13, (3,)),
        ("f64", "host", 65, (5,)),
        ("c64", "host", 110, ()),
        ("c128", "host", 35, (2, 3)),
        ("f32", "avx2", 65, (2,)),
        ("c64", "avx2", 40, ()),
        # in lanes
        ("f32", "host", 1, (20,)),
        ("f32", "host", 32, (16,)),
        ("f64", "host", 6, (9,)),
        ("c64", "host", 10, (3, 11)),
        ("c128", "host", 5, (4,)),
        ("f64", "avx2", 7, (5,)),
        ("c64", "avx2", 7, (9,)),
    ],
)
def test_cholesky(element: str, target: str, lower: bool, size: int, batch: tuple[int, ...]) -> None:
    a = definite(element, size, batch)
    read = (np.tril if lower else np.triu)(a)
    other = np.where(read == a, a, np.nan)
    op, compiled = factorizer(a, lower, TARGETS[target]())
    (factor,) = compiled(other)
    assert_near(factor, op.reference(a), element)
    assert compiled(other, backwards=True)[0].tobytes() == factor.tobytes()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("target", ["host", "avx2"])
@pytest.mark.parametrize(
    ("element", "size", "batch"), [("f32", 3, 2), ("f64", 70, 2), ("c64", 40, 5), ("f32", 3, 40), ("c128", 10, 4)]
)
def test_a_matrix_without_factor_is_nan(element: str, size: int, batch: int, target: str, lower: bool) -> None:
    a = definite(element, size, (batch,))
    a[1, size - 1, size - 1] = -1
    a[0, 2, 1] = a[0, 1, 2] = np.nan
    op, compiled = factorizer(a, lower, TARGETS[target]())
    (factor,) = compiled(a)
    assert np.isnan(factor[:2]).all()
    assert_near(factor[2:], op.reference(a)[2:], element)
    assert compiled(a, backwards=True)[0].tobytes() == factor.tobytes()


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 0)])
def test_cholesky_of_nothing(sizes: tuple[int, ...]) -> None:
    a = np.zeros(sizes, np.float32)
    _, compiled = factorizer(a, True, host())
    assert compiled(a)[0].shape == sizes


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("element", ["f32", "c128"])
def test_code_is_made_for_every_machine(name: str, element: str) -> None:
    for sizes in ((60, 60), (20, 5, 5)):
        shape = dtype(element)[sizes]
        module = Module()
        assert KERNELS["cholesky"](Call(Cholesky(True), (shape,), (shape,), baseline(name)), module) is not None
        assert (
            KERNELS["triangular-solve"](Call(TriangularSolve(True), (shape, shape), (shape,), baseline(name)), module) is not None
        )
        assert compile_object(module, baseline(name))


def test_what_has_no_code_is_left_to_the_reference() -> None:
    for kind in ("bf16", "f16"):
        shape = dtype(kind)[4, 4]
        assert KERNELS["cholesky"](Call(Cholesky(True), (shape,), (shape,), host()), Module()) is None
        assert KERNELS["triangular-solve"](Call(TriangularSolve(), (shape, shape), (shape,), host()), Module()) is None
    shape = dtype("f32")[4, 4]
    assert KERNELS["cholesky"](Call(Cholesky(True), (shape,), (shape,), host(), strict=True), Module()) is None
