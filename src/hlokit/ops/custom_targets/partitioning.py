"""Targets that only mark where or how a value lives: on one device each of them is the identity.

Among several partitions the conversions between whole and shard would change the shape; that is refused (BEY-72).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.errors import UnsupportedError
from hlokit.hlo.values import Array, is_sequence
from hlokit.ops.custom_targets.registry import Invocation, built_in


@built_in(
    "Sharding",
    "SPMDFullToShardShape",
    "SPMDShardToFullShape",
    "ShardBarrierFrom",
    "ShardBarrierTo",
    "LayoutConstraint",
    "MoveToHost",
    "MoveToDevice",
    "annotate_device_placement",
    "control_dep",
    "dce_sink",
    "AssumeGatherIndicesInBound",
    "xla.sdy.FuncResultSharding",
    "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape",
    "xla.sdy.ShardingGroup",
)
def identity(call: Invocation) -> Any:
    """The operand, which must have the result's shape, or for a tuple the operands; nothing for an empty tuple
    (control_dep's)."""
    values, shape = call.operands, call.shape
    if shape.is_tuple and not shape.elements:
        return ()
    is_one = len(values) == 1 and shape.is_tuple == is_sequence(values[0])
    shapes = [shape] if is_one else shape.elements
    if len(shapes) != len(values):
        raise UnsupportedError(f"custom-call {call.op.custom_call_target!r}: {len(values)} operands for {shape}")
    for value, own in zip(values, shapes, strict=True):
        if own.is_array and len(value.shape) == own.rank:
            if not all(n == d or f for n, d, f in zip(value.shape, own.dimensions, own.dynamic, strict=True)):
                name = call.op.custom_call_target
                raise UnsupportedError(f"custom-call {name!r}: {list(value.shape)} to {own} among several partitions")
    return values[0] if is_one else tuple(values)


@built_in("X64SplitLow")
def low_word(call: Invocation) -> Array:
    """The low 32 bits of each u64 or s64."""
    return (call.operands[0].view(np.uint64) & np.uint64(0xFFFFFFFF)).astype(np.uint32)


@built_in("X64SplitHigh")
def high_word(call: Invocation) -> Array:
    """The high 32 bits of each u64 or s64."""
    return (call.operands[0].view(np.uint64) >> np.uint64(32)).astype(np.uint32)


@built_in("X64Combine")
def combined_words(call: Invocation) -> Array:
    """low | high << 32."""
    low, high = (word.astype(np.uint64) for word in call.operands)
    return (low | high << np.uint64(32)).view(call.shape.dtype.numpy)


@built_in("mhlo.dynamic_reshape")
def dynamic_reshape(call: Invocation) -> Array:
    """The operand in the sizes that its second operand gives (BEY-28)."""
    operand, sizes = call.operands
    return operand.reshape(tuple(map(int, sizes)))


@built_in("mhlo.dynamic_broadcast_in_dim")
def dynamic_broadcast_in_dim(call: Invocation) -> Array:
    """The operand broadcast to the sizes that its second operand gives; opaque names the dimensions (BEY-28)."""
    operand, sizes = call.operands
    listed = call.opaque.partition("[")[2].partition("]")[0]
    dimensions = [int(d) for d in listed.split(",") if d.strip()]
    expanded = [1] * len(sizes)
    for size, dimension in zip(operand.shape, dimensions, strict=True):
        expanded[dimension] = size
    ordered = operand.transpose(np.argsort(dimensions)) if dimensions else operand
    return np.broadcast_to(ordered.reshape(expanded), tuple(map(int, sizes)))
