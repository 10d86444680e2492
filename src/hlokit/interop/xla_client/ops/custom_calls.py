"""Op functions of custom calls."""

import hlokit as hk
from hlokit.interop.xla_client.enums import CustomCallApiVersion, CustomCallSchedule
from hlokit.interop.xla_client.ops import arguments as t
from hlokit.interop.xla_client.ops.signatures import NEEDED, op


@op()
def CustomCall(
    builder: t.Builder,
    call_target_name: t.Bytes,
    operands: t.Ops,
    shape: t.ShapeOf,
    opaque: t.Bytes = b"",
    has_side_effect: t.Bool = False,
    schedule: t.Schedule = CustomCallSchedule.SCHEDULE_NONE,
    api_version: t.ApiVersion = CustomCallApiVersion.API_VERSION_ORIGINAL,
) -> hk.XlaOp:
    """The value of a registered target on the operands."""
    return hk.custom_call(
        builder,
        call_target_name,
        operands,
        shape,
        opaque,
        has_side_effect,
        schedule=schedule,
        api_version=api_version,
    )


@op()
def CustomCallWithLayout(
    builder: t.Builder,
    call_target_name: t.Bytes,
    operands: t.Ops,
    shape_with_layout: t.ShapeOf,
    operand_shapes_with_layout: t.Shapes,
    opaque: t.Bytes = b"",
    has_side_effect: t.Bool = False,
    schedule: t.Schedule = CustomCallSchedule.SCHEDULE_NONE,
    api_version: t.ApiVersion = CustomCallApiVersion.API_VERSION_ORIGINAL,
) -> hk.XlaOp:
    """CustomCall with operands and result in given layouts."""
    return hk.custom_call_with_layout(
        builder,
        call_target_name,
        operands,
        shape_with_layout,
        operand_shapes_with_layout,
        opaque,
        has_side_effect=has_side_effect,
        schedule=schedule,
        api_version=api_version,
    )


@op()
def CustomCallWithAliasing(
    builder: t.Builder,
    call_target_name: t.Bytes,
    operands: t.Ops,
    shape_with_layout: t.ShapeOf,
    operand_shapes_with_layout: t.Shapes,
    opaque: t.Bytes = b"",
    has_side_effect: t.Bool = False,
    output_operand_aliasing: t.Aliases = NEEDED,
    literal: t.OptionalLiteral = None,
    schedule: t.Schedule = CustomCallSchedule.SCHEDULE_NONE,
    api_version: t.ApiVersion = CustomCallApiVersion.API_VERSION_ORIGINAL,
) -> hk.XlaOp:
    """CustomCallWithLayout whose results start as copies of operands."""
    return hk.custom_call_with_layout(
        builder,
        call_target_name,
        operands,
        shape_with_layout,
        operand_shapes_with_layout,
        opaque,
        has_side_effect=has_side_effect,
        output_operand_aliasing=output_operand_aliasing,
        literal=literal,
        schedule=schedule,
        api_version=api_version,
    )


@op()
def CustomCallWithComputation(
    builder: t.Builder,
    call_target_name: t.Bytes,
    operands: t.Ops,
    computation: t.Computation,
    shape: t.ShapeOf,
    opaque: t.Bytes = b"",
    has_side_effect: t.Bool = False,
    output_operand_aliasing: t.Aliases = NEEDED,
    literal: t.OptionalLiteral = None,
    schedule: t.Schedule = CustomCallSchedule.SCHEDULE_NONE,
    api_version: t.ApiVersion = CustomCallApiVersion.API_VERSION_ORIGINAL,
) -> hk.XlaOp:
    """CustomCall whose target is given a computation as well."""
    return hk.custom_call_with_computation(
        builder,
        call_target_name,
        operands,
        computation,
        shape,
        opaque,
        has_side_effect=has_side_effect,
        output_operand_aliasing=output_operand_aliasing,
        literal=literal,
        schedule=schedule,
        api_version=api_version,
    )
