"""Factorizations by stripes, step by step: the phases that call a factorization's parts.

Each matrix's stripes are packed to scratch memory, then changed step by step, then unpacked. The parts of one matrix's
step may run at the same time. A part is `void f(ptr table, ptr memory, i64 matrix, i64 number, i64 step)`: `memory` is
the matrix's scratch, `number` the stripe's, counted as the part does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import least, table_pointer
from hlokit.cpu.kernels.linalg.panels import Items, offset, plus, times
from hlokit.cpu.kernels.routine import PHASE, Phase, Routine
from hlokit.cpu.llvm import Function, Module

HEAD = 64
"""Bytes at the beginning of a matrix's scratch that are not the factorization's; the first 8 are, for its info."""
_STEP = 8
"""Bytes to the number of the step in scratch, for all matrices in that of the first."""
_MATRICES_AT_ONCE = 4
"""Batches of as many matrices are a chunk each matrix, or several."""
_MOST_CHUNKS = 64
"""Of whole matrices: each chunk has scratch of its own."""
_PART = [("ptr", "table"), ("ptr", "memory"), ("i64", "matrix"), ("i64", "number"), ("i64", "step")]


def part(name: str, is_cold: bool = False) -> Function:
    """A part in the writing."""
    return Function(name, _PART, attributes="noinline", is_cold=is_cold)


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

    def routine(self, module: Module, pack: str, first: str, step: str, unpack: str) -> Routine:
        """Parts by name: pack and unpack of each stripe, first once after packing, step of the stripes of each step."""
        if self.batch >= _MATRICES_AT_ONCE or self.stripes == 1:
            whole = self._whole(module, pack, first, step, unpack)
            chunks = self.matrices.chunks
            return Routine((Phase(whole, chunks),), chunks * self.memory)
        each = self.batch * self.stripes
        phases = [Phase(self._start(module)), Phase(self._each(module, pack, "pack", self.stripes), each)]
        phases.append(Phase(self._each(module, first, "first", 1), self.batch))
        if self.counts:
            each_step, advance = self._each_step(module, step), Phase(self._advance(module))
            for count in self.counts:
                phases += [Phase(each_step, self.batch * count), advance]
        phases.append(Phase(self._each(module, unpack, "unpack", self.stripes), each))
        return Routine(tuple(phases), self.batch * self.memory)

    def _count(self, f: Function, step: str) -> str:
        """How many stripes a step has."""
        falls = len(self.counts) > 1 and self.counts[1] < self.counts[0]
        return f.let(f"{'sub' if falls else 'add'} nsw i64 {self.counts[0]}, {step}")

    def _call(self, f: Function, part: str, memory: str, matrix: str, number: str, step: str) -> None:
        f.do(f"call void @{part}(ptr %table, ptr {memory}, i64 {matrix}, i64 {number}, i64 {step})")

    def _end(self, f: Function, module: Module) -> str:
        f.do("ret void")
        module.add(f, exported=True)
        return f.name

    def _each(self, module: Module, part: str, name: str, count: int) -> str:
        """The phase that calls a part for chunks of (matrix, number)."""
        f = Function(f"{self.name}_each_{name}", PHASE, is_cold=True)
        self._chunks(f, part, str(count), "0")
        return self._end(f, module)

    def _each_step(self, module: Module, part: str) -> str:
        """The phase of a step. Which one it is stands in scratch, so that one function serves for all."""
        f = Function(f"{self.name}_each_step", PHASE, is_cold=True)
        step = f.let(f"load i64, ptr {offset(f, table_pointer(f, self.scratch), _STEP)}, align 8")
        self._chunks(f, part, self._count(f, step), step)
        return self._end(f, module)

    def _chunks(self, f: Function, part: str, count: str, step: str) -> None:
        scratch = table_pointer(f, self.scratch)
        with f.loop("%begin", "%end") as chunk:
            matrix, number = f.let(f"udiv i64 {chunk.index}, {count}"), f.let(f"urem i64 {chunk.index}, {count}")
            self._call(f, part, offset(f, scratch, (matrix, self.memory)), matrix, number, step)

    def _start(self, module: Module) -> str:
        f = Function(f"{self.name}_start", PHASE, is_cold=True)
        f.do(f"store i64 0, ptr {offset(f, table_pointer(f, self.scratch), _STEP)}, align 8")
        return self._end(f, module)

    def _advance(self, module: Module) -> str:
        """The phase after a step: the next."""
        f = Function(f"{self.name}_advance", PHASE, is_cold=True)
        place = offset(f, table_pointer(f, self.scratch), _STEP)
        step = f.let(f"load i64, ptr {place}, align 8")
        f.do(f"store i64 {plus(f, step, 1)}, ptr {place}, align 8")
        return self._end(f, module)

    def _whole(self, module: Module, pack: str, first: str, step: str, unpack: str) -> str:
        """The phase that factors whole matrices."""
        f = Function(f"{self.name}_whole", PHASE, is_cold=True)
        scratch = table_pointer(f, self.scratch)
        with f.loop("%begin", "%end") as chunk:
            memory = offset(f, scratch, (chunk.index, self.memory))
            start = times(f, chunk.index, self.matrices.a_chunk)
            end = least(f, plus(f, start, self.matrices.a_chunk), str(self.batch))
            with f.loop(start, end) as matrix:
                with f.loop("0", str(self.stripes)) as stripe:
                    self._call(f, pack, memory, matrix.index, stripe.index, "0")
                self._call(f, first, memory, matrix.index, "0", "0")
                if self.counts:
                    with f.loop("0", str(len(self.counts))) as at, f.loop("0", self._count(f, at.index)) as stripe:
                        self._call(f, step, memory, matrix.index, stripe.index, at.index)
                with f.loop("0", str(self.stripes)) as stripe:
                    self._call(f, unpack, memory, matrix.index, stripe.index, "0")
        return self._end(f, module)
