"""What a pass of a transform is along, and where it reads and writes."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import table_pointer
from hlokit.cpu.llvm import Function


@dataclass(frozen=True)
class Place:
    """An array: its number in the table, and the byte at which it begins."""

    number: int
    offset: int = 0

    def pointer(self, f: Function) -> str:
        return f.let(f"getelementptr i8, ptr {table_pointer(f, self.number)}, i64 {self.offset}")


@dataclass(frozen=True)
class Axis:
    """Transforms along the middle of outer x n x inner complex numbers.

    turned     the parts are swapped in loading, and in storing: what makes the inverse of the forward transform
    factor     by which results are multiplied
    """

    outer: int
    n: int
    inner: int
    source: Place
    target: Place
    turned: tuple[bool, bool] = (False, False)
    factor: float = 1.0
