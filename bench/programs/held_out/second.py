"""Forty more programs that were held out: written when the second round of work on speed was done, since those of
the first forty had been looked at in it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jax, jnp, lax, linalg, nn, random
from bench.programs.program import Programs

PROGRAMS = Programs()
BF16 = ml_dtypes.bfloat16


@PROGRAMS.of("elementwise", "again_huber_2M", lambda d: (d.normal(2_100_000), d.normal(2_100_000)))
def _(x: Any, y: Any) -> Any:
    r = jnp.abs(x - y)
    return jnp.where(r < 1, 0.5 * r * r, r - 0.5)


@PROGRAMS.of("elementwise", "again_rgb_to_gray_u8_720p", lambda d: (d.integers(0, 256, 720, 1280, 3, dtype=np.uint8),))
def _(x: Any) -> Any:
    x = x.astype(jnp.int32)
    return ((x[..., 0] * 77 + x[..., 1] * 150 + x[..., 2] * 29) >> 8).astype(jnp.uint8)


@PROGRAMS.of(
    "elementwise", "again_f16_saxpy_clamp_1M", lambda d: tuple(d.normal(1_000_000, dtype=np.float16) for _ in "xy")
)
def _(x: Any, y: Any) -> Any:
    return jnp.clip(x * np.float16(1.5) + y, -2, 2)


@PROGRAMS.of("transcendental", "again_softplus_sigmoid_900K", lambda d: (d.normal(900_000, scale=4.0),))
def _(x: Any) -> Any:
    return nn.softplus(x), nn.sigmoid(x)


@PROGRAMS.of("transcendental", "again_haversine_500K", lambda d: (d.uniform(500_000, 4, low=-1.5, high=1.5),))
def _(p: Any) -> Any:
    a, b, c, e = p.T
    h = jnp.sin((c - a) / 2) ** 2 + jnp.cos(a) * jnp.cos(c) * jnp.sin((e - b) / 2) ** 2
    return 2 * jnp.arcsin(jnp.sqrt(jnp.clip(h, 0, 1)))


@PROGRAMS.of("transcendental", "again_bf16_gelu_3M", lambda d: (d.normal(3_000_000, dtype=BF16),))
def _(x: Any) -> Any:
    return nn.gelu(x)


@PROGRAMS.of("movement", "again_interleave_heads", lambda d: (d.normal(6, 10, 300, 40),))
def _(x: Any) -> Any:
    return x.transpose(0, 2, 1, 3).reshape(6, 300, 400)


@PROGRAMS.of("movement", "again_tile_and_flip", lambda d: (d.normal(500, 333),))
def _(x: Any) -> Any:
    return jnp.tile(x, (2, 3))[::-1, :-7]


@PROGRAMS.of("movement", "again_im2col_patches", lambda d: (d.normal(4, 30, 30, 24),))
def _(x: Any) -> Any:
    return jnp.concatenate([x[:, i : i + 26, j : j + 26] for i in range(5) for j in range(5)], -1)


@PROGRAMS.of("reduction", "again_batch_norm_fwdbwd", lambda d: (d.normal(24, 20, 20, 72), d.normal(72), d.normal(72)))
def _(x: Any, gain: Any, bias: Any) -> Any:
    def f(x: Any, gain: Any, bias: Any) -> Any:
        mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return nn.relu((x - mean) * lax.rsqrt(var + 1e-5) * gain + bias).sum()

    value, grads = jax.value_and_grad(f, (0, 1, 2))(x, gain, bias)
    return value, *grads


@PROGRAMS.of("reduction", "again_rms_norm_bf16_3000x640", lambda d: (d.normal(3000, 640, dtype=BF16), d.normal(640)))
def _(x: Any, gain: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * gain).astype(x.dtype)


@PROGRAMS.of("reduction", "again_entropy_rows_2000x1501", lambda d: (d.normal(2000, 1501),))
def _(x: Any) -> Any:
    logs = nn.log_softmax(x)
    return -(jnp.exp(logs) * logs).sum(-1)


@PROGRAMS.of("reduction", "again_any_all_count_i8", lambda d: (d.integers(0, 100, 4000, 500, dtype=np.int8),))
def _(x: Any) -> Any:
    return (x > 98).any(0), (x > 0).all(1), (x == 7).sum(1)


@PROGRAMS.of("reduction", "again_correlation_matrix_3000x90", lambda d: (d.normal(3000, 90),))
def _(x: Any) -> Any:
    return jnp.corrcoef(x, rowvar=False)


@PROGRAMS.of("gemm", "again_gemm_f32_384x1536x384", lambda d: (d.normal(384, 1536), d.normal(1536, 384)), flops=4.53e8)
def _(x: Any, y: Any) -> Any:
    return x @ y


@PROGRAMS.of("gemm", "again_gated_mlp_500x300x800", lambda d: (d.normal(500, 300), *(d.normal(300, 800) for _ in "ab")))
def _(x: Any, a: Any, b: Any) -> Any:
    return nn.silu(x @ a) * (x @ b)


@PROGRAMS.of("gemm", "again_batched_lowrank_f32", lambda d: (d.normal(40, 90, 20), d.normal(40, 20, 110)))
def _(x: Any, y: Any) -> Any:
    return jnp.einsum("bik,bkj->bji", x, y)


@PROGRAMS.of(
    "gemm",
    "again_s8_scaled_300x512x700",
    lambda d: tuple(d.integers(-99, 99, *s, dtype=np.int8) for s in ((300, 512), (512, 700))),
)
def _(x: Any, y: Any) -> Any:
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32).astype(jnp.float32) * 0.01


@PROGRAMS.of("convolution", "again_conv3x3_24-40_s2_NHWC", lambda d: (d.normal(6, 61, 61, 24), d.normal(3, 3, 24, 40)))
def _(x: Any, w: Any) -> Any:
    return nn.relu(lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))


@PROGRAMS.of("convolution", "again_grouped_conv_NCHW", lambda d: (d.normal(4, 64, 24, 24), d.normal(96, 16, 3, 3)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", feature_group_count=4, dimension_numbers=("NCHW", "OIHW", "NCHW")
    )


@PROGRAMS.of("convolution", "again_causal_conv1d_depthwise", lambda d: (d.normal(8, 1200, 96), d.normal(4, 1, 96)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1,), [(3, 0)], feature_group_count=96, dimension_numbers=("NWC", "WIO", "NWC")
    )


@PROGRAMS.of("convolution", "again_conv5x5_bwd_weights", lambda d: (d.normal(6, 32, 32, 20), d.normal(5, 5, 20, 30)))
def _(x: Any, w: Any) -> Any:
    def f(w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return (y * y).sum()

    return jax.grad(f)(w)


@PROGRAMS.of("pool", "again_maxpool2_bwd_NCHW", lambda d: (d.normal(6, 40, 50, 50),))
def _(x: Any) -> Any:
    def f(x: Any) -> Any:
        return (lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") ** 2).sum()

    return jax.grad(f)(x)


@PROGRAMS.of(
    "model",
    "again_cross_attention_fwd",
    lambda d: (d.normal(3, 150, 256), d.normal(3, 220, 256), *(d.normal(256, 256, scale=0.06) for _ in "qkv")),
)
def _(x: Any, y: Any, wq: Any, wk: Any, wv: Any) -> Any:
    def heads(z: Any, w: Any) -> Any:
        return (z @ w).reshape(3, -1, 8, 32)

    scores = jnp.einsum("bqhd,bkhd->bhqk", heads(x, wq), heads(y, wk)) / 32**0.5
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), heads(y, wv)).reshape(3, 150, 256)


@PROGRAMS.of(
    "model",
    "again_vae_step",
    lambda d: (d.normal(96, 400), d.normal(400, 200, scale=0.05), d.normal(100, 400, scale=0.1), d.normal(96, 100)),
)
def _(x: Any, enc: Any, dec: Any, noise: Any) -> Any:
    def loss(enc: Any, dec: Any) -> Any:
        mean, logvar = jnp.split(jnp.tanh(x @ enc), 2, -1)
        z = mean + jnp.exp(0.5 * logvar) * noise
        return ((z @ dec - x) ** 2).mean() - 0.5 * (1 + logvar - mean**2 - jnp.exp(logvar)).mean()

    value, grads = jax.value_and_grad(loss, (0, 1))(enc, dec)
    return value, enc - 0.1 * grads[0], dec - 0.1 * grads[1]


@PROGRAMS.of(
    "model",
    "again_elman_rnn_bwd",
    lambda d: (d.normal(40, 16, 64), d.normal(64, 96, scale=0.1), d.normal(96, 96, scale=0.1)),
)
def _(xs: Any, w: Any, u: Any) -> Any:
    def loss(w: Any, u: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(x @ w + h @ u)
            return h, (h * h).sum()

        return lax.scan(step, jnp.zeros((16, 96)), xs)[1].sum()

    return jax.grad(loss, (0, 1))(w, u)


@PROGRAMS.of("loop", "again_wave_equation_600", lambda d: (d.normal(600, 600), d.normal(600, 600)))
def _(u: Any, v: Any) -> Any:
    def step(_: Any, state: Any) -> Any:
        u, v = state
        lap = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
        v = v + 0.1 * lap
        return u + 0.1 * v, v

    return lax.fori_loop(0, 12, step, (u, v))


@PROGRAMS.of("loop", "again_lorenz_vmap_3000", lambda d: (d.normal(3000, 3),))
def _(x: Any) -> Any:
    def field(s: Any) -> Any:
        return jnp.stack([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    def run(s: Any) -> Any:
        return lax.fori_loop(0, 50, lambda _, s: s + 0.005 * field(s), s)

    return jax.vmap(run)(x)


@PROGRAMS.of(
    "scan",
    "again_cumprod_columns_f64",
    lambda d: (d.uniform(800, 300, low=0.9, high=1.1).astype(np.float64),),
    x64=True,
)
def _(x: Any) -> Any:
    return jnp.cumprod(x, 0)


@PROGRAMS.of("scan", "again_exponential_average", lambda d: (d.normal(400, 2000),))
def _(x: Any) -> Any:
    return lax.scan(lambda s, v: (0.9 * s + 0.1 * v,) * 2, jnp.zeros(2000), x)[1]


@PROGRAMS.of("scan", "again_associative_linear_recurrence", lambda d: (d.uniform(4096, 64), d.normal(4096, 64)))
def _(a: Any, b: Any) -> Any:
    return lax.associative_scan(lambda x, y: (x[0] * y[0], x[1] * y[0] + y[1]), (a, b))[1]


@PROGRAMS.of("sort", "again_sort_pairs_i32", lambda d: (d.integers(0, 1 << 30, 300_000), d.normal(300_000)))
def _(keys: Any, values: Any) -> Any:
    return lax.sort((keys, values), num_keys=1)


@PROGRAMS.of("sort", "again_argsort_rows_u8", lambda d: (d.integers(0, 256, 700, 900, dtype=np.uint8),))
def _(x: Any) -> Any:
    return jnp.argsort(x, 1)


@PROGRAMS.of(
    "gather", "again_one_hot_lookup_batched", lambda d: (d.normal(16, 2000, 24), d.integers(0, 2000, 16, 1500))
)
def _(table: Any, index: Any) -> Any:
    return jax.vmap(lambda t, i: t[i])(table, index)


@PROGRAMS.of(
    "scatter", "again_scatter_max_2d", lambda d: (d.normal(400, 400), d.integers(0, 400, 90_000, 2), d.normal(90_000))
)
def _(x: Any, index: Any, values: Any) -> Any:
    return x.at[index[:, 0], index[:, 1]].max(values)


@PROGRAMS.of("random", "again_gumbel_argmax", lambda d: (d.normal(600, 700), d.integers(0, 99, 2, dtype=np.uint32)))
def _(logits: Any, key: Any) -> Any:
    return jnp.argmax(logits + random.gumbel(key, logits.shape), -1)


@PROGRAMS.of("fft", "again_convolve_fft_rows_768", lambda d: (d.normal(200, 768), d.normal(768)))
def _(x: Any, k: Any) -> Any:
    return jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(k), n=768)


@PROGRAMS.of("linalg", "again_lstsq_normal_equations", lambda d: (d.normal(1500, 80), d.normal(1500, 3)))
def _(a: Any, b: Any) -> Any:
    return linalg.cho_solve(linalg.cho_factor(a.T @ a + 1e-3 * jnp.eye(80)), a.T @ b)


@PROGRAMS.of("linalg", "again_inverse_logdet_150", lambda d: (d.positive_definite(150),))
def _(a: Any) -> Any:
    return jnp.linalg.inv(a), jnp.linalg.slogdet(a)[1]


@PROGRAMS.of("app", "again_kmeans_step", lambda d: (d.normal(8000, 12), d.normal(30, 12)))
def _(x: Any, centres: Any) -> Any:
    nearest = ((x[:, None] - centres[None]) ** 2).sum(-1).argmin(1)
    sums = jax.ops.segment_sum(x, nearest, 30)
    counts = jax.ops.segment_sum(jnp.ones(8000), nearest, 30)
    return sums / jnp.maximum(counts, 1)[:, None]
