"""The scalar primitives: all the arithmetic that a backend must support."""

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
    cost     about how many additions it takes
    ulp      of a function that reference and machine code approximate differently, the error bound of machine code:
             the greatest |computed - exact| in units in the last place of the exact result, one unit of a denormal
             being that of the least normal number. None: bits are the same everywhere
    """

    name: str
    arity: int
    kinds: frozenset[str]
    result: str
    cost: float
    ulp: float | None
    meaning: str

    def __repr__(self) -> str:
        return self.name


_KINDS = {"P": PRED, "I": INTEGER, "F": FLOAT, "C": COMPLEX}

_TABLE = """
    add         2 IF   same   1 - x + y; integers wrap
    sub         2 IF   same   1 - x - y; integers wrap
    mul         2 IF   same   1 - x * y; integers wrap
    div         2 IF   same  16 - x / y; of integers towards zero, y neither 0 nor, where signed, -1
    rem         2 IF   same  16 - x - trunc(x / y) * y, exact; y as for div
    neg         1 IF   same   1 - -x; a float's sign bit flipped
    abs         1 IF   same   1 - |x|, wrapping; a float's sign bit cleared
    max         2 IF   same   1 - the greater; NaN if either is, +0 above -0
    min         2 IF   same   1 - the lesser; NaN if either is, -0 below +0
    and         2 PI   same   1 - bitwise and
    or          2 PI   same   1 - bitwise or
    xor         2 PI   same   1 - bitwise exclusive or
    not         1 PI   same   1 - bitwise complement
    shl         2 I    same   1 - x * 2^y; 0 <= y < bits
    shr         2 I    same   1 - x's bits moved down, zeros from above; 0 <= y < bits
    sar         2 I    same   1 - x's bits moved down, copies of the highest from above; 0 <= y < bits
    popcnt      1 I    same   1 - number of 1 bits
    clz         1 I    same   1 - number of 0 bits above the highest 1; the width for 0
    mul_high    2 I    same   1 - upper half of the product at twice the width
    eq          2 PIF  pred   1 - x == y; false for NaN
    ne          2 PIF  pred   1 - x != y; true for NaN
    lt          2 PIF  pred   1 - x < y; false for NaN
    le          2 PIF  pred   1 - x <= y; false for NaN
    gt          2 PIF  pred   1 - x > y; false for NaN
    ge          2 PIF  pred   1 - x >= y; false for NaN
    select      3 PIFC same   1 - the second operand where the first holds, else the third
    convert     1 PIF  given  1 - as the op convert: rounded once to nearest even, saturated, NaN to 0; integers wrap
    to_bits     1 PIF  given  1 - the bits as an unsigned integer, those of types below 8 bits in a byte, zeros above
    from_bits   1 I    given  1 - the value of these bits, which are as to_bits gives them; bits above are ignored
    floor       1 F    same   1 - the greatest integral value not above x
    ceil        1 F    same   1 - the least integral value not below x
    trunc       1 F    same   1 - the integral part
    round_even  1 F    same   1 - the nearest integral value, ties to even
    copysign    2 F    same   1 - |x| with the sign bit of y
    sqrt        1 F    same  16 - square root, correctly rounded
    cbrt        1 F    same  16 1 cube root
    exp         1 F    same  16 1 e to the x
    expm1       1 F    same  16 2 exp(x) - 1 without cancellation
    log         1 F    same  16 1 natural logarithm
    log1p       1 F    same  16 1 log(1 + x) without cancellation
    sin         1 F    same  16 2 sine
    cos         1 F    same  16 2 cosine
    tanh        1 F    same  16 2 hyperbolic tangent
    atan2       2 F    same  16 2 the angle of the point (y, x), in [-pi, pi]
    erf         1 F    same  16 2 error function
    pow         2 F    same  16 1 x to the y, as C's pow
    complex     2 F    whole  1 - the complex number of these parts
    real        1 C    part   1 - the real part
    imag        1 C    part   1 - the imaginary part
"""
"""A line each: name, arity, kinds, result, cost, ulp, meaning."""
_RESULTS = {"same": SAME, "pred": PRED, "given": GIVEN, "part": PART, "whole": WHOLE}


def _row(line: str) -> Primitive:
    name, arity, kinds, result, cost, ulp, meaning = line.split(maxsplit=6)
    operands = frozenset(_KINDS[k] for k in kinds)
    bound = None if ulp == "-" else float(ulp)
    return Primitive(name, int(arity), operands, _RESULTS[result], float(cost), bound, meaning)


PRIMITIVES: dict[str, Primitive] = {p.name: p for p in map(_row, _TABLE.strip().splitlines())}
"""Every primitive by name."""
COSTLY = frozenset(p.name for p in PRIMITIVES.values() if p.cost > 1)
"""Names of the primitives that take as long as many additions."""


def cost_of(name: str) -> float:
    """About how many additions it takes: the primitive's cost, 1 for what is not a primitive."""
    primitive = PRIMITIVES.get(name)
    return 1.0 if primitive is None else primitive.cost
