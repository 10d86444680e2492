"""Python functions that JAX programs call: jax.debug.print, pure_callback, io_callback, buffer_callback.

A program names a callback by a number. Numbers count from 0 in the order of lowering, so that the same script makes the
same programs. They are found by number as long as they live: who can run a program holds those that it `calls`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hlokit.builder.custom_calls import Invocation, register_custom_call
from hlokit.errors import EvaluationError
from hlokit.forks import lock
from hlokit.hlo.module import HloModule
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes

Callback = Callable[..., Any]

_TARGETS = ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback")
_BUFFER_TARGET = "xla_buffer_python_cpu_callback"

_lock = lock()
_callbacks: WeakValueDictionary[int, Callback] = WeakValueDictionary()
_count = 0


def add(callback: Callback) -> int:
    """The callback's number in programs. It is not kept alive by this."""
    global _count
    with _lock:
        number, _count = _count, _count + 1
        _callbacks[number] = callback
    return number


def calls(module: HloModule) -> list[Callback]:
    """The callbacks that the module names, to be held as long as it may run."""
    return [callback for callback in map(_find, _configs(module)) if callback is not None]


def has_calls(module: HloModule) -> bool:
    """Whether the module names callbacks, of this process or of another."""
    return bool(_configs(module))


def _configs(module: HloModule) -> list[str]:
    return [
        instruction.extra.backend_config
        for computation in module.all_computations
        for instruction in computation.instructions
        if isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target in (*_TARGETS, _BUFFER_TARGET)
        if instruction.extra is not None
    ]


def install(platform: str) -> None:
    """Makes JAX's lowering rules for callbacks take `platform`, and hlokit's programs find the callbacks."""
    from jax._src import callback as module
    from jax.interpreters import mlir

    callback: Any = module
    public: Any = mlir
    for target in _TARGETS:
        register_custom_call(target, _call, whole_call=True, replace=True)
    register_custom_call(_BUFFER_TARGET, _call_with_buffers, whole_call=True, replace=True)
    callback.emit_python_callback = public.emit_python_callback = as_cpu(callback.emit_python_callback, platform)


def as_cpu(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
    """A lowering rule that takes `platform` for the CPU, and whose callbacks are found by number."""

    def changed(context: Any, *args: Any, **kwargs: Any) -> Any:
        return rule(_as_cpu(context, platform), *args, **kwargs)

    return changed


def _as_cpu(context: Any, platform: str) -> Any:
    module = context.module_context
    if tuple(module.platforms) != (platform,) or isinstance(module, _ModuleContext):
        return context
    return context.replace(module_context=_ModuleContext(module))


class _ModuleContext:
    """A module context of JAX's that says it is the CPU's, and adds callbacks to those that are found by number."""

    platforms = ("cpu",)

    def __init__(self, module: Any) -> None:
        self._module = module
        self.host_callbacks = range(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def get_backend(self, optional: bool = False) -> None:
        return None

    def add_host_callback(self, callback: Callback) -> None:
        """The number of the callback is then len(host_callbacks) - 1: so the rules ask for it."""
        self._module.add_host_callback(callback)  # JAX keeps no program that has any in its cache
        self.host_callbacks = range(add(callback) + 1)


def _call(call: Invocation) -> Any:
    """The callback's results on copies of the operands, which it may keep."""
    results = _callback(call)(*(None if value is None else np.array(value) for value in call.operands))
    return results if call.shape.is_tuple else results[0]


def _call_with_buffers(call: Invocation) -> Any:
    """The callback writes its results: function(context, *operands, *results)."""
    shapes = call.shape.elements if call.shape.is_tuple else (call.shape,)
    operands = [np.array(value) for value in call.operands]
    results = [np.zeros(shape.dimensions, shape.dtype.numpy) for shape in shapes]
    for index, number, _ in call.op.output_to_operand_aliasing:
        results[index[0] if index else 0] = operands[number]
    _callback(call)(None, *operands, *results)
    return tuple(results) if call.shape.is_tuple else results[0]


def _callback(call: Invocation) -> Callback:
    found = _find(call.opaque)
    if found is None:
        raise EvaluationError(f"{call.op.custom_call_target}: this process has no callback {call.opaque}")
    return found


def _find(backend_config: str) -> Callback | None:
    """The callback whose number is the attribute `index`. EvaluationError: not attributes."""
    number = ffi_attributes(backend_config).get("index")
    return _callbacks.get(number) if isinstance(number, int) else None
