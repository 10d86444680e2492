"""Reductions: reduce, and what all reducers share."""

from typing import Any

import numpy as np

from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.types.attributes import Dims
from hlokit.types.shape import ProgramShape, Shape


def check_reducer(reducer: ProgramShape, types: list[Shape], inits: tuple[Shape, ...], role: str = "to_apply") -> None:
    """REDUCER-1..5: N accumulated and N new scalars to N scalars, of the operands' element types."""
    n = len(types)
    check(len(reducer.parameters) == 2 * n, "REDUCER-1", f"{role} parameters", len(reducer.parameters), 2 * n)
    results = reducer.result.elements if reducer.result.is_tuple else (reducer.result,)
    check(len(results) == n and all(r.is_scalar for r in results), "REDUCER-2", f"{role} result", reducer.result, f"{n} scalar(s)")
    for i, shape in enumerate(types):
        scalar = shape.dtype[()]
        parameters = (reducer.parameters[i], reducer.parameters[n + i])
        check(all(p is scalar for p in parameters), "REDUCER-4", f"{role} parameters {i} and {n + i}", parameters, scalar)
        check(results[i] is scalar, "REDUCER-4", f"{role} result {i}", results[i], scalar)
        check(inits[i].logical is scalar, "REDUCER-5", f"init_value {i}", inits[i], scalar)


def split_operands(operands: tuple[Any, ...], label: str, name: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Operands followed by as many init values."""
    n = len(operands) // 2
    check(n >= 1 and len(operands) == 2 * n, label, name, len(operands), "N >= 1 operands and N init values")
    return operands[:n], operands[n:]


class Reduce(Op, name="reduce"):
    """Folds the elements along `dimensions` with `to_apply`, starting at the init values.

    The accumulator is the left argument; elements go in row-major index order (REDUCE-8).
    """

    dimensions: Dims = attr()

    roles = ("to_apply",)
    form = "fold"
    rules = "REDUCE"

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        arrays, inits = split_operands(operands, "REDUCE-2", "operands")
        for array in arrays:
            check(array.is_array, "REDUCE-3", "operand", array, "an array")
            check(array.static.dimensions == arrays[0].static.dimensions, "REDUCE-3", "operand dimensions", array, arrays[0])
        rank = arrays[0].rank
        check(all(0 <= d < rank for d in self.dimensions), "REDUCE-4", "dimensions", self.dimensions, f"in [0, {rank})")
        check(len(set(self.dimensions)) == len(self.dimensions), "REDUCE-5", "dimensions", self.dimensions, "no repetition")
        check_reducer(to_apply, list(arrays), inits)
        kept = [d for d in range(rank) if d not in self.dimensions]
        results = [a.with_dimensions([a.dimensions[d] for d in kept], [a.dynamic[d] for d in kept]) for a in arrays]
        return Shape.tuple(results) if to_apply.result.is_tuple else results[0]

    def reference(self, *operands: Array, to_apply: Function) -> Any:
        arrays, inits = split_operands(operands, "REDUCE-2", "operands")
        kept = [d for d in range(arrays[0].ndim) if d not in self.dimensions]
        reduced = sorted(self.dimensions)
        shape = tuple(arrays[0].shape[d] for d in kept)
        rows = [a.transpose(reduced + kept).reshape(-1, *shape) for a in arrays]
        return left_fold(rows, inits, shape, to_apply)


def left_fold(rows: list[Array], inits: tuple[Array, ...], shape: tuple[int, ...], function: Function) -> Any:
    """Folds along the first axis of `rows`, every other index at once; accumulators start at `inits`."""
    ufunc = function.fold_ufunc()
    if ufunc is not None and len(rows) == 1 and not function.result.is_tuple:
        start = np.broadcast_to(inits[0], (1, *shape))
        return ufunc.accumulate(np.concatenate([start, rows[0]]), axis=0)[-1]
    accumulators = tuple(np.broadcast_to(init, shape) for init in inits)
    for elements in zip(*rows, strict=True):
        result = function.batched(*accumulators, *elements)
        accumulators = result if isinstance(result, tuple) else (result,)
    return accumulators if function.result.is_tuple else accumulators[0]
