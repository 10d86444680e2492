"""Shardings of StableHLO values: axes of a mesh in Shardy's attributes, XLA's own text in mhlo.sharding."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from hlokit.errors import ParseError, ShapeError, UnsupportedError
from hlokit.stablehlo.tree import DialectAttribute
from hlokit.text.groups import parse_sharding
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding, Sharding

_Array: TypeAlias = np.ndarray[Any, Any]

_PLACEMENT = re.compile(
    r"<\s*(?:@\"?([\w$.\-]+)\"?|mesh<([^<>]*)>)\s*,\s*\[([^\[\]]*)\]([^<>\[\]]*)>|(?<=[<,])\s*@\"?([\w$.\-]+)\"?\s*>"
)
_DIMENSION = re.compile(r"\{([^{}]*)\}(?:p([0-9]{1,9}))?")
_AXIS = re.compile(r'"([^"]*)"(?:\s*:\s*\(\s*([0-9]{1,9})\s*\)\s*([0-9]{1,9}))?')
_MESH_AXIS = re.compile(r'"([^"]*)"\s*=\s*([0-9]{1,9})')
_DEVICES = re.compile(r"device_ids\s*=\s*\[([0-9,\s]*)\]")
_UNREDUCED = re.compile(r"\bunreduced\s*=\s*(\w*)\s*\{([^{}]*)\}")
_REPLICATED = re.compile(r"\breplicated\s*=\s*\{([^{}]*)\}")
_MOST_DEVICES = 1 << 16


@dataclass(frozen=True, slots=True)
class Placement:
    """The axes that each dimension is cut along, major to minor; and those over which the devices' values are summed.

    `unreduced`, in the mesh's order: the value is the sum of what the devices along these axes have. `open`: the
    dimensions that may be cut along more axes (`{?}`). `replicated`: axes that no dimension may be cut along.
    `priorities` of the dimensions (`{"x"}p1`): () where all are 0, the first.
    """

    mesh: Mesh
    dimensions: tuple[tuple[Axis, ...], ...]
    unreduced: tuple[Axis, ...] = ()
    open: tuple[int, ...] = ()
    replicated: tuple[Axis, ...] = ()
    priorities: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raises ShapeError for an axis that the mesh lacks."""
        for axis in (*self.unreduced, *self.replicated, *(axis for axes in self.dimensions for axis in axes)):
            self.mesh.factored([axis])


@dataclass(frozen=True, slots=True)
class Cut:
    """A division of one dimension among devices.

    count    of the parts
    part     for each device the number of the part that it has
    groups   devices whose parts, one behind the other, are the whole
    """

    count: int
    part: _Array
    groups: tuple[tuple[int, ...], ...]


def mesh_of(written: Any) -> Mesh:
    """The mesh written as `["x"=2, "y"=4], device_ids=[...]`. Raises ShapeError for one that is none, or too large."""
    text = str(written.value if isinstance(written, DialectAttribute) else written)
    named = _MESH_AXIS.findall(text)
    axes = {name: int(size) for name, size in named}
    listed = _DEVICES.search(text)
    count = math.prod(axes.values())
    if len(axes) != len(named) or not 1 <= count <= _MOST_DEVICES:
        raise ShapeError("HMESH-1", "mesh", text[:100], f"axes of different names, 1 to {_MOST_DEVICES} devices")
    if listed is None:
        return Mesh(tuple(axes.items()))
    devices = tuple(int(part[:9]) for part in listed[1].split(",") if part.strip())
    if len(devices) != count:
        raise ShapeError("HMESH-2", "device_ids", text[:100], f"{count} devices")
    return Mesh.make(axes.items(), devices)


def placements(written: Any, meshes: Mapping[str, Any]) -> list[Placement]:
    """The placements in sdy.sharding or sdy.sharding_per_value.

    Raises ShapeError for meshes and axes that do not exist; UnsupportedError for values that are reduced otherwise
    than by a sum.
    """
    text = str(written.value if isinstance(written, DialectAttribute) else written)
    if not text.lstrip().startswith(("<", "[")) and text.strip():
        text = f"<{text}>"
    return [_placement(found, meshes) for found in _PLACEMENT.finditer(text)]


def _placement(found: re.Match[str], meshes: Mapping[str, Any]) -> Placement:
    name = found[1] or found[5]
    if name is not None and name not in meshes:
        raise ShapeError("HSHARD-5", "the mesh", name, f"one of {sorted(meshes)}")
    mesh = mesh_of(meshes[name] if name is not None else found[2])
    texts = _DIMENSION.findall(found[3] or "")
    dimensions = tuple(_axes(written) for written, _ in texts)
    open = tuple(d for d, (written, _) in enumerate(texts) if written.rstrip().endswith("?"))
    priorities = tuple(int(priority or 0) for _, priority in texts)
    priorities = priorities if any(priorities) else ()
    same = _REPLICATED.search(found[4] or "")
    replicated = _axes(same[1]) if same is not None else ()
    summed = _UNREDUCED.search(found[4] or "")
    if summed is None:
        return Placement(mesh, dimensions, (), open, replicated, priorities)
    if summed[1] not in ("", "sum"):
        raise UnsupportedError(f"a sharding with unreduced={summed[1]}{{{summed[2]}}}: only sums are supported")
    order = {name: i for i, (name, _) in enumerate(mesh.axes)}
    unreduced = sorted(_axes(summed[2]), key=lambda axis: (order.get(axis.name, -1), axis.pre))
    return Placement(mesh, dimensions, tuple(unreduced), open, replicated, priorities)


def _axes(written: str) -> tuple[Axis, ...]:
    return tuple(Axis(name, int(pre or 1), int(size or 0)) for name, pre, size in _AXIS.findall(written))


def cut_along(mesh: Mesh, axes: Sequence[Axis]) -> Cut:
    """A dimension whose parts lie along axes of the mesh, the first the slowest. ShapeError for one that is twice."""
    sizes, places = mesh.factored(axes)
    count = math.prod(sizes[d] for d in places)
    rest = [d for d in range(len(sizes)) if d not in places]
    ids = np.array(mesh.device_ids()).reshape(sizes).transpose([*rest, *places]).reshape(-1, count)
    part = np.empty(ids.size, np.int64)
    part[ids] = np.arange(count)
    return Cut(count, part, tuple(tuple(map(int, group)) for group in ids))


def cuts_of(sharding: Sharding, rank: int) -> list[Cut]:
    """The cuts of each dimension of an array by XLA's sharding; nothing for one that does not cut."""
    sharding = sharding.placed()
    if sharding.kind != "tiled" or len(sharding.tile) < rank:
        return []
    tiles = np.array(sharding.device_ids()).reshape(sharding.tile)
    if sorted(tiles.flat) != list(range(tiles.size)):
        raise ShapeError("HSHARD-5", "sharding devices", str(sharding), f"each of 0..{tiles.size - 1}")
    cuts: list[Cut] = []
    for d in range(rank):
        part = np.empty(tiles.size, np.int64)
        count = sharding.tile[d]
        part[tiles] = np.arange(count).reshape([-1 if i == d else 1 for i in range(tiles.ndim)])
        groups = np.moveaxis(tiles, d, -1).reshape(-1, count)
        cuts.append(Cut(count, part, tuple(tuple(map(int, group)) for group in groups)))
    return cuts


def groups_to_sum(sharding: Sharding | None, partitions: int) -> tuple[tuple[int, ...], ...]:
    """The devices whose values are summed, group by group; () if a device's value is all there is of it."""
    if sharding is None:
        return ()
    sharding = sharding.placed()
    if sharding.kind == "unreduced":
        return (tuple(range(partitions)),)
    if "unreduced" not in sharding.last_tile_dims:
        return ()
    axis = len(sharding.tile) - len(sharding.last_tile_dims) + sharding.last_tile_dims.index("unreduced")
    rows = np.moveaxis(np.array(sharding.device_ids()).reshape(sharding.tile), axis, -1)
    return tuple(sorted(tuple(map(int, row)) for row in rows.reshape(-1, sharding.tile[axis])))


def sharding_of(
    attribute: Any, meshes: Mapping[str, Any], is_tuple: bool = False, by_axes: bool = False
) -> Sharding | None:
    """The sharding as HLO says it, in tiles or `by_axes` of its mesh; None for tuples in Shardy's attributes."""
    if isinstance(attribute, str):
        return written_sharding(attribute)
    placement = placement_of(attribute, meshes)
    if placement is None or is_tuple:
        return None
    return sharding_along(placement) if by_axes else sharding_at(placement)


def written_sharding(attribute: str) -> Sharding:
    """The sharding that mhlo.sharding says as text, or as the bytes of an OpSharding, as older JAX and TensorFlow did.

    Raises ParseError for what is neither.
    """
    if not attribute or attribute[0] >= " ":
        return parse_sharding(attribute)
    from hlokit.proto.schema import message_class
    from hlokit.proto.shapes import sharding_from_proto

    proto = message_class("OpSharding")()
    from google.protobuf.message import DecodeError

    try:
        proto.ParseFromString(attribute.encode(errors="surrogateescape"))
    except DecodeError as error:
        raise ParseError(f"mhlo.sharding: {error}") from None
    return sharding_from_proto(proto)


def placement_of(attribute: Any, meshes: Mapping[str, Any]) -> Placement | None:
    """The one placement that an attribute #sdy.sharding is; None for anything else."""
    if not isinstance(attribute, DialectAttribute) or attribute.name != "sdy.sharding":
        return None
    found = placements(attribute, meshes)
    return found[0] if len(found) == 1 else None


def sharding_along(placement: Placement, manual: Sequence[Axis] = ()) -> Sharding:
    """The placement by axes of its mesh; `manual`: those that the program divides by itself."""
    if placement.mesh.is_maximal or not placement.mesh.axes:
        return sharding_at(placement)
    axes = enumerate(placement.dimensions)
    dimensions = tuple(DimensionSharding(along, d in placement.open) for d, along in axes)
    named = NamedSharding(
        placement.mesh,
        dimensions,
        replicated=placement.replicated,
        unreduced=placement.unreduced,
        manual=tuple(manual),
    )
    return Sharding("named", named=named)


def sharding_at(placement: Placement) -> Sharding:
    """The placement as HLO says it in tiles."""
    mesh = placement.mesh
    if mesh.devices == (0,):
        return Sharding("replicated")
    dimensions = tuple(map(DimensionSharding, placement.dimensions))
    return NamedSharding(mesh, dimensions, unreduced=placement.unreduced).tiled()
