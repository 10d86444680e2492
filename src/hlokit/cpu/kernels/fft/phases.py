"""The phases of a transform: their functions, scratch memory, and loops over groups of lanes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from hlokit.cpu import costs
from hlokit.cpu.kernels.fft.axis import Place, TransformAxis
from hlokit.cpu.kernels.fft.memory import Columns, Work, complex_array, row_pointers
from hlokit.cpu.kernels.fft.stockham import work_size
from hlokit.cpu.kernels.routine import PHASE, Phase, chunk_bounds, each_chunk, up
from hlokit.cpu.llvm import Complex, Function, Index, Loop, Module, Pointer, Type


@dataclass
class Phases:
    """The phases of a routine as far as they are written.

    vector    of real parts, or imaginary ones
    total     elements of a transform
    inverse   whether results are divided by it
    scratch   bytes that are taken now; most: at any time
    """

    name: str
    module: Module
    vector: Type
    total: int
    inverse: bool
    phases: list[Phase] = field(default_factory=list[Phase])
    scratch: int = 0
    most: int = 0

    @property
    def scalar(self) -> Type:
        return self.vector.element

    @property
    def lanes(self) -> int:
        return self.vector.lanes

    def take(self, count: int) -> Place:
        """Scratch memory for complex numbers."""
        place = Place(2, self.scratch)
        self.scratch += up(count * 2 * self.scalar.bytes, 64)
        self.most = max(self.most, self.scratch)
        return place

    @contextmanager
    def phase(self, chunks: int) -> Generator[Function]:
        """Adds a phase; its function is written inside."""
        with self.module.function(f"{self.name}_{len(self.phases)}", PHASE, fast_math="contract") as f:
            yield f
        self.phases.append(Phase(f.name, chunks))

    @contextmanager
    def map(self, count: int, step: int = 1, per_chunk: int = costs.FFT_CHUNK) -> Generator[tuple[Function, Index]]:
        """A phase that does what is written inside for each `step` of `count` elements."""
        with self.phase(-(-count // per_chunk)) as f, self.each(f, count, step, per_chunk) as loop:
            yield f, loop.index

    def each(self, f: Function, count: int, step: int, per_chunk: int) -> AbstractContextManager[Loop]:
        """A loop over the elements of the phase's chunks."""
        low, high = (chunk * per_chunk for chunk in chunk_bounds(f))
        return f.loop(low, high.smin(count), step)

    @contextmanager
    def map_rows(self, rows: int, length: int) -> Generator[tuple[Function, Index, Index, Index]]:
        """A phase for parts of rows: what is written inside does elements low to high of a row."""
        parts = -(-length // costs.FFT_CHUNK)
        with self.phase(rows * parts) as f, each_chunk(f) as chunk:
            row, low = chunk // parts, chunk % parts * costs.FFT_CHUNK
            yield f, row, low, (low + costs.FFT_CHUNK).smin(length)

    @contextmanager
    def map_groups(self, groups: int, elements: int) -> Generator[tuple[Function, Index]]:
        """A phase for groups of lanes, each of so many elements a lane."""
        with self.map(groups, 1, self.per_chunk(groups, elements)) as (f, group):
            yield f, group

    def per_chunk(self, groups: int, elements: int) -> int:
        """The groups of a chunk."""
        return max(1, -(-groups // 64), min(groups, costs.FFT_CHUNK // max(1, elements * self.lanes)))

    def groups(self, outer: int, inner: int, *, columns: bool = False) -> int:
        """Groups of lanes: along `inner` within each outer; along outer if there is no inner one."""
        if inner == 1 and not columns:
            return -(-outer // self.lanes)
        return outer * -(-inner // self.lanes)

    def are_few(self, rows: int, n: int) -> bool:
        """Whether rows of n leave most lanes idle, and n is worth more phases."""
        return rows < self.lanes // 2 and n >= costs.FFT_SPLIT

    def work(self, f: Function, n: int) -> tuple[Work, Work]:
        """Two work buffers for n elements and one more."""
        size = max(n + 1, work_size(n) or 0)
        return Work.local(f, self.vector, size), Work.local(f, self.vector, size)

    def array(self, f: Function, place: Place) -> Pointer:
        """The array of complex numbers there."""
        return complex_array(place.pointer(f), self.scalar)

    def column_group(self, group: Index, inner: int) -> tuple[Index, Index, Index | None]:
        """(outer index, first lane's place along inner, how many lanes there are: None for all)."""
        per_outer = -(-inner // self.lanes)
        column = group % per_outer * self.lanes
        return group // per_outer, column, self.valid(column, inner)

    def valid(self, first: Index, count: int) -> Index | None:
        """The number of lanes of the vector at element `first` that are below `count`: None for all."""
        if count % self.lanes == 0:
            return None
        return (first.fn.index(count) - first).smin(self.lanes)

    def columns(self, array: Pointer, base: Index, stride: int, valid: Index | None = None) -> Columns:
        return Columns(array, base, stride, self.lanes, valid)

    def vector_at(self, array: Pointer, first: Index, valid: Index | None = None) -> Columns:
        """Neighbours in an array, as element 0 of the lanes."""
        return self.columns(array, first, 0, valid)

    def rows(self, array: Pointer, first: Index, rows: int, length: int) -> Pointer:
        """Pointers in memory to the rows from `first` on, one a lane; beyond the last row it is that one again."""
        return row_pointers(array.fn, self.lanes, lambda lane: array[(first + lane).smin(rows - 1) * length])


def load_columns(columns: Columns, n: int, work: Work, loaded: Callable[[Complex], Complex]) -> None:
    """n elements of each lane to a work buffer, each number as `loaded` makes it."""
    with work.base.fn.loop(0, n) as loop:
        work.store(loop.index, loaded(columns.load(loop.index)))


def store_columns(columns: Columns, n: int, get: Callable[[Index], Complex]) -> None:
    """n elements of each lane: get(k) is element k."""
    with columns.array.fn.loop(0, n) as loop:
        columns.store(loop.index, get(loop.index))


def stored(axis: TransformAxis, work: Work) -> Callable[[Index], Complex]:
    """The elements of a work buffer as results of the axis."""
    return lambda k: axis.stored(work.load(k))
