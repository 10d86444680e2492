"""Process WHO is killed while the others compile a program for all, in which the partitioner takes its time.

It waits until they are through with the program before. FOLDER is empty, and they say so there.

python compiling.py WHO FOLDER
"""

import os
import signal
import sys
import time
from pathlib import Path

import jax
import numpy as np

from hlokit.interop.pjrt import parts

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
x = jax.device_put(np.ones((jax.device_count(), 4), np.float32), jax.NamedSharding(mesh, jax.P("x")))
step = jax.jit(lambda x: x - x.sum(0) / 8)
jax.block_until_ready(step(x))
folder = Path(sys.argv[2])
if jax.process_index() == int(sys.argv[1]):
    while len(list(folder.iterdir())) < jax.process_count() - 1:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
(folder / str(jax.process_index())).touch()
partition = parts.partition


def slowly(*args, **options):
    time.sleep(4)
    return partition(*args, **options)


parts.partition = slowly
start = time.monotonic()
try:
    jax.jit(lambda y: y * y.sum(0)).lower(x).compile()
except Exception as error:
    print(f"process {jax.process_index()} after {time.monotonic() - start:.1f} s: {error}", flush=True)
    raise
