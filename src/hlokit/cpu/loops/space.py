"""The iteration space of a kernel: its dimensions, and the axes that each of them is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from hlokit.cpu.loops.expr import LoopAxis
from hlokit.forms.affine import Affine, Index


class Dimension:
    """A dimension's extent as axes, outer first: one axis, or several where reshapes cut it.

    `turned`: its places are counted from the last to the first.
    """

    def __init__(self, extent: int, axes: Sequence[LoopAxis], turned: bool = False) -> None:
        self.extent = extent
        self.axes = tuple(axes)
        self.turned = turned
        self.affine = Affine.of(0)
        for axis in axes:
            self.affine = self.affine * axis.extent + axis
        if turned:
            self.affine = self.affine * -1 + (extent - 1)
        self.deps = 0
        for axis in axes:
            self.deps |= axis.bit


class IterationSpace:
    """The dimensions of one kernel, those of its results and those that folds go along.

    splits      factors of dimensions by their number, outer first
    turned      numbers of dimensions that are walked backwards; None: none may be
    dimensions  in the order in which they were made
    around      the kernel's loops, outermost first, where nothing else orders them
    """

    def __init__(self, splits: Mapping[int, Sequence[int]], turned: Collection[int] | None = None) -> None:
        self.splits = splits
        self.turned = turned
        self.dimensions: list[Dimension] = []
        self.around: Sequence[LoopAxis] = ()
        self._count = 0

    def dimension(self, extent: int) -> Dimension:
        """A new dimension."""
        number = len(self.dimensions)
        axes: list[LoopAxis] = []
        for factor in self.splits.get(number, (extent,)):
            axes.append(LoopAxis(f"i{self._count}", factor, 2 << self._count))
            self._count += 1
        self.dimensions.append(Dimension(extent, axes, self.turned is not None and number in self.turned))
        return self.dimensions[-1]

    def index(self, sizes: Sequence[int]) -> Index:
        """One new dimension for each size that is not 1."""
        return tuple(self.dimension(n).affine if n != 1 else Affine.of(0) for n in sizes)

    @property
    def axes(self) -> list[LoopAxis]:
        """The axes of all dimensions."""
        return [axis for dimension in self.dimensions for axis in dimension.axes]

    def number(self, axis: LoopAxis) -> int:
        """The number of the dimension that the axis is of."""
        return next(k for k, dimension in enumerate(self.dimensions) if axis in dimension.axes)
