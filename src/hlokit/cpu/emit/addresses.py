"""Addresses: affine expressions of induction variables and of run-time integers, as sums and as array positions."""

from __future__ import annotations

from typing import Any, NamedTuple

from hlokit.cpu.emit.scope import BufferTable, Scope
from hlokit.cpu.emit.values import Values
from hlokit.cpu.llvm import Index, Pointer, Value, register_type, stored_type
from hlokit.cpu.loops.expr import Buffer, LoopAxis, Node, RuntimeInt
from hlokit.forms.affine import Affine
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType


class Terms(NamedTuple):
    """The terms of an affine.

    lane     the coefficient of the axis that goes by vectors
    scalars  (the scope that has it, the number, its factor), outermost first; of the lane axis the first lane's
    vectors  (a number for each lane, its factor)
    """

    lane: int
    scalars: list[tuple[Scope, Index, int]]
    vectors: list[tuple[Index, int]]


class LanePlace(NamedTuple):
    """Where the lanes of an access lie: `pointer` to the first lane's element, and what adds to it in others."""

    pointer: Pointer
    lane: int
    vectors: list[tuple[Index, int]]


class Addresses:
    """Writes affines, as values and as addresses; what is common to several is computed once, as far out as it can."""

    def __init__(self, values: Values, table: BufferTable) -> None:
        self.values, self.table = values, table
        self.loops = values.emission.loops
        self._pointers: dict[Buffer, Pointer] = {}
        values.writers["number"] = self._number_node
        values.writers["range"] = self._range

    def pointer(self, buffer: Buffer) -> Pointer:
        """The array's first element."""
        found = self._pointers.get(buffer)
        if found is None:
            found = self.table.fn.table(self.table.entry(buffer), stored_type(buffer.dtype), buffer.align)
            self._pointers[buffer] = found
        return found

    def shifted(self, affine: Affine, scope: Scope) -> int:
        """The number that the step of a tile adds to an affine."""
        tile, outer = self.loops.tile, scope
        while tile is not None and outer.parent is not None:
            if outer.bits & tile.bit:
                return affine.coefficient(tile) * outer.shift
            outer = outer.parent
        return 0

    def terms(self, affine: Affine, scope: Scope) -> Terms:
        """The affine's terms, readable in `scope`."""
        lane = 0
        scalars: list[tuple[Scope, Index, int]] = []
        vectors: list[tuple[Index, int]] = []
        for key, c in affine.terms:
            if isinstance(key, LoopAxis):
                owner = scope.of_axis(key)
                if key is scope.lane_axis:
                    lane = c
                scalars.append((owner, owner.axes[key], c))
                continue
            assert isinstance(key, RuntimeInt)
            value = self.values.value(key.node, scope)
            owner = scope.holder(key.node.deps)
            memo = ("wide", value.text)
            number = owner.memo.get(memo)
            if number is None:
                with owner.region as fn:
                    number = owner.memo[memo] = fn.index(value.cast("sext", "i64"))
            if value.type.lanes > 1:
                vectors.append((number, c))
            else:
                scalars.append((owner, number, c))
        scalars.sort(key=lambda term: term[0].depth)
        return Terms(lane, scalars, vectors)

    def address(self, buffer: Buffer, affine: Affine, scope: Scope) -> LanePlace:
        """Where the affine is in an array."""
        lane, scalars, vectors = self.terms(affine, scope)
        constant = affine.constant + self.shifted(affine, scope)
        pointer = self.pointer(buffer)
        key: tuple[Any, ...] = ()
        for owner, number, c in scalars:
            if number.number is not None:
                constant += c * int(number.number)
                continue
            key = (*key, number.text, c)
            found = owner.memo.get(("address", buffer, key))
            if found is None:
                with owner.region:
                    product = owner.memo.get(("product", number.text, c))
                    if product is None:
                        product = owner.memo["product", number.text, c] = number * c
                    found = owner.memo["address", buffer, key] = pointer[product]
            pointer = found
        if constant:
            found = scope.memo.get(("at", pointer.text, constant))
            if found is None:
                with scope.region:
                    found = scope.memo["at", pointer.text, constant] = pointer[constant]
            pointer = found
        return LanePlace(pointer, lane, vectors)

    def number(self, affine: Affine, dtype: DType, scope: Scope) -> Value:
        """An affine as a value of an integer type that holds it."""
        lane, scalars, vectors = self.terms(affine, scope)
        total, constant = self._sum(scalars, affine.constant + self.shifted(affine, scope))
        type = register_type(dtype)
        with scope.region as fn:
            if total is None:
                base = fn.constant(constant, type)
            else:
                base = (total + constant).wrapping().cast("trunc", type.scalar)
        if scope.lanes == 1 or not (lane or vectors):
            return base
        value = self.values.spread(base, scope.lanes, scope)
        with scope.region as fn:
            if lane:
                value = value + fn.vector_constant(range(0, lane * scope.lanes, lane), type)
            for term, c in vectors:
                term = term.wrapping().cast("trunc", type.scalar)
                value = value + (term if c == 1 else term * c)
        return value

    def _sum(self, scalars: list[tuple[Scope, Index, int]], constant: int) -> tuple[Index | None, int]:
        """The sum of the terms that are not constants, and the constant, with those that are: of loops of one step."""
        total: Index | None = None
        key: tuple[Any, ...] = ()
        for owner, number, c in scalars:
            if number.number is not None:
                constant += c * int(number.number)
                continue
            key = (*key, number.text, c)
            found = owner.memo.get(("sum", key))
            if found is None:
                with owner.region:
                    term = number * c
                    found = owner.memo["sum", key] = term if total is None else total + term
            total = found
        return total, constant

    def _number_node(self, node: Node, scope: Scope) -> Value:
        return self.number(node.data, node.dtype, scope)

    def _range(self, node: Node, scope: Scope) -> Value:
        """low <= affine < high."""
        affine, low, high = node.data
        is_small = affine.low >= -(2**31) and affine.high < 2**31
        dtype = dtypes.s32 if is_small else dtypes.s64
        value = self.number(affine - low if is_small else affine, dtype, scope)
        with scope.region:
            if not is_small and low:
                value = value - low
            if low <= affine.low:
                return value < high - low
            if high > affine.high:
                return value >= 0
            return value.compare("ult", high - low)
