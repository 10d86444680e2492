"""Blocks of Householder reflectors: H1 H2 ... = I - V T V^T, applied to stripes as products (stripes.py).

V is there twice: as a stripe, [row][width], and as columns, [width][tall]; ones on its diagonal, zeros above.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.linalg import panels
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import (
    DEPTH,
    clear,
    everywhere,
    less_product,
    load,
    offset,
    one,
    plus,
    spread,
    store,
    times,
    up,
)
from hlokit.cpu.kernels.linalg.stripes import Stripes
from hlokit.cpu.llvm import Function, Module

_SUMMED = 32
"""Rows whose products are added in registers for T: reflectors of about the same vector make much of its rounding."""


@dataclass(frozen=True)
class Reflecting(Stripes):
    """Stripes of which the factored ones have T (or its transpose), and memory for one more column."""

    @property
    def square(self) -> int:
        """Bytes of a block of width x width."""
        return up(self.p.width * self.p.stripe_row, 64)

    @property
    def extra(self) -> int:
        return self.square + self.tall.panel_column

    def factor(self, f: Function, number: str) -> str:
        """T's place."""
        return offset(f, self.column(f, number), self.p.width * self.tall.panel_column)

    def spare(self, f: Function, number: str) -> str:
        """The place of the column that nothing else is in."""
        return offset(f, self.factor(f, number), self.square)

    def clean(self, f: Function, module: Module, columns: str, stripe: str, first: str) -> None:
        """Makes V of columns that have it below the diagonal only, and a stripe of V."""
        p, steps = self.p, self.steps_of(f, first)
        with f.loop("0", str(p.width)) as column:
            start = offset(f, columns, (column.index, self.tall.panel_column), (first, p.bytes))
            rest = f.let(f"sub nsw i64 {self.rows}, {first}")
            is_reflector = f.let(f"icmp slt i64 {column.index}, {steps}")
            count = f.let(f"select i1 {is_reflector}, i64 {column.index}, i64 {rest}")
            clear(f, start, times(f, count, p.bytes))
            with f.when(is_reflector):
                store(f, p, one(p), offset(f, start, (column.index, p.bytes)))
        self.transpose(f, module, stripe, columns, first, False)

    def make_factor(self, f: Function, module: Module, stripe: str, taus: str, number: str, transposed: bool) -> None:
        """T of a stripe of V, and of the reflectors' factors at `taus`; or its transpose."""
        p, first = self.p, times(f, number, self.p.width)
        name = f"reflector_factor_{p.name}"
        if name not in module.functions:
            _write_factor(module, self, name)
        target = self.factor(f, number)
        goal = target if transposed else f.alloca("i8", self.square)
        rows = f.let(f"sub nsw i64 {self.rows}, {first}")
        v, factors = offset(f, stripe, (first, p.stripe_row)), offset(f, taus, (first, p.bytes))
        f.do(f"call void @{name}(ptr {goal}, ptr {v}, ptr {factors}, i64 {rows}, i64 {self.steps_of(f, first)})")
        if not transposed:
            turn = copy(module, p, p.width, Strides(p.bytes, p.stripe_row), False)
            f.do(f"call void @{turn}(ptr {goal}, ptr {target}, i64 {p.width}, i64 {p.width})")

    def apply(self, f: Function, module: Module, v: str, number: str, stripe: str, transposed: bool) -> None:
        """stripe -= V T V^T stripe, with the V of stripe `number`; transposed: what is kept of T is its transpose."""
        p = self.p
        sums, scaled = f.alloca("i8", self.square), f.alloca("i8", self.square)
        first = times(f, number, p.width)
        change = panels.update(module, p)
        clear(f, sums, str(self.square))
        clear(f, scaled, str(self.square))
        f.do(f"call void @{_gather(module, self)}(ptr {sums}, ptr {v}, ptr {stripe}, i64 {first}, i64 {self.rows})")
        factor = self.factor(f, number)
        with f.loop("0", str(p.width), p.rows) as row:
            c, a, b = (offset(f, x, (row.index, p.stripe_row)) for x in (scaled, factor, sums))
            count = f.let(f"sub nsw i64 {p.width}, {row.index}")
            if not transposed:  # T is an upper triangle: rows of its transpose end at their diagonal
                a, b, count = factor, sums, plus(f, row.index, p.rows)
            a = offset(f, a, (row.index, p.bytes))
            f.do(f"call void @{change}(ptr {c}, ptr {a}, ptr {b}, i64 {count})")
        columns = self.column(f, number)
        spread_out = panels.update(module, self.tall)
        with f.loop(first, str(self.rows), p.rows) as row:
            c, a = offset(f, stripe, (row.index, p.stripe_row)), offset(f, columns, (row.index, p.bytes))
            f.do(f"call void @{spread_out}(ptr {c}, ptr {a}, ptr {scaled}, i64 {p.width})")


def _gather(module: Module, s: Stripes) -> str:
    """void f(ptr sums, ptr a, ptr b, i64 first, i64 last): sums[width][width] -= a^T b, of two stripes' rows."""
    p = s.p
    name = f"stripes_product_{p.name}"
    if name in module.functions:
        return name
    parameters = [("ptr", "sums"), ("ptr", "a"), ("ptr", "b"), ("i64", "first"), ("i64", "last")]
    f = Function(name, parameters, attributes="noinline")
    change = panels.update(module, p)
    with f.loop("%first", "%last", DEPTH) as outer:
        count = least(f, f.let(f"sub nsw i64 %last, {outer.index}"), str(DEPTH))
        a, b = (offset(f, x, (outer.index, p.stripe_row)) for x in ("%a", "%b"))
        with f.loop("0", str(p.width), p.rows) as row:
            c, left = offset(f, "%sums", (row.index, p.stripe_row)), offset(f, a, (row.index, p.bytes))
            f.do(f"call void @{change}(ptr {c}, ptr {left}, ptr {b}, i64 {count})")
    f.do("ret void")
    module.add(f)
    return name


def _write_factor(module: Module, s: Reflecting, name: str) -> None:
    """void f(ptr t, ptr v, ptr taus, i64 rows, i64 steps): t is T's transpose.

    Row j of it is tau_j e_j - tau_j sum over k < j of (v_j^T v_k) row k.
    """
    p = s.p
    parameters = [("ptr", "t"), ("ptr", "v"), ("ptr", "taus"), ("i64", "rows"), ("i64", "steps")]
    f = Function(name, parameters, attributes="noinline")
    products, part = f.alloca("i8", s.square), f.alloca("i8", s.square)
    clear(f, products, str(s.square))
    clear(f, "%t", str(s.square))
    with f.loop("0", "%rows", _SUMMED) as block:
        end = least(f, plus(f, block.index, _SUMMED), "%rows")
        clear(f, part, str(s.square))
        f.do(f"call void @{_gather(module, s)}(ptr {part}, ptr %v, ptr %v, i64 {block.index}, i64 {end})")
        with f.loop("0", str(s.square // p.bytes), p.lanes) as at:
            places = [offset(f, x, (at.index, p.bytes)) for x in (products, part)]
            a, b = (load(f, p, place, p.lanes) for place in places)
            store(f, p, f.let(f"fadd {p.vector} {a}, {b}"), places[0], p.lanes)
    with f.loop("0", "%steps") as row:
        line, target = (offset(f, x, (row.index, p.stripe_row)) for x in (products, "%t"))
        zeros = [(p.vector, everywhere(p, 0.0))] * p.vectors
        with f.loop("0", row.index, carries=zeros) as before:
            left = spread(f, p, load(f, p, offset(f, line, (before.index, p.bytes))))  # - v_j^T v_k
            right = panels.load_row(f, p, offset(f, "%t", (before.index, p.stripe_row)))
            before.next = [less_product(f, p, [c], [left], x)[0] for c, x in zip(before.carried, right, strict=True)]
        tau = load(f, p, offset(f, "%taus", (row.index, p.bytes)))
        minus = spread(f, p, f.let(f"fneg {p.scalar} {tau}"))
        panels.store_row(f, p, [[f.let(f"fmul {p.vector} {x}, {minus}")] for x in before.results], target)
        store(f, p, tau, offset(f, target, (row.index, p.bytes)))
    f.do("ret void")
    module.add(f)
