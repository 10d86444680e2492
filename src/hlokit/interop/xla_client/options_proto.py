"""CompileOptions as CompileOptionsProto and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from hlokit.errors import ParseError
from hlokit.interop.xla_client.enums import AutotuneCacheMode
from hlokit.interop.xla_client.options import CompileOptions, DebugOptions, DeviceAssignment, ExecutableBuildOptions
from hlokit.interop.xla_client.shapes import Shape
from hlokit.proto.schema import message_class

_LISTED = ("xla_disable_hlo_passes", "xla_enable_hlo_passes_only")
"""Debug options that are lists in the proto and text with commas here."""
_PLAIN = ("compile_portable_executable", "parameter_is_tupled_arguments", "profile_version")
_BUILD_PLAIN = (
    "exec_time_optimization_effort",
    "fdo_profile",
    "memory_fitting_effort",
    "num_partitions",
    "num_replicas",
    "use_auto_spmd_partitioning",
    "use_shardy_partitioner",
    "use_spmd_partitioning",
)
_BUILD_LISTS = (
    "allow_spmd_sharding_propagation_to_output",
    "allow_spmd_sharding_propagation_to_parameters",
    "auto_spmd_partitioning_mesh_ids",
    "auto_spmd_partitioning_mesh_shape",
)
_OVERRIDES = {bool: "bool_field", int: "int_field", float: "double_field", str: "string_field"}


def to_proto(options: CompileOptions) -> bytes:
    """A serialized CompileOptionsProto."""
    proto = message_class("CompileOptions")()
    for name in _PLAIN:
        setattr(proto, name, getattr(options, name))
    for shape in options.argument_layouts or ():
        shape.write_proto(proto.argument_layouts.add())
    for name, value in options.env_option_overrides:
        setattr(proto.env_option_overrides.add(key=name).value, _OVERRIDES[type(value)], value)
    build, out = options.executable_build_options, proto.executable_build_options
    out.device_ordinal = -1
    for name in _BUILD_PLAIN:
        setattr(out, name, getattr(build, name))
    for name in _BUILD_LISTS:
        getattr(out, name).extend(getattr(build, name))
    if build.result_layout is not None:
        build.result_layout.write_proto(out.result_layout)
    if build.device_assignment is not None:
        assignment = build.device_assignment
        out.device_assignment.replica_count = assignment.replica_count()
        out.device_assignment.computation_count = assignment.computation_count()
        for column in assignment.columns():
            out.device_assignment.computation_devices.add(replica_device_ids=column)
    for name, value in vars(build.debug_options).items():
        if name in _LISTED:
            getattr(out.debug_options, name).extend(part for part in value.split(",") if part)
        else:
            setattr(out.debug_options, name, value)
    return proto.SerializeToString(deterministic=True)


def from_proto(data: bytes) -> CompileOptions:
    """The options in a serialized CompileOptionsProto. ParseError for bytes that are none."""
    from google.protobuf.message import DecodeError

    proto = message_class("CompileOptions")()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ParseError(f"these bytes are not a CompileOptionsProto: {error}") from None
    options = CompileOptions()
    for name in _PLAIN:
        setattr(options, name, getattr(proto, name))
    if proto.argument_layouts:
        options.argument_layouts = [Shape.from_proto(shape) for shape in proto.argument_layouts]
    options.env_option_overrides = [(entry.key, _override(entry.value)) for entry in proto.env_option_overrides]
    _read_build_options(proto.executable_build_options, options.executable_build_options)
    return options


def _read_build_options(proto: Any, build: ExecutableBuildOptions) -> None:
    for name in _BUILD_PLAIN:
        setattr(build, name, getattr(proto, name))
    for name in _BUILD_LISTS:
        setattr(build, name, list(getattr(proto, name)))
    if proto.HasField("result_layout"):
        build.result_layout = Shape.from_proto(proto.result_layout)
    if proto.HasField("device_assignment"):
        columns = [list(column.replica_device_ids) for column in proto.device_assignment.computation_devices]
        if not columns or len({len(column) for column in columns}) != 1:
            raise ParseError("the DeviceAssignmentProto has not the same number of replicas for each partition")
        build.device_assignment = DeviceAssignment.create(np.array(columns).T)
    debug = DebugOptions()
    for name in vars(debug):
        value = getattr(proto.debug_options, name)
        if name in _LISTED:
            value = ",".join(value)
        elif isinstance(getattr(debug, name), AutotuneCacheMode):
            value = _mode(value)
        setattr(debug, name, value)
    build.debug_options = debug


def _mode(number: int) -> AutotuneCacheMode:
    try:
        return AutotuneCacheMode(number)
    except ValueError:
        raise ParseError(f"DebugOptions: {number} is not an AutotuneCacheMode") from None


def _override(proto: Any) -> Any:
    for field in _OVERRIDES.values():
        if proto.HasField(field):
            return getattr(proto, field)
    return ""
