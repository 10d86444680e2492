"""Random products and convolutions: each function draws one, with its arguments."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import lax

from hlokit.judge.closeness.equality import info_of
from tests.jax.random.program import FLOATS, INTEGERS, Draw, Program, sum_tolerance
from tests.jax.random.windows import Windows


def _tolerance(terms: int, dtype: str) -> float:
    """The tolerance of sums of products, which engines accumulate in float32 if the result's type is narrower."""
    narrow = dtype in ("bfloat16", "float16")
    return sum_tolerance(terms) * (float(info_of("float32").eps / info_of(dtype).eps) if narrow else 1)


# -- products


def dot(draw: Draw) -> Program:
    """A product of any dimensions in any order, with what often follows one."""
    dtype = draw.choice(FLOATS + INTEGERS)
    batch, contracted, left, right = _dot_sizes(draw, dtype)
    left_order, right_order = (_order(draw, len(batch + contracted + own)) for own in (left, right))
    left_sizes, right_sizes = batch + contracted + left, batch + contracted + right
    x = draw.array([left_sizes[i] for i in left_order], dtype)
    y = draw.array([right_sizes[i] for i in right_order], dtype)
    batches, contractions = range(len(batch)), range(len(batch), len(batch + contracted))
    numbers = (
        ([left_order.index(i) for i in contractions], [right_order.index(i) for i in contractions]),
        ([left_order.index(i) for i in batches], [right_order.index(i) for i in batches]),
    )
    preferred = _preferred_type(draw, dtype)
    then = draw.choice(["nothing", "nothing", "relu", "bias", "scale"])

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        product = lax.dot_general(x, y, numbers, precision="highest", preferred_element_type=preferred)
        return _continued(product, then)

    return Program(function, [x, y], f"dot, then {then}", _tolerance(math.prod(contracted), preferred or dtype))


def _dot_sizes(draw: Draw, dtype: str) -> tuple[list[int], list[int], list[int], list[int]]:
    """Sizes of batch dimensions, of contracted ones, and of those that only the left or the right operand has."""
    ranks = [draw.choice(choices) for choices in ([0, 0, 0, 1, 2], [1, 1, 1, 2], [0, 1, 1, 2], [0, 1, 1, 2])]
    most = (40, 3000, 4000, 4000)
    work = 3e8 if dtype == "float32" else 1e8
    while True:
        batch, contracted, left, right = (draw.sizes(rank, elements) for rank, elements in zip(ranks, most))
        arrays = (batch + contracted + left, batch + contracted + right, batch + left + right)
        if all(math.prod(sizes) < 4e6 for sizes in arrays) and math.prod(batch + contracted + left + right) < work:
            return batch, contracted, left, right


def _order(draw: Draw, rank: int) -> list[int]:
    """An order of dimensions, which often is the usual one."""
    return list(range(rank)) if draw.chance(0.4) else draw.sample(range(rank), rank)


def _preferred_type(draw: Draw, dtype: str) -> str | None:
    if dtype in ("bfloat16", "float16", "float32"):
        return draw.choice([None, None, "float32", "float64"])
    return draw.choice([None, "int32"]) if dtype in ("int8", "uint8", "int16") else None


def _continued(product: jax.Array, then: str) -> jax.Array:
    match then:
        case "relu" if not jnp.iscomplexobj(product):
            return jnp.maximum(product, 0)
        case "bias" if product.ndim:
            return product + jnp.arange(product.shape[-1]).astype(product.dtype)
        case "scale":
            return product * product.dtype.type(2)
        case _:
            return product


# -- convolutions


def convolution(draw: Draw) -> Program:
    """A convolution of one to three spatial dimensions, with groups, strides, padding, dilation and layouts."""
    dtype = draw.choice(
        ["float32", "float32", "float32", "float64", "bfloat16", "float16", "complex64", "int8", "int16", "int32"]
    )
    sizes = _convolution_sizes(draw, dtype)
    names = "DHW"[3 - len(sizes.image) :]
    image_names = draw.choice([f"NC{names}", f"N{names}C", f"N{names}C"])
    kernel_names = draw.choice([f"OI{names}", f"{names}IO", f"{names}OI"])
    result_names = draw.choice([f"NC{names}", f"N{names}C"])
    windows = sizes.windows
    image_sizes = {"N": sizes.batch, "C": sizes.inputs, **dict(zip(names, sizes.image))}
    kernel_sizes = {"O": sizes.outputs, "I": sizes.inputs // sizes.groups, **dict(zip(names, windows.sizes))}
    image = draw.array([image_sizes[name] for name in image_names], dtype)
    kernel = draw.array([kernel_sizes[name] for name in kernel_names], dtype)
    if "int" in dtype:
        image, kernel = image // 16, kernel // 16
    reversed_axes = [kernel_names.index(name) for name in names] if draw.chance(0.1) else []

    def function(image: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            image,
            lax.rev(kernel, reversed_axes) if reversed_axes else kernel,
            windows.strides,
            windows.padding,
            windows.dilation,
            windows.window_dilation,
            (image_names, kernel_names, result_names),
            sizes.groups,
            sizes.batch_groups,
            precision="highest",
        )

    return Program(function, [image, kernel], "convolution", _tolerance(sizes.terms, dtype))


@dataclass(frozen=True)
class ConvolutionSizes:
    """The sizes of a convolution; `inputs` and `outputs` are numbers of features."""

    batch: int
    inputs: int
    outputs: int
    image: list[int]
    windows: Windows
    groups: int
    batch_groups: int

    @property
    def terms(self) -> int:
        """The number of products that are summed to an element of the result."""
        return self.inputs // self.groups * math.prod(self.windows.sizes)

    def fits(self, dtype: str) -> bool:
        """Whether the convolution has results and takes at most some tenths of a second, and XLA does not crash."""
        counts = self.windows.counts(self.image)
        if min(counts) < 1:
            return False
        is_larger = any(size > image for size, image in zip(self.windows.sizes, self.image))
        if dtype != "float32" and is_larger and max(self.windows.dilation) > 1:
            return False  # jaxlib 0.10.2 exchanges the operands of some of these incorrectly and ends the process
        results = self.outputs * self.batch * math.prod(counts)
        return (
            results * self.terms // self.batch_groups < (4e8 if dtype == "float32" else 4e7)
            and self.batch * self.inputs * math.prod(self.image) < 3e6
            and results < 3e6
            and self.outputs * self.terms < 3e6
        )


def _convolution_sizes(draw: Draw, dtype: str) -> ConvolutionSizes:
    rank = draw.choice([1, 2, 2, 2, 3])
    groups = draw.choice([1, 1, 1, 2, 4, 8, 32])
    batch_groups = draw.choice([2, 4]) if groups == 1 and draw.chance(0.1) else 1
    while True:
        outputs = draw.choice([1, 2, 3, 4, 8, 13, 16, 32, 64, 128, 256]) * groups * batch_groups
        sizes = ConvolutionSizes(
            batch=draw.choice([1, 1, 2, 3, 4, 8]) * batch_groups,
            inputs=draw.choice([1, 2, 3, 4, 7, 8, 16, 17, 32, 64, 96, 128, 256]) * groups,
            outputs=outputs if outputs < 600 else groups * batch_groups,
            image=[draw.choice([1, 3, 5, 7, 8, 9, 13, 14, 16, 28, 32, 33, 56, 64, 100, 128]) for _ in range(rank)],
            windows=Windows(
                sizes=[draw.choice([1, 1, 2, 3, 3, 3, 4, 5, 7]) for _ in range(rank)],
                strides=[draw.choice([1, 1, 1, 2, 3]) for _ in range(rank)],
                padding=[(draw.choice(_PADDING), draw.choice(_PADDING)) for _ in range(rank)],
                dilation=[draw.choice([1, 1, 1, 1, 2, 3]) for _ in range(rank)],
                window_dilation=[draw.choice([1, 1, 1, 2, 3]) for _ in range(rank)],
            ),
            groups=groups,
            batch_groups=batch_groups,
        )
        if sizes.fits(dtype):
            return sizes


_PADDING = (0, 0, 1, 1, 2, 3, -1)
