"""Triangular solves of many small systems, each in its own lane (batch_lanes.py)."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, are_worth_it, block_of, load, room
from hlokit.cpu.kernels.linalg.panels import (
    PanelShape,
    flat,
    grouped,
    multiply_subtract,
    panels_for,
    product,
    scaled,
    store,
)
from hlokit.cpu.kernels.linalg.system import System, scaled_reciprocal
from hlokit.cpu.kernels.routine import PHASE, Routine
from hlokit.cpu.llvm import I64, POINTER, Function, Module, Pointer
from hlokit.cpu.target import Target


def plan_of(s: System, target: Target) -> TriangularLanesPlan | None:
    """The plan; None for too few or too large systems."""
    p = panels_for(s.dtype, target)
    is_worth_it = are_worth_it(p, s.batch, s.size * max(s.size, s.columns))
    return TriangularLanesPlan(s, p, block_of(p, target)) if is_worth_it else None


@dataclass(frozen=True)
class TriangularLanesPlan:
    """Scratch of a chunk: the triangles' elements, the right sides' elements, the diagonal's scaled reciprocals."""

    s: System
    p: PanelShape
    block: int

    def write(self, module: Module) -> Routine:
        return self.groups.routine(_phase(self, module), self.scratch)

    @property
    def groups(self) -> Groups:
        s = self.s
        return Groups(self.p, s.batch, (s.size * (s.size + 2) * s.columns // 2 + 2 * s.size**2) * self.p.parts**2)

    @property
    def scalars(self) -> tuple[int, int]:
        """Components of a triangle's elements, and of the right sides'."""
        return self.s.size**2 * self.p.parts, self.s.size * self.s.columns * self.p.parts

    @property
    def right(self) -> int:
        """Bytes to the right sides."""
        return room(self.p, self.scalars[0])

    @property
    def reciprocals(self) -> int:
        return self.right + room(self.p, self.scalars[1])

    @property
    def reciprocal(self) -> int:
        """Bytes of one with its scale."""
        return (self.p.parts + 1) * self.p.vector_bytes

    @property
    def scratch(self) -> int:
        return self.reciprocals + self.s.size * self.reciprocal

    def widened(self, nbytes: int) -> int:
        """Bytes in lanes for bytes in an array."""
        return nbytes * self.p.lanes

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}_{self.block}"


def _phase(plan: TriangularLanesPlan, module: Module) -> str:
    s, groups = plan.s, plan.groups
    f = Function(f"triangular_lanes_{plan.name}", PHASE)
    solve = _solve(plan, module)
    a, b, x, scratch = (f.table(i, plan.p.scalar) for i in range(4))
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        right = memory + plan.right
        groups.transpose(module, first, (a, s.triangle), plan.scalars[0], memory, into=True)
        groups.transpose(module, first, (b, s.right), plan.scalars[1], right, into=True)
        f.call(solve, memory)
        groups.transpose(module, first, (x, s.right), plan.scalars[1], right, into=False)
    return module.end(f, exported=True)


def _solve(plan: TriangularLanesPlan, module: Module) -> str:
    """The function (memory) that replaces the right sides by what solves the systems, block by block of rows."""
    s = plan.s
    f, (memory,) = subroutine(f"triangular_lanes_solve_{plan.name}", plan.p.scalar, memory=POINTER)
    if not s.unit:
        _reciprocals(plan, memory)
    width = min(plan.block, s.columns)
    across, down = s.columns // width * width, s.size // plan.block * plan.block
    for first, last, count in ((0, across, width), (across, s.columns, s.columns - across)):
        if not count:
            continue
        with f.loop(first, last, count) as column:
            if down:
                with f.loop(0, down, plan.block) as row:
                    f.call(_block(plan, module, plan.block, count), memory, row.index, column.index)
            if down < s.size:
                f.call(_block(plan, module, s.size - down, count), memory, down, column.index)
    return module.end(f)


def _reciprocals(plan: TriangularLanesPlan, memory: Pointer) -> None:
    s, p = plan.s, plan.p
    step = plan.widened(s.a_strides.major + s.a_strides.minor)
    with memory.fn.loop(0, s.size) as row:
        value = load(memory + plan.widened(s.a) + row.index * step, p)
        if s.a_strides.conjugate and p.parts == 2:
            value[1] = -value[1]
        store(scaled_reciprocal(value), memory + plan.reciprocals + row.index * plan.reciprocal, p.lanes)


def _block(plan: TriangularLanesPlan, module: Module, height: int, width: int) -> str:
    """The function (memory, row, column): a block of the solution, by those above it and the diagonal's."""
    s, p = plan.s, plan.p
    name = f"triangular_lanes_{height}_{width}_{plan.name}"
    if name in module.functions:
        return name
    f, (memory, row, column) = subroutine(name, p.scalar, memory=POINTER, row=I64, column=I64)
    across, down = plan.widened(s.a_strides.major), plan.widened(s.a_strides.minor)
    x_down, x_across = plan.widened(s.b_strides.major), plan.widened(s.b_strides.minor)
    left = memory + plan.widened(s.a) + row * down
    lefts = [left + r * down for r in range(height)]
    top = memory + (plan.right + plan.widened(s.b)) + column * x_across
    here = top + row * x_down
    places = [here + r * x_down + c * x_across for r in range(height) for c in range(width)]
    with f.loop(0, row, carries=flat([load(place, p) for place in places])) as above:
        line = top + above.index * x_down
        known = [load(line + c * x_across, p) for c in range(width)]
        sums = iter(grouped(above.carried, p.parts))
        for left in lefts:
            factor = load(left + above.index * across, p)
            above.next += flat([multiply_subtract(next(sums), factor, x, s.a_strides.conjugate) for x in known])
    x = grouped(grouped(above.results, p.parts), width)
    reciprocals = memory + plan.reciprocals + row * plan.reciprocal
    for r in range(height):
        if not s.unit:
            place = reciprocals + r * plan.reciprocal
            reciprocal, scale = load(place, p), place[p.parts * p.lanes].load(p.lanes)
            x[r] = [scaled(product(reciprocal, element), scale) for element in x[r]]
        for element, place in zip(x[r], places[r * width :], strict=False):
            store(element, place, p.lanes)
        for later in range(r + 1, height):
            factor = load(lefts[later] + row * across + r * across, p)
            pairs = zip(x[later], x[r], strict=True)
            x[later] = [multiply_subtract(mine, factor, known, s.a_strides.conjugate) for mine, known in pairs]
    return module.end(f)
