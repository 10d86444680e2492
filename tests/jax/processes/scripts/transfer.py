"""Arrays go from the devices of one process to those of the other: jaxlib's sockets carry them.

python transfer.py PORT PORT
"""

import faulthandler
import os
import sys

import jax
import numpy as np

faulthandler.dump_traceback_later(120, exit=True)  # shows where one waits for data that do not come
jax.distributed.initialize()
jax.config.update("jax_cross_host_transfer_socket_address", f"127.0.0.1:{sys.argv[1 + int(os.environ['RANK'])]}")
jax.config.update("jax_cross_host_transfer_transfer_size", 64 * 1024)


def rows(process: int) -> jax.NamedSharding:
    devices = jax.local_devices(process_index=process)
    mesh = jax.make_mesh((len(devices),), ("x",), (jax.sharding.AxisType.Auto,), devices=devices)
    return jax.NamedSharding(mesh, jax.P("x"))


for number, size in enumerate((8, 1000, 100_000)):
    x = np.random.default_rng(number).standard_normal((8, size)).astype(np.float32)
    source, target = (0, 1) if number % 2 == 0 else (1, 0)
    y = jax.device_put(jax.device_put(x, rows(source)), rows(target))
    z = jax.jit(lambda y: y * 2)(y) if jax.process_index() == target else None  # before the data have come
    for shard in z.addressable_shards if z is not None else ():
        np.testing.assert_array_equal(shard.data, 2 * x[shard.index])
    print(f"process {jax.process_index()}: {size}", flush=True)
