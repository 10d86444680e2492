"""Arguments and results in NumPy's files: .npz with an array for each parameter, or for each leaf of the result."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np

from hlokit.errors import ArgumentError
from hlokit.hlo.module import HloModule
from hlokit.hlo.values import is_sequence
from hlokit.types.shape import Shape

_Array: TypeAlias = np.ndarray[Any, Any]


def arrays_in(content: bytes) -> dict[str, _Array]:
    """The arrays of an .npz; a .npy has one, arr_0. ArgumentError for what is neither."""
    if not content.startswith((b"PK", b"\x93NUMPY")):
        raise ArgumentError("not an .npz of arrays")
    try:
        try:
            return _loaded(content)
        except SystemError:  # Python 3.11 may fail so in a thread, while NumPy reads the header: cpython#106905
            return _loaded(content)
    except (BadZipFile, ValueError, TypeError, EOFError, MemoryError, NotImplementedError, zlib.error) as error:
        raise ArgumentError(f"not an .npz of arrays: {error}") from None


def _loaded(content: bytes) -> dict[str, _Array]:
    found: Any = np.load(BytesIO(content), allow_pickle=False)
    return {"arr_0": found} if isinstance(found, np.ndarray) else dict(found)


def arguments_from_arrays(module: HloModule, arrays: Mapping[str, _Array]) -> list[Any]:
    """One argument for each parameter, found by name or number; those of parameters that are tuples by the numbers that
    leaves have among all. ArgumentError if one is missing."""
    parameters = module.entry.parameters
    if any(p.shape.is_tuple for p in parameters):
        shapes = [leaf for p in parameters for leaf in p.shape.leaves()]
        numbers = [k for k, shape in enumerate(shapes) if shape.is_array]
        stem = "arr_" if "arr_0" in arrays else "in"
        missing = [f"{stem}{k}" for k in numbers if f"{stem}{k}" not in arrays]
        if missing:
            raise ArgumentError(f"it lacks {', '.join(missing)}")
        given = iter([arrays[f"{stem}{k}"] if k in numbers else None for k in range(len(shapes))])
        return [_value(given, p.shape) for p in parameters]
    found = named_arrays(arrays, [p.name for p in parameters])
    return [reinterpreted(array, p.shape) for array, p in zip(found, parameters, strict=True)]


def _value(leaves: Iterator[_Array | None], shape: Shape) -> Any:
    """The value of a shape whose leaves come next."""
    if shape.is_tuple:
        return tuple([_value(leaves, element) for element in shape.elements])
    leaf = next(leaves)
    return None if leaf is None else reinterpreted(leaf, shape)


def named_arrays(arrays: Mapping[str, _Array], names: Sequence[str]) -> list[_Array]:
    """The arrays of parameters of these names, by name or by number."""
    if not all(name in arrays for name in names):
        stem = next((s for s in ("in", "arr_") if f"{s}0" in arrays), None)
        if stem is None:
            raise ArgumentError(f"it has {', '.join(arrays) or 'no arrays'}; the parameters are {', '.join(names)}")
        names = [f"{stem}{i}" for i in range(len(names))]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ArgumentError(f"it lacks {', '.join(missing)}")
    return [arrays[name] for name in names]


def reinterpreted(array: _Array, shape: Shape) -> _Array:
    """Unsigned integers as the type of the parameter, where NumPy's files cannot hold that."""
    if not shape.is_array or hasattr(np, shape.dtype.numpy.name) or array.dtype == shape.dtype.numpy:
        return array
    return array.view(shape.dtype.numpy) if array.dtype.itemsize == shape.dtype.numpy.itemsize else array


def npz_of(result: Any, stem: str = "out") -> bytes:
    """The content of an .npz with the arrays of a result, out0, out1, ...; types that NumPy's files cannot hold are
    stored as unsigned integers of their size."""
    arrays = {f"{stem}{i}": storable(leaf) for i, leaf in enumerate(leaves_of(result)) if leaf is not None}
    content = BytesIO()
    np.savez(content, allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    return content.getvalue()


def storable(array: _Array) -> _Array:
    return array if hasattr(np, array.dtype.name) else array.view(f"uint{array.dtype.itemsize * 8}")


def made_up(generator: np.random.Generator, shape: Shape) -> Any:
    """A value of the shape: normally distributed numbers, small integers."""
    if shape.is_tuple:
        return tuple(made_up(generator, element) for element in shape.elements)
    if not shape.is_array:
        return None
    if shape.dtype.is_floating or shape.dtype.is_complex:
        values = generator.standard_normal(shape.dimensions)
        if shape.dtype.is_complex:
            values = values + 1j * generator.standard_normal(shape.dimensions)
    else:
        values = generator.integers(0, 2 if shape.dtype.bits < 4 or shape.dtype.kind == "pred" else 8, shape.dimensions)
    return (
        np.asarray(values)
        .astype(np.float32 if shape.dtype.bits < 16 and shape.dtype.is_floating else shape.dtype.numpy)
        .astype(shape.dtype.numpy)
    )


def leaves_of(value: Any) -> list[_Array | None]:
    """The arrays of a value, which may be nested tuples; None for a token."""
    return [leaf for part in value for leaf in leaves_of(part)] if is_sequence(value) else [value]
