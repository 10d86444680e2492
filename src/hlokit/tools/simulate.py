"""hlokit simulate: how long a module's collectives would take on a network of devices."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from hlokit.analysis.simulation import Simulation
from hlokit.analysis.simulation import simulate as simulated
from hlokit.api import verify
from hlokit.interpreter.checks import grid_text
from hlokit.tools.files import loaded

_ROWS = 40
_LINKS = 8


def simulate(
    file: Path,
    *,
    topology: str,
    bandwidth: str,
    latency: str,
    replicas: int | None = None,
    partitions: int | None = None,
    algorithm: Literal["auto", "ring", "tree", "halving"] = "auto",
    flops: str | None = None,
    memory_bandwidth: str | None = None,
    trip_count: int | None = None,
    trace: Path | None = None,
    json: bool = False,
) -> None:
    """Simulates a module's collectives on a model of a network: times, bytes on links, the critical path.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    topology:
        ring:N, mesh:AxB.., torus:AxB.., switch:N, full:N, tree:N, tree:AxB.. or hosts:HxD (hosts of D devices).
    bandwidth:
        bandwidth of a link, as 100GB/s, or one for each axis of the topology, separated by commas; for trees from the
        root.
    latency:
        latency of a link, as 1us, or one for each axis.
    replicas:
        number of replicas; by default the number in the file, or else one on each device.
    partitions:
        number of partitions; by default the number in the file.
    algorithm:
        the algorithm of collectives that have a choice; auto is the fastest.
    flops:
        operations per second of a device, as 100TFLOPS. Without this and the next option, computation takes no time.
    memory_bandwidth:
        memory bandwidth of a device, as 1TB/s.
    trip_count:
        number of iterations of loops for which it is not known.
    trace:
        write a trace for Perfetto or chrome://tracing to this file.
    json:
        print all results as JSON.
    """
    module = loaded(file)
    verify(module)
    found = simulated(
        module, topology, bandwidth=bandwidth, latency=latency, replicas=replicas, partitions=partitions,
        algorithm=algorithm, flops=flops, memory_bandwidth=memory_bandwidth, trip_count=trip_count,
    )  # fmt: skip
    if trace is not None:
        found.save_trace(trace)
    if json:
        print(json_format.dumps(found.facts(), indent=1))
    else:
        _show(found, f"{topology}, {bandwidth}, {latency}")


def _show(found: Simulation, network: str) -> None:
    console = Console(highlight=False, markup=False, width=120)
    grid = grid_text(found.replicas, found.partitions)
    console.print(f"{found.module} on {network}: {_time(found.seconds)}, {grid}")
    table = _table("collective", "kind", "algorithm", "groups", "bytes", "time", "count", "total")
    for c in found.collectives[:_ROWS]:
        groups = f"{c.groups} x {c.group_size}"
        each = _time(c.seconds), str(c.count), _time(c.total)
        table.add_row(c.name, c.kind, c.algorithm, groups, f"{c.nbytes:,}", *each)
    if len(found.collectives) > _ROWS:
        table.add_row(f"... {len(found.collectives) - _ROWS} more")
    total = sum(c.total for c in found.collectives)
    table.add_row("all", "", "", "", "", "", str(sum(c.count for c in found.collectives)), _time(total))
    console.print(table)
    _show_links(console, found)
    _show_path(console, found)
    for note in found.notes:
        console.print(f"note: {note}")


def _show_links(console: Console, found: Simulation) -> None:
    if not found.used_links:
        return
    table = _table(f"busiest of {found.used_links} links", "bytes", "time", "busy")
    for link in found.busiest(_LINKS):
        busy = f"{link.seconds / found.seconds:.0%}" if found.seconds else "-"
        table.add_row(link.name, f"{link.nbytes:,.0f}", _time(link.seconds), busy)
    console.print(table)


def _show_path(console: Console, found: Simulation) -> None:
    shares = found.path_shares()
    if not shares:
        return
    table = _table("critical path", "kind", "count", "time", "share")
    for name, kind, count, seconds in shares[:_LINKS]:
        table.add_row(name, kind, str(count), _time(seconds), f"{seconds / found.seconds:.0%}")
    if len(shares) > _LINKS:
        table.add_row(f"... {len(shares) - _LINKS} more")
    console.print(table)


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD)
    table.add_column(first, overflow="fold", max_width=44)
    for name in others:
        table.add_column(name, justify="left" if name in ("kind", "algorithm") else "right")
    return table


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3f} {unit}"
    return f"{seconds * 1e6:.3f} us"
