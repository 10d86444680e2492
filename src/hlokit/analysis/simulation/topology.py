"""Topology: the links between devices, and the path of a message.

Links have a direction, a bandwidth and a latency. Messages come as arrays: sources, targets, bytes. A message takes the
latencies of its links, one after the other, and its bytes pass all of them at the same time; what shares a link with it
has to pass there too. So nothing here depends on the number of links of a route, only on the number of messages.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from hlokit.analysis.simulation.quantities import BANDWIDTH, SECONDS, quantity
from hlokit.errors import ArgumentError

Array = np.ndarray[Any, Any]

MAX_DEVICES = 65_536
_MAX_FULL = 2_048
_FORMS = "ring:N, mesh:AxB.., torus:AxB.., switch:N, full:N, tree:N, tree:AxB.. or hosts:HxD"


class Topology(ABC):
    """Links between `devices` devices, numbered from 0.

    text          as it was written, "ring:8"
    axes          the kinds of links, that may have bandwidths and latencies of their own
    bandwidths    bytes a second of each link
    tour          each device's place on a way through all that goes from neighbour to neighbour
    alike         where every device sees the same network: the links in classes that do too; else empty
    """

    def __init__(
        self, text: str, devices: int, axes: Sequence[str], bandwidths: Sequence[float], latencies: Sequence[float]
    ) -> None:
        self.text = text
        self.devices = devices
        self.axes = tuple(axes)
        self.axis_bandwidths = _for_each_axis(text, axes, "bandwidth", bandwidths)
        self.axis_latencies = _for_each_axis(text, axes, "latency", latencies)
        self.tour: Array = np.arange(devices)
        self.alike: list[slice] = []
        self.bandwidths: Array = np.repeat(self.axis_bandwidths, self._links())

    @abstractmethod
    def _links(self) -> list[int]:
        """The number of links of each axis."""

    @abstractmethod
    def loads(self, source: Array, target: Array, nbytes: Array) -> Array:
        """The bytes that pass each link."""

    @abstractmethod
    def latencies(self, source: Array, target: Array) -> Array:
        """Seconds that the first byte of each message takes."""

    @abstractmethod
    def largest(self, values: Array, source: Array, target: Array) -> Array:
        """The largest of the links' values on each message's way; 0 for a message to its own source."""

    @abstractmethod
    def link_name(self, link: int) -> str: ...

    def from_all(self, loads: Array) -> Array:
        """The loads if all devices do what one of them does to get these `loads`; where links are `alike`."""
        total = np.zeros(len(loads))
        for links in self.alike:
            total[links] = loads[links].sum() * (self.devices / (links.stop - links.start))
        return total


class GridTopology(Topology):
    """Rings, meshes and tori: messages go along the axes in order, round a ring the shorter way (up if both are).

    A link for each axis, direction and device that it leaves; those over the edge of a mesh are never taken.
    """

    def __init__(
        self, text: str, sizes: Sequence[int], wraps: bool, bandwidths: Sequence[float], latencies: Sequence[float]
    ) -> None:
        self.sizes = tuple(sizes)
        self.wraps = wraps
        super().__init__(text, math.prod(sizes), [f"axis {k}" for k in range(len(sizes))], bandwidths, latencies)
        coordinates = np.unravel_index(np.arange(self.devices), self.sizes)
        snake = [coordinates[0]]
        for size, place in zip(self.sizes[1:], coordinates[1:], strict=True):
            turns = np.ravel_multi_index(tuple(snake), self.sizes[: len(snake)]) % 2 == 1
            snake.append(np.where(turns, size - 1 - place, place))
        self.tour = np.ravel_multi_index(tuple(snake), self.sizes)
        if wraps:
            self.alike = [slice(k, k + self.devices) for k in range(0, len(self.bandwidths), self.devices)]

    def _links(self) -> list[int]:
        return [2 * self.devices] * len(self.sizes)

    def _legs(self, source: Array, target: Array) -> Iterator[tuple[int, Array, Array, Array]]:
        """(axis, row, begin, length) of each message: the links that it takes along an axis.

        The links of an axis are rows of as many as it has places, all lines upwards, then all downwards. A leg takes
        `length` of them from `begin`, and goes on at the row's first one after the last.
        """
        here = list(np.unravel_index(source, self.sizes))
        there = np.unravel_index(target, self.sizes)
        for axis, size in enumerate(self.sizes):
            distance = there[axis] - here[axis]
            up, length = distance >= 0, np.abs(distance)
            if self.wraps:
                forward = distance % size
                up, length = 2 * forward <= size, np.minimum(forward, size - forward)
            lines = self.devices // size
            others = [k for k in range(len(self.sizes)) if k != axis]
            line = np.zeros_like(source)
            for k in others:
                line = line * self.sizes[k] + here[k]
            begin = np.where(up, here[axis], here[axis] - length + 1) % size
            here[axis] = there[axis]
            yield axis, np.where(up, line, lines + line), begin, length

    def loads(self, source: Array, target: Array, nbytes: Array) -> Array:
        found: list[Array] = []
        for axis, row, begin, length in self._legs(source, target):
            size = self.sizes[axis]
            rows, width = 2 * self.devices // size, 2 * size + 1
            first = row * width + begin
            count = rows * width
            change = np.bincount(first, nbytes, count) - np.bincount(first + length, nbytes, count)
            passing = change.reshape(rows, width).cumsum(1)
            found.append((passing[:, :size] + passing[:, size : 2 * size]).ravel())
        loads = np.concatenate(found)
        loads[loads < 1e-9 * loads.max(initial=0.0)] = 0.0  # what rounding leaves behind
        return loads

    def latencies(self, source: Array, target: Array) -> Array:
        total = np.zeros(len(source))
        for axis, _, _, length in self._legs(source, target):
            total += length * self.axis_latencies[axis]
        return total

    def largest(self, values: Array, source: Array, target: Array) -> Array:
        found = np.zeros(len(source))
        for axis, row, begin, length in self._legs(source, target):
            size = self.sizes[axis]
            own = values[2 * self.devices * axis : 2 * self.devices * (axis + 1)].reshape(-1, size)
            np.maximum(found, _largest_of_windows(np.concatenate([own, own], 1), row, begin, length), out=found)
        return found

    def link_name(self, link: int) -> str:
        axis, rest = divmod(link, 2 * self.devices)
        size = self.sizes[axis]
        downwards, rest = divmod(rest, self.devices)
        line, place = divmod(rest, size)
        others = [s for k, s in enumerate(self.sizes) if k != axis]
        ends: list[int] = []
        for at in (place, (place - 1 if downwards else place + 1) % size):
            where = [int(i) for i in np.unravel_index(line, others)] if others else []
            where.insert(axis, at)
            ends.append(int(np.ravel_multi_index(tuple(where), self.sizes)))
        return f"{ends[0]} -> {ends[1]}"


class Tree(Topology):
    """Devices are the leaves of a tree of switches. A message goes up to the first switch above both, and down again.

    sizes    how many branches a switch has, from the root down; the last switches may have fewer devices
    """

    def __init__(
        self, text: str, sizes: Sequence[int], devices: int, bandwidths: Sequence[float], latencies: Sequence[float]
    ) -> None:
        self.sizes = tuple(sizes)
        self.below = [math.prod(sizes[level + 1 :]) for level in range(len(sizes))]
        self.nodes = [-(-devices // below) for below in self.below]
        super().__init__(text, devices, [f"level {k}" for k in range(len(sizes))], bandwidths, latencies)
        if devices == math.prod(sizes):
            ends = np.cumsum([nodes for nodes in self.nodes for _ in ("up", "down")]).tolist()
            self.alike = [slice(*pair) for pair in pairwise([0, *ends])]

    def _links(self) -> list[int]:
        return [2 * nodes for nodes in self.nodes]

    def _legs(self, source: Array, target: Array) -> Iterator[tuple[int, Array, Array, Array]]:
        """(level, which messages cross it, link up, link down), the links numbered within the level."""
        for level, (below, nodes) in enumerate(zip(self.below, self.nodes, strict=True)):
            up, down = source // below, target // below
            yield level, up != down, up, nodes + down

    def loads(self, source: Array, target: Array, nbytes: Array) -> Array:
        found: list[Array] = []
        for level, crosses, up, down in self._legs(source, target):
            passing = np.where(crosses, nbytes, 0.0)
            count = 2 * self.nodes[level]
            found.append(np.bincount(up, passing, count) + np.bincount(down, passing, count))
        return np.concatenate(found)

    def latencies(self, source: Array, target: Array) -> Array:
        total = np.zeros(len(source))
        for level, crosses, _, _ in self._legs(source, target):
            total += 2 * self.axis_latencies[level] * crosses
        return total

    def largest(self, values: Array, source: Array, target: Array) -> Array:
        found, first = np.zeros(len(source)), 0
        for level, crosses, up, down in self._legs(source, target):
            own = values[first : first + 2 * self.nodes[level]]
            first += 2 * self.nodes[level]
            np.maximum(found, np.where(crosses, np.maximum(own[up], own[down]), 0.0), out=found)
        return found

    def link_name(self, link: int) -> str:
        level = 0
        while link >= 2 * self.nodes[level]:
            link -= 2 * self.nodes[level]
            level += 1
        way, node = divmod(link, self.nodes[level])
        who = f"device {node}" if level == len(self.sizes) - 1 else f"switch {level + 1}.{node}"
        return f"{who} {'down' if way else 'up'}"


class Full(Topology):
    """A link from every device to every other."""

    def __init__(self, text: str, devices: int, bandwidths: Sequence[float], latencies: Sequence[float]) -> None:
        super().__init__(text, devices, ["links"], bandwidths, latencies)

    def _links(self) -> list[int]:
        return [self.devices**2]

    def loads(self, source: Array, target: Array, nbytes: Array) -> Array:
        weights = np.where(source == target, 0.0, nbytes)
        return np.bincount(source * self.devices + target, weights, self.devices**2)

    def latencies(self, source: Array, target: Array) -> Array:
        return np.where(source == target, 0.0, self.axis_latencies[0])

    def largest(self, values: Array, source: Array, target: Array) -> Array:
        return np.where(source == target, 0.0, values[source * self.devices + target])

    def link_name(self, link: int) -> str:
        return "{} -> {}".format(*divmod(link, self.devices))


def topology(text: str, bandwidth: str | float, latency: str | float) -> Topology:
    """The topology that `text` says: ring:8, mesh:4x4, torus:4x4x2, switch:8, full:8, tree:8, tree:2x4, hosts:16x8.

    bandwidth, latency    of every link, with units; or, with commas between them, one for each axis of a mesh or torus
                          and for each level of a tree, from its root (of hosts:16x8: between hosts, in a host)

    ArgumentError for what is none of these.
    """
    bandwidths = [quantity(b, "bandwidth", BANDWIDTH) for b in str(bandwidth).split(",")]
    latencies = [quantity(b, "latency", SECONDS, zero=True) for b in str(latency).split(",")]
    match = re.fullmatch(r"([a-z]+):([0-9]{1,9}(?:x[0-9]{1,9}){0,15})", text)
    if match is None:
        raise ArgumentError(f"topology: {text!r}, expected {_FORMS}")
    name, sizes = match[1], [int(size) for size in match[2].split("x")]
    devices = math.prod(sizes)
    if not 1 <= devices <= MAX_DEVICES:
        raise ArgumentError(f"topology: {text} has {devices} devices, expected 1 to {MAX_DEVICES}")
    single = len(sizes) == 1
    if name in ("mesh", "torus") or (name == "ring" and single):
        return GridTopology(text, sizes, name != "mesh", bandwidths, latencies)
    if name == "tree" and single:
        return Tree(text, [2] * max(1, (devices - 1).bit_length()), devices, bandwidths, latencies)
    if name == "tree" or (name == "switch" and single) or (name == "hosts" and len(sizes) == 2):
        return Tree(text, sizes, devices, bandwidths, latencies)
    if name == "full" and single:
        if devices > _MAX_FULL:
            raise ArgumentError(f"topology: {text}, expected at most {_MAX_FULL} devices that are all connected")
        return Full(text, devices, bandwidths, latencies)
    raise ArgumentError(f"topology: {text!r}, expected {_FORMS}")


def _for_each_axis(text: str, axes: Sequence[str], what: str, values: Sequence[float]) -> list[float]:
    if len(values) not in (1, len(axes)):
        expected = "1" if len(axes) == 1 else f"1, or {len(axes)}"
        raise ArgumentError(f"{what}: {len(values)} values, expected {expected} for {text}")
    return list(values) if len(values) == len(axes) else [values[0]] * len(axes)


def _largest_of_windows(table: Array, row: Array, begin: Array, length: Array) -> Array:
    """The largest of table[row, begin : begin + length]; 0 where there is none."""
    found = np.zeros(len(row))
    level = np.frexp(length.astype(np.float64))[1] - 1  # 2^level <= length: two such windows cover it
    for k in range(int(level.max(initial=-1)) + 1):
        now = np.flatnonzero((level == k) & (length > 0))
        last = begin[now] + length[now] - (1 << k)
        found[now] = np.maximum(table[row[now], begin[now]], table[row[now], last])
        table = np.maximum(table[:, : -(1 << k)], table[:, 1 << k :])
    return found


__all__ = ["MAX_DEVICES", "Array", "Topology", "topology"]
