"""Loaded executables: programs compiled or interpreted, and their records for the machine code."""

from __future__ import annotations

import ctypes
import hashlib
import json
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hlokit import api
from hlokit.errors import ArgumentError, EvaluationError, HlokitError, ParseError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interop.jax.callbacks import Callback, calls, has_calls, inspections
from hlokit.interop.pjrt import layouts
from hlokit.interop.pjrt.buffers import BUFFER, STORAGE
from hlokit.interop.pjrt.client import KINDS, Device, devices
from hlokit.interop.pjrt.execute import ARGUMENT, DONATED, OVERWRITTEN, PROGRAM, RESULT
from hlokit.interop.pjrt.memory import Kept, immortal, read_word, view
from hlokit.interop.pjrt.native import native
from hlokit.interop.pjrt.options import Options, parse
from hlokit.interop.pjrt.running import Runner, runner
from hlokit.ops.custom import DEVICES, TYPED_FFI, CustomCall
from hlokit.runtime.arena import Buffer
from hlokit.runtime.dump import flags
from hlokit.stablehlo.lowering import MEMORY_KINDS, OTHER_LAYOUT
from hlokit.types.dtype import pred
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]
_MAGIC = b"hlokit 1\n"
WITH_CALLBACKS = "a program that calls Python functions is not serialized"


class Program:
    """A program and where it runs. `address`: of its PROGRAM. `may_call`: Python functions, else UnsupportedError."""

    def __init__(self, code: bytes, options: bytes, may_call: bool = True) -> None:
        self.code, self.serialized_options = code, options
        self.options: Options = parse(options, len(devices()))
        self.module = api.parse(code)
        if not may_call and has_calls(self.module):
            raise UnsupportedError(f"{self.module.name}: it calls Python functions of the process that serialized it")
        wanted = self.module.frontend_attributes.get(OTHER_LAYOUT)
        if wanted:
            raise UnsupportedError(f"{self.module.name}: {wanted}: arrays have one order in memory, row-major")
        watched = inspections(self.module)
        self.callbacks = [*calls(self.module), *(callback for _, callback in watched)]
        if self.options.assignment != tuple(range(self.options.count)) and _has_handlers(self.module):
            self.module.frontend_attributes[DEVICES] = ",".join(map(str, self.options.assignment))
        self.devices: tuple[Device, ...] = tuple(devices()[n] for n in self.options.assignment)
        self.kept = Kept()
        entry = self.module.entry
        self.parameters: list[Shape] = [_carried(p.shape) for p in entry.parameters]
        root = entry.root.shape
        self.is_tuple = root.is_tuple
        self.results: list[Shape] = [_carried(shape) for shape in (root.elements if root.is_tuple else [root])]
        self.donated = {a.parameter for a in self.module.input_output_alias} | {n for n, _ in self.module.buffer_donor}
        self.memory_kinds = _memory_kinds(self.module, len(self.results))
        with flags(self.options.flags):
            self.run: Runner = runner(self)
        self._show(watched)
        self.address = self._record()
        _programs[self.address] = self

    def _show(self, watched: Sequence[tuple[Instruction, Callback]]) -> None:
        """Calls those who want to know the shardings of values: of the entry's, others are whole."""
        if not watched:
            return
        from jaxlib import xla_client  # pyright: ignore

        from hlokit.interop.pjrt.optimized import known, sharding_proto
        from hlokit.interop.pjrt.propagation import shardings

        client: Any = xla_client
        found = shardings(self.module)
        for instruction, callback in watched:
            proto = client.OpSharding()
            proto.ParseFromString(sharding_proto(known(found.get(instruction))))
            callback(client.HloSharding.from_proto(proto))

    def _record(self) -> int:
        """Fills the PROGRAM, with an entry if machine code alone can run it."""
        executable = self.run.executable
        caller = executable.native if executable is not None and self.options.count == 1 else None
        overwritten = set(caller.overwritten) if caller is not None else set[int]()
        rows = bytearray()
        for number, shape in enumerate(self.parameters):
            flags = DONATED * (number in self.donated) | OVERWRITTEN * (number in overwritten)
            rows += struct.pack("3q", nbytes(shape), buffer_type(shape), flags)
        made = bytearray()
        for number, shape in enumerate(self.results):
            alias = caller.aliases.get(number, -1) if caller is not None else -1
            memory = self.devices[0].memory(self.memory_kinds[number])
            dims = self.kept.words(shape.dimensions)
            made += struct.pack("6q", nbytes(shape), buffer_type(shape), shape.rank, dims, alias, memory)
        fields = {
            "refs": 1, "arguments": len(self.parameters), "results": len(self.results),
            "argument_rows": self.kept.text(bytes(rows))[0], "result_rows": self.kept.text(bytes(made))[0],
            "replicas": self.options.replicas, "partitions": self.options.partitions,
            "device": self.devices[0].address, "donates": int(bool(self.donated or overwritten)),
        }  # fmt: skip
        if len(rows) != ARGUMENT.size * len(self.parameters) or len(made) != RESULT.size * len(self.results):
            raise AssertionError("rows")
        if caller is not None:
            self._arena = Buffer(caller.temporaries) if caller.temporaries else None
            fixed = (*caller.constants, 0, *caller.more)
            fields |= {
                "entry": caller.entry, "fixed": len(fixed), "fixed_values": self.kept.words(fixed),
                "arena_slot": len(caller.constants), "arena_size": caller.temporaries,
                "arena": self._arena.address if self._arena is not None else 0,
            }  # fmt: skip
        return self.kept.words([fields.get(name, 0) for name in PROGRAM.fields])

    @cached_property
    def name(self) -> str:
        return self.module.name

    @cached_property
    def fingerprint(self) -> str:
        """Equal for equal programs with equal options."""
        return hashlib.sha256(self.code + self.serialized_options).hexdigest()

    def serialized(self) -> bytes:
        """The program and its options. Its machine code is in hlokit's own cache.

        UnsupportedError: it calls Python functions, which another process would not find.
        """
        if self.callbacks or has_calls(self.module):
            raise UnsupportedError(f"{self.name}: {WITH_CALLBACKS}")
        head = json.dumps({"options": len(self.serialized_options), "code": len(self.code)}).encode()
        return _MAGIC + head + b"\n" + self.serialized_options + self.code

    @property
    def is_deleted(self) -> bool:
        """Calls are refused."""
        return bool(read_word(self.address + PROGRAM["deleted"]))


def _has_handlers(module: HloModule) -> bool:
    """Whether there are calls that may ask for their device's number."""
    return any(
        isinstance(instruction.op, CustomCall) and instruction.op.api_version == TYPED_FFI
        for computation in module.all_computations
        for instruction in computation.instructions
    )


def deserialized(data: bytes, options: bytes) -> Program:
    """What `serialized` wrote; `options`, where given, in place of its own.

    ParseError for anything else, UnsupportedError for a program that calls Python functions.
    """
    head, _, rest = data.removeprefix(_MAGIC).partition(b"\n")
    try:
        sizes: Any = json.loads(head) if data.startswith(_MAGIC) else {}
        counts = [int(sizes["options"]), int(sizes["code"])]
    except (ValueError, KeyError, TypeError):
        counts = [-1]
    if min(counts) < 0 or sum(counts) != len(rest):
        raise ParseError("the bytes are no executable of hlokit's")
    own = rest[: counts[0]]
    return Program(rest[len(own) :], options or own, may_call=False)


def _memory_kinds(module: HloModule, count: int) -> list[str]:
    """The kind of memory of each result. UnsupportedError for one that there is not."""
    found = module.frontend_attributes.get(MEMORY_KINDS, "")
    kinds = found.split(",") if found else ["device"] * count
    for kind in kinds:
        if kind not in KINDS:
            raise UnsupportedError(f"{module.name}: the memory kind {kind!r}: there are {', '.join(KINDS)}")
    return kinds


_programs: dict[int, Program] = {}
immortal(_programs)  # at exit handles are still out, and machine code reads the programs' constants


def program_at(address: int) -> Program:
    """The program with this handle."""
    return _programs[address]


def bury() -> None:
    """Lets go of the programs whose handles are all gone."""
    address = native().take_dead()
    while address:
        following = read_word(address + PROGRAM["next"])
        _programs.pop(address, None)
        address = following


def _carried(shape: Shape) -> Shape:
    """What a buffer holds for a value of this shape: for a token an array without elements, as JAX begins with."""
    return pred[0] if shape.is_token else shape


def nbytes(shape: Shape) -> int:
    """Bytes of an array of this shape; an element takes one at least."""
    return shape.size * shape.dtype.numpy.itemsize


def buffer_type(shape: Shape) -> int:
    """The number of its PJRT_Buffer_Type."""
    return layouts.BUFFER_TYPES.index(shape.dtype.name)


# -- buffers


def buffer_shape(buffer: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """(sizes, element type) of a buffer."""
    rank = read_word(buffer + BUFFER["rank"])
    dimensions = tuple((ctypes.c_int64 * rank).from_address(buffer + BUFFER["dims"]))
    return dimensions, numpy_type(read_word(buffer + BUFFER["type"]) & 0xFFFFFFFF)


def numpy_type(number: int) -> np.dtype[Any]:
    """NumPy's type for a PJRT_Buffer_Type."""
    from hlokit.types.dtype import DTYPES

    name = layouts.BUFFER_TYPES[number] if 0 <= number < len(layouts.BUFFER_TYPES) else "unknown"
    if name not in DTYPES or not DTYPES[name].is_array:
        raise ArgumentError(f"a buffer of {name} (type {number})")
    return DTYPES[name].numpy


def storage_view(storage: int, dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
    """The array in a storage, as long as somebody holds it."""
    return view(read_word(storage + STORAGE["data"]), dimensions, dtype)


def new_storage(array: _Array) -> int:
    """A storage with the array's elements, in row-major order."""
    storage = native().allocate(array.size * array.itemsize)
    if not storage:
        raise MemoryError(f"{array.nbytes:,} bytes")
    storage_view(storage, array.shape, array.dtype)[...] = array
    return storage


def new_buffer(storage: int, shape: Sequence[int], type: int, device: int, memory: int) -> int:
    """A buffer that takes the storage over."""
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    size = int(np.prod(shape, dtype=np.int64)) * numpy_type(type).itemsize
    return native().make_buffer(storage, device, memory, type, len(shape), ctypes.addressof(dims), size)


def execute(
    program: Program, lists: Sequence[Sequence[int]], kept: Sequence[int], places: Sequence[Device]
) -> list[list[int]]:
    """Runs the program on buffers, a list for each device; gives buffers. `kept`: arguments that are not donated."""
    if program.is_deleted:
        raise EvaluationError(f"{program.name}: the executable was deleted")
    given = [n for n in program.donated if n not in kept]
    storages: list[int] = []
    try:
        arguments = [_arguments(program, buffers, given, storages) for buffers in lists]
        results = program.run(arguments)
        made = [_buffers(program, values, place) for values, place in zip(results, places, strict=True)]
    finally:
        for storage in storages:
            native().release(storage)
    for buffers in lists:
        for number in given:
            storage = native().take(buffers[number])
            if storage:
                native().release(storage)
    return made


def _arguments(program: Program, buffers: Sequence[int], given: Sequence[int], storages: list[int]) -> list[_Array]:
    if len(buffers) != len(program.parameters):
        raise ArgumentError(f"{program.name} takes {len(program.parameters)} arguments, got {len(buffers)}")
    for number in given:
        if buffers.count(buffers[number]) > 1:
            raise ArgumentError(f"{program.name}: argument {number} is donated, and it is another argument too")
    values: list[_Array] = []
    for number, buffer in enumerate(buffers):
        storage = native().acquire(buffer)
        if not storage:
            raise ArgumentError(f"{program.name}: argument {number} was deleted or donated")
        storages.append(storage)
        values.append(storage_view(storage, *buffer_shape(buffer)))
    return values


def _buffers(program: Program, values: Sequence[Any], device: Device) -> list[int]:
    made: list[int] = []
    for number, (shape, value, kind) in enumerate(zip(program.results, values, program.memory_kinds, strict=True)):
        array = np.asarray(value)
        if array.shape != program.run.result_dimensions(number):
            raise HlokitError(f"{program.name}: a result of sizes {list(array.shape)} where {shape} was expected")
        made.append(
            new_buffer(new_storage(array), array.shape, buffer_type(shape), device.address, device.memory(kind))
        )
    return made
