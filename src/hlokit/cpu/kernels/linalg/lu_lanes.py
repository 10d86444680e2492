"""LU of many small matrices with partial pivoting, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, MatrixInLanes, are_worth_it, note_first
from hlokit.cpu.kernels.linalg.panels import PanelShape, by_groups, multiply_subtract, panels_for
from hlokit.cpu.kernels.linalg.stripes import Matrix, pivot_factors
from hlokit.cpu.kernels.routine import PHASE, Routine
from hlokit.cpu.llvm import POINTER, Function, Index, Module, Pointer, Type, Value
from hlokit.cpu.target import Target

_COLUMNS = (4, 1)
"""Columns that go down the rows together: so many while there are as many, then one by one."""


def plan_of(s: Matrix, target: Target) -> LuLanesPlan | None:
    """The plan; None for too few or too large matrices. The table: that of lu.py."""
    p = panels_for(s.dtype, target)
    return LuLanesPlan(s, p) if are_worth_it(p, s.batch, s.rows * s.columns, costs.LANE_LU_ELEMENTS) else None


@dataclass(frozen=True)
class LuLanesPlan:
    """Scratch of a chunk: the group's elements, pivots as integers of the elements' width, info of every lane."""

    s: Matrix
    p: PanelShape

    def write(self, module: Module) -> Routine:
        return self.groups.routine(_phase(self, module), self.scratch)

    @property
    def groups(self) -> Groups:
        return Groups(self.p, self.s.batch, 2 * self.s.rows * self.s.columns * (self.s.least + 2))

    @property
    def a(self) -> MatrixInLanes:
        return MatrixInLanes(self.p, self.s.rows, self.s.columns)

    @property
    def info_at(self) -> int:
        return self.a.bytes + self.s.least * self.p.vector_bytes

    @property
    def scratch(self) -> int:
        return self.info_at + self.p.vector_bytes

    @property
    def integers(self) -> Type:
        return self.p.vector.integer

    def pivots(self, memory: Pointer) -> Pointer:
        return (memory + self.a.bytes).to(self.integers.element, 4)

    def info(self, memory: Pointer) -> Pointer:
        return (memory + self.info_at).to(self.integers.element, 4)

    def spread(self, number: Index) -> Value:
        """An i64 in every lane."""
        return number.trunc(self.integers.bits).splat(self.p.lanes)


def _phase(plan: LuLanesPlan, module: Module) -> str:
    s, groups = plan.s, plan.groups
    f = Function(f"lu_lanes_{s.name}", PHASE)
    factor = _factor(plan, module)
    operand, result, pivots, info, scratch = (f.table(i, plan.p.scalar) for i in range(5))
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(module, first, (operand, s.bytes), plan.a.scalars, memory, into=True)
        f.call(factor, memory)
        groups.transpose(module, first, (result, s.bytes), plan.a.scalars, memory, into=False)
        groups.hand_out(first, plan.pivots(memory), pivots, s.least)
        groups.hand_out(first, plan.info(memory), info)
    return module.end(f, exported=True)


def _factor(plan: LuLanesPlan, module: Module) -> str:
    """The function (memory) that factors the group."""
    s, p = plan.s, plan.p
    f, (memory,) = subroutine(f"lu_lanes_factor_{s.name}", p.scalar, memory=POINTER)
    plan.info(memory).store(f.constant(0, plan.integers))
    with f.loop(0, s.least) as loop:
        step = loop.index
        pivots = _pivot_rows(plan, memory, step)
        (plan.pivots(memory) + step * p.vector_bytes).store(pivots + 1)

        def swap(column: Index, count: int, step: Index = step, pivots: Value = pivots) -> None:
            _swap(plan, memory, step, column, count, pivots)

        def eliminate(column: Index, count: int, step: Index = step) -> None:
            _eliminate(plan, memory, step, column, count)

        moved = pivots ^ plan.spread(step)
        with f.when(moved.reduce("or").ne(0)):
            by_groups(f.index(0), s.columns, _COLUMNS, swap)
        _scale(plan, memory, step)
        by_groups(step + 1, s.columns, _COLUMNS, eliminate)
    return module.end(f)


def _pivot_rows(plan: LuLanesPlan, memory: Pointer, step: Index) -> Value:
    """The row of the first largest element in every lane, from the diagonal down."""
    start = plan.a.element(memory, step, step).load(plan.p.lanes).abs()
    with step.fn.loop(step + 1, plan.s.rows, carries=[start, plan.spread(step)]) as row:
        most, rows = row.carried
        size = plan.a.element(memory, row.index, step).load(plan.p.lanes).abs()
        larger = size > most
        row.next = [larger.select(size, most), larger.select(plan.spread(row.index), rows)]
    return row.results[1]


def _swap(plan: LuLanesPlan, memory: Pointer, step: Index, column: Index, count: int, pivots: Value) -> None:
    """Exchanges row `step` and every lane's pivot row."""
    lanes = plan.p.lanes
    top = plan.a.element(memory, step, column)
    tops = [top[c * lanes] for c in range(count)]
    old = [place.load(lanes) for place in tops]
    with step.fn.loop(step + 1, plan.s.rows, carries=old) as row:
        is_pivot = pivots.eq(plan.spread(row.index))
        line = plan.a.element(memory, row.index, column)
        for c in range(count):
            value = line[c * lanes].load(lanes)
            line[c * lanes].store(is_pivot.select(old[c], value))
            row.next.append(is_pivot.select(value, row.carried[c]))
    for place, value in zip(tops, row.results, strict=True):
        place.store(value)


def _scale(plan: LuLanesPlan, memory: Pointer, step: Index) -> None:
    """Divides the column below the pivot; notes the lanes whose pivot is zero."""
    lanes = plan.p.lanes
    pivot = plan.a.element(memory, step, step).load(lanes)
    is_zero = pivot.eq(0.0)
    note_first(plan.info(memory), is_zero, plan.spread(step + 1))
    scale, reciprocal = pivot_factors(pivot, is_zero)
    with step.fn.loop(step + 1, plan.s.rows) as row:
        place = plan.a.element(memory, row.index, step)
        place.store(place.load(lanes) * scale * reciprocal)


def _eliminate(plan: LuLanesPlan, memory: Pointer, step: Index, column: Index, count: int) -> None:
    """Takes the pivot row times the column's elements from the rows below."""
    lanes = plan.p.lanes
    top = plan.a.element(memory, step, column)
    upper = [top[c * lanes].load(lanes) for c in range(count)]
    with step.fn.loop(step + 1, plan.s.rows) as row:
        left = plan.a.element(memory, row.index, step).load(lanes)
        line = plan.a.element(memory, row.index, column)
        for c, u in enumerate(upper):
            place = line[c * lanes]
            place.store(multiply_subtract([place.load(lanes)], [left], [u])[0])
