"""Programs on several devices: whole values are assembled from the devices' shards and divided into shards again.

A module of several partitions has whole values at its entry, with HLO shardings that say which device has which part
(stablehlo/lowering.py); of unreduced ones each partition has a term. What does not ask for its device or talk to others
runs once for all partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from hlokit.errors import ArgumentError, HlokitError, UnsupportedError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.interop.pjrt.parts import (
    REASON,
    Divided,
    InParts,
    divided,
    mode,
    pays,
    result_shardings,
)
from hlokit.interop.pjrt.programs import Program
from hlokit.interop.pjrt.propagation import shardings
from hlokit.interop.pjrt.running import Part, Runner, callable_of
from hlokit.ops.control_flow import Call
from hlokit.passes.call_inliner import CallInliner
from hlokit.passes.partitioner import Partitioned
from hlokit.runtime.log import logger
from hlokit.stablehlo.shardings import groups_to_sum
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_Array = np.ndarray[Any, Any]


def parts(sharding: Sharding | None, shape: Shape, partitions: int) -> list[Part]:
    """The part of a value that each partition has. The last parts may be smaller, or empty."""
    if sharding is None or sharding.kind != "tiled":
        return [(slice(None),) * shape.rank] * partitions
    tile = sharding.tile[: shape.rank]
    ids = np.array(sharding.device_ids()).reshape(sharding.tile)
    if len(sharding.tile) < shape.rank or ids.size != partitions or sorted(ids.flat) != list(range(partitions)):
        raise ArgumentError(f"the sharding {sharding} of {shape} on {partitions} partitions")
    found: list[Part] = [()] * partitions
    for index in product(*map(range, tile)):
        part = tuple(map(_part, index, tile, shape.dimensions))
        for device in ids[index].flat:
            found[int(device)] = part
    return found


def _part(index: int, count: int, size: int) -> slice:
    step = -(-size // count)
    return slice(min(size, index * step), min(size, (index + 1) * step))


def is_cut(sharding: Sharding | None) -> bool:
    """Whether devices have different parts."""
    return sharding is not None and sharding.kind == "tiled"


def whole(shards: Sequence[_Array], where: Sequence[Part], shape: Shape) -> _Array:
    """The value that the shards are of. ArgumentError if one has not the sizes of its part."""
    value: _Array = np.empty(shape.dimensions, shape.dtype.numpy)
    for shard, part in zip(shards, where, strict=True):
        if value[part].shape != shard.shape:
            raise ArgumentError(
                f"a shard of sizes {list(shard.shape)} where {list(value[part].shape)} of {shape} belong"
            )
        value[part] = shard
    return value


class OnDevices(Runner):
    """Runs a program on its replicas and partitions.

    call    runs the module as hlokit.evaluate does: on all devices, or on one with `alone`
    made    shardings of the results
    terms   for each parameter the groups of partitions whose shards are terms of its value
    alone   no device meets another: what runs once stands for all partitions
    """

    def __init__(
        self, program: Program, call: Any, terms: Sequence[Any], alone: bool, made: Sequence[Sharding | None]
    ) -> None:
        super().__init__(program)
        module, options = program.module, program.options
        self._replicas, self._partitions = options.replicas, options.partitions
        self._shardings = [_sharding(p) for p in module.entry.parameters]
        self._made = made
        self._call, self._terms, self._alone = call, terms, alone
        if alone and hasattr(call, "memory_analysis"):
            self.executable = call

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        count = self._partitions
        groups = [arguments[r * count : (r + 1) * count] for r in range(self._replicas)]
        values = [self._whole(group) for group in groups]
        if self._alone:
            results = [self._listed(self._call(*v[0])) for v in values]
            return [shard for result in results for shard in self._shards([result] * count)]
        made = [self._listed(r) for r in self._call(*(lists for v in values for lists in v))]
        return [shard for r in range(self._replicas) for shard in self._shards(made[r * count : (r + 1) * count])]

    def _whole(self, lists: Sequence[Sequence[_Array]]) -> list[list[_Array]]:
        """The arguments of one replica's partitions."""
        values: list[list[_Array]] = [[] for _ in lists]
        for number, (shape, sharding) in enumerate(zip(self.program.parameters, self._shardings, strict=True)):
            shards = [arguments[number] for arguments in lists]
            where = parts(sharding, shape, self._partitions)
            for group in self._alike(number):
                devices = group if is_cut(sharding) else group[:1]
                value = whole([shards[d] for d in devices], [where[d] for d in devices], shape)
                for device in group:
                    values[device].append(value)
        return values

    def _alike(self, number: int) -> list[list[int]]:
        """The partitions whose shards make up one array: all, or those that have the same term of the argument."""
        terms = self._terms[number]
        if not terms:
            return [list(range(self._partitions))]
        return [sorted(devices) for devices in zip(*terms, strict=True)]

    def _shards(self, results: Sequence[Sequence[Any]]) -> list[list[_Array]]:
        """The parts of the results that each partition has."""
        made: list[list[_Array]] = [[] for _ in results]
        for number, (shape, sharding) in enumerate(zip(self.program.results, self._made, strict=True)):
            where = parts(sharding, shape, self._partitions)
            for device, result in enumerate(results):
                made[device].append(np.asarray(result[number])[where[device]])
        return made

    def cuts(self) -> list[list[Part]] | None:
        if not self._alone or self._replicas > 1:
            return None
        shapes = [*self.program.parameters, *self.program.results]
        placed = zip([*self._shardings, *self._made], shapes, strict=True)
        return [parts(sharding, shape, self._partitions) for sharding, shape in placed]

    def shardings(self) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
        return self._shardings, self._made

    def result_dimensions(self, number: int) -> tuple[int, ...]:
        """The sizes that every device has of a result."""
        return _local(self._made[number], self.program.results[number], self._partitions)


class Elsewhere(Runner):
    """A program of devices that only other processes have: here there is nothing to run.

    given, made   shardings of the parameters and of the results
    """

    def __init__(self, program: Program, given: Sequence[Sharding | None], made: Sequence[Sharding | None]) -> None:
        super().__init__(program)
        self._given, self._made = given, made

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        return []

    def shardings(self) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
        return self._given, self._made

    def result_dimensions(self, number: int) -> tuple[int, ...]:
        return _local(self._made[number], self.program.results[number], self.program.options.partitions)


def _local(sharding: Sharding | None, shape: Shape, partitions: int) -> tuple[int, ...]:
    """The sizes of a device's part of a value."""
    return np.empty(shape.dimensions, np.void)[parts(sharding, shape, partitions)[0]].shape


def on_devices(program: Program) -> Runner:
    """A function that runs the program on its devices, compiled or in the interpreter: in parts or on whole values.

    Its text is that of a part wherever the program can be divided, else it says why not.
    """
    module, options = program.module, program.options
    terms = [groups_to_sum(_sharding(p), options.partitions) for p in module.entry.parameters]
    alone = not meets(module) and not any(terms)
    given = [_sharding(p) for p in module.entry.parameters]
    stated = _stated_results(module)
    has_terms = any(s is not None and "unreduced" in (s.kind, *s.last_tile_dims) for s in (*given, *(stated or ())))
    has_regions = not alone or has_terms
    found = stated or _propagated(program, has_regions) or _forward(module)
    made = [_usable(s, shape) for s, shape in zip(found, program.results, strict=True)]
    if not program.own:
        return Elsewhere(program, given, made)
    split = divided(program, made, has_regions)
    if split.found is not None and (number := _elsewhere(program, split.found, [*given, *made])) is not None:
        why = f"value {number} of parameters and results does not lie as JAX expects it"
        logger().warning("%s: %s: a fault of the partitioner", module.name, why)
        split = Divided(None, why)
    if split.found is None and program.is_spread:
        raise UnsupportedError(f"{module.name}: several processes run it, each its own parts: {split.why}")
    if split.found is not None and (program.is_spread or mode() == "parts" or pays(program, split.found, not alone)):
        return InParts(program, split.found, given, made)
    counts = (1, 1) if alone else (options.replicas, options.partitions)
    donate = None if alone else ()  # whole values are the call's own
    call = callable_of(module, *counts, donate=donate, threads=options.threads)
    runner = OnDevices(program, call, terms, alone, made)
    if split.found is not None:
        runner.module = split.found.module
    else:
        logger().info("%s runs on whole values: %s", module.name, split.why)
        runner.module = module.clone()
        runner.module.frontend_attributes[REASON] = split.why
    return runner


def _elsewhere(program: Program, found: Partitioned, expected: Sequence[Sharding | None]) -> int | None:
    """The number of the first value whose parts lie elsewhere than where JAX puts and looks for them."""
    count, shapes = program.options.partitions, [*program.parameters, *program.results]
    for number, (shape, wanted, place) in enumerate(
        zip(shapes, expected, [*found.in_shardings, *found.out_shardings], strict=True)
    ):
        if not place.unreduced and parts(wanted, shape, count) != parts(place.tiled(), shape, count):
            return number
    return None


def meets(module: HloModule) -> bool:
    """Whether devices talk to each other, or ask which they are."""
    return any(
        instruction.op.form == "communicate" or instruction.op.asks_device
        for computation in module.all_computations
        for instruction in computation.instructions
    )


def _sharding(instruction: Instruction) -> Sharding | None:
    found = instruction.extra.sharding if instruction.extra is not None else None
    return found.placed() if found is not None else None


def _stated_results(module: HloModule) -> list[Sharding | None] | None:
    """The shardings of the results as the root says."""
    found = _sharding(module.entry.root)
    if found is None:
        return None
    return list(found.elements) if found.kind == "tuple" else [found]


def _propagated(program: Program, has_regions: bool) -> list[Sharding | None] | None:
    """The shardings of the results by the partitioner's propagation; None for a program that it does not take."""
    if program.options.replicas != 1 or program.callbacks:
        return None
    try:
        return result_shardings(program, has_regions)
    except HlokitError as error:
        logger().info("%s: results lie as their operands do: %s", program.name, error)
    except Exception as error:  # as in `divided`
        logger().warning("%s: propagation failed: %s: %s", program.name, type(error).__name__, error)
    return None


def _forward(module: HloModule) -> list[Sharding | None]:
    """The shardings of the results as the operands of what computes them have them."""
    module = _without_calls(module)
    root = module.entry.root
    known = shardings(module)
    if not root.shape.is_tuple:
        return [known[root]]
    if root.opcode != "tuple":
        return [None] * len(root.shape.elements)
    return [known[operand] for operand in root.operands]


def _without_calls(module: HloModule) -> HloModule:
    """The module, or a copy of it in which functions stand where they are called: their operations pass on where values
    are."""
    if not any(isinstance(i.op, Call) for computation in module.all_computations for i in computation.instructions):
        return module
    copy = module.clone()
    CallInliner().run(copy)
    return copy


def _usable(sharding: Sharding | None, shape: Shape) -> Sharding | None:
    """The sharding if JAX can have it: parts of one size."""
    if sharding is None or sharding.kind != "tiled":
        return sharding
    if len(sharding.tile) < shape.rank or any(size % count for size, count in zip(shape.dimensions, sharding.tile)):
        return None
    return sharding
