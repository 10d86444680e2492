"""Steps of random compositions: each draws a function of JAX that is defined for a value, and applies it.

A step takes the source of its choices, the value, and all values so far. It raises NotApplicable if no function of its
kind is defined for the value. `small` then reduces results to small integers, so that sums and products are exact.
"""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.jax.random.program import Draw

Values = Sequence[jax.Array]
Step = Callable[[Draw, jax.Array, Values], jax.Array]

TYPES = (
    "int8", "uint8", "int16", "int32", "int32", "uint32", "int64", "bfloat16", "float16", "float32", "float32", "float32",
    "float64", "complex64", "bool",
)  # fmt: skip


class NotApplicable(Exception):
    """No function of a step's kind is defined for the value."""


def small(x: jax.Array) -> jax.Array:
    """The value with every number reduced to an integer from -8 to 8."""
    if is_bool(x):
        return x
    if is_complex(x):
        return lax.complex(small(jnp.real(x)), small(jnp.imag(x)))
    if jnp.issubdtype(x.dtype, jnp.unsignedinteger):
        return x & 7
    if jnp.issubdtype(x.dtype, jnp.integer):
        return (x & 15) - 8
    return jnp.clip(jnp.round(x), -8, 8) + 0


# -- kinds of values


def is_bool(x: jax.Array) -> bool:
    return x.dtype == jnp.bool_


def is_complex(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.complexfloating)


def is_float(x: jax.Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def require(condition: object) -> None:
    if not condition:
        raise NotApplicable


# -- draws of several steps


def summable(x: jax.Array) -> jax.Array:
    """The value in a type in which sums of many small integers are exact, or wrap around."""
    if x.dtype in (jnp.bfloat16, jnp.float16):
        return x.astype(jnp.float32)
    return x.astype(jnp.int32) if is_bool(x) else x


def an_axis(draw: Draw, x: jax.Array) -> int:
    require(x.ndim)
    return draw.randrange(x.ndim)


def some_axes(draw: Draw, x: jax.Array) -> tuple[int, ...]:
    require(x.ndim)
    return tuple(sorted(draw.sample(range(x.ndim), draw.randint(1, x.ndim))))


def like(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    """A value of the same shape and type as `x`: one of `values`, or one computed from `x`."""
    others = [value for value in values if value.shape == x.shape and value is not x]
    if others:
        other = draw.choice(others)
        return (jnp.real(other) if is_complex(other) and not is_complex(x) else other).astype(x.dtype)
    axis = an_axis(draw, x)
    match draw.choice(["flip", "roll", "broadcast", "iota"]):
        case "flip":
            return jnp.flip(x, axis)
        case "roll":
            return jnp.roll(x, draw.randint(1, 9), axis)
        case "broadcast":
            return jnp.broadcast_to(lax.slice_in_dim(x, 0, 1, axis=axis), x.shape)
        case _:
            iota = lax.broadcasted_iota(jnp.int32, x.shape, axis)
            return iota % 3 == 0 if is_bool(x) else iota.astype(x.dtype)


def small_index(element: jax.Array, factor: int) -> jax.Array:
    """A nonnegative multiple of `factor` that is computed at run time."""
    number = element.astype(jnp.int32) if is_bool(element) else jnp.real(element)
    return jnp.abs(number).astype(jnp.int32) * factor


def indices(draw: Draw, size: int, count: int) -> jax.Array:
    """`count` indices into a dimension of this size, at regular distances; some may be equal."""
    return (jnp.arange(count) * draw.choice([1, 3, 7, -2, 13]) + draw.randint(0, 9)) % size


# -- element by element


def binary(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    y = small(like(draw, x, values))
    if is_bool(x):
        return draw.choice([jnp.logical_and, jnp.logical_or, jnp.logical_xor])(x, y)
    name = draw.choice(["add", "subtract", "multiply", "maximum", "minimum", "select", "compare"])
    if name in ("add", "subtract", "multiply"):
        return getattr(jnp, name)(x, y)
    if is_complex(x):
        return jnp.where(x == y, x, jnp.conj(y))
    if name in ("maximum", "minimum"):
        return getattr(jnp, name)(x, y)
    return jnp.where(x > y, x, y - 1) if name == "select" else x >= y


OF_COMPLEX: tuple[Callable[[Any], Any], ...] = (
    jnp.conj,
    lambda x: -x,
    lambda x: x * 1j,
    lambda x: jnp.abs(x.real) + 1j * x.imag,
)
OF_FLOATS: tuple[Callable[[Any], Any], ...] = (
    lambda x: -x,
    jnp.abs,
    jnp.sign,
    jnp.square,
    # the factors keep results for small integers far from halves, so that roundings do not depend on the last bits
    lambda x: jnp.round(3 * jnp.tanh(x)),
    lambda x: jnp.round(jnp.exp(-jnp.abs(x)) * 5.2),
    lambda x: jnp.floor(x / 3 + 0.1),
    lambda x: jnp.round(jnp.sqrt(jnp.abs(x)) * 1.13),
)
OF_INTEGERS: tuple[Callable[[Any], Any], ...] = (
    lambda x: -x,
    jnp.abs,
    jnp.sign,
    jnp.square,
    lambda x: x // 3,
    lambda x: x % 5,
    lambda x: x << 2,
    lambda x: x >> 1,
    lambda x: ~x,
    lax.population_count,
    lax.clz,
)


def unary(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    if is_bool(x):
        return ~x
    return draw.choice(OF_COMPLEX if is_complex(x) else OF_FLOATS if is_float(x) else OF_INTEGERS)(x)


def convert(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    dtype = draw.choice(TYPES)
    if is_complex(x) and dtype != "complex64":
        part = draw.choice([jnp.real, jnp.imag])(x)
        return part.astype("int32" if dtype == "bool" else dtype)
    return x != 0 if dtype == "bool" else x.astype(dtype)


# -- reductions


def reduce(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axes = some_axes(draw, x)
    name = draw.choice(["sum", "sum", "max", "min", "any", "all", "argmax", "argmin"])
    if is_complex(x):
        return x.sum(axes)
    if name in ("any", "all"):
        return getattr(x if is_bool(x) else x > 2, name)(axes)
    if is_bool(x):
        return x.sum(axes, dtype=jnp.int32)
    if name in ("argmax", "argmin"):
        return getattr(jnp, name)(x, axes[0])
    return summable(x).sum(axes) if name == "sum" else getattr(x, name)(axes)


def less_reduction(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    """The value minus its sum, maximum or minimum, as in a softmax."""
    require(not is_bool(x))
    axes = some_axes(draw, x)
    if is_complex(x):
        return x - x.sum(axes, keepdims=True)
    exact = summable(x)
    match draw.choice(["sum", "max", "min", "two"]):
        case "sum":
            return exact - exact.sum(axes, keepdims=True)
        case "two":  # a reduction whose operand needs another reduction
            largest = summable(x.max(axes, keepdims=True))
            return exact * 0 + (exact == largest).sum(axes, keepdims=True) + exact
        case name:
            return x - getattr(x, name)(axes, keepdims=True)


def cumulative(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(not is_bool(x))
    axis = an_axis(draw, x)
    if is_complex(x):
        return jnp.cumsum(x, axis)
    function = draw.choice([lax.cumsum, lax.cummax, lax.cummin])
    return function(summable(x) if function is lax.cumsum else x, axis, draw.chance(0.3))


def window(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim and not is_bool(x) and not is_complex(x))
    exact = summable(x)
    window = [draw.choice([1, 2, 3, 5]) if size > 5 else 1 for size in x.shape]
    require(math.prod(window) <= 32)
    strides, padding = [draw.choice([1, 1, 2]) for _ in window], draw.choice(["SAME", "VALID"])
    if draw.chance(0.5):
        return lax.reduce_window(exact, np.zeros((), exact.dtype), lax.add, window, strides, padding)
    least = -np.inf if is_float(exact) else jnp.iinfo(exact.dtype).min
    return lax.reduce_window(exact, np.array(least, exact.dtype), lax.max, window, strides, padding)


# -- shapes


def transpose(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim > 1)
    return jnp.transpose(x, draw.sample(range(x.ndim), x.ndim))


def reshape(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    """Two dimensions merged, or one split."""
    shape, axis = list(x.shape), an_axis(draw, x)
    if x.ndim > 1 and draw.chance(0.5):
        axis = draw.randrange(x.ndim - 1)
        shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
        return x.reshape(shape)
    size = shape[axis]
    factors = [factor for factor in (2, 3, 4, 5, 7, 8, 16) if size % factor == 0 and size > factor]
    require(factors and x.ndim < 5)
    factor = draw.choice(factors)
    shape[axis : axis + 1] = draw.choice([[factor, size // factor], [size // factor, factor]])
    return x.reshape(shape)


def flip(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    return jnp.flip(x, some_axes(draw, x))


def slice_(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim)
    slices: list[slice] = []
    for size in x.shape:
        if size < 2 or draw.chance(0.4):
            slices.append(slice(None))
        else:
            start = draw.randint(0, size // 2)
            slices.append(slice(start, draw.randint(start + 1, size), draw.choice([1, 1, 1, 2, 3])))
    return x[tuple(slices)]


def pad(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim)
    padding: list[tuple[int, int, int]] = []
    for size in x.shape:
        least, most = (-1, 3) if size > 3 else (0, 2)
        interior = draw.choice([0, 0, 0, 1]) if size < 600 else 0
        padding.append((draw.randint(least, most), draw.randint(least, most), interior))
    return lax.pad(x, jnp.ones((), x.dtype), padding)


def concatenate(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axis, other = an_axis(draw, x), like(draw, x, values)
    if draw.chance(0.3):
        return jnp.stack([x, other], axis)
    first_third = lax.slice_in_dim(x, 0, max(1, x.shape[axis] // 3), axis=axis)
    return jnp.concatenate([x, other, first_third], axis)


# -- indices


def dynamic_slice(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axis = an_axis(draw, x)
    require(x.shape[axis] > 2)
    start = small_index(x.ravel()[0], 3)
    return lax.dynamic_slice_in_dim(x, start, draw.randint(1, x.shape[axis] - 1), axis)


def dynamic_update_slice(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axis = an_axis(draw, x)
    require(x.shape[axis] > 2)
    part = lax.slice_in_dim(x, 0, draw.randint(1, x.shape[axis] - 1), axis=axis)
    start = small_index(x.ravel()[-1], 2)
    return lax.dynamic_update_slice_in_dim(x, small(like(draw, part, [])), start, axis)


def take(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axis = an_axis(draw, x)
    size = x.shape[axis]
    return jnp.take(x, indices(draw, size, draw.choice([1, 5, size, 2 * size])), axis=axis)


def take_along_axis(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    axis, where = an_axis(draw, x), small(like(draw, x, values))
    require(not is_complex(where))
    return jnp.take_along_axis(x, jnp.abs(where.astype(jnp.int32)) % x.shape[axis], axis)


def scatter(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(not is_bool(x))
    axis, count = an_axis(draw, x), draw.choice([1, 5, 64])
    size = x.shape[axis]
    repeated = jnp.concatenate([x] * (count // size + 1), axis) if count > size else x
    updates = lax.slice_in_dim(repeated, 0, count, axis=axis)
    where = indices(draw, size, count)
    target = jnp.moveaxis(summable(x), axis, 0)
    name = "add" if is_complex(x) else draw.choice(["add", "add", "max", "min"])
    changed = getattr(target.at[where], name)(jnp.moveaxis(summable(updates), axis, 0))
    return jnp.moveaxis(changed, 0, axis)


# -- sorts, products, control flow


def sort(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(not is_complex(x))
    axis = an_axis(draw, x)
    match draw.choice(["sort", "argsort", "pairs", "top"]):
        case "sort":
            return jnp.sort(x, axis, descending=draw.chance(0.3))
        case "argsort":
            return jnp.argsort(x, axis)
        case "pairs":
            return lax.sort((x, like(draw, x, values)), dimension=axis, num_keys=1)[1]
        case _:
            require(not is_bool(x))
            return lax.top_k(x, min(x.shape[-1], draw.choice([1, 3, 10])))[draw.randrange(2)]


def dot(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim >= 2 and not is_bool(x))
    exact = summable(x)
    matrix = exact.reshape(-1, exact.shape[-1])[:300, :300]
    match draw.choice(["rows", "columns", "vector", "batch"]):
        case "rows":
            return matrix @ jnp.flip(matrix).T
        case "columns":
            return matrix.T @ jnp.flip(matrix, 0)
        case "vector" if x.ndim == 2:
            return exact @ jnp.flip(exact[0], -1)
        case "vector":
            return jnp.einsum("...ij,...j->...i", exact, exact[..., 0, :])
        case _:
            require(x.ndim > 2)
            part = exact[..., :60, :50]
            return jnp.einsum("...ij,...kj->...ik", part, jnp.flip(part))


def convolution(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(is_float(x) and x.ndim == 3)
    image = summable(x)[:, :64]
    require(image.size < 600_000)
    kernel_shape = (draw.choice([1, 4, 17]), image.shape[1], 3)
    kernel = small(lax.broadcasted_iota(jnp.int32, kernel_shape, 2) - 1).astype(image.dtype)
    return lax.conv_general_dilated(image, kernel, (draw.choice([1, 2]),), "SAME")


def loop(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(not is_bool(x))
    if draw.chance(0.5):
        step = small(like(draw, x, values))
        turns = draw.choice([1, 3, 6])
        return lax.fori_loop(0, turns, lambda turn, value: small(value + step * turn.astype(step.dtype)), x)
    require(x.ndim > 1 and x.shape[0] < 400)
    start = jnp.zeros(x.shape[1:], x.dtype)
    return lax.scan(lambda carry, row: (small(carry + row), carry * row), start, x)[1]


def conditional(draw: Draw, x: jax.Array, values: Values) -> jax.Array:
    require(x.ndim and not is_complex(x))
    other = like(draw, x, values)
    return lax.cond(x.ravel()[0] > 0, lambda: jnp.flip(x, 0), lambda: other)


STEPS: dict[Step, int] = {
    binary: 3,
    unary: 2,
    convert: 1,
    reduce: 1,
    less_reduction: 2,
    cumulative: 1,
    window: 1,
    transpose: 2,
    reshape: 2,
    flip: 1,
    slice_: 2,
    pad: 1,
    concatenate: 1,
    dynamic_slice: 1,
    dynamic_update_slice: 1,
    take: 1,
    take_along_axis: 1,
    scatter: 1,
    sort: 1,
    dot: 1,
    convolution: 4,  # few values fit
    loop: 1,
    conditional: 1,
}
"""All steps, and how often each is drawn."""


def any_step(draw: Draw) -> Step:
    return draw.choices(list(STEPS), list(STEPS.values()))[0]
