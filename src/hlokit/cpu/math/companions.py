"""Transcendental primitives as functions that kernels call, each compiled once per process.

A kernel that has many of one kind would have the same instructions as often: what LLVM takes to compile it grows with
them, and its loop no longer fits the cache of instructions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from hlokit.cpu.llvm import Function, Prototype, Type, Value
from hlokit.cpu.loops.expr import Node
from hlokit.cpu.math import primitives
from hlokit.cpu.math.functions import FUNCTIONS
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType

MANY = 16
"""As often a primitive is in a kernel that calls it. A call costs some 5 % of the primitive's own time."""


def of_many(nodes: Iterable[Node]) -> set[str]:
    """The primitives that these nodes have MANY times."""
    counts: dict[str, int] = {}
    for node in nodes:
        if node.op in FUNCTIONS and node.dtype.name in ("f32", "f64"):
            counts[node.op] = counts.get(node.op, 0) + 1
    return {name for name, count in counts.items() if count >= MANY}


def call(name: str, dtype: DType, operands: Sequence[Value], *, strict: bool) -> Value:
    """As primitives.emit, by a call. The result has the operands' type."""
    fn, type = operands[0].fn, operands[0].type
    return fn.call(_companion(name, dtype, type, len(operands), strict, fn.target.with_threads(1)), *operands)


@cache
def _companion(name: str, dtype: DType, type: Type, count: int, strict: bool, target: Target) -> Prototype[Value]:
    kind = "_strict" if strict else ""
    parameters = {f"x{k}": type for k in range(count)}
    prototype = Prototype(f"hlokit_{name}_{type.scalar}x{type.lanes}{kind}", type, parameters)

    def write() -> Function:
        parameters = [(kind, name) for name, kind in prototype.named.items()]
        f = Function(prototype.name, parameters, type, "noinline nounwind", shared=prototype.name, target=target)
        f.returns(primitives.emit(name, dtype, [f.argument(name) for name in prototype.names], dtype, strict=strict))
        return f

    return prototype.companion(write)
