"""Meshes, their axes and the shardings along them, read from and written to protos."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlokit.errors import ParseError
from hlokit.proto.enums import name_of, number_of
from hlokit.types.groups import ReplicaGroups
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding


def mesh_to_proto(mesh: Mesh, proto: Any) -> None:
    for name, size in mesh.axes:
        proto.axes.add(name=name, size=size)
    proto.device_ids.extend(mesh.devices)
    if mesh.reshape:
        proto.iota_transform.reshape_dims.extend(mesh.reshape)
        proto.iota_transform.transpose_perm.extend(mesh.transpose)


def mesh_from_proto(proto: Any) -> Mesh:
    axes = [(axis.name, axis.size) for axis in proto.axes]
    if proto.HasField("iota_transform"):
        return Mesh.make(axes, (), proto.iota_transform.reshape_dims, proto.iota_transform.transpose_perm)
    return Mesh.make(axes, proto.device_ids)


def named_sharding_to_proto(named: NamedSharding, proto: Any) -> None:
    mesh = named.mesh
    proto.mesh.SetInParent()
    mesh_to_proto(mesh, proto.mesh)
    for dimension in named.dimensions:
        out = proto.dim_shardings.add(is_closed=not dimension.is_open)
        _axes_to_proto(dimension.axes, mesh, out.axes)
    _axes_to_proto(named.replicated, mesh, proto.replicated_axes)
    _axes_to_proto(named.unreduced, mesh, proto.unreduced_axes)
    _axes_to_proto(named.manual, mesh, proto.manual_axes)
    proto.reduction_op = number_of("sharding reduction", named.reduction)


def named_sharding_from_proto(proto: Any) -> NamedSharding:
    mesh = mesh_from_proto(proto.mesh)
    return NamedSharding(
        mesh,
        tuple(DimensionSharding(_axes_from_proto(d.axes, mesh), not d.is_closed) for d in proto.dim_shardings),
        _axes_from_proto(proto.replicated_axes, mesh),
        _axes_from_proto(proto.unreduced_axes, mesh),
        str(name_of("sharding reduction", proto.reduction_op)),
        _axes_from_proto(proto.manual_axes, mesh),
    )


def groups_along_to_proto(mesh: Mesh, axes: Iterable[Axis], proto: Any) -> None:
    proto.mesh.SetInParent()
    mesh_to_proto(mesh, proto.mesh)
    _axes_to_proto(axes, mesh, proto.axes)


def groups_along_from_proto(proto: Any) -> ReplicaGroups:
    mesh = mesh_from_proto(proto.mesh)
    return ReplicaGroups.along(mesh, _axes_from_proto(proto.axes, mesh))


def _axes_to_proto(axes: Iterable[Axis], mesh: Mesh, proto: Any) -> None:
    numbers = {name: number for number, (name, _) in enumerate(mesh.axes)}
    for axis in axes:
        out = proto.add(mesh_axis_index=numbers[axis.name])
        if axis.is_part:
            out.sub_axis_info.pre_size, out.sub_axis_info.size = axis.pre, axis.size


def _axes_from_proto(protos: Iterable[Any], mesh: Mesh) -> tuple[Axis, ...]:
    axes: list[Axis] = []
    for proto in protos:
        if not 0 <= proto.mesh_axis_index < len(mesh.axes):
            raise ParseError(f"proto: the axis {proto.mesh_axis_index} of {mesh}", label="HMESH-3")
        number: int = proto.mesh_axis_index
        name = mesh.axes[number][0]
        if not proto.HasField("sub_axis_info"):
            axes.append(Axis(name))
            continue
        part = proto.sub_axis_info
        if part.size < 2:
            raise ParseError(f"proto: a part of size {part.size} of the axis {name!r}", label="HMESH-3")
        axes.append(Axis(name, part.pre_size, part.size))
    return tuple(axes)
