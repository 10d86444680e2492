"""Convolutions whose spatial sizes are known only when they run (BEY-46).

Padding that depends on those sizes is worked out from the run-time ones: `padding_type` says what the forward
convolution's padding is, VALID (the window's own) or SAME.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlokit.errors import EvaluationError
from hlokit.hlo.values import Array
from hlokit.ops.convolution import Convolution
from hlokit.ops.custom_targets.registry import Invocation, built_in
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.window import Window, WindowDimension, dilated, same_padding


@built_in("DynamicConvolutionForward")
def forward(call: Invocation) -> Array:
    """The convolution of lhs with the kernel rhs."""
    lhs, rhs = call.operands
    dimensions = _window(call, rhs)
    if call.op.padding_type == "PADDING_SAME":
        sizes = [lhs.shape[d] for d in _numbers(call).input_spatial_dimensions]
        padding = [
            _same(n, dilated(d.size, d.window_dilation), d.stride) for n, d in zip(sizes, dimensions, strict=True)
        ]
        dimensions = [_padded(d, *pad) for d, pad in zip(dimensions, padding, strict=True)]
    return _convolved(call, lhs, rhs, dimensions)


@built_in("DynamicConvolutionInputGrad")
def input_gradient(call: Invocation) -> Array:
    """The gradient of the forward input, of the given sizes, from the output's gradient (lhs) and the kernel (rhs)."""
    input_sizes, lhs, rhs = call.operands
    numbers = _numbers(call)
    dimensions: list[WindowDimension] = []
    for d, at, out in zip(
        _window(call, rhs), numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True
    ):
        size, window = int(input_sizes[out]), dilated(d.size, d.window_dilation)
        low = window - 1 - _forward_padding(call, size, window, d.base_dilation)
        dimensions.append(_padded(d, low, size - low - dilated(lhs.shape[at], d.base_dilation) + window - 1))
    return _convolved(call, lhs, rhs, dimensions)


@built_in("DynamicConvolutionKernelGrad")
def kernel_gradient(call: Invocation) -> Array:
    """The gradient of the kernel, in the result's sizes, from the forward input (lhs) and output gradient (rhs)."""
    lhs, rhs = call.operands
    numbers = _numbers(call)
    dimensions: list[WindowDimension] = []
    for d, at, out in zip(
        _window(call, rhs), numbers.input_spatial_dimensions, numbers.output_spatial_dimensions, strict=True
    ):
        kernel, size = call.shape.dimensions[out], lhs.shape[at]
        low = _forward_padding(call, size, dilated(kernel, d.stride), d.window_dilation)
        covered = dilated(d.size, d.window_dilation) + (kernel - 1) * d.stride
        dimensions.append(_padded(d, low, covered - low - size))
    return _convolved(call, lhs, rhs, dimensions)


def _numbers(call: Invocation) -> ConvolutionDimensionNumbers:
    if call.op.dim_labels is None:
        raise EvaluationError(f"{call.op.custom_call_target}: no dim_labels [BEY-46]")
    return call.op.dim_labels


def _window(call: Invocation, rhs: Array) -> list[WindowDimension]:
    """The instruction's window, in the run-time sizes of rhs."""
    given = (call.op.window or Window()).dimensions
    spatial = _numbers(call).kernel_spatial_dimensions
    if len(given) != len(spatial):
        found = f"window of {len(given)} dimensions, expected {len(spatial)}"
        raise EvaluationError(f"{call.op.custom_call_target}: {found} [BEY-46]")
    return [replace(d, size=rhs.shape[k]) for d, k in zip(given, spatial, strict=True)]


def _forward_padding(call: Invocation, size: int, window: int, stride: int) -> int:
    """The reach of the forward convolution's window before the first element."""
    return _same(size, window, stride)[0] if call.op.padding_type == "PADDING_SAME" else 0


def _same(size: int, window: int, stride: int) -> tuple[int, int]:
    return same_padding([size], [window], [stride])[0]


def _padded(dimension: WindowDimension, low: int, high: int) -> WindowDimension:
    return replace(dimension, padding_low=low, padding_high=high)


def _convolved(call: Invocation, lhs: Array, rhs: Array, dimensions: Sequence[WindowDimension]) -> Array:
    op = call.op
    result = call.shape.dtype[()]
    groups = (op.feature_group_count, op.batch_group_count)
    convolution = Convolution(Window(tuple(dimensions)), _numbers(call), *groups, op.operand_precision, "unset", result)
    return convolution.reference(lhs, rhs)
