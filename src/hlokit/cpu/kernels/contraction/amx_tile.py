"""Tiles of products of bf16 and 8-bit integers in Intel's AMX."""

from __future__ import annotations

from dataclasses import replace

from hlokit.cpu.kernels.contraction.amx import (
    INSTRUCTIONS,
    LHS,
    RHS,
    ROW_BYTES,
    ROWS,
    AmxSums,
    Walk,
    configure,
)
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
    """Halves of the rows in turn, in the same five registers if they are of one size."""

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
        fn, steps = self.fn, self.steps // ROWS
        outs = [out + j * ROW_BYTES for j in range(self.columns)]
        sums = AmxSums(INSTRUCTIONS[self.arithmetic.name], outs, self.out_bytes, registers=2 * i)
        left = Walk(lhs, LHS + i, 1, self.tile.row, step=ROW_BYTES)
        right = Walk(self.rhs, RHS, self.columns, self.row_bytes, ROW_BYTES, step=self.row_bytes * ROWS)
        sums.begin(self.first)
        sums.add(left, right, steps)
        with fn.when(steps * ROWS < self.steps):
            sums.add(*self._completed(height, left, right, steps), fn.index(1))
        sums.store()

    def _completed(self, height: int, left: Walk, right: Walk, steps: Index) -> tuple[Walk, Walk]:
        """Copies of the units after so many steps, which zeros complete."""
        fn, rhs_bytes, units = self.fn, self.columns * ROW_BYTES, self.steps - steps * ROWS
        lhs, rhs = fn.local(I8, height * ROW_BYTES, 64), fn.local(I8, ROWS * rhs_bytes, 64)
        mask = units.first_lanes(ROWS)
        with fn.loop(0, height) as row:
            source = left.at(steps) + row.index * self.tile.row
            source = source.to(I32, self.arithmetic.packed.bytes * self.arithmetic.group)
            (lhs + row.index * ROW_BYTES).to(I32).store(source.load(ROWS, mask))
        fn.memset(rhs, 0, ROWS * rhs_bytes)
        with fn.loop(0, units) as unit:
            fn.memcpy(rhs + unit.index * rhs_bytes, right.at(steps) + unit.index * self.row_bytes, rhs_bytes)
        return replace(left, start=lhs, row=ROW_BYTES), replace(right, start=rhs, row=rhs_bytes)
