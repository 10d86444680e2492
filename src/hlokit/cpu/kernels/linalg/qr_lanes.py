"""QR of many small matrices, and the products of their reflectors, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, MatrixInLanes, are_worth_it, room
from hlokit.cpu.kernels.linalg.panels import PanelShape, by_groups, multiply_subtract, panels_for
from hlokit.cpu.kernels.linalg.reflectors import householder
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.routine import PHASE, Routine
from hlokit.cpu.llvm import POINTER, Function, Index, Module, Pointer, Value
from hlokit.cpu.target import Target

_COLUMNS = (4, 1)
"""Columns that go down the rows together: so many while there are as many, then fewer."""


def factorization(m: Matrix, target: Target) -> QrLanesPlan | None:
    """The plan; None for too few or too large matrices. The table: that of qr.py."""
    return _plan("qr", m, m.least, target)


def product(m: Matrix, reflectors: int, target: Target) -> QrLanesPlan | None:
    """The plan; None for too few or too large matrices. The table: that of qr_product.py."""
    return _plan("qr_product", m, reflectors, target)


def _plan(kind: str, m: Matrix, steps: int, target: Target) -> QrLanesPlan | None:
    p = panels_for(m.dtype, target)
    is_worth_it = are_worth_it(p, m.batch, m.rows * m.columns, costs.LANE_QR_ELEMENTS)
    return QrLanesPlan(kind, m, steps, p) if is_worth_it else None


@dataclass(frozen=True)
class QrLanesPlan:
    """Scratch of a chunk: the group's elements, then the reflectors' factors, each as whole vectors of lanes.

    kind   "qr", which makes the factors, or "qr_product", whose operands they are
    steps  reflectors
    """

    kind: str
    m: Matrix
    steps: int
    p: PanelShape

    def write(self, module: Module) -> Routine:
        return self.groups.routine(_phase(self, module), self.scratch)

    @property
    def groups(self) -> Groups:
        return Groups(self.p, self.m.batch, 2 * self.m.rows * self.m.columns * (self.steps + 2))

    @property
    def a(self) -> MatrixInLanes:
        return MatrixInLanes(self.p, self.m.rows, self.m.columns)

    @property
    def scratch(self) -> int:
        return self.a.bytes + room(self.p, max(1, self.steps))

    @property
    def name(self) -> str:
        return f"{self.kind}_lanes_{self.m.name}_{self.steps}"

    def taus(self, memory: Pointer) -> Pointer:
        return memory + self.a.bytes

    def tau(self, memory: Pointer, step: Index) -> Pointer:
        return self.taus(memory) + step * self.p.vector_bytes


def _phase(plan: QrLanesPlan, module: Module) -> str:
    m, p, steps = plan.m, plan.p, plan.steps
    is_given = plan.kind == "qr_product"  # the factors
    g, (memory,) = subroutine(f"{plan.name}_group", p.scalar, memory=POINTER)
    (_multiply if is_given else _factor)(plan, memory)
    group = module.end(g)
    f = Function(plan.name, PHASE)
    operand, result, taus, scratch = (f.table(i, p.scalar) for i in ((0, 2, 1, 3) if is_given else range(4)))
    groups, factors = plan.groups, (taus, steps * p.bytes)
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(module, first, (operand, m.bytes), plan.a.scalars, memory, into=True)
        if is_given:
            groups.transpose(module, first, factors, steps, plan.taus(memory), into=True)
        f.call(group, memory)
        groups.transpose(module, first, (result, m.bytes), plan.a.scalars, memory, into=False)
        if not is_given:
            groups.transpose(module, first, factors, steps, plan.taus(memory), into=False)
    return module.end(f, exported=True)


def _factor(plan: QrLanesPlan, memory: Pointer) -> None:
    """Factors the group."""
    with memory.fn.loop(0, plan.steps) as step:
        tau = _reflector(plan, memory, step.index)
        plan.tau(memory, step.index).store(tau)
        _reflect_beyond(plan, memory, step.index, tau)


def _multiply(plan: QrLanesPlan, memory: Pointer) -> None:
    """The product of the reflectors, from the last one on: each is applied to the columns beyond it."""
    f, p, m = memory.fn, plan.p, plan.m
    one, zero = f.constant(1.0, p.vector), f.constant(0.0, p.vector)
    with f.loop(0, m.rows) as row, f.loop(plan.steps, m.columns) as column:
        is_diagonal = row.index.eq(column.index)
        plan.a.element(memory, row.index, column.index).store(is_diagonal.select(one, zero))
    with f.loop(0, plan.steps) as backwards:
        step = plan.steps - 1 - backwards.index
        tau = plan.tau(memory, step).load(p.lanes)
        _reflect_beyond(plan, memory, step, tau)
        minus = -tau
        with f.loop(0, step) as row:
            plan.a.element(memory, row.index, step).store(zero)
        plan.a.element(memory, step, step).store(one + minus)
        with f.loop(step + 1, m.rows) as row:
            place = plan.a.element(memory, row.index, step)
            place.store(place.load(p.lanes) * minus)


def _reflect_beyond(plan: QrLanesPlan, memory: Pointer, step: Index, tau: Value) -> None:
    """Applies the reflector below the diagonal element `step` to the columns beyond it."""
    changes = tau.ne(0.0)

    def reflect(column: Index, count: int) -> None:
        _reflect(plan, memory, step, column, count, tau, changes)

    by_groups(step + 1, plan.m.columns, _COLUMNS, reflect)


def _reflect(
    plan: QrLanesPlan, memory: Pointer, step: Index, column: Index, count: int, tau: Value, changes: Value
) -> None:
    """columns -= v tau (v^T columns): v is 1 in row `step`, and what stands below the diagonal.

    changes: the lanes whose reflector is not the identity, which leaves infinite columns as they are
    """
    f, lanes = step.fn, plan.p.lanes
    top, below = plan.a.element(memory, step, column), step + 1
    values = [top[c * lanes].load(lanes) for c in range(count)]
    with f.loop(below, plan.m.rows, carries=values) as row:
        v, line = plan.a.element(memory, row.index, step).load(lanes), plan.a.element(memory, row.index, column)
        row.next = [v.fmuladd(line[c * lanes].load(lanes), total) for c, total in enumerate(row.carried)]
    factors = [changes.select(total * tau, 0.0) for total in row.results]
    for c, (value, factor) in enumerate(zip(values, factors, strict=True)):
        top[c * lanes].store(value - factor)
    with f.loop(below, plan.m.rows) as row:
        v, line = plan.a.element(memory, row.index, step).load(lanes), plan.a.element(memory, row.index, column)
        for c, factor in enumerate(factors):
            place = line[c * lanes]
            place.store(multiply_subtract([place.load(lanes)], [v], [factor])[0])


def _reflector(plan: QrLanesPlan, memory: Pointer, step: Index) -> Value:
    """Makes the reflectors of column `step`'s rows from the diagonal on: v below it, r there. Gives tau."""
    f, lanes = step.fn, plan.p.lanes
    diagonal, below = plan.a.element(memory, step, step), step + 1
    alpha = diagonal.load(lanes)

    def fold(start: Value, body: Callable[[Value, Value], Value]) -> Value:
        """Over the elements below the diagonal."""
        with f.loop(below, plan.m.rows, carries=[start]) as row:
            row.next = [body(plan.a.element(memory, row.index, step).load(lanes), row.carried[0])]
        return row.results[0]

    def larger(value: Value, most: Value) -> Value:
        size = value.abs()
        return (size > most).select(size, most)

    def add_square(total: Value, value: Value) -> Value:
        return value.fmuladd(value, total)

    def squares_of(scale: Value) -> Value:
        return fold(alpha.value(0.0), lambda value, total: add_square(total, value * scale))

    squares = fold(alpha.value(0.0), lambda value, total: add_square(total, value))
    whole = add_square(squares, alpha)
    h = householder(alpha, squares, whole, lambda: fold(alpha.abs(), larger), squares_of, add_square)
    diagonal.store(h.beta)
    with f.loop(below, plan.m.rows) as row:
        place = plan.a.element(memory, row.index, step)
        place.store(place.load(lanes) * h.scale * h.factor)
    return h.tau
