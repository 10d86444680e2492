"""The table of functions that JAX calls: machine code, and Python functions behind trampolines."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from hlokit.errors import ArgumentError, HandlerError, HlokitError, ParseError, ShapeError, UnsupportedError
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.events import DONE
from hlokit.interop.pjrt.memory import FOREVER, constant, immortal
from hlokit.interop.pjrt.native import native
from hlokit.runtime.interrupt import is_interrupt

_functions: dict[str, Callable[[Any], None]] = {}
_failed: list[Callable[[int], None]] = []
_CODES: list[tuple[type[Exception], str]] = [
    (UnsupportedError, "UNIMPLEMENTED"),
    (NotImplementedError, "UNIMPLEMENTED"),
    (ArgumentError, "INVALID_ARGUMENT"),
    (ParseError, "INVALID_ARGUMENT"),
    (ShapeError, "INVALID_ARGUMENT"),
    (MemoryError, "RESOURCE_EXHAUSTED"),
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
        machine.set_function(name, _guarded(_of_struct(body, layouts.struct(name))))
    for body in _failed:
        machine.set_failed(_guarded(body))
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


def _guarded(body: Callable[[int], None]) -> int:
    """The address of a Python function that turns errors into PJRT_Errors. Interrupts pass, to machine code."""

    def call(address: int) -> int:
        try:
            body(address)
        except Exception as error:
            if is_interrupt(error):
                raise
            return _error(error)
        return DONE

    return immortal(call)


def _error(error: Exception) -> int:
    """A PJRT_Error for an exception."""
    if isinstance(error, HandlerError):
        code = error.code
    else:
        code = next((code for type, code in _CODES if isinstance(error, type)), "INTERNAL")
    text = str(error) if isinstance(error, HlokitError) else f"{type(error).__name__}: {error}"
    data = text.encode(errors="replace")
    return native().make_error(layouts.ERROR_CODES.index(code), data, len(data))
