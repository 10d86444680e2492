"""Tiles of products in matrix registers (Intel's AMX), each factor a sum of parts; and the tile for what has no parts.

A *panel* holds 32 rows of lhs or 32 columns of rhs in blocks of 16 lanes of the inner axis:
[block][part][half of the rows or columns][16][16 lanes of 32 bits]. In each half the rows of lhs are the second to
last index, its lanes the last; for rhs it is the other way round. So a register is 1024 consecutive bytes.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.axes import least
from hlokit.cpu.kernels.elements import broadcast, first_lanes, load, pointer, store
from hlokit.cpu.kernels.matrix_registers import (
    LHS,
    REGISTER,
    RHS,
    clear,
    configuration,
    load_register,
    multiply,
    store_register,
)
from hlokit.cpu.kernels.split import LANES, PRODUCTS, joined
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
    def run(self) -> int:
        """Blocks summed in registers before they are added to what came before: long sums are rounded less often."""
        return 16 if self.parts > 1 else 64

    @property
    def block_bytes(self) -> int:
        return self.parts * 2 * REGISTER

    @property
    def total(self) -> str:
        return "float" if self.steps == 2 else "i32"


def enter(fn: Function, module: Module, rows: str, columns: str, edges: tuple[int, int]) -> None:
    """Makes the registers fit tiles of so many rows and columns (i64), which are WIDTH or, if not 0, those of `edges`.

    They stay so until the next one's; `release` (matrix_registers) must come last.
    """
    sizes = itertools.product(*((WIDTH, edge or WIDTH) for edge in edges))
    tables = [configuration(module, height, width) for height, width in sizes]
    chosen = tables[0]
    if any(edges):
        is_low, is_narrow = (fn.let(f"icmp slt i64 {size}, {WIDTH}") for size in (rows, columns))
        pairs = [fn.let(f"select i1 {is_narrow}, ptr {tables[i + 1]}, ptr {tables[i]}") for i in (0, 2)]
        chosen = fn.let(f"select i1 {is_low}, ptr {pairs[1]}, ptr {pairs[0]}")
    fn.do(f"call void @llvm.x86.ldtilecfg(ptr {chosen})")


def tile(module: Module, form: Form, rows: int, columns: int) -> str:
    """The function for tiles of so many halves of rows and of columns, 1 or 2.

    void f(ptr lhs, ptr rhs, ptr out, i64 out_bytes, i64 blocks, i64 rows, i64 columns, i1 first): sums `blocks` blocks
    of two panels, to what `out` has unless `first`; its rows are `out_bytes` apart.
    """
    name = f"parts_tile_{form.name}_{rows}x{columns}"
    if name not in module.functions:
        module.add(_Tile(form, name, rows, columns).fn)
    return name


_PARAMETERS = [
    *(("ptr", name) for name in ("lhs", "rhs", "out")),
    *(("i64", name) for name in ("out_bytes", "blocks", "rows", "columns")),
    ("i1", "first"),
]


class _Tile:
    def __init__(self, form: Form, name: str, rows: int, columns: int) -> None:
        self.form, self.rows, self.columns = form, rows, columns
        self.fn = fn = Function(name, _PARAMETERS, attributes="noinline nounwind")
        self.own = fn.alloca("i8", WIDTH * 4 * WIDTH)
        bases = [("ptr", "%lhs"), ("ptr", "%rhs")]
        with fn.loop("0", "%blocks", form.run, bases) as run:
            count = least(fn, fn.let(f"sub i64 %blocks, {run.index}"), str(form.run))
            for i in range(rows):
                for j in range(columns):
                    clear(fn, 2 * i + j)
            after = run.carried
            for products in PRODUCTS[form.parts]:
                with fn.loop("0", count, 1, list(zip(("ptr", "ptr"), run.carried, strict=True))) as block:
                    self._multiply(block.carried, products)
                    block.next = [pointer(fn, base, str(form.block_bytes), 1) for base in block.carried]
                after = block.results
            run.next = after
            is_first = fn.let(f"and i1 %first, {fn.let(f'icmp eq i64 {run.index}, 0')}")
            alone, former, end = fn.new_block("alone"), fn.new_block("former"), fn.new_block("summed")
            fn.branch(is_first, alone, former)
            fn.start(alone)
            self._store("%out", "%out_bytes")
            fn.jump(end)
            fn.start(former)
            self._store(self.own, str(4 * WIDTH))
            self._add()
            fn.jump(end)
            fn.start(end)
        fn.do("ret void")

    def _multiply(self, bases: Sequence[str], products: Sequence[tuple[int, int]]) -> None:
        """Adds the products of a block's parts to the registers of sums."""
        kind = _MULTIPLY["float" if self.form.total == "float" else self.form.name]
        held: dict[int, int] = {}
        for parts in products:
            sides = zip((RHS, LHS), (self.columns, self.rows), parts[::-1], bases[::-1], strict=True)
            for register, count, part, base in sides:
                if held.get(register) != part:
                    held[register] = part
                    self._load(register, count, base, part)
            multiply(self.fn, kind, range(self.rows), range(self.columns))

    def _load(self, register: int, count: int, base: str, part: int) -> None:
        for half in range(count):
            address = pointer(self.fn, base, str((2 * part + half) * REGISTER), 1)
            load_register(self.fn, register + half, address, 64)

    def _store(self, out: str, out_bytes: str) -> None:
        """Stores the registers of sums."""
        fn = self.fn
        for i in range(self.rows):
            row = pointer(fn, out, fn.let(f"mul i64 {out_bytes}, {i * LANES}"), 1) if i else out
            for j in range(self.columns):
                store_register(fn, 2 * i + j, pointer(fn, row, str(j * 64), 1) if j else row, out_bytes)

    def _add(self) -> None:
        """Adds the stored sums to `out`."""
        fn, total = self.fn, self.form.total
        masks = [first_lanes(fn, "%columns", LANES, v * LANES) for v in range(self.columns)]
        with fn.loop("0", "%rows") as row:
            target = pointer(fn, "%out", fn.let(f"mul i64 {row.index}, %out_bytes"), 1)
            for v, mask in enumerate(masks):
                place = pointer(fn, target, str(64 * v), 1)
                sums = load(fn, total, LANES, pointer(fn, pointer(fn, self.own, row.index, 4 * WIDTH), str(64 * v), 1))
                former = load(fn, total, LANES, place, mask)
                add = "fadd" if total == "float" else "add"
                store(fn, total, LANES, fn.let(f"{add} {vector(total, LANES)} {sums}, {former}"), place, mask)


def slow_tile(module: Module, form: Form) -> str:
    """The function for tiles whose panels do not fit: as `tile`'s, then i1 raw_lhs, i1 raw_rhs.

    It makes the numbers of their parts again, block by block, and multiplies those.
    """
    name = f"parts_slow_tile_{form.name}"
    if name not in module.functions:
        module.add(_SlowTile(module, form, name).fn)
    return name


class _SlowTile:
    def __init__(self, module: Module, form: Form, name: str) -> None:
        more = [("i1", "raw_lhs"), ("i1", "raw_rhs")]
        self.fn = fn = Function(name, [*_PARAMETERS, *more], attributes="noinline nounwind")
        self.float = vector("float", LANES)
        left, right, self.sums = (fn.alloca("float", WIDTH * WIDTH) for _ in range(3))
        fn.do(f"call void @llvm.memset.p0.i64(ptr {self.sums}, i8 0, i64 {WIDTH * WIDTH * 4}, i1 false)")
        join = _join(module, form)
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


def _join(module: Module, form: Form) -> str:
    """void f(ptr pairs, ptr numbers, i64 row_bytes, i64 second_bytes, i1 raw): the numbers of half a block."""
    name = f"parts_join_{form.name}"
    if name in module.functions:
        return name
    parameters = [("ptr", "pairs"), ("ptr", "numbers"), ("i64", "row_bytes"), ("i64", "second_bytes"), ("i1", "raw")]
    fn = Function(name, parameters, attributes="noinline nounwind")
    with fn.loop("0", str(LANES)) as row:
        source = pointer(fn, "%pairs", row.index, 64)
        pairs = [load(fn, "i32", LANES, pointer(fn, source, str(2 * p * REGISTER), 1)) for p in range(form.parts)]
        target = pointer(fn, "%numbers", fn.let(f"mul i64 {row.index}, %row_bytes"), 1)
        for value, place in zip(
            joined(fn, pairs, "%raw"), (target, pointer(fn, target, "%second_bytes", 1)), strict=True
        ):
            store(fn, "float", LANES, value, place)
    fn.do("ret void")
    module.add(fn)
    return name
