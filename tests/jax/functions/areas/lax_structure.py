"""jax.lax: shapes, indices, windows, products, sorting, control flow; jax.ops, jax.image."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.functions.table import case, integers, normal

M = "jax.lax"
X, Y, CUBE = normal(3, 4), normal(3, 4, seed=1), normal(2, 3, 4)
FEW = "f32 bf16 i32 u8 bool c64"
WIDE = "f32 bf16 i32 c64"
IMAGE, FILTER = normal(2, 3, 8, 6), normal(4, 3, 3, 2)
ROWS = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
INTO = lax.ScatterDimensionNumbers(
    update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
)
PLACES = np.int32([[2], [0], [2], [7]])
ONCE = np.int32([[2], [0]])


def scatters(name, places, update, **flags):
    return case(f"{M}.{name}", lambda x, n, y: getattr(lax, name)(x, n, y, INTO), X, places, update, **flags)


def axis(name, **flags):
    return case(f"{M}.{name}", lambda x: getattr(lax, name)(x, axis=1), X, **flags)


def reduction(name, **flags):
    return case(f"{M}.{name}", lambda x: getattr(lax, name)(x, axes=(1,)), X, **flags)


SHAPES = [
    case(f"{M}.reshape", lambda x: lax.reshape(x, (4, 3), dimensions=(1, 0)), X),
    case(f"{M}.transpose", lambda x: lax.transpose(x, (2, 0, 1)), CUBE, types=FEW),
    case(f"{M}.broadcast", lambda x: lax.broadcast(x, (2,)), X),
    case(f"{M}.broadcast_in_dim", lambda x: lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)), X, types=FEW),
    case(f"{M}.broadcast_to_rank", lambda x: lax.broadcast_to_rank(x, 4), X),
    case(f"{M}.collapse", lambda x: lax.collapse(x, 0, 2), CUBE),
    case(f"{M}.expand_dims", lambda x: lax.expand_dims(x, (1,)), X),
    case(f"{M}.squeeze", lambda x: lax.squeeze(x, (1,)), normal(3, 1, 4)),
    case(f"{M}.rev", lambda x: lax.rev(x, (1,)), X, types=FEW),
    case(f"{M}.tile", lambda x: lax.tile(x, (2, 3)), X),
    case(f"{M}.concatenate", lambda x, y: lax.concatenate([x, y], 1), X, Y, types=FEW),
    case(f"{M}.stack", lambda x, y: lax.stack([x, y], 1), X, Y),
    case(f"{M}.split", lambda x: lax.split(x, (1, 3), 1), X),
    case(f"{M}.unstack", None, X),
    case(f"{M}.pad", lambda x, v: lax.pad(x, v, ((1, 2, 1), (-1, 0, 2))), X, np.float32(9), types="f32 i32"),
    case(f"{M}.slice", lambda x: lax.slice(x, (0, 1), (3, 4), (2, 2)), X, types=FEW),
    case(f"{M}.slice_in_dim", lambda x: lax.slice_in_dim(x, 1, 4, 2, axis=1), X),
    case(f"{M}.index_in_dim", lambda x: lax.index_in_dim(x, 2, axis=1), X),
    case(f"{M}.index_take", lambda x, n: lax.index_take(x, (n,), (1,)), X, np.int32([2, 0])),
    case(f"{M}.dynamic_slice", lambda x, i, j: lax.dynamic_slice(x, (i, j), (2, 2)), X, np.int32(1), np.int32(9)),
    case(f"{M}.dynamic_slice_in_dim", lambda x, i: lax.dynamic_slice_in_dim(x, i, 2, axis=1), X, np.int32(1)),
    case(f"{M}.dynamic_index_in_dim", lambda x, i: lax.dynamic_index_in_dim(x, i, axis=1), X, np.int32(-1)),
    case(f"{M}.dynamic_update_slice", lambda x, y, i: lax.dynamic_update_slice(x, y, (i, i)), X, Y[:2, :2], np.int32(1)),
    case(f"{M}.dynamic_update_slice_in_dim", lambda x, y, i: lax.dynamic_update_slice_in_dim(x, y, i, 1), X, Y[:, :2], np.int32(2)),
    case(f"{M}.dynamic_update_index_in_dim", lambda x, y, i: lax.dynamic_update_index_in_dim(x, y, i, 1), X, Y[:, 0], np.int32(2)),
    *[case(f"{M}.gather", lambda x, n, mode=mode: lax.gather(x, n, ROWS, (1, 4), mode=mode), X, PLACES, label=mode)
      for mode in ("clip", "fill")],
    scatters("scatter", ONCE, Y[:2]),
    *[scatters(f"scatter_{f}", PLACES, normal(4, 4)) for f in ["add", "sub", "max", "min"]],
    case(f"{M}.scatter_mul", lambda x, n, y: lax.scatter_mul(x, n, y, INTO, unique_indices=True), X, ONCE, Y[:2]),
    case(f"{M}.scatter_apply", lambda x, n: lax.scatter_apply(x, n, jnp.sin, INTO, update_shape=(2, 4), unique_indices=True), X, ONCE, no_grad=True),
    case(f"{M}.iota", lambda: lax.iota(jnp.float32, 5)),
    case(f"{M}.broadcasted_iota", lambda: lax.broadcasted_iota(jnp.int32, (2, 3, 4), 1)),
    case(f"{M}.full", lambda v: lax.full((2, 3), v), np.float32(3)),
    case(f"{M}.full_like", lambda x: lax.full_like(x, 3), X),
    case(f"{M}.empty", lambda: lax.empty((0, 3), jnp.float32)),
]  # fmt: skip
NUMBERS = (((1,), (1,)), ((0,), (0,)))
REDUCTIONS = [
    *[axis(f, types=WIDE) for f in ["cumsum", "cumprod"]],
    *[axis(f, types="f32 bf16 i32") for f in ["cummax", "cummin"]],
    axis("cumlogsumexp", types="f32 bf16"),
    case(f"{M}.argmax", lambda x: lax.argmax(x, 1, jnp.int32), X, types="f32 bf16 i32 bool"),
    case(f"{M}.argmin", lambda x: lax.argmin(x, 0, jnp.uint8), X, types="f32 bf16 i32 bool"),
    *[reduction(f, types=WIDE) for f in ("reduce_sum", "reduce_prod")],
    *[reduction(f, types="f32 bf16 i32 u8 bool") for f in ("reduce_max", "reduce_min")],
    *[case(f"{M}.{f}", lambda x, f=f: getattr(lax, f)(x, axes=(0,)), integers(3, 4, low=-9))
      for f in ("reduce_and", "reduce_or", "reduce_xor")],
    case(f"{M}.reduce", lambda x, y: lax.reduce((x, y), (np.float32(0), np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (1,)), X, Y),
    case(f"{M}.reduce_window", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (1, 2), "SAME"), X),
    case(f"{M}.reduce_window", lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 2), (1, 1), ((1, 0), (0, 2)), (2, 1), (1, 2)), X, label="dilated"),
    case(f"{M}.sort", lambda x, y: lax.sort((x, y), num_keys=2, dimension=1), integers(3, 8, high=3), normal(3, 8)),
    case(f"{M}.sort_key_val", lambda x, y: lax.sort_key_val(x, y), X, Y),
    case(f"{M}.top_k", lambda x: lax.top_k(x, 2), X, types="f32 bf16 i32"),
    *[case(f"{M}.{f}", lambda x, f=f: getattr(lax, f)(x, 2, recall_target=1.0), X) for f in ("approx_max_k", "approx_min_k")],
    case(f"{M}.dot", None, X, Y.T, types=WIDE),
    case(f"{M}.dot_general", lambda x, y: lax.dot_general(x, y, NUMBERS), CUBE, normal(2, 3, 5), types="f32 bf16 i32 c64 u8"),
    case(f"{M}.dot_general", lambda x, y: lax.dot_general(x.astype(jnp.int8), y.astype(jnp.int8), NUMBERS, preferred_element_type=jnp.int32), integers(2, 3, 4), integers(2, 3, 5), label="int8"),
    case(f"{M}.batch_matmul", None, CUBE, normal(2, 4, 5)),
    case(f"{M}.ragged_dot", lambda x, y, n: lax.ragged_dot(x, y, n), normal(6, 3), normal(2, 3, 4), np.int32([4, 2])),
    case(f"{M}.conv", lambda x, y: lax.conv(x, y, (2, 1), "SAME"), IMAGE, FILTER, types="f32 bf16"),
    case(f"{M}.conv_with_general_padding", lambda x, y: lax.conv_with_general_padding(x, y, (1, 2), ((2, 1), (0, 3)), (2, 1), (1, 2)), IMAGE, FILTER),
    case(f"{M}.conv_general_dilated", lambda x, y: lax.conv_general_dilated(x, y, (1, 2), "VALID", rhs_dilation=(2, 1), dimension_numbers=("NCHW", "HWIO", "NHWC"), feature_group_count=3), IMAGE, normal(3, 2, 1, 6)),
    case(f"{M}.conv_general_dilated", lambda x, y: lax.conv_general_dilated(x, y, (1, 1), "SAME", batch_group_count=2), IMAGE, FILTER, label="batch groups"),
    case(f"{M}.conv_general_dilated_local", lambda x, y: lax.conv_general_dilated_local(x, y, (1,), "VALID", (3,)), normal(2, 3, 7), normal(4, 9, 5)),
    case(f"{M}.conv_general_dilated_patches", lambda x: lax.conv_general_dilated_patches(x, (2, 2), (1, 2), "SAME"), IMAGE),
    case(f"{M}.conv_transpose", lambda x, y: lax.conv_transpose(x, y, (2, 2), "SAME"), normal(2, 4, 3, 5), normal(3, 3, 5, 6)),
    case(f"{M}.fft", lambda x: lax.fft(x, "fft", (3, 4)), CUBE, types="c64"),
]  # fmt: skip
OPS = [
    *[case(f"jax.ops.{f}", lambda x, n, f=f: getattr(jax.ops, f)(x, n, 4), X, np.int32([2, 0, 2]), types="f32 i32")
      for f in ("segment_sum", "segment_max", "segment_min")],
    case("jax.ops.segment_prod", lambda x, n: jax.ops.segment_prod(x, n, 4, unique_indices=True), X, np.int32([2, 0, 3])),
    *[case("jax.image.resize", lambda x, m=m: jax.image.resize(x, (2, 5, 7), m), CUBE, label=m)
      for m in ("nearest", "linear", "cubic", "lanczos3")],
    case("jax.image.scale_and_translate", lambda x, s, t: jax.image.scale_and_translate(x, (2, 5, 7), (1, 2), s, t, "linear"), CUBE, np.float32([1.5, 2]), np.float32([0.3, -0.4])),
]  # fmt: skip


def scanned(x, ys):
    return lax.scan(lambda c, y: (jnp.sin(c) * y, c.sum()), x, ys)


CONTROL = [
    case(f"{M}.cond", lambda p, x: lax.cond(p[0] > 0, jnp.sin, lambda v: v * v, x), np.int32([1, -1]), X),
    case(f"{M}.switch", lambda n, x: lax.switch(n[1], [jnp.sin, jnp.cos, jnp.exp], x), np.int32([0, 7]), X),
    case(f"{M}.scan", scanned, X, normal(5, 3, 4)),
    case(f"{M}.scan", lambda x, ys: lax.scan(lambda c, y: (c + y, c * y), x, ys, reverse=True, unroll=2), X[0], Y, label="reverse"),
    case(f"{M}.map", lambda x: lax.map(lambda v: jnp.sort(v) * v.sum(), x), X),
    case(f"{M}.map", lambda x: lax.map(jnp.cumsum, x, batch_size=2), X, label="batches"),
    case(f"{M}.while_loop", lambda x: lax.while_loop(lambda c: c[1] < 5, lambda c: (jnp.cos(c[0]), c[1] + 1), (x, 0)), X, no_grad=True),
    case(f"{M}.while_loop", lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 2), (0, x))[1], np.int32(3), integers(4), label="count"),
    case(f"{M}.fori_loop", lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) + i, x), X),
    case(f"{M}.fori_loop", lambda n, x: lax.fori_loop(n, n + 3, lambda i, c: c * c + i, x), np.int32(1), X, label="dynamic", no_grad=True),
    case(f"{M}.associative_scan", lambda x: lax.associative_scan(jnp.matmul, x), normal(5, 2, 2)),
    case(f"{M}.custom_root", lambda a: lax.custom_root(lambda x: x**3 - a, a, lambda f, x: _newton(f, x), lambda g, y: y / g(1.0)), np.float32(5)),
    case(f"{M}.custom_linear_solve", lambda a, b: lax.custom_linear_solve(lambda x: a @ x, b, lambda _, y: jnp.linalg.solve(a, y), lambda _, y: jnp.linalg.solve(a.T, y)), normal(3, 3), normal(3)),
    case(f"{M}.composite", lambda x: lax.composite(lambda v: jnp.sin(v) + 1, "tests.sine")(x), X, no_grad=True, no_vmap=True),
    case(f"{M}.platform_dependent", lambda x: lax.platform_dependent(x, cpu=jnp.sin, default=jnp.cos), X),
    case(f"{M}.rng_bit_generator", lambda k: lax.rng_bit_generator(k, (3, 4)), np.uint32([1, 2, 3, 4])),
]  # fmt: skip


def _newton(f, x):
    return lax.fori_loop(0, 20, lambda _, v: v - f(v) / jax.grad(f)(v), x)


CASES = [*SHAPES, *REDUCTIONS, *OPS, *CONTROL]
