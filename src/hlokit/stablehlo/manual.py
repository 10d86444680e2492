"""Manual regions: values of the whole program are divided into shards and assembled again.

The operations around run on whole values, the same on every device. Shardy has regions for it
(sdy.manual_computation), GSPMD pairs of custom calls (SPMDFullToShardShape, SPMDShardToFullShape).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hlokit.builder.core import XlaOp
from hlokit.errors import ShapeError
from hlokit.hlo.instruction import Instruction
from hlokit.ops.collectives import AllGather
from hlokit.ops.control_flow import Call
from hlokit.ops.custom import CustomCall
from hlokit.ops.elementwise import Copy
from hlokit.ops.structure import Parameter
from hlokit.stablehlo.partial import groups_along, shard, within
from hlokit.stablehlo.shardings import (
    Cut,
    Placement,
    cut_along,
    cuts_of,
    groups_to_sum,
    placements,
    sharding_along,
    sharding_at,
)
from hlokit.stablehlo.site import Rule, Site
from hlokit.types.mesh import Axis
from hlokit.types.shape import Shape
from hlokit.types.sharding import Sharding

_GROUP = re.compile(r"group_id\s*=\s*([0-9]{1,18})")
_NAMES = re.compile(r'"([^"]*)"')


def manual_computation(site: Site) -> list[XlaOp]:
    """The region on each device's shards of the operands, cut along the manual axes; its results become whole again."""
    names = _NAMES.findall(_text(site, "manual_axes"))
    given = _placements(site, "in_shardings", len(site.operands))
    if site.scope.lowering.keeps_regions:
        return _kept(site, given, [Axis(name) for name in names])
    shards = [_local(site, v, within(p, names), names) for v, p in zip(site.operands, given, strict=True)]
    local = inlined(site, shards)
    made = _placements(site, "out_shardings", len(local))
    whole = [_whole(site, v, _cuts(site, p, names)) for v, p in zip(local, made, strict=True)]
    for i, (part, placement) in enumerate(zip(local, made, strict=True)):
        inner = within(placement, names)
        whole[i] = site.scope.lowering.terms.summed(whole[i], groups_along(inner.mesh, inner.unreduced))
        if whole[i] is not part:
            _place(site, whole[i], placement)
    return whole


def _kept(site: Site, given: Sequence[Placement], axes: Sequence[Axis]) -> list[XlaOp]:
    """The region between conversions of whole values to shards and back, as XLA writes them."""
    names = [axis.name for axis in axes]
    shards: list[XlaOp] = []
    for value, placement in zip(site.operands, given, strict=True):
        wanted = _said(site.emit(Copy(), value), sharding_along(placement))
        sizes = list(value.shape.dimensions) if value.shape.is_array else []
        for d, cut in _cuts(site, placement, names).items():
            if sizes[d] % cut.count:
                raise site.unsupported(f"dimension {d} of {value.shape} in {cut.count} parts, which do not divide it")
            sizes[d] //= cut.count
        part = Shape.array(value.dtype, sizes) if value.shape.is_array else value.shape
        shard = boundary(site, TO_SHARD, wanted, part)
        shards.append(_said(shard, sharding_along(_free(placement, names), axes)))
    local = inlined(site, shards)
    made = _placements(site, "out_shardings", len(local))
    whole: list[XlaOp] = []
    for value, placement, shape in zip(local, made, site.results, strict=True):
        part = _said(site.emit(Copy(), value), sharding_along(_free(placement, names), axes))
        full = boundary(site, TO_WHOLE, part, shape)
        whole.append(_said(full, sharding_along(placement)))
    return whole


def prioritize(instruction: Instruction, placement: Placement) -> None:
    """Keeps the priorities of the dimensions of a value's sharding."""
    if placement.priorities:
        attributes = instruction.ensure_extra().frontend_attributes
        attributes[PRIORITIES] = ",".join(map(str, placement.priorities))


def _said(value: XlaOp, sharding: Sharding) -> XlaOp:
    value.instruction.ensure_extra().sharding = sharding
    return value


def _free(placement: Placement, names: Sequence[str]) -> Placement:
    """A shard's placement along the axes that are not manual."""
    dimensions = tuple(tuple(axis for axis in axes if axis.name not in names) for axes in placement.dimensions)
    unreduced = tuple(axis for axis in placement.unreduced if axis.name not in names)
    replicated = tuple(axis for axis in placement.replicated if axis.name not in names)
    return Placement(placement.mesh, dimensions, unreduced, placement.open, replicated)


def _local(site: Site, value: XlaOp, placement: Placement, names: Sequence[str]) -> XlaOp:
    """The shard that each device has of a whole value."""
    groups = groups_along(placement.mesh, placement.unreduced)
    term = site.scope.lowering.terms.term(value, groups, placement)
    return _shard(site, term, _cuts(site, placement, names))


def constrained(site: Site, name: str = "sharding") -> list[XlaOp]:
    """sdy.sharding_constraint, sdy.reshard: the value, known to be wanted there; a copy of a parameter, a call or a
    value that is elsewhere. `name`: of the property that says where, if no sharding is written behind the value."""
    (value,) = site.exactly(1)
    words = [word for word in site.operation.words if isinstance(word, str)] if name == "sharding" else []
    found = placements(words[0] if words else _text(site, name), site.scope.lowering.program.meshes)
    if len(found) == 1 and site.scope.lowering.keeps_regions:
        if len(found[0].open) == value.rank > 0 and not any(found[0].dimensions) and not found[0].unreduced:
            return [value]
        said = _said(site.emit(Copy(), value), sharding_along(found[0]))
        prioritize(said.instruction, found[0])
        return [said]
    if len(found) == 1:
        # what is said of a parameter or a call is lost where it is inlined
        is_inlined = isinstance(value.instruction.op, (Parameter, Call))
        if is_inlined or value.instruction in site.scope.lowering.terms.placed:
            value = site.emit(Copy(), value)
        _place(site, value, found[0])
    return [value]


def grouped(site: Site) -> list[XlaOp]:
    """sdy.sharding_group: the values of a group lie alike. The value, known to be of the group."""
    (value,) = site.exactly(1)
    words = " ".join(str(word) for word in site.operation.words)
    number = _GROUP.search(words)
    id = number[1] if number is not None else str(site.integer("group_id"))
    attributes = value.instruction.ensure_extra().frontend_attributes
    attributes[GROUPS] = ",".join([*filter(None, [attributes.get(GROUPS)]), id])
    return [value]


TO_SHARD, TO_WHOLE = "SPMDFullToShardShape", "SPMDShardToFullShape"
"""Targets of the custom calls at the ends of a region that devices run by themselves."""
BARRIER_FROM, BARRIER_TO = "ShardBarrierFrom", "ShardBarrierTo"
"""Targets of custom calls that give their operand: from it no axes go on to their result, or from that to it."""
GROUPS = "hlokit.sharding_groups"
"""The frontend attribute with the numbers of the groups whose values lie as this one."""
WISH = "hlokit.sharding"
"""The frontend attribute of a whole value that says how the program would have it on the devices."""
PRIORITIES = "hlokit.sharding_priorities"
"""The frontend attribute with the priority of each dimension of a sharding, 0 first."""
OPEN = "hlokit.open_dimensions"
"""The frontend attribute with the numbers of the dimensions that may be cut otherwise, where WISH does not cut them."""


def _place(site: Site, value: XlaOp, placement: Placement) -> None:
    site.scope.lowering.terms.placed[value.instruction] = placement
    prioritize(value.instruction, placement)
    if not placement.unreduced:
        attributes = value.instruction.ensure_extra().frontend_attributes
        attributes[WISH] = str(sharding_at(placement))
        if placement.open:
            attributes[OPEN] = ",".join(map(str, placement.open))


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
    """The cuts of each dimension along the manual axes; along others values stay whole."""
    count, mesh = site.scope.lowering.partitions, placement.mesh
    if mesh.axes and mesh.size != count:
        raise site.error(f"{site.name}: a mesh of {mesh.size} devices among {count} partitions")
    cuts: dict[int, Cut] = {}
    for d, axes in enumerate(placement.dimensions):
        cut = cut_along(mesh, [axis for axis in axes if axis.name in names])
        if cut.count > 1:
            cuts[d] = cut
    return cuts


def _shard(site: Site, value: XlaOp, cuts: dict[int, Cut]) -> XlaOp:
    """The block of a whole value that belongs to the device."""
    sizes = _sizes(site, value, cuts)
    for d, cut in cuts.items():
        if sizes[d] % cut.count:
            raise site.unsupported(f"dimension {d} of {value.shape} in {cut.count} parts, which do not divide it")
    return shard(value, cuts)


def _whole(site: Site, value: XlaOp, cuts: Mapping[int, Cut]) -> XlaOp:
    """The devices' shards put together."""
    terms = site.scope.lowering.terms
    sizes = _sizes(site, value, cuts)
    for d, cut in reversed(list(cuts.items())):
        sizes[d] *= cut.count
        shape = Shape.array(value.dtype, sizes)
        if not value.shape.size:
            value = site.builder.constant(np.zeros(sizes, value.dtype.numpy))
            continue
        op = AllGather(**terms.attributes(site.name, cut.groups), dimension=d, result=shape)
        value = site.emit(op, value, shape=shape)
    return value


def _sizes(site: Site, value: XlaOp, cuts: Mapping[int, Cut]) -> list[int]:
    if not cuts:
        return []
    if not value.shape.is_array or value.shape.is_dynamic or value.rank <= max(cuts):
        raise site.error(f"{site.name}: {value.shape} cut along dimension {max(cuts)}")
    return list(value.shape.dimensions)


def sharded(site: Site) -> XlaOp:
    """@Sharding: the value itself, whose sharding the conversions to and from shards ask for."""
    return site.emit(Copy(), *site.exactly(1))


def full_to_shard(site: Site) -> XlaOp:
    """@SPMDFullToShardShape: the device's shard by the operand's sharding."""
    (value,) = site.exactly(1)
    if site.scope.lowering.keeps_regions:
        return boundary(site, TO_SHARD, value, site.array_result())
    extra = value.instruction.extra
    sharding = extra.sharding if extra is not None else None
    _refuse_sums(site, sharding)
    return _shard(site, value, _ratios(site, sharding, value.shape, site.array_result()))


def shard_to_full(site: Site) -> XlaOp:
    """@SPMDShardToFullShape: the whole value by the sharding that the call has."""
    (value,) = site.exactly(1)
    if site.scope.lowering.keeps_regions:
        return boundary(site, TO_WHOLE, value, site.array_result())
    sharding = site.scope.lowering.sharding(site.operation.attributes, False, site.operation.start)
    _refuse_sums(site, sharding)
    return _whole(site, value, _ratios(site, sharding, site.array_result(), value.shape))


def boundary(site: Site, target: str, value: XlaOp, shape: Shape) -> XlaOp:
    """The custom call to a target that a partitioner knows: an end of a region, a barrier."""
    attributes: dict[str, Any] = {"custom_call_target": target, "output_shape": shape}
    return site.emit(CustomCall(**attributes), value, shape=shape)


def _refuse_sums(site: Site, sharding: Sharding | None) -> None:
    if groups_to_sum(sharding, site.scope.lowering.partitions):
        raise site.unsupported(f"the unreduced sharding {sharding}: say it in Shardy's attributes")


def _ratios(site: Site, sharding: Any, whole: Shape, part: Shape) -> dict[int, Cut]:
    """The cuts that make `part` of `whole`: a dimension of one size in both stays whole."""
    if whole.rank != part.rank or not whole.is_array or whole.dtype is not part.dtype:
        raise site.error(f"{site.name}: {part} is not part of {whole}")
    try:
        cuts = cuts_of(sharding, whole.rank) if sharding is not None else []
    except ShapeError as error:
        raise site.error(str(error)) from None
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
    TO_SHARD: full_to_shard,
    TO_WHOLE: shard_to_full,
    "Sharding": sharded,
}
