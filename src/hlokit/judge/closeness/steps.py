"""Steps: what the range and the precision of a type change of a result on the way to it.

An op that takes other steps than its reference, which computes in f64, may overflow or vanish on one of them and still
give a number: a batch norm by an infinite variance gives its offset. How far that goes is found by the op's expansion,
once in the type and once in f64: an expansion that is wrong is wrong in both, and excuses nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from hlokit.devices.evaluate import evaluate
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.hlo.values import is_sequence
from hlokit.ops.structure import Parameter
from hlokit.passes.op_expander import OpExpander
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape

_where: Any = np.where


def has_own_steps(instruction: Instruction) -> bool:
    """Whether its expansion computes in another type than its reference."""
    shapes = [operand.shape for operand in instruction.operands]
    return instruction.op.form == "expand" and not (
        instruction.op.is_exact(*shapes) or any(shape.is_dynamic for shape in shapes)
    )


def on_own_steps(value: Any, instruction: Instruction, operands: Sequence[Any]) -> Any:
    """The instruction's value, off by what its steps lose in the operands' type; NaN where one is no number."""
    shapes = tuple(operand.shape for operand in instruction.operands)
    wide = tuple(shape.with_dtype(dtypes.f64) for shape in shapes)
    own = evaluate(_expanded(instruction.op, shapes), *operands)
    all_kept = evaluate(_expanded(instruction.op, wide), *(operand.astype(np.float64) for operand in operands))
    return _moved(value, own, all_kept)


def _moved(value: Any, own: Any, wide: Any) -> Any:
    if is_sequence(value):
        return tuple(_moved(*parts) for parts in zip(value, own, wide, strict=True))
    element = value.dtype
    numbers: list[Any] = [array.astype(np.float64) for array in (value, own, wide.astype(element))]
    value, own, wide = numbers
    lost = own - wide
    little = (lost == 0) | (np.abs(lost) < np.abs(wide) / 2)
    moved: Any = _where(little, value + lost, own)  # a sum would round away what is left of a number that vanished
    return _where(np.isfinite(value) & np.isfinite(own), moved, np.nan).astype(element)


@lru_cache(maxsize=64)
def _expanded(op: Op, operands: tuple[Shape, ...]) -> HloModule:
    module, entry = HloModule("steps"), Computation("entry")
    entry.set_root(entry.add(op, [entry.add(Parameter(k, shape)) for k, shape in enumerate(operands)]))
    module.add_computation(entry, entry=True)
    OpExpander().run(module)
    return module
