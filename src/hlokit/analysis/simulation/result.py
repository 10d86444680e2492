"""Simulation: the results of a replay, as facts, as JSON and as a trace."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from hlokit.analysis.simulation.replay import LogEntry, Replay, Segment, busy_links, critical_path
from hlokit.analysis.simulation.topology import Array

_TRACKS = 64
"""Devices, and links, that a trace shows."""
_EVENTS = 200_000
"""Events of devices, and of links, that a trace holds."""


@dataclass(frozen=True)
class CollectiveTime:
    """A collective, or a send with its recv.

    nbytes      bytes of the operands on each device
    groups      of which `group_size` is the largest; of permutes and sends: messages, of 2 devices each
    count       how often it runs
    seconds     one run of its slowest group, without waiting for devices or links; `total`: all runs
    """

    name: str
    kind: str
    algorithm: str
    nbytes: int
    groups: int
    group_size: int
    count: int
    seconds: float
    total: float


@dataclass(frozen=True)
class LinkUse:
    """A link from one device (or switch) to another: the bytes that pass it, and the seconds that they take."""

    name: str
    nbytes: float
    seconds: float


@dataclass(frozen=True)
class Simulation:
    """A module's run on a topology.

    seconds        until the last device is done
    collectives    in the order in which they were met
    path           the critical path: what the last device waited for, from the start to the end
    notes          what was assumed
    """

    module: str
    topology: str
    replicas: int
    partitions: int
    seconds: float
    collectives: list[CollectiveTime]
    path: list[Segment]
    notes: list[str]
    replay: Replay = field(repr=False, compare=False)

    @staticmethod
    def of(module: str, replicas: int, partitions: int, replay: Replay) -> Simulation:
        topology = replay.topology
        end = float(replay.clock.max())
        notes = [*replay.program.notes, *replay.notes]
        return Simulation(
            module, topology.text, replicas, partitions, end, _times(replay), critical_path(replay), notes, replay,
        )  # fmt: skip

    @cached_property
    def links(self) -> list[LinkUse]:
        """Those that carry something, the busiest first."""
        return self.busiest(len(self.replay.link_bytes))

    @property
    def used_links(self) -> int:
        """The number of links that carry something."""
        return int(np.count_nonzero(self.replay.link_bytes))

    def busiest(self, count: int) -> list[LinkUse]:
        """The `count` busiest links, the busiest first."""
        name, nbytes = self.replay.topology.link_name, self.replay.link_bytes
        return [LinkUse(name(k), float(nbytes[k]), s) for k, s in busy_links(self.replay, count)]

    @property
    def device_seconds(self) -> list[float]:
        """When each device is done."""
        return self.replay.clock.tolist()

    def path_shares(self) -> list[tuple[str, str, int, float]]:
        """(name, kind, how often, seconds) of what the critical path is made of, the longest first.

        Passes of a loop that went like the one before them are made of what that one was made of.
        """
        parts: list[tuple[float, str, str, int, float]] = []
        for part in self.path:
            seconds = part.end - part.begin
            if not part.passes:
                parts.append((part.begin, part.name, part.kind, 1, seconds))
                continue
            first = part.begin - (1 + 1e-6) * seconds / part.passes
            last_pass = list(takewhile(lambda known, first=first: known[0] >= first, reversed(parts)))
            parts += [(part.begin, n, k, c * part.passes, s * part.passes) for _, n, k, c, s in reversed(last_pass)]
        shares: dict[tuple[str, str], tuple[int, float]] = {}
        for _, name, kind, count, seconds in parts:
            before = shares.get((name, kind), (0, 0.0))
            shares[name, kind] = before[0] + count, before[1] + seconds
        return sorted(((*key, *share) for key, share in shares.items()), key=lambda share: -share[3])

    def facts(self) -> dict[str, Any]:
        """Everything but the replay, for JSON."""
        return {
            "module": self.module,
            "topology": self.topology,
            "replicas": self.replicas,
            "partitions": self.partitions,
            "seconds": self.seconds,
            "collectives": [asdict(c) for c in self.collectives],
            "links": [asdict(link) for link in self.links],
            "critical_path": [part._asdict() for part in self.path],
            "device_seconds": self.device_seconds,
            "notes": self.notes,
        }

    def trace(self) -> dict[str, Any]:
        """In the Trace Event Format that Perfetto and chrome://tracing read.

        Tracks for the critical path, for devices (those on the path first) and for the busiest links; arrows follow the
        path from device to device.
        """
        events = [*_path_events(self.path), *_device_events(self), *_link_events(self)]
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"notes": self.notes}}

    def save_trace(self, path: str | Path) -> None:
        """Writes the trace as JSON."""
        Path(path).write_text(json.dumps(self.trace()), encoding="utf-8")


def _times(replay: Replay) -> list[CollectiveTime]:
    found: list[CollectiveTime] = []
    for number, c in enumerate(replay.program.communications):
        own = slice(int(replay.first_unit[number]), int(replay.first_unit[number + 1]))
        count = int(replay.runs[own].max(initial=0.0))
        total = float(replay.seconds[own].max(initial=0.0))
        each = total / count if count else 0.0
        found.append(
            CollectiveTime(c.name, c.kind, c.algorithm, c.nbytes, c.plan.units, c.group_size, count, each, total)
        )
    return found


# -- the trace: processes 1 (critical path), 2 (devices), 3 (links)


def _named(pid: int, process: str, threads: Sequence[tuple[int, str]]) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": process}}
    for order, (tid, name) in enumerate(threads):
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": name}}
        yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": order}}


def _event(pid: int, tid: int, name: str, kind: str, begin: float, end: float, **args: Any) -> dict[str, Any]:
    times = {"ts": begin * 1e6, "dur": (end - begin) * 1e6}
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": kind, **times, "args": args}


def _path_events(path: Sequence[Segment]) -> Iterator[dict[str, Any]]:
    yield from _named(1, "critical path", [(1, "critical path")] if path else [])
    for part in path:
        yield _event(1, 1, part.name, part.kind, part.begin, part.end, device=part.device)


def _shown_devices(simulation: Simulation) -> Array:
    on_path = dict.fromkeys(part.device for part in simulation.path)
    rest = (d for d in range(simulation.replay.topology.devices) if d not in on_path)
    return np.array(sorted([*on_path, *rest][:_TRACKS] if len(on_path) < _TRACKS else list(on_path)[:_TRACKS]))


def _device_events(simulation: Simulation) -> Iterator[dict[str, Any]]:
    shown = _shown_devices(simulation)
    partitions = simulation.partitions
    names = [(int(d), f"device {d} (replica {d // partitions}, partition {d % partitions})") for d in shown]
    yield from _named(2, "devices", names)
    left = _EVENTS
    for entry in simulation.replay.log:
        places = np.flatnonzero(np.isin(entry.devices, shown) & (entry.end > entry.begin))
        left -= len(places)
        if left < 0:
            break
        yield from (_device_event(simulation.replay, entry, int(k)) for k in places)
    yield from _arrows(simulation.path, set(shown.tolist()))


def _device_event(replay: Replay, entry: LogEntry, k: int) -> dict[str, Any]:
    begin, end, args = float(entry.begin[k]), float(entry.end[k]), dict[str, Any]()
    kind = entry.kind
    if entry.occurrence is not None and entry.occurrence[k] >= 0:
        found = replay.occurrences[int(entry.occurrence[k])]
        communication = replay.program.communications[found.communication]
        kind = communication.kind
        args = {"bytes": communication.nbytes, "algorithm": communication.algorithm}
    return _event(2, int(entry.devices[k]), entry.name, kind, begin, end, **args)


def _arrows(path: Sequence[Segment], shown: set[int]) -> Iterator[dict[str, Any]]:
    """The arrows from one device to another on the path."""
    for number, (a, b) in enumerate(pairwise(path)):
        if a.device != b.device and a.device in shown and b.device in shown:
            common = {"pid": 2, "name": "critical path", "cat": "critical path", "id": number}
            yield {"ph": "s", "tid": a.device, "ts": a.end * 1e6, **common}
            yield {"ph": "f", "bp": "e", "tid": b.device, "ts": b.end * 1e6, **common}


def _link_events(simulation: Simulation) -> Iterator[dict[str, Any]]:
    """When each of the busiest links is taken. What is on one link is one after the other."""
    replay = simulation.replay
    links = [link for link, _ in busy_links(replay, _TRACKS)]
    names = [(link, replay.topology.link_name(link)) for link in links]
    yield from _named(3, "links", names)
    free = dict.fromkeys(links, 0.0)
    left = _EVENTS
    for found in sorted(replay.occurrences, key=lambda o: float(o.begin.min())):
        begin, end = float(found.begin.min()), float(found.end.max())
        communication = replay.program.communications[found.communication]
        for link in links:
            nbytes, first = float(found.link_bytes[link]), max(begin, free[link])
            if nbytes and end > first and left:
                left -= 1
                free[link] = end
                yield _event(3, link, communication.name, communication.kind, first, end, bytes=nbytes)


__all__ = ["CollectiveTime", "LinkUse", "Simulation"]
