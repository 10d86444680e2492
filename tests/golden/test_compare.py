"""The tolerance classes, and above all what they must not let pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.golden.cases import NUMPY_TYPES, Array
from tests.golden.compare import compare, compare_form, compare_outputs, smallest_normal

BITS, EXACT, SHAPE = {"class": "bits"}, {"class": "exact"}, {"class": "shape"}
FLOATS = [name for name in NUMPY_TYPES if name[0] == "f" or name == "bf16"]
INTEGERS = [name for name in NUMPY_TYPES if name[0] in "sup"]
NAN, INF = float("nan"), float("inf")


def close(rtol: float = 0.0, atol: float = 0.0) -> dict[str, Any]:
    return {"class": "close", "rtol": rtol, "atol": atol}


ALL = [BITS, EXACT, close(rtol=1e-3, atol=1e-3)]


def array(name: str, values: Any) -> Array:
    return np.asarray(values).astype(NUMPY_TYPES[name])


def agrees(name: str, got: Any, want: Any, how: dict[str, Any]) -> bool:
    return compare(array(name, got), array(name, want), how) is None


def from_bits(name: str, bits: int) -> Array:
    numpy_type = NUMPY_TYPES[name]
    return np.array([bits], f"u{numpy_type.itemsize}").view(numpy_type)


# -- dtype and shape, in every class


@pytest.mark.parametrize("how", [*ALL, SHAPE])
def test_wrong_dtype_differs(how: dict[str, Any]) -> None:
    assert compare(array("f32", [1.0]), array("f64", [1.0]), how) == "dtype: got f32, want f64"
    assert compare(array("s8", [1]), array("pred", [1]), how)
    assert compare(array("s4", [1]), array("s8", [1]), how)


@pytest.mark.parametrize("how", [*ALL, SHAPE])
def test_wrong_shape_differs(how: dict[str, Any]) -> None:
    assert compare(array("f32", [[1.0]]), array("f32", [1.0]), how) == "shape: got [1, 1], want [1]"
    assert compare(array("f32", 1.0), array("f32", [1.0]), how)


def test_what_is_no_array_differs() -> None:
    assert compare_form(1.0, array("f32", 1.0)) == "got a float, want an array"
    assert compare_form(None, array("f32", 1.0))


def test_shape_ignores_values() -> None:
    assert agrees("f32", [1.0, NAN], [2.0, INF], SHAPE)


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", NUMPY_TYPES)
def test_equal_arrays_agree(name: str, how: dict[str, Any]) -> None:
    assert agrees(name, [0, 1, 1], [0, 1, 1], how)
    assert agrees(name, 1, 1, how)
    assert agrees(name, np.zeros((0, 3)), np.zeros((0, 3)), how)


# -- integers: equal, whatever the class


@pytest.mark.parametrize("how", [BITS, EXACT, close(rtol=1.0, atol=100.0)])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_must_be_equal_in_every_class(name: str, how: dict[str, Any]) -> None:
    assert not agrees(name, [0, 1], [1, 1], how)


def test_large_integers_are_not_compared_as_floats() -> None:
    assert not agrees("s64", [2**62], [2**62 + 1], close(rtol=1.0))
    assert not agrees("u64", np.uint64(2**64 - 1), np.uint64(2**64 - 2), EXACT)


# -- one unit in the last place


@pytest.mark.parametrize("name", [name for name in FLOATS if name != "f8e8m0fnu"])
def test_one_ulp_off_differs_in_bits_and_exact(name: str) -> None:
    one = array(name, [1.0])
    next_up = (one.view(f"u{one.itemsize}") + 1).astype(f"u{one.itemsize}").view(one.dtype)
    assert compare(next_up, one, BITS)
    assert compare(next_up, one, EXACT)
    assert compare(next_up, one, close(rtol=0.6)) is None


def test_narrowest_types_are_told_apart() -> None:
    assert not agrees("f8e8m0fnu", [2.0], [1.0], EXACT)
    assert not agrees("f4e2m1fn", [1.5], [1.0], BITS)


# -- zeros and values below the smallest normal


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8e5m2", "f4e2m1fn"])
def test_zeros_of_both_signs(name: str) -> None:
    assert not agrees(name, [-0.0], [0.0], BITS)
    assert agrees(name, [-0.0], [0.0], EXACT)
    assert agrees(name, [-0.0], [0.0], close())


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
def test_two_denormals_agree_except_in_bits(name: str) -> None:
    denormal = from_bits(name, 3)
    zero, normal = array(name, [0.0]), array(name, [smallest_normal(NUMPY_TYPES[name])])
    assert compare(zero, denormal, BITS)
    assert compare(zero, denormal, EXACT) is None
    assert compare(zero, denormal, close()) is None
    assert compare(-denormal, denormal, EXACT) is None
    assert compare(normal, denormal, EXACT), "a normal number is no denormal"
    assert compare(normal, zero, EXACT)


@pytest.mark.parametrize(
    ("name", "exponent"), [("f16", -14), ("bf16", -126), ("f32", -126), ("f64", -1022), ("f8e5m2", -14), ("c64", -126)]
)
def test_smallest_normal(name: str, exponent: int) -> None:
    assert smallest_normal(NUMPY_TYPES[name]) == 2.0**exponent


# -- NaN and infinity


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8e5m2", "f8e4m3fn", "f8e4m3fnuz", "f8e8m0fnu"])
def test_nan_agrees_with_nan_only(name: str, how: dict[str, Any]) -> None:
    assert agrees(name, [NAN], [NAN], how)
    assert not agrees(name, [1.0], [NAN], how)
    assert not agrees(name, [NAN], [1.0], how)


def test_nans_of_other_bits_agree_even_in_bits() -> None:
    assert compare(from_bits("f32", 0x7FC00000), from_bits("f32", 0xFFC00001), BITS) is None
    assert compare(from_bits("f32", 0x7F800000), from_bits("f32", 0x7F800001), BITS), "infinity is no NaN"


@pytest.mark.parametrize("how", [*ALL, close(rtol=1e300), close(atol=INF)])
@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "f8e5m2"])
def test_infinities_must_match_exactly(name: str, how: dict[str, Any]) -> None:
    largest = 57344.0 if name == "f8e5m2" else float(np.finfo(np.float16).max)
    assert agrees(name, [INF, -INF], [INF, -INF], how)
    assert not agrees(name, [INF], [largest], how)
    assert not agrees(name, [largest], [INF], how)
    assert not agrees(name, [-INF], [INF], how)
    assert not agrees(name, [NAN], [INF], how)
    assert not agrees(name, [INF], [NAN], how)


# -- close


def test_close_is_relative_to_the_wanted_value() -> None:
    assert agrees("f64", [101.0], [100.0], close(rtol=0.01))
    assert not agrees("f64", [101.1], [100.0], close(rtol=0.01))
    assert agrees("f64", [0.5], [1.0], close(rtol=0.5))
    assert not agrees("f64", [1.0], [0.5], close(rtol=0.5))


def test_close_adds_the_absolute_bound_and_the_smallest_normal() -> None:
    assert agrees("f64", [1.75], [1.0], close(rtol=0.5, atol=0.25))
    assert not agrees("f64", [1.7500001], [1.0], close(rtol=0.5, atol=0.25))
    tiny = smallest_normal(NUMPY_TYPES["f32"])
    assert agrees("f32", [2 * tiny], [tiny], close())
    assert not agrees("f32", [3 * tiny], [tiny], close())


def test_close_does_not_overflow() -> None:
    largest = float(np.finfo(np.float64).max)
    assert not agrees("f64", [-largest], [largest], close(rtol=1e-3))
    assert agrees("f64", [largest], [largest], close(rtol=1e-3))
    assert not agrees("c64", [-3e38 - 3e38j], [3e38 + 3e38j], close(rtol=1e-3))


@pytest.mark.parametrize("name", ["bf16", "f16"])
def test_close_on_narrow_floats(name: str) -> None:
    assert agrees(name, [1.0], [1.0078125], close(rtol=0.01))
    assert not agrees(name, [1.0], [1.0625], close(rtol=0.01))


def test_one_element_off_among_many() -> None:
    want = array("f32", np.ones((20, 30)))
    got = want.copy()
    got[7, 11] = 1.5
    assert compare(got, want, close(rtol=1e-3)) == "1 of 600 differ, first at [7, 11]: got 1.5, want 1.0"


# -- complex


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_complex_parts_by_themselves(name: str) -> None:
    for how in ALL:
        assert agrees(name, [complex(INF, 1)], [complex(INF, 1)], how)
        assert agrees(name, [complex(NAN, 1)], [complex(NAN, 1)], how)
        assert not agrees(name, [complex(INF, 2)], [complex(INF, 1)], how)
        assert not agrees(name, [complex(INF, 1)], [complex(-INF, 1)], how)
        assert not agrees(name, [complex(1, INF)], [complex(INF, 1)], how)
        assert not agrees(name, [complex(NAN, 1)], [complex(1, NAN)], how)
        assert not agrees(name, [complex(1, 2)], [complex(2, 1)], how)


def test_complex_zeros_by_part() -> None:
    assert not agrees("c64", [complex(0.0, -0.0)], [complex(0.0, 0.0)], BITS)
    assert agrees("c64", [complex(0.0, -0.0)], [complex(-0.0, 0.0)], EXACT)


def test_complex_close_takes_the_abs_of_the_difference() -> None:
    assert agrees("c128", [3 + 0.5j], [3 + 0j], close(rtol=0.17))
    assert not agrees("c128", [3.4 + 0.4j], [3 + 0j], close(rtol=0.17)), "each part alone would be within"
    assert agrees("c128", [1e-3 + 100j], [0 + 100j], close(rtol=1e-4)), "relative to abs(want), not to a part"


# -- triangle


def test_triangle_compares_one_triangle_only() -> None:
    want = array("f32", [[[1, 2], [3, 4]]])
    upper_off, lower_off = array("f32", [[[1, 9], [3, 4]]]), array("f32", [[[1, 2], [9, 4]]])
    diagonal_off = array("f32", [[[1, 2], [3, 9]]])
    lower, upper = close() | {"triangle": "lower"}, close() | {"triangle": "upper"}
    assert compare(upper_off, want, lower) is None
    assert compare(lower_off, want, upper) is None
    for got, how in [(lower_off, lower), (upper_off, upper), (diagonal_off, lower), (diagonal_off, upper)]:
        assert compare(got, want, how)


# -- outputs


def test_outputs_are_counted_and_named() -> None:
    one, two = array("f32", [1.0]), array("f32", [2.0])
    assert compare_outputs([one, two], [one, two], [EXACT, EXACT]) is None
    assert compare_outputs([one], [one, two], [EXACT, EXACT]) == "number of outputs: got 1, want 2"
    assert compare_outputs([one, one], [one, two], [EXACT, BITS]) == (
        "output 1 (bits): 1 of 1 differ, first at [0]: got 1.0, want 2.0"
    )


def test_unknown_class_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown tolerance class ulp"):
        agrees("f32", [1.0], [1.0], {"class": "ulp"})


# -- factorisations

EIGH = [{"class": "eigenvectors", "rtol": 1e-4}, close(rtol=1e-4, atol=1e-4)]
SVD = [{"class": "svd_u", "rtol": 1e-4}, close(rtol=1e-4, atol=1e-4), {"class": "svd_v", "rtol": 1e-4}]


def eigh_case(name: str) -> tuple[Array, list[Array]]:
    matrix = np.random.default_rng(0).normal(size=(2, 4, 4)) + (1j if name[0] == "c" else 0)
    matrix = matrix + np.swapaxes(matrix, -1, -2).conj()
    w, v = np.linalg.eigh(matrix)
    return array(name, matrix), [array(name, v), array("f32", w)]


def svd_case(rows: int, columns: int) -> tuple[Array, list[Array]]:
    matrix = np.random.default_rng(0).normal(size=(3, rows, columns))
    u, d, vh = np.linalg.svd(matrix)
    return array("f32", matrix), [array("f32", u), array("f32", d), array("f32", np.swapaxes(vh, -1, -2))]


@pytest.mark.parametrize("name", ["f32", "c64"])
def test_eigenvectors_are_free_in_sign_and_phase(name: str) -> None:
    matrix, want = eigh_case(name)
    phases = array(name, [1, -1, -1, 1] if name == "f32" else np.exp([0, 1j, 2j, 3j]))
    assert compare_outputs([want[0] * phases, want[1]], want, EIGH, [matrix]) is None


def test_what_are_no_eigenvectors_differs() -> None:
    matrix, want = eigh_case("f32")
    swapped = want[0][..., [1, 0, 2, 3]]
    for wrong in (swapped, want[0] * np.float32(1.01), np.zeros_like(want[0]), want[0] * np.float32(NAN)):
        assert compare_outputs([wrong, want[1]], want, EIGH, [matrix])
    assert compare_outputs([want[0], want[1] + np.float32(0.1)], want, EIGH, [matrix])


@pytest.mark.parametrize("size", [(4, 3), (3, 4), (3, 3)])
def test_singular_vectors(size: tuple[int, int]) -> None:
    matrix, want = svd_case(*size)
    k = want[1].shape[-1]
    flipped = [want[0].copy(), want[1], want[2].copy()]
    flipped[0][..., 0] *= -1
    assert compare_outputs(flipped, want, SVD, [matrix]), "U alone may not change its sign"
    flipped[2][..., 0] *= -1
    assert compare_outputs(flipped, want, SVD, [matrix]) is None
    for role in (0, 2):
        wrong = list(want)
        wrong[role] = want[role] * np.float32(1.01)
        assert "not unitary" in str(compare_outputs(wrong, want, SVD, [matrix]))
    assert compare_outputs([want[0], want[1][..., ::-1], want[2]], want, SVD, [matrix]) or k == 1


def test_roles_of_a_mutated_program() -> None:
    matrix, (u, d, v) = svd_case(3, 4)
    how = [SVD[0]] * 4
    assert compare_outputs([u, d, v, u], [u, d, v, u], how, [matrix], roles=[0, 1, 2, 0]) is None
    assert compare_outputs([u * np.float32(2), d, v, u], [u, d, v, u], how, [matrix], roles=[0, 1, 2, 0])
    assert compare_outputs([v], [v], [SVD[2]], [matrix], roles=[2]) is None


def test_vectors_are_judged_as_vectors_wherever_they_are() -> None:
    matrix, (v, w) = eigh_case("f32")
    assert compare_outputs([w, -v], [w, v], EIGH, [matrix], roles=[1, 0]) is None
    assert compare_outputs([w, v * np.float32(1.01)], [w, v], EIGH, [matrix], roles=[1, 0])
    assert compare_outputs([w + np.float32(0.1), v], [w, v], EIGH, [matrix], roles=[1, 0])
