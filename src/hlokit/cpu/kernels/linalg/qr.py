"""Householder's QR (LAPACK's geqrf): stripe by stripe, each changing those to its right (stripes.py, reflectors.py)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg.batch_lanes import chosen
from hlokit.cpu.kernels.linalg.panels import (
    Panels,
    everywhere,
    fma,
    less_product,
    load,
    magnitude,
    offset,
    one,
    plus,
    spread,
    store,
    times,
)
from hlokit.cpu.kernels.linalg.qr_lanes import qr_in_lanes
from hlokit.cpu.kernels.linalg.reflectors import Reflecting
from hlokit.cpu.kernels.linalg.stepped import Stepped
from hlokit.cpu.kernels.linalg.stripes import Matrix, Rows, aligned, masked
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant
from hlokit.cpu.target import Target

TAUS, SCRATCH = 2, 3
"""The table's places, after operand and result."""
_COLUMNS = (8, 2, 1)
"""How many columns are changed together."""


def routine(m: Matrix, module: Module, target: Target) -> Routine:
    """The table: operand, result (r, and v below its diagonal), the reflectors' factors, scratch."""
    if not m.batch * m.least:
        return nothing(m, module)
    batched = qr_in_lanes(m, module, target)
    if batched is not None:
        return batched
    s = Reflecting("qr", m, target, 1, m.least)
    last = s.count - s.factored
    counts = range(s.count - 1, last - 1, -1) if last else range(s.count - 1, 0, -1)
    work = m.rows * m.columns * (2 * m.least + 8 * s.p.lanes) // s.p.lanes
    steps = Stepped(s.name, m.batch, SCRATCH, s.memory, work, s.count, counts)
    factor = _factor(s, module)
    first, step = _first(s, module, factor), _step(s, module, factor)
    return steps.routine(module, s.pack(module), first, step, _unpack(s, module))


def nothing(m: Matrix, module: Module) -> Routine:
    f = Function(f"qr_nothing_{m.name}", PHASE)
    f.do("ret void")
    module.add(f, exported=True)
    return Routine((Phase(f.name),))


def _first(s: Reflecting, module: Module, factor: str) -> str:
    """The part that factors the first stripe."""
    f = s.part("first")
    _factor_stripe(f, s, module, factor, "0")
    return s.end(f, module)


def _factor_stripe(f: Function, s: Reflecting, module: Module, factor: str, number: str) -> None:
    """Factors a stripe, hands it out, and makes the block reflector of it."""
    p = s.p
    stripe, columns, first = s.stripe(f, number), s.column(f, number), times(f, number, p.width)
    if s.is_narrow:
        s.take(f, module)
    else:
        s.transpose(f, module, stripe, columns, first, True)
    taus = offset(f, table_pointer(f, TAUS), ("%matrix", s.m.least * p.bytes))
    counts = f"i64 {first}, i64 {s.steps_of(f, first)}, i64 {s.columns_of(f, first)}"
    f.do(f"call void @{factor}(ptr {columns}, ptr {s.spare(f, number)}, ptr {taus}, {counts})")
    if s.is_narrow:
        s.give(f, module)
        return
    s.transpose(f, module, stripe, columns, first, False)
    s.write(f, module, stripe, number)
    if s.count > 1:
        with f.when(f.let(f"icmp slt i64 {number}, {s.count - 1}")):
            s.clean(f, module, columns, stripe, first)
            s.make_factor(f, module, stripe, taus, number, False)


def _step(s: Reflecting, module: Module, factor: str) -> str:
    """The part that changes the stripe `number` beyond stripe `step`, and factors the next one."""
    f = s.part("step")
    following = plus(f, "%step", 1)
    s.apply(f, module, s.stripe(f, "%step"), "%step", s.stripe(f, plus(f, following, "%number")), False)
    is_next = f.let(f"icmp slt i64 {following}, {s.factored}")
    with f.when(f.let(f"and i1 {is_next}, {f.let('icmp eq i64 %number, 0')}")):
        _factor_stripe(f, s, module, factor, following)
    return s.end(f, module)


def _unpack(s: Reflecting, module: Module) -> str:
    """The part that hands out the stripes that are not factored."""
    f = s.part("unpack")
    with f.when(f.let(f"icmp sge i64 %number, {s.factored}")):
        s.write(f, module, s.stripe(f, "%number"), "%number")
    return s.end(f, module)


# -- a stripe by columns


def _factor(s: Reflecting, module: Module) -> str:
    """void f(ptr columns, ptr spare, ptr taus, i64 first, i64 steps, i64 count): factors columns from row `first` on.

    `steps` of the `count` columns have reflectors; `spare` gets one after the other, as a whole column.
    """
    p, column = s.p, s.tall.panel_column
    parameters = [("ptr", "columns"), ("ptr", "spare"), ("ptr", "taus")]
    parameters += [("i64", "first"), ("i64", "steps"), ("i64", "count")]
    f = Function(f"qr_columns_{s.tall.name}", parameters, attributes="noinline")
    with f.loop("0", "%steps") as step:
        row = plus(f, "%first", step.index)
        tau = reflector(f, s, offset(f, "%columns", (step.index, column)), row)
        store(f, p, tau, offset(f, "%taus", (row, p.bytes)))
        reflect(f, s, module, tau, row, plus(f, step.index, 1), "%count")
    f.do("ret void")
    module.add(f)
    return f.name


def reflect(f: Function, s: Reflecting, module: Module, tau: str, row: str, low: str, high: str) -> None:
    """Applies the reflector in %spare to columns `low` to `high` of %columns, from row `row` on."""
    for count in _COLUMNS:
        whole = plus(f, low, f.let(f"and i64 {f.let(f'sub nsw i64 {high}, {low}')}, {-count}"))
        with f.loop(low, whole, count) as other:
            place = offset(f, "%columns", (other.index, s.tall.panel_column))
            change = _reflect(s, module, count)
            f.do(f"call void @{change}(ptr {place}, ptr %spare, {s.p.scalar} {tau}, i64 {row})")
        low = whole


def _reflect(s: Reflecting, module: Module, count: int) -> str:
    """void f(ptr columns, ptr v, scalar tau, i64 row): columns -= v tau (v^T columns), from row `row` on."""
    p = s.p
    parameters = [("ptr", "columns"), ("ptr", "v"), (p.scalar, "tau"), ("i64", "row")]
    name = f"reflect_columns_{count}_{s.tall.name}_{s.m.rows}"
    if name in module.functions:
        return name
    f = Function(name, parameters, attributes="noinline")
    lines = [offset(f, "%columns", c * s.tall.panel_column) for c in range(count)]

    def vectors(row: str, mask: str) -> tuple[str, list[str]]:
        """The reflector's, zeros where its rows are not, and the columns'."""
        v = masked(f, p, mask, load(f, p, offset(f, "%v", (row, p.bytes)), p.lanes))
        return v, [load(f, p, offset(f, line, (row, p.bytes)), p.lanes) for line in lines]

    def add(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        v, values = vectors(row, mask)
        return [fma(f, p, v, masked(f, p, mask, x), c) for x, c in zip(values, carried, strict=True)]

    rows = Rows(f, s, "%row")
    sums = rows.each([(p.vector, everywhere(p, 0.0))] * count, add)
    zero = float_constant(0.0, p.scalar)
    is_identity = f.let(f"fcmp oeq {p.scalar} %tau, {zero}")  # of infinite columns too
    factors: list[str] = []
    for x in sums:
        factor = f.let(f"fmul {p.scalar} {total(f, p, x)}, %tau")
        factors.append(spread(f, p, f.let(f"select i1 {is_identity}, {p.scalar} {zero}, {p.scalar} {factor}")))

    def subtract(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        v, values = vectors(row, mask)
        for line, x, factor in zip(lines, values, factors, strict=True):
            changed = masked(f, p, mask, less_product(f, p, [x], [v], [factor])[0], x)
            store(f, p, changed, offset(f, line, (row, p.bytes)), p.lanes)
        return []

    rows.each([], subtract)
    f.do("ret void")
    module.add(f)
    return f.name


def total(f: Function, p: Panels, vector: str) -> str:
    zero = float_constant(0.0, p.scalar)
    return f.let(f"call reassoc {p.scalar} @llvm.vector.reduce.fadd.{p.suffix}({p.scalar} {zero}, {p.vector} {vector})")


def reflector(f: Function, s: Reflecting, column: str, row: str) -> str:
    """Makes the reflector of a column's rows from `row` on: v below it, r there; v whole in %spare. Gives tau."""
    p = s.p
    kind, zero = p.scalar, float_constant(0.0, p.scalar)
    reach = 40 if p.bytes == 4 else 400
    place = offset(f, column, (row, p.bytes))
    alpha = load(f, p, place)
    below = Rows(f, s, plus(f, row, 1))

    def constant(x: float) -> str:
        return float_constant(x, kind)

    def select(condition: str, a: str, b: str) -> str:
        return f.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    squares = _squares(f, p, column, below)
    whole = f.let(f"fadd {kind} {squares}, {f.let(f'fmul {kind} {alpha}, {alpha}')}")
    high = f.let(f"fcmp olt {kind} {whole}, {constant(2.0 ** (2 * reach))}")
    low = f.let(f"fcmp ogt {kind} {squares}, {constant(2.0 ** (-2 * reach))}")
    before, slow, after = f.block, f.new_block("scaled"), f.new_block("normed")
    f.branch(f.let(f"and i1 {high}, {low}"), after, slow)
    # squares that overflow or underflow: a power of two first
    f.start(slow)
    most = _largest(f, p, column, below)
    most = f.let(f"call {kind} @llvm.maxnum.f{8 * p.bytes}({kind} {most}, {kind} {_absolute(f, p, alpha)})")
    tiny = f.let(f"fcmp olt {kind} {most}, {constant(2.0**-reach)}")
    huge = f.let(f"fcmp ogt {kind} {most}, {constant(2.0**reach)}")
    other = 2.0 ** (2 * reach)
    huge = f.let(f"and i1 {huge}, {f.let(f'fcmp one {kind} {most}, {constant(math.inf)}')}")  # small ones stay there
    scaling = select(tiny, constant(other), select(huge, constant(1 / other), one(p)))
    scaled = _squares(f, p, column, below, scaling)
    leaves = f.block
    f.jump(after)
    f.start(after)
    scale = f.let(f"phi {kind} [ {one(p)}, %{before} ], [ {scaling}, %{leaves} ]")
    norm = f.let(f"phi {kind} [ {squares}, %{before} ], [ {scaled}, %{leaves} ]")
    start = f.let(f"fmul {kind} {alpha}, {scale}")
    length = f.let(f"fadd {kind} {norm}, {f.let(f'fmul {kind} {start}, {start}')}")
    root = f.let(f"call {kind} @llvm.sqrt.f{8 * p.bytes}({kind} {length})")
    beta = f.let(f"fneg {kind} {f.let(f'call {kind} @llvm.copysign.f{8 * p.bytes}({kind} {root}, {kind} {start})')}")
    is_done = f.let(f"fcmp oeq {kind} {norm}, {zero}")  # nothing below: the identity
    difference = f.let(f"fsub {kind} {beta}, {start}")
    tau = select(is_done, zero, f.let(f"fdiv {kind} {difference}, {beta}"))
    inverse = f.let(f"fdiv {kind} {one(p)}, {f.let(f'fneg {kind} {difference}')}")
    inverse = select(is_done, zero, inverse)
    _scaled_column(f, p, column, row, below, [scale, inverse])
    unscaled = f.let(f"fdiv {kind} {beta}, {scale}")
    store(f, p, select(is_done, alpha, unscaled), place)
    store(f, p, one(p), offset(f, "%spare", (row, p.bytes)))
    return tau


def _absolute(f: Function, p: Panels, value: str) -> str:
    return f.let(f"call {p.scalar} @llvm.fabs.f{8 * p.bytes}({p.scalar} {value})")


def _squares(f: Function, p: Panels, column: str, below: Rows, scale: str = "") -> str:
    """The sum of the squares of a column's elements `below`, each times `scale`."""
    factor = spread(f, p, scale) if scale else ""

    def add(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        x = masked(f, p, mask, load(f, p, offset(f, column, (row, p.bytes)), p.lanes))
        x = f.let(f"fmul {p.vector} {x}, {factor}") if factor else x
        return [fma(f, p, x, x, carried[0])]

    return total(f, p, below.each([(p.vector, everywhere(p, 0.0))], add, bool(scale))[0])


def _largest(f: Function, p: Panels, column: str, below: Rows) -> str:
    def larger(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        size = masked(f, p, mask, magnitude(f, p, load(f, p, offset(f, column, (row, p.bytes)), p.lanes)))
        return [chosen(f, p, f.let(f"fcmp ogt {p.vector} {size}, {carried[0]}"), size, carried[0])]

    most = below.each([(p.vector, everywhere(p, 0.0))], larger, True)[0]
    return f.let(f"call {p.scalar} @llvm.vector.reduce.fmax.{p.suffix}({p.vector} {most})")


def _scaled_column(f: Function, p: Panels, column: str, row: str, below: Rows, scales: list[str]) -> None:
    """Multiplies a column's elements `below` the row; %spare gets them, with zeros before."""
    factors = [spread(f, p, scale) for scale in scales]
    store(f, p, everywhere(p, 0.0), offset(f, "%spare", (aligned(f, p, row), p.bytes)), p.lanes)

    def scaled(row: str, mask: str, carried: Sequence[str]) -> list[str]:
        place = offset(f, column, (row, p.bytes))
        old = value = load(f, p, place, p.lanes)
        for factor in factors:
            value = f.let(f"fmul {p.vector} {value}, {factor}")
        store(f, p, masked(f, p, mask, value), offset(f, "%spare", (row, p.bytes)), p.lanes)
        store(f, p, masked(f, p, mask, value, old), place, p.lanes)
        return []

    below.each([], scaled)
