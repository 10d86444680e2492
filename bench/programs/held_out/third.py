"""Forty more: written when the third round of work was done, of which the second forty had been a part."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from bench.programs.lazy import jax, jnp, lax, linalg, nn, random, special
from bench.programs.program import Programs

PROGRAMS = Programs()
BF16 = ml_dtypes.bfloat16


@PROGRAMS.of(
    "elementwise",
    "third_lamb_direction_1200K",
    lambda d: (d.normal(1_200_000), d.normal(1_200_000), d.uniform(1_200_000), d.normal(1_200_000)),
)
def _(w: Any, m: Any, v: Any, g: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    step = m / (jnp.sqrt(v) + 1e-6) + 0.01 * w
    return step, m, v


@PROGRAMS.of("elementwise", "third_yuv_planes_i16", lambda d: (d.integers(0, 256, 3, 600, 800, dtype=np.int16),))
def _(x: Any) -> Any:
    r, g, b = x
    return jnp.stack([(66 * r + 129 * g + 25 * b) >> 8, (112 * r - 94 * g) >> 8, jnp.clip(b - g, -100, 100)])


@PROGRAMS.of("elementwise", "third_complex_rotate_400K", lambda d: (d.complex(400_000), d.uniform(400_000)))
def _(z: Any, t: Any) -> Any:
    return z * (t + 1j * (1 - t)) + jnp.conj(z)


@PROGRAMS.of("transcendental", "third_student_t_logpdf_1300K", lambda d: (d.normal(1_300_000),))
def _(x: Any) -> Any:
    return -2.5 * jnp.log1p(x * x / 4.0), jnp.arctan(x)


@PROGRAMS.of(
    "transcendental",
    "third_lgamma_f64_90K",
    lambda d: (d.uniform(90_000, low=0.5, high=30).astype(np.float64),),
    x64=True,
)
def _(x: Any) -> Any:
    return special.gammaln(x)


@PROGRAMS.of("transcendental", "third_sinh_expm1_2M", lambda d: (d.normal(2_000_000),))
def _(x: Any) -> Any:
    return jnp.sinh(x) * jnp.expm1(-x)


@PROGRAMS.of("movement", "third_window_partition_NHWC", lambda d: (d.normal(6, 56, 56, 48),))
def _(x: Any) -> Any:
    return jnp.transpose(x.reshape(6, 8, 7, 8, 7, 48), (0, 1, 3, 2, 4, 5)).reshape(-1, 49, 48)


@PROGRAMS.of("movement", "third_shifted_stack_1M", lambda d: (d.normal(1_000_000),))
def _(x: Any) -> Any:
    return jnp.stack([jnp.roll(x, k) for k in (-2, -1, 0, 1, 2)], 1)


@PROGRAMS.of("movement", "third_triangle_mask_select", lambda d: (d.normal(12, 333, 333), d.normal(12, 333, 333)))
def _(x: Any, y: Any) -> Any:
    return jnp.where(jnp.tril(jnp.ones((333, 333), bool)), x, jnp.swapaxes(y, 1, 2))


@PROGRAMS.of("reduction", "third_instance_norm_NCHW", lambda d: (d.normal(8, 40, 50, 50),))
def _(x: Any) -> Any:
    mean = x.mean((2, 3), keepdims=True)
    var = ((x - mean) ** 2).mean((2, 3), keepdims=True)
    return (x - mean) / jnp.sqrt(var + 1e-5)


@PROGRAMS.of("reduction", "third_focal_loss_grad", lambda d: (d.normal(4000, 81), d.integers(0, 81, 4000)))
def _(logits: Any, labels: Any) -> Any:
    def loss(logits: Any) -> Any:
        logs = nn.log_softmax(logits)
        chosen = jnp.take_along_axis(logs, labels[:, None], 1)[:, 0]
        return -((1 - jnp.exp(chosen)) ** 2 * chosen).mean()

    return jax.grad(loss)(logits)


@PROGRAMS.of("reduction", "third_l1_l2_linf_norms_f64", lambda d: (d.normal(900, 1300, dtype=np.float64),), x64=True)
def _(x: Any) -> Any:
    return jnp.abs(x).sum(0), jnp.sqrt((x * x).sum(1)), jnp.abs(x).max()


@PROGRAMS.of(
    "reduction", "third_weighted_mean_u8", lambda d: (d.integers(0, 256, 3000, 700, dtype=np.uint8), d.uniform(700))
)
def _(x: Any, w: Any) -> Any:
    return (x.astype(jnp.float32) * w).sum(1) / w.sum()


@PROGRAMS.of("reduction", "third_argmax_last_of_three", lambda d: (d.normal(60, 70, 130),))
def _(x: Any) -> Any:
    return jnp.argmax(x, 1), x.max(2)


@PROGRAMS.of("gemm", "third_gemm_f32_1500x200x1500", lambda d: (d.normal(1500, 200), d.normal(200, 1500)), flops=9e8)
def _(x: Any, y: Any) -> Any:
    return x @ y


@PROGRAMS.of(
    "gemm", "third_gemm_nt_f32_640x640x2000", lambda d: (d.normal(640, 2000), d.normal(640, 2000)), flops=1.64e9
)
def _(x: Any, y: Any) -> Any:
    return x @ y.T


@PROGRAMS.of(
    "gemm",
    "third_bf16_batched_24x130x256x200",
    lambda d: (d.normal(24, 130, 256, dtype=BF16), d.normal(24, 256, 200, dtype=BF16)),
)
def _(x: Any, y: Any) -> Any:
    return x @ y


@PROGRAMS.of(
    "gemm", "third_low_rank_update_800x24", lambda d: (d.normal(800, 800), d.normal(800, 24), d.normal(800, 24))
)
def _(a: Any, u: Any, v: Any) -> Any:
    return a - u @ v.T


@PROGRAMS.of("convolution", "third_conv3x3_20-20_NCHW", lambda d: (d.normal(5, 20, 70, 70), d.normal(20, 20, 3, 3)))
def _(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))


@PROGRAMS.of(
    "convolution",
    "third_separable_block",
    lambda d: (d.normal(4, 48, 48, 64), d.normal(5, 5, 1, 64), d.normal(1, 1, 64, 96)),
)
def _(x: Any, depth: Any, point: Any) -> Any:
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, depth, (2, 2), "SAME", dimension_numbers=numbers, feature_group_count=64)
    return nn.relu(lax.conv_general_dilated(nn.relu(x), point, (1, 1), "SAME", dimension_numbers=numbers))


@PROGRAMS.of("convolution", "third_sobel_single_channel", lambda d: (d.normal(1, 900, 900, 1), d.normal(3, 3, 1, 2)))
def _(x: Any, w: Any) -> Any:
    y = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return jnp.sqrt((y * y).sum(-1))


@PROGRAMS.of("convolution", "third_conv1d_dilated_bwd", lambda d: (d.normal(8, 600, 32), d.normal(3, 32, 32)))
def _(x: Any, w: Any) -> Any:
    def f(x: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(x, w, (1,), "SAME", rhs_dilation=(4,), dimension_numbers=("NWC", "WIO", "NWC"))
        return jnp.tanh(y).sum()

    return jax.grad(f, (0, 1))(x, w)


@PROGRAMS.of("pool", "third_lppool3_NHWC", lambda d: (d.uniform(6, 60, 60, 32),))
def _(x: Any) -> Any:
    return jnp.sqrt(lax.reduce_window(x * x, 0.0, lax.add, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"))


@PROGRAMS.of(
    "model",
    "third_moe_top1_600x96",
    lambda d: (d.normal(600, 96), d.normal(96, 4), d.normal(4, 96, 200, scale=0.1), d.normal(4, 200, 96, scale=0.1)),
)
def _(x: Any, gate: Any, up: Any, down: Any) -> Any:
    weights = nn.softmax(x @ gate)
    chosen = nn.one_hot(weights.argmax(-1), 4) * weights
    hidden = nn.gelu(jnp.einsum("td,edh->eth", x, up))
    return jnp.einsum("eth,ehd,te->td", hidden, down, chosen)


@PROGRAMS.of(
    "model",
    "third_gcn_layer_bwd",
    lambda d: (d.normal(1500, 40), d.normal(40, 64), d.integers(0, 1500, 12_000), d.integers(0, 1500, 12_000)),
)
def _(x: Any, w: Any, source: Any, target: Any) -> Any:
    def f(w: Any) -> Any:
        h = x @ w
        return nn.relu(jax.ops.segment_sum(h[source], target, 1500)).sum()

    return jax.grad(f)(w)


@PROGRAMS.of(
    "model",
    "third_mixer_block",
    lambda d: (
        d.normal(6, 100, 128),
        d.normal(100, 220, scale=0.1),
        d.normal(220, 100, scale=0.1),
        d.normal(128, 256, scale=0.1),
    ),
)
def _(x: Any, a: Any, b: Any, c: Any) -> Any:
    y = x + jnp.swapaxes(nn.gelu(jnp.swapaxes(x, 1, 2) @ a) @ b, 1, 2)
    return y + nn.silu(y @ c)[..., :128]


@PROGRAMS.of("loop", "third_power_iteration_180", lambda d: (d.positive_definite(180), d.normal(180)))
def _(a: Any, x: Any) -> Any:
    def step(_: Any, x: Any) -> Any:
        y = a @ x
        return y / jnp.linalg.norm(y)

    return lax.fori_loop(0, 60, step, x)


@PROGRAMS.of("loop", "third_collatz_lengths_20K", lambda d: (d.integers(1, 100_000, 20_000),))
def _(n: Any) -> Any:
    def step(state: Any) -> Any:
        n, count = state
        going = n != 1
        return jnp.where(going, jnp.where(n % 2 == 0, n // 2, 3 * n + 1), n), count + going

    return lax.while_loop(lambda s: (s[0] != 1).any(), step, (n, jnp.zeros_like(n)))[1]


@PROGRAMS.of("scan", "third_kalman_filter_800", lambda d: (d.normal(800, 3), d.normal(3, 3, scale=0.3)))
def _(observed: Any, a: Any) -> Any:
    def step(state: Any, y: Any) -> Any:
        x, p = a @ state[0], a @ state[1] @ a.T + 0.1 * jnp.eye(3)
        gain = p @ jnp.linalg.inv(p + jnp.eye(3))
        x = x + gain @ (y - x)
        return (x, p - gain @ p), x

    return lax.scan(step, (jnp.zeros(3), jnp.eye(3)), observed)[1]


@PROGRAMS.of("scan", "third_running_argmax_i32", lambda d: (d.integers(-10_000, 10_000, 500, 2000),))
def _(x: Any) -> Any:
    return lax.cummax(x, 1), lax.cumsum(x, 0)


@PROGRAMS.of("scan", "third_edit_distance_rows", lambda d: (d.integers(0, 4, 300), d.integers(0, 4, 280)))
def _(s: Any, t: Any) -> Any:
    def row(previous: Any, c: Any) -> Any:
        best = jnp.minimum(previous[1:] + 1, previous[:-1] + (t != c))
        first = previous[:1] + 1
        candidates = jnp.concatenate([first, best]) - jnp.arange(281)
        following = lax.cummin(candidates) + jnp.arange(281)
        return following, following[-1]

    return lax.scan(row, jnp.arange(281), s)[1]


@PROGRAMS.of("sort", "third_sort_bf16_rows", lambda d: (d.normal(300, 3000, dtype=BF16),))
def _(x: Any) -> Any:
    return jnp.sort(x, 1)


@PROGRAMS.of("sort", "third_topk5_columns_i32", lambda d: (d.integers(0, 1 << 30, 2000, 200),))
def _(x: Any) -> Any:
    return tuple(lax.top_k(x.T, 5))


@PROGRAMS.of(
    "gather",
    "third_take_rows_2d_f64",
    lambda d: (d.normal(300, 400, dtype=np.float64), *(d.integers(0, 300, 150_000) for _ in "ij")),
    x64=True,
)
def _(x: Any, i: Any, j: Any) -> Any:
    return x[i, j] * 2


@PROGRAMS.of(
    "scatter",
    "third_scatter_rows_add_bf16",
    lambda d: (d.normal(2000, 96, dtype=BF16), d.integers(0, 2000, 3000), d.normal(3000, 96, dtype=BF16)),
)
def _(x: Any, i: Any, rows: Any) -> Any:
    return x.at[i].add(rows)


@PROGRAMS.of("random", "third_truncated_exponential_700K", lambda d: (d.integers(0, 99, 2, dtype=np.uint32),))
def _(key: Any) -> Any:
    return jnp.minimum(random.exponential(key, (700_000,)), 3.0)


@PROGRAMS.of("fft", "third_rfft_rows_1500_power", lambda d: (d.normal(400, 1500),))
def _(x: Any) -> Any:
    return jnp.abs(jnp.fft.rfft(x)) ** 2


@PROGRAMS.of("linalg", "third_cholesky_solve_batch_60x40", lambda d: (d.normal(60, 40, 40), d.normal(60, 40, 3)))
def _(a: Any, b: Any) -> Any:
    spd = a @ jnp.swapaxes(a, 1, 2) + 40 * jnp.eye(40)
    return jax.vmap(lambda s, r: linalg.cho_solve((linalg.cholesky(s, lower=True), True), r))(spd, b)


@PROGRAMS.of("linalg", "third_qr_tall_700x90", lambda d: (d.normal(700, 90), d.normal(700)))
def _(a: Any, b: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return linalg.solve_triangular(r, q.T @ b)


@PROGRAMS.of("app", "third_gray_scott_200_20it", lambda d: (d.uniform(200, 200), d.uniform(200, 200)))
def _(u: Any, v: Any) -> Any:
    def laplace(x: Any) -> Any:
        return jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x

    def step(_: Any, state: Any) -> Any:
        u, v = state
        uvv = u * v * v
        return u + 0.16 * laplace(u) - uvv + 0.035 * (1 - u), v + 0.08 * laplace(v) + uvv - 0.1 * v

    return lax.fori_loop(0, 20, step, (u, v))
