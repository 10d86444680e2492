"""A job in which one rank is interrupted in the midst of a run: what do all see?

mpirun -n 4 python -m tests.mpi.interrupted RANK SECONDS
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

import hlokit as hk

LOOP = """HloModule loop, replica_count=4

add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}

condition {
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(2000000000)
  ROOT t = pred[] compare(i, n), direction=LT
}

body {
  p = (s32[], f32[1000]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[1000] get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  sum = f32[1000] all-reduce(x), replica_groups={}, to_apply=add
  quarter = f32[] constant(0.25)
  quarters = f32[1000] broadcast(quarter), dimensions={}
  mean = f32[1000] multiply(sum, quarters)
  ROOT r = (s32[], f32[1000]) tuple(j, mean)
}

ENTRY main {
  x = f32[1000] parameter(0)
  zero = s32[] constant(0)
  t = (s32[], f32[1000]) tuple(zero, x)
  w = (s32[], f32[1000]) while(t), condition=condition, body=body
  ROOT y = f32[1000] get-tuple-element(w), index=1
}
"""


def main(interrupted: int, seconds: float) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    world = hk.mpi_world()
    run = hk.compile(hk.parse(LOOP), replicas=world.size)
    if world.rank == interrupted:
        threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        run(np.full(1000, world.rank, np.float32), world=world)
    except BaseException as error:
        print(f"rank {world.rank}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
