"""Derives the polynomial tables of builder/tables.py from the functions' definitions, at 50 digits.

    python -m tests.derivations.tables > src/hlokit/builder/tables.py

Each table is the polynomial that interpolates a function at Chebyshev nodes, of the least degree whose error,
relative to the function, is below 1/8 of the type's epsilon. Highest power first.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from mpmath import mp, mpf

mp.dps = 50

Function = Callable[[Any], Any]


def on_interval(f: Function, low: Any, high: Any) -> Function:
    """f as a function of t in [-1, 1]."""
    middle, half = (mpf(low) + mpf(high)) / 2, (mpf(high) - mpf(low)) / 2
    return lambda t: f(middle + half * t)


def interpolant(f: Function, degree: int) -> list[Any]:
    """Chebyshev coefficients of the interpolant at the Chebyshev nodes, lowest first."""
    n = degree + 1
    angles = [mp.pi * (k + mpf(1) / 2) / n for k in range(n)]
    values = [f(mp.cos(a)) for a in angles]
    sums = [2 * mp.fsum(v * mp.cos(j * a) for v, a in zip(values, angles)) / n for j in range(n)]
    return [sums[0] / 2, *sums[1:]]


def monomials(chebyshev: list[Any]) -> list[Any]:
    """The same polynomial in powers of t, highest first."""
    total = [mpf(0)] * len(chebyshev)
    before, current = [mpf(1)], [mpf(0), mpf(1)]
    for coefficient in chebyshev:
        for power, factor in enumerate(before):
            total[power] += coefficient * factor
        following = [mpf(0), *(2 * c for c in current)]
        for power, factor in enumerate(before):
            following[power] -= factor
        before, current = current, following
    return total[::-1]


def value_at(coefficients: list[Any], t: Any) -> Any:
    """The polynomial's value at t."""
    total = mpf(0)
    for coefficient in coefficients:
        total = total * t + coefficient
    return total


def table(f: Function, tolerance: Any) -> list[Any]:
    """The shortest table for f on [-1, 1]."""
    points = [mp.cos(mp.pi * mpf(k) / 160) for k in range(161)]
    wanted = [(t, f(t)) for t in points]
    for degree in range(3, 60):
        coefficients = monomials(interpolant(f, degree))
        if all(abs(value_at(coefficients, t) - value) <= tolerance * abs(value) for t, value in wanted):
            return coefficients
    raise ValueError("no table of degree below 60")


def scaled_erfcx(pole: Any) -> Function:
    """(1 + 2x) exp(x^2) erfc(x) at x = pole (1 + t) / (1 - t): x from 0 to infinity."""

    def f(t: Any) -> Any:
        if t == 1:
            return 2 / mp.sqrt(mp.pi)
        x = pole * (1 + t) / (1 - t)
        if x > 40:
            series = mp.fsum((-1) ** k * mp.fac2(2 * k - 1) / (2 * x * x) ** k for k in range(14))
            return (1 + 2 * x) * series / (x * mp.sqrt(mp.pi))
        return (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x)

    return f


def erf_inv_ratio(w: Any) -> Any:
    """erf_inv(x) / x where w = -log(1 - x^2)."""
    if w == 0:
        return mp.sqrt(mp.pi) / 2
    x = mp.sqrt(-mp.expm1(-w))
    y = mp.sqrt(w) * (1 if w > 1 else mp.sqrt(mp.pi) / 2)

    def logarithm(y: Any) -> Any:
        return -mp.log(mp.erfc(y) * (1 + mp.erf(y))) - w

    return mp.findroot(logarithm, y) / x


def log_gamma_ratio(s: Any) -> Any:
    """lgamma(2 + s) / s."""
    return 1 - mp.euler if abs(s) < 1e-30 else mp.loggamma(2 + s) / s


def digamma_ratio(x: Any) -> Any:
    """digamma(x) / (x - root)."""
    root = mp.findroot(mp.digamma, 1.46)
    return mp.polygamma(1, root) if x == root else mp.digamma(x) / (x - root)


def bessel_near(order: int) -> Function:
    """I_order(x) / x^order as a function of x^2."""
    return lambda u: mpf(1) / 2**order if u == 0 else mp.besseli(order, mp.sqrt(u)) / mp.sqrt(u) ** order


def bessel_far(order: int) -> Function:
    """sqrt(x) exp(-x) I_order(x) as a function of 1/x."""

    def f(v: Any) -> Any:
        if v == 0:
            return 1 / mp.sqrt(2 * mp.pi)
        return mp.sqrt(1 / v) * mp.exp(-1 / v) * mp.besseli(order, 1 / v)

    return f


ERFCX_POLE = 4
ERF_INV_SPLIT = 8
ERF_INV_FAR = {"f32": 17, "f64": 37}
BESSEL_SPLIT = 9
EPSILON = {"f32": mpf(2) ** -23, "f64": mpf(2) ** -52}


def in_powers_of(coefficients: list[Any], low: Any, high: Any) -> list[Any]:
    """A polynomial in t in [-1, 1] as one in u = middle + half t."""
    scale, shift = 2 / (mpf(high) - mpf(low)), -(mpf(high) + mpf(low)) / (mpf(high) - mpf(low))
    result: list[Any] = []
    for coefficient in coefficients:
        raised = [*(c * scale for c in result), mpf(0)]
        for k, c in enumerate(result):
            raised[k + 1] += c * shift
        result = raised
        result[-1] += coefficient
    return result


def tables(name: str) -> dict[str, list[Any]]:
    """All tables for an element type."""
    tolerance = EPSILON[name] / 8
    split, far = mpf(ERF_INV_SPLIT), mpf(ERF_INV_FAR[name])
    square = BESSEL_SPLIT**2
    functions: dict[str, Function] = {
        "ERFCX": scaled_erfcx(mpf(ERFCX_POLE)),
        "ERF_INV_CENTRE": on_interval(erf_inv_ratio, 0, split),
        "ERF_INV_TAIL": on_interval(lambda r: erf_inv_ratio(r * r), mp.sqrt(split), mp.sqrt(far)),
        "LOG_GAMMA": on_interval(log_gamma_ratio, -0.5, 0.5),
        "DIGAMMA": on_interval(digamma_ratio, 1, 2),
        "BESSEL_I0_NEAR": on_interval(bessel_near(0), 0, square),
        "BESSEL_I1_NEAR": on_interval(bessel_near(1), 0, square),
        "BESSEL_I0_FAR": on_interval(bessel_far(0), 0, mpf(1) / BESSEL_SPLIT),
        "BESSEL_I1_FAR": on_interval(bessel_far(1), 0, mpf(1) / BESSEL_SPLIT),
    }
    result = {key: table(f, tolerance) for key, f in functions.items()}
    for key in ("BESSEL_I0_NEAR", "BESSEL_I1_NEAR"):
        result[key] = in_powers_of(result[key], 0, square)  # positive terms only: nothing cancels
    return result


LARGE_SHAPE_LENGTHS = {"f32": (8, 6, 4, 2, 1, 1), "f64": (17, 14, 11, 9, 6, 4)}


def large_shape_series() -> list[list[Fraction]]:
    """The Taylor coefficients, lowest first, of c_0(eta), c_1(eta), ... in DLMF 8.12.7.

    With eta^2 / 2 = mu - log(1 + mu), so that mu mu' = eta (1 + mu): c_0 = 1 / mu - 1 / eta, and
    c_k = c_(k-1)' / eta + g / mu, where the number g takes away the pole.
    """
    count = 40
    mu = [Fraction(0), Fraction(1)]
    for n in range(2, count):
        known = sum(mu[i] * mu[n + 1 - i] for i in range(2, n)) * Fraction(n + 1, 2)
        mu.append((mu[n - 1] - known) / (n + 1))
    inverse = [Fraction(1)]  # of mu / eta
    for n in range(1, count - 1):
        inverse.append(-sum((mu[i + 1] * inverse[n - i] for i in range(1, n + 1)), Fraction(0)))
    series = [inverse[1:]]
    while len(series) < len(LARGE_SHAPE_LENGTHS["f64"]):
        last = series[-1]
        g = -last[1]
        series.append([(i + 2) * last[i + 2] + g * inverse[i + 1] for i in range(len(last) - 2)])
    return series


DESCRIPTIONS = {
    "ERFCX": "(1 + 2x) exp(x^2) erfc(x) in t = (x - 4) / (x + 4)",
    "ERF_INV_CENTRE": "erf_inv(x) / x in t = w / 4 - 1, w = -log(1 - x^2) in [0, 8]",
    "ERF_INV_TAIL": "erf_inv(x) / x in sqrt(w) from sqrt(8) to sqrt(17) (f32) or sqrt(37) (f64), scaled to [-1, 1]",
    "LOG_GAMMA": "lgamma(2 + s) / s in t = 2s, s in [-1/2, 1/2]",
    "DIGAMMA": "digamma(x) / (x - root) in t = 2x - 3, x in [1, 2]",
    "BESSEL_I0_NEAR": "I0(x) in x^2, x in [0, 9]",
    "BESSEL_I1_NEAR": "I1(x) / x in x^2, x in [0, 9]",
    "BESSEL_I0_FAR": "sqrt(x) exp(-x) I0(x) in t = 18 / x - 1, x >= 9",
    "BESSEL_I1_FAR": "sqrt(x) exp(-x) I1(x) in t = 18 / x - 1, x >= 9",
}


def literal(value: Any, name: str) -> str:
    """The shortest decimal that reads back as the value rounded to the type."""
    return repr(float(value)) if name == "f64" else str(np.float32(float(value)))


def rows(coefficients: list[Any], name: str, indent: str) -> list[str]:
    """The lines of one tuple of coefficients."""
    numbers = ", ".join(literal(c, name) for c in coefficients)
    inside = textwrap.wrap(f"{numbers},", 116, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    ")
    return [f"{indent}{name}=(", *inside, f"{indent}),"]


def source() -> str:
    """The module builder/tables.py."""
    made = {name: tables(name) for name in EPSILON}
    lines = [
        '"""Polynomials for the special functions, highest power first. Made by tests/derivations/tables.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import NamedTuple",
        "",
        "",
        "class Table(NamedTuple):",
        '    """One polynomial, fitted to the precision of each type."""',
        "",
        "    f32: tuple[float, ...]",
        "    f64: tuple[float, ...]",
        "",
    ]
    for key, description in DESCRIPTIONS.items():
        lines += ["", f"{key} = Table("]
        for name in EPSILON:
            lines += rows(made[name][key], name, "    ")
        lines += [")", f'"""{description}"""']
    lines += ["", "LARGE_SHAPE = ("]
    for k, coefficients in enumerate(large_shape_series()):
        lines += ["    Table("]
        for name, lengths in LARGE_SHAPE_LENGTHS.items():
            lines += rows(coefficients[: lengths[k]][::-1], name, "        ")
        lines += ["    ),"]
    lines += [")", '"""The functions c_0, c_1, ... of eta in DLMF 8.12.7, |eta| < 0.36"""']
    root = mp.findroot(mp.digamma, 1.46)
    high = mpf(float(np.float32(float(root))))
    lines += ["", f"DIGAMMA_ROOT = ({float(high)!r}, {float(root - high)!r})"]
    lines += ['"""The positive zero of digamma: an f32 and the rest."""', ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(source(), end="")
