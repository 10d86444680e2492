"""The debug tables of a module as its instructions use them (HMOD-14)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from hlokit.hlo.instruction import Instruction, Metadata
from hlokit.hlo.module import FRAME_FIELDS, LOCATION_FIELDS, StackTables

_Key = TypeVar("_Key", bound=Hashable)
_Row = TypeVar("_Row")


def used_tables(tables: StackTables, instructions: Iterable[Instruction]) -> StackTables:
    """The rows that `instructions` use, numbered in the order of use, equal ones once.

    Changes the `stack_frame_id` of the instructions to the new numbers; an id that leads to a row which does not exist,
    or to a frame that is its own ancestor, becomes 0: no frame.
    """
    numbering = _Numbering(tables)
    for instruction in instructions:
        extra = instruction.extra
        metadata = extra.metadata if extra is not None else None
        if extra is None or metadata is None or not metadata.stack_frame_id:
            continue
        metadata.stack_frame_id = numbering.frame(metadata.stack_frame_id)
        if metadata == Metadata():
            extra.metadata = None
    return numbering.tables


class _Numbering:
    def __init__(self, old: StackTables) -> None:
        self.old = old
        self.tables = StackTables()
        self._new: dict[int, int] = {}
        """Old frame -> new frame; 0 for one that is not valid."""
        self._files: dict[str, int] = {}
        self._functions: dict[str, int] = {}
        self._locations: dict[tuple[int, ...], int] = {}
        self._frames: dict[tuple[int, ...], int] = {}

    def frame(self, number: int) -> int:
        """The new number of the frame with the old one, whose ancestors are numbered before it."""
        chain: dict[int, None] = {}
        rows = self.old.stack_frames
        while number and number not in self._new and number not in chain and self._is_valid(number):
            chain[number] = None
            number = rows[number - 1]["parent_frame_id"] - 1  # 1 where there is none
        new = 0
        if number:
            new = 0 if number in chain else self._new.get(number, 0)
            if not new:  # a cycle, or a row that does not exist
                self._new.update(dict.fromkeys(chain, 0))
                return 0
        for old in reversed(chain):
            location = self._location(rows[old - 1]["file_location_id"])
            values = (location, new + 1)
            new = _number(self._frames, values, self.tables.stack_frames, dict(zip(FRAME_FIELDS, values, strict=True)))
            self._new[old] = new
        return new

    def _is_valid(self, number: int) -> bool:
        if not 1 <= number <= len(self.old.stack_frames):
            return False
        location = self.old.stack_frames[number - 1]["file_location_id"]
        if not 1 <= location <= len(self.old.file_locations):
            return False
        row = self.old.file_locations[location - 1]
        file, function = row["file_name_id"], row["function_name_id"]
        return 1 <= file <= len(self.old.file_names) and 1 <= function <= len(self.old.function_names)

    def _location(self, number: int) -> int:
        file, function, *place = self.old.file_locations[number - 1].values()
        file_name, function_name = self.old.file_names[file - 1], self.old.function_names[function - 1]
        values = (
            _number(self._files, file_name, self.tables.file_names, file_name),
            _number(self._functions, function_name, self.tables.function_names, function_name),
            *place,
        )
        row: dict[str, int] = dict(zip(LOCATION_FIELDS, values, strict=True))
        return _number(self._locations, values, self.tables.file_locations, row)


def _number(known: dict[_Key, int], key: _Key, table: list[_Row], row: _Row) -> int:
    """The id of `row`, which is added to `table` where no row with its key is there."""
    if key not in known:
        table.append(row)
        known[key] = len(table)
    return known[key]
