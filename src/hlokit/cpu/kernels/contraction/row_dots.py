"""Products of few rows with columns that are contiguous along the inner axis: matrix times vector, rows times rows."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, has_32_registers, outer_product
from hlokit.cpu.kernels.contraction.elements import element_bytes
from hlokit.cpu.kernels.contraction.gemm import Bounds, Places, Product, ProductPlan
from hlokit.cpu.kernels.contraction.gemm_plan import Blocking, sides_of
from hlokit.cpu.kernels.contraction.results import totals
from hlokit.cpu.kernels.contraction.space import Space
from hlokit.cpu.kernels.routine import Call, up
from hlokit.cpu.llvm import Index, Value


class RowDots(Product):
    """Sums in vectors along the inner axis, each added up at its end; nothing is packed."""

    @property
    def tile_work(self) -> int:
        """The function multiplies itself: it calls no tiles."""
        return 0

    def block(self, places: Places, rows: Bounds, columns: Bounds, inner: Bounds) -> None:
        fn, lanes = self.fn, self.blocking.lanes
        first, end = columns
        edge = self.space.columns.size % lanes
        whole = first + ((end - first) & -lanes) if edge else end
        with fn.loop(first, whole, lanes) as column:
            self._columns(places, column.index, lanes)
        if edge:
            with fn.when(whole < end):
                self._columns(places, whole, edge)

    def _columns(self, places: Places, column: Index, count: int) -> None:
        """Columns that are a vector of the result, or its last part."""
        fn, m = self.fn, self.blocking.rows
        each = min(1 << count.bit_length() - 1, _columns_at_once(m, self.call))
        with fn.loop(0, count, each) as first:
            self._sums(places, column, first.index, each, count)
        rows = fn.index(0), fn.index(m)
        fn.call(self.finish(count), fn.pointer("table"), self.sums, *rows, places["out"] + column)

    def _sums(self, places: Places, column: Index, first: Index, each: int, count: int) -> None:
        """The sums of `each` columns, of those from `column` on the ones from `first` on."""
        fn, m, lanes, total = self.fn, self.blocking.rows, self.blocking.lanes, self.arithmetic.total
        numbers = [first + j for j in range(each)]
        if count % each:
            numbers = [number.least(count - 1) for number in numbers]
        right = [places["rhs"] + self.rhs.side.free.offset("rhs", column + number) for number in numbers]
        left = [places["lhs"] + self.lhs.side.free.offset("lhs", fn.index(i)) for i in range(m)]
        sums = self._run(left, right, [fn.constant(0, total.of(lanes))] * (m * each))
        for i in range(m):
            self.sums.to(total)[first + i * lanes].store(totals(sums[i * each : (i + 1) * each]))

    def _run(self, left: Sequence[Index], right: Sequence[Index], sums: list[Value]) -> list[Value]:
        """Vectors of sums along the inner axis."""
        fn, lanes, size, count = self.fn, self.blocking.lanes, self.space.inner.size, len(sums)
        unroll = max(1, 8 // count)
        end = size // (lanes * unroll) * (lanes * unroll)
        with fn.loop(0, end, lanes * unroll, sums * unroll) as loop:
            for u in range(unroll):
                part = loop.carried[u * count : (u + 1) * count]
                loop.next += self._step(left, right, part, loop.index + u * lanes, None)
        for i in range(count):
            parts = loop.results[i::count]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [x + y for x, y in zip(parts[:half], parts[half:], strict=True)]
            sums[i] = parts[0]
        for step in range(end, size, lanes):
            mask = fn.index(size - step).first_lanes(lanes) if size - step < lanes else None
            sums = self._step(left, right, sums, fn.index(step), mask)
        return sums

    def _step(
        self, left: Sequence[Index], right: Sequence[Index], sums: Sequence[Value], step: Index, mask: Value | None
    ) -> list[Value]:
        lanes = self.blocking.lanes
        inner = {side.role: side.inner.offset(side.role, step) for side in self.plan.sides}
        xs = [self.lhs.read(place + inner["lhs"], lanes, mask) for place in left]
        ys = [self.rhs.read(place + inner["rhs"], lanes, mask) for place in right]
        return outer_product(self.arithmetic.multiplied, xs, ys, sums)


def _columns_at_once(rows: int, call: Call) -> int:
    """Columns whose sums with all rows lie in registers; of one row as many as memory is read in streams."""
    sums = 2 * costs.STREAMS if rows > 1 and has_32_registers(call.target) else costs.STREAMS
    return 1 << (sums // rows).bit_length() - 1


def plan_row_dots(call: Call, space: Space, how: Arithmetic) -> ProductPlan | None:
    """The plan, if the product is one for this way: few rows, both operands along the inner axis."""
    lanes = how.lanes(call.target)
    lhs, _ = sides_of(call, space, how)
    if how.is_complex or space.rows.size > costs.STREAMED_ROWS or space.inner.size < lanes:
        return None
    if space.rows.size > costs.FEW_ROWS:
        # the registers hold few columns; rows that are converted would be for each, and sums of lanes take their time
        is_long = space.inner.size >= costs.LEAST_ALONG * lanes
        if not (is_long and lhs.is_factor() and has_32_registers(call.target)):
            return None
    if not all(space.inner.is_contiguous(role, lanes) and space.inner.stride(role) != 0 for role in ("lhs", "rhs")):
        return None
    g, m, n = space.batch.size, space.rows.size, space.columns.size
    read = g * n * space.inner.size * element_bytes(call.operands[1].dtype)
    wanted = min(costs.CHUNKS, max(1, read // costs.STREAMED_BYTES))
    batch, columns = -(-g // wanted), n
    if g < wanted:
        columns = -(-n // -(-wanted // g))
    columns = up(columns, lanes)
    blocking = Blocking(how, lanes, m, 1, max(1, space.inner.size), (batch, m, columns), True, True, False)
    return ProductPlan(call, space, how, blocking, RowDots)
