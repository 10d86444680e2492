"""The expand form: the same op written with other ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hlokit.types.shape import Shape


class Node(Protocol):
    """An instruction in the making."""

    @property
    def shape(self) -> Shape: ...


class Graph(Protocol):
    """Where an op writes its expansion. Ops are hlokit.hlo.op.Op, called computations whatever `computation` gives."""

    def add(self, op: Any, *operands: Node, called: Sequence[Any] = ()) -> Node:
        """Appends an instruction; its shape is inferred."""
        ...

    def computation(self, parameters: Sequence[Shape], body: Callable[..., Node]) -> Any:
        """A computation to be called: `body(graph, *parameters)` writes it and gives its root."""
        ...
