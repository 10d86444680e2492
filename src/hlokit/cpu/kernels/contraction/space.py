"""The index space of a contraction on arrays in memory: its dimensions with their strides, and those of a role as one
index. windows.py has that of contractions with windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hlokit.cpu.llvm import Function, Index
from hlokit.forms.contraction import Contraction, Move, Role
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Axis:
    """Several dimensions counted by one index, row-major. A role it does not move in has strides 0.

    sizes     of the dimensions, outermost first
    strides   in elements, by role, which says whose elements the axis moves over: "lhs" has rows, "rhs" columns, "out"
              both; of the op's operands either may be called lhs
    """

    sizes: tuple[int, ...]
    strides: dict[str, tuple[int, ...]]
    _merged: dict[str, list[tuple[int, int]]] = field(default_factory=dict[str, "list[tuple[int, int]]"], compare=False)

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    def steps(self, role: str) -> list[tuple[int, int]]:
        """(size, stride) of as few dimensions as say the same, outermost first; none has size 1."""
        found = self._merged.get(role)
        if found is None:
            found = self._merged[role] = _merge(self.sizes, self.strides[role])
        return found

    def stride(self, role: str) -> int | None:
        """The one stride, if there is one; 0 for an axis of size 1."""
        steps = self.steps(role)
        if len(steps) > 1:
            return None
        return steps[0][1] if steps else 0

    def is_contiguous(self, role: str, lanes: int) -> bool:
        """Whether elements i..i+lanes-1 of memory belong to consecutive indices from each multiple of `lanes` on."""
        steps = self.steps(role)
        if not steps:
            return True
        size, stride = steps[-1]
        return stride == 1 and (len(steps) == 1 or size % lanes == 0)

    def offset(self, role: str, index: Index) -> Index:
        """The place of an index in the role's array, in elements."""
        steps, place = self.steps(role), index.fn.index(0)
        for number in reversed(range(len(steps))):
            size, stride = steps[number]
            inner = index
            if number > 0:
                inner, index = index % size, index // size
            place = place + inner * stride
        return place


def _merge(sizes: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return merged


def affine(fn: Function, constant: int, terms: Sequence[tuple[Index, int]]) -> Index:
    """constant + the sum of index * factor; constants among them are added up here."""
    total = fn.index(0)
    for index, factor in terms:
        if index.number is not None:
            constant += int(index.number) * factor
        else:
            total = total + index * factor
    return total + constant


def unravelled(place: Index, sizes: Sequence[int]) -> list[Index]:
    """The index of element number `place` of a row-major array of these sizes."""
    index: list[Index] = []
    for position in range(len(sizes) - 1, -1, -1):
        if sizes[position] == 1:
            index.append(place.fn.index(0))
        elif all(size == 1 for size in sizes[:position]):
            index.append(place)
        else:
            index.append(place % sizes[position])
            place = place // sizes[position]
    return index[::-1]


def row_major_strides(sizes: Sequence[int]) -> list[int]:
    """Elements from one index to the next of each dimension of a dense array; sizes of 0 count as 1."""
    return [math.prod(max(1, size) for size in sizes[i + 1 :]) for i in range(len(sizes))]


@dataclass(frozen=True)
class Space:
    """out[batch, row, column] = sum over inner of lhs[batch, row, inner] * rhs[batch, inner, column].

    `swapped`: the op's second operand is called lhs here, so that columns are consecutive in the result.
    """

    batch: Axis
    rows: Axis
    columns: Axis
    inner: Axis
    swapped: bool


@dataclass(frozen=True)
class Strided:
    """A dimension of a contraction: its size, and elements from one value to the next in operands and result."""

    size: int
    lhs: int = 0
    rhs: int = 0
    out: int = 0


def strided(contraction: Contraction, operands: Sequence[Shape], result: Shape) -> list[Strided]:
    """The contraction's dimensions on dense row-major arrays."""
    lhs, rhs, out = (row_major_strides(shape.dimensions) for shape in (*operands[:2], result))
    return [
        Strided(d.size, stride_of(d.lhs, lhs), stride_of(d.rhs, rhs), stride_of(d.result, out))
        for d in contraction.dimensions
    ]


def stride_of(move: Move | None, strides: Sequence[int]) -> int:
    """Elements that a step of an index goes on in an array of these strides."""
    return 0 if move is None else strides[move.dimension] * move.step


def by_role(contraction: Contraction, operands: Sequence[Shape], result: Shape) -> dict[Role, list[Strided]]:
    """The dimensions of each role."""
    found: dict[Role, list[Strided]] = {"batch": [], "left": [], "right": [], "summed": []}
    for one, dimension in zip(strided(contraction, operands, result), contraction.dimensions, strict=True):
        found[dimension.role].append(one)
    return found


def product_space(contraction: Contraction, operands: Sequence[Shape], result: Shape) -> Space:
    """The space of a plain product, summed in the order of lhs's memory: the order of a sum is free."""
    found = by_role(contraction, operands, result)
    inner = sorted(found["summed"], key=lambda d: (-d.lhs - d.rhs, -d.lhs))
    return space(found["batch"], found["left"], found["right"], inner)


def space(
    batch: Sequence[Strided],
    rows: Sequence[Strided],
    columns: Sequence[Strided],
    inner: Sequence[Strided],
    *,
    may_swap: bool = True,
) -> Space:
    """The space, turned so that vectors along its columns are consecutive in the result where that is possible."""
    swapped = may_swap and math.prod(d.size for d in columns) == 1 < math.prod(d.size for d in rows)
    if swapped:
        rows, columns = columns, rows

    def axis(dimensions: Sequence[Strided]) -> Axis:
        left, right = [d.lhs for d in dimensions], [d.rhs for d in dimensions]
        if swapped:
            left, right = right, left
        strides = {"lhs": tuple(left), "rhs": tuple(right), "out": tuple(d.out for d in dimensions)}
        return Axis(tuple(d.size for d in dimensions), strides)

    return Space(axis(batch), axis(rows), axis(columns), axis(inner), swapped)
