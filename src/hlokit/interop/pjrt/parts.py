"""Programs with shardings in parts: each device runs the partitioned program on its own shards.

A program that cannot be divided, or that takes longer so in one process, runs on whole values (shards.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.analysis.cost import costs_of_instructions
from hlokit.analysis.loops import runs
from hlokit.cpu.target import available_threads
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.module import HloModule
from hlokit.interop.pjrt.client import job
from hlokit.interop.pjrt.programs import Program
from hlokit.interop.pjrt.running import Part, Runner, callable_of
from hlokit.ops.custom import DEVICES
from hlokit.passes.partitioner import Partitioned, partition, propagated, take_out_of_groups
from hlokit.passes.partitioner.placement import Placement
from hlokit.passes.partitioner.propagation import stated
from hlokit.runtime.devices import DeviceExecutable
from hlokit.runtime.log import logger
from hlokit.runtime.progress import next_stage
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_Array = np.ndarray[Any, Any]

REASON = "hlokit.whole_values"
"""The attribute of a module's text that says why the program runs on whole values."""
MODES = ("auto", "parts", "whole")


class InParts(Runner):
    """Runs the program of a device on all of them, each on its own shards.

    given, made   shardings of the parameters and of the results
    """

    def __init__(
        self, program: Program, found: Partitioned, given: Sequence[Sharding | None], made: Sequence[Sharding | None]
    ) -> None:
        super().__init__(program)
        self.module = found.module
        self._given, self._made = given, made
        root = found.module.entry.root.shape
        self._local: Sequence[Shape] = root.elements if root.is_tuple else [root]
        options = program.options
        next_stage()
        self._call = callable_of(found.module, 1, options.partitions, donate=None, threads=options.threads)
        self.executable = getattr(self._call, "executable", None)
        self.overwritten = self.executable.plan.overwritten if self.executable is not None else ()
        if isinstance(self._call, DeviceExecutable) and not program.is_spread:
            self.grid = self._call.grid

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        if self.program.is_spread:
            placement = job().placed([device.process for device in self.program.devices])
            return [self._listed(result) for result in self._call(*arguments, world=placement)]
        return [self._listed(result) for result in self._call(*arguments)]

    def shardings(self) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
        return self._given, self._made

    def result_dimensions(self, number: int) -> tuple[int, ...]:
        return self._local[number].dimensions

    def values(self) -> list[Shape]:
        return [*(parameter.shape for parameter in self.module.entry.parameters), *self._local]

    def cuts(self) -> list[list[Part]] | None:
        if self.grid is None:
            return None
        return [[(slice(None),) * shape.rank] * self.program.options.partitions for shape in self.values()]


@dataclass(frozen=True)
class Divided:
    """A program in parts, or `why` it is not."""

    found: Partitioned | None
    why: str = ""


def mode() -> str:
    """HLOKIT_PARTITION: auto, parts or whole."""
    found = os.environ.get("HLOKIT_PARTITION", "auto")
    if found not in MODES:
        raise ArgumentError(f"HLOKIT_PARTITION={found!r}: expected one of {', '.join(MODES)}")
    return found


def _module(program: Program, regions: bool) -> HloModule:
    """The module as the partitioner takes it. An argument that is not said to lie anywhere JAX gives whole."""
    module = program.read(keeps_regions=True) if regions else program.module.clone()
    for parameter in module.entry.parameters:
        if not stated(parameter):
            parameter.ensure_extra().sharding = Sharding("replicated")
            take_out_of_groups(parameter)
    return module


def result_shardings(program: Program, regions: bool) -> list[Sharding | None]:
    """The shardings of the results as propagation has them, in parts of one size. `regions`: devices run
    parts of the program by themselves.

    HlokitError: propagation does not take the program.
    """
    module = _module(program, regions)
    found = propagated(module)
    made: list[Sharding | None] = []
    for placement, shape in zip(found.results, module.entry.root.shape.leaves(), strict=True):
        sizes = shape.dimensions if shape.is_array else ()
        dimensions = [
            next((p for p in (parts[:count] for count in range(len(parts), 0, -1)) if n % found.grid.count(p) == 0), ())
            for parts, n in zip(placement.dimensions, sizes)
        ]
        made.append(found.grid.sharding(Placement(tuple(dimensions))).tiled() if any(dimensions) else None)
    return made


def divided(program: Program, made: Sequence[Sharding | None], regions: bool) -> Divided:
    """The program in parts, whose results lie as `made` says; `regions`: devices run parts of it by themselves."""
    if program.options.replicas != 1:
        return Divided(None, f"{program.options.replicas} replicas")
    if mode() == "whole":
        return Divided(None, "HLOKIT_PARTITION=whole")
    if program.callbacks and not program.is_spread:  # on whole values there are fewer calls
        return Divided(None, "it calls Python functions")
    try:
        module = _module(program, regions)
        found = partition(module, out_shardings=[sharding or Sharding("replicated") for sharding in made])
    except HlokitError as error:
        return Divided(None, str(error))
    except Exception as error:  # a fault of the partitioner is to be known, and is no reason not to run the program
        logger().warning("%s: the partitioner failed: %s: %s", program.name, type(error).__name__, error)
        return Divided(None, f"{type(error).__name__}: {error}")
    shapes = [*program.parameters, *program.results]
    places = [*found.in_shardings, *found.out_shardings]
    if len(shapes) != len(places) or any(not shape.is_array for shape in shapes):
        return Divided(None, "a parameter or a result that is not an array")
    counts = [[np.prod([p.mesh.size_of(a) for a in d.axes], dtype=int) for d in p.dimensions] for p in places]
    if any(n % count for shape, row in zip(shapes, counts, strict=True) for n, count in zip(shape.dimensions, row)):
        return Divided(None, "a parameter or a result in parts of several sizes")
    if DEVICES in module.frontend_attributes:
        found.module.frontend_attributes[DEVICES] = module.frontend_attributes[DEVICES]
    return Divided(found)


def pays(program: Program, found: Partitioned, meets: bool) -> bool:
    """Whether the parts take less time than whole values, on the cores of this process.

    Whole values are computed once by all cores, and what is divided is put together and cut; or, where devices meet,
    they are computed by each device. Parts are computed by all devices, which take turns on the cores, and what is
    moved is copied.
    """
    threads = program.options.threads or available_threads()
    count = program.options.partitions
    turns, each = count / min(threads, count), max(1, threads // count)
    meeting = _MEETING if count <= threads else _MEETING_IN_TURNS
    shapes, places = [*program.parameters, *program.results], [*found.in_shardings, *found.out_shardings]
    copied = [shape for shape, place in zip(shapes, places) if any(d.axes for d in place.dimensions)]
    if meets:
        seconds = turns * (_seconds(program.module, each, meeting) + _OF_A_DEVICE)
    else:
        seconds = _seconds(program.module, threads, meeting)
    seconds += 2 * sum(map(_nbytes, copied)) / _MEMORY
    return turns * (_seconds(found.module, each, meeting) + _OF_A_DEVICE) < seconds


# Fitted to steps of ten models on 2, 4 and 8 devices of a Zen 4's two cores (bench/partitioned.py): the choice is the
# faster one in all 30.
_FLOPS, _BYTES, _MEMORY = 8e10, 5e11, 6.5e9
"""Operations a second of a core; bytes of instructions, most of which are fused or in caches; bytes that are copied."""
_SHARED, _OF_A_JOB, _UNEVEN = 4e-6, 4e-6, 0.35
"""Seconds of work from which threads share an instruction's; what that takes besides; the part by which its share of
the work takes longer than it would alone."""
_OF_A_DEVICE = 11e-6
"""Seconds that a device takes besides."""
_MEETING, _MEETING_IN_TURNS = 1e-6, 25e-6
"""Seconds that devices take to meet, each on its core, or each in its turn on one."""


def _seconds(module: HloModule, threads: int, meeting: float) -> float:
    """Seconds that a module takes on so many threads, whose collectives take `meeting` besides what they move."""
    costs, seconds = costs_of_instructions(module), 0.0
    for computation, times in runs(module).items():
        for instruction in computation.instructions:
            cost = costs[instruction]
            alone = cost.flops / _FLOPS + cost.bytes_accessed / _BYTES
            if instruction.op.communication.is_collective:
                seconds += times * (meeting + sum(map(_nbytes, instruction.shape.leaves())) / _MEMORY)
            elif instruction.op.form != "control":
                is_shared = threads > 1 and alone >= _SHARED
                seconds += times * (alone / threads * (1 + _UNEVEN) + _OF_A_JOB if is_shared else alone)
    return seconds


def _nbytes(shape: Shape) -> float:
    return shape.size * shape.dtype.bits / 8 if shape.is_array else 0.0
