"""Tridiagonal systems that may be singular, as JAX's inverse iteration for eigenvectors needs them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in


@built_in("tridiagonal_solve_perturbed_ffi")
def tridiagonal_solve_perturbed(call: Invocation) -> Array:
    """x with a x = b; a by its diagonals below, on and above the main one, each [..., m], and b [..., m, k].

    Elimination with pivots from two rows. A pivot below eps * max |u| counts as so much, so that x is finite.
    """
    below, main, above, right = (np.array(operand) for operand in call.operands)
    if not below.shape == main.shape == above.shape == right.shape[:-1] or not main.ndim:
        found = ", ".join(str(list(a.shape)) for a in (below, main, above, right))
        raise EvaluationError(f"{call.op.custom_call_target}: diagonals and right sides of sizes {found} [CCALL-6]")
    size = main.shape[-1]
    if not main.size:
        return right
    second = np.zeros_like(above)
    above[..., -1] = 0
    with np.errstate(all="ignore"):
        for i in range(size - 1):
            _eliminate(i, below, main, above, second, right)
        _perturb(main, np.stack([abs(main), abs(above), abs(second)]).max((0, -1)))
        for i in reversed(range(size)):
            for step, diagonal in ((1, above), (2, second)):
                if i + step < size:
                    right[..., i, :] -= diagonal[..., i, None] * right[..., i + step, :]
            right[..., i, :] /= main[..., i, None]
    return right


def _eliminate(i: int, below: Any, main: Any, above: Any, second: Any, right: Any) -> None:
    """Clears the element below main[i], after an exchange of the two rows where that one is larger."""
    swap: Any = abs(below[..., i + 1]) > abs(main[..., i])
    upper: list[Any] = [main[..., i], above[..., i], np.zeros_like(main[..., i])]
    lower: list[Any] = [below[..., i + 1], main[..., i + 1], above[..., i + 1]]
    kept: list[Any] = [np.where(swap, low, up) for up, low in zip(upper, lower, strict=True)]
    left: list[Any] = [np.where(swap, up, low) for up, low in zip(upper, lower, strict=True)]
    factor: Any = np.where(kept[0] == 0, 0, left[0] / kept[0]).astype(main.dtype)
    main[..., i], above[..., i], second[..., i] = kept
    main[..., i + 1], above[..., i + 1] = (left[k] - factor * kept[k] for k in (1, 2))
    rows = right[..., i, :].copy(), right[..., i + 1, :].copy()
    right[..., i, :] = np.where(swap[..., None], rows[1], rows[0])
    right[..., i + 1, :] = np.where(swap[..., None], rows[0], rows[1]) - factor[..., None] * right[..., i, :]


def _perturb(main: Any, largest: Any) -> None:
    """Pivots of too small a size get the least that will do, in their own direction."""
    limits: Any = np.finfo(main.dtype)
    least: Any = np.maximum(limits.eps * largest, limits.tiny)[..., None]
    size: Any = abs(main)
    direction: Any = np.where(size == 0, 1, main / size)
    main[...] = np.where(size < least, direction * least, main)
