"""flax.nnx: a small causal transformer with dropout on a language of cycles; nnx.jit, nnx.grad, nnx.Optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

STEPS, BATCH, LENGTH, WORDS, WIDTH = 20, 16, 24, 32, 32


class Block(nnx.Module):
    """Activations [batch, length, WIDTH] to the same."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first, self.second = nnx.LayerNorm(WIDTH, rngs=rngs), nnx.RMSNorm(WIDTH, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=WIDTH, decode=False, use_bias=False, rngs=rngs)
        self.up, self.down = nnx.Linear(WIDTH, 64, rngs=rngs), nnx.Linear(64, WIDTH, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        mask = nnx.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + self.attention(self.first(x), mask=mask)
        return x + self.dropout(self.down(nnx.silu(self.up(self.second(x)))))


class Transformer(nnx.Module):
    """Tokens [batch, length] to logits [batch, length, WORDS]; its blocks are one, stacked and scanned."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(WORDS, WIDTH, rngs=rngs)
        self.places = nnx.Param(0.02 * jax.random.normal(rngs.params(), (LENGTH, WIDTH)))
        self.blocks = nnx.List([Block(rngs) for _ in range(2)])
        self.head = nnx.Linear(WIDTH, WORDS, rngs=rngs)

    def __call__(self, tokens: jax.Array) -> jax.Array:
        x = self.words(tokens) + self.places[...]
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@nnx.jit
def step(model: Transformer, optimizer: nnx.Optimizer, metric: nnx.MultiMetric, tokens: jax.Array) -> jax.Array:
    def loss_of(model: Transformer) -> jax.Array:
        logits = model(tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    metric.update(loss=loss)
    return loss


def run() -> dict[str, Any]:
    starts = jax.random.randint(jax.random.key(1), (STEPS, BATCH, 1), 0, WORDS)
    strides = jax.random.randint(jax.random.key(2), (STEPS, BATCH, 1), 1, 4)
    tokens = (starts + strides * jnp.arange(LENGTH + 1)) % WORDS
    model = Transformer(nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3)), wrt=nnx.Param)
    metric = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))
    losses = [step(model, optimizer, metric, batch) for batch in tokens]
    model.eval()
    logits = nnx.jit(lambda model, x: model(x))(model, tokens[0, :, :-1])
    end = nnx.to_pure_dict(nnx.state(model, nnx.Param))
    return {"losses": losses, "average": metric.compute()["loss"], "logits": logits, "end": end}
