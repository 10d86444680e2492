"""Helpers of kernels: subroutines, unused names, and loops over memory by element number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hlokit.cpu.llvm import I8, Function, Module, Pointer, Type, Value, scalar_type, type_of
from hlokit.types.dtype import DType


def subroutine(name: str, element: Type = I8, /, **parameters: Type | str) -> tuple[Function, list[Any]]:
    """A function that is not inlined, and its arguments: pointers to such elements, Indexes, Values of other types."""
    f = Function(name, [(type, name) for name, type in parameters.items()], attributes="noinline")
    return f, f.arguments(element)


def unused_name(module: Module, prefix: str) -> str:
    """A name that no function of the module begins with, the same whenever the same functions came before."""
    return f"{prefix}{len(module.functions)}"


@dataclass(frozen=True)
class Element:
    """An element in memory: as it is moved, and read as scalars in register types."""

    dtype: DType

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return max(1, self.dtype.bits // 8)

    @property
    def moved(self) -> Type:
        """The integer type that holds an element's memory."""
        return type_of(f"i{8 * self.size}")

    @property
    def registers(self) -> list[Type]:
        """Register types of the element: one, or its two components'."""
        return [type_of(scalar_type(self.dtype.real))] * (2 if self.dtype.is_complex else 1)

    def array(self, first: Pointer) -> Pointer:
        """An array of elements as they are moved."""
        return first.to(self.moved, max(1, self.dtype.real.bits // 8))

    def read(self, place: Pointer) -> list[Value]:
        """Its scalars in `registers`. Bits above those of a sub-byte type count for nothing in memory."""
        if self.dtype.name == "pred":
            return [place.to(I8).load().ne(0)]
        parts = place.to(self.registers[0])
        return [extended(parts[k].load(), self.dtype) for k in range(len(self.registers))]


def extended(value: Value, dtype: DType) -> Value:
    """A byte (or a vector of them) with the bits above those of a sub-byte type extended."""
    if dtype.bits >= 8:
        return value
    unused = 8 - dtype.bits
    raised = value << unused
    return raised.sar(unused) if dtype.kind == "signed" else raised >> unused
