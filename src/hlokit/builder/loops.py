"""Loops and folds over several handles (xla/hlo/builder/lib/loops.h and arithmetic.h, BEY-80)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlokit.builder.control import tuple_, while_
from hlokit.builder.core import XlaOp
from hlokit.builder.elementwise import or_
from hlokit.builder.reduction import reduce_all
from hlokit.types.dtype import DType

__all__ = ["any", "for_each_index", "while_loop"]


def while_loop(
    condition: Callable[..., XlaOp], body: Callable[..., Sequence[XlaOp]], initial_values: Sequence[XlaOp]
) -> list[XlaOp]:
    """`values = initial_values; while condition(*values): values = body(*values)`, as a list of handles (BEY-80).

    `body` returns as many values as it takes, of the same shapes (WHILE-6); `condition` a pred[] (WHILE-4).
    """

    def unfinished(state: XlaOp) -> XlaOp:
        return condition(*state)

    def step(state: XlaOp) -> Sequence[XlaOp]:
        return list(body(*state))

    return list(while_(unfinished, step, tuple_(initial_values[0].builder, list(initial_values))))


def for_each_index(
    num_iterations: int,
    index_type: DType,
    body: Callable[..., Sequence[XlaOp]],
    initial_values: Sequence[XlaOp],
) -> list[XlaOp]:
    """`for i in range(num_iterations): values = body(i, *values)`, i a scalar of `index_type` (BEY-80)."""

    def unfinished(index: XlaOp, *values: XlaOp) -> XlaOp:
        return index < num_iterations

    def step(index: XlaOp, *values: XlaOp) -> list[XlaOp]:
        return [index + 1, *body(index, *values)]

    start = initial_values[0].builder.constant_r0(0, index_type)
    return while_loop(unfinished, step, [start, *initial_values])[1:]


def any(predicates: XlaOp) -> XlaOp:
    """Whether any element of a pred array is true, as pred[] (BEY-80)."""
    return reduce_all(predicates, predicates.builder.constant_r0(False), or_)
