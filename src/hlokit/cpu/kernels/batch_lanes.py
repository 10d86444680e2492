"""Batches of small matrices: as many at once as a vector has lanes, each in its own lane, [scalar][lane] in memory.

A group of matrices is transposed to that form, worked on, and transposed back. Lanes after the batch's last matrix do
the same as it and write the same.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.panels import CHUNK_WORK, Panels, load, offset, plus, store, times
from hlokit.cpu.kernels.squares import transposed
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
    def each(self, f: Function, scratch: str, scratch_bytes: int) -> Generator[tuple[str, list[str]], None, None]:
        """The loop over the groups of the chunks from %begin to %end: (the chunk's memory, every lane's matrix)."""
        with f.loop("%begin", "%end") as chunk:
            memory = offset(f, scratch, (chunk.index, scratch_bytes))
            first = times(f, chunk.index, self.a_chunk)
            last = least(f, plus(f, first, self.a_chunk), str(self.count))
            with f.loop(first, last) as group:
                start = times(f, group.index, self.p.lanes)
                yield memory, [least(f, plus(f, start, lane), str(self.batch - 1)) for lane in range(self.p.lanes)]


def are_worth_it(p: Panels, batch: int, elements: int, largest: int = LARGEST) -> bool:
    """Whether there are enough matrices, and small ones."""
    return elements <= largest and batch >= max(2, p.lanes // 2)


def block_of(p: Panels, target: Target) -> int:
    """Rows and columns of a block of elements that fits the registers."""
    if target.vector_bytes == 64 or target.arch == "aarch64":
        return 4 if p.parts == 1 else 3
    return 3 if p.parts == 1 else 2


def matrices(f: Function, base: str, numbers: Sequence[str], nbytes: int) -> list[str]:
    """The places of the lanes' matrices."""
    return [offset(f, base, (number, nbytes)) for number in numbers]


def transpose(
    f: Function, module: Module, p: Panels, scalars: int, places: Sequence[str], memory: str, into: bool
) -> None:
    """Copies that many scalars of each matrix to [scalar][lane], or back."""
    pointers = f.alloca("ptr", p.lanes)
    for lane, place in enumerate(places):
        f.do(f"store ptr {place}, ptr {offset(f, pointers, 8 * lane)}, align 8")
    f.do(f"call void @{_transpose(module, p, into)}(ptr {memory}, ptr {pointers}, i64 {scalars})")


def _transpose(module: Module, p: Panels, into: bool) -> str:
    """void f(ptr memory, ptr places, i64 scalars)."""
    name = f"lanes_{'in' if into else 'out'}_{p.dtype.real.name}_{p.lanes}"
    if name in module.functions:
        return name
    f = Function(name, [("ptr", "memory"), ("ptr", "places"), ("i64", "scalars")], attributes="noinline")
    whole = f.let(f"and i64 %scalars, {-p.lanes}")
    step = p.lanes * p.bytes
    places = [f.let(f"load ptr, ptr {offset(f, '%places', 8 * lane)}, align 8", "p") for lane in range(p.lanes)]
    with f.loop("0", whole, p.lanes) as loop:
        there = [offset(f, place, (loop.index, p.bytes)) for place in places]
        here = offset(f, "%memory", (loop.index, step))
        lines = [offset(f, here, i * step) for i in range(p.lanes)]
        source, target = (there, lines) if into else (lines, there)
        values = [load(f, p, x, p.lanes) for x in source]
        for row, place in zip(transposed(f, values, p.scalar), target, strict=True):
            store(f, p, row, place, p.lanes)
    with f.loop("0", str(p.lanes)) as lane:
        place = f.let(f"load ptr, ptr {offset(f, '%places', (lane.index, 8))}, align 8", "p")
        with f.loop(whole, "%scalars") as loop:
            there = offset(f, place, (loop.index, p.bytes))
            here = offset(f, "%memory", (loop.index, step), (lane.index, p.bytes))
            source, target = (there, here) if into else (here, there)
            store(f, p, load(f, p, source), target)
    f.do("ret void")
    module.add(f)
    return name


def chosen(f: Function, p: Panels, condition: str, a: str, b: str) -> str:
    """a in the lanes where the condition holds, b in the others."""
    return f.let(f"select <{p.lanes} x i1> {condition}, {p.vector} {a}, {p.vector} {b}")
