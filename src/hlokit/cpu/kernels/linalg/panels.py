"""Panels: what the Cholesky factorization and the triangular solve are made of.

A triangular system L X = B is solved in stripes of X's columns, each copied to scratch memory as whole vectors, row by
row: [row][component][width], width = vectors * lanes. L comes in panels of `height` rows, column by column:
[column][component][height]. Sizes are padded to whole panels with the identity matrix, so that no step has an edge.
Complex numbers lie as two components. The diagonal's reciprocals are apart: [row][reciprocal's components, scale].
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least
from hlokit.cpu.llvm import Function, Module, float_constant, scalar_type, splat
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType

DEPTH = 96
"""Columns of L that go through the first-level cache together."""


@dataclass(frozen=True)
class Panels:
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

    @property
    def scalar(self) -> str:
        return scalar_type(self.dtype.real)

    @property
    def vector(self) -> str:
        return f"<{self.lanes} x {self.scalar}>"

    @property
    def suffix(self) -> str:
        """The vector type in the names of intrinsics."""
        return f"v{self.lanes}f{self.dtype.real.bits}"

    @property
    def bytes(self) -> int:
        """Of one component."""
        return self.dtype.real.bits // 8

    @property
    def parts(self) -> int:
        """Components of an element."""
        return 2 if self.dtype.is_complex else 1

    @property
    def width(self) -> int:
        """Columns of a stripe."""
        return self.vectors * self.lanes

    @property
    def height(self) -> int:
        return self.rows * self.blocks

    @property
    def stripe_row(self) -> int:
        """Bytes of a stripe's row."""
        return self.width * self.parts * self.bytes

    @property
    def panel_column(self) -> int:
        """Bytes of a panel's column."""
        return self.height * self.parts * self.bytes

    @property
    def reciprocal(self) -> int:
        """Bytes of a diagonal element's reciprocal and its scale."""
        return (self.parts + 1) * self.bytes

    @property
    def name(self) -> str:
        return f"{self.dtype.name}_{self.lanes}_{self.rows}_{self.vectors}_{self.blocks}"


def panels_for(dtype: DType, target: Target) -> Panels:
    """The shape that fills the machine's registers: the width of a stripe is a multiple of `rows`."""
    lanes = target.vector_bytes // (dtype.real.bits // 8)
    many = target.vector_bytes == 64
    if target.vector_bytes == 16:
        rows, vectors = (2, 2) if dtype.is_complex else (4, 4) if target.arch == "aarch64" else (2, 4)
    elif dtype.is_complex:
        rows, vectors = (4 if many else 2), 2
    else:
        rows, vectors = (8 if many else 4), 3
    return Panels(dtype, lanes, rows, vectors, vectors * lanes // rows)


# -- writing arithmetic


def offset(f: Function, base: str, *terms: tuple[str, int] | int) -> str:
    """base + the sum of (i64 value, bytes) and of bytes."""
    for term in terms:
        amount = str(term) if isinstance(term, int) else times(f, *term)
        if amount != "0":
            base = f.let(f"getelementptr i8, ptr {base}, i64 {amount}", "p")
    return base


def times(f: Function, value: str, factor: int) -> str:
    if factor == 0 or value == "0":
        return "0"
    return value if factor == 1 else f.let(f"mul nsw i64 {value}, {factor}")


def plus(f: Function, a: str, b: str | int) -> str:
    return a if b in (0, "0") else f.let(f"add nsw i64 {a}, {b}")


def load(f: Function, p: Panels, place: str, lanes: int = 0) -> str:
    type = p.vector if lanes else p.scalar
    return f.let(f"load {type}, ptr {place}, align {p.bytes}")


def store(f: Function, p: Panels, value: str, place: str, lanes: int = 0) -> None:
    f.do(f"store {p.vector if lanes else p.scalar} {value}, ptr {place}, align {p.bytes}")


def spread(f: Function, p: Panels, value: str) -> str:
    """A scalar in every lane."""
    first = f.let(f"insertelement {p.vector} poison, {p.scalar} {value}, i32 0")
    return f.let(f"shufflevector {p.vector} {first}, {p.vector} poison, <{p.lanes} x i32> zeroinitializer")


def fma(f: Function, p: Panels, a: str, b: str, c: str) -> str:
    """a * b + c in every lane, fused where the machine can."""
    return f.let(f"call {p.vector} @llvm.fmuladd.{p.suffix}({p.vector} {a}, {p.vector} {b}, {p.vector} {c})")


def negated(f: Function, p: Panels, value: str) -> str:
    return f.let(f"fneg {p.vector} {value}")


def less_product(
    f: Function, p: Panels, c: Sequence[str], a: Sequence[str], b: Sequence[str], conjugate: bool = False
) -> list[str]:
    """c - a * b, or c - conj(a) * b, of elements by components."""
    minus = negated(f, p, a[0])
    if p.parts == 1:
        return [fma(f, p, minus, b[0], c[0])]
    other = negated(f, p, a[1])
    over, under = (other, a[1]) if conjugate else (a[1], other)
    real, imaginary = fma(f, p, minus, b[0], c[0]), fma(f, p, minus, b[1], c[1])
    return [fma(f, p, over, b[1], real), fma(f, p, under, b[0], imaginary)]


def product(f: Function, p: Panels, a: Sequence[str], b: Sequence[str]) -> list[str]:
    """a * b of elements by components."""

    def mul(x: str, y: str) -> str:
        return f.let(f"fmul {p.vector} {x}, {y}")

    if p.parts == 1:
        return [mul(a[0], b[0])]
    crossed = negated(f, p, mul(a[1], b[1])), mul(a[1], b[0])
    return [fma(f, p, a[0], b[0], crossed[0]), fma(f, p, a[0], b[1], crossed[1])]


# -- rows of a stripe in registers: [row][vector][component]

Rows = list[list[list[str]]]


def _place(f: Function, p: Panels, row: str, vector: int, part: int) -> str:
    return offset(f, row, (part * p.width + vector * p.lanes) * p.bytes)


def load_row(f: Function, p: Panels, row: str) -> list[list[str]]:
    return [[load(f, p, _place(f, p, row, v, c), p.lanes) for c in range(p.parts)] for v in range(p.vectors)]


def store_row(f: Function, p: Panels, values: Sequence[Sequence[str]], row: str) -> None:
    for v, components in enumerate(values):
        for c, value in enumerate(components):
            store(f, p, value, _place(f, p, row, v, c), p.lanes)


def load_element(f: Function, p: Panels, place: str) -> list[str]:
    """A vector of a row by components."""
    return [load(f, p, offset(f, place, c * p.width * p.bytes), p.lanes) for c in range(p.parts)]


def store_element(f: Function, p: Panels, value: Sequence[str], place: str) -> None:
    for c, part in enumerate(value):
        store(f, p, part, offset(f, place, c * p.width * p.bytes), p.lanes)


def load_rows(f: Function, p: Panels, first: str) -> Rows:
    return [load_row(f, p, offset(f, first, r * p.stripe_row)) for r in range(p.rows)]


def factors(f: Function, p: Panels, place: str, part_bytes: int) -> list[str]:
    """One element, spread over the lanes, by components that lie part_bytes apart."""
    return [spread(f, p, load(f, p, offset(f, place, c * part_bytes))) for c in range(p.parts)]


def update(module: Module, p: Panels, conjugate: bool = False) -> str:
    """void f(ptr c, ptr a, ptr b, i64 count): c[rows][width] -= a[count][rows]^T b[count][width].

    a is at its first row in a panel, b and c in stripes; conjugate: a's conjugate.
    """
    name = f"panel_update{'_conj' if conjugate else ''}_{p.name}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr noalias", "c"), ("ptr", "a"), ("ptr", "b"), ("i64", "count")], attributes="noinline")
    rows = load_rows(f, p, "%c")
    flat = [part for row in rows for vector in row for part in vector]
    carries = [("ptr", "%a"), ("ptr", "%b"), *[(p.vector, value) for value in flat]]
    with f.loop("0", "%count", carries=carries) as loop:
        a, b, *values = loop.carried
        each = iter(values)
        rights = load_row(f, p, b)
        following: list[str] = []
        for r in range(p.rows):
            left = factors(f, p, offset(f, a, r * p.bytes), p.height * p.bytes)
            for v in range(p.vectors):
                c = [next(each) for _ in range(p.parts)]
                following += less_product(f, p, c, left, rights[v], conjugate)
        loop.next = [offset(f, a, p.panel_column), offset(f, b, p.stripe_row), *following]
    results = iter(loop.results[2:])
    for r in range(p.rows):
        row = [[next(results) for _ in range(p.parts)] for _ in range(p.vectors)]
        store_row(f, p, row, offset(f, "%c", r * p.stripe_row))
    f.do("ret void")
    module.add(f)
    return name


def solve(module: Module, p: Panels, unit: bool, conjugate: bool = False) -> str:
    """void f(ptr c, ptr a, ptr r, i64 first): c[rows][width] becomes x, l x = c, in vectors from the `first` on.

    l's triangle is at a, its reciprocals at r.
    """
    name = f"panel_solve{'_unit' if unit else ''}{'_conj' if conjugate else ''}_{p.name}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "c"), ("ptr", "a"), ("ptr", "r"), ("i64", "first")], attributes="noinline")
    with f.loop("%first", str(p.vectors)) as loop:
        places = [offset(f, "%c", (loop.index, p.lanes * p.bytes), i * p.stripe_row) for i in range(p.rows)]
        rows = [load_element(f, p, place) for place in places]
        for i in range(p.rows):
            if not unit:
                place = offset(f, "%r", i * p.reciprocal)
                scale = spread(f, p, load(f, p, offset(f, place, p.parts * p.bytes)))
                scaled = product(f, p, factors(f, p, place, p.bytes), rows[i])
                rows[i] = [f.let(f"fmul {p.vector} {x}, {scale}") for x in scaled]
            store_element(f, p, rows[i], places[i])
            for r in range(i + 1, p.rows):
                left = factors(f, p, offset(f, "%a", i * p.panel_column + r * p.bytes), p.height * p.bytes)
                rows[r] = less_product(f, p, rows[r], left, rows[i], conjugate)
    f.do("ret void")
    module.add(f)
    return name


Finish = Callable[[Function, str, str, str, str], None]
"""finish(function, rows of the stripe, triangle in the panel, reciprocals, row number): ends a group of rows."""


def panel_rows(module: Module, p: Panels, name: str, finish: Finish, conjugate: bool = False) -> str:
    """void f(ptr x, ptr a, ptr r, ptr info, i64 first): the stripe x's rows of the panel a, from row `first` on.

    x's rows above are solved already; a begins with the panel's column 0, r with row 0's reciprocal.
    """
    if name in module.functions:
        return name
    parameters = [("ptr", "x"), ("ptr", "a"), ("ptr", "r"), ("ptr", "info"), ("i64", "first")]
    f = Function(name, parameters, attributes="noinline")
    change = update(module, p, conjugate)
    rows = offset(f, "%x", ("%first", p.stripe_row))
    group = p.rows * p.stripe_row
    with f.loop("0", "%first", DEPTH) as outer:
        count = least(f, f.let(f"sub nsw i64 %first, {outer.index}"), str(DEPTH))
        columns = offset(f, "%a", (outer.index, p.panel_column))
        above = offset(f, "%x", (outer.index, p.stripe_row))
        with f.loop("0", str(p.blocks)) as block:
            c, a = offset(f, rows, (block.index, group)), offset(f, columns, (block.index, p.rows * p.bytes))
            f.do(f"call void @{change}(ptr {c}, ptr {a}, ptr {above}, i64 {count})")
    triangle = offset(f, "%a", ("%first", p.panel_column))
    with f.loop("0", str(p.blocks)) as block:
        c, a = offset(f, rows, (block.index, group)), offset(f, triangle, (block.index, p.rows * p.bytes))
        count = times(f, block.index, p.rows)
        f.do(f"call void @{change}(ptr {c}, ptr {a}, ptr {rows}, i64 {count})")
        row = plus(f, "%first", count)
        corner = offset(f, a, (count, p.panel_column))
        finish(f, c, corner, offset(f, "%r", (row, p.reciprocal)), row)
    f.do("ret void")
    module.add(f)
    return name


def everywhere(p: Panels, value: float) -> str:
    """A constant in every lane."""
    return splat(float_constant(value, p.scalar), p.scalar, p.lanes)


def magnitude(f: Function, p: Panels, value: str) -> str:
    return f.let(f"call {p.vector} @llvm.fabs.{p.suffix}({p.vector} {value})")


def note_pivot(f: Function, positive: str, info: str, order: str) -> None:
    """Sets the i32 at `info` to the i64 `order`, unless the pivot is positive or it is set already."""
    before = f.let(f"load i32, ptr {info}, align 4")
    is_set = f.let(f"icmp ne i32 {before}, 0")
    kept = f.let(f"or i1 {positive}, {is_set}")
    number = f.let(f"trunc i64 {order} to i32")
    f.do(f"store i32 {f.let(f'select i1 {kept}, i32 {before}, i32 {number}')}, ptr {info}, align 4")


def clear(f: Function, place: str, count: str) -> None:
    """Zeros over `count` bytes."""
    f.do(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {count}, i1 false)")


def one(p: Panels) -> str:
    return float_constant(1.0, p.scalar)


def up(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


CHUNK_WORK = 50_000
"""Vector operations of a chunk at least, if there are as many."""


@dataclass(frozen=True)
class Items:
    """Pieces of work that a phase does `fewest` or more of in a chunk, each of about `work` vector operations."""

    count: int
    work: int
    fewest: int = 1

    @property
    def a_chunk(self) -> int:
        return max(self.fewest, min(self.count, CHUNK_WORK // max(1, self.work)))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.a_chunk)

    @contextmanager
    def each(self, f: Function) -> Generator[str, None, None]:
        """The loop over the items of the chunks from %begin to %end."""
        first, last = times(f, "%begin", self.a_chunk), times(f, "%end", self.a_chunk)
        with f.loop(first, least(f, last, str(self.count))) as loop:
            yield loop.index
