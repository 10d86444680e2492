"""Between arrays of complex or real numbers and work buffers: lanes that lie side by side, and lanes that are rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, swapped
from hlokit.cpu.llvm import Function, vector


@dataclass(frozen=True)
class Columns:
    """Sequences side by side in memory: element k of lane l is number base + k stride + l of the array.

    valid   how many lanes there are (i64), at most all; "": all
    """

    array: str
    base: str
    stride: int
    valid: str = ""


def load_column(f: Function, lanes: Lanes, columns: Columns, k: str) -> Complex:
    """Element k (i64) of all lanes; lanes that are not valid are junk."""
    wide, place = _wide(lanes), _column_place(f, lanes, columns, k)
    align = lanes.scalar_bytes
    if columns.valid:
        mask = _mask(f, lanes, columns.valid)
        suffix = f"v{2 * lanes.count}f{8 * align}.p0"
        masked = f"{vector('i1', 2 * lanes.count)} {mask}, {wide} zeroinitializer"
        both = f.let(f"call {wide} @llvm.masked.load.{suffix}(ptr align {align} {place}, {masked})")
    else:
        both = f.let(f"load {wide}, ptr {place}, align {align}")
    even = ", ".join(f"i32 {2 * i}" for i in range(lanes.count))
    odd = ", ".join(f"i32 {2 * i + 1}" for i in range(lanes.count))
    head = f"shufflevector {wide} {both}, {wide} poison, <{lanes.count} x i32>"
    return f.let(f"{head} <{even}>"), f.let(f"{head} <{odd}>")


def store_column(f: Function, lanes: Lanes, columns: Columns, k: str, value: Complex) -> None:
    wide, place = _wide(lanes), _column_place(f, lanes, columns, k)
    align = lanes.scalar_bytes
    chosen = ", ".join(f"i32 {i}, i32 {lanes.count + i}" for i in range(lanes.count))
    both = f.let(
        f"shufflevector {lanes.type} {value[0]}, {lanes.type} {value[1]}, <{2 * lanes.count} x i32> <{chosen}>"
    )
    if columns.valid:
        mask = _mask(f, lanes, columns.valid)
        suffix = f"v{2 * lanes.count}f{8 * align}.p0"
        f.do(
            f"call void @llvm.masked.store.{suffix}({wide} {both}, ptr align {align} {place}, "
            f"{vector('i1', 2 * lanes.count)} {mask})"
        )
    else:
        f.do(f"store {wide} {both}, ptr {place}, align {align}")


def _wide(lanes: Lanes) -> str:
    return vector(lanes.scalar, 2 * lanes.count)


def _column_place(f: Function, lanes: Lanes, columns: Columns, k: str) -> str:
    index = f.let(f"add i64 {columns.base}, {f.let(f'mul i64 {k}, {columns.stride}')}")
    return f.let(f"getelementptr [2 x {lanes.scalar}], ptr {columns.array}, i64 {index}")


def _mask(f: Function, lanes: Lanes, valid: str) -> str:
    """An i1 for each scalar."""
    count = 2 * lanes.count
    type = vector("i32", count)
    doubled = f.let(f"shl i32 {f.let(f'trunc i64 {valid} to i32')}, 1")
    one = f.let(f"insertelement {type} poison, i32 {doubled}, i64 0")
    limit = f.let(f"shufflevector {type} {one}, {type} poison, <{count} x i32> zeroinitializer")
    numbers = ", ".join(f"i32 {i}" for i in range(count))
    return f.let(f"icmp slt {type} <{numbers}>, {limit}")


# -- rows: a pointer for each lane in memory, elements one after the other. Lanes may have the same row, and then the
# same values. Complex rows go half of the lanes at a time: a register has so many complex numbers


def load_rows(f: Function, lanes: Lanes, rows: str, count: int, buffer: str, turned: bool = False) -> None:
    """Complex rows of `count` elements to a work buffer; turned: with their parts swapped."""
    unit = lanes.count // 2
    half = lanes.half()
    even, odd = (", ".join(f"i32 {2 * i + part}" for i in range(unit)) for part in (0, 1))
    with f.loop("0", str(lanes.count), unit) as part:
        pointers = _pointers(f, rows, part.index, unit)
        goal = f.let(f"getelementptr {lanes.scalar}, ptr {buffer}, i64 {part.index}")
        with f.loop("0", str(count - count % unit), unit) as loop:
            places = [f.let(f"getelementptr [2 x {lanes.scalar}], ptr {p}, i64 {loop.index}") for p in pointers]
            loaded = [f.let(f"load {lanes.type}, ptr {p}, align {lanes.scalar_bytes}") for p in places]
            for j, both in enumerate(transposed(f, loaded, lanes.scalar, 2)):
                head = f"shufflevector {lanes.type} {both}, {lanes.type} poison, <{unit} x i32>"
                value = f.let(f"{head} <{even}>"), f.let(f"{head} <{odd}>")
                half.store(f, swapped(value) if turned else value, goal, f.let(f"add i64 {loop.index}, {j}"))
    if count % unit:
        with f.loop("0", str(lanes.count)) as lane:
            (pointer,) = _pointers(f, rows, lane.index, 1)
            goal = f.let(f"getelementptr {lanes.scalar}, ptr {buffer}, i64 {lane.index}")
            one = Lanes(lanes.scalar, 1, lanes.count)
            with f.loop(str(count - count % unit), str(count)) as loop:
                value = Lanes(lanes.scalar, 1).load(f, pointer, loop.index)
                one.store(f, swapped(value) if turned else value, goal, loop.index)


def store_rows(f: Function, lanes: Lanes, rows: str, count: int, get: Callable[[Lanes, str, str], Complex]) -> None:
    """Complex rows of `count` elements: get(lanes, first, k) is element k of some of the lanes, from `first` on."""
    unit = lanes.count // 2
    half = lanes.half()
    chosen = ", ".join(f"i32 {i}, i32 {unit + i}" for i in range(unit))
    with f.loop("0", str(lanes.count), unit) as part:
        pointers = _pointers(f, rows, part.index, unit)
        with f.loop("0", str(count - count % unit), unit) as loop:
            values: list[str] = []
            for j in range(unit):
                real, imag = get(half, part.index, f.let(f"add i64 {loop.index}, {j}"))
                head = f"shufflevector {half.type} {real}, {half.type} {imag}, <{lanes.count} x i32>"
                values.append(f.let(f"{head} <{chosen}>"))
            for pointer, value in zip(pointers, transposed(f, values, lanes.scalar, 2), strict=True):
                place = f.let(f"getelementptr [2 x {lanes.scalar}], ptr {pointer}, i64 {loop.index}")
                f.do(f"store {lanes.type} {value}, ptr {place}, align {lanes.scalar_bytes}")
    if count % unit:
        with f.loop("0", str(lanes.count)) as lane:
            (pointer,) = _pointers(f, rows, lane.index, 1)
            with f.loop(str(count - count % unit), str(count)) as loop:
                value = get(Lanes(lanes.scalar, 1, lanes.count), lane.index, loop.index)
                Lanes(lanes.scalar, 1).store(f, value, pointer, loop.index)


def _pointers(f: Function, rows: str, first: str, count: int) -> list[str]:
    base = f.let(f"getelementptr ptr, ptr {rows}, i64 {first}")
    return [f.let(f"load ptr, ptr {f.let(f'getelementptr ptr, ptr {base}, i64 {k}')}") for k in range(count)]


def load_real_rows(f: Function, lanes: Lanes, pointers: str, count: int, put: Callable[[str, str], None]) -> None:
    """Real rows: put(k, element k of all lanes)."""
    rows = _pointers(f, pointers, "0", lanes.count)
    unit = lanes.count
    with f.loop("0", str(count - count % unit), unit) as loop:
        places = [f.let(f"getelementptr {lanes.scalar}, ptr {r}, i64 {loop.index}") for r in rows]
        loaded = [f.let(f"load {lanes.type}, ptr {p}, align {lanes.scalar_bytes}") for p in places]
        for j, value in enumerate(transposed(f, loaded, lanes.scalar)):
            put(f.let(f"add i64 {loop.index}, {j}"), value)
    if count % unit:
        with f.loop(str(count - count % unit), str(count)) as loop:
            put(loop.index, _gathered(f, lanes, rows, loop.index))


def store_real_rows(f: Function, lanes: Lanes, pointers: str, count: int, get: Callable[[str], str]) -> None:
    """Real rows: get(k) is element k of all lanes."""
    rows = _pointers(f, pointers, "0", lanes.count)
    unit = lanes.count
    with f.loop("0", str(count - count % unit), unit) as loop:
        values = [get(f.let(f"add i64 {loop.index}, {j}")) for j in range(unit)]
        for row, value in zip(rows, transposed(f, values, lanes.scalar), strict=True):
            place = f.let(f"getelementptr {lanes.scalar}, ptr {row}, i64 {loop.index}")
            f.do(f"store {lanes.type} {value}, ptr {place}, align {lanes.scalar_bytes}")
    if count % unit:
        with f.loop(str(count - count % unit), str(count)) as loop:
            _scatter(f, lanes, rows, loop.index, get(loop.index))


def _gathered(f: Function, lanes: Lanes, rows: Sequence[str], place: str) -> str:
    """The scalars at one place of each row."""
    value = "poison"
    for lane, row in enumerate(rows):
        one = f.let(f"load {lanes.scalar}, ptr {f.let(f'getelementptr {lanes.scalar}, ptr {row}, i64 {place}')}")
        value = f.let(f"insertelement {lanes.type} {value}, {lanes.scalar} {one}, i64 {lane}")
    return value


def _scatter(f: Function, lanes: Lanes, rows: Sequence[str], place: str, value: str) -> None:
    for lane, row in enumerate(rows):
        one = f.let(f"extractelement {lanes.type} {value}, i64 {lane}")
        f.do(f"store {lanes.scalar} {one}, ptr {f.let(f'getelementptr {lanes.scalar}, ptr {row}, i64 {place}')}")
