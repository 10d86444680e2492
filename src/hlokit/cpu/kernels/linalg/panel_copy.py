"""Copies between arrays and panels or stripes: strided, reversed, transposed; by vectors where elements are real."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.squares import transposed
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.linalg.panels import Panels, load, offset, plus, store
from hlokit.cpu.llvm import Function, Module


@dataclass(frozen=True)
class Strides:
    """Bytes between an array's elements along a stripe's (or panel's) major and minor dimension."""

    major: int
    minor: int
    conjugate: bool = False

    @property
    def name(self) -> str:
        return f"{self.major}_{self.minor}{'_conj' if self.conjugate else ''}".replace("-", "m")


def copy(module: Module, p: Panels, minor_size: int, s: Strides, into: bool) -> str:
    """void f(ptr packed, ptr array, i64 majors, i64 minors): elements [major][minor] between the two.

    packed   [major][component][minor_size]; into: array to packed, else packed to array
    """
    name = f"panel_copy_{'in' if into else 'out'}_{p.dtype.name}_{p.lanes}_{minor_size}_{s.name}"
    if name in module.functions:
        return name
    parameters = [("ptr noalias", "packed"), ("ptr noalias", "array"), ("i64", "majors"), ("i64", "minors")]
    f = Function(name, parameters, attributes="noinline")
    c = _Copy(f, p, minor_size, s, into)
    if p.parts == 1 and abs(s.minor) == p.bytes:
        whole = c.whole("%minors")
        masked = p.lanes * p.bytes == 64 and s.minor > 0  # AVX-512
        mask = c.mask(f.let(f"sub nsw i64 %minors, {whole}")) if masked else ""
        with f.loop("0", "%majors") as major:
            with f.loop("0", whole, p.lanes) as minor:
                c.row(major.index, minor.index)
            if masked:
                c.masked_row(major.index, whole, mask)
            else:
                with f.loop(whole, "%minors") as minor:
                    c.element(major.index, minor.index)
    elif p.parts == 1 and abs(s.major) == p.bytes:
        majors, minors = c.whole("%majors"), c.whole("%minors")
        with f.loop("0", majors, p.lanes) as major:
            with f.loop("0", minors, p.lanes) as minor:
                c.square(module, major.index, minor.index)
            with f.loop(minors, "%minors") as minor, f.loop("0", str(p.lanes)) as more:
                c.element(plus(f, major.index, more.index), minor.index)
        with f.loop("0", "%minors") as minor, f.loop(majors, "%majors") as major:
            c.element(major.index, minor.index)
    else:
        with f.loop("0", "%majors", 64) as block:
            end = least(f, plus(f, block.index, 64), "%majors")
            with f.loop("0", "%minors") as minor, f.loop(block.index, end) as major:
                c.element(major.index, minor.index)
    f.do("ret void")
    module.add(f)
    return name


@dataclass(frozen=True)
class _Copy:
    """Writes the steps of a copy."""

    f: Function
    p: Panels
    minor_size: int
    s: Strides
    into: bool

    def whole(self, count: str) -> str:
        """As many of them as fill vectors."""
        return self.f.let(f"and i64 {count}, {-self.p.lanes}")

    def packed(self, major: str, minor: str) -> str:
        p = self.p
        return offset(self.f, "%packed", (major, self.minor_size * p.parts * p.bytes), (minor, p.bytes))

    def array(self, major: str, minor: str) -> str:
        return offset(self.f, "%array", (major, self.s.major), (minor, self.s.minor))

    def element(self, major: str, minor: str) -> None:
        f, p = self.f, self.p
        packed, array = self.packed(major, minor), self.array(major, minor)
        for c in range(p.parts):
            here, there = offset(f, packed, c * self.minor_size * p.bytes), offset(f, array, c * p.bytes)
            value = load(f, p, there if self.into else here)
            if c and self.s.conjugate:
                value = f.let(f"fneg {p.scalar} {value}")
            store(f, p, value, here if self.into else there)

    def row(self, major: str, minor: str) -> None:
        """A vector that is contiguous on both sides; it may count downwards in the array."""
        f, p, back = self.f, self.p, self.s.minor < 0
        packed = self.packed(major, minor)
        array = self.array(major, plus(f, minor, p.lanes - 1) if back else minor)
        value = load(f, p, array if self.into else packed, p.lanes)
        if back:
            order = ", ".join(f"i32 {p.lanes - 1 - i}" for i in range(p.lanes))
            value = f.let(f"shufflevector {p.vector} {value}, {p.vector} poison, <{p.lanes} x i32> <{order}>")
        store(f, p, value, packed if self.into else array, p.lanes)

    def mask(self, count: str) -> str:
        """The first `count` lanes."""
        f, integers = self.f, f"<{self.p.lanes} x i32>"
        first = f.let(f"insertelement {integers} poison, i32 {f.let(f'trunc i64 {count} to i32')}, i32 0")
        limit = f.let(f"shufflevector {integers} {first}, {integers} poison, {integers} zeroinitializer")
        return f.let(f"icmp slt {integers} <{', '.join(f'i32 {i}' for i in range(self.p.lanes))}>, {limit}")

    def masked_row(self, major: str, minor: str, mask: str) -> None:
        """Less than a vector that is contiguous on both sides."""
        f, p = self.f, self.p
        places = self.array(major, minor), self.packed(major, minor)
        source, target = places if self.into else places[::-1]
        shown, end = f"<{p.lanes} x i1> {mask}", f"{p.suffix}.p0"
        read = f"(ptr align {p.bytes} {source}, {shown}, {p.vector} zeroinitializer)"
        value = f.let(f"call {p.vector} @llvm.masked.load.{end}{read}")
        f.do(f"call void @llvm.masked.store.{end}({p.vector} {value}, ptr align {p.bytes} {target}, {shown})")

    def square(self, module: Module, major: str, minor: str) -> None:
        """As many vectors as lanes, transposed between the two; they may count downwards in the array."""
        f, p, back = self.f, self.p, self.s.major < 0
        array = self.array(plus(f, major, p.lanes - 1) if back else major, minor)
        step = self.minor_size * p.bytes
        packed = offset(f, self.packed(major, minor), (p.lanes - 1) * step if back else 0)
        places = (packed, -step if back else step), (array, self.s.minor)
        (target, target_step), (source, source_step) = places if self.into else places[::-1]
        arguments = f"ptr {target}, i64 {target_step}, ptr {source}, i64 {source_step}"
        f.do(f"call void @{_transpose(module, p)}({arguments})")


def _transpose(module: Module, p: Panels) -> str:
    """void f(ptr target, i64 target_step, ptr source, i64 source_step): a square of vectors; steps in bytes."""
    name = f"panel_transpose_{p.dtype.name}_{p.lanes}"
    if name not in module.functions:
        parameters = [("ptr", "target"), ("i64", "target_step"), ("ptr", "source"), ("i64", "source_step")]
        f = Function(name, parameters, attributes="noinline")
        places = ["%source", "%target"]
        rows: list[str] = []
        for _ in range(p.lanes):
            rows.append(load(f, p, places[0], p.lanes))
            places[0] = f.let(f"getelementptr i8, ptr {places[0]}, i64 %source_step", "p")
        for row in transposed(f, rows, p.scalar):
            store(f, p, row, places[1], p.lanes)
            places[1] = f.let(f"getelementptr i8, ptr {places[1]}, i64 %target_step", "p")
        f.do("ret void")
        module.add(f)
    return name
