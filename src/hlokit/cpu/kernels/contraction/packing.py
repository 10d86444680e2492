"""Packing: blocks of a product's operands, converted, in the order in which the tile reads them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from hlokit.cpu.kernels.contraction.elements import (
    broadcast,
    element_bytes,
    first_lanes,
    interleaved,
    load,
    pointer,
    read,
    size_of,
    store,
)
from hlokit.cpu.kernels.contraction.space import Axis, added, least
from hlokit.cpu.kernels.contraction.tile import Arithmetic
from hlokit.cpu.llvm import Function, Module, float_constant, memory_type, splat, vector
from hlokit.types.dtype import DType

_ANY_LANES = 1 << 62
"""Asks an axis whether it is contiguous from any index on."""


@dataclass
class Operand:
    """Reads one side of a product: what a fused prologue would replace. `base` is the address of its elements."""

    fn: Function
    module: Module
    dtype: DType
    base: str
    role: str
    free: Axis
    inner: Axis
    arithmetic: Arithmetic

    def read(self, place: str, lanes: int, mask: str | None = None) -> list[str]:
        """`lanes` elements that are consecutive in memory, as factors: one value, or the parts of complex numbers."""
        if self.arithmetic.name == "bf16":
            address = pointer(self.fn, self.base, place, 2)
            return [load(self.fn, "i16", lanes, address, mask)]
        scalar = self.arithmetic.packed
        parts = read(self.fn, self.module, self.dtype, self.base, place, lanes, scalar, mask)
        if self.arithmetic.is_complex and not self.dtype.is_complex:
            parts.append(splat(float_constant(0.0, scalar), scalar, lanes))
        return parts

    def goes_by_vectors(self, axis: Axis, lanes: int, *, from_any: bool) -> bool:
        """Whether vectors along the axis can be read, from multiples of `lanes` or, `from_any`, from any index on."""
        return axis.is_contiguous(self.role, _ANY_LANES if from_any else lanes)

    def is_factor(self) -> bool:
        """Whether memory holds the factors as they are."""
        same = memory_type(self.dtype.real) == self.arithmetic.packed and self.dtype.bits >= 8
        return same and self.dtype.is_complex == self.arithmetic.is_complex and self.arithmetic.name != "i8"

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.dtype)

    @property
    def addresses(self) -> dict[str, str]:
        """What it reads from, by field."""
        return {"base": self.base}


@dataclass(frozen=True)
class Run:
    """A range of the inner axis, as i64: where it begins, how many elements; how many units, rounded up."""

    begin: str
    count: str
    units: str
    begins_anywhere: bool = False

    @property
    def arguments(self) -> dict[str, str]:
        """What a function of its own is told of the run."""
        return {"begin": self.begin, "count": self.count, "units": self.units}

    @property
    def inside(self) -> Run:
        """The run as that function knows it."""
        return replace(self, begin="%begin", count="%count", units="%units")


@dataclass(frozen=True)
class Panels:
    """Where panels go: the first one's address, the bytes from one to the next, the free indices (i64) from .. to.

    Each has [unit][free index][element of the unit] for `width` free indices, a multiple of `lanes`, and begins `step`
    indices, by default `width`, after the one before.
    """

    address: str
    bytes: int
    begin: str
    end: str
    width: int
    lanes: int
    step: int = 0


def pack_panels(operand: Operand, panels: Panels, base: str, valid: str | None, run: Run) -> None:
    """Packs whole panels, or, with `valid`, those of which only so many free indices exist.

    rhs's complex numbers are split: vectors of real and of imaginary parts in turn.
    """
    writer = _Panels(operand, panels, base, run)
    # lhs's panels begin anywhere
    if operand.goes_by_vectors(operand.free, panels.lanes, from_any=operand.role == "lhs"):
        writer.by_vectors(valid)
    elif operand.goes_by_vectors(operand.inner, panels.lanes * operand.arithmetic.group, from_any=run.begins_anywhere):
        writer.by_blocks(valid)
    else:
        writer.by_elements(valid)


class _Panels:
    def __init__(self, operand: Operand, panels: Panels, base: str, run: Run) -> None:
        self.operand, self.fn, self.arithmetic = operand, operand.fn, operand.arithmetic
        self.panels, self.base, self.run = panels, base, run
        self.width, self.lanes, self.step = panels.width, panels.lanes, panels.step or panels.width
        self.is_planar = operand.role == "rhs"

    def by_vectors(self, valid: str | None) -> None:
        fn, g = self.fn, self.arithmetic.group
        vectors = range(self.width // self.lanes)
        masks = [None if valid is None else first_lanes(fn, valid, self.lanes, v * self.lanes) for v in vectors]
        whole = self.run.units if g == 1 else fn.let(f"sdiv i64 {self.run.count}, {g}")
        with fn.loop("0", whole) as loop:
            self._across(loop.index, [[mask] * g for mask in masks])
        if g == 1:
            return
        with fn.when(fn.let(f"icmp slt i64 {whole}, {self.run.units}")):
            left = fn.let(f"srem i64 {self.run.count}, {g}")
            self._across(whole, [[self._within(mask, left, j) for j in range(g)] for mask in masks])

    def _across(self, unit: str, masks: list[list[str | None]]) -> None:
        """One unit of all panels: rows of memory are read from end to end."""
        fn, operand = self.fn, self.operand
        rows = [added(fn, self.base, self._inner(unit, j)) for j in range(self.arithmetic.group)]
        target = pointer(fn, self.panels.address, unit, self.width * self.arithmetic.unit_bytes)
        with fn.loop(self.panels.begin, self.panels.end, self.step, [("ptr", target)]) as panel:
            for v, some in enumerate(masks):
                free = operand.free.offset(fn, operand.role, added(fn, panel.index, str(v * self.lanes)))
                self._unit(panel.carried[0], v, [added(fn, row, free) for row in rows], some)
            panel.next = [pointer(fn, panel.carried[0], str(self.panels.bytes), 1)]

    def _inner(self, unit: str, j: int) -> str:
        fn, a, operand = self.fn, self.arithmetic, self.operand
        step = unit if a.group == 1 else fn.let(f"mul i64 {unit}, {a.group}")
        return operand.inner.offset(fn, operand.role, added(fn, self.run.begin, step, str(j)))

    def _within(self, mask: str | None, left: str, j: int) -> str | None:
        fn, type = self.fn, vector("i1", self.lanes)
        inside = broadcast(fn, fn.let(f"icmp slt i64 {j}, {left}"), "i1", self.lanes)
        return inside if mask is None else fn.let(f"and {type} {inside}, {mask}")

    def _unit(self, row: str, v: int, places: list[str], masks: list[str | None]) -> None:
        fn, a, lanes = self.fn, self.arithmetic, self.lanes
        values = [self._read(place, lanes, mask) for place, mask in zip(places, masks, strict=True)]
        if a.group > 1:
            parts, scalar, count = [_grouped(fn, [v[0] for v in values], a.packed, lanes)], a.packed, lanes * a.group
        elif a.is_complex and not self.is_planar:
            parts, scalar, count = [interleaved(fn, values[0], a.packed, lanes)], a.packed, 2 * lanes
        else:
            parts, scalar, count = values[0], a.packed, lanes
        for p, value in enumerate(parts):
            at = v * lanes * a.unit_bytes + p * count * size_of(scalar)
            store(fn, scalar, count, value, pointer(fn, row, str(at), 1))

    def _read(self, place: str, lanes: int, mask: str | None) -> list[str]:
        return offset_bytes(self.operand, self.operand.read(place, lanes, mask), lanes)

    def by_blocks(self, valid: str | None) -> None:
        """Vectors along the inner axis, transposed in registers by a function that all panels of this kind share."""
        fn, panels, operand, count = self.fn, self.panels, self.operand, self.run.count
        length = self.lanes * self.arithmetic.group
        last = None if valid is None else fn.let(f"sub i64 {valid}, 1")
        places = fn.alloca("i64", self.lanes)
        with fn.loop(panels.begin, panels.end, self.step, [("ptr", panels.address)]) as panel:
            with fn.loop("0", str(self.width), self.lanes) as part:
                with fn.loop("0", str(self.lanes)) as column:
                    place = self._place(panel.index, added(fn, part.index, column.index), last)
                    fn.do(f"store i64 {place}, ptr {pointer(fn, places, column.index, 8)}")
                target = pointer(fn, panel.carried[0], part.index, self.arithmetic.unit_bytes)
                if operand.inner.is_contiguous(operand.role, _ANY_LANES):
                    self._block(target, places, "0", count)
                else:
                    with fn.loop("0", count, length) as step:
                        left = least(fn, fn.let(f"sub i64 {count}, {step.index}"), str(length))
                        self._block(target, places, step.index, left)
            panel.next = [pointer(fn, panel.carried[0], str(panels.bytes), 1)]

    def _place(self, first: str, number: str, last: str | None) -> str:
        """Where a free index begins; past the last one that exists, the last one's place."""
        fn, operand = self.fn, self.operand
        shown = number if last is None else least(fn, number, last)
        return added(fn, self.base, operand.free.offset(fn, operand.role, added(fn, first, shown)))

    def _block(self, target: str, places: str, step: str, count: str) -> None:
        fn, operand = self.fn, self.operand
        inner = operand.inner.offset(fn, operand.role, added(fn, self.run.begin, step))
        unit = step if self.arithmetic.group == 1 else fn.let(f"sdiv i64 {step}, {self.arithmetic.group}")
        row = pointer(fn, target, unit, self.width * self.arithmetic.unit_bytes)
        pointers = ", ".join(f"ptr {p}" for p in (row, places, *operand.addresses.values()))
        fn.do(f"call void @{_block(operand, self.width, self.lanes)}({pointers}, i64 {inner}, i64 {count})")

    def by_elements(self, valid: str | None) -> None:
        fn, panels = self.fn, self.panels
        with fn.loop(panels.begin, panels.end, self.step, [("ptr", panels.address)]) as panel:
            self._panel_by_elements(panel.carried[0], panel.index, valid)
            panel.next = [pointer(fn, panel.carried[0], str(panels.bytes), 1)]

    def _panel_by_elements(self, address: str, first: str, valid: str | None) -> None:
        fn, a = self.fn, self.arithmetic
        total = fn.let(f"mul i64 {self.run.units}, {a.group}")
        last = None if valid is None else fn.let(f"sub i64 {valid}, 1")
        with fn.loop("0", str(self.width)) as column:
            # what does not exist is a copy: anything else that lies there may be slow to multiply
            index = column.index if last is None else least(fn, column.index, last)
            free = self.operand.free.offset(fn, self.operand.role, added(fn, first, index))
            place = added(fn, self.base, free)
            with fn.loop("0", total) as step:
                self._element(address, column.index, step.index, place)

    def _element(self, address: str, column: str, step: str, place: str) -> None:
        fn, a, operand = self.fn, self.arithmetic, self.operand
        unit, j = step, "0"
        if a.group > 1:
            unit, j = fn.let(f"udiv i64 {step}, {a.group}"), fn.let(f"urem i64 {step}, {a.group}")
        row = pointer(fn, address, unit, self.width * a.unit_bytes)
        if a.group > 1:  # what completes a unit is 0
            store(fn, a.packed, 1, "0", self._spot(row, column, j, 0))
        with fn.when(fn.let(f"icmp slt i64 {step}, {self.run.count}")):
            inner = operand.inner.offset(fn, operand.role, added(fn, self.run.begin, step))
            for p, value in enumerate(self._read(added(fn, place, inner), 1, None)):
                store(fn, a.packed, 1, value, self._spot(row, column, j, p))

    def _spot(self, row: str, column: str, j: str, part: int) -> str:
        """Where one element of a panel's row goes."""
        fn, a = self.fn, self.arithmetic
        if not (a.is_complex and self.is_planar):
            at = added(fn, fn.let(f"mul i64 {column}, {a.group * a.parts}"), j, str(part))
            return pointer(fn, row, at, size_of(a.packed))
        vector_number, lane = fn.let(f"udiv i64 {column}, {self.lanes}"), fn.let(f"urem i64 {column}, {self.lanes}")
        at = added(fn, fn.let(f"mul i64 {vector_number}, {2 * self.lanes}"), lane, str(part * self.lanes))
        return pointer(fn, row, at, size_of(a.packed))


def offset_bytes(operand: Operand, parts: list[str], lanes: int) -> list[str]:
    """lhs of an i8 product as bytes without sign: 128 more, which the tile takes off again."""
    if operand.arithmetic.name != "i8" or operand.role == "rhs":
        return parts
    return [operand.fn.let(f"xor {vector('i8', lanes)} {parts[0]}, {splat('-128', 'i8', lanes)}")]


def _grouped(fn: Function, vectors: list[str], scalar: str, lanes: int) -> str:
    """The lanes of the vectors side by side: first all lanes 0, then all lanes 1, ..."""
    while len(vectors) > 1:  # (0, 2), (1, 3), so that lanes come out in order
        half = len(vectors) // 2
        vectors = [interleaved(fn, [vectors[i], vectors[i + half]], scalar, lanes) for i in range(half)]
        lanes *= 2
    return vectors[0]


def _block(operand: Operand, width: int, lanes: int) -> str:
    """void f(ptr target, ptr places, ptr base..., i64 inner, i64 count): `lanes` rows become columns of a panel.

    Row i has `count` elements from base[places[i] + inner] on. They are read by 16 bytes: rows i, i + e, i + 2 e, ...
    side by side in a vector, whose quarters are then transposed at once; e elements are a quarter.
    """
    a = operand.arithmetic
    scalar = a.packed if a.group == 1 else "i32"
    e = min(16 // size_of(scalar), lanes)
    pointers = ("target", "places", *operand.addresses)
    fn = Function("NAME", [*(("ptr", name) for name in pointers), ("i64", "inner"), ("i64", "count")])
    fn.attributes = "noinline nounwind"
    rows = replace(operand, fn=fn, **{name: f"%{name}" for name in operand.addresses})

    def piece(row: int, step: str, mask: str | None) -> list[str]:
        place = fn.let(f"load i64, ptr {pointer(fn, '%places', str(row), 8)}")
        parts = rows.read(added(fn, place, "%inner", step), e * a.group, mask)
        parts = offset_bytes(rows, parts, e * a.group)
        if a.group == 1:
            return parts
        return [fn.let(f"bitcast {vector(a.packed, e * a.group)} {parts[0]} to {vector('i32', e)}")]

    def columns(step: str, mask: str | None) -> None:
        pieces = [piece(i, step, mask) for i in range(lanes)]
        parts = [
            _transposed(fn, [_beside(fn, [row[p] for row in pieces[j::e]], scalar, e) for j in range(e)], scalar, lanes)
            for p in range(a.parts)
        ]
        unit = step if a.group == 1 else fn.let(f"sdiv i64 {step}, {a.group}")
        for i in range(e):
            row = pointer(fn, "%target", added(fn, unit, str(i)), width * a.unit_bytes)
            values = [part[i] for part in parts]
            if len(values) == 2 and operand.role == "lhs":
                store(fn, scalar, 2 * lanes, interleaved(fn, values, scalar, lanes), row)
                continue
            for p, value in enumerate(values):
                store(fn, scalar, lanes, value, pointer(fn, row, str(p * lanes * size_of(scalar)), 1))

    whole = fn.let(f"and i64 %count, {-e * a.group}")
    with fn.loop("0", whole, e * a.group) as step:
        columns(step.index, None)
    with fn.when(fn.let(f"icmp slt i64 {whole}, %count")):
        columns(whole, first_lanes(fn, fn.let(f"sub i64 %count, {whole}"), e * a.group))
    fn.do("ret void")
    text = fn.text()
    name = "pack_block_" + hashlib.sha256(text.encode()).hexdigest()[:12]
    operand.module.add_text(name, text.replace("@NAME", f"@{name}"))
    return name


def _beside(fn: Function, vectors: list[str], scalar: str, lanes: int) -> str:
    while len(vectors) > 1:
        type, order = vector(scalar, lanes), ", ".join(f"i32 {i}" for i in range(2 * lanes))
        vectors = [
            fn.let(f"shufflevector {type} {x}, {type} {y}, <{2 * lanes} x i32> <{order}>")
            for x, y in zip(vectors[::2], vectors[1::2], strict=True)
        ]
        lanes *= 2
    return vectors[0]


def _transposed(fn: Function, rows: list[str], scalar: str, lanes: int) -> list[str]:
    """Squares of as many lanes as there are rows, side by side, each transposed: rounds of interleaving two rows."""
    e, type = len(rows), vector(scalar, lanes)
    for _ in range(e.bit_length() - 1):
        out: list[str] = []
        for x, y in zip(rows[: e // 2], rows[e // 2 :], strict=True):
            for side in (0, e // 2):
                order = [q + side + i + k for q in range(0, lanes, e) for i in range(e // 2) for k in (0, lanes)]
                mask = ", ".join(f"i32 {i}" for i in order)
                out.append(fn.let(f"shufflevector {type} {x}, {type} {y}, <{lanes} x i32> <{mask}>"))
        rows = out
    return rows


def pack_rows(
    operand: Operand, rows: str, valid: str | None, panel: str, row_bytes: int, base: str, first: str, run: Run
) -> None:
    """lhs as it stands, [row][inner], each row padded to `row_bytes`; elements past the run are 0 up to a unit.

    Of `rows` rows `valid`, or all, exist; the others are copies of the last.
    """
    fn = operand.fn
    last = None if valid is None else fn.let(f"sub i64 {valid}, 1")
    with fn.loop("0", rows) as row:
        index = row.index if last is None else least(fn, row.index, last)
        free = operand.free.offset(fn, operand.role, added(fn, first, index))
        _pack_row(operand, pointer(fn, panel, row.index, row_bytes), added(fn, base, free), run)


def _pack_row(operand: Operand, target: str, place: str, run: Run) -> None:
    fn, a = operand.fn, operand.arithmetic
    lanes = 64 // size_of(a.packed) // a.parts
    if not operand.goes_by_vectors(operand.inner, lanes, from_any=run.begins_anywhere):
        _pack_row_by_elements(operand, target, place, run)
        return

    def move(step: str, mask: str | None) -> None:
        inner = operand.inner.offset(fn, operand.role, added(fn, run.begin, step))
        parts = offset_bytes(operand, operand.read(added(fn, place, inner), lanes, mask), lanes)
        value = interleaved(fn, parts, a.packed, lanes) if a.is_complex else parts[0]
        address = pointer(fn, target, step, size_of(a.packed) * a.parts)
        store(fn, a.packed, lanes * a.parts, value, address)

    whole = fn.let(f"and i64 {run.count}, {-lanes}")
    with fn.loop("0", whole, lanes) as loop:
        move(loop.index, None)
    with fn.when(fn.let(f"icmp slt i64 {whole}, {run.count}")):
        move(whole, first_lanes(fn, fn.let(f"sub i64 {run.count}, {whole}"), lanes))


def _pack_row_by_elements(operand: Operand, target: str, place: str, run: Run) -> None:
    fn, a = operand.fn, operand.arithmetic
    total = fn.let(f"mul i64 {run.units}, {a.group}")
    with fn.loop("0", total) as loop:
        address = pointer(fn, target, loop.index, size_of(a.packed) * a.parts)
        if a.group > 1:
            store(fn, a.packed, 1, "0", address)
        with fn.when(fn.let(f"icmp slt i64 {loop.index}, {run.count}")):
            inner = operand.inner.offset(fn, operand.role, added(fn, run.begin, loop.index))
            for p, part in enumerate(offset_bytes(operand, operand.read(added(fn, place, inner), 1), 1)):
                store(fn, a.packed, 1, part, pointer(fn, address, str(p), size_of(a.packed)))


def write_corrections(operand: Operand, panel: str, vectors: int, lanes: int, run: Run) -> None:
    """Before an i8 panel: for each column -128 times the sum of its elements."""
    fn = operand.fn
    i32, i8 = vector("i32", lanes), vector("i8", 4 * lanes)
    size = 4 * lanes
    body = pointer(fn, panel, str(vectors * size), 1)
    ones = splat("1", "i8", 4 * lanes)
    with fn.loop("0", run.units, 1, [(i32, "zeroinitializer")] * vectors) as loop:
        row = pointer(fn, body, loop.index, vectors * size)
        for v in range(vectors):
            value = load(fn, "i8", 4 * lanes, pointer(fn, row, str(v * size), 1))
            name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
            loop.next.append(fn.let(f"call {i32} @{name}({i32} {loop.carried[v]}, {i8} {ones}, {i8} {value})"))
    for v, total in enumerate(loop.results):
        correction = fn.let(f"mul {i32} {total}, {splat('-128', 'i32', lanes)}")
        store(fn, "i32", lanes, correction, pointer(fn, panel, str(v * size), 1))
