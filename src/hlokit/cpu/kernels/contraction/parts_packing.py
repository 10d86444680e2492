"""Packing for products by bf16x3 splitting: a product's operands as panels (see parts_tile)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import FLOAT, AmxFactors
from hlokit.cpu.kernels.contraction.parts_tile import WIDTH
from hlokit.cpu.kernels.contraction.space import Axis
from hlokit.cpu.kernels.contraction.split import (
    LANES,
    RANGE_BYTES,
    has_raw,
    packed,
    store_no_range,
    store_range,
)
from hlokit.cpu.kernels.routine import up
from hlokit.cpu.llvm import (
    I1,
    I8,
    I16,
    I32,
    Definition,
    Function,
    Index,
    Module,
    Pointer,
    Repeat,
    Value,
    transposed,
)

_PART_BYTES = 2048


@dataclass(frozen=True)
class Side:
    """One operand of a product: its role, its axes, and which of them lies along memory."""

    factors: AmxFactors
    role: str
    free: Axis
    inner: Axis

    @property
    def strides(self) -> tuple[int, int]:
        """Elements from one index to the next of the free and the inner axis, within their innermost dimensions."""
        free, inner = (axis.steps(self.role)[-1][1] if axis.steps(self.role) else 0 for axis in (self.free, self.inner))
        return free, inner

    @property
    def is_regular(self) -> bool:
        """Whether blocks of the operand are rows of vectors, all as far apart."""
        return (
            1 in self.strides
            and _comes_in(self.free, self.role, LANES)
            and _comes_in(self.inner, self.role, self.factors.depth)
        )

    @property
    def is_along(self) -> bool:
        """Whether vectors along memory are lanes of a panel; else they cross them."""
        free, inner = self.strides
        return (free if self.role == "rhs" else inner) == 1

    @property
    def goes_inward(self) -> bool:
        """Whether vectors along memory go along the inner axis."""
        return self.is_along == (self.role == "lhs")

    @property
    def is_whole(self) -> bool:
        """Whether every block lies in memory as it is packed: none is cut off, none goes across."""
        return self.is_along and self.free.size % LANES == 0 and self.inner.size % self.factors.depth == 0


def _comes_in(axis: Axis, role: str, unit: int) -> bool:
    steps = axis.steps(role)
    return len(steps) <= 1 or steps[-1][0] % unit == 0


@dataclass(frozen=True)
class _Way:
    """The way a panel is packed: what its function's text depends on, but for the strides."""

    factors: AmxFactors
    is_along: bool
    is_whole: bool
    goes_inward: bool

    @property
    def name(self) -> str:
        if self.is_whole:
            return f"parts_panel_{self.factors.name}"
        return f"parts_panel_{self.factors.name}_{'along' if self.is_along else 'across'}_{int(self.goes_inward)}"


def packer(module: Module, side: Side) -> tuple[str, list[int]]:
    """The function that packs a panel, and its last arguments.

    void f(ptr base, i64 place, i64 first, i64 count, i64 begin, i64 steps, ptr panel, ptr range, ...): `count` free
    indices from `first` on, `steps` of the inner axis from `begin` on, of the array whose element 0 is number `place`
    of `base`. What completes the last block is 0. `range` is written if there are parts. Of axes with one stride each
    the function is the same for all, and takes elements from one free index to the next, from one step of the inner
    axis, and from one vector of memory.
    """
    way = _Way(side.factors, side.is_along, side.is_whole, side.goes_inward and not side.is_whole)
    free, inner = side.strides
    strides = [free, inner, free if side.goes_inward else inner]
    if None not in (side.free.stride(side.role), side.inner.stride(side.role)):
        for definition in _panel_functions(way):
            module.add(definition)
        return way.name, strides
    fn = Function("", _PARAMETERS, attributes="noinline nounwind", is_cold=side.inner.size >= costs.LONG_PANEL)
    _PanelPacker(fn, module, way, [fn.index(stride) for stride in strides], side).write()
    return module.add_by_text(fn, "parts_panel"), []


_PARAMETERS = [
    ("ptr", "base"),
    *(("i64", name) for name in ("place", "first", "count", "begin", "steps")),
    ("ptr", "panel"),
    ("ptr", "range"),
]


@cache
def _panel_functions(way: _Way) -> list[Definition]:
    """The function for axes with one stride each, and those that it calls."""
    module, strides = Module(), ("free", "inner", "row")
    parameters = [*_PARAMETERS, *(("i64", name) for name in strides)]
    shared = _shared(way.factors) if way.is_whole else way.name
    fn = Function(way.name, parameters, attributes="noinline nounwind", shared=shared)
    _PanelPacker(fn, module, way, [fn.index_argument(name) for name in strides]).write()
    module.add(fn)
    return list(module.functions.values())


class _PanelPacker:
    """Writes such a function. `side`: where axes have several strides."""

    def __init__(
        self, fn: Function, module: Module, way: _Way, strides: Sequence[Index], side: Side | None = None
    ) -> None:
        self.fn, self.module, self.way, self.factors, self.side = fn, module, way, way.factors, side
        self.bytes = way.factors.memory.bytes
        self.bounds = fn.local(I16, 64, 64)
        self.free, self.inner, row = strides
        self.row, self.second = self._times(row, self.bytes), self._times(self.inner, LANES * self.bytes)
        self.steps = fn.index_argument("steps")

    def _times(self, number: Index, factor: int) -> Index:
        return number * factor if number.number is None else self.fn.index(number.number * factor)

    def _place(self, role: str, index: Index) -> Index:
        """The place of an index of an axis, in elements."""
        if self.side is not None:
            axis = self.side.free if role == "free" else self.side.inner
            return axis.offset(self.side.role, index)
        return index * (self.free if role == "free" else self.inner)

    def write(self) -> None:
        """The body: a panel in which numbers have no parts is packed once more, whole."""
        fn, factors = self.fn, self.factors
        if factors.parts == 1:
            self._panel(fn.constant(False, I1))
            fn.returns()
            return
        again = Repeat(fn, [fn.constant(False, I1)])
        (is_raw,) = again.values
        store_no_range(self.bounds)
        self._panel(is_raw)
        fn.return_if(is_raw)
        fn.call(_range(self.module, factors), self.bounds, fn.pointer("range"))
        again.while_(has_raw(fn.pointer("range")), fn.constant(True, I1))
        fn.returns()

    def _panel(self, is_raw: Value) -> None:
        fn, factors, way = self.fn, self.factors, self.way
        count = fn.index_argument("count")
        full = self.steps // factors.depth if way.is_along else fn.index(0)
        with fn.loop(0, count, LANES) as half:
            left = count - half.index
            base = fn.index_argument("place") + self._place("free", fn.index_argument("first") + half.index)
            panel = fn.pointer("panel") + half.index * 64
            whole = full
            if way.is_along and not way.is_whole:
                whole = fn.index((left >= LANES).select(full, 0))
            if way.is_along:
                self._whole(base, panel, whole, is_raw)
            if not way.is_whole:
                self._others(base, panel, whole, left, is_raw)

    def _others(self, base: Index, panel: Pointer, whole: Index, left: Index, is_raw: Value) -> None:
        """Packs the blocks after the whole ones, `left` free indices of each, by way of the stack."""
        fn, factors = self.fn, self.factors
        staged_row = factors.depth * self.bytes
        staged = fn.local(I8, LANES * staged_row, 64)
        with fn.loop(whole, (self.steps + (factors.depth - 1)) // factors.depth) as block:
            begin = block.index * factors.depth
            self._stage(self._source(base, begin), left, self.steps - begin, staged)
            sizes = [fn.index(size) for size in (staged_row, LANES * self.bytes, 0, 1)]
            self._pack(staged, panel + block.index * factors.block_bytes, sizes, is_raw)

    def _source(self, base: Index, begin: Index) -> Pointer:
        place = base + self._place("inner", self.fn.index_argument("begin") + begin)
        return self.fn.pointer("base", I8.array(self.bytes))[place]

    def _whole(self, base: Index, panel: Pointer, blocks: Index, is_raw: Value) -> None:
        """Packs whole blocks as they lie in memory: all at once, or one by one where they are not equally far apart."""
        fn, side, factors = self.fn, self.side, self.factors
        if side is None or side.inner.stride(side.role) is not None:
            with fn.when(blocks > 0):
                step = self._times(self.inner, factors.depth * self.bytes)
                self._pack(self._source(base, fn.index(0)), panel, (self.row, self.second, step, blocks), is_raw)
            return
        with fn.loop(0, blocks) as block:
            source = self._source(base, block.index * factors.depth)
            sizes = self.row, self.second, fn.index(0), fn.index(1)
            self._pack(source, panel + block.index * factors.block_bytes, sizes, is_raw)

    def _pack(self, source: Pointer, target: Pointer, sizes: Sequence[Index], is_raw: Value) -> None:
        self.fn.call(_pack_blocks(self.module, self.factors), source, target, *sizes, is_raw, self.bounds)

    def _stage(self, source: Pointer, free: Index, steps: Index, staged: Pointer) -> None:
        """Lays a block whose lanes do not lie so, or do not all exist, side by side on the stack."""
        fn, way, factors = self.fn, self.way, self.factors
        name = _stage(self.module, factors, across=not way.is_along)
        for q in range(factors.group):
            inner = steps - q * LANES
            rows, width = (free, inner) if way.goes_inward else (inner, free)
            address = source + self._times(self.second, q) if q else source
            fn.call(name, address, self.row, rows, width, staged + q * LANES * self.bytes)


def _range(module: Module, factors: AmxFactors) -> str:
    """void f(ptr bounds, ptr range): stores the range of what has these bounds."""
    name = f"parts_range_{factors.name}"
    fn = Function(name, [("ptr", "bounds"), ("ptr", "range")], attributes="noinline nounwind", shared=_shared(factors))
    bounds = fn.pointer("bounds", I16)
    store_range([bounds[k * 32].load(32) for k in (0, 1)], fn.pointer("range"), has_least=factors.has_least)
    fn.returns()
    module.add(fn)
    return name


def _shared(factors: AmxFactors) -> str:
    return f"parts_{factors.name}"


def _pack_blocks(module: Module, factors: AmxFactors) -> str:
    """void f(ptr source, ptr target, i64 row, i64 second, i64 step, i64 blocks, i1 raw, ptr bounds): packs half blocks.

    A block is 16 vectors of 16 elements, `row` bytes apart, and for the lanes' other steps so again, `second` bytes
    further each; the next block begins `step` bytes further. The bounds are widened by what is packed.
    """
    name = f"parts_pack_{factors.name}"
    module.add(_pack_function(factors, name))
    return name


@cache
def _pack_function(factors: AmxFactors, name: str) -> Definition:
    sizes = ("row", "second", "step", "blocks")
    parameters = [
        ("ptr", "source"),
        ("ptr", "target"),
        *(("i64", size) for size in sizes),
        ("i1", "raw"),
        ("ptr", "bounds"),
    ]
    fn = Function(name, parameters, attributes="noinline nounwind", shared=_shared(factors))
    row_bytes, _, step, blocks = map(fn.index_argument, sizes)
    places = [fn.pointer("bounds", I16)[k * 32] for k in (0, 1)] if factors.parts > 1 else []
    bounds = [place.load(32) for place in places]
    with fn.loop(0, blocks, 1, [fn.pointer("source", factors.memory), fn.pointer("target", I32), *bounds]) as block:
        source, target, *inside = block.carried
        with fn.loop(0, LANES, 1, [source, *inside]) as row:
            values = _values(factors, row.carried[0])
            pairs, following = packed(values, factors.parts, row.carried[1:], fn.argument("raw"))
            place = target + row.index * 64
            for p, value in enumerate(pairs):
                (place + p * _PART_BYTES).store(value)
            row.next = [row.carried[0] + row_bytes, *following]
        block.next = [source + step, target + factors.block_bytes, *row.results[1:]]
    for value, place in zip(block.results[2:], places, strict=True):
        place.store(value)
    fn.returns()
    return fn.definition()


def _values(factors: AmxFactors, source: Pointer) -> list[Value]:
    """The vectors whose elements share a lane: floats if they have parts."""
    second = source.fn.index_argument("second")
    values = [place.load(LANES) for place in [source, *(source + second * q for q in range(1, factors.group))]]
    return [value.cast("fpext", FLOAT.scalar) for value in values] if factors.parts > 1 else values


def _stage(module: Module, factors: AmxFactors, *, across: bool) -> str:
    """void f(ptr source, i64 row, i64 rows, i64 width, ptr target): 16 vectors of 16 elements, 0 where there are none.

    Of `rows` vectors, `row` bytes apart, each has `width` elements; fewer than 1 and more than 16 count as well.
    They become rows of the target, or, `across`, its columns.
    """
    name = f"parts_stage_{factors.memory}_{factors.group}{'_across' if across else ''}"
    module.add(_stage_function(factors, name, across))
    return name


@cache
def _stage_function(factors: AmxFactors, name: str, across: bool) -> Definition:
    parameters = [("ptr", "source"), ("i64", "row"), ("i64", "rows"), ("i64", "width"), ("ptr", "target")]
    fn = Function(name, parameters, attributes="noinline nounwind", shared=name)
    element, target_row = factors.memory.integer, factors.memory.bytes * factors.depth
    source, target = fn.pointer("source", element), fn.pointer("target", element)
    row_bytes, rows = fn.index_argument("row"), fn.index_argument("rows")
    mask = fn.index_argument("width").smin(16).smax(0).first_lanes(LANES)

    def read(place: Pointer, number: Index) -> Value:
        """A row of the source, zeros if there are no more."""
        return place.load(LANES, (number < rows).select(mask, 0))

    if not across:
        with fn.loop(0, LANES, 1, [source]) as row:
            (target + row.index * target_row).store(read(row.carried[0], row.index))
            row.next = [row.carried[0] + row_bytes]
    else:
        square: list[Value] = []
        for i in range(LANES):
            square.append(read(source, fn.index(i)).zext(32))
            source = source + row_bytes
        for i, value in enumerate(transposed(square)):
            (target + i * target_row).store(value.trunc(element.bits))
    fn.returns()
    return fn.definition()


def panel_bytes(factors: AmxFactors, steps: int) -> int:
    """Bytes of a panel of so many steps of the inner axis."""
    return -(-steps // factors.depth) * factors.block_bytes


@dataclass(frozen=True)
class PanelLayout:
    """An operand packed whole: panels, each with all of the inner axis, then their ranges for each `depth` steps."""

    side: Side
    depth: int

    @property
    def panels(self) -> int:
        return -(-self.side.free.size // WIDTH)

    @property
    def _panel_bytes(self) -> int:
        return panel_bytes(self.side.factors, self.side.inner.size)

    @property
    def _parts(self) -> int:
        return -(-self.side.inner.size // self.depth)

    @property
    def nbytes(self) -> int:
        ranges = self.panels * self._parts * RANGE_BYTES
        return self.panels * self._panel_bytes + up(ranges, 64)

    def at(self, start: Pointer, first: Index, begin: Index) -> tuple[Pointer, Pointer]:
        """The addresses of a panel, from a step of the inner axis on, and of its range there."""
        number, factors = first // WIDTH, self.side.factors
        panel = start + number * self._panel_bytes + begin // factors.depth * factors.block_bytes
        part = number * self._parts + begin // self.depth
        return panel, start + self.panels * self._panel_bytes + part * RANGE_BYTES


def pack(
    module: Module,
    side: Side,
    base: Pointer,
    place: Index,
    bounds: tuple[Index, Index],
    begin: Index,
    steps: Index,
    to: tuple[Pointer, Pointer],
) -> None:
    """Packs the panel that begins at the first of these free indices; `to`: where the panel and its range go."""
    fn, (first, end) = base.fn, bounds
    name, strides = packer(module, side)
    fn.call(name, base, place, first, inside(end, first), begin, steps, *to, *map(fn.index, strides))


def inside(end: Index, index: Index) -> Index:
    """The number of a panel's free indices that exist."""
    return (end - index).least(WIDTH)
