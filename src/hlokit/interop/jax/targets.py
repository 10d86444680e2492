"""Custom-call targets that JAX programs register with jax.ffi.register_ffi_target and jax.ffi.register_ffi_type.

Programs find those that were registered for the platform "hlokit", then those for "cpu": memory and rules are the
CPU's. Targets that come with hlokit under the same name go first; JAX registers its LAPACK calls for the CPU.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from hlokit.errors import BuildError
from hlokit.ops.custom_targets.pointers import pointer_target
from hlokit.ops.custom_targets.registry import Target, add_finder, find_target

_OWN = "libjax_common"
"""The library whose handlers are jaxlib's own: they call functions that are in no header."""


@cache
def install() -> None:
    """From now on hlokit's programs find what was registered, and what will be. Asks jaxlib, which keeps it by platform
    until a client of that platform is there."""
    from jaxlib import xla_client

    client: Any = xla_client
    hlokit, cpu = _Targets("hlokit"), _Targets("cpu")
    client.register_custom_type_handler("hlokit", _add_type)
    client.register_custom_call_handler("hlokit", hlokit.add)
    _follow(client, "type", _add_type, client._xla.register_custom_type)  # first: handlers' states are of these types
    _follow(client, "call", cpu.add, client._xla.register_custom_call_target)
    hlokit.is_open = True
    add_finder("JAX's platform hlokit", hlokit.find)
    add_finder("JAX's platform cpu", lambda name: cpu.find(name) or _registered_before(client, name))


def _follow(client: Any, kind: str, add: Callable[..., None], own: Callable[..., None]) -> None:
    """Hands on what is registered for the CPU, to jaxlib's own client as ever, and then to `add`."""
    handlers, lock = (
        (client._custom_callback_handler, client._custom_callback_lock)
        if kind == "call"
        else (client._custom_type_id_handler, client._custom_type_id_lock)
    )
    platform = client.xla_platform_names["cpu"]
    with lock:
        before = handlers.get(platform)

        def both(*arguments: Any) -> None:
            try:
                (before or own)(*arguments)
            except Exception as error:
                if is_open:
                    raise
                # JAX's own CPU client would not even start; programs that do not use it shall
                warnings.warn(f"jaxlib: {arguments[0]}: {error}", RuntimeWarning, stacklevel=2)
                return
            add(*arguments)

        is_open = before is not None
        if before is not None:
            handlers[platform] = both
            return
    register = client.register_custom_call_handler if kind == "call" else client.register_custom_type_handler
    register("cpu", both)
    is_open = True


class _Targets:
    """The targets registered for a platform. They are looked at when the first is asked for.

    `is_open`: programs are running already: what is wrong is told at once.
    """

    def __init__(self, platform: str) -> None:
        self.platform = platform
        self.is_open = False
        self._given: dict[str, tuple[Any, int]] = {}
        self._made: dict[str, Target | None] = {}

    def add(self, name: str | bytes, function: Any, platform: str, api_version: int = 0, *traits: Any) -> None:
        """Registers a target, as jaxlib calls it. BuildError: the name is taken, or hlokit cannot call the handler."""
        name = name.decode() if isinstance(name, bytes) else name
        made = None
        if self.is_open:
            made = _target(name, function, api_version)
            before = find_target(name)
            if before is not None and not getattr(made, "is_same", bool)(before):
                raise BuildError(f"custom-call target {name!r} is registered already for {self.platform}", "CCALL-2")
        self._given[name] = function, api_version
        self._made.pop(name, None)

    def find(self, name: str) -> Target | None:
        if name not in self._given:
            return None
        if name not in self._made:
            self._made[name] = _target(name, *self._given[name])
        return self._made[name]


def _target(name: str, function: Any, api_version: int) -> Target | None:
    """The target that a PyCapsule, or a dictionary of them by stage, is. None for one of jaxlib's own."""
    from hlokit.runtime.ffi.handlers import Handler, addresses

    if any(map(_is_jaxlibs, addresses(function))):
        return None
    return Handler(name, function) if api_version else pointer_target(function)


def _is_jaxlibs(address: int) -> bool:
    """Whether a function is in jaxlib's main library."""
    if sys.platform == "win32":
        return False

    class Info(ctypes.Structure):
        _fields_ = [(name, ctypes.c_void_p) for name in ("file", "base", "name", "address")]

    info = Info()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(info)) or not info.file:
        return False
    return os.path.basename(ctypes.string_at(info.file).decode(errors="replace")).startswith(_OWN)


def _registered_before(client: Any, name: str) -> Target | None:
    """A target that jaxlib's CPU client was given before `install`."""
    if client.xla_platform_names["cpu"] not in client._custom_callback_handler:
        return None
    given = client.custom_call_targets(client.xla_platform_names["cpu"]).get(name)
    return None if given is None else _target(name, given, int(isinstance(given, dict)))


def _add_type(name: str, given: Any) -> None:
    from hlokit.runtime.ffi.handlers import register_ffi_type

    if isinstance(given, dict):
        register_ffi_type(name, given["type_id"], given.get("type_info"))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType]
    else:
        register_ffi_type(name, given)
