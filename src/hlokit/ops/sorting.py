"""Sorting: sort, topk."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from hlokit.forms.cost import Cost, log2, moved
from hlokit.forms.kernel import Kernel
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.ops.reduction import cut_to_least
from hlokit.ops.sort_order import sorted_positions, stable_order, total_order_keys
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import STABILITY, Single
from hlokit.types.shape import ProgramShape, Shape


class Sort(Op, name="sort"):
    """Sorts the elements along `dimension`; all operands are permuted in the same way.

    The comparator is true if its first element comes before its second; operand k supplies parameters 2k and 2k+1.
    The order of equal elements is kept, whatever `is_stable` says (SORT-9).
    """

    dimension: Single = attr(text="dimensions", proto="dimensions")
    is_stable: bool = attr(False)

    rounding = None
    roles = ("to_apply",)
    form = "kernel"
    rules = "SORT"

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        check(len(operands) > 0, "SORT-2", "operands", 0, "at least one")
        for operand in operands:
            check(operand.is_array, "SORT-2", "operand", operand, "an array")
            check(operand.dimensions == operands[0].dimensions, "SORT-2", "operand dimensions", operand, operands[0])
        rank = operands[0].rank
        check(0 <= self.dimension < rank, "SORT-4", "dimension", self.dimension, f"in [0, {rank})")
        expected = [o.dtype[()] for o in operands for _ in range(2)]
        found = [p.static for p in to_apply.parameters]
        check(found == expected, "SORT-3", "comparator parameters", found, expected)
        check(to_apply.result.static is dtypes.pred[()], "SORT-3", "comparator result", to_apply.result, "pred[]")
        return operands[0].logical if len(operands) == 1 else Shape.tuple(o.logical for o in operands)

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """A comparison counts as one operation, whatever the comparator computes."""
        count = operands[0].size
        return moved(operands, result) + Cost(count * log2(count))

    def operations(self, operands: Sequence[Shape], result: Shape, called: Sequence[float]) -> float:
        return super().operations(operands, result, called) * called[0]

    def reference(self, *operands: Array, to_apply: Function) -> Any:
        last = [np.moveaxis(o, self.dimension, -1) for o in cut_to_least(operands)]
        sizes = last[0].shape
        lines = [np.ascontiguousarray(o).reshape(-1, sizes[-1]) if o.size else o.reshape(0, sizes[-1]) for o in last]
        order = sorted_positions(lines, to_apply)
        results = [np.take_along_axis(o, order, 1).reshape(sizes) for o in lines]
        moved = [_within(o, np.moveaxis(r, -1, self.dimension)) for o, r in zip(operands, results, strict=True)]
        return moved[0] if len(operands) == 1 else tuple(moved)

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel(
            "sort", prologue=tuple(range(len(operands))), functions=("to_apply",),
            whole=(self.dimension - operands[0].rank,),
        )  # fmt: skip


def _within(operand: Array, part: Array) -> Array:
    """`operand` with `part` in place of its first elements of each dimension (SORT-15)."""
    if part.shape == operand.shape:
        return part
    result = operand.copy()
    result[tuple(map(slice, part.shape))] = part
    return result


class TopK(Op, name="topk"):
    """The k largest or smallest elements along the last dimension, sorted by the total order, and their indices."""

    k: int = attr()
    largest: bool = attr(True, always=True)
    is_stable: Annotated[bool, STABILITY] = attr(default=True)

    arity = 1
    form = "kernel"
    rules = "BEY-36 BEY-37 BEY-38"

    def infer(self, operand: Shape) -> Shape:
        check(
            operand.is_array and not operand.dtype.is_complex,
            "BEY-36",
            "operand",
            operand,
            "an array of ordered elements",
        )
        check(operand.rank >= 1, "BEY-36", "rank of operand", operand.rank, ">= 1")
        size = operand.dimensions[-1]
        check(0 <= self.k <= size, "BEY-37", "k", self.k, f"in [0, {size}]")
        values = operand.with_dimensions((*operand.dimensions[:-1], self.k), operand.dynamic)
        return Shape.tuple((values, values.with_dtype(dtypes.s32)))

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        count = operands[0].size
        return moved(operands, result) + Cost(count * log2(count))

    def reference(self, operand: Array) -> tuple[Array, Array]:
        keys = total_order_keys(operand)
        order = stable_order(~keys if self.largest else keys)[..., : self.k]
        return np.take_along_axis(operand, order, -1), order.astype(np.int32)

    def kernel(self, operands: Sequence[Shape]) -> Kernel:
        return Kernel("topk", prologue=(0,), whole=(-1,))
