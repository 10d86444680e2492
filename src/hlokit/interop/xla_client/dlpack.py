"""Buffers as DLPack capsules and back: DLManagedTensor of the unversioned protocol, as in jaxlib.

NumPy makes and reads the capsules. It does not know bfloat16: such tensors pass it as words of 16 bits, and their type
is set in the struct.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from hlokit.interop.xla_client.buffer import ArrayImpl, compact
from hlokit.interop.xla_client.client import Client, Device
from hlokit.interop.xla_client.errors import invalid, unimplemented
from hlokit.types import dtype as dtypes

_NAME = b"dltensor"
_CPU = 1
_UINT, _BFLOAT = 1, 4
_ALIGNMENT = 16
"""Bytes to which the memory of a tensor must be aligned for a buffer to share it."""


class _Tensor(ctypes.Structure):
    """DLTensor, the head of DLManagedTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def buffer_to_dlpack_managed_tensor(buffer: ArrayImpl, stream: int | None = None) -> Any:
    """A DLPack capsule that shares a buffer's memory and keeps it alive.

    Parameters
    ----------
    buffer : ArrayImpl
        The buffer.
    stream : int, optional
        Has no effect on CPUs.

    Returns
    -------
    PyCapsule
        A capsule named "dltensor".

    Raises
    ------
    XlaRuntimeError
        The buffer was deleted, or DLPack has no code for its type: floats of 8 bits and fewer, integers below 8 bits.
    TypeError
        `buffer` is not a buffer.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> capsule = xc._xla.buffer_to_dlpack_managed_tensor(client.buffer_from_pyval(np.float32([1, 2])))
    >>> np.asarray(xc._xla.dlpack_managed_tensor_to_buffer(capsule, client.devices()[0]))
    array([1., 2.], dtype=float32)
    """
    if not isinstance(buffer, ArrayImpl):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"buffer_to_dlpack_managed_tensor(): expected a buffer, got {type(buffer).__name__}")
    array = _writable(buffer.used("BufferToDLPackManagedTensor"))
    element = dtypes.dtype(array.dtype)
    is_bfloat = element is dtypes.bf16
    if not is_bfloat and array.dtype.isbuiltin != 1:
        raise unimplemented(f"XLA type {element.name.upper()} has no DLPack equivalent")
    capsule = (array.view(np.uint16) if is_bfloat else array).__dlpack__()
    if is_bfloat:
        _tensor_of(capsule).code = _BFLOAT
    return capsule


def dlpack_managed_tensor_to_buffer(
    tensor: Any, device: Device | Client | None = None, stream: int | Client | None = None
) -> ArrayImpl:
    """The tensor in a DLPack capsule as a buffer.

    It shares the tensor's memory if that is compact and aligned to 16 bytes; otherwise it is a copy.

    Parameters
    ----------
    tensor : PyCapsule
        A capsule named "dltensor"; it can be used once.
    device : Device or Client, optional
        The device or, as in older programs, a client.
    stream : int or Client, optional
        Has no effect on CPUs.

    Returns
    -------
    ArrayImpl
        The buffer.

    Raises
    ------
    XlaRuntimeError
        The capsule was used, the tensor does not lie on the CPU, or HLO has no such element type.
    TypeError
        `tensor` is not a capsule.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> client = xc.make_cpu_client()
    >>> xc._xla.dlpack_managed_tensor_to_buffer(np.arange(3).__dlpack__(), client)
    <ArrayImpl int64[3] on CpuDevice(id=0)>
    """
    if type(tensor).__name__ != "PyCapsule":
        raise TypeError(f"dlpack_managed_tensor_to_buffer(): expected a capsule, got {type(tensor).__name__}")
    if isinstance(device, Client):
        device = device.local_devices()[0]
    found = _tensor_of(tensor)
    if found.device_type != _CPU:
        raise unimplemented(f"a DLPack tensor on a device of type {found.device_type}; only the CPU's (1) can be read")
    if device is None:
        raise invalid("DLPack tensor is on CPU, but no CPU backend was provided.")
    array = _consumed(tensor, found)
    if not compact(array):
        array = np.array(array, order="C")
    elif array.ctypes.data % _ALIGNMENT:
        array = array.copy(order="K")
    return ArrayImpl(array, device)


def _consumed(capsule: Any, tensor: _Tensor) -> np.ndarray[Any, Any]:
    """The tensor as an array, which keeps it alive; the capsule is used up unless this raises."""
    is_bfloat = (tensor.code, tensor.bits, tensor.lanes) == (_BFLOAT, 16, 1)
    described = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
    if is_bfloat:
        tensor.code = _UINT
    try:
        array = np.from_dlpack(_Holder(capsule))  # type: ignore[arg-type]
    except (BufferError, RuntimeError, ValueError, TypeError) as error:
        raise unimplemented(f"a DLPack tensor of type {described}: {error}") from None
    return array.view(dtypes.bf16.numpy) if is_bfloat else array


class _Holder:
    """An object from which NumPy reads a capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **options: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CPU, 0


class _Memory:
    """An array's memory without its flag that forbids writing, which unversioned DLPack cannot tell."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array  # keeps the memory alive
        self.__array_interface__ = {
            "data": (array.ctypes.data, False),
            "shape": array.shape,
            "strides": array.strides,
            "typestr": f"|V{array.itemsize}",
            "version": 3,
        }


def _writable(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(_Memory(array)).view(array.dtype)


def _tensor_of(capsule: Any) -> _Tensor:
    """The struct in a capsule that has not been used. XlaRuntimeError for any other."""
    api: Any = ctypes.pythonapi
    name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", api))
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", api))
    name = name_of(capsule)
    if name != _NAME:
        raise invalid(
            f'DLPack tensor must be a capsule with name "dltensor", got "{(name or b"").decode(errors="replace")}". '
            "Note that a DLPack tensor may be consumed at most once."
        )
    return _Tensor.from_address(pointer_of(capsule, _NAME))
