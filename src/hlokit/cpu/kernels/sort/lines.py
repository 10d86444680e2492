"""The lines that are sorted: their positions in the operands and results, and how elements are moved."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hlokit.cpu.kernels.flow import Element
from hlokit.cpu.llvm import Function, Index, Pointer


@dataclass(frozen=True)
class SortedLines:
    """`outer` x `size` x `inner` elements to be sorted along the middle, of all operands alike."""

    elements: tuple[Element, ...]
    outer: int
    size: int
    inner: int

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def arrays(self, pointers: Sequence[Pointer]) -> list[Pointer]:
        """Arrays of each operand's elements."""
        return [element.array(pointer) for element, pointer in zip(self.elements, pointers, strict=True)]

    def table(self, f: Function) -> tuple[list[Pointer], list[Pointer], Pointer]:
        """Operands and results, and scratch memory."""
        count = len(self.elements)
        operands, results = (self.arrays([f.table(first + k) for k in range(count)]) for first in (0, count))
        return operands, results, f.table(2 * count)

    def line_start(self, line: Index) -> Index:
        """The number of a line's first element."""
        return line // self.inner * (self.size * self.inner) + line % self.inner

    def line(self, arrays: Sequence[Pointer], line: Index) -> list[Pointer]:
        """A line of each array."""
        return moved(arrays, self.line_start(line))

    def elements_at(self, line: Sequence[Pointer], place: Index | int) -> list[Pointer]:
        """The elements at a place of a line."""
        return moved(line, place * self.inner)


def moved(arrays: Sequence[Pointer], number: Index | int) -> list[Pointer]:
    """The arrays from this element on."""
    return [array[number] for array in arrays]


def copy(source: Sequence[Pointer], target: Sequence[Pointer]) -> None:
    """Moves an element of every operand."""
    for a, b in zip(source, target, strict=True):
        b.store(a.load())


def lines_per_chunk(lines: int, size: int, elements: int) -> int:
    """Lines that make a chunk: so many elements at least, of 64 chunks at most."""
    return max(-(-lines // 64), min(lines, -(-elements // max(1, size))))


@contextmanager
def part(chunk: Index, size: int, count: int) -> Generator[Index]:
    """A loop over the `size` of `count` lines that are a chunk's."""
    low = chunk * size
    with chunk.fn.loop(low, (low + size).smin(count)) as loop:
        yield loop.index
