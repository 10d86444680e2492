"""Dynamic dimensions: their run-time sizes, read and set."""

from typing import Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Dynamic
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Single
from hlokit.types.shape import Shape


class SetDimensionSize(Op, name="set-dimension-size"):
    """Gives a dimension a run-time size; the data stays (SDS-2)."""

    dimension: Single = attr(text="dimensions")

    arity = 2
    form = "control"
    rules = "SDS"
    whole_values = True

    def infer(self, operand: Shape, size: Shape) -> Shape:
        check(operand.is_array, "SDS-3", "operand", operand, "an array")
        check(size.logical is dtypes.s32[()], "SDS-3", "size", size, "s32[]")
        check(0 <= self.dimension < operand.rank, "SDS-4", "dimension", self.dimension, f"in [0, {operand.rank})")
        bound = operand.dimensions[self.dimension]
        check(bound <= 2**31 - 1, "SDS-4", "bound", bound, "<= 2^31-1")
        return operand.logical.with_dynamic([f or d == self.dimension for d, f in enumerate(operand.dynamic)])

    def reference(self, operand: Array | Dynamic, size: Array, shape: Shape) -> Any:
        buffer, sizes = (operand.buffer, operand.sizes) if isinstance(operand, Dynamic) else (operand, operand.shape)
        bound, wanted = shape.dimensions[self.dimension], int(size)
        if not 0 <= wanted <= bound:
            raise EvaluationError(f"set-dimension-size: size {wanted} outside [0, {bound}] [SDS-6]")
        if buffer.shape != shape.dimensions:  # computed at its run-time size: what lies beyond is padding
            buffer = np.pad(buffer, [(0, d - n) for n, d in zip(buffer.shape, shape.dimensions, strict=True)])
        return Dynamic(buffer, tuple(wanted if d == self.dimension else n for d, n in enumerate(sizes)))
