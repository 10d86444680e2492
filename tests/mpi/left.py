"""Rank 1 hears that the last run is over only after rank 0 has left: mpirun -n 2 python -m tests.mpi.left."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.devices.processes.world import World
from tests.devices.programs import add, program


class Slow(World):
    def _over(self, interrupt: Any) -> None:
        if self.rank == 1:
            while self.lost is None:
                time.sleep(0.01)
        super()._over(interrupt)


def main() -> None:
    from hlokit.devices.processes.engines import engine_name, engine_of_job

    with Slow(engine_of_job(engine_name())) as world:
        x = np.full(2, world.rank + 1, np.float32)
        found = hk.evaluate(program(lambda b, x: hk.all_reduce(x, add), hk.f32[2]), x, replicas=world.size, world=world)
        print(f"rank {world.rank}: {found[0]:g}", flush=True)


if __name__ == "__main__":
    main()
