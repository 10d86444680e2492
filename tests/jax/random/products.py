"""Random products and convolutions: each function draws one, with its arguments."""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
from jax import lax

from tests.jax.random.program import FLOATS, INTEGERS, Draw, Program

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

    description = f"dot {dtype}{list(x.shape)} {dtype}{list(y.shape)} -> {preferred}, {numbers}, then {then}"
    return Program(function, [x, y], description, 3 * math.sqrt(math.prod(contracted)))


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
    window = _window(draw, dtype)
    names = "DHW"[3 - len(window.image) :]
    image_names = draw.choice([f"NC{names}", f"N{names}C", f"N{names}C"])
    kernel_names = draw.choice([f"OI{names}", f"{names}IO", f"{names}OI"])
    result_names = draw.choice([f"NC{names}", f"N{names}C"])
    image_sizes = {"N": window.batch, "C": window.inputs, **dict(zip(names, window.image))}
    kernel_sizes = {"O": window.outputs, "I": window.inputs // window.groups, **dict(zip(names, window.kernel))}
    image = draw.array([image_sizes[name] for name in image_names], dtype)
    kernel = draw.array([kernel_sizes[name] for name in kernel_names], dtype)
    if "int" in dtype:
        image, kernel = image // 16, kernel // 16
    reversed_axes = [kernel_names.index(name) for name in names] if draw.chance(0.1) else []

    def function(image: jax.Array, kernel: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            image,
            lax.rev(kernel, reversed_axes) if reversed_axes else kernel,
            window.strides,
            window.padding,
            window.image_dilation,
            window.kernel_dilation,
            (image_names, kernel_names, result_names),
            window.groups,
            window.batch_groups,
            precision="highest",
        )

    layouts = f"{image_names}{list(image.shape)} {kernel_names}{list(kernel.shape)} {result_names}"
    reversal = ", kernel reversed" if reversed_axes else ""
    terms = window.inputs // window.groups * math.prod(window.kernel)
    description = f"convolution {dtype} {layouts}, {window}{reversal}"
    return Program(function, [image, kernel], description, 4 * math.sqrt(terms))


@dataclass(frozen=True)
class ConvolutionWindow:
    """The sizes of a convolution, and where its windows are."""

    batch: int = field(repr=False)
    inputs: int = field(repr=False)
    outputs: int = field(repr=False)
    image: list[int] = field(repr=False)
    kernel: list[int] = field(repr=False)
    strides: list[int]
    padding: list[tuple[int, int]]
    image_dilation: list[int]
    kernel_dilation: list[int]
    groups: int
    batch_groups: int

    @property
    def results(self) -> list[int]:
        """The sizes of the result's spatial dimensions."""
        dilated = [(size - 1) * dilation + 1 for size, dilation in zip(self.image, self.image_dilation)]
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(self.kernel, self.kernel_dilation)]
        return [
            (size + low + high - needed) // stride + 1
            for size, (low, high), needed, stride in zip(dilated, self.padding, reach, self.strides)
        ]

    def fits(self, dtype: str) -> bool:
        """Whether the convolution has results, and takes no more than some tenths of a second."""
        if min(self.results) < 1:
            return False
        terms = self.inputs // self.groups * math.prod(self.kernel)
        results = self.outputs * self.batch * math.prod(self.results)
        return (
            results * terms // self.batch_groups < (4e8 if dtype == "float32" else 4e7)
            and self.batch * self.inputs * math.prod(self.image) < 3e6
            and results < 3e6
            and self.outputs * terms < 3e6
        )


def _window(draw: Draw, dtype: str) -> ConvolutionWindow:
    rank = draw.choice([1, 2, 2, 2, 3])
    groups = draw.choice([1, 1, 1, 2, 4, 8, 32])
    batch_groups = draw.choice([2, 4]) if groups == 1 and draw.chance(0.1) else 1
    while True:
        outputs = draw.choice([1, 2, 3, 4, 8, 13, 16, 32, 64, 128, 256]) * groups * batch_groups
        window = ConvolutionWindow(
            batch=draw.choice([1, 1, 2, 3, 4, 8]) * batch_groups,
            inputs=draw.choice([1, 2, 3, 4, 7, 8, 16, 17, 32, 64, 96, 128, 256]) * groups,
            outputs=outputs if outputs < 600 else groups * batch_groups,
            image=[draw.choice([1, 3, 5, 7, 8, 9, 13, 14, 16, 28, 32, 33, 56, 64, 100, 128]) for _ in range(rank)],
            kernel=[draw.choice([1, 1, 2, 3, 3, 3, 4, 5, 7]) for _ in range(rank)],
            strides=[draw.choice([1, 1, 1, 2, 3]) for _ in range(rank)],
            padding=[(draw.choice(_PADDING), draw.choice(_PADDING)) for _ in range(rank)],
            image_dilation=[draw.choice([1, 1, 1, 1, 2, 3]) for _ in range(rank)],
            kernel_dilation=[draw.choice([1, 1, 1, 2, 3]) for _ in range(rank)],
            groups=groups,
            batch_groups=batch_groups,
        )
        if window.fits(dtype):
            return window


_PADDING = (0, 0, 1, 1, 2, 3, -1)
