"""Scan: a loop over the slices of arrays, with carried values."""

from typing import Any

import numpy as np

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.ops.reduction import cut_to_least, results_of
from hlokit.types.attributes import ResultShape, Single
from hlokit.types.shape import ProgramShape, Shape


class Scan(Op, name="scan"):
    """Calls `to_apply(input slices.., carries..)` along `dimension`; gives (stacked outputs.., final carries..).

    Operands are the inputs, then the initial carries. Slices lack the dimension (BEY-50).
    """

    dimension: Single = attr(text="dimensions")
    num_carries: int = attr()
    is_reverse: bool = attr(False)
    is_associative: bool = attr(False, always=True)
    scan_shape: ResultShape
    """Without inputs this alone says how many steps there are."""

    roles = ("to_apply",)
    form = "fold"
    rules = "BEY"

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        count = len(operands) - self.num_carries
        check(self.num_carries >= 0 and count >= 0, "BEY-50", "num_carries", self.num_carries, f"0 .. {len(operands)}")
        inputs, carries, d = operands[:count], operands[count:], self.dimension
        for array in inputs:
            check(array.is_array and 0 <= d < array.rank, "BEY-50", "input", array, f"an array with dimension {d}")
            sizes = (array.dimensions[d], inputs[0].dimensions[d])
            check(sizes[0] == sizes[1], "BEY-50", "input sizes along the dimension", sizes, "equal ones")
        expected = [without_dimension(array, d).static for array in inputs] + [c.static for c in carries]
        found = [p.static for p in to_apply.parameters]
        check(found == expected, "BEY-50", "to_apply parameters", found, expected)
        results = to_apply.result.elements if to_apply.result.is_tuple else (to_apply.result,)
        outputs = results[: max(0, len(results) - self.num_carries)]
        found = [r.static for r in results[len(outputs) :]]
        check(found == [c.static for c in carries], "BEY-50", "to_apply's carries", found, carries)
        size, is_dynamic = self._steps(inputs, len(outputs))
        stacked: list[Shape] = []
        for output in outputs:
            check(output.is_array and 0 <= d <= output.rank, "BEY-50", "to_apply's output", output, f"rank >= {d}")
            sizes, flags = list(output.dimensions), list(output.dynamic)
            stacked.append(output.with_dimensions([*sizes[:d], size, *sizes[d:]], [*flags[:d], is_dynamic, *flags[d:]]))
        leaves = [*stacked, *(c.logical for c in carries)]
        return Shape.tuple(leaves) if to_apply.result.is_tuple else leaves[0]

    def _steps(self, inputs: tuple[Shape, ...], output_count: int) -> tuple[int, bool]:
        """Size of the scanned dimension and its dynamic flag."""
        if inputs:
            return inputs[0].dimensions[self.dimension], inputs[0].dynamic[self.dimension]
        declared = next(self.scan_shape.leaves(), self.scan_shape)
        has_size = output_count > 0 and declared.is_array and 0 <= self.dimension < declared.rank
        check(has_size, "BEY-50", "operands", "no input", f"an input, or an output with dimension {self.dimension}")
        return declared.dimensions[self.dimension], False

    def reference(self, *operands: Any, to_apply: Function) -> Any:
        count = len(operands) - self.num_carries
        inputs: tuple[Array, ...] = cut_to_least(operands[:count]) if count else ()
        carries = operands[count:]
        d = self.dimension
        steps = inputs[0].shape[d] if inputs else self._steps((), 1)[0]
        elements = to_apply.result.elements if to_apply.result.is_tuple else (to_apply.result,)
        outputs: list[Array] = []
        for element in elements[: len(elements) - self.num_carries]:
            sizes = element.dimensions
            outputs.append(np.empty((*sizes[:d], steps, *sizes[d:]), element.dtype.numpy))
        for i in reversed(range(steps)) if self.is_reverse else range(steps):
            here = (slice(None),) * d + (i,)
            results = results_of(to_apply, to_apply(*(np.asarray(array[here]) for array in inputs), *carries))
            for output, result in zip(outputs, results, strict=False):
                output[here] = result
            carries = results[len(outputs) :]
        return (*outputs, *carries) if to_apply.result.is_tuple else (*outputs, *carries)[0]


def without_dimension(array: Shape, dimension: int) -> Shape:
    """The shape of a slice of `array` at one index of the dimension."""
    kept = [i for i in range(array.rank) if i != dimension]
    return array.with_dimensions([array.dimensions[i] for i in kept], [array.dynamic[i] for i in kept])
