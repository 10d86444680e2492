"""The processes that run JAX's programs together: which devices each has, and what carries collectives between them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from hlokit import __version__
from hlokit.errors import ArgumentError, EvaluationError, UnsupportedError

if TYPE_CHECKING:
    from hlokit.devices.mpi.world import Placement, World

ENGINES = ("mpi",)
"""Carriers of collectives between processes, by name."""
_START_SECONDS = 300.0
"""For all processes to come together."""
_WAIT_SECONDS = 1.0
"""The longest wait for the store in one call; in between Python hears signals."""


@dataclass(frozen=True)
class Topology:
    """The devices of all processes. `process`: this one; `counts`: how many devices each process has."""

    process: int = 0
    counts: tuple[int, ...] = (1,)

    @property
    def device_count(self) -> int:
        return sum(self.counts)

    @property
    def first(self) -> int:
        """The number of this process's first device."""
        return sum(self.counts[: self.process])

    def home(self, number: int) -> tuple[int, int]:
        """(process, number among its own) of a device."""
        for process, count in enumerate(self.counts):
            if number < count:
                return process, number
            number -= count
        raise AssertionError(number)


class Store(Protocol):
    """Values by name, which all processes share. EvaluationError: it cannot be reached any more."""

    def put(self, key: str, value: bytes) -> None: ...

    def get(self, key: str, seconds: float) -> bytes | None:
        """The value, once there is one; None if there is none in time."""
        ...


def engine() -> str:
    """HLOKIT_COLLECTIVES: what carries collectives between processes. UnsupportedError for what there is not."""
    found = os.environ.get("HLOKIT_COLLECTIVES", "mpi")
    if found not in ENGINES:
        raise UnsupportedError(f"HLOKIT_COLLECTIVES={found!r}: expected one of {', '.join(ENGINES)}")
    return found


@dataclass
class Job:
    """All processes, which make it together. `world`: of all; `ranks`: MPI's number of each process."""

    topology: Topology
    store: Store
    name: str
    world: World
    ranks: tuple[int, ...]
    _worlds: dict[tuple[int, ...], World] = field(default_factory=dict[tuple[int, ...], "World"])

    def placed(self, homes: Sequence[int]) -> Placement:
        """The world of these processes, and the rank that has each device. All of the processes ask for it."""
        from hlokit.devices.mpi.world import Placement

        processes = tuple(sorted(set(homes)))
        return Placement(self._among(processes), [processes.index(process) for process in homes])

    def _among(self, processes: tuple[int, ...]) -> World:
        if len(processes) == len(self.ranks):
            return self.world
        if processes not in self._worlds:
            from hlokit.devices.mpi.world import among

            name = f"{self.name}/world/{','.join(map(str, processes))}"
            self.store.put(f"{name}/{self.topology.process}", b"here")
            for process in processes:
                self._come(f"{name}/{process}", f"process {process} does not run the program of {list(processes)}")
            self._worlds[processes] = among([self.ranks[p] for p in processes])
        return self._worlds[processes]

    def _come(self, key: str, missing: str) -> None:
        while self.store.get(key, _WAIT_SECONDS) is None:
            if self.world.lost is not None:
                raise EvaluationError(f"{missing}: {self.world.lost}")


def joined(process: int, count: int, devices: int, store: Store, generation: int) -> Job:
    """The job of `count` processes, of which this one has the number `process` and so many devices.

    generation   of the client, from 0: JAX may make another one later

    UnsupportedError: MPI is missing, or did not start the processes. ArgumentError: they disagree about the versions or
    the number of processes. EvaluationError: not all came in time.
    """
    carried_by = engine()
    try:
        from hlokit.devices.mpi.world import among, position
    except (ImportError, RuntimeError) as error:
        text = f"{count} processes: collectives go by MPI: {error}. `pip install 'hlokit[mpi]' mpich` gives both"
        raise UnsupportedError(text) from None
    rank, size = position()
    name = f"hlokit/{generation}"
    own = {"hlokit": __version__, "engine": carried_by, "processes": count, "devices": devices}
    own |= {"rank": rank, "size": size}
    store.put(f"{name}/{process}", json.dumps(own).encode())
    found = _all(store, name, count)
    for other, facts in enumerate(found):
        for key in ("hlokit", "engine", "processes"):
            if facts[key] != own[key]:
                raise ArgumentError(f"process {other} has {key}={facts[key]!r}, process {process} {own[key]!r}")
    ranks = tuple(int(facts["rank"]) for facts in found)
    if len(set(ranks)) < count or any(facts["size"] != size for facts in found) or max(ranks) >= size:
        raise UnsupportedError(
            f"{count} processes, but MPI has started {size} (of ranks {list(ranks)}): start them together, by "
            f"`mpirun -n {count} python ...` or `python -m hlokit.launch -n {count} -- python ...`"
        )
    topology = Topology(process, tuple(int(facts["devices"]) for facts in found))
    return Job(topology, store, name, among(ranks), ranks)


def _all(store: Store, name: str, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    end = time.monotonic() + _START_SECONDS
    while len(found) < count:
        value = store.get(f"{name}/{len(found)}", _WAIT_SECONDS)
        if value is not None:
            found.append(json.loads(value))
        elif time.monotonic() > end:
            raise EvaluationError(f"process {len(found)} of {count} did not come within {_START_SECONDS:.0f} seconds")
    return found
