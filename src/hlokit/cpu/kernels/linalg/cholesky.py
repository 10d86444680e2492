"""cholesky: a = u^H u by stripes of u's columns, each factored below those before it (panels.py).

A step p takes the panel of rows p: every stripe to its right is solved there with the panel's triangle, and the first
of these is factored on its diagonal, so that the next step can begin. The factor l is u^H.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg import panels
from hlokit.cpu.kernels.linalg.cholesky_lanes import in_lanes
from hlokit.cpu.kernels.linalg.factored import INFO, Factored
from hlokit.cpu.kernels.linalg.panel_copy import copy
from hlokit.cpu.kernels.linalg.panels import (
    Panels,
    clear,
    less_product,
    load,
    load_element,
    offset,
    one,
    panels_for,
    plus,
    spread,
    store,
    store_element,
    times,
    up,
)
from hlokit.cpu.kernels.linalg.stepped import HEAD, Stepped, part
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant
from hlokit.cpu.target import Target
from hlokit.ops.linalg import Cholesky
from hlokit.types.shape import Shape

TYPES = ("f32", "f64", "c64", "c128")


def cholesky(call: Call, module: Module) -> Routine | None:
    """The routine for f32, f64, c64 and c128."""
    op = call.op
    assert isinstance(op, Cholesky)
    (a,) = call.operands
    if call.strict or call.store is not None or a.dtype.name not in TYPES:
        return None
    return routine(factored(a, op.lower), module, call.target)


KERNELS["cholesky"] = cholesky


def factored(a: Shape, lower: bool, info: bool = False) -> Factored:
    return Factored(a.dtype, prod(a.dimensions[:-2]), a.dimensions[-1], lower, info)


def routine(s: Factored, module: Module, target: Target) -> Routine:
    """The table: operand, result, (info,) scratch."""
    if not s.batch * s.size:
        return _nothing(s, module)
    batched = in_lanes(s, module, target)
    if batched is not None:
        return batched
    plan = _Plan(s, panels_for(s.dtype, target))
    pack, first, step, unpack = _pack(plan, module), _first(plan, module), _step(plan, module), _unpack(plan, module)
    counts = range(plan.stripes - 1, 0, -1)
    steps = Stepped(f"cholesky_{plan.name}", s.batch, s.scratch, plan.matrix, plan.work, plan.stripes, counts)
    return steps.routine(module, pack, first, step, unpack)


def _nothing(s: Factored, module: Module) -> Routine:
    f = Function(f"cholesky_nothing_{s.name}", PHASE)
    if s.info:
        clear(f, table_pointer(f, INFO), str(4 * s.batch))
    f.do("ret void")
    module.add(f, exported=True)
    return Routine((Phase(f.name),))


@dataclass(frozen=True)
class _Plan:
    """Scratch of a matrix: its info, then its reciprocals, then its stripes, each as far as its diagonal."""

    s: Factored
    p: Panels

    @property
    def stripes(self) -> int:
        return -(-self.s.size // self.p.width)

    @property
    def padded(self) -> int:
        return self.stripes * self.p.width

    @property
    def work(self) -> int:
        return self.padded**3 * self.p.parts**2 // (6 * self.p.lanes) + self.padded**2

    @property
    def stripes_at(self) -> int:
        return up(HEAD + self.padded * self.p.reciprocal, 64)

    @property
    def unit(self) -> int:
        """Bytes of the first stripe; stripe n has n + 1 times as many."""
        return self.p.width * self.p.stripe_row

    @property
    def matrix(self) -> int:
        """Bytes of scratch for a matrix."""
        return up(self.stripes_at + self.unit * self.stripes * (self.stripes + 1) // 2, 64)

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}"

    def stripe(self, f: Function, memory: str, number: str) -> str:
        before = f.let(f"mul nsw i64 {number}, {plus(f, number, 1)}")
        return offset(f, memory, self.stripes_at, (f.let(f"lshr i64 {before}, 1"), self.unit))


def _part(plan: _Plan, name: str) -> tuple[Function, str]:
    """A part, with the matrix's scratch memory."""
    return part(f"cholesky_{name}_{plan.name}"), "%memory"


def _pack(plan: _Plan, module: Module) -> str:
    """Copies stripe `number` as far as the end of its diagonal; the identity's columns follow the matrix's last."""
    s, p = plan.s, plan.p
    f, memory = _part(plan, "pack")
    with f.when(f.let("icmp eq i64 %number, 0")):
        f.do(f"store i32 0, ptr {memory}, align 4")
    stripe = plan.stripe(f, memory, "%number")
    first = times(f, "%number", p.width)
    columns = least(f, f.let(f"sub nsw i64 {s.size}, {first}"), str(p.width))
    if plan.padded != s.size:
        with f.when(f.let(f"icmp slt i64 {columns}, {p.width}")):
            clear(f, stripe, str(plan.padded * p.stripe_row))
            with f.loop(columns, str(p.width)) as column:
                row = plus(f, first, column.index)
                store(f, p, one(p), offset(f, stripe, (row, p.stripe_row), (column.index, p.bytes)))
    array = offset(f, table_pointer(f, 0), ("%matrix", s.matrix), (first, s.strides.minor))
    into = copy(module, p, p.width, s.strides, True)
    f.do(f"call void @{into}(ptr {stripe}, ptr {array}, i64 {plus(f, first, columns)}, i64 {columns})")
    f.do("ret void")
    module.add(f)
    return f.name


def _first(plan: _Plan, module: Module) -> str:
    """Factors the first stripe's diagonal."""
    f, memory = _part(plan, "first")
    diagonal = _diagonal(plan.p, module)
    stripe, reciprocals = offset(f, memory, plan.stripes_at), offset(f, memory, HEAD)
    f.do(f"call void @{diagonal}(ptr {stripe}, ptr {stripe}, ptr {reciprocals}, ptr {memory}, i64 0)")
    f.do("ret void")
    module.add(f)
    return f.name


def _step(plan: _Plan, module: Module) -> str:
    """Solves the rows of panel `step` in the stripe `number` to its right (0 is the next), and factors the next one."""
    p = plan.p
    f, memory = _part(plan, "step")
    substitute = panels.solve(module, p, False, conjugate=True)

    def finish(g: Function, rows: str, triangle: str, reciprocals: str, row: str) -> None:
        g.do(f"call void @{substitute}(ptr {rows}, ptr {triangle}, ptr {reciprocals}, i64 0)")

    solve = panels.panel_rows(module, p, f"panel_rows_conj_{p.name}", finish, conjugate=True)
    diagonal = _diagonal(p, module)
    following = plus(f, "%step", 1)
    stripe = plan.stripe(f, memory, plus(f, following, "%number"))
    panel, reciprocals = plan.stripe(f, memory, "%step"), offset(f, memory, HEAD)
    row = times(f, "%step", p.width)
    f.do(f"call void @{solve}(ptr {stripe}, ptr {panel}, ptr {reciprocals}, ptr null, i64 {row})")
    with f.when(f.let("icmp eq i64 %number, 0")):
        row = times(f, following, p.width)
        f.do(f"call void @{diagonal}(ptr {stripe}, ptr {stripe}, ptr {reciprocals}, ptr {memory}, i64 {row})")
    f.do("ret void")
    module.add(f)
    return f.name


def _diagonal(p: Panels, module: Module) -> str:
    factor = _factor(p, module)

    def finish(g: Function, rows: str, triangle: str, reciprocals: str, row: str) -> None:
        g.do(f"call void @{factor}(ptr {rows}, ptr {triangle}, ptr {reciprocals}, ptr %info, i64 {row})")

    return panels.panel_rows(module, p, f"panel_factor_{p.name}", finish, conjugate=True)


def _factor(p: Panels, module: Module) -> str:
    """void f(ptr c, ptr t, ptr r, ptr info, i64 row): c[rows][width] becomes rows of u; t is its diagonal's place.

    What stands left of the diagonal is never read. info gets the number, from 1, of the first pivot not positive.
    """
    name = f"panel_pivots_{p.name}"
    if name in module.functions:
        return name
    parameters = [("ptr", "c"), ("ptr", "t"), ("ptr", "r"), ("ptr", "info"), ("i64", "row")]
    f = Function(name, parameters, attributes="noinline")
    # the vectors of the diagonal; then those to its right are solved for
    count = max(1, p.rows // p.lanes)
    first = f.let(f"udiv i64 {f.let(f'urem i64 %row, {p.width}')}, {p.lanes}")
    start = offset(f, "%c", (first, p.lanes * p.bytes))
    places = [[offset(f, start, i * p.stripe_row + v * p.lanes * p.bytes) for v in range(count)] for i in range(p.rows)]
    rows = [[load_element(f, p, place) for place in line] for line in places]
    kind, zero = p.scalar, float_constant(0.0, p.scalar)
    for i in range(p.rows):
        corner = offset(f, "%t", i * p.panel_column)
        _store(f, p, rows[i], places[i])
        pivot = load(f, p, offset(f, corner, i * p.bytes))
        positive = f.let(f"fcmp ogt {kind} {pivot}, {zero}")
        panels.note_pivot(f, positive, "%info", plus(f, "%row", i + 1))
        root = f.let(f"call {kind} @llvm.sqrt.f{8 * p.bytes}({kind} {pivot})")
        reciprocal = f.let(f"fdiv {kind} {one(p)}, {root}")
        place = offset(f, "%r", i * p.reciprocal)
        for c, value in enumerate([reciprocal, zero, one(p)] if p.parts == 2 else [reciprocal, one(p)]):
            store(f, p, value, offset(f, place, c * p.bytes))
        factor = spread(f, p, reciprocal)
        rows[i] = [[f.let(f"fmul {p.vector} {x}, {factor}") for x in vector] for vector in rows[i]]
        _store(f, p, rows[i], places[i])
        store(f, p, root, offset(f, corner, i * p.bytes))
        if p.parts == 2:
            store(f, p, zero, offset(f, corner, (p.height + i) * p.bytes))
        for r in range(i + 1, p.rows):
            left = panels.factors(f, p, offset(f, corner, r * p.bytes), p.height * p.bytes)
            rows[r] = [less_product(f, p, c, left, x, True) for c, x in zip(rows[r], rows[i], strict=True)]
    substitute = panels.solve(module, p, False, conjugate=True)
    f.do(f"call void @{substitute}(ptr %c, ptr %t, ptr %r, i64 {plus(f, first, count)})")
    f.do("ret void")
    module.add(f)
    return name


def _store(f: Function, p: Panels, values: list[list[str]], places: list[str]) -> None:
    for value, place in zip(values, places, strict=True):
        store_element(f, p, value, place)


def _unpack(plan: _Plan, module: Module) -> str:
    """Copies stripe `number` to the result, and its share of the other triangle."""
    s, p = plan.s, plan.p
    f, memory = _part(plan, "unpack")
    row = s.size * s.element
    stripe = plan.stripe(f, memory, "%number")
    first = times(f, "%number", p.width)
    columns = least(f, f.let(f"sub nsw i64 {s.size}, {first}"), str(p.width))
    result = offset(f, table_pointer(f, 1), ("%matrix", s.matrix))
    info = f.let(f"load i32, ptr {memory}, align 4")
    if s.info:
        f.do(f"store i32 {info}, ptr {offset(f, table_pointer(f, INFO), ('%matrix', 4))}, align 4")
    array = offset(f, result, (first, s.strides.minor))
    out = copy(module, p, p.width, s.strides, False)
    f.do(f"call void @{out}(ptr {stripe}, ptr {array}, i64 {first}, i64 {columns})")
    _copy_triangle(
        f, plan, offset(f, stripe, (first, p.stripe_row)), offset(f, array, (first, s.strides.major)), columns
    )
    operand = offset(f, table_pointer(f, 0), ("%matrix", s.matrix))
    with f.loop(first, plus(f, first, columns)) as line:
        # the other triangle: right of the diagonal of these rows, or left of it
        start = plus(f, line.index, 1) if s.lower else "0"
        count = f.let(f"sub nsw i64 {s.size}, {start}") if s.lower else line.index
        place = offset(f, result, (line.index, row), (start, s.element))
        if not s.info:
            clear(f, place, times(f, count, s.element))
        else:
            source = offset(f, operand, (line.index, row), (start, s.element))
            size = times(f, count, s.element)
            f.do(f"call void @llvm.memmove.p0.p0.i64(ptr {place}, ptr {source}, i64 {size}, i1 false)")
    if not s.info:
        with f.when(f.let(f"icmp ne i32 {info}, 0")), f.loop(first, plus(f, first, columns)) as line:
            place = offset(f, result, (line.index, row))
            with f.loop("0", str(s.size)) as column:
                element = offset(f, place, (column.index, s.element))
                store(f, p, "0x7FF8000000000000", element)  # NaN
                if p.parts == 2:
                    store(f, p, float_constant(0.0, p.scalar), offset(f, element, p.bytes))
    f.do("ret void")
    module.add(f)
    return f.name


def _copy_triangle(f: Function, plan: _Plan, packed: str, array: str, columns: str) -> None:
    """The diagonal block of u, without what stands left of its diagonal."""
    s, p = plan.s, plan.p
    with f.loop("0", columns) as minor, f.loop("0", plus(f, minor.index, 1)) as major:
        here = offset(f, packed, (major.index, p.stripe_row), (minor.index, p.bytes))
        there = offset(f, array, (major.index, s.strides.major), (minor.index, s.strides.minor))
        for c in range(p.parts):
            value = load(f, p, offset(f, here, c * p.width * p.bytes))
            if c and s.strides.conjugate:
                value = f.let(f"fsub {p.scalar} {float_constant(0.0, p.scalar)}, {value}")  # 0 on the diagonal, not -0
            store(f, p, value, offset(f, there, c * p.bytes))
