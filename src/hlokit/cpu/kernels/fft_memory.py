"""Between arrays of complex or real numbers and work buffers: lanes that lie side by side, and lanes that are rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.fft_lanes import Complex, Lanes
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
        both = f.let(
            f"call {wide} @llvm.masked.load.{suffix}(ptr align {align} {place}, {vector('i1', 2 * lanes.count)} {mask}, "
            f"{wide} zeroinitializer)"
        )
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
    count = 2 * lanes.count
    type = vector("i64", count)
    one = f.let(f"insertelement {type} poison, i64 {f.let(f'shl i64 {valid}, 1')}, i64 0")
    limit = f.let(f"shufflevector {type} {one}, {type} poison, <{count} x i32> zeroinitializer")
    numbers = ", ".join(f"i64 {i}" for i in range(count))
    return f.let(f"icmp slt {type} <{numbers}>, {limit}")


# -- rows: a pointer for each lane, elements one after the other. Lanes may have the same row, and then the same values


def load_rows(
    f: Function, lanes: Lanes, rows: Sequence[str], count: int, put: Callable[[str, Complex], None]
) -> None:
    """Calls put(k, element k of all lanes) for complex rows of `count` elements."""
    unit = lanes.count // 2
    with f.loop("0", str(count - count % unit), unit) as loop:
        halves: list[list[str]] = []
        for half in (rows[:unit], rows[unit:]):
            places = [f.let(f"getelementptr [2 x {lanes.scalar}], ptr {r}, i64 {loop.index}") for r in half]
            loaded = [f.let(f"load {lanes.type}, ptr {p}, align {lanes.scalar_bytes}") for p in places]
            halves.append(_transposed(f, lanes, loaded, 2))
        for j, (low, high) in enumerate(zip(*halves, strict=True)):
            even = ", ".join(f"i32 {2 * i}" for i in range(lanes.count))
            odd = ", ".join(f"i32 {2 * i + 1}" for i in range(lanes.count))
            head = f"shufflevector {lanes.type} {low}, {lanes.type} {high}, <{lanes.count} x i32>"
            put(f.let(f"add i64 {loop.index}, {j}"), (f.let(f"{head} <{even}>"), f.let(f"{head} <{odd}>")))
    if count % unit:
        with f.loop(str(count - count % unit), str(count)) as loop:
            place = f.let(f"shl i64 {loop.index}, 1")
            second = f.let(f"add i64 {place}, 1")
            put(loop.index, (_gathered(f, lanes, rows, place), _gathered(f, lanes, rows, second)))


def store_rows(f: Function, lanes: Lanes, rows: Sequence[str], count: int, get: Callable[[str], Complex]) -> None:
    """Writes get(k), element k of all lanes, to complex rows of `count` elements."""
    unit = lanes.count // 2
    with f.loop("0", str(count - count % unit), unit) as loop:
        halves: list[list[str]] = [[], []]
        for j in range(unit):
            real, imag = get(f.let(f"add i64 {loop.index}, {j}"))
            for h in (0, 1):
                chosen = ", ".join(f"i32 {h * unit + i}, i32 {lanes.count + h * unit + i}" for i in range(unit))
                head = f"shufflevector {lanes.type} {real}, {lanes.type} {imag}, <{lanes.count} x i32>"
                halves[h].append(f.let(f"{head} <{chosen}>"))
        for h in (0, 1):
            for row, value in zip(rows[h * unit :], _transposed(f, lanes, halves[h], 2), strict=False):
                place = f.let(f"getelementptr [2 x {lanes.scalar}], ptr {row}, i64 {loop.index}")
                f.do(f"store {lanes.type} {value}, ptr {place}, align {lanes.scalar_bytes}")
    if count % unit:
        with f.loop(str(count - count % unit), str(count)) as loop:
            place = f.let(f"shl i64 {loop.index}, 1")
            real, imag = get(loop.index)
            _scatter(f, lanes, rows, place, real)
            _scatter(f, lanes, rows, f.let(f"add i64 {place}, 1"), imag)


def load_real_rows(
    f: Function, lanes: Lanes, rows: Sequence[str], count: int, put: Callable[[str, str], None]
) -> None:
    """As load_rows, of real numbers."""
    unit = lanes.count
    with f.loop("0", str(count - count % unit), unit) as loop:
        places = [f.let(f"getelementptr {lanes.scalar}, ptr {r}, i64 {loop.index}") for r in rows]
        loaded = [f.let(f"load {lanes.type}, ptr {p}, align {lanes.scalar_bytes}") for p in places]
        for j, value in enumerate(_transposed(f, lanes, loaded, 1)):
            put(f.let(f"add i64 {loop.index}, {j}"), value)
    if count % unit:
        with f.loop(str(count - count % unit), str(count)) as loop:
            put(loop.index, _gathered(f, lanes, rows, loop.index))


def store_real_rows(f: Function, lanes: Lanes, rows: Sequence[str], count: int, get: Callable[[str], str]) -> None:
    """As store_rows, of real numbers."""
    unit = lanes.count
    with f.loop("0", str(count - count % unit), unit) as loop:
        values = [get(f.let(f"add i64 {loop.index}, {j}")) for j in range(unit)]
        for row, value in zip(rows, _transposed(f, lanes, values, 1), strict=True):
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


def _transposed(f: Function, lanes: Lanes, rows: Sequence[str], unit: int) -> list[str]:
    """A square of units of one or two scalars, transposed: by blocks of 1, 2, 4 ... units."""
    values = list(rows)
    size = len(values)
    distance = 1
    while distance < size:
        chosen: list[list[int]] = [[], []]
        for place in range(size):
            upper = bool(place & distance)
            # of the first: its own lower blocks, the second's lower ones; of the second: the upper ones of both
            first = place - distance + size if upper else place
            second = place + size if upper else place + distance
            for which, taken in enumerate((first, second)):
                chosen[which] += [taken * unit + i for i in range(unit)]
        for i in range(size):
            if not i & distance:
                a, b = values[i], values[i + distance]
                head = f"shufflevector {lanes.type} {a}, {lanes.type} {b}, <{lanes.count} x i32>"
                shown = [", ".join(f"i32 {c}" for c in which) for which in chosen]
                values[i], values[i + distance] = f.let(f"{head} <{shown[0]}>"), f.let(f"{head} <{shown[1]}>")
        distance *= 2
    return values
