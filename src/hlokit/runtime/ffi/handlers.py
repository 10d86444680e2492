"""Handlers of XLA's FFI as targets of custom-calls: registered by name, instantiated for each call site, called."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from hlokit.errors import BuildError, HandlerError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import Array, Device
from hlokit.ops.custom import DEVICES, TYPED_FFI, CustomCall
from hlokit.ops.custom_targets.ffi_attributes import typed_attributes
from hlokit.ops.custom_targets.pointers import address_of as address_of_function
from hlokit.ops.custom_targets.pointers import memory_order
from hlokit.ops.custom_targets.registry import Invocation, add_target, find_target
from hlokit.runtime.arrays import tree
from hlokit.runtime.ffi import layouts
from hlokit.runtime.ffi.frames import Attributes, Frame, address_of
from hlokit.runtime.ffi.native import native
from hlokit.types.shape import Shape

_ALIGNMENT = 64


def register_ffi_target(name: str, handler: Any, *, replace: bool = False) -> None:
    """See hlokit.register_ffi_target."""
    made = Handler(name, handler)
    if not made.is_same(find_target(name)):
        add_target(name, made, replace=replace)


def register_ffi_type(name: str, type_id: Any, type_info: Any = None) -> None:
    """See hlokit.register_ffi_type."""
    try:
        info = 0 if type_info is None else address_of_function(type_info)
        id = address_of_function(type_id)
    except TypeError as error:
        raise BuildError(f"FFI type {name!r}: {error}") from None
    native().register_type(name, id, info)


def addresses(handler: Any) -> list[int]:
    """Addresses of a handler's functions: see register_ffi_target."""
    return [address_of_function(function) for function in _stages(handler).values()]


def _stages(handler: Any) -> Mapping[str, Any]:
    return handler if isinstance(handler, Mapping) else {"execute": handler}  # pyright: ignore[reportUnknownVariableType]


class Handler:
    """A handler as a target: called with an Invocation. `stages`: addresses of its functions by stage."""

    def __init__(self, name: str, given: Any) -> None:
        stages = _stages(given)
        unknown = set(stages) - {*layouts.STAGES, *layouts.UNCALLED_STAGES}
        if unknown or "execute" not in stages:
            known = ", ".join(layouts.STAGES)
            found = f"has the stages {', '.join(map(str, stages)) or 'none'}"
            raise BuildError(f"FFI handler {name!r} {found}; expected execute, and others of {known}")
        self.name = name
        try:
            self.stages = {stage: address_of_function(stages[stage]) for stage in layouts.STAGES if stage in stages}
        except TypeError as error:
            raise BuildError(f"FFI handler {name!r}: {error}") from None
        self.traits = 0
        self._given = given  # what capsules and ctypes functions hold stays loaded
        self._instances: weakref.WeakKeyDictionary[Instruction, _Instance] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        for stage, address in self.stages.items():
            version, traits = self._metadata(stage, address)
            if not layouts.OLDEST <= version <= (layouts.MAJOR, layouts.MINOR):
                oldest, newest = (".".join(map(str, v)) for v in (layouts.OLDEST, (layouts.MAJOR, layouts.MINOR)))
                raise BuildError(
                    f"FFI handler {name!r} ({stage}) is of version {version[0]}.{version[1]} of XLA's FFI; "
                    f"versions {oldest} to {newest} are supported"
                )
            self.traits |= traits

    def is_same(self, other: object) -> bool:
        return isinstance(other, Handler) and other.stages == self.stages

    def _metadata(self, stage: str, address: int) -> tuple[tuple[int, int], int]:
        """The version of the interface that the handler was compiled for, and its traits."""
        metadata = np.zeros(6, np.uint64)
        metadata[0:2] = layouts.METADATA_BYTES, layouts.API_VERSION_BYTES
        extension = np.array(
            [layouts.METADATA_EXTENSION_BYTES, layouts.METADATA_EXTENSION, 0, address_of(metadata)], np.uint64
        )
        frame = Frame(native().api, Attributes({}), (), ()).filled("execute", (), 0, 0, (0, 0, 0))
        frame[1], frame[3] = address_of(extension), 0
        try:
            native().call(address, address_of(frame), f"FFI handler {self.name!r} ({stage})")
        except HandlerError as error:
            raise BuildError(f"{error} (asked for its metadata)") from None
        numbers = metadata.view(np.int32)
        return (int(numbers[6]), int(numbers[7])), int(metadata.view(np.uint32)[8])

    def instantiate(self, instruction: Instruction) -> _Instance:
        """The handler for a call site: its attributes, and the state that its stage `instantiate` makes, which lives
        as long as the instruction. HandlerError as the stage says."""
        found = self._instances.get(instruction)
        if found is None:
            with self._lock:
                found = self._instances.get(instruction)
                if found is None:
                    found = self._instances[instruction] = _Instance(self, instruction)
        return found

    def __call__(self, call: Invocation) -> Any:
        """The results of one call."""
        instruction = call.device.instruction
        if instruction is None or instruction.op is not call.op:
            raise UnsupportedError(f"FFI handler {self.name!r}: called for no instruction of a program")
        return self.instantiate(instruction).call(call)


class _Instance:
    """A handler at a call site."""

    def __init__(self, handler: Handler, instruction: Instruction) -> None:
        op = instruction.op
        assert isinstance(op, CustomCall)
        self.what = f"FFI handler {handler.name!r}"
        if op.api_version != TYPED_FFI:
            raise UnsupportedError(f"{self.what}: api_version is {op.api_version}, expected {TYPED_FFI}")
        operands = [operand.shape for operand in instruction.operands]
        in_memory = op.operand_layout_constraints or map(_row_major, operands)
        self.operands = [leaf for shape in in_memory for leaf in shape.leaves()]
        self.results = list(instruction.shape.leaves())
        for shape in (*self.operands, *self.results):
            _check(self.what, shape)
        self.aliases = _aliases(op, operands, instruction.shape)
        for result, operand in self.aliases:
            of_result, of_operand = (
                [leaf for leaf in leaves if leaf.is_array][number]
                for leaves, number in ((self.results, result), (self.operands, operand))
            )
            if memory_order(of_result) != memory_order(of_operand):
                raise UnsupportedError(f"{self.what}: {of_result} and {of_operand} in one memory have other layouts")
        extra = instruction.extra
        try:
            attributes = Attributes(typed_attributes(extra.backend_config if extra is not None else ""))
        except UnsupportedError as error:
            raise UnsupportedError(f"{self.what}: {error}") from None
        self._stages = handler.stages
        self._handler = handler
        self._frame = Frame(native().api, attributes, self.operands, self.results)
        self._devices = _devices(instruction)
        self._state = _States(1)
        self._runs: weakref.WeakKeyDictionary[Any, _States] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        if "instantiate" in self._stages:
            frame = Frame(native().api, attributes, (), ())
            self._invoke("instantiate", frame, (), 0, 0, (self._state.address, 0, 0))

    def call(self, call: Invocation) -> Any:
        """The results on the operands of one call."""
        arrays = [a for a in _leaves(call.operands) if a is not None]
        held: list[Array] = []
        for array, shape in zip(arrays, (s for s in self.operands if s.is_array), strict=True):
            if array.shape != shape.dimensions:
                raise UnsupportedError(f"{self.what}: an operand has the sizes {array.shape} in {shape}")
            held.append(_in_memory(array, shape))
        shapes = [shape for shape in self.results if shape.is_array]
        results = [_memory(shape) for shape in shapes]
        for result, operand in self.aliases:
            results[result][...] = held[operand]
            held[operand] = results[result]
        data = [address_of(array) for array in (*held, *results)]
        number, run = call.device.device, _number_of(call.device.run)
        device = self._devices[number] if number < len(self._devices) else number
        states = self._states(call.device, device, data, run)
        self._invoke("execute", self._frame, data, device, run, states)
        return tree(call.shape, map(_out_of_memory, results, shapes))

    def _states(self, process: Device, device: int, data: Sequence[int], run: int) -> tuple[int, int, int]:
        """The addresses of the states of a run on a device: the first call makes them, by the stages that come before
        `execute`. They live as long as the run."""
        if "prepare" not in self._stages and "initialize" not in self._stages:
            return self._state.address, 0, 0
        with self._lock:
            found = self._runs.get(process)
        if found is not None:
            return self._state.address, found.address, found.address + 16
        made = _States(2)
        states = self._state.address, made.address, made.address + 16
        for stage in ("prepare", "initialize"):
            if stage in self._stages:
                self._invoke(stage, self._frame, data, device, run, states)
        with self._lock:
            self._runs[process] = made
        return states

    def _invoke(
        self, stage: str, frame: Frame, data: Sequence[int], device: int, run: int, states: Sequence[int]
    ) -> None:
        words = frame.filled(stage, data, device, run, states)
        what = self.what if stage == "execute" else f"{self.what} ({stage})"
        native().call(self._stages[stage], address_of(words), what)


class _States:
    """Places for the objects that handlers make, {type id, object} each, destroyed with this.

    At the interpreter's exit they stay: threads may be in a handler still.
    """

    def __init__(self, count: int) -> None:
        memory = np.zeros(2 * count, np.uint64)
        self.address = address_of(memory)
        weakref.finalize(self, _destroy, native().destroy_state, memory, count).atexit = False


def _destroy(destroy: Callable[[int], None], memory: Array, count: int) -> None:
    for i in reversed(range(count)):
        destroy(address_of(memory) + 16 * i)


_numbers = itertools.count(1)
_runs: weakref.WeakKeyDictionary[object, int] = weakref.WeakKeyDictionary()
_runs_lock = threading.Lock()


def _number_of(run: object) -> int:
    with _runs_lock:
        return _runs.setdefault(run, next(_numbers))


def _devices(instruction: Instruction) -> list[int]:
    module = instruction.parent.module if instruction.parent is not None else None
    text = module.frontend_attributes.get(DEVICES, "") if module is not None else ""
    return [int(number) for number in text.split(",")] if text else []


def _row_major(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(map(_row_major, shape.elements))
    return shape.with_layout(None) if shape.is_array else shape


def _check(what: str, shape: Shape) -> None:
    """Raises UnsupportedError for what a call frame cannot say."""
    if not (shape.is_array or shape.is_token):
        raise UnsupportedError(f"{what}: {shape} is neither an array nor a token")
    if shape.is_dynamic:
        raise UnsupportedError(f"{what}: {shape} has a dynamic dimension")
    if shape.is_array and shape.layout_or_default.tiles:
        raise UnsupportedError(f"{what}: {shape} has a tiled layout")


def _aliases(op: CustomCall, operands: Sequence[Shape], result: Shape) -> list[tuple[int, int]]:
    """(result, operand) pairs of arrays in one memory, by number among the arrays."""
    found: list[tuple[int, int]] = []
    for output_index, number, operand_index in op.output_to_operand_aliasing:
        before = sum(_arrays(shape) for shape in operands[:number])
        first = _place(result, output_index), before + _place(operands[number], operand_index)
        found += [(first[0] + i, first[1] + i) for i in range(_arrays(result.at(output_index)))]
    return found


def _arrays(shape: Shape) -> int:
    return sum(leaf.is_array for leaf in shape.leaves())


def _place(shape: Shape, index: tuple[int, ...]) -> int:
    """The number among a shape's arrays of the one at a path."""
    place = 0
    for i in index:
        place += sum(map(_arrays, shape.elements[:i]))
        shape = shape.elements[i]
    return place


def _leaves(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _leaves(part)] if isinstance(value, tuple) else [value]  # pyright: ignore[reportUnknownVariableType]


def _in_memory(array: Array, shape: Shape) -> Array:
    """An array as a handler sees it: row-major or as the layout says, at a multiple of 64 bytes.

    Elements of which a byte holds several share bytes, the first in the lowest bits,
    as in the memory of JAX's CPU client.
    """
    stored = array.transpose(memory_order(shape))
    if shape.dtype.bits >= 8 and stored.flags.c_contiguous and not address_of(stored) % _ALIGNMENT:
        return stored
    memory = _memory(shape)
    if shape.dtype.bits >= 8:
        memory[...] = stored
        return memory
    bits, count = shape.dtype.bits, 8 // shape.dtype.bits
    single = np.zeros(-(-shape.size // count) * count, np.uint8)
    single[: shape.size] = np.ascontiguousarray(stored).reshape(-1).view(np.uint8) & (1 << bits) - 1
    shifts = np.arange(0, count * bits, bits, dtype=np.uint8)
    memory[: len(single) // count] = np.bitwise_or.reduce(single.reshape(-1, count) << shifts, axis=1)
    return memory


def _out_of_memory(memory: Array, shape: Shape) -> Array:
    """The array that a handler has written."""
    if shape.dtype.bits < 8:
        bits, count = shape.dtype.bits, 8 // shape.dtype.bits
        shared = memory[: -(-shape.size // count)]
        single = shared[:, None] >> np.arange(0, count * bits, bits, dtype=np.uint8) & (1 << bits) - 1
        memory = single.reshape(-1)[: shape.size].view(shape.dtype.numpy).reshape(_sizes(shape))
    return memory.transpose(np.argsort(memory_order(shape)))


def _memory(shape: Shape) -> Array:
    """Zeros for an array; bytes for one whose elements share them, one for each as the header counts."""
    if shape.dtype.bits < 8:
        return _aligned_zeros([shape.size], np.dtype(np.uint8))
    return _aligned_zeros(_sizes(shape), shape.dtype.numpy)


def _sizes(shape: Shape) -> list[int]:
    return [shape.dimensions[d] for d in memory_order(shape)]


def _aligned_zeros(sizes: Sequence[int], dtype: np.dtype[Any]) -> Array:
    count = int(np.prod(sizes, dtype=np.int64))
    memory = np.zeros(count * dtype.itemsize + _ALIGNMENT, np.uint8)
    start = -address_of(memory) % _ALIGNMENT
    return memory[start : start + count * dtype.itemsize].view(dtype).reshape(sizes)


__all__ = ["Handler", "register_ffi_target", "register_ffi_type"]
