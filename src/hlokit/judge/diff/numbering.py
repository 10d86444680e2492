"""Value numbers: equal integers for instructions that compute the same from the same parameters, in any module."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.module import HloModule
from hlokit.hlo.op import Op
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


class Numbering:
    """Numbers the values of several modules, in time linear in their size.

    Two instructions have the same number if op, attributes, shape, called computations and the numbers of their
    operands are the same; two computations if the numbers of their roots, and of what no instruction uses, are. Names
    do not count. Without `details` layouts do not count either, and nothing of Instruction.extra; with it, what it says
    of an instruction does.
    """

    def __init__(self, details: Callable[[Instruction], Any] | None = None) -> None:
        self.values: dict[Instruction, int] = {}
        self.computations: dict[Computation, int] = {}
        self._details = details
        self._numbers: dict[Any, int] = {}
        self._ops: dict[Op, int] = {}

    def add(self, module: HloModule) -> None:
        for computation in module.computations():
            order = computation.post_order()
            for instruction in order:
                self.values[instruction] = self.number(self._key(instruction))
            ends = tuple(sorted(self.values[i] for i in order if not i.users))
            self.computations[computation] = self.number(("computation", self.values[computation.root], ends))

    def op(self, op: Op) -> int:
        """The same number for ops that are equal; constants are by content."""
        number = self._ops.get(op)
        if number is None:
            values = (_comparable(getattr(op, a.name), self._details is not None) for a in op.attributes)
            number = self._ops[op] = self.number((type(op), *values))
        return number

    def _key(self, instruction: Instruction) -> Any:
        operands = tuple([self.values[o] for o in instruction.operands])
        called = tuple([self.computations.get(c, -1) for c in instruction.called])
        if self._details is None:
            return self.op(instruction.op), instruction.shape.logical, operands, called
        return self.op(instruction.op), self._details(instruction), operands, called

    def number(self, key: Any) -> int:
        """The number of any key: the same for equal ones."""
        return self._numbers.setdefault(key, len(self._numbers))


def _comparable(value: Any, layouts: bool) -> Any:
    if isinstance(value, Literal):
        return _digest(value)
    if isinstance(value, Shape) and not layouts:
        return value.logical
    return value


def _digest(literal: Literal) -> Any:
    """Equal for literals of the same type, sizes and bits. Content that the text left out equals none but itself."""
    if isinstance(literal.value, tuple):
        return tuple(map(_digest, literal.value))
    if literal.value is None:
        return literal.shape.logical, "elided"
    data = literal.value.tobytes()
    return literal.shape.logical, data if len(data) <= 64 else hashlib.blake2b(data, digest_size=16).digest()
