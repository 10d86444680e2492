"""Products in parts: factors of f32 and f16 as sums of bf16, multiplied in matrix registers (decision 0005).

Products of bf16 go the same way, of one part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.denormals import may_flush
from hlokit.cpu.kernels.contraction.elements import pointer
from hlokit.cpu.kernels.contraction.gemm import Block, Product
from hlokit.cpu.kernels.contraction.gemm_plan import Plan, up
from hlokit.cpu.kernels.contraction.matrix_registers import configure
from hlokit.cpu.kernels.contraction.parts_packing import Layout, Side, inside, pack, panel_bytes
from hlokit.cpu.kernels.contraction.parts_tile import WIDTH, Form, slow_tile, tile
from hlokit.cpu.kernels.contraction.space import Space, added, least
from hlokit.cpu.kernels.contraction.split import LANES, PRODUCTS, RANGE_BYTES, fits, has_raw
from hlokit.cpu.kernels.contraction.tile import Arithmetic
from hlokit.cpu.kernels.routine import Call, Packing, Phase
from hlokit.cpu.llvm import Module, scalar_type
from hlokit.ops.contraction import compute_type
from hlokit.types import dtype as dtypes

_FORMS = {
    dtypes.f32: Form("f32", "float", 3, has_least=True),
    dtypes.f16: Form("f16", "half", 2),
    dtypes.bf16: Form("bf16", "i16", 1),
}
_LHS_BYTES = 3 << 18
"""Of lhs, packed, in L2."""
_SUMS_BYTES = 1 << 18
"""Sums that wait on the stack for the rest of the inner axis. With all that is packed some 1.2 MB."""
_CHUNK_NS = 60_000
"""Work that is worth a chunk."""

# What things cost one core of a Sapphire Rapids, in nanoseconds, by the number of parts
_PACK_NS = (0.1, 0.2, 0.4)
"""An element, from the third-level cache."""
_PRODUCT_NS = (1 / 2000, 4 / 1900, 6 / 1900)
"""A multiplication or an addition. Tiles alone take 6 / 2400; more while the core's other thread is at work."""
_TILE_NS = 250
"""A run of a tile beside its products."""
_FUSED_NS, _FUSED_PACK_NS = 1 / 155, 0.25
"""The same without matrix registers: a multiplication or an addition of f32, and an element of lhs or rhs."""
_GAIN = 1.1
"""How many times as fast this way must seem."""
_LEAST_NS = 80_000
"""Time without matrix registers for which it is not worth the time to compile."""


def form_of(call: Call, space: Space, *, packed: bool) -> Form | None:
    """How the product's operands are laid out, if it goes this way faster."""
    left, right = (shape.dtype for shape in call.operands[:2])
    form = _FORMS.get(left)
    if form is None or left is not right or not may_flush(call) or not call.target.has("amx-bf16"):
        return None
    if call.target.vector_bytes != 64 or compute_type(left, call.results[0].dtype).name != "float32":
        return None
    if min(space.rows.size, space.columns.size) < LANES or space.inner.size < form.depth:
        return None
    sides = Side(form, "lhs", space.rows, space.inner), Side(form, "rhs", space.columns, space.inner)
    if not all(side.is_regular for side in sides):
        return None
    m, n, k = space.rows.size, space.columns.size, space.inner.size
    _, rows, columns = _chunk(space, form, _depth(form, space), by_batch=call.by_batch, has_sums=False)
    times = -(-n // columns), 0 if packed else -(-m // rows)
    fused = space.batch.size * k * (2 * m * n * _FUSED_NS + (m + (0 if packed else n)) * _FUSED_PACK_NS)
    return form if fused > max(_LEAST_NS, _GAIN * _time(form, space, times)) else None


class PartsProduct(Product):
    """A product whose operands are packed in parts.

    A chunk packs its rows of lhs, and panel by panel its columns of rhs, unless that is packed already.
    """

    def __init__(self, call: Call, module: Module, space: Space, form: Form) -> None:
        self.form = form
        self.sides = {"lhs": Side(form, "lhs", space.rows, space.inner)}
        self.sides["rhs"] = Side(form, "rhs", space.columns, space.inner)
        super().__init__(call, module, space, Arithmetic(form.name, form.total, form.memory, is_matrix=True))

    def planned(self) -> Plan:
        call, space, form = self.call, self.space, self.form
        is_plain = call.store is None and scalar_type(call.results[0].dtype) == form.total
        keeps_out = is_plain and space.rows.stride("out") is not None
        depth = _depth(form, space)
        has_sums = depth < space.inner.size and not keeps_out
        block = _chunk(space, form, depth, by_batch=call.by_batch, has_sums=has_sums)
        return Plan(self.arithmetic, LANES, WIDTH, 2, depth, block, False, False, keeps_out)

    def _take_stack(self) -> None:
        p, fn = self.plan, self.fn
        self.is_split = self.space.inner.size > p.depth
        self.panel_bytes = panel_bytes(self.form, p.depth)
        count = p.block[1] // WIDTH
        self.lhs_panels, self.lhs_ranges = (fn.alloca("i8", count * size) for size in (self.panel_bytes, RANGE_BYTES))
        if not self.call.packed:
            self.rhs_panel, self.rhs_range = fn.alloca("i8", self.panel_bytes), fn.alloca("i8", RANGE_BYTES)
        rows, columns = (p.block[1], p.block[2]) if self.is_split else (WIDTH, WIDTH)
        self.sums_bytes = 4 * columns
        if not p.keeps_out:
            self.sums = fn.alloca("i8", rows * self.sums_bytes)

    @property
    def tile_work(self) -> int:
        return super().tile_work * sum(map(len, PRODUCTS[self.form.parts]))

    def blocks(self, places: dict[str, str], rows: tuple[str, str], columns: tuple[str, str]) -> Block:
        return _Block(self, places, rows, columns)


@dataclass(frozen=True)
class _Block(Block):
    product: PartsProduct

    def part(self, begin: str, end: str, first: str, last: str) -> None:
        product, fn = self.product, self.product.fn
        steps = fn.let(f"sub i64 {end}, {begin}")
        blocks = fn.let(f"sdiv i64 {added(fn, steps, str(product.form.depth - 1))}, {product.form.depth}")
        with fn.loop(*self.rows, WIDTH) as row:
            self._pack("lhs", row.index, self.rows[1], begin, steps, self._left(row.index))
        configure(fn, product.module)
        with fn.loop(*self.columns, WIDTH) as column:
            width = inside(fn, self.columns[1], column.index)
            if product.call.packed:
                layout = Layout(product.sides["rhs"], product.plan.depth)
                right = layout.at(fn, product.rhs.base, column.index, begin)
            else:
                right = product.rhs_panel, product.rhs_range
                self._pack("rhs", column.index, self.columns[1], begin, steps, right)
            with fn.loop(*self.rows, WIDTH) as row:
                height = inside(fn, self.rows[1], row.index)
                sides = self._left(row.index), right
                self._tile(row.index, height, column.index, width, sides, blocks, first, last)

    def _left(self, row: str) -> tuple[str, str]:
        """A panel of lhs, and its range."""
        product, fn = self.product, self.product.fn
        number = fn.let(f"udiv i64 {fn.let(f'sub i64 {row}, {self.rows[0]}')}, {WIDTH}")
        panel = pointer(fn, product.lhs_panels, number, product.panel_bytes)
        return panel, pointer(fn, product.lhs_ranges, number, RANGE_BYTES)

    def _pack(self, role: str, first: str, end: str, begin: str, steps: str, to: tuple[str, str]) -> None:
        product = self.product
        base = (product.lhs if role == "lhs" else product.rhs).base
        pack(product.fn, product.module, product.sides[role], base, self.places[role], first, end, begin, steps, to)

    def _tile(
        self,
        row: str,
        height: str,
        column: str,
        width: str,
        sides: tuple[tuple[str, str], tuple[str, str]],
        blocks: str,
        first: str,
        last: str,
    ) -> None:
        product, fn = self.product, self.product.fn
        out, out_bytes = self.sums_of(row, column)
        (lhs, lhs_range), (rhs, rhs_range) = sides
        shown = f"ptr {lhs}, ptr {rhs}, ptr {out}, i64 {out_bytes}, "
        shown += f"i64 {blocks}, i64 {height}, i64 {width}, i1 {first}"
        chosen = self._chosen(width)
        if product.form.parts == 1:
            fn.do(f"call void {chosen}({shown})")
        else:
            fast, slow, end = fn.new_block("fast"), fn.new_block("slow"), fn.new_block("summed")
            fn.branch(fits(fn, lhs_range, rhs_range, product.space.inner.size), fast, slow)
            fn.start(fast)
            fn.do(f"call void {chosen}({shown})")
            fn.jump(end)
            fn.start(slow)
            is_raw = ", ".join(f"i1 {has_raw(fn, range)}" for range in (lhs_range, rhs_range))
            name = slow_tile(product.module, product.form)
            fn.do(f"call void @{name}({shown}, {is_raw})")
            fn.jump(end)
            fn.start(end)
        if not product.plan.keeps_out:
            self._hand_out(out, row, height, column, width, last)

    def _chosen(self, width: str) -> str:
        """The tile for so many columns."""
        product, fn = self.product, self.product.fn
        names = [f"@{tile(product.module, product.form, j)}" for j in _halves(product.space.columns.size)]
        if len(names) == 1:
            return names[0]
        is_more = fn.let(f"icmp sgt i64 {width}, {LANES}")
        return fn.let(f"select i1 {is_more}, ptr {names[0]}, ptr {names[1]}", "f")

    def _hand_out(self, sums: str, row: str, height: str, column: str, width: str, last: str) -> None:
        product, fn = self.product, self.product.fn
        edge = product.space.columns.size % WIDTH
        names = [product.finish(size) for size in (WIDTH, edge) if size and size <= product.space.columns.size]
        chosen = f"@{names[0]}"
        if len(names) == 2:
            chosen = fn.let(
                f"select i1 {fn.let(f'icmp eq i64 {width}, {WIDTH}')}, ptr @{names[0]}, ptr @{names[1]}", "f"
            )
        with fn.when(last):
            place = added(fn, self.places["out"], column)
            fn.do(f"call void {chosen}(ptr %table, ptr {sums}, i64 {row}, i64 {height}, i64 {place})")


def _halves(size: int) -> list[int]:
    """The halves, 2 or 1, of the columns of the tiles that an axis is cut into."""
    rest = size % WIDTH
    found = [2] if size > LANES else []
    return [*found, 1] if 0 < rest <= LANES else found


def _evenly(size: int, most: int, unit: int) -> int:
    """The size of equal parts, multiples of a unit, of at most so much."""
    parts = max(1, -(-size // most))
    return -(-size // parts // unit) * unit


def _time(form: Form, space: Space, times: tuple[int, int] = (1, 1)) -> float:
    """Nanoseconds of one core; `times` that lhs and rhs are packed."""
    m, n = (up(axis.size, LANES) for axis in (space.rows, space.columns))
    k, kind = up(space.inner.size, form.depth), form.parts - 1
    packing = (m * times[0] + n * times[1]) * k * _PACK_NS[kind]
    tiles = m * n / WIDTH**2 * -(-k // _depth(form, space)) * _TILE_NS
    return space.batch.size * (packing + 2 * m * n * k * _PRODUCT_NS[kind] + tiles)


def _depth(form: Form, space: Space) -> int:
    """Steps of the inner axis at a time: a sixth, in so few and such short runs that neither is rounded often."""
    least, most = form.runs
    run = min(max(least, -(-space.inner.size // (6 * form.depth))), most)
    return _evenly(space.inner.size, run * form.depth, form.depth)


def _chunk(space: Space, form: Form, depth: int, *, by_batch: bool, has_sums: bool) -> tuple[int, int, int]:
    """(batch, rows, columns) of a chunk: as little packing as can be."""
    g, m, n = (axis.size for axis in (space.batch, space.rows, space.columns))
    work = int(_time(form, space) / _CHUNK_NS)
    wanted = max(1, work if work <= 2 else 2 if work < 16 else 4 if work < 64 else 8 if work < 1024 else 16)
    tallest = max(1, _LHS_BYTES // (panel_bytes(form, depth))) * WIDTH
    if g >= wanted:
        batch, each_wanted = (1 if by_batch else -(-g // wanted)), 1
    else:
        batch, each_wanted = 1, -(-wanted // g)
    best = (math.inf, 0, 0)
    for across in range(1, -(-n // WIDTH) + 1):
        columns = _evenly(n, -(-n // across), WIDTH)
        lowest = min(tallest, _SUMS_BYTES // (4 * columns) // WIDTH * WIDTH) if has_sums else tallest
        if lowest == 0:
            continue
        down = min(max(-(-each_wanted // across), -(-m // lowest)), -(-m // WIDTH))
        rows = _evenly(m, -(-m // down), WIDTH)
        idle = -(-n // columns) * -(-m // rows) % each_wanted / each_wanted
        best = min(best, (1 / min(rows, m) + 1 / min(columns, n) + 0.01 * idle, rows, columns))
    return batch, best[1], best[2]


class Ahead(Product):
    """Writes the function that packs all of rhs, for products that find it so."""

    def __init__(self, call: Call, module: Module, space: Space, form: Form) -> None:
        self.layout = Layout(Side(form, "rhs", space.columns, space.inner), _depth(form, space))
        super().__init__(call, module, space, Arithmetic(form.name, form.total, form.memory))

    def planned(self) -> Plan:
        return Plan(self.arithmetic, LANES, WIDTH, 2, self.layout.depth, (1, WIDTH, WIDTH), False, False, False)

    def _take_stack(self) -> None:
        """Nothing is summed here."""

    def write(self) -> Phase:
        fn, layout = self.fn, self.layout
        n, k = self.space.columns.size, self.space.inner.size
        each = -(-layout.panels // max(1, min(16, int(n * k * _PACK_NS[-1] / _CHUNK_NS)))) * WIDTH
        end = least(fn, fn.let(f"mul i64 %end, {each}"), str(n))
        with (
            fn.loop(fn.let(f"mul i64 %begin, {each}"), end, WIDTH) as column,
            fn.loop("0", str(k), layout.depth) as inner,
        ):
            steps = least(fn, fn.let(f"sub i64 {k}, {inner.index}"), str(layout.depth))
            to = layout.at(fn, self.out, column.index, inner.index)
            pack(fn, self.module, layout.side, self.rhs.base, "0", column.index, str(n), inner.index, steps, to)
        return self.added(-(-n // each))


def packing(call: Call, module: Module, space: Space) -> Packing | None:
    """rhs packed apart, if the product goes this way then."""
    form = form_of(call, space, packed=True)
    if form is None or space.batch.size > 1:
        return None
    ahead = Ahead(call, module, space, form)
    return Packing(0 if space.swapped else 1, ahead.layout.nbytes, ahead.write)
