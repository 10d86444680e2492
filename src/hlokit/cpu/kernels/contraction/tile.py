"""The inner kernel of matrix products: a tile of the result in registers, summed over a run of the inner axis."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.elements import broadcast, constant_mask, load, mangled, size_of, store
from hlokit.cpu.llvm import Function, Module, vector
from hlokit.cpu.target import Target

_AHEAD = 12
"""Rows of an unpacked rhs that are asked for before they are used."""
_SHORT_ROW = 512
"""Bytes of a row of lhs that the machine's own prefetching does not see as a row."""


@dataclass(frozen=True)
class Arithmetic:
    """How a product computes.

    name       float, int; bf16, i16, i8: those of `group` products at a time, their factors side by side in 32 bits;
               s8, u8: so in matrix registers
    total      register type of the sums
    packed     register type of a factor in packed panels
    group      how many steps of the inner axis one multiplication takes
    is_fused   whether the machine has a fused multiply-add
    is_matrix  whether tiles are in matrix registers
    """

    name: str
    total: str
    packed: str
    group: int = 1
    is_complex: bool = False
    is_fused: bool = True
    is_matrix: bool = False

    @property
    def parts(self) -> int:
        return 2 if self.is_complex else 1

    @property
    def unit_bytes(self) -> int:
        """Bytes of what one multiplication takes of one row or column."""
        return size_of(self.packed) * self.group * self.parts

    @property
    def total_bytes(self) -> int:
        return size_of(self.total) * self.parts

    def lanes(self, target: Target) -> int:
        return target.vector_bytes // size_of(self.total)

    def multiplied(self, fn: Function, x: str, y: str, total: str, lanes: int) -> str:
        """total + x * y, `lanes` of them; of groups x is 32 bits a lane, y the packed elements."""
        type = vector(self.total, lanes)
        if self.name == "float" and self.is_fused:
            name = f"llvm.fma.{mangled(self.total, lanes)}"
            return fn.let(f"call {type} @{name}({type} {x}, {type} {y}, {type} {total})")
        if self.group == 1:
            multiply, add = ("fmul", "fadd") if self.name == "float" else ("mul", "add")
            return fn.let(f"{add} {type} {total}, {fn.let(f'{multiply} {type} {x}, {y}')}")
        operand = vector("bfloat" if self.name == "bf16" else self.packed, lanes * self.group)
        x = fn.let(f"bitcast {vector('i32', lanes)} {x} to {operand}")
        if self.name == "bf16":
            y = fn.let(f"bitcast {vector('i16', lanes * 2)} {y} to {operand}")
        name = _GROUPED[self.name].format(lanes * 32)
        return fn.let(f"call {type} @{name}({type} {total}, {operand} {x}, {operand} {y})")


def register_tile(arithmetic: Arithmetic, target: Target) -> tuple[int, int]:
    """Rows and vectors of columns of the largest tile that the registers hold."""
    has_32 = target.vector_bytes == 64 or target.arch == "aarch64"
    if arithmetic.is_complex:
        return (6, 2) if has_32 else (2, 2)
    if arithmetic.name == "int" or not arithmetic.is_fused:
        return (12, 2) if has_32 else (5, 2)
    return (14, 2) if has_32 else (6, 2)


@dataclass(frozen=True)
class Tile:
    """A tile's code; equal ones are one function.

    rows, vectors   its size; vectors have `lanes` columns
    row, step       bytes from a row of lhs to the next, and from a unit of the inner axis to the next
    columns         how many there are of result and unpacked rhs; those of the vectors, or fewer
    is_packed       rhs comes in panels, which are full in any case
    """

    arithmetic: Arithmetic
    lanes: int
    rows: int
    vectors: int
    row: int
    step: int
    columns: int
    is_packed: bool

    @property
    def name(self) -> str:
        a = self.arithmetic
        kind = f"{a.name}_{a.total}{'_complex' if a.is_complex else ''}{'' if a.is_fused else '_unfused'}"
        packed = "packed" if self.is_packed else "plain"
        kind += "_matrix" if a.is_matrix else ""
        return f"tile_{kind}_{self.rows}x{self.vectors}x{self.lanes}_{self.row}_{self.step}_{self.columns}_{packed}"

    def enter(self, fn: Function, module: Module) -> None:
        """What a row of tiles begins with."""

    def written(self) -> Function:
        return _Writer(self).written()

    def call(
        self,
        fn: Function,
        module: Module,
        pointers: tuple[str, str, str],
        steps: str,
        strides: tuple[int, int],
        first: str,
    ) -> None:
        """Sums `steps` units; `pointers` to lhs, rhs, sums; `strides`: bytes from row to row of rhs and of the sums.

        The sums start from 0 if `first` (i1) holds, else from what `out` has.
        """
        if self.name not in module.functions:
            module.add(self.written())
        shown = ", ".join([*(f"ptr {p}" for p in pointers), f"i64 {steps}", *(f"i64 {s}" for s in strides)])
        fn.do(f"call void @{self.name}({shown}, i1 {first})")


class _Writer:
    """Writes a tile's function."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        self.arithmetic = tile.arithmetic
        self.total = vector(tile.arithmetic.total, tile.lanes)
        parameters = [("ptr noalias readonly", "lhs"), ("ptr noalias readonly", "rhs"), ("ptr noalias", "out")]
        parameters += [("i64", "steps"), ("i64", "row_bytes"), ("i64", "out_bytes"), ("i1", "first")]
        self.fn = Function(tile.name, parameters, attributes="noinline nounwind")

    def written(self) -> Function:
        fn = self.fn
        rhs = "%rhs"
        sums = ["zeroinitializer"] * len(self._places())
        if self.arithmetic.name == "i8":
            sums, rhs = self._corrections(rhs)
        self._prefetch()
        if not self.tile.is_packed and self.tile.vectors > 2:
            fn.do(f"%ahead = mul i64 %row_bytes, {_AHEAD}")
        pointers = [("ptr", "%lhs"), ("ptr", rhs)]
        # not unrolled: a step is so long that the loop costs nothing, and compiles four times faster
        with fn.loop("0", "%steps", 1, [*pointers, *((self.total, s) for s in sums)]) as loop:
            loop.next = self._step(*loop.carried)
        self._finish(self._with_former(loop.results[2:]))
        return fn

    def _places(self) -> list[tuple[int, int, int]]:
        """Row, vector and part of each accumulator."""
        t = self.tile
        return [(r, v, p) for r in range(t.rows) for v in range(t.vectors) for p in range(self.arithmetic.parts)]

    def _at(self, base: str, offset: int) -> str:
        return self.fn.let(f"getelementptr i8, ptr {base}, i64 {offset}", "p") if offset else base

    def _row_of(self, base: str, row: int) -> str:
        if row == 0:
            return base
        offset = self.fn.let(f"mul i64 %out_bytes, {row}")
        return self.fn.let(f"getelementptr i8, ptr {base}, i64 {offset}", "p")

    def _mask(self, vector_number: int) -> str | None:
        """The valid columns of an edge, as a constant."""
        t = self.tile
        return constant_mask(t.columns - vector_number * t.lanes, t.lanes)

    def _out_address(self, row_pointer: str, v: int, p: int) -> str:
        size = size_of(self.arithmetic.total) * self.tile.lanes
        return self._at(row_pointer, (v * self.arithmetic.parts + p) * size)

    def _prefetch(self) -> None:
        """Asks for the result's lines; where rows of lhs are so short that memory holds the tile up, for the next."""
        t, a = self.tile, self.arithmetic
        if 64 <= t.row <= _SHORT_ROW:
            lines = [
                self._at("%lhs", (t.rows + r) * t.row + line) for r in range(t.rows) for line in range(0, t.row, 64)
            ]
            kind = "i32 0, i32 2"
        else:
            size = t.vectors * a.parts * t.lanes * size_of(a.total)
            rows = [self._row_of("%out", r) for r in range(t.rows)]
            lines = [self._at(row, line) for row in rows for line in range(0, size, 64)]
            kind = "i32 1, i32 3"
        for line in lines:
            self.fn.do(f"call void @llvm.prefetch.p0(ptr {line}, {kind}, i32 1)")

    def _with_former(self, sums: list[str]) -> list[str]:
        """The sums, and what `out` has added to them unless this is the first part of the inner axis."""
        fn, total = self.fn, self.total
        before = fn.block
        former, end = fn.new_block("former"), fn.new_block("all")
        fn.branch("%first", end, former)
        fn.start(former)
        add = "fadd" if self.arithmetic.total in ("float", "double") else "add"
        added: list[str] = []
        row = "%out"
        for value, (r, v, p) in zip(sums, self._places(), strict=True):
            if v == 0 and p == 0:
                row = self._row_of("%out", r)
            found = load(fn, self.arithmetic.total, self.tile.lanes, self._out_address(row, v, p), self._mask(v))
            added.append(fn.let(f"{add} {total} {value}, {found}"))
        fn.jump(end)
        fn.start(end)
        both = zip(sums, added, strict=True)
        return [fn.let(f"phi {total} [ {alone}, %{before} ], [ {more}, %{former} ]") for alone, more in both]

    def _corrections(self, rhs: str) -> tuple[list[str], str]:
        """What stands before an i8 panel: -128 times each column's sum, for lhs has 128 added to its elements."""
        t, fn = self.tile, self.fn
        size = 4 * t.lanes
        corrections = [load(fn, "i32", t.lanes, self._at(rhs, v * size)) for v in range(t.vectors)]
        return [corrections[v] for _, v, _ in self._places()], self._at(rhs, t.vectors * size)

    def _step(self, lhs: str, rhs: str, *carried: str) -> list[str]:
        fn, t, sums = self.fn, self.tile, list(carried)
        right = self._right(rhs)
        for r in range(t.rows):
            self._row(sums, r, self._at(lhs, r * t.row), right)
        return [self._at(lhs, t.step), fn.let(f"getelementptr i8, ptr {rhs}, i64 %row_bytes", "p"), *sums]

    def _right(self, rhs: str) -> list[str]:
        """The vectors of one row of rhs; for complex numbers their parts in turn."""
        t, a = self.tile, self.arithmetic
        count, lanes = t.vectors * a.parts, t.lanes * a.group
        size = lanes * size_of(a.packed)
        masks = [None if t.is_packed else self._mask(v // a.parts) for v in range(count)]
        if not t.is_packed and count > 2:
            ahead = self.fn.let(f"getelementptr i8, ptr {rhs}, i64 %ahead", "p")
            for line in range(0, count * size, 64):
                self.fn.do(f"call void @llvm.prefetch.p0(ptr {self._at(ahead, line)}, i32 0, i32 3, i32 1)")
        return [load(self.fn, a.packed, lanes, self._at(rhs, v * size), masks[v]) for v in range(count)]

    def _left(self, address: str) -> str:
        """One unit of lhs in every lane."""
        t, a, fn = self.tile, self.arithmetic, self.fn
        if a.group == 1:
            return broadcast(fn, load(fn, a.packed, 1, address), a.packed, t.lanes)
        unit = fn.let(f"load i32, ptr {address}, align {size_of(a.packed)}")
        return broadcast(fn, unit, "i32", t.lanes)

    def _row(self, sums: list[str], r: int, address: str, right: list[str]) -> None:
        t, a = self.tile, self.arithmetic
        left = self._left(address)
        if not a.is_complex:
            for v in range(t.vectors):
                sums[r * t.vectors + v] = self._times(left, right[v], sums[r * t.vectors + v])
            return
        imaginary = self._left(self._at(address, size_of(a.packed)))
        negative = self.fn.let(f"fneg {self.total} {imaginary}")
        for v in range(t.vectors):
            at = (r * t.vectors + v) * 2
            real = self._times(left, right[2 * v], sums[at])
            sums[at] = self._times(negative, right[2 * v + 1], real)
            other = self._times(left, right[2 * v + 1], sums[at + 1])
            sums[at + 1] = self._times(imaginary, right[2 * v], other)

    def _times(self, x: str, y: str, total: str) -> str:
        return self.arithmetic.multiplied(self.fn, x, y, total, self.tile.lanes)

    def _finish(self, sums: list[str]) -> None:
        fn, t = self.fn, self.tile
        row_pointer = "%out"
        for value, (r, v, p) in zip(sums, self._places(), strict=True):
            if v == 0 and p == 0:
                row_pointer = self._row_of("%out", r)
            address = self._out_address(row_pointer, v, p)
            store(fn, self.arithmetic.total, t.lanes, value, address, self._mask(v))
        fn.do("ret void")


_GROUPED = {
    "bf16": "llvm.x86.avx512bf16.dpbf16ps.{}",
    "i16": "llvm.x86.avx512.vpdpwssd.{}",
    "i8": "llvm.x86.avx512.vpdpbusd.{}",
}
"""vpdpbusd takes bytes without sign first, with sign second."""
