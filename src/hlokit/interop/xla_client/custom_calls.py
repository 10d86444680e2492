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
    """Makes a function what custom-calls of a name call, in place of an earlier one.

    Parameters
    ----------
    name : str or bytes
        The target's name.
    fn : PyCapsule, ctypes function, callable or dict
        A C function `void f(void* out, void** in)` in a PyCapsule or as a ctypes function (CCALL-3), or a Python
        function of arrays. With api_version 1 it is a handler of XLA's FFI, or a dictionary of handlers by stage
        (`hk.register_ffi_target`).
    platform : str, optional
        "cpu" or "Host"; targets for other platforms are ignored.
    api_version : int, optional
        0 or 1.
    traits : CustomCallTargetTraits, optional
        Has no effect.

    Raises
    ------
    XlaRuntimeError
        The handler of the FFI is not one, or api_version is another (UNIMPLEMENTED).
    TypeError
        `fn` cannot be called.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.register_custom_call_target("example_double", lambda x: 2 * x)
    >>> "example_double" in xc.custom_call_targets("cpu")
    True
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
    """The targets that `register_custom_call_target` registered.

    Parameters
    ----------
    platform : str
        "cpu" or "Host"; other platforms have none.

    Returns
    -------
    dict
        The functions by name.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.custom_call_targets("CUDA")
    {}
    """
    return dict(_registered) if platform in _PLATFORMS else {}


def register_custom_call_handler(platform: str, handler: Callable[..., None]) -> None:
    """Does nothing: targets for CPUs are registered at once, and there are no other platforms.

    Parameters
    ----------
    platform : str
        The platform that the handler is for.
    handler : callable
        A function that registers a target.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> xc.register_custom_call_handler("CUDA", print)
    """
