"""The line of the user's program that an instruction comes from."""

from __future__ import annotations

from typing import NamedTuple

from hlokit.hlo.instruction import Instruction


class SourceLine(NamedTuple):
    """A line of the user's program; `function` may be empty, `end` is the last line of what spans several."""

    file: str
    line: int
    end: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" in {self.function}" if self.function else "")


def source_lines(instruction: Instruction) -> list[SourceLine]:
    """The calls that made an instruction, the innermost first, as its metadata and the module's stack tables say."""
    metadata = instruction.extra.metadata if instruction.extra is not None else None
    if metadata is None:
        return []
    found: list[SourceLine] = []
    computation = instruction.parent
    module = computation.module if computation is not None else None
    if module is not None and metadata.stack_frame_id:
        tables = module.stack_tables
        number, seen = metadata.stack_frame_id, set[int]()
        while 1 <= number <= len(tables.stack_frames) and number not in seen:
            seen.add(number)
            frame = tables.stack_frames[number - 1]
            at = frame.get("file_location_id", 0)
            number = frame.get("parent_frame_id", 0)
            if not 1 <= at <= len(tables.file_locations):
                continue
            place = tables.file_locations[at - 1]
            file, function = place.get("file_name_id", 0), place.get("function_name_id", 0)
            if 1 <= file <= len(tables.file_names):
                line = place.get("line", 0)
                name = tables.function_names[function - 1] if 1 <= function <= len(tables.function_names) else ""
                found.append(SourceLine(tables.file_names[file - 1], line, place.get("end_line", 0) or line, name))
    if not found and metadata.source_file:
        line = metadata.source_line
        found.append(SourceLine(metadata.source_file, line, metadata.source_end_line or line))
    return found


def scope(instruction: Instruction) -> str:
    """The name scopes of an instruction and its operation, by JAX "jit(f)/layer/dot_general"; empty if unknown."""
    metadata = instruction.extra.metadata if instruction.extra is not None else None
    return metadata.op_name if metadata is not None else ""
