"""Recipes of collectives in the entry computation, which all devices run in the same way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.hlo.instruction import Instruction
from hlokit.judge.fuzz.graph import COLLECTIVES, Graph, Recipe, recipe
from hlokit.judge.fuzz.recipes_called import reducer
from hlokit.types.groups import ReplicaGroups
from hlokit.types.shape import Shape


def _of_devices(*opcodes: str) -> Any:
    """Registers a recipe of ops that are drawn where all devices come."""

    def register(draw: Recipe) -> Recipe:
        assert set(opcodes) <= set(COLLECTIVES)
        return recipe(*opcodes)(lambda graph: draw(graph) if graph.depth == 0 else None)

    return register


def _partitioned(graph: Graph, ids: Sequence[int], size: int | None) -> list[list[int]]:
    """The ids in groups, in any order: of one size, or of any sizes."""
    rest = graph.random.sample(list(ids), len(ids))
    groups: list[list[int]] = []
    while rest:
        cut = size or graph.integer(1, len(rest))
        groups.append(rest[:cut])
        rest = rest[cut:]
    return groups


def _groups(
    graph: Graph, *, equal: bool = True, modes: Sequence[str] = ("replica", "both", "global")
) -> tuple[dict[str, Any], int]:
    """Attributes that say which devices come together, in a mode of GRP-4, and how many do in each group."""
    replicas, partitions = graph.options.devices
    mode = graph.choice(modes)
    ids = {"partition": partitions, "global": replicas * partitions}.get(mode, replicas)
    size = graph.choice([d for d in range(1, ids + 1) if ids % d == 0])
    found: dict[str, Any] = {} if mode == "replica" else {"channel_id": _channel(graph)}
    if mode == "global":
        found["use_global_device_ids"] = True
    form = graph.random.random()
    if form < 0.25 and mode != "global":
        found["replica_groups"], size = ReplicaGroups(), ids
    elif form < 0.5:
        first = graph.choice([d for d in range(1, ids + 1) if ids % d == 0])
        order = graph.choice([[0, 1], [1, 0]])
        found["replica_groups"] = ReplicaGroups.iota(ids // size, size, [first, ids // first], order)
    else:
        found["replica_groups"] = ReplicaGroups.explicit(_partitioned(graph, range(ids), size if equal else None))
    return found, size * partitions if mode == "both" else size


def _channel(graph: Graph) -> int:
    """A number that no other instruction has."""
    return 1 + sum(getattr(i.op, "channel_id", None) is not None for i in graph.computation.instructions)


def _divided(graph: Graph, size: int, *kinds: str) -> tuple[Instruction, int] | None:
    """An array and a dimension of it that so many devices can cut."""

    def is_cut(n: int) -> bool:
        return n > 0 and n % size == 0

    operand = graph.array(*kinds, test=lambda s: any(map(is_cut, s.dimensions)), rank=graph.integer(1, 3))
    fitting = [d for d, n in enumerate(operand.shape.dimensions) if is_cut(n)]
    return (operand, graph.choice(fitting)) if fitting else None


def _with_dimension(shape: Shape, dimension: int, size: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = size
    return shape.dtype[tuple(sizes)]


@_of_devices("all-reduce")
def all_reduce(graph: Graph) -> Instruction:
    first = graph.array("pred", "signed", "unsigned", "floating", "complex")
    element = first.shape.dtype
    others = [v for v in graph.arrays if v.shape.dtype is element and v is not first]
    operands = [first, *graph.random.sample(others, min(len(others), graph.choice([0, 0, 1, 2])))]
    attributes, _ = _groups(graph, equal=False)
    return graph.add("all-reduce", operands, [reducer(graph, element)], **attributes)


@_of_devices("all-gather")
def all_gather(graph: Graph) -> Instruction | None:
    operand = graph.array(rank=graph.integer(1, 3), least=1)
    attributes, size = _groups(graph)
    d = graph.integer(0, operand.shape.rank - 1)
    result = _with_dimension(operand.shape, d, size * operand.shape.dimensions[d])
    if graph.has_no_room(result.dimensions):
        return None
    return graph.add("all-gather", [operand], result=result, dimension=d, **attributes)


@_of_devices("reduce-scatter")
def reduce_scatter(graph: Graph) -> Instruction | None:
    attributes, size = _groups(graph)
    found = _divided(graph, size, "pred", "signed", "unsigned", "floating", "complex")
    if found is None:
        return None
    operand, d = found
    result = _with_dimension(operand.shape, d, operand.shape.dimensions[d] // size)
    fold = reducer(graph, operand.shape.dtype)
    return graph.add("reduce-scatter", [operand], [fold], result=result, dimension=d, **attributes)


@_of_devices("all-to-all")
def all_to_all(graph: Graph) -> Instruction | None:
    attributes, size = _groups(graph, modes=("replica", "partition"))
    if graph.chance(0.3):
        first = graph.array()
        return graph.add("all-to-all", [first, *(graph.like(first.shape) for _ in range(size - 1))], **attributes)
    found = _divided(graph, size)
    return None if found is None else graph.add("all-to-all", [found[0]], dimension=found[1], **attributes)


@_of_devices("collective-permute")
def collective_permute(graph: Graph) -> Instruction:
    replicas, partitions = graph.options.devices
    operands = [graph.array() for _ in range(graph.choice([1, 1, 1, 2]))]
    channel = _channel(graph) if graph.chance(0.5) else None
    count = replicas if channel is None else partitions
    chosen = graph.integer(0, count)
    pairs = tuple(zip(*(graph.random.sample(range(count), chosen) for _ in range(2)), strict=True))
    return graph.add("collective-permute", operands, source_target_pairs=pairs, channel_id=channel)


@_of_devices("collective-broadcast")
def collective_broadcast(graph: Graph) -> Instruction:
    replicas, partitions = graph.options.devices
    channel = _channel(graph) if graph.chance(0.5) else None
    groups = _partitioned(graph, range(replicas if channel is None else partitions), None)
    written = ReplicaGroups.explicit(groups[: graph.integer(1, len(groups))])
    return graph.add("collective-broadcast", [graph.array()], replica_groups=written, channel_id=channel)


@_of_devices("replica-id", "partition-id")
def own_id(graph: Graph) -> Instruction:
    """The device's number, which makes what the devices compute differ even from the same arguments."""
    return graph.add(graph.choice(["replica-id", "partition-id"]))


GRIDS = ((2, 1), (3, 1), (4, 1), (6, 1), (8, 1), (1, 2), (1, 4), (2, 2), (4, 2), (2, 3))
"""Replicas and partitions that programs are drawn for."""
