"""StableHLO's collectives."""

from __future__ import annotations

from typing import Any

from hlokit.builder import collectives as build
from hlokit.builder.core import XlaOp
from hlokit.ops.collectives import AllGather, AllReduce, CollectiveReduce, ReduceScatter
from hlokit.ops.exchanges import RaggedAllToAll
from hlokit.stablehlo.shardings import mesh_of
from hlokit.stablehlo.site import Rule, Site
from hlokit.stablehlo.tree import Dense, DialectAttribute, Symbol
from hlokit.types.groups import ReplicaGroups
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.shape import Shape


def _groups(site: Site) -> ReplicaGroups:
    """dense<[[0, 1], [2, -1]]>: -1 fills up shorter groups; or the axes of a mesh that the groups lie along."""
    given = site.get("replica_groups", default=())
    if isinstance(given, DialectAttribute):
        return _groups_along(site, given)
    rows = site.matrix("replica_groups", default=())
    return ReplicaGroups.explicit([tuple(i for i in row if i >= 0) for row in rows])


def _groups_along(site: Site, given: DialectAttribute) -> ReplicaGroups:
    """#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "x">]>."""
    parameters = site.parameters("replica_groups")
    axes = parameters.get("axes")
    if not given.name.endswith("replica_group_mesh_axes") or not isinstance(axes, list):
        raise site.error(f"{site.name}: replica_groups are lists of devices, or axes of a mesh")
    listed: list[Any] = axes  # pyright: ignore[reportUnknownVariableType]
    return ReplicaGroups.along(_mesh(site, parameters.get("mesh")), [_axis(site, a) for a in listed])


def _mesh(site: Site, given: Any) -> Mesh:
    """@mesh, or #stablehlo.mesh<axes = [#stablehlo.mesh_axis<name = "x", size = 2>], device_ids = [..]>."""
    if isinstance(given, Symbol):
        meshes = site.scope.lowering.program.meshes
        if given.name not in meshes:
            raise site.error(f"{site.name}: the mesh @{given.name} is not defined")
        return mesh_of(meshes[given.name])
    mesh = site.as_parameters(given, "mesh")
    axes: Any = mesh.get("axes")
    if not isinstance(axes, list):
        raise site.error(f"{site.name}: a mesh is #stablehlo.mesh<axes = [..]>")
    named = [site.as_parameters(axis, "axes") for axis in axes]  # pyright: ignore[reportUnknownVariableType]
    written = ", ".join(f'"{axis.get("name")}"={site.each_integer([axis.get("size")], "size")[0]}' for axis in named)
    if "device_ids" in mesh:
        written += f"], device_ids={list(site.as_integers(mesh['device_ids'], 'device_ids'))}"
    return mesh_of(f"[{written}]")


def _axis(site: Site, given: Any) -> Axis:
    """#stablehlo.axis_ref<name = "x", sub_axis_info = #stablehlo.sub_axis_info<pre_size = 1, size = 2>>."""
    axis = site.as_parameters(given, "replica_groups")
    part = site.as_parameters(axis.get("sub_axis_info", {}), "replica_groups")
    pre, size = site.each_integer([part.get("pre_size", 1), part.get("size", 0)], "sub_axis_info")
    return Axis(str(axis.get("name")), pre, size)


def _channel(site: Site, *rendezvous: Any) -> int | None:
    """The channel for a rendezvous of this kind; None for one across replicas."""
    if not site.has("channel_handle"):
        return None
    handle = site.each_integer([site.parameters("channel_handle").get("handle", 0)], "channel_handle")[0]
    return site.scope.lowering.channel(handle, site.name, *rendezvous) if handle > 0 else None


def _common(site: Site) -> dict[str, Any]:
    site.operand(0)
    is_global = site.get("use_global_device_ids", default=False) is not False
    groups = _groups(site)
    return {
        "channel_id": _channel(site, groups, is_global),
        "replica_groups": groups,
        "use_global_device_ids": is_global,
    }


def _result(site: Site) -> Shape:
    shapes = site.results
    return shapes[0] if len(shapes) == 1 else Shape.tuple(shapes)


def _all_gather(site: Site) -> list[XlaOp]:
    common, result = _common(site), _result(site)
    op = AllGather(**common, dimension=site.integer("all_gather_dim"), result=result)
    return site.unpacked(site.emit(op, *site.operands, shape=result), len(site.operands))


def _all_reduce(site: Site) -> list[XlaOp]:
    common, operands = _common(site), site.promoted(site.operands)
    called = (site.reducer(operands[:1]),)
    return site.unpacked(site.emit(AllReduce(**common), *operands, called=called), len(operands))


def _collective_reduce(site: Site) -> list[XlaOp]:
    """The sum, or what the region computes, on the root of each group; zeros on the others."""
    has_roots = _has_roots(site)
    op = CollectiveReduce(**_common(site), has_dynamic_root=has_roots)
    data = site.promoted(site.operands[:-1] if has_roots else site.operands)
    root = site.operands[-1:] if has_roots else []
    return site.unpacked(site.emit(op, *data, *root, called=(site.reducer(data[:1]),)), len(data))


def _has_roots(site: Site) -> bool:
    return site.get("has_dynamic_root", default=False) is not False


def _reduce_scatter(site: Site) -> list[XlaOp]:
    common, result = _common(site), _result(site)
    op = ReduceScatter(**common, dimension=site.integer("scatter_dimension"), result=result)
    operands = site.promoted(site.operands)
    called = (site.reducer(operands[:1]),)
    return site.unpacked(site.emit(op, *operands, called=called, shape=result), len(operands))


def _all_to_all(site: Site) -> list[XlaOp]:
    site.operand(0)
    split, concat, count = (site.integer(name) for name in ("split_dimension", "concat_dimension", "split_count"))
    groups, given = _groups(site), site.get("replica_groups")
    if isinstance(given, Dense) and given.shape.rank == 2 and given.shape.dimensions[1] != count:
        raise site.error(f"{site.name}: groups of {given.shape.dimensions[1]} devices, expected split_count, {count}")
    return [build.all_to_all(o, split, concat, count, groups, None, _channel(site, groups)) for o in site.operands]


def _collective_permute(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    given = site.get("source_target_pairs")
    if isinstance(given, Dense) and given.shape.rank != 2:
        raise site.error(f"{site.name}: source_target_pairs is not a matrix, found {given.shape}")
    pairs = site.pairs("source_target_pairs")
    return build.collective_permute(operand, pairs, _channel(site, tuple(pairs)))


def _collective_broadcast(site: Site) -> list[XlaOp]:
    groups, has_roots = _groups(site), _has_roots(site)
    site.operand(0)
    results = build.collective_broadcast(site.operands, groups, _channel(site, groups), has_roots)
    return site.unpacked(results, len(site.operands) - has_roots)


def _ragged_all_to_all(site: Site) -> XlaOp:
    """A custom call: groups and channel are in its configuration."""
    config: Any = site.get("backend_config", default={})
    if not isinstance(config, dict):
        raise site.error(f"{site.name}: the configuration of ragged_all_to_all is a dictionary")
    site.operation.attributes["replica_groups"] = config.get("replica_groups", ())  # pyright: ignore[reportUnknownMemberType]
    handle = site.each_integer([config.get("channel_id", 0)], "channel_id")[0]  # pyright: ignore[reportUnknownMemberType]
    groups = _groups(site)
    channel = site.scope.lowering.channel(handle, site.name, groups) if handle > 0 else None
    return site.emit(RaggedAllToAll(channel, groups), *site.exactly(6))


def _cross_replica_sum(site: Site) -> XlaOp:
    (operand,) = site.exactly(1)
    return build.cross_replica_sum(operand, _groups(site))


def _replica_id(site: Site) -> XlaOp:
    return build.replica_id(site.builder)


def _partition_id(site: Site) -> XlaOp:
    return build.partition_id(site.builder)


RULES: dict[str, Rule] = {
    "all_gather": _all_gather,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "collective_broadcast": _collective_broadcast,
    "collective_permute": _collective_permute,
    "collective_reduce": _collective_reduce,
    "cross-replica-sum": _cross_replica_sum,
    "partition_id": _partition_id,
    "reduce_scatter": _reduce_scatter,
    "replica_id": _replica_id,
}

CUSTOM_CALLS: dict[str, Rule] = {"ragged_all_to_all": _ragged_all_to_all}
"""Rules by the target's name."""
