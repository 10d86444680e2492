"""cholesky: a = u^H u by stripes of u's columns, each factored below those before it (panels.py).

A step p takes the panel of rows p: every stripe to its right is solved there with the panel's triangle, and the first
of these is factored on its diagonal, so that the next step can begin. The factor l is u^H.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, prod

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg import cholesky_lanes
from hlokit.cpu.kernels.linalg.cholesky_batch import INFO, CholeskyBatch
from hlokit.cpu.kernels.linalg.empty import InfoAlone
from hlokit.cpu.kernels.linalg.panel_copy import copy
from hlokit.cpu.kernels.linalg.panels import (
    Element,
    PanelShape,
    multiply_subtract,
    note_pivot,
    panel_rows,
    panels_for,
    scaled,
    store,
    substitution,
)
from hlokit.cpu.kernels.linalg.stepped import HEAD, Part, Parts, Stepped
from hlokit.cpu.kernels.routine import KERNELS, Call, EmptyPlan, PlannedKernel, Routine, RoutinePlan, up
from hlokit.cpu.llvm import I1, I32, I64, POINTER, Index, Module, Pointer
from hlokit.cpu.target import Target
from hlokit.ops.linalg import Cholesky

TYPES = ("f32", "f64", "c64", "c128")


def plan(call: Call) -> RoutinePlan | None:
    """For f32, f64, c64 and c128."""
    op = call.op
    assert isinstance(op, Cholesky)
    (a,) = call.operands
    if call.strict or call.store is not None or a.dtype.name not in TYPES:
        return None
    return plan_of(CholeskyBatch(a.dtype, prod(a.dimensions[:-2]), a.dimensions[-1], op.lower), call.target)


KERNELS["cholesky"] = PlannedKernel(plan)


def plan_of(s: CholeskyBatch, target: Target) -> RoutinePlan:
    """The plan for a batch. The table: operand, result, (info,) scratch."""
    if not s.batch * s.size:
        return InfoAlone(f"cholesky_nothing_{s.name}", INFO, s.batch) if s.info else EmptyPlan()
    return cholesky_lanes.plan_of(s, target) or CholeskyPlan(s, panels_for(s.dtype, target))


@dataclass(frozen=True)
class CholeskyPlan:
    """Factorization by stripes. Scratch of a matrix: info, then reciprocals, then stripes as far as their diagonals."""

    s: CholeskyBatch
    p: PanelShape

    def __post_init__(self) -> None:
        assert self.p.width == self.p.height  # a stripe is the next step's panel

    def write(self, module: Module) -> Routine:
        s = self.s
        parts = Parts(_pack(self, module), _first(self, module), _step(self, module), _unpack(self, module))
        counts = range(self.stripes - 1, 0, -1)
        steps = Stepped(f"cholesky_{self.name}", s.batch, s.scratch, self.matrix, self.work, self.stripes, counts)
        return steps.routine(module, parts)

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

    def part(self, name: str) -> Part:
        return Part(f"cholesky_{name}_{self.name}", self.p.scalar)

    def stripe(self, f: Part, number: Index) -> Pointer:
        before = number * (number + 1) >> 1
        return f.memory + self.stripes_at + before * self.unit

    def columns(self, first: Index) -> Index:
        """The number of the matrix's columns in a stripe."""
        return (self.s.size - first).smin(self.p.width)


def _pack(plan: CholeskyPlan, module: Module) -> str:
    """Copies stripe `number` as far as the end of its diagonal; the identity's columns follow the matrix's last."""
    s, p = plan.s, plan.p
    f = plan.part("pack")
    with f.when(f.number.eq(0)):
        f.memory.to(I32).store(0)
    stripe, first = plan.stripe(f, f.number), f.number * p.width
    columns = plan.columns(first)
    if plan.padded != s.size:
        with f.when(columns < p.width):
            f.memset(stripe, 0, plan.padded * p.stripe_row)
            with f.loop(columns, p.width) as column:
                (stripe + (first + column.index) * p.stripe_row)[column.index].store(1.0)
    array = f.array(0, s.matrix) + first * s.strides.minor
    f.call(copy(module, p, p.width, s.strides, True), stripe, array, first + columns, columns)
    return module.end(f)


def _first(plan: CholeskyPlan, module: Module) -> str:
    """Factors the first stripe's diagonal."""
    f = plan.part("first")
    stripe, reciprocals = f.memory + plan.stripes_at, f.memory + HEAD
    f.call(_diagonal(plan.p, module), stripe, stripe, reciprocals, f.memory, 0)
    return module.end(f)


def _step(plan: CholeskyPlan, module: Module) -> str:
    """Solves the rows of panel `step` in the stripe `number` to its right (0 is the next), and factors the next one."""
    p = plan.p
    f = plan.part("step")
    substitute = substitution(module, p, False, conjugate=True)

    def finish(rows: Pointer, triangle: Pointer, reciprocals: Pointer, info: Pointer, row: Index) -> None:
        rows.fn.call(substitute, rows, triangle, reciprocals, 0)

    solve = panel_rows(module, p, f"panel_rows_conj_{p.name}", finish, conjugate=True)
    following = f.step + 1
    stripe, panel, reciprocals = plan.stripe(f, following + f.number), plan.stripe(f, f.step), f.memory + HEAD
    f.call(solve, stripe, panel, reciprocals, None, f.step * p.width)
    with f.when(f.number.eq(0)):
        f.call(_diagonal(p, module), stripe, stripe, reciprocals, f.memory, following * p.width)
    return module.end(f)


def _diagonal(p: PanelShape, module: Module) -> str:
    factor = _factor(p, module)

    def finish(rows: Pointer, triangle: Pointer, reciprocals: Pointer, info: Pointer, row: Index) -> None:
        rows.fn.call(factor, rows, triangle, reciprocals, info, row)

    return panel_rows(module, p, f"panel_factor_{p.name}", finish, conjugate=True)


def _factor(p: PanelShape, module: Module) -> str:
    """The function (rows, triangle, reciprocals, info, row): rows[rows][width] of a become rows of u.

        u[i, i] = sqrt(a[i, i])
        u[i, :] = a[i, :] / u[i, i]
        a[k, :] = a[k, :] - conj(u[i, k]) u[i, :]   for each row k below

    `triangle` is the place of the diagonal; what stands left of it is never read. info gets the number, from 1, of the
    first pivot that is not positive.
    """
    name = f"panel_pivots_{p.name}"
    if name in module.functions:
        return name
    parameters = {"c": POINTER, "t": POINTER, "r": POINTER, "info": POINTER, "row": I64}
    f, (rows, triangle, reciprocals, info, row) = subroutine(name, p.scalar, **parameters)
    # the vectors of the diagonal; then those to its right are solved for
    count = max(1, p.rows // p.lanes)
    first = row % p.width // p.lanes
    start = rows + first * p.vector_bytes
    places = [[start + (i * p.stripe_row + v * p.vector_bytes) for v in range(count)] for i in range(p.rows)]
    u = [[p.load(place, p.width) for place in line] for line in places]
    zero, one = f.constant(0.0, p.scalar), f.constant(1.0, p.scalar)
    for i in range(p.rows):
        diagonal = triangle + i * p.panel_column
        _store(p, u[i], places[i])
        pivot = diagonal[i].load()
        note_pivot(pivot > 0.0, info, row + (i + 1))
        root = pivot.sqrt()
        reciprocal = 1.0 / root
        store([reciprocal, zero, one] if p.parts == 2 else [reciprocal, one], reciprocals + i * p.reciprocal, 1)
        scale = reciprocal.splat(p.lanes)
        u[i] = [scaled(x, scale) for x in u[i]]
        _store(p, u[i], places[i])
        store([root, zero][: p.parts], diagonal[i], p.height)
        for k in range(i + 1, p.rows):
            u_ik = p.spread(diagonal[k], p.height)
            u[k] = [multiply_subtract(x, u_ik, above, True) for x, above in zip(u[k], u[i], strict=True)]
    f.call(substitution(module, p, False, conjugate=True), rows, triangle, reciprocals, first + count)
    return module.end(f)


def _store(p: PanelShape, elements: list[Element], places: list[Pointer]) -> None:
    for element, place in zip(elements, places, strict=True):
        store(element, place, p.width)


def _unpack(plan: CholeskyPlan, module: Module) -> str:
    """Copies stripe `number` to the result, and its share of the other triangle; or NaN where there is no factor.

    Stripes are copied in any order: each writes what no other does.
    """
    s, p = plan.s, plan.p
    f = plan.part("unpack")
    row = s.size * s.element
    stripe, first = plan.stripe(f, f.number), f.number * p.width
    columns = plan.columns(first)
    result, info = f.array(1, s.matrix), f.memory.to(I32).load()
    if s.info:
        f.array(INFO, 4, I32).store(info)
    array = result + first * s.strides.minor
    factored = info.eq(0) if not s.info else f.constant(True, I1)
    with f.when(factored):
        f.call(copy(module, p, p.width, s.strides, False), stripe, array, first, columns)
        _copy_triangle(plan, stripe + first * p.stripe_row, array + first * s.strides.major, columns)
        _other_triangle(plan, f, result, first, columns)
    if not s.info:
        spoilt = [f.constant(nan, p.scalar), f.constant(0.0, p.scalar)][: p.parts]
        with f.when(~factored), f.loop(first, first + columns) as line, f.loop(0, s.size) as column:
            store(spoilt, result + line.index * row + column.index * s.element, 1)
    return module.end(f)


def _other_triangle(plan: CholeskyPlan, f: Part, result: Pointer, first: Index, columns: Index) -> None:
    """Right of the diagonal of these rows, or left of it: the operand's own elements, or zeros."""
    s = plan.s
    row = s.size * s.element
    operand = f.array(0, s.matrix)
    with f.loop(first, first + columns) as line:
        start = line.index + 1 if s.lower else f.index(0)
        size = (s.size - start if s.lower else line.index) * s.element
        place = result + line.index * row + start * s.element
        if s.info:
            f.memmove(place, operand + line.index * row + start * s.element, size)
        else:
            f.memset(place, 0, size)


def _copy_triangle(plan: CholeskyPlan, packed: Pointer, array: Pointer, columns: Index) -> None:
    """The diagonal block of u, without what stands left of its diagonal."""
    f, s, p = packed.fn, plan.s, plan.p
    with f.loop(0, columns) as minor, f.loop(0, minor.index + 1) as major:
        here = (packed + major.index * p.stripe_row)[minor.index]
        there = array + major.index * s.strides.major + minor.index * s.strides.minor
        for c in range(p.parts):
            value = here[c * p.width].load()
            there[c].store(0.0 - value if c and s.strides.conjugate else value)  # 0 on the diagonal, not -0
