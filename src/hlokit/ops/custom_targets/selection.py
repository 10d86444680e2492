"""Selections of extreme elements: TopK and the approximate forms, whose reference is exact."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in
from hlokit.ops.sort_order import sorted_positions, stable_order, total_order_keys


@built_in("TopK", "mhlo.topk", "__gpu$TopK")
def top_k(call: Invocation) -> tuple[Array, Array]:
    """(values, indices) of the elements that come first: by the called comparator, else largest first."""
    (operand,) = call.operands
    size, count = operand.shape[-1], call.shape.elements[0].dimensions[-1]
    if call.computations:
        index = np.broadcast_to(np.arange(size, dtype=np.int32), operand.shape)
        lines = [operand.reshape(-1, size), index.reshape(-1, size)]
        order = sorted_positions(lines, call.computations[0]).reshape(operand.shape)
    else:
        order = stable_order(~total_order_keys(operand))
    order = order[..., :count]
    return np.take_along_axis(operand, order, -1), order.astype(np.int32)


@built_in("ApproxTopK", "PartialReduce")
def approx_top_k(call: Invocation) -> Any:
    """The first elements along a dimension by the called comparator: as many as the result has (an exact answer)."""
    operands = call.operands[: len(call.operands) // 2]
    shapes = call.shape.elements if call.shape.is_tuple else (call.shape,)
    axis = _reduction_dimension(call, operands[0].ndim)
    last = [np.moveaxis(o, axis, -1) for o in operands]
    sizes = last[0].shape
    lines = [o.reshape(-1, sizes[-1]) for o in last]
    order = sorted_positions(lines, call.computations[0])[:, : shapes[0].dimensions[axis]]
    picked = [np.take_along_axis(line, order, 1).reshape(*sizes[:-1], -1) for line in lines]
    results = tuple(np.moveaxis(p, -1, axis) for p in picked)
    return results if call.shape.is_tuple else results[0]


def _reduction_dimension(call: Invocation, rank: int) -> int:
    try:
        dimension = int(json.loads(call.opaque)["reduction_dim"])
    except (ValueError, KeyError, TypeError):
        raise EvaluationError(f"{call.op.custom_call_target}: no reduction_dim in backend_config [BEY-80]") from None
    return dimension % rank
