"""The expand form: the same op written with other ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from hlokit.types.shape import ProgramShape, Shape


class Node(Protocol):
    """An instruction in the making."""

    @property
    def shape(self) -> Shape: ...


class Called(Protocol):
    """A computation that an instruction may call."""

    def signature(self) -> ProgramShape: ...


class Graph(Protocol):
    """The writer of an op's expansion. Ops are hlokit.hlo.op.Op."""

    def add(self, op: Any, *operands: Node, called: Sequence[Called] = ()) -> Node:
        """Appends an instruction; its shape is inferred."""
        ...

    def computation(self, parameters: Sequence[Shape], body: Callable[..., Node]) -> Called:
        """A computation to be called: `body(graph, *parameters)` writes it and gives its root."""
        ...
