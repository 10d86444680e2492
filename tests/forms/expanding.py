"""Writes expansions into computations: the graph protocol over the package's own graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.ops.structure import Parameter
from hlokit.types.shape import Shape


class ComputationGraph:
    """Appends to a computation."""

    def __init__(self, name: str = "expanded") -> None:
        self.into = Computation(name)

    def add(self, op: Op, *operands: Any, called: Sequence[Any] = ()) -> Instruction:
        return self.into.add(op, operands, called)

    def computation(self, parameters: Sequence[Shape], body: Callable[..., Any]) -> Computation:
        inner = ComputationGraph("body")
        arguments = [inner.add(Parameter(i, shape)) for i, shape in enumerate(parameters)]
        inner.into.set_root(body(inner, *arguments))
        return inner.into


def expanded(op: Op, shapes: Sequence[Shape], called: dict[str, Any]) -> HloModule:
    """A module whose entry is the op's expansion, its parameters the operands."""
    graph: Any = ComputationGraph()
    operands = [graph.add(Parameter(i, shape)) for i, shape in enumerate(shapes)]
    graph.into.set_root(op.expand(graph, *operands, **called))
    module = HloModule("expanded")
    module.add_computation(graph.into, entry=True)
    return module
