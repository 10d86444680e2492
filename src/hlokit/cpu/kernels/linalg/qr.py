"""Householder's QR (LAPACK's geqrf): stripe by stripe, each changing those to its right (stripes.py, reflectors.py)."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg import qr_lanes
from hlokit.cpu.kernels.linalg.panels import by_groups, multiply_subtract
from hlokit.cpu.kernels.linalg.reflectors import Householder, Reflecting, householder
from hlokit.cpu.kernels.linalg.stepped import Part, Parts, Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, masked
from hlokit.cpu.kernels.routine import EmptyPlan, Routine, RoutinePlan
from hlokit.cpu.llvm import I64, POINTER, Index, Module, Pointer, Value
from hlokit.cpu.target import Target

TAUS, SCRATCH = 2, 3
"""The table's places, after operand and result."""
_COLUMNS = (8, 2, 1)
"""Columns that are changed together: so many while there are as many, then fewer."""


def plan_of(m: Matrix, target: Target) -> RoutinePlan:
    """The plan for a batch. The table: operand, result (r, v below its diagonal), factors of reflectors, scratch."""
    if not m.batch * m.least:
        return EmptyPlan()
    return qr_lanes.factorization(m, target) or QrPlan(Reflecting("qr", m, target, 1, m.least))


@dataclass(frozen=True)
class QrPlan:
    """Factorization by stripes."""

    s: Reflecting

    def write(self, module: Module) -> Routine:
        s = self.s
        last = s.count - s.factored
        counts = range(s.count - 1, last - 1, -1) if last else range(s.count - 1, 0, -1)
        steps = Stepped(s.name, s.m.batch, SCRATCH, s.memory, work_of(s), s.count, counts)
        factor = _factor(s, module)
        parts = Parts(s.pack(module), _first(s, module, factor), _step(s, module, factor), _unpack(s, module))
        return steps.routine(module, parts)


def work_of(s: Reflecting) -> int:
    """Vector operations that a matrix takes."""
    return s.m.rows * s.m.columns * (2 * s.steps + 8 * s.p.lanes) // s.p.lanes


def _first(s: Reflecting, module: Module, factor: str) -> str:
    """The part that factors the first stripe."""
    f = s.part("first")
    _factor_stripe(f, s, module, factor, f.index(0))
    return module.end(f)


def _factor_stripe(f: Part, s: Reflecting, module: Module, factor: str, number: Index) -> None:
    """Factors a stripe, hands it out, and makes the block reflector of it."""
    first, stripe = number * s.p.width, s.stripe(f, number)
    columns = s.load_columns(f, module, number)
    taus = f.array(TAUS, s.m.least * s.p.bytes)
    f.call(factor, columns, s.spare(f, number), taus, first, s.steps_of(first), s.columns_of(first))
    s.store_columns(f, module, columns, number)
    if s.is_narrow:
        return
    s.write(f, module, stripe, number)
    if s.count > 1:
        with f.when(number < s.count - 1):
            s.clean(module, columns, stripe, first)
            s.make_factor(f, module, stripe, taus, number, False)


def _step(s: Reflecting, module: Module, factor: str) -> str:
    """The part that changes the stripe `number` beyond stripe `step`, and factors the next one."""
    f = s.part("step")
    following = f.step + 1
    s.apply(f, module, s.stripe(f, f.step), f.step, s.stripe(f, following + f.number), False)
    with f.when((following < s.factored) & f.number.eq(0)):
        _factor_stripe(f, s, module, factor, following)
    return module.end(f)


def _unpack(s: Reflecting, module: Module) -> str:
    """The part that hands out the stripes that are not factored."""
    f = s.part("unpack")
    with f.when(f.number >= s.factored):
        s.write(f, module, s.stripe(f, f.number), f.number)
    return module.end(f)


# -- a stripe by columns


def _factor(s: Reflecting, module: Module) -> str:
    """The function (columns, spare, taus, first, steps, count) that factors columns from row `first` on.

    `steps` of the `count` columns have reflectors; `spare` gets one after the other, as a whole column.
    """
    counts = {"first": I64, "steps": I64, "count": I64}
    f, (columns, spare, taus, first, steps, count) = subroutine(
        f"qr_columns_{s.tall.name}", s.p.scalar, columns=POINTER, spare=POINTER, taus=POINTER, **counts
    )
    with f.loop(0, steps) as step:
        row = first + step.index
        tau = reflector(s, columns + step.index * s.column_bytes, spare, row)
        taus[row].store(tau)
        reflect(s, module, columns, spare, tau, row, step.index + 1, count)
    return module.end(f)


def reflect(
    s: Reflecting, module: Module, columns: Pointer, v: Pointer, tau: Value, row: Index, low: Index, high: Index | int
) -> None:
    """Applies the reflector of v to the columns `low` to `high`, from row `row` on."""

    def change(number: Index, count: int) -> None:
        row.fn.call(_reflect(s, module, count), columns + number * s.column_bytes, v, tau, row)

    by_groups(low, high, _COLUMNS, change)


def _reflect(s: Reflecting, module: Module, count: int) -> str:
    """The function (columns, v, tau, row): columns -= v tau (v^T columns), from row `row` on."""
    p = s.p
    name = f"reflect_columns_{count}_{s.tall.name}_{s.m.rows}"
    if name in module.functions:
        return name
    f, (columns, v, tau, row) = subroutine(name, p.scalar, columns=POINTER, v=POINTER, tau=p.scalar, row=I64)
    lines = [columns + c * s.column_bytes for c in range(count)]

    def vectors(row: Index, mask: Value | None) -> tuple[Value, list[Value]]:
        """The reflector's, zeros where its rows are not, and the columns'."""
        return masked(mask, v[row].load(p.lanes)), [line[row].load(p.lanes) for line in lines]

    def add(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        x, values = vectors(row, mask)
        return [x.fmuladd(masked(mask, y), c) for y, c in zip(values, carried, strict=True)]

    rows = Rows(s, row)
    sums = rows.each([f.constant(0.0, p.vector)] * count, add)
    is_identity = tau.eq(0.0)  # of infinite columns too
    factors = [is_identity.select(f.constant(0.0, p.scalar), x.sum() * tau).splat(p.lanes) for x in sums]

    def subtract(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        x, values = vectors(row, mask)
        for line, y, factor in zip(lines, values, factors, strict=True):
            line[row].store(masked(mask, multiply_subtract([y], [x], [factor])[0], y))
        return []

    rows.each([], subtract)
    return module.end(f)


def reflector(s: Reflecting, column: Pointer, spare: Pointer, row: Index) -> Value:
    """Makes the reflector of a column's rows from `row` on: v below it, r there; v whole in `spare`. Gives tau."""
    p, alpha, below = s.p, column[row].load(), Rows(s, row + 1)
    zeros = row.fn.constant(0.0, p.vector)

    def squares_of(scale: Value | None) -> Value:
        """The sum of the squares below, each element times the scale."""
        factor = scale.splat(p.lanes) if scale is not None else None

        def add(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
            x = masked(mask, column[row].load(p.lanes))
            x = x * factor if factor is not None else x
            return [x.fmuladd(x, carried[0])]

        return below.each([zeros], add, is_short=scale is not None)[0].sum()

    def largest() -> Value:
        def larger(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
            size = masked(mask, column[row].load(p.lanes).abs())
            return [(size > carried[0]).select(size, carried[0])]

        return below.each([zeros], larger, is_short=True)[0].reduce("fmax").maxnum(alpha.abs())

    squares = squares_of(None)
    h = householder(alpha, squares, squares + alpha * alpha, largest, squares_of, lambda s, a: s + a * a)
    _scale_below(s, column, spare, row, below, h)
    column[row].store(h.beta)
    spare[row].store(1.0)
    return h.tau


def _scale_below(s: Reflecting, column: Pointer, spare: Pointer, row: Index, below: Rows, h: Householder) -> None:
    """Makes v of a column's elements `below` the row; `spare` gets them, with zeros before."""
    lanes = s.p.lanes
    factors = [factor.splat(lanes) for factor in (h.scale, h.factor)]
    spare[row & -lanes].store(row.fn.constant(0.0, s.p.vector))

    def scale(row: Index, mask: Value | None, carried: list[Value]) -> list[Value]:
        old = column[row].load(lanes)
        value = old * factors[0] * factors[1]
        spare[row].store(masked(mask, value))
        column[row].store(masked(mask, value, old))
        return []

    below.each([], scale)
