"""Python functions that JAX programs call: jax.debug.print, pure_callback, io_callback, buffer_callback.

A program names a callback by a number. Numbers count from 0 in the order of lowering, so that the same script makes the
same programs. They are found by number as long as they live: who can run a program holds those that it `calls`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from hlokit.builder.custom_calls import Invocation, register_custom_call
from hlokit.errors import EvaluationError
from hlokit.forks import lock
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.ffi_attributes import ffi_attributes

Callback = Callable[..., Any]

OF_PARTS = "xla_ffi_partitioned_python_cpu_callback"
"""The target of a callback that each device calls with its part of a value."""
_TARGETS = ("xla_ffi_python_cpu_callback", OF_PARTS)
_BUFFER_TARGET = "xla_buffer_python_cpu_callback"
TARGETS = (*_TARGETS, _BUFFER_TARGET)
"""The targets of calls of Python functions."""
INSPECTION = "InspectSharding"
"""The target of the custom call that jax.debug.inspect_array_sharding becomes; its configuration is a number."""

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


def called(configurations: Sequence[str]) -> list[Callback]:
    """The callbacks that these configurations of calls name, to be held as long as a program of theirs may run; without
    those that this process does not have."""
    return [callback for callback in map(_find, configurations) if callback is not None]


def has_calls(module: HloModule) -> bool:
    """Whether the module names callbacks, of this process or of another."""
    return bool(configurations(module, (*TARGETS, INSPECTION)))


def configurations(module: HloModule, targets: tuple[str, ...] = TARGETS) -> list[str]:
    """The configurations of the module's calls of Python functions, which name these by number."""
    return [
        instruction.extra.backend_config
        for computation in module.all_computations
        for instruction in computation.instructions
        if isinstance(instruction.op, CustomCall) and instruction.op.custom_call_target in targets
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
        taken = _as_cpu(context, platform)
        results = rule(taken, *args, **kwargs)
        if taken is not context and taken.tokens_out is not None and context.tokens_out is None:
            context.set_tokens_out(taken.tokens_out)  # of ordered effects
        return results

    return changed


def _as_cpu(context: Any, platform: str) -> Any:
    module = context.module_context
    if tuple(module.platforms) != (platform,) or isinstance(module, _ModuleContext):
        return context
    return context.replace(module_context=_ModuleContext(module))


def inspected(rule: Callable[..., Any], platform: str) -> Callable[..., Any]:
    """JAX's rule for jax.debug.inspect_array_sharding, whose callback is found by number and not by address."""

    def changed(context: Any, *args: Any, **kwargs: Any) -> Any:
        from jax._src.lib.mlir import ir  # pyright: ignore

        mlir: Any = ir
        module = _Inspections(context.module_context)
        results = rule(context.replace(module_context=module), *args, **kwargs)
        if module.found:
            for operation in reversed(list(mlir.InsertionPoint.current.block.operations)):
                target = operation.operation.attributes.get("call_target_name", None)
                if target is not None and mlir.StringAttr(target).value == INSPECTION:
                    number = add(module.found[-1])
                    operation.operation.attributes["backend_config"] = mlir.StringAttr.get(str(number))
                    break
        return results

    return changed


class _Inspections:
    """A module context of JAX's that notes what it keeps alive."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.found: list[Callback] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def add_keepalive(self, callback: Callback) -> None:
        self.found.append(callback)
        self._module.add_keepalive(callback)


def inspections(module: HloModule) -> list[tuple[Instruction, Callback]]:
    """Takes the inspections of shardings out of a module; gives the values that they are of, and their callbacks."""
    found: list[tuple[Instruction, Callback]] = []
    for computation in module.all_computations:
        for instruction in list(computation.instructions):
            op, extra = instruction.op, instruction.extra
            if not isinstance(op, CustomCall) or op.custom_call_target != INSPECTION or extra is None:
                continue
            number = extra.backend_config
            callback = _callbacks.get(int(number)) if number.isdecimal() else None
            if callback is not None and not instruction.users and len(instruction.operands) == 1:
                found.append((instruction.operands[0], callback))
                computation.remove(instruction)
    return found


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


class ExecutionContext:
    """The context of a call of a buffer callback, as jax.experimental.buffer_callback.ExecutionContext."""

    @property
    def stage(self) -> Any:
        """Programs are run, and not prepared."""
        from jax.experimental import buffer_callback

        return buffer_callback.ExecutionStage.EXECUTE  # pyright: ignore

    @property
    def stream(self) -> int:
        """Raises JAX's error that there is none on a CPU."""
        from jax.errors import JaxRuntimeError  # pyright: ignore

        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


class Buffer:
    """An array that a buffer callback reads or writes, as jax.experimental.buffer_callback.Buffer."""

    def __init__(self, array: np.ndarray[Any, Any], writeable: bool) -> None:
        self._array = array.view()
        self._array.flags.writeable = self.writeable = writeable
        self.shape, self.dtype, self.ndim = array.shape, array.dtype, array.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._array, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def _call_with_buffers(call: Invocation) -> Any:
    """The callback writes its results: function(context, *operands, *results)."""
    shapes = call.shape.elements if call.shape.is_tuple else (call.shape,)
    operands = [np.array(value) for value in call.operands]
    results = [np.zeros(shape.dimensions, shape.dtype.numpy) for shape in shapes]
    for index, number, _ in call.op.output_to_operand_aliasing:
        results[index[0] if index else 0] = operands[number]
    buffers = [Buffer(operand, False) for operand in operands] + [Buffer(result, True) for result in results]
    _callback(call)(ExecutionContext(), *buffers)
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
