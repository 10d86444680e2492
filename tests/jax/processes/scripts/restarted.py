"""Trains, with a checkpoint by orbax after each step, from the last one that there is.

python restarted.py FOLDER [STEP]: process 1 is killed in this step, once its gradients are under way
"""

import os
import signal
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

STEPS = 6
jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
rows = jax.NamedSharding(mesh, jax.P("x"))


def spread(value: np.ndarray) -> jax.Array:
    return jax.make_array_from_callback(value.shape, rows, lambda index: value[index])


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jnp.tanh(x @ weights) - y) ** 2)


@jax.jit
def step(state: dict[str, jax.Array], x: jax.Array, y: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    found, gradient = jax.value_and_grad(loss)(state["weights"], x, y)
    momentum = 0.9 * state["momentum"] + gradient
    return {"weights": state["weights"] - momentum, "momentum": momentum}, found


folder = Path(sys.argv[1])
doomed = int(sys.argv[2]) if len(sys.argv) > 2 else -1
first = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
state = {"weights": spread(first), "momentum": spread(np.zeros_like(first))}
with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as checkpoints:
    last = checkpoints.latest_step()
    if last is not None:
        kinds = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), state)
        state = checkpoints.restore(last, args=ocp.args.StandardRestore(kinds))
    for number in range(0 if last is None else last + 1, STEPS):
        draw = np.random.default_rng(number)
        x, y = (spread(draw.standard_normal(size).astype(np.float32)) for size in ((32, 16), (32, 8)))
        state, found = step(state, x, y)
        if number == doomed and jax.process_index() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        print(f"step {number} loss {float(found).hex()}", flush=True)
        checkpoints.save(number, args=ocp.args.StandardSave(state))
        checkpoints.wait_until_finished()
