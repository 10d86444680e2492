"""The micro-kernel of matrix products: a tile of the result in registers, summed over a run of the inner axis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, outer_product
from hlokit.cpu.kernels.contraction.elements import lanes_up_to
from hlokit.cpu.llvm import I32, Definition, Function, IfElse, Index, Module, Pointer, Value


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
        """Writes what a row of tiles begins with."""

    def written(self) -> Function:
        return _VectorTile(self).written()

    def call(
        self,
        module: Module,
        pointers: tuple[Pointer, Pointer, Pointer],
        steps: Index,
        strides: tuple[int, int],
        first: Value,
    ) -> None:
        """Sums `steps` units; `pointers` to lhs, rhs, sums; `strides`: bytes from row to row of rhs and of the sums.

        The sums start from 0 if `first` (i1) holds, else from what `out` has.
        """
        if self.name not in module.functions:
            module.add(_definition(self))
        fn = steps.fn
        fn.call(self.name, *pointers, steps, *map(fn.index, strides), first)


@lru_cache(256)
def _definition(tile: Tile) -> Definition:
    """Tiles are the same in many programs."""
    return tile.written().definition()


class TileFunction:
    """The function of a tile: void f(ptr lhs, ptr rhs, ptr out, i64 steps, i64 row_bytes, i64 out_bytes, i1 first)."""

    def __init__(self, tile: Tile) -> None:
        self.tile, self.arithmetic = tile, tile.arithmetic
        parameters = [("ptr noalias readonly", "lhs"), ("ptr noalias readonly", "rhs"), ("ptr noalias", "out")]
        parameters += [("i64", "steps"), ("i64", "row_bytes"), ("i64", "out_bytes"), ("i1", "first")]
        self.fn = fn = Function(tile.name, parameters, attributes="noinline nounwind")
        self.lhs, self.rhs = (fn.pointer(name, tile.arithmetic.packed) for name in ("lhs", "rhs"))
        self.out, self.first = fn.pointer("out", tile.arithmetic.total), fn.argument("first")
        self.steps, self.row_bytes, self.out_bytes = map(fn.index_argument, ("steps", "row_bytes", "out_bytes"))


class _VectorTile(TileFunction):
    """Sums in vectors of columns: a factor of lhs in all lanes times a vector of rhs."""

    def written(self) -> Function:
        fn, rhs = self.fn, self.rhs
        sums = [fn.constant(0, self.arithmetic.total.of(self.tile.lanes))] * len(self._places())
        if self.arithmetic.name == "i8":
            sums, rhs = self._corrections()
        self._prefetch()
        # not unrolled: a step is so long that the loop costs nothing, and compiles four times faster
        with fn.loop(0, self.steps, 1, [self.lhs, rhs, *sums]) as loop:
            loop.next = self._step(*loop.carried)
        for value, (address, mask) in zip(self._with_former(loop.results[2:]), self._outputs(), strict=True):
            address.store(value, mask)
        fn.returns()
        return fn

    def _places(self) -> list[tuple[int, int, int]]:
        """Row, vector and part of each accumulator."""
        t = self.tile
        return [(r, v, p) for r in range(t.rows) for v in range(t.vectors) for p in range(self.arithmetic.parts)]

    def _mask(self, vector: int) -> Value | None:
        """The columns that a vector of an edge has."""
        t = self.tile
        return lanes_up_to(self.fn, t.columns - vector * t.lanes, t.lanes)

    def _outputs(self) -> list[tuple[Pointer, Value | None]]:
        """Where each sum goes, and which of its columns."""
        a, size = self.arithmetic, self.arithmetic.total.bytes * self.tile.lanes
        rows = [self.out + self.out_bytes * r for r in range(self.tile.rows)]
        return [(rows[r] + (v * a.parts + p) * size, self._mask(v)) for r, v, p in self._places()]

    def _prefetch(self) -> None:
        """Prefetches the result's lines; where rows of lhs are short and memory holds the tile up, the next ones."""
        t, a = self.tile, self.arithmetic
        if 64 <= t.row <= costs.SHORT_ROW_BYTES:
            for r in range(t.rows):
                for line in range(0, t.row, 64):
                    (self.lhs + ((t.rows + r) * t.row + line)).prefetch(2)
            return
        for r in range(t.rows):
            row = self.out + self.out_bytes * r
            for line in range(0, t.vectors * t.lanes * a.total_bytes, 64):
                (row + line).prefetch(is_write=True)

    def _with_former(self, sums: list[Value]) -> list[Value]:
        """The sums, and what `out` has added to them unless this is the first part of the inner axis."""
        choice = IfElse(self.fn, self.first)
        choice.otherwise(*sums)
        former = [address.load(self.tile.lanes, mask) for address, mask in self._outputs()]
        return choice.end(*(value + before for value, before in zip(sums, former, strict=True)))

    def _corrections(self) -> tuple[list[Value], Pointer]:
        """The head of an i8 panel: -128 times each column's sum, for lhs has 128 added to its elements."""
        t, head = self.tile, self.rhs.to(I32)
        corrections = [head[v * t.lanes].load(t.lanes) for v in range(t.vectors)]
        return [corrections[v] for _, v, _ in self._places()], self.rhs + 4 * t.lanes * t.vectors

    def _step(self, lhs: Pointer, rhs: Pointer, *carried: Value) -> list[Value]:
        t, right = self.tile, self._right(rhs)
        left = (self._left(lhs + r * t.row) for r in range(t.rows))
        sums = outer_product(self.arithmetic.multiplied, left, right, carried)
        return [lhs + t.step, rhs + self.row_bytes, *sums]

    def _right(self, rhs: Pointer) -> list[list[Value]]:
        """The vectors of one row of rhs, by part."""
        t, a = self.tile, self.arithmetic
        count, lanes = t.vectors * a.parts, t.lanes * a.group
        masks = [None if t.is_packed else self._mask(v // a.parts) for v in range(count)]
        vectors = [rhs[v * lanes].load(lanes, mask) for v, mask in enumerate(masks)]
        return [vectors[v : v + a.parts] for v in range(0, count, a.parts)]

    def _left(self, address: Pointer) -> list[Value]:
        """One unit of lhs in every lane, by part."""
        a = self.arithmetic
        unit = address if a.group == 1 else address.to(I32, a.packed.bytes)
        return [unit[part].load().splat(self.tile.lanes) for part in range(a.parts)]


@dataclass(frozen=True)
class AxpyTile(Tile):
    """A tile of few rows and many columns, whose rhs is read once, in rows as they lie in memory.

    Its sums stay in the cache, not in registers: several rows of rhs times their factors are added to them at a time
    (BLIS: axpyf). A walk down few columns, with sums in registers, gets half the memory's bandwidth.
    """

    @property
    def name(self) -> str:
        return f"axpy_{super().name}"

    def written(self) -> Function:
        return _AxpyTile(self).written()


class _AxpyTile(TileFunction):
    def written(self) -> Function:
        fn, t = self.fn, self.tile
        together = costs.STREAMS
        with fn.when(self.first):
            for r in range(t.rows):
                fn.memset(self.out + self.out_bytes * r, 0, t.columns * self.arithmetic.total.bytes)
        whole = self.steps & -together
        with fn.loop(0, whole, together, [self.lhs, self.rhs]) as loop:
            lhs, rhs = loop.carried
            loop.next = self._add(lhs, rhs, together)
        with fn.loop(whole, self.steps, 1, loop.results) as loop:
            lhs, rhs = loop.carried
            loop.next = self._add(lhs, rhs, 1)
        fn.returns()
        return fn

    def _add(self, lhs: Pointer, rhs: Pointer, count: int) -> list[Value]:
        """Adds the products of so many steps to all sums; gives the operands' next places."""
        fn, t, lanes = self.fn, self.tile, self.tile.lanes
        rows = range(t.rows)
        factors = [[(lhs + (r * t.row + u * t.step)).load().splat(lanes) for u in range(count)] for r in rows]
        rights = [rhs + self.row_bytes * u for u in range(count)]
        outs = [self.out + self.out_bytes * r for r in rows]

        def columns(first: Index, mask: Value | None) -> None:
            right = [place[first].load(lanes, mask) for place in rights]
            for out, left in zip(outs, factors, strict=True):
                total = left[0] * right[0]
                for x, y in zip(left[1:], right[1:], strict=True):
                    total = self.arithmetic.multiplied(x, y, total)
                out[first].store(out[first].load(lanes, mask) + total, mask)

        whole = t.columns // lanes * lanes
        with fn.loop(0, whole, lanes) as column:
            columns(column.index, None)
        if whole < t.columns:
            columns(fn.index(whole), lanes_up_to(fn, t.columns - whole, lanes))
        return [lhs + t.step * count, rhs + self.row_bytes * count]
