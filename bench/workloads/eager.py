"""Code that JAX runs op by op, as people write it before they jit it."""

from __future__ import annotations

from typing import Any

from bench.workloads.loop import Draw, Loop, Tree, encoded, encoder_block


def mlp() -> Loop:
    """The forward pass and gradient of a perceptron of 128 rows, 256 and 256 wide, not jitted."""
    import jax
    import jax.numpy as jnp

    draw = Draw(60)
    parameters = [(draw.normal(m, n), jnp.zeros(n)) for m, n in [(64, 256), (256, 256), (256, 10)]]

    def loss_of(parameters: Tree, rows: Any, wanted: Any) -> Any:
        x = rows
        for w, b in parameters[:-1]:
            x = jnp.maximum(x @ w + b, 0)
        return ((x @ parameters[-1][0] + parameters[-1][1] - wanted) ** 2).mean()

    def step(parameters: Tree, rows: Any, wanted: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(parameters, rows, wanted)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, slopes), loss

    return Loop(step, parameters, [(draw.normal(128, 64, scale=1.0), draw.normal(128, 10, scale=1.0))])


def transformer() -> Loop:
    """The forward pass of 2 blocks of a transformer of width 128, not jitted."""
    draw = Draw(61)
    blocks = [encoder_block(draw, 128) for _ in range(2)]

    def step(state: Tree, x: Any) -> Any:
        for block in blocks:
            x = encoded(x, block, 4)
        return state, x

    return Loop(step, (), [(draw.normal(4, 64, 128, scale=1.0),)])


def statistics() -> Loop:
    """A table of 20,000 rows: means, quantiles, a histogram, ranks, a least-squares fit, not jitted."""
    import jax.numpy as jnp

    draw = Draw(62)
    table = draw.normal(20_000, 8, scale=1.0)

    def step(state: Any, table: Any) -> Any:
        centred = (table - table.mean(0)) / table.std(0)
        quantiles = jnp.quantile(table, jnp.array([0.1, 0.5, 0.9]), axis=0)
        counts, _ = jnp.histogram(table[:, 0], bins=20, range=(-4, 4))
        ranks = jnp.argsort(jnp.argsort(table[:, 1]))
        weights = jnp.linalg.solve(centred.T @ centred, centred.T @ table[:, 2])
        return state, (quantiles, counts.astype(jnp.float32), ranks[:100].astype(jnp.float32), weights)

    return Loop(step, (), [(table,)])
