"""Rows: values along the vector axis, kept on the stack between two loops over it."""

from __future__ import annotations

from dataclasses import dataclass

from hlokit.cpu import costs
from hlokit.cpu.emit.scope import Scope
from hlokit.cpu.llvm import I8, Function, Pointer, Value, register_type
from hlokit.types.dtype import DType


@dataclass(frozen=True)
class Row:
    """Values of one type. Truth values take a byte each: in a vector of bits they are packed, so that one of another
    width would find others.

    pointer  to the first, as it is stored
    """

    pointer: Pointer
    is_pred: bool

    @staticmethod
    def of(fn: Function, dtype: DType, length: int) -> Row:
        """A row of so many values."""
        is_pred = dtype.kind == "pred"
        type = I8 if is_pred else register_type(dtype)
        return Row(fn.local(type, length, costs.LINE_BYTES).to(type, dtype.bits // 8), is_pred)

    def load(self, scope: Scope) -> Value:
        """The values of the lanes of this scope."""
        with scope.region:
            value = self._place(scope).load(scope.lanes)
            return value.ne(0) if self.is_pred else value

    def store(self, value: Value, scope: Scope) -> None:
        """Keeps those of the lanes of this scope."""
        with scope.region:
            self._place(scope).store(value.zext(8) if self.is_pred else value)

    def _place(self, scope: Scope) -> Pointer:
        axis = scope.lane_axis
        assert axis is not None
        return self.pointer[scope.of_axis(axis).axes[axis]]
