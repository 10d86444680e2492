"""Cholesky of many small matrices, each in its own lane (batch_lanes.py): by blocks of rows and columns in registers.

The upper triangle's factor u is the lower one of the conjugate: only the addresses differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, are_worth_it, block_of, load, note_first, room
from hlokit.cpu.kernels.linalg.cholesky_batch import INFO, CholeskyBatch
from hlokit.cpu.kernels.linalg.panels import (
    Element,
    PanelShape,
    flat,
    grouped,
    multiply_subtract,
    panels_for,
    scaled,
    store,
)
from hlokit.cpu.kernels.routine import PHASE, Routine
from hlokit.cpu.llvm import I32, I64, POINTER, Function, Index, Module, Pointer, Value
from hlokit.cpu.target import Target


def plan_of(s: CholeskyBatch, target: Target) -> CholeskyLanesPlan | None:
    """The plan; None for too few or too large matrices."""
    p = panels_for(s.dtype, target)
    return CholeskyLanesPlan(s, p, block_of(p, target)) if are_worth_it(p, s.batch, s.size**2) else None


@dataclass(frozen=True)
class CholeskyLanesPlan:
    """Scratch of a chunk: the group's elements, the diagonal's reciprocals, info of every lane."""

    s: CholeskyBatch
    p: PanelShape
    block: int

    def write(self, module: Module) -> Routine:
        return self.groups.routine(_phase(self, module), self.scratch)

    @property
    def groups(self) -> Groups:
        n = self.s.size
        return Groups(self.p, self.s.batch, (n**3 // 4 + 3 * n**2) * self.p.parts**2)

    @property
    def scalars(self) -> int:
        """Components of a matrix's elements."""
        return self.s.size**2 * self.p.parts

    @property
    def reciprocals(self) -> int:
        """Bytes to the reciprocals."""
        return room(self.p, self.scalars)

    @property
    def info_at(self) -> int:
        return self.reciprocals + self.s.size * self.p.vector_bytes

    @property
    def scratch(self) -> int:
        return self.info_at + 64

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}_{self.block}"

    @property
    def steps(self) -> tuple[int, int]:
        """Bytes from l[i][j] to the next i and the next j."""
        element = self.p.vector_bytes * self.p.parts
        row = element * self.s.size
        return (row, element) if self.s.lower else (element, row)

    def info(self, memory: Pointer) -> Pointer:
        """[lane] of s32."""
        return (memory + self.info_at).to(I32)


def _phase(plan: CholeskyLanesPlan, module: Module) -> str:
    s, groups = plan.s, plan.groups
    f = Function(f"cholesky_lanes_{plan.name}", PHASE)
    factor = _factor(plan, module)
    operand, result, scratch = (f.table(i, plan.p.scalar) for i in (0, 1, s.scratch))
    infos = f.table(INFO, I32) if s.info else None
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(module, first, (operand, s.matrix), plan.scalars, memory, into=True)
        f.call(factor, memory)
        groups.transpose(module, first, (result, s.matrix), plan.scalars, memory, into=False)
        if infos is not None:
            groups.hand_out(first, plan.info(memory), infos)
    return module.end(f, exported=True)


def _factor(plan: CholeskyLanesPlan, module: Module) -> str:
    """The function (memory) that factors the group, sets info, and clears or spoils what is no factor."""
    n, block = plan.s.size, plan.block
    f, (memory,) = subroutine(f"cholesky_lanes_factor_{plan.name}", plan.p.scalar, memory=POINTER)
    plan.info(memory).store(f.constant(0, I32.of(plan.p.lanes)))
    whole = n // block * block
    with f.loop(0, whole, block) as column:
        f.call(_block(plan, module, block, block, True), memory, column.index, column.index)
        with f.loop(column.index + block, whole, block) as row:
            f.call(_block(plan, module, block, block, False), memory, row.index, column.index)
        if whole < n:
            f.call(_block(plan, module, n - whole, block, False), memory, whole, column.index)
    if whole < n:
        f.call(_block(plan, module, n - whole, n - whole, True), memory, whole, whole)
    if not plan.s.info:
        _finish(plan, memory)
    return module.end(f)


def _block(plan: CholeskyLanesPlan, module: Module, height: int, width: int, diagonal: bool) -> str:
    """The function (memory, row, column): the block of l there, by those left of it and the diagonal above it."""
    p = plan.p
    name = f"cholesky_lanes_{'diagonal' if diagonal else 'below'}_{height}_{width}_{plan.name}"
    if name in module.functions:
        return name
    f, (memory, row, column) = subroutine(name, p.scalar, memory=POINTER, row=I64, column=I64)
    down, right = plan.steps
    first, above = memory + row * down, memory + column * down
    rows, columns = [first + r * down for r in range(height)], [above + c * down for c in range(width)]
    targets = [row + column * right for row in rows]
    pairs = [(r, c) for r in range(height) for c in range(width) if not diagonal or c <= r]
    places = {(r, c): targets[r] + c * right for r, c in pairs}
    # l[r, c] = (a[r, c] - sum of l[r, k] conj(l[c, k]) over k < c) / l[c, c]
    with f.loop(0, column, carries=flat([load(place, p) for place in places.values()])) as k:
        left = [load(row + k.index * right, p) for row in rows]
        above = left if diagonal else [load(row + k.index * right, p) for row in columns]
        sums = zip(pairs, grouped(k.carried, p.parts), strict=True)
        k.next = flat([_less_conjugate(value, left[r], above[c]) for (r, c), value in sums])
    lower = dict(zip(pairs, grouped(k.results, p.parts), strict=True))
    reciprocals = memory + plan.reciprocals + column * p.vector_bytes
    for c in range(width):
        place = reciprocals[c * p.lanes]
        if diagonal:
            lower[c, c], reciprocal = _root(plan, memory, lower[c, c][0], column + (c + 1))
            place.store(reciprocal)
        else:
            reciprocal = place.load(p.lanes)
        for r in range(c + 1 if diagonal else 0, height):
            lower[r, c] = scaled(lower[r, c], reciprocal)
        for later in range(c + 1, width):
            other = lower[later, c] if diagonal else load(columns[later] + column * right + c * right, p)
            for r in range(later if diagonal else 0, height):
                lower[r, later] = _less_conjugate(lower[r, later], lower[r, c], other)
    for pair, place in places.items():
        store(lower[pair], place, p.lanes)
    return module.end(f)


def _less_conjugate(c: Element, a: Element, b: Element) -> Element:
    """c - a * conj(b)."""
    return multiply_subtract(c, b, a, conjugate=True)


def _root(plan: CholeskyLanesPlan, memory: Pointer, pivot: Value, order: Index) -> tuple[Element, Value]:
    """The root of a pivot and its reciprocal; notes in which lanes the pivot is not positive."""
    p = plan.p
    note_first(plan.info(memory), pivot.compare("ule", 0.0), order.trunc(32).splat(p.lanes))
    root = pivot.sqrt()
    return [root, pivot.value(0.0)][: p.parts], 1.0 / root


def _finish(plan: CholeskyLanesPlan, memory: Pointer) -> None:
    """Zeros for the other triangle; NaN for the lanes without factor."""
    f, s, p = memory.fn, plan.s, plan.p
    down, right = plan.steps
    zero = f.constant(0.0, p.vector)
    with f.loop(0, s.size) as row:
        start = memory + row.index * down
        with f.loop(row.index + 1, s.size) as column:
            store([zero] * p.parts, start + column.index * right, p.lanes)
    info = plan.info(memory).load(p.lanes)
    failed = info.ne(0)
    with f.when(info.reduce("or").ne(0)), f.loop(0, plan.scalars, p.parts) as loop:
        place = memory + loop.index * p.vector_bytes
        spoilt = [f.constant(nan, p.vector), zero]
        store([failed.select(x, old) for x, old in zip(spoilt, load(place, p), strict=False)], place, p.lanes)
