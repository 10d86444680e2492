"""Element types. `f32[2, 3]` makes the shape that prints as f32[2,3]."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

import numpy as np

from hlokit.errors import ShapeError
from hlokit.tracebacks import shorten

if TYPE_CHECKING:
    from hlokit.types.shape import Shape


class DType:
    """One of HLO's primitive types. There is one object per type: compare with `is`.

    Attributes
    ----------
    name : str
        The name in HLO text, such as "bf16".
    kind : str
        "pred", "signed", "unsigned", "floating" or "complex", the kinds of array types; "token", "opaque", "tuple" or
        "buffer".
    bits : int
        The width of a value; 8 for pred, 0 for what is not an array type.
    number : int
        The type's number in xla_data.proto.
    is_array : bool
        Whether arrays have elements of this type.

    Examples
    --------
    >>> hk.bf16.bits, hk.bf16.kind, hk.bf16.numpy
    (16, 'floating', dtype(bfloat16))
    >>> hk.bf16[2, 3]
    bf16[2,3]
    """

    __slots__ = ("_numpy", "_numpy_name", "bits", "is_array", "kind", "name", "number")
    array_shape: ClassVar[Callable[[DType, Iterable[int | str]], Shape]]
    """Shape.array, for `f32[2, 3]`: types.shape, which imports this module, sets it."""

    def __init__(self, name: str, kind: str, bits: int, number: int, numpy_name: str) -> None:
        self.name = name
        self.kind = kind
        self.bits = bits
        self.number = number
        self.is_array = kind in ("pred", "signed", "unsigned", "floating", "complex")
        self._numpy_name = numpy_name
        self._numpy: np.dtype[Any] | None = None

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type that stores an element: NumPy's own, else ml_dtypes' (imported on first use)."""
        if self._numpy is None:
            if not self.is_array:
                raise TypeError(f"{self.name} has no NumPy type")
            if hasattr(np, self._numpy_name):
                self._numpy = np.dtype(self._numpy_name)
            else:
                import ml_dtypes

                self._numpy = np.dtype(getattr(ml_dtypes, self._numpy_name))
        return self._numpy

    @property
    def is_integral(self) -> bool:
        """Rule TYPE-2: S* and U*, not pred."""
        return self.kind in ("signed", "unsigned")

    @property
    def is_signed(self) -> bool:
        """Rule TYPE-3: S* and floating types."""
        return self.kind in ("signed", "floating")

    @property
    def is_floating(self) -> bool:
        """Whether its values are real floating-point numbers."""
        return self.kind == "floating"

    @property
    def is_complex(self) -> bool:
        """Whether its values are complex numbers."""
        return self.kind == "complex"

    @property
    def real(self) -> DType:
        """Rule TYPE-5: the component type of a complex type; any other type itself."""
        return {"c64": f32, "c128": f64}.get(self.name, self)

    def __getitem__(self, dimensions: int | str | tuple[int | str, ...]) -> Shape:
        """`f32[2, 3]`, `f32[()]`, bounded `f32["<=5", 2]`, unbounded `f32["?"]`."""
        sizes = dimensions if isinstance(dimensions, tuple) else (dimensions,)
        try:  # what `public` does, but for a call
            return DType.array_shape(self, sizes)
        except ShapeError as error:
            shorten(error)
            raise

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    def __iter__(self) -> NoReturn:
        raise TypeError(f"{self.name} is not iterable")


# name, kind, bits, number in xla_data.proto, name of the NumPy or ml_dtypes type
_ROWS: list[tuple[str, str, int, int, str]] = [
    ("pred", "pred", 8, 1, "bool"),
    ("s1", "signed", 1, 30, "int1"),
    ("s2", "signed", 2, 26, "int2"),
    ("s4", "signed", 4, 21, "int4"),
    ("s8", "signed", 8, 2, "int8"),
    ("s16", "signed", 16, 3, "int16"),
    ("s32", "signed", 32, 4, "int32"),
    ("s64", "signed", 64, 5, "int64"),
    ("u1", "unsigned", 1, 31, "uint1"),
    ("u2", "unsigned", 2, 27, "uint2"),
    ("u4", "unsigned", 4, 22, "uint4"),
    ("u8", "unsigned", 8, 6, "uint8"),
    ("u16", "unsigned", 16, 7, "uint16"),
    ("u32", "unsigned", 32, 8, "uint32"),
    ("u64", "unsigned", 64, 9, "uint64"),
    ("f4e2m1fn", "floating", 4, 32, "float4_e2m1fn"),
    ("f6e2m3fn", "floating", 6, 36, "float6_e2m3fn"),
    ("f6e3m2fn", "floating", 6, 35, "float6_e3m2fn"),
    ("f8e3m4", "floating", 8, 29, "float8_e3m4"),
    ("f8e4m3", "floating", 8, 28, "float8_e4m3"),
    ("f8e4m3b11fnuz", "floating", 8, 23, "float8_e4m3b11fnuz"),
    ("f8e4m3fn", "floating", 8, 20, "float8_e4m3fn"),
    ("f8e4m3fnuz", "floating", 8, 25, "float8_e4m3fnuz"),
    ("f8e5m2", "floating", 8, 19, "float8_e5m2"),
    ("f8e5m2fnuz", "floating", 8, 24, "float8_e5m2fnuz"),
    ("f8e8m0fnu", "floating", 8, 33, "float8_e8m0fnu"),
    ("f16", "floating", 16, 10, "float16"),
    ("bf16", "floating", 16, 16, "bfloat16"),
    ("f32", "floating", 32, 11, "float32"),
    ("f64", "floating", 64, 12, "float64"),
    ("c64", "complex", 64, 15, "complex64"),
    ("c128", "complex", 128, 18, "complex128"),
    ("token", "token", 0, 17, ""),
    ("opaque", "opaque", 0, 14, ""),
    ("tuple", "tuple", 0, 13, ""),
    ("buffer", "buffer", 0, 34, ""),
]
DTYPES: dict[str, DType] = {row[0]: DType(*row) for row in _ROWS}
_BY_NUMBER = {element_type.number: element_type for element_type in DTYPES.values()}
_BY_NUMPY = {row[4]: row[0] for row in _ROWS if row[4]}

pred, s1, s2, s4, s8, s16, s32, s64 = (DTYPES[n] for n in ("pred", "s1", "s2", "s4", "s8", "s16", "s32", "s64"))
u1, u2, u4, u8, u16, u32, u64 = (DTYPES[n] for n in ("u1", "u2", "u4", "u8", "u16", "u32", "u64"))
f4e2m1fn, f6e2m3fn, f6e3m2fn = (DTYPES[n] for n in ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn"))
f8e3m4, f8e4m3 = (DTYPES[n] for n in ("f8e3m4", "f8e4m3"))
f8e4m3b11fnuz, f8e4m3fn, f8e4m3fnuz = (DTYPES[n] for n in ("f8e4m3b11fnuz", "f8e4m3fn", "f8e4m3fnuz"))
f8e5m2, f8e5m2fnuz, f8e8m0fnu = (DTYPES[n] for n in ("f8e5m2", "f8e5m2fnuz", "f8e8m0fnu"))
f16, bf16, f32, f64, c64, c128 = (DTYPES[n] for n in ("f16", "bf16", "f32", "f64", "c64", "c128"))
token, opaque, tuple_, buffer = (DTYPES[n] for n in ("token", "opaque", "tuple", "buffer"))

_UNSIGNED_OF_BITS = {t.bits: t for t in (u1, u2, u4, u8, u16, u32, u64)}
_SIGNED_OF_BITS = {t.bits: t for t in (s1, s2, s4, s8, s16, s32, s64)}


def unsigned_of(bits: int) -> DType | None:
    """The unsigned integer type of `bits` bits, if there is one."""
    return _UNSIGNED_OF_BITS.get(bits)


def signed_of(bits: int) -> DType | None:
    """The signed integer type of `bits` bits, if there is one."""
    return _SIGNED_OF_BITS.get(bits)


def dtype(value: object) -> DType:
    """The element type named or meant by `value`: a DType, a name ("f32"), a NumPy type or Python's bool/int/float.

    Python's types follow XLA's native map (BUILDER-7): bool pred, int s32, float f32, complex c64.

    Parameters
    ----------
    value : DType, str or type
        The type, its name ("f32"), a NumPy type, or Python's bool, int, float or complex.

    Returns
    -------
    DType
        The element type.

    Raises
    ------
    ShapeError
        The value names no element type (TYPE-1).

    Examples
    --------
    >>> hk.dtype("f32"), hk.dtype(np.int8), hk.dtype(float)
    (f32, s8, f32)
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    if isinstance(value, type) and value in _PYTHON_TYPES:
        return _PYTHON_TYPES[value]
    try:
        found = None if value is None else _BY_NUMPY.get(np.dtype(value).name)  # type: ignore[call-overload]  # None: f64
    except (TypeError, ValueError):
        found = None
    if found is None:
        raise ShapeError("TYPE-1", "element type", value, "one of " + " ".join(DTYPES))
    return DTYPES[found]


def dtype_of_number(number: int) -> DType:
    """The element type with this number in xla_data.proto; ShapeError (TYPE-1) if there is none."""
    if number not in _BY_NUMBER:
        raise ShapeError("TYPE-1", "element type number", number, "a PrimitiveType of xla_data.proto")
    return _BY_NUMBER[number]


_PYTHON_TYPES: dict[type, DType] = {bool: pred, int: s32, float: f32, complex: c64}
