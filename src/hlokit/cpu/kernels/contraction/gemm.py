"""Products of blocks: packing, tiles, and the results."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.amx import release
from hlokit.cpu.kernels.contraction.amx_tile import AmxTile
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic
from hlokit.cpu.kernels.contraction.denormals import PhaseFunction, may_flush
from hlokit.cpu.kernels.contraction.elements import lanes_up_to
from hlokit.cpu.kernels.contraction.gemm_plan import Blocking, next_lines, sides_of
from hlokit.cpu.kernels.contraction.packing import (
    LoadedOperand,
    Operand,
    Panels,
    ProductSide,
    Run,
    pack_panels,
    pack_rows,
    write_corrections,
)
from hlokit.cpu.kernels.contraction.results import put
from hlokit.cpu.kernels.contraction.space import Axis, Space
from hlokit.cpu.kernels.contraction.tile import Prefetch, Tile
from hlokit.cpu.kernels.routine import Call, Packing, Phase, Routine, up
from hlokit.cpu.llvm import I1, I8, Function, Index, Module, Pointer, Value

Bounds: TypeAlias = tuple[Index, Index]
"""Indices from .. to."""
Places: TypeAlias = Mapping[str, Index]
"""By role: the number of the element at which the array's part begins."""


@dataclass(frozen=True)
class ProductPlan:
    """The plan of a product: all that is decided before anything is written.

    product   what writes it
    """

    call: Call
    space: Space
    arithmetic: Arithmetic
    blocking: Blocking
    product: Callable[[Module, Any], Product]
    is_scaled: bool = False

    @property
    def sides(self) -> tuple[ProductSide, ProductSide]:
        """lhs and rhs."""
        return sides_of(self.call, self.space, self.arithmetic, is_scaled=self.is_scaled)

    def write(self, module: Module) -> Routine:
        """Writes the functions into the module."""
        product = self.product(module, self).write()
        if not self.blocking.shares_rhs:
            return Routine((product,))
        packer = Packer(module, self)
        return Routine((packer.write(), product), packer.nbytes)

    def packing(self, module: Module) -> Packing | None:
        """rhs packed apart; None for a product that reads it where it lies, or a part of it at a time."""
        packer = Packer(module, self)
        return Packing(self.sides[1].number, packer.nbytes, packer.write) if packer.fits() else None


class Product:
    """Writes the function of a product's chunks. Subclasses say which blocks there are."""

    is_ragged = False
    computes = True
    """Whether it multiplies: denormals may be zeros then, and AMX's registers are given back."""

    def __init__(self, module: Module, plan: ProductPlan) -> None:
        self.call, self.module, self.plan = plan.call, module, plan
        self.space, self.arithmetic, self.blocking = plan.space, plan.arithmetic, plan.blocking
        self.result = self.call.results[0]
        self.phase = PhaseFunction(self.call.target, flushes=self.computes and may_flush(self.call))
        self.fn: Function = self.phase
        self.finishes: dict[int, str] = {}
        self.lhs, self.rhs = self._sides()
        self.out = self.pointer(len(self.call.operands))
        self.packed = self._packed()
        self._take_stack()

    def _packed(self) -> Pointer | None:
        """Where rhs is packed apart from the function in the making, by a loop's PackStep or in a phase before."""
        if self.blocking.shares_rhs:
            return self.pointer(len(self.call.operands) + 1)
        return self.rhs.base if self.call.packed else None

    def _sides(self) -> tuple[Operand, Operand]:
        """lhs and rhs as the function in the making reads them."""
        first, second = sorted(self.plan.sides, key=lambda side: side.number)
        operands = {side.role: self.operand(side) for side in (first, second)}
        return operands["lhs"], operands["rhs"]

    def apart(self, arguments: Mapping[str, Value], body: Callable[[Operand, Operand, dict[str, Any]], None]) -> None:
        """Calls a function of its own that does what `body` writes, of both sides and the arguments by name.

        LLVM takes much longer for one function of many loops than for several of few.
        """
        caller, parameters = self.fn, [(value.type, name) for name, value in arguments.items()]
        self.fn = fn = Function("", [("ptr", "table"), *parameters], target=self.call.target)
        fn.attributes = "noinline nounwind"
        inside = {n: (fn.pointer if isinstance(v, Pointer) else fn.index_argument)(n) for n, v in arguments.items()}
        body(*self._sides(), inside)
        fn.returns()
        self.fn = caller
        caller.call(self.module.add_by_text(fn, "pack"), caller.pointer("table"), *arguments.values())

    def operand(self, side: ProductSide) -> Operand:
        """The reader of a side."""
        if side.is_loaded:
            loader, length = self.call.loader, self.call.operands[side.number].dimensions[-1]
            assert loader is not None
            if side.free.stride(side.role) == 1:
                length = side.free.size
            return LoadedOperand(self.module, self.call.target, self.fn.pointer("table"), side, loader, length)
        return Operand(self.module, self.call.target, self.pointer(side.number), side)

    def pointer(self, number: int) -> Pointer:
        """The table's entry."""
        return self.fn.table(number)

    # -- memory

    def _take_stack(self) -> None:
        p, a, fn = self.blocking, self.arithmetic, self.fn
        units = p.depth // a.group
        self.row_bytes = p.depth * a.packed.bytes * a.parts + 64  # 64: rows start in different sets of the cache
        self.lhs_width = up(p.rows, p.lanes)
        self.is_split = self.space.inner.size > p.depth
        self.panel_head = 4 * p.width if a.name == "i8" else 0
        self.panel_bytes = units * p.width * a.unit_bytes + self.panel_head
        if not p.keeps_lhs:
            self.across_bytes = units * self.lhs_width * a.unit_bytes
            self.left_bytes = self.across_bytes if p.goes_across else p.rows * self.row_bytes
            self.lhs_panel = fn.local(I8, p.together * self.left_bytes, 64)
        if not p.keeps_rhs and self.packed is None:
            self.rhs_panels = fn.local(I8, p.block[2] // p.width * self.panel_bytes, 64)
        rows, columns = (p.block[1], p.block[2]) if self.is_split else (p.rows, p.width)
        self.sums_bytes = columns * a.total_bytes
        if not p.keeps_out:
            self.sums = fn.local(I8, rows * self.sums_bytes, 64)

    # -- the function

    def write(self) -> Phase:
        """Adds all functions to the module."""
        fn, s, b = self.fn, self.space, self.blocking.block
        counts = [-(-axis.size // size) for axis, size in zip((s.batch, s.rows, s.columns), b, strict=True)]
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as chunk:
            self._chunk(chunk.index, counts)
        makes_corrections = self.arithmetic.name == "i8"
        fn.is_cold = self.tile_work >= costs.LONG_TILE and not makes_corrections
        return replace(self.added(math.prod(counts)), groups=counts[0])

    def added(self, chunks: int) -> Phase:
        """Ends the function and adds it to the module."""
        if self.computes and self.arithmetic.is_matrix:
            release(self.fn)
        return Phase(self.phase.end(self.module, "dot"), chunks)

    def _chunk(self, chunk: Index, counts: Sequence[int]) -> None:
        """The blocks of the chunk with this number, which counts batch, rows and columns."""
        fn, s, (gs, ms, ns) = self.fn, self.space, self.blocking.block

        def bounds(number: Index, size: int, axis: Axis) -> Bounds:
            first = number * size
            return first, (first + size).least(axis.size)

        columns, rows = (fn.index(0), fn.index(s.columns.size)), (fn.index(0), fn.index(s.rows.size))
        if counts[2] > 1:
            number, chunk = chunk % counts[2], chunk // counts[2]
            columns = bounds(number, ns, s.columns)
        if counts[1] > 1:
            number = chunk % counts[1]
            chunk = chunk // counts[1] if s.batch.size > 1 else chunk
            rows = bounds(number, ms, s.rows)
        if s.batch.size == 1:
            self.batch(fn.index(0), rows, columns)
            return
        with fn.loop(*bounds(chunk, gs, s.batch)) as batch:
            self.batch(batch.index, rows, columns)

    def places(self, index: Index) -> dict[str, Index]:
        """Where the arrays of a batch index begin."""
        return {role: self.space.batch.offset(role, index) for role in ("lhs", "rhs", "out")}

    def batch(self, index: Index, rows: Bounds, columns: Bounds) -> None:
        """One chunk's part of one product of the batch."""
        self.block(self.places(index), rows, columns, (self.fn.index(0), self.fn.index(self.space.inner.size)))

    def block(self, places: Places, rows: Bounds, columns: Bounds, inner: Bounds) -> None:
        """The product over ranges of rows, columns and inner axis; `places` say where the arrays begin."""
        fn, depth, work = self.fn, self.blocking.depth, self.blocks(places, rows, columns)
        begin, end = inner
        if not self.is_split:
            yes = fn.constant(True, I1)
            work.part(begin, end, yes, yes)
            return
        last_part = end
        if begin.number != 0 or end.number != self.space.inner.size:  # once, also where there is nothing to sum
            last_part = end.greatest(begin + 1)
        with fn.loop(begin, last_part, depth) as loop:
            after = loop.index + depth
            work.part(loop.index, after.least(end), loop.index.eq(begin), after >= end)

    def blocks(self, places: Places, rows: Bounds, columns: Bounds) -> ProductBlock:
        return _Block(self, places, rows, columns)

    @property
    def tile_work(self) -> int:
        """A tile's multiplications at the speed of vectors."""
        p = self.blocking
        work = p.rows * p.width * min(p.depth, self.space.inner.size)
        return work // costs.AMX_SPEED if self.arithmetic.is_matrix else work

    # -- results

    def finish(self, columns: int) -> str:
        """The function that hands out rows of sums, `columns` of each."""
        found = self.finishes.get(columns)
        if found is None:
            found = self.finishes[columns] = _Finish(self, columns).written()
        return found


@dataclass(frozen=True)
class ProductBlock(ABC):
    """One block in the making: ranges of rows and columns."""

    product: Product
    places: Places
    rows: Bounds
    columns: Bounds

    @abstractmethod
    def part(self, begin: Index, end: Index, first: Value, last: Value) -> None:
        """Adds the products of a range of the inner axis; `last`: sums are complete then."""

    def sums_of(self, row: Index, column: Index) -> tuple[Pointer, int]:
        """Where the sums of a tile are made, and the bytes from row to row."""
        product, a = self.product, self.product.arithmetic
        if product.blocking.keeps_out:
            stride = product.space.rows.stride("out")
            assert stride is not None
            place = self.places["out"] + product.space.rows.offset("out", row) + column
            return product.out.to(a.total)[place], stride * a.total.bytes
        if not product.is_split:
            return product.sums, product.sums_bytes
        down, right = (row - self.rows[0]) * product.sums_bytes, (column - self.columns[0]) * a.total_bytes
        return product.sums + (down + right), product.sums_bytes


class _Block(ProductBlock):
    def part(self, begin: Index, end: Index, first: Value, last: Value) -> None:
        product, fn, p = self.product, self.product.fn, self.product.blocking
        count, group = end - begin, self.product.arithmetic.group
        run = Run(begin, count, (count + (group - 1)) // group, product.is_ragged)
        whole, edge = self._cut(self.columns, p.width, product.space.columns)
        if not p.keeps_rhs and product.packed is None:
            self._pack_columns(self.columns[0], whole, None, run)
            if edge:
                with fn.when(whole < self.columns[1]):
                    self._pack_columns(whole, whole + 1, fn.index(edge), run)
        if product.is_ragged:
            with fn.loop(*self.rows, p.rows) as row:
                self._rows(row.index, p.rows, (self.rows[1] - row.index).least(p.rows), run, first, last)
            return
        down, lower = self._cut(self.rows, p.rows, product.space.rows)
        whole_rows = fn.index(p.rows)
        with fn.loop(self.rows[0], down, p.together * p.rows) as rows:
            stop = (rows.index + p.together * p.rows).least(down) if p.together > 1 else None
            self._rows(rows.index, p.rows, whole_rows, run, first, last, stop)
        if lower:
            with fn.when(down < self.rows[1]):
                self._rows(down, lower, fn.index(lower), run, first, last)

    def _cut(self, bounds: Bounds, unit: int, axis: Axis) -> tuple[Index, int]:
        """Where the whole units of a range end, and how many indices are left at the end of the axis."""
        left = axis.size % unit
        if left == 0:
            return bounds[1], 0
        size = bounds[1] - bounds[0]
        return bounds[0] + (size - size % unit), left

    def panel_of(self, column: Index) -> Pointer:
        """Where the panel that begins with a column is packed."""
        product, width = self.product, self.product.blocking.width
        if product.blocking.block[2] == width:
            return product.rhs_panels
        return product.rhs_panels + (column - self.columns[0]) // width * product.panel_bytes

    def _pack_columns(self, begin: Index, end: Index, valid: Index | None, run: Run) -> None:
        """Packs the panels of a range of columns."""
        product, p, fn = self.product, self.product.blocking, self.product.fn
        body = self.panel_of(begin) + product.panel_head
        names = {"panel": body, "base": self.places["rhs"], "first": begin, "last": end, **run.arguments}

        def pack(_: Operand, rhs: Operand, inside: dict[str, Any]) -> None:
            panels = Panels(inside["panel"], product.panel_bytes, inside["first"], inside["last"], p.width, p.lanes)
            some = None if valid is None else rhs.fn.index(valid.number or 0)
            pack_panels(rhs, panels, inside["base"], some, run.inside(rhs.fn))

        product.apart(names, pack)
        if product.panel_head:
            with fn.loop(begin, end, p.width) as column:
                write_corrections(self.panel_of(column.index), p.vectors, p.lanes, run)

    def _rows(
        self, row: Index, size: int, count: Index, run: Run, first: Value, last: Value, stop: Index | None = None
    ) -> None:
        """One row of tiles, of `size` rows of which `count` exist; or whole ones up to `stop`, which take a panel of
        rhs in turn."""
        product, fn, p = self.product, self.product.fn, self.product.blocking
        left, row_step, unit_step = self._left(row, size, count, run, stop)
        kind = AmxTile if p.arithmetic.is_matrix else Tile
        is_packed = not p.keeps_rhs
        tile = kind(p.arithmetic, p.lanes, size, p.vectors, row_step, unit_step, p.width, is_packed, p.prefetched)
        whole, edge = self._cut(self.columns, p.width, product.space.columns)

        def down(tile: Tile, column: Index, columns: int) -> None:
            if stop is None:
                _Row(self, row, count, left(row), run, first, last).tile(tile, column, columns)
                return
            with fn.loop(row, stop, size) as each:
                _Row(self, each.index, count, left(each.index), run, first, last).tile(tile, column, columns)

        tile.enter(fn, product.module)
        with fn.loop(self.columns[0], whole, p.width) as column:
            down(tile, column.index, p.width)
        if not edge:
            return
        # a panel of i8 has its head before all its vectors
        vectors = p.vectors if product.panel_head else -(-edge // p.lanes)
        is_exact = p.keeps_rhs or p.keeps_out
        tile = replace(tile, vectors=vectors, columns=edge if is_exact else vectors * p.lanes)
        with fn.when(whole < self.columns[1]):
            tile.enter(fn, product.module)
            down(tile, whole, edge)

    def _left(
        self, row: Index, size: int, count: Index, run: Run, stop: Index | None
    ) -> tuple[Callable[[Index], Pointer], int, int]:
        """lhs for rows of tiles: the address by the first row of each, bytes from row to row and from unit to unit."""
        product, p, a = self.product, self.product.blocking, self.product.arithmetic
        lhs, base = product.lhs, self.places["lhs"]
        if p.keeps_lhs:
            row_step, step = lhs.side.free.stride("lhs"), lhs.side.inner.stride("lhs")
            assert row_step is not None and step is not None
            bytes = lhs.side.element_bytes
            return lambda first: lhs.at(base, first, run.begin), row_step * bytes, step * a.group * bytes

        def panel(first: Index) -> Pointer:
            return product.lhs_panel if stop is None else product.lhs_panel + (first - row) // size * product.left_bytes

        if p.goes_across:
            self._pack_across(row, row + 1 if stop is None else stop, count, run)
            return panel, a.unit_bytes, product.lhs_width * a.unit_bytes
        last = row + count if stop is None else stop
        names = {"panel": product.lhs_panel, "base": base, "first": row, "last": last, **run.arguments}

        def pack(lhs: Operand, _: Operand, inside: dict[str, Any]) -> None:
            valid = inside["last"] - inside["first"]
            rows, some = (lhs.fn.index(size), valid) if product.is_ragged else (valid, None)
            place = (inside["panel"], product.row_bytes, inside["base"], inside["first"])
            pack_rows(lhs, rows, some, *place, run.inside(lhs.fn))

        product.apart(names, pack)
        return panel, product.row_bytes, a.unit_bytes

    def _pack_across(self, begin: Index, end: Index, valid: Index, run: Run) -> None:
        """Packs lhs for the rows of tiles that begin in a range, each of `valid` rows."""
        product, p = self.product, self.product.blocking
        names = {"panel": product.lhs_panel, "base": self.places["lhs"], "first": begin, "last": end, "valid": valid}

        def pack(lhs: Operand, _: Operand, inside: dict[str, Any]) -> None:
            bounds = inside["first"], inside["last"]
            panels = Panels(inside["panel"], product.across_bytes, *bounds, product.lhs_width, p.lanes, p.rows)
            pack_panels(lhs, panels, inside["base"], inside["valid"], run.inside(lhs.fn))

        product.apart({**names, **run.arguments}, pack)


@dataclass(frozen=True)
class _Row:
    """A row of tiles."""

    block: _Block
    row: Index
    count: Index
    lhs: Pointer
    run: Run
    first: Value
    last: Value

    def tile(self, tile: Tile, column: Index, columns: int) -> None:
        """One tile: `columns` of its columns exist."""
        product = self.block.product
        rhs, row_bytes = self._right(column)
        out, out_bytes = self.block.sums_of(self.row, column)
        strides, ahead = (row_bytes, out_bytes), self._ahead(column)
        tile.call(product.module, (self.lhs, rhs, out), self.run.units, strides, self.first, ahead)
        if not product.blocking.keeps_out:
            self._hand_out(out, column, columns)

    def _ahead(self, column: Index) -> Prefetch | None:
        """The memory that the tile at a column prefetches."""
        ways = {"rows": self._next_rows, "columns": self._next_columns, "parts": self._next_part}
        way = ways.get(self.block.product.blocking.ahead)
        return way(column) if way is not None else None

    def _next_rows(self, column: Index) -> Prefetch:
        """Rows of lhs as many rows of tiles ahead as are packed at once; behind the chunk's last its next part."""
        block, p, lhs = self.block, self.block.product.blocking, self.block.product.lhs
        row, begin = self.row + p.together * p.rows, self.run.begin
        if block.product.is_split:
            is_last = row >= block.rows[1]
            row, begin = is_last.select(block.rows[0], row), is_last.select(begin + p.depth, begin)
        bytes, stride = lhs.side.element_bytes, lhs.side.free.stride("lhs")
        assert stride is not None
        run = costs.PREFETCHED_STEPS * bytes * p.arithmetic.group
        place = lhs.at(block.places["lhs"], row, begin)
        return self._if(column + p.width >= block.columns[1], place, self.row.fn.index(stride * bytes), run)

    def _if(self, holds: Value, place: Pointer, row: Index, run: Index | int) -> Prefetch:
        """The prefetch where an i1 holds; elsewhere again and again of what the tile has just read."""
        return Prefetch(holds.select(place, self.lhs), holds.select(row, 0), holds.select(self.row.fn.index(run), 0))

    def _next_columns(self, column: Index) -> Prefetch:
        """A panel of rhs, of which each row of tiles takes some lines; after the chunk's last the next part's first."""
        block, p, rhs = self.block, self.block.product.blocking, self.block.product.rhs
        line = (self.row - block.rows[0]) // p.rows * p.prefetched
        column, begin = column + p.width, self.run.begin
        if block.product.is_split:
            is_last = column >= block.columns[1]
            column, begin = is_last.select(block.columns[0], column), is_last.select(begin + p.depth, begin)
        place = rhs.at(block.places["rhs"], column, begin) + line * LINE_BYTES
        row = self.row.fn.index(rhs.side.step_bytes)
        is_left = line < -(-p.width * rhs.side.element_bytes // LINE_BYTES)
        return self._if(is_left, place, row, row * costs.PREFETCHED_STEPS)

    def _next_part(self, column: Index) -> Prefetch:
        """Lines of the next part of the inner axis: each tile takes some of lhs's or of rhs's, of all steps."""
        block, product, p = self.block, self.block.product, self.block.product.blocking
        lhs, rhs = product.lhs, product.rhs
        panels = -(-p.block[2] // p.width)
        number = (self.row - block.rows[0]) // p.rows * panels + (column - block.columns[0]) // p.width
        line, begin = number * p.prefetched, self.run.begin + p.depth
        left, right = (up(next_lines(p, product.space, side), p.prefetched) for side in (lhs.side, rhs.side))
        is_left, bytes = line < left, LINE_BYTES
        of_left = lhs.at(block.places["lhs"], block.rows[0], begin) + line * bytes
        of_right = rhs.at(block.places["rhs"], block.columns[0], begin) + (line - left) * bytes
        row = is_left.select(self.row.fn.index(lhs.side.step_bytes), rhs.side.step_bytes)
        return self._if(line < left + right, is_left.select(of_left, of_right), row, row * costs.PREFETCHED_STEPS)

    def _right(self, column: Index) -> tuple[Pointer, int]:
        """rhs from a column on: address, bytes from row to row."""
        product, p = self.block.product, self.block.product.blocking
        packed_row = p.width * p.arithmetic.unit_bytes
        if product.packed is not None:
            return packed_panel(product, product.packed, column, self.run.begin), packed_row
        if not p.keeps_rhs:
            return self.block.panel_of(column), packed_row
        rhs = product.rhs
        return rhs.at(self.block.places["rhs"], column, self.run.begin), rhs.side.step_bytes

    def _hand_out(self, sums: Pointer, column: Index, columns: int) -> None:
        """Calls the product's `finish`, where sums are complete."""
        product, fn = self.block.product, self.block.product.fn
        finish = product.finish(columns)

        def call() -> None:
            place = self.block.places["out"] + column
            fn.call(finish, fn.pointer("table"), sums, self.row, self.count, place)

        if self.last.number is not None:
            call()
            return
        with fn.when(self.last):
            call()


# -- rhs packed apart


class Packer(Product):
    """Writes the function that packs all of rhs: panels one after the other, each with the whole inner axis."""

    computes = False

    def _packed(self) -> Pointer:
        """Where it goes: in the place of the result, or to scratch memory."""
        return self.pointer(len(self.call.operands) + int(self.blocking.shares_rhs))

    def _take_stack(self) -> None:
        """Nothing is summed here."""

    def fits(self) -> bool:
        """Whether the product packs rhs, and panels do for it."""
        return not self.blocking.keeps_rhs and self.space.batch.size == 1 and self.arithmetic.group == 1

    @property
    def count(self) -> int:
        """Panels."""
        return -(-self.space.columns.size // self.blocking.width)

    @property
    def nbytes(self) -> int:
        return self.count * packed_bytes(self)

    def write(self) -> Phase:
        fn, p, n = self.fn, self.blocking, self.space.columns.size
        inner, zero = fn.index(self.space.inner.size), fn.index(0)
        each = -(-self.count // max(1, min(costs.CHUNKS, self.nbytes // costs.STREAMED_BYTES)))
        whole, edge = n // p.width * p.width, n % p.width
        run = Run(zero, inner, inner)
        low = fn.index_argument("begin") * (each * p.width)
        high = (fn.index_argument("end") * (each * p.width)).least(self.count * p.width)

        def pack(first: Index, last: Index, valid: Index | None) -> None:
            assert self.packed is not None
            address = packed_panel(self, self.packed, first, zero)
            pack_panels(self.rhs, Panels(address, packed_bytes(self), first, last, p.width, p.lanes), zero, valid, run)

        pack(low, high.least(whole), None)
        if edge:
            with fn.when(high > whole):
                pack(fn.index(whole), fn.index(whole + p.width), fn.index(edge))
        return self.added(-(-self.count // each))


def packed_bytes(product: Product) -> int:
    """Bytes of a panel with the whole inner axis."""
    return product.space.inner.size * product.blocking.width * product.arithmetic.unit_bytes


def packed_panel(product: Product, base: Pointer, column: Index, begin: Index) -> Pointer:
    """Where a panel of rhs packed apart lies, from a step of the inner axis on."""
    width = product.blocking.width
    panel = base + column // width * packed_bytes(product)
    return panel + begin * (width * product.arithmetic.unit_bytes)


class _Finish:
    """Writes void f(ptr table, ptr sums, i64 row, i64 count, i64 place): rows of sums to the result.

    `place` is that of row 0. Each has `columns` columns, in vectors; of complex numbers their parts in turn.
    """

    def __init__(self, product: Product, columns: int) -> None:
        parameters = [("ptr", "table"), ("ptr", "sums"), ("i64", "row"), ("i64", "count"), ("i64", "place")]
        self.fn = Function("", parameters, attributes="nounwind", target=product.call.target)
        self.product, self.columns = product, columns
        self.arithmetic, self.lanes = product.arithmetic, product.blocking.lanes

    def written(self) -> str:
        """Adds the function; gives its name."""
        fn, product, result = self.fn, self.product, self.product.result
        last = result.dimensions[-1] if result.dimensions else 1
        is_plain = product.call.store is None
        whole = is_plain or (self.columns > 1 and (last == product.space.columns.size or last % self.lanes == 0))
        with fn.loop(0, fn.index_argument("count")) as row:
            offset = product.space.rows.offset("out", fn.index_argument("row") + row.index)
            place = fn.index_argument("place") + offset
            sums = fn.pointer("sums", self.arithmetic.total) + row.index * product.sums_bytes
            if whole:
                self._by_vectors(sums, place)
            else:
                self._by_elements(sums, place)
        fn.returns()
        return product.module.add_by_text(fn, "dot_results")

    def _by_vectors(self, sums: Pointer, place: Index) -> None:
        fn, call, lanes, parts = self.fn, self.product.call, self.lanes, self.arithmetic.parts
        for first in range(0, self.columns, lanes):
            found = [sums[first * parts + part * lanes].load(lanes) for part in range(parts)]
            count = self.columns - first
            if count == 1:  # LLVM 22 makes a truncating store under a mask of one known lane as wide as before
                put(fn, call, place + first, [part.lane(0) for part in found], None)
            else:
                put(fn, call, place + first, found, lanes_up_to(fn, count, lanes))

    def _by_elements(self, sums: Pointer, place: Index) -> None:
        lanes, parts = self.lanes, self.arithmetic.parts
        with self.fn.loop(0, self.columns) as column:
            at = column.index // lanes * (lanes * parts) + column.index % lanes
            found = [sums[at + part * lanes].load() for part in range(parts)]
            put(self.fn, self.product.call, place + column.index, found)
