"""Schedules: the messages that a collective is made of, in rounds, by the known algorithms.

All messages of a round are under way together, also those of the other groups; the next round begins when a group's own
are there. For a group of n, operands of m bytes, latency a and b bytes a second, neighbours being linked:

    all-reduce        ring      2 (n-1) (a + m / n b)
                      tree      2 ceil(log2 n) (a + m / b)
                      halving   2 (ceil(log2 n) a + (n-1) m / n b)
    all-gather        ring      (n-1) (a + m / b)
                      halving   ceil(log2 n) a + (n-1) m / b
    reduce-scatter    ring      (n-1) (a + m / n b)
                      halving   ceil(log2 n) a + (n-1) m / n b
    broadcast         tree      ceil(log2 n) (a + m / b)
    all-to-all, permute, send   direct: all at once; each link's bytes one after the other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hlokit.analysis.simulation.topology import Array, Topology

_CHUNK = 1 << 18
"""Messages that are looked at together."""


class Messages(NamedTuple):
    """From `source` to `target`, `nbytes` each, for the group `unit`; `repeat` such rounds follow each other."""

    source: Array
    target: Array
    unit: Array
    nbytes: Array
    repeat: Array

    def of(self, units: Array) -> Messages:
        """Those of the groups that the mask `units` has."""
        chosen = units[self.unit]
        return self if chosen.all() else Messages._make(part[chosen] for part in self)


Round = Callable[[], Iterator[Messages]]
"""Gives the messages anew each time, in parts of a bearable size."""


@dataclass(frozen=True)
class Groups:
    """Groups of one size: `members` [groups, size], and their numbers among all groups of the collective."""

    members: Array
    units: Array

    @property
    def size(self) -> int:
        return self.members.shape[1]


def by_size(groups: Sequence[Sequence[int]], tour: Array, *, keep_first: bool = False) -> list[Groups]:
    """The groups, each in the order of `tour`; with `keep_first` turned until its first member is the first again."""
    sizes: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        sizes.setdefault(len(group), []).append(number)
    found: list[Groups] = []
    for size, numbers in sizes.items():
        listed = np.array([groups[n] for n in numbers], np.int64).reshape(len(numbers), size)
        ordered = np.take_along_axis(listed, np.argsort(tour[listed], axis=1, kind="stable"), 1)
        if keep_first:
            root = (ordered == listed[:, :1]).argmax(1)
            ordered = np.take_along_axis(ordered, (np.arange(size) + root[:, None]) % size, 1)
        found.append(Groups(ordered, np.array(numbers)))
    return found


def _round(parts: Sequence[Messages]) -> Round:
    return lambda: iter(parts)


def _messages(groups: Groups, source: Array, target: Array, nbytes: float, repeat: int = 1) -> Messages:
    """From the members at the positions `source` to those at `target`, in every group."""
    count = len(groups.units) * len(source)
    units = np.repeat(groups.units, len(source))
    ends = groups.members[:, source].ravel(), groups.members[:, target].ravel()
    return Messages(*ends, units, np.full(count, float(nbytes)), np.full(count, repeat))


def _joined(rounds_of_sizes: Sequence[list[Messages]]) -> list[Round]:
    """The first rounds of all sizes together, then the second, ..."""
    longest = max(map(len, rounds_of_sizes), default=0)
    return [_round([rounds[k] for rounds in rounds_of_sizes if k < len(rounds)]) for k in range(longest)]


def ring(groups: Sequence[Groups], nbytes: Callable[[int], float], turns: int) -> list[Round]:
    """`turns` (n-1) rounds, in which each member sends nbytes(n) to the next."""
    rounds: list[list[Messages]] = []
    for some in groups:
        here = np.arange(some.size)
        if some.size > 1:
            repeat = turns * (some.size - 1)
            rounds.append([_messages(some, here, (here + 1) % some.size, nbytes(some.size), repeat)])
    return _joined(rounds)


def tree(groups: Sequence[Groups], nbytes: float, ways: Sequence[str]) -> list[Round]:
    """A binomial tree: "up" to the first member, "down" from it; all bytes in each of ceil(log2 n) rounds."""
    rounds: list[list[Messages]] = []
    for some in groups:
        up: list[Messages] = []
        for k in range((some.size - 1).bit_length()):
            lower = np.arange(0, some.size - (1 << k), 2 << k)
            up.append(_messages(some, lower + (1 << k), lower, nbytes))
        rounds.append([m for way in ways for m in (up if way == "up" else _reversed(up))])
    return _joined(rounds)


def halving(groups: Sequence[Groups], block: Callable[[int], float], ways: Sequence[str]) -> list[Round]:
    """Recursive halving ("up") and doubling ("down"), also for groups that are not a power of two.

    Doubling: in round k each member has 2^k blocks, and sends what is missing there to the member 2^k before it.
    """
    rounds: list[list[Messages]] = []
    for some in groups:
        here, n = np.arange(some.size), some.size
        down: list[Messages] = []
        for k in range((n - 1).bit_length()):
            count = min(1 << k, n - (1 << k))
            down.append(_messages(some, here, (here - (1 << k)) % n, count * block(n)))
        rounds.append([m for way in ways for m in (down if way == "down" else _reversed(down))])
    return _joined(rounds)


def _reversed(rounds: Sequence[Messages]) -> list[Messages]:
    """The same, backwards in time."""
    return [m._replace(source=m.target, target=m.source) for m in reversed(rounds)]


def exchange(groups: Sequence[Groups], nbytes: float, *, one_for_all: bool = False) -> list[Round]:
    """Each member sends a block to every other, all at once. With `one_for_all` only the first one's messages."""

    def messages() -> Iterator[Messages]:
        for some in groups:
            n = some.size
            here = np.arange(1 if one_for_all else n)
            at_once = max(1, _CHUNK // (len(here) * len(some.units)))
            for first in range(1, n, at_once):
                shifts = np.arange(first, min(n, first + at_once))
                source = np.tile(here, len(shifts))
                yield _messages(some, source, (source + np.repeat(shifts, len(here))) % n, nbytes / n)

    return [messages]


def direct(pairs: Sequence[tuple[int, int]], nbytes: float) -> list[Round]:
    """A message for every pair; each is a unit of its own."""
    ends = np.array(pairs, np.int64).reshape(-1, 2)
    count = len(ends)
    each = np.full(count, float(nbytes)), np.ones(count, np.int64)
    return [_round([Messages(ends[:, 0], ends[:, 1], np.arange(count), *each)])]


class Measured(NamedTuple):
    """`seconds` of each unit; bytes that pass each link."""

    seconds: Array
    link_bytes: Array


@dataclass
class MessagePlan:
    """A collective as messages: by which algorithm, in which rounds, for so many `units` (groups, or messages).

    one_for_all    the rounds hold the messages of one device, and all others do the same
    """

    algorithm: str
    rounds: list[Round]
    units: int
    one_for_all: bool = False
    _known: dict[bytes, Measured] = field(default_factory=dict[bytes, Measured])

    def measured(self, topology: Topology, chosen: Array | None = None) -> Measured:
        """The time that the `chosen` units (all, by default) take when they begin together."""
        mask = np.ones(self.units, bool) if chosen is None else chosen
        key = mask.tobytes()
        if key not in self._known:
            if len(self._known) > 64:
                self._known.clear()
            self._known[key] = self._measure(topology, mask)
        return self._known[key]

    def _measure(self, topology: Topology, chosen: Array) -> Measured:
        seconds, link_bytes = np.zeros(self.units), np.zeros(len(topology.bandwidths))
        for messages in self.rounds:
            load = np.zeros(len(link_bytes))
            for part in messages():
                some = part.of(chosen)
                own = topology.loads(some.source, some.target, some.nbytes)
                own = topology.from_all(own) if self.one_for_all else own
                load += own
                link_bytes += _repeated(topology, some, own)
            busy = load / topology.bandwidths
            longest, repeat = np.zeros(self.units), np.zeros(self.units)
            for part in messages():
                some = part.of(chosen)
                ends = some.source, some.target
                np.maximum.at(longest, some.unit, topology.latencies(*ends) + topology.largest(busy, *ends))
                repeat[some.unit] = some.repeat
            seconds += longest * repeat
        return Measured(seconds, link_bytes)

    def waits(self, topology: Topology, values: Array) -> Array:
        """The largest of the links' values, for each unit, among the links that it takes."""
        if self.one_for_all:
            return np.full(self.units, values[self.measured(topology).link_bytes > 0].max(initial=0.0))
        found = np.zeros(self.units)
        for messages in self.rounds:
            for part in messages():
                np.maximum.at(found, part.unit, topology.largest(values, part.source, part.target))
        return found

    def taken(self, topology: Topology, chosen: Array) -> Array:
        """The links that the chosen units take."""
        found = np.zeros(len(topology.bandwidths), bool)
        for messages in self.rounds:
            for part in messages():
                some = part.of(chosen)
                found |= topology.loads(some.source, some.target, np.ones(len(some.source))) > 0
        return found


def _repeated(topology: Topology, some: Messages, once: Array) -> Array:
    """The bytes on each link over all repetitions of a round, of which one puts `once` there."""
    if len(some.repeat) == 0 or (some.repeat == some.repeat[0]).all():
        return once * (some.repeat[0] if len(some.repeat) else 0)
    return topology.loads(some.source, some.target, some.nbytes * some.repeat)


__all__ = ["Measured", "MessagePlan", "by_size", "direct", "exchange", "halving", "ring", "tree"]
