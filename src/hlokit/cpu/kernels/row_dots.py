"""Products of few rows with columns that lie along the inner axis: matrix times vector, rows times rows."""

from __future__ import annotations

from hlokit.cpu.kernels.axes import Space, added, least
from hlokit.cpu.kernels.elements import element_bytes, first_lanes, mangled, pointer, size_of, store
from hlokit.cpu.kernels.gemm import Product
from hlokit.cpu.kernels.gemm_plan import CHUNKS, Plan
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.kernels.tile import Arithmetic
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
        each = min(count, max(1, 8 // m))
        with fn.loop("0", str(count), each) as first:
            self._sums(places, column, first.index, each, count)
        place = added(fn, places["out"], column)
        fn.do(f"call void @{self.finish(count)}(ptr %table, ptr {self.sums}, i64 0, i64 {m}, i64 {place})")

    def _sums(self, places: dict[str, str], column: str, first: str, each: int, count: int) -> None:
        """The sums of `each` columns, of those from `column` on the ones from `first` on."""
        fn, m, lanes, total = self.fn, self.plan.rows, self.plan.lanes, self.arithmetic.total
        numbers = [least(fn, added(fn, first, str(j)), str(count - 1)) for j in range(each)]
        right = [
            added(fn, places["rhs"], self.rhs.free.offset(fn, "rhs", added(fn, column, number))) for number in numbers
        ]
        left = [added(fn, places["lhs"], self.lhs.free.offset(fn, "lhs", str(i))) for i in range(m)]
        type = vector(total, lanes)
        sums = self._run(left, right, ["zeroinitializer"] * (m * each))
        for i in range(m):
            for j, number in enumerate(numbers):
                name = "fadd" if total in ("float", "double") else "add"
                start, flags = (f"{total} -0.0, ", "reassoc ") if name == "fadd" else ("", "")
                reduce = f"llvm.vector.reduce.{name}.{mangled(total, lanes)}"
                value = fn.let(f"call {flags}{total} @{reduce}({start}{type} {sums[i * each + j]})")
                at = added(fn, number, str(i * lanes))
                store(fn, total, 1, value, pointer(fn, self.sums, at, size_of(total)))

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
                parts = [self._added(x, y) for x, y in zip(parts[:half], parts[half:], strict=True)]
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

    def _added(self, x: str, y: str) -> str:
        name = "fadd" if self.arithmetic.total in ("float", "double") else "add"
        return self.fn.let(f"{name} {vector(self.arithmetic.total, self.plan.lanes)} {x}, {y}")


def row_dots(call: Call, module: Module, index: Space, how: Arithmetic) -> RowDots | None:
    """The product, if it is one for this way: few rows, both operands along the inner axis."""
    lanes = how.lanes(call.target)
    if how.is_complex or index.rows.size > _MOST_ROWS or index.inner.size < lanes:
        return None
    if not all(index.inner.is_contiguous(role, lanes) and index.inner.stride(role) != 0 for role in ("lhs", "rhs")):
        return None
    return RowDots(call, module, index, how)
