"""The enumerations, with the numbers of XLA's protos."""

from __future__ import annotations

from enum import Enum, IntEnum, IntFlag
from typing import Any

import numpy as np

from hlokit.types.dtype import DTYPES, DType, dtype_of_number


class Enumeration(IntEnum):
    def __repr__(self) -> str:
        return f"{type(self).__qualname__}.{self.name}"

    __str__ = __repr__


class PrimitiveType(Enumeration):
    """An element type. Those that jaxlib 0.4.30 does not know come last."""

    PRIMITIVE_TYPE_INVALID = 0
    PRED = 1
    S4 = 21
    S8 = 2
    S16 = 3
    S32 = 4
    S64 = 5
    U4 = 22
    U8 = 6
    U16 = 7
    U32 = 8
    U64 = 9
    F16 = 10
    F8E4M3FN = 20
    F8E4M3B11FNUZ = 23
    F8E4M3FNUZ = 25
    F8E5M2 = 19
    F8E5M2FNUZ = 24
    BF16 = 16
    F32 = 11
    F64 = 12
    C64 = 15
    C128 = 18
    TUPLE = 13
    OPAQUE_TYPE = 14
    TOKEN = 17
    S1 = 30
    S2 = 26
    U1 = 31
    U2 = 27
    F4E2M1FN = 32
    F6E3M2FN = 35
    F6E2M3FN = 36
    F8E3M4 = 29
    F8E4M3 = 28
    F8E8M0FNU = 33
    BUFFER = 34

    @property
    def core(self) -> DType:
        return dtype_of_number(self.value)


class FftType(Enumeration):
    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class Precision(Enumeration):
    """PrecisionConfig.Precision."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2
    PACKED_NIBBLE = 3


class RandomAlgorithm(Enumeration):
    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


class CustomCallSchedule(Enumeration):
    SCHEDULE_NONE = 0
    SCHEDULE_LATEST = 1
    SCHEDULE_EARLIEST = 2


class CustomCallApiVersion(Enumeration):
    API_VERSION_ORIGINAL = 1
    API_VERSION_STATUS_RETURNING = 2
    API_VERSION_STATUS_RETURNING_UNIFIED = 3
    API_VERSION_TYPED_FFI = 4


class TriangularSolveOptions_Transpose(Enumeration):
    TRANSPOSE_INVALID = 0
    NO_TRANSPOSE = 1
    TRANSPOSE = 2
    ADJOINT = 3


class HostBufferSemantics(Enumeration):
    IMMUTABLE_ONLY_DURING_CALL = 0
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = 1
    ZERO_COPY = 2


class AutotuneCacheMode(Enumeration):
    UNSPECIFIED = 0
    UPDATE = 1
    READ = 2


class ResultAccuracyMode(Enumeration):
    DEFAULT = 0
    HIGHEST = 1


class OpSharding_Type(Enumeration):
    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    OTHER = 3
    MANUAL = 4
    UNKNOWN = 5


class OpSharding_ShardGroupType(Enumeration):
    AS = 0
    LIKE = 1


class PaddingType(Enum):
    VALID = 1
    SAME = 2


class CustomCallTargetTraits(IntFlag):
    DEFAULT = 0
    COMMAND_BUFFER_COMPATIBLE = 1


XLA_ELEMENT_TYPE_TO_DTYPE: dict[PrimitiveType, np.dtype[Any]] = {
    **{PrimitiveType(t.number): t.numpy for t in DTYPES.values() if t.is_array and t.number in set(PrimitiveType)},
    PrimitiveType.TUPLE: np.dtype(np.object_),
    PrimitiveType.TOKEN: np.dtype(np.object_),
}
"""The NumPy type of each element type; objects for tuples and tokens."""

DTYPE_TO_XLA_ELEMENT_TYPE: dict[str, PrimitiveType] = {str(dt): et for et, dt in XLA_ELEMENT_TYPE_TO_DTYPE.items()}
"""The element type by the name of its NumPy type."""


def dtype_to_etype(dtype: Any) -> PrimitiveType:
    """The element type that a NumPy type stores. Raises KeyError if there is none."""
    return DTYPE_TO_XLA_ELEMENT_TYPE[str(np.dtype(dtype))]


def primitive_type(dtype: DType) -> PrimitiveType:
    return PrimitiveType(dtype.number)
