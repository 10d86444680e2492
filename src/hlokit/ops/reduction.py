"""Reductions: reduce, what all reducers share, and the left fold."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from hlokit.forms.cost import Cost, moved
from hlokit.forms.fold import Fold, FoldDimension
from hlokit.hlo.computation import counted
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array, Function
from hlokit.ops.numerics import convert
from hlokit.types.attributes import Dims
from hlokit.types.dtype import DType
from hlokit.types.shape import ProgramShape, Shape

_WIDE_ENOUGH = 512
"""From so many outputs on, one ufunc call per folded row costs less than `accumulate`, which stores every step."""

_CHUNK = 1 << 18
"""Elements that `accumulate` may store at a time."""


@cache
def scalar_of(dtype: DType) -> Shape:
    """The scalar shape of an element type."""
    return dtype[()]


def check_reducer(
    reducer: ProgramShape, types: list[Shape], inits: tuple[Shape, ...], role: str = "to_apply", wide: bool = False
) -> None:
    """REDUCER-1..5: N accumulated and N new scalars to N scalars, of the operands' element types.

    wide   where these are floating, another floating type will do (REDUCER-7)
    """
    n = len(types)
    result, parameters = reducer.result, reducer.parameters
    results = result.elements if result.is_tuple else (result,)
    if len(parameters) != 2 * n:
        check(False, "REDUCER-1", f"{role} parameters", len(parameters), 2 * n)
    if len(results) != n or not all(r.is_scalar for r in results):
        check(False, "REDUCER-2", f"{role} result", result, counted(n, "scalar"))
    for i, shape in enumerate(types):
        scalar = scalar_of(shape.dtype)
        init_value = f"init_value {i}" if n > 1 else "init_value"
        if wide and shape.dtype.is_floating and results[i].dtype.is_floating and inits[i].dtype.is_floating:
            scalar = scalar_of(results[i].dtype)
            check(inits[i].is_scalar, "REDUCER-5", init_value, inits[i], scalar)
            inits = (*inits[:i], scalar, *inits[i + 1 :])
        if not parameters[i].static is parameters[n + i].static is scalar:
            found = (parameters[i], parameters[n + i])
            check(False, "REDUCER-4", f"{role} parameters {i} and {n + i}", found, scalar)
        if results[i].static is not scalar:
            check(False, "REDUCER-4", f"{role} result {i}", results[i], scalar)
        if inits[i].static is not scalar:
            check(False, "REDUCER-5", init_value, inits[i], scalar)


def in_reducer_types(values: Sequence[Array], reducer: Function) -> tuple[Array, ...]:
    """N values as the reducer takes them (REDUCER-7)."""
    types = [leaf.dtype.numpy for leaf in reducer.result.leaves()]
    return tuple(v if v.dtype == t else convert(v, t) for v, t in zip(values, types, strict=True))


def as_declared(result: Any, shape: Shape | None) -> Any:
    """A reducer's result (or tuple of them) in the types that the instruction's shape says."""
    if shape is None:
        return result
    if shape.is_tuple:
        return tuple(map(as_declared, result, shape.elements))
    return result if result.dtype == shape.dtype.numpy else convert(result, shape.dtype.numpy)


def split_operands(operands: tuple[Any, ...], label: str) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Operands followed by as many init values."""
    n = len(operands) // 2
    check(n >= 1 and len(operands) == 2 * n, label, "operands", len(operands), "N >= 1 operands and N init values")
    return operands[:n], operands[n:]


def check_same_dimensions(arrays: tuple[Shape, ...], label: str) -> None:
    """All operands are arrays of the first one's dimensions."""
    for array in arrays:
        check(array.is_array, label, "operand", array, "an array")
        check(array.dimensions == arrays[0].dimensions, label, "operand dimensions", array, arrays[0])


def cut_to_least(arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Arrays of one bound, each cut to the least of their run-time sizes."""
    if all(a.shape == arrays[0].shape for a in arrays):
        return arrays
    least = tuple(slice(min(sizes)) for sizes in zip(*(a.shape for a in arrays), strict=True))
    return tuple(a[least] for a in arrays)


class Reduce(Op, name="reduce"):
    """Combines the elements along `dimensions` with `to_apply`, starting from the init values.

    The accumulator is the left argument; elements are taken in row-major index order (REDUCE-8).
    """

    dimensions: Dims = attr()

    rounding = SUMMED
    roles = ("to_apply",)
    form = "fold"
    rules = "REDUCE"
    precision_by_shape = True

    def infer(self, *operands: Shape, to_apply: ProgramShape) -> Shape:
        arrays, inits = split_operands(operands, "REDUCE-2")
        check_same_dimensions(arrays, "REDUCE-3")
        rank, reduced = arrays[0].rank, self.dimensions
        if not all(0 <= d < rank for d in reduced):
            check(False, "REDUCE-4", "dimensions", reduced, f"in [0, {rank})")
        check(len(set(reduced)) == len(reduced), "REDUCE-5", "dimensions", reduced, "no repetition")
        check_reducer(to_apply, list(arrays), inits, wide=True)
        kept = [d for d in range(rank) if d not in reduced]
        results = [a.with_dimensions([a.dimensions[d] for d in kept], [a.dynamic[d] for d in kept]) for a in arrays]
        results = [r.with_dtype(leaf.dtype) for r, leaf in zip(results, to_apply.result.leaves(), strict=True)]
        return Shape.tuple(results) if to_apply.result.is_tuple else results[0]

    def cost(self, operands: Sequence[Shape], result: Shape, called: Sequence[Cost]) -> Cost:
        each = result.elements[0] if result.is_tuple else result
        return moved(operands, result) + called[0].times(max(0, operands[0].size - each.size))

    def reference(self, *operands: Array, to_apply: Function, shape: Shape | None = None) -> Any:
        arrays, inits = (in_reducer_types(part, to_apply) for part in split_operands(operands, "REDUCE-2"))
        return as_declared(self._folded(cut_to_least(arrays), inits, to_apply), shape)

    def _folded(self, arrays: tuple[Array, ...], inits: tuple[Array, ...], to_apply: Function) -> Any:
        kept = [d for d in range(arrays[0].ndim) if d not in self.dimensions]
        reduced = sorted(self.dimensions)
        shape = tuple(arrays[0].shape[d] for d in kept)
        count = int(np.prod([arrays[0].shape[d] for d in reduced], dtype=np.int64))
        rows = [a.transpose(reduced + kept).reshape(count, *shape) for a in arrays]
        return left_fold(rows, inits, shape, to_apply)

    def fold(self, operands: Sequence[Shape]) -> Fold:
        array = operands[0]
        kept = [d for d in range(array.rank) if d not in self.dimensions]
        whole = {d: FoldDimension(None, array.dimensions[d]) for d in self.dimensions}
        single = {d: FoldDimension(output, 1) for output, d in enumerate(kept)}
        return Fold(tuple((whole | single)[d] for d in range(array.rank)), len(operands) // 2)


def left_fold(rows: list[Array], inits: tuple[Array, ...], shape: tuple[int, ...], function: Function) -> Any:
    """Folds along the first axis of `rows`, every other index at once; accumulators start at `inits`."""
    if len(rows) == 1 and not function.result.is_tuple:
        return _fold_one(rows[0], np.broadcast_to(inits[0], shape), function)
    accumulators = tuple(np.broadcast_to(init, shape) for init in inits)
    for elements in zip(*rows, strict=True):
        accumulators = results_of(function, function.batched(*accumulators, *elements))
    return accumulators if function.result.is_tuple else accumulators[0]


def results_of(function: Function, value: Any) -> tuple[Any, ...]:
    """The results of a call of `function`, as a tuple also where it returns a bare array."""
    return value if function.result.is_tuple else (value,)


def _fold_one(rows: Array, accumulator: Array, function: Function) -> Array:
    if function.is_associative:
        return _fold_in_halves(rows, accumulator, function)
    ufunc = function.fold_ufunc()
    if ufunc is None or accumulator.size >= _WIDE_ENOUGH:
        combine = function.batched if ufunc is None else ufunc
        for elements in rows:
            accumulator = combine(accumulator, np.asarray(elements))
        return accumulator
    step = max(1, _CHUNK // max(1, accumulator.size))
    for start in range(0, len(rows), step):
        chunk = np.concatenate([accumulator[None], rows[start : start + step]])
        accumulator = ufunc.accumulate(chunk, axis=0, dtype=chunk.dtype)[-1]
    return accumulator


def _fold_in_halves(rows: Array, accumulator: Array, function: Function) -> Array:
    """The left fold by a function whose value no grouping and no order can change: log2(n) sweeps."""
    while len(rows) > 1:
        half = len(rows) // 2
        rest = rows[2 * half :]
        rows = function.batched(rows[:half], rows[half : 2 * half])
        if len(rest):
            accumulator = function.batched(accumulator, rest[0])
    return function.batched(accumulator, rows[0]) if len(rows) else accumulator
