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
    """An element type, with the number that XLA's protos give it. Those that jaxlib 0.4.30 does not know come last.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.PrimitiveType.F32, int(xc.PrimitiveType.F32)
    (PrimitiveType.F32, 11)
    """

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
        """hlokit's element type."""
        return dtype_of_number(self.value)


class FftType(Enumeration):
    """The kind of a Fourier transform: complex, inverse, of real numbers, or its inverse.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> [*xc.FftType]
    [FftType.FFT, FftType.IFFT, FftType.RFFT, FftType.IRFFT]
    """
    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


class Precision(Enumeration):
    """PrecisionConfig.Precision: the precision asked of an operand of a dot or convolution.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.PrecisionConfig.Precision.HIGHEST
    Precision.HIGHEST
    """

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
    """The time for which `Client.buffer_from_pyval` may rely on the array that it is given; all but ZERO_COPY copy it.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.HostBufferSemantics.ZERO_COPY
    HostBufferSemantics.ZERO_COPY
    """
    IMMUTABLE_ONLY_DURING_CALL = 0
    IMMUTABLE_UNTIL_TRANSFER_COMPLETES = 1
    ZERO_COPY = 2


class AutotuneCacheMode(Enumeration):
    """A debug option for GPUs, without effect here.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.CompileOptions().executable_build_options.debug_options.xla_gpu_experimental_autotune_cache_mode
    AutotuneCacheMode.UPDATE
    """
    UNSPECIFIED = 0
    UPDATE = 1
    READ = 2


class ResultAccuracyMode(Enumeration):
    """The modes of ResultAccuracy.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.ResultAccuracyMode.HIGHEST
    ResultAccuracyMode.HIGHEST
    """
    DEFAULT = 0
    HIGHEST = 1


class OpSharding_Type(Enumeration):
    """OpSharding.Type: whether a value is on all devices, on one, or divided.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.OpSharding.Type.REPLICATED
    OpSharding_Type.REPLICATED
    """
    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    OTHER = 3
    MANUAL = 4
    UNKNOWN = 5


class OpSharding_ShardGroupType(Enumeration):
    """OpSharding.ShardGroupType: whether the values of a group have the same sharding or similar ones.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.OpSharding.ShardGroupType.LIKE
    OpSharding_ShardGroupType.LIKE
    """
    AS = 0
    LIKE = 1


class PaddingType(Enum):
    """A rule for a window's padding: none (VALID), or as much as gives one window for each stride (SAME).

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.window_padding_type_to_pad_values(xc.PaddingType.SAME, [4], [3], [1])
    [(1, 1)]
    """
    VALID = 1
    SAME = 2


class CustomCallTargetTraits(IntFlag):
    """Traits of custom-call targets, without effect here.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.CustomCallTargetTraits.COMMAND_BUFFER_COMPATIBLE.value
    1
    """
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
    """The element type that a NumPy type stores.

    Parameters
    ----------
    dtype : dtype
        Anything that `numpy.dtype` takes.

    Returns
    -------
    PrimitiveType
        The element type.

    Raises
    ------
    KeyError
        HLO has no such element type.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.dtype_to_etype(np.float32)
    PrimitiveType.F32
    """
    return DTYPE_TO_XLA_ELEMENT_TYPE[str(np.dtype(dtype))]


def primitive_type(dtype: DType) -> PrimitiveType:
    return PrimitiveType(dtype.number)
