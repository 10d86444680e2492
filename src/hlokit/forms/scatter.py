"""The scatter form: the position of each update, and how it is combined with the present value."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.forms.affine import Index
from hlokit.forms.emitter import Condition


@dataclass(frozen=True, slots=True)
class Scattering:
    """operand[target] = combiner(operand[target], update) for each update, in row-major order of the updates.

    count      number of operands (and of updates). The op's operands: these, the indices, the updates
    window     (update dimension, operand dimension) pairs: along them the target moves with the update, one to one.
               The other update dimensions count index vectors, each of which may hit anything
    combiner   role of the called computation: current values come first, then updates
    """

    count: int
    window: tuple[tuple[int, int], ...]
    combiner: str = "to_apply"


@dataclass(frozen=True, slots=True)
class Target:
    """The operand element that an update goes to. Unless all guards hold the update is dropped.

    The guards say whether the whole window lies inside; the index is inside in any case.
    """

    guards: tuple[Condition, ...]
    index: Index
