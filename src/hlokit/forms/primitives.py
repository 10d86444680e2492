"""The scalar primitives: all the arithmetic that a backend must know."""

from __future__ import annotations

from dataclasses import dataclass

PRED, INTEGER, FLOAT, COMPLEX = "pred", "integer", "float", "complex"
SAME, GIVEN, PART, WHOLE = "the operands'", "given", "the component's", "the complex"


@dataclass(frozen=True, slots=True, eq=False)
class Primitive:
    """A function of scalars.

    arity    number of operands. They have one type, but for select's first, which is pred
    kinds    what that type may be: pred; integers of 8 to 64 bits; f32, f64; c64, c128. Narrower types are converted
             before and after (widening.py); only convert, to_bits, from_bits and select take every type
    result   the result's type
    """

    name: str
    arity: int
    kinds: frozenset[str]
    result: str
    meaning: str

    def __repr__(self) -> str:
        return self.name


_KINDS = {"P": PRED, "I": INTEGER, "F": FLOAT, "C": COMPLEX}

_TABLE = """
    add         2 IF  same   x + y; integers wrap
    sub         2 IF  same   x - y; integers wrap
    mul         2 IF  same   x * y; integers wrap
    div         2 IF  same   x / y; of integers towards zero, y neither 0 nor, where signed, -1
    rem         2 IF  same   x - trunc(x / y) * y, exact; y as for div
    neg         1 IF  same   -x; a float's sign bit flipped
    abs         1 IF  same   |x|, wrapping; a float's sign bit cleared
    max         2 IF  same   the greater; NaN if either is, +0 above -0
    min         2 IF  same   the lesser; NaN if either is, -0 below +0
    and         2 PI  same   bitwise and
    or          2 PI  same   bitwise or
    xor         2 PI  same   bitwise exclusive or
    not         1 PI  same   bitwise complement
    shl         2 I   same   x * 2^y; 0 <= y < bits
    shr         2 I   same   x's bits moved down, zeros from above; 0 <= y < bits
    sar         2 I   same   x's bits moved down, copies of the highest from above; 0 <= y < bits
    popcnt      1 I   same   number of 1 bits
    clz         1 I   same   number of 0 bits above the highest 1; the width for 0
    mul_high    2 I   same   upper half of the product at twice the width
    eq          2 PIF pred   x == y; false for NaN
    ne          2 PIF pred   x != y; true for NaN
    lt          2 PIF pred   x < y; false for NaN
    le          2 PIF pred   x <= y; false for NaN
    gt          2 PIF pred   x > y; false for NaN
    ge          2 PIF pred   x >= y; false for NaN
    select      3 PIFC same the second operand where the first holds, else the third
    convert     1 PIF given  as the op convert: rounded once to nearest even, saturated, NaN to 0; integers wrap
    to_bits     1 PIF given  the bits as an unsigned integer, those of types below 8 bits in a byte, zeros above
    from_bits   1 I   given  the value of these bits, which are as to_bits gives them; bits above are ignored
    floor       1 F   same   the greatest integral value not above x
    ceil        1 F   same   the least integral value not below x
    trunc       1 F   same   the integral part
    round_even  1 F   same   the nearest integral value, ties to even
    copysign    2 F   same   |x| with the sign bit of y
    sqrt        1 F   same   square root, correctly rounded
    cbrt        1 F   same   cube root
    exp         1 F   same   e to the x
    expm1       1 F   same   exp(x) - 1 without cancellation
    log         1 F   same   natural logarithm
    log1p       1 F   same   log(1 + x) without cancellation
    sin         1 F   same   sine
    cos         1 F   same   cosine
    tanh        1 F   same   hyperbolic tangent
    atan2       2 F   same   the angle of the point (y, x), in [-pi, pi]
    erf         1 F   same   error function
    pow         2 F   same   x to the y, as C's pow
    complex     2 F   whole  the complex number of these parts
    real        1 C   part   the real part
    imag        1 C   part   the imaginary part
"""
_RESULTS = {"same": SAME, "pred": PRED, "given": GIVEN, "part": PART, "whole": WHOLE}


def _row(line: str) -> Primitive:
    name, arity, kinds, result, meaning = line.split(maxsplit=4)
    return Primitive(name, int(arity), frozenset(_KINDS[k] for k in kinds), _RESULTS[result], meaning)


PRIMITIVES: dict[str, Primitive] = {p.name: p for p in map(_row, _TABLE.strip().splitlines())}
"""Every primitive by name."""
