"""Values of a function that is being written: SSA names and typed constants, whose operators append instructions.

    with fn.loop(0, rows) as row:
        place = matrix + row.index * stride          # a Pointer, in bytes
        total = place.load(vector).fma(factor, total)

Operands may be Python numbers, which become constants in every lane. Integers are signed unless a method says
otherwise. Comparisons of floats are false for NaN unless they say otherwise; == and != are the identity of values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, overload

from hlokit.cpu.llvm.references import MARK, conversion, intrinsic
from hlokit.cpu.llvm.types import FLOATS, I1, I64, Type, splat, type_of

if TYPE_CHECKING:
    from hlokit.cpu.llvm.function import Function
    from hlokit.cpu.llvm.indices import Index
    from hlokit.cpu.llvm.pointers import Pointer, Pointers


class Value:
    """A value of `type` in the function `fn`. `text` is how instructions name it; `number` is a constant's value."""

    __slots__ = ("fn", "number", "text", "type")

    def __init__(self, fn: Function, type: Type, text: str, number: float | None = None) -> None:
        self.fn, self.type, self.text, self.number = fn, type, text, number

    def __str__(self) -> str:
        return self.text

    def __format__(self, spec: str) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.type} {self.text})"

    @property
    def typed(self) -> str:
        """With its type, as calls name it."""
        return f"{self.type.text} {self.text}"

    @property
    def bits(self) -> int:
        """The bits of one lane."""
        return self.type.bits

    @property
    def scalar(self) -> str:
        """The type of one lane, as LLVM spells it."""
        return self.type.scalar

    @property
    def lanes(self) -> int:
        return self.type.lanes

    def named(self, text: str) -> Value:
        """A value of the same kind under another name."""
        return Value(self.fn, self.type, text)

    def operand(self, other: Value | float | None) -> str:
        """The other operand's text; a number becomes a constant of this type, None the null pointer."""
        return other.text if isinstance(other, Value) else self.type.constant(other)

    def value(self, other: Value | float) -> Value:
        """A number as a constant of this type."""
        return other if isinstance(other, Value) else self.fn.constant(other, self.type)

    def let(self, instruction: str, type: Type) -> Value:
        fn = self.fn
        fn.count = count = fn.count + 1
        name = f"%v{count}"
        fn.lines.append(f"  {name} = {instruction}")
        return Value(fn, type, name)

    # -- arithmetic

    def binary(self, instruction: str, other: Value | float) -> Value:
        fn, type = self.fn, self.type
        if type is I64 and instruction in _LINEAR:
            first, second = variable(self), variable(other)
        else:
            first, second = self.text, other.text if isinstance(other, Value) else type.constant(other)
        fn.count = count = fn.count + 1
        name = f"%v{count}"
        fn.lines.append(f"  {name} = {instruction} {type.text} {first}, {second}")
        return Value(fn, type, name)

    def __add__(self, other: Value | float) -> Value:
        return self.binary(f"fadd{self.fn.fast_math}" if self.type.is_float else "add", other)

    def __radd__(self, other: float) -> Value:
        return self.value(other) + self

    def __sub__(self, other: Value | float) -> Value:
        return self.binary(f"fsub{self.fn.fast_math}" if self.type.is_float else "sub", other)

    def __rsub__(self, other: float) -> Value:
        return self.value(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self.binary(f"fmul{self.fn.fast_math}" if self.type.is_float else "mul", other)

    def __rmul__(self, other: float) -> Value:
        return self.value(other) * self

    def __truediv__(self, other: Value | float) -> Value:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: float) -> Value:
        return self.value(other) / self

    def __neg__(self) -> Value:
        return self.let(f"fneg {self.type.text} {self.text}", self.type) if self.type.is_float else 0 - self

    def __and__(self, other: Value | int) -> Value:
        return self.binary("and", other)

    def __or__(self, other: Value | int) -> Value:
        return self.binary("or", other)

    def __xor__(self, other: Value | int) -> Value:
        return self.binary("xor", other)

    def __invert__(self) -> Value:
        return self.binary("xor", -1 if self.type.bits > 1 else 1)

    def __lshift__(self, other: Value | int) -> Value:
        return self.binary("shl", other)

    def __rshift__(self, other: Value | int) -> Value:
        """Logical: zeros come in."""
        return self.binary("lshr", other)

    def sar(self, other: Value | int) -> Value:
        """Arithmetic shift to the right: copies of the sign come in."""
        return self.binary("ashr", other)

    def __floordiv__(self, other: Value | int) -> Value:
        """The quotient of integers without sign."""
        return self.binary("udiv", other)

    def __mod__(self, other: Value | int) -> Value:
        """The remainder of integers without sign."""
        return self.binary("urem", other)

    # -- comparisons

    def compare(self, predicate: str, other: Value | float | None) -> Value:
        """`oeq`, `une`, `ult`, ... of floats; `eq`, `slt`, `ult`, ... of integers."""
        if self.type is I64:
            return self.let(f"icmp {predicate} i64 {variable(self)}, {variable(0 if other is None else other)}", I1)
        kind = "fcmp" if self.type.is_float else "icmp"
        return self.let(f"{kind} {predicate} {self.type.text} {self.text}, {self.operand(other)}", self.type.mask)

    def __lt__(self, other: Value | float) -> Value:
        return self.compare("olt" if self.type.is_float else "slt", other)

    def __le__(self, other: Value | float) -> Value:
        return self.compare("ole" if self.type.is_float else "sle", other)

    def __gt__(self, other: Value | float) -> Value:
        return self.compare("ogt" if self.type.is_float else "sgt", other)

    def __ge__(self, other: Value | float) -> Value:
        return self.compare("oge" if self.type.is_float else "sge", other)

    def eq(self, other: Value | float | None) -> Value:
        return self.compare("oeq" if self.type.is_float else "eq", other)

    def ne(self, other: Value | float | None) -> Value:
        """Whether they differ; of floats true for NaN."""
        return self.compare("une" if self.type.is_float else "ne", other)

    @overload
    def select(self, then: Pointer, otherwise: Value | None, *, unpredictable: bool = False) -> Pointer: ...
    @overload
    def select(self, then: Pointers, otherwise: Value, *, unpredictable: bool = False) -> Pointers: ...
    @overload
    def select(self, then: Index, otherwise: Index | int, *, unpredictable: bool = False) -> Index: ...
    @overload
    def select(self, then: Value, otherwise: Value | float, *, unpredictable: bool = False) -> Value: ...
    def select(self, then: Value, otherwise: Value | float | None, *, unpredictable: bool = False) -> Value:
        """`then` where this i1 holds, else `otherwise`; a scalar i1 chooses whole vectors.

        unpredictable  it is not to become a branch
        """
        hint = ", !unpredictable !{}" if unpredictable else ""
        type = then.type
        if type is I64:
            first, second = variable(then), variable(0 if otherwise is None else otherwise)
        else:
            first, second = then.text, then.operand(otherwise)
        name = self.fn.let(f"select {self.typed}, {type.text} {first}, {type.text} {second}{hint}")
        return then.chosen(name, otherwise)

    def chosen(self, name: str, otherwise: Value | float | None) -> Value:
        """The result, of this name, of a `select` between this and another value."""
        return Value(self.fn, self.type, name)

    def where(self, condition: Value, otherwise: Value | float) -> Value:
        """self where the condition holds, else `otherwise`."""
        return condition.select(self, otherwise)

    def apart(self) -> Value:
        """A copy of a mask of AVX-512 of which LLVM does not know that it is one: for loads.

        LLVM 22 folds a masked load into an operation under the same mask. If what that leaves in other lanes is needed
        again, it takes the load out again, without a mask (TwoAddressInstructionPass): it would read outside of arrays.
        """
        if not self.fn.target.has("avx512bw"):
            return self
        if self.lanes > _MASK_LANES:
            return joined([part.apart() for part in self.split(_MASK_LANES)])
        lanes = max(8, 1 << (self.lanes - 1).bit_length())
        mask = self if lanes == self.lanes else self.padded(lanes)
        copy = mask.let(f'call {mask.type.text} asm "", "=^Yk,0"({mask.typed})', mask.type)
        return copy if lanes == self.lanes else copy.first(self.lanes)

    # -- conversions

    def cast(self, instruction: str, scalar: str) -> Value:
        """By LLVM's instruction of this name; the value itself if it has the type already."""
        if scalar == self.type.scalar:
            return self
        type = self.type.like(scalar)
        before, after = conversion(instruction, self.type, type)
        return self.let(f"{before} {self.text}{after}", type)

    def bitcast(self, type: Type) -> Value:
        """The same bits as another type of the same size."""
        return self if type is self.type else self.let(f"bitcast {self.typed} to {type.text}", type)

    def as_bits(self) -> Value:
        """The bits of a float as an integer."""
        return self.bitcast(self.type.integer)

    def as_float(self) -> Value:
        """The half, float or double with these bits."""
        return self.bitcast(self.type.like(next(scalar for scalar, bits in FLOATS.items() if bits == self.bits)))

    def trunc(self, bits: int) -> Value:
        return self.cast("trunc", f"i{bits}")

    def zext(self, bits: int) -> Value:
        return self.cast("zext", f"i{bits}")

    def sext(self, bits: int) -> Value:
        return self.cast("sext", f"i{bits}")

    def zext_or_trunc(self, bits: int) -> Value:
        """An integer without sign in another width."""
        return self.zext(bits) if bits > self.bits else self.trunc(bits)

    # -- functions of numbers

    def intrinsic(self, name: str, *others: Value | float, extra: str = "") -> Value:
        """LLVM's generic intrinsic whose operands all have this type, after which its name is overloaded."""
        type = self.type.text
        operands = f"{type} {self.text}"
        for other in others:
            operands += f", {type} {self.operand(other)}"
        return self.let(f"call {intrinsic(name, self.type)}{operands}{extra})", self.type)

    def fma(self, factor: Value | float, addend: Value | float) -> Value:
        """self * factor + addend, rounded once."""
        type = self.type
        text = type.text
        x = factor.text if isinstance(factor, Value) else type.constant(factor)
        y = addend.text if isinstance(addend, Value) else type.constant(addend)
        return self.let(f"call {intrinsic('fma', type)}{text} {self.text}, {text} {x}, {text} {y})", type)

    def fmuladd(self, factor: Value | float, addend: Value | float) -> Value:
        """self * factor + addend, rounded once where that is faster."""
        return self.intrinsic("fmuladd", factor, addend)

    def abs(self) -> Value:
        """The magnitude of a float."""
        return self.intrinsic("fabs")

    def copysign(self, sign: Value | float) -> Value:
        return self.intrinsic("copysign", sign)

    def sqrt(self) -> Value:
        return self.intrinsic("sqrt")

    def rounded(self) -> Value:
        """The nearest integral value, ties to even."""
        return self.intrinsic("roundeven")

    def maximum(self, other: Value | float) -> Value:
        """The greater float; NaN if either is."""
        return self.intrinsic("maximum", other)

    def minimum(self, other: Value | float) -> Value:
        return self.intrinsic("minimum", other)

    def maxnum(self, other: Value | float) -> Value:
        """The greater float; the other one if one is NaN."""
        return self.intrinsic("maxnum", other)

    def minnum(self, other: Value | float) -> Value:
        """The lesser float; the other one if one is NaN."""
        return self.intrinsic("minnum", other)

    def smax(self, other: Value | int) -> Value:
        return self.intrinsic("smax", other)

    def smin(self, other: Value | int) -> Value:
        return self.intrinsic("smin", other)

    def umax(self, other: Value | int) -> Value:
        return self.intrinsic("umax", other)

    def umin(self, other: Value | int) -> Value:
        return self.intrinsic("umin", other)

    # -- lanes

    def splat(self, lanes: int, index: str = "i64 0") -> Value:
        """A scalar in every lane. `index`: the lane that it is put in first, as LLVM spells it."""
        if lanes == 1:
            return self
        type = self.type.of(lanes)
        if self.number is not None:
            return Value(self.fn, type, splat(self.text, self.type.scalar, lanes), self.number)
        one = self.fn.let(f"insertelement {type.text} poison, {self.typed}, {index}")
        return self.let(f"shufflevector {type.text} {one}, {type.text} poison, <{lanes} x i32> zeroinitializer", type)

    def reduce(self, operation: str) -> Value:
        """All lanes combined by `fmax`, `smin`, `umin`, `and`, `or`, ...: llvm.vector.reduce."""
        element = self.type.element
        return self.let(f"call {element} @llvm.vector.reduce.{operation}.{self.type.suffix}({self.typed})", element)

    def sum(self) -> Value:
        """The sum of the lanes of floats, in whatever order is fastest."""
        element = self.type.element
        operands = f"{element} {element.constant(0.0)}, {self.typed}"
        return self.let(f"call reassoc {element} @llvm.vector.reduce.fadd.{self.type.suffix}({operands})", element)

    def lane(self, number: Value | int) -> Value:
        """One lane of a vector."""
        return self.let(f"extractelement {self.typed}, i64 {number}", self.type.element)

    def with_lane(self, number: Value | int, value: Value) -> Value:
        """The vector with another value in one lane."""
        return self.let(f"insertelement {self.typed}, {value.typed}, i64 {number}", self.type)

    def shuffled(self, order: Sequence[int | None], other: Value | None = None) -> Value:
        """The lanes in this order; numbers from the count of lanes on are those of `other`, None any."""
        second = "poison" if other is None else other.text
        text = f"shufflevector {self.typed}, {self.type.text} {second}, {_shuffle_mask(tuple(order))}"
        return self.let(text, self.type.of(len(order)))

    def joined_to(self, other: Value, lanes: int) -> Value:
        """Its lanes, then the other's; `lanes` of both together."""
        return self.shuffled(range(lanes), other)

    def padded(self, lanes: int) -> Value:
        """The value with zeros after its lanes."""
        type = self.type.of(lanes)
        if self.lanes == 1:
            return self.let(f"insertelement {type.text} zeroinitializer, {self.typed}, i64 0", type)
        order = ", ".join(f"i32 {min(k, self.lanes)}" for k in range(lanes))
        zeros = f"{self.type.text} zeroinitializer"
        return self.let(f"shufflevector {self.typed}, {zeros}, <{lanes} x i32> <{order}>", type)

    def first(self, lanes: int) -> Value:
        """The first lanes: undoes `padded`."""
        return self.lane(0) if lanes == 1 else self.split(lanes)[0]

    def split(self, lanes: int) -> list[Value]:
        """Pieces of so many lanes, which divide the value's."""
        if lanes == self.lanes:
            return [self]
        return [self.shuffled(range(start, start + lanes)) for start in range(0, self.lanes, lanes)]

    def reversed(self) -> Value:
        """The last lane first."""
        return self.shuffled(range(self.lanes)[::-1])

    def interleaved(self, other: Value) -> Value:
        """Lanes of both by turns."""
        return self.shuffled([lane + part for lane in range(self.lanes) for part in (0, self.lanes)], other)

    def deinterleaved(self) -> tuple[Value, Value]:
        """The even lanes and the odd ones."""
        return self.shuffled(range(0, self.lanes, 2)), self.shuffled(range(1, self.lanes, 2))

    def rotated(self, by: int) -> Value:
        """The lanes from number `by` on, then those before."""
        return self.shuffled([(k + by) % self.type.lanes for k in range(self.type.lanes)])

    def compressed(self, mask: Value) -> Value:
        """The lanes that are set, in front; the others are undefined."""
        name = f"llvm.experimental.vector.compress.{self.type.suffix}"
        return self.let(f"call {self.type} @{name}({self.typed}, {mask.typed}, {self.type} poison)", self.type)

    def count_set(self) -> Index:
        """The number of lanes in which an i1 holds."""
        bits = self.bitcast(type_of(f"i{self.type.lanes}"))
        return self.fn.index(bits.intrinsic("ctpop").zext(64))

    def any(self) -> Value:
        """Whether an i1 holds in any lane."""
        if self.type.lanes == 1:
            return self
        bits = self.bitcast(type_of(f"i{self.type.lanes}"))
        return bits.ne(0)


_LINEAR = {f"{name}{flags}" for name in ("add", "sub", "mul", "shl") for flags in ("", " nsw", " nuw", " nuw nsw")} | {
    "and",
    "or",
    "xor",
}
"""Instructions that take as long by a variable as by a constant."""


def variable(value: Value | float | str) -> str:
    """An operand in whose place a variable may stand: a constant of i64 is marked as such."""
    if isinstance(value, Value):
        return value.text if value.number is None or value.type is not I64 else f"{MARK}{value.text}{MARK}"
    return value if isinstance(value, str) else f"{MARK}{int(value)}{MARK}"


@lru_cache(1000)
def _shuffle_mask(order: tuple[int | None, ...]) -> str:
    shown = ", ".join(f"i32 {'poison' if k is None else k}" for k in order)
    return f"<{len(order)} x i32> <{shown}>"


def joined(pieces: Sequence[Value]) -> Value:
    """All pieces' lanes in one value, of as many pieces as a power of two: undoes `split`."""
    while len(pieces) > 1:
        lanes = 2 * pieces[0].lanes
        pieces = [a.joined_to(b, lanes) for a, b in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


_MASK_LANES = 64
"""Lanes of a register for masks."""


class LaneMask(Value):
    """A constant mask: the first `count` lanes are set."""

    __slots__ = ("count",)

    def __init__(self, fn: Function, count: int, lanes: int) -> None:
        shown = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(lanes))
        super().__init__(fn, I1.of(lanes), f"<{shown}>")
        self.count = count

    def apart(self) -> Value:
        return self if self.count == 1 else super().apart()  # of one lane loads are scalar


def is_one_lane(mask: Value | None) -> bool:
    """Whether it is the constant mask of the first lane alone."""
    return isinstance(mask, LaneMask) and mask.count == 1


class Poison(Value):
    """Lanes of which nobody reads anything."""

    __slots__ = ()

    def __init__(self, fn: Function, type: Type) -> None:
        super().__init__(fn, type, "poison")

    def joined_to(self, other: Value, lanes: int) -> Value:
        return Poison(self.fn, self.type.of(lanes)) if isinstance(other, Poison) else super().joined_to(other, lanes)
