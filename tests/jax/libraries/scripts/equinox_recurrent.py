"""equinox: a recurrent classifier and a convolutional network with batch normalisation, by filtered transformations."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

STEPS, BATCH = 20, 32


class Recurrent(eqx.Module):
    """A spiral [length, 2] to the logit of its sense."""

    cell: eqx.nn.GRUCell
    norm: eqx.nn.LayerNorm
    head: eqx.nn.MLP

    def __init__(self, key: jax.Array) -> None:
        first, second = jax.random.split(key)
        self.cell, self.norm = eqx.nn.GRUCell(2, 16, key=first), eqx.nn.LayerNorm(16)
        self.head = eqx.nn.MLP(16, "scalar", 8, 1, jax.nn.softplus, key=second)

    def __call__(self, points: jax.Array) -> jax.Array:
        state, _ = jax.lax.scan(lambda state, point: (self.cell(point, state), None), jnp.zeros(16), points)
        return self.head(self.norm(state))


@eqx.filter_jit(donate="all-except-first")
def recurrent_step(batch: Any, model: Recurrent, state: Any) -> Any:
    @eqx.filter_value_and_grad
    def loss_of(model: Recurrent) -> jax.Array:
        return optax.sigmoid_binary_cross_entropy(jax.vmap(model)(batch[0]), batch[1]).mean()

    loss, gradients = loss_of(model)
    updates, state = optax.adam(1e-2).update(gradients, state)
    return eqx.apply_updates(model, updates), state, loss


def recurrent() -> dict[str, Any]:
    keys = jax.random.split(jax.random.key(0), STEPS)
    model = Recurrent(jax.random.key(1))
    state = optax.adam(1e-2).init(eqx.filter(model, eqx.is_inexact_array))
    losses = []
    for key in keys:
        sense = jax.random.bernoulli(key, shape=(BATCH,))
        angle = jnp.linspace(0, 6, 16) * jnp.where(sense, 1, -1)[:, None] + jax.random.normal(key, (BATCH, 1))
        points = jnp.stack([jnp.cos(angle), jnp.sin(angle)], -1) * jnp.linspace(0.2, 1, 16)[:, None]
        model, state, loss = recurrent_step((points, sense.astype(jnp.float32)), model, state)
        losses.append(loss)
    return {"losses": losses, "end": eqx.filter(model, eqx.is_array)}


class Convolutional(eqx.Module):
    """An image [3, 12, 12] to logits [4], with a state of running statistics."""

    layers: eqx.nn.Sequential

    def __init__(self, key: jax.Array) -> None:
        keys = jax.random.split(key, 3)
        self.layers = eqx.nn.Sequential([
            eqx.nn.Conv2d(3, 8, 3, key=keys[0]),
            eqx.nn.BatchNorm(8, axis_name="batch", mode="batch"),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(8, 8, 3, groups=2, key=keys[1]),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Dropout(0.2),
            eqx.nn.Linear(72, 4, key=keys[2]),
        ])  # fmt: skip

    def __call__(self, x: jax.Array, state: eqx.nn.State, key: jax.Array) -> tuple[jax.Array, eqx.nn.State]:
        return self.layers(x, state=state, key=key)


@eqx.filter_jit
def convolutional_step(model: Any, state: Any, memory: Any, x: jax.Array, y: jax.Array, key: jax.Array) -> Any:
    solver = optax.sgd(0.05, momentum=0.9)

    def loss_of(model: Any, state: Any) -> Any:
        over_batch = jax.vmap(model, axis_name="batch", in_axes=(0, None, 0), out_axes=(0, None))
        logits, state = over_batch(x, state, jax.random.split(key, BATCH))
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), state

    (loss, state), gradients = eqx.filter_value_and_grad(loss_of, has_aux=True)(model, state)
    updates, memory = solver.update(gradients, memory)
    return eqx.apply_updates(model, updates), state, memory, loss


def convolutional() -> dict[str, Any]:
    model, state = eqx.nn.make_with_state(Convolutional)(jax.random.key(2))
    memory = optax.sgd(0.05, momentum=0.9).init(eqx.filter(model, eqx.is_inexact_array))
    losses = []
    for key in jax.random.split(jax.random.key(3), STEPS):
        x = jax.random.uniform(key, (BATCH, 3, 12, 12))
        y = jnp.argmax(x.reshape(BATCH, 3 * 4, -1).mean(-1)[:, :4], -1)
        model, state, memory, loss = convolutional_step(model, state, memory, x, y, key)
        losses.append(loss)
    return {"losses": losses, "end": eqx.filter((model, state), eqx.is_inexact_array)}


def run() -> dict[str, Any]:
    return {"recurrent": recurrent(), "convolutional": convolutional()}
