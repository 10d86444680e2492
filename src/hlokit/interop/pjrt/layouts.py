"""The structs of PJRT's C interface, as data: xla/pjrt/c/pjrt_c_api.h, version 0.112.

A row names a struct and its fields in order. A field is a pointer unless it says otherwise: `:n` a size_t or an int64,
`:i` an int or an enum, `:b` a bool, `:f` a float. Arguments begin with their size and the extensions. The tests compare
offsets with what is known of the header.
"""

from __future__ import annotations

import ctypes
from functools import cache

from hlokit.cpu.llvm import I8, I32, I64, POINTER, Record, type_of

MAJOR, MINOR = 0, 112


def _words(text: str) -> list[str]:
    return text.split()


FUNCTIONS = _words("""
Error_Destroy Error_Message Error_GetCode Plugin_Initialize Plugin_Attributes Event_Destroy Event_IsReady Event_Error
Event_Await Event_OnReady Client_Create Client_Destroy Client_PlatformName Client_ProcessIndex Client_PlatformVersion
Client_Devices Client_AddressableDevices Client_LookupDevice Client_LookupAddressableDevice Client_AddressableMemories
Client_Compile Client_DefaultDeviceAssignment Client_BufferFromHostBuffer DeviceDescription_Id
DeviceDescription_ProcessIndex DeviceDescription_Attributes DeviceDescription_Kind DeviceDescription_DebugString
DeviceDescription_ToString Device_GetDescription Device_IsAddressable Device_LocalHardwareId Device_AddressableMemories
Device_DefaultMemory Device_MemoryStats Memory_Id Memory_Kind Memory_DebugString Memory_ToString
Memory_AddressableByDevices Executable_Destroy Executable_Name Executable_NumReplicas Executable_NumPartitions
Executable_NumOutputs Executable_SizeOfGeneratedCodeInBytes Executable_GetCostAnalysis Executable_OutputMemoryKinds
Executable_OptimizedProgram Executable_Serialize LoadedExecutable_Destroy LoadedExecutable_GetExecutable
LoadedExecutable_AddressableDevices LoadedExecutable_Delete LoadedExecutable_IsDeleted LoadedExecutable_Execute
Executable_DeserializeAndLoad LoadedExecutable_Fingerprint Buffer_Destroy Buffer_ElementType Buffer_Dimensions
Buffer_UnpaddedDimensions Buffer_DynamicDimensionIndices Buffer_GetMemoryLayout Buffer_OnDeviceSizeInBytes Buffer_Device
Buffer_Memory Buffer_Delete Buffer_IsDeleted Buffer_CopyToDevice Buffer_ToHostBuffer Buffer_IsOnCpu Buffer_ReadyEvent
Buffer_UnsafePointer Buffer_IncreaseExternalReferenceCount Buffer_DecreaseExternalReferenceCount
Buffer_OpaqueDeviceMemoryDataPointer CopyToDeviceStream_Destroy CopyToDeviceStream_AddChunk
CopyToDeviceStream_TotalBytes CopyToDeviceStream_GranuleSize CopyToDeviceStream_CurrentBytes TopologyDescription_Create
TopologyDescription_Destroy TopologyDescription_PlatformName TopologyDescription_PlatformVersion
TopologyDescription_GetDeviceDescriptions TopologyDescription_Serialize TopologyDescription_Attributes Compile
Executable_OutputElementTypes Executable_OutputDimensions Buffer_CopyToMemory Client_CreateViewOfDeviceBuffer
Executable_Fingerprint Client_TopologyDescription Executable_GetCompiledMemoryStats Memory_Kind_Id ExecuteContext_Create
ExecuteContext_Destroy Buffer_CopyRawToHost AsyncHostToDeviceTransferManager_Destroy
AsyncHostToDeviceTransferManager_TransferData Client_CreateBuffersForAsyncHostToDevice
AsyncHostToDeviceTransferManager_RetrieveBuffer AsyncHostToDeviceTransferManager_Device
AsyncHostToDeviceTransferManager_BufferCount AsyncHostToDeviceTransferManager_BufferSize
AsyncHostToDeviceTransferManager_SetBufferError AsyncHostToDeviceTransferManager_AddMetadata Client_DmaMap
Client_DmaUnmap Client_CreateUninitializedBuffer Client_UpdateGlobalProcessInfo TopologyDescription_Deserialize
Client_CreateAliasBuffer Client_FulfillAliasBuffer LoadedExecutable_GetDeviceAssignment Client_CreateErrorBuffer
AsyncHostToDeviceTransferManager_TransferLiteral Buffer_CopyRawToHostFuture Device_PoisonExecution
Device_CreateAsyncTrackingEvent AsyncTrackingEvent_Destroy Executable_GetCompileOptions
Buffer_DonateWithControlDependency Event_Create Event_Set Device_GetAttributes Client_Load
LoadedExecutable_AddressableDeviceLogicalIds Buffer_Bitcast Error_ForEachPayload TopologyDescription_Fingerprint
Executable_ParameterMemoryKinds Device_ClearMemoryStats TopologyDescription_MakeCanonicalShapeForMemorySpace
TopologyDescription_GetMemorySpaceKindIds
""")
"""The table's functions, in order."""
FALLIBLE = _words("""
Client_Compile Executable_DeserializeAndLoad LoadedExecutable_Execute Executable_OptimizedProgram
Executable_GetCostAnalysis Executable_GetCompiledMemoryStats
""")
"""Those that may take long and whose errors XLA passes on. On an error of many others it aborts."""

_STRUCTS = """
Extension: size:n type:i next
Version: size:n extensions major:i minor:i
NamedValue: size:n extensions name name_size:n type:i value value_size:n
Program: size:n extensions code code_size:n format format_size:n
ExecuteOptions: size:n extensions send_callbacks recv_callbacks num_send_ops:n num_recv_ops:n launch_id:i
    non_donatable_input_indices num_non_donatable_input_indices:n context call_location num_tasks:n task_ids
    incarnation_ids multi_slice_config use_major_to_minor_data_layout_for_callbacks:b hlo_output_callbacks
    num_hlo_output_callbacks:n
MemoryLayout: size:n extensions tiled_size:n tiled_extensions minor_to_major minor_to_major_size:n tile_dims
    tile_dim_sizes num_tiles:n type:i
ShapeSpec: size:n extensions dims num_dims:n element_type:i
ErrorTable: size:n instance_size:n extensions destroy message get_code for_each_payload
MemoryTable: size:n extensions instance_size:n get_user_data set_user_data
LogicalIds: replica:i partition:i
LayoutsExtension: size:n type:i next destroy serialize client_default_layout buffer_memory_layout
    topology_default_layout executable_output_layouts executable_parameter_layouts
"""

_ARGUMENTS = """
Error_Destroy: error
Error_Message: error message message_size:n
Error_GetCode: error code:i
Error_ForEachPayload: error visitor user_arg
Plugin_Initialize:
Plugin_Attributes: attributes num_attributes:n
Event_Destroy: event
Event_IsReady: event is_ready:b
Event_Error: event
Event_Await: event
Event_OnReady: event callback user_arg
Event_Create: event
Event_Set: event error_code:i error_message error_message_size:n
Client_Create: create_options num_options:n kv_get_callback kv_get_user_arg kv_put_callback kv_put_user_arg client
    kv_try_get_callback kv_try_get_user_arg
Client_Destroy: client
Client_PlatformName: client platform_name platform_name_size:n
Client_ProcessIndex: client process_index:i
Client_PlatformVersion: client platform_version platform_version_size:n
Client_TopologyDescription: client topology
Client_Devices: client devices num_devices:n
Client_AddressableDevices: client addressable_devices num_addressable_devices:n
Client_LookupDevice: client id:i device
Client_LookupAddressableDevice: client local_hardware_id:i addressable_device
Client_AddressableMemories: client addressable_memories num_addressable_memories:n
Client_Compile: client program compile_options compile_options_size:n executable
Client_DefaultDeviceAssignment: client num_replicas:i num_partitions:i default_assignment_size:n default_assignment
Client_BufferFromHostBuffer: client data type:i dims num_dims:n byte_strides num_byte_strides:n host_buffer_semantics:i
    device memory device_layout done_with_host_buffer buffer
Client_CreateViewOfDeviceBuffer: client device_buffer_ptr dims num_dims:n element_type:i layout device
    on_delete_callback on_delete_callback_arg stream buffer memory
Client_CreateUninitializedBuffer: client shape_dims shape_num_dims:n shape_element_type:i shape_layout device memory
    buffer
Client_CreateErrorBuffer: client error_code:i error_message error_message_size:n shape_dims shape_num_dims:n
    shape_element_type:i shape_layout memory buffer
Client_CreateBuffersForAsyncHostToDevice: client shape_specs num_shape_specs:n device_layouts num_device_layouts:n
    memory transfer_manager
AsyncHostToDeviceTransferManager_Destroy: transfer_manager
AsyncHostToDeviceTransferManager_TransferData: transfer_manager buffer_index:i data offset:n transfer_size:n
    is_last_transfer:b done_with_h2d_transfer
AsyncHostToDeviceTransferManager_RetrieveBuffer: transfer_manager buffer_index:i buffer_out
AsyncHostToDeviceTransferManager_Device: transfer_manager device_out
AsyncHostToDeviceTransferManager_BufferCount: transfer_manager buffer_count:n
AsyncHostToDeviceTransferManager_BufferSize: transfer_manager buffer_index:i buffer_size:n
AsyncHostToDeviceTransferManager_SetBufferError: transfer_manager buffer_index:i error_code:i error_message
    error_message_size:n
AsyncHostToDeviceTransferManager_AddMetadata: transfer_manager transfer_metadata num_metadata:n
Client_DmaMap: client data data_size:n
Client_DmaUnmap: client data
DeviceDescription_Id: device_description id:i
DeviceDescription_ProcessIndex: device_description process_index:i
DeviceDescription_Attributes: device_description num_attributes:n attributes
DeviceDescription_Kind: device_description device_kind device_kind_size:n
DeviceDescription_DebugString: device_description debug_string debug_string_size:n
DeviceDescription_ToString: device_description to_string to_string_size:n
Device_GetDescription: device device_description
Device_IsAddressable: device is_addressable:b
Device_LocalHardwareId: device local_hardware_id:i
Device_AddressableMemories: device memories num_memories:n
Device_DefaultMemory: device memory
Device_GetAttributes: device attributes num_attributes:n device_attributes attributes_deleter
Device_CreateAsyncTrackingEvent: device description description_size:n event
AsyncTrackingEvent_Destroy: event
Memory_Id: memory id:i
Memory_Kind: memory kind kind_size:n
Memory_Kind_Id: memory kind_id:i
Memory_DebugString: memory debug_string debug_string_size:n
Memory_ToString: memory to_string to_string_size:n
Memory_AddressableByDevices: memory devices num_devices:n
ExecuteContext_Create: context
ExecuteContext_Destroy: context
Executable_Destroy: executable
Executable_Name: executable executable_name executable_name_size:n
Executable_NumReplicas: executable num_replicas:n
Executable_NumPartitions: executable num_partitions:n
Executable_NumOutputs: executable num_outputs:n
Executable_SizeOfGeneratedCodeInBytes: executable size_in_bytes:n
Executable_Fingerprint: executable executable_fingerprint executable_fingerprint_size:n
Executable_GetCostAnalysis: executable num_properties:n properties
Executable_GetCompiledMemoryStats: executable generated_code_size_in_bytes:n argument_size_in_bytes:n
    output_size_in_bytes:n alias_size_in_bytes:n temp_size_in_bytes:n host_generated_code_size_in_bytes:n
    host_argument_size_in_bytes:n host_output_size_in_bytes:n host_alias_size_in_bytes:n host_temp_size_in_bytes:n
    peak_memory_in_bytes:n total_size_in_bytes:n total_allocation_bytes:n indefinite_allocations:n
    peak_unpadded_heap_bytes:n
Executable_OutputElementTypes: executable output_types num_output_types:n
Executable_OutputDimensions: executable num_outputs:n dims dim_sizes
Executable_OutputMemoryKinds: executable num_outputs:n memory_kinds memory_kind_sizes
Executable_ParameterMemoryKinds: executable num_parameters:n memory_kinds memory_kind_sizes
Executable_OptimizedProgram: executable program
Executable_Serialize: executable serialized_bytes serialized_bytes_size:n serialized_executable
    serialized_executable_deleter
Executable_GetCompileOptions: executable serialized_bytes serialized_bytes_size:n serialized_compile_options
    serialized_compile_options_deleter
Executable_DeserializeAndLoad: client serialized_executable serialized_executable_size:n loaded_executable
    overridden_serialized_compile_options overridden_serialized_compile_options_size:n
LoadedExecutable_Destroy: executable
LoadedExecutable_GetExecutable: loaded_executable executable
LoadedExecutable_AddressableDevices: executable addressable_devices num_addressable_devices:n
LoadedExecutable_AddressableDeviceLogicalIds: executable addressable_device_logical_ids
    num_addressable_device_logical_ids:n
LoadedExecutable_GetDeviceAssignment: executable serialized_bytes serialized_bytes_size:n serialized_device_assignment
    serialized_device_assignment_deleter
LoadedExecutable_Delete: executable
LoadedExecutable_IsDeleted: executable is_deleted:b
LoadedExecutable_Fingerprint: executable executable_fingerprint executable_fingerprint_size:n
LoadedExecutable_Execute: executable options argument_lists num_devices:n num_args:n output_lists device_complete_events
    execute_device
Buffer_Destroy: buffer
Buffer_ElementType: buffer type:i
Buffer_Dimensions: buffer dims num_dims:n
Buffer_UnpaddedDimensions: buffer unpadded_dims num_dims:n
Buffer_DynamicDimensionIndices: buffer dynamic_dim_indices num_dynamic_dims:n
Buffer_GetMemoryLayout: buffer layout_size:n layout_extensions layout_tiled_size:n layout_tiled_extensions
    layout_minor_to_major layout_minor_to_major_size:n layout_tile_dims layout_tile_dim_sizes layout_num_tiles:n
    layout_type:i
Buffer_OnDeviceSizeInBytes: buffer on_device_size_in_bytes:n
Buffer_Device: buffer device
Buffer_Memory: buffer memory
Buffer_Delete: buffer
Buffer_IsDeleted: buffer is_deleted:b
Buffer_CopyToDevice: buffer dst_device dst_buffer
Buffer_CopyToMemory: buffer dst_memory dst_buffer
Buffer_CopyRawToHost: buffer dst offset:n transfer_size:n event
Buffer_ToHostBuffer: src host_layout dst dst_size:n event
Buffer_IsOnCpu: buffer is_on_cpu:b
Buffer_ReadyEvent: buffer event
Buffer_UnsafePointer: buffer buffer_pointer
Buffer_IncreaseExternalReferenceCount: buffer
Buffer_DecreaseExternalReferenceCount: buffer
Buffer_OpaqueDeviceMemoryDataPointer: buffer device_memory_ptr
TopologyDescription_Destroy: topology
TopologyDescription_PlatformName: topology platform_name platform_name_size:n
TopologyDescription_PlatformVersion: topology platform_version platform_version_size:n
TopologyDescription_GetDeviceDescriptions: topology descriptions num_descriptions:n
TopologyDescription_Attributes: topology attributes num_attributes:n
TopologyDescription_Fingerprint: topology fingerprint
TopologyDescription_Serialize: topology serialized_bytes serialized_bytes_size:n serialized_topology
    serialized_topology_deleter
"""

BUFFER_TYPES = _words("""
invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 f8e5m2 f8e4m3fn f8e4m3b11fnuz f8e5m2fnuz
f8e4m3fnuz s4 u4 token s2 u2 f8e4m3 f8e3m4 f8e8m0fnu f4e2m1fn s1 u1
f6e2m3fn f6e3m2fn
""")
"""HLO's name of each PJRT_Buffer_Type, by number."""

ERROR_CODES = _words("""
OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED
FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED
""")
STRING, INT64, INT64_LIST, FLOAT, BOOL = range(5)
"""Types of a NamedValue."""

_KINDS = {"": POINTER, "n": I64, "i": I32, "b": I8, "f": type_of("float")}


@cache
def _rows() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for text, head in ((_STRUCTS, []), (_ARGUMENTS, ["size:n", "extensions"])):
        for row in text.replace("\n    ", " ").strip().splitlines():
            name, _, fields = row.partition(":")
            found[name] = [*head, *fields.split()]
    return found


def known() -> list[str]:
    """The names of all structs; a function's name is that of its arguments."""
    return list(_rows())


@cache
def record(name: str) -> Record:
    """The struct of this name; a function's name is that of its arguments' struct."""
    fields = [field.partition(":") for field in _rows()[name]]
    return Record(name, {field: _KINDS[kind] for field, _, kind in fields})


def struct(name: str) -> type[ctypes.Structure]:
    """The struct as ctypes has it."""
    return record(name).structure


def offset(name: str, field: str) -> int:
    """Where a field of a struct begins, in bytes."""
    return record(name).offset(field)


def size(name: str) -> int:
    """The struct's size as the header counts it: up to the end of its last field."""
    return record(name).end


def api_offset(function: str) -> int:
    """Where the function's pointer is in the table."""
    return 16 + record("Version").bytes + 8 * FUNCTIONS.index(function)


API_SIZE = 40 + 8 * len(FUNCTIONS)
