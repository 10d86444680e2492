"""Packing: blocks of a product's operands, converted, in the order in which the tile reads them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hlokit.cpu.kernels.axes import Axis, added, least
from hlokit.cpu.kernels.elements import (
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
from hlokit.cpu.kernels.tile import Arithmetic
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

    Each has [unit][free index][element of the unit] for `width` free indices, a multiple of `lanes`.
    """

    address: str
    bytes: int
    begin: str
    end: str
    width: int
    lanes: int


def pack_panels(operand: Operand, panels: Panels, base: str, valid: str | None, run: Run) -> None:
    """Packs whole panels, or, with `valid`, one of which only so many free indices exist.

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
        self.width, self.lanes = panels.width, panels.lanes
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
        with fn.loop(self.panels.begin, self.panels.end, self.width, [("ptr", target)]) as panel:
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
        """Vectors along the inner axis, transposed in registers."""
        fn, panels, lanes = self.fn, self.panels, self.lanes
        length = lanes * self.arithmetic.group
        whole = fn.let(f"and i64 {self.run.count}, {-length}")
        last = None if valid is None else fn.let(f"sub i64 {valid}, 1")
        with fn.loop(panels.begin, panels.end, self.width, [("ptr", panels.address)]) as panel:
            for v in range(self.width // lanes):
                columns = [self._place(panel.index, v * lanes + i, last) for i in range(lanes)]
                with fn.loop("0", whole, length) as step:
                    self._block(panel.carried[0], columns, step.index, v, None)
                with fn.when(fn.let(f"icmp slt i64 {whole}, {self.run.count}")):
                    mask = first_lanes(fn, fn.let(f"sub i64 {self.run.count}, {whole}"), length)
                    self._block(panel.carried[0], columns, whole, v, mask)
            panel.next = [pointer(fn, panel.carried[0], str(panels.bytes), 1)]

    def _place(self, first: str, number: int, last: str | None) -> str:
        """Where a free index begins; past the last one that exists, the last one's place."""
        fn, operand = self.fn, self.operand
        shown = str(number) if last is None else least(fn, str(number), last)
        return added(fn, self.base, operand.free.offset(fn, operand.role, added(fn, first, shown)))

    def _block(self, panel: str, columns: list[str], step: str, v: int, mask: str | None) -> None:
        fn, a, operand, lanes = self.fn, self.arithmetic, self.operand, self.lanes
        inner = operand.inner.offset(fn, operand.role, added(fn, self.run.begin, step))
        rows = [self._read(added(fn, column, inner), lanes * a.group, mask) for column in columns]
        scalar = a.packed if a.group == 1 else "i32"
        if a.group > 1:
            type = vector(a.packed, lanes * a.group)
            rows = [[fn.let(f"bitcast {type} {row[0]} to {vector('i32', lanes)}")] for row in rows]
        parts = [transposed(fn, [row[p] for row in rows], scalar, lanes) for p in range(a.parts)]
        unit = step if a.group == 1 else fn.let(f"sdiv i64 {step}, {a.group}")
        target = pointer(fn, panel, unit, self.width * a.unit_bytes)
        for i in range(lanes):
            row = pointer(fn, target, str(i * self.width * a.unit_bytes + v * lanes * a.unit_bytes), 1)
            values = [part[i] for part in parts]
            if len(values) == 2 and not self.is_planar:
                store(fn, scalar, 2 * lanes, interleaved(fn, values, scalar, lanes), row)
                continue
            for p, value in enumerate(values):
                store(fn, scalar, lanes, value, pointer(fn, row, str(p * lanes * size_of(scalar)), 1))

    def by_elements(self, valid: str | None) -> None:
        fn, panels = self.fn, self.panels
        with fn.loop(panels.begin, panels.end, self.width, [("ptr", panels.address)]) as panel:
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


def transposed(fn: Function, rows: list[str], scalar: str, lanes: int) -> list[str]:
    """The columns of a square of vectors."""
    type, width = vector(scalar, lanes), lanes // 2
    while width:
        out = list(rows)
        for i in range(lanes):
            if i & width:
                continue
            pair = f"{type} {rows[i]}, {type} {rows[i + width]}"
            for side in (0, 1):  # swaps the off-diagonal squares of `width`
                order = [(j & ~width) + side * width + (lanes if j & width else 0) for j in range(lanes)]
                shown = ", ".join(f"i32 {j}" for j in order)
                out[i + side * width] = fn.let(f"shufflevector {pair}, <{lanes} x i32> <{shown}>")
        rows, width = out, width // 2
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
