"""Machine code against the reference: `wrong(module, seed)` says where a module's code is not what it should be.

Strict code gives the reference's bits (but a NaN's, and what hangs on the sign of one: a float4 has no NaN, and makes
a zero of either sign of it). Default code may round otherwise, which a program may make more of; how much is found by
the reference itself: it runs a few times, each instruction's result off by a random part of what tolerance.py allows
its op, and what then varies may vary in machine code too, a few times as much. An element that is no number in one of
these runs, or an integer that changes, is not compared.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import hlokit as hk
from hlokit.cpu import costs
from hlokit.judge.closeness.equality import bits, differs, is_nan, leaves, same_bytes
from hlokit.judge.closeness.spread import hangs_on_signs, near
from hlokit.judge.fuzz.values import arguments
from tests.fuzz.properties import MEMORY


def wrong(
    module: hk.HloModule, seed: int, *, passes: bool = True, donate: bool = True, given: Sequence[Any] = ()
) -> str | None:
    """The first way in which the module's machine code is wrong, or None."""
    inputs = list(given) or arguments(module, seed)
    try:
        expected = hk.evaluate(module, *inputs, memory_limit=MEMORY)
    except hk.HlokitError as error:
        return _refused(module, inputs, str(error))
    try:
        return _wrong(module, seed, inputs, expected, passes, donate)
    except hk.UnsupportedError as error:
        return None if "dynamic" in str(error) else f"refused: {error}"


def _wrong(
    module: hk.HloModule, seed: int, inputs: Sequence[Any], expected: Any, passes: bool, donate: bool
) -> str | None:
    before = [leaf.tobytes() for leaf in leaves(tuple(inputs))]
    varies = any(i.opcode == "multiply" and i.shape.dtype.is_complex for i in module.instructions())
    alike = _similar if varies else _same

    def compare(ours: Any, theirs: Any, where: str) -> str | None:
        found = alike(ours, theirs, where)
        return None if found and hangs_on_signs(ours, theirs, module, inputs, seed) else found

    if passes and (found := compare(hk.evaluate(hk.optimize(module), *inputs), expected, "after the passes")):
        return found
    strict = _on_one_and_two_threads(module, inputs, strict=True)
    if found := compare(strict[0], expected, "strict") or _bytes(*strict, "strict"):
        return found
    default = _on_one_and_two_threads(module, inputs, strict=False)
    if found := _bytes(*default, "default"):
        return found
    if [leaf.tobytes() for leaf in leaves(tuple(inputs))] != before:
        return "a call changes its arguments"
    if differs(default[0], expected) and (found := near(default[0], expected, module, inputs, seed)):
        return f"default: {found}"
    return _donated(module, inputs, expected, seed) if donate else None


def _on_one_and_two_threads(module: hk.HloModule, inputs: Sequence[Any], *, strict: bool) -> tuple[Any, Any]:
    """The results on one thread and on two: the same call where the program hands out no chunks."""
    program = hk.compile(module, strict=strict, threads=1)
    result = program(*inputs)
    if not program.plan.parallel:
        return result, result
    return result, hk.compile(module, strict=strict, threads=2)(*inputs)


def _refused(module: hk.HloModule, inputs: Sequence[Any], message: str) -> str | None:
    for strict in (False, True):
        try:
            hk.compile(module, strict=strict, memory_limit=MEMORY)(*inputs)
        except hk.HlokitError:
            continue
    return None


def _donated(module: hk.HloModule, inputs: Sequence[Any], expected: Any, seed: int) -> str | None:
    """All arguments given away: the same values; what is not overwritten stays as it was."""
    if not inputs or any(i.shape.is_dynamic for c in module.all_computations for i in c.instructions):
        return None
    program = hk.compile(module, strict=True, donate=range(len(inputs)))
    given = [_copied(value) for value in inputs]
    result = program(*given)
    found = _similar(result, expected, "strict, donated")
    return None if found and hangs_on_signs(result, expected, module, inputs, seed) else found


def _copied(value: Any) -> Any:
    return tuple(_copied(part) for part in value) if isinstance(value, tuple) else np.array(value)


def _similar(ours: Any, theirs: Any, where: str) -> str | None:
    """The same up to a rounding of NumPy's complex products, which is another for arrays than for single numbers."""
    if _same(ours, theirs, where) is None:
        return None
    for a, b in zip(leaves(ours), leaves(theirs), strict=True):
        if a.dtype != b.dtype or a.shape != b.shape:
            return _same(ours, theirs, where)
        if a.dtype.kind in "fc":
            close = np.isclose(a, b, 1e-4, 1e-30, equal_nan=True) | ~np.isfinite(b)
        else:
            close = (bits(a) == bits(b)) | (is_nan(a) & is_nan(b))
        if not close.all():
            return _same(ours, theirs, where)
    return None


def _same(ours: Any, theirs: Any, where: str) -> str | None:
    found = differs(ours, theirs)
    return f"{where}: {found}" if found else None


def _bytes(a: Any, b: Any, where: str) -> str | None:
    return None if same_bytes(a, b) else f"{where}: other bytes on two threads"


@contextmanager
def many_chunks() -> Generator[None]:
    """Kernels of any size are cut into chunks for several threads."""
    with patch.multiple(costs, SHARED_NS=0.0, CHUNK_NS=1e-9):
        yield
