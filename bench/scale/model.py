"""The training step of a decoder-only transformer, as StableHLO, without its weights: JAX traces it on shapes alone.

Layers are one `jax.lax.scan` over stacked weights, and are computed again in the backward pass, so that the program has
the same size for any number of layers. Weights are bf16 and Adam's moments f32; softmax, norms and the loss are f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Transformer:
    """Sizes. With the defaults it has 6.74 billion parameters, as Llama 2 7B has."""

    layers: int = 32
    width: int = 4096
    heads: int = 32
    hidden: int = 11008
    words: int = 32000
    length: int = 2048

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the weights, by name in the order of the program's parameters; those of layers are stacked."""
        n, d, f = self.layers, self.width, self.hidden
        return {
            "down": (n, f, d), "gate": (n, d, f), "head": (d, self.words), "key": (n, d, d), "norm": (d,),
            "norm_attention": (n, d), "norm_mlp": (n, d), "out": (n, d, d), "query": (n, d, d), "up": (n, d, f),
            "value": (n, d, d), "words": (self.words, d),
        }  # fmt: skip

    @property
    def layer_parameters(self) -> int:
        """Of the matrices of one layer."""
        return 4 * self.width**2 + 3 * self.width * self.hidden

    @property
    def parameters(self) -> int:
        from math import prod

        return sum(prod(shape) for shape in self.shapes.values())


@dataclass(frozen=True)
class Layout:
    """How a step lies on a mesh of `data` times `tensor` devices: examples along "data"; with `fsdp` weights along it,
    too; features of products and heads along "tensor"."""

    data: int
    tensor: int = 1
    fsdp: bool = True

    @property
    def devices(self) -> int:
        return self.data * self.tensor

    def axes(self, name: str, rank: int) -> list[str | None]:
        """Of a weight's dimensions, the mesh's axis."""
        found: list[str | None] = [None] * rank
        if name in _ALONG_DATA and self.fsdp:
            found[_ALONG_DATA[name]] = "data"
        if name in _ALONG_TENSOR and self.tensor > 1:
            found[_ALONG_TENSOR[name]] = "tensor"
        return found


_ALONG_DATA = {
    "query": 1, "key": 1, "value": 1, "out": 2, "gate": 1, "up": 1, "down": 2, "head": 0, "words": 1
}  # fmt: skip
_ALONG_TENSOR = {
    "query": 2, "key": 2, "value": 2, "out": 1, "gate": 2, "up": 2, "down": 1, "head": 1, "words": 0
}  # fmt: skip
"""Dimensions of weights: the width, which all products fold or give, and the other one."""


def step_of(model: Transformer, batch: int, layout: Layout) -> str:
    """StableHLO text of (weights, first moments, second moments, tokens) -> (weights, moments, moments, loss).

    batch    sequences, on all devices together
    """
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

    mesh = AbstractMesh((layout.data, layout.tensor), ("data", "tensor"), axis_types=(AxisType.Auto,) * 2)
    heads, size = model.heads, model.width // model.heads

    def norm(x: Any, scale: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale

    def turned(x: Any) -> Any:
        """Rotary position embedding of [batch, length, heads, size]."""
        rates = 10000.0 ** (-jnp.arange(0, size, 2, dtype=jnp.float32) / size)
        angles = jnp.arange(model.length, dtype=jnp.float32)[:, None] * rates
        cos, sin = (f(angles)[None, :, None, :] for f in (jnp.cos, jnp.sin))
        a, b = x[..., : size // 2].astype(jnp.float32), x[..., size // 2 :].astype(jnp.float32)
        return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1).astype(x.dtype)

    def attention(x: Any, w: Any) -> Any:
        q, k, v = (
            (x @ w[name]).reshape(batch, model.length, heads, size) for name in ("query", "key", "value")
        )  # fmt: skip
        scores = jnp.einsum("bqhd,bkhd->bhqk", turned(q), turned(k)).astype(jnp.float32) / size**0.5
        causal = jnp.arange(model.length)[:, None] >= jnp.arange(model.length)[None, :]
        shares = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf), -1).astype(x.dtype)
        return jnp.einsum("bhqk,bkhd->bqhd", shares, v).reshape(batch, model.length, model.width) @ w["out"]

    def placed(*axes: str | None) -> Any:
        return NamedSharding(mesh, PartitionSpec(*axes))

    def layer(x: Any, w: Any) -> Any:
        x = jax.lax.with_sharding_constraint(x, placed("data", None, None))
        x = x + attention(norm(x, w["norm_attention"]), w)
        y = norm(x, w["norm_mlp"])
        return x + (jax.nn.silu(y @ w["gate"]) * (y @ w["up"])) @ w["down"], None

    def loss_of(weights: Any, tokens: Any) -> Any:
        outer = {name: weights[name] for name in ("words", "norm", "head")}
        stacked = {name: w for name, w in weights.items() if name not in outer}
        x = outer["words"][tokens[:, :-1]]
        x, _ = jax.lax.scan(jax.checkpoint(layer), x, stacked)
        logits = (norm(x, outer["norm"]) @ outer["head"]).astype(jnp.float32)
        right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.scipy.special.logsumexp(logits, -1) - right)

    def step(weights: Any, first: Any, second: Any, tokens: Any) -> Any:
        loss, slopes = jax.value_and_grad(loss_of)(weights, tokens)
        slopes = jax.tree.map(lambda g: g.astype(jnp.float32), slopes)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, slopes)
        moved = jax.tree.map(
            lambda p, m, v: (p - 3e-4 * m / (jnp.sqrt(v) + 1e-8)).astype(p.dtype), weights, first, second
        )
        return moved, first, second, loss

    def abstract(dtype: Any) -> Any:
        return {name: jax.ShapeDtypeStruct(shape, dtype) for name, shape in model.shapes.items()}

    tokens = jax.ShapeDtypeStruct((batch, model.length + 1), jnp.int32)
    weights = {name: placed(*layout.axes(name, len(shape))) for name, shape in model.shapes.items()}
    jitted = jax.jit(
        step, donate_argnums=(0, 1, 2), in_shardings=(weights, weights, weights, placed("data", None)),
        out_shardings=(weights, weights, weights, placed()),
    )  # fmt: skip
    traced = jitted.trace(abstract(jnp.bfloat16), abstract(jnp.float32), abstract(jnp.float32), tokens)
    return traced.lower(lowering_platforms=("cpu",)).as_text()
