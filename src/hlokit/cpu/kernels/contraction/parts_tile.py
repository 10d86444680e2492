"""Tiles of products by bf16x3 splitting in Intel's AMX, and the tile for numbers that cannot be split.

A *panel* holds 32 rows of lhs or 32 columns of rhs in blocks of 16 lanes of the inner axis:
[block][part][half of the rows or columns][16][16 lanes of 32 bits]. In each half the rows of lhs are the second to
last index, its lanes the last; for rhs it is the other way round. So a register is 1024 consecutive bytes.
"""

from __future__ import annotations

from functools import cache, partial

from hlokit.cpu.kernels.contraction.amx import (
    LHS,
    REGISTER,
    RHS,
    AmxSums,
    Walk,
)
from hlokit.cpu.kernels.contraction.arithmetic import FLOAT, FUSED, AmxFactors
from hlokit.cpu.kernels.contraction.split import LANES, joined
from hlokit.cpu.kernels.contraction.tile import Steps, VectorTile
from hlokit.cpu.llvm import I8, I32, Definition, Function, Module, Pointer, Type

WIDTH = 32
"""Rows and columns of a tile: four registers of sums."""
ROW = 4 * WIDTH
"""Bytes of a row of its sums."""
_SLOW_ROWS = 4


def tile(module: Module, factors: AmxFactors, columns: int) -> str:
    """The function for tiles of so many halves of columns, 1 or 2.

    void f(ptr lhs, ptr rhs, ptr out, i64 out_bytes, i64 blocks, i64 rows, i64 columns, i1 first): sums `blocks` blocks
    of two panels, to what `out` has unless `first`; its rows are `out_bytes` apart.
    """
    name = f"parts_tile_{factors.name}_{columns}"
    module.add(_tile_function(factors, name, columns))
    return name


_PARAMETERS = [
    *(("ptr", name) for name in ("lhs", "rhs", "out")),
    *(("i64", name) for name in ("out_bytes", "blocks", "rows", "columns")),
    ("i1", "first"),
]


@cache
def _tile_function(factors: AmxFactors, name: str, columns: int) -> Definition:
    """Halves of the rows in turn: rhs's panel stays in the first-level cache."""
    fn = Function(name, _PARAMETERS, attributes="noinline nounwind", shared=f"parts_{factors.name}")
    own = fn.local(I8, WIDTH * ROW, 64)
    walk = partial(Walk, row=4 * LANES, register=REGISTER, part=2 * REGISTER, step=factors.block_bytes)
    with fn.loop(0, fn.index_argument("rows"), LANES, [fn.pointer("lhs"), own]) as half:
        lhs, place = half.carried
        outs = [place + 64 * j for j in range(columns)]
        sums = AmxSums(factors.instruction, outs, ROW, factors.products)
        sums.begin()
        sums.add(walk(lhs, LHS, 1), walk(fn.pointer("rhs"), RHS, columns), fn.index_argument("blocks"))
        sums.store()
        half.next = [lhs + REGISTER, place + LANES * ROW]
    add_sums(fn, own, factors.total, columns)
    fn.returns()
    return fn.definition()


def add_sums(fn: Function, own: Pointer, total: Type, halves: int) -> None:
    """A tile's stored sums, and unless `first` what `out` has, to `out`.

    Registers stored to `out` itself take up to twice the time of a whole product: its lines are in no near cache.
    """
    columns, out_bytes = fn.index_argument("columns"), fn.index_argument("out_bytes")
    is_former = (~fn.argument("first")).splat(LANES)
    masks = [(columns - v * LANES).first_lanes(LANES) for v in range(halves)]
    used = [mask & is_former for mask in masks]
    with fn.loop(0, fn.index_argument("rows"), 1, [fn.pointer("out", total), own.to(total)]) as row:
        out, sums = row.carried
        for v in range(halves):
            place = out + 64 * v
            former, new = place.load(LANES, used[v]), (sums + 64 * v).load(LANES)
            place.store(new + former, masks[v])
        row.next = [out + out_bytes, sums + ROW]


def slow_tile(module: Module, factors: AmxFactors) -> str:
    """The function for tiles whose panels do not fit: as `tile`'s, then i1 raw_lhs, i1 raw_rhs.

    It makes the numbers of their parts again, block by block, and multiplies those.
    """
    name = f"parts_slow_tile_{factors.name}"
    for definition in _slow_functions(factors, name):
        module.add(definition)
    return name


@cache
def _slow_functions(factors: AmxFactors, name: str) -> list[Definition]:
    join = _join(factors)
    return [join.definition(), _slow_function(factors, name, join.name).definition()]


def _slow_function(factors: AmxFactors, name: str, join: str) -> Function:
    more = [("i1", "raw_lhs"), ("i1", "raw_rhs")]
    fn = Function(name, [*_PARAMETERS, *more], attributes="noinline nounwind", shared=_slow(factors))
    left, right, sums = (fn.local(FLOAT, WIDTH * WIDTH, 64) for _ in range(3))
    fn.memset(sums, 0, WIDTH * ROW)
    with fn.loop(0, fn.index_argument("blocks"), 1, [fn.pointer("lhs"), fn.pointer("rhs")]) as block:
        lhs, rhs = block.carried
        for half in (0, 1):
            for base, to, row, other, shift, is_raw in (
                (lhs, left, ROW, 64, 64 * WIDTH, fn.argument("raw_lhs")),
                (rhs, right, ROW, 64 * WIDTH, 64, fn.argument("raw_rhs")),
            ):
                fn.call(join, base + half * REGISTER, to + half * shift, fn.index(row), fn.index(other), is_raw)
        with fn.loop(0, fn.index_argument("rows"), _SLOW_ROWS) as row:
            places = [sums + row.index * ROW + (r * ROW + v * 64) for r in range(_SLOW_ROWS) for v in (0, 1)]
            former = [place.load(LANES) for place in places]
            found = _SLOW_TILE.summed([Steps(WIDTH, 4, ROW)], left + row.index * ROW, right, former)
            for place, total in zip(places, found, strict=True):
                place.store(total)
        block.next = [base + factors.block_bytes for base in (lhs, rhs)]
    add_sums(fn, sums, FLOAT, 2)
    fn.returns()
    return fn


_SLOW_TILE = VectorTile(FUSED, LANES, tuple(r * ROW for r in range(_SLOW_ROWS)), 2)


def _slow(factors: AmxFactors) -> str:
    return f"slow_parts_{factors.name}"


def _join(factors: AmxFactors) -> Function:
    """void f(ptr pairs, ptr numbers, i64 row_bytes, i64 second_bytes, i1 raw): the numbers of half a block."""
    parameters = [("ptr", "pairs"), ("ptr", "numbers"), ("i64", "row_bytes"), ("i64", "second_bytes"), ("i1", "raw")]
    fn = Function(f"parts_join_{factors.name}", parameters, attributes="noinline nounwind", shared=_slow(factors))
    row_bytes, second_bytes = fn.index_argument("row_bytes"), fn.index_argument("second_bytes")
    with fn.loop(0, LANES) as row:
        source = fn.pointer("pairs", I32) + row.index * 64
        pairs = [(source + 2 * p * REGISTER).load(LANES) for p in range(factors.parts)]
        target = fn.pointer("numbers", FLOAT) + row.index * row_bytes
        low, high = joined(pairs, fn.argument("raw"))
        target.store(low)
        (target + second_bytes).store(high)
    fn.returns()
    return fn
