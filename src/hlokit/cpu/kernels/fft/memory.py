"""Complex numbers in memory: work buffers, lanes that are adjacent in an array, and lanes that are rows of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.llvm import POINTER, Complex, Function, Index, Pointer, Type, Value, transposed


def complex_array(first: Pointer, scalar: Type) -> Pointer:
    """An array of complex numbers: real and imaginary parts by turns."""
    return first.to(scalar.array(2), scalar.bytes)


def load_splat(number: Pointer, lanes: int) -> Complex:
    """A number of an array in every lane."""
    parts = number.to(number.element.element)
    return Complex(parts.load().splat(lanes), parts[1].load().splat(lanes))


@dataclass(frozen=True)
class Work:
    """A work buffer: for each element of the sequences a vector of real parts, one a lane, then one of imaginary parts.

    base     the first lane that is loaded and stored
    vector   of these lanes
    width    lanes of the buffer
    """

    base: Pointer
    vector: Type
    width: int

    @staticmethod
    def at(first: Pointer, vector: Type, width: int = 0) -> Work:
        """The buffer that begins there; or of a wider one the lanes that begin there."""
        width = width or vector.lanes
        return Work(first.to(vector.element.array(2 * width), vector.lanes * vector.bytes), vector, width)

    @staticmethod
    def local(f: Function, vector: Type, count: int) -> Work:
        """A buffer for `count` elements on the stack."""
        return Work.at(f.local(vector, 2 * count, 64), vector)

    def __getitem__(self, k: Value | int) -> Work:
        """From element k on."""
        return replace(self, base=self.base[k])

    def part(self, first: Value, lanes: int) -> Work:
        """Some lanes, from `first` on."""
        return Work.at(self.base.to(self.vector.element)[first], self.vector.of(lanes), self.width)

    def load(self, k: Value | int) -> Complex:
        return Complex(*(part.load(self.vector.lanes) for part in self._parts(k)))

    def store(self, k: Value | int, value: Complex) -> None:
        for part, given in zip(self._parts(k), (value.real, value.imag), strict=True):
            part.store(given)

    def _parts(self, k: Value | int) -> tuple[Pointer, Pointer]:
        real = self.base[k].to(self.vector.element, self.base.align)
        return real, real[self.width]


@dataclass(frozen=True)
class Columns:
    """Sequences side by side in memory: element k of lane l is number base + k stride + l of a complex array.

    lanes   of a vector
    valid   how many of them there are; None: all. Others are not stored, and junk where they are loaded
    """

    array: Pointer
    base: Index
    stride: int
    lanes: int
    valid: Index | None = None

    def load(self, k: Value | int) -> Complex:
        return Complex(*self._place(k).load(2 * self.lanes, self._mask).deinterleaved())

    def store(self, k: Value | int, value: Complex) -> None:
        self._place(k).store(value.real.interleaved(value.imag), self._mask)

    def _place(self, k: Value | int) -> Pointer:
        return self.array[self.base + self.array.fn.index(k) * self.stride]

    @property
    def _mask(self) -> Value | None:
        """An i1 for each part of a number."""
        if self.valid is None:
            return None
        return (self.valid << 1).first_lanes(2 * self.lanes)


# -- rows: a pointer for each lane in memory, elements one after the other. Lanes may have the same row, and then the
# same values. Complex rows go half of the lanes at a time: a register has so many complex numbers


def load_rows(
    rows: Pointer, count: int, work: Work, loaded: Callable[[Complex], Complex] = lambda value: value
) -> None:
    """Complex rows of `count` elements to a work buffer, each number as `loaded` makes it."""
    f, lanes, scalar = rows.fn, work.width, work.vector.element
    unit = lanes // 2
    with f.loop(0, lanes, unit) as part:
        pointers = _row_pointers(rows[part.index], unit, scalar.array(2), scalar.bytes)
        goal = work.part(part.index, unit)
        with f.loop(0, count - count % unit, unit) as loop:
            numbers = [pointer[loop.index].load(lanes) for pointer in pointers]
            for j, both in enumerate(transposed(numbers, 2)):
                goal.store(loop.index + j, loaded(Complex(*both.deinterleaved())))
    if count % unit:
        with f.loop(0, lanes) as lane:
            (pointer,) = _row_pointers(rows[lane.index], 1, scalar)
            row, goal = Work.at(pointer, scalar), work.part(lane.index, 1)
            with f.loop(count - count % unit, count) as loop:
                goal.store(loop.index, loaded(row.load(loop.index)))


def store_rows(rows: Pointer, count: int, work: Work, get: Callable[[Work, Index], Complex]) -> None:
    """Complex rows of `count` elements: get(part, k) is element k of the lanes of this part of the work buffer."""
    f, lanes, scalar = rows.fn, work.width, work.vector.element
    unit = lanes // 2
    with f.loop(0, lanes, unit) as part:
        pointers = _row_pointers(rows[part.index], unit, scalar.array(2), scalar.bytes)
        source = work.part(part.index, unit)
        with f.loop(0, count - count % unit, unit) as loop:
            values = [get(source, loop.index + j) for j in range(unit)]
            numbers = transposed([value.real.interleaved(value.imag) for value in values], 2)
            for pointer, both in zip(pointers, numbers, strict=True):
                pointer[loop.index].store(both)
    if count % unit:
        with f.loop(0, lanes) as lane:
            (pointer,) = _row_pointers(rows[lane.index], 1, scalar)
            row, source = Work.at(pointer, scalar), work.part(lane.index, 1)
            with f.loop(count - count % unit, count) as loop:
                row.store(loop.index, get(source, loop.index))


def row_pointers(f: Function, lanes: int, row: Callable[[Index], Pointer]) -> Pointer:
    """Pointers to rows in memory, one a lane."""
    pointers = f.local(POINTER, lanes, 64)
    with f.loop(0, lanes) as lane:
        pointers[lane.index].store(row(lane.index))
    return pointers


def _row_pointers(rows: Pointer, count: int, element: Type, align: int = 0) -> list[Pointer]:
    return [rows[k].load_pointer(element).to(element, align) for k in range(count)]


def load_real_rows(pointers: Pointer, count: int, vector: Type, put: Callable[[Index, Value], None]) -> None:
    """Real rows: put(k, element k of all lanes)."""
    f, unit = pointers.fn, vector.lanes
    rows = _row_pointers(pointers, unit, vector.element)
    with f.loop(0, count - count % unit, unit) as loop:
        for j, value in enumerate(transposed([row[loop.index].load(unit) for row in rows])):
            put(loop.index + j, value)
    if count % unit:
        with f.loop(count - count % unit, count) as loop:
            put(loop.index, _gathered([row[loop.index].load() for row in rows]))


def store_real_rows(pointers: Pointer, count: int, vector: Type, get: Callable[[Index], Value]) -> None:
    """Real rows: get(k) is element k of all lanes."""
    f, unit = pointers.fn, vector.lanes
    rows = _row_pointers(pointers, unit, vector.element)
    with f.loop(0, count - count % unit, unit) as loop:
        values = [get(loop.index + j) for j in range(unit)]
        for row, value in zip(rows, transposed(values), strict=True):
            row[loop.index].store(value)
    if count % unit:
        with f.loop(count - count % unit, count) as loop:
            value = get(loop.index)
            for lane, row in enumerate(rows):
                row[loop.index].store(value.lane(lane))


def _gathered(scalars: Sequence[Value]) -> Value:
    """A vector of scalars."""
    value = scalars[0].fn.poison(scalars[0].type.of(len(scalars)))
    for lane, one in enumerate(scalars):
        value = value.with_lane(lane, one)
    return value
