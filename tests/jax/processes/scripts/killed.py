"""Trains, until the process WHO is killed before step 3: what do the others say?

python killed.py WHO
"""

import os
import signal
import sys
import time

import jax
import numpy as np

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
x = jax.device_put(np.ones((jax.device_count(), 4), np.float32), jax.NamedSharding(mesh, jax.P("x")))
step = jax.jit(lambda x: x - x.sum(0) / 8)
try:
    for number in range(1000):
        if number == 3 and jax.process_index() == int(sys.argv[1]):
            print(f"killed {time.time()}", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        x = step(x)
except Exception as error:
    print(f"process {jax.process_index()} {time.time()}: {error}", flush=True)
    raise
