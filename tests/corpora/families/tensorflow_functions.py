"""TensorFlow functions, through tf.function's experimental_get_compiler_ir(stage="hlo_serialized")."""

# pyright: basic

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.corpora.making import Made

_source = np.random.default_rng(0)


def _floats(*sizes: int) -> np.ndarray:
    return _source.normal(0, 1, sizes).astype(np.float32)


def _integers(low: int, high: int, *sizes: int) -> np.ndarray:
    return _source.integers(low, high, sizes).astype(np.int32)


def _definite(size: int) -> np.ndarray:
    root = _floats(size, size)
    return root @ root.T + size * np.eye(size, dtype=np.float32)


def _gradient(tf: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of a function's sum with respect to all arguments."""

    def of(*arguments: Any) -> Any:
        with tf.GradientTape() as tape:
            for argument in arguments:
                tape.watch(argument)
            total = tf.reduce_sum(function(*arguments))
        return [tf.convert_to_tensor(g) for g in tape.gradient(total, list(arguments))]

    return of


def _newton(tf: Any, x: Any) -> Any:
    """Square roots by Newton's steps, until they hold."""

    def step(number: Any, root: Any) -> Any:
        return number + 1, 0.5 * (root + x / root)

    return tf.while_loop(lambda number, _: number < 8, step, (0, tf.ones_like(x)))[1]


def _recurrent(tf: Any, x: Any, w: Any, u: Any) -> Any:
    """A simple recurrent layer, by a loop over a TensorArray."""
    steps = tf.TensorArray(tf.float32, size=6)
    state = tf.zeros((4, 8))
    for number in tf.range(6):
        state = tf.tanh(x[number] @ w + state @ u)
        steps = steps.write(number, state)
    return steps.stack()


def _attention(tf: Any, q: Any, k: Any, v: Any) -> Any:
    weights = tf.nn.softmax(tf.einsum("bqhd,bkhd->bhqk", q, k) / 2.0, axis=-1)
    return tf.einsum("bhqk,bkhd->bqhd", weights, v)


_IMAGE, _KERNEL = _floats(2, 12, 12, 3), _floats(3, 3, 3, 8)
FUNCTIONS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "softmax": (lambda tf, x: tf.nn.softmax(x), [_floats(8, 16)]),
    "log_softmax_cross_entropy": (
        lambda tf, y, x: tf.nn.sparse_softmax_cross_entropy_with_logits(y, x), [_integers(0, 10, 8), _floats(8, 10)]
    ),
    "layer_norm": (
        lambda tf, x: (x - tf.reduce_mean(x, -1, True)) * tf.math.rsqrt(tf.math.reduce_variance(x, -1, True) + 1e-5),
        [_floats(8, 32)],
    ),
    "batch_norm_training": (
        lambda tf, x, s, o: tf.compat.v1.nn.fused_batch_norm(x, s, o)[:3], [_IMAGE, _floats(3), _floats(3)]
    ),
    "gelu": (lambda tf, x: tf.nn.gelu(x), [_floats(64)]),
    "erf_lgamma_digamma": (
        lambda tf, x: (tf.math.erf(x), tf.math.lgamma(x), tf.math.digamma(tf.abs(x) + 1)), [_floats(64)]
    ),
    "bessel": (lambda tf, x: (tf.math.bessel_i0e(x), tf.math.bessel_i1e(x)), [_floats(64)]),
    "igamma": (lambda tf, a, x: tf.math.igamma(tf.abs(a) + 0.5, tf.abs(x)), [_floats(32), _floats(32)]),
    "betainc": (
        lambda tf, a, b, x: tf.math.betainc(tf.abs(a) + 0.5, tf.abs(b) + 0.5, tf.sigmoid(x)),
        [_floats(32), _floats(32), _floats(32)],
    ),
    "matmul_batched": (
        lambda tf, a, b: tf.linalg.matmul(a, b, transpose_b=True), [_floats(3, 8, 16), _floats(3, 12, 16)]
    ),
    "attention": (_attention, [_floats(2, 6, 4, 8), _floats(2, 10, 4, 8), _floats(2, 10, 4, 8)]),
    "attention_gradient": (
        lambda tf, *a: _gradient(tf, lambda q, k, v: tf.square(_attention(tf, q, k, v)))(*a),
        [_floats(2, 6, 4, 8), _floats(2, 10, 4, 8), _floats(2, 10, 4, 8)],
    ),
    "conv2d": (lambda tf, x, k: tf.nn.conv2d(x, k, 2, "SAME"), [_IMAGE, _KERNEL]),
    "conv2d_gradient": (
        lambda tf, *a: _gradient(tf, lambda x, k: tf.square(tf.nn.conv2d(x, k, 1, "SAME", dilations=2)))(*a),
        [_IMAGE, _KERNEL],
    ),
    "depthwise_conv2d": (
        lambda tf, x, k: tf.nn.depthwise_conv2d(x, k, (1, 1, 1, 1), "VALID"), [_IMAGE, _floats(3, 3, 3, 2)]
    ),
    "conv2d_transpose": (
        lambda tf, x, k: tf.nn.conv2d_transpose(x, k, (2, 12, 12, 3), 2), [_floats(2, 6, 6, 8), _KERNEL]
    ),
    "pools": (lambda tf, x: (tf.nn.max_pool2d(x, 3, 2, "SAME"), tf.nn.avg_pool2d(x, 3, 2, "SAME")), [_IMAGE]),
    "max_pool_gradient": (
        lambda tf, x: _gradient(tf, lambda y: tf.square(tf.nn.max_pool2d(y, 3, 2, "SAME")))(x), [_IMAGE]
    ),
    "gather_nd": (
        lambda tf, x, i: tf.gather_nd(x, i), [_floats(6, 7, 3), np.stack([_integers(0, 6, 9), _integers(0, 7, 9)], -1)]
    ),
    "scatter_updates": (
        lambda tf, x, i, u: tf.tensor_scatter_nd_add(x, i[:, None], u), [_floats(8, 4), _integers(0, 8, 5), _floats(5, 4)]
    ),
    "embedding_gradient": (
        lambda tf, w, i: _gradient(tf, lambda v: tf.square(tf.gather(v, i)))(w), [_floats(20, 6), _integers(0, 20, 4, 5)]
    ),
    "segment_sum": (
        lambda tf, x, i: tf.math.unsorted_segment_sum(x, i, 5), [_floats(12, 3), _integers(0, 5, 12)]
    ),
    "top_k_sort": (lambda tf, x: (*tf.math.top_k(x, 4), tf.sort(x), tf.argsort(x, stable=True)), [_floats(5, 12)]),
    "cumulative": (
        lambda tf, x: (tf.cumsum(x, 1, reverse=True), tf.math.cumprod(x, 0, exclusive=True)), [_floats(6, 9)]
    ),
    "fourier": (lambda tf, x: (tf.abs(tf.signal.rfft2d(x)), tf.signal.irfft(tf.signal.rfft(x))), [_floats(3, 8, 16)]),
    "cholesky_solve": (
        lambda tf, a, b: tf.linalg.cholesky_solve(tf.linalg.cholesky(a), b), [_definite(12), _floats(12, 3)]
    ),
    "triangular_inverse": (
        lambda tf, a: (tf.linalg.triangular_solve(tf.linalg.cholesky(a), tf.eye(12)), tf.linalg.logdet(a)),
        [_definite(12)],
    ),
    "qr": (lambda tf, a: tf.abs(tf.linalg.qr(a)[1]), [_floats(10, 6)]),
    "eigh": (lambda tf, a: tf.linalg.eigh(a)[0], [_definite(10)]),
    "while_newton": (_newton, [np.abs(_floats(16)) + 0.5]),
    "recurrent_tensor_array": (_recurrent, [_floats(6, 4, 5), _floats(5, 8), _floats(8, 8)]),
    "cond": (
        lambda tf, x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.sin(x), lambda: tf.cos(x)), [_floats(16)]
    ),
    "resize_bilinear": (lambda tf, x: tf.image.resize(x, (18, 7)), [_IMAGE]),
    "stateless_random": (lambda tf, s: tf.random.stateless_uniform((16,), s), [_integers(0, 99, 2)]),
    "quantised_bits": (
        lambda tf, x: (
            tf.bitwise.bitwise_xor(x, tf.bitwise.right_shift(x, tf.fill((32,), 3))),
            tf.bitwise.left_shift(x, tf.fill((32,), 2)), x // 3, tf.math.floormod(x, 5),
        ),
        [_integers(-99, 99, 32)],
    ),
    "complex_products": (
        lambda tf, a, b: tf.abs(tf.linalg.matmul(tf.complex(a, b), tf.complex(b, a), adjoint_b=True)),
        [_floats(6, 6), _floats(6, 6)],
    ),
}  # fmt: skip
NAMES = tuple(FUNCTIONS)


def packages(name: str) -> tuple[str, ...]:
    return ("tensorflow-cpu",)


def make(name: str) -> Made:
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf

    function, arrays = FUNCTIONS[name]
    given = [tf.constant(array) for array in arrays]
    compiled = tf.function(lambda *arguments: function(tf, *arguments), jit_compile=True)
    program = compiled.experimental_get_compiler_ir(*given)(stage="hlo_serialized")
    results = tf.nest.flatten(compiled(*given))
    return Made(program, arrays, [result.numpy() for result in results])
