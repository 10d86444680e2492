"""Runs a program on hlokit's platform and on JAX's CPU client, and says which of them is wrong if they differ."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import jax
import numpy as np

import hlokit as hk
from hlokit.judge.closeness.equality import info_of, is_floating, is_nan, leaves
from tests.fuzz.properties import MEMORY, within
from tests.jax.random.program import NDArray, Program

SECONDS = 120
"""The time limit of the reference interpreter."""
ROUNDINGS = 4
"""Epsilons that are added to each program's tolerance, for the roundings of single operations."""

Results = list[NDArray] | str
"""The results of a program, or the reason why there are none."""


class Kind(StrEnum):
    """The ways in which a comparison ends, as the figures name them."""

    AGREE = "agree"
    FINDING = "findings"
    XLA_DIFFERS = "in which XLA differs from both"
    XLA_FAILS = "errors of XLA alone"
    BOTH_FAIL = "errors of both"


@dataclass(frozen=True)
class Outcome:
    """The way in which a comparison ended, and what was found, in words."""

    kind: Kind
    found: str = ""


def compare(program: Program) -> Outcome:
    """Runs the program on both, and on the reference interpreter if they differ."""
    function = jax.jit(program.function, keep_unused=True)
    ours, theirs = (_results(function, program, platform) for platform in ("hlokit", "cpu"))
    return judged(ours, theirs, lambda: reference(program), program.tolerance)


def judged(ours: Results, theirs: Results, reference: Callable[[], Results], tolerance: float | None) -> Outcome:
    """The outcome for these results of hlokit and of XLA, and those of the reference, if they are needed."""
    if isinstance(ours, str):
        if isinstance(theirs, str):
            return Outcome(Kind.BOTH_FAIL, f"hlokit fails: {ours}; XLA fails: {theirs}")
        return Outcome(Kind.FINDING, f"hlokit fails: {ours}")
    if isinstance(theirs, str):
        return Outcome(Kind.XLA_FAILS, f"XLA fails: {theirs}")
    found = difference(ours, theirs, tolerance)
    if found is None:
        return Outcome(Kind.AGREE)
    expected = reference()
    if isinstance(expected, str):
        return Outcome(Kind.FINDING, f"hlokit and XLA differ: {found}; the reference {expected}")
    ours_differ, theirs_differ = difference(ours, expected, tolerance), difference(theirs, expected, tolerance)
    if theirs_differ and not ours_differ:
        return Outcome(Kind.XLA_DIFFERS, f"XLA differs from hlokit and from the reference: {theirs_differ}")
    if ours_differ and not theirs_differ:
        return Outcome(Kind.FINDING, f"hlokit differs from XLA and from the reference: {ours_differ}")
    if ours_differ:
        return Outcome(Kind.FINDING, f"all three differ: hlokit from XLA: {found}; from the reference: {ours_differ}")
    return Outcome(Kind.FINDING, f"hlokit and XLA differ: {found}; the reference is between them")


def stablehlo(program: Program) -> str:
    """The program as hlokit's platform gets it."""
    with jax.default_device(jax.devices("hlokit")[0]):
        return jax.jit(program.function, keep_unused=True).lower(*program.arguments).as_text()


def reference(program: Program) -> Results:
    """The results of the reference interpreter, which does not run programs with large arrays."""
    try:
        module = hk.parse(stablehlo(program))
        if any(i.shape.is_array and i.shape.nbytes > MEMORY // 2 for i in module.instructions()):
            return "was not run: there are large arrays"
        with within(SECONDS), np.errstate(all="ignore"):
            return leaves(hk.evaluate(module, *program.arguments, memory_limit=MEMORY))
    except (hk.HlokitError, TimeoutError) as error:
        return f"fails: {_words(error)}"


def _results(function: Callable[..., Any], program: Program, platform: str) -> Results:
    try:
        with jax.default_device(jax.devices(platform)[0]):
            return [np.asarray(leaf) for leaf in jax.tree.leaves(function(*program.arguments))]
    except Exception as error:
        return _words(error)


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


# -- differences


def difference(ours: Sequence[NDArray], theirs: Sequence[NDArray], tolerance: float | None) -> str | None:
    """The first result that differs and where, or None.

    If there is a tolerance, finite floating elements may differ by so many epsilons of the largest one.
    """
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if found := _difference(a, b, tolerance):
            return f"result {number} ({a.dtype}{list(a.shape)}) {found}"
    return None


def _difference(a: NDArray, b: NDArray, tolerance: float | None) -> str | None:
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"should be {b.dtype}{list(b.shape)}"
    unequal = (a != b) & ~(is_nan(a) & is_nan(b))
    if not np.any(unequal):
        return None
    inexact = a.dtype.kind == "c" or is_floating(a.dtype)
    if tolerance is None or not inexact:
        return _place(a, b, unequal)
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    finite = np.isfinite(x) & np.isfinite(y)
    if np.any(special := unequal & ~finite):
        return _place(a, b, special)
    x, y = np.where(finite, x, 0), np.where(finite, y, 0)
    info = info_of(a.dtype)
    largest = max(float(info.tiny), float(np.max(np.abs(y))))
    allowed = tolerance + ROUNDINGS
    errors = np.abs(x - y) / largest / float(info.eps)
    if np.max(errors) <= allowed:
        return None
    return f"{_place(a, b, errors > allowed)} by up to {np.max(errors):.0f} epsilons, of {allowed:.0f} allowed"


def _place(a: NDArray, b: NDArray, unequal: NDArray) -> str:
    at = tuple(int(i) for i in np.argwhere(unequal)[0])
    return f"at {list(at)}: {a[at]}, not {b[at]}; {int(np.sum(unequal))} of {a.size} differ"
