"""Conditions at which a run stops."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath
from types import CodeType
from typing import Protocol

import numpy as np

from hlokit.debugger.machine import Evaluated, Machine
from hlokit.debugger.numbers import KINDS, count, leaves
from hlokit.debugger.wide import BeyondUlps, Wide
from hlokit.errors import ArgumentError
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS
from hlokit.hlo.sources import scope, source_lines


class Condition(Protocol):
    """A condition that breakpoints wait for. `text` is how a user writes it."""

    text: str

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        """The reason to stop before the next instruction, which comes after `previous`; empty if there is none."""
        ...

    def after(self, machine: Machine, event: Evaluated) -> str:
        """The reason to stop after an instruction; empty if there is none."""
        ...


@dataclass
class _Condition:
    text: str

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        return ""

    def after(self, machine: Machine, event: Evaluated) -> str:
        return ""


@dataclass
class AtInstruction(_Condition):
    """Before an instruction of this name."""

    name: str

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        instruction = machine.next
        found = instruction is not None and instruction.name == self.name and machine.frame.loop is None
        return f"at %{self.name}" if found else ""


@dataclass
class AtOpcode(_Condition):
    """Before any instruction of an opcode."""

    opcode: str

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        instruction = machine.next
        found = instruction is not None and instruction.opcode == self.opcode and machine.frame.loop is None
        return f"at a {self.opcode}" if found else ""


@dataclass
class AtLine(_Condition):
    """Where instructions of a source line begin."""

    file: str
    line: int

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        if self._is_there(machine.next) and not self._is_there(previous):
            return f"at {self.file}:{self.line}"
        return ""

    def _is_there(self, instruction: Instruction | None) -> bool:
        wanted = PurePath(self.file).parts
        return instruction is not None and any(
            PurePath(place.file).parts[-len(wanted) :] == wanted and place.line <= self.line <= place.end
            for place in source_lines(instruction)
        )


@dataclass
class AtScope(_Condition):
    """Where instructions of a name scope begin."""

    scope: str

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        if self._is_in(machine.next) and not self._is_in(previous):
            return f"in the scope {self.scope}"
        return ""

    def _is_in(self, instruction: Instruction | None) -> bool:
        return instruction is not None and f"/{self.scope}/" in f"/{scope(instruction)}/"


@dataclass
class AtIteration(_Condition):
    """At the beginning of a pass of a loop, counted from 0."""

    name: str
    passes: int

    def before(self, machine: Machine, previous: Instruction | None) -> str:
        if len(machine.frames) < 2 or machine.frame.role != "body" or len(machine.frame.started) > 1:
            return ""
        caller = machine.frames[-2]
        instruction = caller.next
        if instruction is None or instruction.name != self.name or caller.loop is None:
            return ""
        return f"iteration {self.passes} of %{self.name}" if caller.loop.passes == self.passes else ""


@dataclass
class Arises(_Condition):
    """After an instruction whose value has numbers of a kind that none of its operands has."""

    kind: str

    def after(self, machine: Machine, event: Evaluated) -> str:
        found = sum(count(self.kind, part) for part in leaves(event.value))
        if not found or any(count(self.kind, part) for o in event.operands for part in leaves(o)):
            return ""
        return f"{found} {KINDS[self.kind][found > 1]} in %{event.instruction.name}, none in its operands"


@dataclass
class Satisfies(_Condition):
    """After an instruction of which a Python expression is true."""

    code: CodeType

    def after(self, machine: Machine, event: Evaluated) -> str:
        frames = machine.frames
        passes = next((f.loop.passes for f in reversed(frames) if f.loop is not None), 0)
        names = {
            "value": event.value, "operands": event.operands, "name": event.instruction.name, "np": np,
            "opcode": event.instruction.opcode, "shape": event.instruction.shape, "iteration": passes,
        }  # fmt: skip
        try:
            found = bool(eval(self.code, {"__builtins__": __builtins__}, names))
        except Exception as error:  # of the user's expression
            raise ArgumentError(f"{self.text}: {type(error).__name__} at %{event.instruction.name}: {error}") from None
        return f"%{event.instruction.name}: {self.text}" if found else ""


_LINE = re.compile(r"(?P<file>.+):(?P<line>\d+)")
_NUMBER = re.compile(r"\d+(\.\d*)?(e\d{1,2})?")
_ITERATION = re.compile(r"%?(?P<name>[^:]+):(?P<passes>\d+)")


def condition(text: str, module: HloModule) -> Condition:
    """The condition that a text says.

    `nan`, `inf`, `denormal`; `ulps:1000`; `if EXPRESSION`; `opcode:dot`; `line:train.py:12`; `scope:layer/norm`;
    `iteration:while.3:5`; else the name of an instruction. ArgumentError for what can never be.
    """
    text = text.strip()
    kind, _, rest = text.partition(":")
    if text in KINDS:
        return Arises(text, text)
    if text.startswith("if "):
        try:
            return Satisfies(text, compile(text.removeprefix("if ").strip(), "<condition>", "eval"))
        except (SyntaxError, ValueError) as error:
            raise ArgumentError(f"{text}: is not a Python expression: {error}") from None
    if kind == "ulps":
        if not _NUMBER.fullmatch(rest):
            raise ArgumentError(f"{text}: is not ulps:NUMBER")
        return BeyondUlps(text, float(rest), Wide(module))
    if kind == "opcode":
        if rest not in OPS:
            raise ArgumentError(f"{text}: {rest!r} is not an opcode")
        return AtOpcode(text, rest)
    if kind == "line":
        found = _LINE.fullmatch(rest)
        if found is None:
            raise ArgumentError(f"{text}: is not line:FILE:NUMBER")
        return AtLine(text, found["file"], int(found["line"]))
    if kind == "scope":
        return AtScope(text, rest.strip("/"))
    if kind == "iteration":
        found = _ITERATION.fullmatch(rest)
        if found is None:
            raise ArgumentError(f"{text}: is not iteration:INSTRUCTION:NUMBER")
        instruction = named(module, found["name"])
        if instruction.opcode != "while":
            raise ArgumentError(f"{text}: %{instruction.name} is a {instruction.opcode}, expected a while")
        return AtIteration(text, found["name"], int(found["passes"]))
    return AtInstruction(text, named(module, text).name)


def named(module: HloModule, name: str) -> Instruction:
    """The module's instruction of this name. ArgumentError if there is none."""
    name = name.strip().removeprefix("%")
    found = next((i for i in module.instructions() if i.name == name), None)
    if found is None:
        raise ArgumentError(f"{module.name} has no instruction {name!r}")
    return found
