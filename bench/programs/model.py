"""Pieces of models: attention, a training step of an MLP and of a ResNet block, a transformer layer, an LSTM."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from bench.programs.convolution import convolve
from bench.programs.lazy import functional, jax, jnp, lax, nn, torch
from bench.programs.program import Draw, Program
from bench.programs.reduction import rmsnorm

HEADS = 8


def attention(q: Any, k: Any, v: Any) -> Any:
    """[batch, head, position, feature] each; features of 64."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) * 0.125
    return jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores, -1), v)


# An MLP of three layers on 784 pixels, classifying into 10.


def mlp_arguments(draw: Draw) -> Any:
    widths = (784, 1024, 1024, 10)
    parameters: list[Any] = []
    for inputs, outputs in pairwise(widths):
        parameters += [draw.normal(inputs, outputs, scale=inputs**-0.5), np.zeros(outputs, np.float32)]
    return (*parameters, draw.normal(128, 784), draw.integers(0, 10, 128))


def mlp_loss(parameters: Any, x: Any, y: Any) -> Any:
    w1, b1, w2, b2, w3, b3 = parameters
    h = nn.relu(x @ w1 + b1)
    h = nn.relu(h @ w2 + b2)
    return -jnp.take_along_axis(nn.log_softmax(h @ w3 + b3), y[:, None], 1).mean()


def mlp_step(*arguments: Any) -> Any:
    *parameters, x, y = arguments
    loss, gradients = jax.value_and_grad(mlp_loss)(parameters, x, y)
    return *(p - 0.1 * g for p, g in zip(parameters, gradients)), loss


def torch_mlp_step(*arguments: Any) -> Any:
    *parameters, x, y = arguments
    w1, b1, w2, b2, w3, b3 = (p.requires_grad_(True) for p in parameters)
    h = torch.addmm(b1, x, w1).relu()
    h = torch.addmm(b2, h, w2).relu()
    loss = functional.cross_entropy(torch.addmm(b3, h, w3), y.long())
    gradients = torch.autograd.grad(loss, (w1, b1, w2, b2, w3, b3))
    with torch.no_grad():
        return [p - 0.1 * g for p, g in zip(parameters, gradients)]


# The bottleneck block of ResNet-50 on 28x28 images.


def batchnorm(x: Any, gain: Any) -> Any:
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * gain


def resnet_block(x: Any, w1: Any, w2: Any, w3: Any, g1: Any, g2: Any, g3: Any) -> Any:
    h = nn.relu(batchnorm(convolve()(x, w1), g1))
    h = nn.relu(batchnorm(convolve()(h, w2), g2))
    return nn.relu(batchnorm(convolve()(h, w3), g3) + x)


def resnet_arguments(draw: Draw) -> Any:
    return (
        draw.normal(8, 28, 28, 256),
        draw.normal(1, 1, 256, 64, scale=0.06),
        draw.normal(3, 3, 64, 64, scale=0.04),
        draw.normal(1, 1, 64, 256, scale=0.12),
        np.ones(64, np.float32),
        np.ones(64, np.float32),
        np.ones(256, np.float32),
    )


def resnet_step(x: Any, *weights: Any) -> Any:
    def loss(*weights: Any) -> Any:
        return (resnet_block(x, *weights) ** 2).mean()

    gradients = jax.grad(loss, argnums=tuple(range(6)))(*weights)
    return tuple(w - 0.1 * g for w, g in zip(weights, gradients))


def torch_resnet_step(x: Any, *weights: Any) -> Any:
    x = x.permute(0, 3, 1, 2)
    kernels = [
        w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last).requires_grad_(True) for w in weights[:3]
    ]
    gains = [gain.requires_grad_(True) for gain in weights[3:]]

    def norm(h: Any, gain: Any) -> Any:
        return functional.batch_norm(h, None, None, gain, None, True)

    h = norm(functional.conv2d(x, kernels[0]), gains[0]).relu()
    h = norm(functional.conv2d(h, kernels[1], padding=1), gains[1]).relu()
    h = (norm(functional.conv2d(h, kernels[2]), gains[2]) + x).relu()
    return torch.autograd.grad((h**2).mean(), kernels + gains)


RESNET_FORWARD = 2 * 8 * 28 * 28 * (256 * 64 * 2 + 9 * 64 * 64)

# A transformer layer with norms first.


def heads(x: Any) -> Any:
    """[batch, position, feature] -> [batch, head, position, feature of the head]"""
    batch, positions, features = x.shape
    return x.reshape(batch, positions, HEADS, features // HEADS).transpose(0, 2, 1, 3)


def transformer(x: Any, wqkv: Any, wo: Any, w1: Any, w2: Any, g1: Any, g2: Any) -> Any:
    q, k, v = jnp.split(rmsnorm(x, g1) @ wqkv, 3, -1)
    x = x + attention(heads(q), heads(k), heads(v)).transpose(0, 2, 1, 3).reshape(x.shape) @ wo
    return x + nn.gelu(rmsnorm(x, g2) @ w1) @ w2


def transformer_arguments(draw: Draw) -> Any:
    return (
        draw.normal(4, 256, 512),
        draw.normal(512, 1536, scale=0.04),
        draw.normal(512, 512, scale=0.04),
        draw.normal(512, 2048, scale=0.04),
        draw.normal(2048, 512, scale=0.02),
        np.ones(512, np.float32),
        np.ones(512, np.float32),
    )


def transformer_gradients(*arguments: Any) -> Any:
    def loss(*arguments: Any) -> Any:
        return (transformer(*arguments) ** 2).mean()

    return jax.grad(loss, argnums=tuple(range(7)))(*arguments)


def torch_transformer_gradients(*arguments: Any) -> Any:
    x, wqkv, wo, w1, w2, g1, g2 = (value.requires_grad_(True) for value in arguments)

    def torch_heads(h: Any) -> Any:
        return h.view(4, 256, HEADS, 64).transpose(1, 2)

    q, k, v = (functional.rms_norm(x, (512,), g1, 1e-6) @ wqkv).split(512, -1)
    attended = functional.scaled_dot_product_attention(torch_heads(q), torch_heads(k), torch_heads(v))
    y = x + attended.transpose(1, 2).reshape(x.shape) @ wo
    z = y + functional.gelu(functional.rms_norm(y, (512,), g2, 1e-6) @ w1, approximate="tanh") @ w2
    return torch.autograd.grad((z * z).mean(), (x, wqkv, wo, w1, w2, g1, g2))


TRANSFORMER_FORWARD = 2 * 1024 * 512 * (1536 + 512 + 4096) + 4 * 32 * 256 * 256 * 64

# An LSTM over 128 steps.


def lstm(xs: Any, wx: Any, wh: Any, bias: Any) -> Any:
    def step(carry: Any, x: Any) -> Any:
        h, s = carry
        i, f, g, o = jnp.split(x @ wx + h @ wh + bias, 4, -1)
        s = nn.sigmoid(f) * s + nn.sigmoid(i) * jnp.tanh(g)
        h = nn.sigmoid(o) * jnp.tanh(s)
        return (h, s), h

    zero = jnp.zeros((xs.shape[1], wh.shape[0]))
    return lax.scan(step, (zero, zero), xs)[1]


def torch_lstm(xs: Any, wx: Any, wh: Any, bias: Any) -> Any:
    zero = torch.zeros(1, xs.shape[1], wh.shape[0])
    weights = [wx.t(), wh.t(), bias, torch.zeros_like(bias)]
    with torch.no_grad():
        return torch.lstm(xs, (zero, zero), weights, True, 1, 0.0, False, False, False)[0]


PROGRAMS = (
    Program(
        "model", "attention_b4h8s512d64", lambda draw: tuple(draw.normal(4, 8, 512, 64) for _ in range(3)), attention,
        flops=4 * 32 * 512 * 512 * 64, vector_ops=19 * 32 * 512 * 512,
        torch=lambda q, k, v: functional.scaled_dot_product_attention(q, k, v),
    ),
    Program(
        "model", "mlp_train_step_b128", mlp_arguments, mlp_step,
        flops=2 * 128 * (784 * 1024 * 2 + 1024 * 1024 * 3 + 1024 * 10 * 3), torch=torch_mlp_step,
    ),
    Program(
        "model", "resnet_block_train_n8", resnet_arguments, resnet_step,
        # backward costs twice the forward; the gradient of the image is not asked for
        flops=3 * RESNET_FORWARD - 2 * 8 * 28 * 28 * 256 * 64, torch=torch_resnet_step,
    ),
    Program("model", "transformer_layer_fwd", transformer_arguments, transformer, flops=TRANSFORMER_FORWARD),
    Program(
        "model", "transformer_layer_fwdbwd", transformer_arguments, transformer_gradients,
        flops=3 * TRANSFORMER_FORWARD, torch=torch_transformer_gradients, quick=False,
    ),
    Program(
        "model", "lstm_scan_T128_B32_H256",
        lambda draw: (
            draw.normal(128, 32, 256), draw.normal(256, 1024, scale=0.06), draw.normal(256, 1024, scale=0.06),
            np.zeros(1024, np.float32),
        ),
        lstm, flops=2 * 128 * 32 * 512 * 1024, torch=torch_lstm,
    ),
)  # fmt: skip
