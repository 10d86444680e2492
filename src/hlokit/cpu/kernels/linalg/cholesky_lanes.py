"""cholesky of many small matrices: as many at once as a vector has lanes, each in its own lane.

A group of matrices is transposed to [element][component][lane], factored by blocks of rows and columns in registers,
and transposed back. The upper triangle's factor u is the lower one of the conjugate: only the addresses differ.
"""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.kernels.linalg.batch_lanes import Groups, are_worth_it, block_of
from hlokit.cpu.kernels.linalg.factored import INFO, Factored
from hlokit.cpu.kernels.linalg.panels import Panels, less_product, load, offset, one, panels_for, plus, store, up
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module, float_constant, splat
from hlokit.cpu.target import Target


def in_lanes(s: Factored, module: Module, target: Target) -> Routine | None:
    """The routine; None for too few or too large matrices."""
    p = panels_for(s.dtype, target)
    if not are_worth_it(p, s.batch, s.size**2):
        return None
    plan = _Plan(s, p, block_of(p, target), target.vector_bytes)
    chunks = plan.groups.chunks
    return Routine((Phase(_phase(plan, module), chunks),), chunks * plan.scratch)


@dataclass(frozen=True)
class _Plan:
    """Scratch of a chunk: the group's elements, the diagonal's reciprocals, info of every lane."""

    s: Factored
    p: Panels
    block: int
    vector: int
    """Bytes."""

    @property
    def groups(self) -> Groups:
        n = self.s.size
        return Groups(self.p, self.s.batch, (n**3 // 4 + 3 * n**2) * self.p.parts**2)

    @property
    def scalars(self) -> int:
        """Of a matrix."""
        return self.s.size**2 * self.p.parts

    @property
    def reciprocals(self) -> int:
        """Bytes to the reciprocals; room for a whole vector of every lane's last elements is before them."""
        return up(self.scalars, self.p.lanes) * self.vector

    @property
    def info(self) -> int:
        return self.reciprocals + self.s.size * self.vector

    @property
    def scratch(self) -> int:
        return self.info + 64

    @property
    def name(self) -> str:
        return f"{self.s.name}_{self.p.name}_{self.block}"

    @property
    def steps(self) -> tuple[int, int]:
        """Bytes from l[i][j] to the next i and the next j."""
        element, row = self.vector * self.p.parts, self.vector * self.p.parts * self.s.size
        return (row, element) if self.s.lower else (element, row)


def _phase(plan: _Plan, module: Module) -> str:
    s = plan.s
    f = Function(f"cholesky_lanes_{plan.name}", PHASE)
    factor = _factor(plan, module)
    operand, result, scratch = (table_pointer(f, i) for i in (0, 1, s.scratch))
    infos = table_pointer(f, INFO) if s.info else ""
    groups = plan.groups
    with groups.each(f, scratch, plan.scratch) as (memory, first):
        groups.transpose(f, module, first, (operand, s.matrix), plan.scalars, memory, into=True)
        f.do(f"call void @{factor}(ptr {memory})")
        groups.transpose(f, module, first, (result, s.matrix), plan.scalars, memory, into=False)
        if s.info:
            with groups.lanes(f, first) as (lane, number):
                value = f.let(f"load i32, ptr {offset(f, memory, plan.info, (lane, 4))}, align 4")
                f.do(f"store i32 {value}, ptr {offset(f, infos, (number, 4))}, align 4")
    f.do("ret void")
    module.add(f, exported=True)
    return f.name


def _factor(plan: _Plan, module: Module) -> str:
    """void f(ptr memory): factors the group, sets info, and clears or spoils what is no factor."""
    n, block = plan.s.size, plan.block
    f = Function(f"cholesky_lanes_factor_{plan.name}", [("ptr", "memory")], attributes="noinline")
    lanes = plan.p.lanes
    f.do(f"store <{lanes} x i32> zeroinitializer, ptr {offset(f, '%memory', plan.info)}, align 4")
    whole = n // block * block
    with f.loop("0", str(whole), block) as column:
        _call(f, _blocks(plan, module, block, block, True), column.index, column.index)
        with f.loop(plus(f, column.index, block), str(whole), block) as row:
            _call(f, _blocks(plan, module, block, block, False), row.index, column.index)
        if whole < n:
            _call(f, _blocks(plan, module, n - whole, block, False), str(whole), column.index)
    if whole < n:
        _call(f, _blocks(plan, module, n - whole, n - whole, True), str(whole), str(whole))
    if not plan.s.info:
        _finish(f, plan)
    f.do("ret void")
    module.add(f)
    return f.name


def _call(f: Function, block: str, row: str, column: str) -> None:
    f.do(f"call void @{block}(ptr %memory, i64 {row}, i64 {column})")


def _blocks(plan: _Plan, module: Module, height: int, width: int, diagonal: bool) -> str:
    """void f(ptr memory, i64 row, i64 column): the block of l there, by those left of it and the diagonal above it."""
    p = plan.p
    name = f"cholesky_lanes_{'diagonal' if diagonal else 'below'}_{height}_{width}_{plan.name}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "memory"), ("i64", "row"), ("i64", "column")], attributes="noinline")
    down, right = plan.steps
    rows = [offset(f, "%memory", ("%row", down), r * down) for r in range(height)]
    columns = [offset(f, "%memory", ("%column", down), c * down) for c in range(width)]
    target = [offset(f, row, ("%column", right)) for row in rows]
    pairs = [(r, c) for r in range(height) for c in range(width) if not diagonal or c <= r]
    start = [x for r, c in pairs for x in _element(f, plan, offset(f, target[r], c * right))]
    with f.loop("0", "%column", carries=[(p.vector, x) for x in start]) as loop:
        a = [_element(f, plan, offset(f, row, (loop.index, right))) for row in rows]
        b = a if diagonal else [_element(f, plan, offset(f, row, (loop.index, right))) for row in columns]
        values = iter(loop.carried)
        loop.next = []
        for r, c in pairs:
            loop.next += _less_conjugate(f, p, [next(values) for _ in range(p.parts)], a[r], b[c])
    results = iter(loop.results)
    found = {pair: [next(results) for _ in range(p.parts)] for pair in pairs}
    reciprocals = offset(f, "%memory", plan.reciprocals, ("%column", plan.vector))
    for c in range(width):
        place = offset(f, reciprocals, c * plan.vector)
        reciprocal = _pivot(f, plan, found, c, place) if diagonal else load(f, p, place, p.lanes)
        for r in range(c + 1 if diagonal else 0, height):
            found[r, c] = [f.let(f"fmul {p.vector} {x}, {reciprocal}") for x in found[r, c]]
        for later in range(c + 1, width):
            other = (
                found[later, c]
                if diagonal
                else _element(f, plan, offset(f, columns[later], ("%column", right), c * right))
            )
            for r in range(later if diagonal else 0, height):
                found[r, later] = _less_conjugate(f, p, found[r, later], found[r, c], other)
    for r, c in pairs:
        for i, part in enumerate(found[r, c]):
            store(f, p, part, offset(f, target[r], c * right + i * plan.vector), p.lanes)
    f.do("ret void")
    module.add(f)
    return name


def _pivot(f: Function, plan: _Plan, found: dict[tuple[int, int], list[str]], c: int, place: str) -> str:
    """Takes the root of diagonal element c, notes where it is not positive; gives and stores its reciprocal."""
    p = plan.p
    pivot = found[c, c][0]
    zeros = splat(float_constant(0.0, p.scalar), p.scalar, p.lanes)
    integers, flags = f"<{p.lanes} x i32>", f"<{p.lanes} x i1>"
    info = offset(f, "%memory", plan.info)
    before = f.let(f"load {integers}, ptr {info}, align 4")
    failed = f.let(f"fcmp ule {p.vector} {pivot}, {zeros}")
    unset = f.let(f"icmp eq {integers} {before}, zeroinitializer")
    order = f.let(f"trunc i64 {plus(f, '%column', c + 1)} to i32")
    first = f.let(f"insertelement {integers} poison, i32 {order}, i32 0")
    orders = f.let(f"shufflevector {integers} {first}, {integers} poison, {integers} zeroinitializer")
    change = f.let(f"and {flags} {failed}, {unset}")
    after = f.let(f"select {flags} {change}, {integers} {orders}, {integers} {before}")
    f.do(f"store {integers} {after}, ptr {info}, align 4")
    root = f.let(f"call {p.vector} @llvm.sqrt.{p.suffix}({p.vector} {pivot})")
    reciprocal = f.let(f"fdiv {p.vector} {splat(one(p), p.scalar, p.lanes)}, {root}")
    store(f, p, reciprocal, place, p.lanes)
    found[c, c] = [root, zeros][: p.parts]
    return reciprocal


def _element(f: Function, plan: _Plan, place: str) -> list[str]:
    return [load(f, plan.p, offset(f, place, c * plan.vector), plan.p.lanes) for c in range(plan.p.parts)]


def _less_conjugate(f: Function, p: Panels, c: list[str], a: list[str], b: list[str]) -> list[str]:
    """c - a * conj(b)."""
    return less_product(f, p, c, b, a, conjugate=True)


def _finish(f: Function, plan: _Plan) -> None:
    """Zeros for the other triangle; NaN for the lanes without factor."""
    s, p = plan.s, plan.p
    down, right = plan.steps
    with f.loop("0", str(s.size)) as row:
        start = offset(f, "%memory", (row.index, down))
        with f.loop(plus(f, row.index, 1), str(s.size)) as column:
            for c in range(p.parts):
                zeros = splat(float_constant(0.0, p.scalar), p.scalar, p.lanes)
                store(f, p, zeros, offset(f, start, (column.index, right), c * plan.vector), p.lanes)
    integers, flags = f"<{p.lanes} x i32>", f"<{p.lanes} x i1>"
    info = f.let(f"load {integers}, ptr {offset(f, '%memory', plan.info)}, align 4")
    any_bits = f.let(f"call i32 @llvm.vector.reduce.or.v{p.lanes}i32({integers} {info})")
    failed = f.let(f"icmp ne {integers} {info}, zeroinitializer")
    parts = ("0x7FF8000000000000", float_constant(0.0, p.scalar))[: p.parts]  # NaN
    with f.when(f.let(f"icmp ne i32 {any_bits}, 0")), f.loop("0", str(plan.scalars), p.parts) as loop:
        for c, constant in enumerate(parts):
            place = offset(f, "%memory", (loop.index, plan.vector), c * plan.vector)
            value, nothing = load(f, p, place, p.lanes), splat(constant, p.scalar, p.lanes)
            store(f, p, f.let(f"select {flags} {failed}, {p.vector} {nothing}, {p.vector} {value}"), place, p.lanes)
