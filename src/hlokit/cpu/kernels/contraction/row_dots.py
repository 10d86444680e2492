"""Products of few rows with columns that lie along the inner axis: matrix times vector, rows times rows."""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.elements import element_bytes, first_lanes, pointer, size_of, store
from hlokit.cpu.kernels.contraction.gemm import Product
from hlokit.cpu.kernels.contraction.gemm_plan import CHUNKS, Plan
from hlokit.cpu.kernels.contraction.space import Space, added, least
from hlokit.cpu.kernels.contraction.tile import Arithmetic
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Module, vector

_MOST_ROWS = 4
_CHUNK_BYTES = 1 << 19
"""What is read at least by a chunk: some 40 us of one core."""


class RowDots(Product):
    """Sums in vectors along the inner axis, each added up at its end; nothing is packed."""

    def planned(self) -> Plan:
        call, lanes = self.call, self.arithmetic.lanes(self.call.target)
        g, m, n = self.space.batch.size, self.space.rows.size, self.space.columns.size
        read = g * n * self.space.inner.size * element_bytes(call.operands[1].dtype)
        wanted = min(CHUNKS, max(1, read // _CHUNK_BYTES))
        batch, columns = -(-g // wanted), n
        if g < wanted:
            columns = -(-n // -(-wanted // g))
        columns = -(-columns // lanes) * lanes
        depth = max(1, self.space.inner.size)
        return Plan(self.arithmetic, lanes, m, 1, depth, (batch, m, columns), True, True, False)

    @property
    def tile_work(self) -> int:
        """The function multiplies itself: it calls no tiles."""
        return 0

    def block(
        self, places: dict[str, str], rows: tuple[str, str], columns: tuple[str, str], inner: tuple[str, str]
    ) -> None:
        fn, lanes = self.fn, self.plan.lanes
        edge = self.space.columns.size % lanes
        whole = columns[1]
        if edge:
            size = fn.let(f"sub i64 {columns[1]}, {columns[0]}")
            whole = added(fn, columns[0], fn.let(f"and i64 {size}, {-lanes}"))
        with fn.loop(columns[0], whole, lanes) as column:
            self._columns(places, column.index, lanes)
        if edge:
            with fn.when(fn.let(f"icmp slt i64 {whole}, {columns[1]}")):
                self._columns(places, whole, edge)

    def _columns(self, places: dict[str, str], column: str, count: int) -> None:
        """Columns that are a vector of the result, or its last part."""
        fn, m = self.fn, self.plan.rows
        each = min(1 << count.bit_length() - 1, 8 // m)
        with fn.loop("0", str(count), each) as first:
            self._sums(places, column, first.index, each, count)
        place = added(fn, places["out"], column)
        fn.do(f"call void @{self.finish(count)}(ptr %table, ptr {self.sums}, i64 0, i64 {m}, i64 {place})")

    def _sums(self, places: dict[str, str], column: str, first: str, each: int, count: int) -> None:
        """The sums of `each` columns, of those from `column` on the ones from `first` on."""
        fn, m, lanes, total = self.fn, self.plan.rows, self.plan.lanes, self.arithmetic.total
        numbers = [added(fn, first, str(j)) for j in range(each)]
        if count % each:
            numbers = [least(fn, number, str(count - 1)) for number in numbers]
        right = [
            added(fn, places["rhs"], self.rhs.free.offset(fn, "rhs", added(fn, column, number))) for number in numbers
        ]
        left = [added(fn, places["lhs"], self.lhs.free.offset(fn, "lhs", str(i))) for i in range(m)]
        sums = self._run(left, right, ["zeroinitializer"] * (m * each))
        for i in range(m):
            value = self._reduced(sums[i * each : (i + 1) * each])
            place = pointer(fn, self.sums, added(fn, first, str(i * lanes)), size_of(total))
            store(fn, total, max(2, each), value, place)

    def _reduced(self, sums: list[str]) -> str:
        """A vector of the totals of vectors, in a number that is a power of two; of one vector twice its total."""
        lanes, parts = self.plan.lanes, self.plan.lanes
        sums = sums if len(sums) > 1 else 2 * sums
        while parts > 1:
            parts //= 2
            others = sums[1::2] or ["poison"]
            wide = lanes if len(sums) == 1 else 2 * lanes  # lanes of both that hold parts of sums
            firsts = [k for k in range(wide) if k // parts % 2 == 0]
            pairs = [
                [self._picked(x, y, lanes, [k + skip for k in firsts]) for skip in (0, parts)]
                for x, y in zip(sums[::2], others, strict=True)
            ]
            lanes = len(firsts)
            sums = [self._added(x, y, lanes) for x, y in pairs]
        return sums[0]

    def _picked(self, x: str, y: str, lanes: int, order: list[int]) -> str:
        type, shown = vector(self.arithmetic.total, lanes), ", ".join(f"i32 {k}" for k in order)
        return self.fn.let(f"shufflevector {type} {x}, {type} {y}, <{len(order)} x i32> <{shown}>")

    def _run(self, left: list[str], right: list[str], sums: list[str]) -> list[str]:
        """Vectors of sums along the inner axis."""
        fn, lanes, size = self.fn, self.plan.lanes, self.space.inner.size
        type = vector(self.arithmetic.total, lanes)
        unroll = max(1, 8 // len(sums))
        end = size // (lanes * unroll) * (lanes * unroll)
        many = [(type, "zeroinitializer")] * (len(sums) * unroll)
        with fn.loop("0", str(end), lanes * unroll, many) as loop:
            for u in range(unroll):
                part = loop.carried[u * len(sums) : (u + 1) * len(sums)]
                loop.next += self._step(left, right, part, added(fn, loop.index, str(u * lanes)), None)
        for i in range(len(sums)):
            parts = loop.results[i :: len(sums)]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [self._added(x, y, lanes) for x, y in zip(parts[:half], parts[half:], strict=True)]
            sums[i] = parts[0]
        for step in range(end, size, lanes):
            mask = first_lanes(fn, str(size - step), lanes) if size - step < lanes else None
            sums = self._step(left, right, sums, str(step), mask)
        return sums

    def _step(self, left: list[str], right: list[str], sums: list[str], step: str, mask: str | None) -> list[str]:
        fn, lanes = self.fn, self.plan.lanes
        inner = {side.role: side.inner.offset(fn, side.role, step) for side in (self.lhs, self.rhs)}
        xs = [self.lhs.read(added(fn, place, inner["lhs"]), lanes, mask)[0] for place in left]
        ys = [self.rhs.read(added(fn, place, inner["rhs"]), lanes, mask)[0] for place in right]
        pairs = ((x, y) for x in xs for y in ys)
        return [self.arithmetic.multiplied(fn, x, y, total, lanes) for (x, y), total in zip(pairs, sums, strict=True)]

    def _added(self, x: str, y: str, lanes: int) -> str:
        name = "fadd" if self.arithmetic.total in ("float", "double") else "add"
        return self.fn.let(f"{name} {vector(self.arithmetic.total, lanes)} {x}, {y}")


def row_dots(call: Call, module: Module, index: Space, how: Arithmetic) -> RowDots | None:
    """The product, if it is one for this way: few rows, both operands along the inner axis."""
    lanes = how.lanes(call.target)
    if how.is_complex or index.rows.size > _MOST_ROWS or index.inner.size < lanes:
        return None
    if not all(index.inner.is_contiguous(role, lanes) and index.inner.stride(role) != 0 for role in ("lhs", "rhs")):
        return None
    return RowDots(call, module, index, how)
