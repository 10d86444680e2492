"""The structs and numbers of XLA's FFI as data: xla/ffi/api/c_api.h, version 0.5."""

from __future__ import annotations

from hlokit.cpu.llvm import I32, I64, POINTER, Field, Record, Type

MAJOR, MINOR = 0, 5
OLDEST = (0, 1)
"""The first version whose handlers run: from it on, all that handlers call is as it was."""

STAGES = ("instantiate", "prepare", "initialize", "execute")
"""By number: what a handler is called for."""
UNCALLED_STAGES = ("record",)
"""Stages of other platforms: command buffers."""

FUNCTIONS = (
    "Error_Create", "Error_GetDetails", "Error_Destroy", "Handler_Register", "Stream_Get", "Type_Register",
    "InvokeContext_Get", "State_Set", "State_Get", "DeviceMemory_Allocate", "DeviceMemory_Free",
    "ThreadPool_Schedule", "ThreadPool_NumThreads", "Future_Create", "Future_SetAvailable", "Future_SetError",
    "RunId_Get", "DeviceOrdinal_Get", "InvokeContext_FindExtension", "CustomOptions_Get",
)  # fmt: skip
"""The functions of XLA_FFI_Api, in order, by their names of today: to version 0.3 there were Error_GetMessage, whose
arguments end before the code, ExecutionContext_Get, and none after DeviceOrdinal_Get."""

_HEAD: dict[str, Type] = {"size": I64, "extensions": POINTER}
_API_VERSION = Record("ApiVersion", {**_HEAD, "major": I32, "minor": I32})
API = Record("Api", {**_HEAD, "version": _API_VERSION, "internal": POINTER, **dict.fromkeys(FUNCTIONS, POINTER)})
ARGS = Record("Args", {**_HEAD, "count": I64, "types": POINTER, "values": POINTER})
"""XLA_FFI_Args, XLA_FFI_Rets."""
ATTRS = Record("Attrs", {**_HEAD, "count": I64, "types": POINTER, "names": POINTER, "values": POINTER})
TYPE_INFO = Record("TypeInfo", {**_HEAD, "deleter": POINTER})
CALL_FRAME = Record(
    "CallFrame",
    {
        **_HEAD,
        "api": POINTER,
        "context": POINTER,
        "stage": I32,
        "args": ARGS,
        "rets": ARGS,
        "attributes": ATTRS,
        "future": POINTER,
    },
)
API_BYTES, API_VERSION_BYTES, ARGS_BYTES, ATTRS_BYTES = API.bytes, _API_VERSION.bytes, ARGS.bytes, ATTRS.bytes
CALL_FRAME_BYTES = CALL_FRAME.offset("future")
"""As the header counts: without the field `future`, which follows."""
BUFFER_BYTES, METADATA_BYTES, METADATA_EXTENSION_BYTES = 48, 36, 32
METADATA_EXTENSION = 1
"""XLA_FFI_Extension_Type of a frame that only asks what the handler is."""

BUFFER = 1
"""XLA_FFI_ArgType, XLA_FFI_RetType."""
ARRAY, DICTIONARY, SCALAR, STRING = 1, 2, 3, 4
"""XLA_FFI_AttrType."""

ERROR_CODES = (
    "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
    "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
)  # fmt: skip
"""XLA_FFI_Error_Code by number."""

STATE = Record("State", {"id": I64, "object": POINTER})
"""A state of a stage: its type's id and the object."""
STAGE_STATES = 3
"""The stages that have a state: all but execute."""
USER_DATA = Record("UserData", {"count": I64, "pairs": Field(STATE, 0)})
"""Data by the ids of their types."""
CONTEXT = Record("Context", {"device": I32, "run": I64, "states": Field(POINTER, STAGE_STATES), "user_data": POINTER})
"""XLA_FFI_ExecutionContext. It is hlokit's own: handlers only pass it on.

states     a pointer to a STATE for each stage that has one
user_data  a pointer to USER_DATA; null if there is none
"""

_STATE: dict[str, Type] = {"context": POINTER, "stage": I32, "type_id": POINTER, "state": POINTER}
_FUTURE: dict[str, Type] = {"future": POINTER}
_ARGUMENTS: dict[str, tuple[dict[str, Type], str]] = {
    "Error_Create": ({"message": POINTER, "code": I32}, "code"),
    "Error_GetDetails": ({"error": POINTER, "message": POINTER, "code": I32}, "message"),
    "Error_Destroy": ({"error": POINTER}, "error"),
    "Handler_Register": ({}, "extensions"),
    "Stream_Get": ({}, "extensions"),
    "Type_Register": ({"name": POINTER, "length": I64, "type_id": POINTER, "type_info": POINTER}, "type_id"),
    "InvokeContext_Get": ({"context": POINTER, "type_id": POINTER, "data": POINTER}, "data"),
    "State_Set": (_STATE, "type_id"),
    "State_Get": (_STATE, "type_id"),
    "DeviceMemory_Allocate": ({"context": POINTER, "bytes": I64, "alignment": I64, "data": POINTER}, "data"),
    "DeviceMemory_Free": ({"context": POINTER, "bytes": I64, "data": POINTER}, "data"),
    "ThreadPool_Schedule": ({"context": POINTER, "task": POINTER, "data": POINTER}, "data"),
    "ThreadPool_NumThreads": ({"context": POINTER, "num_threads": POINTER}, "num_threads"),
    "Future_Create": (_FUTURE, "extensions"),
    "Future_SetAvailable": (_FUTURE, "future"),
    "Future_SetError": ({**_FUTURE, "error": POINTER}, "error"),
    "RunId_Get": ({"context": POINTER, "run_id": I64}, "run_id"),
    "DeviceOrdinal_Get": ({"context": POINTER, "device_ordinal": I32}, "device_ordinal"),
    "InvokeContext_FindExtension": ({"context": POINTER, "type": I64, "extension": POINTER}, "extension"),
    "CustomOptions_Get": ({"context": POINTER, "options": POINTER}, "options"),
}
"""The arguments of each function after size and extensions, and the last of them that all versions have."""
ARGUMENTS = {name: (Record(name, {**_HEAD, **fields}), last) for name, (fields, last) in _ARGUMENTS.items()}
OLD_STATE = Record("OldState", {**_HEAD, "context": POINTER, "type_id": POINTER, "state": POINTER})
"""The arguments of State_Set and State_Get before version 0.3."""
VOID_FUNCTIONS = ("Error_GetDetails", "Error_Destroy")
"""All others give an error or null."""
