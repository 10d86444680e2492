"""Links, loads and routes, against every message followed link by link."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hlokit.analysis.simulation.topology import Topology, topology

NETWORKS = ["ring:1", "ring:2", "ring:7", "mesh:4", "mesh:3x4", "torus:3x4", "torus:4x2x3", "mesh:2x3x2", "switch:5",
            "full:5", "tree:2x3x2", "tree:11", "hosts:3x4"]  # fmt: skip


def made(text: str) -> Topology:
    return topology(text, 1.0, 1.0)


def route(text: str, source: int, target: int) -> list[str]:
    """The names of the links on the way, by walking."""
    kind, sizes = text.split(":")[0], [int(n) for n in text.split(":")[1].split("x")]
    if source == target:
        return []
    if kind == "full":
        return [f"{source} -> {target}"]
    if kind in ("ring", "mesh", "torus"):
        way, here = [], list(np.unravel_index(source, sizes))
        for axis, size in enumerate(sizes):
            goal = int(np.unravel_index(target, sizes)[axis])
            ahead = (goal - here[axis]) % size
            up = goal > here[axis] if kind == "mesh" else ahead <= size - ahead
            while here[axis] != goal:
                before = np.ravel_multi_index(here, sizes)
                here[axis] = (here[axis] + (1 if up else -1)) % size
                way.append(f"{before} -> {np.ravel_multi_index(here, sizes)}")
        return way
    if kind == "tree" and len(sizes) == 1:
        sizes = [2] * (sizes[0] - 1).bit_length()
    up, down = [], []
    for level in reversed(range(len(sizes))):
        below = math.prod(sizes[level + 1 :])
        a, b = source // below, target // below
        if a != b:
            name = "device {}" if level == len(sizes) - 1 else f"switch {level + 1}.{{}}"
            up.append(name.format(a) + " up")
            down.append(name.format(b) + " down")
    return up + down


@pytest.mark.parametrize("text", NETWORKS)
def test_loads_latencies_and_largest(text: str) -> None:
    network = made(text)
    numbers = np.random.default_rng(3)
    count = 60
    source, target = numbers.integers(0, network.devices, (2, count))
    nbytes = numbers.integers(1, 100, count).astype(float)
    ways = [route(text, int(s), int(t)) for s, t in zip(source, target)]
    names = [network.link_name(k) for k in range(len(network.bandwidths))]

    expected: dict[str, float] = {}
    for way, size in zip(ways, nbytes):
        for link in way:
            expected[link] = expected.get(link, 0.0) + size
    loads = network.loads(source, target, nbytes)
    assert {names[k]: loads[k] for k in np.flatnonzero(loads)} == pytest.approx(expected)

    assert network.latencies(source, target).tolist() == [len(way) for way in ways]

    values = {name: float(v) for name, v in zip(dict.fromkeys(names), numbers.random(len(names)))}
    found = network.largest(np.array([values[name] for name in names]), source, target)
    assert found.tolist() == [max((values[link] for link in way), default=0.0) for way in ways]


@pytest.mark.parametrize("text", ["ring:6", "torus:4x4", "torus:4x2x4", "mesh:3x4", "mesh:3x3x3", "mesh:2x4x3"])
def test_the_tour_goes_from_neighbour_to_neighbour(text: str) -> None:
    network = made(text)
    way = np.argsort(network.tour)
    assert sorted(way.tolist()) == list(range(network.devices))
    assert network.latencies(way[:-1], way[1:]).tolist() == [1.0] * (network.devices - 1)


@pytest.mark.parametrize("text", ["ring:6", "torus:3x4", "switch:5", "hosts:3x4", "tree:2x2x2"])
def test_links_that_are_alike_carry_alike(text: str) -> None:
    """What one device sends to all others, done by all."""
    network = made(text)
    n = network.devices
    every = np.arange(n)
    all_loads = network.loads(np.repeat(every, n), np.tile(every, n), np.ones(n * n))
    assert network.from_all(network.loads(np.zeros(n, int), every, np.ones(n))).tolist() == pytest.approx(
        all_loads.tolist()
    )


def test_incomplete_trees_and_meshes_are_not_alike() -> None:
    assert made("tree:11").alike == made("mesh:4").alike == made("full:4").alike == []
