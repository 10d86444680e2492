"""Edits: the ways in which a reduction makes a program smaller."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import OPS, Op
from hlokit.judge.reduce.case import Case, fitted
from hlokit.judge.reduce.shapes import resized
from hlokit.ops.control_flow import While
from hlokit.ops.structure import Constant, GetTupleElement, Parameter, Tuple
from hlokit.passes.pipeline import PASSES
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

_SMALL = 64
"""Elements of a constant that takes an instruction's place as it is; larger ones are broadcast."""


class Edit:
    """One way to make a program smaller, at each of its places.

    `sites` gives the places, as names that mean the same in copies of the case; `apply` makes the edit at one and says
    whether it did, or raises HlokitError. What comes of several is checked afterwards.
    """

    name: ClassVar[str]

    def sites(self, case: Case) -> Sequence[Any]:
        raise NotImplementedError

    def apply(self, case: Case, site: Any) -> bool:
        raise NotImplementedError


class InstructionEdit(Edit):
    """An edit at instructions: a subclass says at which, and what is done there."""

    def sites(self, case: Case) -> list[Any]:
        return [
            (computation.name, instruction.name, *choice)
            for computation in reversed(case.module.computations())
            for instruction in computation.post_order()
            for choice in self.choices(case, computation, instruction)
        ]

    def apply(self, case: Case, site: Any) -> bool:
        instruction = case.find(site[0], site[1])
        if instruction is None or instruction.parent is None:
            return False
        if tuple(site[2:]) not in set(self.choices(case, instruction.parent, instruction)):
            return False
        return self.change(case, instruction.parent, instruction, *site[2:])

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        """The ways to make the edit at an instruction: a tuple for each, empty if there is one alone."""
        raise NotImplementedError

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        raise NotImplementedError


class BecomeRoot(InstructionEdit):
    """The entry's result becomes the value of an operand of its root."""

    name = "root"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        root = computation.root
        if computation is case.module.entry and instruction in root.operands and not instruction.shape.is_token:
            yield ()

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        computation.set_root(instruction)
        return True


class BecomeParameter(InstructionEdit):
    """An instruction of the entry becomes a parameter, with the value that it had."""

    name = "parameter"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        if (
            computation is case.module.entry
            and instruction.opcode not in ("parameter", "constant", "tuple")
            and instruction is not computation.root
            and (instruction.shape.is_array or instruction.shape.is_tuple)
            and not any(leaf.is_token for leaf in instruction.shape.leaves())
        ):
            yield ()

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        number = len(computation.parameters)
        new = computation.add(Parameter(number, instruction.shape), name=f"{instruction.name}.in")
        computation.replace(instruction, new)
        if case.arguments is not None:
            case.arguments.append(fitted(case.values.get(instruction.name), instruction.shape))
        return True


class Bypass(InstructionEdit):
    """An operand of the same shape takes an instruction's place."""

    name = "bypass"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        for place, operand in enumerate(instruction.operands):
            if operand.shape.static is instruction.shape.static and operand not in instruction.operands[:place]:
                yield (place,)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        place = int(choice[0])
        computation.replace(instruction, instruction.operands[place])
        return True


class BecomeConstant(InstructionEdit):
    """A value becomes zeros or ones; a constant that is neither becomes one, or half of it."""

    name = "constant"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        shape = instruction.shape
        if not shape.is_array or any(shape.dynamic) or shape.dtype.is_complex:
            return
        if isinstance(instruction.op, Constant):
            yield from _lesser(instruction.op.literal)
        elif instruction.opcode not in ("parameter", "iota") and not _is_filled(instruction):
            yield ("0",)
            yield ("1",)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        shape = instruction.shape
        value = int(choice[0])
        if shape.size <= _SMALL or isinstance(instruction.op, Constant):
            filled = np.full(shape.dimensions, value).astype(shape.dtype.numpy)
            new = computation.add(Constant(Literal(shape, filled)), shape=shape)
        else:
            one = Literal(Shape.array(shape.dtype, ()), np.asarray(value).astype(shape.dtype.numpy))
            spread: Op = OPS["broadcast"](output_shape=shape.logical, dimensions=())
            new = computation.add(spread, [computation.add(Constant(one))], shape=shape)
        computation.replace(instruction, new)
        return True


def _lesser(literal: Literal) -> Iterator[tuple[str]]:
    if not isinstance(literal.value, np.ndarray) or not literal.value.size:
        return
    values = literal.value
    if not np.all(values == 0):
        yield ("0",)
        if not np.all(values == 1):
            yield ("1",)
            if literal.shape.is_scalar and literal.shape.dtype.is_integral and int(values) > 2:
                yield (str(int(values) // 2),)


def _is_filled(instruction: Instruction) -> bool:
    """A broadcast of a constant scalar: what a value was made already."""
    return instruction.opcode == "broadcast" and instruction.operands[0].opcode == "constant"


class Inline(InstructionEdit):
    """The computation that a call, fusion or branch calls takes its place; of a loop, one turn of its body."""

    name = "inline"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        if instruction.opcode in ("call", "fusion"):
            yield (0,)
        elif instruction.opcode == "conditional":
            yield from ((branch,) for branch in range(len(instruction.called)))
        elif instruction.opcode == "while":
            yield (instruction.op.roles.index("body"),)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        number = int(choice[0])
        called, operands = instruction.called[number], instruction.operands
        if instruction.opcode == "conditional":
            operands = operands[number + 1 : number + 2]
        call = computation.add(OPS["call"](), operands, [called])
        computation.replace(instruction, call)
        computation.inline(call)
        return True


class DropParameter(InstructionEdit):
    """A parameter of the entry that nothing uses goes, and its argument."""

    name = "unused parameter"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        unused = instruction.opcode == "parameter" and not instruction.users and instruction is not computation.root
        if unused and computation is case.module.entry:
            yield ()

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        number = computation.parameters.index(instruction)
        case.module.add_computation(_without(computation, instruction), entry=True)
        case.module.remove_computation(computation)
        if case.arguments is not None:
            del case.arguments[number]
        return True


def _without(computation: Computation, unused: Instruction) -> Computation:
    """A copy without a parameter that nothing uses; those behind it move up."""
    new = Computation(computation.name)
    values: dict[Instruction, Instruction] = {}
    for i in computation.post_order():
        if i is not unused:
            is_behind = isinstance(i.op, Parameter) and i.op.number > computation.parameters.index(unused)
            op = i.op.replace(number=i.op.number - 1) if is_behind and isinstance(i.op, Parameter) else i.op
            values[i] = new.add_unchecked(op, [values[o] for o in i.operands], i.called, i.shape, i.name)
            if i.extra is not None:
                values[i].extra = replace(i.extra, control_predecessors=[values[p] for p in i.control_predecessors])
    new.set_root(values[computation.root])
    return new


class DropOperand(InstructionEdit):
    """A concatenate, tuple or other op of any number of operands has one less; of a tuple the entry's root alone."""

    name = "operand"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        is_result = computation is case.module.entry and instruction is computation.root
        if isinstance(instruction.op, Tuple) and is_result and len(instruction.operands) > 1:
            yield from ((place,) for place in range(len(instruction.operands)))

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        (place,) = choice
        computation.set_root(computation.add(instruction.op, _but(instruction.operands, int(place))))
        return True


class DropState(InstructionEdit):
    """A loop has one element of its state less: one that its body only hands on, or computes for nobody."""

    name = "loop state"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        if not isinstance(instruction.op, While) or not instruction.shape.is_tuple:
            return
        if instruction is computation.root and computation is not case.module.entry:
            return
        values = [instruction, *(c.parameters[0] for c in instruction.called)]
        roots = [instruction.operands[0], *(c.root for c in instruction.called if c.root.shape.is_tuple)]
        if not all(isinstance(root.op, Tuple) for root in roots) or len(instruction.shape.elements) < 2:
            return
        if all(isinstance(user.op, GetTupleElement) for value in values for user in value.users):
            for place in range(len(instruction.shape.elements)):
                if all(self._is_handed_on(c, place) for c in instruction.called):
                    yield (place,)

    @staticmethod
    def _is_handed_on(computation: Computation, place: int) -> bool:
        """Nothing but the element itself is made of it: by a condition, nothing at all."""
        taken = [user for user in computation.parameters[0].users if user.op.index == place]  # type: ignore[attr-defined]
        users = [(user, where) for one in taken for user, where in one.users.items()]
        root = computation.root
        return all(user is root and root.shape.is_tuple and where == place for user, where in users)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        place = int(choice[0])
        init = instruction.operands[0]
        start = computation.add(Tuple(), _but(init.operands, place))
        called = [case.module.add_computation(_with_state(c, place, start.shape)) for c in instruction.called]
        loop = computation.add(instruction.op, [start], called)
        for user in list(instruction.users):
            index = int(user.op.index)  # type: ignore[attr-defined]
            if index == place:
                computation.replace(user, init.operands[place])
            else:
                computation.replace(user, computation.add(GetTupleElement(index - (index > place)), [loop]))
        if instruction is computation.root:
            computation.set_root(loop)
        return True


def _with_state(computation: Computation, place: int, state: Shape) -> Computation:
    """A copy of a loop's body or condition for a state without the element at `place`."""
    new = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for i in computation.post_order():
        op, operands = i.op, i.operands
        if isinstance(op, Parameter):
            copies[i] = new.add(Parameter(0, state), name=i.name)
            continue
        if isinstance(op, GetTupleElement) and operands[0] is computation.parameters[0]:
            if op.index == place:
                continue
            op = GetTupleElement(op.index - (op.index > place))
        if i is computation.root and i.shape.is_tuple:
            operands = _but(operands, place)
        copies[i] = new.add(op, [copies[o] for o in operands], i.called, name=i.name)
    new.set_root(copies[computation.root])
    return new


class BareState(InstructionEdit):
    """The state of a loop is an array in place of a tuple of one array."""

    name = "bare state"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        if not isinstance(instruction.op, While) or not instruction.shape.is_tuple:
            return
        values = [instruction, *(c.parameters[0] for c in instruction.called)]
        roots = [instruction.operands[0], *(c.root for c in instruction.called if c.root.shape.is_tuple)]
        is_taken = all(isinstance(user.op, GetTupleElement) for value in values for user in value.users)
        is_result = computation is case.module.entry or instruction is not computation.root
        is_made = len(instruction.shape.elements) == 1 and all(isinstance(root.op, Tuple) for root in roots)
        if is_made and is_taken and is_result:
            yield ()

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        called = [case.module.add_computation(_with_bare_state(c)) for c in instruction.called]
        loop = computation.add(instruction.op, instruction.operands[0].operands, called)
        for user in list(instruction.users):
            computation.replace(user, loop)
        if instruction is computation.root:
            computation.set_root(loop)
        return True


def _with_bare_state(computation: Computation) -> Computation:
    """A copy of a loop's body or condition whose parameter, and result, are the one element of the tuple."""
    new = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    parameter, root = computation.parameters[0], computation.root
    state = new.add(Parameter(0, parameter.shape.elements[0]), name=parameter.name)
    for i in computation.post_order():
        if i is parameter or (i is root and i.shape.is_tuple):
            continue
        is_state = isinstance(i.op, GetTupleElement) and i.operands[0] is parameter
        copies[i] = state if is_state else new.add(i.op, [copies[o] for o in i.operands], i.called, name=i.name)
    new.set_root(copies[root.operands[0] if root.shape.is_tuple else root])
    return new


class DropArray(InstructionEdit):
    """A reduce, reduce-window, scatter or sort of several arrays has one less, and its computation has too: parameters
    that are used become zeros."""

    name = "array"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        count = _arrays_of(instruction)
        is_result = computation is case.module.entry or instruction is not computation.root
        taken = [u.op.index if isinstance(u.op, GetTupleElement) else None for u in instruction.users]
        if count < 2 or None in taken or not is_result:
            return
        if instruction.opcode == "sort" or isinstance(instruction.called[0].root.op, Tuple):
            yield from ((place,) for place in range(count) if place not in taken)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        place, count, operands = int(choice[0]), _arrays_of(instruction), instruction.operands
        is_sort = instruction.opcode == "sort"
        second = place if is_sort else len(operands) - count + place
        kept = [o for number, o in enumerate(operands) if number not in (place, second)]
        parameters = (2 * place, 2 * place + 1) if is_sort else (place, count + place)
        called = _with_less(instruction.called[0], parameters, None if is_sort else place)
        new = computation.add(instruction.op, kept, [case.module.add_computation(called)])
        for user in list(instruction.users):
            index = int(user.op.index)  # type: ignore[attr-defined]
            part = new if count == 2 else computation.add(GetTupleElement(index - (index > place)), [new])
            computation.replace(user, part)
        if instruction is computation.root:
            computation.set_root(new)
        return True


def _arrays_of(instruction: Instruction) -> int:
    """The arrays that a variadic op with a computation takes; 0 for others."""
    counts = {"sort": len(instruction.operands)}
    counts |= dict.fromkeys(("reduce", "reduce-window", "scatter"), len(instruction.operands) // 2)
    return counts.get(instruction.opcode, 0)


def _with_less(computation: Computation, parameters: Sequence[int], place: int | None) -> Computation:
    """A copy of a computation without these parameters, and without the element at `place` of its result."""
    new = Computation(computation.name)
    copies: dict[Instruction, Instruction] = {}
    for i in computation.post_order():
        op, operands, root = i.op, i.operands, place is not None and i is computation.root
        if isinstance(op, Parameter) and op.number in parameters:
            zeros = np.zeros(i.shape.dimensions, i.shape.dtype.numpy)
            copies[i] = new.add(Constant(Literal(i.shape, zeros)), name=i.name)
        elif isinstance(op, Parameter):
            number = op.number - sum(p < op.number for p in parameters)
            copies[i] = new.add(Parameter(number, i.shape), name=i.name)
        elif root and len(operands) == 2:
            copies[i] = copies[operands[1 - int(place or 0)]]
        else:
            kept = _but(operands, int(place or 0)) if root else operands
            copies[i] = new.add(op, [copies[o] for o in kept], i.called, name=i.name)
    new.set_root(copies[computation.root])
    return new


class Merge(InstructionEdit):
    """An earlier value of the same shape takes an instruction's place, in programs that are small already."""

    name = "merge"
    _MOST_INSTRUCTIONS, _MOST_VALUES = 30, 3

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        is_called = computation is not case.module.entry
        if case.size > self._MOST_INSTRUCTIONS or (instruction.opcode == "parameter" and is_called):
            return
        order = computation.post_order()
        before = order[: order.index(instruction)]
        alike = [v for v in before if v.shape.static is instruction.shape.static and v not in instruction.operands]
        yield from ((value.name,) for value in alike[: self._MOST_VALUES])

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        (name,) = choice
        computation.replace(instruction, next(i for i in computation.instructions if i.name == name))
        return True


def _but(operands: Sequence[Instruction], place: int) -> tuple[Instruction, ...]:
    return (*operands[:place], *operands[place + 1 :])


class DropExtra(Edit):
    """Metadata, shardings and the like go: of the header, of computations, of instructions."""

    name = "annotations"
    _FIELDS: ClassVar[dict[str, Any]] = {
        "metadata": None, "sharding": None, "frontend_attributes": {}, "statistics": "", "origin": "",
        "backend_config": "", "control_predecessors": [],
    }  # fmt: skip

    def sites(self, case: Case) -> list[str]:
        fresh = vars(HloModule(""))
        names = [n for n in fresh if n not in ("name", "_computations", "entry_or_none", "is_unverified")]
        said = [f"header {n}" for n in names if getattr(case.module, n) != fresh[n]]
        extras = [i.extra for c in case.module.all_computations for i in c.instructions if i.extra is not None]
        return said + [n for n, empty in self._FIELDS.items() if any(getattr(e, n) != empty for e in extras)]

    def apply(self, case: Case, site: str) -> bool:
        if site.startswith("header "):
            name = site.removeprefix("header ")
            setattr(case.module, name, vars(HloModule(""))[name])
            return True
        for computation in case.module.all_computations:
            for instruction in computation.instructions:
                if instruction.extra is not None:
                    setattr(instruction.extra, site, copy(self._FIELDS[site]))
        return True


class DefaultAttribute(InstructionEdit):
    """An attribute takes its default value."""

    name = "attribute"

    def choices(self, case: Case, computation: Computation, instruction: Instruction) -> Iterator[tuple[Any, ...]]:
        op = instruction.op
        yield from ((a.name,) for a in op.attributes if not a.required and getattr(op, a.name) != a.default)

    def change(self, case: Case, computation: Computation, instruction: Instruction, *choice: Any) -> bool:
        attribute = next(a for a in instruction.op.attributes if a.name == choice[0])
        op: Op = instruction.op.replace(**{attribute.name: attribute.default})
        new = computation.add(op, instruction.operands, instruction.called)
        new.extra = instruction.extra
        computation.replace(instruction, new)
        return True


class DefaultLayout(Edit):
    """All layouts become the default ones."""

    name = "layouts"

    def sites(self, case: Case) -> list[str]:
        return [] if all(i.shape is i.shape.logical for i in case.module.instructions()) else ["layouts"]

    def apply(self, case: Case, site: str) -> bool:
        case.module = resized(case.module, {})
        return True


class SmallerSize(Edit):
    """Every dimension of one size becomes smaller, throughout the program."""

    name = "size"

    def sites(self, case: Case) -> list[tuple[int, int]]:
        sizes = {n for i in case.module.instructions() for s in i.shape.leaves() for n in s.dimensions if n > 1}
        return [(n, m) for n in sorted(sizes, reverse=True) for m in dict.fromkeys((1, 2, 3, n // 2)) if 0 < m < n]

    def apply(self, case: Case, site: tuple[int, int]) -> bool:
        case.module = resized(case.module, {site[0]: site[1]})
        if case.arguments is not None:
            parameters = case.module.entry.parameters
            case.arguments = [fitted(a, p.shape) for a, p in zip(case.arguments, parameters, strict=True)]
        return True


class RunPass(Edit):
    """A pass simplifies the program."""

    name = "pass"
    _PASSES = ("call-inliner", "tuple-simplifier", "cse", "dce", "algsimp", "constant-folding")

    def sites(self, case: Case) -> list[str]:
        return [name for name in self._PASSES if name in PASSES]

    def apply(self, case: Case, site: str) -> bool:
        before = case.size
        return PASSES[site]().run(case.module) is not False and case.size < before


EDITS: tuple[Edit, ...] = (
    BecomeRoot(), BecomeParameter(), Inline(), DropParameter(), DropOperand(), DropArray(), DropState(),
    BareState(), Bypass(), RunPass(), SmallerSize(), BecomeConstant(), Merge(), DropExtra(), DefaultLayout(),
    DefaultAttribute(),
)  # fmt: skip
"""In the order in which they are tried: what takes away most first."""
