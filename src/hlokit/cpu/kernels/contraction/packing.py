"""Packing: blocks of a product's operands, converted, in the order in which the tile reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.costs import LINE_BYTES
from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.arithmetic import Arithmetic
from hlokit.cpu.kernels.contraction.elements import element_bytes, memory_of, read, widened
from hlokit.cpu.kernels.contraction.space import Axis
from hlokit.cpu.kernels.routine import Loader
from hlokit.cpu.llvm import I8, I32, I64, Function, Index, Module, Pointer, Value, joined, memory_type
from hlokit.cpu.target import Target
from hlokit.types.dtype import DType

_ANY_LANES = 1 << 62
"""Asks an axis whether it is contiguous from any index on."""


@dataclass(frozen=True)
class ProductSide:
    """One side of a product: the operand's number, its elements and axes, and the arithmetic that these go into."""

    number: int
    dtype: DType
    role: str
    free: Axis
    inner: Axis
    arithmetic: Arithmetic
    is_scaled: bool = False
    is_loaded: bool = False

    def is_factor(self) -> bool:
        """Whether memory holds the factors as they are."""
        same = memory_type(self.dtype.real) == self.arithmetic.packed.scalar and self.dtype.bits >= 8
        same = same and self.dtype.is_complex == self.arithmetic.is_complex
        same = same and not self.is_scaled and not self.is_loaded
        return same and self.arithmetic.name != "i8"

    @property
    def element_bytes(self) -> int:
        return element_bytes(self.dtype)

    @property
    def step_bytes(self) -> int:
        """Bytes from one step of the inner axis to the next, where that is one distance."""
        stride = self.inner.stride(self.role)
        assert stride is not None
        return stride * self.element_bytes


@dataclass
class Operand:
    """Reads one side of a product. `base` is the address of its elements."""

    module: Module
    target: Target
    base: Pointer
    side: ProductSide

    @property
    def fn(self) -> Function:
        """The function that reads."""
        return self.base.fn

    def read(self, place: Index, lanes: int, mask: Value | None = None) -> list[Value]:
        """`lanes` elements that are consecutive in memory, as factors: one value, or the parts of complex numbers."""
        a = self.side.arithmetic
        if a.name == "bf16":
            return [self.base.to(a.packed)[place].load(lanes, mask)]
        parts = read(self.side.dtype, self.base, place, lanes, a.packed, mask)
        if a.is_complex and not self.side.dtype.is_complex:
            parts.append(self.fn.constant(0.0, a.packed.of(lanes)))
        if a.name == "i8" and self.side.role == "lhs":
            return [parts[0] ^ -128]  # as bytes without sign: 128 more, which the tile takes off again
        return parts

    def at(self, base: Index, free: Index, inner: Index) -> Pointer:
        """The address of an element of the matrix that begins at a place."""
        side = self.side
        place = base + side.free.offset(side.role, free) + side.inner.offset(side.role, inner)
        return self.base.to(I8.array(side.element_bytes))[place]

    @property
    def row_unit(self) -> int:
        """Elements in which places of rows are counted."""
        return 1

    def read_row(self, row: Index, column: Index, lanes: int, mask: Value | None = None) -> list[Value]:
        """The elements of a row of rhs, which begins at a place, from a column on."""
        return self.read(row + column, lanes, mask)

    def prefetch(self, row: Index, column: Index, lanes: int, ahead: int) -> None:
        """Asks for the lines so many bytes behind what `read_row` reads of so many columns."""
        first = self.base.to(I8.array(self.side.element_bytes))[row + column] + ahead
        for line in range(0, lanes * self.side.element_bytes, LINE_BYTES):
            (first + line).prefetch()

    def moved(self, addresses: Mapping[str, Pointer]) -> Operand:
        """The reader of another function, in which the arrays that it reads have these addresses."""
        return replace(self, **dict(addresses))

    def inner_offset(self, run: Run, step: Index) -> Index:
        """The offset of a step of the run, in elements."""
        return self.side.inner.offset(self.side.role, run.begin + step)

    def goes_by_vectors(self, axis: Axis, lanes: int, *, from_any: bool) -> bool:
        """Whether vectors along the axis can be read, from multiples of `lanes` or, `from_any`, from any index on."""
        return axis.is_contiguous(self.side.role, _ANY_LANES if from_any else lanes)

    @property
    def addresses(self) -> dict[str, Pointer]:
        """The arrays that it reads, by field."""
        return {"base": self.base}


@dataclass
class LoadedOperand(Operand):
    """A side that a fused prologue makes. `base` is the table's address, `length` that of a row."""

    loader: Loader
    length: int

    @property
    def addresses(self) -> dict[str, Pointer]:
        return {"table": self.base}

    def moved(self, addresses: Mapping[str, Pointer]) -> Operand:
        return replace(self, base=addresses["table"])

    def read(self, place: Index, lanes: int, mask: Value | None = None) -> list[Value]:
        return self.read_row(place // self.length, place % self.length, lanes, mask)

    @property
    def row_unit(self) -> int:
        return self.length

    def read_row(self, row: Index, column: Index, lanes: int, mask: Value | None = None) -> list[Value]:
        a, memory = self.side.arithmetic, memory_of(self.side.dtype)
        value = self.loader.read(self.fn, row, column, lanes, self.length, mask)
        if value.scalar != memory.scalar:
            value = value.bitcast(memory.of(lanes))
        return [value if a.name == "bf16" else widened(value, self.side.dtype, a.packed)]

    def prefetch(self, row: Index, column: Index, lanes: int, ahead: int) -> None:
        self.loader.prefetch(self.fn, row, column, lanes, self.length, ahead)

    def goes_by_vectors(self, axis: Axis, lanes: int, *, from_any: bool) -> bool:
        if not super().goes_by_vectors(axis, lanes, from_any=from_any):
            return False
        if self.loader.run % lanes == 0:
            return True
        steps = axis.steps(self.side.role)  # none for an axis of one index, which a vector would leave
        return bool(steps) and self.loader.run % steps[-1][0] == 0


@dataclass(frozen=True)
class Run:
    """A range of the inner axis: where it begins, how many elements; how many units, rounded up."""

    begin: Index
    count: Index
    units: Index
    begins_anywhere: bool = False

    @property
    def arguments(self) -> dict[str, Value]:
        """The run, as the arguments of a function of its own."""
        return {"begin": self.begin, "count": self.count, "units": self.units}

    def inside(self, fn: Function) -> Run:
        """The run as that function knows it."""
        begin, count, units = map(fn.index_argument, self.arguments)
        return Run(begin, count, units, self.begins_anywhere)


@dataclass(frozen=True)
class Panels:
    """Where panels go: the first one's address, the bytes from one to the next, the free indices from .. to.

    Each has [unit][free index][element of the unit] for `width` free indices, a multiple of `lanes`, and begins `step`
    indices, by default `width`, after the one before.
    """

    address: Pointer
    bytes: int
    begin: Index
    end: Index
    width: int
    lanes: int
    step: int = 0


def pack_panels(
    operand: Operand, panels: Panels, base: Index, valid: Index | None, run: Run, *, is_small: bool = False
) -> None:
    """Packs whole panels, or, with `valid`, those of which only so many free indices exist.

    rhs's complex numbers are split: vectors of real and of imaginary parts in turn. `is_small`: the operand is so small
    that less code is worth more than faster code.
    """
    writer, side = _Panels(operand, panels, base, run), operand.side
    # lhs's panels begin anywhere
    if operand.goes_by_vectors(side.free, panels.lanes, from_any=side.role == "lhs"):
        writer.by_vectors(valid, 1 if is_small else max(1, costs.STREAMS // side.arithmetic.group))
    elif not is_small and operand.goes_by_vectors(
        side.inner, panels.lanes * side.arithmetic.group, from_any=run.begins_anywhere
    ):
        writer.by_blocks(valid)
    else:
        writer.by_elements(valid)


class _Panels:
    def __init__(self, operand: Operand, panels: Panels, base: Index, run: Run) -> None:
        self.operand, self.fn, self.arithmetic = operand, operand.fn, operand.side.arithmetic
        self.panels, self.base, self.run = panels, base, run
        self.width, self.lanes, self.step = panels.width, panels.lanes, panels.step or panels.width
        self.unit_bytes = self.width * operand.side.arithmetic.unit_bytes
        self.is_planar = operand.side.arithmetic.is_complex and operand.side.role == "rhs"

    def by_vectors(self, valid: Index | None, together: int) -> None:
        """Vectors along the free axis: rows of memory are read from end to end, those of several units `together`."""
        fn, g, run = self.fn, self.arithmetic.group, self.run
        vectors = range(self.width // self.lanes)
        masks = [None if valid is None else (valid - v * self.lanes).first_lanes(self.lanes) for v in vectors]
        whole = run.count // g
        if g == 1:
            whole = run.units
        many = fn.index(0)
        if together > 1:
            many = whole & -together
            with fn.loop(0, many, together) as loop:
                self._across(loop.index, together, [[mask] * g for mask in masks])
        with fn.loop(many, whole) as loop:
            self._across(loop.index, 1, [[mask] * g for mask in masks])
        if g == 1:
            return
        with fn.when(whole < run.units):
            left = run.count % g
            self._across(whole, 1, [[self._within(mask, left, j) for j in range(g)] for mask in masks])

    def _across(self, unit: Index, count: int, masks: list[list[Value | None]]) -> None:
        """So many units of all panels, side by side."""
        fn, operand, g = self.fn, self.operand, self.arithmetic.group
        steps = [[unit * g + (u * g + j) for j in range(g)] for u in range(count)]
        rows = [[self.base + operand.inner_offset(self.run, step) for step in some] for some in steps]
        target = self.panels.address + unit * self.unit_bytes
        with fn.loop(self.panels.begin, self.panels.end, self.step, [target]) as panel:
            for v, some in enumerate(masks):
                free = operand.side.free.offset(operand.side.role, panel.index + v * self.lanes)
                for u in range(count):
                    self._unit(panel.carried[0] + u * self.unit_bytes, v, [row + free for row in rows[u]], some)
            panel.next = [panel.carried[0] + self.panels.bytes]

    def _within(self, mask: Value | None, left: Index, j: int) -> Value:
        inside = (left > j).splat(self.lanes)
        return inside if mask is None else inside & mask

    def _unit(self, row: Pointer, v: int, places: Sequence[Index], masks: Sequence[Value | None]) -> None:
        """One vector's free indices of a unit."""
        a, lanes = self.arithmetic, self.lanes
        values = [self.operand.read(place, lanes, mask) for place, mask in zip(places, masks, strict=True)]
        target = (row + v * lanes * a.unit_bytes).to(a.packed)
        if a.group > 1:
            target.store(_grouped([value for (value,) in values]))
        else:
            _store_parts(target, values[0], is_planar=self.is_planar)

    def by_blocks(self, valid: Index | None) -> None:
        """Vectors along the inner axis, transposed in registers by a function that all panels of this kind share."""
        fn, panels, operand, count = self.fn, self.panels, self.operand, self.run.count
        length = self.lanes * self.arithmetic.group
        places = fn.local(I64, self.lanes, 64)
        with fn.loop(panels.begin, panels.end, self.step, [panels.address]) as panel:
            with fn.loop(0, self.width, self.lanes) as part:
                with fn.loop(0, self.lanes) as column:
                    places[column.index].store(self._place(panel.index, part.index + column.index, valid))
                target = panel.carried[0] + part.index * self.arithmetic.unit_bytes
                if operand.side.inner.is_contiguous(operand.side.role, _ANY_LANES):
                    self._block(target, places, fn.index(0), count)
                else:
                    with fn.loop(0, count, length) as step:
                        self._block(target, places, step.index, (count - step.index).least(length))
            panel.next = [panel.carried[0] + panels.bytes]

    def _place(self, first: Index, number: Index, valid: Index | None) -> Index:
        """Where a free index begins; past the last one that exists, the last one's place."""
        shown = number if valid is None else number.least(valid - 1)
        return self.base + self.operand.side.free.offset(self.operand.side.role, first + shown)

    def _block(self, target: Pointer, places: Pointer, step: Index, count: Index) -> None:
        row = target + step // self.arithmetic.group * self.unit_bytes
        inner = self.operand.inner_offset(self.run, step)
        name = _block_function(self.operand, self.width, self.lanes)
        self.fn.call(name, row, places, *self.operand.addresses.values(), inner, count)

    def by_elements(self, valid: Index | None) -> None:
        """One by one; what does not exist is a copy: anything else that lies there may be slow to multiply."""
        fn, panels = self.fn, self.panels
        with fn.loop(panels.begin, panels.end, self.step, [panels.address]) as panel:
            with fn.loop(0, self.width) as column:
                place = self._place(panel.index, column.index, valid)
                with fn.loop(0, self.run.units * self.arithmetic.group) as step:
                    self._element(panel.carried[0], column.index, step.index, place)
            panel.next = [panel.carried[0] + panels.bytes]

    def _element(self, address: Pointer, column: Index, step: Index, place: Index) -> None:
        a, operand = self.arithmetic, self.operand
        row, own = (address + step // a.group * self.unit_bytes).to(a.packed), step % a.group
        if a.group > 1:  # what completes a unit is 0
            self._spot(row, column, own, 0).store(0)
        with self.fn.when(step < self.run.count):
            parts = operand.read(place + operand.inner_offset(self.run, step), 1)
            for p, value in enumerate(parts):
                self._spot(row, column, own, p).store(value)

    def _spot(self, row: Pointer, column: Index, own: Index, part: int) -> Pointer:
        """Where one element of a panel's row goes."""
        a, lanes = self.arithmetic, self.lanes
        if self.is_planar:
            return row[column // lanes * (2 * lanes) + column % lanes + part * lanes]
        return row[column * (a.group * a.parts) + own + part]


def _store_parts(target: Pointer, parts: Sequence[Value], *, is_planar: bool) -> None:
    """Stores a vector, or a complex one's parts: by turns, or, planar, one vector after the other."""
    if len(parts) == 2 and not is_planar:
        target.store(parts[0].interleaved(parts[1]))
        return
    for p, part in enumerate(parts):
        target[p * part.lanes].store(part)


def _grouped(vectors: Sequence[Value]) -> Value:
    """The lanes of the vectors side by side: first all lanes 0, then all lanes 1, ..."""
    while len(vectors) > 1:  # (0, 2), (1, 3), so that lanes come out in order
        half = len(vectors) // 2
        vectors = [vectors[i].interleaved(vectors[i + half]) for i in range(half)]
    return vectors[0]


def _block_function(operand: Operand, width: int, lanes: int) -> str:
    """void f(ptr target, ptr places, ptr base..., i64 inner, i64 count): `lanes` rows become columns of a panel.

    Row i has `count` elements from base[places[i] + inner] on. They are read by 16 bytes: rows i, i + e, i + 2 e, ...
    side by side in a vector, whose quarters are then transposed at once; e elements are a quarter.
    """
    a = operand.side.arithmetic
    unit = a.packed if a.group == 1 else I32
    e = min(16 // unit.bytes, lanes)
    pointers = ("target", "places", *operand.addresses)
    parameters = [*(("ptr", name) for name in pointers), ("i64", "inner"), ("i64", "count")]
    fn = Function("", parameters, attributes="noinline nounwind", target=operand.target)
    target, places, *bases = (fn.pointer(name) for name in pointers)
    inner, count = fn.index_argument("inner"), fn.index_argument("count")
    rows = operand.moved(dict(zip(operand.addresses, bases, strict=True)))

    def piece(row: int, step: Index, mask: Value | None) -> list[Value]:
        place = fn.index(places.to(I64)[row].load())
        parts = rows.read(place + inner + step, e * a.group, mask)
        return parts if a.group == 1 else [parts[0].bitcast(I32.of(e))]

    def columns(step: Index, mask: Value | None) -> None:
        pieces = [piece(i, step, mask) for i in range(lanes)]
        parts = [_transposed([joined([row[p] for row in pieces[j::e]]) for j in range(e)]) for p in range(a.parts)]
        first = step // a.group
        for i in range(e):
            row = (target + (first + i) * (width * a.unit_bytes)).to(unit)
            _store_parts(row, [part[i] for part in parts], is_planar=operand.side.role == "rhs")

    whole = count & (-e * a.group)
    with fn.loop(0, whole, e * a.group) as step:
        columns(step.index, None)
    with fn.when(whole < count):
        columns(whole, (count - whole).first_lanes(e * a.group))
    fn.returns()
    return operand.module.add_by_text(fn, "pack_block")


def _transposed(rows: Sequence[Value]) -> list[Value]:
    """Squares of as many lanes as there are rows, side by side, each transposed: rounds of interleaving two rows."""
    e, lanes = len(rows), rows[0].lanes
    for _ in range(e.bit_length() - 1):
        out: list[Value] = []
        for x, y in zip(rows[: e // 2], rows[e // 2 :], strict=True):
            for side in (0, e // 2):
                order = [q + side + i + k for q in range(0, lanes, e) for i in range(e // 2) for k in (0, lanes)]
                out.append(x.shuffled(order, y))
        rows = out
    return list(rows)


def pack_rows(
    operand: Operand,
    rows: Index,
    valid: Index | None,
    panel: Pointer,
    row_bytes: int,
    base: Index,
    first: Index,
    run: Run,
) -> None:
    """lhs as it stands, [row][inner], each row padded to `row_bytes`; elements past the run are 0 up to a unit.

    Of `rows` rows `valid`, or all, exist; the others are copies of the last.
    """
    with operand.fn.loop(0, rows) as row:
        index = row.index if valid is None else row.index.least(valid - 1)
        place = base + operand.side.free.offset(operand.side.role, first + index)
        _pack_row(operand, (panel + row.index * row_bytes).to(operand.side.arithmetic.packed), place, run)


def _pack_row(operand: Operand, target: Pointer, place: Index, run: Run) -> None:
    fn, a = operand.fn, operand.side.arithmetic
    lanes = 64 // a.packed.bytes // a.parts
    if not operand.goes_by_vectors(operand.side.inner, lanes, from_any=run.begins_anywhere):
        _pack_row_by_elements(operand, target, place, run)
        return

    def move(step: Index, mask: Value | None) -> None:
        parts = operand.read(place + operand.inner_offset(run, step), lanes, mask)
        _store_parts(target[step * a.parts], parts, is_planar=False)

    whole = run.count & -lanes
    with fn.loop(0, whole, lanes) as loop:
        move(loop.index, None)
    with fn.when(whole < run.count):
        move(whole, (run.count - whole).first_lanes(lanes))


def _pack_row_by_elements(operand: Operand, target: Pointer, place: Index, run: Run) -> None:
    fn, a = operand.fn, operand.side.arithmetic
    with fn.loop(0, run.units * a.group) as loop:
        address = target[loop.index * a.parts]
        if a.group > 1:
            address.store(0)
        with fn.when(loop.index < run.count):
            for p, part in enumerate(operand.read(place + operand.inner_offset(run, loop.index), 1)):
                address[p].store(part)


def write_corrections(panel: Pointer, vectors: int, lanes: int, run: Run) -> None:
    """Before an i8 panel: for each column -128 times the sum of its elements."""
    fn, bytes_ = panel.fn, I8.of(4 * lanes)
    size = 4 * lanes
    body, ones = panel + vectors * size, fn.constant(1, bytes_)
    with fn.loop(0, run.units, 1, [fn.constant(0, I32.of(lanes))] * vectors) as loop:
        row = body + loop.index * (vectors * size)
        for v in range(vectors):
            total, value = loop.carried[v], (row + v * size).to(I8).load(4 * lanes)
            loop.next.append(fn.call_for(total.type, f"llvm.x86.avx512.vpdpbusd.{32 * lanes}", total, ones, value))
    for v, total in enumerate(loop.results):
        panel.to(I32)[v * lanes].store(total * -128)
