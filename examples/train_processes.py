"""Trains a small transformer on the devices of all processes.

    python -m hlokit.launch -n 2 --devices 2 -- python examples/train_processes.py fsdp

The argument says how the work is divided: `data` (each device has some of the sequences, and all weights), `fsdp` (also
a share of each weight, which is gathered when it is used), `tensor` (all sequences, and a share of the features of each
layer). The first process prints the losses. They are the same, bit for bit, however many processes have the devices.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

LAYERS, WIDTH, HEADS, WORDS, LENGTH, BATCH, STEPS = 2, 32, 4, 64, 16, 8, 5
P = jax.P
Weights = dict[str, Any]


def shardings(way: str, mesh: jax.sharding.Mesh) -> tuple[dict[str, Any], Any]:
    """Of each weight, and of the batch."""
    first, second = {"data": (P(), P()), "fsdp": (P("x"), P("x")), "tensor": (P(None, "x"), P("x"))}[way]
    specs = {"embed": P("x") if way == "fsdp" else P(), "query": first, "key": first, "value": first, "up": first}
    specs |= {"out": second, "down": second}
    placed = {name: jax.NamedSharding(mesh, spec) for name, spec in specs.items()}
    return placed, jax.NamedSharding(mesh, P() if way == "tensor" else P("x"))


def initial() -> list[Weights]:
    numbers = np.random.default_rng(0)

    def drawn(*sizes: int) -> Any:
        return (numbers.standard_normal(sizes) / np.sqrt(sizes[0])).astype(np.float32)

    sizes = dict.fromkeys(("query", "key", "value", "out"), (WIDTH, WIDTH)) | {
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
    }
    layers = [{name: drawn(*size) for name, size in sizes.items()} for _ in range(LAYERS)]
    return [{"embed": drawn(WORDS, WIDTH)}, *layers]


def attention(w: Weights, x: jax.Array) -> jax.Array:
    def heads(name: str) -> jax.Array:
        return (x @ w[name]).reshape(*x.shape[:2], HEADS, -1)

    scores = jnp.einsum("bqhd,bkhd->bhqk", heads("query"), heads("key")) / np.float32(np.sqrt(WIDTH // HEADS))
    mask = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), heads("value"))
    return mixed.reshape(x.shape) @ w["out"]


def normalized(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)


def loss(weights: list[Weights], words: jax.Array) -> jax.Array:
    table = weights[0]["embed"]
    x = table[words]
    for w in weights[1:]:
        x = x + attention(w, normalized(x))
        x = x + jax.nn.gelu(normalized(x) @ w["up"]) @ w["down"]
    scores = jax.nn.log_softmax(normalized(x) @ table.T)
    chosen = jnp.take_along_axis(scores[:, :-1], words[:, 1:, None], -1)
    return -jnp.mean(chosen)


@partial(jax.jit, donate_argnums=0)
def step(weights: list[Weights], words: jax.Array) -> tuple[list[Weights], jax.Array]:
    found, gradients = jax.value_and_grad(loss)(weights, words)
    return jax.tree.map(lambda w, g: w - np.float32(0.1) * g, weights, gradients), found


def main(way: str) -> None:
    if "JAX_COORDINATOR_ADDRESS" in os.environ:
        jax.distributed.initialize()
    mesh = jax.make_mesh((jax.device_count(),), ("x",), (jax.sharding.AxisType.Auto,))
    placed, rows = shardings(way, mesh)
    weights = [{name: jax.device_put(value, placed[name]) for name, value in w.items()} for w in initial()]
    numbers = np.random.default_rng(1)
    for _ in range(STEPS):
        words = (numbers.integers(0, WORDS, (BATCH, 1), np.int32) + 3 * np.arange(LENGTH, dtype=np.int32)) % WORDS
        batch = jax.make_array_from_callback(words.shape, rows, lambda index, words=words: words[index])
        weights, found = step(weights, batch)
        if jax.process_index() == 0:
            print(float(found).hex(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
