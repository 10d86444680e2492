"""Lineage checked by meaning: an instruction that is marked "same value" has the values of what it comes from.

`python -m tests.lineage.run [--random 1000] [--bench]` checks the recorded JAX programs, random ones and the benchmark's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Mark
from hlokit.hlo.values import is_ndarray, is_sequence
from hlokit.passes.op_expander import OpExpander
from hlokit.passes.pipeline import DEFAULT

EXACT = ("defuser", OpExpander(exact=True), "call-inliner", "tuple-simplifier", "while-loop-unroller", *DEFAULT)
"""Passes that keep every bit: values before and after them are compared exactly."""

_KEPT = 64
"""Values that are kept of an instruction that runs often."""


def complete(module: hk.HloModule) -> list[str]:
    """The instructions of a module, made with lineage, that have no origin."""
    assert module.lineage is not None
    return [i.name for c in module.all_computations for i in c.instructions if not module.lineage.origins(i)]


def wrong(source: hk.HloModule, passes: Sequence[Any], arguments: Sequence[Any], memory: int = 1 << 30) -> list[str]:
    """The instructions marked "same value" that had a value which their origin had in none of its runs.

    Origins that never ran, or more often than their values are kept, are left out: nothing is known of them.
    """
    module = hk.optimize(source, passes, lineage=True)
    assert module.lineage is not None
    missing = [f"{name} has no origin" for name in complete(module)]
    before, after = values(source, arguments, memory), values(module, arguments, memory)
    found: list[str] = []
    for instruction, taken in after.items():
        for origin in module.lineage.origins(instruction):
            had = before.get(origin.instruction, set[bytes]())
            if origin.mark is Mark.SAME and 0 < len(had) < _KEPT and not taken <= had:
                found.append(f"{instruction.name} is not {origin.instruction.name}")
    return missing + found


def values(module: hk.HloModule, arguments: Sequence[Any], memory: int) -> dict[Instruction, set[bytes]]:
    """The bytes of every value that each instruction had."""
    found: dict[Instruction, set[bytes]] = {}

    def after(instruction: Instruction, results: tuple[Any, ...]) -> None:
        kept = found.setdefault(instruction, set())
        if len(kept) < _KEPT:
            kept.add(_bytes(results[0]))

    hk.evaluate(module, *arguments, after=after, memory_limit=memory)
    return found


def _bytes(value: Any) -> bytes:
    """The bits of a value, those of a NaN aside: the language leaves them open."""
    if is_sequence(value):
        return b"(" + b",".join(map(_bytes, value)) + b")"
    if not is_ndarray(value):
        return type(value).__name__.encode()  # a token, or an array with hidden elements
    with np.errstate(all="ignore"):
        is_nan = value != value
    return np.where(is_nan, np.zeros((), value.dtype), value).tobytes() + np.packbits(is_nan).tobytes()
