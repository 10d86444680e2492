"""LU with partial pivoting (LAPACK's getrf): stripe by stripe, each changing those to its right (stripes.py).

A stripe is factored by columns; its rows of u are solved for and the rows below changed in every stripe beyond it. What
later pivots do to rows of l is done when they are copied to the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg import lu_lanes, panels
from hlokit.cpu.kernels.linalg.batch_lanes import chosen
from hlokit.cpu.kernels.linalg.panels import (
    clear,
    less_product,
    load,
    magnitude,
    offset,
    plus,
    spread,
    store,
    times,
)
from hlokit.cpu.kernels.linalg.stepped import Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, Stripes, masked
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant
from hlokit.cpu.target import Target

PIVOTS, INFO, SCRATCH = 2, 3, 4
"""The table's places, after operand and result: s32 from 1, and s32, the first zero pivot's number."""
_COLUMNS = 4
"""Columns that are changed together."""


def routine(m: Matrix, module: Module, target: Target) -> Routine:
    """The table: operand, result, pivots, info, scratch."""
    if not m.batch * m.least:
        return _nothing(m, module)
    batched = lu_lanes.in_lanes(m, module, target)
    if batched is not None:
        return batched
    s = Stripes("lu", m, target, 1, m.least)
    counts = range(s.count - 1, s.count - 1 - s.factored, -1) if s.count > s.factored else range(s.count - 1, 0, -1)
    work = m.rows * m.columns * (m.least + 8 * s.p.lanes) // (2 * s.p.lanes)
    steps = Stepped(s.name, m.batch, SCRATCH, s.memory, work, s.count, counts)
    factor = _factor(s, module)
    return steps.routine(
        module, s.pack(module), _first(s, module, factor), _step(s, module, factor), _unpack(s, module)
    )


def _nothing(m: Matrix, module: Module) -> Routine:
    f = Function(f"lu_nothing_{m.name}", PHASE)
    clear(f, table_pointer(f, INFO), str(4 * m.batch))
    f.do("ret void")
    module.add(f, exported=True)
    return Routine((Phase(f.name),))


def _first(s: Stripes, module: Module, factor: str) -> str:
    """The part that factors the first stripe."""
    f = s.part("first")
    f.do(f"store i32 0, ptr {_info(f)}, align 4")
    _factor_stripe(f, s, module, factor, "0")
    return s.end(f, module)


def _info(f: Function) -> str:
    return offset(f, table_pointer(f, INFO), ("%matrix", 4))


def _pivots(f: Function, s: Stripes) -> str:
    return offset(f, table_pointer(f, PIVOTS), ("%matrix", 4 * s.m.least))


def _factor_stripe(f: Function, s: Stripes, module: Module, factor: str, number: str) -> None:
    stripe, columns, first = s.stripe(f, number), s.column(f, number), times(f, number, s.p.width)
    if s.is_narrow:
        s.take(f, module)
    else:
        s.transpose(f, module, stripe, columns, first, True)
    counts = f"i64 {first}, i64 {s.steps_of(f, first)}, i64 {s.columns_of(f, first)}"
    f.do(f"call void @{factor}(ptr {columns}, ptr {_pivots(f, s)}, ptr {_info(f)}, {counts})")
    if s.is_narrow:
        s.give(f, module)
    else:
        s.transpose(f, module, stripe, columns, first, False)


def _step(s: Stripes, module: Module, factor: str) -> str:
    """The part that changes the stripe `number` beyond stripe `step`, and factors the next one."""
    p, tall = s.p, s.tall
    f = s.part("step")
    change, solve = panels.update(module, tall), panels.solve(module, tall, True)
    stripe = s.stripe(f, plus(f, plus(f, "%step", 1), "%number"))
    columns, first = s.column(f, "%step"), times(f, "%step", p.width)
    _exchange(f, s, module, stripe, first, plus(f, first, s.steps_of(f, first)))
    top = offset(f, stripe, (first, p.stripe_row))
    left = offset(f, columns, (first, p.bytes))
    end = least(f, plus(f, first, p.width), str(s.rows))
    with f.loop("0", f.let(f"sub nsw i64 {end}, {first}"), p.rows) as row:
        c, a = offset(f, top, (row.index, p.stripe_row)), offset(f, left, (row.index, p.bytes))
        f.do(f"call void @{change}(ptr {c}, ptr {a}, ptr {top}, i64 {row.index})")
        corner = offset(f, a, (row.index, tall.panel_column))
        f.do(f"call void @{solve}(ptr {c}, ptr {corner}, ptr null, i64 0)")
    with f.loop(end, str(s.rows), p.rows) as row:
        c, a = offset(f, stripe, (row.index, p.stripe_row)), offset(f, columns, (row.index, p.bytes))
        f.do(f"call void @{change}(ptr {c}, ptr {a}, ptr {top}, i64 {p.width})")
    following = plus(f, "%step", 1)
    is_next = f.let(f"icmp slt i64 {following}, {s.factored}")
    with f.when(f.let(f"and i1 {is_next}, {f.let('icmp eq i64 %number, 0')}")):
        _factor_stripe(f, s, module, factor, following)
    return s.end(f, module)


def _unpack(s: Stripes, module: Module) -> str:
    def later_pivots(f: Function, stripe: str) -> None:
        first = least(f, times(f, plus(f, "%number", 1), s.p.width), str(s.m.least))
        _exchange(f, s, module, stripe, first, str(s.m.least))

    return s.unpack(module, later_pivots)


def _exchange(f: Function, s: Stripes, module: Module, stripe: str, first: str, last: str) -> None:
    """Exchanges a stripe's rows as the pivots `first` to `last` say."""
    p = s.p
    name = f"exchange_rows_{p.name}"
    if name not in module.functions:
        g = Function(
            name, [("ptr", "stripe"), ("ptr", "pivots"), ("i64", "first"), ("i64", "last")], attributes="noinline"
        )
        with g.loop("%first", "%last") as row:
            pivot = g.let(f"load i32, ptr {offset(g, '%pivots', (row.index, 4))}, align 4")
            other = g.let(f"sub nsw i64 {g.let(f'sext i32 {pivot} to i64')}, 1")
            with g.when(g.let(f"icmp ne i64 {other}, {row.index}")):
                places = [offset(g, "%stripe", (x, p.stripe_row)) for x in (row.index, other)]
                rows = [panels.load_row(g, p, place) for place in places]
                for place, values in zip(places, reversed(rows), strict=True):
                    panels.store_row(g, p, values, place)
        g.do("ret void")
        module.add(g)
    f.do(f"call void @{name}(ptr {stripe}, ptr {_pivots(f, s)}, i64 {first}, i64 {last})")


# -- a stripe by columns


def _factor(s: Stripes, module: Module) -> str:
    """void f(ptr columns, ptr pivots, ptr info, i64 first, i64 steps, i64 count): factors columns from row `first` on.

    `steps` of the `count` columns have pivots.
    """
    p, column = s.p, s.tall.panel_column
    parameters = [("ptr", "columns"), ("ptr", "pivots"), ("ptr", "info")]
    parameters += [("i64", "first"), ("i64", "steps"), ("i64", "count")]
    f = Function(f"lu_columns_{s.tall.name}", parameters, attributes="noinline")
    with f.loop("0", "%steps") as step:
        row = plus(f, "%first", step.index)
        here = offset(f, "%columns", (step.index, column))
        pivot_row = _pivot_row(f, s, here, row)
        number = f.let(f"trunc i64 {plus(f, pivot_row, 1)} to i32")
        f.do(f"store i32 {number}, ptr {offset(f, '%pivots', (row, 4))}, align 4")
        with f.when(f.let(f"icmp ne i64 {pivot_row}, {row}")), f.loop("0", "%count") as other:
            line = offset(f, "%columns", (other.index, column))
            places = [offset(f, line, (x, p.bytes)) for x in (row, pivot_row)]
            values = [load(f, p, place) for place in places]
            for place, value in zip(places, reversed(values), strict=True):
                store(f, p, value, place)
        pivot = load(f, p, offset(f, here, (row, p.bytes)))
        is_pivot = f.let(f"fcmp une {p.scalar} {pivot}, {float_constant(0.0, p.scalar)}")
        panels.note_pivot(f, is_pivot, "%info", plus(f, row, 1))
        below = Rows(f, s, plus(f, row, 1))
        _scale(f, s, here, pivot, is_pivot, below)
        first = plus(f, step.index, 1)
        whole = plus(f, first, f.let(f"and i64 {f.let(f'sub nsw i64 %count, {first}')}, {-_COLUMNS}"))
        with f.loop(first, whole, _COLUMNS) as other:
            _eliminate(f, s, here, offset(f, "%columns", (other.index, column)), _COLUMNS, row, below)
        with f.loop(whole, "%count") as other:
            _eliminate(f, s, here, offset(f, "%columns", (other.index, column)), 1, row, below)
    f.do("ret void")
    module.add(f)
    return f.name


def _pivot_row(f: Function, s: Stripes, column: str, row: str) -> str:
    """The row of the first largest element of a column, from `row` on."""
    p = s.p
    integer, flags = f"i{8 * p.bytes}", f"<{p.lanes} x i1>"
    integers = f"<{p.lanes} x {integer}>"

    def spread_integer(value: str) -> str:
        narrow = f.let(f"trunc i64 {value} to i32") if p.bytes == 4 else value
        first = f.let(f"insertelement {integers} poison, {integer} {narrow}, i32 0")
        return f.let(f"shufflevector {integers} {first}, {integers} poison, <{p.lanes} x i32> zeroinitializer")

    counted = ", ".join(f"{integer} {i}" for i in range(p.lanes))

    def larger(first: str, mask: str, carried: Sequence[str]) -> list[str]:
        most, places = carried
        size = magnitude(f, p, load(f, p, offset(f, column, (first, p.bytes)), p.lanes))
        numbers = f.let(f"add {integers} {spread_integer(first)}, <{counted}>")
        is_larger = f.let(f"fcmp ogt {p.vector} {size}, {most}")
        is_larger = f.let(f"and {flags} {mask}, {is_larger}") if mask else is_larger
        place = f.let(f"select {flags} {is_larger}, {integers} {numbers}, {integers} {places}")
        return [chosen(f, p, is_larger, size, most), place]

    start = magnitude(f, p, spread(f, p, load(f, p, offset(f, column, (row, p.bytes)))))
    most, places = Rows(f, s, row).each([(p.vector, start), (integers, spread_integer(row))], larger)
    largest = f.let(f"call {p.scalar} @llvm.vector.reduce.fmax.{p.suffix}({p.vector} {most})")
    less = f.let(f"fcmp olt {p.vector} {most}, {spread(f, p, largest)}")
    never = f"splat ({integer} {2**31 - 1})"
    candidates = f.let(f"select {flags} {less}, {integers} {never}, {integers} {places}")
    found = f.let(f"call {integer} @llvm.vector.reduce.smin.v{p.lanes}{integer}({integers} {candidates})")
    return f.let(f"sext {integer} {found} to i64") if p.bytes == 4 else found


def _scale(f: Function, s: Stripes, column: str, pivot: str, is_pivot: str, below: Rows) -> None:
    """Divides a column's elements below the pivot, unless the pivot is zero."""
    p, reach = s.p, 100 if s.p.bytes == 4 else 900
    one = float_constant(1.0, p.scalar)

    def select(condition: str, a: str, b: str) -> str:
        return f.let(f"select i1 {condition}, {p.scalar} {a}, {p.scalar} {b}")

    # a power of two keeps the reciprocals of tiny pivots finite
    size = f.let(f"call {p.scalar} @llvm.fabs.f{8 * p.bytes}({p.scalar} {pivot})")
    tiny = f.let(f"fcmp olt {p.scalar} {size}, {float_constant(2.0**-reach, p.scalar)}")
    scale = select(tiny, float_constant(2.0**reach, p.scalar), one)
    divisor = select(is_pivot, f.let(f"fmul {p.scalar} {pivot}, {scale}"), one)
    factors = [spread(f, p, x) for x in (scale, f.let(f"fdiv {p.scalar} {one}, {divisor}"))]

    def scaled(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        place = offset(f, column, (row, p.bytes))
        old = value = load(f, p, place, p.lanes)
        for factor in factors:
            value = f.let(f"fmul {p.vector} {value}, {factor}")
        store(f, p, masked(f, p, mask, value, old), place, p.lanes)
        return []

    below.each([], scaled)


def _eliminate(f: Function, s: Stripes, left: str, columns: str, count: int, row: str, below: Rows) -> None:
    """Takes column `left` times their elements in `row` from that many columns, below that row."""
    p, column = s.p, s.tall.panel_column
    lines = [offset(f, columns, c * column) for c in range(count)]
    upper = [spread(f, p, load(f, p, offset(f, line, (row, p.bytes)))) for line in lines]

    def eliminate(first: str, mask: str, carried: Sequence[str]) -> list[str]:
        value = load(f, p, offset(f, left, (first, p.bytes)), p.lanes)
        for line, u in zip(lines, upper, strict=True):
            place = offset(f, line, (first, p.bytes))
            x = load(f, p, place, p.lanes)
            store(f, p, masked(f, p, mask, less_product(f, p, [x], [value], [u])[0], x), place, p.lanes)
        return []

    below.each([], eliminate)
