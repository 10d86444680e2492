"""Loaded executables: programs compiled or interpreted, and their records for the machine code."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from hlokit.cpu.target import ALIGNMENT
from hlokit.errors import ArgumentError, EvaluationError, HlokitError
from hlokit.interop.pjrt.arrays import (
    acquired,
    buffer_shape,
    buffer_type,
    empty_storage,
    nbytes,
    new_buffer,
    new_storage,
    storage_view,
)
from hlokit.interop.pjrt.buffers import STORAGE
from hlokit.interop.pjrt.client import Device, job
from hlokit.interop.pjrt.execute import ARGUMENT, DONATED, LEVELS, OVERWRITTEN, PROGRAM, RESULT
from hlokit.interop.pjrt.kept import compiled
from hlokit.interop.pjrt.memory import Kept, immortal, read_word
from hlokit.interop.pjrt.native import native
from hlokit.interop.pjrt.programs import Program
from hlokit.interop.pjrt.running import (
    Part,
    Runner,
    backend,
    interpreted,
    is_shadowed,
    profile_file,
    traps_nan,
    watched,
    watched_kind,
)
from hlokit.interpreter.arguments import wrong_count
from hlokit.runtime.arena import Buffer, results_by
from hlokit.runtime.dump import flags
from hlokit.runtime.progress import checked, next_stage
from hlokit.types.shape import Shape

_Array = np.ndarray[Any, Any]


_NOWHERE = (0,) * 6
_MOST = 1 << 15
"""Values, times devices, of a program that machine code runs: each has words on the stack."""


def _value_rows(
    kept: Kept, shapes: Sequence[Shape], cuts: Sequence[Sequence[Part]]
) -> list[tuple[int, ...] | None]:
    """The `_value_row` of each value: most of a program's are of a few shapes."""
    known: dict[tuple[Shape, str], tuple[int, ...] | None] = {}
    rows: list[tuple[int, ...] | None] = []
    for shape, parts in zip(shapes, cuts, strict=True):
        key = shape, str(parts)  # slices have no hash before Python 3.12
        if key not in known:
            known[key] = _value_row(kept, shape, parts)
        rows.append(known[key])
    return rows


def _value_row(kept: Kept, shape: Shape, parts: Sequence[Part]) -> tuple[int, ...] | None:
    """The fields of an ARGUMENT or a RESULT that say how a value is divided, by each device's part; None for a division
    that machine code does not make."""
    numbers: dict[str, int] = {}
    part_of = [numbers.setdefault(str(part), len(numbers)) for part in parts]
    pieces = [_piece(shape, parts[device], device) for device in map(part_of.index, numbers.values())]
    if None in pieces:
        return None
    data = b"".join(struct.pack(f"{len(piece)}q", *piece) for piece in pieces if piece is not None)
    sizes = np.empty(shape.dimensions, np.void)[parts[0]].shape
    held = math.prod(sizes) * shape.dtype.numpy.itemsize
    return held, buffer_type(shape), nbytes(shape), len(pieces), kept.text(data)[0], kept.fixed_words(part_of)


def _piece(shape: Shape, part: Part, device: int) -> list[int] | None:
    """The fields of a PIECE: the blocks that a part is of, which lie in as many levels as dimensions are divided."""
    sizes = shape.dimensions
    strides = [shape.dtype.numpy.itemsize * math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
    ranges = [each.indices(size) for each, size in zip(part, sizes)]
    counts = [max(0, stop - start) for start, stop, _ in ranges]
    offset = sum(start * stride for (start, _, _), stride in zip(ranges, strides))
    inner, levels, end = nbytes(shape), list[tuple[int, int]](), 0
    for number, (count, size) in enumerate(zip(counts, sizes)):
        if count == size:
            continue
        before = math.prod(counts[end:number])
        levels.append((before, size * strides[number]))
        inner, end = count * strides[number], number
    if len(levels) > LEVELS:
        return None
    padded = [*levels, *[(1, 0)] * (LEVELS - len(levels))]
    return [device, offset, inner, *(number for level in padded for number in level)]


class Loaded:
    """A program with what runs it. `address`: of its PROGRAM."""

    def __init__(self, program: Program, run: Runner) -> None:
        self.program = program
        self.run = run
        self.kept = Kept()
        self.address = self._record()
        _loaded[self.address] = self

    def _record(self) -> int:
        """Fills the PROGRAM, with an entry if machine code alone can run it."""
        program, cuts, grid = self.program, self.run.cuts(), self.run.grid
        executable = self.run.executable if cuts is not None else None
        caller = executable.native if executable is not None and grid is None else None
        values = self.run.values()
        rows = _value_rows(self.kept, values, cuts or [[()]] * len(values))
        if grid is not None:
            caller = grid.caller
        if None in rows or len(values) * len(program.devices) > _MOST:
            caller = grid = None
        overwritten = set(caller.overwritten) if caller is not None else set[int]()
        given, made = bytearray(), bytearray()
        for number, row in enumerate(rows[: len(program.parameters)]):
            flags = DONATED * (number in program.donated) | OVERWRITTEN * (number in overwritten)
            given += struct.pack("7q", *(row or _NOWHERE), flags)
        memories = {
            kind: self.kept.fixed_words([device.memory(kind) for device in program.devices])
            for kind in set(program.memory_kinds)
        }
        for number, row in enumerate(rows[len(program.parameters) :]):
            alias = caller.aliases.get(number, -1) if caller is not None else -1
            dimensions = self.run.result_dimensions(number)
            places = self.kept.fixed_words(dimensions), alias, memories[program.memory_kinds[number]]
            made += struct.pack("10q", *(row or _NOWHERE), len(dimensions), *places)
        fields = {
            "refs": 1, "arguments": len(program.parameters), "results": len(program.results),
            "argument_rows": self.kept.text(bytes(given))[0], "result_rows": self.kept.text(bytes(made))[0],
            "replicas": program.options.replicas, "partitions": program.options.partitions,
            "devices": len(program.devices), "places": self.kept.words([device.address for device in program.devices]),
            "donates": int(bool(program.donated or overwritten)),
        }  # fmt: skip
        if len(given) != ARGUMENT.bytes * len(program.parameters) or len(made) != RESULT.bytes * len(program.results):
            raise AssertionError("the records of arguments and results are not of the sizes of ARGUMENT and RESULT")
        if caller is not None:
            lanes = grid.fixed if grid is not None else [(*caller.constants, 0, *caller.more)]
            each = -(-caller.temporaries // ALIGNMENT) * ALIGNMENT
            self._arena = Buffer(len(lanes) * each) if each else None
            fields |= {
                "entry": caller.entry, "fixed": len(lanes[0]),
                "fixed_values": self.kept.words([word for lane in lanes for word in lane]),
                "arena_slot": len(caller.constants), "arena_size": each,
                "arena": self._arena.address if self._arena is not None else 0,
                "lanes": len(lanes), "grid": grid.address if grid is not None else 0,
            }  # fmt: skip
        return self.kept.words([fields.get(name, 0) for name in PROGRAM.fields])

    @property
    def is_deleted(self) -> bool:
        """Calls are refused."""
        return bool(read_word(self.address + PROGRAM.offset("deleted")))


def load(program: Program) -> Loaded:
    """The program compiled, or to be interpreted, as the environment says."""
    with flags(program.options.flags), checked(partial(_check_processes, program)):
        next_stage()
        run = _runner(program)
        next_stage()
    _show_shardings(program)
    return Loaded(program, run)


def _check_processes(program: Program) -> None:
    """Raises EvaluationError if one of the processes that would run the program is gone."""
    if program.is_spread:
        job().world.check(f"compiles {program.name}")


def _runner(program: Program) -> Runner:
    if program.options.count > 1 or not program.own:
        from hlokit.interop.pjrt.callbacks_of_parts import call_with_parts
        from hlokit.interop.pjrt.shards import on_devices

        if program.callbacks:
            call_with_parts(program.module, program.options.partitions)
        return on_devices(program)
    if watched_kind():
        return watched(program)
    if backend() == "interpreter" or is_shadowed():
        return interpreted(program)
    if traps_nan():
        raise ArgumentError(
            "HLOKIT_TRAP_NAN requires HLOKIT_BACKEND=interpreter; HLOKIT_DEBUG=first-nan finds the NaN of a program"
        )
    if profile_file():
        from hlokit.interop.pjrt.profiled import profiled

        return profiled(program)
    return compiled(program)


def _show_shardings(program: Program) -> None:
    """Calls those who want to know the shardings of values: of the entry's, others are whole."""
    if not program.inspections:
        return
    from jaxlib import xla_client  # pyright: ignore

    from hlokit.interop.pjrt.propagation import shardings
    from hlokit.interop.pjrt.sharding_proto import known, sharding_proto

    client: Any = xla_client
    found = shardings(program.module)
    for instruction, callback in program.inspections:
        proto = client.OpSharding()
        proto.ParseFromString(sharding_proto(known(found.get(instruction))))
        callback(client.HloSharding.from_proto(proto))


_loaded: dict[int, Loaded] = {}
immortal(_loaded)  # at exit handles are still out, and machine code reads the programs' constants


def loaded_at(address: int) -> Loaded:
    """The executable with this handle."""
    return _loaded[address]


def bury() -> None:
    """Lets go of the executables whose handles are all gone."""
    address = native().take_dead()
    while address:
        following = read_word(address + PROGRAM.offset("next"))
        _loaded.pop(address, None)
        address = following


def execute(
    loaded: Loaded, lists: Sequence[Sequence[int]], kept: Sequence[int], places: Sequence[Device]
) -> list[list[int]]:
    """Runs the program on buffers, a list for each device; gives buffers. `kept`: arguments that are not donated."""
    program, overwritten = loaded.program, loaded.run.overwritten
    if loaded.is_deleted:
        raise EvaluationError(f"{program.name}: the executable was deleted")
    given = [n for n in program.donated if n not in kept]
    memory = _Memory()
    try:
        arguments = [_arguments(program, buffers, given, memory) for buffers in lists]
        for values in arguments if overwritten else ():
            loaded.run.check(values)  # while no buffer has been taken
        for values, buffers in zip(arguments, lists, strict=True):
            for number in overwritten:
                values[number] = memory.owned(values[number], native().take(buffers[number]) if number in given else 0)
        with results_by(memory.made):
            results = loaded.run(arguments)
        made = [_buffers(loaded, values, place, memory.own) for values, place in zip(results, places, strict=True)]
    finally:
        memory.release()
    for buffers in lists:
        for number in given:
            storage = native().take(buffers[number])
            if storage:
                native().release(storage)
    return made


class _Memory:
    """The storages that a call holds, each as often as it is in `_held`.

    own   those that it may write to, by their data's addresses: a result that lies there needs no copy
    """

    def __init__(self) -> None:
        self._held: dict[int, list[int]] = {}
        self.own: dict[int, int] = {}

    def hold(self, storage: int) -> int:
        """Takes over a reference to a storage; gives the address of its data."""
        address = read_word(storage + STORAGE.offset("data"))
        self._held.setdefault(address, []).append(storage)
        return address

    def made(self, dimensions: tuple[int, ...], dtype: np.dtype[Any]) -> _Array:
        """An array for a result, with anything in it."""
        storage = empty_storage(math.prod(dimensions) * dtype.itemsize)
        self.own[self.hold(storage)] = storage
        return storage_view(storage, dimensions, dtype)

    def owned(self, value: _Array, taken: int) -> _Array:
        """The array of an argument that the program overwrites, or a copy. `taken`: the buffer's reference to its
        storage if it is donated, else 0; what is copied is not held any longer."""
        address = self.hold(taken) if taken else 0
        if taken and _is_own(taken):
            self.own[address] = taken
            return value
        copy = self.made(value.shape, value.dtype)
        copy[...] = value
        if taken:
            for _ in range(2):  # its buffer's reference and this call's; other arguments may have more
                native().release(self._held[address].pop())
        return copy

    def release(self) -> None:
        """Holds nothing any more."""
        for storages in self._held.values():
            for storage in storages:
                native().release(storage)
        self._held.clear()


def _arguments(program: Program, buffers: Sequence[int], given: Sequence[int], memory: _Memory) -> list[_Array]:
    if len(buffers) != len(program.parameters):
        raise wrong_count(program.name, len(program.parameters), buffers)
    for number in given:
        if buffers.count(buffers[number]) > 1:
            raise ArgumentError(f"{program.name}: argument {number} is donated, but is also passed as another argument")
    values: list[_Array] = []
    for number, buffer in enumerate(buffers):
        storage = acquired(buffer)
        if not storage:
            raise ArgumentError(f"{program.name}: argument {number} was deleted or donated")
        memory.hold(storage)
        values.append(storage_view(storage, *buffer_shape(buffer)))
    return values


def _is_own(storage: int) -> bool:
    """Whether a storage that was taken from its buffer is held by this call alone (twice), and its memory is ours."""
    words = (read_word(storage + STORAGE.offset(name)) for name in ("refs", "event", "callback"))
    return tuple(words) == (2, 0, 0)


def _buffers(loaded: Loaded, values: Sequence[Any], device: Device, own: dict[int, int]) -> list[int]:
    """Buffers of a device's results. `own`: storages in which results may lie, by their data's addresses."""
    program = loaded.program
    made: list[int] = []
    for number, (shape, value, kind) in enumerate(zip(program.results, values, program.memory_kinds, strict=True)):
        array = np.asarray(value)
        if array.shape != loaded.run.result_dimensions(number):
            raise HlokitError(f"{program.name}: a result of sizes {list(array.shape)} where {shape} was expected")
        storage = own.pop(array.__array_interface__["data"][0], 0) if own else 0
        if storage:
            native().hold(storage)
        else:
            storage = new_storage(array)
        made.append(new_buffer(storage, array.shape, buffer_type(shape), device.address, device.memory(kind)))
    return made
