"""A hook of the interpreter that stops a program where a NaN arises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import is_ndarray
from hlokit.interpreter.process import StepHook

if TYPE_CHECKING:
    from hlokit.hlo.instruction import Instruction


def nan_trap(after: StepHook | None = None) -> StepHook:
    """A hook that raises EvaluationError where an instruction has made a NaN of operands without.

    `after`: another hook, which is called first.
    """
    seen: set[Instruction] = set()

    def trap(instruction: Instruction, values: tuple[Any, ...]) -> None:
        if after is not None:
            after(instruction, values)
        if any(map(_has_nan, values)):
            if not any(operand in seen for operand in instruction.operands) and instruction.operands:
                raise EvaluationError(f"{instruction.name}: a NaN from operands without one: {instruction}")
            seen.add(instruction)

    return trap


def _has_nan(value: Any) -> bool:
    if not is_ndarray(value) or value.dtype.kind not in "fcV":
        return False
    with np.errstate(all="ignore"):
        return bool(np.any(value != value))
