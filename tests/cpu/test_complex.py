"""Functions of complex numbers on all pairs of special parts: machine code against the reference, and what it pins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlokit as hk
from hlokit.errors import ShapeError
from hlokit.hlo.op import OPS
from hlokit.judge.closeness.equality import differs
from hlokit.types.dtype import DType, c64, c128
from hlokit.types.shape import Shape

Array = np.ndarray[Any, np.dtype[Any]]

EXACT = {"add", "subtract", "negate"}
ELSEWHERE = {"select", "copy", "real", "imag"}  # they move parts


def takes(opcode: str) -> bool:
    op = OPS[opcode]
    if op.form != "map" or not op.elementwise or opcode in ELSEWHERE or any(a.required for a in op.attributes):
        return False
    try:
        op().infer(*[c64[1]] * (op.arity or 1))
    except ShapeError:
        return False
    return True


TESTED = sorted(filter(takes, OPS))


def special(dtype: DType, count: int) -> list[Array]:
    """`count` arrays that hold all combinations of special parts, signs included."""
    info = np.finfo(dtype.real.numpy)
    middle = float(info.max) ** 0.75
    sizes = [0.0, info.smallest_subnormal, 1.0, middle, info.max, np.inf]
    sizes += [info.smallest_normal, 1 / middle, 3.0] if count == 1 else []
    parts = np.array([*sizes, *(-x for x in sizes), np.nan], dtype.real.numpy)
    grids = np.meshgrid(*[parts] * (2 * count), indexing="ij")
    return [np.stack([g.ravel() for g in grids[k : k + 2]], -1).view(dtype.numpy)[:, 0] for k in range(0, 2 * count, 2)]


def program(opcode: str, dtype: DType, operands: list[Array]) -> hk.HloModule:
    shapes = [Shape.array(dtype, o.shape) for o in operands]
    result = OPS[opcode]().infer(*shapes)
    names = [f"p{k}" for k in range(len(operands))]
    lines = [f"{n} = {s} parameter({k})" for k, (n, s) in enumerate(zip(names, shapes, strict=True))]
    text = "\n".join([*lines, f"ROOT r = {result} {opcode}({', '.join(names)})"])
    return hk.parse(f"HloModule t\nENTRY e {{ {text} }}")


def parts_of(array: Array) -> list[Array]:
    return [p.astype(np.float64) for p in ([array.real, array.imag] if array.dtype.kind == "c" else [array])]


def judged(opcode: str, operands: list[Array], want: Array) -> Array:
    """Where the result is pinned: not powers but of finite numbers, and to the 0; not what hangs on fused products."""
    if opcode in ("multiply", "atan2"):
        return ~overflows_twice(*operands) if opcode == "multiply" else np.isfinite(sum(o * o for o in operands))
    if opcode == "power":
        z, w = (o.astype(np.complex128) for o in operands)
        known = np.isfinite(z) & np.isfinite(w) & np.isfinite(want) & (np.abs(w) < 1e10)
        return known | (w == 0)
    return np.ones(want.shape, bool)


def overflows_twice(z: Array, w: Array) -> Array:
    """Whether both terms of a part are infinite: the difference is NaN unless one is fused, as NumPy's is or is not."""
    terms = [(z.real * w.real, z.imag * w.imag), (z.real * w.imag, z.imag * w.real)]
    return np.any([np.isinf(a) & np.isinf(b) for a, b in terms], axis=0)


def wrong(opcode: str, operands: list[Array], got: Array, want: Array) -> Array:
    """A NaN for a number or the reverse, another infinity, a zero of the other sign, or a number too far away."""
    info = np.finfo(want.real.dtype)
    inner = [p for o in operands for p in parts_of(o)]
    plain = np.logical_and.reduce([(p == 0) | (np.abs(p) >= 1) for p in inner])  # nothing underflows
    plain &= np.sum([~np.isfinite(p) for p in inner], axis=0) < 2  # else no rule tells the sign
    mine, theirs = parts_of(got), parts_of(want)
    modulus = np.max([np.where(np.isfinite(p), np.abs(p), 0) for p in theirs], axis=0)
    if opcode == "atan2":  # the logarithm of a number of modulus 1; on its cut rounding decides the side
        turns = np.round((theirs[0] - mine[0]) / (2 * np.pi), 6)
        mine[0] = np.where(np.abs(turns) == 1, mine[0] + 2 * np.pi * turns, mine[0])
        modulus = np.maximum(modulus, 1)
    room = 16 * float(info.eps) * modulus + 4 * float(info.tiny)
    if opcode == "power":
        z, w = (o.astype(np.complex128) for o in operands)
        room = room * (16 + np.abs(w * np.log(np.where((z == 0) | ~np.isfinite(z), 1, z))))
    any_nan = np.logical_or.reduce([np.isnan(p) for p in theirs])
    found = np.zeros(want.shape, bool)
    for ours, reference in zip(mine, theirs, strict=True):
        finite = np.isfinite(reference)
        found |= np.isnan(ours) != np.isnan(reference)
        found |= finite & ~(np.abs(ours - reference) <= room) & ~(np.isinf(ours) & (modulus + room > info.max))
        found |= np.isinf(reference) & ~(np.isinf(ours) & ((ours == reference) | any_nan))
        is_zero = plain & (ours == 0) & (reference == 0) & (opcode not in ("atan2", "power"))
        found |= is_zero & (np.signbit(ours) != np.signbit(reference))
    return found & judged(opcode, operands, want)


@pytest.mark.parametrize("dtype", [c64, c128], ids=str)
@pytest.mark.parametrize("opcode", TESTED)
def test_special_parts(opcode: str, dtype: DType) -> None:
    operands = special(dtype, OPS[opcode].arity or 1)
    module = program(opcode, dtype, operands)
    with np.errstate(all="ignore"):
        want = np.asarray(hk.evaluate(module, *operands))
        strict = np.asarray(hk.compile(module, strict=True)(*operands))
        got = np.asarray(hk.compile(module)(*operands))
        assert differs(strict, want) is None
        if opcode in EXACT or want.dtype.kind not in "fc":
            assert differs(got, want) is None
            at = np.zeros(0, np.int64)
        else:
            at = np.flatnonzero(wrong(opcode, operands, got, want))
    shown = [f"{[complex(o[i]) for o in operands]}: {got[i]}, reference {want[i]}" for i in at[:8]]
    assert not at.size, "\n".join([f"{at.size} of {want.size}", *shown])


def value(opcode: str, *numbers: complex) -> complex:
    operands = [np.array([x], np.complex64) for x in numbers]
    module = program(opcode, c64, operands)
    default, strict = hk.compile(module)(*operands)[0], hk.compile(module, strict=True)(*operands)[0]
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(default, part), getattr(strict, part), rtol=1e-6)
    return complex(strict)


def test_what_the_formulas_lost() -> None:
    """Signs of small and infinite numbers (SIGN-3), logarithms near the largest, powers to the 0 (BEY-8)."""
    assert value("sign", 1e-45) == 1
    assert value("sign", complex(np.inf, 1)).imag == 0
    assert value("log-plus-one", complex(3e38, 3e38)).real == pytest.approx(88.947, rel=1e-4)
    assert value("power", complex(np.inf, np.nan), -0.0) == 1
    assert value("sinh", complex(100, 1e-30)).imag == pytest.approx(1.344e13, rel=1e-3)
    assert value("exponential", complex(100, 1e-30)).imag == pytest.approx(2.688e13, rel=1e-3)


def test_logistic_near_a_pole() -> None:
    """1 + exp(-z) has as many digits as z."""
    points = (np.linspace(-1e-3, 1e-3, 7)[:, None] + 1j * (np.pi + np.linspace(-1e-3, 1e-3, 9))).astype(np.complex64)
    module = program("logistic", c64, [points.reshape(-1)])
    exact = 1 / (1 + np.exp(-points.reshape(-1).astype(np.complex128)))
    for result in (hk.evaluate(module, points.reshape(-1)), hk.compile(module)(points.reshape(-1))):
        assert np.max(np.abs(result - exact) / np.abs(exact)) < 16 * np.finfo(np.float32).eps


NAN, INF = float("nan"), float("inf")
PINNED: list[tuple[str, tuple[complex, ...], complex]] = [
    ("exponential-minus-one", (800,), complex(INF, 0)),
    ("exponential-minus-one", (complex(800, -0.0),), complex(INF, -0.0)),
    ("exponential-minus-one", (complex(INF, 0),), complex(INF, 0)),
    ("exponential-minus-one", (complex(-INF, INF),), complex(-1, 0)),
    ("exponential-minus-one", (complex(NAN, 0),), complex(NAN, 0)),
    ("exponential-minus-one", (complex(800, 1),), complex(INF, INF)),
    ("exponential-minus-one", (complex(-800, 1),), complex(-1, 0)),
    ("tan", (complex(-INF, 0),), complex(NAN, NAN)),
    ("tan", (complex(INF, -0.0),), complex(NAN, NAN)),
    ("tan", (complex(NAN, 0),), complex(NAN, NAN)),
    ("tan", (complex(0, INF),), complex(0, 1)),
    ("tanh", (complex(0, INF),), complex(NAN, NAN)),
    ("tanh", (complex(-INF, INF),), complex(-1, 0)),
    ("logistic", (complex(-INF, 1),), complex(0, 0)),
    ("logistic", (complex(-800, 1),), complex(0, 0)),
    ("divide", (1 + 1j, complex(INF, INF)), complex(0, 0)),
    ("divide", (1 + 2j, complex(INF, -INF)), complex(-0.0, 0)),
    ("divide", (complex(INF, NAN), 1 + 1j), complex(INF, -INF)),
    ("divide", (1 + 1j, complex(-0.0, 0)), complex(-INF, -INF)),
    ("divide", (0, 0), complex(NAN, NAN)),
    ("divide", (complex(INF, 1), complex(INF, 1)), complex(NAN, NAN)),
]


@pytest.mark.parametrize("dtype", [c64, c128], ids=str)
def test_pinned_values(dtype: DType) -> None:
    """Of infinite and NaN parts and where the exponential overflows, zeros with their signs."""
    found: list[str] = []
    for opcode, numbers, want in PINNED:
        operands = [np.array([z], dtype.numpy) for z in numbers]
        module = program(opcode, dtype, operands)
        with np.errstate(all="ignore"):
            results = hk.evaluate(module, *operands), hk.compile(module)(*operands)
        for got in (complex(np.asarray(r)[0]) for r in results):
            if not all(same(*pair) for pair in ((got.real, want.real), (got.imag, want.imag))):
                found.append(f"{opcode} of {numbers}: {got}, expected {want}")
    assert not found, "\n".join(found)


def same(a: float, b: float) -> bool:
    return (np.isnan(a) and np.isnan(b)) or (a == b and (np.signbit(a) == np.signbit(b)))
