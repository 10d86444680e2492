"""custom-call: a value that is computed outside the language."""

from collections.abc import Sequence
from typing import Annotated, Any

from hlokit.errors import UnknownTargetError
from hlokit.hlo.op import Op, attr, check
from hlokit.hlo.values import Device, Function
from hlokit.ops.custom_targets.registry import Invocation, find_target, read_only, result_of, searched
from hlokit.ops.factorizations import factorization
from hlokit.types.attributes import (
    OPTIONAL_CONV_LABELS,
    OPTIONAL_LITERAL,
    OPTIONAL_WINDOW,
    SHAPES,
    Aliasing,
    Precision,
    ResultShape,
    choice,
)
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.literal import Literal
from hlokit.types.shape import ProgramShape, Shape
from hlokit.types.window import Window

_API_VERSIONS = (
    "API_VERSION_UNSPECIFIED",
    "API_VERSION_ORIGINAL",
    "API_VERSION_STATUS_RETURNING",
    "API_VERSION_STATUS_RETURNING_UNIFIED",
    "API_VERSION_TYPED_FFI",
)

TYPED_FFI = _API_VERSIONS[-1]
BUFFER_TARGETS = ("Pin", "Unpin", "CreateBuffer")
"""Targets that make buffers and arrays of each other (CCALL-11 to CCALL-13)."""
DEVICES = "hlokit.devices"
"""The module's frontend attribute that says which devices its processes are, where they are not 0, 1, 2, ..."""


class CustomCall(Op, name="custom-call"):
    """The value of the registered target on the operands, or else of its one called computation, if it matches them."""

    window: Annotated[Window | None, OPTIONAL_WINDOW] = attr(None)
    dim_labels: Annotated[ConvolutionDimensionNumbers | None, OPTIONAL_CONV_LABELS] = attr(
        None, proto="convolution_dimension_numbers"
    )
    feature_group_count: int = attr(1)
    batch_group_count: int = attr(1)
    operand_precision: Precision = attr((), proto="precision_config.operand_precision")
    padding_type: Annotated[str, choice("padding_type", "PADDING_INVALID", "PADDING_VALID", "PADDING_SAME")] = attr(
        "PADDING_INVALID"
    )
    custom_call_target: str = attr()
    operand_layout_constraints: Annotated[tuple[Shape, ...] | None, SHAPES] = attr(
        None, proto="operand_shapes_with_layout"
    )
    custom_call_has_side_effect: bool = attr(False)
    literal: Annotated[Literal | None, OPTIONAL_LITERAL] = attr(None)
    output_to_operand_aliasing: Aliasing = attr((), proto="output_operand_aliasing")
    schedule: Annotated[str, choice("schedule", "SCHEDULE_NONE", "SCHEDULE_LATEST", "SCHEDULE_EARLIEST")] = attr(
        "SCHEDULE_NONE", proto="custom_call_schedule"
    )
    api_version: Annotated[str, choice("api_version", *_API_VERSIONS)] = attr(
        "API_VERSION_ORIGINAL", proto="custom_call_api_version"
    )
    output_shape: ResultShape

    list_roles = ("called_computations",)
    form = "control"
    rules = "CCALL"

    def has_side_effect(self) -> bool:
        return self.custom_call_has_side_effect

    def infer(self, *operands: Shape, called_computations: Sequence[ProgramShape] = ()) -> Shape:
        target = self.custom_call_target
        check(not target.startswith("$"), "CCALL-5", "custom_call_target", repr(target), "a name without leading $")
        constraints = self.operand_layout_constraints
        if constraints is not None:
            check(
                len(constraints) == len(operands),
                "HOP-39",
                "operand_layout_constraints",
                len(constraints),
                len(operands),
            )
            for i, (constraint, operand) in enumerate(zip(constraints, operands, strict=True)):
                check(
                    constraint.static is operand.static, "HOP-39", f"operand_layout_constraint {i}", constraint, operand
                )
        for output_index, operand_number, operand_index in self.output_to_operand_aliasing:
            self._check_alias(operands, output_index, operand_number, operand_index)
        if target in BUFFER_TARGETS:
            self._check_buffers(operands)
        wanted = factorization(target, operands)
        if wanted is not None:
            check(self.output_shape.static is wanted.static, "BEY-80", "result shape", self.output_shape, wanted)
        return self.output_shape

    def resized(self, operands: Sequence[Shape], result: Shape) -> "CustomCall":
        constraints = self.operand_layout_constraints
        if constraints is not None:
            constraints = tuple(_laid_out_as(c, o) for c, o in zip(constraints, operands, strict=True))
        shape = _laid_out_as(self.output_shape, result)
        return self.replace(operand_layout_constraints=constraints, output_shape=shape)

    def _check_alias(
        self, operands: tuple[Shape, ...], output_index: tuple[int, ...], number: int, operand_index: tuple[int, ...]
    ) -> None:
        name = "output_to_operand_aliasing"
        check(0 <= number < len(operands), "HOP-38", f"{name} operand", number, f"in [0, {len(operands)})")
        try:
            output, operand = self.output_shape.at(output_index), operands[number].at(operand_index)
        except IndexError as error:
            check(False, "HOP-38", name, error, "indices of the result and of the operand")
            return
        pair = output.without_buffers(), operand.without_buffers()
        check(pair[0].static is pair[1].static, "HOP-38", name, output, operand)

    def _check_buffers(self, operands: tuple[Shape, ...]) -> None:
        """Pin makes an array a buffer, Unpin a buffer an array, CreateBuffer makes one of nothing."""
        target, result = self.custom_call_target, self.output_shape
        if target == "CreateBuffer":
            check(not operands, "CCALL-13", "operands", len(operands), "none")
            check(_holds_array(result), "CCALL-13", "result shape", result, "a buffer of an array")
            return
        check(len(operands) == 1, "CCALL-13", "operands", len(operands), 1)
        (operand,) = operands
        right = operand.is_array if target == "Pin" else _holds_array(operand)
        check(right, "CCALL-13", "operand", operand, "an array" if target == "Pin" else "a buffer of an array")
        expected = Shape.buffer(operand) if target == "Pin" else operand.without_buffers()
        check(result.static is expected.static, "CCALL-13", "result shape", result, expected)

    def operations(self, operands: Sequence[Shape], result: Shape, called: Sequence[float]) -> float:
        """As of one that goes through each row or column of its matrices for each element of them."""
        arrays = [operand for operand in operands if operand.is_array]
        return sum(shape.size * max(shape.dimensions[-2:], default=1) for shape in arrays)

    def reference(
        self,
        *operands: Any,
        called_computations: Sequence[Function] = (),
        shape: Shape,
        process: Device,
        backend_config: str = "",
    ) -> Any:
        name = self.custom_call_target
        target = find_target(name)
        if target is None:
            return self._value_of_computation(operands, called_computations, shape)
        values = tuple(read_only(operand) for operand in operands)
        return result_of(target, Invocation(values, shape, backend_config, called_computations, self, process))

    def _value_of_computation(self, operands: tuple[Any, ...], computations: Sequence[Function], shape: Shape) -> Any:
        name = self.custom_call_target
        if len(computations) == 1:
            program = computations[0].computation.program_shape
            if len(program.parameters) == len(operands) and program.result.static is shape.static:
                return computations[0](*operands)
        adds = "register_ffi_target" if self.api_version == TYPED_FFI else "register_custom_call"
        raise UnknownTargetError(
            f"custom-call: no target {name!r} is registered for {searched()}; {adds} adds one [CCALL-4]"
        )


def _holds_array(shape: Shape) -> bool:
    """Whether it is a buffer of an array."""
    return shape.without_buffers() is not shape and shape.without_buffers().is_array


def _laid_out_as(old: Shape, shape: Shape) -> Shape:
    """The shape with the layouts of another of the same structure."""
    if shape.is_tuple:
        return Shape.tuple([_laid_out_as(*pair) for pair in zip(old.elements, shape.elements, strict=True)])
    return shape.with_layout(old.layout) if shape.is_array else shape
