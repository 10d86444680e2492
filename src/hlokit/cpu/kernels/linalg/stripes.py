"""Stripes of a matrix's columns, and the columns: building blocks of LU and QR factorizations (stepped.py).

A stripe is copied to scratch memory as [row][width] (panels.py). Before it is factored it is transposed to columns,
[width][tall]: there a column is contiguous, and from there the stripes beyond it are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import PanelShape, panels_for
from hlokit.cpu.kernels.linalg.stepped import HEAD, Part
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import I1, POINTER, Index, LaneMask, Module, Pointer, Value, transposed
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType


@dataclass(frozen=True)
class Matrix:
    """A batch of row-major matrices of real numbers."""

    dtype: DType
    batch: int
    rows: int
    columns: int

    @property
    def least(self) -> int:
        """The less of rows and columns."""
        return min(self.rows, self.columns)

    @property
    def row(self) -> int:
        """Bytes of a row."""
        return self.columns * (self.dtype.bits // 8)

    @property
    def bytes(self) -> int:
        return self.rows * self.row

    @property
    def name(self) -> str:
        return f"{self.dtype.name}_{self.batch}_{self.rows}_{self.columns}"


def tall_as(p: PanelShape, rows: int) -> PanelShape:
    """A panel as high as a column: of an odd number of lines, so that columns meet in few sets of the cache."""
    lines = -(-rows * p.bytes // LINE_BYTES) | 1
    return replace(p, blocks=lines * LINE_BYTES // p.bytes // p.rows)


@dataclass(frozen=True)
class Stripes:
    """The stripes of a matrix in its scratch; after them the columns of those that are factored.

    kind        of factorization, in names
    result      the table's place of what the stripes go to
    steps       columns that are factored: the first ones
    """

    kind: str
    m: Matrix
    target: Target
    result: int
    steps: int

    @cached_property
    def p(self) -> PanelShape:
        full = panels_for(self.m.dtype, self.target)
        together = max(1, full.rows // full.lanes)
        vectors = min(full.vectors, up(-(-self.m.columns // full.lanes), together))
        return replace(full, vectors=vectors, blocks=vectors * full.lanes // full.rows)

    @cached_property
    def tall(self) -> PanelShape:
        """The panel that columns make."""
        return tall_as(self.p, self.m.rows)

    @cached_property
    def column_bytes(self) -> int:
        """From one column to the next."""
        return self.tall.panel_column

    @property
    def count(self) -> int:
        return -(-self.m.columns // self.p.width)

    @property
    def factored(self) -> int:
        """The number of stripes that are factored: the first ones."""
        return -(-self.steps // self.p.width)

    @property
    def rows(self) -> int:
        """Rows of a stripe, those of padding too."""
        return self.tall.height

    @cached_property
    def stripe_bytes(self) -> int:
        return self.rows * self.p.stripe_row

    @property
    def columns_bytes(self) -> int:
        return self.p.width * self.column_bytes + self.extra

    @property
    def extra(self) -> int:
        """Bytes that each factored stripe has besides its columns, a multiple of 64."""
        return 0

    @property
    def memory(self) -> int:
        """Bytes of a matrix's scratch."""
        return HEAD + self.count * self.stripe_bytes + self.factored * self.columns_bytes

    @property
    def name(self) -> str:
        return f"{self.kind}_{self.m.name}_{self.steps}_{self.p.name}"

    def stripe(self, f: Part, number: Index | int) -> Pointer:
        return f.memory + HEAD + number * self.stripe_bytes

    def columns(self, f: Part, number: Index | int) -> Pointer:
        """The first column of a factored stripe."""
        return f.memory + (HEAD + self.count * self.stripe_bytes) + number * self.columns_bytes

    def part(self, name: str, is_cold: bool = False) -> Part:
        return Part(f"{self.name}_{name}", self.p.scalar, is_cold)

    @property
    def is_narrow(self) -> bool:
        """True if masks can read a row, less than a vector: columns are then loaded and stored without stripes."""
        return self.m.columns <= self.p.lanes and self.p.vector_bytes == 64  # AVX-512

    def nothing(self, module: Module) -> str:
        """The part that does nothing."""
        f = self.part("nothing")
        return f.name if f.name in module.functions else module.end(f)

    def load_columns(self, f: Part, module: Module, number: Index) -> Pointer:
        """Copies a stripe, or a narrow operand, to columns, which it gives."""
        columns = self.columns(f, number)
        if self.is_narrow:
            f.call(_narrow(module, self, True), columns, f.array(0, self.m.bytes))
        else:
            self.transpose(module, self.stripe(f, number), columns, number * self.p.width, True)
        return columns

    def store_columns(self, f: Part, module: Module, columns: Pointer, number: Index) -> None:
        """Copies columns back to their stripe, or to a narrow result."""
        if self.is_narrow:
            f.call(_narrow(module, self, False), columns, f.array(self.result, self.m.bytes))
        else:
            self.transpose(module, self.stripe(f, number), columns, number * self.p.width, False)

    def pack(self, module: Module) -> str:
        """The part that copies a stripe of the operand; zeros are where there is none."""
        if self.is_narrow:
            return self.nothing(module)
        f = self.part("pack")
        self.read(f, module, self.stripe(f, f.number))
        return module.end(f)

    def read(self, f: Part, module: Module, stripe: Pointer) -> None:
        """Copies stripe `number` of the operand."""
        array, columns = self._array(f, 0, f.number)
        if self.rows != self.m.rows or self.m.columns % self.p.width:
            with f.when(columns < self.p.width if self.rows == self.m.rows else f.constant(True, I1)):
                f.memset(stripe, 0, self.stripe_bytes)
        f.call(self._copy(module, True), stripe, array, self.m.rows, columns)

    def unpack(self, module: Module, before: Callable[[Part, Pointer], None] | None = None) -> str:
        """The part that copies a stripe to the result. before(part, stripe): what is done to it first."""
        if self.is_narrow:
            return self.nothing(module)
        f = self.part("unpack")
        stripe = self.stripe(f, f.number)
        if before is not None:
            before(f, stripe)
        self.write(f, module, stripe, f.number)
        return module.end(f)

    def write(self, f: Part, module: Module, stripe: Pointer, number: Index) -> None:
        """Copies a stripe, whose number is given, to the result."""
        array, columns = self._array(f, self.result, number)
        f.call(self._copy(module, False), stripe, array, self.m.rows, columns)

    def _copy(self, module: Module, into: bool) -> str:
        return copy(module, self.p, self.p.width, Strides(self.m.row, self.p.bytes), into)

    def _array(self, f: Part, place: int, number: Index) -> tuple[Pointer, Index]:
        """A stripe's place in an array, and how many columns it has there."""
        first = number * self.p.width
        return f.array(place, self.m.bytes)[first], self.columns_of(first)

    def transpose(self, module: Module, stripe: Pointer, columns: Pointer, first: Index, into: bool) -> None:
        """Copies a stripe's rows from `first` on to columns, or back."""
        p = self.p
        turn = copy(module, p, p.width, Strides(p.bytes, self.column_bytes), not into)
        first.fn.call(turn, stripe + first * p.stripe_row, columns[first], self.rows - first, p.width)

    def steps_of(self, first: Index) -> Index:
        """The number of factored columns of the stripe that begins with the matrix's column `first`."""
        return (self.steps - first).smin(self.p.width)

    def columns_of(self, first: Index) -> Index:
        """The number of columns of the stripe that begins with the matrix's column `first`."""
        return (self.m.columns - first).smin(self.p.width)


def _narrow(module: Module, s: Stripes, into: bool) -> str:
    """The function (columns, array): from or to an array whose rows are parts of a vector."""
    m, p = s.m, s.p
    name = f"narrow_{'in' if into else 'out'}_{m.dtype.name}_{m.rows}_{m.columns}"
    if name in module.functions:
        return name
    f, (columns, array) = subroutine(name, p.scalar, columns=POINTER, array=POINTER)
    mask = LaneMask(f, m.columns, p.lanes)
    whole = m.rows // p.lanes * p.lanes
    with f.loop(0, whole, p.lanes) as loop:
        first_row, first_column = array + loop.index * m.row, columns[loop.index]
        rows = [first_row + i * m.row for i in range(p.lanes)]
        lines = [first_column + i * s.column_bytes for i in range(m.columns)]
        if into:
            for value, line in zip(transposed([row.load(p.lanes, mask) for row in rows]), lines, strict=False):
                line.store(value)
        else:
            values = [line.load(p.lanes) for line in lines] + [f.constant(0.0, p.vector)] * (p.lanes - m.columns)
            for value, row in zip(transposed(values), rows, strict=True):
                row.store(value, mask)
    with f.loop(whole, m.rows) as row, f.loop(0, m.columns) as column:
        here = (columns + column.index * s.column_bytes)[row.index]
        there = (array + row.index * m.row)[column.index]
        source, target = (there, here) if into else (here, there)
        target.store(source.load())
    if into:
        with f.loop(0, m.columns) as column:
            f.memset((columns + column.index * s.column_bytes)[m.rows], 0, (s.rows - m.rows) * p.bytes)
    return module.end(f)


# -- columns by vectors

Body: TypeAlias = Callable[[Index, "Value | None", list[Value]], list[Value]]
"""body(first row, mask, carried): what is carried on from a vector of rows; mask: which lanes count, None for all."""


class Rows:
    """A column's rows from `row` on, by vectors. Other lanes may not change: 0 times NaN is no zero."""

    def __init__(self, s: Stripes, row: Index) -> None:
        p, end = s.p, s.m.rows
        self._s, self._row = s, row
        self._start, self._last = row & -p.lanes, end // p.lanes * p.lanes
        edges = row.fn.index((self._start < self._last).zext(64))
        self._edges = edges + 1 if end % p.lanes else edges
        self._first = self._inside(self._start)

    def each(self, carries: Sequence[Value], body: Body, is_short: bool = False) -> list[Value]:
        """Goes through the vectors, the first and the last one with masks; gives what the last one carries on.

        is_short: all have, one after the other, which is less code.
        """
        f, p, end = self._row.fn, self._s.p, self._s.m.rows
        if is_short:
            with f.loop(self._start, end, p.lanes, carries=carries) as loop:
                loop.next = body(loop.index, self._inside(loop.index), loop.carried)
            return loop.results
        last = LaneMask(f, end - self._last, p.lanes)
        with f.loop(0, self._edges, carries=[self._start, self._first, *carries]) as edge:
            place, mask, *carried = edge.carried
            edge.next = [f.index(self._last), last, *body(place, mask, carried)]
        with f.loop(self._start + p.lanes, self._last, p.lanes, carries=edge.results[2:]) as loop:
            loop.next = body(loop.index, None, loop.carried)
        return loop.results

    def _inside(self, first: Index) -> Value:
        """The mask of lanes of the vector from row `first` on that are the matrix's rows from `row` on."""
        lanes = self._s.p.lanes
        numbers = (first - self._row).trunc(32).splat(lanes)
        numbers = numbers + first.fn.lane_numbers(numbers.type)
        return numbers.compare("ult", (self._s.m.rows - self._row).trunc(32).splat(lanes))  # those before wrap around


def masked(mask: Value | None, value: Value, other: Value | float = 0.0) -> Value:
    """The value in the lanes of a mask, in the others the other one."""
    return value if mask is None else mask.select(value, other)


def pivot_factors(pivot: Value, is_zero: Value) -> tuple[Value, Value]:
    """(a, b) with x / pivot = x * a * b; x itself of a pivot of zero.

    a is a power of two, which keeps the reciprocals of tiny pivots finite.
    """
    reach = 100 if pivot.bits == 32 else 900
    one = pivot.value(1.0)
    scale = (pivot.abs() < 2.0**-reach).select(pivot.value(2.0**reach), one)
    return scale, 1.0 / is_zero.select(one, pivot * scale)
