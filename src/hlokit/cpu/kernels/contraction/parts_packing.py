"""Packing for products in parts: a product's operands as panels (see parts_tile)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from hlokit.cpu.kernels.contraction.elements import first_lanes, load, pointer, size_of, store
from hlokit.cpu.kernels.contraction.parts_tile import WIDTH, Form
from hlokit.cpu.kernels.contraction.space import Axis, added, least
from hlokit.cpu.kernels.contraction.split import (
    BOUND,
    LANES,
    RANGE_BYTES,
    has_raw,
    no_range,
    raw,
    split,
    store_range,
    widened,
)
from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.llvm import Function, Module, splat, vector

_PART_BYTES = 2048
_LONG = 256
"""Steps of the inner axis from which the loops round packing a panel may be slow."""


@dataclass(frozen=True)
class Side:
    """One operand of a product: its role, its axes, and which of them lies along memory."""

    form: Form
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
            and _comes_in(self.inner, self.role, self.form.depth)
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
        return self.is_along and self.free.size % LANES == 0 and self.inner.size % self.form.depth == 0


def _comes_in(axis: Axis, role: str, unit: int) -> bool:
    steps = axis.steps(role)
    return len(steps) <= 1 or steps[-1][0] % unit == 0


@dataclass(frozen=True)
class _Way:
    """How a panel is packed: what its function's text depends on, but for the strides."""

    form: Form
    is_along: bool
    is_whole: bool
    goes_inward: bool

    @property
    def name(self) -> str:
        if self.is_whole:
            return f"parts_panel_{self.form.name}"
        return f"parts_panel_{self.form.name}_{'along' if self.is_along else 'across'}_{int(self.goes_inward)}"


def packer(module: Module, side: Side) -> tuple[str, list[str]]:
    """The function that packs a panel, and its last arguments.

    void f(ptr base, i64 place, i64 first, i64 count, i64 begin, i64 steps, ptr panel, ptr range, ...): `count` free
    indices from `first` on, `steps` of the inner axis from `begin` on, of the array whose element 0 is number `place`
    of `base`. What completes the last block is 0. `range` is written if there are parts. Of axes with one stride each
    the function is the same for all, and takes elements from one free index to the next, from one step of the inner
    axis, and from one vector of memory.
    """
    way = _Way(side.form, side.is_along, side.is_whole, side.goes_inward and not side.is_whole)
    free, inner = (str(stride) for stride in side.strides)
    strides = [free, inner, free if side.goes_inward else inner]
    if None not in (side.free.stride(side.role), side.inner.stride(side.role)):
        for name, text in _panel_texts(way).items():
            module.add_text(name, text)
        return way.name, strides
    fn = Function("NAME", _PARAMETERS, attributes="noinline nounwind", is_cold=side.inner.size >= _LONG)
    _Packer(fn, module, way, strides, side).write()
    text = fn.text()
    name = "parts_panel_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    module.add_text(name, text.replace("@NAME", f"@{name}"))
    return name, []


_PARAMETERS = [
    ("ptr", "base"),
    *(("i64", name) for name in ("place", "first", "count", "begin", "steps")),
    ("ptr", "panel"),
    ("ptr", "range"),
]


@cache
def _panel_texts(way: _Way) -> dict[str, str]:
    """The function for axes with one stride each, and those that it calls."""
    module, strides = Module(), ("free", "inner", "row")
    parameters = [*_PARAMETERS, *(("i64", name) for name in strides)]
    shared = _shared(way.form) if way.is_whole else way.name
    fn = Function(way.name, parameters, attributes="noinline nounwind", shared=shared)
    _Packer(fn, module, way, [f"%{name}" for name in strides]).write()
    module.add(fn)
    return module.functions


class _Packer:
    """Writes such a function. `side`: where axes have several strides."""

    def __init__(
        self, fn: Function, module: Module, way: _Way, strides: Sequence[str], side: Side | None = None
    ) -> None:
        self.fn, self.module, self.way, self.form, self.side = fn, module, way, way.form, side
        self.bytes = size_of(way.form.memory)
        self.bounds = fn.alloca("i16", 64)
        self.free, self.inner, row = strides
        self.row, self.second = self._times(row, self.bytes), self._times(self.inner, LANES * self.bytes)

    def _times(self, number: str, factor: int) -> str:
        return str(int(number) * factor) if number.isdecimal() else self.fn.let(f"mul nsw i64 {number}, {factor}")

    def _place(self, role: str, index: str) -> str:
        """The place of an index of an axis, in elements."""
        if self.side is not None:
            axis = self.side.free if role == "free" else self.side.inner
            return axis.offset(self.fn, self.side.role, index)
        stride = self.free if role == "free" else self.inner
        return "0" if index == "0" else self.fn.let(f"mul nsw i64 {index}, {stride}")

    def write(self) -> None:
        fn, form = self.fn, self.form
        if form.parts == 1:
            self._panel("false")
            fn.do("ret void")
            return
        again, once, end = fn.new_block("again"), fn.new_block("once"), fn.new_block("done")
        before = fn.block
        fn.jump(again)
        fn.start(again)
        is_raw = fn.fresh("raw")
        fn.do(f"{is_raw} = phi i1 [ false, %{before} ], [ true, %{once} ]")
        no_range(fn, self.bounds)
        self._panel(is_raw)
        fn.branch(is_raw, end, once)
        fn.start(once)
        fn.do(f"call void @{_range(self.module, form)}(ptr {self.bounds}, ptr %range)")
        fn.branch(has_raw(fn, "%range"), again, end)
        fn.start(end)
        fn.do("ret void")

    def _panel(self, is_raw: str) -> None:
        fn, form, way = self.fn, self.form, self.way
        full = fn.let(f"sdiv i64 %steps, {form.depth}") if way.is_along else "0"
        with fn.loop("0", "%count", LANES) as half:
            left = fn.let(f"sub i64 %count, {half.index}")
            base = added(fn, "%place", self._place("free", added(fn, "%first", half.index)))
            panel = pointer(fn, "%panel", half.index, 64)
            whole = full
            if way.is_along and not way.is_whole:
                whole = fn.let(f"select i1 {fn.let(f'icmp sge i64 {left}, {LANES}')}, i64 {full}, i64 0")
            if way.is_along:
                self._whole(base, panel, whole, is_raw)
            if not way.is_whole:
                self._others(base, panel, whole, left, is_raw)

    def _others(self, base: str, panel: str, whole: str, left: str, is_raw: str) -> None:
        """Packs the blocks after the whole ones, `left` free indices of each, by way of the stack."""
        fn, form = self.fn, self.form
        blocks = fn.let(f"sdiv i64 {added(fn, '%steps', str(form.depth - 1))}, {form.depth}")
        staged_row = form.depth * self.bytes
        staged = fn.alloca("i8", LANES * staged_row)
        with fn.loop(whole, blocks) as block:
            begin = fn.let(f"mul i64 {block.index}, {form.depth}")
            source = self._source(base, begin)
            self._stage(source, left, fn.let(f"sub i64 %steps, {begin}"), staged)
            target = pointer(fn, panel, block.index, form.block_bytes)
            self._pack(staged, target, (str(staged_row), str(LANES * self.bytes), "0", "1"), is_raw)

    def _source(self, base: str, begin: str) -> str:
        fn = self.fn
        return pointer(fn, "%base", added(fn, base, self._place("inner", added(fn, "%begin", begin))), self.bytes)

    def _whole(self, base: str, panel: str, blocks: str, is_raw: str) -> None:
        """Packs whole blocks as they lie in memory: all at once, or one by one where they are not equally far apart."""
        fn, side, form = self.fn, self.side, self.form
        if side is None or side.inner.stride(side.role) is not None:
            with fn.when(fn.let(f"icmp sgt i64 {blocks}, 0")):
                step = self._times(self.inner, form.depth * self.bytes)
                self._pack(self._source(base, "0"), panel, (self.row, self.second, step, blocks), is_raw)
            return
        with fn.loop("0", blocks) as block:
            source = self._source(base, fn.let(f"mul i64 {block.index}, {form.depth}"))
            target = pointer(fn, panel, block.index, form.block_bytes)
            self._pack(source, target, (self.row, self.second, "0", "1"), is_raw)

    def _pack(self, source: str, target: str, sizes: Sequence[str], is_raw: str) -> None:
        shown = ", ".join(f"i64 {size}" for size in sizes)
        name = _pack_blocks(self.module, self.form)
        self.fn.do(f"call void @{name}(ptr {source}, ptr {target}, {shown}, i1 {is_raw}, ptr {self.bounds})")

    def _stage(self, source: str, free: str, steps: str, staged: str) -> None:
        """Lays a block whose lanes do not lie so, or do not all exist, side by side on the stack."""
        fn, way, form = self.fn, self.way, self.form
        name = _stage(self.module, form, across=not way.is_along)
        for q in range(form.steps):
            inner = fn.let(f"sub i64 {steps}, {q * LANES}") if q else steps
            rows, width = (free, inner) if way.goes_inward else (inner, free)
            address = pointer(fn, source, self._times(self.second, q), 1) if q else source
            target = pointer(fn, staged, str(q * LANES * self.bytes), 1)
            fn.do(f"call void @{name}(ptr {address}, i64 {self.row}, i64 {rows}, i64 {width}, ptr {target})")


def _range(module: Module, form: Form) -> str:
    """void f(ptr bounds, ptr range): stores the range of what has these bounds."""
    name = f"parts_range_{form.name}"
    fn = Function(name, [("ptr", "bounds"), ("ptr", "range")], attributes="noinline nounwind", shared=_shared(form))
    bounds = [load(fn, "i16", 32, pointer(fn, "%bounds", str(64 * k), 1)) for k in (0, 1)]
    store_range(fn, bounds, "%range", has_least=form.has_least)
    fn.do("ret void")
    module.add(fn)
    return name


def _shared(form: Form) -> str:
    return f"parts_{form.name}"


def _pack_blocks(module: Module, form: Form) -> str:
    """void f(ptr source, ptr target, i64 row, i64 second, i64 step, i64 blocks, i1 raw, ptr bounds): packs half blocks.

    A block is 16 vectors of 16 elements, `row` bytes apart, and for the lanes' other steps so again, `second` bytes
    further each; the next block begins `step` bytes further. The bounds are widened by what is packed.
    """
    name = f"parts_pack_{form.name}"
    module.add_text(name, _pack_text(form, name))
    return name


@cache
def _pack_text(form: Form, name: str) -> str:
    sizes = [("i64", size) for size in ("row", "second", "step", "blocks")]
    parameters = [("ptr", "source"), ("ptr", "target"), *sizes, ("i1", "raw"), ("ptr", "bounds")]
    fn = Function(name, parameters, attributes="noinline nounwind", shared=_shared(form))
    has_range = form.parts > 1
    bounds = [pointer(fn, "%bounds", str(64 * k), 1) for k in (0, 1)] if has_range else []
    carried = [(BOUND, load(fn, "i16", 32, address)) for address in bounds]
    with fn.loop("0", "%blocks", 1, [("ptr", "%source"), ("ptr", "%target"), *carried]) as block:
        source, target, *inside = block.carried
        with fn.loop("0", str(LANES), 1, [("ptr", source), *((BOUND, b) for b in inside)]) as row:
            pairs, following = _packed(fn, form, row.carried[0], row.carried[1:])
            place = pointer(fn, target, row.index, 64)
            for p, value in enumerate(pairs):
                store(fn, "i32", LANES, value, pointer(fn, place, str(p * _PART_BYTES), 1))
            row.next = [pointer(fn, row.carried[0], "%row", 1), *following]
        block.next = [pointer(fn, source, "%step", 1), pointer(fn, target, str(form.block_bytes), 1), *row.results[1:]]
    for value, address in zip(block.results[2:], bounds, strict=True):
        store(fn, "i16", 32, value, address)
    fn.do("ret void")
    return fn.text()


def _packed(fn: Function, form: Form, source: str, bounds: list[str]) -> tuple[list[str], list[str]]:
    """A vector of lanes, by part, and the bounds with it."""
    places = [source]
    for _ in range(form.steps - 1):
        places.append(pointer(fn, places[-1], "%second", 1))
    values = [load(fn, form.memory, LANES, place) for place in places]
    i32 = vector("i32", LANES)
    if form.parts == 1:
        whole = [fn.let(f"zext {vector(form.memory, LANES)} {v} to {i32}") for v in values]
        total = whole[0]
        for q, value in enumerate(whole[1:], 1):
            up = fn.let(f"shl {i32} {value}, {splat(str(q * 32 // form.steps), 'i32', LANES)}")
            total = fn.let(f"or {i32} {total}, {up}")
        return [total], []
    if form.memory == "half":
        values = [fn.let(f"fpext {vector('half', LANES)} {v} to {vector('float', LANES)}") for v in values]
    whole, plain, end = fn.new_block("whole"), fn.new_block("parts"), fn.new_block("packed")
    fn.branch("%raw", whole, plain)
    fn.start(whole)
    kept = raw(fn, values[0], values[1], form.parts)
    fn.jump(end)
    fn.start(plain)
    pairs = split(fn, values[0], values[1], form.parts)
    wide = widened(fn, bounds, pairs[0])
    fn.jump(end)
    fn.start(end)
    both = zip([*kept, *bounds], [*pairs, *wide], [i32] * form.parts + [BOUND] * 2, strict=True)
    found = [fn.let(f"phi {type} [ {x}, %{whole} ], [ {y}, %{plain} ]") for x, y, type in both]
    return found[: form.parts], found[form.parts :]


def _stage(module: Module, form: Form, *, across: bool) -> str:
    """void f(ptr source, i64 row, i64 rows, i64 width, ptr target): 16 vectors of 16 elements, 0 where there are none.

    Of `rows` vectors, `row` bytes apart, each has `width` elements; fewer than 1 and more than 16 count as well.
    They become rows of the target, or, `across`, its columns.
    """
    name = f"parts_stage_{form.memory}_{form.steps}{'_across' if across else ''}"
    module.add_text(name, _stage_text(form.memory, form.depth, name, across))
    return name


@cache
def _stage_text(memory: str, depth: int, name: str, across: bool) -> str:
    parameters = [("ptr", "source"), ("i64", "row"), ("i64", "rows"), ("i64", "width"), ("ptr", "target")]
    fn = Function(name, parameters, attributes="noinline nounwind", shared=name)
    scalar, target_row = f"i{8 * size_of(memory)}", size_of(memory) * depth
    high = fn.let("call i64 @llvm.smin.i64(i64 %width, i64 16)")
    mask = first_lanes(fn, fn.let(f"call i64 @llvm.smax.i64(i64 {high}, i64 0)"), LANES)
    if not across:
        with fn.loop("0", str(LANES), 1, [("ptr", "%source")]) as row:
            value = _row(fn, scalar, row.carried[0], row.index, mask)
            store(fn, scalar, LANES, value, pointer(fn, "%target", row.index, target_row))
            row.next = [pointer(fn, row.carried[0], "%row", 1)]
    else:
        rows: list[str] = []
        place = "%source"
        for i in range(LANES):
            value = _row(fn, scalar, place, str(i), mask)
            if scalar != "i32":
                value = fn.let(f"zext {vector(scalar, LANES)} {value} to {vector('i32', LANES)}")
            rows.append(value)
            place = pointer(fn, place, "%row", 1)
        for i, value in enumerate(transposed(fn, rows, "i32")):
            if scalar != "i32":
                value = fn.let(f"trunc {vector('i32', LANES)} {value} to {vector(scalar, LANES)}")
            store(fn, scalar, LANES, value, pointer(fn, "%target", str(i * target_row), 1))
    fn.do("ret void")
    return fn.text()


def _row(fn: Function, scalar: str, place: str, index: str, mask: str) -> str:
    """A row of the source, zeros if there are no more."""
    type = f"<{LANES} x i1>"
    exists = fn.let(f"icmp slt i64 {index}, %rows")
    return load(fn, scalar, LANES, place, fn.let(f"select i1 {exists}, {type} {mask}, {type} zeroinitializer"))


def panel_bytes(form: Form, steps: int) -> int:
    """Bytes of a panel of so many steps of the inner axis."""
    return -(-steps // form.depth) * form.block_bytes


@dataclass(frozen=True)
class Layout:
    """An operand packed whole: panels, each with all of the inner axis, then their ranges for each `depth` steps."""

    side: Side
    depth: int

    @property
    def panels(self) -> int:
        return -(-self.side.free.size // WIDTH)

    @property
    def _panel_bytes(self) -> int:
        return panel_bytes(self.side.form, self.side.inner.size)

    @property
    def _parts(self) -> int:
        return -(-self.side.inner.size // self.depth)

    @property
    def nbytes(self) -> int:
        ranges = self.panels * self._parts * RANGE_BYTES
        return self.panels * self._panel_bytes + -(-ranges // 64) * 64

    def at(self, fn: Function, start: str, first: str, begin: str) -> tuple[str, str]:
        """The addresses of a panel, from a step of the inner axis on, and of its range there."""
        number = fn.let(f"udiv i64 {first}, {WIDTH}")
        block = fn.let(f"udiv i64 {begin}, {self.side.form.depth}")
        panel = pointer(fn, pointer(fn, start, number, self._panel_bytes), block, self.side.form.block_bytes)
        ranges = pointer(fn, start, str(self.panels * self._panel_bytes), 1)
        part = added(fn, fn.let(f"mul i64 {number}, {self._parts}"), fn.let(f"udiv i64 {begin}, {self.depth}"))
        return panel, pointer(fn, ranges, part, RANGE_BYTES)


def pack(
    fn: Function,
    module: Module,
    side: Side,
    base: str,
    place: str,
    first: str,
    end: str,
    begin: str,
    steps: str,
    to: tuple[str, str],
) -> None:
    """Packs the panel that begins at a free index, of those before `end`; `to`: where the panel and its range go."""
    numbers = (place, first, inside(fn, end, first), begin, steps)
    name, strides = packer(module, side)
    shown = [f"ptr {base}", *(f"i64 {n}" for n in numbers), *(f"ptr {p}" for p in to), *(f"i64 {n}" for n in strides)]
    fn.do(f"call void @{name}({', '.join(shown)})")


def inside(fn: Function, end: str, index: str) -> str:
    """How many of a panel's free indices exist."""
    return least(fn, fn.let(f"sub i64 {end}, {index}"), str(WIDTH))
