"""LU with partial pivoting (LAPACK's getrf): stripe by stripe, each changing those to its right (stripes.py).

A stripe is factored by columns; its rows of u are solved for and the rows below changed in every stripe beyond it. What
later pivots do to rows of l is done when they are copied to the result.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg import lu_lanes
from hlokit.cpu.kernels.linalg.empty import InfoAlone
from hlokit.cpu.kernels.linalg.panels import by_groups, multiply_subtract, note_pivot, rank_update, substitution
from hlokit.cpu.kernels.linalg.stepped import Part, Parts, Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, Stripes, masked, pivot_factors
from hlokit.cpu.kernels.routine import Routine, RoutinePlan
from hlokit.cpu.llvm import I32, I64, POINTER, Index, Module, Pointer, Value
from hlokit.cpu.target import Target

PIVOTS, INFO, SCRATCH = 2, 3, 4
"""The table's places, after operand and result: s32 from 1, and s32, the first zero pivot's number."""
_COLUMNS = (4, 1)
"""Columns that are changed together: so many while there are as many, then one by one."""


def plan_of(m: Matrix, target: Target) -> RoutinePlan:
    """The plan for a batch. The table: operand, result, pivots, info, scratch."""
    if not m.batch * m.least:
        return InfoAlone(f"lu_nothing_{m.name}", INFO, m.batch)
    return lu_lanes.plan_of(m, target) or LuPlan(Stripes("lu", m, target, 1, m.least))


@dataclass(frozen=True)
class LuPlan:
    """Factorization by stripes."""

    s: Stripes

    def write(self, module: Module) -> Routine:
        s, m = self.s, self.s.m
        last = s.count - 1
        counts = range(last, last - s.factored, -1) if s.count > s.factored else range(last, 0, -1)
        work = m.rows * m.columns * (m.least + 8 * s.p.lanes) // (2 * s.p.lanes)
        steps = Stepped(s.name, m.batch, SCRATCH, s.memory, work, s.count, counts)
        factor = _factor(s, module)
        parts = Parts(s.pack(module), _first(s, module, factor), _step(s, module, factor), _unpack(s, module))
        return steps.routine(module, parts)


def _first(s: Stripes, module: Module, factor: str) -> str:
    """The part that factors the first stripe."""
    f = s.part("first")
    _info(f).store(0)
    _factor_stripe(f, s, module, factor, f.index(0))
    return module.end(f)


def _info(f: Part) -> Pointer:
    return f.array(INFO, 4, I32)


def _pivots(f: Part, s: Stripes) -> Pointer:
    return f.array(PIVOTS, 4 * s.m.least, I32)


def _factor_stripe(f: Part, s: Stripes, module: Module, factor: str, number: Index) -> None:
    first = number * s.p.width
    columns = s.load_columns(f, module, number)
    f.call(factor, columns, _pivots(f, s), _info(f), first, s.steps_of(first), s.columns_of(first))
    s.store_columns(f, module, columns, number)


def _step(s: Stripes, module: Module, factor: str) -> str:
    """The part that changes the stripe `number` beyond stripe `step`, and factors the next one."""
    p, tall = s.p, s.tall
    f = s.part("step")
    update, solve = rank_update(module, tall), substitution(module, tall, True)
    following = f.step + 1
    stripe, columns, first = s.stripe(f, following + f.number), s.columns(f, f.step), f.step * p.width
    _exchange(f, s, module, stripe, first, first + s.steps_of(first))
    u, left = stripe + first * p.stripe_row, columns[first]
    end = (first + p.width).smin(s.rows)
    with f.loop(0, end - first, p.rows) as row:  # rows of u: forward substitution
        rows, factors = u + row.index * p.stripe_row, left[row.index]
        f.call(update, rows, factors, u, row.index)
        f.call(solve, rows, factors + row.index * s.column_bytes, None, 0)
    with f.loop(end, s.rows, p.rows) as row:  # trailing update
        f.call(update, stripe + row.index * p.stripe_row, columns[row.index], u, p.width)
    with f.when((following < s.factored) & f.number.eq(0)):
        _factor_stripe(f, s, module, factor, following)
    return module.end(f)


def _unpack(s: Stripes, module: Module) -> str:
    def later_pivots(f: Part, stripe: Pointer) -> None:
        first = ((f.number + 1) * s.p.width).smin(s.m.least)
        _exchange(f, s, module, stripe, first, f.index(s.m.least))

    return s.unpack(module, later_pivots)


def _exchange(f: Part, s: Stripes, module: Module, stripe: Pointer, first: Index, last: Index) -> None:
    """Exchanges a stripe's rows as the pivots `first` to `last` say."""
    name = f"exchange_rows_{s.p.name}"
    if name not in module.functions:
        _write_exchange(name, s, module)
    f.call(name, stripe, _pivots(f, s), first, last)


def _write_exchange(name: str, s: Stripes, module: Module) -> None:
    p = s.p
    f, (stripe, pivots, first, last) = subroutine(name, p.scalar, stripe=POINTER, pivots=POINTER, first=I64, last=I64)
    with f.loop(first, last) as row:
        other = f.index(pivots.to(I32)[row.index].load().sext(64)) - 1
        with f.when(other.ne(row.index)):
            places = [stripe + x * p.stripe_row for x in (row.index, other)]
            rows = [p.load_row(place) for place in places]
            for place, values in zip(places, reversed(rows), strict=True):
                p.store_row(values, place)
    module.end(f)


# -- a stripe by columns


def _factor(s: Stripes, module: Module) -> str:
    """The function (columns, pivots, info, first, steps, count) that factors columns from row `first` on.

    `steps` of the `count` columns have pivots.
    """
    counts = {"first": I64, "steps": I64, "count": I64}
    f, (columns, pivots, info, first, steps, count) = subroutine(
        f"lu_columns_{s.tall.name}", s.p.scalar, columns=POINTER, pivots=POINTER, info=POINTER, **counts
    )
    with f.loop(0, steps) as step:
        row = first + step.index
        column = columns + step.index * s.column_bytes
        pivot_row = _pivot_row(s, column, row)
        pivots.to(I32)[row].store((pivot_row + 1).trunc(32))
        with f.when(pivot_row.ne(row)), f.loop(0, count) as other:
            line = columns + other.index * s.column_bytes
            places = line[row], line[pivot_row]
            values = [place.load() for place in places]
            for place, value in zip(places, reversed(values), strict=True):
                place.store(value)
        pivot = column[row].load()
        is_zero = pivot.eq(0.0)
        note_pivot(~is_zero, info, row + 1)
        below = Rows(s, row + 1)
        _scale(s, column, pivot_factors(pivot, is_zero), below)

        def eliminate(other: Index, together: int, column: Pointer = column, row: Index = row) -> None:
            _eliminate(s, column, columns + other * s.column_bytes, together, row, below)

        by_groups(step.index + 1, count, _COLUMNS, eliminate)
    return module.end(f)


def _pivot_row(s: Stripes, column: Pointer, row: Index) -> Index:
    """The row of the first largest element of a column, from `row` on."""
    f, lanes = row.fn, s.p.lanes
    integers = s.p.vector.integer

    def spread(number: Index) -> Value:
        return number.trunc(integers.bits).splat(lanes)

    def larger(first: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        most, places = carried
        size = column[first].load(lanes).abs()
        numbers = spread(first) + f.lane_numbers(integers)
        is_larger = (size > most) | (size.eq(most) & (numbers < places))  # the last vector comes before those between
        is_larger = is_larger if mask is None else mask & is_larger
        places = is_larger.select(numbers, places)
        return [is_larger.select(size, most), places]

    start = column[row].load().splat(lanes).abs()
    most, places = Rows(s, row).each([start, spread(row)], larger)
    less = most < most.reduce("fmax").splat(lanes)
    return f.index(less.select(f.constant(2**31 - 1, integers), places).reduce("smin").sext(64))


def _scale(s: Stripes, column: Pointer, factors: tuple[Value, Value], below: Rows) -> None:
    """Multiplies a column's elements below the pivot by both factors."""
    spread = [factor.splat(s.p.lanes) for factor in factors]

    def scale(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        value = column[row].load(s.p.lanes)
        column[row].store(masked(mask, value * spread[0] * spread[1], value))
        return []

    below.each([], scale)


def _eliminate(s: Stripes, left: Pointer, columns: Pointer, count: int, row: Index, below: Rows) -> None:
    """Takes column `left` times their elements in `row` from that many columns, below that row."""
    lanes = s.p.lanes
    lines = [columns + c * s.column_bytes for c in range(count)]
    upper = [line[row].load().splat(lanes) for line in lines]

    def eliminate(first: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        factor = left[first].load(lanes)
        for line, u in zip(lines, upper, strict=True):
            value = line[first].load(lanes)
            line[first].store(masked(mask, multiply_subtract([value], [factor], [u])[0], value))
        return []

    below.each([], eliminate)
