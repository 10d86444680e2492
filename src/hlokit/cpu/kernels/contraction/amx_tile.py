"""Tiles of products of bf16 and 8-bit integers in Intel's AMX."""

from __future__ import annotations

from hlokit.cpu.kernels.contraction.amx import (
    INSTRUCTIONS,
    LHS,
    RHS,
    ROW_BYTES,
    ROWS,
    FactorRegisters,
    add_products,
    begin_sums,
    configure,
    store_register,
)
from hlokit.cpu.kernels.contraction.elements import first_lanes
from hlokit.cpu.kernels.contraction.tile import Tile, TileFunction
from hlokit.cpu.llvm import I8, I32, Function, Index, Module, Pointer

MOST_ROWS, MOST_VECTORS = 2 * ROWS, 2
"""The largest tile: four registers of sums, two of lhs, two of rhs."""


class AmxTile(Tile):
    """A tile whose rhs comes in panels and whose lhs has the factors of a row side by side.

    `vectors` of 16 columns. Registers are configured for the tile's size by `enter`, ahead of calls.
    """

    def enter(self, fn: Function, module: Module) -> None:
        """Makes the registers fit the tile. They stay so until the next tile of another size."""
        configure(fn, module, self.rows, self.columns)

    def written(self) -> Function:
        return _AmxTile(self).written()


class _AmxTile(TileFunction):
    """Halves of the rows in turn, in the same five registers if they are of one size: see parts_tile."""

    def written(self) -> Function:
        fn, tile = self.fn, self.tile
        self.columns = -(-tile.columns // ROWS)
        height = min(tile.rows, ROWS)
        even = tile.rows // height
        forward = self.out_bytes * ROWS
        with fn.loop(0, even, 1, [self.lhs, self.out]) as half:
            lhs, out = half.carried
            self._half(0, height, lhs, out)
            half.next = [lhs + ROWS * tile.row, out + forward]
        if tile.rows > even * height:
            self._half(1, tile.rows - even * height, *half.results)
        fn.returns()
        return fn

    def _half(self, i: int, height: int, lhs: Pointer, out: Pointer) -> None:
        """So many rows, in the registers of one half."""
        fn = self.fn
        sums = [(2 * i + j, out + j * ROW_BYTES) for j in range(self.columns)]
        begin_sums(sums, self.first, self.out_bytes)
        whole = self.steps & -ROWS
        forward = self.row_bytes * ROWS
        with fn.loop(0, whole, ROWS, [lhs, self.rhs]) as loop:
            lhs, rhs = loop.carried
            self._step(i, lhs, self.tile.row, rhs, self.row_bytes)
            loop.next = [lhs + ROW_BYTES, rhs + forward]
        lhs, rhs = loop.results
        with fn.when(whole < self.steps):
            self._last_step(i, height, lhs, rhs, self.steps - whole)
        for number, address in sums:
            store_register(number, address, self.out_bytes)

    def _step(self, i: int, lhs: Pointer, lhs_bytes: int, rhs: Pointer, rhs_bytes: Index | int) -> None:
        """Adds the products of 16 units."""
        left = FactorRegisters(LHS + i, 1, lhs_bytes, lambda _part, _row: lhs)
        right = FactorRegisters(RHS, self.columns, rhs_bytes, lambda _part, j: rhs + j * ROW_BYTES)
        add_products(self.fn, INSTRUCTIONS[self.arithmetic.name], left, right, 2 * i)

    def _last_step(self, i: int, height: int, lhs: Pointer, rhs: Pointer, units: Index) -> None:
        """The units that are left, from copies that zeros complete."""
        fn, rhs_bytes = self.fn, self.columns * ROW_BYTES
        left, right = fn.local(I8, height * ROW_BYTES, 64), fn.local(I8, ROWS * rhs_bytes, 64)
        mask = first_lanes(units, ROWS)
        with fn.loop(0, height) as row:
            source = (lhs + row.index * self.tile.row).to(I32, self.arithmetic.packed.bytes * self.arithmetic.group)
            (left + row.index * ROW_BYTES).to(I32).store(source.load(ROWS, mask))
        fn.memset(right, 0, ROWS * rhs_bytes)
        with fn.loop(0, units) as unit:
            fn.memcpy(right + unit.index * rhs_bytes, rhs + unit.index * self.row_bytes, rhs_bytes)
        self._step(i, left, ROW_BYTES, right, rhs_bytes)
