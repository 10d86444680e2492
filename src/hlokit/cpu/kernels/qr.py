"""Householder's QR (LAPACK's geqrf): stripe by stripe, each changing those to its right (stripes.py, reflectors.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.panels import (
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
from hlokit.cpu.kernels.qr_lanes import qr_in_lanes
from hlokit.cpu.kernels.reflectors import Reflecting
from hlokit.cpu.kernels.routine import Phase, Routine
from hlokit.cpu.kernels.stepped import Stepped
from hlokit.cpu.kernels.stripes import Matrix, aligned, rows_from
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
    f = Function(f"qr_nothing_{m.name}", [("ptr", "table"), ("i64", "begin"), ("i64", "end")])
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
        tau = _reflector(f, s, offset(f, "%columns", (step.index, column)), row)
        store(f, p, tau, offset(f, "%taus", (row, p.bytes)))
        reflect(f, s, module, tau, aligned(f, p, row), plus(f, step.index, 1), "%count")
    f.do("ret void")
    module.add(f)
    return f.name


def reflect(f: Function, s: Reflecting, module: Module, tau: str, start: str, low: str, high: str) -> None:
    """Applies the reflector in %spare to columns `low` to `high` of %columns, from row `start` on."""
    for count in _COLUMNS:
        whole = plus(f, low, f.let(f"and i64 {f.let(f'sub nsw i64 {high}, {low}')}, {-count}"))
        with f.loop(low, whole, count) as other:
            place = offset(f, "%columns", (other.index, s.tall.panel_column))
            change = _reflect(s, module, count)
            f.do(f"call void @{change}(ptr {place}, ptr %spare, {s.p.scalar} {tau}, i64 {start})")
        low = whole


def _reflect(s: Reflecting, module: Module, count: int) -> str:
    """void f(ptr columns, ptr v, scalar tau, i64 start): columns -= v tau (v^T columns), from row `start` on."""
    p = s.p
    parameters = [("ptr", "columns"), ("ptr", "v"), (p.scalar, "tau"), ("i64", "start")]
    name = f"reflect_columns_{count}_{s.tall.name}"
    if name in module.functions:
        return name
    f = Function(name, parameters, attributes="noinline")
    lines = [offset(f, "%columns", c * s.tall.panel_column) for c in range(count)]
    with f.loop("%start", str(s.rows), p.lanes, carries=[(p.vector, everywhere(p, 0.0))] * count) as loop:
        v = load(f, p, offset(f, "%v", (loop.index, p.bytes)), p.lanes)
        values = [load(f, p, offset(f, line, (loop.index, p.bytes)), p.lanes) for line in lines]
        loop.next = [fma(f, p, v, x, c) for x, c in zip(values, loop.carried, strict=True)]
    factors: list[str] = []
    for sums in loop.results:
        factors.append(spread(f, p, f.let(f"fmul {p.scalar} {_sum(f, p, sums)}, %tau")))
    with f.loop("%start", str(s.rows), p.lanes) as loop:
        v = load(f, p, offset(f, "%v", (loop.index, p.bytes)), p.lanes)
        for line, factor in zip(lines, factors, strict=True):
            place = offset(f, line, (loop.index, p.bytes))
            store(f, p, less_product(f, p, [load(f, p, place, p.lanes)], [v], [factor])[0], place, p.lanes)
    f.do("ret void")
    module.add(f)
    return f.name


def _sum(f: Function, p: Panels, vector: str) -> str:
    zero = float_constant(0.0, p.scalar)
    return f.let(f"call reassoc {p.scalar} @llvm.vector.reduce.fadd.{p.suffix}({p.scalar} {zero}, {p.vector} {vector})")


def _reflector(f: Function, s: Reflecting, column: str, row: str) -> str:
    """Makes the reflector of a column's rows from `row` on: v below it, r there; v whole in %spare. Gives tau."""
    p = s.p
    kind, zero = p.scalar, float_constant(0.0, p.scalar)
    reach = 40 if p.bytes == 4 else 400
    place = offset(f, column, (row, p.bytes))
    alpha = load(f, p, place)
    below = plus(f, row, 1)

    def constant(x: float) -> str:
        return float_constant(x, kind)

    def select(condition: str, a: str, b: str) -> str:
        return f.let(f"select i1 {condition}, {kind} {a}, {kind} {b}")

    squares = _squares(f, s, column, below, one(p))
    whole = f.let(f"fadd {kind} {squares}, {f.let(f'fmul {kind} {alpha}, {alpha}')}")
    high = f.let(f"fcmp olt {kind} {whole}, {constant(2.0 ** (2 * reach))}")
    low = f.let(f"fcmp ogt {kind} {squares}, {constant(2.0 ** (-2 * reach))}")
    before, slow, after = f.block, f.new_block("scaled"), f.new_block("normed")
    f.branch(f.let(f"and i1 {high}, {low}"), after, slow)
    # squares that overflow or underflow: a power of two first
    f.start(slow)
    most = _largest(f, s, column, below)
    most = f.let(f"call {kind} @llvm.maxnum.f{8 * p.bytes}({kind} {most}, {kind} {_absolute(f, p, alpha)})")
    tiny = f.let(f"fcmp olt {kind} {most}, {constant(2.0**-reach)}")
    huge = f.let(f"fcmp ogt {kind} {most}, {constant(2.0**reach)}")
    other = 2.0 ** (2 * reach)
    scaling = select(tiny, constant(other), select(huge, constant(1 / other), one(p)))
    scaled = _squares(f, s, column, below, scaling)
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
    _scaled_column(f, s, column, below, [scale, inverse])
    unscaled = f.let(f"fdiv {kind} {beta}, {scale}")
    store(f, p, select(is_done, alpha, unscaled), place)
    store(f, p, one(p), offset(f, "%spare", (row, p.bytes)))
    return tau


def _absolute(f: Function, p: Panels, value: str) -> str:
    return f.let(f"call {p.scalar} @llvm.fabs.f{8 * p.bytes}({p.scalar} {value})")


_Edge: TypeAlias = "tuple[str, str] | None"
_Body: TypeAlias = Callable[[str, str, Sequence[str], _Edge], list[str]]
"""body(row, value, carried, edge): what is carried on from a column's vector. edge: which of its lanes count, and the
vector with the others, if not all do; in `value` these are zeros."""


def _each_vector(
    f: Function, s: Reflecting, column: str, below: str, carries: Sequence[tuple[str, str]], body: _Body
) -> list[str]:
    """What is carried out of the column's vectors from row `below` on."""
    p = s.p
    start = aligned(f, p, below)
    mask = rows_from(f, p, start, below)
    middle = plus(f, start, p.lanes)
    results = [value for _, value in carries]
    for begin, end, is_first in ((start, least(f, middle, str(s.rows)), True), (middle, str(s.rows), False)):
        typed = [(type, value) for (type, _), value in zip(carries, results, strict=True)]
        with f.loop(begin, end, p.lanes, carries=typed) as loop:
            value = load(f, p, offset(f, column, (loop.index, p.bytes)), p.lanes)
            kept = value
            if is_first:
                value = f.let(f"select <{p.lanes} x i1> {mask}, {p.vector} {value}, {p.vector} {everywhere(p, 0.0)}")
            loop.next = body(loop.index, value, loop.carried, (mask, kept) if is_first else None)
        results = loop.results
    return results


def _squares(f: Function, s: Reflecting, column: str, below: str, scale: str) -> str:
    """The sum of the squares of a column's elements from row `below` on, each times `scale`."""
    p = s.p
    factor = spread(f, p, scale)

    def add(index: str, value: str, carried: Sequence[str], edge: _Edge) -> list[str]:
        x = f.let(f"fmul {p.vector} {value}, {factor}")
        return [fma(f, p, x, x, carried[0])]

    return _sum(f, p, _each_vector(f, s, column, below, [(p.vector, everywhere(p, 0.0))], add)[0])


def _largest(f: Function, s: Reflecting, column: str, below: str) -> str:
    p = s.p

    def larger(index: str, value: str, carried: Sequence[str], edge: _Edge) -> list[str]:
        size = magnitude(f, p, value)
        is_larger = f.let(f"fcmp ogt {p.vector} {size}, {carried[0]}")
        return [f.let(f"select <{p.lanes} x i1> {is_larger}, {p.vector} {size}, {p.vector} {carried[0]}")]

    most = _each_vector(f, s, column, below, [(p.vector, everywhere(p, 0.0))], larger)[0]
    return f.let(f"call {p.scalar} @llvm.vector.reduce.fmax.{p.suffix}({p.vector} {most})")


def _scaled_column(f: Function, s: Reflecting, column: str, below: str, scales: list[str]) -> None:
    """Multiplies a column from row `below` on; %spare gets it, with zeros before."""
    p = s.p
    factors = [spread(f, p, scale) for scale in scales]
    start = aligned(f, p, f.let(f"sub nsw i64 {below}, 1"))
    store(f, p, everywhere(p, 0.0), offset(f, "%spare", (start, p.bytes)), p.lanes)

    def scaled(index: str, value: str, carried: Sequence[str], edge: _Edge) -> list[str]:
        for factor in factors:
            value = f.let(f"fmul {p.vector} {value}, {factor}")
        store(f, p, value, offset(f, "%spare", (index, p.bytes)), p.lanes)
        if edge is not None:
            value = f.let(f"select <{p.lanes} x i1> {edge[0]}, {p.vector} {value}, {p.vector} {edge[1]}")
        store(f, p, value, offset(f, column, (index, p.bytes)), p.lanes)
        return []

    _each_vector(f, s, column, below, [], scaled)
