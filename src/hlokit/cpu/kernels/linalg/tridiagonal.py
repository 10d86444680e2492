"""Householder's reduction of a symmetric matrix to a tridiagonal one (LAPACK's sytrd), A = Q T Q^T, by stripes.

The matrix lies in stripes [row][width], of each what is not above its square on the diagonal. A panel is as many
columns as a stripe has: each is changed by those before it, made a reflector, and multiplied by the rest of the matrix,
which lags behind by a panel; then the rest is changed by the panel, as products: A -= V W^T + W V^T (Dongarra,
Hammarling, Sorensen 1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from hlokit.cpu.kernels.flow import greatest, table_pointer
from hlokit.cpu.kernels.linalg import panels
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import (
    Panels,
    clear,
    everywhere,
    fma,
    load,
    magnitude,
    offset,
    plus,
    spread,
    store,
    times,
    up,
)
from hlokit.cpu.kernels.linalg.qr import reflector, total
from hlokit.cpu.kernels.linalg.reflectors import Reflecting
from hlokit.cpu.kernels.linalg.stripes import Rows, aligned, masked
from hlokit.cpu.llvm import Function, Module, float_constant

_UNROLLED = 4
"""Rows, or columns, that are multiplied together."""
_LINE = 64


@dataclass(frozen=True)
class Tridiagonal(Reflecting):
    """Stripes of the matrix, columns and stripes of V with T, and vectors.

    lower   which triangle of the operand counts
    """

    lower: bool = True

    @cached_property
    def tall(self) -> Panels:
        size = max(self.count * self.p.width, self.m.rows + 2 * self.p.rows)
        lines = -(-size * self.p.bytes // _LINE) | 1
        return replace(self.p, blocks=lines * _LINE // self.p.bytes // self.p.rows)

    @property
    def extra(self) -> int:
        return super().extra + self.stripe_bytes

    @property
    def areas(self) -> dict[str, int]:
        """Bytes of what there is besides stripes and V, by name.

        diagonal, beside, taus   of T and of the reflectors
        panel, w                 columns of the panel, and of W
        sizes                    [stripe]: the largest magnitude in it
        scales                   of the matrix, of T: both have been divided by these powers of two
        failed                   i32: what a routine of LAPACK says; i32: whether elements are not finite
        """
        column = self.tall.panel_column
        vectors = dict.fromkeys(("diagonal", "beside", "taus"), column)
        matrices = dict.fromkeys(("panel", "w"), self.p.width * column)
        return vectors | matrices | {"sizes": up(self.count * self.p.bytes, 64), "scales": 64, "failed": 64}

    @property
    def memory(self) -> int:
        return super().memory + sum(self.areas.values())

    def area(self, f: Function, name: str) -> str:
        """The place of one of `areas`."""
        before = list(self.areas).index(name)
        return offset(f, "%memory", super().memory + sum(list(self.areas.values())[:before]))

    def element(self, f: Function, area: str, number: str) -> str:
        """The place of a number in an area."""
        return offset(f, self.area(f, area), (number, self.p.bytes))

    def v_stripe(self, f: Function, number: str) -> str:
        return offset(f, self.spare(f, number), self.tall.panel_column)


# -- the operand


def pack(s: Tridiagonal, module: Module) -> str:
    """The part that makes a stripe from its diagonal on out of a triangle, and notes its largest magnitude."""
    p, n = s.p, s.m.rows
    f = s.part("pack")
    stripe, first = s.stripe(f, "%number"), times(f, "%number", p.width)
    s.read(f, module, stripe)
    count = s.columns_of(f, first)
    if not s.lower:
        low = plus(f, first, p.width)
        array = offset(f, table_pointer(f, 0), ("%matrix", s.m.bytes), (first, s.m.row))
        turned = copy(module, p, p.width, Strides(p.bytes, s.m.row), True)
        target, source = offset(f, stripe, (low, p.stripe_row)), offset(f, array, (low, p.bytes))
        turns = greatest(f, f.let(f"sub nsw i64 {n}, {low}"), "0")
        f.do(f"call void @{turned}(ptr {target}, ptr {source}, i64 {turns}, i64 {count})")
    square = offset(f, stripe, (first, p.stripe_row))
    with f.loop("0", count) as row, f.loop("0", row.index) as column:
        under, over = (
            offset(f, square, (a, p.stripe_row), (b, p.bytes))
            for a, b in ((row.index, column.index), (column.index, row.index))
        )
        source, target = (under, over) if s.lower else (over, under)
        store(f, p, load(f, p, source), target)
    zero = everywhere(p, 0.0)
    start = times(f, first, p.width)
    with f.loop(start, str(n * p.width), p.lanes, carries=[(p.vector, zero)] * 2) as loop:
        value = load(f, p, offset(f, stripe, (loop.index, p.bytes)), p.lanes)
        size = magnitude(f, p, value)
        larger = f.let(f"call {p.vector} @llvm.maxnum.{p.suffix}({p.vector} {size}, {p.vector} {loop.carried[0]})")
        loop.next = [larger, fma(f, p, value, zero, loop.carried[1])]  # 0 times what is not finite is a NaN
    most = f.let(f"call {p.scalar} @llvm.vector.reduce.fmax.{p.suffix}({p.vector} {loop.results[0]})")
    most = f.let(f"fadd {p.scalar} {most}, {total(f, p, loop.results[1])}")
    store(f, p, most, s.element(f, "sizes", "%number"))
    with f.when(f.let(f"icmp slt i64 %number, {s.factored}")):
        clear(f, s.column(f, "%number"), str(p.width * s.tall.panel_column))
    return s.end(f, module)


def power_of_two(f: Function, p: Panels, value: str) -> str:
    """The largest one that is no greater than a positive number; within bounds where the reciprocal is normal."""
    bits, low = (32, 2.0**-120) if p.bytes == 4 else (64, 2.0**-1000)
    mask = 0x7F800000 if bits == 32 else 0x7FF0000000000000
    integer = f.let(f"and i{bits} {f.let(f'bitcast {p.scalar} {value} to i{bits}')}, {mask}")
    power = f.let(f"bitcast i{bits} {integer} to {p.scalar}")
    for bound, name in ((low, "maxnum"), (1 / low, "minnum")):
        limit = float_constant(bound, p.scalar)
        power = f.let(f"call {p.scalar} @llvm.{name}.f{bits}({p.scalar} {power}, {p.scalar} {limit})")
    return power


def begin(s: Tridiagonal, module: Module) -> str:
    """The part that scales a matrix whose squares would overflow or underflow, and clears one that is not finite."""
    p = s.p
    f = s.part("begin", is_cold=True)
    zero, one, reach = float_constant(0.0, p.scalar), float_constant(1.0, p.scalar), 30 if p.bytes == 4 else 300
    with f.loop("0", str(s.count), carries=[(p.scalar, zero)]) as loop:
        size = load(f, p, s.element(f, "sizes", loop.index))
        loop.next = [
            f.let(f"call {p.scalar} @llvm.maximum.f{8 * p.bytes}({p.scalar} {size}, {p.scalar} {loop.carried[0]})")
        ]
    (most,) = loop.results
    spoilt = f.let(f"fcmp uno {p.scalar} {most}, {most}")
    flags = s.area(f, "failed")
    f.do(f"store i32 0, ptr {flags}, align 4")
    f.do(f"store i32 {f.let(f'zext i1 {spoilt} to i32')}, ptr {offset(f, flags, 4)}, align 4")
    tiny = f.let(f"fcmp olt {p.scalar} {most}, {float_constant(2.0**-reach, p.scalar)}")
    huge = f.let(f"fcmp ogt {p.scalar} {most}, {float_constant(2.0**reach, p.scalar)}")
    extreme = f.let(f"or i1 {tiny}, {huge}")
    scale = f.let(f"select i1 {extreme}, {p.scalar} {power_of_two(f, p, most)}, {p.scalar} {one}")
    store(f, p, scale, s.area(f, "scales"))
    stripes = s.stripe(f, "0")
    with f.when(extreme):
        factor = spread(f, p, f.let(f"fdiv {p.scalar} {one}, {scale}"))
        with f.loop("0", str(s.count * s.rows * p.width), p.lanes) as loop:
            place = offset(f, stripes, (loop.index, p.bytes))
            store(f, p, f.let(f"fmul {p.vector} {load(f, p, place, p.lanes)}, {factor}"), place, p.lanes)
    with f.when(spoilt):
        clear(f, stripes, str(s.count * s.stripe_bytes))
    return s.end(f, module)


# -- a panel


def panel(s: Tridiagonal, module: Module) -> str:
    """The part that makes reflectors of the columns of stripe `step`: V, W, taus, diagonals."""
    p, n, column = s.p, s.m.rows, s.tall.panel_column
    f = s.part("panel")
    first = times(f, "%step", p.width)
    lines, w, v = s.area(f, "panel"), s.area(f, "w"), s.column(f, "%step")
    s.transpose(f, module, s.stripe(f, "%step"), lines, first, True)
    factors = f.alloca("i8", 2 * p.width * p.bytes)
    with f.loop("0", s.columns_of(f, first)) as step:
        row = plus(f, first, step.index)
        line = offset(f, lines, (step.index, column))
        with f.loop("0", step.index) as before:
            for i, source in enumerate((w, v)):
                value = load(f, p, offset(f, source, (before.index, column), (row, p.bytes)))
                store(f, p, value, offset(f, factors, (before.index, 2 * p.bytes), i * p.bytes))
        change = f"ptr {v}, ptr {w}, ptr {factors}, i64 {step.index}"
        f.do(f"call void @{_subtract(s, module)}(ptr {line}, {change}, i64 {row})")
        store(f, p, load(f, p, offset(f, line, (row, p.bytes))), s.element(f, "diagonal", row))
        with f.when(f.let(f"icmp slt i64 {row}, {n - 1}")):
            low = f"i64 {plus(f, row, 1)}"
            mine, product = (f"ptr {offset(f, x, (step.index, column))}" for x in (v, w))
            tau = f"ptr {s.element(f, 'taus', row)}"
            f.do(f"call void @{_reflect(s, module)}(ptr {line}, {mine}, {tau}, {low})")
            store(f, p, load(f, p, offset(f, line, (row, p.bytes), p.bytes)), s.element(f, "beside", row))
            f.do(f"call void @{_multiply(s, module)}({product}, ptr {s.stripe(f, '0')}, {mine}, i64 %step, {low})")
            f.do(f"call void @{_dots(s, module)}(ptr {factors}, ptr {v}, ptr {w}, {mine}, i64 {step.index}, {low})")
            f.do(f"call void @{_subtract(s, module)}({product}, {change}, {low})")
            f.do(f"call void @{_complete(s, module)}({product}, {mine}, {tau}, {low})")
    return s.end(f, module)


def _reflect(s: Tridiagonal, module: Module) -> str:
    """void f(ptr column, ptr spare, ptr tau, i64 row): the reflector of the column's rows from `row` on."""
    name = f"{s.name}_reflector"
    if name not in module.functions:
        f = Function(name, [("ptr", "column"), ("ptr", "spare"), ("ptr", "tau"), ("i64", "row")], attributes="noinline")
        store(f, s.p, reflector(f, s, "%column", "%row"), "%tau")
        f.do("ret void")
        module.add(f)
    return name


def _multiply(s: Tridiagonal, module: Module) -> str:
    """void f(ptr y, ptr stripes, ptr v, i64 number, i64 row): y = A v, from stripe `number` on; v begins at `row`.

    What lies below a stripe's square counts for its columns, and turned for its rows.
    """
    p = s.p
    name = f"{s.name}_multiply"
    if name in module.functions:
        return name
    parameters = [("ptr", "y"), ("ptr", "stripes"), ("ptr", "v"), ("i64", "number"), ("i64", "row")]
    f = Function(name, parameters, attributes="noinline")
    clear(f, offset(f, "%y", ("%number", p.stripe_row)), times(f, f.let(f"sub i64 {s.count}, %number"), p.stripe_row))
    together = min(_UNROLLED, p.lanes)
    shares = f.alloca(p.vector, p.lanes)
    start = f.let(f"and i64 %row, {-_UNROLLED}")

    def rows(stripe: str, row: str, sums: Sequence[str], mine: Sequence[str], target: str) -> list[str]:
        """Adds rows' products to the columns' sums; `mine`: v's there, by which `target` gets the rows' products."""
        following: list[str] = []
        for i in range(together):
            factor = spread(f, p, load(f, p, offset(f, "%v", (row, p.bytes), i * p.bytes)))
            values = [x for (x,) in panels.load_row(f, p, offset(f, stripe, (row, p.stripe_row), i * p.stripe_row))]
            before = sums[i * p.vectors : (i + 1) * p.vectors]
            following += [fma(f, p, x, factor, c) for x, c in zip(values, before, strict=True)]
            if mine:
                share = everywhere(p, 0.0)
                for x, y in zip(values, mine, strict=True):
                    share = fma(f, p, x, y, share)
                store(f, p, share, offset(f, target, i * p.lanes * p.bytes), p.lanes)
        return following

    with f.loop("%number", str(s.count)) as stripe:
        place = offset(f, "%stripes", (stripe.index, s.stripe_bytes))
        first, goal = times(f, stripe.index, p.width), offset(f, "%y", (stripe.index, p.stripe_row))
        mine = [x for (x,) in panels.load_row(f, p, offset(f, "%v", (stripe.index, p.stripe_row)))]
        zeros = [(p.vector, everywhere(p, 0.0))] * (together * p.vectors)
        below = plus(f, first, p.width)
        with f.loop(greatest(f, start, first), below, together, carries=zeros) as row:
            row.next = rows(place, row.index, row.carried, (), "")
        carries = [(p.vector, x) for x in row.results]
        with f.loop(below, str(s.m.rows), p.lanes, carries=carries) as block:
            carries = [(p.vector, x) for x in block.carried]
            with f.loop("0", str(p.lanes), together, carries=carries) as row:
                target = offset(f, shares, (row.index, p.lanes * p.bytes))
                row.next = rows(place, plus(f, block.index, row.index), row.carried, mine, target)
            block.next = row.results
            added = [load(f, p, offset(f, shares, i * p.lanes * p.bytes), p.lanes) for i in range(p.lanes)]
            there = offset(f, "%y", (block.index, p.bytes))
            value = f.let(f"fadd {p.vector} {load(f, p, there, p.lanes)}, {_totals(f, p, added)}")
            store(f, p, value, there, p.lanes)
        for v in range(p.vectors):
            there = offset(f, goal, v * p.lanes * p.bytes)
            value = _sum_of(f, p, block.results[v :: p.vectors])
            store(f, p, f.let(f"fadd {p.vector} {load(f, p, there, p.lanes)}, {value}"), there, p.lanes)
    f.do("ret void")
    module.add(f)
    return name


def _totals(f: Function, p: Panels, vectors: Sequence[str]) -> str:
    """The sum of each vector's lanes: as many of them as there are lanes."""
    while len(vectors) > 1:
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        vectors = [_sum_of(f, p, [_every_other(f, p, a, b, i) for i in (0, 1)]) for a, b in pairs]
    return vectors[0]


def _every_other(f: Function, p: Panels, a: str, b: str, first: int) -> str:
    order = ", ".join(f"i32 {i}" for i in range(first, 2 * p.lanes, 2))
    return f.let(f"shufflevector {p.vector} {a}, {p.vector} {b}, <{p.lanes} x i32> <{order}>")


def _sum_of(f: Function, p: Panels, vectors: Sequence[str]) -> str:
    if len(vectors) == 1:
        return vectors[0]
    half = len(vectors) // 2
    a, b = _sum_of(f, p, vectors[:half]), _sum_of(f, p, vectors[half:])
    return f.let(f"fadd {p.vector} {a}, {b}")


def _subtract(s: Tridiagonal, module: Module) -> str:
    """void f(ptr y, ptr v, ptr w, ptr factors, i64 count, i64 row): y -= V a + W b from about `row` on.

    factors: (a, b) of each of the first `count` columns of V and W
    """
    p, column = s.p, s.tall.panel_column
    name = f"{s.name}_subtract"
    if name in module.functions:
        return name
    parameters = [("ptr", "y"), ("ptr", "v"), ("ptr", "w"), ("ptr", "factors"), ("i64", "count"), ("i64", "row")]
    f = Function(name, parameters, attributes="noinline")
    size = p.lanes * p.bytes
    low, end = aligned(f, p, "%row"), str(up(s.m.rows, p.lanes))
    for vectors in (_UNROLLED, 1):
        count = f.let(f"sub nsw i64 {end}, {low}")
        left = f.let(f"urem i64 {count}, {vectors * p.lanes}")
        high = f.let(f"sub nsw i64 {end}, {left}")
        with f.loop(low, high, vectors * p.lanes) as row:
            places = [offset(f, x, (row.index, p.bytes)) for x in ("%y", "%v", "%w")]
            values = [load(f, p, offset(f, places[0], i * size), p.lanes) for i in range(vectors)]
            with f.loop("0", "%count", carries=[(p.vector, x) for x in values]) as step:
                sums = step.carried
                for i, place in enumerate(places[1:]):
                    line = offset(f, place, (step.index, column))
                    factor = load(f, p, offset(f, "%factors", (step.index, 2 * p.bytes), i * p.bytes))
                    minus = spread(f, p, f.let(f"fneg {p.scalar} {factor}"))
                    lines = [load(f, p, offset(f, line, j * size), p.lanes) for j in range(vectors)]
                    sums = [fma(f, p, x, minus, c) for x, c in zip(lines, sums, strict=True)]
                step.next = sums
            for i, value in enumerate(step.results):
                store(f, p, value, offset(f, places[0], i * size), p.lanes)
        low = high
    f.do("ret void")
    module.add(f)
    return name


def _dots(s: Tridiagonal, module: Module) -> str:
    """void f(ptr factors, ptr v, ptr w, ptr x, i64 count, i64 row): (W^T x, V^T x) of x's rows from `row` on.

    Of the first `count` columns and maybe a few more, which are nothing's.
    """
    p, column, together = s.p, s.tall.panel_column, 4
    name = f"{s.name}_dots"
    if name in module.functions:
        return name
    parameters = [("ptr", "factors"), ("ptr", "v"), ("ptr", "w"), ("ptr", "x"), ("i64", "count"), ("i64", "row")]
    f = Function(name, parameters, attributes="noinline")
    with f.loop("0", "%count", together) as step:
        places = [offset(f, x, (step.index, column), i * column) for i in range(together) for x in ("%w", "%v")]
        zeros = [(p.vector, everywhere(p, 0.0))] * len(places)
        with f.loop(aligned(f, p, "%row"), str(s.m.rows), p.lanes, carries=zeros) as row:
            x, *values = (load(f, p, offset(f, place, (row.index, p.bytes)), p.lanes) for place in ("%x", *places))
            row.next = [fma(f, p, x, y, c) for y, c in zip(values, row.carried, strict=True)]
        target = offset(f, "%factors", (step.index, 2 * p.bytes))
        for i, value in enumerate(row.results):
            store(f, p, total(f, p, value), offset(f, target, i * p.bytes))
    f.do("ret void")
    module.add(f)
    return name


def _complete(s: Tridiagonal, module: Module) -> str:
    """void f(ptr w, ptr v, ptr tau, i64 row): w = tau w - (tau^2 w^T v / 2) v, of the rows from `row` on."""
    p = s.p
    name = f"{s.name}_complete"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "w"), ("ptr", "v"), ("ptr", "tau"), ("i64", "row")], attributes="noinline")
    rows = Rows(f, s, "%row")

    def vector(array: str, row: str, mask: str) -> str:
        return masked(f, p, mask, load(f, p, offset(f, array, (row, p.bytes)), p.lanes))

    def add(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        return [fma(f, p, vector("%w", row, mask), vector("%v", row, mask), carried[0])]

    product = total(f, p, rows.each([(p.vector, everywhere(p, 0.0))], add, True)[0])
    tau = load(f, p, "%tau")
    half = f.let(f"fmul {p.scalar} {tau}, {float_constant(-0.5, p.scalar)}")
    share = spread(f, p, f.let(f"fmul {p.scalar} {half}, {f.let(f'fmul {p.scalar} {tau}, {product}')}"))
    factor = spread(f, p, tau)

    def change(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        scaled = f.let(f"fmul {p.vector} {vector('%w', row, mask)}, {factor}")
        value = fma(f, p, vector("%v", row, mask), share, scaled)
        store(f, p, value, offset(f, "%w", (row, p.bytes)), p.lanes)
        return []

    rows.each([], change, True)
    f.do("ret void")
    module.add(f)
    return name


# -- the rest


def update(s: Tridiagonal, module: Module) -> str:
    """The part that changes stripe `number` of those after stripe `step` by the panel."""
    p, column = s.p, s.tall.panel_column
    f = s.part("update")
    following = plus(f, "%step", 1)
    number = plus(f, following, "%number")
    stripe, left = s.stripe(f, number), times(f, number, p.width)
    v, w = s.column(f, "%step"), s.area(f, "w")
    rights = [f.alloca("i8", s.square) for _ in range(2)]
    with f.loop("0", str(p.width)) as step:
        for target, source in zip(rights, (w, v), strict=True):
            row = offset(f, source, (step.index, column), (left, p.bytes))
            goal = offset(f, target, (step.index, p.stripe_row))
            f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {goal}, ptr {row}, i64 {p.stripe_row}, i1 false)")
    change = panels.update(module, s.tall)
    with f.loop(left, str(s.m.rows), p.rows) as row:
        c = offset(f, stripe, (row.index, p.stripe_row))
        for a, b in zip((v, w), rights, strict=True):
            f.do(f"call void @{change}(ptr {c}, ptr {offset(f, a, (row.index, p.bytes))}, ptr {b}, i64 {p.width})")
    return s.end(f, module)


def reflector_block(s: Tridiagonal, module: Module) -> str:
    """The part that makes T and the stripe of V of stripe `number`."""
    f = s.part("block", is_cold=True)
    v = s.v_stripe(f, "%number")
    first = times(f, "%number", s.p.width)
    s.transpose(f, module, v, s.column(f, "%number"), first, False)
    s.make_factor(f, module, v, s.area(f, "taus"), "%number", True)
    return s.end(f, module)


def back(s: Tridiagonal, module: Module, f: Function, stripe: str) -> None:
    """Multiplies a stripe by Q."""
    with f.loop("0", str(s.factored)) as step:
        number = f.let(f"sub nsw i64 {s.factored - 1}, {step.index}")
        s.apply(f, module, s.v_stripe(f, number), number, stripe, True)
