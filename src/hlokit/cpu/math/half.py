"""Arithmetic in f16, where the machine has it (AVX512-FP16): 32 lanes, without conversions.

Bit for bit what f32 rounded to f16 gives: f32 has twice the digits and two more, so rounding twice is rounding once
for these primitives. A product and a sum are not fused: each is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hlokit.cpu.loops.expr import HOLE, Expressions, Node
from hlokit.cpu.target import Target
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType

_ROUNDED = {"add", "sub", "mul", "div", "sqrt", "neg", "abs", "copysign", "max", "min"}
_COMPARED = {"eq", "ne", "lt", "le", "gt", "ge"}


def computes_half(target: Target) -> bool:
    return target.has("avx512fp16") and target.has("avx512vl")


def in_half(expressions: Expressions, name: str, nodes: Sequence[Node], dtype: DType) -> Node | None:
    """The primitive in f16, if it rounds what was computed of f16 in f32, or compares f16 in f32; else None."""
    if name == "convert" and dtype is dtypes.f16 and nodes[0].op in _ROUNDED:
        name, nodes = nodes[0].op, nodes[0].args
    elif name not in _COMPARED or all(n.op == "const" for n in nodes):
        return None
    if any(n.dtype is not dtypes.f32 for n in nodes):
        return None
    narrow = [_narrow(expressions, n) for n in nodes]
    found = [n for n in narrow if n is not None]
    if len(found) < len(nodes) or any(n.deps & HOLE for n in found):  # folds accumulate in f32
        return None
    return expressions.node(name, dtype, found)


def _narrow(expressions: Expressions, node: Node) -> Node | None:
    """The f16 that this f32 is: one that was converted, or a constant that f16 has."""
    if node.op == "convert" and node.args[0].dtype is dtypes.f16:
        return node.args[0]
    if node.op != "const":
        return None
    with np.errstate(over="ignore"):
        value = np.float16(node.data)
    return expressions.const(value, dtypes.f16) if np.float32(value) == node.data else None
