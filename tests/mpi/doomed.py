"""A job in which one rank ends in the midst: what do the others do?

mpirun -n 3 python -m tests.mpi.doomed RANK WHEN
python -m hlokit.launch --collectives gloo -n 3 -- python -m tests.mpi.doomed RANK WHEN
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.devices.processes.engines import engine_name, engine_of_job
from hlokit.devices.processes.guard import guarded
from hlokit.devices.processes.world import World
from tests.devices.programs import F, add, program


def ends() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main(doomed: int, when: str) -> None:
    if when != "unguarded":
        guarded()
    engine = engine_of_job(engine_name())
    world = World(engine)
    mine = world.rank == doomed
    whole = program(lambda b, x: hk.all_reduce(x, add), hk.f32[1000])
    others = program(lambda b, x: hk.all_reduce(x, add, [[0, 1], [2]]), hk.f32[1000])
    seen = 0

    def before(instruction: Any, operands: Any) -> None:
        nonlocal seen
        seen += instruction.opcode == "all-reduce"
        if mine and seen == 3 and when in ("computing", "unguarded"):
            time.sleep(1)  # the others come to the collective
            ends()

    if mine and when == "moving":
        engine.exchange = lambda *_: ends()  # type: ignore[method-assign,assignment]
    if mine and when == "grouping":
        engine.prepare = lambda *_: ends()  # type: ignore[method-assign,assignment]
    if when == "raising":
        if mine:
            raise ValueError("not in a run")
        time.sleep(2.8)
    run = hk.compile(whole, replicas=world.size) if when == "machine code" else None
    try:
        for step in range(10**6):
            if mine and step == 3 and when in ("idle", "machine code", "busy", "last"):
                time.sleep(1)  # the others leave the run before
                ends()
            if step == 3 and when in ("busy", "last"):
                time.sleep(4)
            if step == 3 and when == "last":
                os._exit(1)  # as JAX ends a process
            x = np.full(1000, step, F)
            if run is not None:
                run(x, world=world)
            else:
                hk.evaluate(others if when == "grouping" else whole, x, replicas=3, world=world, before=before)
    except hk.EvaluationError as error:
        print(f"rank {world.rank}: {error}", flush=True)
        print(time.time(), file=sys.stderr)
        raise


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
