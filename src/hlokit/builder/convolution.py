"""Builder functions: convolution in its many signatures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from hlokit.builder.contraction import PrecisionConfig, emit_typed, precisions, result_type
from hlokit.builder.core import XlaOp, emit, handles
from hlokit.builder.reduction import made, make_padding
from hlokit.hlo.op import infer_shape
from hlokit.ops.convolution import Convolution
from hlokit.ops.custom import CustomCall
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.dtype import DType
from hlokit.types.window import Window

__all__ = [
    "conv",
    "conv_general",
    "conv_general_dilated",
    "conv_with_general_dimensions",
    "conv_with_general_padding",
    "dynamic_conv_forward",
    "dynamic_conv_input_grad",
    "dynamic_conv_kernel_grad",
]

Pairs: TypeAlias = Sequence[tuple[int, int]]


def conv(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """Convolution of [batch, feature, spatial...] with [output, input, spatial...]; padding "SAME" or "VALID".

    Rules CONV.

    Parameters
    ----------
    padding : str
        "SAME" or "VALID".

    Returns
    -------
    XlaOp
        [batch, output feature, spatial...].

    Raises
    ------
    ShapeError
        A constraint does not hold: CONV-2, CONV-3, CONV-11, CONV-12, CONV-15 to CONV-19, CONV-23, CONV-37.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.conv(b.constant([[[1.0, 2.0, 3.0, 4.0]]]), b.constant([[[1.0, 10.0]]]), [1], "VALID")
    >>> hk.evaluate(b.build(result))
    array([[[21., 32., 43.]]], dtype=float32)
    """
    return conv_with_general_dimensions(
        lhs,
        rhs,
        window_strides,
        padding,
        ConvolutionDimensionNumbers.default(len(window_strides)),
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


def conv_with_general_padding(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """`conv` with a (low, high) padding per spatial dimension. Rules CONV.

    Returns
    -------
    XlaOp
        [batch, output feature, spatial...].

    Raises
    ------
    ShapeError
        A constraint does not hold: CONV-2, CONV-3, CONV-11, CONV-12, CONV-15 to CONV-19, CONV-23, CONV-37.

    Examples
    --------
    >>> b = hk.Builder()
    >>> result = hk.conv_with_general_padding(
    ...     b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]]), [2], [(1, 0)]
    ... )
    >>> hk.evaluate(b.build(result))
    array([[[10., 32.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        (),
        (),
        ConvolutionDimensionNumbers.default(len(window_strides)),
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


def conv_with_general_dimensions(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str,
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """`conv` with explicit dimension numbers; SAME is computed from the undilated sizes (CONV-13).

    Parameters
    ----------
    padding : str
        "SAME" or "VALID".

    Returns
    -------
    XlaOp
        The result, with batch, output feature and spatial dimensions where the dimension numbers say.

    Raises
    ------
    ShapeError
        A constraint does not hold: CONV-2, CONV-3, CONV-11, CONV-12, CONV-15 to CONV-19, CONV-23.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.evaluate(b.build(hk.conv_with_general_dimensions(x, kernel, [1], "SAME", numbers)))
    array([[[21., 32.,  3.]]], dtype=float32)
    """
    lhs, rhs = operands = handles(lhs, rhs)
    numbers = made(ConvolutionDimensionNumbers.of, "convolution", operands, dimension_numbers)
    base = _sizes(lhs, numbers.input_spatial_dimensions)
    kernel = _sizes(rhs, numbers.kernel_spatial_dimensions)
    pairs = made(make_padding, "convolution", operands, base, kernel, window_strides, padding)
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        pairs,
        (),
        (),
        numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


def conv_general(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """`conv` with paddings and dimension numbers given (BEY-47). Rules CONV.

    Returns
    -------
    XlaOp
        The result, with batch, output feature and spatial dimensions where the dimension numbers say.

    Raises
    ------
    ShapeError
        A constraint does not hold: CONV-2, CONV-3, CONV-11, CONV-12, CONV-15 to CONV-19, CONV-23, CONV-37, BEY-47.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.evaluate(b.build(hk.conv_general(x, kernel, [1], [(1, 0)], numbers)))
    array([[[10., 21., 32.]]], dtype=float32)
    """
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        (),
        (),
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
    )


def conv_general_dilated(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    preferred_element_type: DType | None = None,
    window_reversal: Sequence[bool] | None = None,
) -> XlaOp:
    """The most general convolution: dilations of both operands and a kernel flipped along some dimensions.

    Every list is empty or has one entry for each spatial dimension. Rules CONV.

    Parameters
    ----------
    window_reversal : sequence of bool, optional
        For each spatial dimension, whether the kernel is flipped. Empty or None: in none.

    Returns
    -------
    XlaOp
        The result, with batch, output feature and spatial dimensions where the dimension numbers say.

    Raises
    ------
    ShapeError
        A constraint does not hold: CONV-2, CONV-3, CONV-11, CONV-12, CONV-15 to CONV-19, CONV-23, CONV-37.

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.evaluate(b.build(hk.conv_general_dilated(x, kernel, [1], [(0, 0)], [2], [1], numbers)))
    array([[[ 1., 20.,  2., 30.]]], dtype=float32)
    """
    lhs, rhs = handles(lhs, rhs)
    draft = _convolution(
        lhs,
        rhs,
        (window_strides, padding, lhs_dilation, rhs_dilation, () if window_reversal is None else window_reversal),
        dimension_numbers,
        (feature_group_count, batch_group_count),
        precision_config,
        preferred_element_type,
    )
    return emit_typed(draft, lhs, rhs)


def dynamic_conv_forward(
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    padding_type: str = "PADDING_VALID",
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """Custom call DynamicConvolutionForward, for spatial sizes known only at run time (BEY-46).

    Returns
    -------
    XlaOp
        The result, with batch, output feature and spatial dimensions where the dimension numbers say.

    Raises
    ------
    ShapeError
        A constraint of the convolution does not hold (CONV), or `padding_type` is unknown (BEY-46).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.dynamic_conv_forward(x, kernel, [1], [(0, 0)], [1], [1], numbers).shape
    f32[1,1,2]
    """
    lhs, rhs = handles(lhs, rhs)
    window = (window_strides, padding, lhs_dilation, rhs_dilation, ())
    groups = (feature_group_count, batch_group_count)
    draft = _convolution(lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)
    return _custom_call("DynamicConvolutionForward", padding_type, draft, lhs, rhs)


def dynamic_conv_input_grad(
    input_sizes: Any,
    lhs: XlaOp,
    rhs: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    padding_type: str = "PADDING_VALID",
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """Custom call DynamicConvolutionInputGrad; `input_sizes` are the forward input's (BEY-46).

    Parameters
    ----------
    input_sizes : XlaOp, number or array
        The sizes of the forward convolution's input, a vector s32.
    lhs : XlaOp
        The gradient of the forward convolution's result.
    rhs : XlaOp, number or array
        The kernel.

    Returns
    -------
    XlaOp
        The gradient of the forward convolution's input.

    Raises
    ------
    ShapeError
        A constraint of the convolution does not hold (CONV), or `padding_type` is unknown (BEY-46).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.dynamic_conv_input_grad(b.constant([1, 1, 4]), x, kernel, [1], [(0, 0)], [1], [1], numbers).shape
    f32[1,1,2]
    """
    lhs, rhs, input_sizes = handles(lhs, rhs, input_sizes)
    window = (window_strides, padding, lhs_dilation, rhs_dilation, ())
    groups = (feature_group_count, batch_group_count)
    draft = _convolution(lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)
    return _custom_call("DynamicConvolutionInputGrad", padding_type, draft, lhs, rhs, input_sizes)


def dynamic_conv_kernel_grad(
    activations: XlaOp,
    gradients: Any,
    window_strides: Sequence[int],
    padding: Pairs,
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision_config: PrecisionConfig = None,
    padding_type: str = "PADDING_VALID",
    preferred_element_type: DType | None = None,
) -> XlaOp:
    """Custom call DynamicConvolutionKernelGrad (BEY-46).

    Parameters
    ----------
    activations : XlaOp
        The forward convolution's input.
    gradients : XlaOp, number or array
        The gradient of its result.

    Returns
    -------
    XlaOp
        The gradient of the kernel.

    Raises
    ------
    ShapeError
        A constraint of the convolution does not hold (CONV), or `padding_type` is unknown (BEY-46).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.dynamic_conv_kernel_grad(x, kernel, [1], [(0, 0)], [1], [1], numbers).shape
    f32[1,1,2]
    """
    lhs, rhs = handles(activations, gradients)
    window = (window_strides, padding, lhs_dilation, rhs_dilation, ())
    groups = (feature_group_count, batch_group_count)
    draft = _convolution(lhs, rhs, window, dimension_numbers, groups, precision_config, preferred_element_type)
    return _custom_call("DynamicConvolutionKernelGrad", padding_type, draft, lhs, rhs)


def _convolution(
    lhs: XlaOp,
    rhs: XlaOp,
    window: tuple[Sequence[int], Pairs, Sequence[int], Sequence[int], Sequence[bool]],
    dimension_numbers: ConvolutionDimensionNumbers | Any,
    groups: tuple[int, int],
    precision_config: PrecisionConfig,
    preferred_element_type: DType | None,
) -> Convolution:
    """The op, its result's sizes not yet known. The window's sizes are the kernel's spatial ones (CONV-23)."""
    numbers = made(ConvolutionDimensionNumbers.of, "convolution", (lhs, rhs), dimension_numbers)
    sizes = _sizes(rhs, numbers.kernel_spatial_dimensions)
    return Convolution(
        made(Window.make, "convolution", (lhs, rhs), sizes, *window),
        numbers,
        *groups,
        precisions(precision_config, 2),
        "unset",
        result_type("convolution", lhs, rhs, preferred_element_type, "CONV-24")[()],
    )


def _custom_call(target: str, padding_type: str, draft: Convolution, lhs: XlaOp, rhs: XlaOp, *first: XlaOp) -> XlaOp:
    shape = made(infer_shape, "custom-call", (lhs, rhs), draft, [lhs.shape, rhs.shape])
    attributes: dict[str, Any] = {"padding_type": padding_type, "custom_call_target": target, "output_shape": shape}
    for name in ("window", "dim_labels", "feature_group_count", "batch_group_count", "operand_precision"):
        attributes[name] = getattr(draft, name)
    return emit(CustomCall(**attributes), *first, lhs, rhs, shape=shape)


def _sizes(operand: XlaOp, dimensions: Sequence[int]) -> list[int]:
    """Some of an operand's sizes; 1 for a number that is not a dimension, which the op's own rules will refuse."""
    sizes = operand.shape.dimensions
    return [sizes[d] if 0 <= d < len(sizes) else 1 for d in dimensions]
