"""Makes src/hlokit/cpu/math/coefficients.py: minimax polynomials by Remez' exchange. `python -m tests.cpu.minimax`."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import Any

import mpmath as mp

mp.mp.prec = 200
Real = Any
Function = Callable[[Real], Real]


def remez(
    target: Function, basis: Sequence[Function], weight: Function, low: Real, high: Real
) -> tuple[list[Real], Real]:
    """Coefficients c that make the greatest |weight(x) * (target(x) - sum c_k basis_k(x))| on [low, high] least; and it."""
    low, high, n = mp.mpf(low), mp.mpf(high), len(basis)
    at = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * k / n) for k in range(n + 1)]
    at[1:-1] = [x + (high - low) / 97 / n for x in at[1:-1]]  # none at 0, where a basis may vanish
    count = 40 * (n + 1)
    grid = [(low + high) / 2 - (high - low) / 2 * mp.cos(mp.pi * (k + mp.mpf(1) / 2) / count) for k in range(count)]
    grid = [low, *grid, high]
    rows = [[b(x) for b in basis] for x in grid]
    values, weights = [target(x) for x in grid], [weight(x) for x in grid]
    best: tuple[list[Real], Real] = ([], mp.inf)
    for _ in range(8):
        matrix, right = mp.matrix(n + 1, n + 1), mp.matrix(n + 1, 1)
        for i, x in enumerate(at):
            for k, b in enumerate(basis):
                matrix[i, k] = b(x)
            matrix[i, n] = (-1) ** i / weight(x)
            right[i] = target(x)
        solved = mp.lu_solve(matrix, right)
        c = [solved[k] for k in range(n)]
        errors = [(v - mp.fdot(c, r)) * w for v, r, w in zip(values, rows, weights, strict=True)]
        worst = max(abs(e) for e in errors)
        if worst < best[1]:
            best = c, worst
        extremes: list[int] = []
        for i, e in enumerate(errors):
            if extremes and errors[extremes[-1]] * e > 0:
                if abs(e) > abs(errors[extremes[-1]]):
                    extremes[-1] = i
            elif e != 0:
                extremes.append(i)
        while len(extremes) > n + 1:
            extremes.pop(0 if abs(errors[extremes[0]]) < abs(errors[extremes[-1]]) else -1)
        if len(extremes) < n + 1:
            break
        at = [grid[i] for i in extremes]
        if abs(abs(solved[n]) - worst) < worst / 1000:
            break
    return best


def monomial(power: int) -> Function:
    return lambda x: x**power


def less(target: Function, terms: Sequence[float]) -> Function:
    """The target less the polynomial of these terms."""
    known = list(terms)[::-1]
    return lambda x: target(x) - mp.polyval(known, x) if known else target(x)


def polynomial(
    target: Function, count: int, weight: Function, low: Real, high: Real, scalar: str
) -> tuple[list[float], Real]:
    """Coefficients of 1, x, x^2, ... rounded to the type one by one, the rest fitted anew after each."""
    fixed: list[float] = []
    worst = mp.inf
    for k in range(count):
        rest = [monomial(j) for j in range(k, count)]
        c, worst = remez(less(target, fixed), rest, weight, low, high)
        fixed.append(rounded(c[0], scalar))
        if scalar == "double" and k > 3:
            fixed += [rounded(v, scalar) for v in c[1:]]
            break
    return fixed, worst


def rounded(value: Real, scalar: str) -> float:
    return float(value) if scalar == "double" else struct.unpack("<f", struct.pack("<f", float(value)))[0]


def rational(
    target: Function, numerator: int, denominator: int, low: Real, high: Real
) -> tuple[list[float], list[float], Real]:
    """P / Q in t with Q(0) = 1, of least relative error."""
    q: list[Real] = [mp.mpf(1)] + [mp.mpf(0)] * (denominator - 1)
    p: list[Real] = []
    worst = mp.inf
    for _ in range(12):
        held = list(q)
        basis: list[Function] = [monomial(k) for k in range(numerator)]
        basis += [(lambda x, k=k: -target(x) * x**k) for k in range(1, denominator)]
        c, worst = remez(target, basis, lambda x, held=held: 1 / (target(x) * mp.polyval(held[::-1], x)), low, high)
        p, q = c[:numerator], [mp.mpf(1), *c[numerator:]]
    return [float(v) for v in p], [float(v) for v in q], worst


def polished_sine(terms: list[float], scalar: str) -> list[float]:
    """The coefficients with their last bits chosen at random for the least error in the type itself.

    Fitting leaves 2 ULP and sines above 1 close to pi / 2, where all that counts is how the steps round.
    """
    import numpy as np

    rng = np.random.default_rng(0)
    kind, wide = (np.float32, np.float64) if scalar == "float" else (np.float64, np.longdouble)
    if scalar == "float":
        # from 0.9 to pi / 2, every float where a sine is all but 1
        places = [np.arange(0x3F666666, 0x3FC40000, 13), np.arange(0x3FC40000, 0x3FC91600)]
        r: Any = np.concatenate(places).astype(np.uint32).view(np.float32)
    else:
        r = np.concatenate([np.linspace(0.8, 1.5709, 80000), rng.uniform(1.5, 1.5709, 40000)])
    exact: Any = np.sin(r.astype(wide))
    unit = np.spacing(exact.astype(kind) * kind(1 - 2.0**-20))
    square: Any = r * r
    square_wide, r_wide = square.astype(wide), r.astype(wide)

    def error(c: list[Any]) -> tuple[float, float]:
        tail: Any = np.full_like(r, c[-1])
        for term in c[-2::-1]:
            tail = (tail.astype(wide) * square_wide + wide(term)).astype(kind)
        result = ((tail * square).astype(wide) * r_wide + r_wide).astype(kind)
        errors = np.sort(np.abs((result - exact) / unit).astype(np.float64))
        return float(errors[-1]), float(errors[-200:].mean())

    best = [kind(v) for v in terms]
    least = error(best)
    for _ in range(800):
        steps = rng.integers(-3, 4, len(best)) * 2 ** np.minimum(np.arange(len(best)), 4)
        tried = [kind(v + k * np.spacing(abs(v))) for v, k in zip(best, steps, strict=True)]
        found = error(tried)
        if found < least:
            best, least = tried, found
    print("polished sine: ULP", least)
    return [float(v) for v in best]


def pieces(f: Callable[[Any], Any], limit: float, slope: float) -> list[list[float]]:
    """The columns of math/pieces.py for an odd f of this slope at 0: centres, then coefficients, of 32 pieces."""
    import numpy as np

    steps = 0.5 * 2.0 ** np.arange(4)
    places = np.append(np.outer(steps, 1 + np.arange(8) / 8).ravel(), 8.0)
    edges = np.minimum((places - 0.5) * (limit / 7.49), limit)
    rows: list[list[float]] = []
    for k, (low, high) in enumerate(pairwise(edges)):
        centre = _centre(f, low, high) if k else 0.0
        known = [float(np.float32(f(centre)))] if k else [0.0, float(np.float32(slope))]
        rows.append([centre, *_piece(f, low or high / 1000, high, centre, known)])
    return np.transpose(rows).tolist()


def _centre(f: Callable[[Any], Any], low: float, high: float) -> float:
    """The float near the middle whose value comes closest to a float."""
    import numpy as np

    bits = np.float32((low + high) / 2).view(np.int32) + np.arange(-3000, 3000, dtype=np.int32)
    near = bits.view(np.float32).astype(float)
    near = near[abs(near - (low + high) / 2) < 0.04 * (high - low)]
    values = f(near)
    return float(near[(abs(values - values.astype(np.float32)) / np.spacing(values.astype(np.float32))).argmin()])


def _piece(f: Callable[[Any], Any], low: float, high: float, centre: float, known: list[float]) -> list[float]:
    """Five coefficients in x less the centre, the unknown ones of least relative error, rounded one by one."""
    import numpy as np

    x = (low + high) / 2 - (high - low) / 2 * np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    t, value, unit = x - centre, f(x), high - low
    weight = 1 / value
    if not centre:  # close to 0 the slope's own rounding is all there is
        weight *= np.minimum(1, t / (0.03 * high)) ** 0.25
    while len(known) < 5:
        rest = (value - np.polyval(known[::-1], t)) * weight
        basis = np.stack([(t / unit) ** k * weight for k in range(len(known), 5)], 1)
        share, c = np.ones(len(x)), basis[0]
        for _ in range(30):  # Lawson's iteration
            c = np.linalg.lstsq(basis * np.sqrt(share)[:, None], rest * np.sqrt(share), rcond=None)[0]
            share *= abs(basis @ c - rest)
            share = share / share.sum() + 1e-9
        known = [*known, float(np.float32(c[0] / unit ** len(known)))]
    return known


def log_pieces() -> list[list[float]]:
    """For the five highest bits of the mantissa of x = 2^e m, m in [0.75, 1.5): c near 1 / m, 1 beside 1; -log c, of
    m below 1 more by log 2 since e is taken too small by one: to 2^-17, as LOG_LN2_32, and the rest.

    c has so few bits that m c - 1, of size 2^-5 at most, is a float.
    """
    columns: list[list[float]] = [[], [], []]
    ln2, ln2_rest = split(mp.log(2), "float", 2, 17)
    for k in range(32):
        below = k >= 16
        middle = (1 + (k + mp.mpf(1) / 2) / 32) / (2 if below else 1)
        step = 32 if below else 64
        c = mp.mpf(1) if k in (0, 31) else mp.nint(step / middle) / step
        value = -mp.log(c)
        coarse = mp.nint(value * 2**17) / 2**17
        rest = value - coarse
        if below:
            coarse, rest = coarse + ln2, rest + ln2_rest
        for column, number in zip(columns, (c, coarse, rest), strict=True):
            column.append(rounded(number, "float"))
    return columns


def split(value: Real, scalar: str, parts: int, bits: int) -> list[float]:
    """value as a sum of floats, all but the last of `bits` bits, truncated."""
    found: list[float] = []
    rest = mp.mpf(value)
    for k in range(parts):
        if k == parts - 1:
            found.append(rounded(rest, scalar))
            break
        scale = mp.mpf(2) ** (bits - 1 - mp.floor(mp.log(abs(rest), 2)))
        part = mp.floor(abs(rest) * scale) / scale * mp.sign(rest)
        found.append(float(part))
        rest -= part
    return found


def small(f: Function, series: Sequence[Real]) -> Function:
    """f, by its series close to 0, where f cancels."""
    return lambda x: mp.polyval(list(series)[::-1], x) if abs(x) < mp.mpf(2) ** -14 else f(x)


def _exp(x: Real) -> Real:
    return (mp.exp(x) - 1 - x) / x**2


def _log(x: Real) -> Real:
    return (mp.log1p(x) - x) / x**2


def _sin(t: Real) -> Real:
    r = mp.sqrt(t)
    return (mp.sin(r) - r) / r**3


def _atan(t: Real) -> Real:
    q = mp.sqrt(t)
    return (mp.atan(q) - q) / q**3


def _erf(t: Real) -> Real:
    x = mp.sqrt(t)
    return mp.erf(x) / x if x else 2 / mp.sqrt(mp.pi)


def _atanh(t: Real) -> Real:
    """atanh(s) / s less its first two terms."""
    s = mp.sqrt(t)
    return ((mp.atanh(s) / s - 1) / t - mp.mpf(1) / 3) / t


def _tanh(t: Real) -> Real:
    x = mp.sqrt(t)
    return (mp.tanh(x) - x) / x**3


TANH_SERIES = [mp.mpf(-1) / 3, mp.mpf(2) / 15, mp.mpf(-17) / 315, mp.mpf(62) / 2835, mp.mpf(-1382) / 155925]
EXP_SERIES = [1 / mp.factorial(k + 2) for k in range(14)]
LOG_SERIES = [mp.mpf(-1) ** (k + 1) / (k + 2) for k in range(14)]
SIN_SERIES = [mp.mpf(-1) ** (k + 1) / mp.factorial(2 * k + 3) for k in range(8)]
ATAN_SERIES = [mp.mpf(-1) ** (k + 1) / (2 * k + 3) for k in range(14)]


def tables() -> dict[str, list[Any]]:
    import numpy as np
    from scipy import special

    found: dict[str, list[Any]] = {}

    def note(name: str, values: list[Any], error: Real = 0) -> None:
        found[name] = values
        print(name, len(values), f"error 2^{float(mp.log(error, 2)):.1f}" if error else "", flush=True)

    for scalar, sizes in (("float", (5, 9, 4, 9)), ("double", (11, 21, 8, 21))):
        width, bits = (32, 24) if scalar == "float" else (64, 53)
        half = mp.log(2) / 2 * mp.mpf("1.01")
        note(
            f"EXP{width}",
            *polynomial(small(_exp, EXP_SERIES), sizes[0], lambda r: abs(r) + 0.02, -half, half, scalar),
        )
        note(
            f"LOG{width}",
            *polynomial(
                small(_log, LOG_SERIES),
                sizes[1],
                lambda f: abs(f * f / mp.log1p(f)) + 0.01 if f else mp.mpf(0.01),
                -0.25,
                0.5,
                scalar,
            ),
        )
        high = mp.mpf("1.6") ** 2
        sine, error = polynomial(small(_sin, SIN_SERIES), sizes[2], lambda t: t + 0.01, 0, high, scalar)
        note(f"SIN{width}", polished_sine(sine, scalar), error)
        end = mp.mpf("0.87") ** 2
        note(
            f"TANH{width}",
            *polynomial(small(_tanh, TANH_SERIES), 6 if width == 32 else 14, lambda t: 0.01 + t, 0, end, scalar),
        )
        note(f"ATAN{width}", *polynomial(small(_atan, ATAN_SERIES), sizes[3], lambda t: t + 0.01, 0, 1, scalar))
        note(f"LN2_{width}", split(mp.log(2), scalar, 2, bits - (9 if width == 32 else 12)))
        note(f"PI_{width}", split(mp.pi, scalar, 3, bits))
        note(f"HALF_PI_{width}", split(mp.pi / 2, scalar, 2, bits))
        note(f"LOG2E_{width}", [rounded(1 / mp.log(2), scalar)])
        note(f"INVERSE_PI_{width}", [rounded(1 / mp.pi, scalar)])
    border = mp.mpf("0.92")  # below it erf(x) = x + x S(x^2), above it 1 - 2^q(x)
    note("ERF_SMALL32", *polynomial(lambda t: _erf(t) - 1, 6, lambda t: 1 / _erf(t), 0, border**2, "float"))
    note(
        "ERFC_LOG2_32",
        *polynomial(lambda x: mp.log(mp.erfc(x), 2), 6, lambda x: mp.erfc(x) * mp.log(2), border, 3.93, "float"),
    )
    for name, count, scalar in (("EXP2_32", 6, "float"), ("EXP2_FINE32", 7, "float"), ("EXP2_64", 13, "double")):
        note(name, *polynomial(lambda f: mp.mpf(2) ** f, count, lambda f: mp.mpf(2) ** -f, -0.5, 0.5, scalar))
    log2 = small(lambda f: mp.log1p(f) / f, [mp.mpf(1), *(mp.mpf(-1) ** k / (k + 1) for k in range(1, 14))])
    note(
        "LOG2_COARSE64",  # enough for f32's pow
        *polynomial(lambda f: log2(f) / mp.log(2), 13, lambda f: 1 / log2(f), -0.25, 0.5, "double"),
    )
    note("LOG_LN2_32", split(mp.log(2), "float", 2, 17))
    note("LOG_PIECES32", log_pieces())
    tail = small(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, LOG_SERIES[1:])
    note("LOG_TAIL32", *polynomial(tail, 4, lambda f: mp.mpf(1), -1 / mp.mpf(36), 1 / mp.mpf(32), "float"))
    half = mp.mpf("0.372")  # of what is in the rest, up to 0.025, n knows nothing
    note("EXP_PAIR32", *polynomial(small(_exp, EXP_SERIES), 5, lambda r: r**2 + 0.001, -half, half, "float"))
    note("ERF_SMALL64", *polynomial(_erf, 15, lambda t: 1 / _erf(t), 0, 1, "double"))
    p, q, error = rational(lambda x: mp.exp(x * x) * mp.erfc(x), 9, 10, 1, 6)
    note("ERFC_P64", [rounded(v, "double") for v in p], error)
    note("ERFC_Q64", [rounded(v, "double") for v in q])
    tail = small(_atanh, [mp.mpf(1) / (2 * k + 5) for k in range(14)])
    note("ATANH64", *polynomial(tail, 8, lambda t: mp.mpf(1), 0, 0.0401, "double"))
    for name, f, limit, slope in (("TANH", np.tanh, 9.4, 1.0), ("ERF", special.erf, 4.0, 2 / np.sqrt(np.pi))):
        note(f"{name}_LIMIT32", [limit])
        note(f"{name}_PIECES32", pieces(f, limit, slope))
    note("THIRD64", split(mp.mpf(1) / 3, "double", 2, 53))
    return found


PATH = Path(__file__).parents[2] / "src/hlokit/cpu/math/coefficients.py"


HEAD = """\"\"\"Made by tests/cpu/minimax.py. Polynomials from the constant coefficient up; sums from the greatest part down.\"\"\"

# fmt: off
"""


def text(found: dict[str, list[Any]]) -> str:
    """The module that holds these tables: rows of numbers, those of pieces a paragraph for each column."""

    def listed(values: Sequence[Any], indent: str) -> str:
        if isinstance(values[0], float):
            return fill(", ".join(map(repr, values)) + ",", 119, initial_indent=indent, subsequent_indent=indent)
        return "\n".join(f"{indent}(\n{listed(column, indent + '    ')}\n{indent})," for column in values)

    return HEAD + "\n".join(f"{name} = (\n{listed(values, '    ')}\n)" for name, values in found.items()) + "\n"


def main() -> None:
    PATH.write_text(text(tables()))


if __name__ == "__main__":
    main()
