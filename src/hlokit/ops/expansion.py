"""Shorthand for the expand form: the few ops that expansions are written with."""

from collections.abc import Sequence
from typing import Any

from hlokit.forms.graph import Graph, Node
from hlokit.ops.comparison import Compare
from hlokit.ops.conversion import Convert
from hlokit.ops.elementwise import Add, And, Divide, Multiply, Select, Subtract
from hlokit.ops.movement import Broadcast
from hlokit.ops.reshaping import Reshape
from hlokit.ops.structure import Constant, GetTupleElement, Tuple
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


class Writing:
    """Appends to a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def scalar(self, value: Any, dtype: DType) -> Node:
        return self.graph.add(Constant(Literal.of(value, dtype[()])))

    def full(self, value: Any, shape: Shape) -> Node:
        """An array of one value."""
        return self.broadcast(self.scalar(value, shape.dtype), (), shape)

    def broadcast(self, x: Node, dimensions: Sequence[int], shape: Shape) -> Node:
        return self.graph.add(Broadcast(tuple(dimensions), shape.with_dtype(x.shape.dtype)), x)

    def reshape(self, x: Node, sizes: Sequence[int]) -> Node:
        return self.graph.add(Reshape(None, x.shape.with_dimensions(sizes)), x)

    def convert(self, x: Node, dtype: DType) -> Node:
        return x if x.shape.dtype is dtype else self.graph.add(Convert(x.shape.with_dtype(dtype)), x)

    def add(self, x: Node, y: Node) -> Node:
        return self.graph.add(Add(), x, y)

    def subtract(self, x: Node, y: Node) -> Node:
        return self.graph.add(Subtract(), x, y)

    def multiply(self, x: Node, y: Node) -> Node:
        return self.graph.add(Multiply(), x, y)

    def divide(self, x: Node, y: Node) -> Node:
        return self.graph.add(Divide(), x, y)

    def both(self, x: Node, y: Node) -> Node:
        return self.graph.add(And(), x, y)

    def compare(self, direction: str, x: Node, y: Node) -> Node:
        return self.graph.add(Compare(direction, None, None), x, y)

    def select(self, pred: Node, on_true: Node, on_false: Node) -> Node:
        return self.graph.add(Select(), pred, on_true, on_false)

    def tuple(self, *elements: Node) -> Node:
        return self.graph.add(Tuple(), *elements)

    def part(self, x: Node, index: int) -> Node:
        return self.graph.add(GetTupleElement(index), x)


def sum_of_two(graph: Graph, x: Node, y: Node) -> Node:
    """The body of a computation that adds."""
    return graph.add(Add(), x, y)
