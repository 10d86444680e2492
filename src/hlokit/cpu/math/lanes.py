"""Values in the writing: SSA names with operators, one or many lanes wide."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from hlokit.cpu.llvm import Function, float_constant, splat, vector
from hlokit.cpu.target import Target

FLOAT_BITS = {"half": 16, "float": 32, "double": 64}
MANTISSA = {"float": 23, "double": 52}


@dataclass(frozen=True)
class Lanes:
    """Where values are written: a function, and how many lanes each has."""

    fn: Function
    lanes: int
    target: Target

    def type(self, scalar: str) -> str:
        return vector(scalar, self.lanes)

    def value(self, name: str, scalar: str) -> Value:
        """An SSA name, or a constant's text, as a value."""
        return Value(self, name, scalar)

    def constant(self, number: float | int, scalar: str) -> Value:
        """The number in every lane; an i1 is True or False."""
        if scalar in FLOAT_BITS:
            text = float_constant(number, scalar)
        elif scalar == "i1":
            text = "true" if number else "false"
        else:
            text = str(int(number))
        return Value(self, splat(text, scalar, self.lanes), scalar)

    def float_bits(self, bits: int, scalar: str) -> Value:
        """The float with these bits in every lane; `scalar` is float or double."""
        number: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0] if scalar == "double" else 0.0
        if scalar == "float":
            number = struct.unpack("<f", bits.to_bytes(4, "little"))[0]
        return self.constant(number, scalar)

    def let(self, instruction: str, scalar: str) -> Value:
        return Value(self, self.fn.let(instruction), scalar)

    def call(self, intrinsic: str, scalar: str, *operands: Value, extra: str = "") -> Value:
        """A generic intrinsic whose operands all have its one overloaded type."""
        kind = self.type(scalar)
        listed = ", ".join(f"{self.type(v.scalar)} {v.name}" for v in operands)
        return self.let(f"call {kind} @llvm.{intrinsic}.{mangled(scalar, self.lanes)}({listed}{extra})", scalar)

    def select(self, condition: Value, then: Value, otherwise: Value) -> Value:
        kind = self.type(then.scalar)
        text = f"select {self.type('i1')} {condition.name}, {kind} {then.name}, {kind} {otherwise.name}"
        return self.let(text, then.scalar)

    def any(self, condition: Value) -> str:
        """An i1: whether the condition holds in any lane."""
        if self.lanes == 1:
            return condition.name
        bits = self.fn.let(f"bitcast {self.type('i1')} {condition.name} to i{self.lanes}")
        return self.fn.let(f"icmp ne i{self.lanes} {bits}, 0")

    def padded(self, value: Value) -> Value:
        """A value of fewer lanes with zeros after them."""
        own, kind = value.lanes.lanes, value.type
        if own == 1:
            return self.let(
                f"insertelement {self.type(value.scalar)} zeroinitializer, {kind} {value.name}, i64 0", value.scalar
            )
        mask = ", ".join(f"i32 {min(k, own)}" for k in range(self.lanes))
        text = f"shufflevector {kind} {value.name}, {kind} zeroinitializer, <{self.lanes} x i32> <{mask}>"
        return self.let(text, value.scalar)

    def first(self, value: Value) -> Value:
        """Undoes padded."""
        if self.lanes == 1:
            return self.let(f"extractelement {value.type} {value.name}, i64 0", value.scalar)
        return value.lanes.split(value, self.lanes)[0]

    def split(self, value: Value, width: int) -> list[Value]:
        """The value in pieces of `width` lanes, which divides the number of lanes."""
        if width == self.lanes:
            return [value]
        kind, piece = self.type(value.scalar), Lanes(self.fn, width, self.target)
        pieces: list[Value] = []
        for start in range(0, self.lanes, width):
            mask = ", ".join(f"i32 {i}" for i in range(start, start + width))
            pieces.append(
                piece.let(f"shufflevector {kind} {value.name}, {kind} poison, <{width} x i32> <{mask}>", value.scalar)
            )
        return pieces

    def join(self, pieces: list[Value]) -> Value:
        """Undoes split."""
        while len(pieces) > 1:
            width = pieces[0].lanes.lanes
            wide = Lanes(self.fn, 2 * width, self.target)
            mask = ", ".join(f"i32 {i}" for i in range(2 * width))
            kind = pieces[0].type
            pieces = [
                wide.let(f"shufflevector {kind} {a.name}, {kind} {b.name}, <{2 * width} x i32> <{mask}>", a.scalar)
                for a, b in zip(pieces[::2], pieces[1::2], strict=True)
            ]
        return Value(self, pieces[0].name, pieces[0].scalar)


def mangled(scalar: str, lanes: int) -> str:
    """The suffix by which intrinsics name a type: v16f32, i8."""
    short = f"f{FLOAT_BITS[scalar]}" if scalar in FLOAT_BITS else scalar
    return short if lanes == 1 else f"v{lanes}{short}"


@dataclass(frozen=True)
class Value:
    """One SSA value of `lanes` lanes of `scalar`. Operators append instructions; numbers become constants.

    + - * are of floats or integers by the type; >> is logical. Comparisons are methods: < of floats is `lt`, false for
    NaN, of integers signed.
    """

    lanes: Lanes
    name: str
    scalar: str

    @property
    def type(self) -> str:
        return self.lanes.type(self.scalar)

    @property
    def is_float(self) -> bool:
        return self.scalar in FLOAT_BITS

    @property
    def bits(self) -> int:
        return FLOAT_BITS.get(self.scalar) or int(self.scalar[1:])

    def operand(self, other: Value | float) -> Value:
        return other if isinstance(other, Value) else self.lanes.constant(other, self.scalar)

    def binary(self, instruction: str, other: Value | float) -> Value:
        return self.lanes.let(f"{instruction} {self.type} {self.name}, {self.operand(other).name}", self.scalar)

    def compare(self, predicate: str, other: Value | float) -> Value:
        """`oeq`, `une`, `ult`, ... of floats; `eq`, `slt`, `ult`, ... of integers."""
        kind = "fcmp" if self.is_float else "icmp"
        return self.lanes.let(f"{kind} {predicate} {self.type} {self.name}, {self.operand(other).name}", "i1")

    def cast(self, instruction: str, scalar: str) -> Value:
        if scalar == self.scalar:
            return self
        return self.lanes.let(f"{instruction} {self.type} {self.name} to {self.lanes.type(scalar)}", scalar)

    def as_bits(self) -> Value:
        """The bits of a float as an integer."""
        return self.cast("bitcast", f"i{self.bits}")

    def as_float(self) -> Value:
        """The half, float or double with these bits."""
        return self.cast("bitcast", next(scalar for scalar, bits in FLOAT_BITS.items() if bits == self.bits))

    def __add__(self, other: Value | float) -> Value:
        return self.binary("fadd" if self.is_float else "add", other)

    def __sub__(self, other: Value | float) -> Value:
        return self.binary("fsub" if self.is_float else "sub", other)

    def __rsub__(self, other: Value | float) -> Value:
        return self.operand(other) - self

    def __mul__(self, other: Value | float) -> Value:
        return self.binary("fmul" if self.is_float else "mul", other)

    def __truediv__(self, other: Value | float) -> Value:
        return self.binary("fdiv", other)

    def __rtruediv__(self, other: Value | float) -> Value:
        return self.operand(other) / self

    def __neg__(self) -> Value:
        return self.lanes.let(f"fneg {self.type} {self.name}", self.scalar) if self.is_float else 0 - self

    def __and__(self, other: Value | float) -> Value:
        return self.binary("and", other)

    def __or__(self, other: Value | float) -> Value:
        return self.binary("or", other)

    def __xor__(self, other: Value | float) -> Value:
        return self.binary("xor", other)

    def __lshift__(self, other: Value | float) -> Value:
        return self.binary("shl", other)

    def __rshift__(self, other: Value | float) -> Value:
        return self.binary("lshr", other)

    def sar(self, other: Value | float) -> Value:
        return self.binary("ashr", other)

    def lt(self, other: Value | float) -> Value:
        return self.compare("olt" if self.is_float else "slt", other)

    def gt(self, other: Value | float) -> Value:
        return self.compare("ogt" if self.is_float else "sgt", other)

    def eq(self, other: Value | float) -> Value:
        return self.compare("oeq" if self.is_float else "eq", other)

    def fma(self, factor: Value | float, addend: Value | float) -> Value:
        """self * factor + addend, rounded once."""
        return self.lanes.call("fma", self.scalar, self, self.operand(factor), self.operand(addend))

    def abs(self) -> Value:
        return self.lanes.call("fabs", self.scalar, self)

    def copysign(self, sign: Value | float) -> Value:
        return self.lanes.call("copysign", self.scalar, self, self.operand(sign))

    def rounded(self) -> Value:
        """The nearest integral value, ties to even."""
        return self.lanes.call("roundeven", self.scalar, self)

    def where(self, condition: Value, otherwise: Value | float) -> Value:
        """self where the condition holds, else `otherwise`."""
        return self.lanes.select(condition, self, self.operand(otherwise))
