"""A grid of pretended devices, on which a collective's reference runs for every device in turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.hlo.computation import Computation
from hlokit.hlo.op import Op
from hlokit.interpreter.process import Process


class _Gave(Exception):
    """A device gave its value and waits."""


class _Device(Process):
    """Collects what each device gives; the second time round every device gets what the others gave."""

    def __init__(self, grid: dict[tuple[int, int], Any], replica: int, partition: int, counts: tuple[int, int]) -> None:
        super().__init__()
        self.grid = grid
        self.replica_id, self.partition_id = replica, partition
        self.replica_count, self.partition_count = counts

    def meet(self, key: Any, members: list[tuple[int, int]], value: Any) -> list[Any]:
        own = (self.replica_id, self.partition_id)
        assert own in members
        if own not in self.grid:
            self.grid[own] = value
            raise _Gave
        return [self.grid[member] for member in members]


def on_devices(
    op: Op,
    operands: Sequence[Sequence[Any]],
    called: Computation | None = None,
    *,
    replicas: int | None = None,
    partitions: int = 1,
) -> list[Any]:
    """What `op` gives on each device, replica by replica; `operands[i]` are those of device i."""
    replicas = len(operands) // partitions if replicas is None else replicas
    grid: dict[tuple[int, int], Any] = {}
    devices = [_Device(grid, r, p, (replicas, partitions)) for r in range(replicas) for p in range(partitions)]
    results: list[Any] = []
    for last in (False, True):
        for device, values in zip(devices, operands, strict=True):
            keywords = {"to_apply": device.callee(called)} if called is not None else {}
            try:
                value = op.reference(*values, process=device, **keywords)
            except _Gave:
                continue
            if last:
                results.append(value)
    return results
