"""Each rank begins more failed runs than MPI has communicators: mpirun -n 2 python -m tests.mpi.renewed COUNT"""

from __future__ import annotations

import sys

import numpy as np

import hlokit as hk
from hlokit.devices.processes.engine import Group
from hlokit.devices.processes.mpi import MpiEngine
from hlokit.devices.processes.world import World
from tests.devices.programs import F, add, program


def main(count: int) -> None:
    engine = MpiEngine()
    world = World(engine)
    everyone = Group(tuple(range(engine.size)))
    data, whole = np.full(1, engine.rank, np.uint8), np.empty(engine.size, np.uint8)
    for number in range(count):
        engine.renew(number)
        engine.prepare(everyone, number)
        engine.gather(everyone, data, whole, [1] * engine.size)
        assert whole.tolist() == list(range(engine.size))
    run = hk.compile(program(lambda b, x: hk.all_reduce(x, add), hk.f32[4]), replicas=world.size)
    x = np.ones(4, F)
    run(x, world=world)
    failed = 0
    for number in range(20):  # rank 0 is in the collective that the other never reaches
        given = x if engine.rank == 0 or number % 2 else x[:2]
        try:
            run(given, world=world)
        except hk.ArgumentError:
            failed += 1
    assert failed == 10
    assert run(x, world=world).tolist() == [world.size] * 4
    print(f"rank {engine.rank}: {count}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
