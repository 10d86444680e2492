"""Triangular solves of many small systems, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg import batch_lanes
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, block_of
from hlokit.cpu.kernels.linalg.panels import Panels, less_product, load, negated, offset, panels_for, product, store, up
from hlokit.cpu.kernels.linalg.system import System, scaled_reciprocal
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target


def in_lanes(s: System, module: Module, target: Target) -> Routine | None:
    """The routine; None for too few or too large systems."""
    p = panels_for(s.dtype, target)
    if not batch_lanes.are_worth_it(p, s.batch, s.size * max(s.size, s.columns)):
        return None
    plan = _Plan(s, p, block_of(p, target))
    chunks = plan.groups.chunks
    return Routine((Phase(_phase(plan, module), chunks),), chunks * plan.scratch)


@dataclass(frozen=True)
class _Plan:
    """Scratch of a chunk: the triangles' elements, the right sides' elements, the diagonal's scaled reciprocals."""

    s: System
    p: Panels
    block: int

    @property
    def groups(self) -> Groups:
        s = self.s
        return Groups(self.p, s.batch, (s.size * (s.size + 2) * s.columns // 2 + 2 * s.size**2) * self.p.parts**2)

    @property
    def vector(self) -> int:
        return self.p.lanes * self.p.bytes

    @property
    def scalars(self) -> tuple[int, int]:
        """Of a triangle and of right sides."""
        return self.s.size**2 * self.p.parts, self.s.size * self.s.columns * self.p.parts

    @property
    def right(self) -> int:
        """Bytes to the right sides; room for a whole vector of every lane's last elements is before them."""
        return up(self.scalars[0], self.p.lanes) * self.vector

    @property
    def reciprocals(self) -> int:
        return self.right + up(self.scalars[1], self.p.lanes) * self.vector

    @property
    def reciprocal(self) -> int:
        """Bytes of one with its scale."""
        return (self.p.parts + 1) * self.vector

    @property
    def scratch(self) -> int:
        return self.reciprocals + self.s.size * self.reciprocal

    def widened(self, nbytes: int) -> int:
        """Bytes in lanes for bytes in an array."""
        return nbytes * self.p.lanes

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}_{self.block}"


def _phase(plan: _Plan, module: Module) -> str:
    s = plan.s
    f = Function(f"triangular_lanes_{plan.name}", PHASE)
    solve = _solve(plan, module)
    a, b, x, scratch = (table_pointer(f, i) for i in range(4))
    bytes_a, bytes_b = s.size**2 * s.element, s.size * s.columns * s.element
    groups = plan.groups
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        right = offset(f, memory, plan.right)
        groups.transpose(f, module, first, (a, bytes_a), plan.scalars[0], memory, into=True)
        groups.transpose(f, module, first, (b, bytes_b), plan.scalars[1], right, into=True)
        f.do(f"call void @{solve}(ptr {memory})")
        groups.transpose(f, module, first, (x, bytes_b), plan.scalars[1], right, into=False)
    f.do("ret void")
    module.add(f, exported=True)
    return f.name


def _solve(plan: _Plan, module: Module) -> str:
    """void f(ptr memory): replaces the right sides by what solves the systems, block by block of rows."""
    s = plan.s
    f = Function(f"triangular_lanes_solve_{plan.name}", [("ptr", "memory")], attributes="noinline")
    if not s.unit:
        _reciprocals(f, plan)
    width = min(plan.block, s.columns)
    across = [("0", s.columns // width * width, width), (str(s.columns // width * width), s.columns, s.columns % width)]
    down = s.size // plan.block * plan.block
    for first, last, count in across:
        if not count:
            continue
        with f.loop(first, str(last), count) as column:
            if down:
                with f.loop("0", str(down), plan.block) as row:
                    _call(f, _block(plan, module, plan.block, count), row.index, column.index)
            if down < s.size:
                _call(f, _block(plan, module, s.size - down, count), str(down), column.index)
    f.do("ret void")
    module.add(f)
    return f.name


def _call(f: Function, block: str, row: str, column: str) -> None:
    f.do(f"call void @{block}(ptr %memory, i64 {row}, i64 {column})")


def _reciprocals(f: Function, plan: _Plan) -> None:
    s, p = plan.s, plan.p
    step = plan.widened(s.a_strides.major + s.a_strides.minor)
    with f.loop("0", str(s.size)) as row:
        value = _element(f, plan, offset(f, "%memory", plan.widened(s.a), (row.index, step)), s.a_strides.conjugate)
        target = offset(f, "%memory", plan.reciprocals, (row.index, plan.reciprocal))
        for i, part in enumerate(scaled_reciprocal(f, p, value, p.lanes)):
            store(f, p, part, offset(f, target, i * plan.vector), p.lanes)


def _element(f: Function, plan: _Plan, place: str, conjugate: bool = False) -> list[str]:
    parts = [load(f, plan.p, offset(f, place, c * plan.vector), plan.p.lanes) for c in range(plan.p.parts)]
    return [parts[0], negated(f, plan.p, parts[1])] if conjugate and plan.p.parts == 2 else parts


def _block(plan: _Plan, module: Module, height: int, width: int) -> str:
    """void f(ptr memory, i64 row, i64 column): a block of the solution, by those above it and the diagonal's."""
    s, p = plan.s, plan.p
    name = f"triangular_lanes_{height}_{width}_{plan.name}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "memory"), ("i64", "row"), ("i64", "column")], attributes="noinline")
    across, down = plan.widened(s.a_strides.major), plan.widened(s.a_strides.minor)
    x_down, x_across = plan.widened(s.b_strides.major), plan.widened(s.b_strides.minor)
    lefts = [offset(f, "%memory", plan.widened(s.a), ("%row", down), r * down) for r in range(height)]
    top = offset(f, "%memory", plan.right + plan.widened(s.b), ("%column", x_across))
    here = [offset(f, top, ("%row", x_down), r * x_down) for r in range(height)]
    places = [[offset(f, line, c * x_across) for c in range(width)] for line in here]
    start = [part for line in places for place in line for part in _element(f, plan, place)]
    with f.loop("0", "%row", carries=[(p.vector, x) for x in start]) as loop:
        right = offset(f, top, (loop.index, x_down))
        known = [_element(f, plan, offset(f, right, c * x_across)) for c in range(width)]
        values = iter(loop.carried)
        loop.next = []
        for line in lefts:
            left = _element(f, plan, offset(f, line, (loop.index, across)))
            for c in range(width):
                mine = [next(values) for _ in range(p.parts)]
                loop.next += less_product(f, p, mine, left, known[c], s.a_strides.conjugate)
    results = iter(loop.results)
    found = [[[next(results) for _ in range(p.parts)] for _ in range(width)] for _ in range(height)]
    for r in range(height):
        if not s.unit:
            place = offset(f, "%memory", plan.reciprocals, ("%row", plan.reciprocal), r * plan.reciprocal)
            reciprocal = _element(f, plan, place)
            scale = load(f, p, offset(f, place, p.parts * plan.vector), p.lanes)
            for c in range(width):
                scaled = product(f, p, reciprocal, found[r][c])
                found[r][c] = [f.let(f"fmul {p.vector} {part}, {scale}") for part in scaled]
        for c in range(width):
            for i, part in enumerate(found[r][c]):
                store(f, p, part, offset(f, places[r][c], i * plan.vector), p.lanes)
        for later in range(r + 1, height):
            left = _element(f, plan, offset(f, lefts[later], ("%row", across), r * across))
            for c in range(width):
                found[later][c] = less_product(f, p, found[later][c], left, found[r][c], s.a_strides.conjugate)
    f.do("ret void")
    module.add(f)
    return name
