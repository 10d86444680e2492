"""Custom-call targets under jaxlib's names."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import hlokit as hk
from hlokit.interop.xla_client.enums import CustomCallTargetTraits
from hlokit.interop.xla_client.errors import raises_status, unimplemented

_PLATFORMS = ("cpu", "Host")
_registered: dict[str, Any] = {}
_CFunction = type(ctypes.pythonapi.PyCapsule_New).__mro__[1]
"""The base class of ctypes functions."""


@raises_status
def register_custom_call_target(
    name: str | bytes,
    fn: Any,
    platform: str = "cpu",
    api_version: int = 0,
    traits: CustomCallTargetTraits = CustomCallTargetTraits.DEFAULT,
) -> None:
    """Makes `fn` what custom-calls of this name call; it takes the place of an earlier one.

    `fn` is a PyCapsule that holds a C function `void f(void* out, void** in)`, or a ctypes function of this kind
    (CCALL-3); or, here, a Python function of arrays. With api_version 1 it is a handler of XLA's FFI, or a dictionary
    of them by stage (hlokit.register_ffi_target). Targets for other platforms than the CPU are ignored.
    Raises XlaRuntimeError for what is not a handler, and for other versions (UNIMPLEMENTED).
    """
    if platform not in _PLATFORMS:
        return
    if api_version not in (0, 1):
        raise unimplemented(f"custom-call target {name!r}: api_version {api_version}; 0 and 1 are known")
    text = name.decode() if isinstance(name, bytes) else name
    if api_version:
        hk.register_ffi_target(text, fn, replace=True)
    elif type(fn).__name__ == "PyCapsule" or isinstance(fn, _CFunction):
        hk.register_custom_call_pointer(text, fn, replace=True)
    elif callable(fn):
        hk.register_custom_call(text, fn, replace=True)
    else:
        raise TypeError(f"custom-call target {text!r}: expected a PyCapsule or a function, got {type(fn).__name__}")
    _registered[text] = fn


def custom_call_targets(platform: str) -> dict[str, Any]:
    """The targets registered here, by name."""
    return dict(_registered) if platform in _PLATFORMS else {}


def register_custom_call_handler(platform: str, handler: Callable[..., None]) -> None:
    """Does nothing for the CPU, whose targets are registered at once; other platforms do not exist here."""
