"""A training state that orbax saves on all processes (save FOLDER), or restores on others (restore FOLDER)."""

import sys

import jax
import numpy as np
import orbax.checkpoint as ocp

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
rows = jax.NamedSharding(mesh, jax.P("x"))
values = {"w": np.arange(64, dtype=np.float32).reshape(16, 4), "b": np.arange(8, dtype=np.int32)}
state = {k: jax.make_array_from_callback(v.shape, rows, lambda index, v=v: v[index]) for k, v in values.items()}
with ocp.StandardCheckpointer() as checkpoints:
    if sys.argv[1] == "save":
        checkpoints.save(sys.argv[2], jax.tree.map(lambda x: x * 2, state))
        checkpoints.wait_until_finished()
    else:
        kinds = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), state)
        for name, found in checkpoints.restore(sys.argv[2], kinds).items():
            assert found.sharding == rows
            for shard in found.addressable_shards:
                np.testing.assert_array_equal(shard.data, values[name][shard.index] * 2)
print(sys.argv[1], flush=True)
