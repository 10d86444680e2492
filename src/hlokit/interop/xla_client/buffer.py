"""ArrayImpl: an array on a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.interop.xla_client.arrays import numpy_array
from hlokit.interop.xla_client.errors import invalid
from hlokit.interop.xla_client.shapes import Shape
from hlokit.interop.xla_client.sharding import SingleDeviceSharding
from hlokit.interop.xla_client.traceback import Traceback
from hlokit.types import dtype as dtypes
from hlokit.types import shape as shapes
from hlokit.types.layout import Layout

if TYPE_CHECKING:
    from hlokit.interop.xla_client.client import Client, Device


class ArrayImpl:
    """The value of an argument or result. `np.asarray(buffer)` is a read-only view of it.

    Besides jaxlib's methods it has the attributes that JAX adds (shape, dtype, ...) and the names of older releases
    (to_py, xla_shape, device, ...). The array's strides are its layout.

    Parameters
    ----------
    value : array
        The elements.
    device : Device
        The device that it lies on.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> buffer = xc.make_cpu_client().buffer_from_pyval(np.float32([1, 2]))
    >>> buffer, np.asarray(buffer)
    (<ArrayImpl float32[2] on CpuDevice(id=0)>, array([1., 2.], dtype=float32))
    """

    def __init__(self, value: np.ndarray[Any, Any], device: Device) -> None:
        self._array: np.ndarray[Any, Any] | None = value.view()
        self._array.flags.writeable = False
        self._shape, self._dtype = value.shape, value.dtype
        self._layout = Layout(_minor_to_major(value))
        self._sharding = SingleDeviceSharding(device)
        self._traceback = Traceback.get_traceback()
        device.client.made(self)

    @property
    def value(self) -> np.ndarray[Any, Any]:
        """The elements. Raises XlaRuntimeError after `delete`."""
        return self.used("FullyReplicatedShard")

    def used(self, function: str) -> np.ndarray[Any, Any]:
        """The elements, on behalf of the function whose name an error shows.

        Parameters
        ----------
        function : str
            The name in the message of the error.

        Returns
        -------
        array
            The elements.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        if self._array is None:
            raise invalid(f"{function}() called on deleted or donated buffer")
        return self._array

    @property
    def traceback(self) -> Traceback | None:
        """The Python call stack when the buffer was created; None if tracebacks were off."""
        return self._traceback

    @property
    def sharding(self) -> SingleDeviceSharding:
        """The sharding: one device."""
        return self._sharding

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.value, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.value.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.value.__dlpack_device__()  # type: ignore[return-value]

    def to_py(self) -> np.ndarray[Any, Any]:
        """The elements, under the name of older releases.

        Returns
        -------
        array
            A read-only view.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        return self.value

    def xla_shape(self) -> Shape:
        """The shape with its layout.

        Returns
        -------
        Shape
            Element type, dimensions and the order of the dimensions in memory.
        """
        return Shape.of(shapes.Shape.array(dtypes.dtype(self._dtype), self._shape, layout=self._layout))

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The rank."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return int(np.prod(self._shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """The bytes that the elements take."""
        return self.size * self._dtype.itemsize

    def __len__(self) -> int:
        return len(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __repr__(self) -> str:
        return f"<ArrayImpl {self._dtype}{list(self._shape)} on {self.device()!r}>"

    # -- where it is, and whether it still is

    def device(self) -> Device:
        """The device that the buffer lies on.

        Returns
        -------
        Device
            A device of the buffer's client.
        """
        return self._sharding.device

    def devices(self) -> set[Device]:
        """The devices that the buffer lies on.

        Returns
        -------
        set of Device
            A set of one.
        """
        return {self.device()}

    @property
    def client(self) -> Client:
        """The client of the buffer's device."""
        return self.device().client

    def platform(self) -> str:
        """The name of the platform.

        Returns
        -------
        str
            "cpu".
        """
        return self.device().platform

    def delete(self) -> None:
        """Releases the elements; the buffer cannot be used afterwards."""
        self._array = None

    def is_deleted(self) -> bool:
        """Whether `delete` was called or the buffer was donated.

        Returns
        -------
        bool
            True if its elements are gone.
        """
        return self._array is None

    def is_ready(self) -> bool:
        """Whether the elements are computed. Executions return when they are.

        Returns
        -------
        bool
            Always True.
        """
        return True

    def block_until_ready(self) -> ArrayImpl:
        """Waits until the elements are computed, which they are as soon as a buffer exists.

        Returns
        -------
        ArrayImpl
            The buffer itself.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        self.used("BlockHostUntilReady")
        return self

    def copy_to_host_async(self) -> None:
        """Does nothing, because buffers lie in the host's memory.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        self.used("CopyToHostAsync")

    _copy_single_device_array_to_host_async = copy_to_host_async

    def _single_device_array_to_np_array(self) -> np.ndarray[Any, Any]:
        return self.value

    def clone(self) -> ArrayImpl:
        """Another buffer with the same elements and memory.

        Returns
        -------
        ArrayImpl
            It remains usable when this one is deleted.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        return ArrayImpl(self.used("Clone"), self.device())

    def copy_to_device(self, device: Device) -> ArrayImpl:
        """The value as a buffer on a device. Devices share the host's memory, so nothing is copied.

        Parameters
        ----------
        device : Device
            The device of the new buffer.

        Returns
        -------
        ArrayImpl
            The buffer.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        return ArrayImpl(self.value, device)

    def on_device_size_in_bytes(self) -> int:
        """The bytes that the elements take.

        Returns
        -------
        int
            The same as `nbytes`.
        """
        return self.nbytes

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element, valid while the buffer lives.

        Returns
        -------
        int
            The address.

        Raises
        ------
        XlaRuntimeError
            The buffer was deleted or donated.
        """
        return self.used("UnsafeBufferPointer").ctypes.data


def host_array(value: Any) -> np.ndarray[Any, Any]:
    """A Python number, NumPy scalar or array, or a buffer, as an array. XlaRuntimeError for anything else."""
    if isinstance(value, ArrayImpl):
        return value.value
    if not isinstance(value, (bool, int, float, complex, np.generic, np.ndarray)) and not hasattr(value, "__array__"):
        raise invalid(f"expected a NumPy array or scalar, a Python number or a buffer, got {type(value)}")
    return numpy_array(value)


def compact(array: np.ndarray[Any, Any]) -> bool:
    """Whether the elements fill their memory, in some order of the dimensions."""
    return array.transpose(_minor_to_major(array)[::-1]).flags.c_contiguous


def laid_out(array: np.ndarray[Any, Any], layout: Layout) -> np.ndarray[Any, Any]:
    """The array, or a copy whose memory has this order of dimensions."""
    order = layout.minor_to_major[::-1]
    return np.asarray(array.transpose(order), order="C").transpose(np.argsort(order))


def _minor_to_major(array: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """The dimensions by their strides, the smallest first."""
    dimensions = range(array.ndim)
    if array.flags.c_contiguous:
        return tuple(reversed(dimensions))
    return tuple(sorted(dimensions, key=lambda d: (abs(array.strides[d]), -d)))
