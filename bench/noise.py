"""How much of the machine others took while we measured."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path


def machine_busy() -> float:
    """Seconds of CPU time taken by everyone since boot, time stolen by the hypervisor included."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def process_busy(pid: int) -> float:
    """Seconds of CPU time of one process, 0 when it has gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Others:
    """The share of all cores that others took since the last time it was asked for."""

    def __init__(self, pids: Callable[[], list[int]]) -> None:
        self.pids = pids
        self.last = self.now()

    def now(self) -> tuple[float, float, dict[int, float]]:
        return time.monotonic(), machine_busy(), {pid: process_busy(pid) for pid in [*self.pids(), os.getpid()]}

    def share(self) -> float:
        then, before, ours_before = self.last
        self.last = now, after, ours_after = self.now()
        ours = sum(max(0.0, busy - ours_before.get(pid, 0.0)) for pid, busy in ours_after.items())
        return max(0.0, (after - before) - ours) / max(1e-9, (now - then) * (os.cpu_count() or 1))
