"""Training steps of networks: the gradient, the optimiser's update, the state donated."""

from __future__ import annotations

import math
from typing import Any

from bench.training import lstm as lstm_loop
from bench.training import mlp as mlp_loop
from bench.workloads.loop import (
    Draw,
    Loop,
    Tree,
    convolved,
    cross_entropy,
    encoded,
    encoder_block,
    layer_norm,
    trained,
)


def mlp() -> Loop:
    """A perceptron: 128 rows of 784, two hidden layers of 512, 10 classes."""
    return Loop(*mlp_loop())


def lstm() -> Loop:
    """An LSTM of width 256 over 32 sequences of 64 characters, by `lax.scan`."""
    return Loop(*lstm_loop())


def _norm(x: Any, norm: Tree) -> Any:
    import jax

    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * norm["scale"] + norm["shift"]


def _images(draw: Draw, batch: int, size: int, classes: int) -> list[tuple[Any, ...]]:
    return [(draw.normal(batch, size, size, 3, scale=1.0), draw.integers(classes, batch)) for _ in range(4)]


def residual_network(draw: Draw, blocks: tuple[int, ...], bottleneck: bool, classes: int) -> Tree:
    """The parameters of a ResNet: a stem, stages of 64, 128, 256, 512 features, a head."""
    import jax.numpy as jnp

    def norm(features: int) -> Tree:
        return {"scale": jnp.ones(features), "shift": jnp.zeros(features)}

    def kernel(*shape: int) -> Any:
        return draw.normal(*shape, scale=math.sqrt(2 / math.prod(shape[:-1])))

    stages: list[list[Tree]] = []
    inputs = 64
    for stage, count in enumerate(blocks):
        features = 64 << stage
        outputs = features * 4 if bottleneck else features
        stages.append([])
        for number in range(count):
            sizes = (
                [(1, inputs, features), (3, features, features), (1, features, outputs)]
                if bottleneck
                else [(3, inputs, features), (3, features, outputs)]
            )
            block: Tree = {
                "kernels": [kernel(k, k, i, o) for k, i, o in sizes],
                "norms": [norm(o) for _, _, o in sizes],
            }
            if number == 0 and (stage or bottleneck):
                block |= {"shortcut": kernel(1, 1, inputs, outputs), "shortcut_norm": norm(outputs)}
            stages[-1].append(block)
            inputs = outputs
    return {
        "stem": kernel(7, 7, 3, 64), "norm": norm(64), "stages": stages, "head": draw.normal(inputs, classes),
        "head_shift": jnp.zeros(classes),
    }  # fmt: skip


def residual_logits(parameters: Tree, images: Any) -> Any:
    """The forward pass of a ResNet of [batch, height, width, 3]."""
    import jax

    x = jax.nn.relu(_norm(convolved(images, parameters["stem"], 2), parameters["norm"]))
    x = jax.lax.reduce_window(x, -float("inf"), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, blocks in enumerate(parameters["stages"]):
        for number, block in enumerate(blocks):
            stride = 2 if stage and number == 0 else 1
            wide = len(block["kernels"]) - 2  # the 3x3 kernel carries the stride
            y = x
            for k, (w, norm) in enumerate(zip(block["kernels"], block["norms"])):
                y = _norm(convolved(y, w, stride if k == wide else 1), norm)
                if k < len(block["kernels"]) - 1:
                    y = jax.nn.relu(y)
            if "shortcut" in block:
                x = _norm(convolved(x, block["shortcut"], stride), block["shortcut_norm"])
            x = jax.nn.relu(x + y)
    return x.mean((1, 2)) @ parameters["head"] + parameters["head_shift"]


def resnet18() -> Loop:
    """ResNet-18: 8 images of 64 x 64, 100 classes."""
    draw = Draw(1)
    parameters = residual_network(draw, (2, 2, 2, 2), bottleneck=False, classes=100)
    batches = _images(draw, 8, 64, 100)
    return trained(lambda p, images, labels: cross_entropy(residual_logits(p, images), labels), parameters, batches)


def resnet50() -> Loop:
    """ResNet-50: 4 images of 64 x 64, 100 classes."""
    draw = Draw(2)
    parameters = residual_network(draw, (3, 4, 6, 3), bottleneck=True, classes=100)
    batches = _images(draw, 4, 64, 100)
    return trained(lambda p, images, labels: cross_entropy(residual_logits(p, images), labels), parameters, batches)


def vision_transformer(draw: Draw, size: int, patch: int, width: int, layers: int, classes: int) -> Tree:
    """The parameters of a ViT."""
    import jax.numpy as jnp

    return {
        "patches": draw.normal(patch, patch, 3, width), "places": draw.normal((size // patch) ** 2, width, scale=0.02),
        "blocks": [encoder_block(draw, width) for _ in range(layers)], "head": draw.normal(width, classes),
        "scale": jnp.ones(width), "shift": jnp.zeros(width),
    }  # fmt: skip


def vision_logits(parameters: Tree, images: Any, heads: int) -> Any:
    """The forward pass of a ViT: patches by a convolution, blocks, the mean of all places."""
    import jax

    patch = parameters["patches"].shape[0]
    x = jax.lax.conv_general_dilated(
        images, parameters["patches"], (patch, patch), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    x = x.reshape(x.shape[0], -1, x.shape[-1]) + parameters["places"]
    for block in parameters["blocks"]:
        x = encoded(x, block, heads)
    return layer_norm(x, parameters["scale"], parameters["shift"]).mean(1) @ parameters["head"]


def vit() -> Loop:
    """A ViT of 6 layers of width 192: 16 images of 64 x 64 in patches of 8 x 8."""
    draw = Draw(3)
    parameters = vision_transformer(draw, 64, 8, 192, 6, 100)
    batches = _images(draw, 16, 64, 100)
    return trained(lambda p, images, labels: cross_entropy(vision_logits(p, images, 3), labels), parameters, batches)


def gpt() -> Loop:
    """A GPT of 4 layers of width 256, 8 heads: 8 sequences of 128 of 4096 words."""
    import jax.numpy as jnp

    draw = Draw(4)
    width, words, length = 256, 4096, 128
    parameters = {
        "words": draw.normal(words, width, scale=0.02), "places": draw.normal(length, width, scale=0.02),
        "blocks": [encoder_block(draw, width) for _ in range(4)], "scale": jnp.ones(width), "shift": jnp.zeros(width),
    }  # fmt: skip

    def loss_of(parameters: Tree, tokens: Any) -> Any:
        x = parameters["words"][tokens[:, :-1]] + parameters["places"]
        for block in parameters["blocks"]:
            x = encoded(x, block, 8, causal=True)
        logits = layer_norm(x, parameters["scale"], parameters["shift"]) @ parameters["words"].T
        return cross_entropy(logits, tokens[:, 1:])

    return trained(loss_of, parameters, [(draw.integers(words, 8, length + 1),) for _ in range(4)])


def bert() -> Loop:
    """A BERT of 4 layers of width 256, 4 heads: 16 sequences of 128 with 20 masked words each, dropout of a tenth."""
    import jax
    import jax.numpy as jnp

    draw = Draw(5)
    width, words, length, masked = 256, 8192, 128, 20
    parameters = {
        "words": draw.normal(words, width, scale=0.02), "places": draw.normal(length, width, scale=0.02),
        "blocks": [encoder_block(draw, width) for _ in range(4)], "scale": jnp.ones(width), "shift": jnp.zeros(width),
    }  # fmt: skip

    def loss_of(parameters: Tree, tokens: Any, places: Any, targets: Any, seed: Any) -> Any:
        x = parameters["words"][tokens] + parameters["places"]
        key = jax.random.key(seed)
        for number, block in enumerate(parameters["blocks"]):
            kept = jax.random.bernoulli(jax.random.fold_in(key, number), 0.9, x.shape)
            x = jnp.where(kept, encoded(x, block, 4) / 0.9, 0)
        chosen = jnp.take_along_axis(x, places[..., None], axis=1)
        logits = layer_norm(chosen, parameters["scale"], parameters["shift"]) @ parameters["words"].T
        return cross_entropy(logits, targets)

    batches = [
        (draw.integers(words, 16, length), draw.integers(length, 16, masked), draw.integers(words, 16, masked), number)
        for number in range(4)
    ]
    return trained(loss_of, parameters, batches)


def mamba() -> Loop:
    """A selective state space model by `associative_scan`: 2 layers of width 128, 16 states, 4 sequences of 256."""
    import jax
    import jax.numpy as jnp

    draw = Draw(6)
    width, states, words, length = 128, 16, 512, 256

    def block() -> Tree:
        return {
            "in": draw.normal(width, 2 * width), "conv": draw.normal(4, 1, width), "delta": draw.normal(width, width),
            "b": draw.normal(width, states), "c": draw.normal(width, states), "out": draw.normal(width, width),
            "a": jnp.log(jnp.tile(jnp.arange(1.0, states + 1), (width, 1))), "skip": jnp.ones(width),
            "scale": jnp.ones(width), "shift": jnp.zeros(width),
        }  # fmt: skip

    parameters = {"words": draw.normal(words, width, scale=0.1), "blocks": [block() for _ in range(2)]}

    def mixed(x: Any, block: Tree) -> Any:
        y, gate = jnp.split(layer_norm(x, block["scale"], block["shift"]) @ block["in"], 2, axis=-1)
        y = jax.lax.conv_general_dilated(
            y, block["conv"], (1,), [(3, 0)], dimension_numbers=("NWC", "WIO", "NWC"), feature_group_count=width
        )
        y = jax.nn.silu(y)
        delta = jax.nn.softplus(y @ block["delta"])
        decay = jnp.exp(-delta[..., None] * jnp.exp(block["a"]))
        drive = (delta * y)[..., None] * (y @ block["b"])[:, :, None, :]
        _, state = jax.lax.associative_scan(lambda p, q: (p[0] * q[0], q[0] * p[1] + q[1]), (decay, drive), axis=1)
        y = jnp.einsum("blds,bls->bld", state, y @ block["c"]) + block["skip"] * y
        return x + (y * jax.nn.silu(gate)) @ block["out"]

    def loss_of(parameters: Tree, tokens: Any) -> Any:
        x = parameters["words"][tokens[:, :-1]]
        for block in parameters["blocks"]:
            x = mixed(x, block)
        return cross_entropy(x @ parameters["words"].T, tokens[:, 1:])

    return trained(loss_of, parameters, [(draw.integers(words, 4, length + 1),) for _ in range(4)])


def unet() -> Loop:
    """A U-Net of widths 32, 64, 128: 4 images of 64 x 64, skips by concatenation, up by transposed convolutions."""
    import jax
    import jax.numpy as jnp

    draw = Draw(7)
    widths = (32, 64, 128)

    def pair(inputs: int, outputs: int) -> list[Any]:
        return [draw.normal(3, 3, inputs, outputs), draw.normal(3, 3, outputs, outputs)]

    parameters = {
        "down": [pair(i, o) for i, o in zip((3, *widths), widths)],
        "up": [draw.normal(2, 2, widths[k + 1], widths[k]) for k in (1, 0)],
        "join": [pair(2 * widths[k], widths[k]) for k in (1, 0)],
        "head": draw.normal(1, 1, widths[0], 3),
    }

    def loss_of(parameters: Tree, images: Any, targets: Any) -> Any:
        x, skips = images, []
        for number, kernels in enumerate(parameters["down"]):
            for w in kernels:
                x = jax.nn.relu(convolved(x, w))
            if number < len(widths) - 1:
                skips.append(x)
                x = jax.lax.reduce_window(x, -float("inf"), jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        for up, kernels in zip(parameters["up"], parameters["join"]):
            x = jax.lax.conv_transpose(x, up, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jnp.concatenate([x, skips.pop()], axis=-1)
            for w in kernels:
                x = jax.nn.relu(convolved(x, w))
        return ((convolved(x, parameters["head"]) - targets) ** 2).mean()

    batches = [tuple(draw.normal(4, 64, 64, 3, scale=1.0) for _ in range(2)) for _ in range(4)]
    return trained(loss_of, parameters, batches)


def gnn() -> Loop:
    """Message passing over a graph of 4,000 nodes and 40,000 edges, 3 layers of width 64, by segment sums."""
    import jax
    import jax.numpy as jnp

    draw = Draw(8)
    nodes, edges, width, classes = 4000, 40_000, 64, 10
    parameters = {
        "in": draw.normal(32, width), "head": draw.normal(width, classes),
        "layers": [
            {
                "message": draw.normal(2 * width, width), "self": draw.normal(width, width),
                "update": draw.normal(width, width),
            }
            for _ in range(3)
        ],
    }  # fmt: skip

    def loss_of(parameters: Tree, features: Any, senders: Any, receivers: Any, labels: Any) -> Any:
        x = jax.nn.relu(features @ parameters["in"])
        for layer in parameters["layers"]:
            pairs = jnp.concatenate([x[senders], x[receivers]], axis=-1)
            messages = jax.nn.relu(pairs @ layer["message"])
            sums = jax.ops.segment_sum(messages, receivers, nodes)
            counts = jax.ops.segment_sum(jnp.ones(edges), receivers, nodes)
            x = jax.nn.relu(x @ layer["self"] + (sums / jnp.maximum(counts, 1)[:, None]) @ layer["update"])
        return cross_entropy(x @ parameters["head"], labels)

    batches = [
        (draw.normal(nodes, 32, scale=1.0), draw.integers(nodes, edges), draw.integers(nodes, edges),
         draw.integers(classes, nodes))
        for _ in range(2)
    ]  # fmt: skip
    return trained(loss_of, parameters, batches)


def moe() -> Loop:
    """A mixture of 8 experts, the two best of each word, with a capacity: 2 layers of width 128, 8 sequences of 128."""
    import jax
    import jax.numpy as jnp

    draw = Draw(9)
    width, hidden, experts, words, length = 128, 256, 8, 1024, 128
    parameters = {
        "words": draw.normal(words, width, scale=0.1),
        "layers": [
            {
                "attention": encoder_block(draw, width), "gate": draw.normal(width, experts),
                "up": draw.normal(experts, width, hidden, scale=width**-0.5),
                "down": draw.normal(experts, hidden, width, scale=hidden**-0.5),
            }
            for _ in range(2)
        ],
    }  # fmt: skip

    def routed(x: Any, layer: Tree) -> Any:
        tokens = x.reshape(-1, width)
        capacity = 2 * tokens.shape[0] // experts
        weights, chosen = jax.lax.top_k(jax.nn.softmax(tokens @ layer["gate"]), 2)
        assigned = jax.nn.one_hot(chosen, experts).reshape(-1, experts)
        place = (jnp.cumsum(assigned, axis=0) * assigned).sum(-1).astype(jnp.int32) - 1
        expert = chosen.reshape(-1)
        slot = jnp.where(place < capacity, expert * capacity + place, experts * capacity)
        rows = jnp.repeat(tokens, 2, axis=0)
        inputs = (
            jnp.zeros((experts * capacity, width)).at[slot].set(rows, mode="drop").reshape(experts, capacity, width)
        )
        hidden_rows = jax.nn.gelu(jnp.einsum("ecw,ewh->ech", inputs, layer["up"]))
        outputs = jnp.einsum("ech,ehw->ecw", hidden_rows, layer["down"]).reshape(-1, width)
        back = jnp.take(outputs, slot, axis=0, mode="fill", fill_value=0).reshape(-1, 2, width)
        return x + (back * weights[..., None]).sum(1).reshape(x.shape)

    def loss_of(parameters: Tree, tokens: Any) -> Any:
        x = parameters["words"][tokens[:, :-1]]
        for layer in parameters["layers"]:
            x = routed(encoded(x, layer["attention"], 4, causal=True), layer)
        return cross_entropy(x @ parameters["words"].T, tokens[:, 1:])

    return trained(loss_of, parameters, [(draw.integers(words, 8, length + 1),) for _ in range(4)])
