"""Householder reflectors I - tau v v^T, and blocks of them, H1 H2 ... = I - V T V^T, applied to stripes as products.

V is there twice: as a stripe, [row][width], and as columns, [width][tall]; ones on its diagonal, zeros above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.panel_copy import Strides, copy
from hlokit.cpu.kernels.linalg.panels import blocked_update, flat, multiply_subtract, rank_update
from hlokit.cpu.kernels.linalg.stepped import Part
from hlokit.cpu.kernels.linalg.stripes import Stripes
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import I64, POINTER, Function, Index, Module, Pointer, Value, unlikely

_SUMMED = 32
"""Rows whose products are added in registers for T: reflectors of about the same vector make much of its rounding."""


# -- one reflector: of a scalar's column, or of a column in each lane


@dataclass(frozen=True)
class Householder:
    """The reflector of a column (alpha, x), which becomes (beta, 0): v = (1, factor * scale * x)."""

    tau: Value
    beta: Value
    scale: Value
    factor: Value


def householder(
    alpha: Value,
    squares: Value,
    whole: Value,
    largest: Callable[[], Value],
    squares_of: Callable[[Value], Value],
    add_square: Callable[[Value, Value], Value],
) -> Householder:
    """The reflector of a column (alpha, x) with |x|^2 = squares, and |alpha|^2 + |x|^2 = whole.

    largest()           the largest magnitude
    squares_of(scale)   |scale x|^2
    add_square(s, a)    s + a^2
    """
    reach = 40 if alpha.bits == 32 else 400
    one = alpha.value(1.0)

    def by_power_of_two() -> list[Value]:
        """A power of two that keeps squares from overflow and underflow, and the squares by it."""
        most = largest()
        other = 2.0 ** (2 * reach)
        huge = (most > 2.0**reach) & most.compare("one", inf)  # beside infinity small ones stay
        scale = (most < 2.0**-reach).select(alpha.value(other), huge.select(alpha.value(1 / other), one))
        return [scale, squares_of(scale)]

    usual = (whole < 2.0 ** (2 * reach)) & (squares > 2.0 ** (-2 * reach))
    scale, norm = unlikely(~usual, [one, squares], by_power_of_two)
    start = alpha * scale
    beta = -add_square(norm, start).sqrt().copysign(start)
    is_identity = norm.eq(0.0)  # nothing below
    difference = beta - start
    tau = is_identity.select(alpha.value(0.0), difference / beta)
    factor = is_identity.select(alpha.value(0.0), -1.0 / difference)
    return Householder(tau, is_identity.select(alpha, beta / scale), scale, factor)


# -- blocks of reflectors


@dataclass(frozen=True)
class Reflecting(Stripes):
    """Stripes of which the factored ones have T (or its transpose), and memory for one more column."""

    @property
    def square(self) -> int:
        """Bytes of a block of width x width."""
        return up(self.p.width * self.p.stripe_row, 64)

    @property
    def extra(self) -> int:
        return self.square + self.column_bytes

    def factor(self, f: Part, number: Index) -> Pointer:
        """T's place."""
        return self.columns(f, number) + self.p.width * self.column_bytes

    def spare(self, f: Part, number: Index) -> Pointer:
        """The place of the column that nothing else is in."""
        return self.factor(f, number) + self.square

    def stack_square(self, f: Function) -> Pointer:
        """A block on the stack."""
        return f.local(self.p.scalar, self.square // self.p.bytes, 64)

    def clean(self, module: Module, columns: Pointer, stripe: Pointer, first: Index) -> None:
        """Makes V of columns that have it below the diagonal only, and a stripe of V."""
        f, p, steps = first.fn, self.p, self.steps_of(first)
        with f.loop(0, p.width) as column:
            start = (columns + column.index * self.column_bytes)[first]
            is_reflector = column.index < steps
            count: Index = is_reflector.select(column.index, self.rows - first)
            f.memset(start, 0, count * p.bytes)
            with f.when(is_reflector):
                start[column.index].store(1.0)
        self.transpose(module, stripe, columns, first, False)

    def make_factor(
        self, f: Part, module: Module, stripe: Pointer, taus: Pointer, number: Index, transposed: bool
    ) -> None:
        """T of a stripe of V, and of the reflectors' factors at `taus`; transposed: its transpose."""
        p, first = self.p, number * self.p.width
        name = f"reflector_factor_{p.name}"
        if name not in module.functions:
            _write_factor(module, self, name)
        target = self.factor(f, number)
        goal = target if transposed else self.stack_square(f)
        f.call(name, goal, stripe + first * p.stripe_row, taus[first], self.rows - first, self.steps_of(first))
        if not transposed:
            turn = copy(module, p, p.width, Strides(p.bytes, p.stripe_row), False)
            f.call(turn, goal, target, p.width, p.width)

    def apply(self, f: Part, module: Module, v: Pointer, number: Index, stripe: Pointer, transposed: bool) -> None:
        """stripe -= V T V^T stripe, with the V of stripe `number`; transposed: what is kept of T is its transpose."""
        p = self.p
        products, scaled = self.stack_square(f), self.stack_square(f)
        first = number * p.width
        update = rank_update(module, p)
        f.memset(products, 0, self.square)
        f.memset(scaled, 0, self.square)
        f.call(_inner_product(module, self), products, v, stripe, first, self.rows)  # - V^T stripe
        factor = self.factor(f, number)
        with f.loop(0, p.width, p.rows) as row:  # T V^T stripe
            down = row.index * p.stripe_row
            # T is an upper triangle: rows of its transpose end at their diagonal
            a, b, count = (factor + down, products + down, p.width - row.index)
            if not transposed:
                a, b, count = factor, products, row.index + p.rows
            f.call(update, scaled + down, a[row.index], b, count)
        columns, trailing = self.columns(f, number), rank_update(module, self.tall)
        with f.loop(first, self.rows, p.rows) as row:
            f.call(trailing, stripe + row.index * p.stripe_row, columns[row.index], scaled, p.width)


def _inner_product(module: Module, s: Stripes) -> str:
    """The function (sums, a, b, first, last): sums[width][width] -= a^T b, of two stripes' rows."""
    p = s.p
    name = f"stripes_product_{p.name}"
    if name in module.functions:
        return name
    f, (sums, a, b, first, last) = subroutine(name, p.scalar, sums=POINTER, a=POINTER, b=POINTER, first=I64, last=I64)
    blocked_update(rank_update(module, p), p, sums, p.width, (a, p.stripe_row), b, first, last)
    return module.end(f)


def _write_factor(module: Module, s: Reflecting, name: str) -> None:
    """The function (t, v, taus, rows, steps): t is T's transpose.

    Row j of it is tau_j e_j - tau_j sum over k < j of (v_j^T v_k) row k.
    """
    p = s.p
    f, (t, v, taus, rows, steps) = subroutine(name, p.scalar, t=POINTER, v=POINTER, taus=POINTER, rows=I64, steps=I64)
    products, part = s.stack_square(f), s.stack_square(f)
    f.memset(products, 0, s.square)
    f.memset(t, 0, s.square)
    with f.loop(0, rows, _SUMMED) as block:
        end = (block.index + _SUMMED).smin(rows)
        f.memset(part, 0, s.square)
        f.call(_inner_product(module, s), part, v, v, block.index, end)
        with f.loop(0, s.square // p.bytes, p.lanes) as at:
            products[at.index].store(products[at.index].load(p.lanes) + part[at.index].load(p.lanes))
    with f.loop(0, steps) as row:
        line, target = products + row.index * p.stripe_row, t + row.index * p.stripe_row
        with f.loop(0, row.index, carries=[f.constant(0.0, p.vector)] * p.vectors) as before:
            left = [line[before.index].load().splat(p.lanes)]  # - v_j^T v_k
            right = p.load_row(t + before.index * p.stripe_row)
            before.next = flat([multiply_subtract([c], left, x) for c, x in zip(before.carried, right, strict=True)])
        tau = taus[row.index].load()
        minus = (-tau).splat(p.lanes)
        p.store_row([[x * minus] for x in before.results], target)
        target[row.index].store(tau)
    module.end(f)
