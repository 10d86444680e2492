"""Reshape: the same elements with other dimensions, and the position of a dynamic dimension (DYN-5)."""

import math
from collections.abc import Sequence
from itertools import pairwise

from hlokit.errors import EvaluationError
from hlokit.forms.affine import Affine, Index, row_major
from hlokit.forms.emitter import Emitter, Reader, Value
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops.reinterpretation import digits_of
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import ResultShape
from hlokit.types.shape import Shape


class Reshape(Op, name="reshape"):
    """The operand's elements in row-major order, with other dimensions.

    If several result dimensions could take a dynamic size, `inferred_dimension` is the one that does (BEY-23).
    """

    inferred_dimension: int | None = attr(None, proto="dimensions")
    output_shape: ResultShape

    rounding = None
    arity = 1
    form = "index"
    rules = "RESHAPE"
    same_elements = True

    def infer(self, operand: Shape) -> Shape:
        output = self.output_shape
        check(operand.is_array, "RESHAPE-1", "operand", operand, "an array")
        check(output.dtype is operand.dtype, "RESHAPE-1", "result element type", output.dtype, operand.dtype)
        if self.inferred_dimension is not None:
            inside = 0 <= self.inferred_dimension < output.rank
            check(inside, "BEY-23", "inferred_dimension", self.inferred_dimension, "a dimension of the result")
        if operand.is_unbounded or output.is_unbounded:
            return output.logical
        if output.size != operand.size:
            check(False, "RESHAPE-2", "elements of the result", output.size, operand.size)
        if operand.is_dynamic:
            check_not_merged_and_split(operand, output.dimensions, self.inferred_dimension)
        return output.logical

    def reference(self, operand: Array, shape: Shape, operand_shapes: list[Shape]) -> Array:
        if not shape.is_dynamic and operand.shape == operand_shapes[0].dimensions:
            return operand.reshape(shape.dimensions)
        sizes: list[int] = []
        for inputs, outputs in common_factors(operand_shapes[0].dimensions, shape.dimensions):
            count = math.prod(operand.shape[i] for i in inputs)
            sizes += _sizes_of_group(shape, outputs, count)
        return operand.reshape(sizes)

    def element(self, emit: Emitter, index: Index, operand: Reader) -> Value:
        position: list[Affine] = []
        source, target = operand.shape.dimensions, self.output_shape.dimensions
        for inputs, outputs in common_factors(source, target):
            number = row_major(tuple(index[o] for o in outputs), [target[o] for o in outputs])
            position += digits_of(emit, number, [source[i] for i in inputs])
        return operand(tuple(position))


class DynamicReshape(Op, name="dynamic-reshape"):
    """The operand's elements with sizes that are known at run time; the result shape gives their bounds (BEY-24)."""

    output_shape: ResultShape

    form = "index"
    rules = "BEY-24"

    def infer(self, *operands: Shape) -> Shape:
        check(bool(operands), "HINST-5", "operands", "none", "the array and its sizes")
        operand, sizes, output = operands[0], operands[1:], self.output_shape
        check(operand.is_array, "BEY-24", "operand", operand, "an array")
        check(output.dtype is operand.dtype, "BEY-24", "result element type", output.dtype, operand.dtype)
        check(len(sizes) == output.rank, "BEY-24", "dim_sizes", len(sizes), output.rank)
        check(all(s.logical is dtypes.s32[()] for s in sizes), "BEY-24", "dim_sizes", sizes, "s32 scalars")
        if not operand.is_unbounded and not output.is_unbounded:
            check(output.size == operand.size, "BEY-24", "elements of the bounds", output.size, operand.size)
        return output.logical

    def reference(self, operand: Array, *sizes: Array, shape: Shape) -> Array:
        wanted = [int(size) for size in sizes]
        for size, bound, dynamic in zip(wanted, shape.dimensions, shape.dynamic, strict=True):
            if not (0 <= size <= bound if dynamic else size == bound):
                raise EvaluationError(f"dynamic-reshape: size {size} does not fit {shape} [BEY-24]")
        if math.prod(wanted) != operand.size:
            raise EvaluationError(f"dynamic-reshape: sizes {wanted} for {operand.size} elements [BEY-24]")
        return operand.reshape(wanted)


def reshaped(operand: Shape, sizes: Sequence[int], inferred_dimension: int | None = None) -> Shape:
    """The shape of these sizes with the operand's dynamic dimensions where they go (DYN-5).

    Where several dimensions could take one, it is `inferred_dimension`; without it they all stay fixed.
    """
    if not operand.is_dynamic:
        return operand.with_dimensions(sizes)
    if operand.is_unbounded or math.prod(operand.dimensions) != math.prod(sizes):
        return operand.with_dimensions(sizes)
    check_not_merged_and_split(operand, sizes)
    dynamic = [False] * len(sizes)
    for inputs, outputs in common_factors(operand.dimensions, sizes):
        if not any(operand.dynamic[i] for i in inputs) or not outputs:
            continue
        candidates = [o for o in outputs if sizes[o] != 1] or [outputs[-1]]
        if len(candidates) == 1:
            dynamic[candidates[0]] = True
        elif inferred_dimension in candidates:
            dynamic[inferred_dimension] = True
    return operand.with_dimensions(sizes, dynamic)


def check_not_merged_and_split(operand: Shape, sizes: Sequence[int], inferred_dimension: int | None = None) -> None:
    """A dynamic dimension that is both merged and split goes to `inferred_dimension`; without it, to none (DYN-5)."""
    for inputs, outputs in common_factors(operand.dimensions, sizes):
        if not any(operand.dynamic[i] for i in inputs) or inferred_dimension in outputs:
            continue
        merged = sum(operand.dimensions[i] != 1 for i in inputs) > 1
        split = sum(sizes[o] != 1 for o in outputs) > 1
        check(not (merged and split), "DYN-5", "sizes", tuple(sizes), "no dynamic dimension both merged and split")


def common_factors(inputs: Sequence[int], outputs: Sequence[int]) -> list[tuple[range, range]]:
    """Cuts both lists of sizes into the most runs whose products pair up; sizes of 1 stay with a neighbour."""
    if 0 in inputs or 0 in outputs:
        return [(range(len(inputs)), range(len(outputs)))]
    cuts = [(0, 0)]
    i = o = 0
    product_in = product_out = 1
    while i < len(inputs) and o < len(outputs):
        if product_in <= product_out:
            product_in *= inputs[i]
            i += 1
        else:
            product_out *= outputs[o]
            o += 1
        if product_in == product_out > 1:
            cuts.append((i, o))
            product_in = product_out = 1
    if len(cuts) > 1 and all(n == 1 for n in [*inputs[cuts[-1][0] :], *outputs[cuts[-1][1] :]]):
        cuts.pop()
    cuts.append((len(inputs), len(outputs)))
    return [(range(i, j), range(k, m)) for (i, k), (j, m) in pairwise(cuts)]


def _sizes_of_group(shape: Shape, outputs: range, count: int) -> list[int]:
    """Run-time sizes of the output dimensions of one common factor that hold `count` elements."""
    bounds = [shape.dimensions[o] for o in outputs]
    if math.prod(bounds) == count:
        return bounds
    free = [o for o in outputs if shape.dynamic[o]]
    fixed = math.prod(shape.dimensions[o] for o in outputs if not shape.dynamic[o])
    if len(free) != 1 or fixed == 0 or count % fixed:
        raise EvaluationError(f"reshape: {count} elements do not fit dimensions {[*outputs]} of {shape} [DYN-5]")
    return [count // fixed if o == free[0] else shape.dimensions[o] for o in outputs]
