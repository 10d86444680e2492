"""Reading and writing protobuf's text format of messages that contain a module (`.pbtxt`, `.txtpb`).

Text has names where bytes have numbers, so the messages here have all fields that XLA's have, those that are not read
too: what is not read is told of as it is for bytes. Text becomes bytes, which are then read, and the other way round.
"""

from __future__ import annotations

import re
import warnings
from functools import cache
from typing import Any

from hlokit.errors import ParseError, UnreadFieldsWarning, visible
from hlokit.proto.container import CLASSES, ProtoContainer
from hlokit.proto.schema import MESSAGES, classes_of

_MORE: dict[str, str] = {
    "Layout": "dim_level_types:*DimLevelType=9 physical_shape:Shape=10 dim_unique:*bool=13 dim_ordered:*bool=14",
    "Literal": "sparse_indices:*int64=14 dynamic_sizes:*int32=34",
    "OpMetadata": "size_of_generated_code_in_bytes:int64=8 size_of_memory_working_set_in_bytes:int64=9",
    "OpSharding": "tile_shape:Shape=2",
    "CrossProgramPrefetch": "parameter:int64=1 index:*int64=2 offset:int64=3",
    "RecoveryTableEntry": """old_original_array:OriginalArray=1 new_original_array:OriginalArray=2
        recovery_module:Module=3""",
    "RecoveryTable": "entries:*RecoveryTableEntry=1",
    "Instruction": "is_cross_program_prefetch:bool=73 backend_config_payload:Payload=99",
    "Module": """cross_program_prefetches:*CrossProgramPrefetch=10 spmd_output_sharding:OpSharding=12
        spmd_parameters_shardings:*OpSharding=14 device_assignment:DeviceAssignment=15
        use_auto_spmd_partitioning:bool=16 original_value_recovery_table:RecoveryTable=20 device_type:string=21
        pjrt_id:int64=23""",
    "HloUnoptimizedSnapshot": "version:int32=3",
}
"""Fields of XLA's messages that are not read, and messages of such fields."""
_KINDS = (("partitions", "HloUnoptimizedSnapshot"), ("hlo_module", "HloProto"), ("hlo", "HloSnapshot"))
"""The message of which text is that has a field at its top; else it is a HloModuleProto."""
_OF_MODULES = {"name", "id", "entry_computation_name", "entry_computation_id", "computations", "host_program_shape"}
_START = re.compile(r"(?:\s|#[^\n]*\n)*+([a-z]\w*)\s*(:|[{<])")
_TOKEN = re.compile(r""""(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|#[^\n]*|[{}<>]|[A-Za-z_]\w*(?=\s*[:{<])""")


def container_of_text(text: str) -> ProtoContainer | None:
    """The message that `text` is in protobuf's text format, if it holds a module; else None. Raises ParseError."""
    kind = message_kind(text)
    return ProtoContainer(kind, memoryview(_message_of(text, kind).SerializeToString())) if kind else None


def text_of_message(data: bytes, kind: str) -> str:
    """A serialized message in protobuf's text format. `kind`: XLA's name of it."""
    from google.protobuf.text_format import MessageToString

    message = _classes()[CLASSES[kind]]()
    message.ParseFromString(data)
    return MessageToString(message, as_utf8=True)


def message_kind(text: str) -> str:
    """XLA's name of the message; empty if the fields at the top of the text are of none that holds a module."""
    start = _START.match(text)
    if start is None or start[1] not in _OF_MODULES | {name for name, _ in _KINDS}:
        return ""
    depth, names = 0, set[str]()
    for token in _TOKEN.finditer(text):
        character = token[0][0]
        if character in "{<":
            depth += 1
        elif character in "}>":
            depth -= 1
        elif depth == 0 and character not in "\"'#":
            names.add(token[0])
    for name, kind in _KINDS:
        if name in names:
            return kind
    return "HloModuleProto" if "computations" in names else ""


def _message_of(text: str, kind: str) -> Any:
    """The message in `text`; fields of unknown names are left out, with a warning that names the first."""
    from google.protobuf import text_format

    message = _classes()[CLASSES[kind]]()
    try:
        return text_format.Parse(text, message)
    except text_format.ParseError as error:
        unknown = re.search(r'Message type "hlokit\.(\w+)" has no field named "(\w+)"', str(error))
        if unknown is None:
            raise _error(text, error) from None
    except RecursionError:
        raise ParseError(f"{kind} in protobuf's text format: messages are nested too deeply") from None
    found = f"{kind}: not read: {unknown[1]}.{unknown[2]}, and other fields without a known name, if there are any"
    warnings.warn(visible(f"proto: {found}"), UnreadFieldsWarning, stacklevel=2)
    message.Clear()
    try:
        return text_format.Parse(text, message, allow_unknown_field=True)
    except text_format.ParseError as error:
        raise _error(text, error) from None
    except RecursionError:
        raise ParseError(f"{kind} in protobuf's text format: messages are nested too deeply") from None


def _error(text: str, error: Any) -> ParseError:
    line, column = error.GetLine() or 0, error.GetColumn() or 0
    message = re.sub(r"^\d+:\d+ : |hlokit\.|\w+Values\.", "", str(error)).partition("\n")[0]
    message = re.sub(r"^'.*': ", "", message)
    message = f"{message[:1].lower()}{message[1:]}"
    lines = text.split("\n")
    source = lines[line - 1] if 0 < line <= len(lines) else ""
    return ParseError(f"protobuf's text format: {message}", line=line, column=column, source_line=source)


@cache
def _classes() -> dict[str, Any]:
    table = {name: f"{fields} {_MORE.get(name, '')}" for name, fields in MESSAGES.items()}
    table |= {name: fields for name, fields in _MORE.items() if name not in table}
    table["OriginalElement"] = "shape_index:*int64=1 original_array:OriginalArray=2"  # not the names of older files
    return classes_of(table)
