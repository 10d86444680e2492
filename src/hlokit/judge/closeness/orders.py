"""Orders: how far sums of many like terms move if the terms are added in another order.

The roundings of like terms are alike and do not cancel, as random ones mostly do: a million times 0.1, added one after
the other in f32, are 1 % too much, in groups almost right. Each order is right (REDUCE-9, RWIN-11, DOTG-17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlokit.analysis.cost import operations
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.interpreter import evaluate as interpreter
from hlokit.interpreter.callee import Callee
from hlokit.interpreter.process import Process
from hlokit.judge.closeness.equality import info_of, is_array, is_floating
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_WIDEST = DType("f80", "floating", 80, 0, "longdouble"), DType("c160", "complex", 160, 0, "clongdouble")
"""No types of the language: NumPy's widest, in which it adds numbers of f64 and c128. Where it has none wider, as on
Windows, such sums do not seem to move."""
_where: Any = np.where
ENDS = 8
"""As many values of `reordered` are enough to meet both ends, and to tell how far apart they are."""


def is_sum(instruction: Instruction) -> bool:
    """Whether it adds terms in an order that is left open: products, or what a reducer adds that does nothing else."""
    if any(not s.is_array or not (s.dtype.is_floating or s.dtype.is_complex) for s in instruction.shape.leaves()):
        return False
    if instruction.op.form == "contraction":
        return instruction.shape.dtype.bits >= 32
    if instruction.op.form not in ("fold", "scatter"):
        return False
    return all(c.single_op is not None and c.single_op.opcode == "add" for c in instruction.called)


def reordered(instruction: Instruction, operands: Sequence[Any], value: Any, source: np.random.Generator) -> Any:
    """A value at one end of what orders give for a sum, by chance the upper or the lower; others as they are."""
    if not is_sum(instruction) or not all(map(is_array, (value, *operands))):
        return value
    with np.errstate(all="ignore"):
        if instruction.op.form == "contraction":
            centre, drift = value, value * _drift_of_products(instruction)
        else:
            centre, drift = _exact(instruction, operands), _drift(instruction, operands, source.uniform(1, 2))
        found = (centre + source.choice((-1.0, 1.0)) * drift).astype(value.dtype)
        return _where(np.isfinite(found), found, value).astype(value.dtype)


def may_overflow(instruction: Instruction, operands: Sequence[Any], value: Any) -> Any:
    """Tells which elements of a fold's or a scatter's real sums or products may be no number, or a product vanish, if
    the terms are taken in another order; False for other instructions."""
    opcodes = {c.single_op.opcode if c.single_op is not None else "" for c in instruction.called}
    is_one = instruction.op.form in ("fold", "scatter") and opcodes in ({"add"}, {"multiply"})
    if not is_one or not all(map(is_array, (value, *operands))) or not is_floating(value.dtype):
        return False
    info = info_of(value.dtype)

    neutral, combine = (0, np.add) if opcodes == {"add"} else (1, np.multiply)

    def taken(part: Callable[[Any], Any]) -> Any:
        """The sums or products of these parts of the terms that are numbers."""
        wide = [o.astype(np.float64) if is_floating(o.dtype) else o for o in operands]
        parts = [part(_where(np.isfinite(o), o, neutral)) if is_floating(o.dtype) else o for o in wide]
        return _exact(instruction, parts, combine)

    with np.errstate(all="ignore"):
        if opcodes == {"add"}:
            ends = taken(lambda x: np.maximum(x, 0)), taken(lambda x: np.minimum(x, 0))
            return np.max(np.abs(ends), axis=0) > float(info.max)
        large, small = taken(_at_least_1), taken(_at_most_1)
        return (large > float(info.max)) | (small < float(info.smallest_normal))


def _at_least_1(x: Any) -> Any:
    return np.maximum(np.abs(x), 1)


def _at_most_1(x: Any) -> Any:
    """Absolute values, at most 1; 1 for a zero, by which a product vanishes in any order."""
    return _where(x == 0, 1, np.minimum(np.abs(x), 1))


def nearest(wanted: Any, values: Sequence[Any]) -> Any:
    """The numbers nearest to those wanted between the least and the greatest of values."""
    return np.clip(wanted, np.min(values, axis=0), np.max(values, axis=0))


def _drift_of_products(instruction: Instruction) -> float:
    """The relative error of a sum of equal products, which the reference adds in groups, one after the other: of each
    addition half a unit in the last place of what is there by then."""
    terms = operations(instruction) / 2 / max(1, instruction.shape.size)
    return terms * float(info_of(instruction.shape.dtype.real.numpy).eps) / 4


def _drift(instruction: Instruction, operands: Sequence[Any], scale: float) -> Any:
    """The error of the reference, which adds one after the other. That of equal terms depends on their digits, and may
    by chance be nothing just for these: so it is that of terms `scale` times as large."""
    scaled = [_times(operand, scale) for operand in operands]
    value = interpreter.run_instruction(Process(), instruction, scaled)
    return (value - _exact(instruction, scaled)) / scale


def _times(operand: Any, scale: float) -> Any:
    if operand.dtype.kind != "c" and not is_floating(operand.dtype):
        return operand
    return (operand * operand.dtype.type(scale)).astype(operand.dtype)


def _exact(instruction: Instruction, operands: Sequence[Any], combine: Callable[..., Any] = np.add) -> Any:
    """The sum, or the product, in a wider type."""
    keywords = interpreter.keywords_of(_Wide(combine), instruction)
    keywords.pop("shape", None)  # in which the result would be rounded
    dtype = _wider(instruction.called[0]).numpy
    wide = [o.astype(dtype) if o.dtype.kind == "c" or is_floating(o.dtype) else o for o in operands]
    return instruction.op.reference(*wide, **keywords)


def _wider(computation: Computation) -> DType:
    dtype = computation.root.shape.dtype
    if dtype.is_complex:
        return dtypes.c128 if dtype is dtypes.c64 else _WIDEST[1]
    return _WIDEST[0] if dtype is dtypes.f64 else dtypes.f64


class _Wide(Process):
    """The device of a sum, or a product, in a wider type."""

    def __init__(self, combine: Callable[..., Any]) -> None:
        super().__init__()
        self.combine = combine

    def callee(self, computation: Computation) -> Callee:
        return _WideCallee(self, computation, self.combine)


class _WideCallee(Callee):
    def __init__(self, process: Process, computation: Computation, combine: Callable[..., Any]) -> None:
        super().__init__(process, computation)
        self.result = self.result.with_dtype(_wider(computation))
        self.combine = combine

    def batched(self, *arrays: Any) -> Any:
        return self.combine(*arrays)
