"""The types of arguments of op functions: how each is checked, and the value that hlokit receives for it."""

import operator
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias, cast

import numpy as np

import hlokit as hk
from hlokit.interop.xla_client.arrays import numpy_array
from hlokit.interop.xla_client.builder import XlaBuilder, XlaOp
from hlokit.interop.xla_client.computation import XlaComputation
from hlokit.interop.xla_client.enums import (
    CustomCallApiVersion,
    CustomCallSchedule,
    Enumeration,
    FftType,
    PrimitiveType,
    RandomAlgorithm,
    ResultAccuracyMode,
    TriangularSolveOptions_Transpose,
)
from hlokit.interop.xla_client.errors import invalid
from hlokit.interop.xla_client.ops.signatures import Argument
from hlokit.interop.xla_client.protos import ResultAccuracy, vars_of
from hlokit.interop.xla_client.shapes import Layout, Shape, ShapeIndex

_CHANNEL_TYPES = {0: "device_to_device", 1: "device_to_device", 2: "device_to_host", 3: "host_to_device"}


def _core_of(cls: type) -> Callable[[Any], Any]:
    """Objects of a class that holds hlokit's object as `core`."""

    def convert(value: Any) -> Any:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")
        return value.core  # type: ignore[attr-defined]

    return convert


def _instance(*classes: type) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if not isinstance(value, classes):
            raise TypeError(f"expected {classes[0].__name__}, got {type(value).__name__}")
        return value

    return convert


def _name_of(cls: type[Enumeration]) -> Callable[[Any], str]:
    def convert(value: Any) -> str:
        if not isinstance(value, cls):
            raise TypeError(f"expected {cls.__name__}, got {type(value).__name__}")
        return value.name

    return convert


def _list_of(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert_all(values: Any) -> Any:
        if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__") or not hasattr(values, "__len__"):
            raise TypeError(f"expected a sequence, got {type(values).__name__}")
        return tuple(convert(value) for value in values)

    return convert_all


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _bool(value: Any) -> bool:
    return bool(_instance(bool, np.bool_)(value))


def _float(value: Any) -> float:
    return float(_instance(float, int, np.floating, np.integer)(value))


def _text(value: Any) -> str:
    """Bytes that are not UTF-8 survive a round trip through this text."""
    return _instance(bytes)(value).decode("utf-8", "surrogateescape")


def _proto(*fields: str) -> Callable[[Any], Any]:
    """Any object with the attributes of a proto."""

    def convert(value: Any) -> Any:
        for field in fields:
            if not hasattr(value, field):
                raise TypeError(f"{type(value).__name__} has no attribute {field}")
        return value

    return convert


def _precisions(config: Any) -> list[str]:
    return [str(p.name).lower() for p in _proto("operand_precision")(config).operand_precision]


def _convolution_numbers(numbers: Any) -> hk.ConvolutionDimensionNumbers:
    try:
        return hk.ConvolutionDimensionNumbers(**vars_of(numbers))
    except AttributeError as error:
        raise TypeError(str(error)) from None


def _padding(config: Any) -> list[tuple[int, int, int]]:
    dimensions = _proto("dimensions")(config).dimensions
    return [(d.edge_padding_low, d.edge_padding_high, d.interior_padding) for d in dimensions]


def _group(group: Any) -> tuple[int, ...]:
    return tuple(map(int, _proto("replica_ids")(group).replica_ids))


def _channel(channel: Any) -> hk.ChannelHandle:
    kind = int(_proto("handle", "type")(channel).type)
    if kind not in _CHANNEL_TYPES:
        raise invalid(f"channel type {kind}")
    return hk.ChannelHandle(int(channel.handle), _CHANNEL_TYPES[kind])


def _alias(entry: Any) -> tuple[tuple[int, ...], tuple[int, tuple[int, ...]]]:
    output, (operand, index) = entry
    path = _instance(ShapeIndex)
    return path(output).path, (operator.index(operand), path(index).path)


def _pair(value: Any) -> tuple[int, int]:
    first, second = value
    return operator.index(first), operator.index(second)


def _accuracy(value: Any) -> tuple[Any, ...] | None:
    value = _instance(ResultAccuracy)(value)
    if value.mode == ResultAccuracyMode.HIGHEST:
        return ("highest",)
    tolerance = float(value.atol), float(value.rtol), operator.index(value.ulps)
    return ("tolerance", *tolerance) if any(tolerance) else None


def _literal(value: Any) -> Any:
    """NumPy decides the element type of Python's numbers, as in jaxlib: 64 bits."""
    if isinstance(value, tuple):
        return tuple(map(_literal, cast("tuple[Any, ...]", value)))
    return numpy_array(value)


_op = _core_of(XlaOp)
_shape = _core_of(Shape)
_computation = _core_of(XlaComputation)
_type = _core_of(PrimitiveType)
_layout = _core_of(Layout)

Builder: TypeAlias = Annotated[hk.Builder, Argument("XlaBuilder", _core_of(XlaBuilder))]
Op: TypeAlias = Annotated[hk.XlaOp, Argument("XlaOp", _op)]
Ops: TypeAlias = Annotated[Sequence[hk.XlaOp], Argument("Span[XlaOp]", _list_of(_op))]
Computation: TypeAlias = Annotated[hk.HloModule, Argument("XlaComputation", _computation)]
OptionalComputation: TypeAlias = Annotated[
    hk.HloModule | None, Argument("Optional[XlaComputation]", _optional(_computation))
]
Computations: TypeAlias = Annotated[Sequence[hk.HloModule], Argument("Span[XlaComputation]", _list_of(_computation))]
ShapeOf: TypeAlias = Annotated[hk.Shape, Argument("Shape", _shape)]
OptionalShape: TypeAlias = Annotated[hk.Shape | None, Argument("Optional[Shape]", _optional(_shape))]
Shapes: TypeAlias = Annotated[Sequence[hk.Shape], Argument("Span[Shape]", _list_of(_shape))]
OptionalLayout: TypeAlias = Annotated[hk.Layout | None, Argument("Optional[Layout]", _optional(_layout))]
Type: TypeAlias = Annotated[hk.DType, Argument("PrimitiveType", _type)]
OptionalType: TypeAlias = Annotated[hk.DType | None, Argument("Optional[PrimitiveType]", _optional(_type))]

Int: TypeAlias = Annotated[int, Argument("int", operator.index)]
Bool: TypeAlias = Annotated[bool, Argument("bool", _bool)]
Float: TypeAlias = Annotated[float, Argument("float", _float)]
Str: TypeAlias = Annotated[str, Argument("str", _instance(str))]
Bytes: TypeAlias = Annotated[Any, Argument("bytes", _text)]
OptionalBool: TypeAlias = Annotated[bool | None, Argument("Optional[bool]", _optional(_bool))]
Ints: TypeAlias = Annotated[Sequence[int], Argument("Span[int]", _list_of(operator.index))]
OptionalInts: TypeAlias = Annotated[
    Sequence[int] | None, Argument("Optional[list[int]]", _optional(_list_of(operator.index)))
]
Bools: TypeAlias = Annotated[Sequence[bool], Argument("list[bool]", _list_of(_bool))]
OptionalBools: TypeAlias = Annotated[
    Sequence[bool] | None, Argument("Optional[list[bool]]", _optional(_list_of(_bool)))
]
Pairs: TypeAlias = Annotated[Sequence[tuple[int, int]], Argument("Span[tuple[int, int]]", _list_of(_pair))]
ListOfPairs: TypeAlias = Annotated[Sequence[tuple[int, int]], Argument("list[tuple[int, int]]", _list_of(_pair))]
Constant: TypeAlias = Annotated[Any, Argument("xla::LiteralSlice", _literal)]
OptionalLiteral: TypeAlias = Annotated[
    hk.Literal | None, Argument("Optional[Literal]", _optional(_instance(hk.Literal)))
]

Precision: TypeAlias = Annotated[list[str] | None, Argument("Optional[xla::PrecisionConfig]", _optional(_precisions))]
DotNumbers: TypeAlias = Annotated[
    Any, Argument("xla::DotDimensionNumbers", _proto("lhs_contracting_dimensions", "lhs_batch_dimensions"))
]
ConvNumbers: TypeAlias = Annotated[
    hk.ConvolutionDimensionNumbers, Argument("xla::ConvolutionDimensionNumbers", _convolution_numbers)
]
GatherNumbers: TypeAlias = Annotated[Any, Argument("xla::GatherDimensionNumbers", _proto("offset_dims"))]
ScatterNumbers: TypeAlias = Annotated[Any, Argument("xla::ScatterDimensionNumbers", _proto("update_window_dims"))]
Padding: TypeAlias = Annotated[Sequence[tuple[int, int, int]], Argument("xla::PaddingConfig", _padding)]
ResultAccuracyOf: TypeAlias = Annotated[Any, Argument("xla::ResultAccuracy", _accuracy)]
Groups: TypeAlias = Annotated[Sequence[Sequence[int]], Argument("Span[xla::ReplicaGroup]", _list_of(_group))]
Channel: TypeAlias = Annotated[hk.ChannelHandle, Argument("xla::ChannelHandle", _channel)]
OptionalChannel: TypeAlias = Annotated[
    hk.ChannelHandle | None, Argument("Optional[xla::ChannelHandle]", _optional(_channel))
]
Aliases: TypeAlias = Annotated[
    Sequence[tuple[Sequence[int], tuple[int, Sequence[int]]]],
    Argument("Span[tuple[ShapeIndex, tuple[int, ShapeIndex]]]", _list_of(_alias)),
]
Fft: TypeAlias = Annotated[str, Argument("FftType", _name_of(FftType))]
Random: TypeAlias = Annotated[str, Argument("ops.RandomAlgorithm", _name_of(RandomAlgorithm))]
Transposition: TypeAlias = Annotated[
    str, Argument("ops.TriangularSolveOptions_Transpose", _name_of(TriangularSolveOptions_Transpose))
]
Schedule: TypeAlias = Annotated[Any, Argument("ops.CustomCallSchedule", _name_of(CustomCallSchedule))]
ApiVersion: TypeAlias = Annotated[Any, Argument("ops.CustomCallApiVersion", _name_of(CustomCallApiVersion))]
