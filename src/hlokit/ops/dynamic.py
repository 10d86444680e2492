"""Dynamic dimensions: their run-time sizes, read and set."""

from typing import Any

import numpy as np

from hlokit.errors import EvaluationError
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Dynamic, whole_buffer
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Single
from hlokit.types.shape import Shape

_MAX_BOUND = 2**31 - 1


class GetDimensionSize(Op, name="get-dimension-size"):
    """The run-time size of a dimension."""

    dimension: Single = attr(text="dimensions")

    arity = 1
    form = "control"
    free = True
    rules = "GDS"

    def infer(self, operand: Shape) -> Shape:
        check(operand.is_array, "GDS-3", "operand", operand, "an array")
        check(0 <= self.dimension < operand.rank, "GDS-4", "dimension", self.dimension, f"in [0, {operand.rank})")
        check(operand.dimensions[self.dimension] <= _MAX_BOUND, "GDS-5", "bound", operand, "<= 2^31-1")
        return dtypes.s32[()]

    def reference(self, operand: Array) -> Array:
        return np.asarray(operand.shape[self.dimension], np.int32)


class SetDimensionSize(Op, name="set-dimension-size"):
    """Sets the run-time size of a dimension; the data is unchanged (SDS-2).

    With a result shape in which the dimension is static, its size is the bound (RemoveDynamicDimension, SDS-7).
    """

    dimension: Single = attr(text="dimensions")

    arity = 2
    form = "control"
    rules = "SDS"
    whole_values = True
    flags_by_shape = True

    def infer(self, operand: Shape, size: Shape) -> Shape:
        check(operand.is_array, "SDS-3", "operand", operand, "an array")
        check(size.logical is dtypes.s32[()], "SDS-3", "size", size, "s32[]")
        check(0 <= self.dimension < operand.rank, "SDS-4", "dimension", self.dimension, f"in [0, {operand.rank})")
        check(operand.dimensions[self.dimension] <= _MAX_BOUND, "SDS-4", "bound", operand, "<= 2^31-1")
        return operand.logical.with_dynamic([f or d == self.dimension for d, f in enumerate(operand.dynamic)])

    def reference(self, operand: Array | Dynamic, size: Array, shape: Shape) -> Any:
        bound, wanted = shape.dimensions[self.dimension], int(size)
        if not 0 <= wanted <= bound:
            raise EvaluationError(f"set-dimension-size: size {wanted} outside [0, {bound}] [SDS-6]")
        if not shape.dynamic[self.dimension] and wanted != bound:
            raise EvaluationError(
                f"set-dimension-size: size {wanted} for dimension {self.dimension} of {shape} [SDS-7]"
            )
        sizes = operand.sizes if isinstance(operand, Dynamic) else operand.shape
        buffer = whole_buffer(operand, shape.dimensions)
        if not shape.is_dynamic:
            return buffer
        return Dynamic(buffer, tuple(wanted if d == self.dimension else n for d, n in enumerate(sizes)))
