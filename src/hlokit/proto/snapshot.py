"""Snapshots: programs with the arguments and the result of a call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hlokit.errors import HlokitError, ParseError, UnsupportedError
from hlokit.hlo.module import HloModule
from hlokit.proto.container import SNAPSHOT, ProtoContainer
from hlokit.proto.module import module_from_message
from hlokit.proto.schema import message_class
from hlokit.proto.shapes import literal_from_proto, shape_from_proto
from hlokit.types import dtype as dtypes
from hlokit.types.shape import Shape


@dataclass(frozen=True)
class Snapshot:
    """A program with what it was called with, from a HloSnapshot or a HloUnoptimizedSnapshot.

    Attributes
    ----------
    module : HloModule
        The program.
    arguments : list of lists
        For each device the values of its parameters: arrays, or tuples of them.
    result : array, tuple or None
        The result of the call on the one device of a HloSnapshot; None if the file has none.
    platform : str
        The name of the platform that ran it, such as "Host"; empty if the file has none.
    """

    module: HloModule
    arguments: list[list[Any]]
    result: Any = None
    platform: str = ""


def snapshot_from_container(container: ProtoContainer) -> Snapshot:
    """The module, the arguments and the result. Raises ParseError for literals that are none."""
    module = module_from_message(container.module)
    try:
        return _snapshot(container, module)
    except (ParseError, UnsupportedError):
        raise
    except (HlokitError, ValueError, TypeError, OverflowError) as error:
        raise ParseError(f"proto: {container.kind}: {error}") from None


def _snapshot(container: ProtoContainer, module: HloModule) -> Snapshot:
    proto = container.proto
    if container.kind == SNAPSHOT:
        result = literal_from_proto(proto.result).to_python() if proto.HasField("result") else None
        return Snapshot(module, [[_value(a) for a in proto.arguments]], result, proto.execution_platform)
    if container.behind is None:
        return Snapshot(module, [[_value(a) for a in inputs.arguments] for inputs in proto.partitions])
    position, arguments = 0, list[list[Any]]()
    for inputs in proto.partitions:
        values: list[Any] = []
        for descriptor in inputs.arguments_descriptors:
            size = descriptor.argument_size_bytes
            part = container.behind[position : position + size]
            if len(part) != size:
                raise ParseError(f"an argument of {size} bytes, of which the file has {len(part)}")
            values.append(value_of_serialized(part))
            position += size
        arguments.append(values)
    return Snapshot(module, arguments)


def _value(literal: Any) -> Any:
    return literal_from_proto(literal).to_python()


def value_of_serialized(data: memoryview) -> Any:
    """The array, or the tuple of arrays, in a literal that XLA serialized outside of a message.

    It is the length of a ShapeProto in eight bytes, the ShapeProto, and the elements of each array in the order of its
    layout, little-endian; of pred and of types narrower than a byte several in one.
    """
    from google.protobuf.message import DecodeError

    size = int.from_bytes(data[:8], "little")
    proto = message_class("Shape")()
    try:
        proto.ParseFromString(data[8 : 8 + size].tobytes())
    except DecodeError as error:
        raise ParseError(f"the shape of an argument: {error}") from None
    value, end = _elements(shape_from_proto(proto), data, 8 + size)
    if end != len(data):
        raise ParseError(f"an argument of {len(data)} bytes, of which its shape takes {end}")
    return value


def _elements(shape: Shape, data: memoryview, start: int) -> tuple[Any, int]:
    """The value of the shape that starts at `start`, and where it ends."""
    if shape.is_tuple:
        values: list[Any] = []
        for element in shape.elements:
            value, start = _elements(element, data, start)
            values.append(value)
        return tuple(values), start
    if not shape.is_array or any(shape.dynamic):
        raise UnsupportedError(f"a serialized argument of shape {shape}")
    bits = shape.dtype.bits if shape.dtype is not dtypes.pred else 1
    end = start + (-(-shape.size // (8 // bits)) if bits < 8 else shape.size * bits // 8)
    if end > len(data):
        raise ParseError(f"an argument of shape {shape} in {len(data)} bytes")
    content = np.frombuffer(data[start:end], np.uint8)
    if bits < 8:
        content = _unpacked(content, bits, shape)
    flat = content.view(shape.dtype.numpy.newbyteorder("<")).astype(shape.dtype.numpy)
    order = shape.layout_or_default.minor_to_major[::-1]
    array = flat.reshape([shape.dimensions[d] for d in order]).transpose(np.argsort(order) if order else ())
    return np.ascontiguousarray(array).reshape(shape.dimensions), end


def _unpacked(content: np.ndarray[Any, Any], bits: int, shape: Shape) -> np.ndarray[Any, Any]:
    """Bytes of as many whole elements as one holds, the first in the lowest bits, as a byte for each."""
    shifts = np.arange(0, 8 // bits * bits, bits, dtype=np.uint8)
    parts = ((content[:, None] >> shifts) & np.uint8((1 << bits) - 1)).reshape(-1)[: shape.size]
    if shape.dtype.kind != "signed":
        return parts
    return ((parts << np.uint8(8 - bits)).view(np.int8) >> np.int8(8 - bits)).view(np.uint8)
