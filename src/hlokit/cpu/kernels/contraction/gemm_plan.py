"""The division of a product of blocks: its tile, its chunks, and the operands that are read in place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx_tile import MOST_ROWS, MOST_VECTORS
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, has_32_registers, register_tile
from hlokit.cpu.kernels.contraction.packing import ProductSide
from hlokit.cpu.kernels.contraction.space import Axis, Space
from hlokit.cpu.kernels.routine import Call, up
from hlokit.cpu.llvm import scalar_type


@dataclass(frozen=True)
class Blocking:
    """The cut of a product.

    rows, vectors             the tile
    depth                     steps of the inner axis at a time
    block                     (batch, rows, columns) of a chunk
    keeps_lhs, keeps_rhs      the operand is read where it is; keeps_out: sums are made in the result
    goes_across               lhs is packed unit by unit, each with all rows of a tile; else row by row
    together                  rows of tiles whose lhs is packed at once, and which take a panel of rhs in turn
    shares_rhs                rhs is packed in a phase before, for all chunks
    ahead                     what tiles prefetch: "rows" of lhs for the next row of tiles, "columns" of rhs for the
                              next panel, or "parts" of both for the next steps of the inner axis; "": nothing
    prefetched                lines that each step of a tile prefetches
    """

    arithmetic: Arithmetic
    lanes: int
    rows: int
    vectors: int
    depth: int
    block: tuple[int, int, int]
    keeps_lhs: bool
    keeps_rhs: bool
    keeps_out: bool
    goes_across: bool = False
    together: int = 1
    shares_rhs: bool = False
    ahead: Literal["", "rows", "columns", "parts"] = ""
    prefetched: int = 0

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.lanes * self.vectors


def sides_of(
    call: Call, space: Space, arithmetic: Arithmetic, *, is_scaled: bool = False
) -> tuple[ProductSide, ProductSide]:
    """lhs and rhs of the space."""
    left, right = (1, 0) if space.swapped else (0, 1)

    def side(number: int, role: str, free: Axis) -> ProductSide:
        is_loaded = call.loader is not None and call.loader.number == number
        dtype = call.operands[number].dtype
        return ProductSide(number, dtype, role, free, space.inner, arithmetic, is_scaled, is_loaded)

    return side(left, "lhs", space.rows), side(right, "rhs", space.columns)


def blocking(
    call: Call,
    space: Space,
    arithmetic: Arithmetic,
    sides: tuple[ProductSide, ProductSide],
    *,
    is_ragged: bool = False,
    may_share: bool = False,
) -> Blocking:
    """Cuts by shapes and machine alone. `may_share`: whether a phase may pack rhs for all chunks."""
    lhs, rhs = sides
    lanes = arithmetic.lanes(call.target)
    is_matrix = arithmetic.is_matrix
    most_rows, most_vectors = (MOST_ROWS, MOST_VECTORS) if is_matrix else register_tile(arithmetic, call.target)
    m, n, k = space.rows.size, space.columns.size, space.inner.size
    vectors = min(most_vectors, -(-n // lanes))
    blocks = max(1, -(-k * arithmetic.packed.bytes * arithmetic.parts // costs.PANEL_COLUMN_BYTES))
    depth = up(-(-k // blocks), 64)
    keeps_out = not is_ragged and may_keep_out(call, space, arithmetic)
    has_sums = depth < k and not keeps_out
    tallest = costs.SUMS_BYTES // (costs.MOST_COLUMNS * arithmetic.total_bytes) if has_sums else costs.MOST_ROWS
    keeps_rhs = (not is_ragged and _is_read_once(m, rhs)) or _keeps_rhs(rhs, m, n, k, most_rows, call.target.cpu)
    share = costs.KEPT_SHARE if keeps_rhs else 1
    batch, block_rows, columns = _chunk(space, vectors * lanes, arithmetic, depth, tallest, share)
    batch = 1 if call.by_batch else batch
    even = -(-block_rows // -(-block_rows // most_rows))
    rows = min(m, most_rows) if is_ragged or is_matrix else even
    keeps_lhs = not is_ragged and _keeps_lhs(lhs, rows)
    goes_across = lhs.inner.stride("lhs") != 1 and lhs.free.stride("lhs") == 1 and not is_matrix
    plan = Blocking(
        arithmetic,
        lanes,
        rows,
        vectors,
        depth,
        (batch, up(block_rows, rows), columns),
        keeps_lhs=keeps_lhs,
        keeps_rhs=keeps_rhs,
        keeps_out=keeps_out,
        goes_across=goes_across,
        together=costs.ACROSS_TOGETHER if goes_across and not keeps_lhs and not is_ragged else 1,
    )
    if may_share:
        plan = _sharing(plan, call, space, lhs, most_rows)
    return plan if is_ragged else _prefetching(plan, call, space, sides)


def _prefetching(plan: Blocking, call: Call, space: Space, sides: tuple[ProductSide, ProductSide]) -> Blocking:
    """The cut with what its tiles prefetch: what is read next, which the machine's own prefetching does not see."""
    m, n, k = space.rows.size, space.columns.size, space.inner.size
    lhs, rhs = sides
    sizes = [axis * k * side.element_bytes for axis, side in zip((m, n), sides, strict=True)]
    if plan.arithmetic.is_matrix or plan.shares_rhs or k < costs.PREFETCHED_STEPS or lhs.is_loaded or rhs.is_loaded:
        return plan
    tiles = min(m, plan.block[1]) // plan.rows
    are_near = plan.block[1] * plan.depth * plan.arithmetic.unit_bytes <= costs.ROWS_BYTES
    is_wide = plan.keeps_rhs and sizes[1] >= max(sizes[0], costs.PREFETCHED_BYTES)
    if is_wide and are_near and tiles > 1 and not plan.goes_across:
        lines = -(-plan.width * rhs.element_bytes // LINE_BYTES)
        return replace(plan, ahead="columns", prefetched=-(-lines // tiles), together=tiles)
    if lhs.inner.stride("lhs") == 1 and lhs.free.stride("lhs") is not None:
        if sizes[0] < costs.PREFETCHED_BYTES:
            return plan
        bytes = costs.PREFETCHED_STEPS * lhs.element_bytes * plan.arithmetic.group
        return replace(plan, ahead="rows", prefetched=-(-bytes // LINE_BYTES))
    has_rows = all(side.free.stride(side.role) == 1 and side.inner.stride(side.role) is not None for side in sides)
    if not has_rows or plan.depth >= k or call.packed or sum(sizes) < costs.PREFETCHED_BYTES:
        return plan
    calls = -(-min(m, plan.block[1]) // plan.rows) * -(-min(n, plan.block[2]) // plan.width)
    lines = sum(next_lines(plan, space, side) for side in sides)
    return replace(plan, ahead="parts", prefetched=-(-lines // calls))


def next_lines(plan: Blocking, space: Space, side: ProductSide) -> int:
    """Lines that a chunk reads of an operand for each step of the inner axis."""
    size = min(plan.block[1], space.rows.size) if side.role == "lhs" else min(plan.block[2], space.columns.size)
    return -(-size * side.element_bytes // LINE_BYTES)


def _sharing(plan: Blocking, call: Call, space: Space, lhs: ProductSide, most_rows: int) -> Blocking:
    """The cut with rhs packed once for all chunks, which are wide then, if that saves enough packing: of real matrices
    in rows that fall into few sets of the cache, so that lhs is packed, too."""
    g, m, n, k = (axis.size for axis in (space.batch, space.rows, space.columns, space.inner))
    is_real = lhs.is_factor() and not plan.arithmetic.is_complex and plan.arithmetic.group == 1
    has_rows = lhs.inner.stride("lhs") == 1 and not plan.keeps_lhs and not plan.keeps_rhs
    if not is_real or not has_rows or not has_32_registers(call.target) or g > 1:
        return plan
    if n * k * plan.arithmetic.packed.bytes > costs.SHARED_BYTES:
        return plan
    if plan.arithmetic.is_matrix or call.packed or call.loader is not None or call.by_batch:
        return plan
    work = 2 * m * n * k
    chunks = _wanted(work)
    if m < chunks * costs.SHARED_TILES * most_rows:
        return plan
    each = -(-m // chunks)
    tiles = -(-each // most_rows)
    _, rows, columns = plan.block
    saved = m * k * (-(-n // columns) - 1) + n * k * (-(-m // rows) - costs.SHARED_PACKING)
    if costs.PACKED_ELEMENT * saved < costs.SHARED_GAIN * work:
        return plan
    tall = -(-each // tiles)
    groups = -(-tiles * tall * plan.depth * plan.arithmetic.unit_bytes // costs.TOGETHER_BYTES)
    wide = up(n, plan.width)
    if not plan.keeps_out and plan.depth < k:
        most = costs.SUMS_BYTES // (tiles * tall * plan.arithmetic.total_bytes)
        wide = max(plan.width, min(wide, most // plan.width * plan.width))
    block, together = (1, tiles * tall, wide), -(-tiles // groups)
    return replace(plan, rows=tall, block=block, goes_across=True, together=together, shares_rhs=True)


def _wanted(work: int, speed: int = 1) -> int:
    """Chunks of a product of so many operations, at a multiple of the speed of vectors."""
    most = costs.CHUNKS // 2 if work < costs.LARGE_WORK else costs.CHUNKS
    return max(1, min(work // (costs.CHUNK_WORK * speed), most))


def _chunk(
    space: Space, width: int, arithmetic: Arithmetic, depth: int, tallest: int, share: float
) -> tuple[int, int, int]:
    """(batch, rows, columns) of a chunk: few enough columns for L2, and as little packing as can be.

    `share`: what rhs costs, as a share of packing it.
    """
    g, m, n, k = (axis.size for axis in (space.batch, space.rows, space.columns, space.inner))
    work = 2 * g * m * n * max(k, 1)
    wanted = _wanted(work, costs.AMX_SPEED if arithmetic.is_matrix else 1)
    column = depth * arithmetic.unit_bytes // arithmetic.group
    most = max(width, min(costs.MOST_COLUMNS, costs.BLOCK_BYTES // max(1, column)))
    if g >= wanted:
        return -(-g // wanted), -(-m // -(-m // tallest)), min(up(n, width), most // width * width)
    each = -(-wanted // g)
    rows, columns = _cut(m, n, width, most // width * width, each, tallest, share)
    # short sides: what fewer chunks pack less often outweighs that fewer threads share them
    while each > 2 and work < 8 * costs.CHUNK_WORK * g * each and _is_packing(arithmetic, m, n, rows, columns):
        each = max(2, each // 2)
        rows, columns = _cut(m, n, width, most // width * width, each, tallest, share)
    return 1, rows, columns


def _is_packing(arithmetic: Arithmetic, m: int, n: int, rows: int, columns: int) -> bool:
    """Whether packing takes a good part of the time of chunks of this size."""
    return not arithmetic.is_matrix and min(m, n) > costs.LOW_ROWS and 1 / rows + 1 / columns > costs.PACKING_SHARE


def _cut(m: int, n: int, width: int, most: int, each: int, tallest: int, share: float) -> tuple[int, int]:
    """Rows and columns of a chunk, of which `each` or more are wanted."""
    best = (math.inf, m, n)
    for across in range(-(-n // most), -(-n // width) + 1):
        down = min(max(-(-each // across), -(-m // tallest)), m)
        rows, columns = -(-m // down), up(-(-n // across), width)
        idle = -across * down % each / each  # the last round of chunks has fewer
        best = min(best, (share / rows + 1 / columns + 0.01 * idle, rows, columns))
        if across >= each:
            break
    return best[1], best[2]


def _is_read_once(m: int, rhs: ProductSide) -> bool:
    """Few rows: rhs is read once, in rows as they lie in memory."""
    has_rows = rhs.free.stride("rhs") == 1 and rhs.inner.stride("rhs") is not None
    is_plain = rhs.is_factor() and rhs.arithmetic.group == 1 and not rhs.arithmetic.is_complex
    return m <= costs.FEW_ROWS and has_rows and is_plain


def _keeps_lhs(lhs: ProductSide, rows: int) -> bool:
    row, step = lhs.free.stride("lhs"), lhs.inner.stride("lhs")
    if row is None or step is None or not lhs.is_factor():
        return False
    if lhs.arithmetic.group > 1 and (step != 1 or lhs.inner.size % lhs.arithmetic.group):
        return False
    if rows <= 4 or lhs.inner.size <= 16:
        return True
    return max(row, step) * lhs.element_bytes % 2048 != 0  # else rows meet in few sets of the cache


def _keeps_rhs(rhs: ProductSide, m: int, n: int, k: int, rows: int, cpu: str) -> bool:
    column, step = rhs.free.stride("rhs"), rhs.inner.stride("rhs")
    if step is None or not rhs.is_factor() or rhs.arithmetic.group > 1 or rhs.arithmetic.is_complex:
        return False
    if not (column == 1 or n == 1):
        return False
    if m <= rows and step * rhs.element_bytes % costs.PAGE_BYTES != 0:
        return True
    row, (longest, tiles) = step * rhs.element_bytes, costs.KEPT_ROWS_OF.get(cpu, costs.KEPT_ROWS)
    if k * row <= 1 << 15:
        return True
    return step == n and row <= longest and row % costs.PAGE_BYTES != 0 and m <= tiles * rows


def may_keep_out(call: Call, space: Space, arithmetic: Arithmetic) -> bool:
    """Whether sums can be made in the result itself."""
    dtype = call.results[0].dtype
    if call.store is not None or arithmetic.is_complex or dtype.bits < 8 or dtype.kind == "pred":
        return False
    return scalar_type(dtype) == arithmetic.total.scalar and space.rows.stride("out") is not None
