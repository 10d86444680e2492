"""Op functions that reduce: reductions, windows, dot, convolution."""

import hlokit as hk
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import op


@op()
def Reduce(
    builder: t.Builder,
    operands: t.Ops,
    init_values: t.Ops,
    computation: t.Computation,
    dimensions_to_reduce: t.Ints,
) -> hk.XlaOp:
    """Folds dimensions of the operands, starting from the init values; a tuple for several operands."""
    return hk.reduce(operands, init_values, computation, dimensions_to_reduce)


@op()
def ReduceWindowWithGeneralPadding(
    operand: t.Op,
    init_value: t.Op,
    computation: t.Computation,
    window_dimensions: t.Ints,
    window_strides: t.Ints,
    base_dilations: t.Ints,
    window_dilations: t.Ints,
    padding: t.Pairs,
) -> hk.XlaOp:
    """Folds each window of the operand; a tuple for several operands."""
    window = (window_dimensions, window_strides, base_dilations, window_dilations, padding)
    return hk.reduce_window_with_general_padding(operand, init_value, computation, *window)


@ReduceWindowWithGeneralPadding.overload
def _(
    operands: t.Ops,
    init_values: t.Ops,
    computation: t.Computation,
    window_dimensions: t.Ints,
    window_strides: t.Ints,
    base_dilations: t.Ints,
    window_dilations: t.Ints,
    padding: t.Pairs,
) -> hk.XlaOp:
    window = (window_dimensions, window_strides, base_dilations, window_dilations, padding)
    return hk.reduce_window_with_general_padding(operands, init_values, computation, *window)


@op()
def SelectAndScatterWithGeneralPadding(
    operand: t.Op,
    select: t.Computation,
    window_dimensions: t.Ints,
    window_strides: t.Ints,
    padding: t.Pairs,
    source: t.Op,
    init_value: t.Op,
    scatter: t.Computation,
) -> hk.XlaOp:
    """Each source element goes to the place that `select` picks in its window."""
    window = (window_dimensions, window_strides, padding)
    return hk.select_and_scatter_with_general_padding(operand, select, *window, source, init_value, scatter)


@op()
def Dot(
    lhs: t.Op, rhs: t.Op, precision_config: t.Precision = None, preferred_element_type: t.OptionalType = None
) -> hk.XlaOp:
    """The product of vectors and matrices."""
    return hk.dot(lhs, rhs, precision_config, preferred_element_type)


@op()
def DotGeneral(
    lhs: t.Op,
    rhs: t.Op,
    dimension_numbers: t.DotNumbers,
    precision_config: t.Precision = None,
    preferred_element_type: t.OptionalType = None,
) -> hk.XlaOp:
    """The product over contracting dimensions, for each element of the batch dimensions."""
    return hk.dot_general(lhs, rhs, dimension_numbers, precision_config, preferred_element_type)


@op()
def ConvGeneralDilated(
    lhs: t.Op,
    rhs: t.Op,
    window_strides: t.Ints,
    padding: t.Pairs,
    lhs_dilation: t.Ints,
    rhs_dilation: t.Ints,
    dimension_numbers: t.ConvNumbers,
    feature_group_count: t.Int = 1,
    batch_group_count: t.Int = 1,
    precision_config: t.Precision = None,
    preferred_element_type: t.OptionalType = None,
    window_reversal: t.OptionalBools = None,
) -> hk.XlaOp:
    """The convolution of lhs with the kernel rhs."""
    return hk.conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
        precision_config,
        preferred_element_type,
        window_reversal,
    )
