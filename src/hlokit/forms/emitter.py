"""Emitter: the interface with which forms write expressions. A backend implements the eight abstract methods."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

from hlokit.forms.affine import Affine, AffineLike, Index
from hlokit.forms.primitives import COMPLEX, FLOAT, GIVEN, INTEGER, PART, PRED, PRIMITIVES, WHOLE, Primitive
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.literal import Literal
from hlokit.types.shape import Shape


class Value(Protocol):
    """A scalar in an expression. What it is made of is the backend's affair."""

    @property
    def dtype(self) -> DType: ...


class Reader(Protocol):
    """An operand: gives its element at an index."""

    @property
    def shape(self) -> Shape: ...

    def __call__(self, index: Index) -> Value: ...


Operand: TypeAlias = "Value | bool | int | float"
"""Python numbers take the type of the first operand that has one."""
Condition: TypeAlias = "Value | bool"
"""A pred, or what is known of it now."""


class Emitter(ABC):
    """Makes values from values. No form knows of loops, lanes, masks or addresses.

    Primitives are methods of their own names, with `_` where Python has the word: `emit.add(x, 1)`.
    """

    # -- what a backend gives

    @abstractmethod
    def primitive(self, primitive: Primitive, operands: Sequence[Value], dtype: DType) -> Value:
        """The primitive, of type `dtype`, on operands whose types it takes."""

    @abstractmethod
    def constant(self, value: Any, dtype: DType) -> Value:
        """A Python or NumPy number as a value of this type."""

    @abstractmethod
    def literal(self, literal: Literal, index: Index) -> Value:
        """An element of a constant array."""

    @abstractmethod
    def number(self, affine: Affine) -> Value:
        """An affine as a value: s64, or s32 where its range allows."""

    @abstractmethod
    def compare_range(self, affine: Affine, low: int, high: int) -> Value:
        """low <= affine < high, which the range of `affine` does not decide."""

    @abstractmethod
    def branch(self, conditions: Sequence[Value], then: Callable[[], Value], otherwise: Callable[[], Value]) -> Value:
        """See guarded; none of the conditions is known."""

    @abstractmethod
    def as_index(self, value: Value, low: int, high: int, inside: bool = False) -> Affine:
        """An integer of any type, as the number it is, moved into [low, high), which is not empty.

        `inside`: it is there already wherever the index is used.
        """

    @abstractmethod
    def quotient(self, affine: Affine, divisor: int) -> Affine:
        """floor(affine / divisor), which is not affine: a run-time integer."""

    # -- the words of index forms

    def guarded(
        self, conditions: Sequence[Condition], then: Callable[[], Value], otherwise: Callable[[], Value]
    ) -> Value:
        """`then` where all conditions hold, else `otherwise`. Nothing that either reads is read elsewhere."""
        unknown = [c for c in conditions if not isinstance(c, bool)]
        if len(unknown) < len(conditions) and not all(c for c in conditions if isinstance(c, bool)):
            return otherwise()
        return self.branch(unknown, then, otherwise) if unknown else then()

    def inrange(self, affine: AffineLike, low: int, high: int) -> Condition:
        """low <= affine < high; known where the affine's range decides it."""
        affine = Affine.of(affine)
        if low <= affine.low and affine.high < high:
            return True
        if affine.high < low or affine.low >= high:
            return False
        return self.compare_range(affine, low, high)

    def floordiv(self, affine: AffineLike, divisor: int) -> Affine:
        """floor(affine / divisor): exact by coefficients and range if these allow, else a run-time integer."""
        affine = Affine.of(affine)
        exact = affine.split(divisor)
        return exact[0] if exact is not None else self.quotient(affine, divisor)

    def mod(self, affine: AffineLike, divisor: int) -> Affine:
        """affine - divisor * floor(affine / divisor)."""
        return Affine.of(affine) - divisor * self.floordiv(affine, divisor)

    # -- the primitives

    def apply(self, name: str, *operands: Operand, dtype: DType | None = None, condition: Value | None = None) -> Value:
        """The primitive of this name; `dtype` for those whose result type must be said, `condition` for select.

        Raises TypeError where the operands' types are not the primitive's: a bug of the rule that asked for it.
        """
        primitive = PRIMITIVES[name]
        values: list[Value] = [] if condition is None else [condition]
        fits = condition is None or condition.dtype.kind == PRED
        of = _type_of(name, operands)
        for operand in operands:
            value = self.constant(operand, of) if isinstance(operand, (int, float)) else operand
            fits = fits and value.dtype is of
            values.append(value)
        if not fits or len(values) != primitive.arity or not _takes(primitive, of):
            raise TypeError(f"{name} takes no {', '.join(v.dtype.name for v in values)}")
        return self.primitive(primitive, values, dtype or _result(primitive, of))

    def add(self, x: Operand, y: Operand) -> Value:
        return self.apply("add", x, y)

    def sub(self, x: Operand, y: Operand) -> Value:
        return self.apply("sub", x, y)

    def mul(self, x: Operand, y: Operand) -> Value:
        return self.apply("mul", x, y)

    def div(self, x: Operand, y: Operand) -> Value:
        return self.apply("div", x, y)

    def rem(self, x: Operand, y: Operand) -> Value:
        return self.apply("rem", x, y)

    def neg(self, x: Operand) -> Value:
        return self.apply("neg", x)

    def abs(self, x: Operand) -> Value:
        return self.apply("abs", x)

    def max(self, x: Operand, y: Operand) -> Value:
        return self.apply("max", x, y)

    def min(self, x: Operand, y: Operand) -> Value:
        return self.apply("min", x, y)

    def and_(self, x: Operand, y: Operand) -> Value:
        return self.apply("and", x, y)

    def or_(self, x: Operand, y: Operand) -> Value:
        return self.apply("or", x, y)

    def xor(self, x: Operand, y: Operand) -> Value:
        return self.apply("xor", x, y)

    def not_(self, x: Operand) -> Value:
        return self.apply("not", x)

    def shl(self, x: Operand, y: Operand) -> Value:
        return self.apply("shl", x, y)

    def shr(self, x: Operand, y: Operand) -> Value:
        return self.apply("shr", x, y)

    def sar(self, x: Operand, y: Operand) -> Value:
        return self.apply("sar", x, y)

    def popcnt(self, x: Operand) -> Value:
        return self.apply("popcnt", x)

    def clz(self, x: Operand) -> Value:
        return self.apply("clz", x)

    def mul_high(self, x: Operand, y: Operand) -> Value:
        return self.apply("mul_high", x, y)

    def eq(self, x: Operand, y: Operand) -> Value:
        return self.apply("eq", x, y)

    def ne(self, x: Operand, y: Operand) -> Value:
        return self.apply("ne", x, y)

    def lt(self, x: Operand, y: Operand) -> Value:
        return self.apply("lt", x, y)

    def le(self, x: Operand, y: Operand) -> Value:
        return self.apply("le", x, y)

    def gt(self, x: Operand, y: Operand) -> Value:
        return self.apply("gt", x, y)

    def ge(self, x: Operand, y: Operand) -> Value:
        return self.apply("ge", x, y)

    def select(self, condition: Value, x: Operand, y: Operand) -> Value:
        return self.apply("select", x, y, condition=condition)

    def floor(self, x: Operand) -> Value:
        return self.apply("floor", x)

    def ceil(self, x: Operand) -> Value:
        return self.apply("ceil", x)

    def trunc(self, x: Operand) -> Value:
        return self.apply("trunc", x)

    def round_even(self, x: Operand) -> Value:
        return self.apply("round_even", x)

    def copysign(self, x: Operand, y: Operand) -> Value:
        return self.apply("copysign", x, y)

    def sqrt(self, x: Operand) -> Value:
        return self.apply("sqrt", x)

    def cbrt(self, x: Operand) -> Value:
        return self.apply("cbrt", x)

    def exp(self, x: Operand) -> Value:
        return self.apply("exp", x)

    def expm1(self, x: Operand) -> Value:
        return self.apply("expm1", x)

    def log(self, x: Operand) -> Value:
        return self.apply("log", x)

    def log1p(self, x: Operand) -> Value:
        return self.apply("log1p", x)

    def sin(self, x: Operand) -> Value:
        return self.apply("sin", x)

    def cos(self, x: Operand) -> Value:
        return self.apply("cos", x)

    def tanh(self, x: Operand) -> Value:
        return self.apply("tanh", x)

    def atan2(self, x: Operand, y: Operand) -> Value:
        return self.apply("atan2", x, y)

    def erf(self, x: Operand) -> Value:
        return self.apply("erf", x)

    def pow(self, x: Operand, y: Operand) -> Value:
        return self.apply("pow", x, y)

    def complex(self, x: Operand, y: Operand) -> Value:
        return self.apply("complex", x, y)

    def real(self, x: Operand) -> Value:
        return self.apply("real", x)

    def imag(self, x: Operand) -> Value:
        return self.apply("imag", x)

    def convert(self, x: Value, dtype: DType) -> Value:
        """The op convert; `x` itself where it has the type. Complex numbers go by their parts (CONV-TYPE-9)."""
        if x.dtype is dtype:
            return x
        if dtype.is_complex:
            is_complex = x.dtype.is_complex
            imag = self.convert(self.imag(x), dtype.real) if is_complex else self.constant(0.0, dtype.real)
            return self.complex(self.convert(self.real(x) if is_complex else x, dtype.real), imag)
        return self.apply("convert", self.real(x) if x.dtype.is_complex else x, dtype=dtype)

    def to_bits(self, x: Value) -> Value:
        """The bits as an unsigned integer of at least a byte."""
        return self.apply("to_bits", x, dtype=dtypes.unsigned_of(max(8, x.dtype.bits)))

    def from_bits(self, x: Value, dtype: DType) -> Value:
        """The value of `dtype` that has these bits."""
        return self.apply("from_bits", x, dtype=dtype)


def _type_of(name: str, operands: Sequence[Operand]) -> DType:
    """The type of the first operand that has one."""
    for operand in operands:
        if not isinstance(operand, (int, float)):
            return operand.dtype
    raise TypeError(f"{name}: no operand says its type")


@cache
def _takes(primitive: Primitive, dtype: DType) -> bool:
    """Whether the primitive is for this type: one that computes, unless it only moves or converts."""
    if dtype.kind == "pred":
        return PRED in primitive.kinds
    if dtype.is_complex:
        return COMPLEX in primitive.kinds
    least, kind = (32, FLOAT) if dtype.is_floating else (8, INTEGER)
    return kind in primitive.kinds and (dtype.bits >= least or primitive.name in ("select", "convert", "to_bits"))


def _result(primitive: Primitive, of: DType) -> DType:
    if primitive.result == PART:
        return of.real
    if primitive.result == WHOLE:
        return dtypes.c64 if of is dtypes.f32 else dtypes.c128
    if primitive.result == GIVEN:
        raise TypeError(f"{primitive} needs its result type")
    return dtypes.pred if primitive.result == PRED else of
