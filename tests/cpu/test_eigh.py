"""Eigenvectors of symmetric matrices in machine code against LAPACK's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.cpu.costs import EIGH_ROWS
from hlokit.cpu.jit.objects import compile_object
from hlokit.cpu.kernels.linalg.divide import LEAF
from hlokit.cpu.kernels.linalg.lapack import lapack
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target, baseline, host
from hlokit.interpreter.process import Process
from hlokit.types.shape import shape_of
from tests.cpu.native import avx2
from tests.cpu.test_lapack import call_of, config_of, lapack_calls, run
from tests.fuzz.guard import guarded


def sse() -> Target:
    if host().arch != "x86_64":
        pytest.skip("not this machine's")
    return baseline("x86-64")


EPSILON = {np.dtype(np.float32): 1.2e-7, np.dtype(np.float64): 2.3e-16}


def program(a: Any, upper: bool, mode: str = "V") -> str:
    kind, letter = shape_of(a).dtype, "s" if a.dtype == np.float32 else "d"
    results = f"({shape_of(a)}, {kind[a.shape[:-1]]}, {hk.s32[a.shape[:-2]]})"
    config = f"{{mode = {ord(mode)} : ui8, uplo = {ord('U' if upper else 'L')} : ui8}}"
    attributes = f'custom_call_target="lapack_{letter}syevd_ffi", api_version=API_VERSION_TYPED_FFI'
    root = f'ROOT r = {results} custom-call(p), {attributes}, backend_config="{config}"'
    return f"HloModule m\n\nENTRY e {{\n  p = {shape_of(a)} parameter(0)\n  {root}\n}}\n"


def solved(a: Any, upper: bool = False, target: Target | None = None) -> tuple[list[Any], list[Any]]:
    """(vectors, values, info) of machine code, whose other triangle is spoilt, and of LAPACK."""
    (instruction,) = lapack_calls(program(a, upper))
    call = replace(call_of(instruction), target=target or host())
    wanted = instruction.op.reference(
        a, shape=instruction.shape, process=Process(), backend_config=config_of(instruction)
    )
    spoilt = np.where(np.tri(a.shape[-1], k=-1, dtype=bool) == upper, np.nan, a)
    spoilt = np.where(np.eye(a.shape[-1], dtype=bool), a, spoilt).astype(a.dtype)
    got = run(call, [spoilt], fill=0xFF)
    again = run(call, [spoilt], backwards=True)
    assert [x.tobytes() for x in got] == [x.tobytes() for x in again]
    return got, list(wanted)


def errors(a: Any, vectors: Any, values: Any) -> tuple[float, float]:
    """|A V - V w| / |A| and |V^T V - 1|, both Frobenius norms, by the square root of n."""
    a, vectors, values = (x.astype(np.float64) for x in (a, vectors, values))
    a, values = a / (scale := np.abs(a).max() or 1.0), values / scale
    residual = np.linalg.norm(a @ vectors - vectors * values) / max(1.0, np.abs(values).max())
    return residual / len(a) ** 0.5, float(np.linalg.norm(vectors.T @ vectors - np.eye(len(a)))) / len(a) ** 0.5


def check(a: Any, got: list[Any], wanted: list[Any]) -> None:
    """As good as LAPACK's within a factor of two."""
    n, epsilon = a.shape[-1], EPSILON[a.dtype]
    for mine, theirs, x in zip(zip(*got, strict=True), zip(*wanted, strict=True), a, strict=True):
        assert mine[2] == theirs[2] == 0
        assert (np.diff(mine[1]) >= 0).all()
        np.testing.assert_allclose(mine[1], theirs[1], 0, 4 * n**0.5 * epsilon * np.abs(theirs[1]).max())
        for error, bound in zip(errors(x, *mine[:2]), errors(x, *theirs[:2]), strict=True):
            assert error <= 2 * bound + 4 * epsilon, (error, bound)


def symmetric(*sizes: int, seed: int = 0) -> Any:
    a = np.random.default_rng(seed).normal(size=sizes)
    return a + a.swapaxes(-1, -2)


@pytest.mark.parametrize(
    ("sizes", "element", "target", "upper"),
    [
        ((1, 65, 65), np.float32, host, False),
        ((1, 97, 97), np.float64, host, True),
        ((2, 133, 133), np.float32, host, False),
        ((5, 70, 70), np.float32, host, True),
        ((1, 144, 144), np.float32, host, True),
        ((1, 261, 261), np.float32, host, False),
        ((1, 135, 135), np.float64, avx2, False),
        ((4, 67, 67), np.float32, avx2, True),
        ((1, 131, 131), np.float32, sse, True),
        ((1, 66, 66), np.float64, sse, False),
    ],
)
def test_random_matrices(sizes: tuple[int, ...], element: Any, target: Any, upper: bool) -> None:
    a = symmetric(*sizes).astype(element)
    check(a, *solved(a, upper, target()))


def of_values(values: Any) -> Any:
    """A matrix with these eigenvalues."""
    q, _ = np.linalg.qr(symmetric(len(values), len(values)))
    a = (q * values) @ q.T
    return (a + a.T) / 2


def wilkinson(n: int) -> Any:
    beside = np.ones(n - 1)
    return np.diag(np.abs(np.arange(n) - n // 2).astype(float)) + np.diag(beside, 1) + np.diag(beside, -1)


N = 133
UNUSUAL = {
    "zero": np.zeros((N, N)),
    "identity": np.eye(N),
    "diagonal": np.diag(np.random.default_rng(1).normal(size=N)),
    "rank one": np.outer(np.arange(N) - 3.0, np.arange(N) - 3.0),
    "clustered": of_values(np.repeat([1.0, 1 + 1e-6, 2.0, -3.0], [40, 40, 50, 3])),
    "graded": symmetric(N, N) * np.geomspace(1, 1e-8, N)[:, None] * np.geomspace(1, 1e-8, N),
    "graded down": symmetric(N, N) * np.geomspace(1e-8, 1, N)[:, None] * np.geomspace(1e-8, 1, N),
    "tridiagonal": np.triu(np.tril(symmetric(N, N), 1), -1),
    "wilkinson": wilkinson(N),
    "blocks": np.kron(np.eye(N // 7), symmetric(7, 7)),
    "two values": np.eye(N) - 2 * np.outer(np.ones(N), np.ones(N)) / N,
    "hilbert": 1 / (np.arange(N)[:, None] + np.arange(N) + 1.0),
    "one element": np.where(np.arange(N * N).reshape(N, N) == 3 * N + 3, 5.0, 0.0),
    "far corner": np.fliplr(np.diag(np.where(np.arange(N) % (N - 1) == 0, 2.0, 0.0))),
}


@pytest.mark.parametrize("element", [np.float32, np.float64])
@pytest.mark.parametrize("name", UNUSUAL)
def test_unusual_matrices(name: str, element: Any) -> None:
    a = UNUSUAL[name].astype(element)[None]
    check(a, *solved(a))


def test_reflectors_of_one_direction() -> None:
    """Rounding that is the same everywhere leaves a matrix of ones, times rounding: all reflectors are about equal."""
    for element in (np.float32, np.float64):
        a = np.ones((1, N, N), element)
        got, wanted = solved(a)
        np.testing.assert_allclose(got[1], wanted[1], 0, N * EPSILON[a.dtype] * N)
        assert max(errors(a[0], got[0][0], got[1][0])) < 32 * EPSILON[a.dtype]


@pytest.mark.parametrize(("element", "factors"), [(np.float32, (1e-44, 1e-36, 1e36)), (np.float64, (5e-322, 1e306))])
def test_huge_and_tiny_elements(element: Any, factors: tuple[float, ...]) -> None:
    for factor in factors:
        a = (symmetric(1, N, N) * factor).astype(element)
        check(a, *solved(a))


@pytest.mark.parametrize("batch", [2, 5])
@pytest.mark.parametrize("spoil", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_all_of_its_matrix_nan(spoil: float, batch: int) -> None:
    a = symmetric(batch, 80, 80).astype(np.float32)
    a[1, 50, 7] = a[1, 7, 50] = spoil
    got, wanted = solved(a)
    assert np.isnan(got[0][1]).all() and np.isnan(got[1][1]).all() and not got[2].any()
    clean = np.delete(a, 1, 0)
    check(clean, *([np.delete(x, 1, 0) for x in results] for results in (got, wanted)))


def test_what_is_left_to_lapack() -> None:
    """Small and very large matrices, eigenvalues alone."""
    for a, mode in (
        (symmetric(1, LEAF, LEAF), "V"),
        (symmetric(1, 100, 100), "N"),
    ):
        module = Module()
        (instruction,) = lapack_calls(program(a, False, mode))
        assert lapack(call_of(instruction), module) is not None
        assert "hlokit_lapack_dsyevd" in module.external
    (instruction,) = lapack_calls(program(np.zeros((1, EIGH_ROWS + 1, EIGH_ROWS + 1)), False, "V"))
    assert lapack(call_of(instruction), Module()) is None, "LAPACK is called from Python, which hears signals"


def test_scratch_of_batches_is_bounded() -> None:
    """Three matrices to a chunk; four chunks of large ones."""
    (instruction,) = lapack_calls(program(symmetric(129, 66, 66).astype(np.float32), False))
    routine = lapack(call_of(instruction), Module())
    assert routine is not None and [phase.chunks for phase in routine.phases] == [43]
    (instruction,) = lapack_calls(program(np.zeros((50, 1000, 1000)), False))
    routine = lapack(call_of(instruction), Module())
    assert routine is not None and routine.phases[0].chunks == 4 and routine.scratch < 2**29


def test_aarch64_is_assembled() -> None:
    module = Module()
    (instruction,) = lapack_calls(program(symmetric(1, 70, 70), False))
    assert lapack(replace(call_of(instruction), target=baseline("aarch64")), module) is not None
    assert compile_object(module, baseline("aarch64"))[:4] == b"\x7fELF"


@pytest.mark.parametrize("sizes", [(0, 5, 5), (3, 0, 0), (2, 1, 1), (2, 2, 2), (0, 70, 70), (70, 9, 9), (150, 2, 2)])
def test_small_matrices_are_lapacks(sizes: tuple[int, ...]) -> None:
    """The same bytes, by chunks in any order."""
    got, wanted = solved(symmetric(*sizes).astype(np.float32))
    assert [x.tobytes() for x in got] == [x.tobytes() for x in wanted]


@pytest.mark.parametrize("at_end", [False, True])
def test_no_access_outside(at_end: bool) -> None:
    for sizes in ((65, 65), (3, 72, 72), (5, 67, 67)):
        a = symmetric(*sizes).astype(np.float32)
        with guarded(at_end):
            vectors, values, _ = hk.compile(hk.parse(program(a, False)), threads=1)(a)
        with_two = hk.compile(hk.parse(program(a, False)), threads=2)(a)
        assert vectors.tobytes() == with_two[0].tobytes() and values.tobytes() == with_two[1].tobytes()
