"""Forty programs of the same kinds as the others, with other shapes, types and compositions, written after the work on
speed was done: what is fast for the list's sake would show here."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jax, jnp, lax, linalg, nn, random, special
from bench.programs.program import Programs

PROGRAMS = Programs()
BF16 = ml_dtypes.bfloat16


@PROGRAMS.of(
    "elementwise", "heldout_lerp_clip_3M", lambda d: (d.normal(3_000_000), d.normal(3_000_000), d.uniform(3_000_000))
)
def _(x: Any, y: Any, t: Any) -> Any:
    return jnp.clip(x + t * (y - x), -1, 1)


@PROGRAMS.of(
    "elementwise",
    "heldout_u8_blend_1080p",
    lambda d: tuple(d.integers(0, 256, 1080, 1920, 3, dtype=np.uint8) for _ in "ab"),
)
def _(a: Any, b: Any) -> Any:
    return ((a.astype(jnp.uint16) * 3 + b.astype(jnp.uint16)) // 4).astype(jnp.uint8)


@PROGRAMS.of("elementwise", "heldout_swiglu_bf16_2048x1408", lambda d: (d.normal(2048, 2816, dtype=BF16),))
def _(x: Any) -> Any:
    gate, value = jnp.split(x, 2, -1)
    return nn.silu(gate) * value


@PROGRAMS.of("transcendental", "heldout_mish_f64_700K", lambda d: (d.normal(700_000, dtype=np.float64),), x64=True)
def _(x: Any) -> Any:
    return x * jnp.tanh(jnp.log1p(jnp.exp(x)))


@PROGRAMS.of("transcendental", "heldout_polar_1M", lambda d: (d.normal(1_000_000), d.normal(1_000_000)))
def _(x: Any, y: Any) -> Any:
    return jnp.hypot(x, y), jnp.arctan2(y, x)


@PROGRAMS.of("transcendental", "heldout_normal_cdf_logpdf_2M", lambda d: (d.normal(2_000_000),))
def _(x: Any) -> Any:
    return special.ndtr(x), -0.5 * x * x - 0.9189385


@PROGRAMS.of("movement", "heldout_permute_5d", lambda d: (d.normal(8, 12, 14, 64, 9),))
def _(x: Any) -> Any:
    return x.transpose(3, 0, 4, 2, 1)


@PROGRAMS.of("movement", "heldout_space_to_depth", lambda d: (d.normal(4, 256, 256, 12),))
def _(x: Any) -> Any:
    return x.reshape(4, 128, 2, 128, 2, 12).transpose(0, 1, 3, 2, 4, 5).reshape(4, 128, 128, 48)


@PROGRAMS.of("movement", "heldout_reflect_pad_roll", lambda d: (d.normal(3, 900, 900),))
def _(x: Any) -> Any:
    return jnp.roll(jnp.pad(x, ((0, 0), (5, 5), (7, 7)), mode="reflect"), (3, -4), (1, 2))


@PROGRAMS.of("reduction", "heldout_group_norm_fwdbwd", lambda d: (d.normal(8, 28, 28, 96), d.normal(96), d.normal(96)))
def _(x: Any, gain: Any, bias: Any) -> Any:
    def norm(x: Any, gain: Any, bias: Any) -> Any:
        g = x.reshape(8, 28 * 28, 12, 8)
        mean, var = g.mean((1, 3), keepdims=True), g.var((1, 3), keepdims=True)
        y = ((g - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape) * gain + bias
        return (y * y).sum()

    return jax.grad(norm, (0, 1, 2))(x, gain, bias)


@PROGRAMS.of(
    "reduction", "heldout_cross_entropy_grad_512x10007", lambda d: (d.normal(512, 10007), d.integers(0, 10007, 512))
)
def _(logits: Any, labels: Any) -> Any:
    def loss(logits: Any) -> Any:
        return -jnp.take_along_axis(nn.log_softmax(logits), labels[:, None], 1).mean()

    return jax.value_and_grad(loss)(logits)


@PROGRAMS.of("reduction", "heldout_minmax_mean_middle_axis", lambda d: (d.normal(60, 700, 90),))
def _(x: Any) -> Any:
    return x.min(1), x.max(1), x.mean(1)


@PROGRAMS.of("reduction", "heldout_cosine_similarity", lambda d: (d.normal(3000, 300), d.normal(3000, 300)))
def _(x: Any, y: Any) -> Any:
    return (x * y).sum(-1) / (jnp.linalg.norm(x, axis=-1) * jnp.linalg.norm(y, axis=-1))


@PROGRAMS.of("reduction", "heldout_argmin_columns", lambda d: (d.normal(1500, 1300),))
def _(x: Any) -> Any:
    return x.argmin(0)


@PROGRAMS.of(
    "gemm", "heldout_gemm_f32_700x900x1100", lambda d: (d.normal(700, 900), d.normal(900, 1100)), flops=1.386e9
)
def _(x: Any, y: Any) -> Any:
    return x @ y


@PROGRAMS.of("gemm", "heldout_gram_f64_333", lambda d: (d.normal(2000, 333, dtype=np.float64),), x64=True)
def _(x: Any) -> Any:
    return x.T @ x


@PROGRAMS.of(
    "gemm",
    "heldout_bf16_bias_relu_640x1536x768",
    lambda d: (d.normal(640, 1536, dtype=BF16), d.normal(1536, 768, dtype=BF16), d.normal(768, dtype=BF16)),
)
def _(x: Any, w: Any, b: Any) -> Any:
    return nn.relu(x @ w + b)


@PROGRAMS.of("gemm", "heldout_einsum_bilinear", lambda d: (d.normal(64, 48), d.normal(48, 40, 56), d.normal(64, 56)))
def _(x: Any, w: Any, y: Any) -> Any:
    return jnp.einsum("bi,ioj,bj->bo", x, w, y)


@PROGRAMS.of("convolution", "heldout_conv5x5_dilated_NHWC", lambda d: (d.normal(4, 40, 40, 48), d.normal(5, 5, 48, 32)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", rhs_dilation=(2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@PROGRAMS.of("convolution", "heldout_conv_transpose_NCHW", lambda d: (d.normal(4, 32, 28, 28), d.normal(4, 4, 16, 32)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=("NCHW", "HWOI", "NCHW"))


@PROGRAMS.of("convolution", "heldout_depthwise7x7_gelu_bwd", lambda d: (d.normal(4, 28, 28, 96), d.normal(7, 7, 1, 96)))
def _(x: Any, w: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", feature_group_count=96, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        return nn.gelu(y).sum()

    return jax.grad(f, (0, 1))(x, w)


@PROGRAMS.of("convolution", "heldout_conv3d", lambda d: (d.normal(1, 16, 32, 32, 8), d.normal(3, 3, 3, 8, 16)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=("NDHWC", "DHWIO", "NDHWC"))


@PROGRAMS.of("pool", "heldout_avgpool2_bwd", lambda d: (d.normal(8, 64, 64, 32),))
def _(x: Any) -> Any:
    def f(x: Any) -> Any:
        return (lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") ** 2).sum()

    return jax.grad(f)(x)


@PROGRAMS.of("model", "heldout_causal_attention_bwd", lambda d: tuple(d.normal(2, 6, 200, 48) for _ in "qkv"))
def _(q: Any, k: Any, v: Any) -> Any:
    mask = jnp.tril(jnp.ones((200, 200), bool))

    def f(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.where(mask, jnp.einsum("bhqd,bhkd->bhqk", q, k) * 48**-0.5, -1e9)
        return (jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(scores), v) ** 2).sum()

    return jax.grad(f, (0, 1, 2))(q, k, v)


@PROGRAMS.of(
    "model",
    "heldout_gru_T60_B24_H160",
    lambda d: (d.normal(60, 24, 96), d.normal(96, 480, scale=0.1), d.normal(160, 480, scale=0.1)),
)
def _(xs: Any, w: Any, u: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        a, b = x @ w, h @ u
        z, r = nn.sigmoid(a[:, :160] + b[:, :160]), nn.sigmoid(a[:, 160:320] + b[:, 160:320])
        n = jnp.tanh(a[:, 320:] + r * b[:, 320:])
        h = (1 - z) * n + z * h
        return h, h

    return lax.scan(step, jnp.zeros((24, 160)), xs)


@PROGRAMS.of(
    "model", "heldout_decode_step_kv_cache", lambda d: (d.normal(8, 64), d.normal(8, 300, 64), d.normal(8, 300, 64))
)
def _(x: Any, keys: Any, values: Any) -> Any:
    def step(state: Any, i: Any) -> Any:
        x, keys, values = state
        keys = lax.dynamic_update_slice(keys, x[:, None], (0, i, 0))
        values = lax.dynamic_update_slice(values, x[:, None] * 0.5, (0, i, 0))
        weights = nn.softmax(jnp.where(jnp.arange(300) <= i, jnp.einsum("hd,hkd->hk", x, keys) / 8, -1e9))
        return (jnp.tanh(jnp.einsum("hk,hkd->hd", weights, values)), keys, values), None

    return lax.scan(step, (x, keys, values), jnp.arange(100))[0]


@PROGRAMS.of("loop", "heldout_game_of_life_i32_300", lambda d: (d.integers(0, 2, 300, 300),))
def _(x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1)) - x
        return ((n == 3) | ((x == 1) & (n == 2))).astype(x.dtype)

    return lax.fori_loop(0, 20, step, x)


@PROGRAMS.of("loop", "heldout_newton_while", lambda d: (d.uniform(20_000, low=1.0, high=100.0),))
def _(a: Any) -> Any:
    def body(state: Any) -> Any:
        x, _ = state
        y = 0.5 * (x + a / x)
        return y, jnp.abs(y - x).max()

    return lax.while_loop(lambda s: s[1] > 1e-3, body, (a, jnp.float32(1e9)))[0]


@PROGRAMS.of("scan", "heldout_cummax_rows_700x900", lambda d: (d.normal(700, 900),))
def _(x: Any) -> Any:
    return lax.cummax(x, 1)


@PROGRAMS.of("scan", "heldout_cumlogsumexp_columns", lambda d: (d.normal(512, 700),))
def _(x: Any) -> Any:
    return lax.cumlogsumexp(x, 0)


@PROGRAMS.of("scan", "heldout_reverse_cumsum_i64", lambda d: (d.integers(-9, 9, 800_000, dtype=np.int64),), x64=True)
def _(x: Any) -> Any:
    return lax.cumsum(x, reverse=True)


@PROGRAMS.of("sort", "heldout_sort_columns_f64", lambda d: (d.normal(3000, 60, dtype=np.float64),), x64=True)
def _(x: Any) -> Any:
    return jnp.sort(x, 0)


@PROGRAMS.of("sort", "heldout_median_rows", lambda d: (d.normal(400, 1001),))
def _(x: Any) -> Any:
    return jnp.median(x, 1)


@PROGRAMS.of(
    "gather", "heldout_bilinear_sample", lambda d: (d.normal(256, 256, 8), d.uniform(60_000, 2, low=0, high=254))
)
def _(image: Any, points: Any) -> Any:
    i = jnp.floor(points).astype(jnp.int32)
    f = points - i
    r, c, u, v = i[:, 0], i[:, 1], f[:, :1], f[:, 1:]
    top = image[r, c] * (1 - v) + image[r, c + 1] * v
    return top * (1 - u) + (image[r + 1, c] * (1 - v) + image[r + 1, c + 1] * v) * u


@PROGRAMS.of("scatter", "heldout_histogram_500K", lambda d: (d.uniform(500_000),))
def _(x: Any) -> Any:
    return jnp.zeros(256, jnp.int32).at[(x * 256).astype(jnp.int32)].add(1)


@PROGRAMS.of(
    "random", "heldout_dropout_mask_1M", lambda d: (d.normal(1_000_000), d.integers(0, 99, 2, dtype=np.uint32))
)
def _(x: Any, key: Any) -> Any:
    return jnp.where(random.bernoulli(key, 0.9, x.shape), x / 0.9, 0.0)


@PROGRAMS.of("fft", "heldout_spectral_filter_480x640", lambda d: (d.normal(480, 640), d.normal(480, 321)))
def _(x: Any, h: Any) -> Any:
    return jnp.fft.irfft2(jnp.fft.rfft2(x) * h, s=(480, 640))


@PROGRAMS.of(
    "linalg",
    "heldout_batched_solve_12x12",
    lambda d: (d.normal(500, 12, 12) + 12 * np.eye(12, dtype=np.float32), d.normal(500, 12, 3)),
)
def _(a: Any, b: Any) -> Any:
    return jnp.linalg.solve(a, b)


@PROGRAMS.of("linalg", "heldout_gp_posterior_200", lambda d: (d.positive_definite(200), d.normal(200, 20)))
def _(k: Any, y: Any) -> Any:
    factor = jnp.linalg.cholesky(k)
    return linalg.cho_solve((factor, True), y), 2 * jnp.log(jnp.diagonal(factor)).sum()


@PROGRAMS.of("app", "heldout_pairwise_forces_900", lambda d: (d.normal(900, 3),))
def _(x: Any) -> Any:
    d = x[:, None] - x[None]
    r2 = (d * d).sum(-1) + 0.01
    return (d / (r2 * jnp.sqrt(r2))[..., None]).sum(1)
