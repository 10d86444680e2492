"""The machine's limits, and the least time a program can take under them: its floor.

The defaults were measured on two threads of a Zen 4 (3.67 GHz, AVX-512, 1 MiB of L2 a core, 32 MiB of L3). A run
measures its own machine's (bench/measure.py), or takes them from a file (`--limits`, a JSON object of the fields).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from bench.programs.program import Program


@dataclass(frozen=True)
class Limits:
    """Rates of all threads together.

    peaks       flops (2 a multiply-add) a second by the kind of arithmetic
    vector_ops  f32 element operations a second: one 512-bit instruction a cycle and core
    caches      (working set in bytes, bytes a second up to it), ascending
    memory      bytes a second of reads and streaming writes together, from DRAM
    memory_read bytes a second of reads alone
    """

    peaks: dict[str, float] = field(
        default_factory=lambda: {"f32": 230e9, "f64": 116e9, "bf16": 462e9, "i8": 927e9}
    )  # fmt: skip
    vector_ops: float = 116e9
    caches: tuple[tuple[float, float], ...] = ((1.5e6, 190e9), (24e6, 150e9), (40e6, 100e9))
    memory: float = 73e9
    memory_read: float = 58e9

    @staticmethod
    def load(path: Path) -> Limits:
        return Limits(**json.loads(path.read_text(encoding="utf-8")))

    def bandwidth(self, in_bytes: int, out_bytes: int) -> float:
        """Bytes a second for a program of these arguments and results: a cache's where one holds them."""
        for size, rate in self.caches:
            if in_bytes + out_bytes <= size:
                return rate
        return self.memory_read if out_bytes * 8 < in_bytes else self.memory

    def floor_ms(self, program: Program, in_bytes: int, out_bytes: int) -> tuple[float, str]:
        """Milliseconds, and which limit it is: "memory", "arithmetic" or "vector"."""
        moved = in_bytes + out_bytes if program.moved is None else program.moved
        bounds = {
            "memory": moved / self.bandwidth(in_bytes, out_bytes),
            "arithmetic": program.flops / self.peaks[program.peak],
            "vector": program.vector_ops / self.vector_ops,
        }
        bound = max(bounds, key=lambda name: bounds[name])
        return bounds[bound] * 1e3, bound
