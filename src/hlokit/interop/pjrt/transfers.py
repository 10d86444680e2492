"""Transfers that Python does: strided and reordered memory, and the texts of errors."""

from __future__ import annotations

import ctypes
import math
from functools import cache
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.arrays import (
    acquired,
    buffer_shape,
    empty_storage,
    new_buffer,
    new_storage,
    numpy_type,
    storage_view,
)
from hlokit.interop.pjrt.buffers import BUFFER, DEVICE, MEMORY
from hlokit.interop.pjrt.client import write_words
from hlokit.interop.pjrt.incoming import SLOT, TRANSFERS
from hlokit.interop.pjrt.memory import FOREVER, read_word, read_words, view
from hlokit.interop.pjrt.native import native
from hlokit.interop.pjrt.table import function

_layout: Any = layouts.struct("MemoryLayout")
_shape_spec: Any = layouts.struct("ShapeSpec")
_TILED = 0
_ON_DELETE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


@function("Client_BufferFromHostBuffer")
def _from_host(a: Any) -> None:
    _only_row_major(a.device_layout, a.num_dims, "a buffer")
    dimensions, dtype = tuple(read_words(a.dims, a.num_dims)), numpy_type(a.type)
    strides = read_words(a.byte_strides, a.num_byte_strides) if a.num_byte_strides else None
    array = view(a.data, dimensions, dtype, strides)
    device, memory = _where(a)
    a.buffer = new_buffer(new_storage(array), dimensions, a.type, device, memory)
    a.done_with_host_buffer = native().ready


@function("Client_CreateViewOfDeviceBuffer")
def _view(a: Any) -> None:
    """A copy of an array in another order than row-major, which no buffer has."""
    dimensions, dtype = tuple(read_words(a.dims, a.num_dims)), numpy_type(a.element_type)
    strides, size = [0] * len(dimensions), dtype.itemsize
    for number in reversed(_order(a.layout, len(dimensions))):
        strides[number] = size
        size *= dimensions[number]
    storage = new_storage(view(a.device_buffer_ptr, dimensions, dtype, strides))
    a.buffer = new_buffer(storage, dimensions, a.element_type, *_where(a))
    if a.on_delete_callback:
        _ON_DELETE(a.on_delete_callback)(a.device_buffer_ptr, a.on_delete_callback_arg)


@function("Client_CreateUninitializedBuffer")
def _uninitialized(a: Any) -> None:
    dimensions, dtype = tuple(read_words(a.shape_dims, a.shape_num_dims)), numpy_type(a.shape_element_type)
    device, memory = _where(a)
    a.buffer = new_buffer(new_storage(np.zeros(dimensions, dtype)), dimensions, a.shape_element_type, device, memory)


def _where(a: Any) -> tuple[int, int]:
    """Addresses of the device and the memory that are asked for."""
    memory = a.memory or read_word(a.device + DEVICE.offset("memory"))
    return read_word(memory + MEMORY.offset("device")), memory


def _only_row_major(layout: int, rank: int, what: str) -> None:
    if layout and _order(layout, rank) != list(range(rank)):
        raise UnsupportedError(f"{what} in another order than row-major")


def _order(address: int, rank: int) -> list[int]:
    """A layout's dimensions, the slowest first."""
    layout = _layout.from_address(address)
    if layout.type != _TILED or layout.num_tiles or layout.minor_to_major_size != rank:
        raise UnsupportedError("layouts with tiles or strides")
    return read_words(layout.minor_to_major, rank)[::-1]


@function("Buffer_ToHostBuffer")
def _to_host(a: Any) -> None:
    dimensions, dtype = buffer_shape(a.src)
    order = _order(a.host_layout, len(dimensions)) if a.host_layout else list(range(len(dimensions)))
    storage = acquired(a.src)
    if not storage:
        raise ArgumentError("the array was deleted or donated")
    try:
        array = storage_view(storage, dimensions, dtype)
        if a.dst_size < array.nbytes:
            raise ArgumentError(f"{a.dst_size} bytes for an array of {array.nbytes}")
        view(a.dst, [dimensions[d] for d in order], dtype)[...] = array.transpose(order)
    finally:
        native().release(storage)
    a.event = native().ready


@function("Buffer_CopyRawToHost")
def _copy_raw(a: Any) -> None:
    size = read_word(a.buffer + BUFFER.offset("nbytes"))
    if not (a.offset <= size and a.transfer_size <= size - a.offset):
        raise ArgumentError(f"bytes {a.offset} to {a.offset + a.transfer_size} of {size}")
    if (storage := acquired(a.buffer)):
        native().release(storage)
    _deleted(a)


def _deleted(a: Any) -> None:
    raise ArgumentError("the array was deleted or donated")


for _name in (
    "Buffer_UnsafePointer", "Buffer_OpaqueDeviceMemoryDataPointer", "Buffer_IncreaseExternalReferenceCount",
    "Buffer_CopyToDevice", "Buffer_CopyToMemory",
):  # fmt: skip
    function(_name)(_deleted)


@function("Buffer_DecreaseExternalReferenceCount")
def _decrease(a: Any) -> None:
    raise ArgumentError("there is no reference from outside to give up")


@function("Buffer_GetMemoryLayout")
def _memory_layout(a: Any) -> None:
    rank = read_word(a.buffer + BUFFER.offset("rank"))
    a.layout_size, a.layout_extensions = layouts.size("MemoryLayout"), 0
    a.layout_tiled_size, a.layout_tiled_extensions = 56, 0
    a.layout_minor_to_major, a.layout_minor_to_major_size = _row_major(rank), rank
    a.layout_tile_dims = a.layout_tile_dim_sizes = a.layout_num_tiles = 0
    a.layout_type = _TILED


@cache
def _row_major(rank: int) -> int:
    return FOREVER.words(range(rank - 1, -1, -1))


# -- buffers whose data come later, piece by piece (incoming.py)


@function("Client_CreateBuffersForAsyncHostToDevice")
def _create_coming(a: Any) -> None:
    specs = [_shape_spec.from_address(a.shape_specs + ctypes.sizeof(_shape_spec) * k) for k in range(a.num_shape_specs)]
    for layout, spec in zip(read_words(a.device_layouts, a.num_device_layouts), specs):
        _only_row_major(layout, spec.num_dims, "a buffer")
    device = read_word(a.memory + MEMORY.offset("device"))
    found = [(tuple(read_words(spec.dims, spec.num_dims)), spec.element_type) for spec in specs]
    sizes = [math.prod(dimensions) * numpy_type(type).itemsize for dimensions, type in found]
    a.transfer_manager = manager = native().make_transfers(device, len(specs))
    for number, ((dimensions, type), size) in enumerate(zip(found, sizes)):
        storage, event = empty_storage(size), native().make_coming()
        native().hold(storage)
        buffer = new_buffer(storage, dimensions, type, device, a.memory)
        write_words(buffer + BUFFER.offset("coming"), [event])
        write_words(_slot(manager, number), [storage, event, buffer, size])


def _slot(manager: int, number: int) -> int:
    """The address of a buffer's SLOT."""
    count = read_word(manager + TRANSFERS.offset("count"))
    if not 0 <= number < count:
        raise ArgumentError(f"buffer {number} of a transfer of {count}")
    return read_word(manager + TRANSFERS.offset("slots")) + number * SLOT.bytes


@function("AsyncHostToDeviceTransferManager_RetrieveBuffer")
def _retrieve(a: Any) -> None:
    place = _slot(a.transfer_manager, a.buffer_index) + SLOT.offset("buffer")
    a.buffer_out = read_word(place)
    if not a.buffer_out:
        raise ArgumentError(f"buffer {a.buffer_index} was retrieved before")
    write_words(place, [0])


@function("AsyncHostToDeviceTransferManager_TransferData")
def _refused_data(a: Any) -> None:
    size = read_word(_slot(a.transfer_manager, a.buffer_index) + SLOT.offset("nbytes"))
    end = a.offset + a.transfer_size
    raise ArgumentError(f"bytes {a.offset} to {end} of {size} of buffer {a.buffer_index}, or after its last ones")


@function("AsyncHostToDeviceTransferManager_SetBufferError")
def _refused_error(a: Any) -> None:
    _slot(a.transfer_manager, a.buffer_index)


@function("AsyncHostToDeviceTransferManager_Device")
def _transfer_device(a: Any) -> None:
    a.device_out = read_word(a.transfer_manager + TRANSFERS.offset("device"))


@function("AsyncHostToDeviceTransferManager_BufferCount")
def _transfer_count(a: Any) -> None:
    a.buffer_count = read_word(a.transfer_manager + TRANSFERS.offset("count"))


@function("AsyncHostToDeviceTransferManager_BufferSize")
def _transfer_size(a: Any) -> None:
    a.buffer_size = read_word(_slot(a.transfer_manager, a.buffer_index) + SLOT.offset("nbytes"))
