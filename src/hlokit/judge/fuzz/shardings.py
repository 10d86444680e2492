"""Random meshes and shardings, by which the partitioner divides a program."""

from __future__ import annotations

import math
import random
from itertools import pairwise

from hlokit.hlo.module import HloModule
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import DimensionSharding, NamedSharding, Sharding

MESHES = ((2,), (4,), (2, 2), (8,), (2, 4), (2, 2, 2), (3,), (6,))
"""Sizes of the axes that meshes are drawn of."""
_SHARDED = 0.5
"""The chance of an array to have a sharding."""


def random_mesh(chance: random.Random) -> Mesh:
    """A mesh of 2 to 8 devices, now and then in another order than 0, 1, 2, ..."""
    sizes = chance.choice(MESHES)
    axes = tuple(zip("abc", sizes, strict=False))
    devices = list(range(math.prod(sizes)))
    if chance.random() < 0.2:
        chance.shuffle(devices)
    return Mesh.make(axes, devices)


def random_sharding(chance: random.Random, mesh: Mesh, rank: int) -> Sharding:
    """Some axes, or halves of them, on some dimensions."""
    free: list[Axis] = []
    for name, size in mesh.axes:
        if size % 2 == 0 and size > 2 and chance.random() < 0.4:
            free += [Axis(name, 1, 2), Axis(name, 2, size // 2)]
        else:
            free.append(Axis(name))
    chance.shuffle(free)
    dimensions: list[list[Axis]] = [[] for _ in range(rank)]
    for axis in free:
        if rank and chance.random() < 0.6:
            dimensions[chance.randrange(rank)].append(axis)
    for axes in dimensions:  # neighbours that make one part are written as it
        for a, b in pairwise(list(axes)):
            if a.is_part and b.is_part and a.name == b.name and a.pre * a.size == b.pre:
                axes.remove(b)
                break
    return Sharding("named", named=NamedSharding(mesh, tuple(DimensionSharding(tuple(axes)) for axes in dimensions)))


def shard_at_random(chance: random.Random, module: HloModule, mesh: Mesh) -> None:
    """Gives arrays of the entry shardings."""
    for instruction in module.entry.instructions:
        if instruction.shape.is_array and chance.random() < _SHARDED:
            sharding = random_sharding(chance, mesh, instruction.shape.rank)
            instruction.ensure_extra().sharding = sharding


def sharded(module: HloModule, seed: int) -> HloModule:
    """The module with shardings of one mesh, drawn by the seed; at least one has them."""
    chance = random.Random(seed)
    mesh = random_mesh(chance)
    shard_at_random(chance, module, mesh)
    arrays = [i for i in module.entry.instructions if i.shape.is_array]
    if arrays and all(i.extra is None or i.extra.sharding is None for i in arrays):
        arrays[0].ensure_extra().sharding = random_sharding(chance, mesh, arrays[0].shape.rank)
    return module
