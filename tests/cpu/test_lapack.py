"""LAPACK custom-calls called from machine code against their handlers in Python."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard

import hlokit as hk
from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.kernels.linalg.lapack import lapack, lapack_address, lapack_symbols
from hlokit.cpu.kernels.routine import Call, Routine
from hlokit.cpu.llvm import Module
from hlokit.cpu.target import Target, host
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter.process import Process
from hlokit.ops.custom_targets.lapack_routines import split_target
from hlokit.types.dtype import dtype
from hlokit.types.shape import shape_of
from tests.cpu.native import avx2
from tests.test_lapack import FOLDER, PROGRAMS, recorded, settled


def lapack_calls(text: str) -> list[Instruction]:
    return [
        i
        for i in hk.parse(text).instructions()
        if i.opcode == "custom-call" and i.op.custom_call_target.startswith("lapack_")
    ]


def config_of(instruction: Instruction) -> str:
    return instruction.extra.backend_config if instruction.extra is not None else ""


def call_of(instruction: Instruction, **options: Any) -> Call:
    results = tuple(leaf for leaf in instruction.shape.leaves())
    operands = tuple(o.shape for o in instruction.operands)
    config = config_of(instruction)
    return Call(instruction.op, operands, results, host(), backend_config=config, **options)


def operands_of(instruction: Instruction) -> list[Any]:
    random = np.random.default_rng(1)
    arrays = []
    for operand in instruction.operands:
        sizes, kind = operand.shape.dimensions, operand.shape.dtype.numpy
        values = random.normal(size=sizes)
        if kind.kind == "c":
            values = values + 1j * random.normal(size=sizes)
        arrays.append(np.zeros(sizes, kind) if kind.kind == "i" else values.astype(kind))
    name = split_target(instruction.op.custom_call_target)[1]
    if name in ("potrf", "trsm"):
        size = arrays[0].shape[-1]
        arrays[0] = arrays[0] / size + 2 * np.eye(size, dtype=arrays[0].dtype)
        if name == "potrf":
            for i in range(size):
                arrays[0][..., i, i] = arrays[0][..., i, i].real
            arrays[0].reshape(-1, size, size)[0, 1, 1] = -1
    return arrays


_LOADED: dict[tuple[str, Target], Library] = {}


def loaded(module: Module, target: Target) -> Library:
    key = module.text(), target
    if key not in _LOADED:
        _LOADED[key] = Library([compile_object(module, target)], lapack_symbols(module))
    return _LOADED[key]


def run(call: Call, operands: list[Any], backwards: bool = False, fill: int = 0xC1) -> list[Any]:
    """The results; `backwards`: the chunks of every phase one by one from the last; fill: the scratch's bytes."""
    module = Module()
    routine = lapack(call, module)
    assert isinstance(routine, Routine)
    library = loaded(module, call.target)
    results = [np.full(s.dimensions, 77, s.dtype.numpy) for s in call.results]
    scratch = np.full(routine.scratch + 64, fill, np.uint8)
    arrays = [*map(np.ascontiguousarray, operands), *results]
    table = np.array([*(a.ctypes.data for a in arrays), scratch.ctypes.data + -scratch.ctypes.data % 64], np.uint64)
    for phase in routine.phases:
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
        written = function(library.address(phase.function))
        for begin in reversed(range(phase.chunks)) if backwards else [0]:
            written(table.ctypes.data, begin, begin + 1 if backwards else phase.chunks)
    return results


def factorization(routine: str, *operands: Any, target: Target | None = None) -> tuple[list[Any], list[Any], Call]:
    """What machine code and SciPy give for getrf, geqrf or orgqr of these operands."""
    a = operands[0]
    batch, (rows, columns) = a.shape[:-2], a.shape[-2:]
    kind, steps = shape_of(a).dtype, min(rows, columns)
    matrix, tau = str(kind[a.shape]), str(kind[(*batch, steps)])
    results = {
        "getrf": f"({matrix}, {dtype('s32')[(*batch, steps)]}, {dtype('s32')[batch]})",
        "geqrf": f"({matrix}, {tau})",
        "orgqr": matrix,
    }[routine]
    name = f"lapack_{'s' if kind.name == 'f32' else 'd'}{routine}_ffi"
    lines = [f"  p{i} = {shape_of(x)} parameter({i})" for i, x in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    attributes = f'custom_call_target="{name}", api_version=API_VERSION_TYPED_FFI'
    lines.append(f"  ROOT r = {results} custom-call({names}), {attributes}")
    (instruction,) = lapack_calls("HloModule m\n\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    call = call_of(instruction)
    if target is not None:
        call = replace(call, target=target)
    expected = instruction.op.reference(*operands, shape=instruction.shape, process=Process(), backend_config="")
    expected = list(expected) if instruction.shape.is_tuple else [expected]
    return run(call, list(operands)), expected, call


SIZES = [
    # in lanes
    ((20, 5, 5), "f32", host),
    ((9, 12, 12), "f64", host),
    ((33, 10, 6), "f32", host),
    ((5, 7, 9), "f64", avx2),
    ((16, 1, 1), "f32", host),
    # by stripes
    ((40, 40), "f32", host),
    ((100, 100), "f32", host),
    ((2, 150, 150), "f64", host),
    ((5, 70, 130), "f32", host),
    ((50, 300), "f32", host),
    ((300, 50), "f64", host),
    ((96, 145), "f32", host),
    ((2, 60, 75), "f64", avx2),
    ((61, 60), "f32", avx2),
    ((1000, 3), "f32", host),
    ((2, 77, 16), "f32", host),
    ((2, 5, 11), "f32", host),
    ((5, 9, 20), "f64", host),
    ((65, 5), "f64", avx2),
]


def normal(sizes: tuple[int, ...], element: str) -> Any:
    return np.random.default_rng(sum(sizes)).normal(size=sizes).astype(dtype(element).numpy)


def tolerance_of(element: str, sizes: tuple[int, ...]) -> float:
    return max(sizes[-2:]) * (1e-6 if element == "f32" else 1e-14) + 1e-6 * (element == "f32")


@pytest.mark.parametrize(("sizes", "element", "target"), SIZES)
def test_lu(sizes: tuple[int, ...], element: str, target: Any) -> None:
    a = normal(sizes, element)
    got, (factors, pivots, info), call = factorization("getrf", a, target=target())
    np.testing.assert_array_equal(got[1], pivots)
    np.testing.assert_array_equal(got[2], info)
    tolerance = 10 * tolerance_of(element, sizes)
    np.testing.assert_allclose(got[0], factors, tolerance, tolerance)
    assert [x.tobytes() for x in run(call, [a], backwards=True)] == [x.tobytes() for x in got]


@pytest.mark.parametrize(("sizes", "element", "target"), SIZES)
def test_qr(sizes: tuple[int, ...], element: str, target: Any) -> None:
    a = normal(sizes, element)
    got, expected, call = factorization("geqrf", a, target=target())
    tolerance = 10 * tolerance_of(element, sizes)
    for mine, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(mine, wanted, tolerance, tolerance)
    assert [x.tobytes() for x in run(call, [a], backwards=True)] == [x.tobytes() for x in got]


SHARES = [((20, 5, 5), "f32", host), ((40, 40), "f32", host), ((100, 100), "f32", host), ((77, 3), "f32", host)]


@pytest.mark.parametrize(
    ("sizes", "element", "target", "share"),
    [(*case, 1) for case in SIZES if case[0][-2] >= case[0][-1]] + [(*case, s) for case in SHARES for s in (0.5, 0)],
)
def test_product_of_reflectors(sizes: tuple[int, ...], element: str, target: Any, share: float) -> None:
    """From SciPy's reflectors: a share of them."""
    _, (a, taus), _ = factorization("geqrf", normal(sizes, element))
    taus = np.ascontiguousarray(taus[..., : int(share * taus.shape[-1])])
    (got,), (wanted,), call = factorization("orgqr", a, taus, target=target())
    tolerance = tolerance_of(element, sizes)
    np.testing.assert_allclose(got, wanted, tolerance, tolerance)
    assert run(call, [a, taus], backwards=True)[0].tobytes() == got.tobytes()


@pytest.mark.parametrize(("sizes", "element"), [((20, 6, 6), "f32"), ((20, 6, 6), "f64"), ((2, 60, 60), "f32")])
def test_qr_out_of_the_ordinary(sizes: tuple[int, ...], element: str) -> None:
    """Columns of zeros, identities, tiny and huge elements."""
    a = normal(sizes, element)
    a[0] = np.eye(sizes[-1])
    a[1, :, 3] = 0
    a[1, 2:, 0] = 0
    (r, taus), (wanted_r, wanted_taus), _ = factorization("geqrf", a)
    tolerance = 100 * tolerance_of(element, sizes)
    np.testing.assert_allclose(r, wanted_r, tolerance, tolerance)
    np.testing.assert_allclose(taus, wanted_taus, tolerance, tolerance)
    assert not taus[0].any() and taus[1, 0] != 0
    tiny, huge = (1e-30, 1e30) if element == "f32" else (1e-290, 1e290)
    for factor in (tiny, huge):
        scaled = (a * factor).astype(a.dtype)
        (r, taus), (wanted_r, wanted_taus), _ = factorization("geqrf", scaled)
        upper = np.triu(np.ones(sizes, bool))
        np.testing.assert_allclose(r[upper] / factor, wanted_r[upper] / factor, tolerance, tolerance)
        np.testing.assert_allclose(r[~upper], wanted_r[~upper], tolerance, tolerance)
        np.testing.assert_allclose(taus, wanted_taus, tolerance, tolerance)
    a[0, 1, 1] = np.nan
    (r, taus), _, _ = factorization("geqrf", a)
    assert np.isnan(r[0]).any() and not np.isnan(r[1]).any()


@pytest.mark.parametrize("sizes", [(20, 6, 6), (2, 60, 60)])
def test_lu_out_of_the_ordinary(sizes: tuple[int, ...]) -> None:
    """Ties, zero columns, tiny and infinite elements, as LAPACK has them.

    Ties in exact arithmetic alone are not meant: rounding decides those. A Hadamard matrix is factored without any.
    """
    a = normal(sizes, "f32")
    a[0] = np.random.default_rng(0).permutation(hadamard(64)[: sizes[1], : sizes[2]])
    a[1, :, 3] = 0
    (factors, pivots, info), expected, _ = factorization("getrf", a)
    np.testing.assert_array_equal(pivots, expected[1])
    np.testing.assert_array_equal(info, expected[2])
    assert info[1] == 4
    np.testing.assert_allclose(factors, expected[0], 1e-4, 1e-4)
    tiny = normal(sizes, "f32") * np.float32(1e-38)
    (factors, pivots, _), expected, _ = factorization("getrf", tiny)
    np.testing.assert_array_equal(pivots[:, 0], expected[1][:, 0])
    assert np.isfinite(factors).all() and np.abs(np.tril(factors, -1)).max() < 1.001
    spoilt = normal(sizes, "f32")
    spoilt[0, 2, 1], spoilt[1, 1, 2] = np.nan, np.inf
    (factors, pivots, _), expected, _ = factorization("getrf", spoilt)
    assert np.isnan(factors[0]).any() and not np.isfinite(factors[1]).all()
    assert ((pivots > 0) & (pivots <= sizes[-2])).all()
    np.testing.assert_allclose(factors[2:], expected[0][2:], 1e-4, 1e-4)


SPOILT = [(5, 3), (20, 20), (40, 17), (33, 8), (12, 20)]
"""A few by stripes, whose ends are within vectors and are not; many in lanes."""


def spoilt(sizes: tuple[int, int], batch: int) -> Any:
    """Matrices with an infinity or a NaN each, but for some of many; some are upper triangles but for it."""
    random = np.random.default_rng(sum(sizes))
    a = random.normal(size=(batch, *sizes)).astype(np.float32)
    a[::4] = np.triu(a[::4])
    for number, matrix in enumerate(a[:18]):
        matrix[tuple(random.integers(1, sizes))] = (np.inf, np.nan, -np.inf)[number % 3]
    return a


def with_its_specials(got: Any, expected: Any) -> None:
    """The same elements are infinite, by sign, and NaN."""
    np.testing.assert_array_equal(*(np.where(np.isfinite(x), 0, np.clip(x, -1, 1)) for x in (got, expected)))


@pytest.mark.parametrize("target", [host, avx2])
@pytest.mark.parametrize("batch", [3, 20])
@pytest.mark.parametrize("sizes", SPOILT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_lu_spreads_infinities_as_elimination_does(sizes: tuple[int, int], batch: int, target: Any) -> None:
    a = spoilt(sizes, batch)
    (factors, pivots, _), _, _ = factorization("getrf", a, target=target())
    for matrix, found, rows in zip(a, factors, pivots, strict=True):
        for step, row in enumerate(rows - 1):
            matrix[[step, row]] = matrix[[row, step]]
            if matrix[step, step] != 0:
                matrix[step + 1 :, step] *= 1 / matrix[step, step]
            matrix[step + 1 :, step + 1 :] -= np.outer(matrix[step + 1 :, step], matrix[step, step + 1 :])
        with_its_specials(found, matrix)


@pytest.mark.parametrize("target", [host, avx2])
@pytest.mark.parametrize("batch", [3, 20])
@pytest.mark.parametrize("sizes", SPOILT)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_qr_spreads_infinities_as_lapack_does(sizes: tuple[int, int], batch: int, target: Any) -> None:
    """Reflectors change no row before their own, and the identity none, whatever stands there."""
    a = spoilt(sizes, batch)
    a[..., 0] += 1  # LAPACK stops after the last element of a reflector that is not zero
    (r, taus), expected, _ = factorization("geqrf", a, target=target())
    with_its_specials(r, expected[0])
    if sizes[0] >= sizes[1]:
        (q,), (wanted,), _ = factorization("orgqr", r, taus, target=target())
        with_its_specials(q, wanted)


def is_own(routine: str, kind: Any) -> bool:
    """Whether it is hlokit's, not SciPy's."""
    return routine in ("potrf", "trsm") or (routine in ("getrf", "geqrf", "orgqr") and kind.kind == "f")


@pytest.mark.parametrize("program", [p for p in PROGRAMS if not p.startswith("eigvals_")])
def test_machine_code_and_handler_agree(program: str) -> None:
    for instruction in lapack_calls((FOLDER / f"{program}.hlo").read_text()):
        call, operands = call_of(instruction), operands_of(instruction)
        name = split_target(instruction.op.custom_call_target)[1]
        if name == "geev":
            assert lapack(call, Module()) is None
            continue
        results = run(call, operands)
        config = config_of(instruction)
        expected = instruction.op.reference(*operands, shape=instruction.shape, process=Process(), backend_config=config)
        expected = list(expected) if instruction.shape.is_tuple else [expected]
        if name == "potrf":  # a matrix without factor: how far LAPACK came is its own affair
            failed = expected[1] != 0
            results[0][failed] = expected[0][failed] = 0
            assert failed.any()
        tolerance = 1e-5 if results[0].dtype in (np.float32, np.complex64) else 1e-12
        for got, wanted in zip(results, expected, strict=True):
            if not is_own(name, operands[0].dtype):
                assert got.tobytes() == wanted.tobytes()
            np.testing.assert_allclose(got, wanted, tolerance, tolerance)


@pytest.mark.parametrize("program", ["svd_f32", "svd_c128", "svd_qr_f32", "schur_f64", "schur_c64"])
def test_matrices_that_are_not_finite_are_not_handed_over(program: str) -> None:
    """LAPACK's own may never return. The others of a batch are decomposed; all as the handler does it."""
    (instruction,) = lapack_calls((FOLDER / f"{program}.hlo").read_text())
    call, operands = call_of(instruction), operands_of(instruction)
    for value in (np.inf, -np.inf, np.nan):
        spoilt = [a.copy() for a in operands]
        spoilt[0][..., 1, 2] = value
        results = run(call, spoilt)
        config = config_of(instruction)
        expected = instruction.op.reference(*spoilt, shape=instruction.shape, process=Process(), backend_config=config)
        assert (results[-1] == -4).all()
        for got, wanted in zip(results, expected, strict=True):
            assert got.tobytes() == wanted.tobytes()


def test_what_does_not_fit_is_left_to_the_handler() -> None:
    (instruction,) = lapack_calls((FOLDER / "hessenberg_f32.hlo").read_text())
    call = call_of(instruction)
    assert lapack(Call(call.op, call.operands, call.results, call.target), Module()) is None
    assert lapack(Call(call.op, call.operands, call.results[:2], call.target), Module()) is None
    assert lapack(call_of(instruction, strict=True), Module()) is None


def test_addresses() -> None:
    assert lapack_address("dgesdd") == lapack_address("dgesdd") != 0
    with pytest.raises(hk.HlokitError, match="dnothing"):
        lapack_address("dnothing")


@pytest.mark.parametrize("program", ["cholesky_f32", "eigh_c128", "qr_f32", "solve_c128", "svd_f32", "eig_f32"])
def test_compiled_programs_give_what_jax_gives(program: str) -> None:
    results = hk.compile(hk.parse((FOLDER / f"{program}.hlo").read_text()))(*recorded(program, "argument"))
    results = settled(program, list(results) if isinstance(results, tuple) else [results])
    for got, wanted in zip(results, settled(program, recorded(program, "result")), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-4, 1e-4)
