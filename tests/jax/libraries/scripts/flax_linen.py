"""flax.linen: a convolutional network with batch normalisation and dropout, a TrainState, AdamW with a schedule."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state

STEPS, BATCH, CLASSES = 20, 32, 10


class Network(nn.Module):
    """Images [batch, 16, 16, 3] to logits [batch, CLASSES]."""

    @nn.compact
    def __call__(self, x: jax.Array, train: bool) -> jax.Array:
        for features in (8, 16):
            shortcut = nn.Conv(features, (1, 1), strides=2)(x)
            x = nn.Conv(features, (3, 3), strides=2, use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=not train, momentum=0.9)(x) + shortcut)
        x = nn.avg_pool(x, (2, 2), strides=(2, 2)).reshape(x.shape[0], -1)
        x = nn.Dropout(0.3, deterministic=not train)(nn.gelu(nn.Dense(32)(x)))
        return nn.Dense(CLASSES)(x)


class State(train_state.TrainState):
    """With the running means and variances."""

    batch_stats: Any


@jax.jit
def step(state: State, images: jax.Array, labels: jax.Array, key: jax.Array) -> tuple[State, jax.Array]:
    def loss_of(params: Any) -> tuple[jax.Array, Any]:
        variables = {"params": params, "batch_stats": state.batch_stats}
        rngs = {"dropout": jax.random.fold_in(key, state.step)}
        logits, updates = state.apply_fn(variables, images, train=True, mutable=["batch_stats"], rngs=rngs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), updates

    (loss, updates), gradients = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=gradients, batch_stats=updates["batch_stats"]), loss


def run() -> dict[str, Any]:
    data, weights, dropout = jax.random.split(jax.random.key(0), 3)
    images = jax.random.normal(data, (STEPS, BATCH, 16, 16, 3))
    labels = jnp.argmax(images[:, :, 0, :CLASSES, 0], axis=-1)
    network = Network()
    variables = network.init(weights, images[0], train=False)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, 5, STEPS)
    state = State.create(
        apply_fn=network.apply, params=variables["params"], batch_stats=variables["batch_stats"],
        tx=optax.adamw(schedule, weight_decay=1e-3),
    )  # fmt: skip
    losses = []
    for number in range(STEPS):
        state, loss = step(state, images[number], labels[number], dropout)
        losses.append(loss)
    variables = {"params": state.params, "batch_stats": state.batch_stats}
    logits = jax.jit(network.apply, static_argnames="train")(variables, images[0], train=False)
    return {"losses": losses, "logits": logits, "end": variables}
