"""Affine numbers: arithmetic, ranges, exact division."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hlokit.forms.affine import Affine, Key, row_major

P, Q = Key("i", 0, 4), Key("j", -2, 3)


def value(affine: Affine, i: int, j: int) -> int:
    return affine.constant + affine.coefficient(P) * i + affine.coefficient(Q) * j


def points() -> list[tuple[int, int]]:
    return list(itertools.product(range(P.low, P.high + 1), range(Q.low, Q.high + 1)))


def test_equal_affines_are_one_object() -> None:
    i, j = Affine.of(P), Affine.of(Q)
    assert 2 * i + j is j + i * 2 and i - i is Affine.of(0) and 3 - i is -(i - 3)
    assert Affine.sum([P, Q, 1]) is i + Q + 1
    assert str(2 * i - j + 3) == "2*i + -1*j + 3" and str(Affine.of(0)) == "0"


def test_row_major() -> None:
    assert row_major((Affine.of(P), Affine.of(Q)), (5, 7)) is 7 * Affine.of(P) + Q
    assert row_major((), ()) is Affine.of(0)


coefficients = st.integers(-9, 9)


@settings(deadline=None)
@given(coefficients, coefficients, st.integers(-20, 20))
def test_range_is_exact(a: int, b: int, c: int) -> None:
    affine = a * Affine.of(P) + b * Affine.of(Q) + c
    values = [value(affine, i, j) for i, j in points()]
    assert (affine.low, affine.high) == (min(values), max(values))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(coefficients, coefficients, st.integers(-20, 20), st.integers(1, 8))
def test_split_is_division(a: int, b: int, c: int, divisor: int) -> None:
    affine = a * Affine.of(P) + b * Affine.of(Q) + c
    exact = affine.split(divisor)
    assume(exact is not None)
    assert exact is not None
    quotient, rest = exact
    for i, j in points():
        assert divmod(value(affine, i, j), divisor) == (value(quotient, i, j), value(rest, i, j))


def test_split_finds_what_reshapes_need() -> None:
    i = Affine.of(P)  # 0..4
    k = Affine.of(Key("k", 0, 2))
    assert (6 * k + i).split(6) == (k, i)
    assert (7 * k + i).split(7) == (k, i)
    assert (5 - k).split(3) == (Affine.of(1), 2 - k), "a reversed axis"
    assert (9 * k + i).split(8) == (k, k + i), "rows moved by one each"
    assert i.split(5) == (Affine.of(0), i) and i.split(1) == (i, Affine.of(0))
    assert i.split(3) is None, "0..4 crosses a multiple of 3"
