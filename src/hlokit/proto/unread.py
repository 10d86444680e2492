"""Fields of a parsed message that are not read: those of newer messages, and a few that hlokit ignores."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hlokit.errors import UnreadFieldsWarning, visible

_NAMES = {
    ("Instruction", 73): "is_cross_program_prefetch",
    ("Instruction", 86): "dot_sparsity",
    ("Layout", 9): "dim_level_types",
    ("Layout", 10): "physical_shape",
    ("Layout", 13): "dim_unique",
    ("Layout", 14): "dim_ordered",
    ("Instruction", 99): "backend_config_payload",
    ("Literal", 14): "sparse_indices",
    ("Literal", 34): "dynamic_sizes",
    ("Module", 10): "cross_program_prefetches",
    ("Module", 12): "spmd_output_sharding",
    ("Module", 14): "spmd_parameters_shardings",
    ("Module", 20): "original_value_recovery_table",
    ("OpSharding", 2): "tile_shape",
}
"""XLA's names of fields that are not read, by message and number."""
_OF_THE_COMPILATION = {
    ("Module", 13),  # profile_info
    ("Module", 15),  # device_assignment
    ("Module", 16),  # use_auto_spmd_partitioning
    ("Module", 21),  # device_type
    ("Module", 23),  # pjrt_id
    ("OpMetadata", 8),  # size_of_generated_code_in_bytes
    ("OpMetadata", 9),  # size_of_memory_working_set_in_bytes
    ("OpMetadata", 10),  # profile_info
}
"""Those that say something of a compilation or a run, and nothing of the program."""
_XLA_NAMES = {
    "Module": "HloModuleProto", "Computation": "HloComputationProto", "Instruction": "HloInstructionProto",
    "Shape": "ShapeProto", "Layout": "LayoutProto", "Literal": "LiteralProto", "ProgramShape": "ProgramShapeProto",
}  # fmt: skip

_LISTED = 10


def warn_of_unread(message: Any) -> None:
    """Warns, by UnreadFieldsWarning, of the fields of a HloModuleProto that are not read, if there are any."""
    found = unread(message)
    if found:
        listed = [f"{name} (in {count} messages)" if count > 1 else name for name, count in sorted(found.items())]
        more = [f"{len(listed) - _LISTED} more"] if len(listed) > _LISTED else []
        text = f"proto: {message.name}: not read: {', '.join([*listed[:_LISTED], *more])}"
        warnings.warn(visible(text), UnreadFieldsWarning, stacklevel=2)


def unread(message: Any) -> dict[str, int]:
    """The names of the fields that are not read, or their numbers, each with the number of messages that have it."""
    known = type(message)()
    known.CopyFrom(message)
    known.DiscardUnknownFields()
    return dict(Counter(_found(message))) if known.ByteSize() != message.ByteSize() else {}


def _found(message: Any) -> Iterator[str]:
    from google.protobuf.unknown_fields import UnknownFieldSet

    waiting: list[tuple[str, Any]] = [("Module", message)]
    while waiting:
        kind, message = waiting.pop()
        # an empty message says nothing: jaxlib writes one for each convolution
        for number in sorted({field.field_number for field in UnknownFieldSet(message) if field.data != b""}):
            if (kind, number) not in _OF_THE_COMPILATION:
                yield f"{_XLA_NAMES.get(kind, kind)}.{_NAMES.get((kind, number), f'field {number}')}"
        for field, value in message.ListFields():
            if field.message_type is not None:
                parts = value if hasattr(value, "extend") else [value]
                waiting += [(field.message_type.name, part) for part in parts]
