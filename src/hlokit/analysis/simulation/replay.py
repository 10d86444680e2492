"""Replay: all devices run a program, each with its own clock.

Devices that are at the same step go on together: one NumPy operation for all of them. They part where some have to wait
for others, or take another branch, and those that are furthest behind go first; so they come together again. A loop's
passes are followed until one begins as the last one did, but for the time; the rest is then known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from hlokit.analysis.simulation.steps import (
    Begin,
    Branch,
    Communication,
    ComputeStep,
    End,
    Jump,
    LoopStep,
    RepeatStep,
    ReplayProgram,
)
from hlokit.analysis.simulation.topology import Array, Topology
from hlokit.errors import UnsupportedError

_STEPS = 200_000
"""Steps, of however many devices together, that a replay may take."""
_PASSES = 64
"""Passes of one loop that are followed where each differs from the last one."""

_Place = tuple[tuple[int, int], ...]
"""A device's place: (loop's step, passes done) of each loop round it, then (step, 0). Compares as time passes."""


class LogEntry(NamedTuple):
    """A step of some devices, from `begin` to `end`: kind "compute", "loop" (several passes of it) or "wait".

    occurrence    for "wait": which occurrence each one waited for, or -1
    passes        for "loop": how many
    """

    kind: str
    name: str
    devices: Array
    begin: Array
    end: Array
    occurrence: Array | None = None
    passes: int = 0


class Occurrence(NamedTuple):
    """Units of a communication that began because the last device had come.

    units          which; the following have an element for each
    begin, end     seconds
    arrived        when the last device came; `device`: which, `log`: the length of the log then
    held_by        the occurrence whose end it waited for to have the links, or -1
    link_bytes     that pass each link
    """

    communication: int
    units: Array
    begin: Array
    end: Array
    arrived: Array
    device: Array
    log: Array
    held_by: Array
    link_bytes: Array


@dataclass
class _Rendezvous:
    """The state of a communication. [sides, devices]: arrival, finish (nan: not known yet), occurrence.

    here, needed    how many have come, and are to come, to each unit
    last, who, log  of the one that came last
    """

    arrival: Array
    finish: Array
    occurrence: Array
    here: Array
    needed: Array
    last: Array
    who: Array
    log: Array

    @staticmethod
    def of(communication: Communication) -> _Rendezvous:
        unit_of, units = communication.unit_of, communication.plan.units
        needed = np.bincount(unit_of[unit_of >= 0], minlength=units)
        numbers = np.zeros((3, units), np.int64)
        state = np.full((2, *unit_of.shape), np.nan)
        nobody = np.full(unit_of.shape, -1)
        return _Rendezvous(state[0], state[1], nobody, numbers[0], needed, np.full(units, -1.0), numbers[1], numbers[2])


@dataclass
class _Snapshot:
    """The state when a pass of a loop began."""

    clock: Array
    free: Array
    link_bytes: Array
    runs: Array
    seconds: Array


class Replay:
    """clock: seconds, of each device; link_bytes: that passed each link.

    runs, seconds    how often each unit of each communication ran, and what it took in all; that of communication k
                     are those from first_unit[k] on
    """

    def __init__(self, program: ReplayProgram, topology: Topology) -> None:
        self.program = program
        self.topology = topology
        self.clock: Array = np.zeros(topology.devices)
        self.link_bytes: Array = np.zeros(len(topology.bandwidths))
        units = [c.plan.units for c in program.communications]
        self.first_unit: Array = np.cumsum([0, *units])
        self.runs: Array = np.zeros(sum(units))  # loops in loops: more than integers hold
        self.seconds: Array = np.zeros(sum(units))
        self.log: list[LogEntry] = []
        self.occurrences: list[Occurrence] = []
        self.notes: list[str] = []
        self._free: Array = np.zeros(len(topology.bandwidths))
        self._holder: Array = np.full(len(topology.bandwidths), -1)
        self._rendezvous = [_Rendezvous.of(c) for c in program.communications]
        self._ready: dict[_Place, list[Array]] = {}
        self._heap: list[_Place] = []
        self._parked: dict[int, list[tuple[_Place, Array, End]]] = {}
        self._snapshots: dict[_Place, _Snapshot] = {}

    def run(self) -> None:
        """Runs to the end. UnsupportedError where devices wait forever, or there are too many steps."""
        self._go(((0, 0),), np.arange(self.topology.devices))
        steps = 0
        while self._heap:
            place = heappop(self._heap)
            if place not in self._ready:
                continue
            parts = self._ready.pop(place)
            devices = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
            steps += 1
            if steps > _STEPS:
                raise UnsupportedError(f"simulate: more than {_STEPS} steps; reduce trip_count")
            if place[-1][0] < len(self.program.steps):
                self._step(place, devices)
        if self._parked:
            names = [self.program.communications[k].name for k in sorted(self._parked)]
            raise UnsupportedError(f"simulate: devices wait forever at {', '.join(names[:8])}")

    def _go(self, place: _Place, devices: Array) -> None:
        if len(devices):
            if place not in self._ready:
                heappush(self._heap, place)
            self._ready.setdefault(place, []).append(devices)

    def _step(self, place: _Place, devices: Array) -> None:
        step = self.program.steps[place[-1][0]]
        match step:
            case ComputeStep(name, seconds):
                before = self.clock[devices]
                self.clock[devices] = before + seconds
                self.log.append(LogEntry("compute", name, devices, before, self.clock[devices]))
                self._go(_next(place), devices)
            case Begin():
                self._begin(step, devices)
                self._go(_next(place), devices)
            case End():
                self._end(place, step, devices)
            case LoopStep():
                self._loop(place, step, devices)
            case RepeatStep(loop):
                self._repeat(place, loop, devices)
            case Branch(targets):
                for target in np.unique(targets[devices]):
                    self._go((*place[:-1], (int(target), 0)), devices[targets[devices] == target])
            case Jump(target):
                self._go((*place[:-1], (target, 0)), devices)

    # -- communication

    def _begin(self, step: Begin, devices: Array) -> None:
        communication, rendezvous = self.program.communications[step.number], self._rendezvous[step.number]
        now = self.clock[devices]
        for side in step.sides:
            units = communication.unit_of[side][devices]
            taking_part = units >= 0
            rendezvous.arrival[side][devices] = now
            rendezvous.finish[side][devices] = np.where(taking_part, np.nan, now)
            rendezvous.occurrence[side][devices] = -1
            units, here, times = units[taking_part], devices[taking_part], now[taking_part]
            rendezvous.here += np.bincount(units, minlength=len(rendezvous.here))
            np.maximum.at(rendezvous.last, units, times)
            decides = np.flatnonzero(times == rendezvous.last[units])[::-1]  # the first of equals stays
            rendezvous.who[units[decides]] = here[decides]
            rendezvous.log[units[decides]] = len(self.log)
        complete = rendezvous.here == rendezvous.needed
        complete &= rendezvous.needed > 0
        if complete.any():
            self._occur(step.number, complete)
            self._wake(step.number)

    def _occur(self, number: int, complete: Array) -> None:
        """These units have all their devices: they begin as soon as the links are free."""
        communication, rendezvous = self.program.communications[number], self._rendezvous[number]
        plan = communication.plan
        seconds, link_bytes = plan.measured(self.topology, complete)
        units = np.flatnonzero(complete)
        begin, held_by = rendezvous.last[units], np.full(len(units), -1)
        if self._free.max(initial=0.0) > begin.min():
            free = plan.waits(self.topology, self._free)[units]
            waits = free > begin
            order = np.argsort(self._free, kind="stable")
            held_by[waits] = self._holder[order[np.searchsorted(self._free[order], free[waits])]]
            begin = np.maximum(begin, free)
        end = begin + seconds[units]
        taken = link_bytes > 0
        for finish in np.unique(end):  # ascending
            some = end == finish
            links = taken
            if not some.all():
                chosen = np.zeros(plan.units, bool)
                chosen[units[some]] = True
                links = plan.taken(self.topology, chosen)
            later = links & (self._free < finish)
            self._free[later] = finish
            self._holder[later] = len(self.occurrences)
        self.link_bytes += link_bytes
        self.runs[self.first_unit[number] + units] += 1
        self.seconds[self.first_unit[number] + units] += seconds[units]
        by_unit = np.full(plan.units, np.nan)
        by_unit[units] = end
        for side, unit_of in enumerate(communication.unit_of):
            mine = (unit_of >= 0) & complete[unit_of]
            rendezvous.finish[side][mine] = by_unit[unit_of[mine]]
            rendezvous.occurrence[side][mine] = len(self.occurrences)
        last = rendezvous.last[units], rendezvous.who[units], rendezvous.log[units]
        self.occurrences.append(Occurrence(number, units, begin, end, *last, held_by, link_bytes))
        rendezvous.here[units] = 0
        rendezvous.last[units] = -1.0

    def _end(self, place: _Place, step: End, devices: Array) -> None:
        rendezvous = self._rendezvous[step.number]
        finish = rendezvous.finish[list(step.sides)][:, devices]
        known = ~np.isnan(finish).any(0)
        if not known.all():
            self._parked.setdefault(step.number, []).append((place, devices[~known], step))
        if not known.any():
            return
        devices, finish = devices[known], finish[:, known]
        before = self.clock[devices]
        decides = finish.argmax(0)
        after = np.maximum(before, finish.max(0))
        occurrence = rendezvous.occurrence[list(step.sides)][decides, devices]
        self.clock[devices] = after
        name = self.program.communications[step.number].name
        occurrence = np.where(after > before, occurrence, -1)
        self.log.append(LogEntry("wait", name, devices, before, after, occurrence))
        self._go(_next(place), devices)

    def _wake(self, number: int) -> None:
        for place, devices, _ in self._parked.pop(number, ()):
            self._go(place, devices)

    # -- loops

    def _loop(self, place: _Place, loop: LoopStep, devices: Array) -> None:
        if loop.trips == 0:
            self._go((*place[:-1], (loop.after, 0)), devices)
            return
        inside: _Place = (*place[:-1], (place[-1][0], 0))
        if len(devices) == self.topology.devices:
            self._snapshots[inside] = self._snapshot()
        self._go((*inside, (place[-1][0] + 1, 0)), devices)

    def _snapshot(self) -> _Snapshot:
        now = self.clock, self._free, self.link_bytes, self.runs, self.seconds
        return _Snapshot(*(array.copy() for array in now))

    def _repeat(self, place: _Place, start: int, devices: Array) -> None:
        loop = self.program.steps[start]
        assert isinstance(loop, LoopStep)
        outer, passes = place[:-2], place[-2][1] + 1
        first: _Place = (*outer, (start, 0))
        before = self._snapshots.pop(first, None)
        if len(devices) == self.topology.devices and passes < loop.trips:
            passes = passes if before is None else self._skip(loop, before, passes)
            self._snapshots[first] = self._snapshot()
        if passes == loop.trips:
            self._go((*outer, (loop.after, 0)), devices)
        else:
            self._go((*outer, (start, passes), (start + 1, 0)), devices)

    def _skip(self, loop: LoopStep, before: _Snapshot, passes: int) -> int:
        """Adds all further passes at once if they are like the last one; how many are done then."""
        delta = self.clock - before.clock
        steady = bool(np.allclose(delta, delta[0], rtol=1e-9, atol=0.0))
        if steady:
            states = (before.free, before.clock), (self._free, self.clock)
            held = [np.maximum(free, clock.min()) - clock.min() for free, clock in states]
            steady = bool(np.allclose(*held, rtol=1e-9, atol=1e-9 * float(delta[0])))
        if not steady and passes < _PASSES:
            return passes
        if not steady:
            self.notes.append(f"{loop.name}: iterations differ; after {passes}, others are assumed equal to the last")
        more = loop.trips - passes
        begin = self.clock.copy()
        self.clock += delta * more
        held = self._free > before.clock.min()
        self._free[held] += float(delta.max()) * more
        self._holder[held] = -1  # a pass that is not in the log
        self.link_bytes += (self.link_bytes - before.link_bytes) * more
        self.runs += (self.runs - before.runs) * more
        self.seconds += (self.seconds - before.seconds) * more
        everyone = np.arange(self.topology.devices)
        name = f"{loop.name}: {more} more passes"
        self.log.append(LogEntry("loop", name, everyone, begin, self.clock.copy(), passes=more))
        return loop.trips


def _next(place: _Place) -> _Place:
    return (*place[:-1], (place[-1][0] + 1, 0))


class Segment(NamedTuple):
    """A part of the critical path on `device`: kind "compute", "loop", "links" (they are held) or a communication's.

    communication    its number, where the part is one
    passes           of a loop, that went like the one before them
    """

    kind: str
    name: str
    device: int
    begin: float
    end: float
    communication: int | None = None
    passes: int = 0


def critical_path(replay: Replay) -> list[Segment]:
    """The segments that the device that ends last waited for, one behind another, back to the start."""
    device, position = int(replay.clock.argmax()), len(replay.log)
    path: list[Segment] = []
    while position > 0:
        position -= 1
        entry = replay.log[position]
        k = int(np.searchsorted(entry.devices, device))
        if k == len(entry.devices) or entry.devices[k] != device or entry.end[k] <= entry.begin[k]:
            continue
        if entry.occurrence is None:
            times = float(entry.begin[k]), float(entry.end[k])
            path.append(Segment(entry.kind, entry.name, device, *times, passes=entry.passes))
        else:
            device, position = _through(replay, int(entry.occurrence[k]), device, float(entry.end[k]), path)
    return path[::-1]


def _through(replay: Replay, number: int, device: int, end: float, path: list[Segment]) -> tuple[int, int]:
    """Adds a communication that `device` waited for, and those that held its links; who came last, and when."""
    while True:
        found = replay.occurrences[number]
        communication = replay.program.communications[found.communication]
        own = np.isin(found.units, communication.unit_of[:, device])
        k = int(np.where(own, np.abs(found.end - end), np.inf).argmin()) if own.any() else 0
        begin, arrived = float(found.begin[k]), float(found.arrived[k])
        if end > begin:
            path.append(Segment(communication.kind, communication.name, device, begin, end, found.communication))
        number, device = int(found.held_by[k]), int(found.device[k])
        if number < 0:
            if begin > arrived:
                path.append(Segment("links", f"{communication.name}: links are held", device, arrived, begin))
            return device, int(found.log[k])
        end = begin
        holder = replay.occurrences[number]
        sides = replay.program.communications[holder.communication].unit_of
        unit = holder.units[np.abs(holder.end - end).argmin()]
        device = int(np.flatnonzero((sides == unit).any(0))[0])


def replayed(program: ReplayProgram, topology: Topology) -> Replay:
    replay = Replay(program, topology)
    replay.run()
    return replay


def busy_links(replay: Replay, count: int) -> Sequence[tuple[int, float]]:
    """(link, seconds that its bytes take) of the `count` busiest, the busiest first; of those that carry something."""
    seconds = replay.link_bytes / replay.topology.bandwidths
    used = np.flatnonzero(replay.link_bytes)
    order = used[np.lexsort((used, -seconds[used]))][:count]
    return [(int(link), float(seconds[link])) for link in order]


__all__ = ["LogEntry", "Occurrence", "Replay", "Segment", "busy_links", "critical_path", "replayed"]
