"""The reasons to start again, raised while a kernel is built.

drafts.retried builds the kernel again, 200 times at most, after
    Materialise  (of loops/build, loops/recomputation, loops/folding and scatters) has stored the leaf
    Reference    (of loops/build, for an Inexact of loops/arithmetic) has left the instruction to the reference
    Split        (of loops/arithmetic) has made two axes of one
    Turn         (of loops/folding) has walked the axis backwards
and program.lower begins the computation anew after
    NoElementLoop (of fusion) has made the loop one of steps.

Each restart stores, leaves, splits or turns one thing more, so they end.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.loops.expr import LoopAxis
from hlokit.cpu.lower.leaf import Leaf
from hlokit.errors import UnsupportedError
from hlokit.hlo.instruction import Instruction


class Materialise(Exception):
    """A leaf should be stored: inlining it costs more than memory does.

    `is_size`: since the kernel is too large.
    """

    def __init__(self, leaf: Leaf, reason: str, *, is_size: bool = False) -> None:
        super().__init__(reason)
        self.leaf = leaf
        self.is_size = is_size


class Inexact(UnsupportedError):
    """Machine code has not the reference's bits for an op or a primitive, which strict code therefore has not."""

    def __init__(self, name: str) -> None:
        super().__init__(f"strict: {name} has the reference's bits there alone")


class Reference(Exception):
    """The instruction of this leaf is to be evaluated by the reference."""

    def __init__(self, leaf: Leaf, reason: str) -> None:
        super().__init__(reason)
        self.leaf = leaf


class Split(Exception):
    """An index would be affine if this axis were two: `factor` is the extent of the inner one."""

    def __init__(self, axis: LoopAxis, factor: int) -> None:
        super().__init__(axis.name)
        self.axis = axis
        self.factor = factor


class Turn(Exception):
    """A cumulative fold from the end goes along this axis: its dimension has to be walked backwards."""

    def __init__(self, axis: LoopAxis) -> None:
        super().__init__(axis.name)
        self.axis = axis


class NoElementLoop(Exception):
    """A loop that was to be one over elements has no code as such."""

    def __init__(self, loop: Instruction) -> None:
        super().__init__(loop.name)
        self.loop = loop


class NoKernel(UnsupportedError):
    """No kernel computes these values. `inlined`: the instructions that were in it when this was found."""

    def __init__(self, reason: str, inlined: Sequence[Instruction]) -> None:
        super().__init__(reason)
        self.inlined = inlined


def too_often(evaluations: int, elements: int, cost: int) -> bool:
    """More work than writing a leaf and reading it again."""
    return (evaluations - elements) * cost > 8 * elements + 20000
