"""Placements of values on the devices of a mesh, whose axes are divided into prime parts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from hlokit.errors import ShapeError, UnsupportedError
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding, Sharding

Parts = tuple[int, ...]
"""Numbers of parts of a mesh's axes, major to minor."""


@dataclass(frozen=True)
class Placement:
    """The parts of axes that each dimension of a value is divided along; and those whose devices have terms of it.

    unreduced   the value is the sum (or what else folds it) of what the devices along these parts have
    """

    dimensions: tuple[Parts, ...]
    unreduced: Parts = ()

    @staticmethod
    def whole(rank: int) -> Placement:
        """The whole value on every device."""
        return Placement(((),) * rank)

    @property
    def is_whole(self) -> bool:
        return not any(self.dimensions) and not self.unreduced

    @property
    def used(self) -> frozenset[int]:
        """All parts that it names."""
        return frozenset(part for parts in (*self.dimensions, self.unreduced) for part in parts)

    def with_dimension(self, d: int, parts: Parts) -> Placement:
        """The same but for one dimension."""
        return Placement((*self.dimensions[:d], parts, *self.dimensions[d + 1 :]), self.unreduced)


class Grid:
    """The devices of a mesh, as an array of which each dimension is a prime part of an axis.

    axes    the parts, as axes; sizes: how many devices lie along each
    """

    def __init__(self, mesh: Mesh, stated: Iterable[Sharding] = ()) -> None:
        mesh.check()
        self.mesh = mesh
        self.axes: list[Axis] = []
        self.sizes: list[int] = []
        cuts = {name: {1, size} for name, size in mesh.axes}
        for sharding in stated:
            for axis in _axes_of(sharding, mesh):
                cuts[axis.name] |= {axis.pre, axis.pre * axis.size}
        for name, size in mesh.axes:
            places = sorted(cuts[name])
            if any(b % a for a, b in pairwise(places)):
                raise ShapeError("PART-2", "parts of an axis", f"{name}={size} at {places}", "parts of one division")
            for a, b in pairwise(places):
                pre = a
                for prime in _primes(b // a):
                    self.axes.append(Axis(name) if prime == size else Axis(name, pre, prime))
                    self.sizes.append(prime)
                    pre *= prime
        self.devices = np.array(mesh.device_ids()).reshape(self.sizes)
        if sorted(self.devices.flat) != list(range(self.devices.size)):
            raise ShapeError("PART-1", "devices of the mesh", str(mesh), f"each of 0..{self.devices.size - 1} once")

    @property
    def size(self) -> int:
        """The number of devices."""
        return int(self.devices.size)

    def count(self, parts: Iterable[int]) -> int:
        """So many devices lie along the parts."""
        return math.prod(self.sizes[part] for part in parts)

    def parts_of(self, axes: Iterable[Axis]) -> Parts:
        """The prime parts of axes of the mesh, or of parts of those."""
        found: list[int] = []
        for axis in axes:
            first, last = axis.pre, axis.pre * self.mesh.size_of(axis)
            for number, part in enumerate(self.axes):
                if part.name == axis.name and first <= part.pre and part.pre * self.sizes[number] <= last:
                    found.append(number)
        return tuple(found)

    def axes_of(self, parts: Parts) -> tuple[Axis, ...]:
        """The parts as axes: neighbours joined."""
        joined: list[Axis] = []
        for part in parts:
            axis, size = self.axes[part], self.sizes[part]
            last = joined[-1] if joined else None
            if last is not None and last.name == axis.name and last.pre * last.size == axis.pre:
                joined[-1] = Axis(axis.name, last.pre, last.size * size)
            else:
                joined.append(Axis(axis.name, axis.pre, size))
        return tuple(Axis(a.name) if a.size == self.mesh.axis_size(a.name) else a for a in joined)

    def groups(self, parts: Parts) -> tuple[tuple[int, ...], ...]:
        """The devices that differ in their place along these parts alone, the first part the slowest."""
        rest = [d for d in range(len(self.sizes)) if d not in parts]
        rows = self.devices.transpose([*rest, *parts]).reshape(-1, self.count(parts))
        return tuple(tuple(map(int, row)) for row in rows)

    def places(self, parts: Parts) -> np.ndarray[Any, Any]:
        """For each device, by its number, its place along the parts."""
        rest = [d for d in range(len(self.sizes)) if d not in parts]
        rows = self.devices.transpose([*rest, *parts]).reshape(-1, self.count(parts))
        found = np.empty(self.size, np.int64)
        found[rows] = np.arange(rows.shape[1])
        return found

    def local(self, sizes: Sequence[int], placement: Placement) -> tuple[int, ...]:
        """The sizes of a device's part: rounded up where parts do not divide them."""
        return tuple(-(-n // self.count(parts)) for n, parts in zip(sizes, placement.dimensions, strict=True))

    @cached_property
    def everything(self) -> Parts:
        """All parts, major to minor."""
        return tuple(range(len(self.sizes)))

    # -- shardings of the language

    def placement(self, sharding: Sharding, rank: int) -> Placement | None:
        """The placement that a sharding of an array says; None where it says nothing.

        Of a shard it is the placement along the axes that are not manual.

        ShapeError (PART-2, PART-3) for one that is not along axes of the mesh.
        """
        named = sharding.named
        if sharding.kind == "unknown":
            return None
        if named is None or not self._is_same(named.mesh):
            named = self.named(sharding.placed(), rank)
        named.check()
        if named.dimensions and len(named.dimensions) != rank:
            raise ShapeError("PART-3", "sharding", str(sharding), f"{rank} dimensions, as its value has")
        if named.manual and not named.dimensions and not named.unreduced:
            return None
        if named.unreduced and named.reduction != "sum":
            raise UnsupportedError(f"partition: a value that is reduced otherwise than by a sum: {sharding}")
        if named.dimensions and all(d.is_open and not d.axes for d in named.dimensions) and not named.unreduced:
            return None
        dimensions = tuple(self.parts_of(d.axes) for d in named.dimensions) or ((),) * rank
        return Placement(dimensions, self.parts_of(named.unreduced))

    def manual(self, sharding: Sharding | None, rank: int) -> Parts:
        """The manual axes of a shard's sharding: all of them where it does not name any."""
        if sharding is None or sharding.kind == "manual":
            return self.everything
        named = sharding.named
        if named is None or not self._is_same(named.mesh):
            named = self.named(sharding.placed(), rank)
        return self.parts_of(named.manual)

    def named(self, sharding: Sharding, rank: int) -> NamedSharding:
        """Tiles as axes of the mesh. ShapeError (PART-2) for lists of devices that no axes give."""
        if sharding.kind in ("replicated", "maximal"):
            return NamedSharding(self.mesh, (DimensionSharding(),) * rank)
        if sharding.kind == "unreduced":
            return NamedSharding(self.mesh, (DimensionSharding(),) * rank, unreduced=self.axes_of(self.everything))
        if sharding.kind == "manual":
            return NamedSharding(self.mesh, manual=self.axes_of(self.everything))
        if sharding.kind != "tiled":
            raise UnsupportedError(f"partition: the sharding {sharding} of an array")
        sharding.check_count()
        kinds = sharding.last_tile_dims or ("replicated",) * sharding.replicate_last
        if len(sharding.tile) - len(kinds) != rank:
            raise ShapeError("PART-3", "sharding", str(sharding), f"{rank} dimensions, as its value has")
        ids = np.array(sharding.device_ids())
        if sorted(ids) != list(range(self.size)):
            raise ShapeError("PART-1", "sharding", str(sharding), f"each of the {self.size} devices of {self.mesh}")
        tiles = ids.reshape(sharding.tile)
        where = np.empty((self.size, len(self.sizes)), np.int64)
        where[self.devices.reshape(-1)] = np.indices(self.sizes).reshape(len(self.sizes), -1).T
        found: list[Parts] = []
        for d in range(tiles.ndim):
            line = where[np.moveaxis(tiles, d, 0).reshape(tiles.shape[d], -1)[:, 0]]
            moving = [part for part in self.everything if len(set(line[:, part])) > 1]
            moving.sort(key=lambda part: -int(np.argmax(line[:, part] != line[0, part])))
            found.append(tuple(moving))
        rest = tuple(p for p in self.everything if not any(p in parts for parts in found[:rank]))
        summed = tuple(p for i, kind in enumerate(kinds) if kind == "unreduced" for p in found[rank + i])
        self._check(sharding, tiles, found[:rank], summed, rest)
        manual = tuple(p for i, kind in enumerate(kinds) if kind == "manual" for p in found[rank + i])
        return replace(self.sharding(Placement(tuple(found[:rank]), summed)), manual=self.axes_of(manual))

    def _check(
        self, sharding: Sharding, tiles: np.ndarray[Any, Any], found: list[Parts], summed: Parts, rest: Parts
    ) -> None:
        """The parts say the same as the list of devices: which tile each device has."""
        for d in range(tiles.ndim - len(sharding.last_tile_dims or (0,) * sharding.replicate_last)):
            numbers = np.empty(self.size, np.int64)
            numbers[tiles] = np.indices(tiles.shape)[d]
            if self.count(found[d]) != tiles.shape[d] or not np.array_equal(numbers, self.places(found[d])):
                axes = f"tiles along axes of {self.mesh}: an order of devices that they do not give is lost"
                raise ShapeError("PART-2", "sharding", str(sharding), axes)
        if not set(summed) <= set(rest):
            raise ShapeError("PART-2", "sharding", str(sharding), "no device both with a tile and with a term")

    def sharding(self, placement: Placement) -> NamedSharding:
        """The placement as the language says it."""
        dimensions = tuple(DimensionSharding(self.axes_of(parts)) for parts in placement.dimensions)
        return NamedSharding(self.mesh, dimensions, unreduced=self.axes_of(placement.unreduced))

    def _is_same(self, mesh: Mesh) -> bool:
        return mesh.axes == self.mesh.axes and mesh.device_ids() == self.mesh.device_ids()


def mesh_of_text(text: str) -> Mesh:
    """The mesh `a=2,b=4`. ShapeError (PART-1) for another text."""
    axes: list[tuple[str, int]] = []
    for word in text.split(","):
        name, _, size = word.strip().partition("=")
        if not name.strip() or not size.strip().isdecimal() or len(size) > 9:
            raise ShapeError("PART-1", "mesh", text[:200], "axes with their sizes, as a=2,b=4")
        axes.append((name.strip().strip("'\""), int(size)))
    mesh = Mesh(tuple(axes))
    mesh.check()
    return mesh


def mesh_of_shardings(shardings: Sequence[Sharding], partitions: int) -> Mesh | None:
    """The mesh that shardings of a module name; for lists of devices one of an axis `devices`, in the first order of
    the lists along whose parts they all are; None for neither."""
    for sharding in shardings:
        if sharding.named is not None and sharding.named.mesh.axes:
            return sharding.named.mesh
    counts = {math.prod(s.tile) for s in shardings if s.kind == "tiled"}
    if partitions > 1:
        counts.add(partitions)
    if not counts:
        return None
    if len(counts) > 1:
        raise ShapeError("PART-1", "shardings", f"of {sorted(counts)} devices", "one number of devices")
    size = counts.pop()
    plain = Mesh((("devices", size),))
    tiled = [s for s in shardings if s.kind == "tiled"]
    orders = dict.fromkeys(tuple(s.device_ids()) for s in tiled if math.prod(s.tile) == size)
    orders.pop(tuple(range(size)), None)
    meshes = [plain, *(replace(plain, devices=order) for order in orders if sorted(order) == list(range(size)))]
    return next((mesh for mesh in meshes if _has_axes(mesh, tiled)), plain)


def _has_axes(mesh: Mesh, shardings: Sequence[Sharding]) -> bool:
    """Whether all of these are along parts of the mesh's axes."""
    try:
        grid = Grid(mesh, shardings)
        for sharding in shardings:
            kinds = sharding.last_tile_dims or ("replicated",) * sharding.replicate_last
            grid.named(sharding, len(sharding.tile) - len(kinds))
    except ShapeError:
        return False
    return True


def leaves_of(sharding: Sharding) -> list[Sharding]:
    """The shardings of a tuple's arrays; else the one."""
    return [leaf for element in sharding.elements for leaf in leaves_of(element)] if sharding.elements else [sharding]


def _axes_of(sharding: Sharding, mesh: Mesh) -> list[Axis]:
    """The parts of axes that it names; of an iota of devices, the parts of the one axis that it needs."""
    named = sharding.named
    if named is not None and named.mesh.axes == mesh.axes:
        named.check()
        axes = [axis for d in named.dimensions for axis in d.axes]
        return [axis for axis in (*axes, *named.replicated, *named.unreduced, *named.manual) if axis.is_part]
    if sharding.kind != "tiled" or len(mesh.axes) != 1 or mesh.size != math.prod(sharding.tile):
        return []
    ((name, size),) = mesh.axes
    sizes = sharding.reshape if len(sharding.reshape) > 1 else sharding.tile
    starts = [math.prod(sizes[:i]) for i in range(len(sizes))]
    return [Axis(name, pre, n) for pre, n in zip(starts, sizes, strict=True) if 1 < n < size]


def _primes(number: int) -> list[int]:
    found: list[int] = []
    divisor = 2
    while divisor * divisor <= number:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return [*found, number] if number > 1 else found
