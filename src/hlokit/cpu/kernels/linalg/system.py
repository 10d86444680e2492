"""What a triangular solve is given, as a lower triangle and strides, and how its diagonal is divided by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from hlokit.cpu.kernels.linalg.panel_copy import Strides
from hlokit.cpu.kernels.linalg.panels import Panels
from hlokit.cpu.llvm import Function, float_constant, splat, vector
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
        return self.dtype.bits // 8

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


def scaled_reciprocal(f: Function, p: Panels, value: Sequence[str], lanes: int = 1) -> list[str]:
    """[components of r, scale] with 1 / value = r * scale: scalars, or vectors of the lanes."""
    kind, suffix = vector(p.scalar, lanes), f"{'' if lanes == 1 else f'v{lanes}'}f{8 * p.bytes}"
    flag, reach = vector("i1", lanes), 64 if p.bytes == 4 else 512

    def constant(x: float) -> str:
        return splat(float_constant(x, p.scalar), p.scalar, lanes)

    sizes = [f.let(f"call {kind} @llvm.fabs.{suffix}({kind} {v})") for v in value]
    size = sizes[0]
    if p.parts == 2:
        size = f.let(
            f"select {flag} {f.let(f'fcmp ogt {kind} {sizes[0]}, {sizes[1]}')}, {kind} {sizes[0]}, {kind} {sizes[1]}"
        )
    tiny = f.let(f"fcmp olt {kind} {size}, {constant(2.0**-reach)}")
    huge = f.let(f"fcmp ogt {kind} {size}, {constant(2.0**reach)}")
    scale = f.let(f"select {flag} {tiny}, {kind} {constant(2.0**reach)}, {kind} {constant(1.0)}")
    scale = f.let(f"select {flag} {huge}, {kind} {constant(2.0**-reach)}, {kind} {scale}")
    parts = [f.let(f"fmul {kind} {v}, {scale}") for v in value]
    if p.parts == 1:
        return [f.let(f"fdiv {kind} {constant(1.0)}, {parts[0]}"), scale]
    return [*_complex_reciprocal(f, (kind, flag), (constant(1.0), constant(0.0)), sizes, parts), scale]


def _complex_reciprocal(
    f: Function, types: tuple[str, str], constants: tuple[str, str], sizes: list[str], parts: list[str]
) -> list[str]:
    """Smith's: q = small / large, 1 / (large + i small) = (1 - i q) / (large + small q); mirrored if im is larger."""
    (kind, flag), (one, zero) = types, constants
    real_is_large = f.let(f"fcmp oge {kind} {sizes[0]}, {sizes[1]}")

    def pick(a: str, b: str) -> str:
        return f.let(f"select {flag} {real_is_large}, {kind} {a}, {kind} {b}")

    large, small = pick(parts[0], parts[1]), pick(parts[1], parts[0])
    quotient = f.let(f"fdiv {kind} {small}, {large}")
    quotient = f.let(f"select {flag} {f.let(f'fcmp oeq {kind} {small}, {zero}')}, {kind} {zero}, {kind} {quotient}")
    below = f.let(f"fadd {kind} {large}, {f.let(f'fmul {kind} {small}, {quotient}')}")
    first, second = (f.let(f"fdiv {kind} {x}, {below}") for x in (one, quotient))
    return [pick(first, second), f.let(f"fneg {kind} {pick(second, first)}")]
