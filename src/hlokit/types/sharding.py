"""Shardings (HSHARD rules): parsed, checked, printed; passes/partitioner divides programs by them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hlokit.errors import ShapeError
from hlokit.types.iota import MOST_IDS, Part, cut_parts, iota_ids, iota_of, iota_parts
from hlokit.types.mesh import Axis, Mesh

SUBGROUPS = ("manual", "unreduced", "replicated")
"""The order in which a normal form has its trailing dimensions (HSHARD-8)."""


@dataclass(frozen=True, slots=True)
class DimensionSharding:
    """The axes that one dimension is divided along, major to minor; an open one may be divided further."""

    axes: tuple[Axis, ...] = ()
    is_open: bool = False

    def __str__(self) -> str:
        return "{" + ", ".join([*map(str, self.axes), *(["?"] if self.is_open else [])]) + "}"


@dataclass(frozen=True, slots=True)
class NamedSharding:
    """The placement of a value on the devices of a mesh, by its axes (HSHARD-6).

    dimensions  one for each dimension of the value; none at all for a value that no dimension divides
    replicated  axes along which the value is the same for sure; so it is along axes that are not named
    unreduced   axes along which the devices' values make up the value by `reduction`: sum, max or min
    manual      axes that the program divides by itself

    >>> mesh = Mesh((("a", 2), ("b", 4)))
    >>> named = NamedSharding(mesh, (DimensionSharding((Axis("b"),)), DimensionSharding()))
    >>> print(named)
    mesh['a'=2,'b'=4], [{'b'}, {}]
    >>> print(named.tiled())
    {devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}
    """

    mesh: Mesh
    dimensions: tuple[DimensionSharding, ...] = ()
    replicated: tuple[Axis, ...] = ()
    unreduced: tuple[Axis, ...] = ()
    reduction: str = "sum"
    manual: tuple[Axis, ...] = ()

    def check(self) -> None:
        """The HMESH rules; HSHARD-6: a reduction that there is, and nothing to divide on one device without axes."""
        self.mesh.check()
        if self.reduction not in REDUCTIONS:
            raise ShapeError("HSHARD-6", "unreduced", self.reduction, "one of " + " ".join(REDUCTIONS))
        self.mesh.check_axes(*(d.axes for d in self.dimensions), self.replicated, self.unreduced, self.manual)

    def closed(self) -> NamedSharding:
        """This sharding with all dimensions closed."""
        return replace(self, dimensions=tuple(DimensionSharding(d.axes) for d in self.dimensions))

    def tiled(self) -> Sharding:
        """The same as tiles (HSHARD-9): manual, unreduced and replicated devices in last dimensions, in this order.

        Raises ShapeError (HSHARD-9) for what tiles cannot say: open dimensions, and reductions other than sums.
        """
        if self.mesh.is_maximal:
            return Sharding("maximal", device=self.mesh.devices[0])
        if any(d.is_open for d in self.dimensions):
            raise ShapeError("HSHARD-9", "sharding", str(self), "closed dimensions: tiles cannot say that one is open")
        if self.unreduced and self.reduction != "sum":
            raise ShapeError("HSHARD-9", "sharding", str(self), "unreduced sums: tiles cannot say other reductions")
        tile = [math.prod(map(self.mesh.size_of, d.axes)) for d in self.dimensions]
        divided = [axis for d in self.dimensions for axis in d.axes]
        sizes, named = self.mesh.factored([*divided, *self.manual, *self.unreduced, *self.replicated])
        named = named[: len(named) - len(self.replicated)]
        rest = [d for d in range(len(sizes)) if d not in named]
        counts = {
            "manual": math.prod(map(self.mesh.size_of, self.manual)),
            "unreduced": math.prod(map(self.mesh.size_of, self.unreduced)),
            "replicated": math.prod(sizes[d] for d in rest),
        }
        kinds = tuple(kind for kind, count in counts.items() if count > 1)
        if math.prod(tile) == 1 and not kinds:
            return Sharding("replicated")
        ordered = self.mesh.transposed(sizes, [*named, *rest])
        tiled = Sharding(
            "tiled",
            tile=(*tile, *(counts[kind] for kind in kinds)),
            devices=ordered.devices,
            reshape=() if ordered.devices else ordered.reshape or (ordered.size,),
            transpose=ordered.transpose,
            replicate_last=kinds == ("replicated",),
            last_tile_dims=() if kinds == ("replicated",) else kinds,
        )
        return tiled.normal()

    def __str__(self) -> str:
        if self.mesh.is_maximal:
            return str(self.mesh)
        parts = [str(self.mesh), *self._whole()]
        if len(parts) == 1:
            parts.append(f"[{', '.join(map(str, self.dimensions))}]")
            word = "" if self.reduction == "sum" else self.reduction
            for name, axes in (("replicated=", self.replicated), (f"unreduced={word}", self.unreduced),
                               ("manual=", self.manual)):  # fmt: skip
                if axes:
                    parts.append(f"{name}{{{', '.join(map(str, axes))}}}")
        return ", ".join(parts)

    def _whole(self) -> list[str]:
        """The one word for a value that no dimension divides and that is the same thing along all axes."""
        if self.dimensions or self.replicated or (self.unreduced and self.reduction != "sum"):
            return []
        everything = tuple(Axis(name) for name, _ in self.mesh.axes)
        if not self.unreduced and not self.manual:
            return ["replicated"]
        if not self.manual:
            return ["unreduced"] if self.unreduced == everything else []
        return ["manual"] if self.manual == everything and not self.unreduced else []


REDUCTIONS = ("sum", "max", "min")
"""The reductions by which the values of devices make up a value that is not reduced yet."""


@dataclass(frozen=True, slots=True)
class Sharding:
    """The placement of one value on the devices, or (`elements`) of the leaves of a tuple.

    Parameters
    ----------
    kind : str
        "replicated", "manual", "unknown", "unreduced", "maximal", "tiled", "named" or "tuple".
    device : int, optional
        The one device of a maximal sharding.
    tile : tuple of int, optional
        The number of parts along each dimension, then the sizes of the trailing dimensions that `last_tile_dims` names.
    devices : tuple of int, optional
        The ids of the devices in tile order, where they are listed.
    reshape, transpose : tuple of int, optional
        The ids in the iota form: 0, 1, ... in these dimensions, read in this order.
    replicate_last : bool, optional
        Whether devices along the last dimension of the tile have the same data (`last_tile_dim_replicate`).
    last_tile_dims : tuple of str, optional
        The kinds of the trailing dimensions of the tile that divide no data: "manual", "unreduced" or "replicated".
    group : (str, int), optional
        "shard_as" or "shard_like" with the number of a group of values that are placed alike.
    metadata : str, optional
        The metadata as HLO text writes it.
    elements : tuple of Sharding, optional
        The shardings of a tuple's leaves.
    named : NamedSharding, optional
        The sharding by the axes of a mesh.

    Examples
    --------
    >>> b = hk.Builder(source_info=False)
    >>> with b.sharding("{devices=[2,1]<=[2]}"):
    ...     x = b.parameter(0, hk.f32[4, 3])
    >>> print(b.build(x).entry.root)
    %parameter.1 = f32[4,3]{1,0} parameter(0), sharding={devices=[2,1]<=[2]}
    """

    kind: str
    device: int = 0
    tile: tuple[int, ...] = ()
    devices: tuple[int, ...] = ()
    reshape: tuple[int, ...] = ()
    transpose: tuple[int, ...] = ()
    replicate_last: bool = False
    last_tile_dims: tuple[str, ...] = ()
    group: tuple[str, int] | None = None
    metadata: str = ""
    elements: tuple[Sharding, ...] = ()
    named: NamedSharding | None = None

    def check(self) -> None:
        """Checks the tiling or the mesh.

        Raises
        ------
        ShapeError
            There are not as many devices as tiles, one is given twice (HSHARD-5), or an axis is not the mesh's
            (HSHARD-6).
        """
        for element in self.elements:
            element.check()
        if self.named is not None:
            self.named.check()
        if self.kind != "tiled":
            return
        count = math.prod(self.tile)
        if len(self.last_tile_dims) > len(self.tile):
            raise ShapeError("HSHARD-2", "last_tile_dims", self.last_tile_dims, f"at most {len(self.tile)} of them")
        if count < 2:
            raise ShapeError("HSHARD-5", "sharding devices", count, "more than one device in a tiled sharding")
        if count >= 2**63:
            raise ShapeError("HSHARD-5", "sharding devices", count, "a number of 64 bits")
        order = self.transpose or range(len(self.reshape))
        if min(self.tile) < 1 or min(self.reshape, default=1) < 1 or sorted(order) != list(range(len(self.reshape))):
            raise ShapeError("HSHARD-2", "sharding", str(self), "sizes >= 1, and T(...) a permutation")
        listed = len(self.devices) if self.devices else math.prod(self.reshape)
        if listed != count:
            raise ShapeError(
                "HSHARD-5", "sharding device list", f"{listed} devices", f"{count}, the product of the tile sizes"
            )
        if len(set(self.devices)) != len(self.devices):
            raise ShapeError("HSHARD-5", "sharding device list", self.devices, "no device twice")

    def normal(self) -> Sharding:
        """HSHARD-8: the form in which XLA keeps this sharding, which passes `check`.

        Of the trailing dimensions those of one kind are one, in the order of `SUBGROUPS`, and none has the size 1;
        devices with the same data are in ascending order.

        Returns
        -------
        Sharding
            The sharding.
        """
        if self.kind == "tuple":
            return replace(self, elements=tuple(element.normal() for element in self.elements))
        if self.named is not None and not self.named.unreduced:  # nothing is reduced, whatever by
            return replace(self, named=replace(self.named, reduction="sum"))
        kinds = self.last_tile_dims or ("replicated",) * self.replicate_last
        if self.kind != "tiled" or not kinds:
            return self
        first = len(self.tile) - len(kinds)
        axes = {kind: [first + i for i, k in enumerate(kinds) if k == kind] for kind in SUBGROUPS}
        sizes = {kind: math.prod(self.tile[axis] for axis in axes[kind]) for kind in SUBGROUPS}
        given, kinds = kinds, tuple(kind for kind in SUBGROUPS if sizes[kind] > 1)
        data = self.tile[:first]
        if math.prod(data) == 1 and len(kinds) == 1 and (kinds[0] != "unreduced" or kinds == tuple({*given})):
            return Sharding(kinds[0], group=self.group, metadata=self.metadata)
        order = [*range(first), *(axis for kind in SUBGROUPS for axis in axes[kind])]
        sorted_last = sizes["replicated"]
        parts = self._parts(order, sorted_last)
        devices = reshape = transpose = ()
        if parts is not None:
            reshape, transpose = iota_of(parts)
        else:
            ids = np.array(self.device_ids()).reshape(self.tile).transpose(order)
            devices = tuple(map(int, np.sort(ids.reshape(-1, sorted_last)).reshape(-1)))
        copied = kinds == ("replicated",)
        tile = (*data, *(sizes[kind] for kind in kinds))
        return replace(
            self, tile=tile, devices=devices, reshape=reshape, transpose=transpose if len(reshape) > 1 else (),
            replicate_last=copied, last_tile_dims=() if copied else kinds,
        )  # fmt: skip

    def _parts(self, order: Sequence[int], sorted_last: int) -> list[Part] | None:
        """The iota's dimensions, cut where the tile's are, in this order of these; the last `sorted_last` ids ascend.

        None where there is no iota, or its dimensions cannot be cut so.
        """
        if not self.reshape:
            return None
        parts = iota_parts(self.reshape, self.transpose)
        order = [axis for axis in order if self.tile[axis] > 1]
        if order != sorted(order):
            cut = cut_parts(parts, self.tile)
            if cut is None:
                return None
            parts = [part for axis in order for part in cut[axis]]
        if sorted_last == 1:
            return parts
        cut = cut_parts(parts, (math.prod(self.tile) // sorted_last, sorted_last))
        return None if cut is None else cut[0] + sorted(cut[1], key=lambda part: -part[1])

    def check_count(self) -> None:
        """Checks that there are so many devices that they can be listed.

        Raises
        ------
        ShapeError
            There are more (HSHARD-5).
        """
        if math.prod(self.tile) > MOST_IDS:
            raise ShapeError("HSHARD-5", "sharding devices", str(self), f"at most {MOST_IDS} devices")

    @property
    def needs_partitioner(self) -> bool:
        """Whether devices have parts of one value, or terms of it, or nobody knows what (HSHARD-7)."""
        if self.elements:
            return any(element.needs_partitioner for element in self.elements)
        if self.named is not None and self.named.unreduced and self.named.reduction != "sum":
            return True
        return self.placed().kind not in ("replicated", "maximal", "manual", "tuple")

    def placed(self) -> Sharding:
        """The placement in the older forms: axes of a mesh as tiles, open dimensions as they are.

        Returns
        -------
        Sharding
            The sharding.
        """
        if self.named is not None:
            return self.named.closed().tiled()
        elements = tuple(element.placed() for element in self.elements)
        return self if elements == self.elements else replace(self, elements=elements)

    def without_metadata(self) -> Sharding:
        """This sharding, saying nothing of where it comes from.

        Returns
        -------
        Sharding
            The sharding.
        """
        elements = tuple(element.without_metadata() for element in self.elements)
        return (
            self if not self.metadata and elements == self.elements else replace(self, metadata="", elements=elements)
        )

    def device_ids(self) -> tuple[int, ...]:
        """The devices of a tiled sharding in tile order.

        Returns
        -------
        tuple of int
            The devices.
        """
        self.check_count()
        return self.devices or iota_ids(self.reshape, self.transpose)

    def __str__(self) -> str:
        if self.kind == "tuple":
            marked = (f"/*index={i}*/{e}" if i and i % 5 == 0 else str(e) for i, e in enumerate(self.elements))
            return "{" + ", ".join(marked) + "}"
        if self.named is not None:
            return f"{{{self.named}{f', metadata={self.metadata}' if self.metadata else ''}}}"
        body = self.kind
        if self.kind == "maximal":
            body = f"maximal device={self.device}"
        elif self.kind == "tiled":
            body = f"devices=[{','.join(map(str, self.tile))}]{self._device_text()}"
            if self.replicate_last:
                body += " last_tile_dim_replicate"
            if self.last_tile_dims:
                body += f" last_tile_dims={{{', '.join(self.last_tile_dims)}}}"
        if self.group is not None:
            body += f" {self.group[0]} {self.group[1]}"
        if self.metadata:
            body += f" metadata={self.metadata}"
        return "{" + body + "}"

    def _device_text(self) -> str:
        if not self.reshape:
            return ",".join(map(str, self.devices))
        text = f"<=[{','.join(map(str, self.reshape))}]"
        return text + (f"T({','.join(map(str, self.transpose))})" if self.transpose else "")

