"""The first columns of a product of Householder reflectors (LAPACK's orgqr): blocks of them applied to the identity."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg import qr_lanes
from hlokit.cpu.kernels.linalg.qr import reflect, work_of
from hlokit.cpu.kernels.linalg.reflectors import Reflecting
from hlokit.cpu.kernels.linalg.stepped import Part, Parts, Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, masked
from hlokit.cpu.kernels.routine import EmptyPlan, Routine, RoutinePlan
from hlokit.cpu.llvm import POINTER, Index, Module, Pointer, Value
from hlokit.cpu.target import Target

TAUS, RESULT, SCRATCH = 1, 2, 3
"""The table's places, after the operand."""


@dataclass(frozen=True)
class _Product(Reflecting):
    """Stripes of the result; the factored ones have a stripe of v besides."""

    @property
    def extra(self) -> int:
        return super().extra + self.stripe_bytes

    @property
    def is_narrow(self) -> bool:
        return False

    def reflectors(self, f: Part, number: Index) -> Pointer:
        """The place of v."""
        return self.spare(f, number) + self.column_bytes


def plan_of(m: Matrix, reflectors: int, target: Target) -> RoutinePlan:
    """The plan for a batch. The table: operand (v below its diagonal), the reflectors' factors, result, scratch."""
    if not m.batch * m.least:
        return EmptyPlan()
    in_lanes = qr_lanes.product(m, reflectors, target)
    if in_lanes is not None:
        return in_lanes
    s = _Product("qr_product", m, target, RESULT, reflectors)
    if s.count == s.factored == 1:
        return QrNarrowProductPlan(Reflecting("qr_narrow", m, target, RESULT, reflectors))
    return QrProductPlan(s)


@dataclass(frozen=True)
class QrProductPlan:
    """Blocks of reflectors, applied to the identity's stripes."""

    s: _Product

    def write(self, module: Module) -> Routine:
        s = self.s
        counts = range(s.count - s.factored + 1, s.count + 1) if s.factored else ()
        steps = Stepped(s.name, s.m.batch, SCRATCH, s.memory, work_of(s), s.count, counts)
        first = module.end(s.part("first"))
        return steps.routine(module, Parts(_pack(s, module), first, _step(s, module), s.unpack(module)))


def _pack(s: _Product, module: Module) -> str:
    """The part that begins a stripe with the identity, and makes the block reflector of the operand's."""
    p = s.p
    f = s.part("pack")
    stripe, first = s.stripe(f, f.number), f.number * p.width
    if s.factored:
        with f.when(f.number < s.factored):
            v, columns = s.reflectors(f, f.number), s.columns(f, f.number)
            s.read(f, module, v)
            s.transpose(module, v, columns, first, True)
            s.clean(module, columns, v, first)
            s.make_factor(f, module, v, f.array(TAUS, s.steps * p.bytes), f.number, True)
    f.memset(stripe, 0, s.stripe_bytes)
    with f.loop(0, (s.m.rows - first).smin(p.width)) as column:
        (stripe + (first + column.index) * p.stripe_row)[column.index].store(1.0)
    return module.end(f)


def _step(s: _Product, module: Module) -> str:
    """The part that applies the reflectors of a stripe, from the last one on, to stripe `number` from it."""
    f = s.part("step")
    source = s.factored - 1 - f.step
    s.apply(f, module, s.reflectors(f, source), source, s.stripe(f, source + f.number), True)
    return module.end(f)


# -- one stripe: one reflector after the other


@dataclass(frozen=True)
class QrNarrowProductPlan:
    """The plan of matrices of one stripe: one reflector after the other."""

    s: Reflecting

    def write(self, module: Module) -> Routine:
        s = self.s
        steps = Stepped(s.name, s.m.batch, SCRATCH, s.memory, work_of(s), 1, ())
        f = s.part("first")
        zero = f.index(0)
        columns = s.load_columns(f, module, zero)
        f.call(_multiply(s, module), columns, s.spare(f, zero), f.array(TAUS, s.steps * s.p.bytes))
        s.store_columns(f, module, columns, zero)
        first = module.end(f)
        return steps.routine(module, Parts(s.pack(module), first, first, s.unpack(module)))


def _multiply(s: Reflecting, module: Module) -> str:
    """The function (columns, spare, taus): columns of v become those of the product."""
    p = s.p
    f, (columns, spare, taus) = subroutine(
        f"qr_multiply_{s.name}", p.scalar, columns=POINTER, spare=POINTER, taus=POINTER
    )
    with f.loop(s.steps, s.m.columns) as other:
        line = columns + other.index * s.column_bytes
        f.memset(line, 0, s.column_bytes)
        line[other.index].store(1.0)
    with f.loop(0, s.steps) as backwards:
        step = s.steps - 1 - backwards.index
        line, start = columns + step * s.column_bytes, step & -p.lanes
        tau = taus[step].load()
        f.memset(line, 0, step * p.bytes)
        line[step].store(1.0)
        f.memcpy(spare[start], line[start], (s.rows - start) * p.bytes)
        reflect(s, module, columns, spare, tau, step, step + 1, s.m.columns)
        factor = (-tau).splat(p.lanes)

        def scale(
            row: Index, mask: Value | None, carried: list[Value], line: Pointer = line, factor: Value = factor
        ) -> list[Value]:
            value = line[row].load(p.lanes)
            line[row].store(masked(mask, value * factor, value))
            return []

        Rows(s, step).each([], scale)
        line[step].store(-tau + 1.0)
    return module.end(f)
