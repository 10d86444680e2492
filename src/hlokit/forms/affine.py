"""Affine numbers: constant + sum(coefficient * key). Index forms are arithmetic on them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias
from weakref import ref

_numbers = itertools.count()


class Key:
    """A variable of an affine: a loop axis, or an integer known at run time. Compared by identity.

    Its values lie in low..high, both included. `deps`: the axes that it depends on, as bits. Backends derive their axes
    and run-time integers from this class.
    """

    __slots__ = ("__weakref__", "deps", "high", "low", "name", "number")

    def __init__(self, name: str, low: int, high: int, deps: int = 0) -> None:
        self.name = name
        self.low = low
        self.high = high
        self.deps = deps
        self.number = next(_numbers)  # the order of terms: no hash may decide what is printed

    def __repr__(self) -> str:
        return self.name


_Terms: TypeAlias = "tuple[tuple[Key, int], ...]"


class Affine:
    """constant + sum of coefficient * key over `terms`: immutable, interned, compared by `is`.

    Terms are in the order of their keys' making, none has the coefficient 0. Adding takes affines and integers,
    multiplying integers.
    """

    __slots__ = ("__weakref__", "constant", "terms")
    constant: int
    terms: _Terms

    @staticmethod
    def of(value: AffineLike) -> Affine:
        """A number, a key or an affine as an affine."""
        if isinstance(value, Affine):
            return value
        return _of(0, ((value, 1),)) if isinstance(value, Key) else _of(value, ())

    @staticmethod
    def sum(terms: Iterable[AffineLike]) -> Affine:
        """The sum; 0 of nothing."""
        total = Affine.of(0)
        for term in terms:
            total = total + term
        return total

    @property
    def low(self) -> int:
        """The least value that the keys' ranges allow."""
        least = self.constant
        for key, c in self.terms:
            least += c * (key.low if c > 0 else key.high)
        return least

    @property
    def high(self) -> int:
        """The greatest value that the keys' ranges allow."""
        most = self.constant
        for key, c in self.terms:
            most += c * (key.high if c > 0 else key.low)
        return most

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def coefficient(self, key: Key) -> int:
        return next((c for k, c in self.terms if k is key), 0)

    def __add__(self, other: AffineLike) -> Affine:
        if isinstance(other, int):
            return _of(self.constant + other, self.terms) if other else self
        other = Affine.of(other)
        if not other.terms or not self.terms:
            return _of(self.constant + other.constant, self.terms or other.terms)
        terms = dict(self.terms)
        for key, c in other.terms:
            terms[key] = terms.get(key, 0) + c
        return _make(self.constant + other.constant, terms)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        return _of(self.constant * factor, tuple([(key, c * factor) for key, c in self.terms]) if factor else ())

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: AffineLike) -> Affine:
        return self + -other if isinstance(other, int) else self + -Affine.of(other)

    def __rsub__(self, other: int) -> Affine:
        return -self + other

    def split(self, divisor: int) -> tuple[Affine, Affine] | None:
        """(quotient, rest) with self == quotient * divisor + rest and 0 <= rest < divisor for all values of the keys.

        None where coefficients and ranges do not show that the quotient is affine.
        """
        quotients: dict[Key, int] = {}
        rests: dict[Key, int] = {}
        for key, c in self.terms:
            quotients[key] = c // divisor if c > 0 else -(-c // divisor)
            rests[key] = c - quotients[key] * divisor
        rest = _make(self.constant, rests)
        whole = rest.low // divisor
        rest = rest - whole * divisor
        return (_make(whole, quotients), rest) if rest.high < divisor else None

    def __repr__(self) -> str:
        shown = [f"{key}" if c == 1 else f"{c}*{key}" for key, c in self.terms]
        return " + ".join([*shown, str(self.constant)] if self.constant or not shown else shown)


AffineLike: TypeAlias = "int | Key | Affine"
Index: TypeAlias = tuple[Affine, ...]
"""One affine per dimension."""


def _make(constant: int, coefficients: Mapping[Key, int]) -> Affine:
    terms = [(k, c) for k, c in coefficients.items() if c]
    if len(terms) > 1:
        terms.sort(key=lambda term: term[0].number)
    return _of(constant, tuple(terms))


class _Reference(ref[Affine]):
    __slots__ = ("key",)
    key: tuple[int, _Terms]


_interned: dict[tuple[int, _Terms], _Reference] = {}
"""A WeakValueDictionary would do, but its methods are Python code."""


def _forget(reference: _Reference) -> None:
    if _interned.get(reference.key) is reference:
        del _interned[reference.key]


def _of(constant: int, terms: _Terms) -> Affine:
    """The one affine of these terms, which are in order."""
    key = (constant, terms)
    known = _interned.get(key)
    found = known() if known is not None else None
    if found is not None:
        return found
    affine = object.__new__(Affine)
    affine.constant, affine.terms = key
    reference = _Reference(affine, _forget)  # type: ignore[arg-type]
    reference.key = key
    held = _interned.setdefault(key, reference)
    if held is not reference:  # of another thread's, or of one that is gone
        found = held()
        if found is not None:
            return found
        _interned[key] = reference
    return affine


def row_major(index: Index, sizes: Sequence[int]) -> Affine:
    """The number of the element at `index` in the row-major order of an array of these sizes."""
    if len(index) == 1:
        return index[0]
    constant, apart = 0, 1
    terms: dict[Key, int] = {}
    for position, size in zip(reversed(index), reversed(sizes), strict=True):
        constant += position.constant * apart
        for key, c in position.terms:
            terms[key] = terms.get(key, 0) + c * apart
        apart *= size
    return _make(constant, terms)
