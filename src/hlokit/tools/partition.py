"""hlokit partition: converts a program on whole values to one for each device of a mesh."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from hlokit.analysis.simulation import simulate
from hlokit.api import partition as partitioned
from hlokit.errors import ArgumentError
from hlokit.passes.partitioner import Partitioned
from hlokit.tools.files import loaded, write


def partition(
    file: Path,
    *,
    mesh: str | None = None,
    in_shardings: str | None = None,
    out_shardings: str | None = None,
    explain: bool = False,
    propagated: bool = False,
    topology: str | None = None,
    bandwidth: str = "100GB/s",
    latency: str = "1us",
    json: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Divides a program with shardings into one for each device; prints or writes it, or explains its collectives.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    mesh:
        axes and their sizes, as a=2,b=4; by default the mesh of the program's shardings.
    in_shardings:
        shardings of the parameters in the syntax of HLO, separated by semicolons; an empty one keeps that of the
        program.
    out_shardings:
        shardings of the arrays of the result.
    explain:
        print each collective with the op that needs it, the axes, the bytes and what would avoid it.
    propagated:
        print the program on whole values with the sharding of each; with `--explain`, print each divided value and the
        origin of each of its axes.
    topology:
        print the time of each collective on this topology, computed as by hlokit simulate: ring:8, torus:2x4, ...
    bandwidth:
        bandwidth of a link of the topology.
    latency:
        latency of a link of the topology.
    json:
        with `--explain`, print JSON.
    output:
        the file to write, as HLO text; by default standard output, unless `--explain` is given.
    """
    if json and (not explain or propagated):
        raise ArgumentError("partition --json: requires --explain and excludes --propagated")
    module = loaded(file, keeps_regions=True)
    found = partitioned(module, mesh, in_shardings=_shardings(in_shardings), out_shardings=_shardings(out_shardings))
    if propagated:
        if explain:
            print("\n".join(found.propagation.reasons()))
        if output is not None or not explain:
            write(output, found.propagation.annotated().to_text().encode())
        return
    if explain:
        times = _times(found, topology, bandwidth, latency)
        print(json_module.dumps(_facts(found, times), indent=2) if json else _explained(found, times))
    elif topology is not None:
        raise ArgumentError("partition --topology: requires --explain")
    if output is not None or not explain:
        write(output, found.module.to_text().encode())


def _shardings(text: str | None) -> list[str | None] | None:
    return None if text is None else [part.strip() or None for part in text.split(";")]


def _times(found: Partitioned, topology: str | None, bandwidth: str, latency: str) -> dict[str, float]:
    """The seconds of each collective on a topology; nothing without one."""
    if topology is None:
        return {}
    replay = simulate(found.module, topology, bandwidth=bandwidth, latency=latency)
    return {c.name: c.seconds for c in replay.collectives}


def _facts(found: Partitioned, times: dict[str, float]) -> dict[str, Any]:
    rows = [
        {
            "collective": r.collective, "kind": r.kind, "op": r.op, "opcode": r.opcode,
            "axes": [str(a) for a in r.axes], "value": r.value, "before": r.before, "after": r.after,
            "bytes": r.nbytes, "because": r.because, "advice": r.advice, "seconds": times.get(r.collective),
        }
        for r in found.reasons
    ]  # fmt: skip
    return {"module": found.module.name, "devices": found.module.num_partitions, "reasons": rows}


def _explained(found: Partitioned, times: dict[str, float]) -> str:
    """The reasons, with times on a topology; and how much there is of them."""
    lines: list[str] = []
    for reason in found.reasons:
        first, *rest = str(reason).split("\n")
        if reason.collective in times:
            first += f", {times[reason.collective] * 1e6:.3f} us"
        lines += [first, *rest]
    collectives = [r for r in found.reasons if r.collective]
    whole = sum(not r.collective for r in found.reasons)
    nbytes = sum(r.nbytes for r in collectives)
    lines.append(f"{found.module.name} on {found.module.num_partitions} devices: {len(collectives)} collectives of")
    lines[-1] += f" {nbytes:,} bytes a device, {whole} ops on whole values"
    return "\n".join(lines)
