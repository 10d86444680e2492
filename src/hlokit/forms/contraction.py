"""The contraction form, which is data: sums of products of two operands, plain, windowed, grouped, ragged or scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Role: TypeAlias = Literal["batch", "left", "right", "summed"]
"""Where an index moves: in lhs, rhs and the result; in lhs and the result; in rhs and the result; in lhs and rhs."""

_ROLES: dict[tuple[bool, bool, bool], Role] = {
    (True, True, True): "batch",
    (True, False, True): "left",
    (False, True, True): "right",
    (True, True, False): "summed",
}


@dataclass(frozen=True, slots=True)
class Move:
    """The dimension of an array along which an index moves, and by how many places: backwards from its end if < 0."""

    dimension: int
    step: int = 1


@dataclass(frozen=True, slots=True)
class ContractionDimension:
    """An index of a contraction: how many values it takes, and its move in each array; None where it has no part."""

    size: int
    lhs: Move | None = None
    rhs: Move | None = None
    result: Move | None = None

    @property
    def role(self) -> Role:
        return _ROLES[self.lhs is not None, self.rhs is not None, self.result is not None]


@dataclass(frozen=True, slots=True)
class ContractionWindow:
    """A dimension of lhs that an index of outputs and one of taps meet: their moves in it are stride and dilation.

    At output o and tap k the place p = o * stride + k * dilation - low of lhs spread by `base_dilation` is met: its
    element p / base_dilation, if that is whole and inside; else zero.
    """

    dimension: int
    low: int = 0
    base_dilation: int = 1


@dataclass(frozen=True, slots=True)
class ContractionGroups:
    """Groups of consecutive values of one dimension of a contraction, whose sizes are known when the program runs.

    A product counts only if the value of the dimension lies in the group that rhs or the result are of; what lies past
    the last group counts for nothing.

    sizes      number of the operand that holds the groups' sizes, in its last dimension
    dimension  number, in Contraction.dimensions, of the one that comes in groups
    rhs        the move of the group's number in rhs; None: the groups share it
    result     the move of the group's number in the result; None: the groups follow one another in it
    before     numbers of the dimensions that index `sizes` before its last dimension
    """

    sizes: int
    dimension: int
    rhs: Move | None = None
    result: Move | None = None
    before: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Contraction:
    """result = the sum over all summed dimensions of lhs * rhs, operands 0 and 1.

    The place in a dimension of an array is the sum of the moves along it. The routine asks for the elements of both
    operands one by one, and hands over each element of the result once: what makes or uses them may be fused to it.

    dimensions  by role: batch, left, right, summed; of each role in the order of the result or of lhs
    windows     of the dimensions of lhs that outputs and taps meet; None for a plain product
    groups      of a ragged one
    is_scaled   operands 2 and 3 are factors of lhs and rhs, of whose elements blocks share one: sizes divide theirs
    """

    dimensions: tuple[ContractionDimension, ...]
    windows: tuple[ContractionWindow, ...] | None = None
    groups: ContractionGroups | None = None
    is_scaled: bool = False

    def having(self, role: Role) -> list[ContractionDimension]:
        """The dimensions of a role."""
        return [d for d in self.dimensions if d.role == role]
