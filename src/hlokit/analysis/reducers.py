"""Reducers: the one op that a computation of scalars is, and its neutral value."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.op import Op
from hlokit.ops.structure import Constant, Parameter
from hlokit.types import dtype as dtypes


def single_op(function: Computation) -> Op | None:
    """The op of a computation that applies it to its two scalar parameters, as they come; None for others."""
    root, parameters = function.root, function.parameters
    if len(parameters) != 2 or len(root.operands) != 2 or root.called or not root.shape.is_scalar:
        return None
    if tuple(root.operands) == tuple(parameters):
        return root.op
    swapped = tuple(root.operands) == tuple(reversed(parameters))
    return root.op if swapped and root.op.commutative else None


def neutral_value(function: Computation) -> Any:
    """A value e with function(x, e) == x bit for bit, for every x; None if none is known."""
    op, dtype = single_op(function), function.root.shape.dtype
    standard = dtype in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
    return op.neutral(dtype) if op is not None and (standard or dtype.is_integral or dtype.kind == "pred") else None


def takes_any_order(function: Computation) -> bool:
    """No order or grouping of the elements changes a bit of the fold."""
    dtype = function.root.shape.dtype
    return (dtype.is_integral or dtype.kind == "pred") and takes_any_order_of_numbers(function)


def takes_any_order_of_numbers(function: Computation) -> bool:
    """Same as `takes_any_order`, but which of several NaN is the result may change: their bits mean nothing."""
    op = single_op(function)
    return op is not None and op.commutative and op.associates(function.root.shape.dtype)


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


def _is_elementwise(instruction: Instruction) -> bool:
    """Whether it is an elementwise op of scalars that calls no computation."""
    plain = instruction.op.elementwise or isinstance(instruction.op, (Parameter, Constant))
    return plain and instruction.shape.is_scalar and not instruction.called


def _applied(function: Computation, x: Any, y: Any) -> Any:
    """The function's values for arrays of its arguments."""
    values: dict[Instruction, Any] = dict(zip(function.parameters, (x, y), strict=True))
    for instruction in function.post_order():
        if instruction not in values:
            values[instruction] = instruction.op.reference(*(values[o] for o in instruction.operands))
    return np.broadcast_to(values[function.root], x.shape)
