"""What each device runs by itself: values of the whole program are cut into the devices' shards, and put together.

The operations around run on whole values, the same on every device. Shardy has regions for it
(sdy.manual_computation), GSPMD pairs of custom calls (SPMDFullToShardShape, SPMDShardToFullShape).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlokit.builder import collectives, movement
from hlokit.builder.core import XlaOp
from hlokit.ops.collectives import AllGather
from hlokit.ops.elementwise import Copy
from hlokit.ops.slicing import DynamicSlice
from hlokit.stablehlo.shardings import Cut, Placement, cut_along, cuts_of, placements, sharding_at
from hlokit.stablehlo.site import Rule, Site
from hlokit.types import dtype as dtypes
from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import Shape

_CHANNEL = 1
_NAMES = re.compile(r'"([^"]*)"')


def manual_computation(site: Site) -> list[XlaOp]:
    """The region on each device's shards of the operands, cut along the manual axes; its results become whole again."""
    names = _NAMES.findall(_text(site, "manual_axes"))
    given = _placements(site, "in_shardings", len(site.operands))
    shards = [_shard(site, v, _cuts(site, p, names)) for v, p in zip(site.operands, given, strict=True)]
    local = inlined(site, shards)
    made = _placements(site, "out_shardings", len(local))
    whole = [_whole(site, v, _cuts(site, p, names)) for v, p in zip(local, made, strict=True)]
    for value, part, placement in zip(whole, local, made, strict=True):
        if value is not part:
            _wish(value, placement)
    return whole


def constrained(site: Site) -> list[XlaOp]:
    """sdy.sharding_constraint: the value itself, which knows where it is wanted."""
    (value,) = site.exactly(1)
    found = placements(_text(site, "sharding"), site.scope.lowering.program.meshes)
    if len(found) == 1:
        _wish(value, found[0])
    return [value]


WISH = "hlokit.sharding"
"""The frontend attribute of a whole value that says how the program would have it on the devices."""


def _wish(value: XlaOp, placement: Placement) -> None:
    if "unreduced" not in placement.rest:
        value.instruction.ensure_extra().frontend_attributes[WISH] = str(sharding_at(placement))


def inlined(site: Site, operands: Sequence[XlaOp]) -> list[XlaOp]:
    """The operations of the region, in place."""
    block = site.region(0)
    if len(block.arguments) != len(operands):
        raise site.error(f"{site.name}: {len(block.arguments)} arguments for {len(operands)} operands")
    inner = site.scope.inline()
    for (name, declared), operand in zip(block.arguments, operands, strict=True):
        site.check_type(declared, operand, name)
        inner.define(name, [operand], block.start, [declared])
    return inner.results(block, None, site.operation.start)


def _text(site: Site, name: str) -> str:
    value = site.get(name, default="")
    return str(getattr(value, "value", value))


def _placements(site: Site, name: str, count: int) -> list[Placement]:
    found = placements(_text(site, name), site.scope.lowering.program.meshes)
    if len(found) != count:
        raise site.error(f"{site.name}: {name} has {len(found)} shardings for {count} values")
    return found


def _cuts(site: Site, placement: Placement, names: Sequence[str]) -> dict[int, Cut]:
    """How each dimension is cut along the manual axes; along others values stay whole."""
    count, mesh = site.scope.lowering.partitions, placement.mesh
    if mesh.axes and len(mesh.devices) != count:
        raise site.error(f"{site.name}: a mesh of {len(mesh.devices)} devices among {count} partitions")
    cuts: dict[int, Cut] = {}
    for d, axes in enumerate(placement.dimensions):
        cut = cut_along(mesh, [axis for axis in axes if axis.name in names])
        if cut.count > 1:
            cuts[d] = cut
    return cuts


def _shard(site: Site, value: XlaOp, cuts: Mapping[int, Cut]) -> XlaOp:
    """The block of a whole value that belongs to the device."""
    if not cuts:
        return value
    sizes = _sizes(site, value, cuts)
    device = collectives.partition_id(site.builder)
    starts = [site.builder.constant(np.uint32(0))] * len(sizes)
    for d, cut in cuts.items():
        if sizes[d] % cut.count:
            raise site.unsupported(f"dimension {d} of {value.shape} in {cut.count} parts, which do not divide it")
        sizes[d] //= cut.count
        table = site.builder.constant((cut.part * sizes[d]).astype(np.uint32))
        starts[d] = movement.reshape(site.emit(DynamicSlice((1,)), table, device), dtypes.u32[()])
    return site.emit(DynamicSlice(tuple(sizes)), value, *starts)


def _whole(site: Site, value: XlaOp, cuts: Mapping[int, Cut]) -> XlaOp:
    """The devices' shards put together."""
    sizes = _sizes(site, value, cuts)
    for d, cut in reversed(list(cuts.items())):
        sizes[d] *= cut.count
        shape = Shape.array(value.dtype, sizes)
        value = site.emit(AllGather(**_meeting(site, cut), dimension=d, result=shape), value, shape=shape)
    return value


def _sizes(site: Site, value: XlaOp, cuts: Mapping[int, Cut]) -> list[int]:
    if not cuts:
        return []
    if not value.shape.is_array or value.shape.is_dynamic or value.rank <= max(cuts):
        raise site.error(f"{site.name}: {value.shape} cut along dimension {max(cuts)}")
    return list(value.shape.dimensions)


def _meeting(site: Site, cut: Cut) -> dict[str, Any]:
    """The groups of the cut in each replica, by global device ids."""
    partitions = site.scope.lowering.partitions
    replicas = range(site.scope.lowering.replicas)
    groups = [[r * partitions + device for device in group] for r in replicas for group in cut.groups]
    found = ReplicaGroups.explicit(groups)
    channel = site.scope.lowering.channel(_CHANNEL, site.name, found)
    return {"channel_id": channel, "replica_groups": found, "use_global_device_ids": True}


def sharded(site: Site) -> XlaOp:
    """@Sharding: the value itself, whose sharding the conversions to and from shards ask for."""
    return site.emit(Copy(), *site.exactly(1))


def full_to_shard(site: Site) -> XlaOp:
    """@SPMDFullToShardShape: the device's shard by the operand's sharding."""
    (value,) = site.exactly(1)
    extra = value.instruction.extra
    sharding = extra.sharding if extra is not None else None
    return _shard(site, value, _ratios(site, sharding, value.shape, site.array_result()))


def shard_to_full(site: Site) -> XlaOp:
    """@SPMDShardToFullShape: the whole value by the sharding that the call has."""
    (value,) = site.exactly(1)
    sharding = site.scope.lowering.sharding(site.operation.attributes, False, site.operation.start)
    return _whole(site, value, _ratios(site, sharding, site.array_result(), value.shape))


def _ratios(site: Site, sharding: Any, whole: Shape, part: Shape) -> dict[int, Cut]:
    """The cuts that make `part` of `whole`: a dimension of one size in both stays whole."""
    if whole.rank != part.rank or not whole.is_array or whole.dtype is not part.dtype:
        raise site.error(f"{site.name}: {part} is no part of {whole}")
    cuts = cuts_of(sharding, whole.rank) if sharding is not None else []
    found: dict[int, Cut] = {}
    for d, (size, local) in enumerate(zip(whole.dimensions, part.dimensions, strict=True)):
        if size == local:
            continue
        if not cuts or cuts[d].count * local != size:
            raise site.error(f"{site.name}: the sharding {sharding} does not make {part} of {whole}")
        if cuts[d].part.size != site.scope.lowering.partitions:
            count = site.scope.lowering.partitions
            raise site.error(f"{site.name}: a sharding over {cuts[d].part.size} devices among {count} partitions")
        found[d] = cuts[d]
    return found


CUSTOM_CALLS: dict[str, Rule] = {
    "SPMDFullToShardShape": full_to_shard,
    "SPMDShardToFullShape": shard_to_full,
    "Sharding": sharded,
}
