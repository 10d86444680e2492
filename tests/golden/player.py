"""Plays a golden program: turns its steps into calls of hlokit's builder by the table in calls.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.golden.calls import CALLS, Call
from tests.golden.cases import Array, Program, decode_array


class PlayerError(Exception):
    """The table does not know this operation or these arguments: a gap of the runner, not of the library."""


class Player:
    """Plays programs with `library`, which is the package hlokit or a recorder that stands in for it."""

    def __init__(self, library: Any) -> None:
        self.library = library

    def build(self, program: Program, name: str = "main") -> Any:
        """The module that the program builds."""
        builder, root = self._play(program, name)
        return builder.build(root)

    def _build_computation(self, program: Program) -> Any:
        builder, root = self._play(program, "computation")
        return builder.build_computation(root)

    def _play(self, program: Program, name: str) -> tuple[Any, Any]:
        builder = self.library.Builder(name)
        values: dict[str, Any] = {}
        for number, shape in enumerate(program["params"]):
            values[f"%p{number}"] = builder.parameter(number, self.library.parse_shape(shape), f"p{number}")
        for number, step in enumerate(program["steps"]):
            values[f"%s{number}"] = self._step(builder, values, step)
        return builder, self._value(builder, values, program["root"])

    def _step(self, builder: Any, values: dict[str, Any], step: dict[str, Any]) -> Any:
        call = find_call(step["op"], step["args"])
        given = {key: self._argument(builder, values, key, value) for key, value in step["args"].items()}
        given["builder"] = builder
        keywords = {key: given[key] for key in call.keyword if key in given}
        owner, name = (builder, call.function[2:]) if call.function.startswith("b.") else (self.library, call.function)
        return getattr(owner, name)(*(given[key] for key in call.positional), **keywords)

    def _argument(self, builder: Any, values: dict[str, Any], key: str, value: Any) -> Any:
        if key in ("new_element_type", "preferred_element_type", "type"):
            return self.library.dtype(value)
        if key in ("shape", "shape_with_layout") and isinstance(value, str):
            return self.library.parse_shape(value)
        return self._plain_argument(builder, values, value)

    def _plain_argument(self, builder: Any, values: dict[str, Any], value: Any) -> Any:
        match value:
            case str() if value.startswith("%"):
                return self._value(builder, values, value)
            case {"steps": _}:
                return self._build_computation(value)
            case {"dtype": _, "data": _}:
                return decode_array(value)
            case list():
                return [self._plain_argument(builder, values, item) for item in value]
            case _:
                return value

    def _value(self, builder: Any, values: dict[str, Any], reference: str) -> Any:
        """%p0, %s3, or %s3.1: the second result of step 3."""
        name, _, index = reference.partition(".")
        value = values[name]
        if not index:
            return value
        if isinstance(value, (tuple, list)):
            return value[int(index)]
        return self.library.get_tuple_element(value, int(index))


def find_call(op: str, arguments: dict[str, Any]) -> Call:
    """The line of the table for an operation with these arguments."""
    if op not in CALLS:
        raise PlayerError(f"no line for {op}")
    for call in CALLS[op]:
        if call.fits(arguments):
            return call
    raise PlayerError(f"no line for {op}({', '.join(arguments)})")


def flatten(result: Any) -> list[Array]:
    """The leaves of a possibly nested tuple, in order."""
    if not isinstance(result, (tuple, list)):
        return [result]
    leaves: list[Array] = []
    pending: list[Any] = [result]
    while pending:
        value = pending.pop()
        if isinstance(value, (tuple, list)):
            pending.extend(reversed(value))  # pyright: ignore[reportUnknownArgumentType]
        else:
            leaves.append(value)
    return leaves


def called_functions(programs: Sequence[Program]) -> set[str]:
    """The functions of the package ("add") and methods of the builder ("b.iota") that the programs call."""
    found: set[str] = set()
    pending: list[Any] = list(programs)
    while pending:
        item = pending.pop()
        if isinstance(item, dict) and "steps" in item:
            for step in item["steps"]:
                found.add(find_call(step["op"], step["args"]).function)
                pending.extend(step["args"].values())
        elif isinstance(item, list):
            pending.extend(item)
    return found
