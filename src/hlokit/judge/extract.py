"""Extracting: a module of one instruction, or of all between two instructions, with the values of its operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.devices.evaluate import evaluate
from hlokit.errors import ArgumentError
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.judge.reduce.case import Case
from hlokit.ops.structure import Parameter


def extracted(module: HloModule, name: str, first: str = "", arguments: Sequence[Any] | None = None) -> Case:
    """The instruction `name` alone, its operands as parameters; or with all between it and the instruction `first`.

    With arguments of the whole program, those of the new one are the operands' values on the reference, where the
    instruction runs for the first time. Constants stay constants.

    Raises ArgumentError for names that the module does not have, or that no path connects.
    """
    copy = module.clone()
    last = _found(copy, name)
    computation = last.parent
    assert computation is not None
    kept = {last} if not first else _between(_found(copy, first), last)
    values = {} if arguments is None else _first_values(module, computation.name, arguments)
    taken: list[Any] = []
    new = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for i in computation.post_order():
        if i in kept:
            operands = [_operand(o, new, copies, values, taken) for o in i.operands]
            copies[i] = new.add_unchecked(i.op, operands, i.called, i.shape, i.name)
            copies[i].extra = i.extra
            copies[i].ensure_extra().control_predecessors = []
    new.set_root(copies[last])
    is_entry = computation is copy.entry
    copy.add_computation(new, entry=True)
    if is_entry:
        copy.remove_computation(computation)
    case = Case(copy, None if arguments is None else taken)
    if not case.finish(keeps_called=True):
        raise ArgumentError(f"{name} does not stand alone: its module breaks a rule of the language")
    return case


def _operand(
    operand: Instruction,
    new: Computation,
    copies: dict[Instruction, Instruction],
    values: dict[str, Any],
    taken: list[Any],
) -> Instruction:
    """The copy of an operand: a constant as it is, anything else as a parameter."""
    if operand not in copies:
        if operand.opcode == "constant":
            copies[operand] = new.add_unchecked(operand.op, [], (), operand.shape, operand.name)
        else:
            if operand.shape.is_token:
                raise ArgumentError(f"{operand.name} is a token: what takes one cannot stand alone")
            copies[operand] = new.add(Parameter(len(taken), operand.shape), name=operand.name)
            taken.append(values.get(operand.name))
    return copies[operand]


def _found(module: HloModule, name: str) -> Instruction:
    names = {i.name: i for i in module.instructions()}
    found = names.get(name.removeprefix("%"))
    if found is None:
        from difflib import get_close_matches

        close = " or ".join(get_close_matches(name.removeprefix("%"), names, 3))
        raise ArgumentError(f"{module.name} has no instruction {name}" + (f"; did you mean {close}?" if close else ""))
    return found


def _between(first: Instruction, last: Instruction) -> set[Instruction]:
    """The instructions on the paths from one to the other, both included."""
    if first.parent is not last.parent or first.parent is None:
        raise ArgumentError(f"{first.name} and {last.name} are not in the same computation")
    order = first.parent.post_order()
    after: set[Instruction] = {first}
    for i in order:
        if any(o in after for o in i.operands):
            after.add(i)
    before: set[Instruction] = {last}
    for i in reversed(order):
        if i in before:
            before.update(i.operands)
    if last not in after:
        raise ArgumentError(f"{last.name} does not depend on {first.name}")
    return after & before


def _first_values(module: HloModule, computation: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """The value that each operand in the computation has when it is first used.

    Raises ArgumentError if it does not run.
    """
    values: dict[str, Any] = {}

    def keep(instruction: Instruction, operands: tuple[Any, ...]) -> None:
        if instruction.parent is not None and instruction.parent.name == computation:
            for operand, value in zip(instruction.operands, operands, strict=True):
                values.setdefault(operand.name, value)

    evaluate(module, *arguments, before=keep)
    if not values:
        raise ArgumentError(f"the computation {computation} does not run by itself with these arguments")
    return values
