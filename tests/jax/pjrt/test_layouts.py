"""The structs of PJRT's C interface lie as in the header."""

import pytest

from hlokit.interop.pjrt import layouts

SIZES = {
    "Client_Compile": 56,
    "Program": 48,
    "LoadedExecutable_Execute": 80,
    "Client_BufferFromHostBuffer": 120,
    "Buffer_ToHostBuffer": 56,
    "NamedValue": 56,
    "Client_Create": 88,
    "Executable_GetCompiledMemoryStats": 144,
    "ExecuteOptions": 144,
    "LayoutsExtension": 80,
    "ErrorTable": 56,
    "MemoryTable": 40,
    "Version": 24,
    "Client_CreateBuffersForAsyncHostToDevice": 72,
    "AsyncHostToDeviceTransferManager_TransferData": 72,
    "AsyncHostToDeviceTransferManager_SetBufferError": 48,
    "ShapeSpec": 36,
}
PLACES = {
    "Client_Compile": "client 16 program 24 compile_options 32 compile_options_size 40 executable 48",
    "Program": "code 16 code_size 24 format 32 format_size 40",
    "LoadedExecutable_Execute": "executable 16 options 24 argument_lists 32 num_devices 40 num_args 48 output_lists 56 "
    "device_complete_events 64 execute_device 72",
    "ExecuteOptions": "launch_id 48 non_donatable_input_indices 56 num_non_donatable_input_indices 64 context 72",
    "Client_BufferFromHostBuffer": "data 24 type 32 dims 40 num_dims 48 byte_strides 56 num_byte_strides 64 "
    "host_buffer_semantics 72 device 80 memory 88 device_layout 96 done_with_host_buffer 104 buffer 112",
    "Buffer_ToHostBuffer": "src 16 host_layout 24 dst 32 dst_size 40 event 48",
    "NamedValue": "name 16 name_size 24 type 32 value 40 value_size 48",
    "MemoryLayout": "minor_to_major 32 minor_to_major_size 40 type 72",
    "Client_LookupDevice": "id 24 device 32",
    "Client_CreateBuffersForAsyncHostToDevice": "shape_specs 24 num_shape_specs 32 device_layouts 40 "
    "num_device_layouts 48 memory 56 transfer_manager 64",
    "AsyncHostToDeviceTransferManager_TransferData": "transfer_manager 16 buffer_index 24 data 32 offset 40 "
    "transfer_size 48 is_last_transfer 56 done_with_h2d_transfer 64",
    "AsyncHostToDeviceTransferManager_RetrieveBuffer": "transfer_manager 16 buffer_index 24 buffer_out 32",
    "ShapeSpec": "dims 16 num_dims 24 element_type 32",
    "Error_GetCode": "error 16 code 24",
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    assert layouts.size(name) == SIZES[name]


@pytest.mark.parametrize("name", PLACES)
def test_offsets(name: str) -> None:
    words = PLACES[name].split()
    for field, offset in zip(words[::2], words[1::2]):
        assert layouts.offset(name, field) == int(offset), field


def test_the_table() -> None:
    assert len(layouts.FUNCTIONS) == len(set(layouts.FUNCTIONS)) == 138
    assert layouts.API_SIZE == 1144
    assert layouts.api_offset("Error_Destroy") == 40
    assert layouts.api_offset("TopologyDescription_GetMemorySpaceKindIds") == 1136


def test_rows_name_functions() -> None:
    """A row that is no struct of its own is the arguments of a function of the table."""
    structs = "Extension Version NamedValue Program ExecuteOptions MemoryLayout ShapeSpec ErrorTable MemoryTable LogicalIds"
    for name in layouts.known():
        assert name in layouts.FUNCTIONS or name in structs.split() or name == "LayoutsExtension"
        assert layouts.size(name) % 4 in (0, 1)


def test_buffer_types_are_hlos() -> None:
    from hlokit.types.dtype import DTYPES

    assert {t for t in layouts.BUFFER_TYPES if t != "invalid"} <= set(DTYPES)
    assert layouts.BUFFER_TYPES[11] == "f32" and layouts.BUFFER_TYPES[21] == "s4" and layouts.BUFFER_TYPES[31] == "u1"
