"""Comparators of sort that are orders of keys: one comparison, or several keys in sequence."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hlokit.cpu.kernels.sort.keys import KeyMap
from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Instruction
from hlokit.ops.comparison import Compare
from hlokit.ops.elementwise import And, Or, Select
from hlokit.ops.structure import Constant, Parameter


@dataclass(frozen=True)
class SortKey:
    """An operand, or a component of a complex one (0 or 1; else None), and how its elements are ordered."""

    operand: int
    component: int | None
    map: KeyMap


@dataclass(frozen=True)
class KeyOrder:
    """The keys, the most important one first."""

    keys: tuple[SortKey, ...]


@dataclass(frozen=True)
class _Side:
    """A side of a comparison: a parameter or its component; `canonical`: with all NaNs and zeros made equal."""

    parameter: int
    component: int | None
    canonical: bool

    def partner(self) -> _Side:
        """The same of the other element."""
        return _Side(self.parameter ^ 1, self.component, self.canonical)


def recognise(computation: Computation) -> KeyOrder | None:
    """The order, if the comparator is: key k of the first element is less or greater, or equal and the next key is.

    Floats are compared in the total order, or as numbers; JAX makes zeros and NaNs equal before the total order.
    """
    keys: list[SortKey] = []
    rest: Instruction | None = computation.root
    while rest is not None:
        this, rest = _first_key(rest)
        key = _key(this)
        if key is None:
            return None
        keys.append(key)
    return KeyOrder(tuple(keys))


def _first_key(root: Instruction) -> tuple[Instruction, Instruction | None]:
    """first or (equal and rest), select(equal, rest, first): (first, rest); anything else: (itself, None)."""
    if isinstance(root.op, Select):
        equal, rest, first = root.operands
        return (first, rest) if _are_of_one_key(first, equal) else (root, None)
    if isinstance(root.op, Or):
        for first, both in (root.operands, root.operands[::-1]):
            for equal, rest in (both.operands, both.operands[::-1]) if isinstance(both.op, And) else ():
                if _are_of_one_key(first, equal):
                    return first, rest
    return root, None


def _are_of_one_key(first: Instruction, equal: Instruction) -> bool:
    """Whether `first` says that a key is less or greater, and `equal` that it is the same."""
    if not isinstance(first.op, Compare) or not isinstance(equal.op, Compare) or equal.op.direction != "EQ":
        return False
    sides = [_side(o) for o in first.operands]
    same = [_side(o) for o in equal.operands]
    return None not in sides and same in (sides, sides[::-1]) and _is_total(first) == _is_total(equal)


def _key(compare: Instruction) -> SortKey | None:
    if not isinstance(compare.op, Compare) or compare.op.direction not in ("LT", "GT"):
        return None
    left, right = (_side(o) for o in compare.operands)
    if left is None or right != left.partner():
        return None
    descending = (compare.op.direction == "GT") != (left.parameter % 2 == 1)
    total = _is_total(compare)
    dtype = compare.operands[0].shape.dtype
    numbers = dtype.is_floating and (left.canonical or not total)
    nan_last = numbers and not total  # such a comparator says nothing of NaNs; the reference puts them last
    return SortKey(left.parameter // 2, left.component, KeyMap(dtype, descending, numbers, nan_last))


def _is_total(compare: Instruction) -> bool:
    return _says_total(compare) or not compare.operands[0].shape.dtype.is_floating


def _says_total(compare: Instruction) -> bool:
    return isinstance(compare.op, Compare) and compare.op.type == "TOTALORDER"


def _side(value: Instruction) -> _Side | None:
    plain = _plain_side(value)
    if plain is not None:
        return plain
    if not isinstance(value.op, Select):
        return None
    is_nan, nan, number = value.operands
    if not isinstance(number.op, Select):
        return None
    is_zero, zero, source = number.operands
    plain = _plain_side(source)
    if plain is None or not _is_compare(is_nan, "NE", source, source) or not _is_compare(is_zero, "EQ", source, zero):
        return None
    good = _is_constant(zero, is_nan=False) and _is_constant(nan, is_nan=True)
    return _Side(plain.parameter, plain.component, True) if good else None


def _plain_side(value: Instruction) -> _Side | None:
    component = {"real": 0, "imag": 1}.get(value.opcode)
    source = value if component is None else value.operands[0]
    if not isinstance(source.op, Parameter) or (component is not None and not source.shape.dtype.is_complex):
        return None
    return _Side(source.op.number, component, False)


def _is_compare(value: Instruction, direction: str, left: Instruction, right: Instruction) -> bool:
    if not isinstance(value.op, Compare) or value.op.direction != direction or _says_total(value):
        return False
    first, second = value.operands
    return first is left and (second is right or all(_is_constant(side, is_nan=False) for side in (second, right)))


def _is_constant(value: Instruction, *, is_nan: bool) -> bool:
    """Whether it is +0, or a NaN above all numbers."""
    if not isinstance(value.op, Constant) or not value.shape.is_scalar:
        return False
    number = float(value.op.literal.to_python())
    return math.copysign(1, number) > 0 and (math.isnan(number) if is_nan else number == 0)
