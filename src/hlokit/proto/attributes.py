"""Op attributes in HloInstructionProto: a table from attribute kind to writer and reader.

A writer gets the message and the name of the field in it (the last part of Attribute.proto) and the value; a
reader the message and the name. Kinds that fill several fields name them here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.op import Attribute
from hlokit.proto.enums import ENUMS, name_of, number_of
from hlokit.proto.meshes import groups_along_from_proto, groups_along_to_proto
from hlokit.proto.schema import message_class
from hlokit.proto.shapes import (
    literal_from_proto,
    literal_to_proto,
    shape_from_proto,
    shape_to_proto,
    sharding_from_proto,
    sharding_to_proto,
)
from hlokit.types import attributes as kinds
from hlokit.types.dimension_numbers import ConvolutionDimensionNumbers
from hlokit.types.groups import ReplicaGroups
from hlokit.types.window import PaddingDimension, Window, WindowDimension

Writer = Callable[[Any, str, Any], None]
Reader = Callable[[Any, str], Any]


def write_attribute(instruction: Any, attribute: Attribute, value: Any) -> None:
    """Puts an op's attribute into its HloInstructionProto."""
    *path, name = attribute.proto.split(".")
    if _is_choice(attribute):
        _write_choice(_inside(instruction, path), attribute.proto, name, value)
        return
    if attribute.kind not in _KINDS:
        raise ParseError(f"proto: no writer for {attribute.kind.name}")
    message = _inside(instruction, path)
    if path and value == attribute.default and attribute.kind is kinds.INT_LIST:
        message.SetInParent()
    _KINDS[attribute.kind][0](message, name, value)


def read_attribute(instruction: Any, attribute: Attribute) -> Any:
    """An op's attribute out of its HloInstructionProto; its default where the proto says nothing."""
    *path, name = attribute.proto.split(".")
    message = _inside(instruction, path)
    if _is_choice(attribute):
        return _read_choice(message, attribute, name)
    value = _KINDS[attribute.kind][1](message, name)
    if attribute.kind in (kinds.INT, kinds.STRING) and not attribute.required and not value:
        return attribute.default
    return value


def _is_choice(attribute: Attribute) -> bool:
    if attribute.kind in _KINDS:
        return attribute.proto in ENUMS and attribute.kind is not kinds.PRECISION
    return bool(attribute.kind.choices) or attribute.proto in ENUMS


def _inside(message: Any, path: list[str]) -> Any:
    for name in path:
        message = getattr(message, name)
    return message


def _write_choice(message: Any, path: str, name: str, value: Any) -> None:
    if value is None:
        return
    if path in ENUMS:
        value = number_of(path, ("true" if value else "false") if isinstance(value, bool) else value)
    setattr(message, name, value)


def _read_choice(message: Any, attribute: Attribute, name: str) -> Any:
    value = getattr(message, name)
    if attribute.proto in ENUMS:
        value = name_of(attribute.proto, value)
    if attribute.kind is kinds.BOOL:
        return value == "true"
    choices = attribute.kind.choices
    if value and (not choices or value in choices):
        return value
    # an enumeration's number that text has no word for, such as PADDING_INVALID, says nothing
    if attribute.required or (value and attribute.proto not in ENUMS):
        raise ParseError(f"proto: {attribute.text} is {value!r}; expected one of {', '.join(choices)}")
    return attribute.default


def _set(message: Any, name: str, value: Any) -> None:
    if value is None:
        return
    now = getattr(message, name)
    if _is_repeated(now):  # iota's and reshape's one dimension stand in `dimensions`
        now.append(value)
        return
    try:
        setattr(message, name, value.encode() if isinstance(value, str) and isinstance(now, bytes) else value)
    except ValueError as error:  # some numbers are int32 there
        raise UnsupportedError(f"proto: {name}: {error}") from None


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "extend")


def _integer(message: Any, name: str) -> int:
    value = getattr(message, name)
    return _single(message, name) if _is_repeated(value) else value


def _text(message: Any, name: str) -> str:
    value = getattr(message, name)
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _optional(message: Any, name: str) -> int | None:
    """channel ids: not positive means none; other optional fields have presence."""
    if _is_repeated(getattr(message, name)):
        return _optional_single(message, name)
    if message.DESCRIPTOR.fields_by_name[name].has_presence:
        return getattr(message, name) if message.HasField(name) else None
    return getattr(message, name) or None


def _extend(message: Any, name: str, values: Any) -> None:
    getattr(message, name).extend(values)


def _single(message: Any, name: str) -> int:
    values = getattr(message, name)
    if len(values) != 1:
        raise ParseError(f"proto: {name} has {len(values)} entries, expected 1")
    return values[0]


def _optional_single(message: Any, name: str) -> int | None:
    return _single(message, name) if len(getattr(message, name)) else None


def _write_optional_single(message: Any, name: str, value: int | None) -> None:
    if value is not None:
        _extend(message, name, [value])


def _write_slices(message: Any, name: str, ranges: Any) -> None:
    for start, limit, stride in ranges:
        getattr(message, name).add(start=start, limit=limit, stride=stride)


def _write_padding(message: Any, name: str, padding: Any) -> None:
    out = getattr(message, name)
    out.SetInParent()
    for d in padding:
        out.dimensions.add(
            edge_padding_low=d.edge_padding_low,
            edge_padding_high=d.edge_padding_high,
            interior_padding=d.interior_padding,
        )


def _read_padding(message: Any, name: str) -> Any:
    return tuple(
        PaddingDimension(d.edge_padding_low, d.edge_padding_high, d.interior_padding)
        for d in getattr(message, name).dimensions
    )


_WINDOW_FIELDS = ("size", "stride", "padding_low", "padding_high", "base_dilation", "window_dilation", "reversal")
_PROTO_WINDOW_FIELDS = (*_WINDOW_FIELDS[:-1], "window_reversal")


def _write_window(message: Any, name: str, window: Window | None) -> None:
    if window is None:
        return
    out = getattr(message, name)
    out.SetInParent()
    for dimension in window.dimensions:
        values = [getattr(dimension, f) for f in _WINDOW_FIELDS]
        out.dimensions.add(**dict(zip(_PROTO_WINDOW_FIELDS, values, strict=True)))


def _read_window(message: Any, name: str) -> Window | None:
    if not message.HasField(name):
        return None
    return Window(
        tuple(
            WindowDimension(*(getattr(d, f) for f in _PROTO_WINDOW_FIELDS)) for d in getattr(message, name).dimensions
        )
    )


_CONV_FIELDS = tuple(ConvolutionDimensionNumbers.__dataclass_fields__)


def _write_conv(message: Any, name: str, labels: ConvolutionDimensionNumbers | None) -> None:
    if labels is not None:
        getattr(message, name).CopyFrom(
            message_class("ConvolutionDimensionNumbers")(**{f: getattr(labels, f) for f in _CONV_FIELDS})
        )


def _read_conv(message: Any, name: str) -> ConvolutionDimensionNumbers | None:
    if not message.HasField(name):
        return None
    numbers = getattr(message, name)
    return ConvolutionDimensionNumbers(**{f: getattr(numbers, f) for f in _CONV_FIELDS})


def _write_groups(message: Any, name: str, groups: ReplicaGroups) -> None:
    if groups.mesh is not None:
        groups_along_to_proto(groups.mesh, groups.axes, message.mesh_axes_replica_group_list)
        return
    if groups.iota_dimensions is None:
        for group in groups.groups:
            message.collective_device_list.replica_groups.add(replica_ids=group)
        return
    out = message.iota_collective_device_list
    out.num_replica_groups, out.num_devices_per_group = groups.iota_dimensions
    out.iota_reshape_dims.extend(groups.reshape)
    out.iota_transpose_perm.extend(groups.transpose)


def _read_groups(message: Any, name: str) -> ReplicaGroups:
    if message.HasField("mesh_axes_replica_group_list"):
        return groups_along_from_proto(message.mesh_axes_replica_group_list)
    device_list = message.collective_device_list
    for iota, found in (
        (message.iota_collective_device_list, message.HasField("iota_collective_device_list")),
        (device_list.iota_replica_group_list, device_list.HasField("iota_replica_group_list")),
    ):
        if found:
            perm = list(iota.iota_transpose_perm) or None
            return ReplicaGroups.iota(iota.num_replica_groups, iota.num_devices_per_group, iota.iota_reshape_dims, perm)
    groups = device_list.replica_groups or message.replica_groups
    return ReplicaGroups.explicit(group.replica_ids for group in groups)


def _write_lists(message: Any, name: str, lists: Any) -> None:
    for values in lists:
        _extend(message, name, values)


def _read_lists(message: Any, name: str) -> Any:
    """Lists of one entry per dimension, which the proto holds end to end."""
    values, rank = getattr(message, name), max(1, len(message.shape.dimensions))
    return tuple(tuple(values[i : i + rank]) for i in range(0, len(values), rank))


def _write_pairs(message: Any, name: str, pairs: Any) -> None:
    for source, target in pairs:
        getattr(message, name).add(source=source, target=target)


def _write_shape(message: Any, name: str, shape: Any) -> None:
    if shape is not None:
        shape_to_proto(shape, getattr(message, name))


def _write_shapes(message: Any, name: str, shapes: Any) -> None:
    for shape in shapes or ():
        shape_to_proto(shape, getattr(message, name).add())
    if shapes is not None:
        message.constrain_layout = True


def _read_shapes(message: Any, name: str) -> Any:
    return tuple(shape_from_proto(p) for p in getattr(message, name)) if message.constrain_layout else None


def _write_literal(message: Any, name: str, literal: Any) -> None:
    if literal is not None:
        literal_to_proto(literal, getattr(message, name))


def _read_literal(message: Any, name: str) -> Any:
    return literal_from_proto(getattr(message, name)) if message.HasField(name) else None


def _write_aliasing(message: Any, name: str, entries: Any) -> None:
    for output, operand, index in entries:
        getattr(message, name).add(output_shape_index=output, operand_index=operand, operand_shape_index=index)


def _read_aliasing(message: Any, name: str) -> Any:
    return tuple(
        (tuple(e.output_shape_index), e.operand_index, tuple(e.operand_shape_index)) for e in getattr(message, name)
    )


def _write_accuracy(message: Any, name: str, accuracy: tuple[Any, ...] | None) -> None:
    if accuracy is None:
        return
    out = getattr(message, name)
    if accuracy[0] == "tolerance":
        out.tolerance.atol, out.tolerance.rtol, out.tolerance.ulps = (
            float(accuracy[1]),
            float(accuracy[2]),
            int(accuracy[3]),
        )
    else:
        out.mode = number_of("result_accuracy.mode", accuracy[0])


def _read_accuracy(message: Any, name: str) -> tuple[Any, ...] | None:
    if not message.HasField(name):
        return None
    accuracy = getattr(message, name)
    if accuracy.HasField("tolerance"):
        return ("tolerance", accuracy.tolerance.atol, accuracy.tolerance.rtol, accuracy.tolerance.ulps)
    mode = name_of("result_accuracy.mode", accuracy.mode)
    return None if mode == "default" else (mode,)


def _write_precision(message: Any, name: str, precisions: Any) -> None:
    _extend(message, name, [number_of("precision_config.operand_precision", p) for p in precisions])


def _read_precision(message: Any, name: str) -> Any:
    found = tuple(name_of("precision_config.operand_precision", n) for n in getattr(message, name))
    return found if any(p != "default" for p in found) else ()


def _write_domain(message: Any, name: str, value: Any) -> None:
    _, entry, exit_ = value
    sharding_to_proto(exit_, message.domain_entry_sharding)  # the proto's names go with the operand's way
    sharding_to_proto(entry, message.domain_exit_sharding)


def _read_domain(message: Any, name: str) -> Any:
    sides = (message.domain_exit_sharding, message.domain_entry_sharding)
    return ("sharding", *(sharding_from_proto(side) for side in sides))


def _nothing(message: Any, name: str, value: Any) -> None:
    """The value stands elsewhere in the proto."""


_KINDS: dict[kinds.Kind, tuple[Writer, Reader]] = {
    kinds.INT: (_set, _integer),
    kinds.OPTIONAL_INT: (_set, _optional),
    kinds.BOOL: (_set, getattr),
    kinds.STABILITY: (_set, lambda m, n: True),
    kinds.SHUFFLE_MODE: (_nothing, lambda m, n: kinds.SHUFFLE_MODE.choices[0]),
    kinds.FLOAT: (_set, getattr),
    kinds.STRING: (_set, _text),
    kinds.INT_LIST: (_extend, lambda m, n: tuple(getattr(m, n))),
    kinds.OPTIONAL_INT_LIST: (lambda m, n, v: _extend(m, n, v or ()), lambda m, n: tuple(getattr(m, n)) or None),
    kinds.SINGLE: (lambda m, n, v: _extend(m, n, [v]), _single),
    kinds.OPTIONAL_SINGLE: (_write_optional_single, _optional_single),
    kinds.SLICE_RANGES: (_write_slices, lambda m, n: tuple((r.start, r.limit, r.stride) for r in getattr(m, n))),
    kinds.PADDING: (_write_padding, _read_padding),
    kinds.WINDOW: (_write_window, lambda m, n: _read_window(m, n) or Window()),
    kinds.OPTIONAL_WINDOW: (_write_window, _read_window),
    kinds.CONV_LABELS: (_write_conv, _read_conv),
    kinds.OPTIONAL_CONV_LABELS: (_write_conv, _read_conv),
    kinds.GROUPS: (_write_groups, _read_groups),
    kinds.INT_LISTS: (_write_lists, _read_lists),
    kinds.PAIRS: (_write_pairs, lambda m, n: tuple((p.source, p.target) for p in getattr(m, n))),
    kinds.SHAPE: (lambda m, n, v: shape_to_proto(v, getattr(m, n)), lambda m, n: shape_from_proto(getattr(m, n))),
    kinds.OPTIONAL_SHAPE: (_write_shape, lambda m, n: shape_from_proto(getattr(m, n)) if m.HasField(n) else None),
    kinds.SHAPES: (_write_shapes, _read_shapes),
    kinds.RESULT_SHAPE: (_nothing, lambda m, n: shape_from_proto(m.shape)),
    kinds.LITERAL: (_write_literal, _read_literal),
    kinds.OPTIONAL_LITERAL: (_write_literal, _read_literal),
    kinds.ALIASING: (_write_aliasing, _read_aliasing),
    kinds.ACCURACY: (_write_accuracy, _read_accuracy),
    kinds.SHARDING: (
        lambda m, n, v: sharding_to_proto(v, getattr(m, n)),
        lambda m, n: sharding_from_proto(getattr(m, n)),
    ),
    kinds.PRECISION: (_write_precision, _read_precision),
    kinds.DOMAIN: (_write_domain, _read_domain),
}
