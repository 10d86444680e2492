"""Buffers that are filled piece by piece after they were made: PJRT_AsyncHostToDeviceTransferManager."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hlokit.interop.pjrt import client, layouts
from hlokit.interop.pjrt.memory import Kept
from tests.jax.pjrt.test_table import F32, Error, buffer, call, compiled, execute, host

PREFIX = "AsyncHostToDeviceTransferManager"


def managed(*shapes: tuple[int, ...]) -> int:
    """A transfer manager of buffers of f32."""
    kept, struct = Kept(), layouts.struct("ShapeSpec")
    array: Any = (struct * len(shapes))(
        *(struct(layouts.size("ShapeSpec"), 0, kept.words(s), len(s), F32) for s in shapes)
    )
    memory = client.devices()[0].memories[0].address
    return call(
        "Client_CreateBuffersForAsyncHostToDevice", client=0, shape_specs=ctypes.addressof(array),
        num_shape_specs=len(shapes), device_layouts=0, num_device_layouts=0, memory=memory,
    ).transfer_manager  # fmt: skip


def retrieved(manager: int, number: int = 0) -> int:
    return call(f"{PREFIX}_RetrieveBuffer", transfer_manager=manager, buffer_index=number).buffer_out


def fill(manager: int, data: np.ndarray[Any, Any], offset: int = 0, is_last: bool = True, number: int = 0) -> None:
    call(
        f"{PREFIX}_TransferData", transfer_manager=manager, buffer_index=number, data=data.ctypes.data, offset=offset,
        transfer_size=data.nbytes, is_last_transfer=is_last,
    )  # fmt: skip


def is_ready(handle: int) -> bool:
    event = call("Buffer_ReadyEvent", buffer=handle).event
    ready = call("Event_IsReady", event=event).is_ready
    call("Event_Destroy", event=event)
    return bool(ready)


def destroy(manager: int, *buffers: int) -> None:
    call(f"{PREFIX}_Destroy", transfer_manager=manager)
    for handle in buffers:
        call("Buffer_Destroy", buffer=handle)


@pytest.fixture(scope="module")
def program() -> Iterator[int]:
    handle = compiled()
    yield handle
    call("LoadedExecutable_Destroy", executable=handle)


def test_pieces_are_put_together() -> None:
    manager = managed((4,), (2, 3))
    assert call(f"{PREFIX}_BufferCount", transfer_manager=manager).buffer_count == 2
    assert call(f"{PREFIX}_BufferSize", transfer_manager=manager, buffer_index=1).buffer_size == 24
    assert call(f"{PREFIX}_Device", transfer_manager=manager).device_out == client.devices()[0].address
    first, second = retrieved(manager), retrieved(manager, 1)
    fill(manager, np.float32([3, 4]), 8, is_last=False)
    assert not is_ready(first)
    fill(manager, np.float32([1, 2]))
    assert is_ready(first) and not is_ready(second)
    fill(manager, np.arange(6, dtype=np.float32), number=1)
    assert host(first).tolist() == [1, 2, 3, 4] and host(second).tolist() == [0, 1, 2, 3, 4, 5]
    destroy(manager, first, second)


@pytest.mark.parametrize("donates", [True, False])
def test_a_program_waits_for_its_arguments(program: int, donates: bool) -> None:
    manager = managed((4,))
    coming, b = retrieved(manager), buffer(np.full(4, 10, np.float32))

    def later() -> None:
        time.sleep(0.3)
        fill(manager, np.float32([1, 2, 3, 4]))

    thread = threading.Thread(target=later)
    thread.start()
    total, twice = execute(program, [coming, b], kept=[] if donates else [0])
    thread.join()
    assert host(total).tolist() == [11, 12, 13, 14] and host(twice).tolist() == [2, 4, 6, 8]
    assert bool(call("Buffer_IsDeleted", buffer=coming).is_deleted) == donates
    destroy(manager, coming, b, total, twice)


def test_copies_and_the_host_wait(program: int) -> None:
    manager = managed((4,))
    coming, memory = retrieved(manager), client.devices()[0].memories[1].address
    copy = call("Buffer_CopyToMemory", buffer=coming, dst_memory=memory).dst_buffer
    assert not is_ready(copy)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda h=h: found.append(host(h).tolist())) for h in (coming, copy)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    assert not found
    fill(manager, np.float32([1, 2, 3, 4]))
    for thread in threads:
        thread.join()
    assert found == [[1, 2, 3, 4]] * 2 and is_ready(copy)
    destroy(manager, coming, copy)


@pytest.mark.parametrize("gives_up", [False, True])
def test_an_error_reaches_all_who_wait(program: int, gives_up: bool) -> None:
    manager, b = managed((4,)), buffer(np.float32([1, 2, 3, 4]))
    coming = retrieved(manager)
    event = call("Buffer_ReadyEvent", buffer=coming).event
    text = b"the other process is gone"
    if gives_up:
        call(f"{PREFIX}_Destroy", transfer_manager=manager)
        said, code = "the transfer was given up", "CANCELLED"
    else:
        kept = Kept()
        address, size = kept.text(text)
        call(
            f"{PREFIX}_SetBufferError", transfer_manager=manager, buffer_index=0,
            error_code=layouts.ERROR_CODES.index("UNAVAILABLE"), error_message=address, error_message_size=size,
        )  # fmt: skip
        said, code = text.decode(), "UNAVAILABLE"
    with pytest.raises(Error, match=f"{code}: {said}"):
        call("Event_Await", event=event)
    call("Event_Destroy", event=event)
    with pytest.raises(Error, match=f"INTERNAL: the data of the array did not arrive: {said}"):
        execute(program, [coming, b])
    with pytest.raises(Error, match=f"INTERNAL: the data of the array did not arrive: {said}"):
        host(coming)
    if gives_up:
        call("Buffer_Destroy", buffer=coming)
    else:
        destroy(manager, coming)
    call("Buffer_Destroy", buffer=b)


def test_what_does_not_fit_is_refused() -> None:
    manager = managed((4,))
    with pytest.raises(Error, match="INVALID_ARGUMENT: buffer 1 of a transfer of 1"):
        retrieved(manager, 1)
    with pytest.raises(Error, match="INVALID_ARGUMENT: buffer 1 of a transfer of 1"):
        fill(manager, np.float32([1]), number=1)
    with pytest.raises(Error, match="bytes 12 to 20 of 16 of buffer 0"):
        fill(manager, np.float32([1, 2]), 12)
    coming = retrieved(manager)
    with pytest.raises(Error, match="buffer 0 was retrieved before"):
        retrieved(manager)
    fill(manager, np.float32([1, 2, 3, 4]))
    with pytest.raises(Error, match="or after its last ones"):
        fill(manager, np.float32([1]))
    assert host(coming).tolist() == [1, 2, 3, 4]
    destroy(manager, coming)
    call(f"{PREFIX}_Destroy", transfer_manager=0)
