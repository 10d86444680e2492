"""LU of many small matrices with partial pivoting, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg import batch_lanes
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, chosen
from hlokit.cpu.kernels.linalg.panels import (
    Panels,
    everywhere,
    less_product,
    load,
    magnitude,
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
"""Elements of the largest matrix: each pivot goes through all that is left, beyond it stripes are faster."""
_COLUMNS = 4
"""Columns that go down the rows together."""


def in_lanes(s: Matrix, module: Module, target: Target) -> Routine | None:
    """The routine; None for too few or too large matrices. The table: that of lu.py."""
    p = panels_for(s.dtype, target)
    if not batch_lanes.are_worth_it(p, s.batch, s.rows * s.columns, _LARGEST):
        return None
    plan = _Plan(s, p)
    chunks = plan.groups.chunks
    return Routine((Phase(_phase(plan, module), chunks),), chunks * plan.scratch)


@dataclass(frozen=True)
class _Plan:
    """Scratch of a chunk: the group's elements, pivots as integers of the elements' width, info of every lane."""

    s: Matrix
    p: Panels

    @property
    def groups(self) -> Groups:
        return Groups(self.p, self.s.batch, 2 * self.s.rows * self.s.columns * (self.s.least + 2))

    @property
    def vector(self) -> int:
        return self.p.lanes * self.p.bytes

    @property
    def row(self) -> int:
        """Bytes."""
        return self.s.columns * self.vector

    @property
    def pivots(self) -> int:
        """Bytes to the pivots; room for a whole vector of every lane's last elements is before them."""
        return up(self.s.rows * self.s.columns, self.p.lanes) * self.vector

    @property
    def info(self) -> int:
        return self.pivots + self.s.least * self.vector

    @property
    def scratch(self) -> int:
        return self.info + self.vector

    @property
    def integer(self) -> str:
        return f"i{8 * self.p.bytes}"

    @property
    def integers(self) -> str:
        return f"<{self.p.lanes} x {self.integer}>"

    @property
    def flags(self) -> str:
        return f"<{self.p.lanes} x i1>"


def _phase(plan: _Plan, module: Module) -> str:
    s, p = plan.s, plan.p
    f = Function(f"lu_lanes_{s.name}", PHASE)
    factor = _factor(plan, module)
    operand, result, pivots, info, scratch = (table_pointer(f, i) for i in range(5))
    scalars = s.rows * s.columns
    groups = plan.groups
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(f, module, first, (operand, s.bytes), scalars, memory, into=True)
        f.do(f"call void @{factor}(ptr {memory})")
        groups.transpose(f, module, first, (result, s.bytes), scalars, memory, into=False)
        with groups.lanes(f, first) as (lane, number):
            there = offset(f, memory, plan.pivots, (lane, p.bytes))
            _hand_out(f, plan, there, offset(f, pivots, (number, 4 * s.least)), s.least)
            _hand_out(f, plan, offset(f, memory, plan.info, (lane, p.bytes)), offset(f, info, (number, 4)), 1)
    f.do("ret void")
    module.add(f, exported=True)
    return f.name


def _hand_out(f: Function, plan: _Plan, memory: str, place: str, count: int) -> None:
    """Copies that many integers of a lane to its place, as s32."""
    with f.loop("0", str(count)) as loop:
        value = f.let(f"load i32, ptr {offset(f, memory, (loop.index, plan.vector))}, align 4")
        f.do(f"store i32 {value}, ptr {offset(f, place, (loop.index, 4))}, align 4")


def _factor(plan: _Plan, module: Module) -> str:
    """void f(ptr memory): factors the group."""
    s = plan.s
    f = Function(f"lu_lanes_factor_{s.name}", [("ptr", "memory")], attributes="noinline")
    f.do(f"store {plan.integers} zeroinitializer, ptr {offset(f, '%memory', plan.info)}, align 4")
    with f.loop("0", str(s.least)) as step:
        row = offset(f, "%memory", (step.index, plan.row))
        below = plus(f, step.index, 1)
        pivots = _pivots(f, plan, offset(f, row, (step.index, plan.vector)), step.index)
        here = _spread(f, plan, step.index)
        numbers = f.let(f"add {plan.integers} {pivots}, {_spread(f, plan, '1')}")
        f.do(
            f"store {plan.integers} {numbers}, ptr {offset(f, '%memory', plan.pivots, (step.index, plan.vector))}, "
            "align 4"
        )
        others = f.let(f"xor {plan.integers} {pivots}, {here}")
        moves = f.let(
            f"call {plan.integer} @llvm.vector.reduce.or.v{plan.p.lanes}{plan.integer}({plan.integers} {others})"
        )
        with f.when(f.let(f"icmp ne {plan.integer} {moves}, 0")):
            _columns(f, plan, "0", lambda column, count: _swap(f, plan, step.index, column, count, pivots))
        _scale(f, plan, step.index)
        _columns(f, plan, below, lambda column, count: _eliminate(f, plan, step.index, column, count))
    f.do("ret void")
    module.add(f)
    return f.name


def _spread(f: Function, plan: _Plan, number: str) -> str:
    """An i64 in every lane."""
    if plan.p.bytes == 4 and str(number).startswith("%"):
        number = f.let(f"trunc i64 {number} to i32")
    first = f.let(f"insertelement {plan.integers} poison, {plan.integer} {number}, i32 0")
    return f.let(
        f"shufflevector {plan.integers} {first}, {plan.integers} poison, <{plan.p.lanes} x i32> zeroinitializer"
    )


def _pivots(f: Function, plan: _Plan, diagonal: str, step: str) -> str:
    """The row of the first largest element in every lane, from the diagonal down."""
    p = plan.p
    start = magnitude(f, p, load(f, p, diagonal, p.lanes))
    carries = [(p.vector, start), (plan.integers, _spread(f, plan, step))]
    with f.loop(plus(f, step, 1), str(plan.s.rows), carries=carries) as loop:
        most, chosen_rows = loop.carried
        place = offset(f, diagonal, (f.let(f"sub nsw i64 {loop.index}, {step}"), plan.row))
        size = magnitude(f, p, load(f, p, place, p.lanes))
        larger = f.let(f"fcmp ogt {p.vector} {size}, {most}")
        rows = _spread(f, plan, loop.index)
        loop.next = [
            chosen(f, p, larger, size, most),
            f.let(f"select {plan.flags} {larger}, {plan.integers} {rows}, {plan.integers} {chosen_rows}"),
        ]
    return loop.results[1]


def _columns(f: Function, plan: _Plan, first: str, body: Callable[[str, int], None]) -> None:
    """body(column, count) for the columns from `first` on, several at a time."""
    rest = f.let(f"sub nsw i64 {plan.s.columns}, {first}")
    whole = plus(f, first, f.let(f"and i64 {rest}, {-_COLUMNS}"))
    with f.loop(first, whole, _COLUMNS) as loop:
        body(loop.index, _COLUMNS)
    with f.loop(whole, str(plan.s.columns)) as loop:
        body(loop.index, 1)


def _swap(f: Function, plan: _Plan, step: str, column: str, count: int, pivots: str) -> None:
    """Exchanges row `step` and every lane's pivot row."""
    p = plan.p
    top = offset(f, "%memory", (step, plan.row), (column, plan.vector))
    tops = [offset(f, top, c * plan.vector) for c in range(count)]
    old = [load(f, p, place, p.lanes) for place in tops]
    with f.loop(plus(f, step, 1), str(plan.s.rows), carries=[(p.vector, x) for x in old]) as loop:
        is_pivot = f.let(f"icmp eq {plan.integers} {pivots}, {_spread(f, plan, loop.index)}")
        line = offset(f, "%memory", (loop.index, plan.row), (column, plan.vector))
        loop.next = []
        for c in range(count):
            place = offset(f, line, c * plan.vector)
            value = load(f, p, place, p.lanes)
            store(f, p, chosen(f, p, is_pivot, old[c], value), place, p.lanes)
            loop.next.append(chosen(f, p, is_pivot, value, loop.carried[c]))
    for place, value in zip(tops, loop.results, strict=True):
        store(f, p, value, place, p.lanes)


def _scale(f: Function, plan: _Plan, step: str) -> None:
    """Divides the column below the pivot; notes the lanes whose pivot is zero."""
    p, reach = plan.p, 100 if plan.p.bytes == 4 else 900
    diagonal = offset(f, "%memory", (step, plan.row), (step, plan.vector))
    pivot = load(f, p, diagonal, p.lanes)
    is_zero = f.let(f"fcmp oeq {p.vector} {pivot}, {everywhere(p, 0.0)}")
    info = offset(f, "%memory", plan.info)
    before = f.let(f"load {plan.integers}, ptr {info}, align 4")
    unset = f.let(f"icmp eq {plan.integers} {before}, zeroinitializer")
    number = _spread(f, plan, plus(f, step, 1))
    change = f.let(f"and {plan.flags} {is_zero}, {unset}")
    after = f.let(f"select {plan.flags} {change}, {plan.integers} {number}, {plan.integers} {before}")
    f.do(f"store {plan.integers} {after}, ptr {info}, align 4")
    # a power of two keeps the reciprocals of tiny pivots finite
    tiny = f.let(f"fcmp olt {p.vector} {magnitude(f, p, pivot)}, {everywhere(p, 2.0**-reach)}")
    scale = chosen(f, p, tiny, everywhere(p, 2.0**reach), everywhere(p, 1.0))
    divisor = chosen(f, p, is_zero, everywhere(p, 1.0), f.let(f"fmul {p.vector} {pivot}, {scale}"))
    reciprocal = f.let(f"fdiv {p.vector} {everywhere(p, 1.0)}, {divisor}")
    with f.loop(plus(f, step, 1), str(plan.s.rows)) as loop:
        place = offset(f, "%memory", (loop.index, plan.row), (step, plan.vector))
        scaled = f.let(f"fmul {p.vector} {load(f, p, place, p.lanes)}, {scale}")
        store(f, p, f.let(f"fmul {p.vector} {scaled}, {reciprocal}"), place, p.lanes)


def _eliminate(f: Function, plan: _Plan, step: str, column: str, count: int) -> None:
    """Takes the pivot row times the column's elements from the rows below."""
    p = plan.p
    top = offset(f, "%memory", (step, plan.row), (column, plan.vector))
    upper = [load(f, p, offset(f, top, c * plan.vector), p.lanes) for c in range(count)]
    with f.loop(plus(f, step, 1), str(plan.s.rows)) as loop:
        row = offset(f, "%memory", (loop.index, plan.row))
        left = load(f, p, offset(f, row, (step, plan.vector)), p.lanes)
        line = offset(f, row, (column, plan.vector))
        for c in range(count):
            place = offset(f, line, c * plan.vector)
            store(f, p, less_product(f, p, [load(f, p, place, p.lanes)], [left], [upper[c]])[0], place, p.lanes)
