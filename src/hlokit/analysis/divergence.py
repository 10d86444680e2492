"""Divergence: which control flow may differ between the devices that run one module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.hlo.values import is_sequence
from hlokit.ops.asynchronous import AsyncStart
from hlokit.ops.control_flow import Conditional, While
from hlokit.ops.structure import GetTupleElement, Parameter, Tuple
from hlokit.types.shape import Shape


class Divergence:
    """Finds the loops and conditionals whose course may differ from device to device and matters to others.

    A value varies if it may differ: arguments, ids, infeeds, random numbers, and all that is computed from them, but
    for what a collective over all devices makes of it. Varying values are trees of booleans, one for each leaf.

    matters     says of an instruction whether it, or what it calls, has to do with other devices
    whole       says of a collective whether one group holds all devices
    found       the loops and conditionals, in the order of the walk
    """

    def __init__(self, matters: Callable[[Instruction], bool], whole: Callable[[Instruction], bool]) -> None:
        self.matters = matters
        self.whole = whole
        self.found: dict[Instruction, None] = {}
        self._known: dict[tuple[Computation, Any], Any] = {}

    def entry(self, computation: Computation) -> None:
        self._result(computation, tuple(_all(p.shape, True) for p in computation.parameters))

    def _result(self, computation: Computation, arguments: tuple[Any, ...]) -> Any:
        key = (computation, arguments)
        if key not in self._known:
            values: dict[Instruction, Any] = {}
            for instruction in computation.post_order():
                values[instruction] = self._value(instruction, [values[o] for o in instruction.operands], arguments)
            self._known[key] = values[computation.root]
        return self._known[key]

    def _value(self, instruction: Instruction, operands: list[Any], arguments: Sequence[Any]) -> Any:
        op, shape = instruction.op, instruction.shape
        if isinstance(op, Parameter):
            return arguments[op.number]
        if isinstance(op, Tuple):
            return tuple(operands)
        if isinstance(op, GetTupleElement):
            return operands[0][op.index] if is_sequence(operands[0]) else operands[0]
        if op.passes_on:
            return operands[0]
        if op.picks is not None and is_sequence(operands[0]):
            return operands[0][op.picks]
        if isinstance(op, While):
            return self._loop(instruction, operands[0])
        if isinstance(op, Conditional):
            return self._conditional(instruction, operands)
        if op.calls_through:
            return self._result(instruction.called[0], tuple(operands))
        if isinstance(op, AsyncStart):
            self._result(instruction.called[0], tuple(operands))
            return _all(shape, True)
        if any(self.matters(i) for called in instruction.called for i in called.instructions):
            self.found[instruction] = None  # how often it calls depends on the op
        if op.communication.same_in_group and self.whole(instruction):
            if not op.communication.keeps_operands:
                return _all(shape, False)
            return tuple(_all(element, number == 0) for number, element in enumerate(shape.elements))
        return _all(shape, op.has_side_effect() or op.asks_device or any(map(_any, operands)))

    def _loop(self, loop: Instruction, state: Any) -> Any:
        condition, body = loop.called
        while True:
            if self._result(condition, (state,)) is not False:
                if self.matters(loop):
                    self.found[loop] = None
                state = _all(loop.shape, True)
            after = _either(state, self._result(body, (state,)))
            if after == state:
                return state
            state = after

    def _conditional(self, instruction: Instruction, operands: list[Any]) -> Any:
        selector, *branches = operands
        results = [self._result(c, (v,)) for c, v in zip(instruction.called, branches, strict=True)]
        if selector is not False:
            if self.matters(instruction):
                self.found[instruction] = None
            return _all(instruction.shape, True)
        merged = results[0]
        for result in results[1:]:
            merged = _either(merged, result)
        return merged


def _all(shape: Shape, varies: bool) -> Any:
    """Every leaf alike; tokens never vary."""
    if shape.is_tuple:
        return tuple(_all(element, varies) for element in shape.elements)
    return varies and shape.is_array


def _any(value: Any) -> bool:
    return any(map(_any, value)) if is_sequence(value) else value


def _either(a: Any, b: Any) -> Any:
    return tuple(map(_either, a, b)) if is_sequence(a) else a or b
