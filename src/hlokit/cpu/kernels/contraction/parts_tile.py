"""Tiles of products in matrix registers (Intel's AMX), each factor a sum of parts; and the tile for what has no parts.

A *panel* holds 32 rows of lhs or 32 columns of rhs in blocks of 16 lanes of the inner axis:
[block][part][half of the rows or columns][16][16 lanes of 32 bits]. In each half the rows of lhs are the second to
last index, its lanes the last; for rhs it is the other way round. So a register is 1024 consecutive bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hlokit.cpu.kernels.contraction.elements import broadcast, first_lanes, load, pointer, store
from hlokit.cpu.kernels.contraction.matrix_registers import (
    LHS,
    REGISTER,
    RHS,
    clear,
    load_register,
    multiply,
    store_register,
)
from hlokit.cpu.kernels.contraction.split import LANES, PRODUCTS, joined
from hlokit.cpu.llvm import Function, Module, vector

WIDTH = 32
"""Rows and columns of a tile: four registers of sums."""
_MULTIPLY = {"float": "tdpbf16ps", "s8": "tdpbssd", "u8": "tdpbuud"}
_SLOW_ROWS = 4


@dataclass(frozen=True)
class Form:
    """How the factors of a product are laid out.

    name    of the operands' type
    memory  LLVM's type of an element in memory
    parts   of a factor
    steps   of the inner axis in a lane
    has_least   whether parts can be too small to be multiplied
    """

    name: str
    memory: str
    parts: int = 1
    steps: int = 2
    has_least: bool = False

    @property
    def depth(self) -> int:
        """Steps of the inner axis in a block."""
        return LANES * self.steps

    @property
    def runs(self) -> tuple[int, int]:
        """Blocks, least and most, summed in registers before they are added to what came before.

        Long sums are rounded less often; panels of few blocks stay in the first-level cache while they are read twice.
        """
        return (6, 16) if self.parts > 1 else (64, 64)

    @property
    def block_bytes(self) -> int:
        return self.parts * 2 * REGISTER

    @property
    def total(self) -> str:
        return "float" if self.steps == 2 else "i32"


def tile(module: Module, form: Form, columns: int) -> str:
    """The function for tiles of so many halves of columns, 1 or 2.

    void f(ptr lhs, ptr rhs, ptr out, i64 out_bytes, i64 blocks, i64 rows, i64 columns, i1 first): sums `blocks` blocks
    of two panels, to what `out` has unless `first`; its rows are `out_bytes` apart.
    """
    name = f"parts_tile_{form.name}_{columns}"
    module.add_text(name, _tile_text(form, name, columns))
    return name


@cache
def _tile_text(form: Form, name: str, columns: int) -> str:
    return _Tile(form, name, columns).fn.text()


_PARAMETERS = [
    *(("ptr", name) for name in ("lhs", "rhs", "out")),
    *(("i64", name) for name in ("out_bytes", "blocks", "rows", "columns")),
    ("i1", "first"),
]


class _Tile:
    """Halves of the rows in turn, both in the same registers: rhs's panel stays in the first-level cache.

    Where the core's other thread is at work, the number of registers in use is what counts: products with five take 12
    nanoseconds, with all eight 21; 6 to 7 where it is idle. To be in use is to have been written since `configure`.
    """

    def __init__(self, form: Form, name: str, columns: int) -> None:
        self.form, self.columns = form, columns
        shared = f"parts_{form.name}"
        self.fn = fn = Function(name, _PARAMETERS, attributes="noinline nounwind", shared=shared)
        own = fn.alloca("i8", WIDTH * 4 * WIDTH)
        with fn.loop("0", "%rows", LANES, [("ptr", "%lhs"), ("ptr", own)]) as half:
            lhs, place = half.carried
            for j in range(columns):
                clear(fn, j)
            for products in PRODUCTS[form.parts]:
                with fn.loop("0", "%blocks", 1, [("ptr", lhs), ("ptr", "%rhs")]) as block:
                    self._multiply(block.carried, products)
                    block.next = [pointer(fn, base, str(form.block_bytes), 1) for base in block.carried]
            for j in range(columns):
                store_register(fn, j, pointer(fn, place, str(64 * j), 1) if j else place, 4 * WIDTH)
            half.next = [pointer(fn, lhs, str(REGISTER), 1), pointer(fn, place, str(LANES * 4 * WIDTH), 1)]
        self._add(own)
        fn.do("ret void")

    def _multiply(self, bases: Sequence[str], products: Sequence[tuple[int, int]]) -> None:
        """Adds the products of a block's parts to the registers of sums."""
        kind = _MULTIPLY["float" if self.form.total == "float" else self.form.name]
        held: dict[int, int] = {}
        for parts in products:
            sides = zip((LHS, RHS), (1, self.columns), parts, bases, strict=True)
            for register, count, part, base in sides:
                if held.get(register) != part:
                    held[register] = part
                    for j in range(count):
                        address = pointer(self.fn, base, str((2 * part + j) * REGISTER), 1)
                        load_register(self.fn, register + j, address, 4 * LANES)
            for j in range(self.columns):
                multiply(self.fn, kind, j, LHS, RHS + j)

    def _add(self, own: str) -> None:
        """The stored sums, and unless %first what `out` has, to `out`.

        Registers stored to `out` itself take up to twice the time of a whole product: its lines are in no near cache.
        """
        fn, total = self.fn, self.form.total
        is_former = broadcast(fn, fn.let("xor i1 %first, true"), "i1", LANES)
        masks = [first_lanes(fn, "%columns", LANES, v * LANES) for v in range(self.columns)]
        used = [fn.let(f"and <{LANES} x i1> {mask}, {is_former}") for mask in masks]
        with fn.loop("0", "%rows", 1, [("ptr", "%out"), ("ptr", own)]) as row:
            for v in range(self.columns):
                place, source = (pointer(fn, base, str(64 * v), 1) if v else base for base in row.carried)
                former, sums = load(fn, total, LANES, place, used[v]), load(fn, total, LANES, source)
                add = "fadd" if total == "float" else "add"
                store(fn, total, LANES, fn.let(f"{add} {vector(total, LANES)} {sums}, {former}"), place, masks[v])
            row.next = [pointer(fn, row.carried[0], "%out_bytes", 1), pointer(fn, row.carried[1], str(4 * WIDTH), 1)]


def slow_tile(module: Module, form: Form) -> str:
    """The function for tiles whose panels do not fit: as `tile`'s, then i1 raw_lhs, i1 raw_rhs.

    It makes the numbers of their parts again, block by block, and multiplies those.
    """
    name = f"parts_slow_tile_{form.name}"
    for own, text in _slow_texts(form, name):
        module.add_text(own, text)
    return name


@cache
def _slow_texts(form: Form, name: str) -> list[tuple[str, str]]:
    join = _join(form)
    return [(fn.name, fn.text()) for fn in (join, _SlowTile(form, name, join.name).fn)]


class _SlowTile:
    def __init__(self, form: Form, name: str, join: str) -> None:
        more = [("i1", "raw_lhs"), ("i1", "raw_rhs")]
        self.fn = fn = Function(name, [*_PARAMETERS, *more], attributes="noinline nounwind", shared=_slow(form))
        self.float = vector("float", LANES)
        left, right, self.sums = (fn.alloca("float", WIDTH * WIDTH) for _ in range(3))
        fn.do(f"call void @llvm.memset.p0.i64(ptr {self.sums}, i8 0, i64 {WIDTH * WIDTH * 4}, i1 false)")
        with fn.loop("0", "%blocks", 1, [("ptr", "%lhs"), ("ptr", "%rhs")]) as block:
            lhs, rhs = block.carried
            for half in (0, 1):
                for base, to, row, other, shift, is_raw in (
                    (lhs, left, 4 * WIDTH, 64, 64 * WIDTH, "%raw_lhs"),
                    (rhs, right, 4 * WIDTH, 64 * WIDTH, 64, "%raw_rhs"),
                ):
                    source = pointer(fn, base, str(half * REGISTER), 1)
                    target = pointer(fn, to, str(half * shift), 1)
                    shown = f"ptr {source}, ptr {target}, i64 {row}, i64 {other}, i1 {is_raw}"
                    fn.do(f"call void @{join}({shown})")
            with fn.loop("0", "%rows", _SLOW_ROWS) as row:
                self._rows(pointer(fn, left, row.index, 4 * WIDTH), right, row.index)
            block.next = [pointer(fn, base, str(form.block_bytes), 1) for base in (lhs, rhs)]
        self._finish()
        fn.do("ret void")

    def _rows(self, left: str, right: str, row: str) -> None:
        """Adds a block's products to the sums of some rows."""
        fn, type = self.fn, self.float
        first = pointer(fn, self.sums, row, 4 * WIDTH)
        places = [
            (r, v, pointer(fn, first, str((r * WIDTH + v * LANES) * 4), 1)) for r in range(_SLOW_ROWS) for v in (0, 1)
        ]
        former = [(type, load(fn, "float", LANES, place)) for _, _, place in places]
        with fn.loop("0", str(WIDTH), 1, former) as step:
            row_of_rhs = pointer(fn, right, step.index, 4 * WIDTH)
            factors = [load(fn, "float", LANES, pointer(fn, row_of_rhs, str(64 * v), 1)) for v in (0, 1)]
            column = pointer(fn, left, step.index, 4)
            ones = [load(fn, "float", 1, pointer(fn, column, str(r * WIDTH * 4), 1)) for r in range(_SLOW_ROWS)]
            left_factors = [broadcast(fn, one, "float", LANES) for one in ones]
            for (r, v, _), total in zip(places, step.carried, strict=True):
                step.next.append(
                    fn.let(
                        f"call {type} @llvm.fma.v16f32({type} {left_factors[r]}, {type} {factors[v]}, {type} {total})"
                    )
                )
        for (_, _, place), total in zip(places, step.results, strict=True):
            store(fn, "float", LANES, total, place)

    def _finish(self) -> None:
        """The sums to `out`, or what `out` has and the sums."""
        fn, type = self.fn, self.float
        masks = [first_lanes(fn, "%columns", LANES, v * LANES) for v in (0, 1)]
        is_first = broadcast(fn, "%first", "i1", LANES)
        with fn.loop("0", "%rows") as row:
            source = pointer(fn, self.sums, row.index, 4 * WIDTH)
            target = pointer(fn, "%out", fn.let(f"mul i64 {row.index}, %out_bytes"), 1)
            for v, mask in enumerate(masks):
                place = pointer(fn, target, str(64 * v), 1)
                total = load(fn, "float", LANES, pointer(fn, source, str(64 * v), 1))
                used = fn.let(f"xor <{LANES} x i1> {is_first}, splat (i1 true)")
                used = fn.let(f"and <{LANES} x i1> {used}, {mask}")
                former = load(fn, "float", LANES, place, used)
                store(fn, "float", LANES, fn.let(f"fadd {type} {total}, {former}"), place, mask)


def _slow(form: Form) -> str:
    return f"slow_parts_{form.name}"


def _join(form: Form) -> Function:
    """void f(ptr pairs, ptr numbers, i64 row_bytes, i64 second_bytes, i1 raw): the numbers of half a block."""
    parameters = [("ptr", "pairs"), ("ptr", "numbers"), ("i64", "row_bytes"), ("i64", "second_bytes"), ("i1", "raw")]
    fn = Function(f"parts_join_{form.name}", parameters, attributes="noinline nounwind", shared=_slow(form))
    with fn.loop("0", str(LANES)) as row:
        source = pointer(fn, "%pairs", row.index, 64)
        pairs = [load(fn, "i32", LANES, pointer(fn, source, str(2 * p * REGISTER), 1)) for p in range(form.parts)]
        target = pointer(fn, "%numbers", fn.let(f"mul i64 {row.index}, %row_bytes"), 1)
        for value, place in zip(
            joined(fn, pairs, "%raw"), (target, pointer(fn, target, "%second_bytes", 1)), strict=True
        ):
            store(fn, "float", LANES, value, place)
    fn.do("ret void")
    return fn
