"""Partial sums: ops that can be computed on the terms of a sum and return the terms of their result."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.instruction import Instruction
from hlokit.ops.contraction import Dot
from hlokit.ops.conversion import Convert
from hlokit.ops.elementwise import Add, Copy, Divide, Multiply, Negate, Select, Subtract
from hlokit.ops.gather import Gather
from hlokit.ops.movement import Broadcast, Concatenate, Pad, Reverse, Transpose
from hlokit.ops.reduction import Reduce
from hlokit.ops.reshaping import Reshape
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice, Slice
from hlokit.types import dtype as dtypes

_TOGETHER: dict[type, tuple[int, ...] | None] = {
    Add: None,
    Subtract: None,
    Concatenate: None,
    Pad: None,
    Select: (1, 2),
    DynamicUpdateSlice: (0, 1),
    **dict.fromkeys((Broadcast, Convert, Copy, DynamicSlice, Gather, Negate, Reshape, Reverse, Slice, Transpose), (0,)),
}
"""Ops that are linear in these operands together; None: in all."""


def linear_operands(instruction: Instruction, terms: list[bool]) -> tuple[int, ...]:
    """The operands by number in which the op is linear together, of which at least one is terms (`terms`).

    () where the result is no function of terms. Operands of which no device has terms may become some of the first.
    """
    op, given = instruction.op, [i for i, is_terms in enumerate(terms) if is_terms]
    if not given or not instruction.shape.is_array or instruction.shape.dtype is dtypes.pred:
        return ()
    if isinstance(op, Convert) and not _is_exact(instruction):
        return ()
    if isinstance(op, Reduce):
        combiner = instruction.called[0].single_op
        return (0, 1) if len(terms) == 2 and isinstance(combiner, Add) else ()
    if isinstance(op, (Multiply, Dot)):
        return tuple(given) if len(given) == 1 else ()
    if isinstance(op, Divide):
        return (0,) if given == [0] and not instruction.shape.dtype.is_integral else ()
    if type(op) not in _TOGETHER:
        return ()
    wanted = _TOGETHER[type(op)]
    linear = tuple(range(len(terms))) if wanted is None else wanted
    return linear if set(given) <= set(linear) else ()


def _is_exact(instruction: Instruction) -> bool:
    """A conversion among floats that rounds nothing."""
    given, made = instruction.operands[0].shape.dtype, instruction.shape.dtype
    return given.is_floating and made.is_floating and bool(np.can_cast(given.numpy, made.numpy, "safe"))


__all__ = ["linear_operands"]
