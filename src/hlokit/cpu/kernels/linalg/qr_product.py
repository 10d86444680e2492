"""The first columns of a product of Householder reflectors (LAPACK's orgqr): blocks of them applied to the identity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg.panels import clear, load, offset, one, plus, spread, store, times
from hlokit.cpu.kernels.linalg.qr import nothing, reflect
from hlokit.cpu.kernels.linalg.qr_lanes import product_in_lanes
from hlokit.cpu.kernels.linalg.reflectors import Reflecting
from hlokit.cpu.kernels.linalg.stepped import Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, aligned, masked
from hlokit.cpu.kernels.routine import Routine
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

    @property
    def is_narrow(self) -> bool:
        return False

    def reflectors(self, f: Function, number: str) -> str:
        """The place of v."""
        return offset(f, self.spare(f, number), self.tall.panel_column)


def routine(m: Matrix, reflectors: int, module: Module, target: Target) -> Routine:
    """The table: operand (v below its diagonal), the reflectors' factors, result, scratch."""
    if not m.batch * m.least:
        return nothing(m, module)
    batched = product_in_lanes(m, reflectors, module, target)
    if batched is not None:
        return batched
    s = _Product("qr_product", m, target, RESULT, reflectors)
    if s.count == s.factored == 1:
        return _narrow(Reflecting("qr_narrow", m, target, RESULT, reflectors), module)
    counts = range(s.count - s.factored + 1, s.count + 1) if s.factored else ()
    steps = Stepped(s.name, m.batch, SCRATCH, s.memory, _work(s), s.count, counts)
    start = s.part("first")
    return steps.routine(module, _pack(s, module), s.end(start, module), _step(s, module), s.unpack(module))


def _work(s: Reflecting) -> int:
    return s.m.rows * s.m.columns * (2 * s.steps + 8 * s.p.lanes) // s.p.lanes


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


# -- one stripe: one reflector after the other


def _narrow(s: Reflecting, module: Module) -> Routine:
    steps = Stepped(s.name, s.m.batch, SCRATCH, s.memory, _work(s), 1, ())
    first = s.part("first")
    taus = offset(first, table_pointer(first, TAUS), ("%matrix", s.steps * s.p.bytes))
    stripe, columns, spare = s.stripe(first, "0"), s.column(first, "0"), s.spare(first, "0")
    if s.is_narrow:
        s.take(first, module)
    else:
        s.transpose(first, module, stripe, columns, "0", True)
    first.do(f"call void @{_multiply(s, module)}(ptr {columns}, ptr {spare}, ptr {taus})")
    if s.is_narrow:
        s.give(first, module)
    else:
        s.transpose(first, module, stripe, columns, "0", False)
    pack, start = s.pack(module), s.end(first, module)
    return steps.routine(module, pack, start, start, s.unpack(module))


def _multiply(s: Reflecting, module: Module) -> str:
    """void f(ptr columns, ptr spare, ptr taus): columns of v become those of the product."""
    p, column = s.p, s.tall.panel_column
    f = Function(f"qr_multiply_{s.name}", [("ptr", n) for n in ("columns", "spare", "taus")], attributes="noinline")
    with f.loop(str(s.steps), str(s.m.columns)) as other:
        line = offset(f, "%columns", (other.index, column))
        clear(f, line, str(column))
        store(f, p, one(p), offset(f, line, (other.index, p.bytes)))
    with f.loop("0", str(s.steps)) as backwards:
        step = f.let(f"sub nsw i64 {s.steps - 1}, {backwards.index}")
        line, start = offset(f, "%columns", (step, column)), aligned(f, p, step)
        tau = load(f, p, offset(f, "%taus", (step, p.bytes)))
        clear(f, line, times(f, step, p.bytes))
        store(f, p, one(p), offset(f, line, (step, p.bytes)))
        places = [offset(f, x, (start, p.bytes)) for x in ("%spare", line)]
        size = times(f, f.let(f"sub nsw i64 {s.rows}, {start}"), p.bytes)
        f.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {places[0]}, ptr {places[1]}, i64 {size}, i1 false)")
        reflect(f, s, module, tau, step, plus(f, step, 1), str(s.m.columns))
        minus = f.let(f"fneg {p.scalar} {tau}")
        factor = spread(f, p, minus)

        def scale(row: str, mask: str, carried: Sequence[str], line: str = line, factor: str = factor) -> list[str]:
            place = offset(f, line, (row, p.bytes))
            value = load(f, p, place, p.lanes)
            store(f, p, masked(f, p, mask, f.let(f"fmul {p.vector} {value}, {factor}"), value), place, p.lanes)
            return []

        Rows(f, s, step).each([], scale)
        store(f, p, f.let(f"fadd {p.scalar} {minus}, {one(p)}"), offset(f, line, (step, p.bytes)))
    f.do("ret void")
    module.add(f)
    return f.name
