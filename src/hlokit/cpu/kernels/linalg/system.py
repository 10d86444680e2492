"""Triangular systems as lower triangles and strides, and the reciprocals of their diagonals."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from hlokit.cpu.kernels.linalg.panel_copy import Strides
from hlokit.cpu.kernels.linalg.panels import Element
from hlokit.cpu.llvm import Value
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class System:
    """A batch of systems l x = b with lower triangles l of size x size and `columns` right sides.

    a, b         bytes to the elements (0, 0) of l and b in their matrices; strides from there
    """

    dtype: DType
    batch: int
    size: int
    columns: int
    unit: bool
    a: int
    a_strides: Strides
    b: int
    b_strides: Strides

    @property
    def element(self) -> int:
        """Bytes."""
        return self.dtype.bits // 8

    @property
    def triangle(self) -> int:
        """Bytes of a matrix of a."""
        return self.size**2 * self.element

    @property
    def right(self) -> int:
        """Bytes of a matrix of b."""
        return self.size * self.columns * self.element

    @property
    def name(self) -> str:
        places = f"{self.a}_{self.a_strides.name}_{self.b}_{self.b_strides.name}"
        return f"{self.batch}_{self.size}_{self.columns}_{places}{'_unit' if self.unit else ''}"


def system_of(b: Shape, size: int, left: bool, lower: bool, unit: bool, transpose: str) -> System:
    element = b.dtype.bits // 8
    rows, columns = b.dimensions[-2:]
    i, k = (
        (size * element, element) if transpose in ("NO_TRANSPOSE", "TRANSPOSE_INVALID") else (element, size * element)
    )
    if (size * element, element) != (i, k):
        lower = not lower
    x, y = columns * element, element
    if not left:
        i, k, x, y, lower = k, i, y, x, not lower
    a_first = b_first = 0
    if not lower:
        a_first, b_first = (size - 1) * (i + k), (size - 1) * x
        i, k, x = -i, -k, -x
    count = columns if left else rows
    a_strides = Strides(k, i, transpose == "ADJOINT")
    return System(b.dtype, prod(b.dimensions[:-2]), size, count, unit, a_first, a_strides, b_first, Strides(x, y))


def scaled_reciprocal(value: Element) -> list[Value]:
    """[components of r, scale] with 1 / value = r * scale: a power of two keeps r from overflow and underflow."""
    sizes = [part.abs() for part in value]
    size = sizes[0]
    if len(sizes) == 2:
        size = (sizes[0] > sizes[1]).select(*sizes)
    reach = 64 if size.bits == 32 else 512
    tiny, huge = size < 2.0**-reach, size > 2.0**reach
    scale = tiny.select(size.value(2.0**reach), 1.0)
    scale = huge.select(size.value(2.0**-reach), scale)
    parts = [part * scale for part in value]
    if len(parts) == 1:
        return [1.0 / parts[0], scale]
    return [*_complex_reciprocal(sizes, parts), scale]


def _complex_reciprocal(sizes: list[Value], parts: list[Value]) -> Element:
    """Smith's: q = small / large, 1 / (large + i small) = (1 - i q) / (large + small q); mirrored if im is larger."""
    real_is_large = sizes[0] >= sizes[1]
    large, small = real_is_large.select(*parts), real_is_large.select(*parts[::-1])
    quotient = small / large
    quotient = small.eq(0.0).select(small.value(0.0), quotient)
    below = large + small * quotient
    first, second = 1.0 / below, quotient / below
    return [real_is_large.select(first, second), -real_is_large.select(second, first)]
