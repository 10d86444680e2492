"""The structs and numbers of XLA's FFI as data: xla/ffi/api/c_api.h, version 0.5."""

from __future__ import annotations

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

API_BYTES = 16 + 24 + 8 + 8 * len(FUNCTIONS)
CALL_FRAME_BYTES = 168
"""As the header counts: without the field `future`, which follows."""
BUFFER_BYTES, ARGS_BYTES, ATTRS_BYTES, TYPE_INFO_BYTES = 48, 40, 48, 24
METADATA_BYTES, METADATA_EXTENSION_BYTES, API_VERSION_BYTES = 36, 32, 24
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

CONTEXT = {"device": 0, "run": 8, "states": 16, "user_data": 40}
"""Where the fields of an XLA_FFI_ExecutionContext are, in bytes. It is hlokit's own: handlers only pass it on.

states     a pointer to {type id, object} for each stage that has a state: all but execute
user_data  a pointer to a number n and n pairs {type id, data}; null if there is none
"""
CONTEXT_BYTES = 48
