"""The processes that run JAX's programs together: the devices of each, and the library that carries collectives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from hlokit import __version__
from hlokit.devices.processes.engines import no_gloo, no_mpi
from hlokit.devices.processes.store import Store
from hlokit.errors import ArgumentError, EvaluationError, UnsupportedError

if TYPE_CHECKING:
    from hlokit.devices.processes.engine import Engine
    from hlokit.devices.processes.world import Placement, World

_START_SECONDS = 300.0
"""For all processes to come together."""
_LAST_SECONDS = 8.0
"""For other processes to see what is wrong."""
_WAIT_SECONDS = 1.0
"""The longest wait for the store in one call; in between Python hears signals."""


@dataclass(frozen=True)
class Topology:
    """The devices of all processes. `process`: this one; `counts`: how many devices each process has."""

    process: int = 0
    counts: tuple[int, ...] = (1,)

    @cached_property
    def homes(self) -> list[tuple[int, int]]:
        """(process, number among its own) of each device."""
        return [(process, local) for process, count in enumerate(self.counts) for local in range(count)]


@dataclass
class Job:
    """All processes, which make it together. `world`: of all; `among`: makes the engine of some of them."""

    topology: Topology
    store: Store
    name: str
    world: World
    among: Callable[[tuple[int, ...]], Engine]
    _worlds: dict[tuple[int, ...], World] = field(default_factory=dict[tuple[int, ...], "World"])

    def placed(self, homes: Sequence[int]) -> Placement:
        """The world of these processes, and the rank that has each device. All of the processes ask for it."""
        from hlokit.devices.processes.world import Placement

        processes = tuple(sorted(set(homes)))
        return Placement(self._among(processes), [processes.index(process) for process in homes])

    def _among(self, processes: tuple[int, ...]) -> World:
        if len(processes) == len(self.topology.counts):
            return self.world
        if processes not in self._worlds:
            from hlokit.devices.processes.world import World

            name, own = f"{self.name}/world/{','.join(map(str, processes))}", self.topology.process
            first, *others = processes  # which sees to the others, of whom each asks for one value
            if own == first:
                for process in others:
                    self._come(f"{name}/{process}", f"process {process} does not run the program of {list(processes)}")
                self.store.put(f"{name}/all", b"here")
            else:
                self.store.put(f"{name}/{own}", b"here")
                self._come(f"{name}/all", f"not all of {list(processes)} run their program")
            self._worlds[processes] = World(self.among(processes))
        return self._worlds[processes]

    def _come(self, key: str, missing: str) -> None:
        while self.store.get(key, _WAIT_SECONDS) is None:
            if self.world.lost is not None:
                raise EvaluationError(f"{missing}: {self.world.lost}")


@dataclass(frozen=True)
class Carrier:
    """The engine of collectives, by name, and the address of JAX's coordinator, which gloo needs."""

    engine: str = "mpi"
    coordinator: str = "127.0.0.1"


def joined(process: int, count: int, devices: int, store: Store, generation: int, carrier: Carrier) -> Job:
    """The job of `count` processes, of which this one has the number `process` and so many devices.

    generation   of the client, from 0: JAX may make another one later

    UnsupportedError: the engine's library is missing, or MPI did not start the processes. ArgumentError: they disagree
    about the versions or the number of processes. EvaluationError: not all came in time.
    """
    from hlokit.devices.processes.world import World

    own = {"hlokit": __version__, "engine": carrier.engine, "processes": count, "devices": devices}
    own |= _place_in_mpi(count) if carrier.engine == "mpi" else {}
    name = f"hlokit/{generation}"
    store.put(f"{name}/{process}", json.dumps(own).encode())
    found = _all(store, name, process, count)
    for other, facts in enumerate(found):
        for key in ("hlokit", "engine", "processes"):
            if facts[key] != own[key]:
                _see_to_others(store, name, process, count)
                raise ArgumentError(f"process {other} has {key}={facts[key]!r}, process {process} {own[key]!r}")
    among = _among_mpi(found) if carrier.engine == "mpi" else _among_gloo(store, name, process, carrier.coordinator)
    topology = Topology(process, tuple(int(facts["devices"]) for facts in found))
    return Job(topology, store, name, World(among(tuple(range(count)))), among)


def _place_in_mpi(count: int) -> dict[str, int]:
    try:
        from hlokit.devices.processes.mpi import position
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(f"{count} processes: {no_mpi(error)}; HLOKIT_COLLECTIVES=gloo needs no MPI") from None
    rank, size = position()
    return {"rank": rank, "size": size}


def _among_mpi(found: Sequence[dict[str, Any]]) -> Callable[[tuple[int, ...]], Engine]:
    from hlokit.devices.processes.mpi import among

    ranks, sizes, count = [int(facts["rank"]) for facts in found], {facts["size"] for facts in found}, len(found)
    if len(set(ranks)) < count or len(sizes) > 1 or max(ranks) >= min(sizes):
        raise UnsupportedError(
            f"{count} processes, but MPI has started {min(sizes)} (of ranks {ranks}): start them together, by "
            f"`mpirun -n {count} python ...` or `python -m hlokit.launch -n {count} -- python ...`; "
            "HLOKIT_COLLECTIVES=gloo needs no MPI"
        )
    return lambda processes: among([ranks[p] for p in processes])


def _among_gloo(store: Store, name: str, process: int, coordinator: str) -> Callable[[tuple[int, ...]], Engine]:
    try:
        from hlokit.devices.processes.gloo import from_store
    except ImportError as error:
        raise no_gloo(error) from None

    def among(processes: tuple[int, ...]) -> Engine:
        place = f"{name}/gloo/{','.join(map(str, processes))}"
        return from_store(store, place, processes.index(process), len(processes), coordinator)

    return among


def _see_to_others(store: Store, name: str, process: int, count: int) -> None:
    """Before processes that disagree end: the store ends with process 0, and JAX then ends the others before they can
    say why. So process 0 waits until they have seen it."""
    store.put(f"{name}/seen/{process}", b"seen")
    end = time.monotonic() + _LAST_SECONDS
    for other in range(1, count) if process == 0 else ():
        store.get(f"{name}/seen/{other}", max(0.0, end - time.monotonic()))


def _all(store: Store, name: str, process: int, count: int) -> list[dict[str, Any]]:
    """The values that the processes have put there. Process 0 asks for all, and each other one for one value."""
    end = time.monotonic() + _START_SECONDS
    if process:
        return json.loads(_awaited(store, f"{name}/all", end, f"some of {count} processes"))
    keys = {other: f"{name}/{other}" for other in range(count)}
    found = [json.loads(_awaited(store, key, end, f"process {other} of {count}")) for other, key in keys.items()]
    store.put(f"{name}/all", json.dumps(found).encode())
    return found


def _awaited(store: Store, key: str, end: float, late: str) -> bytes:
    while (value := store.get(key, _WAIT_SECONDS)) is None:
        if time.monotonic() > end:
            raise EvaluationError(f"{late} did not connect within {_START_SECONDS:.0f} seconds")
    return value
