"""Batches of small matrices: as many at once as a vector has lanes, each in its own lane, [scalar][lane] in memory.

A group of matrices is transposed to that form, worked on, and transposed back. Lanes after the batch's last matrix do
the same as it and write the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.linalg.panels import CHUNK_WORK, Panels, load, offset, plus, store, times
from hlokit.cpu.llvm import Function, Module
from hlokit.cpu.target import Target

LARGEST = 4096
"""Elements of the largest matrix that is worked on so: beyond it a group leaves the second-level cache."""


@dataclass(frozen=True)
class Groups:
    """A batch of matrices in groups of lanes; `work`: vector operations of a group."""

    p: Panels
    batch: int
    work: int

    @property
    def vector(self) -> int:
        """Bytes."""
        return self.p.lanes * self.p.bytes

    @property
    def count(self) -> int:
        return -(-self.batch // self.p.lanes)

    @property
    def a_chunk(self) -> int:
        return max(1, CHUNK_WORK // max(1, self.work))

    @property
    def chunks(self) -> int:
        return -(-self.count // self.a_chunk)

    @contextmanager
    def each(self, f: Function, scratch: str, scratch_bytes: int) -> Generator[tuple[str, str], None, None]:
        """The loop over the groups of the chunks from %begin to %end: (the chunk's memory, the first lane's matrix)."""
        with f.loop("%begin", "%end") as chunk:
            memory = offset(f, scratch, (chunk.index, scratch_bytes))
            first = times(f, chunk.index, self.a_chunk)
            last = least(f, plus(f, first, self.a_chunk), str(self.count))
            with f.loop(first, last) as group:
                yield memory, times(f, group.index, self.p.lanes)

    @contextmanager
    def lanes(self, f: Function, first: str) -> Generator[tuple[str, str], None, None]:
        """The loop over a group's lanes: (the lane, its matrix)."""
        with f.loop("0", str(self.p.lanes)) as lane:
            yield lane.index, least(f, plus(f, first, lane.index), str(self.batch - 1))

    def transpose(
        self, f: Function, module: Module, first: str, array: tuple[str, int], scalars: int, memory: str, into: bool
    ) -> None:
        """Copies that many scalars of each matrix of a group to [scalar][lane], or back.

        array: where the first matrix is, and the bytes from one to the next
        """
        ends = f"ptr {memory}, ptr {array[0]}, i64 {array[1]}, i64 {first}, i64 {self.batch - 1}"
        f.do(f"call void @{_transpose(module, self.p, into)}({ends}, i64 {scalars})")


def are_worth_it(p: Panels, batch: int, elements: int, largest: int = LARGEST) -> bool:
    """Whether there are enough matrices, and small ones."""
    return elements <= largest and batch >= max(2, p.lanes // 2)


def block_of(p: Panels, target: Target) -> int:
    """Rows and columns of a block of elements that fits the registers."""
    if target.vector_bytes == 64 or target.arch == "aarch64":
        return 4 if p.parts == 1 else 3
    return 3 if p.parts == 1 else 2


def _transpose(module: Module, p: Panels, into: bool) -> str:
    """void f(ptr memory, ptr array, i64 bytes, i64 first, i64 last, i64 scalars)."""
    name = f"lanes_{'in' if into else 'out'}_{p.dtype.real.name}_{p.lanes}"
    if name in module.functions:
        return name
    parameters = [("ptr", "memory"), ("ptr", "array"), ("i64", "bytes")]
    parameters += [("i64", "first"), ("i64", "last"), ("i64", "scalars")]
    f = Function(name, parameters, attributes="noinline")
    square, step = _square(module, p), p.lanes * p.bytes
    whole = f.let(f"and i64 %scalars, {-p.lanes}")
    matrices, lines = f.alloca("ptr", p.lanes), f.alloca("ptr", p.lanes)
    with f.loop("0", str(p.lanes)) as lane:
        number = least(f, plus(f, "%first", lane.index), "%last")
        matrix = offset(f, "%array", (f.let(f"mul nsw i64 {number}, %bytes"), 1))
        f.do(f"store ptr {matrix}, ptr {offset(f, matrices, (lane.index, 8))}, align 8")
        f.do(f"store ptr {offset(f, '%memory', (lane.index, step))}, ptr {offset(f, lines, (lane.index, 8))}, align 8")
        with f.loop(whole, "%scalars") as loop:
            there = offset(f, matrix, (loop.index, p.bytes))
            here = offset(f, "%memory", (loop.index, step), (lane.index, p.bytes))
            source, target = (there, here) if into else (here, there)
            store(f, p, load(f, p, source), target)
    with f.loop("0", whole, p.lanes) as loop:
        there, here = (
            f"ptr {matrices}, i64 {times(f, loop.index, p.bytes)}",
            f"ptr {lines}, i64 {times(f, loop.index, step)}",
        )
        f.do(f"call void @{square}({there}, {here})" if into else f"call void @{square}({here}, {there})")
    f.do("ret void")
    module.add(f)
    return name


def _square(module: Module, p: Panels) -> str:
    """void f(ptr from, i64 from_offset, ptr to, i64 to_offset): vectors that many bytes from pointers, transposed."""
    name = f"lanes_square_{p.dtype.real.name}_{p.lanes}"
    if name not in module.functions:
        parameters = [("ptr", "from"), ("i64", "from_offset"), ("ptr", "to"), ("i64", "to_offset")]
        f = Function(name, parameters, attributes="noinline")

        def place(end: str, lane: int) -> str:
            start = f.let(f"load ptr, ptr {offset(f, f'%{end}', 8 * lane)}, align 8", "p")
            return offset(f, start, (f"%{end}_offset", 1))

        rows = [load(f, p, place("from", lane), p.lanes) for lane in range(p.lanes)]
        for lane, row in enumerate(transposed(f, rows, p.scalar)):
            store(f, p, row, place("to", lane), p.lanes)
        f.do("ret void")
        module.add(f)
    return name


def chosen(f: Function, p: Panels, condition: str, a: str, b: str) -> str:
    """a in the lanes where the condition holds, b in the others."""
    return f.let(f"select <{p.lanes} x i1> {condition}, {p.vector} {a}, {p.vector} {b}")
