"""Simulation: the time that a module's collectives would take on a network of devices, from a model of the network.

    simulate(module, "ring:1024", bandwidth="100GB/s", latency="1us")

A message of m bytes takes the latencies of the links on its way, and m over the bandwidth; bytes on one link follow one
another. Collectives are messages in rounds (schedules.py).
"""

from __future__ import annotations

from hlokit.analysis.rendezvous import refuse_deadlock
from hlokit.analysis.simulation.program import ALGORITHMS, SimulationSettings, program_of
from hlokit.analysis.simulation.quantities import BANDWIDTH, FLOPS, quantity
from hlokit.analysis.simulation.replay import Segment, replayed
from hlokit.analysis.simulation.result import CollectiveTime, LinkUse, Simulation
from hlokit.analysis.simulation.topology import topology as topology_of
from hlokit.errors import ArgumentError, UnsupportedError
from hlokit.hlo.computation import counted
from hlokit.hlo.module import HloModule
from hlokit.interpreter.checks import device_counts, grid_text


def simulate(
    module: HloModule,
    topology: str,
    *,
    bandwidth: str | float,
    latency: str | float,
    replicas: int | None = None,
    partitions: int | None = None,
    algorithm: str = "auto",
    flops: str | float | None = None,
    memory_bandwidth: str | float | None = None,
    trip_count: int | None = None,
) -> Simulation:
    """Replays a module on all devices of a topology, in an alpha-beta model of its links.

    topology                ring:N, mesh:AxB.., torus:AxB.., switch:N, full:N, tree:N, tree:AxB.. or hosts:HxD
    bandwidth, latency      of each link: bytes a second and seconds, as numbers or with units ("100GB/s", "1us"); with
                            commas, one for each axis of the topology
    replicas, partitions    by default as the module's header says; where that says nothing, a replica on each device
    algorithm               ring, tree or halving, for the collectives that have it; auto: the quickest
    flops                   operations a second of a device, memory_bandwidth: its bytes a second. Without them only
                            communication takes time
    trip_count              of the loops of which it is not known; else they count once

    ArgumentError for what does not fit, what `hlokit.evaluate` raises for devices that cannot meet.
    """
    if algorithm not in ALGORITHMS:
        raise ArgumentError(f"algorithm: {algorithm!r}, expected one of {', '.join(ALGORITHMS)}")
    if trip_count is not None and not 0 <= trip_count <= 2**53:
        raise ArgumentError(f"trip_count: {trip_count}, expected 0 to 2^53")
    network = topology_of(topology, bandwidth, latency)
    counts = _counts(module, network.devices, replicas, partitions)
    if counts[0] * counts[1] != network.devices:
        raise ArgumentError(
            f"{module.name}: {grid_text(*counts)}, but {topology} has {counted(network.devices, 'device')}"
        )
    refuse_deadlock([module] * network.devices, counts)
    rates = (
        None if flops is None else quantity(flops, "flops", FLOPS),
        None if memory_bandwidth is None else quantity(memory_bandwidth, "memory_bandwidth", BANDWIDTH),
    )
    try:
        program = program_of(module, network, SimulationSettings(*counts, algorithm, *rates, trip_count))
    except RecursionError:
        raise UnsupportedError(f"{module.name}: calls nest too deeply to be simulated") from None
    return Simulation.of(module.name, *counts, replayed(program, network))


def _counts(module: HloModule, devices: int, replicas: int | None, partitions: int | None) -> tuple[int, int]:
    """The counts as given, else as the header says; what neither says fills the topology."""
    found = device_counts(module, replicas, partitions)
    if replicas is None and module.replica_count == 1 and devices % found[1] == 0:
        return devices // found[1], found[1]
    if partitions is None and module.num_partitions == 1 and devices % found[0] == 0:
        return found[0], devices // found[0]
    return found


__all__ = ["ALGORITHMS", "CollectiveTime", "LinkUse", "Segment", "Simulation", "simulate"]


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]
