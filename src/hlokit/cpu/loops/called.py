"""Called computations of scalars, by the forms of their ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hlokit.cpu.loops.arithmetic import NodeEmitter
from hlokit.errors import UnsupportedError
from hlokit.forms.affine import Index
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_sequence
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.types.shape import Shape


class CalledFunction:
    """A called computation of scalars, by the forms of its ops."""

    def __init__(self, emit: NodeEmitter, computation: Computation) -> None:
        self.emit = emit
        self.computation = computation

    def __call__(self, *arguments: Any) -> Any:
        values: dict[Instruction, Any] = {}
        for instruction in self.computation.post_order():
            values[instruction] = self._value(instruction, arguments, values)
        return values[self.computation.root]

    def results(self, *arguments: Any) -> tuple[Any, ...]:
        """The results as a tuple, also where there is one."""
        value: Any = self(*arguments)
        return tuple(value) if is_sequence(value) else (value,)

    def _value(self, instruction: Instruction, arguments: Sequence[Any], values: dict[Instruction, Any]) -> Any:
        op = instruction.op
        operands = [values[o] for o in instruction.operands]
        if isinstance(op, Parameter):
            return arguments[op.number]
        if isinstance(op, Tuple):
            return tuple(operands)
        if isinstance(op, GetTupleElement):
            return operands[0][op.index]
        if op.calls_through:
            return CalledFunction(self.emit, instruction.called[0])(*operands)
        if op.form not in ("map", "index") or not instruction.shape.is_scalar:
            raise UnsupportedError(f"{instruction.name}: {op.opcode} in a computation of scalars")
        self.emit.check_exact(instruction)
        called = {role: CalledFunction(self.emit, c) for role, c in instruction.called_by_role()}
        readers = [Known(o, i.shape) for o, i in zip(operands, instruction.operands, strict=True)]
        return op.element(self.emit, (), *readers, **called)


@dataclass(frozen=True)
class Turned:
    """A combiner that takes the element first, then the accumulator."""

    combiner: CalledFunction

    def results(self, accumulator: Any, element: Any) -> tuple[Any, ...]:
        return self.combiner.results(element, accumulator)


class Known:
    """A reader of a scalar that is there already."""

    def __init__(self, value: Any, shape: Shape) -> None:
        self.value = value
        self.shape = shape

    def __call__(self, index: Index) -> Any:
        return self.value
