"""The functions that handlers call, loaded once per process and never unloaded."""

from __future__ import annotations

import ctypes
import os
from functools import cache

from hlokit.cpu.jit.cache import compiled
from hlokit.cpu.jit.objects import Library
from hlokit.cpu.target import available_threads, host
from hlokit.errors import HandlerError
from hlokit.runtime.ffi.functions import EXCEPTIONS, written
from hlokit.runtime.ffi.layouts import ERROR_CODES

_WORD = ctypes.c_uint64


class Native:
    """The machine code. `api`: the address of the XLA_FFI_Api, which lives as long as the process."""

    def __init__(self) -> None:
        exceptions = _exceptions()
        self._library = Library([compiled(written(host(), bool(exceptions)).text(), host(), name="ffi")], exceptions)
        address = self._library.address
        self.api = address("api")
        self._call = ctypes.CFUNCTYPE(_WORD, _WORD, _WORD)(address("call_handler"))
        self._register_type = ctypes.CFUNCTYPE(_WORD, _WORD)(address("XLA_FFI_Type_Register"))
        self._destroy_error = ctypes.CFUNCTYPE(None, _WORD)(address("destroy_error"))
        self.destroy_state = ctypes.CFUNCTYPE(None, _WORD)(address("destroy_state"))
        self._start_anew = ctypes.CFUNCTYPE(None)(address("start_anew"))
        self._start_anew()
        _WORD.from_address(address("threads")).value = available_threads()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._start_anew)

    def call(self, handler: int, frame: int, what: str) -> None:
        """Calls a handler without the interpreter lock, and waits for what it has begun. HandlerError as it says;
        `what`: the message's beginning."""
        self._check(self._call(handler, frame), what)

    def register_type(self, name: str, type_id: int, type_info: int) -> None:
        """Registers a type by the addresses of its XLA_FFI_TypeId, which gets a number, and its XLA_FFI_TypeInfo or 0.
        HandlerError: the name or the number is another type's."""
        data = name.encode()
        held = ctypes.create_string_buffer(data, len(data) + 1)
        words = (_WORD * 6)(48, 0, ctypes.addressof(held), len(data), type_id, type_info)
        self._check(self._register_type(ctypes.addressof(words)), f"type {name!r}")

    def _check(self, error: int, what: str) -> None:
        if error:
            number = _WORD.from_address(error).value
            message = ctypes.string_at(error + 8).decode(errors="replace")
            self._destroy_error(error)
            raise HandlerError(f"{what}: {message}", ERROR_CODES[number] if number else "UNKNOWN")


def _exceptions() -> dict[str, int]:
    """C++'s functions for exceptions, where its library is there: it is, if a handler may throw one."""
    for name in ("libstdc++.so.6", "libc++abi.dylib"):
        try:
            library = ctypes.CDLL(name)
            return {symbol: ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0 for symbol in EXCEPTIONS}
        except (OSError, AttributeError):
            continue
    return {}


@cache
def native() -> Native:
    """The process's."""
    return Native()
