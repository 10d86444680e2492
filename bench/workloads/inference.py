"""Inference: forward passes of images and sound, and decoding a word at a time with weights of several types."""

from __future__ import annotations

import math
from typing import Any

from bench.workloads.loop import Draw, Loop, Tree, encoded, encoder_block, jitted, layer_norm
from bench.workloads.training import residual_logits, residual_network, vision_logits, vision_transformer


def _forward(function: Any, parameters: Tree, inputs: list[Any]) -> Loop:
    """A function of parameters and an input, called again and again; there is no state."""
    return jitted(lambda state, parameters, x: (state, function(parameters, x)), (), [(parameters, x) for x in inputs])


def resnet50() -> Loop:
    """ResNet-50 of 1 image of 224 x 224."""
    draw = Draw(20)
    parameters = residual_network(draw, (3, 4, 6, 3), bottleneck=True, classes=1000)
    return _forward(residual_logits, parameters, [draw.normal(1, 224, 224, 3, scale=1.0) for _ in range(2)])


def vit() -> Loop:
    """ViT-S (12 layers of width 384) of 1 image of 224 x 224 in patches of 16 x 16."""
    draw = Draw(21)
    parameters = vision_transformer(draw, 224, 16, 384, 12, 1000)
    inputs = [draw.normal(1, 224, 224, 3, scale=1.0) for _ in range(2)]
    return _forward(lambda p, images: vision_logits(p, images, 6), parameters, inputs)


def whisper() -> Loop:
    """An encoder of sound like Whisper's smallest: 3,000 frames of 80 bands, 4 layers of width 384."""
    import jax
    import jax.numpy as jnp

    draw = Draw(22)
    width = 384
    parameters = {
        "first": draw.normal(3, 80, width), "second": draw.normal(3, width, width),
        "places": draw.normal(1500, width, scale=0.02), "blocks": [encoder_block(draw, width) for _ in range(4)],
        "scale": jnp.ones(width), "shift": jnp.zeros(width),
    }  # fmt: skip

    def convolved(x: Any, w: Any, stride: int) -> Any:
        return jax.lax.conv_general_dilated(x, w, (stride,), [(1, 1)], dimension_numbers=("NWC", "WIO", "NWC"))

    def encode(parameters: Tree, frames: Any) -> Any:
        x = jax.nn.gelu(convolved(frames, parameters["first"], 1))
        x = jax.nn.gelu(convolved(x, parameters["second"], 2)) + parameters["places"]
        for block in parameters["blocks"]:
            x = encoded(x, block, 6)
        return layer_norm(x, parameters["scale"], parameters["shift"])

    return _forward(encode, parameters, [draw.normal(1, 3000, 80, scale=1.0) for _ in range(2)])


LAYERS, WIDTH, HEADS, WORDS, LENGTH = 12, 768, 12, 50_257, 256
"""GPT-2's smallest, with room for 256 words."""


def _stored(w: Any, kind: str) -> Any:
    """A matrix as it is kept: of f32 or bf16, or integers of 8 or 4 bits with a scale for each column."""
    import jax.numpy as jnp

    if kind in ("f32", "bf16"):
        return w.astype({"f32": jnp.float32, "bf16": jnp.bfloat16}[kind])
    greatest = {"int8": 127, "int4": 7}[kind]
    scale = jnp.abs(w).max(0) / greatest
    return {"integers": jnp.round(w / scale).astype({"int8": jnp.int8, "int4": jnp.int4}[kind]), "scale": scale}


def _product(x: Any, w: Any) -> Any:
    """A row times a stored matrix, in f32; integers are scaled after the product."""
    import jax.numpy as jnp

    if isinstance(w, dict):
        return (x @ w["integers"].astype(jnp.float32)) * w["scale"]
    return jnp.matmul(x.astype(w.dtype), w, preferred_element_type=jnp.float32)


def _decode(kind: str) -> Loop:
    import jax
    import jax.numpy as jnp

    draw = Draw(23)

    def matrix(inputs: int, outputs: int) -> Any:
        return _stored(draw.normal(inputs, outputs), kind)

    def block() -> Tree:
        return {
            "qkv": matrix(WIDTH, 3 * WIDTH), "out": matrix(WIDTH, WIDTH), "up": matrix(WIDTH, 4 * WIDTH),
            "down": matrix(4 * WIDTH, WIDTH), "scales": jnp.ones((2, WIDTH)), "shifts": jnp.zeros((2, WIDTH)),
        }  # fmt: skip

    parameters = {
        "words": draw.normal(WORDS, WIDTH, scale=0.02), "places": draw.normal(LENGTH, WIDTH, scale=0.02),
        "blocks": [block() for _ in range(LAYERS)], "head": matrix(WIDTH, WORDS), "scale": jnp.ones(WIDTH),
        "shift": jnp.zeros(WIDTH),
    }  # fmt: skip
    size = WIDTH // HEADS

    def step(state: Tree, parameters: Tree) -> Any:
        keys, values, word, place = state
        place = jnp.minimum(place, LENGTH - 1)
        x = parameters["words"][word] + parameters["places"][place]
        for number, block in enumerate(parameters["blocks"]):
            y = layer_norm(x, block["scales"][0], block["shifts"][0])
            q, k, v = jnp.split(_product(y, block["qkv"]).reshape(3 * HEADS, size), 3)
            keys = keys.at[number, :, place].set(k)
            values = values.at[number, :, place].set(v)
            scores = jnp.einsum("hd,hld->hl", q, keys[number]) / math.sqrt(size)
            weights = jax.nn.softmax(jnp.where(jnp.arange(LENGTH) <= place, scores, -1e9))
            x = x + _product(jnp.einsum("hl,hld->hd", weights, values[number]).reshape(1, WIDTH), block["out"])
            y = layer_norm(x, block["scales"][1], block["shifts"][1])
            x = x + _product(jax.nn.gelu(_product(y, block["up"])), block["down"])
        logits = _product(layer_norm(x, parameters["scale"], parameters["shift"]), parameters["head"])
        return (keys, values, jnp.argmax(logits, axis=-1), place + 1), logits[:, ::64]

    cache = jnp.zeros((LAYERS, HEADS, LENGTH, size))
    state = (cache, jnp.zeros_like(cache), jnp.zeros(1, jnp.int32), jnp.int32(0))
    return jitted(step, state, [(parameters,)])


def decode_f32() -> Loop:
    """A word of GPT-2 (12 layers of width 768), with weights of f32."""
    return _decode("f32")


def decode_bf16() -> Loop:
    """A word of GPT-2 with weights of bf16."""
    return _decode("bf16")


def decode_int8() -> Loop:
    """A word of GPT-2 with weights of 8 bits and a scale for each column."""
    return _decode("int8")


def decode_int4() -> Loop:
    """A word of GPT-2 with weights of 4 bits and a scale for each column."""
    return _decode("int4")


def _keras(name: str, size: int) -> Loop:
    import os

    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
    trainable = [v.value for v in model.trainable_variables]
    fixed = [v.value for v in model.non_trainable_variables]

    def predict(parameters: Tree, images: Any) -> Any:
        return model.stateless_call(*parameters, images, training=False)[0]

    draw = Draw(24)
    return _forward(predict, (trainable, fixed), [draw.normal(1, size, size, 3, scale=1.0) for _ in range(2)])


def mobilenet() -> Loop:
    """Keras's MobileNet of 1 image of 224 x 224."""
    return _keras("MobileNet", 224)


def efficientnet() -> Loop:
    """Keras's EfficientNetB0 of 1 image of 224 x 224."""
    return _keras("EfficientNetB0", 224)
