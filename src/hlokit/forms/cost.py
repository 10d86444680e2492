"""Costs, counted from shapes: operations on elements, and bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.types.shape import Shape


@dataclass(frozen=True, slots=True)
class Cost:
    """flops: arithmetic on elements, a multiply-add being two; transcendentals: elements of exp, sin and the like."""

    flops: float = 0
    transcendentals: float = 0
    bytes_accessed: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.transcendentals + other.transcendentals,
            self.bytes_accessed + other.bytes_accessed,
        )

    def times(self, count: int) -> Cost:
        """The operations of `count` runs; elements handed to a function of scalars are counted by its caller."""
        return Cost(self.flops * count, self.transcendentals * count)

    def at_least(self, other: Cost) -> Cost:
        return Cost(
            max(self.flops, other.flops),
            max(self.transcendentals, other.transcendentals),
            max(self.bytes_accessed, other.bytes_accessed),
        )

    def properties(self) -> dict[str, float]:
        """Under XLA's names, those that are not zero."""
        named = {
            "flops": self.flops,
            "transcendentals": self.transcendentals,
            "bytes accessed": self.bytes_accessed,
        }
        return {name: float(value) for name, value in named.items() if value}


def moved(operands: Sequence[Shape], result: Shape) -> Cost:
    """Every operand and the result are moved once."""
    return Cost(bytes_accessed=sum(operand.nbytes for operand in operands) + result.nbytes)


def taken(operands: Sequence[Shape], result: Shape) -> Cost:
    """Only what is taken of the first operand is read; so are indices, the second operand, counted once."""
    return Cost(bytes_accessed=2 * result.nbytes + sum(operand.nbytes for operand in operands[1:2]))


def log2(count: int) -> int:
    """The stages of a network, or of a sort, of so many elements."""
    return max(0, count - 1).bit_length()
