"""Products of few rows, whose rhs is read once, in the order of memory: vector times matrix, thin times wide.

Long runs of memory are read fastest. So a chunk goes over several rows of rhs at a time (BLIS: axpyf), along all of
their columns, and adds their products to sums that wait in the cache: a walk down few columns, with sums in registers
for the whole inner axis, gets half of the bandwidth. Where rows are too short to be cut, chunks are ranges of the inner
axis: each has sums of its own, which a second phase adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, has_32_registers, outer_product
from hlokit.cpu.kernels.contraction.denormals import PhaseFunction, may_flush
from hlokit.cpu.kernels.contraction.elements import lanes_up_to
from hlokit.cpu.kernels.contraction.gemm import Bounds, Product, ProductPlan
from hlokit.cpu.kernels.contraction.gemm_plan import Blocking, ProductSide, may_keep_out, sides_of
from hlokit.cpu.kernels.contraction.packing import Operand
from hlokit.cpu.kernels.contraction.space import Space
from hlokit.cpu.kernels.routine import Call, Phase, Routine, up
from hlokit.cpu.llvm import I8, Function, Index, Module, Pointer, Value
from hlokit.cpu.target import Target


@dataclass(frozen=True, kw_only=True)
class StreamedPlan(ProductPlan):
    """The plan of a product of few rows.

    across   parts of the columns that have chunks of their own
    splits   parts of the inner axis that have
    steps    rows of rhs at a time
    ahead    bytes from what is read to what is prefetched; 0: nothing is
    """

    across: int
    splits: int
    steps: int
    ahead: int

    @property
    def kept_factors(self) -> tuple[int, int] | None:
        """Elements from one step of lhs, and from one row, to the next, if it is read where it lies."""
        lhs, _ = self.sides
        step, row = lhs.inner.stride("lhs"), lhs.free.stride("lhs")
        if step is None or row is None or not lhs.is_factor() or self.space.rows.size > costs.FEW_ROWS:
            return None
        return step, row

    @property
    def pitch(self) -> int:
        """Bytes from a row of a chunk's sums to the next, at each of which another set of the first cache begins."""
        if self.blocking.keeps_out:
            stride = self.space.rows.stride("out")
            assert stride is not None
            return stride * self.arithmetic.total_bytes
        columns = self.blocking.block[2] if self.splits == 1 else self.space.columns.size
        return up(up(columns, self.blocking.lanes) * self.arithmetic.total_bytes, 1024) + 512

    def write(self, module: Module) -> Routine:
        product = StreamedProduct(module, self)
        sums = product.write()
        if self.splits == 1:
            return Routine((sums,))
        scratch = self.space.batch.size * self.splits * self.space.rows.size * self.pitch
        return Routine((sums, product.added_up()), scratch)


class StreamedProduct(Product):
    """Writes the phase that makes sums, and the one that adds up those of parts of the inner axis."""

    plan: StreamedPlan

    def _take_stack(self) -> None:
        self.sums_bytes = self.plan.pitch
        self.step = RowsStep(self.plan)
        self.factor_steps = self.plan.kept_factors or (self.space.rows.size, 1)
        if self.plan.kept_factors is None:
            size = self.plan.steps * self.space.rows.size * self.arithmetic.total_bytes
            self.factors = self.fn.local(I8, size, 64).to(self.arithmetic.total)
        if self.plan.splits == 1 and not self.blocking.keeps_out:
            self.sums = self.fn.local(I8, self.space.rows.size * self.sums_bytes, 64)

    @property
    def tile_work(self) -> int:
        """The work of a row of tiles: the loops round it may be slow."""
        return self.blocking.rows * self.blocking.block[2] * self.plan.steps

    def write(self) -> Phase:
        fn, plan, (batches, _, width) = self.fn, self.plan, self.blocking.block
        name = self.step.function(self)
        count = -(-self.space.batch.size // batches)
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as chunk:
            number, part, columns = chunk.index, fn.index(0), (fn.index(0), fn.index(self.space.columns.size))
            if plan.across > 1:
                columns = _part(number % plan.across, width, self.space.columns.size)
                number = number // plan.across
            if plan.splits > 1:
                part, number = number % plan.splits, number // plan.splits
            inner = _part(part, self.blocking.depth, self.space.inner.size)
            each = partial(self._sums, name, columns, inner, part)
            if self.space.batch.size == 1:
                each(fn.index(0))
            else:
                with fn.loop(*_part(number, batches, self.space.batch.size)) as batch:
                    each(batch.index)
        fn.is_cold = self.tile_work >= costs.LONG_TILE
        phase = self.added(count * plan.splits * plan.across)
        return Phase(phase.function, phase.chunks, count)

    def _sums(self, name: str, columns: Bounds, inner: Bounds, part: Index, batch: Index) -> None:
        """The sums of a range of columns over a range of the inner axis."""
        fn, m, places = self.fn, self.space.rows.size, self.places(batch)
        if self.blocking.keeps_out:
            sums = self.out.to(self.arithmetic.total)[places["out"] + columns[0]]
        else:
            sums = self.sums if self.plan.splits == 1 else self._sums_of(batch, part, columns[0])
        count = columns[1] - columns[0]
        if not self.blocking.keeps_out:
            count = self._filled(count)
        for row in range(m):
            fn.memset(sums + row * self.sums_bytes, 0, count * self.arithmetic.total_bytes)
        stride, unit = self.rhs.side.inner.stride("rhs"), self.rhs.row_unit
        assert stride is not None
        with fn.loop(*inner, self.plan.steps) as loop:
            steps = (inner[1] - loop.index).least(self.plan.steps)
            factors = self._factors(places["lhs"], loop.index, steps)
            row = (places["rhs"] + self.rhs.side.inner.offset("rhs", loop.index)) // unit
            numbers = map(fn.index, (row, *columns, stride // unit, steps, self.sums_bytes, *self.factor_steps))
            fn.call(name, *self.rhs.addresses.values(), factors, sums, *numbers)
        if self.plan.splits == 1 and not self.blocking.keeps_out:
            self._hand_out(sums, columns, places["out"])

    def _factors(self, base: Index, first: Index, steps: Index) -> Pointer:
        """Some steps of all rows of lhs, in the type of sums: where they lie, or copied, [step][row]."""
        fn, m, parts, side = self.fn, self.space.rows.size, self.arithmetic.parts, self.lhs.side
        if self.plan.kept_factors is not None:
            place = base + side.inner.offset("lhs", first)
            return self.lhs.base.to(self.arithmetic.total)[place * parts]
        target = self.factors
        with fn.loop(0, steps) as step:
            place = base + side.inner.offset("lhs", first + step.index)
            with fn.loop(0, m) as row:
                found = self.lhs.read(place + side.free.offset("lhs", row.index), 1)
                for k, value in enumerate(found):
                    target[(step.index * m + row.index) * parts + k].store(value)
        return target

    def _sums_of(self, batch: Index, part: Index, column: Index) -> Pointer:
        """Where the sums of a part of the inner axis begin."""
        number = (batch * self.plan.splits + part) * (self.space.rows.size * self.sums_bytes)
        return self.pointer(len(self.call.operands) + 1) + (number + column * self.arithmetic.total_bytes)

    def _filled(self, count: Index) -> Index:
        """The columns, with those that complete a vector."""
        return (count + (self.blocking.lanes - 1)) & -self.blocking.lanes

    def _hand_out(self, sums: Pointer, columns: Bounds, place: Index) -> None:
        """Finished sums of a range of columns to the result."""
        fn, first, end = self.fn, *columns
        edge = self.space.columns.size % self.blocking.lanes
        rows = fn.index(0), fn.index(self.space.rows.size)

        def several(low: Index, high: Index, count: int) -> None:
            with fn.loop(low, high, count) as column:
                here = sums + (column.index - first) * self.arithmetic.total_bytes
                fn.call(self.finish(count), fn.pointer("table"), here, *rows, place + column.index)

        wide = self.blocking.lanes * _TOGETHER
        many = first + ((end - first) & -wide)
        several(first, many, wide)
        several(many, first + ((end - first) & -self.blocking.lanes), self.blocking.lanes)
        if edge:
            whole = fn.index(self.space.columns.size - edge)
            with fn.when(end > whole):
                several(whole, whole + 1, edge)

    # -- the second phase

    def added_up(self) -> Phase:
        """Adds up the sums of all parts, in their order."""
        self.phase = PhaseFunction(self.call.target, flushes=may_flush(self.call))
        self.fn = fn = self.phase
        self.out = self.pointer(len(self.call.operands))
        space, wide = self.space, self.blocking.lanes * _TOGETHER
        nbytes = self.plan.splits * space.rows.size * self.sums_bytes
        across = max(1, min(costs.CHUNKS, nbytes // costs.STREAMED_BYTES, space.columns.size // wide))
        width = up(-(-space.columns.size // across), wide)
        across = -(-space.columns.size // width)
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as chunk:
            columns = _part(chunk.index % across, width, space.columns.size)
            batch = chunk.index // across
            sums = self._sums_of(batch, fn.index(0), columns[0])
            self._add_up(sums, columns[1] - columns[0])
            self._hand_out(sums, columns, self.places(batch)["out"])
        return self.added(space.batch.size * across)

    def _add_up(self, sums: Pointer, count: Index) -> None:
        fn, a, lanes, splits = self.fn, self.arithmetic, self.blocking.lanes, self.plan.splits
        apart = self.space.rows.size * self.sums_bytes
        for row in range(self.space.rows.size):
            with fn.loop(0, self._filled(count) * a.parts, lanes) as loop:
                first = (sums + row * self.sums_bytes).to(a.total)[loop.index]
                total = first.load(lanes)
                with fn.loop(1, splits, 1, [total]) as part:
                    part.next = [part.carried[0] + (first + part.index * apart).to(a.total).load(lanes)]
                first.store(part.results[0])


_TOGETHER = 4
"""Vectors of sums that are handed out at once."""


def _part(number: Index, size: int, whole: int) -> Bounds:
    """The part of this number of a range that is cut in parts of a size."""
    first = number * size
    return first, (first + size).least(whole)


_UNROLLED = 16
"""Sums that steps written one after the other add to."""
_NUMBERS = ("row", "begin", "end", "stride", "steps", "pitch", "factor_step", "factor_row")


class RowsStep:
    """The function that adds the products of some rows of rhs to sums:

    void f(ptr address of rhs..., ptr factors, ptr sums, i64 row, i64 begin, i64 end, i64 stride, i64 steps,
           i64 pitch, i64 factor_step, i64 factor_row)

    `row` is the place of the first row in rhs, `stride` how far the next one is (see Operand.row_unit); `factor_step`
    and `factor_row` say how far the next step's factor is, and the next row's; of the columns from begin to end `sums`
    has the first one first.
    """

    def __init__(self, plan: StreamedPlan) -> None:
        self.plan, self.arithmetic, self.lanes = plan, plan.arithmetic, plan.blocking.lanes
        m = plan.space.rows.size
        groups = -(-m // costs.STREAMED_ROWS)
        self.groups = [range(m * k // groups, m * (k + 1) // groups) for k in range(groups)]
        self.rows = max(map(len, self.groups))
        self.vectors, self.steps = plan.blocking.vectors, plan.steps

    def function(self, product: StreamedProduct) -> str:
        """Adds the function to the module; gives its name."""
        addresses = list(product.rhs.addresses)
        parameters = [("ptr noalias readonly", name) for name in (*addresses, "factors")]
        parameters += [("ptr noalias", "sums"), *(("i64", name) for name in _NUMBERS)]
        fn = Function("", parameters, attributes="noinline nounwind", target=product.call.target)
        rhs = product.rhs.moved({name: fn.pointer(name) for name in addresses})
        _RowsStepWriter(self, fn, rhs).write()
        return product.module.add_by_text(fn, "few_rows")


class _RowsStepWriter:
    def __init__(self, step: RowsStep, fn: Function, rhs: Operand) -> None:
        self.step, self.fn, self.rhs = step, fn, rhs
        self.arithmetic, self.lanes = step.arithmetic, step.lanes
        self.factors = fn.pointer("factors", self.arithmetic.total)
        self.sums = fn.pointer("sums", self.arithmetic.total)
        numbers = map(fn.index_argument, _NUMBERS)
        self.row, self.begin, self.end, self.stride, self.steps, self.pitch, self.factor_step, self.factor_row = numbers

    def write(self) -> None:
        fn, lanes, wide = self.fn, self.lanes, self.lanes * self.step.vectors
        count = self.end - self.begin
        whole = count - count % wide
        with fn.loop(0, whole, wide) as column:
            self._columns(column.index, self.step.vectors, None)
        edge = self.step.plan.space.columns.size % wide
        if edge:
            with fn.when(whole < count):
                self._columns(whole, -(-edge // lanes), lanes_up_to(fn, (edge - 1) % lanes + 1, lanes))
        fn.returns()

    def _columns(self, column: Index, vectors: int, mask: Value | None) -> None:
        """All steps for so many vectors of columns; `mask`: the columns of the last one."""
        for rows in self.step.groups:
            self._rows(rows, column, vectors, mask)

    def _rows(self, rows: range, column: Index, vectors: int, mask: Value | None) -> None:
        fn, a, lanes = self.fn, self.arithmetic, self.lanes
        places = [self.sums + (self.pitch * row + column * a.total_bytes) for row in rows]
        spots = [place.to(a.total)[k * lanes] for place in places for k in range(vectors * a.parts)]
        columns = [self.begin + column + v * lanes for v in range(vectors)]
        masks = [*[None] * (vectors - 1), mask]

        def added(step: Index, sums: Sequence[Value]) -> list[Value]:
            row = self.row + step * self.stride
            if self.step.plan.ahead and mask is None:
                self.rhs.prefetch(row, columns[0], vectors * lanes, self.step.plan.ahead)
            right = [self.rhs.read_row(row, each, lanes, some) for each, some in zip(columns, masks, strict=True)]
            spot = self.factors[step * self.factor_step * a.parts]
            left = (self._factor(spot[self.factor_row * (r * a.parts)]) for r in rows)
            return outer_product(a.multiplied, left, right, sums)

        exist = [some for _ in rows for some in masks for _ in range(a.parts)]
        sums = [spot.load(lanes, some) for spot, some in zip(spots, exist, strict=True)]
        together = min(max(1, _UNROLLED // len(sums)), self.step.steps) if len(self.step.groups) == 1 else 1
        whole = self.steps - self.steps % together
        with fn.loop(0, whole, together, sums) as loop:
            sums = loop.carried
            for k in range(together):
                sums = added(loop.index + k, sums)
            loop.next = sums
        if together > 1:
            with fn.loop(whole, self.steps, 1, loop.results) as loop:
                loop.next = added(loop.index, loop.carried)
        for spot, value, some in zip(spots, loop.results, exist, strict=True):
            spot.store(value, some)

    def _factor(self, spot: Pointer) -> list[Value]:
        return [spot[part].load().splat(self.lanes) for part in range(self.arithmetic.parts)]


# -- the plan


def plan_streamed(call: Call, space: Space, how: Arithmetic, *, most_rows: int) -> StreamedPlan | None:
    """The plan, if the product is one for this way: few rows, and rhs lies by rows that are long enough."""
    _, rhs = sides_of(call, space, how)
    g, m, n, k = space.batch.size, space.rows.size, space.columns.size, space.inner.size
    lanes = how.lanes(call.target)
    stride = rhs.inner.stride("rhs")
    if m > most_rows or n <= 2 * lanes or k < costs.LEAST_STREAMED or rhs.free.stride("rhs") != 1 or stride is None:
        return None
    if call.loader is None and costs.FEW_ROWS < m <= costs.MOST_NEAR_ROWS and _is_near(rhs, space, call.target):
        return None  # tiles with sums in registers are faster where memory does not hold them up
    rows = -(-m // -(-m // costs.STREAMED_ROWS))
    vectors = _vectors(how, rows, call)
    vectors = -(-n // (lanes * -(-n // (lanes * vectors))))  # as many in the last step, if there are few
    row_bytes = n * rhs.element_bytes
    if call.loader is not None:
        row_bytes = max(1, call.loader.nbytes // (g * k))
    wanted = min(costs.CHUNKS, max(1, g * k * row_bytes // costs.STREAMED_BYTES))
    most = max(lanes, costs.STREAMED_SUMS // (m * how.total_bytes))
    long_run = costs.LONG_RUN if _rows_at_once(rows, call.target) > 1 else costs.LONG_ROW
    across = max(-(-n // most), min(-(-wanted // g), row_bytes // long_run), 1)
    width = up(-(-n // across), lanes * vectors)
    across = -(-n // width)
    steps, ahead = _steps(rows, row_bytes, call.target, lies_together=stride == n and across == 1)
    steps = min(k, steps)
    # the sums of each part are written, and read again
    splits = 1 if call.by_batch else max(1, min(-(-wanted // (g * across)), k // (costs.SPLIT_STEPS * m)))
    depth = up(-(-k // splits), steps)
    batches = 1 if call.by_batch else max(1, g // wanted)
    splits = -(-k // depth)
    keeps_out = splits == 1 and m <= costs.FEW_ROWS // 2 and may_keep_out(call, space, how)
    cut = Blocking(how, lanes, rows, vectors, depth, (batches, m, width), True, True, keeps_out)
    return StreamedPlan(call, space, how, cut, StreamedProduct, across=across, splits=splits, steps=steps, ahead=ahead)


def _steps(rows: int, row_bytes: int, target: Target, *, lies_together: bool) -> tuple[int, int]:
    """Rows of rhs that are read at once, and StreamedPlan.ahead; `lies_together`: as one piece of memory."""
    along = costs.AHEAD_ALONG if rows >= costs.STREAMS // 2 else 0
    if not lies_together:
        return costs.STREAMS if rows <= costs.FEW_ROWS else 2 * costs.STREAMS, along
    steps = max(_rows_at_once(rows, target), costs.STREAMED_STEP // row_bytes)
    if steps == 1:
        return steps, costs.AHEAD_TOGETHER
    block = steps * row_bytes
    return steps, up(costs.AHEAD_TOGETHER, block) if block <= costs.MOST_AHEAD else along


def _rows_at_once(rows: int, target: Target) -> int:
    """The least number of rows of rhs that are read at once where they lie together."""
    if rows > costs.FEW_ROWS:
        return 2 * costs.STREAMS
    return costs.STREAMS_TOGETHER.get(target.cpu, costs.STREAMS)


def _is_near(rhs: ProductSide, space: Space, target: Target) -> bool:
    """Whether rhs stays in a cache that is near enough, and its rows fall into different sets of the first one."""
    row, stride = (size * rhs.element_bytes for size in (space.columns.size, rhs.inner.stride("rhs") or 0))
    near = costs.NEAR_BYTES[has_32_registers(target)]
    return space.inner.size * row <= near and stride % costs.PAGE_BYTES != 0


def _vectors(how: Arithmetic, rows: int, call: Call) -> int:
    """Vectors of columns whose sums, with those of rhs, fit the registers."""
    registers = (32 if has_32_registers(call.target) else 16) - 2 * how.parts
    fitting = (v for v in (4, 2) if (rows + 1) * v * how.parts <= registers and v * rows <= 16)
    return next(fitting, 1)
