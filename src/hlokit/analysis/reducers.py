"""Reducers: the one op that a computation of scalars is, and its neutral value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.op import Op
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_ANY_ORDER = ("maximum", "minimum", "and", "or", "xor")


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
    if op is None or op.opcode not in _NEUTRAL:
        return None
    standard = dtype in (dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64)
    return _NEUTRAL[op.opcode](dtype) if standard or dtype.is_integral or dtype.kind == "pred" else None


def takes_any_order(function: Computation) -> bool:
    """No order or grouping of the elements changes a bit of the fold."""
    op, dtype = single_op(function), function.root.shape.dtype
    exact = dtype.is_integral or dtype.kind == "pred"
    return op is not None and exact and op.opcode in ("add", "multiply", *_ANY_ORDER)


def _limits(dtype: DType) -> tuple[Any, Any]:
    if dtype.kind == "pred":
        return False, True
    if dtype.is_floating:
        return -np.inf, np.inf
    highest = 2 ** (dtype.bits - (dtype.kind == "signed")) - 1
    return (-highest - 1 if dtype.kind == "signed" else 0), highest


_NEUTRAL: dict[str, Callable[[DType], Any]] = {
    "add": lambda dtype: -0.0 if dtype.is_floating else 0,
    "multiply": lambda dtype: 1,
    "maximum": lambda dtype: _limits(dtype)[0],
    "minimum": lambda dtype: _limits(dtype)[1],
    "or": lambda dtype: 0,
    "xor": lambda dtype: 0,
    "and": lambda dtype: True if dtype.kind == "pred" else -1 if dtype.kind == "signed" else _limits(dtype)[1],
}
"""-0 adds nothing: x + +0 makes -0 a +0."""
