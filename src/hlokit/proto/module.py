"""Reading and writing HloModuleProto. What the proto cannot say (replica_count, num_partitions, ...) is not carried."""

from __future__ import annotations

from typing import Any

from hlokit.errors import HlokitError, ParseError
from hlokit.hlo.computation import MAIN_THREAD, Computation
from hlokit.hlo.frames import used_tables
from hlokit.hlo.instruction import Extra, Instruction, normal_config
from hlokit.hlo.module import DEBUG_FIELDS, FRAME_FIELDS, LOCATION_FIELDS, Alias, DebugAttributes, HloModule
from hlokit.hlo.names import Names, identifier
from hlokit.hlo.op import OPS, Op
from hlokit.proto.attributes import read_attribute, write_attribute
from hlokit.proto.container import container_of
from hlokit.proto.enums import name_of, number_of
from hlokit.proto.origins import metadata_from_proto, metadata_to_proto, origin_from_proto, origin_to_proto
from hlokit.proto.schema import message_class
from hlokit.proto.shapes import (
    entries_from_proto,
    entries_to_proto,
    program_shape_to_proto,
    shape_from_proto,
    shape_to_proto,
    sharding_from_proto,
    sharding_to_proto,
)
from hlokit.proto.unread import warn_of_unread
from hlokit.types.shape import ProgramShape


def module_to_proto(module: HloModule) -> bytes:
    """The module as a serialized HloModuleProto. Equal modules give equal bytes.

    Raises ShapeError (HLIT-11) for a constant whose content was elided, UnsupportedError without protobuf.
    """
    proto = message_class("Module")(name=module.name)
    ids = _Ids(module)
    for computation in ids.computations:
        _computation_to_proto(computation, ids, proto.computations.add())
    entry = module.entry
    proto.entry_computation_name = entry.name
    proto.entry_computation_id = ids.computations[entry]
    program_shape_to_proto(_host_shape(module), proto.host_program_shape)
    if module.is_scheduled:
        scheduled = module.scheduled()
        for computation, number in ((c, n) for c, n in ids.computations.items() if c in scheduled):
            sequence = message_class("InstructionSequence")(
                instruction_ids=[ids.instructions[i] for i in computation.instructions]
            )
            proto.schedule.sequences.add(key=number, value=sequence)
    for alias in module.input_output_alias:
        proto.input_output_alias.entries.add(
            output_shape_index=alias.output_index,
            parameter_number=alias.parameter,
            parameter_shape_index=alias.parameter_index,
            kind=number_of("alias kind", alias.kind),
        )
    for parameter, index in module.buffer_donor:
        proto.buffer_donor.entries.add(parameter_number=parameter, parameter_shape_index=index)
    entries_to_proto(module.frontend_attributes, proto.frontend_attributes)
    proto.backend_config = module.backend_config.encode("utf-8", "surrogateescape")
    for entry in module.debug_attributes:
        _debug_to_proto(entry, proto.debug_attributes.add())
    tables = module.stack_tables
    proto.stack_frame_index.file_names.extend(tables.file_names)
    proto.stack_frame_index.function_names.extend(tables.function_names)
    for location in tables.file_locations:
        proto.stack_frame_index.file_locations.add(**location)
    for frame in tables.stack_frames:
        parent = max(0, frame["parent_frame_id"] - 1)
        proto.stack_frame_index.stack_frames.add(**{**frame, "parent_frame_id": parent})
    return proto.SerializeToString(deterministic=True)


def hlo_proto(module: HloModule) -> bytes:
    """The module as a serialized HloProto, as XLA's dumps have it in `.hlo.pb`. Raises as `module_to_proto` does."""
    data = module_to_proto(module)
    size, length = len(data), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return b"\x0a" + bytes((*length, size)) + data  # the HloModuleProto is field 1


def module_from_proto(data: bytes) -> HloModule:
    """The module in a serialized HloModuleProto, HloProto, HloSnapshot or HloUnoptimizedSnapshot.

    Every rule of the language is checked. Raises ParseError for bytes that are none of these, with the instruction
    where there is one.
    """
    container = container_of(data)
    if container is None:
        raise ParseError("the bytes are not an HloModuleProto, and no message that holds one")
    return module_from_message(container.module)


def module_from_message(proto: Any, verify: bool = True) -> HloModule:
    """The module in an HloModuleProto; without `verify`, the ops' rules are not checked. Raises as `module_from_proto`
    does; warns (UnreadFieldsWarning) of fields that are not read."""
    warn_of_unread(proto)
    try:
        return _module_from_proto(proto, verify)
    except ParseError:
        raise
    except (HlokitError, ValueError, TypeError, OverflowError) as error:
        raise ParseError(f"proto: {error}", label=getattr(error, "label", None)) from None


class _Ids:
    """Numbers of computations and instructions in the order in which they were made, computations as printed.

    An instruction's number has its computation's above it.
    """

    def __init__(self, module: HloModule) -> None:
        numbers = {computation: number for number, computation in enumerate(module.all_computations)}
        self.computations = {computation: numbers[computation] for computation in module.computations()}
        self.instructions = {
            instruction: number << 32 | position
            for computation, number in self.computations.items()
            for position, instruction in enumerate(computation.instructions)
        }


def _host_shape(module: HloModule) -> ProgramShape:
    shape = module.program_shape
    return ProgramShape(module.parameter_layouts or shape.parameters, module.result_layout or shape.result, shape.names)


def _computation_to_proto(computation: Computation, ids: _Ids, proto: Any) -> None:
    proto.name = computation.name
    proto.id = ids.computations[computation]
    proto.root_id = ids.instructions[computation.root]
    proto.backend_config = computation.backend_config.encode("utf-8", "surrogateescape")
    proto.execution_thread = "" if computation.execution_thread == MAIN_THREAD else computation.execution_thread
    program_shape_to_proto(computation.program_shape, proto.program_shape)
    for instruction in computation.post_order():
        _instruction_to_proto(instruction, ids, proto.instructions.add())


def _instruction_to_proto(instruction: Instruction, ids: _Ids, proto: Any) -> None:
    proto.name = instruction.name
    proto.opcode = instruction.opcode
    proto.id = ids.instructions[instruction]
    shape_to_proto(instruction.shape, proto.shape)
    proto.operand_ids.extend(ids.instructions[o] for o in instruction.operands)
    called = instruction.called[::-1] if instruction.op.calls_reversed else instruction.called
    proto.called_computation_ids.extend(ids.computations[c] for c in called)
    for attribute in instruction.op.attributes:
        write_attribute(proto, attribute, getattr(instruction.op, attribute.name))
    if instruction.extra is not None:
        _extra_to_proto(instruction.extra, ids, proto)


def _extra_to_proto(extra: Extra, ids: _Ids, proto: Any) -> None:
    proto.control_predecessor_ids.extend(ids.instructions[p] for p in extra.control_predecessors)
    if extra.metadata is not None:
        metadata_to_proto(extra.metadata, proto.metadata)
    if extra.sharding is not None:
        sharding_to_proto(extra.sharding, proto.sharding)
    if extra.origin:
        origin_to_proto(extra.origin, proto.original_value)
    if extra.frontend_attributes:
        entries_to_proto(extra.frontend_attributes, proto.frontend_attributes)
    if extra.backend_config:
        proto.backend_config = extra.backend_config.encode("utf-8", "surrogateescape")
    proto.parameter_replication.replicated_at_leaf_buffers.extend(extra.parameter_replication)
    for position, entry in enumerate(filter(None, extra.statistics.strip("{}").split(","))):
        name, _, value = entry.partition("=")
        if position == 0 and name.strip() == "visualizing_index":
            proto.statistics_viz.stat_index_to_visualize = int(value)
        else:
            proto.statistics_viz.statistics.add(stat_name=name.strip(), stat_val=float(value))


def _module_from_proto(proto: Any, verify: bool) -> HloModule:
    _resolve_payloads(proto)
    module = HloModule(identifier(proto.name))
    module.is_unverified = not verify
    computations: dict[int, Computation] = {}
    instructions: dict[int, dict[int, Instruction]] = {}
    for computation_proto in proto.computations:
        if computation_proto.id in computations:
            raise ParseError(f"proto: two computations have the id {computation_proto.id}")
        computation, by_id = _computation_from_proto(computation_proto, computations, verify)
        computations[computation_proto.id] = computation
        instructions[computation_proto.id] = by_id
    for number in sorted(computations):  # as XLA orders them
        module.add_computation(computations[number])
    entry = computations.get(proto.entry_computation_id)
    if entry is None:
        raise ParseError(f"proto: no computation has the entry's id {proto.entry_computation_id}")
    module.entry_or_none = entry
    _layouts_from_proto(module, proto.host_program_shape)
    _schedule_from_proto(module, proto, computations, instructions)
    module.input_output_alias = [
        Alias(
            tuple(e.output_shape_index),
            e.parameter_number,
            tuple(e.parameter_shape_index),
            str(name_of("alias kind", e.kind)),
        )
        for e in proto.input_output_alias.entries
    ]
    module.buffer_donor = [(e.parameter_number, tuple(e.parameter_shape_index)) for e in proto.buffer_donor.entries]
    module.frontend_attributes = entries_from_proto(proto.frontend_attributes.map)
    module.backend_config = proto.backend_config.decode("utf-8", "surrogateescape")
    entries = map(_debug_from_proto, proto.debug_attributes)
    module.debug_attributes = [entry for entry in entries if entry.attributes]  # text has no others (HMOD-19)
    tables = proto.stack_frame_index
    module.stack_tables.file_names.extend(tables.file_names)
    module.stack_tables.function_names.extend(tables.function_names)
    module.stack_tables.file_locations.extend(_row(location, LOCATION_FIELDS) for location in tables.file_locations)
    for frame in tables.stack_frames:  # whose text says 1 where the proto says 0, for none
        row = _row(frame, FRAME_FIELDS)
        module.stack_tables.stack_frames.append({**row, "parent_frame_id": row["parent_frame_id"] + 1})
    in_order = (instruction for by_id in instructions.values() for instruction in by_id.values())
    module.stack_tables = used_tables(module.stack_tables, in_order)
    _make_names_unique(module)
    return module


def _make_names_unique(module: HloModule) -> None:
    """As reading its text would."""
    computations, instructions = Names(), Names()
    for computation in module.computations():
        computation.name = computations.unique(computation.name)
        for instruction in computation.instructions:
            instruction.name = instructions.unique(instruction.name)


def _resolve_payloads(proto: Any) -> None:
    """Puts the payloads that instructions name by number in their place."""
    for instruction in (i for computation in proto.computations for i in computation.instructions):
        payload = instruction.metadata.metadata_payload if instruction.HasField("metadata") else None
        if payload is None or not payload.HasField("id"):
            continue
        if not 0 <= payload.id < len(proto.payloads):
            raise ParseError(f"proto: {instruction.name} has payload {payload.id} of {len(proto.payloads)}")
        payload.value = proto.payloads[payload.id]


def _row(message: Any, fields: tuple[str, ...]) -> dict[str, int]:
    """A row of a debug table. Raises ParseError for what its text cannot say."""
    row: dict[str, int] = {field: getattr(message, field) for field in fields}
    if min(row.values()) < 0 or row.get("parent_frame_id") == 2**31 - 1:
        raise ParseError(f"proto: a debug table with {row}", label="HMOD-14")
    return row


def _debug_to_proto(entry: DebugAttributes, proto: Any) -> None:
    proto.original_array.instruction_name = entry.instruction
    proto.original_array.shape_index.extend(entry.index)
    for given in entry.attributes:
        out = proto.debug_attributes.add()
        for name, value in given:
            choices = DEBUG_FIELDS[name]
            setattr(out, name, choices.index(value) if choices else int(value))


def _debug_from_proto(proto: Any) -> DebugAttributes:
    given = tuple(
        tuple((f.name, _debug_value(f.name, int(value))) for f, value in attributes.ListFields())
        for attributes in proto.debug_attributes
    )
    array = proto.original_array
    return DebugAttributes(array.instruction_name, tuple(array.shape_index), given)


def _debug_value(name: str, value: int) -> str:
    choices = DEBUG_FIELDS[name]
    if choices and not 0 <= value < len(choices):
        raise ParseError(f"proto: {name} has no value {value}", label="HMOD-19")
    return choices[value] if choices else str(value)


def _layouts_from_proto(module: HloModule, proto: Any) -> None:
    parameters = [shape_from_proto(p) for p in proto.parameters]
    shape = module.program_shape
    if len(parameters) != len(shape.parameters):
        return
    if any(a.static is not b.static for a, b in zip(parameters, shape.parameters, strict=True)):
        raise ParseError("proto: host_program_shape differs from the entry's parameters", label="HMOD-5")
    result = shape_from_proto(proto.result)
    if result.static is not shape.result.static:
        raise ParseError("proto: host_program_shape differs from the entry's result", label="HMOD-5")
    if parameters != list(shape.parameters):
        module.parameter_layouts = parameters
    if result is not shape.result:
        module.result_layout = result


def _schedule_from_proto(
    module: HloModule, proto: Any, computations: dict[int, Computation], instructions: dict[int, dict[int, Instruction]]
) -> None:
    if not proto.schedule.sequences:
        return
    module.is_scheduled = True
    for entry in proto.schedule.sequences:
        if entry.key not in computations:
            raise ParseError(f"proto: the schedule names computation {entry.key}, which does not exist")
        by_id = instructions[entry.key]
        try:
            computations[entry.key].reorder(by_id[i] for i in entry.value.instruction_ids)
        except KeyError as error:
            raise ParseError(f"proto: the schedule names instruction {error}, which does not exist") from None


def _computation_from_proto(
    proto: Any, computations: dict[int, Computation], verify: bool
) -> tuple[Computation, dict[int, Instruction]]:
    """A computation and its instructions by id. Callees stand before callers, operands before users."""
    computation = Computation(identifier(proto.name))
    computation.execution_thread = proto.execution_thread or MAIN_THREAD
    computation.backend_config = proto.backend_config.decode("utf-8", "surrogateescape")
    by_id: dict[int, Instruction] = {}
    for instruction_proto in proto.instructions:
        if instruction_proto.id in by_id:
            raise ParseError(f"proto: two instructions of {proto.name} have the id {instruction_proto.id}")
        made = _instruction_from_proto(instruction_proto, computation, by_id, computations, verify)
        by_id[instruction_proto.id] = made
    if proto.root_id not in by_id:
        raise ParseError(f"proto: {proto.name} has no instruction with the root's id {proto.root_id}")
    computation.set_root(by_id[proto.root_id])
    computation.reorder(by_id[number] for number in _in_order_of_ids(by_id))
    return computation, by_id


def _in_order_of_ids(by_id: dict[int, Instruction]) -> list[int]:
    """The ids, ascending, as XLA orders instructions; as they are where an operand would come behind its user."""
    order = sorted(by_id)
    place = {by_id[number]: position for position, number in enumerate(order)}
    before = ((i, o) for i in by_id.values() for o in (*i.operands, *(i.extra.control_predecessors if i.extra else ())))
    return order if all(place[operand] < place[i] for i, operand in before) else list(by_id)


def _instruction_from_proto(
    proto: Any,
    computation: Computation,
    by_id: dict[int, Instruction],
    computations: dict[int, Computation],
    verify: bool,
) -> Instruction:
    op_class = OPS.get(proto.opcode)
    if op_class is None:
        raise ParseError(f"proto: {proto.name}: unknown opcode {proto.opcode!r}", label="HINST-6")
    try:
        operands = [by_id[i] for i in proto.operand_ids]
        called = [computations[i] for i in proto.called_computation_ids][:: -1 if op_class.calls_reversed else 1]
        predecessors = [by_id[i] for i in proto.control_predecessor_ids]
    except KeyError as error:
        raise ParseError(f"proto: {proto.name} refers to id {error}, which does not stand before it") from None
    try:
        shape = shape_from_proto(proto.shape)
        op = _op_from_proto(op_class, proto).completed([o.shape for o in operands])
        add = computation.add if verify else computation.add_unchecked
        instruction = add(op, operands, called, shape=shape, name=identifier(proto.name))
        instruction.extra = _extra_from_proto(proto)
    except ParseError as error:
        raise ParseError(f"{proto.name}: {error.message}", label=error.label) from None
    except HlokitError as error:
        raise ParseError(f"proto: {proto.name}: {error}", label=getattr(error, "label", None)) from None
    if predecessors:
        instruction.ensure_extra().control_predecessors = predecessors
    return instruction


def _op_from_proto(op_class: type[Op], proto: Any) -> Op:
    return op_class(**{a.name: read_attribute(proto, a) for a in op_class.attributes})


def _extra_from_proto(proto: Any) -> Extra | None:
    extra = Extra()
    if proto.metadata.ByteSize():
        extra.metadata = metadata_from_proto(proto.metadata)
    if proto.HasField("sharding"):
        extra.sharding = sharding_from_proto(proto.sharding)
        extra.sharding.check()
        extra.sharding = extra.sharding.normal()
    if proto.HasField("original_value"):
        extra.origin = origin_from_proto(proto.original_value)
    extra.frontend_attributes = entries_from_proto(proto.frontend_attributes.map)
    extra.backend_config = normal_config(proto.backend_config.decode("utf-8", "surrogateescape"))
    extra.backend_config_is_json = extra.backend_config.startswith("{")
    extra.parameter_replication = tuple(proto.parameter_replication.replicated_at_leaf_buffers)
    if proto.statistics_viz.statistics:
        entries = [f"{identifier(s.stat_name)}={s.stat_val:g}" for s in proto.statistics_viz.statistics]
        extra.statistics = ",".join([f"visualizing_index={proto.statistics_viz.stat_index_to_visualize}", *entries])
    return extra if extra != Extra() else None
