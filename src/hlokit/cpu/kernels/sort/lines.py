"""The lines that sorts work on: where they are in the operands and results, and how elements are moved."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import Element, at, table_pointer
from hlokit.cpu.llvm import Function


@dataclass(frozen=True)
class Lines:
    """`outer` x `size` x `inner` elements to be sorted along the middle, of all operands alike."""

    elements: tuple[Element, ...]
    outer: int
    size: int
    inner: int

    @property
    def lines(self) -> int:
        return self.outer * self.inner

    def table(self, f: Function) -> tuple[list[str], list[str], str]:
        """Pointers to operands and results, and to scratch memory."""
        count = len(self.elements)
        operands, results = ([table_pointer(f, first + k) for k in range(count)] for first in (0, count))
        return operands, results, table_pointer(f, 2 * count)

    def line_start(self, f: Function, line: str) -> str:
        """The number of a line's first element."""
        if self.inner == 1:
            return f.let(f"mul i64 {line}, {self.size}")
        whole, rest = f.let(f"sdiv i64 {line}, {self.inner}"), f.let(f"srem i64 {line}, {self.inner}")
        return f.let(f"add i64 {f.let(f'mul i64 {whole}, {self.size * self.inner}')}, {rest}")

    def moved(self, f: Function, bases: list[str], start: str) -> list[str]:
        """Pointers to element number `start` of each operand."""
        return [at(f, base, start, e.size) for base, e in zip(bases, self.elements, strict=True)]

    def copy(self, f: Function, source: list[str], target: list[str]) -> None:
        """Moves an element of every operand from address to address."""
        for element, a, b in zip(self.elements, source, target, strict=True):
            element.store(f, element.load(f, a), b)
