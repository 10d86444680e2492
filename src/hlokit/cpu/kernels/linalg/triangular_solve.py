"""triangular-solve: the solved dimension in panels, the right sides in stripes (panels.py).

Every case is a lower triangle's: transposes are strides, x a = b is a^T x^T = b^T, an upper triangle is a lower one
whose rows and columns count from the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlokit.cpu import costs
from hlokit.cpu.kernels.linalg import triangular_lanes
from hlokit.cpu.kernels.linalg.panel_copy import copy
from hlokit.cpu.kernels.linalg.panels import Items, PanelShape, panel_rows, panels_for, store, substitution
from hlokit.cpu.kernels.linalg.system import System, scaled_reciprocal, system_of
from hlokit.cpu.kernels.routine import KERNELS, PHASE, Call, EmptyPlan, Phase, PlannedKernel, Routine, RoutinePlan, up
from hlokit.cpu.llvm import I1, Function, Index, Module, Pointer
from hlokit.cpu.target import Target
from hlokit.ops.linalg import TriangularSolve

_TOGETHER, _GROUPS = 2, 6
"""The most stripes of a group, and the fewest groups."""
TYPES = ("f32", "f64", "c64", "c128")


def plan(call: Call) -> RoutinePlan | None:
    """For f32, f64, c64 and c128."""
    op = call.op
    assert isinstance(op, TriangularSolve)
    if call.strict or call.store is not None or call.operands[0].dtype.name not in TYPES:
        return None
    a, b = call.operands
    system = system_of(b, a.dimensions[-1], op.left_side, op.lower, op.unit_diagonal, op.transpose_a)
    return plan_of(system, call.target)


KERNELS["triangular-solve"] = PlannedKernel(plan)


def plan_of(s: System, target: Target) -> RoutinePlan:
    """The plan for a batch of systems. The table: a, b, x, scratch."""
    if not s.batch * s.size * s.columns:
        return EmptyPlan()
    in_lanes = triangular_lanes.plan_of(s, target)
    if in_lanes is not None:
        return in_lanes
    full = panels_for(s.dtype, target)
    blocks = min(full.blocks, -(-s.size // full.rows))
    return TriangularPlan(s, replace(full, blocks=blocks, vectors=min(full.vectors, -(-s.columns // full.lanes))))


@dataclass(frozen=True)
class TriangularPlan:
    """Two phases: the triangles' panels, then the right sides' stripes. Scratch has for each matrix its panels, its
    reciprocals, its stripes."""

    s: System
    p: PanelShape

    def write(self, module: Module) -> Routine:
        pack, solve = _pack(self, module), _solve(self, module)
        return Routine((Phase(pack, self.packed.chunks), Phase(solve, self.solved.chunks)), self.scratch)

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
        if self.panel_bytes * self.panels**2 // 2 < costs.TRIANGLE_BYTES:
            return 1
        return max(1, min(_TOGETHER, self.s.batch * self.stripes // _GROUPS))

    @property
    def groups(self) -> int:
        """Groups of stripes that are solved together."""
        return -(-self.stripes // self.together)

    @property
    def solved(self) -> Items:
        """The groups of all matrices."""
        products = self.padded**2 * self.p.vectors * self.p.parts**2 // 2
        return Items(self.s.batch * self.groups, (products + 8 * self.padded * self.p.vectors) * self.together)

    @property
    def panel_bytes(self) -> int:
        """Size of a matrix's first panel; panel n, as far as its diagonal, has n + 1 times as many bytes."""
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

    def panel(self, memory: Pointer, number: Index) -> Pointer:
        """The place of a matrix's panel: those before it have 1, 2, 3... times panel_bytes."""
        return memory + (number * (number + 1) >> 1) * self.panel_bytes


def _pack(plan: TriangularPlan, module: Module) -> str:
    """The phase that copies the panels of l and takes the reciprocals of its diagonal."""
    s, p = plan.s, plan.p
    f = Function(f"triangular_pack_{plan.name}", PHASE)
    a, scratch = f.table(0, p.scalar), f.table(3, p.scalar)
    with plan.packed.each(f) as item:
        matrix, number = item // plan.panels, item % plan.panels
        first = number * p.height
        array = a + matrix * s.triangle + s.a + first * s.a_strides.minor
        memory = scratch + matrix * plan.matrix
        panel = plan.panel(memory, number)
        rows = (s.size - first).smin(p.height)
        if plan.padded != s.size:
            with f.when(rows < p.height):
                f.memset(panel, 0, (first + p.height) * p.panel_column)
        f.call(copy(module, p, p.height, s.a_strides, True), panel, array, first + rows, rows)
        if not s.unit:
            triangle = panel + first * p.panel_column
            _reciprocals(p, triangle, memory + plan.reciprocals + first * p.reciprocal, rows)
    return module.end(f, exported=True)


def _reciprocals(p: PanelShape, triangle: Pointer, target: Pointer, rows: Index) -> None:
    """Those of a panel's diagonal, with their scales."""
    f = target.fn
    with f.loop(0, rows) as row:
        diagonal = triangle + row.index * (p.panel_column + p.bytes)
        value = [diagonal[c * p.height].load() for c in range(p.parts)]
        store(scaled_reciprocal(value), target + row.index * p.reciprocal, 1)
    with f.loop(rows, p.height) as row:  # the rows of padding
        one, zero = f.constant(1.0, p.scalar), f.constant(0.0, p.scalar)
        store([one, zero, one] if p.parts == 2 else [one, one], target + row.index * p.reciprocal, 1)


def _solve(plan: TriangularPlan, module: Module) -> str:
    """The phase that solves the stripes of right sides."""
    s, p = plan.s, plan.p
    f = Function(f"triangular_solve_{plan.name}", PHASE)
    into, out = copy(module, p, p.width, s.b_strides, True), copy(module, p, p.width, s.b_strides, False)
    substitute = substitution(module, p, s.unit)

    def finish(rows: Pointer, triangle: Pointer, reciprocals: Pointer, info: Pointer, row: Index) -> None:
        rows.fn.call(substitute, rows, triangle, reciprocals, 0)

    step = panel_rows(module, p, f"panel_rows{'_unit' if s.unit else ''}_{p.name}", finish)
    b, x, scratch = (f.table(i, p.scalar) for i in (1, 2, 3))
    with plan.solved.each(f) as item:
        matrix, group = item // plan.groups, item % plan.groups
        low = group * plan.together
        high = (low + plan.together).smin(plan.stripes)
        memory = scratch + matrix * plan.matrix

        def stripe_of(number: Index) -> Pointer:
            return memory + plan.stripes_at + number * plan.stripe_bytes

        def in_array(array: Pointer, number: Index) -> tuple[Pointer, Index]:
            """A stripe's place in an array, and how many columns it has."""
            first = number * p.width
            return array + matrix * s.right + s.b + first * s.b_strides.minor, (s.columns - first).smin(p.width)

        with f.loop(low, high) as number:
            stripe, (place, columns) = stripe_of(number.index), in_array(b, number.index)
            if plan.padded != s.size or s.columns % p.width:
                with f.when(columns < p.width if plan.padded == s.size else f.constant(True, I1)):
                    f.memset(stripe, 0, plan.padded * p.stripe_row)
            f.call(into, stripe, place, s.size, columns)
        reciprocals = memory + plan.reciprocals
        with f.loop(0, plan.panels) as panel:
            triangle, row = plan.panel(memory, panel.index), panel.index * p.height
            with f.loop(low, high) as number:
                f.call(step, stripe_of(number.index), triangle, reciprocals, None, row)
        with f.loop(low, high) as number:
            place, columns = in_array(x, number.index)
            f.call(out, stripe_of(number.index), place, s.size, columns)
    return module.end(f, exported=True)
