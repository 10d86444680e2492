"""Flight report: the combined findings of a world's dumps: which rank waits for which, and where."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from hlokit.devices.flight_recorder import FORMAT
from hlokit.errors import ArgumentError

_SHOWN = 8
"""Ranks that a line names."""


@dataclass(frozen=True)
class Event:
    """A collective, send or receive of a dump; the fields are those of `flight_recorder.Entry`."""

    run: int
    number: int
    device: int
    name: str
    opcode: str
    rendezvous: str
    turn: int
    members: tuple[int, ...]
    nbytes: int
    state: str
    times: tuple[float, ...]
    source: str

    @property
    def place(self) -> tuple[str, int]:
        return self.rendezvous, self.turn

    def __str__(self) -> str:
        name = self.name if self.name.startswith(self.opcode) else f"{self.opcode} {self.name}"
        turn = f", time {self.turn} in this run" if self.turn > 1 else ""
        return name + turn + (f" ({self.source})" if self.source else "")


@dataclass(frozen=True)
class RecordedRun:
    """A run of a program: `homes` has the rank of each device; `state`: beginning, running, ending, over or failed."""

    number: int
    program: str
    title: str
    homes: tuple[int, ...]
    state: str
    times: tuple[float, ...]


@dataclass(frozen=True)
class Dump:
    """The dump of one rank. `turns`: how many times each device came to each rendezvous of the last run."""

    path: str
    world: str
    rank: int
    size: int
    failure: str
    time: float
    host: str
    pid: int
    runs: tuple[RecordedRun, ...]
    events: tuple[Event, ...]
    turns: dict[tuple[int, str], int]

    @property
    def run(self) -> RecordedRun:
        """The last one."""
        return self.runs[-1] if self.runs else RecordedRun(0, "", "", (), "over", (self.time,))


Node: TypeAlias = tuple[int, int]
"""A rank and one of its devices, or WHOLE."""
WHOLE = -1


@dataclass(frozen=True)
class RankWait:
    """A device that waits, or a rank with all its devices, for those of `others` that have not come. `since`: seconds
    before the dump."""

    node: Node
    where: str
    others: tuple[Node, ...]
    since: float

    @property
    def rank(self) -> int:
        return self.node[0]

    @property
    def ranks(self) -> list[int]:
        """Those of the others."""
        return list(dict.fromkeys(rank for rank, _ in self.others))


@dataclass
class FlightReport:
    """The report on one world. `findings` say what is wrong; none if no rank waits for another or failed."""

    world: str
    size: int
    states: dict[int, str] = field(default_factory=dict[int, str])
    waits: list[RankWait] = field(default_factory=list[RankWait])
    findings: list[str] = field(default_factory=list[str])

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        waits = [{"rank": w.rank, "at": w.where, "for": w.ranks, "seconds": w.since} for w in self.waits]
        states = [{"rank": rank, "state": state} for rank, state in sorted(self.states.items())]
        return {
            "world": self.world, "ranks": self.size, "states": states, "waits": waits, "findings": self.findings,
        }  # fmt: skip


# -- reading


def read_dumps(paths: Iterable[Path]) -> list[Dump]:
    """The dumps in these files and folders. ArgumentError for a file that is none, OSError for one that is missing."""
    found: list[Dump] = []
    for path in paths:
        files = sorted(path.glob("*_rank*.json")) if path.is_dir() else [path]
        if not files:
            raise ArgumentError(f"{path}: no dumps of flight recorders (WORLD_rankN.json) in this folder")
        found += [_dump(file) for file in files]
    return found


def _dump(path: Path) -> Dump:
    try:
        fields = _Fields(json.loads(path.read_bytes()))
        if fields.text("format") != FORMAT:
            raise ValueError(f"format: expected {FORMAT!r}")
        return _dump_of(str(path), fields)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        text = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"{path}: not a dump of a flight recorder: {text[:200]}") from None


class _Fields:
    """The fields of an object, by their types: KeyError for one that is missing, TypeError for another type."""

    def __init__(self, facts: Any) -> None:
        if not isinstance(facts, dict):
            raise TypeError(f"found {type(facts).__name__}, expected an object")
        self._facts: dict[str, Any] = facts  # pyright: ignore[reportUnknownMemberType]

    def text(self, name: str) -> str:
        value = self._typed(name, str)
        return "".join(c if c.isprintable() or c == "\n" else "?" for c in value)

    def integer(self, name: str) -> int:
        return self._typed(name, int)

    def number(self, name: str) -> float:
        return float(self._typed(name, (int, float)))

    def items(self, name: str) -> list[Any]:
        return self._typed(name, list)

    def integers(self, name: str) -> tuple[int, ...]:
        values = self.items(name)
        if not all(type(value) is int for value in values):
            raise TypeError(f"{name}: expected integers")
        return tuple(values)

    def times(self) -> tuple[float, ...]:
        values = self.items("times")
        if not values or not all(isinstance(value, (int, float)) for value in values):
            raise TypeError("times: expected numbers")
        return tuple(map(float, values))

    def _typed(self, name: str, kind: Any) -> Any:
        value = self._facts[name]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise TypeError(f"{name}: found {type(value).__name__}")
        return value


def _dump_of(path: str, facts: _Fields) -> Dump:
    runs: list[RecordedRun] = []
    for run in map(_Fields, facts.items("runs")):
        runs.append(
            RecordedRun(run.integer("number"), run.text("program"), run.text("title"), run.integers("homes"),
                        run.text("state"), run.times())
        )  # fmt: skip
    events = [
        Event(event.integer("run"), event.integer("number"), event.integer("device"), event.text("name"),
              event.text("opcode"), event.text("rendezvous"), event.integer("turn"), event.integers("members"),
              event.integer("bytes"), event.text("state"), event.times(), event.text("source"))
        for event in map(_Fields, facts.items("collectives"))
    ]  # fmt: skip
    turns = {(int(device), str(rendezvous)): int(count) for device, rendezvous, count in facts.items("turns")}
    rank, size = facts.integer("rank"), facts.integer("size")
    if not 0 <= rank < size <= 2**20:
        raise ValueError(f"rank {rank} of {size}")
    return Dump(
        path, facts.text("world"), rank, size, facts.text("failure"), facts.number("time"), facts.text("host"),
        facts.integer("pid"), tuple(runs), tuple(events), turns,
    )  # fmt: skip


# -- who waits for whom


def reports(dumps: Sequence[Dump]) -> list[FlightReport]:
    """One for each world, the one that was dumped last at the end. ArgumentError for two dumps of one rank."""
    worlds: dict[str, dict[int, Dump]] = {}
    for dump in sorted(dumps, key=lambda dump: dump.time):
        ranks = worlds.setdefault(dump.world, {})
        if dump.rank in ranks:
            raise ArgumentError(f"{ranks[dump.rank].path} and {dump.path} are of the same rank, {dump.rank}")
        ranks[dump.rank] = dump
    ordered = sorted(worlds.values(), key=lambda ranks: max(dump.time for dump in ranks.values()))
    return [_Reader(ranks).report() for ranks in ordered]


class _Reader:
    def __init__(self, dumps: dict[int, Dump]) -> None:
        self.dumps = dumps
        any_dump = next(iter(dumps.values()))
        self.result = FlightReport(any_dump.world, any_dump.size)
        self.newest = max(dump.run.number for dump in dumps.values())

    def report(self) -> FlightReport:
        for dump in self.dumps.values():
            self.result.waits += self._waits(dump)
        self.result.waits.sort(key=lambda wait: (wait.rank, wait.where))
        absent = [rank for rank in range(self.result.size) if rank not in self.dumps]
        self.result.states = {rank: self._state(rank) for rank in self.dumps}
        self.result.states.update(dict.fromkeys(absent[: 4 * _SHOWN], "no dump"))
        self.result.findings += [
            *self._programs(), *self._failures(), *self._held_up(), *self._orders(), *self._cycles()
        ]  # fmt: skip
        return self.result

    # -- of one rank

    def _waits(self, dump: Dump) -> Iterator[RankWait]:
        run = dump.run
        everyone = range(self.result.size)
        if run.state == "beginning":
            late = [(rank, WHOLE) for rank in everyone if self._last_run(rank) < run.number]
            yield from self._wait(dump, WHOLE, f"the start of run {run.number}{_titled(run)}", late, run.times[-1])
        if run.state == "ending":
            late = [(rank, WHOLE) for rank in everyone if self._is_at_work(rank, run.number)]
            yield from self._wait(dump, WHOLE, f"the end of run {run.number}{_titled(run)}", late, run.times[-1])
        for event in dump.events:
            if event.run == run.number and run.state == "running" and event.state in ("entered", "met"):
                late = [(self._home(run, m), m) for m in event.members if not self._came(run, event, m)]
                yield from self._wait(dump, event.device, str(event), late, event.times[0])

    def _wait(self, dump: Dump, device: int, where: str, others: Sequence[Node], begun: float) -> Iterator[RankWait]:
        node = (dump.rank, device)
        others = [other for other in others if other != node]
        if others:
            yield RankWait(node, where, tuple(others), max(0.0, dump.time - begun))

    def _last_run(self, rank: int) -> int:
        return self.dumps[rank].run.number if rank in self.dumps else -1

    def _is_at_work(self, rank: int, number: int) -> bool:
        if rank not in self.dumps:
            return True
        run = self.dumps[rank].run
        return run.number < number or (run.number == number and run.state in ("beginning", "running"))

    def _home(self, run: RecordedRun, device: int) -> int:
        return run.homes[device] if 0 <= device < len(run.homes) else device

    def _came(self, run: RecordedRun, event: Event, member: int) -> bool:
        """Whether the member has come to where the event's device waits, and can still take part."""
        other = self.dumps.get(self._home(run, member))
        if other is None or other.run.number < run.number:
            return False
        return other.run.number > run.number or other.turns.get((member, event.rendezvous), 0) >= event.turn

    def _state(self, rank: int) -> str:
        dump = self.dumps[rank]
        run, waits = dump.run, [wait for wait in self.result.waits if wait.rank == rank]
        if waits:
            return "; ".join(f"waits {_seconds(w.since)} at {w.where} for {_ranks(w.ranks)}" for w in waits[:_SHOWN])
        since = _seconds(max(0.0, dump.time - run.times[-1]))
        if not dump.runs:
            return "has run nothing"
        if run.state in ("over", "failed"):
            verb = "ended" if run.state == "over" else "failed"
            return f"outside of a run; run {run.number}{_titled(run)} {verb} {since} before"
        own = [event for event in dump.events if event.run == run.number]
        if not own:
            return f"in run {run.number}{_titled(run)}, {since} after its start, before its first collective"
        last = own[-1]
        verb = {"left": "has left", "failed": "failed in"}.get(last.state, "is in")
        since = _seconds(max(0.0, dump.time - last.times[-1]))
        return f"in run {run.number}{_titled(run)}: {verb} {last}, {since} before"

    # -- of all ranks

    def _programs(self) -> Iterator[str]:
        """Ranks that run another program than the first one that runs it."""
        runs = {rank: {run.number: run for run in dump.runs} for rank, dump in self.dumps.items()}
        for number in sorted({number for own in runs.values() for number in own}):
            programs: dict[str, list[int]] = {}
            titles: dict[str, str] = {}
            for rank in sorted(runs):
                if number in runs[rank]:
                    run = runs[rank][number]
                    programs.setdefault(run.program, []).append(rank)
                    titles[run.program] = f"{run.title or 'a program'} [{run.program[-8:]}]"
            if len(programs) > 1:
                parts = [f"{_ranks(ranks)}: {titles[program]}" for program, ranks in programs.items()]
                yield f"run {number} is of different programs: {'; '.join(parts)}"

    def _failures(self) -> Iterator[str]:
        failures: dict[str, list[int]] = {}
        for rank, dump in sorted(self.dumps.items()):
            if dump.failure:
                failures.setdefault(dump.failure.splitlines()[0], []).append(rank)
        for text, ranks in failures.items():
            yield f"{_ranks(ranks)} failed: {text}"

    def _held_up(self) -> Iterator[str]:
        """The devices that others wait for and that wait for nobody themselves, by their ranks."""
        held: dict[int, list[RankWait]] = {}
        for wait in self.result.waits:
            for other in wait.others:
                if not self._waiting(other):
                    held.setdefault(other[0], []).append(wait)
        for rank, waits in sorted(held.items())[:_SHOWN]:
            places = "; ".join(list(dict.fromkeys(wait.where for wait in waits))[:_SHOWN])
            ranks = sorted({wait.rank for wait in waits} - {rank}) or [rank]
            state = self._state(rank) if rank in self.dumps else "no dump of it: it ended, or could not write one"
            verb = "waits" if len(ranks) == 1 else "wait"
            yield f"{_ranks(ranks)} {verb} for rank {rank} at {places}. Rank {rank}: {state}"
        if len(held) > _SHOWN:
            yield f"{len(held) - _SHOWN} more ranks hold others up"

    def _waiting(self, node: Node) -> list[Node]:
        """The nodes that wait: the device itself or its whole rank; for a whole rank each of its devices."""
        waiting = dict.fromkeys(wait.node for wait in self.result.waits)
        if node[1] == WHOLE:
            return [other for other in waiting if other[0] == node[0]]
        return [other for other in (node, (node[0], WHOLE)) if other in waiting]

    def _orders(self) -> Iterator[str]:
        """The places where orders of common collectives part, of devices of which one waits for the other."""
        found: dict[tuple[int, int], None] = {}
        for dump in self.dumps.values():
            for event in dump.events:
                if event.run == self.newest and event.state == "entered":
                    for member in event.members:
                        if not self._came(dump.run, event, member):
                            found.setdefault((min(event.device, member), max(event.device, member)))
        told = 0
        for one, other in found:
            text = self._order(one, other)
            if text and told < _SHOWN:
                told += 1
                yield text

    def _order(self, one: int, other: int) -> str:
        sequences = [self._shared(a, b) for a, b in ((one, other), (other, one))]
        if not all(sequences):
            return ""
        places = [[event.place for event in sequence] for sequence in sequences]
        if places[1][0] in places[0]:
            sequences[0] = sequences[0][places[0].index(places[1][0]) :]
        elif places[0][0] in places[1]:
            sequences[1] = sequences[1][places[1].index(places[0][0]) :]
        before = ""
        for a, b in zip(*sequences):
            if a.place != b.place:
                after = f" after {before}" if before else ""
                x, y = self._named(one), self._named(other)
                return f"{x} and {y} disagree about the order:{after} {x} comes to {a}, {y} to {b}"
            before = a.name
        return ""

    def _shared(self, device: int, other: int) -> list[Event]:
        """The events of a device in the newest run that the other one is a member of, too."""
        for dump in self.dumps.values():
            found = [e for e in dump.events if e.device == device and e.run == self.newest and other in e.members]
            if found:
                return found
        return []

    def _named(self, device: int) -> str:
        run = next((d.run for d in self.dumps.values() if d.run.number == self.newest), None)
        if run is None or len(set(run.homes)) == len(run.homes):
            return f"rank {device if run is None else self._home(run, device)}"
        return f"device {device} (rank {self._home(run, device)})"

    def _cycles(self) -> Iterator[str]:
        """Devices that wait for each other."""
        graph: dict[Node, set[Node]] = {}
        for wait in self.result.waits:
            graph.setdefault(wait.node, set()).update(t for other in wait.others for t in self._waiting(other))
        left = set(graph)
        while True:
            aimed = {target for node in left for target in graph[node] & left}
            kept = {node for node in left if graph[node] & left} & aimed
            if kept == left:
                break
            left = kept
        if left:
            ranks = sorted({rank for rank, _ in left})
            yield f"{_ranks(ranks)} wait for each other: none of them can continue"


def _titled(run: RecordedRun) -> str:
    return f" of {run.title}" if run.title else ""


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (f" and {len(ranks) - _SHOWN} more" if len(ranks) > _SHOWN else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.0f} ms"
