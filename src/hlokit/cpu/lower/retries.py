"""The reasons to start again, raised by what builds a kernel.

Drafting._retried builds the kernel again, 200 times at most, after
    Materialise  (of loops/build, loops/folding and scatters) has stored the leaf
    Reference    (of loops/arithmetic, strict code) has left the instruction to the reference
    Split        (of loops/arithmetic) has made two axes of one
    Turn         (of loops/folding) has walked the axis backwards
and Lowering.lower begins the computation anew after
    NoElementLoop (of Drafting._built) has made the loop one of steps.

Each restart stores, leaves, splits or turns one thing more, so they end.
"""

from __future__ import annotations

from hlokit.cpu.loops.expr import Axis
from hlokit.cpu.lower.leaf import Leaf
from hlokit.hlo.instruction import Instruction


class Materialise(Exception):
    """A leaf should be stored: inlining it costs more than memory does.

    `is_size`: since the kernel is too large.
    """

    def __init__(self, leaf: Leaf, reason: str, *, is_size: bool = False) -> None:
        super().__init__(reason)
        self.leaf = leaf
        self.is_size = is_size


class Reference(Exception):
    """Strict code has no machine code of the reference's bits for this leaf's instruction."""

    def __init__(self, leaf: Leaf, reason: str) -> None:
        super().__init__(reason)
        self.leaf = leaf


class Split(Exception):
    """An index would be affine if this axis were two: `factor` is the extent of the inner one."""

    def __init__(self, axis: Axis, factor: int) -> None:
        super().__init__(axis.name)
        self.axis = axis
        self.factor = factor


class Turn(Exception):
    """A cumulative fold from the end goes along this axis: its dimension has to be walked backwards."""

    def __init__(self, axis: Axis) -> None:
        super().__init__(axis.name)
        self.axis = axis


class NoElementLoop(Exception):
    """A loop that was to be one over elements has no code as such."""

    def __init__(self, loop: Instruction) -> None:
        super().__init__(loop.name)
        self.loop = loop


def too_often(evaluations: int, elements: int, cost: int) -> bool:
    """More work than writing a leaf and reading it again."""
    return (evaluations - elements) * cost > 8 * elements + 20000
