"""A whole program as a loop of steps, and the pieces that several of them are made of."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tree = Any


@dataclass(frozen=True)
class Loop:
    """Steps from a state to the next one: `state, observed = step(state, *batches[k % len(batches)])`.

    `step` is jitted and its state donated, but for programs that run op by op, whose step is a plain function. What
    is observed is compared between platforms.
    """

    step: Callable[..., Any]
    state: Tree
    batches: list[tuple[Any, ...]] = field(default_factory=lambda: [()])


def jitted(step: Callable[..., Any], state: Tree, batches: list[tuple[Any, ...]] | None = None) -> Loop:
    """The loop of a function that JAX compiles, with its state donated: a copy, no array of which is there twice."""
    import jax
    import jax.numpy as jnp

    state = jax.tree.map(jnp.array, state)
    return Loop(jax.jit(step, donate_argnums=0), state, batches or [()])


def trained(loss_of: Callable[..., Any], parameters: Tree, batches: list[tuple[Any, ...]], rate: float = 1e-3) -> Loop:
    """Training by Adam: the gradient of a loss, moments, update; the loss is observed."""
    import jax
    import jax.numpy as jnp

    from bench.training import adam

    zeros = jax.tree.map(jnp.zeros_like, parameters)
    state = (parameters, zeros, jax.tree.map(jnp.zeros_like, parameters), jnp.float32(0))
    return Loop(adam(loss_of, rate), state, batches)


class Draw:
    """Arrays from a seed: the same on every platform."""

    def __init__(self, seed: int) -> None:
        import numpy as np

        self.numpy = np.random.default_rng(seed)

    def normal(self, *shape: int, scale: float | None = None) -> Any:
        """Normal numbers, by default divided by the square root of the number of inputs (all axes but the last)."""
        import jax.numpy as jnp

        scale = 1 / math.sqrt(math.prod(shape[:-1]) or 1) if scale is None else scale
        return jnp.asarray(self.numpy.standard_normal(shape, "float32") * scale)

    def integers(self, high: int, *shape: int) -> Any:
        import jax.numpy as jnp

        return jnp.asarray(self.numpy.integers(high, size=shape).astype("int32"))


def layer_norm(x: Any, scale: Any, shift: Any) -> Any:
    import jax

    centred = x - x.mean(-1, keepdims=True)
    return scale * centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) + shift


def attention(x: Any, block: Tree, heads: int, causal: bool) -> Any:
    """Self-attention of [batch, length, width], with `qkv` and `out` of the block."""
    import jax
    import jax.numpy as jnp

    batch, length, width = x.shape
    q, k, v = (y.reshape(batch, length, heads, -1) for y in jnp.split(x @ block["qkv"], 3, axis=-1))
    scores = jnp.einsum("blhd,bmhd->bhlm", q, k) / math.sqrt(width // heads)
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
    return jnp.einsum("bhlm,bmhd->blhd", jax.nn.softmax(scores), v).reshape(batch, length, width) @ block["out"]


def encoder_block(draw: Draw, width: int) -> Tree:
    import jax.numpy as jnp

    return {
        "qkv": draw.normal(width, 3 * width), "out": draw.normal(width, width), "up": draw.normal(width, 4 * width),
        "down": draw.normal(4 * width, width), "scales": jnp.ones((2, width)), "shifts": jnp.zeros((2, width)),
        "up_shift": jnp.zeros(4 * width), "down_shift": jnp.zeros(width),
    }  # fmt: skip


def encoded(x: Any, block: Tree, heads: int, causal: bool = False) -> Any:
    """A transformer's block: attention and a perceptron, normalised before."""
    import jax

    x = x + attention(layer_norm(x, block["scales"][0], block["shifts"][0]), block, heads, causal)
    y = layer_norm(x, block["scales"][1], block["shifts"][1]) @ block["up"] + block["up_shift"]
    return x + jax.nn.gelu(y) @ block["down"] + block["down_shift"]


def convolved(x: Any, w: Any, stride: int = 1, groups: int = 1, dilation: int = 1) -> Any:
    """A convolution of NHWC by HWIO, padded so that stride 1 keeps the size."""
    import jax

    return jax.lax.conv_general_dilated(
        x, w, (stride, stride), "SAME", rhs_dilation=(dilation, dilation),
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups,
    )  # fmt: skip


def cross_entropy(logits: Any, labels: Any) -> Any:
    import jax
    import jax.numpy as jnp

    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1).mean()
