"""Products by bf16x3 splitting: factors of f32 and f16 as sums of bf16, multiplied in AMX (decision 0005).

Products of bf16 go the same way, of one part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx import configure
from hlokit.cpu.kernels.contraction.arithmetic import FLOAT, AmxFactors, Arithmetic
from hlokit.cpu.kernels.contraction.gemm import Bounds, Places, Product, ProductBlock, ProductPlan
from hlokit.cpu.kernels.contraction.gemm_plan import Blocking
from hlokit.cpu.kernels.contraction.parts_packing import PanelLayout, Side, inside, pack, panel_bytes
from hlokit.cpu.kernels.contraction.parts_tile import WIDTH, slow_tile, tile
from hlokit.cpu.kernels.contraction.space import Space
from hlokit.cpu.kernels.contraction.split import LANES, RANGE_BYTES, fits, has_raw
from hlokit.cpu.kernels.routine import Call, Packing, Phase, up
from hlokit.cpu.llvm import I8, IfElse, Index, Module, Pointer, Value, scalar_type

_RUNS = {1: (64, 64), 2: (6, 16), 3: (6, 16)}
"""By the number of parts: blocks, least and most, summed in registers before they are added to what came before.

Long sums are rounded less often; panels of few blocks stay in the first-level cache while they are read twice.
"""


@dataclass(frozen=True, kw_only=True)
class PartsPlan(ProductPlan):
    """The plan of a product whose operands are packed in the parts of these factors."""

    factors: AmxFactors

    def packing(self, module: Module) -> Packing | None:
        """rhs packed apart."""
        if self.space.batch.size > 1:
            return None
        ahead = Ahead(module, self)
        return Packing(self.sides[1].number, ahead.layout.nbytes, ahead.write)


def plan_parts(call: Call, space: Space, factors: AmxFactors) -> PartsPlan | None:
    """The plan, if the product goes this way faster."""
    if factors.total is not FLOAT or min(space.rows.size, space.columns.size) < LANES:
        return None
    if space.inner.size < factors.depth:
        return None
    sides = Side(factors, "lhs", space.rows, space.inner), Side(factors, "rhs", space.columns, space.inner)
    if not all(side.is_regular for side in sides):
        return None
    m, n, k = space.rows.size, space.columns.size, space.inner.size
    depth = _depth(factors, space)
    _, rows, columns = _chunk(space, factors, depth, by_batch=call.by_batch, has_sums=False)
    times = -(-n // columns), 0 if call.packed else -(-m // rows)
    packed = m + (0 if call.packed else n)
    fused = space.batch.size * k * (2 * m * n * costs.FUSED_NS + packed * costs.FUSED_PACK_NS)
    if fused <= max(costs.AMX_LEAST_NS, costs.AMX_GAIN * _time(factors, space, times)):
        return None
    is_plain = call.store is None and scalar_type(call.results[0].dtype) == factors.total.scalar
    keeps_out = is_plain and space.rows.stride("out") is not None
    block = _chunk(space, factors, depth, by_batch=call.by_batch, has_sums=depth < k and not keeps_out)
    how = Arithmetic(factors.name, factors.total, factors.memory, is_matrix=True)
    blocking = Blocking(how, LANES, WIDTH, 2, depth, block, False, False, keeps_out)
    return PartsPlan(call, space, how, blocking, PartsProduct, factors=factors)


class PartsProduct(Product):
    """A product whose operands are packed in parts.

    A chunk packs its rows of lhs, and panel by panel its columns of rhs, unless that is packed already.
    """

    def __init__(self, module: Module, plan: PartsPlan) -> None:
        self.factors = plan.factors
        self.layouts = {"lhs": Side(plan.factors, "lhs", plan.space.rows, plan.space.inner)}
        self.layouts["rhs"] = Side(plan.factors, "rhs", plan.space.columns, plan.space.inner)
        super().__init__(module, plan)

    def _take_stack(self) -> None:
        p, fn = self.blocking, self.fn
        self.is_split = self.space.inner.size > p.depth
        self.panel_bytes = panel_bytes(self.factors, p.depth)
        count = p.block[1] // WIDTH
        self.lhs_panels, self.lhs_ranges = (fn.local(I8, count * n, 64) for n in (self.panel_bytes, RANGE_BYTES))
        if not self.call.packed:
            self.rhs_panel, self.rhs_range = (fn.local(I8, n, 64) for n in (self.panel_bytes, RANGE_BYTES))
        rows, columns = (p.block[1], p.block[2]) if self.is_split else (WIDTH, WIDTH)
        self.sums_bytes = 4 * columns
        if not p.keeps_out:
            self.sums = fn.local(I8, rows * self.sums_bytes, 64)

    @property
    def tile_work(self) -> int:
        return super().tile_work * self.factors.count

    def blocks(self, places: Places, rows: Bounds, columns: Bounds) -> ProductBlock:
        return _PartsBlock(self, places, rows, columns)


@dataclass(frozen=True)
class _PartsBlock(ProductBlock):
    product: PartsProduct

    def part(self, begin: Index, end: Index, first: Value, last: Value) -> None:
        product, fn = self.product, self.product.fn
        steps, depth = end - begin, product.factors.depth
        blocks = (steps + (depth - 1)) // depth
        with fn.loop(*self.rows, WIDTH) as row:
            self._pack("lhs", (row.index, self.rows[1]), begin, steps, self._left(row.index))
        configure(fn, product.module)
        with fn.loop(*self.columns, WIDTH) as column:
            if product.call.packed:
                layout = PanelLayout(product.layouts["rhs"], product.blocking.depth)
                right = layout.at(product.rhs.base, column.index, begin)
            else:
                right = product.rhs_panel, product.rhs_range
                self._pack("rhs", (column.index, self.columns[1]), begin, steps, right)
            with fn.loop(*self.rows, WIDTH) as row:
                work = _PartsTileCall(self, row.index, column.index, blocks, first, last)
                work.write(self._left(row.index), right)

    def _left(self, row: Index) -> tuple[Pointer, Pointer]:
        """A panel of lhs, and its range."""
        product, number = self.product, (row - self.rows[0]) // WIDTH
        return product.lhs_panels + number * product.panel_bytes, product.lhs_ranges + number * RANGE_BYTES

    def _pack(self, role: str, bounds: Bounds, begin: Index, steps: Index, to: tuple[Pointer, Pointer]) -> None:
        product = self.product
        base = (product.lhs if role == "lhs" else product.rhs).base
        pack(product.module, product.layouts[role], base, self.places[role], bounds, begin, steps, to)


@dataclass(frozen=True)
class _PartsTileCall:
    """One tile of a block: calls of its function, and of what hands out its sums."""

    block: _PartsBlock
    row: Index
    column: Index
    blocks: Index
    first: Value
    last: Value

    def write(self, left: tuple[Pointer, Pointer], right: tuple[Pointer, Pointer]) -> None:
        """The tile of two panels with their ranges."""
        block, product, fn = self.block, self.block.product, self.row.fn
        height, width = inside(block.rows[1], self.row), inside(block.columns[1], self.column)
        out, out_bytes = block.sums_of(self.row, self.column)
        (lhs, lhs_range), (rhs, rhs_range) = left, right
        operands = [lhs, rhs, out, fn.index(out_bytes), self.blocks, height, width, self.first]
        fast = self._tile(width)
        if product.factors.parts == 1:
            fast.call(None, *operands)
        else:
            choice = IfElse(fn, fits(lhs_range, rhs_range, product.space.inner.size))
            fast.call(None, *operands)
            choice.otherwise()
            fn.call(slow_tile(product.module, product.factors), *operands, has_raw(lhs_range), has_raw(rhs_range))
            choice.end()
        if not product.blocking.keeps_out:
            with fn.when(self.last):
                place = block.places["out"] + self.column
                self._finish(width).call(None, fn.pointer("table"), out, self.row, height, place)

    def _tile(self, width: Index) -> Pointer:
        """The function for so many columns."""
        product = self.block.product
        whole, *half = (tile(product.module, product.factors, j) for j in _halves(product.space.columns.size))
        return _function(width > LANES, whole, *half)

    def _finish(self, width: Index) -> Pointer:
        product, size = self.block.product, self.block.product.space.columns.size
        whole, *edge = (product.finish(n) for n in (WIDTH, size % WIDTH) if n and n <= size)
        return _function(width.eq(WIDTH), whole, *edge)


def _function(condition: Value, name: str, other: str = "") -> Pointer:
    """The function of this name; if there is another one that, unless the i1 holds."""
    found = condition.fn.function(name)
    return condition.select(found, condition.fn.function(other)) if other else found


def _halves(size: int) -> list[int]:
    """The halves, 2 or 1, of the columns of the tiles that an axis is cut into."""
    rest = size % WIDTH
    found = [2] if size > LANES else []
    return [*found, 1] if 0 < rest <= LANES else found


def _evenly(size: int, most: int, unit: int) -> int:
    """The size of equal parts, multiples of a unit, of at most so much."""
    parts = max(1, -(-size // most))
    return up(-(-size // parts), unit)


def _time(factors: AmxFactors, space: Space, times: tuple[int, int] = (1, 1)) -> float:
    """Nanoseconds of one core; `times` that lhs and rhs are packed."""
    m, n = (up(axis.size, LANES) for axis in (space.rows, space.columns))
    k, kind = up(space.inner.size, factors.depth), factors.parts - 1
    packing = (m * times[0] + n * times[1]) * k * costs.AMX_PACK_NS[kind]
    tiles = m * n / WIDTH**2 * -(-k // _depth(factors, space)) * costs.AMX_TILE_NS
    return space.batch.size * (packing + 2 * m * n * k * costs.AMX_PRODUCT_NS[kind] + tiles)


def _depth(factors: AmxFactors, space: Space) -> int:
    """Steps of the inner axis at a time: a sixth, in so few and such short runs that neither is rounded often."""
    least, most = _RUNS[factors.parts]
    run = min(max(least, -(-space.inner.size // (6 * factors.depth))), most)
    return _evenly(space.inner.size, run * factors.depth, factors.depth)


def _chunk(space: Space, factors: AmxFactors, depth: int, *, by_batch: bool, has_sums: bool) -> tuple[int, int, int]:
    """(batch, rows, columns) of a chunk: as little packing as can be."""
    g, m, n = (axis.size for axis in (space.batch, space.rows, space.columns))
    work = int(_time(factors, space) / costs.AMX_CHUNK_NS)
    wanted = max(1, work if work <= 2 else 2 if work < 16 else 4 if work < 64 else 8 if work < 1024 else 16)
    tallest = max(1, costs.AMX_LHS_BYTES // (panel_bytes(factors, depth))) * WIDTH
    if g >= wanted:
        batch, each_wanted = (1 if by_batch else -(-g // wanted)), 1
    else:
        batch, each_wanted = 1, -(-wanted // g)
    best = (math.inf, 0, 0)
    for across in range(1, -(-n // WIDTH) + 1):
        columns = _evenly(n, -(-n // across), WIDTH)
        lowest = min(tallest, costs.AMX_SUMS_BYTES // (4 * columns) // WIDTH * WIDTH) if has_sums else tallest
        if lowest == 0:
            continue
        down = min(max(-(-each_wanted // across), -(-m // lowest)), -(-m // WIDTH))
        rows = _evenly(m, -(-m // down), WIDTH)
        idle = -(-n // columns) * -(-m // rows) % each_wanted / each_wanted
        best = min(best, (1 / min(rows, m) + 1 / min(columns, n) + 0.01 * idle, rows, columns))
    return batch, best[1], best[2]


class Ahead(Product):
    """Writes the function that packs all of rhs, for products that find it so."""

    computes = False

    def __init__(self, module: Module, plan: PartsPlan) -> None:
        side = Side(plan.factors, "rhs", plan.space.columns, plan.space.inner)
        self.layout = PanelLayout(side, plan.blocking.depth)
        super().__init__(module, plan)

    def _take_stack(self) -> None:
        """Nothing is summed here."""

    def write(self) -> Phase:
        fn, layout = self.fn, self.layout
        n, k = self.space.columns.size, self.space.inner.size
        each = -(-layout.panels // max(1, min(16, int(n * k * costs.AMX_PACK_NS[-1] / costs.AMX_CHUNK_NS)))) * WIDTH
        begin, end = fn.index_argument("begin") * each, (fn.index_argument("end") * each).least(n)
        with fn.loop(begin, end, WIDTH) as column, fn.loop(0, k, layout.depth) as inner:
            steps = (fn.index(k) - inner.index).least(layout.depth)
            to = layout.at(self.out, column.index, inner.index)
            bounds = column.index, fn.index(n)
            pack(self.module, layout.side, self.rhs.base, fn.index(0), bounds, inner.index, steps, to)
        return self.added(-(-n // each))
