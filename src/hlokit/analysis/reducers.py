"""Reducers: their neutral values, and the effect of the order of the elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import Array
from hlokit.ops.structure import Constant, Parameter, Tuple
from hlokit.types import dtype as dtypes


def neutral_value(function: Computation) -> Any:
    """A value e with function(x, e) == x bit for bit, for every x; None if none is known."""
    op, dtype = function.single_op, function.root.shape.dtype
    standard = dtype in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
    return op.neutral(dtype) if op is not None and (standard or dtype.is_integral or dtype.kind == "pred") else None


def takes_any_order(function: Computation) -> bool:
    """No order or grouping of the elements changes a bit of the fold."""
    op, dtype = function.single_op, function.root.shape.dtype
    ordinal = dtype.is_integral or dtype.kind == "pred"
    return ordinal and op is not None and op.commutative and op.associates(dtype)


def is_semigroup(function: Computation, neutral: Any) -> bool:
    """Whether a function of two floats is found associative, with this neutral value, by trying it.

    It proves nothing: only for folds whose order the language leaves free, as it does that of every reduce and
    reduce-window (REDUCE-9). It keeps apart the reducers that take no notice of that.
    """
    dtype = function.root.shape.dtype
    if dtype not in (dtypes.f32, dtypes.f64) or not all(map(_is_elementwise, function.instructions)):
        return False
    a, b, c = np.random.default_rng(0).normal(size=(3, _TRIED)).astype(dtype.numpy) * 3
    e = np.full_like(a, neutral)
    with np.errstate(all="ignore"):
        one, other = (_applied(function, _applied(function, a, b), c), _applied(function, a, _applied(function, b, c)))
        pairs = [(one, other), (_applied(function, a, e), a), (_applied(function, e, a), a)]
    largest = np.max(np.abs([a, b, c, one]), axis=0)
    return all(bool(np.all(np.abs(x - y) <= 16 * np.finfo(dtype.numpy).eps * largest)) for x, y in pairs)


_TRIED = 64


def is_choice(function: Computation, starts: Sequence[Any]) -> bool:
    """Whether a reducer of several arrays is found to choose among its arguments in any grouping, and to start from
    `starts` as often as one likes, by trying it: an argmax is one, with the lowest number and the first index.

    It proves nothing: only for folds whose order the language leaves free (REDUCE-9).
    """
    root = function.root
    if not isinstance(root.op, Tuple) or not all(_chooses(i) for i in function.instructions if i is not root):
        return False
    types = [operand.shape.dtype.numpy for operand in root.operands]
    random, tries = np.random.default_rng(0), 4 * _TRIED

    def drawn() -> list[Array]:
        return [random.choice(_SAMPLES if np.dtype(t).kind in "fV" else _SAMPLES[:5], tries).astype(t) for t in types]

    def chosen(x: Sequence[Array], y: Sequence[Array]) -> list[Array]:
        values = _values(function, (*x, *y))
        return [np.ascontiguousarray(np.broadcast_to(values[o], tries)) for o in root.operands]

    a, b, c = drawn(), drawn(), drawn()
    e = [np.full(tries, start, t) for start, t in zip(starts, types, strict=True)]
    with np.errstate(all="ignore"):
        first = chosen(e, a)
        pairs = [(chosen(chosen(a, b), c), chosen(a, chosen(b, c)))]
        pairs += [(chosen(e, e), e), (chosen(first, e), first), (chosen(e, first), first)]
    return all(x.tobytes() == y.tobytes() for one, other in pairs for x, y in zip(one, other, strict=True))


_SAMPLES = np.array([0, 1, 2, 3, 4, -1.5, np.inf, np.nan])
"""Few enough for equal ones; the first five are of every type."""


def _chooses(instruction: Instruction) -> bool:
    """Whether it computes no number: it compares, or takes one of its operands."""
    known = ("compare", "select", "and", "or", "not", "xor", "minimum", "maximum")
    return instruction.shape.is_scalar and (
        instruction.opcode in known or isinstance(instruction.op, (Parameter, Constant))
    )


def _is_elementwise(instruction: Instruction) -> bool:
    """Whether it is an elementwise op of scalars that calls no computation."""
    plain = instruction.op.elementwise or isinstance(instruction.op, (Parameter, Constant))
    return plain and instruction.shape.is_scalar and not instruction.called


def _applied(function: Computation, x: Any, y: Any) -> Any:
    """The function's values for arrays of its arguments."""
    return np.broadcast_to(_values(function, (x, y))[function.root], x.shape)


def _values(function: Computation, arguments: Sequence[Any]) -> dict[Instruction, Any]:
    """The values of all instructions for arrays of its arguments; of a tuple, its elements'."""
    values: dict[Instruction, Any] = dict(zip(function.parameters, arguments, strict=True))
    for instruction in function.post_order():
        if instruction not in values and not instruction.shape.is_tuple:
            values[instruction] = np.asarray(instruction.op.reference(*(values[o] for o in instruction.operands)))
    return values
