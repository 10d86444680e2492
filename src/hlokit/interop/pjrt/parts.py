"""Programs with shardings in parts: each device runs the partitioned program on its own shards.

A program that cannot be divided, or that takes longer so in one process, runs on whole values (shards.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.analysis.cost import cost_of_module, costs_of_instructions
from hlokit.cpu.target import available_threads
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.module import HloModule
from hlokit.interop.pjrt.client import job
from hlokit.interop.pjrt.programs import Program
from hlokit.interop.pjrt.running import Runner, callable_of
from hlokit.passes.partitioner import Partitioned, partition
from hlokit.passes.partitioner.propagation import stated
from hlokit.runtime.log import logger
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
        self._call = callable_of(found.module, 1, options.partitions, donate=None, threads=options.threads)
        self.executable = getattr(self._call, "executable", None)
        self.overwritten = self.executable.plan.overwritten if self.executable is not None else ()

    def __call__(self, arguments: Sequence[Sequence[_Array]]) -> Sequence[Sequence[_Array]]:
        if self.program.is_spread:
            placement = job().placed([device.process for device in self.program.devices])
            return [self._listed(result) for result in self._call(*arguments, world=placement)]
        return [self._listed(result) for result in self._call(*arguments)]

    def shardings(self) -> tuple[Sequence[Sharding | None], Sequence[Sharding | None]]:
        return self._given, self._made

    def result_dimensions(self, number: int) -> tuple[int, ...]:
        return self._local[number].dimensions


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


def divided(program: Program, made: Sequence[Sharding | None], regions: bool) -> Divided:
    """The program in parts, whose results lie as `made` says; `regions`: devices run parts of it by themselves."""
    if program.options.replicas != 1:
        return Divided(None, f"{program.options.replicas} replicas")
    if mode() == "whole":
        return Divided(None, "HLOKIT_PARTITION=whole")
    if program.callbacks:
        return Divided(None, "it calls Python functions")
    try:
        module = program.read(keeps_regions=True) if regions else program.module
        whole = Sharding("replicated")
        given = [None if stated(parameter) else whole for parameter in module.entry.parameters]
        found = partition(module, in_shardings=given, out_shardings=[sharding or whole for sharding in made])
    except HlokitError as error:
        return Divided(None, str(error))
    except Exception as error:  # a fault of the partitioner's is to be known, and is no reason not to run the program
        logger().warning("%s: the partitioner failed: %s: %s", program.name, type(error).__name__, error)
        return Divided(None, f"{type(error).__name__}: {error}")
    shapes = [*program.parameters, *program.results]
    places = [*found.in_shardings, *found.out_shardings]
    if len(shapes) != len(places) or any(not shape.is_array for shape in shapes):
        return Divided(None, "a parameter or a result that is not an array")
    counts = [[np.prod([p.mesh.size_of(a) for a in d.axes], dtype=int) for d in p.dimensions] for p in places]
    if any(n % count for shape, row in zip(shapes, counts, strict=True) for n, count in zip(shape.dimensions, row)):
        return Divided(None, "a parameter or a result in parts of several sizes")
    return Divided(found)


def pays(program: Program, found: Partitioned, meets: bool) -> bool:
    """Whether the parts take less time than whole values, on the cores of this process.

    Whole values are computed once by all cores, and what is divided is put together and cut; or, where devices meet,
    they are computed by each device. Parts are computed by all devices, which take turns on the cores, and what is
    moved is copied.
    """
    threads = program.options.threads or available_threads()
    count = program.options.partitions
    whole, part = program.module, found.module
    times = count if meets else 1
    shapes, places = [*program.parameters, *program.results], [*found.in_shardings, *found.out_shardings]
    copied = [shape for shape, place in zip(shapes, places) if meets or any(d.axes for d in place.dimensions)]
    seconds = times * _seconds(whole) / threads + 2 * sum(map(_nbytes, copied)) / _MEMORY
    seconds += times * _moved(whole) + _OF_A_CALL if meets else 0.0
    return count * (_seconds(part) / min(threads, count) + _moved(part) + _OF_A_DEVICE) < seconds


_FLOPS, _MEMORY = 2e10, 1e10
"""Operations, and bytes of memory, a second of a core: about those of small kernels."""
_OF_A_CALL, _OF_A_DEVICE = 50e-6, 100e-6
"""Seconds that a call through Python takes besides, and a device of it."""
_OF_A_MEETING = 10e-6


def _seconds(module: HloModule) -> float:
    cost = cost_of_module(module)
    return cost.flops / _FLOPS + cost.bytes_accessed / _MEMORY


def _moved(module: HloModule) -> float:
    """Seconds that a device's collectives take; loops count once."""
    seconds = 0.0
    for instruction in costs_of_instructions(module):
        if instruction.op.communication.is_collective:
            seconds += _OF_A_MEETING + sum(map(_nbytes, instruction.shape.leaves())) / _MEMORY
    return seconds


def _nbytes(shape: Shape) -> float:
    return shape.size * shape.dtype.bits / 8 if shape.is_array else 0.0
