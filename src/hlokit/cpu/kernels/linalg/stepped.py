"""Factorizations by stripes, step by step: the phases that call a factorization's parts.

Each matrix's stripes are packed to scratch memory, then changed step by step, then unpacked. The parts of one matrix's
step may run at the same time. A part is a function (table, memory, matrix, number, step): `memory` is the matrix's
scratch, `number` the stripe's, counted as the part does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.linalg.panels import Items
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import I64, POINTER, Function, Index, Module, Pointer, Type

HEAD = 64
"""Bytes at the beginning of a matrix's scratch that are not the factorization's; the first 8 are, for its info."""
_STEP = 8
"""Bytes to the number of the step in scratch, for all matrices in that of the first."""
_MATRICES_AT_ONCE = 4
"""Batches of as many matrices are a chunk each matrix, or several."""
_MOST_CHUNKS = 64
"""The most chunks of whole matrices: each has scratch of its own."""
_PART = [(POINTER, "table"), (POINTER, "memory"), (I64, "matrix"), (I64, "number"), (I64, "step")]


class Part(Function):
    """A part in the writing, with what it is given; `memory` points to numbers."""

    def __init__(self, name: str, element: Type, is_cold: bool = False) -> None:
        super().__init__(name, _PART, attributes="noinline", is_cold=is_cold)
        self.memory: Pointer
        self.matrix: Index
        self.number: Index
        self.step: Index
        _, self.memory, self.matrix, self.number, self.step = self.arguments(element)

    def array(self, place: int, bytes: int, element: Type | None = None) -> Pointer:
        """The matrix's array, of that many bytes, at a place of the table."""
        return self.table(place, element or self.memory.element) + self.matrix * bytes


def call_part(f: Function, part: str, memory: Pointer, matrix: Index, number: Index | int, step: Index | int) -> None:
    f.call(part, f.pointer("table"), memory, matrix, number, step)


@dataclass(frozen=True)
class Parts:
    """A factorization's parts by name: pack and unpack of each stripe, first once after packing, step of the stripes of
    each step."""

    pack: str
    first: str
    step: str
    unpack: str


@dataclass(frozen=True)
class Stepped:
    """The factorization of a batch.

    scratch   the table's place of scratch memory
    memory    bytes of scratch that a matrix needs
    work      vector operations that a matrix takes
    stripes   of a matrix
    counts    how many stripes each step has; one more or one less than the step before
    """

    name: str
    batch: int
    scratch: int
    memory: int
    work: int
    stripes: int
    counts: Sequence[int]

    @property
    def matrices(self) -> Items:
        """In chunks of whole matrices."""
        fewest = -(-self.batch // _MOST_CHUNKS)
        return Items(self.batch, self.work, fewest)

    def routine(self, module: Module, parts: Parts) -> Routine:
        if self.batch >= _MATRICES_AT_ONCE or self.stripes == 1:
            chunks = self.matrices.chunks
            return Routine((Phase(self._whole(module, parts), chunks),), chunks * self.memory)
        each = self.batch * self.stripes
        phases = [Phase(self._start(module)), Phase(self._each(module, parts.pack, "pack", self.stripes), each)]
        phases.append(Phase(self._each(module, parts.first, "first", 1), self.batch))
        if self.counts:
            each_step, advance = self._each_step(module, parts.step), Phase(self._advance(module))
            for count in self.counts:
                phases += [Phase(each_step, self.batch * count), advance]
        phases.append(Phase(self._each(module, parts.unpack, "unpack", self.stripes), each))
        return Routine(tuple(phases), self.batch * self.memory)

    def _count(self, step: Index) -> Index:
        """The number of stripes that a step changes."""
        falls = len(self.counts) > 1 and self.counts[1] < self.counts[0]
        return self.counts[0] - step if falls else self.counts[0] + step

    def _phase(self, name: str) -> Function:
        return Function(f"{self.name}_{name}", PHASE, is_cold=True)

    def _step(self, f: Function) -> Pointer:
        """The place of the step's number: one function serves for all of them."""
        return (f.table(self.scratch) + _STEP).to(I64)

    def _each(self, module: Module, part: str, name: str, count: int) -> str:
        """The phase that calls a part for chunks of (matrix, number)."""
        f = self._phase(f"each_{name}")
        self._chunks(f, part, count, 0)
        return module.end(f, exported=True)

    def _each_step(self, module: Module, part: str) -> str:
        f = self._phase("each_step")
        step = f.index(self._step(f).load())
        self._chunks(f, part, self._count(step), step)
        return module.end(f, exported=True)

    def _chunks(self, f: Function, part: str, count: Index | int, step: Index | int) -> None:
        scratch = f.table(self.scratch)
        with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
            matrix, number = chunk.index // count, chunk.index % count
            call_part(f, part, scratch + matrix * self.memory, matrix, number, step)

    def _start(self, module: Module) -> str:
        f = self._phase("start")
        self._step(f).store(0)
        return module.end(f, exported=True)

    def _advance(self, module: Module) -> str:
        """The phase after a step: the next."""
        f = self._phase("advance")
        place = self._step(f)
        place.store(f.index(place.load()) + 1)
        return module.end(f, exported=True)

    def _whole(self, module: Module, parts: Parts) -> str:
        """The phase that factors whole matrices."""
        f = self._phase("whole")
        scratch, a_chunk = f.table(self.scratch), self.matrices.a_chunk
        with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
            memory = scratch + chunk.index * self.memory
            start = chunk.index * a_chunk
            with f.loop(start, (start + a_chunk).smin(self.batch)) as matrix:
                with f.loop(0, self.stripes) as stripe:
                    call_part(f, parts.pack, memory, matrix.index, stripe.index, 0)
                call_part(f, parts.first, memory, matrix.index, 0, 0)
                if self.counts:
                    with f.loop(0, len(self.counts)) as at, f.loop(0, self._count(at.index)) as stripe:
                        call_part(f, parts.step, memory, matrix.index, stripe.index, at.index)
                with f.loop(0, self.stripes) as stripe:
                    call_part(f, parts.unpack, memory, matrix.index, stripe.index, 0)
        return module.end(f, exported=True)
