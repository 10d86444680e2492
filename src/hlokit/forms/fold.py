"""The fold form, which is data: reduce and reduce-window, variadic ones and prefix scans among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoldDimension:
    """The fold of one operand dimension.

    At output position o (0 where `output` is None) and step k < size the fold meets place p = o * stride + k * dilation
    - low of the operand spread by `base_dilation`: its element p / base_dilation, if that is whole and inside; else the
    step is skipped.
    """

    output: int | None
    size: int
    stride: int = 1
    low: int = 0
    dilation: int = 1
    base_dilation: int = 1

    @property
    def is_kept(self) -> bool:
        """Each output position meets the one element at its own place."""
        return self.output is not None and self == FoldDimension(self.output, 1)

    def is_scan(self, extent: int) -> bool:
        """Output position o meets the elements 0..o of a dimension of this extent, as in a cumulative sum."""
        return self.size >= extent and self == FoldDimension(self.output, self.size, low=self.size - 1)

    def is_reverse_scan(self, extent: int, results: Sequence[int]) -> bool:
        """Output position o meets the elements from o on, as in a cumulative sum from the end (`results`: sizes)."""
        if self.output is None or results[self.output] != extent:
            return False
        return self.size >= extent and self == FoldDimension(self.output, self.size)


@dataclass(frozen=True, slots=True)
class Fold:
    """accumulators = combiner(*accumulators, *elements) for every step, in row-major order of the steps, but in the
    opposite order in a reverse scan by a commutative op (RWIN-5).

    dimensions   one per operand dimension; all `count` operands are folded alike
    count        number of folded operands, which come first; as many scalars follow, where the accumulators start
    combiner     role of the called computation: accumulators come first, then elements
    """

    dimensions: tuple[FoldDimension, ...]
    count: int
    combiner: str = "to_apply"

    @property
    def inits(self) -> range:
        """The operands that the accumulators start from."""
        return range(self.count, 2 * self.count)
