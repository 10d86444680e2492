"""Targets that make an array a buffer, a buffer an array, and a new buffer (CCALL-11, CCALL-12)."""

from __future__ import annotations

import numpy as np

from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, built_in


@built_in("Pin", "Unpin")
def pin(call: Invocation) -> Array:
    """The operand: a buffer is the value that it holds."""
    return call.operands[0]


@built_in("CreateBuffer")
def create_buffer(call: Invocation) -> Array:
    """Zeros: what a new buffer holds is unspecified."""
    content = call.shape.without_buffers()
    return np.zeros(content.dimensions, content.dtype.numpy)
