"""Convolutions: those of ResNet-50 in both common layouts, depthwise, one-dimensional, backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.programs.lazy import functional, jax, lax, torch
from bench.programs.program import Program

LAYOUTS = {"NHWC": ("NHWC", "HWIO", "NHWC"), "NCHW": ("NCHW", "OIHW", "NCHW")}


def convolve(layout: str = "NHWC", stride: int = 1, groups: int = 1) -> Callable[[Any, Any], Any]:
    """A function of image and kernel, with padding SAME."""

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=LAYOUTS[layout], feature_group_count=groups
        )

    return convolved


def torch_convolve(layout: str, kernel: int, stride: int, groups: int) -> Callable[[Any, Any], Any]:
    def convolved(x: Any, w: Any) -> Any:
        if layout == "NHWC":
            x = x.permute(0, 3, 1, 2)
            w = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, w, stride=stride, padding=kernel // 2, groups=groups)

    return convolved


def programs(
    name: str, batch: int, size: int, features: tuple[int, int], kernel: int, stride: int = 1, groups: int = 1,
    layouts: tuple[str, ...] = ("NHWC", "NCHW"), quick: tuple[str, ...] = ("NHWC",),
) -> Iterator[Program]:  # fmt: skip
    """One program a layout: `batch` square images of `size`, `features` in and out; `quick`: layouts in bench-quick."""
    inputs, outputs = features
    out_size = -(-size // stride)
    shapes = {
        "NHWC": ((batch, size, size, inputs), (kernel, kernel, inputs // groups, outputs)),
        "NCHW": ((batch, inputs, size, size), (outputs, inputs // groups, kernel, kernel)),
    }
    for layout in layouts:
        image, weights = shapes[layout]
        yield Program(
            "convolution", f"conv_{name}_{layout}",
            lambda draw, image=image, weights=weights: (draw.normal(*image), draw.normal(*weights)),
            convolve(layout, stride, groups),
            flops=2 * batch * out_size**2 * outputs * (inputs // groups) * kernel**2,
            torch=torch_convolve(layout, kernel, stride, groups), quick=layout in quick,
        )  # fmt: skip


def gradients(x: Any, w: Any, dy: Any) -> Any:
    return jax.vjp(convolve(), x, w)[1](dy)


def convolve_1d(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


PROGRAMS = (
    *programs("7x7s2_n8_224_3-64", 8, 224, (3, 64), 7, stride=2),
    *programs("3x3_n8_56_64-64", 8, 56, (64, 64), 3, quick=("NHWC", "NCHW")),
    *programs("1x1_n8_56_64-256", 8, 56, (64, 256), 1),
    *programs("3x3s2_n8_28_256-256", 8, 28, (256, 256), 3, stride=2, layouts=("NHWC",)),
    *programs("3x3_n8_14_256-256", 8, 14, (256, 256), 3),
    *programs("3x3_n8_7_512-512", 8, 7, (512, 512), 3, layouts=("NHWC",)),
    *programs("dw3x3_n8_56_144", 8, 56, (144, 144), 3, groups=144, quick=()),
    Program(
        "convolution", "conv3x3_n8_28_128_bwd_NHWC",
        lambda draw: (draw.normal(8, 28, 28, 128), draw.normal(3, 3, 128, 128), draw.normal(8, 28, 28, 128)),
        gradients, flops=2 * 2 * 8 * 28 * 28 * 128 * 128 * 9,
    ),
    Program(
        "convolution", "conv1d_n16_L4096_c64_k5", lambda draw: (draw.normal(16, 4096, 64), draw.normal(5, 64, 64)),
        convolve_1d, flops=2 * 16 * 4096 * 64 * 64 * 5,
        torch=lambda x, w: functional.conv1d(x.permute(0, 2, 1), w.permute(2, 1, 0), padding=2),
    ),
)  # fmt: skip
