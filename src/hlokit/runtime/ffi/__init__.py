"""Custom calls of XLA's typed FFI: handlers in machine code, called through the C interface of xla/ffi/api/c_api.h."""
