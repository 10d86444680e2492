"""Scan: a loop over the slices of arrays, with carried values."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from hlokit.forms.cost import Cost, moved
from hlokit.forms.graph import Called, Graph, Node
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.ops.control_flow import Call, While
from hlokit.ops.expansion import Writing
from hlokit.ops.reduction import cut_to_least, results_of
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import ResultShape, Single
from hlokit.types.shape import ProgramShape, Shape


class Scan(Op, name="scan"):
    """Calls `to_apply(input slices.., carries..)` along `dimension`; returns (stacked outputs.., final carries..).

    Operands are the inputs, then the initial carries. Slices lack the dimension (BEY-50).
    """

    dimension: Single = attr(text="dimensions")
    num_carries: int = attr()
    is_reverse: bool = attr(False)
    is_associative: bool = attr(False, always=True)
    scan_shape: ResultShape
    """Without inputs this alone says how many steps there are."""

    rounding = SUMMED
    roles = ("to_apply",)
    form = "expand"
    rules = "BEY-50"

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

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        """The computation once for each step."""
        inputs = tuple(operands[: len(operands) - self.num_carries])
        steps, _ = self._steps(inputs, len(list(result.leaves())) - self.num_carries)
        return moved(operands, result) + called[0].times(steps)

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

    def expand(self, graph: Graph, *operands: Node, to_apply: Called) -> Node:
        """A while loop over (step, inputs.., outputs.., carries..)."""
        write, result = Writing(graph), to_apply.signature().result
        inferred = self.infer(*(o.shape for o in operands), to_apply=to_apply.signature())
        leaves = list(inferred.leaves())
        count, stacked = len(operands) - self.num_carries, leaves[: len(leaves) - self.num_carries]
        steps = self._steps(tuple(o.shape for o in operands[:count]), len(stacked))[0]
        empty = [write.full(0, shape) for shape in stacked]
        if steps == 0:
            return write.tuple(*empty, *operands[count:]) if result.is_tuple else (*empty, *operands[count:])[0]
        state = write.tuple(write.scalar(0, dtypes.s64), *operands[:count], *empty, *operands[count:])

        def goes_on(graph: Graph, state: Node) -> Node:
            inner = Writing(graph)
            return inner.compare("LT", inner.part(state, 0), inner.scalar(steps, dtypes.s64))

        def body(graph: Graph, state: Node) -> Node:
            return self._step(Writing(graph), state, to_apply, count, steps)

        called = [graph.computation([state.shape], goes_on), graph.computation([state.shape], body)]
        final = graph.add(While(), state, called=called)
        parts = [write.part(final, 1 + count + i) for i in range(len(leaves))]
        return write.tuple(*parts) if result.is_tuple else parts[0]

    def _step(self, write: Writing, state: Node, to_apply: Called, count: int, steps: int) -> Node:
        """The state after one more step."""
        parts = [write.part(state, i) for i in range(len(state.shape.elements))]
        step, inputs, rest = parts[0], parts[1 : 1 + count], parts[1 + count :]
        outputs, carries = rest[: len(rest) - self.num_carries], rest[len(rest) - self.num_carries :]
        one = write.scalar(1, dtypes.s64)
        at = write.subtract(write.scalar(steps - 1, dtypes.s64), step) if self.is_reverse else step
        slices = [self._slice(write, array, at) for array in inputs]
        value = write.graph.add(Call(False), *slices, *carries, called=[to_apply])
        results = [write.part(value, i) for i in range(len(rest))] if value.shape.is_tuple else [value]
        stacked = [self._stacked(write, o, r, at) for o, r in zip(outputs, results, strict=False)]
        return write.tuple(write.add(step, one), *inputs, *stacked, *results[len(outputs) :])

    def _starts(self, write: Writing, rank: int, at: Node) -> list[Node]:
        return [at if d == self.dimension else write.scalar(0, dtypes.s64) for d in range(rank)]

    def _slice(self, write: Writing, array: Node, at: Node) -> Node:
        """`array` at one index of the dimension."""
        shape, d = array.shape, self.dimension
        sizes = (*shape.dimensions[:d], 1, *shape.dimensions[d + 1 :])
        taken = write.graph.add(DynamicSlice(sizes), array, *self._starts(write, shape.rank, at))
        return write.reshape(taken, without_dimension(shape, d).dimensions)

    def _stacked(self, write: Writing, array: Node, value: Node, at: Node) -> Node:
        """`array` with `value` at one index of the dimension."""
        sizes, d = value.shape.dimensions, self.dimension
        row = write.reshape(value, (*sizes[:d], 1, *sizes[d:]))
        return write.graph.add(DynamicUpdateSlice(), array, row, *self._starts(write, array.shape.rank, at))


def without_dimension(array: Shape, dimension: int) -> Shape:
    """The shape of a slice of `array` at one index of the dimension."""
    kept = [i for i in range(array.rank) if i != dimension]
    return array.with_dimensions([array.dimensions[i] for i in kept], [array.dynamic[i] for i in kept])
