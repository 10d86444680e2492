"""Reading and writing the protos of shapes, layouts, literals and shardings."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hlokit.errors import ParseError
from hlokit.proto.enums import name_of, number_of
from hlokit.proto.meshes import named_sharding_from_proto, named_sharding_to_proto
from hlokit.proto.origins import sharding_metadata_from_proto, sharding_metadata_to_proto
from hlokit.proto.schema import message_class
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import dtype_of_number
from hlokit.types.layout import Layout
from hlokit.types.literal import Literal
from hlokit.types.shape import ProgramShape, Shape
from hlokit.types.sharding import Sharding

_REPEATED_LITERALS = {
    "pred": "preds",
    "s32": "s32s",
    "s64": "s64s",
    "u32": "u32s",
    "u64": "u64s",
    "f32": "f32s",
    "f64": "f64s",
    "c64": "c64s",
    "c128": "c128s",
}


def shape_to_proto(shape: Shape, proto: Any) -> None:
    proto.element_type = shape.dtype.number
    for element in shape.elements:
        shape_to_proto(element, proto.tuple_shapes.add())
    if not shape.is_array:
        return
    proto.dimensions.extend(shape.dimensions)
    proto.is_dynamic_dimension.extend(shape.dynamic)
    layout = shape.layout_or_default
    out = proto.layout
    out.minor_to_major.extend(layout.minor_to_major)
    out.tail_padding_alignment_in_elements = layout.tail_padding_alignment
    out.element_size_in_bits = layout.element_size_in_bits
    out.memory_space = layout.memory_space
    out.dynamic_shape_metadata_prefix_bytes = layout.dynamic_prefix_bytes
    out.index_primitive_type = layout.index_type.number if layout.index_type is not None else 0
    out.pointer_primitive_type = layout.pointer_type.number if layout.pointer_type is not None else 0
    for tile in layout.tiles:
        out.tiles.add(dimensions=[-1 if n is None else n for n in tile])
    for dimension, indices in layout.splits:
        out.split_configs.add(dimension=dimension, split_indices=indices)


def shape_from_proto(proto: Any) -> Shape:
    element_type = dtype_of_number(proto.element_type)
    elements = [shape_from_proto(p) for p in proto.tuple_shapes]
    if element_type is dtypes.tuple_:
        return Shape.tuple(elements)
    if element_type is dtypes.buffer:
        if len(elements) != 1:
            raise ParseError(f"proto: a buffer shape holds {len(elements)} shapes, expected 1")
        return Shape.buffer(elements[0])
    if element_type is dtypes.token or element_type is dtypes.opaque:
        from hlokit.types.shape import OPAQUE, TOKEN

        return TOKEN if element_type is dtypes.token else OPAQUE
    if len(proto.is_dynamic_dimension) not in (0, len(proto.dimensions)):
        raise ParseError(
            f"proto: {len(proto.is_dynamic_dimension)} dynamic flags for {len(proto.dimensions)} dimensions"
        )
    layout = (
        _layout_from_proto(proto.layout)
        if proto.HasField("layout") and len(proto.layout.minor_to_major) == len(proto.dimensions)
        else None
    )
    return Shape.array(element_type, proto.dimensions, list(proto.is_dynamic_dimension) or None, layout)


def _layout_from_proto(proto: Any) -> Layout:
    return Layout(
        tuple(proto.minor_to_major),
        tuple(tuple(None if n < 0 else n for n in tile.dimensions) for tile in proto.tiles),
        proto.tail_padding_alignment_in_elements or 1,
        dtype_of_number(proto.index_primitive_type) if proto.index_primitive_type else None,
        dtype_of_number(proto.pointer_primitive_type) if proto.pointer_primitive_type else None,
        proto.element_size_in_bits,
        proto.memory_space,
        tuple((c.dimension, tuple(c.split_indices)) for c in proto.split_configs),
        proto.dynamic_shape_metadata_prefix_bytes,
    )


def program_shape_to_proto(shape: ProgramShape, proto: Any) -> None:
    for parameter in shape.parameters:
        shape_to_proto(parameter, proto.parameters.add())
    shape_to_proto(shape.result, proto.result)
    proto.parameter_names.extend(shape.names)


def literal_to_proto(literal: Literal, proto: Any) -> None:
    """Arrays in the order of their layout in memory, a byte per element of the types narrower than that."""
    shape_to_proto(literal.shape, proto.shape)
    if isinstance(literal.value, tuple):
        for part in literal.value:
            literal_to_proto(part, proto.tuple_literals.add())
        return
    array = literal.to_python()
    flat = np.ascontiguousarray(array.transpose(literal.shape.layout_or_default.minor_to_major[::-1])).reshape(-1)
    name = literal.shape.dtype.name
    if name in _REPEATED_LITERALS:
        if name.startswith("c"):
            flat = flat.view(literal.shape.dtype.real.numpy)
        getattr(proto, _REPEATED_LITERALS[name]).extend(flat.tolist())
        return
    data = flat.view(np.uint8)
    if literal.shape.dtype.bits < 8:
        data = data & np.uint8((1 << literal.shape.dtype.bits) - 1)
    setattr(proto, f"{name}s", data.tobytes())


def literal_from_proto(proto: Any) -> Literal:
    shape = shape_from_proto(proto.shape)
    if shape.is_tuple:
        if len(proto.tuple_literals) != len(shape.elements):
            raise ParseError(f"proto: {len(proto.tuple_literals)} literals for {shape}")
        return Literal(shape, tuple(literal_from_proto(part) for part in proto.tuple_literals))
    if not shape.is_array:
        raise ParseError(f"proto: a literal of shape {shape}")
    flat = _flat_values(proto, shape)
    if flat.size != shape.size:
        raise ParseError(f"proto: {flat.size} values for a literal of shape {shape}")
    order = shape.layout_or_default.minor_to_major[::-1]
    array = flat.reshape([shape.dimensions[d] for d in order]).transpose(np.argsort(order) if order else ())
    return Literal(shape, np.ascontiguousarray(array).reshape(shape.dimensions))


def _flat_values(proto: Any, shape: Shape) -> np.ndarray[Any, Any]:
    element_type = shape.dtype
    name = element_type.name
    if name in _REPEATED_LITERALS:
        values: Any = getattr(proto, _REPEATED_LITERALS[name])
        if element_type.is_complex:
            parts = np.array(values, element_type.real.numpy)
            return parts[: parts.size // 2 * 2].view(element_type.numpy)
        return np.array(values, element_type.numpy)
    data: bytes = getattr(proto, f"{name}s")
    if len(data) % element_type.numpy.itemsize:
        raise ParseError(f"proto: {len(data)} bytes for a literal of shape {shape}")
    if element_type.kind == "signed" and element_type.bits < 8:
        shift = np.uint8(8 - element_type.bits)
        wide = (np.frombuffer(data, np.uint8) << shift).view(np.int8) >> np.int8(shift)
        return wide.view(element_type.numpy)
    return np.frombuffer(data, element_type.numpy)


def sharding_to_proto(sharding: Sharding, proto: Any) -> None:
    if sharding.named is not None:
        proto.type = number_of("sharding type", "tiled")
        named_sharding_to_proto(sharding.named, proto.named_sharding)
        sharding_metadata_to_proto(sharding.metadata, proto.named_sharding.metadata)
        return
    proto.type = number_of("sharding type", sharding.kind)
    sharding_metadata_to_proto(sharding.metadata, proto.metadata)
    for element in sharding.elements:
        sharding_to_proto(element, proto.tuple_shardings.add())
    proto.replicate_on_last_tile_dim = sharding.replicate_last
    proto.iota_reshape_dims.extend(sharding.reshape)
    if sharding.reshape:
        proto.iota_transpose_perm.extend(sharding.transpose or range(len(sharding.reshape)))
    if sharding.kind == "maximal":
        proto.tile_assignment_dimensions.append(1)
        proto.tile_assignment_devices.append(sharding.device)
    else:
        proto.tile_assignment_dimensions.extend(sharding.tile)
        proto.tile_assignment_devices.extend(sharding.devices)
    proto.last_tile_dims.extend(number_of("sharding type", kind) for kind in sharding.last_tile_dims)
    if sharding.group is not None:
        proto.is_shard_group = True
        proto.shard_group_type = number_of("shard group", sharding.group[0])
        proto.shard_group_id = sharding.group[1]


def sharding_from_proto(proto: Any) -> Sharding:
    if proto.HasField("named_sharding"):
        metadata = sharding_metadata_from_proto(proto.named_sharding.metadata)
        metadata = f"{{{metadata}}}" if metadata and not metadata.startswith("{{") else metadata
        return Sharding("named", metadata=metadata, named=named_sharding_from_proto(proto.named_sharding))
    kind = str(name_of("sharding type", proto.type))
    transpose = tuple(proto.iota_transpose_perm)
    maximal = kind == "maximal"
    if maximal and len(proto.tile_assignment_devices) != 1:
        raise ParseError("proto: a maximal sharding names one device")
    return Sharding(
        kind,
        proto.tile_assignment_devices[0] if maximal else 0,
        () if maximal else tuple(proto.tile_assignment_dimensions),
        () if maximal else tuple(proto.tile_assignment_devices),
        tuple(proto.iota_reshape_dims),
        () if transpose == tuple(range(len(transpose))) else transpose,
        proto.replicate_on_last_tile_dim,
        tuple(str(name_of("sharding type", n)) for n in proto.last_tile_dims),
        (str(name_of("shard group", proto.shard_group_type)), proto.shard_group_id) if proto.is_shard_group else None,
        sharding_metadata_from_proto(proto.metadata),
        tuple(sharding_from_proto(p) for p in proto.tuple_shardings),
    )


def entries_to_proto(entries: dict[str, str], proto: Any) -> None:
    """A map<string, string>, sorted by key so that equal modules have equal bytes."""
    proto.map.extend(message_class("StringEntry")(key=k, value=v) for k, v in sorted(entries.items()))


def entries_from_proto(entries: Iterable[Any]) -> dict[str, str]:
    return {entry.key: entry.value for entry in entries}
