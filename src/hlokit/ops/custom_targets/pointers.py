"""Targets that are C functions `void f(void* out, void** in)` (CCALL-3)."""

from __future__ import annotations

import ctypes
from typing import Any, cast

import numpy as np

from hlokit.errors import BuildError, UnsupportedError
from hlokit.hlo.values import Array
from hlokit.ops.custom_targets.registry import Invocation, Target, add_target
from hlokit.types.shape import Shape

_CTYPES = (
    ctypes.c_void_p,
    type(ctypes.pythonapi.PyCapsule_GetPointer).__mro__[1],  # of every function
    ctypes.POINTER(ctypes.c_int).__mro__[1],  # of every pointer
)
_Signature = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def register_custom_call_pointer(name: str, address: Any, *, replace: bool = False) -> None:
    """Makes a C function `void f(void* out, void** in)` the target `name` of custom-calls (CCALL-3).

    in[k] points to operand k's data and out to the result's, in their layouts (row-major unless the instruction says
    otherwise), a byte per element for types narrower than that; a tuple is an array of pointers to its parts.
    Where output_to_operand_aliasing says so, the result's buffer holds the operand's data at the start. The function
    runs without the interpreter lock.

    Parameters
    ----------
    name : str
        The name that instructions call it by.
    address : int, ctypes function or PyCapsule
        The function.
    replace : bool, optional
        Whether a target of this name may exist already.

    Raises
    ------
    BuildError
        The name is reserved, `$...` (CCALL-5), or taken (CCALL-2), or `address` is not an address.

    Examples
    --------
    >>> b = hk.Builder()
    >>> import ctypes
    >>> @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_int32), ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
    ... def increment(out, operands):
    ...     out[0] = operands[0][0] + 1
    >>> address = ctypes.cast(increment, ctypes.c_void_p).value
    >>> hk.register_custom_call_pointer("example_increment", address, replace=True)
    >>> hk.evaluate(b.build(hk.custom_call(b, "example_increment", [b.constant(41)], hk.s32)))
    array(42, dtype=int32)
    """
    try:
        target = pointer_target(address)
    except TypeError as error:
        raise BuildError(f"custom-call target {name!r}: {error}") from None
    add_target(name, target, replace=replace)


def pointer_target(address: Any) -> Target:
    """A C function as a target: see register_custom_call_pointer."""
    function = _Signature(address_of(address))

    def target(call: Invocation, _alive: Any = address) -> Any:
        return _call(function, call)

    return target


def address_of(address: Any) -> int:
    """A function's address: an integer, a ctypes function or pointer, or a PyCapsule's. TypeError for what is none."""
    if type(address).__name__ == "PyCapsule":
        get_name = ctypes.pythonapi.PyCapsule_GetName
        get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
        get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        return get_pointer(address, get_name(address))
    found = address
    if isinstance(address, _CTYPES):
        found = ctypes.cast(address, ctypes.c_void_p).value
    if not isinstance(found, int) or not 0 < found < 1 << 64:
        raise TypeError(f"{address!r} is not the address of a function")
    return found


def _call(function: Any, call: Invocation) -> Any:
    op = call.op
    name = f"custom-call target {op.custom_call_target!r}"
    if op.api_version not in ("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL"):
        raise UnsupportedError(f"{name} is a C function of API_VERSION_ORIGINAL, the instruction's is {op.api_version}")
    if call.shape.is_dynamic:
        raise UnsupportedError(f"{name}: C functions with a dynamic result {call.shape}")
    keep: list[Any] = []  # what the pointers point to must live until the function returns
    layouts = op.operand_layout_constraints or (None,) * len(call.operands)
    values = [_stored(value, layout) for value, layout in zip(call.operands, layouts, strict=True)]
    result = _allocate(call.shape)
    for output_index, operand, operand_index in op.output_to_operand_aliasing:
        _at(result, output_index)[...] = _at(values[operand], operand_index)
    inputs = (ctypes.c_void_p * max(1, len(values)))(*(_pointer(v, keep) for v in values))
    function(_pointer(result, keep), inputs)
    return _logical(result, call.shape)


def _stored(value: Any, shape: Shape | None) -> Any:
    """`value` as it lies in memory: dimensions in the layout's order, slowest first."""
    if value is None:
        return None
    if isinstance(value, tuple):
        parts = cast("tuple[Any, ...]", value)
        shapes = shape.elements if shape is not None else (None,) * len(parts)
        return tuple(_stored(part, s) for part, s in zip(parts, shapes, strict=True))
    return np.ascontiguousarray(value.transpose(memory_order(shape)) if shape is not None else value)


def memory_order(shape: Shape) -> tuple[int, ...]:
    """The dimensions as they lie in memory, slowest first."""
    return shape.layout_or_default.minor_to_major[::-1]


def _allocate(shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_allocate(element) for element in shape.elements)
    if not shape.is_array:
        return None
    return np.zeros([shape.dimensions[d] for d in memory_order(shape)], shape.dtype.numpy)


def _pointer(value: Any, keep: list[Any]) -> int | None:
    """The address of an array's data, or of an array of pointers to a tuple's parts."""
    keep.append(value)
    if isinstance(value, tuple):
        parts = cast("tuple[Any, ...]", value)
        table = (ctypes.c_void_p * max(1, len(parts)))(*(_pointer(part, keep) for part in parts))
        keep.append(table)
        return ctypes.addressof(table)
    return None if value is None else value.ctypes.data


def _logical(value: Any, shape: Shape) -> Any:
    if shape.is_tuple:
        return tuple(_logical(part, element) for part, element in zip(value, shape.elements, strict=True))
    return None if value is None else value.transpose(np.argsort(memory_order(shape))) if shape.rank else value


def _at(value: Any, index: tuple[int, ...]) -> Array:
    for i in index:
        value = value[i]
    return value
