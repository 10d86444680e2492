"""QR of many small matrices, and the products of their reflectors, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg import batch_lanes
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, chosen
from hlokit.cpu.kernels.linalg.panels import (
    Panels,
    everywhere,
    fma,
    less_product,
    load,
    magnitude,
    negated,
    offset,
    panels_for,
    plus,
    store,
    up,
)
from hlokit.cpu.kernels.linalg.stripes import Matrix
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target

_LARGEST = 1600
"""Elements of the largest matrix: each reflector goes through all that is left, beyond it stripes are faster."""
_COLUMNS = 4
"""Columns that go down the rows together."""


def qr_in_lanes(m: Matrix, module: Module, target: Target) -> Routine | None:
    """The routine; None for too few or too large matrices. The table: that of qr.py."""
    return _routine(m, m.least, module, target, "qr", (1, 2), _factor)


def product_in_lanes(m: Matrix, reflectors: int, module: Module, target: Target) -> Routine | None:
    """The routine; None for too few or too large matrices. The table: that of qr_product.py."""
    return _routine(m, reflectors, module, target, "qr_product", (2, 1), _multiply)


@dataclass(frozen=True)
class _Plan:
    """Scratch of a chunk: the group's elements, then the reflectors' factors, each as whole vectors of lanes."""

    kind: str
    m: Matrix
    steps: int
    p: Panels

    @property
    def groups(self) -> Groups:
        return Groups(self.p, self.m.batch, 2 * self.m.rows * self.m.columns * (self.steps + 2))

    @property
    def vector(self) -> int:
        return self.p.lanes * self.p.bytes

    @property
    def row(self) -> int:
        """Bytes."""
        return self.m.columns * self.vector

    @property
    def taus(self) -> int:
        """Bytes to the factors; room for a whole vector of every lane's last elements is before them."""
        return up(self.m.rows * self.m.columns, self.p.lanes) * self.vector

    @property
    def scratch(self) -> int:
        return self.taus + up(max(1, self.steps), self.p.lanes) * self.vector

    @property
    def name(self) -> str:
        return f"{self.kind}_lanes_{self.m.name}_{self.steps}"

    def place(self, f: Function, row: str, column: str) -> str:
        return offset(f, "%memory", (row, self.row), (column, self.vector))

    def tau(self, f: Function, step: str) -> str:
        return offset(f, "%memory", self.taus, (step, self.vector))


def _routine(
    m: Matrix,
    steps: int,
    module: Module,
    target: Target,
    kind: str,
    places: tuple[int, int],
    write: Callable[[Function, _Plan], None],
) -> Routine | None:
    """places: the table's, of the result and of the factors, one of which is an operand; write: the group's work."""
    p = panels_for(m.dtype, target)
    if not batch_lanes.are_worth_it(p, m.batch, m.rows * m.columns, _LARGEST):
        return None
    plan = _Plan(kind, m, steps, p)
    g = Function(f"{plan.name}_group", [("ptr", "memory")], attributes="noinline")
    write(g, plan)
    g.do("ret void")
    module.add(g)
    f = Function(plan.name, PHASE)
    operand, result, taus, scratch = (table_pointer(f, i) for i in (0, *places, 3))
    scalars, is_given = m.rows * m.columns, places[1] < places[0]
    groups, factors = plan.groups, (taus, steps * p.bytes)
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(f, module, first, (operand, m.bytes), scalars, memory, into=True)
        if is_given:
            groups.transpose(f, module, first, factors, steps, offset(f, memory, plan.taus), into=True)
        f.do(f"call void @{g.name}(ptr {memory})")
        groups.transpose(f, module, first, (result, m.bytes), scalars, memory, into=False)
        if not is_given:
            groups.transpose(f, module, first, factors, steps, offset(f, memory, plan.taus), into=False)
    f.do("ret void")
    module.add(f, exported=True)
    chunks = plan.groups.chunks
    return Routine((Phase(f.name, chunks),), chunks * plan.scratch)


def _factor(f: Function, plan: _Plan) -> None:
    """Factors the group."""
    with f.loop("0", str(plan.steps)) as step:
        tau = _reflector(f, plan, step.index)
        store(f, plan.p, tau, plan.tau(f, step.index), plan.p.lanes)
        _reflect_beyond(f, plan, step.index, tau)


def _multiply(f: Function, plan: _Plan) -> None:
    """The product of the reflectors, from the last one on: each is applied to the columns beyond it."""
    p, m = plan.p, plan.m
    ones, zeros = everywhere(p, 1.0), everywhere(p, 0.0)
    with f.loop("0", str(m.rows)) as row, f.loop(str(plan.steps), str(m.columns)) as column:
        is_diagonal = f.let(f"icmp eq i64 {row.index}, {column.index}")
        value = f.let(f"select i1 {is_diagonal}, {p.vector} {ones}, {p.vector} {zeros}")
        store(f, p, value, plan.place(f, row.index, column.index), p.lanes)
    with f.loop("0", str(plan.steps)) as backwards:
        step = f.let(f"sub nsw i64 {plan.steps - 1}, {backwards.index}")
        tau = load(f, p, plan.tau(f, step), p.lanes)
        _reflect_beyond(f, plan, step, tau)
        minus = negated(f, p, tau)
        with f.loop("0", step) as row:
            store(f, p, zeros, plan.place(f, row.index, step), p.lanes)
        store(f, p, f.let(f"fadd {p.vector} {ones}, {minus}"), plan.place(f, step, step), p.lanes)
        with f.loop(plus(f, step, 1), str(m.rows)) as row:
            place = plan.place(f, row.index, step)
            store(f, p, f.let(f"fmul {p.vector} {load(f, p, place, p.lanes)}, {minus}"), place, p.lanes)


def _reflect_beyond(f: Function, plan: _Plan, step: str, tau: str) -> None:
    """Applies the reflector below the diagonal element `step` to the columns beyond it."""
    first, columns = plus(f, step, 1), str(plan.m.columns)
    rest = f.let(f"sub nsw i64 {columns}, {first}")
    whole = plus(f, first, f.let(f"and i64 {rest}, {-_COLUMNS}"))
    changes = f.let(f"fcmp une {plan.p.vector} {tau}, {everywhere(plan.p, 0.0)}")
    with f.loop(first, whole, _COLUMNS) as column:
        _reflect(f, plan, step, column.index, _COLUMNS, tau, changes)
    with f.loop(whole, columns) as column:
        _reflect(f, plan, step, column.index, 1, tau, changes)


def _reflect(f: Function, plan: _Plan, step: str, column: str, count: int, tau: str, changes: str) -> None:
    """columns -= v tau (v^T columns): v is 1 in row `step`, and what stands below the diagonal.

    changes: the lanes whose reflector is not the identity, which leaves infinite columns as they are
    """
    p = plan.p
    top, rows = plan.place(f, step, column), str(plan.m.rows)
    tops = [offset(f, top, c * plan.vector) for c in range(count)]
    values = [load(f, p, place, p.lanes) for place in tops]
    below = plus(f, step, 1)
    with f.loop(below, rows, carries=[(p.vector, x) for x in values]) as loop:
        v, line = load(f, p, plan.place(f, loop.index, step), p.lanes), plan.place(f, loop.index, column)
        here = [load(f, p, offset(f, line, c * plan.vector), p.lanes) for c in range(count)]
        loop.next = [fma(f, p, v, x, c) for x, c in zip(here, loop.carried, strict=True)]
    factors = [f.let(f"fmul {p.vector} {x}, {tau}") for x in loop.results]
    factors = [chosen(f, p, changes, factor, everywhere(p, 0.0)) for factor in factors]
    for place, value, factor in zip(tops, values, factors, strict=True):
        store(f, p, f.let(f"fsub {p.vector} {value}, {factor}"), place, p.lanes)
    with f.loop(below, rows) as loop:
        v, line = load(f, p, plan.place(f, loop.index, step), p.lanes), plan.place(f, loop.index, column)
        for c, factor in enumerate(factors):
            place = offset(f, line, c * plan.vector)
            store(f, p, less_product(f, p, [load(f, p, place, p.lanes)], [v], [factor])[0], place, p.lanes)


def _reflector(f: Function, plan: _Plan, step: str) -> str:
    """Makes the reflectors of column `step`'s rows from the diagonal on: v below it, r there. Gives tau."""
    p, reach = plan.p, 40 if plan.p.bytes == 4 else 400
    ones, zeros = everywhere(p, 1.0), everywhere(p, 0.0)
    diagonal, below = plan.place(f, step, step), plus(f, step, 1)
    alpha = load(f, p, diagonal, p.lanes)
    scales, norms = f.alloca(p.vector), f.alloca(p.vector)

    def fold(start: str, body: Callable[[str, str], str]) -> str:
        with f.loop(below, str(plan.m.rows), carries=[(p.vector, start)]) as loop:
            loop.next = [body(load(f, p, plan.place(f, loop.index, step), p.lanes), loop.carried[0])]
        return loop.results[0]

    def op(name: str, a: str, b: str) -> str:
        return f.let(f"{name} {p.vector} {a}, {b}")

    def larger(value: str, most: str) -> str:
        size = magnitude(f, p, value)
        return chosen(f, p, op("fcmp ogt", size, most), size, most)

    def scaled_square(value: str, total: str) -> str:
        x = op("fmul", value, load(f, p, scales, p.lanes))
        return fma(f, p, x, x, total)

    squares = fold(zeros, lambda value, total: fma(f, p, value, value, total))
    store(f, p, ones, scales, p.lanes)
    store(f, p, squares, norms, p.lanes)
    low = op("fcmp ogt", squares, everywhere(p, 2.0 ** (-2 * reach)))
    high = op("fcmp olt", fma(f, p, alpha, alpha, squares), everywhere(p, 2.0 ** (2 * reach)))
    usual = f.let(f"and <{p.lanes} x i1> {low}, {high}")
    all_usual = f.let(f"call i1 @llvm.vector.reduce.and.v{p.lanes}i1(<{p.lanes} x i1> {usual})")
    with f.when(f.let(f"xor i1 {all_usual}, true")):
        # squares that overflow or underflow: a power of two first
        most = fold(magnitude(f, p, alpha), larger)
        other = 2.0 ** (2 * reach)
        tiny = chosen(f, p, op("fcmp olt", most, everywhere(p, 2.0**-reach)), everywhere(p, other), ones)
        huge = op("fcmp ogt", most, everywhere(p, 2.0**reach))
        finite = op("fcmp one", most, everywhere(p, math.inf))  # beside infinity small ones stay
        huge = f.let(f"and <{p.lanes} x i1> {huge}, {finite}")
        store(f, p, chosen(f, p, huge, everywhere(p, 1 / other), tiny), scales, p.lanes)
        store(f, p, fold(zeros, scaled_square), norms, p.lanes)
    scale, norm = (load(f, p, place, p.lanes) for place in (scales, norms))
    start = op("fmul", alpha, scale)
    length = fma(f, p, start, start, norm)
    root = f.let(f"call {p.vector} @llvm.sqrt.{p.suffix}({p.vector} {length})")
    beta = negated(f, p, f.let(f"call {p.vector} @llvm.copysign.{p.suffix}({p.vector} {root}, {p.vector} {start})"))
    is_done = op("fcmp oeq", norm, zeros)  # nothing below: the identity
    difference = op("fsub", beta, start)
    tau = chosen(f, p, is_done, zeros, op("fdiv", difference, beta))
    inverse = chosen(f, p, is_done, zeros, op("fdiv", everywhere(p, -1.0), difference))
    store(f, p, chosen(f, p, is_done, alpha, op("fdiv", beta, scale)), diagonal, p.lanes)
    with f.loop(below, str(plan.m.rows)) as loop:
        place = plan.place(f, loop.index, step)
        value = op("fmul", op("fmul", load(f, p, place, p.lanes), scale), inverse)
        store(f, p, value, place, p.lanes)
    return tau
