"""Batches of small matrices: as many at once as a vector has lanes, each in its own lane, [scalar][lane] in memory.

A group of matrices is transposed to that form, worked on, and transposed back. Lanes after the batch's last matrix do
the same as it and write the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.panels import Element, PanelShape
from hlokit.cpu.kernels.routine import Phase, Routine, up
from hlokit.cpu.llvm import I32, I64, POINTER, Function, Index, Module, Pointer, Value, transposed
from hlokit.cpu.target import Target


@dataclass(frozen=True)
class Groups:
    """A batch of matrices in groups of lanes; `work`: vector operations of a group."""

    p: PanelShape
    batch: int
    work: int

    @property
    def count(self) -> int:
        return -(-self.batch // self.p.lanes)

    @property
    def a_chunk(self) -> int:
        return max(1, costs.LINALG_CHUNK_WORK // max(1, self.work))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.a_chunk)

    def routine(self, phase: str, scratch_bytes: int) -> Routine:
        """The routine of one phase, whose chunks have that much scratch."""
        return Routine((Phase(phase, self.chunks),), self.chunks * scratch_bytes)

    @contextmanager
    def each(self, f: Function, scratch: Pointer, scratch_bytes: int) -> Generator[tuple[Pointer, Index]]:
        """The loop over the groups of a phase's chunks: (the chunk's memory, the first lane's matrix)."""
        with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
            memory = scratch + chunk.index * scratch_bytes
            first = chunk.index * self.a_chunk
            with f.loop(first, (first + self.a_chunk).smin(self.count)) as group:
                yield memory, group.index * self.p.lanes

    @contextmanager
    def lanes(self, first: Index) -> Generator[tuple[Index, Index]]:
        """The loop over a group's lanes: (the lane, its matrix)."""
        with first.fn.loop(0, self.p.lanes) as lane:
            yield lane.index, (first + lane.index).smin(self.batch - 1)

    def hand_out(self, first: Index, memory: Pointer, place: Pointer, count: int = 1) -> None:
        """Copies that many integers of each lane to [matrix][count] of s32."""
        bytes = memory.element.bytes
        with self.lanes(first) as (lane, number):
            source, target = memory[lane], place.to(I32)[number * count]
            with first.fn.loop(0, count) as loop:
                target[loop.index].store((source + loop.index * (self.p.lanes * bytes)).to(I32).load())

    def transpose(
        self, module: Module, first: Index, array: tuple[Pointer, int], scalars: int, memory: Pointer, into: bool
    ) -> None:
        """Copies that many scalars of each matrix of a group to [scalar][lane], or back.

        array: where the first matrix is, and the bytes from one to the next
        """
        first.fn.call(_transpose(module, self.p, into), memory, *array, first, self.batch - 1, scalars)


@dataclass(frozen=True)
class MatrixInLanes:
    """A real matrix of every lane: [row][column][lane]."""

    p: PanelShape
    rows: int
    columns: int

    @property
    def row_bytes(self) -> int:
        return self.columns * self.p.vector_bytes

    @property
    def scalars(self) -> int:
        return self.rows * self.columns

    @property
    def bytes(self) -> int:
        return room(self.p, self.scalars)

    def element(self, memory: Pointer, row: Index, column: Index) -> Pointer:
        return memory + row * self.row_bytes + column * self.p.vector_bytes


def room(p: PanelShape, scalars: int) -> int:
    """Bytes of so many scalars of every lane, as whole vectors of each lane's."""
    return up(scalars, p.lanes) * p.vector_bytes


def are_worth_it(p: PanelShape, batch: int, elements: int, largest: int = costs.BATCHED_ELEMENTS) -> bool:
    """True if there are enough matrices, and small ones."""
    return elements <= largest and batch >= max(2, p.lanes // 2)


def block_of(p: PanelShape, target: Target) -> int:
    """Rows and columns of a block of elements that fits the registers."""
    if target.vector_bytes == 64 or target.arch == "aarch64":
        return 4 if p.parts == 1 else 3
    return 3 if p.parts == 1 else 2


def load(place: Pointer, p: PanelShape) -> Element:
    """An element of every lane's matrix."""
    return p.load(place, p.lanes)


def note_first(info: Pointer, failed: Value, order: Value) -> None:
    """Sets the integers at `info` to the order in lanes where a step failed, unless they are set already."""
    before = info.load(failed.lanes)
    unset = before.eq(0)
    info.store((failed & unset).select(order, before))


def _transpose(module: Module, p: PanelShape, into: bool) -> str:
    """The function (memory, array, bytes, first, last, scalars)."""
    name = f"lanes_{'in' if into else 'out'}_{p.dtype.real.name}_{p.lanes}"
    if name in module.functions:
        return name
    f, (memory, array, bytes, first, last, scalars) = subroutine(
        name, p.scalar, memory=POINTER, array=POINTER, bytes=I64, first=I64, last=I64, scalars=I64
    )
    square, vector = _square(module, p), p.vector_bytes
    whole = scalars & -p.lanes
    matrices, lines = (f.local(POINTER, p.lanes, 64) for _ in range(2))
    with f.loop(0, p.lanes) as lane:
        matrix = array + (first + lane.index).smin(last) * bytes
        matrices[lane.index].store(matrix)
        lines[lane.index].store(memory + lane.index * vector)
        with f.loop(whole, scalars) as loop:
            there, here = matrix[loop.index], (memory + loop.index * vector)[lane.index]
            source, target = (there, here) if into else (here, there)
            target.store(source.load())
    with f.loop(0, whole, p.lanes) as loop:
        ends = [matrices, loop.index * p.bytes], [lines, loop.index * vector]
        (source, target) = ends if into else ends[::-1]
        f.call(square, *source, *target)
    return module.end(f)


def _square(module: Module, p: PanelShape) -> str:
    """The function (from, from_offset, to, to_offset): vectors that many bytes from pointers, transposed."""
    name = f"lanes_square_{p.dtype.real.name}_{p.lanes}"
    if name in module.functions:
        return name
    parameters = {"from": POINTER, "from_offset": I64, "to": POINTER, "to_offset": I64}
    f, (source, source_offset, target, target_offset) = subroutine(name, POINTER, **parameters)
    rows = [(source[k].load_pointer(p.scalar) + source_offset).load(p.lanes) for k in range(p.lanes)]
    for k, row in enumerate(transposed(rows)):
        (target[k].load_pointer(p.scalar) + target_offset).store(row)
    return module.end(f)
