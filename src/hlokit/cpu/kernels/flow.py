"""What kernels are made of: functions of their own, pointers of the table, memory by element number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlokit.cpu.llvm import I8, Function, Module, Type, scalar_type
from hlokit.types.dtype import DType


def subroutine(name: str, element: Type = I8, /, **parameters: Type | str) -> tuple[Function, list[Any]]:
    """A function that is not inlined, and its arguments: pointers to such elements, Indexes, Values of other types."""
    f = Function(name, [(type, name) for name, type in parameters.items()], attributes="noinline")
    return f, f.arguments(element)


def table_pointer(f: Function, number: int) -> str:
    """The pointer at a place of the table, which is the function's first parameter."""
    place = f.let(f"getelementptr inbounds ptr, ptr %table, i64 {number}")
    return f.let(f"load ptr, ptr {place}", "p")


def at(f: Function, base: str, index: str, size: int) -> str:
    """The address of element `index` (i64) of elements of `size` bytes."""
    return f.let(f"getelementptr [{size} x i8], ptr {base}, i64 {index}", "p")


def least(f: Function, a: str, b: str) -> str:
    """The less of two i64."""
    return f.let(f"call i64 @llvm.smin.i64(i64 {a}, i64 {b})")


def greatest(f: Function, a: str, b: str) -> str:
    """The greater of two i64."""
    return f.let(f"call i64 @llvm.smax.i64(i64 {a}, i64 {b})")


def unused_name(module: Module, prefix: str) -> str:
    """A name that no function of the module begins with, the same whenever the same functions came before."""
    return f"{prefix}{len(module.functions)}"


@dataclass(frozen=True)
class Element:
    """How an element of this type is moved, and read as scalars in register types."""

    dtype: DType

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return max(1, self.dtype.bits // 8)

    @property
    def moved(self) -> str:
        """The integer type that holds an element's memory."""
        return f"i{8 * self.size}"

    @property
    def align(self) -> int:
        return max(1, self.dtype.real.bits // 8)

    @property
    def registers(self) -> list[str]:
        """Register types of the element: one, or its two components'."""
        return [scalar_type(self.dtype.real)] * (2 if self.dtype.is_complex else 1)

    def load(self, f: Function, address: str) -> str:
        return f.let(f"load {self.moved}, ptr {address}, align {self.align}")

    def store(self, f: Function, value: str, address: str) -> None:
        f.do(f"store {self.moved} {value}, ptr {address}, align {self.align}")

    def read(self, f: Function, address: str) -> list[str]:
        """Its scalars in `registers`. Bits above those of a sub-byte type count for nothing in memory."""
        if self.dtype.is_complex:
            second = self.align
            addresses = [address, f.let(f"getelementptr i8, ptr {address}, i64 {second}")]
            return [f.let(f"load {self.registers[0]}, ptr {a}, align {self.align}") for a in addresses]
        value = f.let(f"load {'i8' if self.dtype.name == 'pred' else self.registers[0]}, ptr {address}")
        if self.dtype.name == "pred":
            return [f.let(f"icmp ne i8 {value}, 0")]
        return [extended(f, value, self.dtype)]


def extended(f: Function, value: str, dtype: DType, type: str = "i8") -> str:
    """A byte (or a vector of them, of LLVM type `type`) with the bits above those of a sub-byte type extended."""
    if dtype.bits >= 8:
        return value
    unused = str(8 - dtype.bits) if type == "i8" else f"splat (i8 {8 - dtype.bits})"
    raised = f.let(f"shl {type} {value}, {unused}")
    return f.let(f"{'ashr' if dtype.kind == 'signed' else 'lshr'} {type} {raised}, {unused}")
