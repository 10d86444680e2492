"""JAX's CPU lowering of linear algebra: the recorded programs and results of tests/lapack (record.py)."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import EvaluationError, UnsupportedError
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes
from hlokit.ops.custom_targets.lapack_routines import TARGETS
from tests.lapack.record import ALL_WIDTHS

FOLDER = pathlib.Path(__file__).parent / "lapack"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.hlo"))
VALUES = np.load(FOLDER / "values.npz")
OTHER_WIDTH = {"f32": ("f64", "lapack_s", "lapack_d"), "c128": ("c64", "lapack_z", "lapack_c")}
NARROWER = {np.dtype(np.float64): np.float32, np.dtype(np.complex128): np.complex64}


def recorded(program: str, kind: str) -> list[Any]:
    names = [f"{program}/{kind}{i}" for i in range(6)]
    return [VALUES[name] for name in names if name in VALUES]


def evaluated(text: str, arguments: list[Any]) -> list[Any]:
    results = hk.evaluate(hk.parse(text), *arguments)
    return list(results) if isinstance(results, tuple) else [results]


def settled(program: str, results: list[Any]) -> list[Any]:
    """The results, each eigenvector or Schur vector times the number of absolute value 1 that makes its largest element
    positive: LAPACK leaves that number open, and machines differ in it."""
    name = program.rpartition("_")[0]
    if name == "eig":
        return [results[0], *(vectors * _turns(vectors) for vectors in results[1:])]
    if name == "schur":
        form, vectors = results
        turns = _turns(vectors)
        return [turns.conj().swapaxes(-1, -2) * form * turns, vectors * turns]
    return results


def _turns(vectors: Any) -> Any:
    """For each column the conjugate of its largest element's direction."""
    largest = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=-2)[..., None, :], axis=-2)
    return (largest / np.abs(largest)).conj()


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_are_those_of_jax(program: str) -> None:
    text = (FOLDER / f"{program}.hlo").read_text()
    expected = recorded(program, "result")
    tolerance = 1e-4 if program.endswith(("f32", "c64")) else 1e-11
    results = settled(program, evaluated(text, recorded(program, "argument")))
    for got, wanted in zip(results, settled(program, expected), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_allclose(got, wanted, tolerance, tolerance)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.rpartition("_")[0] not in ALL_WIDTHS])
def test_the_other_widths_give_the_same_to_their_precision(program: str) -> None:
    element = program.rpartition("_")[2]
    other, prefix, new_prefix = OTHER_WIDTH[element]
    text = (FOLDER / f"{program}.hlo").read_text().replace(prefix, new_prefix).replace(element, other)
    arguments = recorded(program, "argument")
    if element == "f32":
        arguments = [a.astype(np.float64) for a in arguments]
    else:
        text = text.replace("f64", "f32")
        arguments = [a.astype(NARROWER[a.dtype]) for a in arguments]
    for got, wanted in zip(evaluated(text, arguments), recorded(program, "result"), strict=True):
        np.testing.assert_allclose(got, wanted, 2e-3, 2e-3)


def test_the_programs_call_every_routine() -> None:
    called = {
        t
        for program in PROGRAMS
        for text in [(FOLDER / f"{program}.hlo").read_text()]
        for t in TARGETS
        if f'"{t}"' in text
    }
    assert {t for t in TARGETS if t[7] in "sz"} <= called


CALL = """HloModule t
ENTRY e {{
  a = f32[{sizes}] parameter(0)
  ROOT r = (f32[{sizes}], s32[{batch}]) custom-call(a), custom_call_target="lapack_spotrf_ffi",
    api_version=API_VERSION_TYPED_FFI, backend_config={{{attributes}}}
}}"""


def potrf(sizes: str, array: Any, batch: str = "", attributes: str = "uplo = 76 : ui8") -> Any:
    return evaluated(CALL.format(sizes=sizes, batch=batch, attributes=attributes), [array])


def test_info_is_the_order_of_the_minor_that_is_not_positive() -> None:
    a = np.stack([np.eye(3), np.diag([1, -1, 1])]).astype(np.float32)
    assert potrf("2,3,3", a, "2")[1].tolist() == [0, 2]


@pytest.mark.parametrize("sizes", [(0, 3, 3), (2, 0, 0)])
def test_nothing_to_do(sizes: tuple[int, ...]) -> None:
    factor, info = potrf(",".join(map(str, sizes)), np.zeros(sizes, np.float32), str(sizes[0]))
    assert factor.shape == sizes and not info.any()


@pytest.mark.parametrize(
    ("sizes", "batch", "attributes"),
    [
        ("3,2", "", "uplo = 76 : ui8"),
        ("3", "", "uplo = 76 : ui8"),
        ("2,3,3", "3", "uplo = 76 : ui8"),
        ("3,3", "", "uplo = 77 : ui8"),
        ("3,3", "", ""),
        ("3,3", "", "uplo = 76 : ui8,,"),
    ],
)
def test_what_does_not_fit_is_refused(sizes: str, batch: str, attributes: str) -> None:
    with pytest.raises(EvaluationError):
        potrf(sizes, np.zeros([int(n) for n in sizes.split(",")], np.float32), batch, attributes)


def test_results_that_the_routine_does_not_have_are_refused() -> None:
    text = CALL.format(sizes="3,3", batch="", attributes="uplo = 76 : ui8").replace("s32[])", "s32[], s32[])")
    with pytest.raises(EvaluationError, match="results"):
        evaluated(text, [np.eye(3, dtype=np.float32)])


def test_sorted_schur_forms_are_refused_by_name() -> None:
    text = (FOLDER / "schur_f32.hlo").read_text().replace("sort = 78", "sort = 83")
    with pytest.raises(UnsupportedError, match="lapack_sgees_ffi"):
        evaluated(text, recorded("schur_f32", "argument"))


def test_matrices_that_are_not_finite_have_no_eigenvalues() -> None:
    (a,) = recorded("eigvals_f32", "argument")
    a = a.copy()
    a[0, 0] = np.nan
    assert np.isnan(evaluated((FOLDER / "eigvals_f32.hlo").read_text(), [a])[0]).all()


@pytest.mark.parametrize("program", ["svd_f32", "schur_c64"])
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_decompositions_of_matrices_that_are_not_finite_end(program: str, value: float) -> None:
    """LAPACK's own may never return. JAX makes NaN of such an info."""
    (a,) = recorded(program, "argument")
    a = a.copy()
    a[..., 1, 1] = value
    assert any(np.isnan(result).all() for result in evaluated((FOLDER / f"{program}.hlo").read_text(), [a]))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_svd_of_matrices_that_are_not_finite(value: float) -> None:
    """NaN for these, whatever the others of the batch."""
    a = np.stack([np.eye(3), np.eye(3)]).astype(np.float32)
    a[1, 0, 2] = value
    b = hk.Builder()
    u, d, v = hk.evaluate(b.build(hk.tuple_(b, [*hk.svd(b.parameter(0, hk.f32[2, 3, 3]))])), a)
    assert d[0].tolist() == [1, 1, 1] and all(np.isnan(part[1]).all() for part in (u, d, v))


def test_singular_tridiagonal_systems_have_solutions() -> None:
    text = (FOLDER / "tridiagonal_perturbed_f32.hlo").read_text()
    zero, ones = np.zeros((2, 5), np.float32), np.ones((2, 5, 3), np.float32)
    (x,) = evaluated(text, [zero, zero, zero, ones])
    np.testing.assert_allclose(x, 1 / np.finfo(np.float32).tiny)
    (x,) = evaluated(text, [zero, zero + np.float32([1, 0, 2, 1, 1]), zero, ones])
    np.testing.assert_allclose(x[0, :, 0], [1, 2**22, 0.5, 1, 1])


def test_attributes_of_a_typed_call() -> None:
    text = '{a = 76 : ui8, left = true, "b c" = -1.5 : f32, s = "x\\"y", l = [1, 2], d = array<i64: 3, 4>, n = {u, v = 0x10 : i32}, e = array<i32>}'
    assert ffi_attributes(text) == {
        "a": 76,
        "left": True,
        "b c": -1.5,
        "s": 'x"y',
        "l": [1, 2],
        "d": [3, 4],
        "n": {"u": None, "v": 16},
        "e": [],
    }
    assert ffi_attributes("") == ffi_attributes("{}") == {}


def test_strings_are_escaped_as_in_mlir() -> None:
    text = r'{a = "say \22hi\22\0A", "b\5C" = "\C3\A9 \\0A \t"}'
    assert ffi_attributes(text) == {"a": 'say "hi"\n', "b\\": "é \\0A \t"}


def test_floats_may_be_given_by_their_bits() -> None:
    text = "{a = 0x7F800000 : f32, b = array<f64: 0xFFF0000000000000, 1.5>, c = 0x7C00 : f16, d = 0xFF80 : bf16}"
    inf = float("inf")
    assert ffi_attributes(text) == {"a": inf, "b": [-inf, 1.5], "c": inf, "d": -inf}
    with pytest.raises(EvaluationError, match="more than the bits of f16"):
        ffi_attributes("{a = 0x7F800000 : f16}")


@pytest.mark.parametrize(
    "text", ["{", "{a = }", "{a = 1", "{a = 1} b", "a = 1", "{a = ;}", "{a = [1, 2}", "{a = x}", r'{a = "\FF"}']
)
def test_what_is_no_dictionary_is_refused(text: str) -> None:
    with pytest.raises(EvaluationError):
        ffi_attributes(text)
