"""Values: code for nodes, in the outermost loop that binds all values that they need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hlokit.cpu.emit.rows import Row
from hlokit.cpu.emit.scope import Emission, Scope
from hlokit.cpu.llvm import IfElse, Value
from hlokit.cpu.loops.expr import Node, children, reachable
from hlokit.cpu.math import companions, primitives
from hlokit.cpu.math.functions import has_short_rsqrt
from hlokit.types.dtype import DType

Writer = Callable[[Node, Scope], Any]
"""Writes a node's code into a scope that has what it needs; gives its value, of a fold the values of its parts."""


class Values:
    """The values of a kernel's nodes. `writers`: by op what writes a node; of other ops it is a primitive."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.writers: dict[str, Writer] = {"const": self._const, "part": _part, "hole": _hole}
        self._orders: dict[Node, list[Node]] = {}
        self._called: set[str] = set()

    def value(self, node: Node, scope: Scope) -> Value:
        """The node's value, readable in `scope`."""
        found = scope.holder(node.deps).memo.get(node)
        if found is not None:
            return found
        kept: dict[Node, Row] = {}
        loops = self.emission.loops
        if loops.spills and scope.lane_axis is loops.vector:
            for below in self.order(node):  # folds outside, which fill rows, before what reads them; not itself
                if below.op == "fold" and below is not node and below not in scope.holder(below.deps).memo:
                    if not below.deps & loops.vector.bit and below.data.scan is None:  # type: ignore[union-attr]
                        self.value(below, scope.holder(below.deps))
            kept = self._kept(scope)
        for below in self._order_to(node, kept) if kept else self.order(node):
            holder = scope.holder(below.deps)
            if below not in holder.memo:
                row = kept.get(below)
                writer = self.writers.get(below.op, self.primitive)
                holder.memo[below] = writer(below, holder) if row is None else row.load(holder)
        return scope.holder(node.deps).memo[node]

    def order(self, node: Node) -> list[Node]:
        """The nodes that the node needs, children first; a fold's insides are its own affair."""
        found = self._orders.get(node)
        if found is None:
            found = self._orders[node] = reachable([node], _needed)
            self._called |= companions.of_many(found)
        return found

    def spread(self, value: Value, lanes: int, scope: Scope) -> Value:
        """The value with so many lanes."""
        if value.type.lanes == lanes:
            return value
        if value.number is not None:
            return value.splat(lanes)
        key = ("splat", value.text, lanes)
        found = scope.memo.get(key)
        if found is None:
            with scope.region:
                found = scope.memo[key] = value.splat(lanes)
        return found

    # -- rows: what a fold computed and the main loop needs again

    def _kept(self, scope: Scope) -> dict[Node, Row]:
        """The nodes that a row holds for the lanes of this scope."""
        found: dict[Node, Row] = {}
        outer: Scope | None = scope
        while outer is not None:
            for node in self.emission.loops.spills:
                row = outer.memo.get(("row", node))
                if row is not None:
                    found.setdefault(node, row)
            outer = outer.parent
        return found

    def _order_to(self, node: Node, kept: dict[Node, Row]) -> list[Node]:
        """As `order`, but rows need nothing."""
        return reachable([node], lambda here: [] if here in kept else _needed(here))

    # -- primitives

    def _const(self, node: Node, scope: Scope) -> Value:
        return primitives.constant(self.emission.fn, node.data, node.dtype)

    def primitive(self, node: Node, scope: Scope) -> Value:
        """A primitive of operands that are in scopes around this one."""
        args = node.args
        values: list[Value] = [scope.holder(a.deps).memo[a] for a in args]
        lanes = max([v.type.lanes for v in values])
        of = args[0].dtype if node.op != "select" else args[1].dtype
        if node.op == "select" and values[0].type.lanes == 1:  # one condition for all lanes stays one
            spread = [values[0], *[self.spread(v, lanes, scope) for v in values[1:]]]
        else:
            spread = [self.spread(v, lanes, scope) for v in values]
        if node.op == "div":
            if lanes > 1 and self._is_inverted(values[1], of):
                return self._divided(spread[0], values[1], node, scope)
            if (squared := self._under_root(args[1], scope)) is not None:
                return self._divided_by_root(node, spread[0], self.spread(squared, lanes, scope), scope)
        strict = self.emission.loops.strict
        with scope.region:
            if node.op in self._called and of == node.dtype and of.name in ("f32", "f64"):
                return companions.call(node.op, of, spread, strict=strict)
            return primitives.emit(node.op, of, spread, node.dtype, strict=strict)

    def _under_root(self, divisor: Node, scope: Scope) -> Value | None:
        """The number whose root the divisor is, where x * rsqrt takes less than the division."""
        if divisor.op != "sqrt" or divisor.dtype.name != "f32" or self.emission.loops.strict:
            return None
        if not has_short_rsqrt(self.emission.fn.target):
            return None
        return scope.holder(divisor.args[0].deps).memo.get(divisor.args[0])

    def _divided_by_root(self, node: Node, x: Value, squared: Value, scope: Scope) -> Value:
        dtype = node.dtype
        with scope.region:
            root = primitives.emit("rsqrt", dtype, [squared], dtype)
            if node.args[0].op == "const" and node.args[0].data == 1:
                return root
            return primitives.emit("mul", dtype, [x, root], dtype)

    def _is_inverted(self, divisor: Value, dtype: DType) -> bool:
        """Whether all lanes are divided by one number, found at run time: its reciprocal is taken once."""
        if divisor.type.lanes > 1 or divisor.number is not None:
            return False
        return dtype.name in ("f32", "f64") and not self.emission.loops.strict

    def _divided(self, x: Value, divisor: Value, node: Node, scope: Scope) -> Value:
        """x / s as q = x * (1 / s), corrected by what q * s - x leaves: rounded as a division is (Markstein).

        But for divisors whose bits are all ones and quotients near the ends of the range, where the last bit may
        differ. The corrections' signs keep that of a zero; an infinite q has none. Divisors that are negative or have
        no good reciprocal divide.
        """
        holder = scope.holder(node.args[1].deps)
        key = ("inverse", divisor.text)
        if key not in holder.memo:
            low, high = (-126, 125) if node.dtype.bits == 32 else (-1022, 1021)
            with holder.region:
                inverse = 1.0 / divisor
                holder.memo[key] = inverse, (divisor >= 2.0**low) & (divisor <= 2.0**high)
        inverse, is_good = holder.memo[key]
        by, times = (self.spread(v, x.type.lanes, scope) for v in (divisor, inverse))
        with scope.region as fn:
            choice = IfElse(fn, is_good)
            first = x * times
            left = first.fma(by, -x)
            better = (-left).fma(times, first)
            choice.otherwise(better.where(better.compare("ord", better), first))
            (quotient,) = choice.end(x / by)
            return quotient


def _part(node: Node, scope: Scope) -> Value:
    return scope.holder(node.args[0].deps).memo[node.args[0]][node.data]


def _hole(node: Node, scope: Scope) -> Value:
    raise AssertionError("a hole outside a combiner")


def _needed(node: Node) -> Sequence[Node]:
    """The nodes that a node's code reads; a fold's insides are written by the fold."""
    return node.data.inits if node.op == "fold" else children(node)
