"""The micro-kernel in vectors: a tile of sums in registers. Its tiles of products; convolution_tile.py has windows'."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic, outer_product
from hlokit.cpu.kernels.contraction.elements import lanes_up_to
from hlokit.cpu.llvm import I32, Definition, Function, IfElse, Index, Module, Pointer, Value


@dataclass(frozen=True)
class Steps:
    """A loop over products: how many, and bytes from one step's factors to the next. `unroll`: steps in a row.

    rest   lanes that one more step has, fewer than a vector; None: there is no such step
    each   writes what goes with the steps that begin at a number
    """

    count: Index | int
    lhs: Index | int
    rhs: Index | int
    unroll: int = 1
    rest: Index | None = None
    each: Callable[[Index], None] | None = None


@dataclass(frozen=True)
class VectorTile:
    """Sums in registers, rows x vectors: a factor of lhs in all lanes times a vector of rhs.

    rows        bytes from the first row's factors of lhs to those of each row
    vectors     side by side, of `lanes` columns each, of which `columns` exist in rhs; None: all
    is_paired   lhs has vectors, too, each multiplied by one of rhs lane by lane: columns have rows of their own
    is_along    lhs has one vector a row, multiplied by each of rhs lane by lane: sums lie along the inner axis
    apart       elements from one vector of rhs to the next; 0: they are neighbours
    ahead       bytes from each row of rhs to what is prefetched with it, `prefetched` lines
    """

    arithmetic: Arithmetic
    lanes: int
    rows: tuple[int, ...]
    vectors: int
    columns: int | None = None
    is_paired: bool = False
    is_along: bool = False
    apart: int = 0
    ahead: Index | None = None
    prefetched: int = 0

    @property
    def places(self) -> list[tuple[int, int, int]]:
        """Row, vector and part of each sum."""
        parts = range(self.arithmetic.parts)
        return [(r, v, p) for r in range(len(self.rows)) for v in range(self.vectors) for p in parts]

    def zeros(self, fn: Function) -> list[Value]:
        """The sums of nothing."""
        return [fn.constant(0, self.arithmetic.total.of(self.lanes))] * len(self.places)

    def mask(self, fn: Function, vector: int) -> Value | None:
        """The columns that a vector of an edge has."""
        return None if self.columns is None else lanes_up_to(fn, self.columns - vector * self.lanes, self.lanes)

    def summed(self, loops: Sequence[Steps], lhs: Pointer, rhs: Pointer, sums: Sequence[Value]) -> list[Value]:
        """The sums with the products of all steps of these loops, the outermost first."""
        if not loops:
            return self._products(lhs, rhs, sums)
        now, *inner = loops
        if now.rest is not None:
            whole = self.summed([replace(now, rest=None), *inner], lhs, rhs, sums)
            mask = now.rest.first_lanes(self.lanes)
            return self._products(lhs + now.lhs * now.count, rhs + now.rhs * now.count, whole, mask)

        def several(lhs: Pointer, rhs: Pointer, sums: Sequence[Value]) -> list[Value]:
            for i in range(now.unroll):
                sums = self.summed(inner, lhs + now.lhs * i, rhs + now.rhs * i, sums)
            return list(sums)

        if now.count == now.unroll:
            return several(lhs, rhs, sums)
        with lhs.fn.loop(0, now.count, now.unroll, [*sums, lhs, rhs]) as loop:
            *former, left, right = loop.carried
            if now.each is not None:
                now.each(loop.index)
            loop.next = several(left, right, former)
            loop.next += [left + now.lhs * now.unroll, right + now.rhs * now.unroll]
        return loop.results[:-2]

    def _products(self, lhs: Pointer, rhs: Pointer, sums: Sequence[Value], mask: Value | None = None) -> list[Value]:
        """The sums with one product each; `mask`: in these lanes along the inner axis."""
        right, rows = self._right(rhs, mask), [lhs + row for row in self.rows]
        multiplied = self.arithmetic.multiplied
        if not self.is_paired:
            return outer_product(multiplied, (self._left(row, mask) for row in rows), right, sums)
        former, found = iter(sums), list[Value]()
        for row in rows:
            left = [row[v * self.lanes].load(self.lanes) for v in range(self.vectors)]
            found += [multiplied(x, y, next(former)) for x, (y,) in zip(left, right, strict=True)]
        return found

    def _right(self, rhs: Pointer, mask: Value | None) -> list[list[Value]]:
        """The vectors of one row of rhs, by part."""
        a = self.arithmetic
        count, lanes = self.vectors * a.parts, self.lanes * a.group
        if self.ahead is not None:
            for line in range(self.prefetched):
                (rhs + (self.ahead + line * LINE_BYTES)).prefetch(2)
        masks = [self.mask(rhs.fn, v // a.parts) if mask is None else mask for v in range(count)]
        vectors = [rhs[v * (self.apart or lanes)].load(lanes, masks[v]) for v in range(count)]
        return [vectors[v : v + a.parts] for v in range(0, count, a.parts)]

    def _left(self, address: Pointer, mask: Value | None) -> list[Value]:
        """One unit of lhs in every lane, or a vector of them, by part."""
        a = self.arithmetic
        if self.is_along:
            return [address.load(self.lanes, mask)]
        unit = address if a.group == 1 else address.to(I32, a.packed.bytes)
        return [unit[part].load().splat(self.lanes) for part in range(a.parts)]


@dataclass(frozen=True)
class Prefetch:
    """Memory that a tile prefetches, a little with each step: from `pointer` on, with step i the lines from
    i % PREFETCHED_STEPS * row + i // PREFETCHED_STEPS * run (bytes) on.
    """

    pointer: Pointer
    row: Index
    run: Index


@dataclass(frozen=True)
class Tile:
    """A tile's code; equal ones are one function.

    rows, vectors   its size; vectors have `lanes` columns
    row, step       bytes from a row of lhs to the next, and from a unit of the inner axis to the next
    columns         how many there are of result and unpacked rhs; those of the vectors, or fewer
    is_packed       rhs comes in panels, which are full in any case
    prefetched      lines that each step prefetches
    """

    arithmetic: Arithmetic
    lanes: int
    rows: int
    vectors: int
    row: int
    step: int
    columns: int
    is_packed: bool
    prefetched: int = 0

    @property
    def name(self) -> str:
        a = self.arithmetic
        kind = f"{a.name}_{a.total}{'_complex' if a.is_complex else ''}{'' if a.is_fused else '_unfused'}"
        packed = "packed" if self.is_packed else "plain"
        kind += "_matrix" if a.is_matrix else ""
        packed += f"_ahead{self.prefetched}" if self.prefetched else ""
        return f"tile_{kind}_{self.rows}x{self.vectors}x{self.lanes}_{self.row}_{self.step}_{self.columns}_{packed}"

    def enter(self, fn: Function, module: Module) -> None:
        """Writes what a row of tiles begins with."""

    def written(self) -> Function:
        return _ProductTile(self).written()

    def call(
        self,
        module: Module,
        pointers: tuple[Pointer, Pointer, Pointer],
        steps: Index,
        strides: tuple[int, int],
        first: Value,
        ahead: Prefetch | None = None,
    ) -> None:
        """Sums `steps` units; `pointers` to lhs, rhs, sums; `strides`: bytes from row to row of rhs and of the sums.

        The sums start from 0 if `first` (i1) holds, else from what `out` has. `ahead` is given if lines are prefetched.
        """
        if self.name not in module.functions:
            module.add(_definition(self))
        fn = steps.fn
        more = (ahead.pointer, ahead.row, ahead.run) if ahead is not None else ()
        fn.call(self.name, *pointers, steps, *map(fn.index, strides), first, *more)


@lru_cache(256)
def _definition(tile: Tile) -> Definition:
    """Tiles are the same in many programs."""
    return tile.written().definition()


class TileFunction:
    """The function of a tile: void f(ptr lhs, ptr rhs, ptr out, i64 steps, i64 row_bytes, i64 out_bytes, i1 first).

    One that prefetches takes ptr ahead, i64 ahead_row, i64 ahead_run as well.
    """

    def __init__(self, tile: Tile) -> None:
        self.tile, self.arithmetic = tile, tile.arithmetic
        parameters = [("ptr noalias readonly", "lhs"), ("ptr noalias readonly", "rhs"), ("ptr noalias", "out")]
        parameters += [("i64", "steps"), ("i64", "row_bytes"), ("i64", "out_bytes"), ("i1", "first")]
        if tile.prefetched:
            parameters += [("ptr", "ahead"), ("i64", "ahead_row"), ("i64", "ahead_run")]
        self.fn = fn = Function(tile.name, parameters, attributes="noinline nounwind")
        self.lhs, self.rhs = (fn.pointer(name, tile.arithmetic.packed) for name in ("lhs", "rhs"))
        self.out, self.first = fn.pointer("out", tile.arithmetic.total), fn.argument("first")
        self.steps, self.row_bytes, self.out_bytes = map(fn.index_argument, ("steps", "row_bytes", "out_bytes"))


class _ProductTile(TileFunction):
    """A tile whose sums come from `out`, or from 0, and go there."""

    def written(self) -> Function:
        fn, t, rhs = self.fn, self.tile, self.rhs
        self.kernel = VectorTile(t.arithmetic, t.lanes, tuple(r * t.row for r in range(t.rows)), t.vectors, t.columns)
        sums = self.kernel.zeros(fn)
        if self.arithmetic.name == "i8":
            sums, rhs = self._corrections()
        self._prefetch_result()
        kernel = replace(self.kernel, columns=None) if t.is_packed else self.kernel
        each = self._prefetch_ahead if t.prefetched else None
        # not unrolled: a step is so long that the loop costs nothing, and compiles four times faster
        sums = kernel.summed([Steps(self.steps, t.step, self.row_bytes, each=each)], self.lhs, rhs, sums)
        for value, (address, mask) in zip(self._with_former(sums), self._outputs(), strict=True):
            address.store(value, mask)
        fn.returns()
        return fn

    def _outputs(self) -> list[tuple[Pointer, Value | None]]:
        """Where each sum goes, and which of its columns."""
        a, size = self.arithmetic, self.arithmetic.total.bytes * self.tile.lanes
        rows = [self.out + self.out_bytes * r for r in range(self.tile.rows)]
        kernel = self.kernel
        return [(rows[r] + (v * a.parts + p) * size, kernel.mask(self.fn, v)) for r, v, p in kernel.places]

    def _prefetch_result(self) -> None:
        """Prefetches the result's lines."""
        t = self.tile
        for r in range(t.rows):
            row = self.out + self.out_bytes * r
            for line in range(0, t.vectors * t.lanes * self.arithmetic.total_bytes, LINE_BYTES):
                (row + line).prefetch(is_write=True)

    def _prefetch_ahead(self, step: Index) -> None:
        """Prefetches what goes with a step: all at once would hold up what the tile itself reads."""
        fn, several = self.fn, costs.PREFETCHED_STEPS
        row, run = (fn.index_argument(name) for name in ("ahead_row", "ahead_run"))
        place = fn.pointer("ahead") + (step % several * row + step // several * run)
        for line in range(self.tile.prefetched):
            (place + line * LINE_BYTES).prefetch(2)

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
        return [corrections[v] for _, v, _ in self.kernel.places], self.rhs + 4 * t.lanes * t.vectors
