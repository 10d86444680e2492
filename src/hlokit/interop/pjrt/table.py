"""The table of functions that JAX calls: machine code, and Python functions behind trampolines."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from hlokit.errors import ArgumentError, HlokitError, ParseError, ShapeError, UnsupportedError
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.events import DONE
from hlokit.interop.pjrt.memory import FOREVER, constant, immortal
from hlokit.interop.pjrt.native import native

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
_functions: dict[str, Callable[[Any], None]] = {}
_failed: list[Callable[[int], None]] = []
_CODES: list[tuple[type[BaseException], str]] = [
    (UnsupportedError, "UNIMPLEMENTED"),
    (NotImplementedError, "UNIMPLEMENTED"),
    (ArgumentError, "INVALID_ARGUMENT"),
    (ParseError, "INVALID_ARGUMENT"),
    (ShapeError, "INVALID_ARGUMENT"),
    (MemoryError, "RESOURCE_EXHAUSTED"),
    (KeyboardInterrupt, "CANCELLED"),
    (HlokitError, "INTERNAL"),
]


def function(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    """Registers a function of the table. It gets its arguments' struct and fills it, or raises."""

    def register(body: Callable[[Any], None]) -> Callable[[Any], None]:
        if name not in layouts.FUNCTIONS or name in _functions:
            raise AssertionError(name)
        _functions[name] = body
        return body

    return register


def failed(body: Callable[[int], None]) -> Callable[[int], None]:
    """Registers what is called with the address of a program that stopped midway: it raises why."""
    _failed.append(body)
    return body


@cache
def api() -> int:
    """The address of the PJRT_Api. It, and all that it leads to, lives as long as the process."""
    machine = native()
    for name, body in _functions.items():
        machine.set_callback(name, _callback(_of_struct(body, layouts.struct(name))))
    for body in _failed:
        machine.set_failed(_callback(body))
    version = (layouts.size("Version"), 0, layouts.MAJOR | layouts.MINOR << 32)
    return FOREVER.words((layouts.API_SIZE, 0, *version, *machine.addresses()))


@cache
def capsule() -> Any:
    """The table as JAX takes it."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(api(), constant("pjrt_c_api")[0], None)


def _of_struct(body: Callable[[Any], None], struct: Any) -> Callable[[int], None]:
    at = struct.from_address
    return lambda address: body(at(address))


def _callback(body: Callable[[int], None]) -> int:
    def call(address: int) -> int:
        try:
            body(address)
        except BaseException as error:  # nothing may pass into C++
            return _error(error)
        return DONE

    made = _CALLBACK(call)
    immortal(made)
    return ctypes.cast(made, ctypes.c_void_p).value or 0


def _error(error: BaseException) -> int:
    """A PJRT_Error for an exception."""
    code = next((code for type, code in _CODES if isinstance(error, type)), "INTERNAL")
    text = str(error) if isinstance(error, HlokitError) else f"{type(error).__name__}: {error}"
    data = text.encode(errors="replace")
    return native().make_error(layouts.ERROR_CODES.index(code), data, len(data))
