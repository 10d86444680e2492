"""Copies between arrays and panels or stripes: strided, reversed, transposed; by vectors where elements are real."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.flow import subroutine
from hlokit.cpu.kernels.linalg.panels import PanelShape
from hlokit.cpu.llvm import I64, NOALIAS, POINTER, Index, Module, Pointer, Value, transposed


@dataclass(frozen=True)
class Strides:
    """Bytes between an array's elements along a stripe's (or panel's) major and minor dimension."""

    major: int
    minor: int
    conjugate: bool = False

    @property
    def name(self) -> str:
        return f"{self.major}_{self.minor}{'_conj' if self.conjugate else ''}".replace("-", "m")


def copy(module: Module, p: PanelShape, minor_size: int, s: Strides, into: bool) -> str:
    """The function (packed, array, majors, minors): copies elements [major][minor] between the two.

    packed   [major][component][minor_size]; into: array to packed, else packed to array
    """
    name = f"panel_copy_{'in' if into else 'out'}_{p.dtype.name}_{p.lanes}_{minor_size}_{s.name}"
    if name in module.functions:
        return name
    f, (packed, array, majors, minors) = subroutine(
        name, p.scalar, packed=NOALIAS, array=NOALIAS, majors=I64, minors=I64
    )
    c = _Copy(p, minor_size, s, into, packed, array)
    if p.parts == 1 and abs(s.minor) == p.bytes:
        whole = minors & -p.lanes
        inside = (minors - whole).first_lanes(p.lanes) if p.vector_bytes == 64 and s.minor > 0 else None  # AVX-512
        with f.loop(0, majors) as major:
            with f.loop(0, whole, p.lanes) as minor:
                c.row(major.index, minor.index)
            if inside is not None:
                c.row(major.index, whole, inside)
            else:
                with f.loop(whole, minors) as minor:
                    c.element(major.index, minor.index)
    elif p.parts == 1 and abs(s.major) == p.bytes:
        majors_whole, minors_whole = majors & -p.lanes, minors & -p.lanes
        with f.loop(0, majors_whole, p.lanes) as major:
            with f.loop(0, minors_whole, p.lanes) as minor:
                c.square(module, major.index, minor.index)
            with f.loop(minors_whole, minors) as minor, f.loop(0, p.lanes) as more:
                c.element(major.index + more.index, minor.index)
        with f.loop(0, minors) as minor, f.loop(majors_whole, majors) as major:
            c.element(major.index, minor.index)
    else:
        with f.loop(0, majors, 64) as block:
            end = (block.index + 64).smin(majors)
            with f.loop(0, minors) as minor, f.loop(block.index, end) as major:
                c.element(major.index, minor.index)
    return module.end(f)


@dataclass(frozen=True)
class _Copy:
    """Writes the steps of a copy."""

    p: PanelShape
    minor_size: int
    s: Strides
    into: bool
    packed: Pointer
    array: Pointer

    def ends(self, major: Index, minor: Index) -> tuple[Pointer, Pointer]:
        """The places of an element in `packed` and in `array`."""
        packed = (self.packed + major * (self.minor_size * self.p.parts * self.p.bytes))[minor]
        return packed, self.array + major * self.s.major + minor * self.s.minor

    def moved(self, packed: Pointer, array: Pointer) -> tuple[Pointer, Pointer]:
        """From where to where."""
        return (array, packed) if self.into else (packed, array)

    def element(self, major: Index, minor: Index) -> None:
        packed, array = self.ends(major, minor)
        for c in range(self.p.parts):
            source, target = self.moved(packed[c * self.minor_size], array[c])
            value = source.load()
            target.store(-value if c and self.s.conjugate else value)

    def row(self, major: Index, minor: Index, mask: Value | None = None) -> None:
        """A vector that is contiguous on both sides; it may count downwards in the array."""
        lanes = self.p.lanes
        packed, array = self.ends(major, minor)
        if self.s.minor < 0:
            array = array[1 - lanes]
        source, target = self.moved(packed, array)
        value = source.load(lanes, mask)
        target.store(value.reversed() if self.s.minor < 0 else value, mask)

    def square(self, module: Module, major: Index, minor: Index) -> None:
        """As many vectors as lanes, transposed between the two; they may count downwards in the array."""
        p, back, step = self.p, self.s.major < 0, self.minor_size * self.p.bytes
        packed, array = self.ends(major, minor)
        if back:
            packed, array, step = packed + (p.lanes - 1) * step, array[1 - p.lanes], -step
        (source, source_step), (target, target_step) = ((array, self.s.minor), (packed, step))[
            :: 1 if self.into else -1
        ]
        source.fn.call(_transpose(module, p), target, target_step, source, source_step)


def _transpose(module: Module, p: PanelShape) -> str:
    """The function (target, target_step, source, source_step) that transposes a square of vectors; steps in bytes."""
    name = f"panel_transpose_{p.dtype.name}_{p.lanes}"
    if name in module.functions:
        return name
    f, (target, target_step, source, source_step) = subroutine(
        name, p.scalar, target=POINTER, target_step=I64, source=POINTER, source_step=I64
    )
    rows: list[Value] = []
    for _ in range(p.lanes):
        rows.append(source.load(p.lanes))
        source = source + source_step
    for row in transposed(rows):
        target.store(row)
        target = target + target_step
    return module.end(f)
