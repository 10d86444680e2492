"""Dynamic values as static ones: a buffer of the bounds and a size for each dynamic dimension."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from hlokit.hlo.computation import Computation
from hlokit.hlo.instruction import Extra, Instruction
from hlokit.hlo.op import Op
from hlokit.ops.comparison import Compare
from hlokit.ops.elementwise import Add, And, Clamp, Copy, Divide, Maximum, Minimum, Multiply, Select
from hlokit.ops.movement import Broadcast, Iota
from hlokit.ops.structure import Constant, GetTupleElement, Tuple
from hlokit.passes.dynamic_padder.signature import dynamic_dimensions
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape

Sizes: TypeAlias = tuple[Instruction | None, ...]
"""The run-time size of each dimension, an s32 scalar; None where the dimension is static."""


@dataclass(frozen=True, slots=True)
class Sized:
    """The value of an instruction: an array, or anything static.

    node    in the static computation
    sizes   of its dimensions; none at all if it is static
    whole   beyond the sizes lies what the reference shows there (hlo/values.py); else anything
    """

    node: Instruction
    sizes: Sizes = ()
    whole: bool = True

    @property
    def is_dynamic(self) -> bool:
        return any(size is not None for size in self.sizes)


Value: TypeAlias = "Sized | tuple[Value, ...]"
"""A tuple's elements one by one, where some are dynamic."""


class SizedWriter:
    """Appends to the static computation."""

    def __init__(self, into: Computation) -> None:
        self.into = into
        self.extra: Extra | None = None
        self._constants: dict[int, Instruction] = {}

    def add(self, op: Op, *operands: Instruction, called: Sequence[Computation] = ()) -> Instruction:
        instruction = self.into.add(op, operands, called)
        if self.extra is not None:
            instruction.extra = replace(self.extra, control_predecessors=[], sharding=None, parameter_replication=())
        return instruction

    # -- sizes: s32 scalars

    def number(self, value: int) -> Instruction:
        if value not in self._constants:
            self._constants[value] = self.scalar(value, dtypes.s32)
        return self._constants[value]

    def scalar(self, value: Any, dtype: DType) -> Instruction:
        return self.add(Constant(Literal(dtype[()], np.asarray(value).astype(dtype.numpy))))

    def zero(self, dtype: DType) -> Instruction:
        """No bit is set; of f8e8m0fnu, which has no 0, that is the least number."""
        return self.add(Constant(Literal(dtype[()], np.zeros((), dtype.numpy))))

    def plus(self, x: Instruction, value: int) -> Instruction:
        return self.add(Add(), x, self.number(value)) if value else x

    def times(self, x: Instruction, value: int) -> Instruction:
        return self.add(Multiply(), x, self.number(value)) if value != 1 else x

    def divided(self, x: Instruction, value: int) -> Instruction:
        """x / value rounded down, for x >= 0."""
        return self.add(Divide(), x, self.number(value)) if value != 1 else x

    def positive(self, x: Instruction) -> Instruction:
        """max(x, 0)."""
        return self.add(Maximum(), x, self.number(0))

    def least(self, sizes: Sequence[Instruction | None]) -> Instruction | None:
        """The least of those that are there."""
        found = list(dict.fromkeys(size for size in sizes if size is not None))
        if not found:
            return None
        result = found[0]
        for size in found[1:]:
            result = self.add(Minimum(), result, size)
        return result

    def within(self, size: Instruction, bound: int) -> Instruction:
        """Clamped to [0, bound]: no size may reach outside a buffer."""
        return self.add(Clamp(), self.number(0), size, self.number(bound))

    def size_of(self, value: Sized, dimension: int) -> Instruction:
        size = value.sizes[dimension] if value.sizes else None
        return size or self.number(value.node.shape.dimensions[dimension])

    # -- arrays

    def full(self, scalar: Instruction, shape: Shape) -> Instruction:
        return self.add(Broadcast((), shape.static.with_dtype(scalar.shape.dtype)), scalar)

    def places(self, dimension: int, shape: Shape) -> Instruction:
        """The index in a dimension, as s32."""
        return self.add(Iota(dimension, shape.static.with_dtype(dtypes.s32)))

    def inside(self, shape: Shape, sizes: Sizes) -> Instruction | None:
        """Whether each index lies within the sizes; None where all do."""
        found = None
        for dimension, size in enumerate(sizes):
            if size is not None:
                limit = self.full(size, shape)
                here = self.add(Compare("LT", None, None), self.places(dimension, shape), limit)
                found = here if found is None else self.add(And(), found, here)
        return found

    def masked(self, node: Instruction, sizes: Sizes, fill: Instruction) -> Instruction:
        """`node` with the scalar `fill` beyond the sizes."""
        inside = self.inside(node.shape, sizes)
        return node if inside is None else self.add(Select(), inside, node, self.full(fill, node.shape))

    def zeroed(self, value: Sized, sizes: Sizes | None = None) -> Instruction:
        zero = self.zero(value.node.shape.dtype)
        return self.masked(value.node, value.sizes if sizes is None else sizes, zero)

    def wholly(self, value: Value) -> Value:
        """With what the reference shows beyond the sizes: zeros, where the value was computed."""
        if isinstance(value, tuple):
            return tuple(map(self.wholly, value))
        return value if value.whole else Sized(self.zeroed(value), value.sizes)

    def declared(self, value: Value, shape: Shape) -> Value:
        """A value of `shape`: with sizes where it is dynamic and nowhere else (DYN-16)."""
        if shape.is_tuple:
            if isinstance(value, Sized):
                if not shape.is_dynamic:
                    return value
                value = self.parts(value)
            return tuple(self.declared(v, s) for v, s in zip(value, shape.elements, strict=True))
        assert isinstance(value, Sized)
        if not shape.is_array:
            return value
        given = value.sizes or (None,) * shape.rank
        if any(size is not None and not flag for size, flag in zip(given, shape.dynamic, strict=True)):
            value = self.wholly(value)
            assert isinstance(value, Sized)
        wanted = tuple(
            (size or self.number(bound)) if flag else None
            for size, bound, flag in zip(given, shape.dimensions, shape.dynamic, strict=True)
        )
        return Sized(value.node, wanted, value.whole)

    # -- values as one instruction

    def parts(self, value: Value) -> tuple[Value, ...]:
        if isinstance(value, tuple):
            return value
        return tuple(Sized(self.add(GetTupleElement(i), value.node)) for i in range(len(value.node.shape.elements)))

    def laid_out(self, value: Value, shape: Shape) -> Value:
        """In the layout of `shape`."""
        if isinstance(value, tuple):
            return tuple(self.laid_out(v, s) for v, s in zip(value, shape.elements, strict=True))
        wanted = fixed(shape)
        if value.node.shape is wanted:
            return value
        return replace(value, node=self.into.add(Copy(), [value.node], shape=wanted))

    def joined(self, value: Value) -> Instruction:
        """The arrays without their sizes."""
        return value.node if isinstance(value, Sized) else self.add(Tuple(), *map(self.joined, value))

    def encoded(self, value: Value, shape: Shape) -> Instruction:
        """(the value at its bounds, its sizes), or the value itself, if `shape` is static."""
        value = self.wholly(self.declared(value, shape))
        return self.add(Tuple(), self.joined(value), *_sizes(value)) if shape.is_dynamic else self.joined(value)

    def decoded(self, node: Instruction, shape: Shape) -> Value:
        """The inverse of `encoded`."""
        if not shape.is_dynamic:
            return Sized(node)
        count = sum(1 for _ in dynamic_dimensions(shape))
        sizes = [self.add(GetTupleElement(1 + i), node) for i in range(count)]
        return self.with_sizes(self.add(GetTupleElement(0), node), shape, sizes)

    def with_sizes(self, node: Instruction, shape: Shape, sizes: list[Instruction]) -> Value:
        """A value of `shape` made of its arrays and its sizes in order, which are taken from the list."""
        if not shape.is_dynamic:
            return Sized(node)
        if shape.is_tuple:
            parts = enumerate(shape.elements)
            return tuple(self.with_sizes(self.add(GetTupleElement(i), node), s, sizes) for i, s in parts)
        return Sized(node, tuple(sizes.pop(0) if flag else None for flag in shape.dynamic))


def fixed(shape: Shape) -> Shape:
    """The shape of the buffer: nothing dynamic, but the same layouts, which a bitcast may look at."""
    if not shape.is_dynamic:
        return shape
    return Shape.tuple(map(fixed, shape.elements)) if shape.is_tuple else shape.with_dynamic([False] * shape.rank)


def encoding(shape: Shape) -> Shape:
    """The shape of `SizedWriter.encoded`."""
    if not shape.is_dynamic:
        return shape
    return Shape.tuple([fixed(shape), *(dtypes.s32[()] for _ in dynamic_dimensions(shape))])


def sizes_in(value: Value) -> list[Instruction]:
    """All sizes, in order."""
    return _sizes(value)


def _sizes(value: Value) -> list[Instruction]:
    if isinstance(value, tuple):
        return [size for part in value for size in _sizes(part)]
    return [size for size in value.sizes if size is not None]
