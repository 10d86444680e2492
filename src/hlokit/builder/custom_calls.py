"""Custom calls: values that are computed outside the language (CCALL rules)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.builder.core import Builder, ComputationLike, XlaOp, as_shape, computation_of
from hlokit.hlo.op import check
from hlokit.ops.custom import CustomCall
from hlokit.ops.custom_targets.pointers import register_custom_call_pointer
from hlokit.ops.custom_targets.registry import Invocation, register_custom_call, unregister_custom_call
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape
from hlokit.types.window import Window

__all__ = [
    "Invocation",
    "custom_call",
    "custom_call_with_computation",
    "custom_call_with_computation_and_layouts",
    "custom_call_with_conv_dnums",
    "custom_call_with_layout",
    "register_custom_call",
    "register_custom_call_pointer",
    "unregister_custom_call",
]

AliasList = Sequence[tuple[Sequence[int], tuple[int, Sequence[int]]]]
"""(index in the result, (operand number, index in the operand)) pairs whose buffers are one."""


def custom_call(
    builder: Builder,
    call_target_name: str,
    operands: Sequence[Any],
    shape: Shape | DType,
    opaque: str = "",
    has_side_effect: bool = False,
    output_operand_aliasing: AliasList = (),
    literal: Any = None,
    schedule: str = "SCHEDULE_NONE",
    api_version: str = "API_VERSION_ORIGINAL",
) -> XlaOp:
    """The result of the function registered under `call_target_name` on the operands (CCALL rules).
    register_custom_call, register_custom_call_pointer and register_ffi_target register functions. An unknown target
    is an error when the program runs (CCALL-4).

    Parameters
    ----------
    operands : sequence of XlaOp or number
        The function's arguments, of any shapes.
    has_side_effect : bool, optional
        Whether the call has effects besides its result. Otherwise the function must be pure (CCALL-7).
    output_operand_aliasing : sequence of (index, (operand, index)), optional
        Parts of the result that share the memory of parts of operands.
    literal : Any, optional
        A constant that is stored with the instruction.
    schedule : str, optional
        A hint for schedulers, which is stored with the instruction.
    api_version : str, optional
        API_VERSION_TYPED_FFI for an FFI handler.

    Returns
    -------
    XlaOp
        A value of `shape`.

    Raises
    ------
    ShapeError
        The target's name is reserved (CCALL-5), or another argument is not valid: CCALL-6, CCALL-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.register_custom_call("example_sum", lambda x: x.sum(), replace=True)
    >>> module = b.build(hk.custom_call(b, "example_sum", [b.constant([1.0, 2.0])], hk.f32))
    >>> hk.evaluate(module)
    array(3., dtype=float32)
    """
    op = _op(call_target_name, shape, has_side_effect, output_operand_aliasing, literal, schedule, api_version)
    return _append(builder, op, operands, opaque)


def custom_call_with_layout(
    builder: Builder,
    call_target_name: str,
    operands: Sequence[Any],
    shape_with_layout: Shape,
    operand_shapes_with_layout: Sequence[Shape],
    opaque: str = "",
    **options: Any,
) -> XlaOp:
    """custom_call whose operands and result have the memory layouts of the shapes; only C functions can observe this.

    `options`: the further arguments of custom_call.

    Parameters
    ----------
    operands : sequence of XlaOp or number
        The function's arguments, of any shapes.

    Returns
    -------
    XlaOp
        A value of `shape_with_layout`.

    Raises
    ------
    ShapeError
        The target's name is reserved (CCALL-5), or the shapes differ from those of the operands in more than layout
        (CCALL-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> hk.register_custom_call("example_sum", lambda x: x.sum(), replace=True)
    >>> x = b.constant([[1.0, 2.0], [3.0, 4.0]])
    >>> columns = hk.Shape.array(hk.f32, [2, 2], layout=hk.Layout((0, 1)))
    >>> hk.evaluate(b.build(hk.custom_call_with_layout(b, "example_sum", [x], hk.f32[()], [columns])))
    array(10., dtype=float32)
    """
    op = _op(call_target_name, shape_with_layout, **options)
    return _append(builder, op, operands, opaque, layouts=operand_shapes_with_layout)


def custom_call_with_computation(
    builder: Builder,
    call_target_name: str,
    operands: Sequence[Any],
    computation: ComputationLike,
    shape: Shape | DType,
    opaque: str = "",
    **options: Any,
) -> XlaOp:
    """custom_call that passes a computation to its function (CCALL-10); a Python function also receives operand shapes.

    If no function is registered and the computation matches the operands and the result, the computation is evaluated
    instead. `options`: the further arguments of custom_call.

    Parameters
    ----------
    operands : sequence of XlaOp or number
        The function's arguments, of any shapes.
    computation : Computation, HloModule or callable
        A computation for the function to call or read.

    Returns
    -------
    XlaOp
        A value of `shape`.

    Raises
    ------
    ShapeError
        The target's name is reserved (CCALL-5), or another argument is not valid: CCALL-6, CCALL-8.

    Examples
    --------
    >>> b = hk.Builder()
    >>> def applied(call: hk.Invocation):
    ...     return call.computations[0](*call.operands)
    >>> hk.register_custom_call("example_apply", applied, whole_call=True, replace=True)
    >>> x = b.constant([1.0, 4.0])
    >>> module = b.build(hk.custom_call_with_computation(b, "example_apply", [x], hk.sqrt, x.shape))
    >>> hk.evaluate(module)
    array([1., 2.], dtype=float32)
    """
    return _append(builder, _op(call_target_name, shape, **options), operands, opaque, computation=computation)


def custom_call_with_computation_and_layouts(
    builder: Builder,
    call_target_name: str,
    operands: Sequence[Any],
    computation: ComputationLike,
    shape_with_layout: Shape,
    operand_shapes_with_layout: Sequence[Shape],
    opaque: str = "",
    **options: Any,
) -> XlaOp:
    """custom_call_with_computation and custom_call_with_layout in one (BEY-71).

    Parameters
    ----------
    operands : sequence of XlaOp or number
        The function's arguments, of any shapes.
    computation : Computation, HloModule or callable
        A computation for the function to call or read.

    Returns
    -------
    XlaOp
        A value of `shape_with_layout`.

    Raises
    ------
    ShapeError
        The target's name is reserved (CCALL-5), or the shapes differ from those of the operands in more than layout
        (CCALL-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x = b.constant([1.0, 4.0])
    >>> call = hk.custom_call_with_computation_and_layouts(b, "example_apply", [x], hk.sqrt, x.shape, [x.shape])
    >>> call.shape
    f32[2]
    """
    op = _op(call_target_name, shape_with_layout, **options)
    return _append(builder, op, operands, opaque, layouts=operand_shapes_with_layout, computation=computation)


def custom_call_with_conv_dnums(
    builder: Builder,
    call_target_name: str,
    operands: Sequence[Any],
    shape: Shape | DType,
    operand_shapes_with_layout: Sequence[Shape] = (),
    opaque: str = "",
    *,
    window: Window | None = None,
    dimension_numbers: ConvolutionDimensionNumbers | Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    padding_type: str = "PADDING_INVALID",
    **options: Any,
) -> XlaOp:
    """custom_call with a convolution's window and dimension numbers for its function to read (BEY-71).

    Parameters
    ----------
    operands : sequence of XlaOp or number
        The function's arguments, of any shapes.
    window : Window, optional
        The window of the convolution.
    feature_group_count, batch_group_count : int, optional
        The group counts of the convolution.

    Returns
    -------
    XlaOp
        A value of `shape`.

    Raises
    ------
    ShapeError
        The target's name is reserved (CCALL-5), or the shapes differ from those of the operands in more than layout
        (CCALL-8).

    Examples
    --------
    >>> b = hk.Builder()
    >>> x, kernel = b.constant([[[1.0, 2.0, 3.0]]]), b.constant([[[1.0, 10.0]]])
    >>> numbers = hk.ConvDimensionNumbers.default(1)
    >>> hk.custom_call_with_conv_dnums(b, "my_conv", [x, kernel], hk.f32[1, 1, 2], dimension_numbers=numbers).shape
    f32[1,1,2]
    """
    op = _op(call_target_name, shape, **options).replace(
        window=window,
        dim_labels=None if dimension_numbers is None else ConvolutionDimensionNumbers.of(dimension_numbers),
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        padding_type=padding_type,
    )
    return _append(builder, op, operands, opaque, layouts=operand_shapes_with_layout or None)


def _op(
    target: str,
    shape: Shape | DType,
    has_side_effect: bool = False,
    output_operand_aliasing: AliasList = (),
    literal: Any = None,
    schedule: str = "SCHEDULE_NONE",
    api_version: str = "API_VERSION_ORIGINAL",
) -> CustomCall:
    aliasing = ((tuple(out), number, tuple(inside)) for out, (number, inside) in output_operand_aliasing)
    attributes: dict[str, Any] = {
        "custom_call_target": target,
        "custom_call_has_side_effect": has_side_effect,
        "literal": None if literal is None else Literal.of(literal),
        "output_to_operand_aliasing": tuple(aliasing),
        "schedule": schedule,
        "api_version": api_version,
        "output_shape": as_shape(shape),
    }
    return CustomCall(**attributes)


def _append(
    builder: Builder,
    op: CustomCall,
    operands: Sequence[Any],
    opaque: str,
    *,
    layouts: Sequence[Shape] | None = None,
    computation: ComputationLike | None = None,
) -> XlaOp:
    values = [builder.handle(o) for o in operands]
    if layouts is not None:
        check(len(layouts) == len(values), "CCALL-8", "operand_shapes_with_layout", len(layouts), len(values))
        for i, (layout, value) in enumerate(zip(layouts, values, strict=True)):
            check(
                layout.static is value.shape.static, "CCALL-8", f"operand_shapes_with_layout {i}", layout, value.shape
            )
        op = op.replace(operand_layout_constraints=tuple(layouts))
    called = ()
    if computation is not None:
        called = (computation_of(computation, [v.shape for v in values], builder),)
    result = builder.emit(op, values, called, shape=op.output_shape)
    if opaque:
        result.instruction.ensure_extra().backend_config = opaque
    return result
