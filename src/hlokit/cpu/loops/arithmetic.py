"""The emitter with which forms write a kernel: values are nodes, except those that are known while building."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

import numpy as np

from hlokit.cpu.loops.expr import Buffer, Expressions, LoopAxis, Node, Pair, affine_deps
from hlokit.cpu.lower.leaf import Source
from hlokit.cpu.lower.retries import Inexact, Split
from hlokit.cpu.math.half import in_half
from hlokit.forms.affine import Affine, Index, row_major
from hlokit.forms.emitter import Condition, Emitter, Value
from hlokit.forms.primitives import PRIMITIVES, Primitive
from hlokit.hlo.instruction import Instruction
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

T = TypeVar("T")


@dataclass(eq=False)
class NodeEmitter(Emitter):
    """Makes the nodes of one kernel's expressions.

    source  where constant arrays lie
    half    whether the machine computes in f16
    guards  the conditions under which alone what is being written is read
    relied  guards that nodes depend on which were made since this set was last replaced
    _exact  nodes in f32 all of whose values are ones of a narrower type: rounding to it changes none
    """

    source: Source
    _: KW_ONLY
    strict: bool = False
    half: bool = False
    expressions: Expressions = field(default_factory=Expressions, init=False)
    guards: tuple[Node, ...] = field(default=(), init=False)
    relied: set[Node] = field(default_factory=set[Node], init=False)
    _exact: dict[Node, DType] = field(default_factory=dict[Node, DType], init=False)

    def check_exact(self, instruction: Instruction) -> None:
        """Strict code computes what the reference computes, bit for bit; raises Inexact where it cannot."""
        if self.strict and not instruction.op.is_exact(*(o.shape for o in instruction.operands)):
            raise Inexact(instruction.opcode)

    def primitive(self, primitive: Primitive, operands: Sequence[Value], dtype: DType) -> Value:
        name = primitive.name
        if self.strict and primitive.ulp is not None:
            raise Inexact(name)
        if name == "complex":
            return Pair(dtype, operands[0], operands[1])  # type: ignore[arg-type]
        if name in ("real", "imag"):
            return getattr(operands[0], name)
        if name == "select":
            return self.choose(operands[0], operands[1], operands[2])
        nodes: Any = tuple(operands)
        if name in ("to_bits", "from_bits") and _is_integer_of_bytes(dtype) and _is_integer_of_bytes(nodes[0].dtype):
            if nodes[0].dtype is dtype:
                return nodes[0]
            if nodes[0].op == "const" and nodes[0].dtype.bits == dtype.bits:
                return self.expressions.const(nodes[0].data.view(dtype.numpy), dtype)
        if dtype is dtypes.pred and name in _TESTS and all(n.op == "const" and _is_whole(n.dtype) for n in nodes):
            return self.expressions.flag(bool(_TESTS[name](int(nodes[0].data), int(nodes[1].data))))
        if name in _COMPARED and nodes[0].op == "convert" and nodes[1].op == "const":
            narrow = self._narrow_comparison(name, *nodes)
            if narrow is not None:
                return narrow
        if name == "convert" and nodes[0].op == "convert":
            wide = nodes[0].args[0]
            if wide.dtype is dtype and nodes[0].dtype is self._narrow_type(wide):
                return wide
        if self.half and (narrow := in_half(self.expressions, name, nodes, dtype)) is not None:
            return narrow
        found = self._affine_result(name, nodes, dtype)
        if found is None and name == "add" and dtype.is_integral:
            found = self.expressions.integer_sum(nodes[0], nodes[1])
        found = found or self.expressions.node(name, dtype, nodes)
        if name in ("max", "min") and dtype is dtypes.f32:
            first, second = map(self._narrow_type, nodes)
            if first is not None and first is second:
                self._exact[found] = first
        return found

    def _narrow_type(self, wide: Node) -> DType | None:
        """The narrower floating type that all values of the node are ones of, if it is known."""
        if wide.op == "convert":
            narrow = wide.args[0].dtype
            return narrow if narrow.is_floating and narrow.bits < wide.dtype.bits else None
        return self._exact.get(wide)

    def _narrow_comparison(self, name: str, wide: Node, constant: Node) -> Value | None:
        """A comparison of a widened integer with a constant: in the integer's own type."""
        value = wide.args[0]
        if not (value.dtype.is_integral and wide.dtype.is_integral) or value.dtype.bits < 8:
            return None
        (least, most), (low, high) = _limits(value.dtype), _limits(wide.dtype)
        if least < low or most > high or value.dtype.kind == "pred":
            return None
        number = int(constant.data)
        if least <= number <= most:
            return self.primitive(PRIMITIVES[name], (value, self.expressions.const(number, value.dtype)), dtypes.pred)
        below = number > most  # the value is less than the constant
        return self.expressions.flag(below if name in ("lt", "le") else not below if name in ("gt", "ge") else False)

    def choose(self, condition: Any, then: Any, otherwise: Any) -> Any:
        """A select of real or complex values; no node where it is known which."""
        if then is otherwise:
            return then
        if condition.op == "const":
            return then if condition.data else otherwise
        if isinstance(then, Pair):
            real = self.choose(condition, then.real, otherwise.real)
            return Pair(then.dtype, real, self.choose(condition, then.imag, otherwise.imag))
        return self.expressions.node("select", then.dtype, (condition, then, otherwise))

    def _affine_result(self, name: str, nodes: tuple[Node, ...], dtype: DType) -> Node | None:
        """Integer arithmetic on what indices count stays affine where nothing can wrap; comparisons become ranges."""
        affines: list[Affine] = []
        for node in nodes:
            affine = _affine_of(node)
            if affine is None:
                return None
            affines.append(affine)
        if all(affine.is_constant for affine in affines):
            return None
        a, b = affines[0], affines[-1]
        result: Affine | None = None
        if name == "convert" and dtype.is_integral:
            result = a
        elif name == "add":
            result = a + b
        elif name == "sub":
            result = a - b
        elif name == "mul" and (a.is_constant or b.is_constant):
            result = a * b.constant if b.is_constant else b * a.constant
        elif name in _COMPARED:
            low, high = _COMPARED[name]
            known = self.inrange(a - b, low, high)
            return self.expressions.flag(known) if isinstance(known, bool) else known  # type: ignore[return-value]
        if result is None or not _fits(result, dtype):
            return None
        return self.expressions.node("number", dtype, (), result)

    def constant(self, value: Any, dtype: DType) -> Value:
        if dtype.is_complex:
            parts = [self.expressions.const(part, dtype.real) for part in _components(value, dtype)]
            return Pair(dtype, *parts)
        return self.expressions.const(value, dtype)

    def literal(self, literal: Literal, index: Index) -> Value:
        is_there = isinstance(literal.value, np.ndarray) and not literal.shape.dtype.is_complex
        if is_there and all(i.is_constant for i in index):
            place = tuple(i.constant for i in index)
            if all(0 <= i < n for i, n in zip(place, literal.shape.dimensions, strict=True)):
                return self.constant(literal.value[place], literal.shape.dtype)  # type: ignore[index]
        return self.load(self.source.constant(literal), literal.shape, index)

    def load(self, buffer: Buffer, shape: Shape, index: Index) -> Any:
        """An element in memory; guarded unless the index is inside for all values of the axes."""
        if shape.size == 0:
            return self.constant(0, shape.dtype)
        guards = self.guards
        if guards and all(a.low >= 0 and a.high < n for a, n in zip(index, shape.dimensions, strict=True)):
            guards = ()
        place = row_major(index, shape.dimensions)
        if guards:
            guards = _bounding(guards, affine_deps(place))
            self.relied.update(guards)
        if not shape.dtype.is_complex:
            return self.expressions.node("load", shape.dtype, guards, (buffer, place))
        parts = [self.expressions.node("load", buffer.dtype, guards, (buffer, place * 2 + k)) for k in (0, 1)]
        return Pair(shape.dtype, *parts)

    def number(self, affine: Affine) -> Value:
        dtype = dtypes.s32 if _fits(affine, dtypes.s32) else dtypes.s64
        if affine.is_constant:
            return self.expressions.const(affine.constant, dtype)
        return self.expressions.node("number", dtype, (), affine)

    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        low, high = max(low, affine.low), min(high, affine.high + 1)
        return self.expressions.node("range", dtypes.pred, (), (affine, low, high))

    def inrange(self, affine: Any, low: int, high: int) -> Condition:
        known = super().inrange(affine, low, high)
        if isinstance(known, bool):
            return known
        for guard in self.guards:
            if guard is known or guard is self._not(known):
                self.relied.add(guard)
                return guard is known
        return known

    def branch(self, conditions: Sequence[Value], then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        condition: Any = self.conjunction(conditions)
        if isinstance(condition, bool):
            return then() if condition else otherwise()
        first = self.where(conditions, then)
        second = self.where([self._not(condition)], otherwise)
        return self.choose(condition, first, second)

    def where(self, conditions: Sequence[Any], make: Callable[[], T]) -> T:
        """The result of `make`, made for places at which all guards and these conditions hold."""
        outer = self.guards
        return self.under((*outer, *(c for c in conditions if c not in outer)), make)

    def under(self, guards: tuple[Node, ...], make: Callable[[], T]) -> T:
        """The result of `make`, made under these guards alone."""
        outer, self.guards = self.guards, guards
        made = make()
        self.guards = outer
        return made

    def as_index(self, value: Value, low: int, high: int, inside: bool = False) -> Affine:
        node: Any = value
        if node.op == "const":
            return Affine.of(max(low, min(int(node.data), high - 1)))
        affine = _affine_of(node)
        if affine is not None and affine.low >= low and affine.high < high:
            return affine
        if high - low == 1:
            return Affine.of(low)
        least, most = _limits(node.dtype)
        if node.dtype.bits < 8:
            node = self.convert(node, dtypes.s8 if node.dtype.is_signed else dtypes.u8)
        if low > least and not inside:
            node = self.max(node, min(low, most))
        if high - 1 < most and not inside:
            node = self.min(node, max(high - 1, least))
        if max(low, least) > high - 1 or low > most:  # all values of the type lie on one side
            return Affine.of(high - 1 if max(low, least) > high - 1 else low)
        node = self.convert(node, dtypes.s32 if low >= -(2**31) and high <= 2**31 else dtypes.s64)
        return Affine.of(self.expressions.runtime_int(node, low, high - 1))

    def quotient(self, affine: Affine, divisor: int) -> Affine:
        for key, c in affine.terms:
            if isinstance(key, LoopAxis) and c > 0 and divisor % c == 0:
                factor = divisor // c
                if 1 < factor < key.extent and key.extent % factor == 0:
                    raise Split(key, factor)
        offset = -(affine.low // divisor) if affine.low < 0 else 0
        number: Any = self.number(affine + offset * divisor)
        node: Any = self.div(number, divisor)
        low, high = affine.low // divisor + offset, affine.high // divisor + offset
        return Affine.of(self.expressions.runtime_int(node, low, high)) - Affine.of(offset)

    def conjunction(self, conditions: Sequence[Condition]) -> Any:
        """Whether all of them hold: a node, or what is known."""
        total: Any = True
        for condition in conditions:
            if isinstance(condition, bool):
                if not condition:
                    return False
                continue
            total = condition if total is True else self.expressions.node("and", dtypes.pred, (total, condition))  # type: ignore[arg-type]
        return total

    def _not(self, condition: Any) -> Node:
        if condition.op == "not":
            return condition.args[0]
        return self.expressions.node("not", dtypes.pred, (condition,))


def _bounding(guards: tuple[Node, ...], deps: int) -> tuple[Node, ...]:
    """The guards of a load but for those about an axis that neither its place nor another guard depends on: they say
    where it is needed, not where it is inside, since steps of the axis pass them whatever other axes are at."""

    def is_needed(guard: Node) -> bool:
        axis = _tested_axis(guard)
        return axis is None or bool(axis.bit & deps) or sum(bool(g.deps & axis.bit) for g in guards) > 1

    return tuple(guard for guard in guards if is_needed(guard))


def _tested_axis(guard: Node) -> LoopAxis | None:
    """The one axis that a test of an affine is about, if steps of it pass the test."""
    test = guard.args[0] if guard.op == "not" else guard
    if test.op != "range" or len(test.data[0].terms) != 1:
        return None
    affine, low, high = test.data
    axis, c = affine.terms[0]
    if not isinstance(axis, LoopAxis):
        return None
    if test is guard and abs(c) > high - low:
        return None  # its steps may pass over the span
    return axis


_COMPARED = {
    "lt": (-(2**62), 0),
    "le": (-(2**62), 1),
    "gt": (1, 2**62),
    "ge": (0, 2**62),
    "eq": (0, 1),
}
"""The interval of the difference in which the comparison holds."""


_TESTS: dict[str, Callable[[int, int], int]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": min,
    "or": max,
}
"""Primitives that are folded of constants that are whole numbers or truth values."""


def _is_integer_of_bytes(dtype: DType) -> bool:
    return dtype.is_integral and dtype.bits >= 8 and dtype is not dtypes.pred


def _is_whole(dtype: DType) -> bool:
    return dtype.is_integral or dtype is dtypes.pred


def _affine_of(node: Node) -> Affine | None:
    if node.op == "number":
        return node.data
    return Affine.of(int(node.data)) if node.op == "const" and node.dtype.is_integral else None


def _limits(dtype: DType) -> tuple[int, int]:
    bits = dtype.bits
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if dtype.is_signed else (0, (1 << bits) - 1)


def _fits(affine: Affine, dtype: DType) -> bool:
    least, most = _limits(dtype)
    return dtype.bits >= 8 and least <= affine.low and affine.high <= most


def _components(value: Any, dtype: DType) -> tuple[Any, Any]:
    whole: Any = np.asarray(value).astype(dtype.numpy)[()]
    return whole.real, whole.imag


def parts_of(values: Sequence[Any]) -> tuple[Node, ...]:
    """Complex values as their components, in line."""
    return tuple(p for v in values for p in ((v.real, v.imag) if isinstance(v, Pair) else (v,)))
