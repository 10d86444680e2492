"""Writing steps of reshards: collectives, slices and masks, on the parts that a device has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hlokit.builder import collectives, constants, elementwise, indexing, movement
from hlokit.builder.core import Builder, XlaOp
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.slicing import DynamicSlice, DynamicUpdateSlice
from hlokit.passes.partitioner.placement import Grid, Parts, Placement
from hlokit.passes.partitioner.plan import Step
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.groups import ReplicaGroups


@dataclass
class Emission:
    """Emits into one computation.

    channel   gives the next channel's number
    record    is told of each collective: its instruction and step
    """

    grid: Grid
    builder: Builder
    channel: Callable[[], int]
    record: Callable[[Instruction, Step], None]
    _places: dict[Parts, XlaOp] = field(default_factory=dict[Parts, XlaOp])

    def place(self, parts: Parts) -> XlaOp:
        """The device's place along the parts, a scalar s32."""
        if parts not in self._places:
            device = collectives.partition_id(self.builder)
            table = self.builder.constant(self.grid.places(parts).astype(np.int32))
            row = self.builder.emit(DynamicSlice((1,)), [table, device])
            self._places[parts] = movement.reshape(row, ())
        return self._places[parts]

    def looked_up(self, parts: Parts, values: Sequence[int]) -> XlaOp:
        """The value of the device's place along the parts, a scalar s32."""
        if len(set(values)) == 1:
            return self.builder.constant(np.int32(values[0]))
        table = self.builder.constant(np.array(values, np.int32)[self.grid.places(parts)])
        row = self.builder.emit(DynamicSlice((1,)), [table, collectives.partition_id(self.builder)])
        return movement.reshape(row, ())

    def moved(self, value: XlaOp, sizes: tuple[int, ...], step: Step, combiner: Computation | None = None) -> XlaOp:
        """The value after a step of its reshard; `sizes`: of the whole value."""
        if step.kind == "slice":
            return self._slice(value, sizes, step)
        groups = ReplicaGroups.explicit(self.grid.groups(step.parts))
        count = self.grid.count(step.parts)
        options: dict[str, Any] = {"replica_groups": groups, "channel_id": self.channel()}
        d = step.dimension
        if step.kind == "all-gather":
            found = collectives.all_gather(value, d, count, **options, use_global_device_ids=True)
        elif step.kind == "all-to-all":
            found = collectives.all_to_all(value, d, step.source, count, **options)
        elif step.kind == "collective-permute":
            found = collectives.collective_permute(value, self._pairs(step), options["channel_id"])
        elif step.kind == "all-reduce":
            by = combiner or addition(value.dtype)
            found = collectives.all_reduce(value, by, **options, use_global_device_ids=True)
        else:
            by = combiner or addition(value.dtype)
            found = collectives.reduce_scatter(value, by, d, count, **options, use_global_device_ids=True)
        self.record(_collective(found.instruction), step)
        wanted = self.grid.local(sizes, step.after)
        return (
            found
            if found.shape.dimensions == wanted
            else indexing.slice(found, [0] * len(wanted), wanted, [1] * len(wanted))
        )

    def _slice(self, value: XlaOp, sizes: tuple[int, ...], step: Step) -> XlaOp:
        """The device's part of a dimension; of a size that does not divide, of the padded one."""
        d, count = step.dimension, self.grid.count(step.parts)
        now = list(value.shape.dimensions)
        part = -(-now[d] // count)
        if part * count != now[d]:
            padding = [(0, part * count - now[d] if i == d else 0, 0) for i in range(len(now))]
            value = movement.pad(value, constants.zero(self.builder, value.dtype), padding)
        starts = [self.builder.constant(np.int32(0))] * len(now)
        starts[d] = self.place(step.parts) * self.builder.constant(np.int32(part))
        now[d] = part
        return self.builder.emit(DynamicSlice(tuple(now)), [value, *starts])

    def _pairs(self, step: Step) -> list[tuple[int, int]]:
        """From each device to one that wants its part; a device that has what it wants keeps it."""
        pairs: list[tuple[int, int]] = []
        for group in self.grid.groups(step.parts):  # along other axes devices may have other values
            has, wants = self._blocks(step.before, group), self._blocks(step.after, group)
            for block, holders in has.items():
                takers = wants[block]
                kept = [device for device in holders if device in takers]
                pairs += [(device, device) for device in kept]
                pairs += zip([h for h in holders if h not in kept], [t for t in takers if t not in kept], strict=True)
        return sorted(pairs)

    def _blocks(self, placement: Placement, group: Sequence[int]) -> dict[tuple[int, ...], list[int]]:
        """The devices of a group that have each block."""
        places = [self.grid.places(parts) for parts in placement.dimensions]
        found: dict[tuple[int, ...], list[int]] = {}
        for device in group:
            found.setdefault(tuple(int(p[device]) for p in places), []).append(device)
        return found

    def masked(self, value: XlaOp, sizes: tuple[int, ...], placement: Placement, d: int, neutral: Any) -> XlaOp:
        """The value with `neutral` where a dimension that parts do not divide is padded."""
        local = value.shape.dimensions
        parts = placement.dimensions[d]
        start = self.place(parts) * self.builder.constant(np.int32(local[d]))
        numbers = self.builder.iota(dtypes.s32[local], d) + movement.broadcast(start, local)
        inside = numbers < movement.broadcast(self.builder.constant(np.int32(sizes[d])), local)
        other = movement.broadcast(self.builder.constant(neutral, value.dtype), local)
        return elementwise.select(inside, value, other)

    def spread(self, value: XlaOp, d: int, parts: Parts) -> XlaOp:
        """The value where the device's place along the parts is in a larger one, which is zero elsewhere."""
        local = list(value.shape.dimensions)
        size, local[d] = local[d], local[d] * self.grid.count(parts)
        zeros = movement.broadcast(constants.zero(self.builder, value.dtype), local)
        starts = [self.builder.constant(np.int32(0))] * len(local)
        starts[d] = self.place(parts) * self.builder.constant(np.int32(size))
        return self.builder.emit(DynamicUpdateSlice(), [zeros, value, *starts])

    def term(self, value: XlaOp, parts: Parts) -> XlaOp:
        """The value on the first device along the parts, zeros on the others: they sum up to it."""
        first = self.place(parts) == self.builder.constant(np.int32(0))
        zeros = movement.broadcast(constants.zero(self.builder, value.dtype), value.shape.dimensions)
        return elementwise.select(movement.broadcast(first, value.shape.dimensions), value, zeros)


def _collective(instruction: Instruction) -> Instruction:
    """The collective itself, of which the builder's function gives an element."""
    while instruction.op.form != "communicate":
        instruction = instruction.operands[0]
    return instruction


def addition(dtype: DType) -> Computation:
    """The sum of two scalars; of preds, which one of them is true."""
    inner = Builder("sum", source_info=False)
    x, y = inner.parameter(0, dtype[()], "x"), inner.parameter(1, dtype[()], "y")
    return inner.build_computation(elementwise.or_(x, y) if dtype is dtypes.pred else elementwise.add(x, y))
