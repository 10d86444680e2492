"""Stripes of a matrix's columns and the columns themselves: what LU and QR factorizations are made of (stepped.py).

A stripe is copied to scratch memory as [row][width] (panels.py). Before it is factored it is transposed to columns,
[width][tall]: there a column is contiguous, and from there the stripes beyond it are changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg.batch_lanes import chosen
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import Panels, clear, everywhere, load, offset, panels_for, plus, store, times, up
from hlokit.cpu.kernels.linalg.stepped import HEAD, part
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType

_LINE = 64


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


@dataclass(frozen=True)
class Stripes:
    """Where the stripes of a matrix are in its scratch; after them the columns of those that are factored.

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
    def p(self) -> Panels:
        full = panels_for(self.m.dtype, self.target)
        together = max(1, full.rows // full.lanes)
        vectors = min(full.vectors, up(-(-self.m.columns // full.lanes), together))
        return replace(full, vectors=vectors, blocks=vectors * full.lanes // full.rows)

    @cached_property
    def tall(self) -> Panels:
        """A panel as high as a column: of an odd number of lines, so that columns meet in few sets of the cache."""
        lines = -(-self.m.rows * self.p.bytes // _LINE) | 1
        return replace(self.p, blocks=lines * _LINE // self.p.bytes // self.p.rows)

    @property
    def count(self) -> int:
        return -(-self.m.columns // self.p.width)

    @property
    def factored(self) -> int:
        """How many stripes are factored: the first ones."""
        return -(-self.steps // self.p.width)

    @property
    def rows(self) -> int:
        """Rows of a stripe, those of padding too."""
        return self.tall.height

    @property
    def stripe_bytes(self) -> int:
        return self.rows * self.p.stripe_row

    @property
    def columns_bytes(self) -> int:
        return self.p.width * self.tall.panel_column + self.extra

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

    def stripe(self, f: Function, number: str) -> str:
        return offset(f, "%memory", HEAD, (number, self.stripe_bytes))

    def column(self, f: Function, number: str) -> str:
        """The first column of a factored stripe."""
        return offset(f, "%memory", HEAD + self.count * self.stripe_bytes, (number, self.columns_bytes))

    def part(self, name: str, is_cold: bool = False) -> Function:
        return part(f"{self.name}_{name}", is_cold)

    @property
    def is_narrow(self) -> bool:
        """Whether masks can read a row, less than a vector: columns are then taken and given without stripes."""
        return self.m.columns <= self.p.lanes and self.p.lanes * self.p.bytes == 64  # AVX-512

    def nothing(self, module: Module) -> str:
        """The part that does nothing."""
        return self.end(self.part("nothing"), module) if self._nothing not in module.functions else self._nothing

    @property
    def _nothing(self) -> str:
        return f"{self.name}_nothing"

    def take(self, f: Function, module: Module) -> None:
        """Copies a narrow operand to columns."""
        array, _ = self._array(f, 0, "0")
        f.do(f"call void @{_narrow(module, self, True)}(ptr {self.column(f, '0')}, ptr {array})")

    def give(self, f: Function, module: Module) -> None:
        """Copies columns to a narrow result."""
        array, _ = self._array(f, self.result, "0")
        f.do(f"call void @{_narrow(module, self, False)}(ptr {self.column(f, '0')}, ptr {array})")

    def pack(self, module: Module) -> str:
        """The part that copies a stripe of the operand; zeros are where there is none."""
        if self.is_narrow:
            return self.nothing(module)
        f = self.part("pack")
        stripe = self.stripe(f, "%number")
        self.read(f, module, stripe)
        return self.end(f, module)

    def read(self, f: Function, module: Module, stripe: str) -> None:
        """Copies stripe %number of the operand."""
        array, columns = self._array(f, 0, "%number")
        if self.rows != self.m.rows or self.m.columns % self.p.width:
            with f.when("true" if self.rows != self.m.rows else f.let(f"icmp slt i64 {columns}, {self.p.width}")):
                clear(f, stripe, str(self.stripe_bytes))
        f.do(f"call void @{self._copy(module, True)}(ptr {stripe}, ptr {array}, i64 {self.m.rows}, i64 {columns})")

    def unpack(self, module: Module, before: Callable[[Function, str], None] | None = None) -> str:
        """The part that copies a stripe to the result. before(function, stripe): what is done to it first."""
        if self.is_narrow:
            return self.nothing(module)
        f = self.part("unpack")
        stripe = self.stripe(f, "%number")
        if before is not None:
            before(f, stripe)
        self.write(f, module, stripe, "%number")
        return self.end(f, module)

    def write(self, f: Function, module: Module, stripe: str, number: str) -> None:
        """Copies a stripe, whose number is given, to the result."""
        array, columns = self._array(f, self.result, number)
        f.do(f"call void @{self._copy(module, False)}(ptr {stripe}, ptr {array}, i64 {self.m.rows}, i64 {columns})")

    def _copy(self, module: Module, into: bool) -> str:
        return copy(module, self.p, self.p.width, Strides(self.m.row, self.p.bytes), into)

    def _array(self, f: Function, place: int, number: str) -> tuple[str, str]:
        """A stripe's place in an array, and how many columns it has there."""
        first = times(f, number, self.p.width)
        array = offset(f, table_pointer(f, place), ("%matrix", self.m.bytes), (first, self.p.bytes))
        return array, self.columns_of(f, first)

    def transpose(self, f: Function, module: Module, stripe: str, columns: str, first: str, into: bool) -> None:
        """Copies a stripe's rows from `first` on to columns, or back."""
        p = self.p
        strides = Strides(p.bytes, self.tall.panel_column)
        packed, array = offset(f, stripe, (first, p.stripe_row)), offset(f, columns, (first, p.bytes))
        rows = f.let(f"sub nsw i64 {self.rows}, {first}")
        name = copy(module, p, p.width, strides, not into)
        f.do(f"call void @{name}(ptr {packed}, ptr {array}, i64 {rows}, i64 {p.width})")

    def steps_of(self, f: Function, first: str) -> str:
        """How many columns of a stripe are factored whose first one is the matrix's column `first`."""
        return least(f, f.let(f"sub nsw i64 {self.steps}, {first}"), str(self.p.width))

    def columns_of(self, f: Function, first: str) -> str:
        """How many columns the stripe has whose first one is the matrix's column `first`."""
        return least(f, f.let(f"sub nsw i64 {self.m.columns}, {first}"), str(self.p.width))

    def end(self, f: Function, module: Module) -> str:
        f.do("ret void")
        module.add(f)
        return f.name


def _narrow(module: Module, s: Stripes, into: bool) -> str:
    """void f(ptr columns, ptr array): from or to an array whose rows are parts of a vector."""
    m, p, column = s.m, s.p, s.tall.panel_column
    name = f"narrow_{'in' if into else 'out'}_{m.dtype.name}_{m.rows}_{m.columns}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "columns"), ("ptr", "array")], attributes="noinline")
    mask = ", ".join(f"i1 {str(i < m.columns).lower()}" for i in range(p.lanes))
    mask, end = f"<{p.lanes} x i1> <{mask}>", f"{p.suffix}.p0"
    whole = m.rows // p.lanes * p.lanes
    with f.loop("0", str(whole), p.lanes) as loop:
        rows = [offset(f, "%array", (loop.index, m.row), i * m.row) for i in range(p.lanes)]
        columns = [offset(f, "%columns", (loop.index, p.bytes), i * column) for i in range(m.columns)]
        if into:
            read = [f"(ptr align {p.bytes} {row}, {mask}, {p.vector} zeroinitializer)" for row in rows]
            values = [f.let(f"call {p.vector} @llvm.masked.load.{end}{x}") for x in read]
            for value, place in zip(transposed(f, values, p.scalar), columns, strict=False):
                store(f, p, value, place, p.lanes)
        else:
            values = [load(f, p, place, p.lanes) for place in columns]
            values += [everywhere(p, 0.0)] * (p.lanes - m.columns)
            for value, row in zip(transposed(f, values, p.scalar), rows, strict=True):
                f.do(f"call void @llvm.masked.store.{end}({p.vector} {value}, ptr align {p.bytes} {row}, {mask})")
    with f.loop(str(whole), str(m.rows)) as row, f.loop("0", str(m.columns)) as other:
        here = offset(f, "%columns", (other.index, column), (row.index, p.bytes))
        there = offset(f, "%array", (row.index, m.row), (other.index, p.bytes))
        source, target = (there, here) if into else (here, there)
        store(f, p, load(f, p, source), target)
    if into:
        with f.loop("0", str(m.columns)) as other:
            rest = offset(f, "%columns", (other.index, column), m.rows * p.bytes)
            clear(f, rest, str((s.rows - m.rows) * p.bytes))
    f.do("ret void")
    module.add(f)
    return name


# -- columns by vectors

Body: TypeAlias = Callable[[str, str, Sequence[str]], list[str]]
"""body(first row, mask, carried): what is carried on from a vector of rows; mask: which lanes count, "" for all."""


class Rows:
    """A column's rows from `row` on, by vectors. Other lanes may not change: 0 times NaN is no zero."""

    def __init__(self, f: Function, s: Stripes, row: str):
        p, end = s.p, s.m.rows
        self._f, self._s, self._row = f, s, row
        self._start, self._last = aligned(f, p, row), end // p.lanes * p.lanes
        is_before = f.let(f"icmp slt i64 {self._start}, {self._last}")
        edges = f.let(f"zext i1 {is_before} to i64")
        self._edges = plus(f, edges, 1) if end % p.lanes else edges
        self._first = _inside(f, s, self._start, row)

    def each(self, carries: Sequence[tuple[str, str]], body: Body, is_short: bool = False) -> list[str]:
        """What is carried out of the vectors: the first and the last one have masks.

        is_short: all have, one after the other, which is less code.
        """
        f, p, end = self._f, self._s.p, self._s.m.rows
        if is_short:
            with f.loop(self._start, str(end), p.lanes, carries=carries) as loop:
                loop.next = body(loop.index, _inside(f, self._s, loop.index, self._row), loop.carried)
            return loop.results
        flags = f"<{p.lanes} x i1>"
        ends = ", ".join(f"i1 {str(self._last + i < end).lower()}" for i in range(p.lanes))
        first = [("i64", self._start), (flags, self._first)]
        with f.loop("0", self._edges, carries=[*first, *carries]) as edge:
            place, mask, *carried = edge.carried
            edge.next = [str(self._last), f"<{ends}>", *body(place, mask, carried)]
        typed = [(type, value) for (type, _), value in zip(carries, edge.results[2:], strict=True)]
        with f.loop(plus(f, self._start, p.lanes), str(self._last), p.lanes, carries=typed) as loop:
            loop.next = body(loop.index, "", loop.carried)
        return loop.results


def _inside(f: Function, s: Stripes, first: str, row: str) -> str:
    """Which lanes of the vector that begins with row `first` are the matrix's rows from `row` on."""
    lanes, integers = s.p.lanes, f"<{s.p.lanes} x i32>"

    def everywhere(value: str) -> str:
        narrow = f.let(f"trunc i64 {value} to i32")
        one = f.let(f"insertelement {integers} poison, i32 {narrow}, i32 0")
        return f.let(f"shufflevector {integers} {one}, {integers} poison, {integers} zeroinitializer")

    counted = ", ".join(f"i32 {i}" for i in range(lanes))
    numbers = f.let(f"add {integers} {everywhere(f.let(f'sub nsw i64 {first}, {row}'))}, <{counted}>")
    limit = everywhere(f.let(f"sub nsw i64 {s.m.rows}, {row}"))
    return f.let(f"icmp ult {integers} {numbers}, {limit}")  # those before `row` wrap around


def masked(f: Function, p: Panels, mask: str, value: str, other: str = "") -> str:
    """The value in the lanes of a mask ("": in all), in the others the other one, or zero."""
    return chosen(f, p, mask, value, other or everywhere(p, 0.0)) if mask else value


def aligned(f: Function, p: Panels, row: str) -> str:
    """The row that the vector with this row begins with."""
    return f.let(f"and i64 {row}, {-p.lanes}")
