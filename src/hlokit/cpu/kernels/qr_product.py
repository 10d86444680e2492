"""The first columns of a product of Householder reflectors (LAPACK's orgqr): blocks of them applied to the identity."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.panels import clear, offset, one, plus, store, times
from hlokit.cpu.kernels.qr import nothing
from hlokit.cpu.kernels.reflectors import Reflecting
from hlokit.cpu.kernels.routine import Routine
from hlokit.cpu.kernels.stepped import Stepped
from hlokit.cpu.kernels.stripes import Matrix
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target

TAUS, RESULT, SCRATCH = 1, 2, 3
"""The table's places, after the operand."""


@dataclass(frozen=True)
class _Product(Reflecting):
    """Stripes of the result; the factored ones have a stripe of v besides."""

    @property
    def extra(self) -> int:
        return super().extra + self.stripe_bytes

    def reflectors(self, f: Function, number: str) -> str:
        """The place of v."""
        return offset(f, self.spare(f, number), self.tall.panel_column)


def routine(m: Matrix, reflectors: int, module: Module, target: Target) -> Routine:
    """The table: operand (v below its diagonal), the reflectors' factors, result, scratch."""
    if not m.batch * m.least:
        return nothing(m, module)
    s = _Product("qr_product", m, target, RESULT, reflectors)
    counts = range(s.count - s.factored + 1, s.count + 1) if s.factored else ()
    work = m.rows * m.columns * (2 * reflectors + 8 * s.p.lanes) // s.p.lanes
    steps = Stepped(s.name, m.batch, SCRATCH, s.memory, work, s.count, counts)
    start = s.part("first")
    return steps.routine(module, _pack(s, module), s.end(start, module), _step(s, module), s.unpack(module))


def _pack(s: _Product, module: Module) -> str:
    """The part that begins a stripe with the identity, and makes the block reflector of the operand's."""
    p = s.p
    f = s.part("pack")
    stripe, first = s.stripe(f, "%number"), times(f, "%number", p.width)
    if s.factored:
        with f.when(f.let(f"icmp slt i64 %number, {s.factored}")):
            v, columns = s.reflectors(f, "%number"), s.column(f, "%number")
            s.read(f, module, v)
            s.transpose(f, module, v, columns, first, True)
            s.clean(f, module, columns, v, first)
            taus = offset(f, table_pointer(f, TAUS), ("%matrix", s.steps * p.bytes))
            s.make_factor(f, module, v, taus, "%number", True)
    clear(f, stripe, str(s.stripe_bytes))
    with f.loop("0", least(f, f.let(f"sub nsw i64 {s.m.rows}, {first}"), str(p.width))) as column:
        row = plus(f, first, column.index)
        store(f, p, one(p), offset(f, stripe, (row, p.stripe_row), (column.index, p.bytes)))
    return s.end(f, module)


def _step(s: _Product, module: Module) -> str:
    """The part that applies the reflectors of a stripe, from the last one on, to stripe `number` from it."""
    f = s.part("step")
    source = f.let(f"sub nsw i64 {s.factored - 1}, %step")
    s.apply(f, module, s.reflectors(f, source), source, s.stripe(f, plus(f, source, "%number")), True)
    return s.end(f, module)
