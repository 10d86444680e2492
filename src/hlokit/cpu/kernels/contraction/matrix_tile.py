"""Tiles of a product in matrix registers: Intel's AMX, 16 rows of 64 bytes each."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.elements import first_lanes, load, pointer, store
from hlokit.cpu.kernels.contraction.matrix_registers import (
    LHS,
    RHS,
    ROW_BYTES,
    ROWS,
    clear,
    configure,
    load_register,
    multiply,
    store_register,
)
from hlokit.cpu.kernels.contraction.tile import Tile
from hlokit.cpu.llvm import Function, Module

MOST_ROWS, MOST_VECTORS = 2 * ROWS, 2
"""Of a tile: four registers of sums, two of lhs, two of rhs."""
_MULTIPLY = {"bf16": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}


class MatrixTile(Tile):
    """A tile whose rhs comes in panels and whose lhs has the factors of a row side by side.

    `vectors` of 16 columns. Registers are configured for the tile's size by `enter`, ahead of calls.
    """

    def enter(self, fn: Function, module: Module) -> None:
        """Makes the registers fit the tile. They stay so until the next tile of another size."""
        configure(fn, module, self.rows, self.columns)

    def written(self) -> Function:
        return _Writer(self).written()


class _Writer:
    """Writes a tile's function. Its parameters are those of `Tile`'s.

    Halves of the rows in turn, in the same five registers if they are of one size: see parts_tile.
    """

    def __init__(self, tile: MatrixTile) -> None:
        self.tile = tile
        self.columns = -(-tile.columns // ROWS)
        parameters = [("ptr noalias readonly", "lhs"), ("ptr noalias readonly", "rhs"), ("ptr noalias", "out")]
        parameters += [("i64", "steps"), ("i64", "row_bytes"), ("i64", "out_bytes"), ("i1", "first")]
        self.fn = Function(tile.name, parameters, attributes="noinline nounwind")

    def written(self) -> Function:
        fn, tile = self.fn, self.tile
        height = min(tile.rows, ROWS)
        even = tile.rows // height
        forward = fn.let(f"mul i64 %out_bytes, {ROWS}")
        with fn.loop("0", str(even), 1, [("ptr", "%lhs"), ("ptr", "%out")]) as half:
            lhs, out = half.carried
            self._half(0, height, lhs, out)
            half.next = [pointer(fn, lhs, str(ROWS * tile.row), 1), pointer(fn, out, forward, 1)]
        if tile.rows > even * height:
            self._half(1, tile.rows - even * height, *half.results)
        fn.do("ret void")
        return fn

    def _half(self, i: int, height: int, lhs: str, out: str) -> None:
        """So many rows, in the registers of one half."""
        fn = self.fn
        sums = [(2 * i + j, pointer(fn, out, str(j * ROW_BYTES), 1) if j else out) for j in range(self.columns)]
        self._begin(sums)
        whole = fn.let(f"and i64 %steps, {-ROWS}")
        forward = fn.let(f"mul i64 %row_bytes, {ROWS}")
        with fn.loop("0", whole, ROWS, [("ptr", lhs), ("ptr", "%rhs")]) as loop:
            lhs, rhs = loop.carried
            self._step(i, lhs, self.tile.row, rhs, "%row_bytes")
            loop.next = [pointer(fn, lhs, str(ROW_BYTES), 1), pointer(fn, rhs, forward, 1)]
        lhs, rhs = loop.results
        with fn.when(fn.let(f"icmp slt i64 {whole}, %steps")):
            self._last_step(i, height, lhs, rhs, fn.let(f"sub i64 %steps, {whole}"))
        for number, address in sums:
            store_register(fn, number, address, "%out_bytes")

    def _begin(self, sums: Sequence[tuple[int, str]]) -> None:
        """The sums are 0, or what `out` has."""
        fn = self.fn
        zero, former, both = fn.new_block("zero"), fn.new_block("former"), fn.new_block("both")
        fn.branch("%first", zero, former)
        fn.start(zero)
        for number, _ in sums:
            clear(fn, number)
        fn.jump(both)
        fn.start(former)
        for number, address in sums:
            load_register(fn, number, address, "%out_bytes")
        fn.jump(both)
        fn.start(both)

    def _step(self, i: int, lhs: str, lhs_bytes: int, rhs: str, rhs_bytes: str) -> None:
        """Adds the products of 16 units."""
        fn = self.fn
        for j in range(self.columns):
            load_register(fn, RHS + j, pointer(fn, rhs, str(j * ROW_BYTES), 1), rhs_bytes)
        load_register(fn, LHS + i, lhs, lhs_bytes)
        for j in range(self.columns):
            multiply(fn, _MULTIPLY[self.tile.arithmetic.name], 2 * i + j, LHS + i, RHS + j)

    def _last_step(self, i: int, height: int, lhs: str, rhs: str, units: str) -> None:
        """The units that are left, from copies that zeros complete."""
        fn, tile = self.fn, self.tile
        rhs_bytes = self.columns * ROW_BYTES
        left, right = fn.alloca("i8", height * ROW_BYTES), fn.alloca("i8", ROWS * rhs_bytes)
        mask = first_lanes(fn, units, ROWS)
        with fn.loop("0", str(height)) as row:
            value = load(fn, "i32", ROWS, pointer(fn, lhs, row.index, tile.row), mask)
            store(fn, "i32", ROWS, value, pointer(fn, left, row.index, ROW_BYTES))
        fn.do(f"call void @llvm.memset.p0.i64(ptr {right}, i8 0, i64 {ROWS * rhs_bytes}, i1 false)")
        with fn.loop("0", units) as unit:
            source = pointer(fn, rhs, fn.let(f"mul i64 {unit.index}, %row_bytes"), 1)
            target = pointer(fn, right, unit.index, rhs_bytes)
            fn.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {rhs_bytes}, i1 false)")
        self._step(i, left, ROW_BYTES, right, str(rhs_bytes))
