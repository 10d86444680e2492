"""Panels and stripes: building blocks of the Cholesky factorization and the triangular solve.

A triangular system L X = B is solved in stripes of X's columns, each copied to scratch memory as whole vectors, row by
row: [row][component][width], width = vectors * lanes. L comes in panels of `height` rows, column by column:
[column][component][height]. Sizes are padded to whole panels with the identity matrix, so that no step has an edge.
Complex numbers lie as two components. The diagonal's reciprocals are apart: [row][reciprocal's components, scale].
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, TypeVar

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.llvm import (
    I32,
    I64,
    NOALIAS,
    POINTER,
    Function,
    Index,
    Module,
    Pointer,
    Type,
    Value,
    scalar_type,
    type_of,
)
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType

Element: TypeAlias = list[Value]
"""A number, or a vector of them, by components: one, or the real and the imaginary part."""


@dataclass(frozen=True)
class PanelShape:
    """The geometry of one kind of panels.

    rows     rows of X in registers at a time
    vectors  vectors of a stripe's row
    blocks   a panel's height in such groups of rows
    """

    dtype: DType
    lanes: int
    rows: int
    vectors: int
    blocks: int

    @cached_property
    def scalar(self) -> Type:
        """The type of one component."""
        return type_of(scalar_type(self.dtype.real))

    @cached_property
    def vector(self) -> Type:
        return self.scalar.of(self.lanes)

    @cached_property
    def bytes(self) -> int:
        """Size of one component."""
        return self.scalar.bytes

    @cached_property
    def vector_bytes(self) -> int:
        return self.lanes * self.bytes

    @cached_property
    def parts(self) -> int:
        """Components of an element."""
        return 2 if self.dtype.is_complex else 1

    @cached_property
    def width(self) -> int:
        """Columns of a stripe."""
        return self.vectors * self.lanes

    @cached_property
    def height(self) -> int:
        return self.rows * self.blocks

    @cached_property
    def stripe_row(self) -> int:
        """Bytes of a stripe's row."""
        return self.width * self.parts * self.bytes

    @cached_property
    def panel_column(self) -> int:
        """Bytes of a panel's column."""
        return self.height * self.parts * self.bytes

    @cached_property
    def reciprocal(self) -> int:
        """Bytes of a diagonal element's reciprocal and its scale."""
        return (self.parts + 1) * self.bytes

    @property
    def name(self) -> str:
        return f"{self.dtype.name}_{self.lanes}_{self.rows}_{self.vectors}_{self.blocks}"

    def load(self, place: Pointer, apart: int) -> Element:
        """A vector of elements, whose components are that many scalars apart."""
        return [place[c * apart].load(self.lanes) for c in range(self.parts)]

    def spread(self, place: Pointer, apart: int) -> Element:
        """One element in every lane."""
        return [place[c * apart].load().splat(self.lanes) for c in range(self.parts)]

    def load_row(self, row: Pointer) -> list[Element]:
        """A stripe's row, vector by vector."""
        return [self.load(row[v * self.lanes], self.width) for v in range(self.vectors)]

    def store_row(self, elements: Sequence[Element], row: Pointer) -> None:
        for v, element in enumerate(elements):
            store(element, row[v * self.lanes], self.width)


def panels_for(dtype: DType, target: Target) -> PanelShape:
    """The shape that fills the machine's registers: the width of a stripe is a multiple of `rows`."""
    lanes = target.vector_bytes // (dtype.real.bits // 8)
    many = target.vector_bytes == 64
    if target.vector_bytes == 16:
        rows, vectors = (2, 2) if dtype.is_complex else (4, 4) if target.arch == "aarch64" else (2, 4)
    elif dtype.is_complex:
        rows, vectors = (4 if many else 2), 2
    else:
        rows, vectors = (8 if many else 4), 3
    return PanelShape(dtype, lanes, rows, vectors, vectors * lanes // rows)


# -- elements by components


def store(element: Sequence[Value], place: Pointer, apart: int) -> None:
    """Stores components that many scalars apart."""
    for c, part in enumerate(element):
        place[c * apart].store(part)


def multiply_subtract(c: Element, a: Element, b: Element, conjugate: bool = False) -> Element:
    """c - a * b, or c - conj(a) * b."""
    minus = -a[0]
    if len(a) == 1:
        return [minus.fmuladd(b[0], c[0])]
    other = -a[1]
    over, under = (other, a[1]) if conjugate else (a[1], other)
    real, imaginary = minus.fmuladd(b[0], c[0]), minus.fmuladd(b[1], c[1])
    return [over.fmuladd(b[1], real), under.fmuladd(b[0], imaginary)]


def product(a: Element, b: Element) -> Element:
    if len(a) == 1:
        return [a[0] * b[0]]
    crossed = -(a[1] * b[1]), a[1] * b[0]
    return [a[0].fmuladd(b[0], crossed[0]), a[0].fmuladd(b[1], crossed[1])]


def scaled(element: Element, factor: Value) -> Element:
    """The element times a real number."""
    return [part * factor for part in element]


T = TypeVar("T")


def flat(groups: Sequence[Sequence[T]]) -> list[T]:
    return [one for group in groups for one in group]


def grouped(values: Sequence[T], size: int) -> list[list[T]]:
    """Undoes `flat`, for groups of one size."""
    return [list(values[start : start + size]) for start in range(0, len(values), size)]


# -- stripes


def rank_update(module: Module, p: PanelShape, conjugate: bool = False) -> str:
    """The function (c, a, b, count): c[rows][width] -= a[count][rows]^T b[count][width].

    a is at its first row in a panel, b and c in stripes; conjugate: a's conjugate.
    """
    name = f"panel_update{'_conj' if conjugate else ''}_{p.name}"
    if name in module.functions:
        return name
    f, (c, a, b, count) = subroutine(name, p.scalar, c=NOALIAS, a=POINTER, b=POINTER, count=I64)
    rows = [c + r * p.stripe_row for r in range(p.rows)]
    sums = flat([p.load_row(row) for row in rows])
    with f.loop(0, count, carries=[a, b, *flat(sums)]) as loop:
        a, b, *values = loop.carried
        right, sums = p.load_row(b), iter(grouped(values, p.parts))
        following: list[Element] = []
        for r in range(p.rows):
            left = p.spread(a[r], p.height)
            following += [multiply_subtract(next(sums), left, x, conjugate) for x in right]
        loop.next = [a + p.panel_column, b + p.stripe_row, *flat(following)]
    sums = grouped(loop.results[2:], p.parts)
    for row, elements in zip(rows, grouped(sums, p.vectors), strict=True):
        p.store_row(elements, row)
    return module.end(f)


def substitution(module: Module, p: PanelShape, unit: bool, conjugate: bool = False) -> str:
    """The function (c, a, r, first): forward substitution, c[rows][width] becomes x, l x = c.

    l's triangle is at a, its reciprocals at r. `first`: of each row's vectors, those from this one on.
    """
    name = f"panel_solve{'_unit' if unit else ''}{'_conj' if conjugate else ''}_{p.name}"
    if name in module.functions:
        return name
    f, (c, a, r, first) = subroutine(name, p.scalar, c=POINTER, a=POINTER, r=POINTER, first=I64)
    with f.loop(first, p.vectors) as vector:
        start = c + vector.index * p.vector_bytes
        places = [start + i * p.stripe_row for i in range(p.rows)]
        rows = [p.load(place, p.width) for place in places]
        for i in range(p.rows):
            if not unit:
                reciprocal = r + i * p.reciprocal
                scale = reciprocal[p.parts].load().splat(p.lanes)
                rows[i] = scaled(product(p.spread(reciprocal, 1), rows[i]), scale)
            store(rows[i], places[i], p.width)
            column = a + i * p.panel_column
            for k in range(i + 1, p.rows):
                rows[k] = multiply_subtract(rows[k], p.spread(column[k], p.height), rows[i], conjugate)
    return module.end(f)


def blocked_update(
    update: str,
    p: PanelShape,
    c: Pointer,
    rows: Index | int,
    a: tuple[Pointer, int],
    b: Pointer,
    first: Index | int,
    last: Index,
) -> None:
    """c[rows][width] -= a[k]^T b[k] for k from `first` to `last`: by `update`, for as many at a time as stay near.

    a: its place, and the bytes from a[k] to a[k + 1]
    """
    f, (place, step) = last.fn, a
    with f.loop(first, last, costs.FACTORED_COLUMNS) as outer:
        depth = (last - outer.index).smin(costs.FACTORED_COLUMNS)
        left, right = place + outer.index * step, b + outer.index * p.stripe_row
        with f.loop(0, rows, p.rows) as row:
            f.call(update, c + row.index * p.stripe_row, left[row.index], right, depth)


Finish: TypeAlias = Callable[[Pointer, Pointer, Pointer, Pointer, Index], None]
"""finish(rows of the stripe, triangle in the panel, reciprocals, info, row number): ends a group of rows."""


def panel_rows(module: Module, p: PanelShape, name: str, finish: Finish, conjugate: bool = False) -> str:
    """The function (x, a, r, info, first): the stripe x's rows of the panel a, from row `first` on.

    x's rows above are solved already; a begins with the panel's column 0, r with row 0's reciprocal.
    """
    if name in module.functions:
        return name
    f, (x, a, r, info, first) = subroutine(name, p.scalar, x=POINTER, a=POINTER, r=POINTER, info=POINTER, first=I64)
    update = rank_update(module, p, conjugate)
    rows, triangle = x + first * p.stripe_row, a + first * p.panel_column
    blocked_update(update, p, rows, p.height, (a, p.panel_column), x, 0, first)
    with f.loop(0, p.height, p.rows) as loop:
        here, left = rows + loop.index * p.stripe_row, triangle[loop.index]
        f.call(update, here, left, rows, loop.index)
        row = first + loop.index
        finish(here, left + loop.index * p.panel_column, r + row * p.reciprocal, info, row)
    return module.end(f)


def note_pivot(positive: Value, info: Pointer, order: Index) -> None:
    """Sets the i32 at `info` to the pivot's order, unless the pivot is positive or it is set already."""
    info = info.to(I32)
    before = info.load()
    kept = positive | before.ne(0)
    info.store(kept.select(before, order.trunc(32)))


def by_groups(first: Index, last: Index | int, sizes: Sequence[int], body: Callable[[Index, int], None]) -> None:
    """body(number, count) from `first` to `last`: as many at a time as the sizes say, one after the other."""
    f = first.fn
    for size in sizes:
        whole = first + ((last - first) & -size) if size > 1 else last
        with f.loop(first, whole, size) as loop:
            body(loop.index, size)
        first = f.index(whole)


# -- chunks


@dataclass(frozen=True)
class Items:
    """Pieces of work that a phase does `fewest` or more of in a chunk, each of about `work` vector operations."""

    count: int
    work: int
    fewest: int = 1

    @property
    def a_chunk(self) -> int:
        return max(self.fewest, min(self.count, costs.LINALG_CHUNK_WORK // max(1, self.work)))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.a_chunk)

    @contextmanager
    def each(self, f: Function) -> Generator[Index]:
        """The loop over the items of a phase's chunks."""
        first, last = (f.index_argument(end) * self.a_chunk for end in ("begin", "end"))
        with f.loop(first, last.smin(self.count)) as loop:
            yield loop.index
