"""Ragged-dot: a dot whose lhs, and perhaps rhs, is divided into groups of different sizes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hlokit.forms.contraction import Contraction, ContractionGroups, Move
from hlokit.hlo.op import SUMMED, Op, attr, check
from hlokit.hlo.values import Array
from hlokit.ops.contraction import (
    Algorithm,
    check_equal_types,
    check_numbers,
    check_precision,
    check_result_type,
    compute_type,
    dot_dimensions,
    dot_wide,
    free_dimensions,
    operand_in,
    rounded,
    shape_of_dimensions,
)
from hlokit.types import dtype as dtypes
from hlokit.types.attributes import Dims, Precision, ResultShape
from hlokit.types.shape import Shape

_DOT = "ragged_dot_dimension_numbers.dot_dimension_numbers"


class RaggedDot(Op, name="ragged-dot"):
    """A dot whose lhs is divided into groups of consecutive indices along one dimension, of sizes `group_sizes`.

    The ragged dimension is (BEY-43)
    - free: group g multiplies with index g of rhs's group dimension; rows past the last group are 0;
    - contracting: each group is contracted separately, and a leading dimension enumerates the groups;
    - batch: as dot.
    `group_sizes` is [groups], or has before it the lhs's batch and like dimensions left of the ragged one.
    """

    lhs_batch_dims: Dims = attr((), proto=f"{_DOT}.lhs_batch_dimensions")
    lhs_contracting_dims: Dims = attr((), always=True, proto=f"{_DOT}.lhs_contracting_dimensions")
    rhs_batch_dims: Dims = attr((), proto=f"{_DOT}.rhs_batch_dimensions")
    rhs_contracting_dims: Dims = attr((), always=True, proto=f"{_DOT}.rhs_contracting_dimensions")
    lhs_ragged_dims: Dims = attr((), proto="ragged_dot_dimension_numbers.lhs_ragged_dimensions")
    rhs_group_dims: Dims = attr((), proto="ragged_dot_dimension_numbers.rhs_group_dimensions")
    operand_precision: Precision = attr((), proto="precision_config.operand_precision")
    algorithm: Algorithm = attr(None, proto="precision_config.algorithm")
    output_shape: ResultShape

    rounding = SUMMED
    arity = 3
    shape_implied = True
    form = "contraction"
    rules = "BEY-42 BEY-43"

    def infer(self, lhs: Shape, rhs: Shape, group_sizes: Shape) -> Shape:
        check_precision(self.operand_precision, 2, 3)
        check_numbers(self, lhs, rhs)
        check_equal_types(lhs, rhs)
        check_result_type(lhs.dtype, self.output_shape.dtype)
        check(len(self.lhs_ragged_dims) == 1, "BEY-42", "lhs_ragged_dims", self.lhs_ragged_dims, "one dimension")
        ragged = self.lhs_ragged_dims[0]
        check(0 <= ragged < lhs.rank, "BEY-42", "lhs_ragged_dims", ragged, f"in [0, {lhs.rank})")
        groups = self._check_groups(lhs, group_sizes)
        self._check_group_dimension(rhs, groups)
        free_left = free_dimensions(lhs.rank, self.lhs_batch_dims, self.lhs_contracting_dims)
        free_right = free_dimensions(rhs.rank, self.rhs_batch_dims, self.rhs_contracting_dims, self.rhs_group_dims)
        element_type = self.output_shape.dtype
        result = shape_of_dimensions(element_type, lhs, (*self.lhs_batch_dims, *free_left), rhs, free_right)
        if self._mode != "contracting":
            return result
        return Shape.array(element_type, (groups, *result.dimensions), (False, *result.dynamic))

    @property
    def _mode(self) -> str:
        ragged = self.lhs_ragged_dims[0]
        if ragged in self.lhs_contracting_dims:
            return "contracting"
        return "batch" if ragged in self.lhs_batch_dims else "free"

    def _prefix(self, lhs_rank: int) -> list[int]:
        """The lhs dimensions that may stand before the groups in `group_sizes`."""
        ragged = self.lhs_ragged_dims[0]
        batch = list(self.lhs_batch_dims)
        if self._mode == "batch":
            return batch[: batch.index(ragged)]
        if self._mode == "contracting":
            contracting = list(self.lhs_contracting_dims)
            return batch + contracting[: contracting.index(ragged)]
        return batch + [d for d in free_dimensions(lhs_rank, batch, self.lhs_contracting_dims) if d < ragged]

    def _check_groups(self, lhs: Shape, group_sizes: Shape) -> int:
        """The number of groups, after the rules for `group_sizes`."""
        check(group_sizes.dtype.is_integral, "BEY-42", "group_sizes type", group_sizes.dtype, "an integer type")
        prefix = tuple(lhs.dimensions[d] for d in self._prefix(lhs.rank))
        fits = group_sizes.rank >= 1 and group_sizes.dimensions[:-1] in ((), prefix)
        check(fits, "BEY-42", "group_sizes", group_sizes, f"dimensions [groups], or {prefix} before it")
        return group_sizes.dimensions[-1]

    def _check_group_dimension(self, rhs: Shape, groups: int) -> None:
        wanted = 1 if self._mode == "free" else 0
        given = self.rhs_group_dims
        check(len(given) == wanted, "BEY-42", "rhs_group_dims", given, f"{wanted} for a {self._mode} ragged dimension")
        for d in given:
            check(0 <= d < rhs.rank, "BEY-42", "rhs_group_dims", d, f"in [0, {rhs.rank})")
            taken = (*self.rhs_batch_dims, *self.rhs_contracting_dims)
            check(d not in taken, "BEY-42", "rhs_group_dims", d, "a free dimension")
            check(rhs.dimensions[d] == groups, "BEY-42", "size of the group dimension", rhs.dimensions[d], groups)

    def reference(self, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        element_type = self.output_shape.dtype
        wide = compute_type(dtypes.dtype(lhs.dtype), element_type)
        lhs, rhs = operand_in(lhs, wide), operand_in(rhs, wide)
        if self._mode == "batch":
            return rounded(dot_wide(self, lhs, rhs), element_type)
        if self._mode == "contracting":
            return rounded(self._by_contracted_groups(lhs, rhs, group_sizes), element_type)
        return rounded(self._by_row_groups(lhs, rhs, group_sizes), element_type)

    def contraction(self, operands: Sequence[Shape]) -> Contraction:
        lhs, rhs, sizes = operands
        if self._mode == "batch":
            return Contraction(dot_dimensions(self, lhs, rhs))
        is_free = self._mode == "free"
        dimensions = dot_dimensions(self, lhs, rhs, self.rhs_group_dims, 0 if is_free else 1)
        by_lhs = {d.lhs.dimension: number for number, d in enumerate(dimensions) if d.lhs is not None}
        before = tuple(by_lhs[d] for d in self._prefix(lhs.rank)) if sizes.rank > 1 else ()
        moves = (Move(self.rhs_group_dims[0]), None) if is_free else (None, Move(0))
        groups = ContractionGroups(2, by_lhs[self.lhs_ragged_dims[0]], *moves, before)
        return Contraction(dimensions, groups=groups)

    def _by_row_groups(self, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        (group,) = self.rhs_group_dims
        rhs = np.moveaxis(rhs, group, 0)
        inner = _Inner(
            self.lhs_batch_dims,
            self.lhs_contracting_dims,
            tuple(d - (d > group) for d in self.rhs_batch_dims),
            tuple(d - (d > group) for d in self.rhs_contracting_dims),
        )
        free = free_dimensions(lhs.ndim, self.lhs_batch_dims, self.lhs_contracting_dims)
        place = {d: i for i, d in enumerate((*self.lhs_batch_dims, *free))}
        free_right = free_dimensions(rhs.ndim - 1, inner.rhs_batch_dims, inner.rhs_contracting_dims)
        columns = [rhs.shape[1 + d] for d in free_right]
        result = np.zeros([*(lhs.shape[d] for d in place), *columns], lhs.dtype)
        for number, chosen in self._groups(lhs, group_sizes):
            part = {
                r: chosen[d] for d, r in zip(inner.lhs_batch_dims, inner.rhs_batch_dims, strict=True) if d in chosen
            }
            value = dot_wide(inner, lhs[_index(chosen, lhs.ndim)], rhs[number][_index(part, rhs.ndim - 1)])
            result[_index({place[d]: s for d, s in chosen.items()}, result.ndim)] = value
        return result

    def _by_contracted_groups(self, lhs: Array, rhs: Array, group_sizes: Array) -> Array:
        paired = (*self.rhs_batch_dims, *self.rhs_contracting_dims)
        pairs = dict(zip((*self.lhs_batch_dims, *self.lhs_contracting_dims), paired, strict=True))
        empty = lhs[_index({d: slice(0, 0) for d in self.lhs_contracting_dims}, lhs.ndim)]
        zeros = dot_wide(self, empty, rhs[_index({d: slice(0, 0) for d in self.rhs_contracting_dims}, rhs.ndim)])
        result = np.repeat(zeros[None], group_sizes.shape[-1], axis=0)
        for number, chosen in self._groups(lhs, group_sizes):
            other = {pairs[d]: s for d, s in chosen.items()}
            batch = {i: chosen[d] for i, d in enumerate(self.lhs_batch_dims) if d in chosen}
            value = dot_wide(self, lhs[_index(chosen, lhs.ndim)], rhs[_index(other, rhs.ndim)])
            result[number][_index(batch, zeros.ndim)] += value
        return result

    def _groups(self, lhs: Array, group_sizes: Array) -> Iterator[tuple[int, dict[int, slice]]]:
        """Each group: its number, and its range in the ragged dimension and in those that `group_sizes` tells apart."""
        ragged = self.lhs_ragged_dims[0]
        prefix = self._prefix(lhs.ndim) if group_sizes.ndim > 1 else []
        for index in np.ndindex(group_sizes.shape[:-1]):
            fixed = {d: slice(i, i + 1) for d, i in zip(prefix, index, strict=True)}
            ends = np.clip(np.cumsum(group_sizes[index], dtype=np.int64), 0, lhs.shape[ragged])
            for number, (start, end) in enumerate(zip([0, *ends], ends)):
                yield number, {**fixed, ragged: slice(int(start), int(end))}


@dataclass(frozen=True)
class _Inner:
    """Dimension numbers of the dot of one group."""

    lhs_batch_dims: tuple[int, ...]
    lhs_contracting_dims: tuple[int, ...]
    rhs_batch_dims: tuple[int, ...]
    rhs_contracting_dims: tuple[int, ...]


def _index(chosen: dict[int, slice], rank: int) -> tuple[slice, ...]:
    return tuple(chosen.get(d, slice(None)) for d in range(rank))
