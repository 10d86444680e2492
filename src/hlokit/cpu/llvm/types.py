"""Types of LLVM values and the spelling of constants.

Nothing here writes instructions: values.py, function.py and module.py do.
"""

from __future__ import annotations

import struct
from functools import cache

from hlokit.types.dtype import DType

_SCALARS = {"pred": "i1", "f16": "half", "bf16": "i16", "f32": "float", "f64": "double"}
FLOATS = {"half": 16, "float": 32, "double": 64, "bfloat": 16}
"""Bits of floating types."""
_SUFFIXES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64", "ptr": "p0"}
POINTER_BITS = 64


class Type:
    """A scalar, or a vector of `lanes` scalars. Equal types are one object: `type_of` makes them.

    scalar   as LLVM spells it: i1, i8, ..., half, bfloat, float, double, ptr
    text     of the whole type: "<16 x float>"
    suffix   in names of intrinsics: "v16f32"
    bits     of one scalar
    bytes    of one scalar in memory; an i1 takes one
    """

    __slots__ = ("bits", "bytes", "is_float", "lanes", "scalar", "suffix", "text")

    def __init__(self, scalar: str, lanes: int) -> None:
        self.scalar, self.lanes = scalar, lanes
        self.text = vector(scalar, lanes)
        self.is_float = scalar in FLOATS
        self.bits = FLOATS[scalar] if self.is_float else POINTER_BITS if scalar == "ptr" else int(scalar[1:])
        self.bytes = max(1, self.bits // 8)
        name = _SUFFIXES.get(scalar, scalar)
        self.suffix = name if lanes == 1 else f"v{lanes}{name}"

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Type({self.text})"

    def of(self, lanes: int) -> Type:
        """As many of the same scalar."""
        return type_of(self.scalar, lanes)

    def like(self, scalar: str) -> Type:
        """As many of another scalar."""
        return type_of(scalar, self.lanes)

    def array(self, count: int) -> ArrayType:
        """So many of them in memory, one after the other."""
        return _array_of(self, count)

    @property
    def size(self) -> int:
        """Bytes of the whole type in memory."""
        return self.bytes * self.lanes

    @property
    def element(self) -> Type:
        return type_of(self.scalar, 1)

    @property
    def mask(self) -> Type:
        """An i1 for each lane."""
        return type_of("i1", self.lanes)

    @property
    def integer(self) -> Type:
        """Integers of the same width."""
        return type_of(f"i{self.bits}", self.lanes)

    def constant(self, number: float | None) -> str:
        """The number in every lane, as LLVM spells it; an i1 is True or False. None is the null pointer."""
        if number is None or self.scalar == "ptr":
            return f"inttoptr (i64 {int(number)} to ptr)" if number else "null"
        if self.is_float:
            text = float_constant(number, self.scalar)
        elif self.bits == 1:
            text = "true" if number else "false"
        else:
            text = str(int(number))
        return splat(text, self.scalar, self.lanes)


class PointerType(Type):
    """The type of one pointer."""

    __slots__ = ()


class ArrayType(Type):
    """`count` of a type in memory: the element of pointers that count in such."""

    __slots__ = ()

    def __init__(self, of: Type, count: int) -> None:
        super().__init__(of.scalar, of.lanes)
        self.text, self.bytes = f"[{count} x {of.text}]", of.bytes * of.lanes * count

    @property
    def size(self) -> int:
        return self.bytes


_array_of = cache(ArrayType)


def type_of(scalar: str, lanes: int = 1) -> Type:
    """The type of `lanes` scalars, as LLVM spells the scalar."""
    return _type(scalar, lanes)


@cache
def _type(scalar: str, lanes: int) -> Type:
    return POINTER if scalar == "ptr" and lanes == 1 else Type(scalar, lanes)


def scalar_type(dtype: DType) -> str:
    """The LLVM type of one element in a register.

    pred is i1; integers below a byte are i8, kept sign- or zero-extended; bf16 is its bits as i16, the types of 8 bits
    and less their bits as i8. Complex numbers have no register type: they are pairs of their components.
    """
    if dtype.is_complex:
        raise TypeError(f"{dtype} is a pair of {dtype.real}")
    return _SCALARS.get(dtype.name) or f"i{max(8, dtype.bits)}"


def memory_type(dtype: DType) -> str:
    """The LLVM type of one element in memory, laid out as in NumPy and ml_dtypes: pred takes a byte, 0 or 1."""
    return "i8" if dtype.name == "pred" else scalar_type(dtype)


@cache
def register_type(dtype: DType, lanes: int = 1) -> Type:
    """The type of so many elements in a register: see `scalar_type`."""
    return type_of(scalar_type(dtype), lanes)


@cache
def stored_type(dtype: DType) -> Type:
    """The type of an element in memory: see `memory_type`."""
    return type_of(memory_type(dtype))


def vector(scalar: str, lanes: int) -> str:
    """`<lanes x scalar>`; the scalar type itself for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def float_constant(value: float, scalar: str) -> str:
    """A number as LLVM spells it exactly, for `float`, `double` and `half`."""
    if scalar == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if scalar == "float":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def splat(constant: str, scalar: str, lanes: int) -> str:
    """A constant in every lane."""
    return constant if lanes == 1 else f"splat ({scalar} {constant})"


POINTER = PointerType("ptr", 1)
I1, I8, I16, I32, I64 = (type_of(f"i{bits}") for bits in (1, 8, 16, 32, 64))
