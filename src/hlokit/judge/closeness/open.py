"""Values that the language leaves open: for each such rule, another value that an instruction may have.

A difference is allowed by a rule if the reference's own result varies there as the rule lets it; of a rule with two
meanings, if the reference gives that result by the other. Where an instruction's operands and value on the engine are
known, a rule may say of any value whether it allows it. Rules that leave open
what a program on one device cannot show, or what the reference refuses, are not here: ARED-7, SDS-6, MAX-4, CMP-11,
BITCAST-10. Rounding (UN-7, TYPE-11, DOTG-17) is `spread`'s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_sequence
from hlokit.interpreter.callee import Callee
from hlokit.interpreter.process import Process
from hlokit.judge.closeness.equality import info_of, is_floating, is_nan
from hlokit.ops.gather import Gather, batch_coordinates, index_vectors, remaining
from hlokit.ops.linalg import Cholesky, TriangularSolve
from hlokit.ops.movement import Iota
from hlokit.ops.random import RngBitGenerator
from hlokit.ops.reduction import Reduce, as_declared, cut_to_least, in_reducer_types, results_of
from hlokit.ops.scatter import Scatter, combine
from hlokit.ops.sorting import Sort
from hlokit.ops.windows import ReduceWindow, SelectAndScatter, picked, placements, scatter_in_rounds
from hlokit.types.window import Window, WindowDimension, dilated

if TYPE_CHECKING:
    from hlokit.hlo.values import Function

_MOST_COMPARED = 256
"""Elements of a line, or values, of which all pairs and triples are looked at."""
_where: Any = np.where


@dataclass(frozen=True)
class Site:
    """An instruction as it runs: its operands, arrays all, the value that the reference gives, and randomness. `choice`
    is drawn once for a run: an engine does the same each time that an instruction of a loop runs."""

    process: Process
    instruction: Instruction
    operands: tuple[Any, ...]
    value: Any
    source: np.random.Generator
    choice: float = 1.0

    def function(self, number: int = 0) -> Callee:
        return self.process.callee(self.instruction.called[number])


Other = Callable[[Site], Any]
"""Another value that a rule lets the instruction have; None where the rule leaves nothing open."""


Allows = Callable[[Site, Mapping[int, Any]], bool]
"""Whether a rule lets arrays of the instruction's value be these, by their number in its tuple."""


@dataclass(frozen=True)
class Opening:
    """A rule that leaves values open.

    opcodes        those that it is about
    other          another value
    is_one_other   there are two meanings, `other` gives the second; else any one of many values
    allows         tells whether arrays of the value, by their number in its tuple, are some that it may have
    """

    opcodes: tuple[str, ...]
    other: Other
    is_one_other: bool
    allows: Allows | None = None


OPEN: dict[str, Opening] = {}
"""The rules that leave values open, by label."""


def other_value(label: str, site: Site) -> Any:
    """The value of an instruction that the rule lets it have in place of `site.value`; None if it is about others."""
    opening = OPEN[label]
    return opening.other(site) if site.instruction.opcode in opening.opcodes else None


def _rule(
    label: str, *opcodes: str, is_one_other: bool = False, allows: Allows | None = None
) -> Callable[[Other], Other]:
    def register(other: Other) -> Other:
        OPEN[label] = Opening(opcodes, other, is_one_other, allows)
        return other

    return register


def _anything(like: Any, source: np.random.Generator) -> Any:
    """A value of the same types: any bits, but for floating numbers, which are NaN half of the time."""
    if is_sequence(like):
        return tuple([_anything(part, source) for part in like])
    sizes: tuple[int, ...] = like.shape
    coin: Any = source.integers(0, 2, sizes)
    if like.dtype == bool:
        return coin == 1
    if like.dtype.kind == "c":
        found = np.empty_like(like)
        found.real, found.imag = _anything(like.real, source), _anything(like.imag, source)
        return found
    if is_floating(like.dtype):
        numbers: Any = source.normal(0, 100, sizes)
        return _where(coin == 1, np.nan, numbers).astype(like.dtype)
    wide: Any = source.integers(0, 1 << 63, sizes, np.uint64)
    return np.asarray(wide.astype(np.int64).astype(like.dtype))


# -- folds


@_rule("REDUCE-9", "reduce")
def _reduced_in_any_order(site: Site) -> Any:
    """Any grouping and order of the elements, init among them up to twice; in half of the runs each time as often, as
    for a reduce in a loop."""
    op = site.instruction.op
    assert isinstance(op, Reduce)
    if not op.dimensions:
        return None
    function = site.function()
    count = len(site.operands) // 2
    arrays = in_reducer_types(cut_to_least(site.operands[:count]), function)
    inits = in_reducer_types(site.operands[count:], function)
    kept = [d for d in range(arrays[0].ndim) if d not in op.dimensions]
    shape = tuple(arrays[0].shape[d] for d in kept)
    length = math.prod(arrays[0].shape[d] for d in op.dimensions)
    rows = [a.transpose(sorted(op.dimensions) + kept).reshape(length, *shape) for a in arrays]
    least = 0 if len(rows[0]) else 1
    times = int(site.source.integers(least, 3)) if site.choice >= 0.5 else max(least, int(6 * site.choice))
    rows = [
        np.concatenate([r, np.broadcast_to(i, (times, *shape))]).astype(r.dtype)
        for r, i in zip(rows, inits, strict=True)
    ]
    order = site.source.permutation(len(rows[0]))
    rows = [r[order] for r in rows]
    while len(rows[0]) > 1:
        half = len(rows[0]) // 2
        sides = [r[:half] for r in rows], [r[half : 2 * half] for r in rows]
        first, second = sides if site.source.random() < 0.5 else sides[::-1]
        combined = results_of(function, function.batched(*first, *second))
        rows = [np.concatenate([c, r[2 * half :]]) for c, r in zip(combined, rows, strict=True)]
    result = tuple([np.asarray(r[0]) for r in rows])
    return as_declared(result if function.result.is_tuple else result[0], site.instruction.shape)


@_rule("REDUCE-11", "reduce", is_one_other=True)
def _not_reduced(site: Site) -> Any:
    """The operands as they are, where no dimensions are reduced."""
    op = site.instruction.op
    assert isinstance(op, Reduce)
    if op.dimensions:
        return None
    arrays = in_reducer_types(site.operands[: len(site.operands) // 2], site.function())
    return as_declared(arrays if site.function().result.is_tuple else arrays[0], site.instruction.shape)


@_rule("RWIN-6", "reduce-window", is_one_other=True)
def _padded_by_init(site: Site) -> Any:
    """Padding and holes are elements: the init value."""
    op = site.instruction.op
    assert isinstance(op, ReduceWindow)
    count = len(site.operands) // 2
    arrays, inits = cut_to_least(site.operands[:count]), site.operands[count:]
    padded = [_with_holes(a, i, op.window) for a, i in zip(arrays, inits, strict=True)]
    if padded[0].shape == arrays[0].shape:
        return None
    without = tuple(
        replace(d, padding_low=min(d.padding_low, 0), padding_high=min(d.padding_high, 0), base_dilation=1)
        for d in op.window.dimensions
    )
    plain = ReduceWindow(window=replace(op.window, dimensions=without))
    return plain.reference(*padded, *inits, to_apply=site.function(), shape=site.instruction.shape)


def _with_holes(array: Any, init: Any, window: Window) -> Any:
    sizes = [
        dilated(n, d.base_dilation) + max(d.padding_low, 0) + max(d.padding_high, 0)
        for n, d in zip(array.shape, window.dimensions, strict=True)
    ]
    found = np.full(sizes, init.astype(array.dtype), array.dtype)
    places = [
        slice(max(d.padding_low, 0), max(d.padding_low, 0) + dilated(n, d.base_dilation), d.base_dilation)
        for n, d in zip(array.shape, window.dimensions, strict=True)
    ]
    found[tuple(places)] = array
    return found


@_rule("RWIN-9", "reduce-window", is_one_other=True)
def _element_of_its_window(site: Site) -> Any:
    """The element as it is, where each window is one element."""
    op = site.instruction.op
    assert isinstance(op, ReduceWindow)
    arrays = in_reducer_types(cut_to_least(site.operands[: len(site.operands) // 2]), site.function())
    values: Any = site.value if is_sequence(site.value) else (site.value,)
    if arrays[0].shape != values[0].shape or any(d != WindowDimension(1) for d in op.window.dimensions):
        return None
    return as_declared(arrays if site.function().result.is_tuple else arrays[0], site.instruction.shape)


@_rule("RWIN-11", "reduce-window")
def _windows_in_any_order(site: Site) -> Any:
    op, function = site.instruction.op, site.function()
    assert isinstance(op, ReduceWindow)
    count = len(site.operands) // 2
    arrays = in_reducer_types(cut_to_least(site.operands[:count]), function)
    inits = in_reducer_types(site.operands[count:], function)
    sizes = site.value[0].shape if is_sequence(site.value) else site.value.shape
    totals = [np.full(sizes, init, init.dtype) for init in inits]
    places: list[Any] = list(placements(arrays[0].shape, op.window))
    for number in site.source.permutation(len(places)):
        positions, elements = places[number]
        sides = [t[positions].copy() for t in totals], [a[elements] for a in arrays]
        first, second = sides if site.source.random() < 0.5 else sides[::-1]
        combined = results_of(function, function.batched(*first, *second))
        for total, value in zip(totals, combined, strict=True):
            total[positions] = value
    return as_declared(tuple(totals) if function.result.is_tuple else totals[0], site.instruction.shape)


@_rule("SAS-12", "select-and-scatter")
def _scattered_in_any_order(site: Site) -> Any:
    return _selected_and_scattered(site, ordered=False)


@_rule("SAS-16", "select-and-scatter")
def _picked_in_any_order(site: Site) -> Any:
    """Any element of a window, where the select is not transitive on the values that are there."""
    values = np.unique(site.operands[0].reshape(-1)) if site.operands[0].dtype.kind in "biuf" else site.operands[0]
    values = values.reshape(-1)[:_MOST_COMPARED]
    if _is_transitive(_pairs(site.function(0), values)):
        return None
    return _selected_and_scattered(site, ordered=True, picks_any=True)


def _selected_and_scattered(site: Site, *, ordered: bool, picks_any: bool = False) -> Any:
    op = site.instruction.op
    assert isinstance(op, SelectAndScatter)
    operand, given, init = site.operands
    if picks_any:
        seen: list[Any] = list(placements(operand.shape, op.window))
        flat_index: Any = np.arange(int(operand.size)).reshape(tuple(operand.shape))
        targets: Any = np.full(given.shape, -1)
        for number in site.source.permutation(len(seen)):
            positions, elements = seen[number]
            targets[positions] = flat_index[elements]
    else:
        targets = picked(operand, op.window, site.function(0))
    targets, given = cut_to_least((targets, given))
    flat = np.flatnonzero(targets >= 0)
    order = flat if ordered else site.source.permutation(flat)
    output: Any = np.full(operand.size, init, init.dtype)
    scatter_in_rounds(output, targets.reshape(-1)[order], given.reshape(-1)[order], site.function(1))
    return output.reshape(operand.shape)


# -- scatter, gather


@_rule("SCATTER-20", "scatter", is_one_other=True)
def _parts_of_windows(site: Site) -> Any:
    """The elements inside of a window that is partly outside: each update is a window of its own."""
    op = site.instruction.op
    assert isinstance(op, Scatter)
    count = len(site.operands) // 2
    rank, sizes, indices = site.operands[0].ndim, site.operands[count + 1].shape, site.operands[count]
    vectors = index_vectors(indices, op.index_vector_dim)
    starts = {d: vectors[..., k].astype(np.int64) for k, d in enumerate(op.scatter_dims_to_operand_dims)}
    pairs = (op.input_batching_dims, op.scatter_indices_batching_dims)
    starts |= batch_coordinates(pairs, op.index_vector_dim, vectors.shape[:-1])
    counting = remaining(len(sizes), op.update_window_dims)
    places = np.zeros((*sizes, rank), np.int64)
    for d, start in starts.items():
        places[..., d] += _along(start, counting, len(sizes))
    spanned = remaining(rank, op.inserted_window_dims, op.input_batching_dims)
    for d, u in zip(spanned, op.update_window_dims, strict=True):
        places[..., d] += _along(np.arange(sizes[u]), [u], len(sizes))
    every = tuple(range(rank))
    one = Scatter(
        update_window_dims=(), inserted_window_dims=every, scatter_dims_to_operand_dims=every,
        index_vector_dim=len(sizes), input_batching_dims=(), scatter_indices_batching_dims=(), indices_are_sorted=False,
        unique_indices=False,
    )  # fmt: skip
    operands = (*site.operands[:count], places, *site.operands[count + 1 :])
    shapes = [operand.shape for operand in site.instruction.operands]
    return one.reference(
        *operands, to_apply=site.function(), operand_shapes=shapes, shape=site.instruction.shape
    )  # fmt: skip


def _along(array: Any, axes: Sequence[int], rank: int) -> Any:
    """The dimensions of an array at these axes of an array of this rank."""
    sizes = [1] * rank
    for axis, size in zip(axes, array.shape, strict=False):
        sizes[axis] = size
    return array.reshape(sizes)


@_rule("SCATTER-22", "scatter")
def _updates_in_any_order(site: Site) -> Any:
    op, function = site.instruction.op, site.function()
    assert isinstance(op, Scatter)
    count = len(site.operands) // 2
    results = [a.copy() for a in in_reducer_types(site.operands[:count], function)]
    updates = in_reducer_types(site.operands[count + 1 :], function)
    targets, applied = op.targets(results[0].shape, site.operands[count], updates[0].shape)
    order = site.source.permutation(len(targets))
    combine([r.reshape(-1) for r in results], targets[order], [u[applied][order] for u in updates], function)
    return as_declared(results[0] if count == 1 else tuple(results), site.instruction.shape)


@_rule("SCATTER-23", "scatter")
def _untrue_of_scatter(site: Site) -> Any:
    """Anything, where indices said to be sorted or unique are not."""
    op = site.instruction.op
    assert isinstance(op, Scatter)
    count = len(site.operands) // 2
    bounds, sizes = site.operands[0].shape, site.operands[count + 1].shape
    targets, _ = op.targets(bounds, site.operands[count], sizes)
    collide = op.unique_indices and len(np.unique(targets)) < targets.size
    unsorted = op.indices_are_sorted and not _is_sorted(site.operands[count], op.index_vector_dim)
    return _anything(site.value, site.source) if collide or unsorted else None


@_rule("GATHER-25", "gather")
def _untrue_of_gather(site: Site) -> Any:
    op = site.instruction.op
    assert isinstance(op, Gather)
    untrue = op.indices_are_sorted and not _is_sorted(site.operands[1], op.index_vector_dim)
    return _anything(site.value, site.source) if untrue else None


def _is_sorted(indices: Any, dimension: int) -> bool:
    vectors = index_vectors(indices, dimension)
    rows = vectors.reshape(-1, vectors.shape[-1]).tolist()
    return all(a <= b for a, b in pairwise(rows))


# -- sort


def _is_sorted_line(site: Site, found: Mapping[int, Any], *, any_order: bool = False) -> bool:
    """Whether each line is a permutation of the operands' and in order; with `any_order` in any where the comparator is
    no strict weak order of its elements. Without the arrays of all operands the order is taken for right."""
    op = site.instruction.op
    assert isinstance(op, Sort)
    lines, results, given = (
        {k: np.moveaxis(a, op.dimension, -1).reshape(-1, a.shape[op.dimension]) for k, a in arrays.items()}
        for arrays in (
            dict(enumerate(cut_to_least(site.operands))),
            found,
            dict(enumerate(site.value if is_sequence(site.value) else (site.value,))),
        )
    )
    for number in range(len(lines[0])):
        if _elements(results, number) == _elements({k: given[k] for k in results}, number):
            continue
        if sorted(_elements(results, number)) != sorted(_elements({k: lines[k] for k in results}, number)):
            return False
        own = [line[number] for line in lines.values()]
        if not _is_order(site.function(), own, of_all=any_order):
            if any_order:
                continue
            return False
        if op.is_stable:
            return False
        if len(results) == len(lines):
            pairs = [side for k in lines for side in (results[k][number, 1:], results[k][number, :-1])]
            if np.any(site.function().batched(*pairs)):
                return False
    return True


def _elements(lines: Mapping[int, Any], number: int) -> list[tuple[bytes, ...]]:
    """The elements of a line as bytes, the same for all NaNs."""
    columns: list[list[bytes]] = []
    for _, line in sorted(lines.items()):
        row = line[number].copy()
        nans = is_nan(row)
        if nans.any():
            row[nans] = np.nan
        columns.append([element.tobytes() for element in row])
    return list(zip(*columns, strict=True))


@_rule("SORT-9", "sort", allows=_is_sorted_line)
def _equal_ones_in_any_order(site: Site) -> Any:
    op = site.instruction.op
    assert isinstance(op, Sort)
    return None if op.is_stable else _sorted_from_any_order(site, op)


@_rule("SORT-10", "sort", allows=partial(_is_sorted_line, any_order=True))
def _sorted_by_no_order(site: Site) -> Any:
    """Any permutation of a line, where the comparator is no strict weak order of its elements."""
    op = site.instruction.op
    assert isinstance(op, Sort)
    operands = cut_to_least(site.operands)
    if not operands[0].size:
        return None
    axis, sizes = op.dimension, operands[0].shape
    lines = [np.moveaxis(o, axis, -1).reshape(-1, sizes[axis]) for o in operands]
    values = site.value if is_sequence(site.value) else (site.value,)
    found = [np.moveaxis(v, axis, -1).reshape(-1, sizes[axis]).copy() for v in values]
    broken = [n for n in range(len(lines[0])) if not _is_order(site.function(), [a[n] for a in lines], of_all=True)]
    if not broken:
        return None
    for number in broken:
        order = site.source.permutation(sizes[axis])
        for result, line in zip(found, lines, strict=True):
            result[number] = line[number, order]
    moved = np.moveaxis(operands[0], axis, -1).shape
    results = tuple([np.moveaxis(result.reshape(moved), -1, axis) for result in found])
    return results if is_sequence(site.value) else results[0]


def _sorted_from_any_order(site: Site, op: Sort) -> Any:
    operands = cut_to_least(site.operands)
    sizes: tuple[int, ...] = operands[0].shape
    order = np.argsort(site.source.random(sizes), axis=op.dimension)
    return op.reference(*(np.take_along_axis(o, order, op.dimension) for o in operands), to_apply=site.function())


def _is_order(function: Function, columns: Sequence[Any], *, of_all: bool) -> bool:
    """Whether a comparator is a strict weak order of a line's elements; with `of_all` and a NaN among them, of 0 and 1
    as well: one that takes NaN for equal to all numbers is none, even if the others in the line are equal."""
    shown = _first(columns, _MOST_COMPARED)
    if of_all and any(is_nan(column).any() for column in shown):
        shown = [np.concatenate([column, np.array([0, 1]).astype(column.dtype)]) for column in shown]
    return _is_strict_weak(_pairs(function, *shown))


def _first(columns: Sequence[Any], count: int) -> list[Any]:
    """The first elements of columns, as many; of those with a NaN, by which an order fails, some in any case."""
    length = len(columns[0])
    places = np.arange(min(length, count))
    nans = np.flatnonzero(np.any([is_nan(column) for column in columns], axis=0))[: count // 2]
    if length > count and len(nans):
        places = np.union1d(nans, places[: count - len(nans)])
    return [column[places] for column in columns]


def _pairs(function: Function, *lines: Any) -> Any:
    """The matrix of what a function of pairs says of the elements of lines: [i, j] of i and j."""
    count = len(lines[0])
    arguments = [np.broadcast_to(x, (count, count)) for line in lines for x in (line[:, None], line[None, :])]
    return np.asarray(function.batched(*arguments), bool)


def _is_transitive(related: Any) -> bool:
    steps = related.astype(np.float32) @ related.astype(np.float32) > 0
    return not bool(np.any(steps & ~related))


def _is_strict_weak(before: Any) -> bool:
    alike = ~before & ~before.T
    return not bool(np.any(before & before.T)) and _is_transitive(before) and _is_transitive(alike)


# -- random numbers


@_rule("RNG-7", "rng", "rng-get-and-update-state")
def _random(site: Site) -> Any:
    return _anything(site.value, site.source)


@_rule("RBG-4", "rng-bit-generator")
def _default_generator(site: Site) -> Any:
    op = site.instruction.op
    assert isinstance(op, RngBitGenerator)
    return _anything(site.value, site.source) if op.algorithm == "rng_default" else None


# -- linear algebra


@_rule("CHOL-7", "cholesky")
def _other_triangle(site: Site) -> Any:
    op = site.instruction.op
    assert isinstance(op, Cholesky)
    inside = np.tril(np.ones(site.value.shape[-2:], bool), 0)
    return _where(inside if op.lower else inside.T, site.value, _anything(site.value, site.source))


@_rule("CHOL-8", "cholesky")
def _not_positive_definite(site: Site) -> Any:
    bad = is_nan(site.value).any((-2, -1), keepdims=True)
    return _where(bad, _anything(site.value, site.source), site.value) if bad.any() else None


@_rule("TRISOLVE-11", "triangular-solve")
def _singular(site: Site) -> Any:
    op = site.instruction.op
    assert isinstance(op, TriangularSolve)
    bad = np.any(np.diagonal(site.operands[0], axis1=-2, axis2=-1) == 0, axis=-1)[..., None, None]
    if op.unit_diagonal or not bad.any():
        return None
    return _where(bad, _anything(site.value, site.source), site.value)


# -- elements


def _at(site: Site, places: Any) -> Any:
    """Anything at these places."""
    if not np.any(places):
        return None
    return _where(places, _anything(site.value, site.source), site.value).astype(site.value.dtype)


def _is_integer(array: Any) -> bool:
    return array.dtype != bool and not is_floating(array.dtype) and array.dtype.kind != "c"


def _least_by_minus_one(site: Site) -> Any:
    x, y = site.operands
    info: Any = np.iinfo if x.dtype.kind in "iu" else info_of
    least = info(x.dtype).min if x.dtype.kind == "i" else None
    return None if least is None else _at(site, (x == least) & (y == -1))


@_rule("DIV-3", "divide")
def _divided_by_zero(site: Site) -> Any:
    return _at(site, site.operands[1] == 0) if _is_integer(site.value) else None


@_rule("DIV-4", "divide")
def _least_divided(site: Site) -> Any:
    return _least_by_minus_one(site)


@_rule("REM-2", "remainder")
def _remainder_by_zero(site: Site) -> Any:
    return _at(site, site.operands[1] == 0) if _is_integer(site.value) else None


@_rule("REM-3", "remainder")
def _remainder_of_least(site: Site) -> Any:
    return _least_by_minus_one(site)


@_rule("CONV-TYPE-7", "convert")
def _converted_from_beyond(site: Site) -> Any:
    """Floating numbers that the integer type has not."""
    (x,) = site.operands
    result = site.instruction.shape.dtype
    if not is_floating(x.dtype) or not result.is_integral:
        return None
    wide = np.trunc(x.astype(np.float64))
    signed = result.kind == "signed"
    low, high = (-(2.0 ** (result.bits - 1)) if signed else 0.0), 2.0 ** (result.bits - signed)
    return _at(site, ~((wide >= low) & (wide < high)))


@_rule("CONV-TYPE-11", "convert", is_one_other=True)
def _converted_from_above(site: Site) -> Any:
    """Numbers beyond the greatest of f8e4m3fn: the greatest, or NaN."""
    (x,) = site.operands
    if site.value.dtype.name != "float8_e4m3fn" or not is_floating(x.dtype):
        return None
    wide = x.astype(np.float64)
    return _where(np.abs(wide) > 448, np.copysign(448.0, wide), site.value.astype(np.float64)).astype(site.value.dtype)


@_rule("EXP-2", "exponential", is_one_other=True)
def _exponential_of_infinite(site: Site) -> Any:
    """e^x times the sine and the cosine of what is no finite number: NaN."""
    (z,) = site.operands
    if z.dtype.kind != "c":
        return None
    places = np.isinf(z.real) & ~np.isfinite(z.imag)
    return _where(places, complex(np.nan, np.nan), site.value).astype(z.dtype) if np.any(places) else None


@_rule("SQRT-2", "sqrt", is_one_other=True)
def _root_on_the_cut(site: Site) -> Any:
    """The root of a negative number as if its imaginary part were +0."""
    (z,) = site.operands
    if z.dtype.kind != "c":
        return None
    places = (z.real < 0) & (z.imag == 0) & np.signbit(z.imag)
    return _where(places, np.conj(site.value), site.value) if np.any(places) else None


@_rule("IOTA-8", "iota")
def _counted_beyond(site: Site) -> Any:
    op, result = site.instruction.op, site.instruction.shape
    assert isinstance(op, Iota)
    if not result.dtype.is_integral:
        return None
    sizes = [1] * result.rank
    sizes[op.iota_dimension] = -1
    places = np.arange(result.dimensions[op.iota_dimension]).reshape(sizes)
    most = 1 << (result.dtype.bits - (result.dtype.kind == "signed"))
    return _at(site, np.broadcast_to(places >= most, result.dimensions))
