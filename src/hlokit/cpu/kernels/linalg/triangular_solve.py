"""triangular-solve: the solved dimension in panels, the right sides in stripes (panels.py).

Every case is a lower triangle's: transposes are strides, x a = b is a^T x^T = b^T, an upper triangle is a lower one
whose rows and columns count from the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg import panels
from hlokit.cpu.kernels.linalg.panel_copy import copy
from hlokit.cpu.kernels.linalg.panels import (
    Items,
    Panels,
    clear,
    load,
    offset,
    one,
    panels_for,
    plus,
    store,
    times,
    up,
)
from hlokit.cpu.kernels.linalg.system import System, scaled_reciprocal, system_of
from hlokit.cpu.kernels.linalg.triangular_lanes import in_lanes
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant
from hlokit.cpu.target import Target
from hlokit.ops.linalg import TriangularSolve

_LARGE = 1 << 20
"""Bytes of a triangle."""
_TOGETHER, _GROUPS = 2, 6
"""The most stripes of a group, and the fewest groups."""
TYPES = ("f32", "f64", "c64", "c128")


def triangular_solve(call: Call, module: Module) -> Routine | None:
    """The routine for f32, f64, c64 and c128."""
    op = call.op
    assert isinstance(op, TriangularSolve)
    if call.strict or call.store is not None or call.operands[0].dtype.name not in TYPES:
        return None
    a, b = call.operands
    system = system_of(b, a.dimensions[-1], op.left_side, op.lower, op.unit_diagonal, op.transpose_a)
    return routine(system, module, call.target)


KERNELS["triangular-solve"] = triangular_solve


def routine(s: System, module: Module, target: Target) -> Routine:
    """Two phases: the triangle's panels, then the right sides' stripes. The table: a, b, x, scratch."""
    if not s.batch * s.size * s.columns:
        f = Function("triangular_solve_nothing", PHASE)
        f.do("ret void")
        module.add(f, exported=True)
        return Routine((Phase(f.name),))
    batched = in_lanes(s, module, target)
    if batched is not None:
        return batched
    full = panels_for(s.dtype, target)
    blocks = min(full.blocks, -(-s.size // full.rows))
    p = replace(full, blocks=blocks, vectors=min(full.vectors, -(-s.columns // full.lanes)))
    plan = _Plan(s, p)
    pack, solve = _pack(plan, module), _solve(plan, module)
    return Routine((Phase(pack, plan.packed.chunks), Phase(solve, plan.solved.chunks)), plan.scratch)


@dataclass(frozen=True)
class _Plan:
    """Where things are in scratch: for each matrix its panels, its reciprocals, its stripes."""

    s: System
    p: Panels

    @property
    def panels(self) -> int:
        return -(-self.s.size // self.p.height)

    @property
    def stripes(self) -> int:
        return -(-self.s.columns // self.p.width)

    @property
    def padded(self) -> int:
        return self.panels * self.p.height

    @property
    def packed(self) -> Items:
        """The panels of all matrices."""
        return Items(self.s.batch * self.panels, self.padded * self.p.height * self.p.parts // 4)

    @property
    def together(self) -> int:
        """Stripes that a panel is taken to the cache for: one if the triangle stays in the second-level one."""
        if self.panel_bytes * self.panels**2 // 2 < _LARGE:
            return 1
        return max(1, min(_TOGETHER, self.s.batch * self.stripes // _GROUPS))

    @property
    def groups(self) -> int:
        """Of stripes that are solved together."""
        return -(-self.stripes // self.together)

    @property
    def solved(self) -> Items:
        """The groups of all matrices."""
        products = self.padded**2 * self.p.vectors * self.p.parts**2 // 2
        return Items(self.s.batch * self.groups, (products + 8 * self.padded * self.p.vectors) * self.together)

    @property
    def panel_bytes(self) -> int:
        """Of a matrix's first panel; panel n, as far as its diagonal, has n + 1 times as many."""
        return self.p.height * self.p.panel_column

    @property
    def reciprocals(self) -> int:
        """Bytes to the reciprocals."""
        return up(self.panel_bytes * self.panels * (self.panels + 1) // 2, 64)

    @property
    def stripes_at(self) -> int:
        return up(self.reciprocals + self.padded * self.p.reciprocal, 64)

    @property
    def stripe_bytes(self) -> int:
        return up(self.padded * self.p.stripe_row, 64)

    @property
    def matrix(self) -> int:
        """Bytes of scratch for a matrix of the batch."""
        return self.stripes_at + self.stripes * self.stripe_bytes

    @property
    def scratch(self) -> int:
        return self.s.batch * self.matrix

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}"

    def panel(self, f: Function, scratch: str, number: str) -> str:
        """The place of a matrix's panel: those before it have 1, 2, 3... times panel_bytes."""
        before = f.let(f"mul nsw i64 {number}, {plus(f, number, 1)}")
        return offset(f, scratch, (f.let(f"lshr i64 {before}, 1"), self.panel_bytes))


def _split(f: Function, item: str, count: int) -> tuple[str, str]:
    """An item's matrix and its number in the matrix."""
    return f.let(f"udiv i64 {item}, {count}"), f.let(f"urem i64 {item}, {count}")


def _pack(plan: _Plan, module: Module) -> str:
    """The phase that copies the panels of l and takes the reciprocals of its diagonal."""
    s, p = plan.s, plan.p
    name = f"triangular_pack_{plan.name}"
    f = Function(name, PHASE)
    into = copy(module, p, p.height, s.a_strides, True)
    a, scratch = table_pointer(f, 0), table_pointer(f, 3)
    with plan.packed.each(f) as item:
        matrix, number = _split(f, item, plan.panels)
        first = times(f, number, p.height)
        array = offset(f, a, (matrix, s.size * s.size * s.element), s.a, (first, s.a_strides.minor))
        memory = offset(f, scratch, (matrix, plan.matrix))
        panel = plan.panel(f, memory, number)
        rows = least(f, f.let(f"sub nsw i64 {s.size}, {first}"), str(p.height))
        columns = plus(f, first, rows)
        if plan.padded != s.size:
            padded = plus(f, first, p.height)
            with f.when(f.let(f"icmp slt i64 {rows}, {p.height}")):
                clear(f, panel, times(f, padded, p.panel_column))
        f.do(f"call void @{into}(ptr {panel}, ptr {array}, i64 {columns}, i64 {rows})")
        if not s.unit:
            _reciprocals(f, plan, panel, offset(f, memory, plan.reciprocals, (first, p.reciprocal)), first, rows)
    f.do("ret void")
    module.add(f, exported=True)
    return name


def _reciprocals(f: Function, plan: _Plan, panel: str, target: str, first: str, rows: str) -> None:
    """Of the panel's diagonal, in two factors: a power of two keeps the other one away from overflow and underflow."""
    p = plan.p
    triangle = offset(f, panel, (first, p.panel_column))
    with f.loop("0", rows) as row:
        place = offset(f, triangle, (row.index, p.panel_column + p.bytes))
        value = [load(f, p, offset(f, place, c * p.height * p.bytes)) for c in range(p.parts)]
        reciprocal = scaled_reciprocal(f, p, value)
        for c, part in enumerate(reciprocal):
            store(f, p, part, offset(f, target, (row.index, p.reciprocal), c * p.bytes))
    with f.loop(rows, str(p.height)) as row:  # the rows of padding
        for c in range(p.parts + 1):
            value = one(p) if c != 1 or p.parts == 1 else float_constant(0.0, p.scalar)
            store(f, p, value, offset(f, target, (row.index, p.reciprocal), c * p.bytes))


def _solve(plan: _Plan, module: Module) -> str:
    """The phase that solves the stripes of right sides."""
    s, p = plan.s, plan.p
    name = f"triangular_solve_{plan.name}"
    f = Function(name, PHASE)
    into, out = copy(module, p, p.width, s.b_strides, True), copy(module, p, p.width, s.b_strides, False)
    substitute = panels.solve(module, p, s.unit)

    def finish(g: Function, rows: str, triangle: str, reciprocals: str, row: str) -> None:
        g.do(f"call void @{substitute}(ptr {rows}, ptr {triangle}, ptr {reciprocals}, i64 0)")

    step = panels.panel_rows(module, p, f"panel_rows{'_unit' if s.unit else ''}_{p.name}", finish)
    b, x, scratch = (table_pointer(f, i) for i in (1, 2, 3))
    with plan.solved.each(f) as item:
        matrix, group = _split(f, item, plan.groups)
        low = times(f, group, plan.together)
        high = least(f, plus(f, low, plan.together), str(plan.stripes))
        memory = offset(f, scratch, (matrix, plan.matrix))

        def ends(number: str, array: str) -> tuple[str, str, str]:
            """A stripe's memory, its place in an array, and how many columns it has."""
            first = times(f, number, p.width)
            columns = least(f, f.let(f"sub nsw i64 {s.columns}, {first}"), str(p.width))
            place = offset(f, array, (matrix, s.size * s.columns * s.element), s.b, (first, s.b_strides.minor))
            return offset(f, memory, plan.stripes_at, (number, plan.stripe_bytes)), place, columns

        with f.loop(low, high) as number:
            stripe, place, columns = ends(number.index, b)
            if plan.padded != s.size or s.columns % p.width:
                with f.when(_is_padded(f, plan, columns)):
                    clear(f, stripe, str(plan.padded * p.stripe_row))
            f.do(f"call void @{into}(ptr {stripe}, ptr {place}, i64 {s.size}, i64 {columns})")
        reciprocals = offset(f, memory, plan.reciprocals)
        with f.loop("0", str(plan.panels)) as panel:
            triangle = plan.panel(f, memory, panel.index)
            row = times(f, panel.index, p.height)
            with f.loop(low, high) as number:
                stripe = offset(f, memory, plan.stripes_at, (number.index, plan.stripe_bytes))
                f.do(f"call void @{step}(ptr {stripe}, ptr {triangle}, ptr {reciprocals}, ptr null, i64 {row})")
        with f.loop(low, high) as number:
            stripe, place, columns = ends(number.index, x)
            f.do(f"call void @{out}(ptr {stripe}, ptr {place}, i64 {s.size}, i64 {columns})")
    f.do("ret void")
    module.add(f, exported=True)
    return name


def _is_padded(f: Function, plan: _Plan, columns: str) -> str:
    if plan.padded != plan.s.size:
        return "true"
    return f.let(f"icmp slt i64 {columns}, {plan.p.width}")
