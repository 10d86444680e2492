"""The table of functions called as C++ calls it, without JAX: what JAX never gets wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hlokit.cpu.jit.objects import Library, compile_object
from hlokit.cpu.target import host as machine
from hlokit.interop.pjrt import client, executables, layouts, loaded, optimized, transfers  # noqa: F401
from hlokit.interop.pjrt.memory import Kept, read_bytes, read_word
from hlokit.interop.pjrt.options import assignment_proto, parse, varint
from hlokit.interop.pjrt.table import api

TEXT = b"""
HloModule add_and_double, input_output_alias={ {1}: (0, {}, may-alias) }

ENTRY main {
  a = f32[4] parameter(0)
  b = f32[4] parameter(1)
  sum = f32[4] add(a, b)
  twice = f32[4] add(a, a)
  ROOT both = (f32[4], f32[4]) tuple(sum, twice)
}
"""
F32 = layouts.BUFFER_TYPES.index("f32")


class Error(Exception):
    pass


def call(name: str, **fields: Any) -> Any:
    """The filled arguments. What is not given is garbage, as on a C stack. Raises Error with code and text."""
    struct: Any = layouts.struct(name)
    arguments = struct.from_buffer(bytearray(b"\xa5" * ctypes.sizeof(struct)))
    for field, value in {"size": layouts.size(name), "extensions": 0, **fields}.items():
        setattr(arguments, field, value)
    function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(read_word(api() + layouts.api_offset(name)))
    error = function(ctypes.addressof(arguments))
    if error:
        message = struct_call("Error_Message", error)
        code = struct_call("Error_GetCode", error).code
        text = read_bytes(message.message, message.message_size).decode()
        struct_call("Error_Destroy", error)
        raise Error(f"{layouts.ERROR_CODES[code]}: {text}")
    return arguments


def struct_call(name: str, error: int) -> Any:
    arguments: Any = layouts.struct(name)(size=layouts.size(name), error=error)
    ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(read_word(api() + layouts.api_offset(name)))(
        ctypes.addressof(arguments)
    )
    return arguments


def compiled(text: bytes = TEXT, format: bytes = b"mlir", options: bytes = b"") -> int:
    kept = Kept()
    (code, size), (name, length) = kept.text(text), kept.text(format)
    program: Any = layouts.struct("Program")(size=48, code=code, code_size=size, format=name, format_size=length)
    at, count = kept.text(options)
    made = call(
        "Client_Compile", client=0, program=ctypes.addressof(program), compile_options=at, compile_options_size=count
    )
    return made.executable


def buffer(array: np.ndarray[Any, Any], type: int = F32, **fields: Any) -> int:
    array = np.ascontiguousarray(array)
    device = client.devices()[0]
    dims = Kept()
    return call(
        "Client_BufferFromHostBuffer", client=0, data=array.ctypes.data, type=type, dims=dims.words(array.shape),
        num_dims=array.ndim, byte_strides=0, num_byte_strides=0, host_buffer_semantics=0, device=device.address,
        memory=0, device_layout=0, **fields,
    ).buffer  # fmt: skip


def host(handle: int) -> np.ndarray[Any, Any]:
    size = call("Buffer_ToHostBuffer", src=handle, host_layout=0, dst=0).dst_size
    array = np.empty(size // 4, np.float32)
    call("Buffer_ToHostBuffer", src=handle, host_layout=0, dst=array.ctypes.data, dst_size=size)
    return array


def execute(program: int, buffers: list[int], kept: list[int] = [], devices: int = 1) -> list[int]:  # noqa: B006
    memory = Kept()
    options: Any = layouts.struct("ExecuteOptions")(
        size=144, non_donatable_input_indices=memory.words(kept), num_non_donatable_input_indices=len(kept)
    )
    results = (ctypes.c_uint64 * 2)(1, 1)
    lists = memory.words([memory.words(buffers)] * devices)
    outputs = memory.words([ctypes.addressof(results)] * devices)
    call(
        "LoadedExecutable_Execute", executable=program, options=ctypes.addressof(options), argument_lists=lists,
        num_devices=devices, num_args=len(buffers), output_lists=outputs, device_complete_events=0, execute_device=0,
    )  # fmt: skip
    return list(results)


@pytest.fixture(scope="module")
def program() -> Iterator[int]:
    handle = compiled()
    yield handle
    call("LoadedExecutable_Destroy", executable=handle)


def test_run(program: int) -> None:
    a, b = buffer(np.float32([1, 2, 3, 4])), buffer(np.full(4, 10, np.float32))
    total, twice = execute(program, [a, b])
    assert host(total).tolist() == [11, 12, 13, 14] and host(twice).tolist() == [2, 4, 6, 8]
    assert call("Buffer_IsDeleted", buffer=a).is_deleted and not call("Buffer_IsDeleted", buffer=b).is_deleted
    for handle in (a, b, total, twice):
        call("Buffer_Destroy", buffer=handle)


INTERRUPTED = """
declare i32 @raise(i32)

; a signal comes, then the table's function is called: Python runs the handler before the function's first line
define void @interrupted(ptr %function, ptr %arguments, ptr %result) {
  call i32 @raise(i32 2)
  %error = call ptr %function(ptr %arguments)
  store ptr %error, ptr %result
  ret void
}
"""


@pytest.fixture(scope="module")
def interrupted() -> Iterator[Any]:
    """Calls a function of the table in the moment of an interrupt, which is raised; gives the arguments and the error."""
    library = Library([compile_object(INTERRUPTED, machine())])
    types = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    run = ctypes.CFUNCTYPE(None, *types)(library.address("interrupted"))

    def call(name: str) -> tuple[Any, int]:
        struct: Any = layouts.struct(name)
        arguments, error = struct(size=layouts.size(name)), ctypes.c_uint64(1)
        with pytest.raises(KeyboardInterrupt):
            run(read_word(api() + layouts.api_offset(name)), ctypes.addressof(arguments), ctypes.addressof(error))
        return arguments, error.value

    yield call


def test_what_cannot_fail_is_done_in_spite_of_an_interrupt(interrupted: Any) -> None:
    """XLA aborts on an error there."""
    for _ in range(20):
        arguments, error = interrupted("Client_PlatformName")
        assert error == 0
        assert read_bytes(arguments.platform_name, arguments.platform_name_size) == b"hlokit"


def test_an_interrupt_cancels_what_takes_long(interrupted: Any) -> None:
    for name in layouts.FALLIBLE:
        if name == "LoadedExecutable_Execute":  # in machine code it looks at its program first
            continue
        _, error = interrupted(name)
        assert layouts.ERROR_CODES[struct_call("Error_GetCode", error).code] == "CANCELLED"
        message = struct_call("Error_Message", error)
        assert read_bytes(message.message, message.message_size) == b"KeyboardInterrupt"
        struct_call("Error_Destroy", error)


def test_what_is_not_to_be_donated_is_kept(program: int) -> None:
    a, b = buffer(np.ones(4, np.float32)), buffer(np.ones(4, np.float32))
    execute(program, [a, b], kept=[0, 7, -1])
    assert host(a).tolist() == [1, 1, 1, 1]


def test_wrong_arguments(program: int) -> None:
    a, b = buffer(np.ones(4, np.float32)), buffer(np.ones(4, np.float32))
    small, other = buffer(np.ones(3, np.float32)), buffer(np.ones(4, np.int32), layouts.BUFFER_TYPES.index("s32"))
    for buffers, text in (
        ([a], "takes 2 arguments, got 1"),
        ([a, b, b], "takes 2 arguments, got 3"),
        ([a, small], "f32[3]"),
        ([small, b], "f32[3]"),
        ([a, other], "s32"),
        ([a, a], "is also passed as another argument"),
    ):
        with pytest.raises(Error, match="INVALID_ARGUMENT") as error:
            execute(program, buffers)
        assert text in str(error.value)
        assert host(a).tolist() == [1, 1, 1, 1], "an error donates nothing"
    with pytest.raises(Error, match="arguments for 2 devices"):
        execute(program, [a, b], devices=2)
    call("Buffer_Delete", buffer=b)
    with pytest.raises(Error, match="deleted or donated"):
        execute(program, [a, b])
    for name in ("Buffer_UnsafePointer", "Buffer_IncreaseExternalReferenceCount"):
        with pytest.raises(Error, match="deleted or donated"):
            call(name, buffer=b)


def test_references_from_outside_outlive_the_buffer(program: int) -> None:
    a = buffer(np.arange(4, dtype=np.float32))
    call("Buffer_IncreaseExternalReferenceCount", buffer=a)
    address = call("Buffer_OpaqueDeviceMemoryDataPointer", buffer=a).device_memory_ptr
    execute(program, [a, buffer(np.ones(4, np.float32))])
    call("Buffer_Destroy", buffer=a)
    assert (ctypes.c_float * 4).from_address(address)[:] == [0, 1, 2, 3]
    call("Buffer_DecreaseExternalReferenceCount", buffer=a)
    b = buffer(np.ones(4, np.float32))
    with pytest.raises(Error, match="no reference"):
        call("Buffer_DecreaseExternalReferenceCount", buffer=b)


def test_a_deleted_program(program: int) -> None:
    handle = compiled()
    assert not call("LoadedExecutable_IsDeleted", executable=handle).is_deleted
    call("LoadedExecutable_Delete", executable=handle)
    assert call("LoadedExecutable_IsDeleted", executable=handle).is_deleted
    with pytest.raises(Error, match="deleted"):
        execute(handle, [buffer(np.ones(4, np.float32))] * 2)


def test_handles_are_counted() -> None:
    handle = compiled()
    again = call("LoadedExecutable_GetExecutable", loaded_executable=handle).executable
    call("LoadedExecutable_Destroy", executable=handle)
    loaded.bury()
    assert call("Executable_NumOutputs", executable=again).num_outputs == 2
    call("Executable_Destroy", executable=again)
    loaded.bury()
    assert handle not in loaded._loaded
    call("Executable_Destroy", executable=0)


def test_programs_that_are_none() -> None:
    for text, format, message in (
        (b"module {", b"mlir", "INVALID_ARGUMENT"),
        (b"ML\xefR", b"mlir", "INVALID_ARGUMENT"),
        (b"ML\xefR" + bytes(100), b"mlir", "INVALID_ARGUMENT"),
        (b"\xff\xfe", b"mlir", "INVALID_ARGUMENT"),
        (TEXT, b"hlo", "UNIMPLEMENTED"),
    ):
        with pytest.raises(Error, match=message):
            compiled(text, format)


def test_options_that_are_none() -> None:
    good = b"\x1a\x04\x20\x01\x28\x01"
    assert parse(good, 1).count == 1
    for size in range(1, len(good)):
        with pytest.raises(Error, match="no protobuf message"):
            compiled(options=good[:size])
    with pytest.raises(Error, match="there are 1"):
        compiled(options=b"\x1a\x02\x20\x02")
    with pytest.raises(Error, match="no protobuf message"):
        compiled(options=b"\xff" * 30)


def test_device_assignments_round_trip() -> None:
    column = [b"\x0a" + varint(2) + bytes(pair) for pair in ((3, 1), (0, 2))]
    given = b"\x08\x02\x10\x02" + b"".join(b"\x1a" + varint(len(c)) + c for c in column)
    options = b"\x20\x02\x28\x02\x4a" + varint(len(given)) + given
    found = parse(b"\x1a" + varint(len(options)) + options, 4)
    assert found.assignment == (3, 0, 1, 2) and assignment_proto(found) == given


def test_serialized_executables_that_are_none() -> None:
    handle = compiled()
    found = call("Executable_Serialize", executable=handle)
    data = read_bytes(found.serialized_bytes, found.serialized_bytes_size)
    kept = Kept()

    def load(data: bytes) -> int:
        at, size = kept.text(data)
        return call(
            "Executable_DeserializeAndLoad", client=0, serialized_executable=at, serialized_executable_size=size,
            overridden_serialized_compile_options=0, overridden_serialized_compile_options_size=0,
        ).loaded_executable  # fmt: skip

    a, b = buffer(np.ones(4, np.float32)), buffer(np.ones(4, np.float32))
    assert host(execute(load(data), [a, b])[0]).tolist() == [2, 2, 2, 2]
    for bad in (b"", data[:20], data[:-1], data + b" ", b"hlokit 2" + data[8:], data.replace(b'"code"', b'"cods"')):
        with pytest.raises(Error, match="no executable of hlokit's"):
            load(bad)


@pytest.mark.parametrize("type", [0, 23, 34, 1000, -1])
def test_types_that_are_none(type: int) -> None:
    with pytest.raises(Error, match="INVALID_ARGUMENT: a buffer of"):
        buffer(np.ones(4, np.float32), type)


def test_events() -> None:
    seen: list[tuple[int, int]] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64)
    def noticed(error: int, argument: int) -> None:
        seen.append((error and struct_call("Error_GetCode", error).code, argument))
        struct_call("Error_Destroy", error)

    at = ctypes.cast(noticed, ctypes.c_void_p).value
    for code in (0, 13):
        event = call("Event_Create").event
        assert not call("Event_IsReady", event=event).is_ready
        call("Event_OnReady", event=event, callback=at, user_arg=7)
        call("Event_OnReady", event=event, callback=at, user_arg=8)
        kept = Kept()
        text, size = kept.text("by design")
        call("Event_Set", event=event, error_code=code, error_message=text, error_message_size=size)
        assert call("Event_IsReady", event=event).is_ready
        call("Event_OnReady", event=event, callback=at, user_arg=9)
        assert sorted(seen) == [(code, 7), (code, 8), (code, 9)]
        seen.clear()
        if code:
            with pytest.raises(Error, match="INTERNAL: by design"):
                call("Event_Await", event=event)
        call("Event_Destroy", event=event)
    call("Event_Destroy", event=0)


def test_memory_that_is_lent_is_given_back() -> None:
    array = np.zeros(1 << 16, np.uint8)
    start = -array.ctypes.data % 64
    lent = array[start : start + (1 << 15)].view(np.float32)
    dims, device = Kept(), client.devices()[0]
    made = call(
        "Client_BufferFromHostBuffer", client=0, data=lent.ctypes.data, type=F32, dims=dims.words(lent.shape),
        num_dims=1, byte_strides=0, num_byte_strides=0, host_buffer_semantics=2, device=device.address, memory=0,
        device_layout=0,
    )  # fmt: skip
    assert call("Buffer_UnsafePointer", buffer=made.buffer).buffer_pointer == lent.ctypes.data
    assert not call("Event_IsReady", event=made.done_with_host_buffer).is_ready
    copy = call("Buffer_CopyToMemory", buffer=made.buffer, dst_memory=device.memories[1].address).dst_buffer
    call("Buffer_Destroy", buffer=made.buffer)
    assert not call("Event_IsReady", event=made.done_with_host_buffer).is_ready
    call("Buffer_Destroy", buffer=copy)
    assert call("Event_IsReady", event=made.done_with_host_buffer).is_ready
    call("Event_Destroy", event=made.done_with_host_buffer)


def test_large_memory_is_used_again() -> None:
    a = buffer(np.ones(1 << 19, np.float32))
    address = call("Buffer_UnsafePointer", buffer=a).buffer_pointer
    call("Buffer_Destroy", buffer=a)
    b = buffer(np.ones(1 << 19, np.float32))
    assert call("Buffer_UnsafePointer", buffer=b).buffer_pointer == address
    call("Buffer_Destroy", buffer=b)


def test_layouts_of_host_memory() -> None:
    a = buffer(np.arange(6, dtype=np.float32).reshape(2, 3))
    kept, array = Kept(), np.empty(6, np.float32)

    def read(order: list[int], tiles: int = 0, size: int = 24) -> list[float]:
        layout: Any = layouts.struct("MemoryLayout")(
            size=80, minor_to_major=kept.words(order), minor_to_major_size=len(order), num_tiles=tiles, type=0
        )
        at = ctypes.addressof(layout)
        call("Buffer_ToHostBuffer", src=a, host_layout=at, dst=array.ctypes.data, dst_size=size)
        return array.tolist()

    assert read([1, 0]) == [0, 1, 2, 3, 4, 5] and read([0, 1]) == [0, 3, 1, 4, 2, 5]
    with pytest.raises(Error, match="UNIMPLEMENTED"):
        read([1, 0], tiles=1)
    with pytest.raises(Error, match="8 bytes for an array of 24"):
        read([1, 0], size=8)
    found = call("Buffer_GetMemoryLayout", buffer=a)
    assert [read_word(found.layout_minor_to_major + 8 * i) for i in range(2)] == [1, 0]


def test_what_is_not_there_says_so() -> None:
    for name in ("Client_CreateAliasBuffer", "CopyToDeviceStream_AddChunk", "Device_PoisonExecution"):
        with pytest.raises(Error, match=f"UNIMPLEMENTED: PJRT_{name} is not there"):
            function = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)(read_word(api() + layouts.api_offset(name)))
            error = function(0)
            message = struct_call("Error_Message", error)
            text = read_bytes(message.message, message.message_size).decode()
            raise Error(f"{layouts.ERROR_CODES[struct_call('Error_GetCode', error).code]}: {text}")


def test_no_function_is_missing() -> None:
    assert all(read_word(api() + layouts.api_offset(name)) for name in layouts.FUNCTIONS)
