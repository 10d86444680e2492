"""Callee: a called computation as a function of values, one call at a time or batched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlokit.hlo.values import is_sequence
from hlokit.interpreter.evaluate import run
from hlokit.types.shape import Shape

if TYPE_CHECKING:
    from hlokit.hlo.computation import Computation
    from hlokit.hlo.instruction import Instruction
    from hlokit.interpreter.process import Process

_UFUNCS = {
    "add": np.add,
    "multiply": np.multiply,
}
"""Binary ops whose reference is, step by step, exactly this ufunc on floating and complex types."""

_PLAIN = ("parameter", "constant", "tuple", "get-tuple-element")
"""Ops that batches of scalars pass through as they are."""


class Callee:
    """A called computation as an op's reference receives it.

    `callee(*values)` evaluates it once. `callee.batched(*arrays)`, for computations of scalars, evaluates it for
    every element of arrays of one shape (0-d ones are the same for all) and gives arrays of that shape: in one
    sweep where all its ops are elementwise, else element by element in row-major order.
    """

    def __init__(self, process: Process, computation: Computation) -> None:
        self.process = process
        self.computation = computation
        self.result: Shape = computation.root.shape
        self._elementwise: bool | None = None

    def __call__(self, *values: Any) -> Any:
        return run(self.process, self.computation, values)

    @property
    def is_elementwise(self) -> bool:
        """Every op in it (and in what it calls) works elementwise on scalars."""
        if self._elementwise is None:
            self._elementwise = _is_elementwise(self.computation)
        return self._elementwise

    def batched(self, *arrays: Any) -> Any:
        arrays = tuple(map(np.asarray, arrays))  # an element of an array is a scalar of NumPy's
        shape = np.broadcast_shapes(*(a.shape for a in arrays))
        if self.is_elementwise:
            return _spread(self._sweep(*arrays), shape)
        spread = [np.broadcast_to(a, shape) for a in arrays]
        outputs = [np.empty(shape, leaf.dtype.numpy) for leaf in self.result.leaves()]
        for index in np.ndindex(*shape):
            value = self(*(a[*index, ...] for a in spread))  # the dots keep an array of rank 0 an array
            for output, part in zip(outputs, value if self.result.is_tuple else (value,), strict=True):
                output[index] = part
        return tuple(outputs) if self.result.is_tuple else outputs[0]

    @property
    def is_associative(self) -> bool:
        """It is one op on two scalars whose fold no grouping and no order of the elements can change."""
        op = self.computation.single_op
        return op is not None and op.commutative and op.associates(self.result.dtype)

    @property
    def is_commutative(self) -> bool:
        """It is one commutative op on two scalars."""
        op = self.computation.single_op
        return op is not None and op.commutative

    def fold_ufunc(self) -> np.ufunc | None:
        """The NumPy ufunc that this computation of two scalars is, if ufunc.accumulate gives its left fold."""
        op = self.computation.single_op
        if op is None or self.result.dtype.kind not in ("floating", "complex"):
            return None
        return _UFUNCS.get(op.opcode)

    def _sweep(self, *arrays: Any) -> Any:
        return self.process.descend(self.computation, lambda: self._swept(*arrays))

    def _swept(self, *arrays: Any) -> Any:
        values: dict[int, Any] = {p.id: a for p, a in zip(self.computation.parameters, arrays, strict=True)}
        for instruction in self.computation.post_order():
            if instruction.opcode == "parameter":
                continue
            operands = [values[o.id] for o in instruction.operands]
            if instruction.called:
                (callee,) = (self.process.callee(c) for c in instruction.called)
                values[instruction.id] = callee._sweep(*operands)
            else:
                values[instruction.id] = self.of_each(instruction, operands)
        return values[self.computation.root.id]

    def of_each(self, instruction: Instruction, operands: list[Any]) -> Any:
        """An elementwise instruction's value in a sweep. Of arrays of rank 0 NumPy's functions give scalars."""
        value: Any = instruction.op.reference(*operands)
        return value if is_sequence(value) else np.asarray(value)


def _spread(value: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(value, tuple):
        return tuple(_spread(part, shape) for part in value)  # pyright: ignore[reportUnknownVariableType]
    return np.broadcast_to(value, shape)


def _is_elementwise(computation: Computation) -> bool:
    """Every op of it, and of all that it calls, works elementwise on scalars."""
    stack, seen = [computation], {computation}
    while stack:
        for instruction in stack.pop().instructions:
            if any(leaf.dimensions or not leaf.is_array for leaf in instruction.shape.leaves()):
                return False
            if instruction.opcode == "call":
                new = [c for c in instruction.called if c not in seen]
                seen.update(new)
                stack += new
            elif instruction.opcode not in _PLAIN and not instruction.op.elementwise:
                return False
    return True
