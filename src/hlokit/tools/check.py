"""hlokit check: does a file hold a legal program?"""

from __future__ import annotations

from pathlib import Path

from hlokit.analysis.rendezvous import check_rendezvous
from hlokit.api import load, verify
from hlokit.hlo.module import HloModule
from hlokit.interpreter.evaluate import device_counts
from hlokit.interpreter.order import communication_of


def check(file: Path, *, replicas: int | None = None, partitions: int | None = None) -> None:
    """Reads a module and verifies every rule of the language; lists all findings.

    Says of a program with collectives or channels whether the devices that run it always meet, or how they may not.

    Parameters
    ----------
    file:
        HLO or StableHLO text, or a serialized HloModuleProto.
    replicas:
        how many replicas are to run it; by default as many as the file says.
    partitions:
        how many partitions are to run it; by default as many as the file says.
    """
    module = load(file)
    verify(module)
    computations = module.all_computations
    count = sum(len(c) for c in computations)
    print(f"{module.name}: ok, {len(computations)} computation(s), {count} instruction(s)")
    print(f"  {module.program_shape}")
    _check_devices(module, *device_counts(module, replicas, partitions))


def _check_devices(module: HloModule, replicas: int, partitions: int) -> None:
    """Prints whether the devices meet. Raises the error that running the program would surely end with."""
    matters = communication_of()
    if not any(matters(i) for c in module.all_computations for i in c.instructions):
        return
    finding = check_rendezvous([module] * (replicas * partitions), replicas, partitions, steps=500_000, paths=2_000)
    print(f"  {replicas} replica(s) of {partitions} partition(s): {finding}")
    if finding.error is not None:
        raise finding.error
