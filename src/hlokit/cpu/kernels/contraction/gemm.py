"""Products of blocks: pack, run tiles, hand out the results."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.kernels.contraction.elements import constant_mask, load, pointer, rounded, size_of, write, write_complex
from hlokit.cpu.kernels.contraction.gemm_plan import CHUNKS, MATRIX_SPEED, Plan, plan, up
from hlokit.cpu.kernels.contraction.matrix_registers import release
from hlokit.cpu.kernels.contraction.matrix_tile import MatrixTile
from hlokit.cpu.kernels.contraction.packing import Operand, Panels, Run, pack_panels, pack_rows, write_corrections
from hlokit.cpu.kernels.contraction.space import Axis, Space, added, least, unravelled
from hlokit.cpu.kernels.contraction.tile import Arithmetic, Tile
from hlokit.cpu.kernels.routine import PHASE, Call, Phase
from hlokit.cpu.llvm import Function, Module, scalar_type, vector

_TOGETHER = 4
"""Rows of tiles whose lhs is packed at once where memory has its rows across: lines hold several tiles' elements."""
_PACKED_CHUNK = 1 << 19
"""Bytes that are worth a chunk when all of rhs is packed."""
_LONG_TILE = 1 << 16
"""Multiplications of a tile from which the loops round it may be slow: 3000 cycles."""


class Product:
    """Writes the function of a product's chunks. Subclasses say which blocks there are."""

    is_ragged = False

    def __init__(self, call: Call, module: Module, space: Space, arithmetic: Arithmetic) -> None:
        self.call, self.module, self.space, self.arithmetic = call, module, space, arithmetic
        self.result = call.results[0]
        self.fn = Function("NAME", PHASE)
        self.finishes: dict[int, Function] = {}
        self.lhs, self.rhs = self._sides()
        self.out = self.pointer(len(call.operands))
        self.plan = self.planned()
        self._take_stack()

    def _sides(self) -> tuple[Operand, Operand]:
        """lhs and rhs as the function in the making reads them."""
        first, second = self.operands()
        lhs, rhs = (second, first) if self.space.swapped else (first, second)
        lhs.role, lhs.free = "lhs", self.space.rows
        rhs.role, rhs.free = "rhs", self.space.columns
        return lhs, rhs

    def apart(self, arguments: dict[str, str], body: Callable[[Operand, Operand], None]) -> None:
        """Calls a function of its own with i64 arguments and the address of what is packed, all by name.

        LLVM takes much longer for one function of many loops than for several of few.
        """
        kinds = {name: "ptr" if name == "panel" else "i64" for name in arguments}
        caller, self.fn = self.fn, Function("NAME", [("ptr", "table"), *((kinds[n], n) for n in arguments)])
        self.fn.attributes = "noinline nounwind"
        body(*self._sides())
        self.fn.do("ret void")
        text, self.fn = self.fn.text(), caller
        name = "pack_" + hashlib.sha256(text.encode()).hexdigest()[:12]
        self.module.add_text(name, text.replace("@NAME", f"@{name}"))
        shown = ", ".join(f"{kinds[n]} {value}" for n, value in arguments.items())
        self.fn.do(f"call void @{name}(ptr %table, {shown})")

    def planned(self) -> Plan:
        return plan(self.call, self.space, self.arithmetic, self.lhs, self.rhs, is_ragged=self.is_ragged)

    def operands(self) -> tuple[Operand, Operand]:
        """Those of the op, in its order."""
        return self.operand(0), self.operand(1)

    def operand(self, number: int) -> Operand:
        dtype, s = self.call.operands[number].dtype, self.space
        return Operand(self.fn, self.module, dtype, self.pointer(number), "lhs", s.rows, s.inner, self.arithmetic)

    def pointer(self, number: int) -> str:
        """The table's entry."""
        address = self.fn.let(f"getelementptr ptr, ptr %table, i64 {number}", "p")
        return self.fn.let(f"load ptr, ptr {address}", "p")

    # -- memory

    def _take_stack(self) -> None:
        p, a, fn = self.plan, self.arithmetic, self.fn
        units = p.depth // a.group
        self.row_bytes = p.depth * size_of(a.packed) * a.parts + 64  # 64: rows start in different sets of the cache
        self.lhs_width = up(p.rows, p.lanes)
        self.is_split = self.space.inner.size > p.depth
        has_columns = self.lhs.inner.stride("lhs") != 1 and self.space.rows.stride("lhs") == 1
        self.lhs_goes_across = has_columns and not a.is_matrix
        self.panel_head = 4 * p.width if a.name == "i8" else 0
        self.panel_bytes = units * p.width * a.unit_bytes + self.panel_head
        if not p.keeps_lhs:
            self.across_bytes = units * self.lhs_width * a.unit_bytes
            own = _TOGETHER * self.across_bytes if self.lhs_goes_across else p.rows * self.row_bytes
            self.lhs_panel = fn.alloca("i8", own)
        if not p.keeps_rhs and not self.call.packed:
            self.rhs_panels = fn.alloca("i8", p.block[2] // p.width * self.panel_bytes)
        rows, columns = (p.block[1], p.block[2]) if self.is_split else (p.rows, p.width)
        self.sums_bytes = columns * a.total_bytes
        if not p.keeps_out:
            self.sums = fn.alloca("i8", rows * self.sums_bytes)

    # -- the function

    def write(self) -> Phase:
        """Adds all functions to the module. Their names come from their text: equal products are one."""
        s, b = self.space, self.plan.block
        counts = [-(-axis.size // size) for axis, size in zip((s.batch, s.rows, s.columns), b, strict=True)]
        with self.fn.loop("%begin", "%end") as chunk:
            self._chunk(chunk.index, counts)
        makes_corrections = self.arithmetic.name == "i8"
        self.fn.is_cold = self.tile_work >= _LONG_TILE and not makes_corrections
        return replace(self.added(math.prod(counts)), groups=counts[0])

    def added(self, chunks: int) -> Phase:
        if self.arithmetic.is_matrix:
            release(self.fn)
        self.fn.do("ret void")
        functions = [*self.finishes.values(), self.fn]
        for function in functions:
            function.attributes = "nounwind"
        texts = [function.text() for function in functions]
        name = "dot_" + hashlib.sha256("\n".join(texts).encode()).hexdigest()[:12]
        for function, text in zip(functions, texts, strict=True):
            self.module.add_text(function.name.replace("NAME", name), text.replace("@NAME", f"@{name}"))
        return Phase(name, chunks)

    def _chunk(self, chunk: str, counts: Sequence[int]) -> None:
        fn, s, (gs, ms, ns) = self.fn, self.space, self.plan.block
        column, row = "0", "0"
        if counts[2] > 1:
            column = fn.let(f"mul i64 {fn.let(f'urem i64 {chunk}, {counts[2]}')}, {ns}")
            chunk = fn.let(f"udiv i64 {chunk}, {counts[2]}")
        if counts[1] > 1:
            row = fn.let(f"mul i64 {fn.let(f'urem i64 {chunk}, {counts[1]}')}, {ms}")
            if s.batch.size > 1:
                chunk = fn.let(f"udiv i64 {chunk}, {counts[1]}")
        row_end = least(fn, added(fn, row, str(ms)), str(s.rows.size)) if counts[1] > 1 else str(s.rows.size)
        column_end = (
            least(fn, added(fn, column, str(ns)), str(s.columns.size)) if counts[2] > 1 else str(s.columns.size)
        )
        if s.batch.size == 1:
            self.batch("0", (row, row_end), (column, column_end))
            return
        first = chunk if gs == 1 else fn.let(f"mul i64 {chunk}, {gs}")
        last = least(fn, added(fn, first, str(gs)), str(s.batch.size))
        with fn.loop(first, last) as batch:
            self.batch(batch.index, (row, row_end), (column, column_end))

    def batch(self, index: str, rows: tuple[str, str], columns: tuple[str, str]) -> None:
        """One chunk's part of one product of the batch."""
        places = {role: self.space.batch.offset(self.fn, role, index) for role in ("lhs", "rhs", "out")}
        self.block(places, rows, columns, ("0", str(self.space.inner.size)))

    def block(
        self, places: dict[str, str], rows: tuple[str, str], columns: tuple[str, str], inner: tuple[str, str]
    ) -> None:
        """The product over ranges of rows, columns and inner axis; `places` say where the arrays begin."""
        fn, depth = self.fn, self.plan.depth
        work = self.blocks(places, rows, columns)
        if not self.is_split:
            work.part(inner[0], inner[1], "true", "true")
            return
        end = inner[1]
        if inner != ("0", str(self.space.inner.size)) or end == "0":  # once, also where there is nothing to sum
            end = fn.let(f"call i64 @llvm.smax.i64(i64 {end}, i64 {added(fn, inner[0], '1')})")
        with fn.loop(inner[0], end, depth) as loop:
            after = added(fn, loop.index, str(depth))
            first = fn.let(f"icmp eq i64 {loop.index}, {inner[0]}")
            last = fn.let(f"icmp sge i64 {after}, {inner[1]}")
            work.part(loop.index, least(fn, after, inner[1]), first, last)

    def blocks(self, places: dict[str, str], rows: tuple[str, str], columns: tuple[str, str]) -> Block:
        return _Block(self, places, rows, columns)

    @property
    def tile_work(self) -> int:
        """A tile's multiplications at the speed of vectors."""
        p = self.plan
        work = p.rows * p.width * min(p.depth, self.space.inner.size)
        return work // MATRIX_SPEED if self.arithmetic.is_matrix else work

    # -- results

    def finish(self, columns: int) -> str:
        """The function that hands out rows of sums, `columns` of each."""
        found = self.finishes.get(columns)
        if found is None:
            found = self.finishes[columns] = _finish(self, columns)
        return found.name


@dataclass(frozen=True)
class Block(ABC):
    """One block in the making. Ranges are i64: rows and columns from .. to."""

    product: Product
    places: dict[str, str]
    rows: tuple[str, str]
    columns: tuple[str, str]

    @abstractmethod
    def part(self, begin: str, end: str, first: str, last: str) -> None:
        """Adds the products of a range of the inner axis; `last`: sums are complete then."""

    def sums_of(self, row: str, column: str) -> tuple[str, int]:
        """Where the sums of a tile are made, and the bytes from row to row."""
        product, fn, a = self.product, self.product.fn, self.product.arithmetic
        if product.plan.keeps_out:
            stride = product.space.rows.stride("out")
            assert stride is not None
            place = added(fn, self.places["out"], product.space.rows.offset(fn, "out", row), column)
            return pointer(fn, product.out, place, size_of(a.total)), stride * size_of(a.total)
        if not product.is_split:
            return product.sums, product.sums_bytes
        down = fn.let(f"mul i64 {fn.let(f'sub i64 {row}, {self.rows[0]}')}, {product.sums_bytes}")
        right = fn.let(f"mul i64 {fn.let(f'sub i64 {column}, {self.columns[0]}')}, {a.total_bytes}")
        return pointer(fn, product.sums, added(fn, down, right), 1), product.sums_bytes


class _Block(Block):
    def part(self, begin: str, end: str, first: str, last: str) -> None:
        product, fn, p = self.product, self.product.fn, self.product.plan
        count = fn.let(f"sub i64 {end}, {begin}")
        group = p.arithmetic.group
        units = count if group == 1 else fn.let(f"sdiv i64 {added(fn, count, str(group - 1))}, {group}")
        run = Run(begin, count, units, product.is_ragged)
        whole, edge = self._cut(self.columns, p.width, product.space.columns)
        if not p.keeps_rhs and not product.call.packed:
            self._pack_columns(self.columns[0], whole, None, run)
            if edge:
                with fn.when(fn.let(f"icmp slt i64 {whole}, {self.columns[1]}")):
                    self._pack_columns(whole, added(fn, whole, "1"), str(edge), run)
        if product.is_ragged:
            with fn.loop(self.rows[0], self.rows[1], p.rows) as row:
                count = least(fn, fn.let(f"sub i64 {self.rows[1]}, {row.index}"), str(p.rows))
                self._rows(row.index, p.rows, count, run, first, last)
            return
        down, lower = self._cut(self.rows, p.rows, product.space.rows)
        together = _TOGETHER if product.lhs_goes_across and not p.keeps_lhs else 1
        with fn.loop(self.rows[0], down, together * p.rows) as group:
            if together > 1:
                end = least(fn, added(fn, group.index, str(together * p.rows)), down)
                self._pack_across(group.index, end, str(p.rows), run)
                with fn.loop(group.index, end, p.rows) as row:
                    number = fn.let(f"udiv i64 {fn.let(f'sub i64 {row.index}, {group.index}')}, {p.rows}")
                    panel = pointer(fn, product.lhs_panel, number, product.across_bytes)
                    self._rows(row.index, p.rows, str(p.rows), run, first, last, panel)
            else:
                self._rows(group.index, p.rows, str(p.rows), run, first, last)
        if lower:
            with fn.when(fn.let(f"icmp slt i64 {down}, {self.rows[1]}")):
                self._rows(down, lower, str(lower), run, first, last)

    def _cut(self, bounds: tuple[str, str], unit: int, axis: Axis) -> tuple[str, int]:
        """Where the whole units of a range end, and how many indices are left at the end of the axis."""
        fn, left = self.product.fn, axis.size % unit
        if left == 0:
            return bounds[1], 0
        size = fn.let(f"sub i64 {bounds[1]}, {bounds[0]}")
        whole = fn.let(f"sub i64 {size}, {fn.let(f'srem i64 {size}, {unit}')}")
        return added(fn, bounds[0], whole), left

    def panel_of(self, column: str) -> str:
        fn, product = self.product.fn, self.product
        width = product.plan.width
        if product.plan.block[2] == width:
            return product.rhs_panels
        number = fn.let(f"udiv i64 {fn.let(f'sub i64 {column}, {self.columns[0]}')}, {width}")
        return pointer(fn, product.rhs_panels, number, product.panel_bytes)

    def _pack_columns(self, begin: str, end: str, valid: str | None, run: Run) -> None:
        """Packs the panels of a range of columns."""
        product, p, fn = self.product, self.product.plan, self.product.fn
        first = self.panel_of(begin)
        body = pointer(fn, first, str(product.panel_head), 1) if product.panel_head else first
        names = {"panel": body, "base": self.places["rhs"], "first": begin, "last": end}

        def pack(_: Operand, rhs: Operand) -> None:
            panels = Panels("%panel", product.panel_bytes, "%first", "%last", p.width, p.lanes)
            pack_panels(rhs, panels, "%base", valid, run.inside)

        product.apart({**names, **run.arguments}, pack)
        if product.panel_head:
            with fn.loop(begin, end, p.width) as column:
                write_corrections(product.rhs, self.panel_of(column.index), p.vectors, p.lanes, run)

    def _rows(self, row: str, size: int, count: str, run: Run, first: str, last: str, across: str = "") -> None:
        """One row of tiles, of `size` rows of which `count` exist; `across`: where lhs is packed already."""
        product, fn, p = self.product, self.product.fn, self.product.plan
        lhs, row_step, unit_step = self._left(row, size, count, run, across)
        kind = MatrixTile if p.arithmetic.is_matrix else Tile
        tile = kind(p.arithmetic, p.lanes, size, p.vectors, row_step, unit_step, p.width, not p.keeps_rhs)
        work = _Row(self, row, count, lhs, run, first, last)
        whole, edge = self._cut(self.columns, p.width, product.space.columns)
        tile.enter(fn, product.module)
        with fn.loop(self.columns[0], whole, p.width) as column:
            work.tile(tile, column.index, p.width)
        if not edge:
            return
        # a panel of i8 has its head before all its vectors
        vectors = p.vectors if product.panel_head else -(-edge // p.lanes)
        is_exact = p.keeps_rhs or p.keeps_out
        tile = replace(tile, vectors=vectors, columns=edge if is_exact else vectors * p.lanes)
        with fn.when(fn.let(f"icmp slt i64 {whole}, {self.columns[1]}")):
            tile.enter(fn, product.module)
            work.tile(tile, whole, edge)

    def _left(self, row: str, size: int, count: str, run: Run, across: str) -> tuple[str, int, int]:
        """lhs for a row of tiles: address, bytes from row to row and from unit to unit."""
        product, fn, p, a = self.product, self.product.fn, self.product.plan, self.product.arithmetic
        lhs, base = product.lhs, self.places["lhs"]
        if p.keeps_lhs:
            row_step, step = lhs.free.stride("lhs"), lhs.inner.stride("lhs")
            assert row_step is not None and step is not None
            place = added(fn, base, lhs.free.offset(fn, "lhs", row), lhs.inner.offset(fn, "lhs", run.begin))
            bytes = lhs.element_bytes
            return pointer(fn, lhs.base, place, bytes), row_step * bytes, step * a.group * bytes
        if product.lhs_goes_across:
            if not across:
                self._pack_across(row, added(fn, row, "1"), count, run)
            return across or product.lhs_panel, a.unit_bytes, product.lhs_width * a.unit_bytes
        names = {"panel": product.lhs_panel, "base": base, "first": row, "last": added(fn, row, count)}

        def pack(lhs: Operand, _: Operand) -> None:
            valid = lhs.fn.let("sub i64 %last, %first")
            rows, some = (str(size), valid) if product.is_ragged else (valid, None)
            pack_rows(lhs, rows, some, "%panel", product.row_bytes, "%base", "%first", run.inside)

        product.apart({**names, **run.arguments}, pack)
        return product.lhs_panel, product.row_bytes, a.unit_bytes

    def _pack_across(self, begin: str, end: str, valid: str, run: Run) -> None:
        """Packs lhs for the rows of tiles that begin in a range, each of `valid` rows."""
        product, p = self.product, self.product.plan
        names = {"panel": product.lhs_panel, "base": self.places["lhs"], "first": begin, "last": end, "valid": valid}

        def pack(lhs: Operand, _: Operand) -> None:
            panels = Panels("%panel", product.across_bytes, "%first", "%last", product.lhs_width, p.lanes, p.rows)
            pack_panels(lhs, panels, "%base", "%valid", run.inside)

        product.apart({**names, **run.arguments}, pack)


@dataclass(frozen=True)
class _Row:
    """A row of tiles."""

    block: _Block
    row: str
    count: str
    lhs: str
    run: Run
    first: str
    last: str

    def tile(self, tile: Tile, column: str, columns: int) -> None:
        """One tile: `columns` of its columns exist."""
        block, product = self.block, self.block.product
        fn, p = product.fn, product.plan
        rhs, row_bytes = self._right(column)
        out, out_bytes = block.sums_of(self.row, column)
        tile.call(fn, product.module, (self.lhs, rhs, out), self.run.units, (row_bytes, out_bytes), self.first)
        if not p.keeps_out:
            self._hand_out(out, column, columns)

    def _right(self, column: str) -> tuple[str, int]:
        """rhs from a column on: address, bytes from row to row."""
        product, p = self.block.product, self.block.product.plan
        if product.call.packed:
            return packed_panel(product, product.rhs.base, column, self.run.begin), p.width * p.arithmetic.unit_bytes
        if not p.keeps_rhs:
            return self.block.panel_of(column), p.width * p.arithmetic.unit_bytes
        fn, rhs = product.fn, product.rhs
        step = rhs.inner.stride("rhs")
        assert step is not None
        inner = rhs.inner.offset(fn, "rhs", self.run.begin)
        place = added(fn, self.block.places["rhs"], rhs.free.offset(fn, "rhs", column), inner)
        return pointer(fn, rhs.base, place, rhs.element_bytes), step * rhs.element_bytes

    def _hand_out(self, sums: str, column: str, columns: int) -> None:
        product, fn = self.block.product, self.block.product.fn
        finish = product.finish(columns)

        def call() -> None:
            place = added(fn, self.block.places["out"], column)
            fn.do(f"call void @{finish}(ptr %table, ptr {sums}, i64 {self.row}, i64 {self.count}, i64 {place})")

        if self.last == "true":
            call()
            return
        with fn.when(self.last):
            call()


# -- rhs packed apart


class Packer(Product):
    """Writes the function that packs all of rhs: panels one after the other, each with the whole inner axis."""

    def _take_stack(self) -> None:
        """Nothing is summed here."""

    def fits(self) -> bool:
        """Whether the product packs rhs, and panels do for it."""
        return not self.plan.keeps_rhs and self.space.batch.size == 1 and self.arithmetic.group == 1

    @property
    def count(self) -> int:
        """Panels."""
        return -(-self.space.columns.size // self.plan.width)

    @property
    def nbytes(self) -> int:
        return self.count * packed_bytes(self)

    def write(self) -> Phase:
        fn, p, n, inner = self.fn, self.plan, self.space.columns.size, str(self.space.inner.size)
        each = -(-self.count // max(1, min(CHUNKS, self.nbytes // _PACKED_CHUNK)))
        whole, edge = n // p.width * p.width, n % p.width
        run = Run("0", inner, inner)
        low = fn.let(f"mul i64 %begin, {each * p.width}")
        high = least(fn, fn.let(f"mul i64 %end, {each * p.width}"), str(self.count * p.width))

        def pack(first: str, last: str, valid: str | None) -> None:
            address = packed_panel(self, self.out, first, "0")
            panels = Panels(address, packed_bytes(self), first, last, p.width, p.lanes)
            pack_panels(self.rhs, panels, "0", valid, run)

        pack(low, least(fn, high, str(whole)), None)
        if edge:
            with fn.when(fn.let(f"icmp sgt i64 {high}, {whole}")):
                pack(str(whole), str(whole + p.width), str(edge))
        return self.added(-(-self.count // each))


def packed_bytes(product: Product) -> int:
    """Bytes of a panel with the whole inner axis."""
    return product.space.inner.size * product.plan.width * product.arithmetic.unit_bytes


def packed_panel(product: Product, base: str, column: str, begin: str) -> str:
    """Where a panel of rhs packed apart lies, from a step of the inner axis on."""
    fn, width = product.fn, product.plan.width
    number = fn.let(f"udiv i64 {column}, {width}")
    first = pointer(fn, base, number, packed_bytes(product))
    return pointer(fn, first, begin, width * product.arithmetic.unit_bytes)


def _finish(product: Product, columns: int) -> Function:
    """finish(table, sums, row, count, place): rows of sums to the result, `place` being that of row 0."""
    p, result = product.plan, product.result
    parameters = [("ptr", "table"), ("ptr", "sums"), ("i64", "row"), ("i64", "count"), ("i64", "place")]
    fn = Function(f"NAME_finish_{columns}", parameters)
    last = result.dimensions[-1] if result.dimensions else 1
    is_plain = product.call.store is None
    whole = is_plain or (columns > 1 and (last == product.space.columns.size or last % p.lanes == 0))
    writer = _Finish(fn, product, columns)
    with fn.loop("0", "%count") as row:
        index = fn.let(f"add i64 %row, {row.index}")
        place = added(fn, "%place", product.space.rows.offset(fn, "out", index))
        sums = pointer(fn, "%sums", row.index, product.sums_bytes)
        if whole:
            writer.by_vectors(sums, place)
        else:
            writer.by_elements(sums, place)
    fn.do("ret void")
    return fn


class _Finish:
    def __init__(self, fn: Function, product: Product, columns: int) -> None:
        self.fn, self.product, self.columns = fn, product, columns
        self.arithmetic, self.lanes = product.arithmetic, product.plan.lanes
        self.out = ""
        if product.call.store is None:
            address = fn.let(f"getelementptr ptr, ptr %table, i64 {len(product.call.operands)}", "p")
            self.out = fn.let(f"load ptr, ptr {address}", "p")

    def by_vectors(self, sums: str, place: str) -> None:
        fn, lanes, a = self.fn, self.lanes, self.arithmetic
        for v in range(-(-self.columns // lanes)):
            mask = constant_mask(self.columns - v * lanes, lanes)
            size = lanes * size_of(a.total)
            parts = [
                load(fn, a.total, lanes, pointer(fn, sums, str((v * a.parts + q) * size), 1)) for q in range(a.parts)
            ]
            if self.columns - v * lanes == 1:
                # LLVM 22 makes a truncating store under a mask of one known lane as wide as before truncation
                type = vector(a.total, lanes)
                parts = [fn.let(f"extractelement {type} {part}, i64 0") for part in parts]
                self._put(parts, added(fn, place, str(v * lanes)), 1, None)
                continue
            self._put(parts, added(fn, place, str(v * lanes)), lanes, mask)

    def by_elements(self, sums: str, place: str) -> None:
        fn, lanes, a = self.fn, self.lanes, self.arithmetic
        with fn.loop("0", str(self.columns)) as column:
            number = fn.let(f"udiv i64 {column.index}, {lanes}")
            lane = fn.let(f"urem i64 {column.index}, {lanes}")
            at = added(fn, fn.let(f"mul i64 {number}, {lanes * a.parts}"), lane)
            parts = [
                load(fn, a.total, 1, pointer(fn, sums, added(fn, at, str(q * lanes)), size_of(a.total)))
                for q in range(a.parts)
            ]
            self._put(parts, added(fn, place, column.index), 1, None)

    def _put(self, parts: list[str], place: str, lanes: int, mask: str | None) -> None:
        fn, result, wide = self.fn, self.product.result, self.arithmetic.total
        values = [rounded(fn, result.dtype.real, part, lanes, wide) for part in parts]
        put = self.product.call.store
        if put is not None:
            value = values[0] if len(values) == 1 else self._pair(values, lanes)
            put(fn, unravelled(fn, place, result.dimensions), value, lanes, mask)
        elif result.dtype.is_complex:
            write_complex(fn, result.dtype, self.out, place, values, lanes, mask)
        else:
            write(fn, result.dtype, self.out, place, values[0], lanes, mask)

    def _pair(self, values: list[str], lanes: int) -> str:
        """A complex number as a literal struct of its parts."""
        part = vector(scalar_type(self.product.result.dtype.real), lanes)
        pair = f"{{ {part}, {part} }}"
        half = self.fn.let(f"insertvalue {pair} poison, {part} {values[0]}, 0")
        return self.fn.let(f"insertvalue {pair} {half}, {part} {values[1]}, 1")
