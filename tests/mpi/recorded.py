"""Jobs whose flight recorders are read: mpirun -n 3 python -m tests.mpi.recorded WHAT, with HLOKIT_FLIGHT_RECORDER set.

late      rank 1 does not come to the second collective until all have written what they are at, as a signal asks them to
order     ranks 0 and 1 come to two collectives in different orders
programs  rank 1 runs another program
failing   rank 1 raises an error between two collectives
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.devices.processes.guard import guarded
from tests.devices.programs import F, add, program

SECONDS = 60.0


def two(b: Any, x: Any) -> Any:
    first = hk.all_reduce(x, add, channel_id=hk.ChannelHandle(1))
    return hk.all_reduce(hk.max(first, x), add, channel_id=hk.ChannelHandle(2))


def either(b: Any, x: Any, flag: Any) -> Any:
    """The two collectives, in an order that the argument says."""

    def one(channel: int) -> Any:
        return lambda y: hk.all_reduce(y, add, channel_id=hk.ChannelHandle(channel))

    return hk.conditional(flag, x, lambda y: one(1)(one(2)(y)), x, lambda y: one(2)(one(1)(y)))


def main(what: str) -> None:
    guarded()
    from mpi4py import MPI  # its import starts MPI

    world = hk.mpi_world()
    pids = MPI.COMM_WORLD.allgather(os.getpid())
    folder = Path(os.environ["HLOKIT_FLIGHT_RECORDER"])
    seen = 0

    def before(instruction: Any, operands: Any) -> None:
        nonlocal seen
        seen += instruction.opcode == "all-reduce"
        if world.rank != 1 or seen != 2 or instruction.opcode != "all-reduce":
            return
        if what == "failing":
            raise hk.EvaluationError("no more data")
        end = time.monotonic() + SECONDS
        while sorted(written()) != [1, 2, 2] and time.monotonic() < end:
            for pid in pids:
                os.kill(pid, signal.SIGUSR2)
            time.sleep(0.2)

    def written() -> list[int]:
        """How many collectives each rank's file has."""
        return [len(json.loads(path.read_text(encoding="utf-8"))["collectives"]) for path in folder.glob("*.json")]

    x = np.full(4, world.rank, F)
    try:
        if what == "programs":
            module = program(two if world.rank != 1 else lambda b, x: hk.all_reduce(x, add), hk.f32[4], name="step")
            hk.evaluate(module, x, replicas=world.size, world=world)
        elif what == "order":
            module = program(either, hk.f32[4], hk.pred[()])
            hk.evaluate(module, x, np.bool_(world.rank == 1), replicas=world.size, world=world)
        else:
            module = program(two, hk.f32[4], name="step")
            hk.evaluate(module, x, replicas=world.size, world=world, before=before)
        print(f"rank {world.rank}: done", flush=True)
    except hk.HlokitError as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        print(f"rank {world.rank}: {str(error).splitlines()[0]} [{notes}]", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
