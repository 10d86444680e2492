"""The phases of a transform: their functions, scratch memory, and loops over groups of lanes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from hlokit.cpu.kernels.fft.axis import Place
from hlokit.cpu.kernels.fft.lanes import Complex, Lanes, swapped, work_size
from hlokit.cpu.kernels.fft.memory import Columns, load_column, store_column
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.routine import PHASE, Phase
from hlokit.cpu.llvm import Function, Loop, Module

CHUNK = 1 << 13
"""Elements that make a chunk."""


@dataclass
class Phases:
    """What is written so far of a routine.

    total     elements of a transform
    inverse   whether results are divided by it
    scratch   bytes that are taken now; most: at any time
    """

    name: str
    module: Module
    lanes: Lanes
    total: int
    inverse: bool
    phases: list[Phase] = field(default_factory=list[Phase])
    scratch: int = 0
    most: int = 0

    @property
    def _complex(self) -> int:
        """Bytes of a complex number."""
        return 2 * self.lanes.scalar_bytes

    def _taken(self, count: int) -> Place:
        """Scratch memory for complex numbers."""
        place = Place(2, self.scratch)
        self.scratch += -(-count * self._complex // 64) * 64
        self.most = max(self.most, self.scratch)
        return place

    def _begin(self, n: int) -> tuple[Function, tuple[str, str]]:
        """A phase's function, and two work buffers for n elements and one more."""
        f = Function(f"{self.name}_{len(self.phases)}", PHASE)
        size = 2 * max(n + 1, work_size(n) or 0)
        return f, (f.alloca(self.lanes.type, size), f.alloca(self.lanes.type, size))

    def _groups(self, outer: int, inner: int, *, columns: bool = False) -> int:
        """Groups of lanes: along `inner` within each outer; along outer if there is no inner one."""
        if inner == 1 and not columns:
            return -(-outer // self.lanes.count)
        return outer * -(-inner // self.lanes.count)

    def _per_chunk(self, groups: int, elements: int) -> int:
        return max(1, -(-groups // 64), min(groups, CHUNK // max(1, elements * self.lanes.count)))

    def _each(self, f: Function, groups: int, elements: int) -> AbstractContextManager[Loop]:
        """A loop over the groups of the chunks, each of so many elements a lane."""
        per_chunk = self._per_chunk(groups, elements)
        low = f.let(f"mul i64 %begin, {per_chunk}")
        return f.loop(low, least(f, f.let(f"mul i64 %end, {per_chunk}"), str(groups)))

    def _end(self, f: Function, groups: int, elements: int) -> None:
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, -(-groups // self._per_chunk(groups, elements))))

    def _map(self, count: int, body: Callable[[Function, str], None]) -> None:
        """A phase that does something for each of `count` elements."""
        f = Function(f"{self.name}_{len(self.phases)}", PHASE)
        low = f.let(f"mul i64 %begin, {CHUNK}")
        with f.loop(low, least(f, f.let(f"mul i64 %end, {CHUNK}"), str(count))) as loop:
            body(f, loop.index)
        f.do("ret void")
        self.module.add(f)
        self.phases.append(Phase(f.name, -(-count // CHUNK)))

    def _column_group(self, f: Function, group: str, inner: int) -> tuple[str, str, str]:
        """(outer index, first lane's place along inner, how many lanes there are: "" for all)."""
        count = self.lanes.count
        per_outer = -(-inner // count)
        outer = f.let(f"udiv i64 {group}, {per_outer}")
        column = f.let(f"mul i64 {f.let(f'urem i64 {group}, {per_outer}')}, {count}")
        if inner % count == 0:
            return outer, column, ""
        return outer, column, least(f, str(count), f.let(f"sub i64 {inner}, {column}"))

    def _rows(self, f: Function, base: str, first: str, rows: int, length: int, *, scalars: int = 2) -> str:
        """Pointers in memory to the rows from `first` on, one a lane; beyond the last row it is that one again."""
        pointers = f.alloca("ptr", self.lanes.count)
        with f.loop("0", str(self.lanes.count)) as lane:
            row = least(f, f.let(f"add i64 {first}, {lane.index}"), str(rows - 1))
            place = f.let(f"mul i64 {row}, {length * scalars}")
            pointer = f.let(f"getelementptr {self.lanes.scalar}, ptr {base}, i64 {place}")
            f.do(f"store ptr {pointer}, ptr {f.let(f'getelementptr ptr, ptr {pointers}, i64 {lane.index}')}")
        return pointers

    def _element(self, f: Function, base: str, index: str) -> str:
        return f.let(f"getelementptr [2 x {self.lanes.scalar}], ptr {base}, i64 {index}")

    def _put(self, f: Function, buffer: str, turned: bool) -> Callable[[str, Complex], None]:
        return lambda k, value: self.lanes.store(f, swapped(value) if turned else value, buffer, k)

    def _get(self, f: Function, buffer: str, turned: bool, factor: float) -> Callable[[str], Complex]:
        def get(k: str) -> Complex:
            value = self.lanes.load(f, buffer, k)
            scaled = self.lanes.scale(f, value, factor) if factor != 1.0 else value
            return swapped(scaled) if turned else scaled

        return get

    def _get_rows(self, f: Function, buffer: str, turned: bool, factor: float) -> Callable[[Lanes, str, str], Complex]:
        def get(lanes: Lanes, first: str, k: str) -> Complex:
            base = f.let(f"getelementptr {lanes.scalar}, ptr {buffer}, i64 {first}")
            value = lanes.load(f, base, k)
            scaled = lanes.scale(f, value, factor) if factor != 1.0 else value
            return swapped(scaled) if turned else scaled

        return get

    def _load_columns(self, f: Function, columns: Columns, n: int, buffer: str, turned: bool) -> None:
        put = self._put(f, buffer, turned)
        with f.loop("0", str(n)) as loop:
            put(loop.index, load_column(f, self.lanes, columns, loop.index))

    def _store_columns(self, f: Function, columns: Columns, n: int, get: Callable[[str], Complex]) -> None:
        with f.loop("0", str(n)) as loop:
            store_column(f, self.lanes, columns, loop.index, get(loop.index))

    def _transform(self, f: Function, core: tuple[str, bool], work: tuple[str, str]) -> str:
        """Runs the passes on work buffer 0; gives the buffer of the result."""
        f.do(f"call void @{core[0]}(ptr {work[0]}, ptr {work[1]})")
        return work[1] if core[1] else work[0]
