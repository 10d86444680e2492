"""Odd functions that approach 1, by 32 polynomials, with each lane's coefficients from registers (AVX-512)."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.llvm import Value, joined, type_of

WIDTH = 16
"""Floats of a register; two registers hold the numbers of all pieces."""

LAST = 7.49
"""Where |x| = limit lies, of places in [0.5, 8)."""


def has_pieces(x: Value) -> bool:
    """Whether the machine takes any of 32 floats in one instruction."""
    target = x.fn.target
    return x.scalar == "float" and target.arch == "x86_64" and target.has("avx512f") and target.has("avx512vl")


def odd_by_pieces(x: Value, limit: float, columns: Sequence[Sequence[float]]) -> Value:
    """f(|x|), beyond the limit as there, with the sign of x; f is a polynomial in |x| less the centre of its piece.

    columns   for all 32 pieces the centres; then the coefficients, from the constant ones up

    There are four sizes of pieces, eight of each, each twice as wide as the one before: two bits of the exponent and
    three of the mantissa of |x| * 7.49 / limit + 0.5, which lies in [0.5, 8).
    """
    if x.lanes < WIDTH:
        return odd_by_pieces(x.padded(WIDTH), limit, columns).first(x.lanes)
    size = x.abs()
    size = x.value(limit).where(size > limit, size)
    place = size.fma(LAST / limit, 0.5).as_bits() >> 20  # of 0.5 its lowest five bits are 16
    centre, *terms = (chosen(place, (*column[WIDTH:], *column[:WIDTH])) for column in columns)
    t = size - centre
    total = terms[-1]
    for term in reversed(terms[:-1]):
        total = total.fma(t, term)
    return total.copysign(x)


def chosen(place: Value, column: Sequence[float]) -> Value:
    """The number of 32 that the lowest five bits of each lane's place say."""
    fn, kind = place.fn, type_of("float", WIDTH)
    first, second = (fn.vector_constant(half, kind.element) for half in (column[:WIDTH], column[WIDTH:]))
    name = "llvm.x86.avx512.vpermi2var.ps.512"
    return joined([fn.call_for(kind, name, first, part, second) for part in place.split(WIDTH)])
