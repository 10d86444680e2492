"""Elementwise arithmetic: one row per op, of one, two or three operands, which are never broadcast (HINST-8).

A row is the op's contract, its rules, the kinds of element type it takes (and the rule that says so), and its
function on the wide type in which the element type computes. The transcendental functions have a file of their own.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from hlokit.errors import ShapeError
from hlokit.forms.emitter import Emitter, Value
from hlokit.hlo.op import APPROXIMATED, COMPOSED, Op, check
from hlokit.hlo.values import Array
from hlokit.ops import complex_rules, functions, scalar_rules
from hlokit.ops.numerics import bits_of, element_type, from_bits, narrow, signed_bits_of, widen, widen_precisely
from hlokit.ops.scalar_rules import Rule, rule_of
from hlokit.types import dtype as dtypes
from hlokit.types.dtype import DType
from hlokit.types.shape import UNBOUNDED, Shape

PRED = frozenset({"pred"})
INTEGRAL = frozenset({"signed", "unsigned"})
FLOATING = frozenset({"floating"})
COMPLEX = frozenset({"complex"})
SIGNED = frozenset({"signed", "floating", "complex"})
ARITHMETIC = INTEGRAL | FLOATING | COMPLEX
ANY = ARITHMETIC | PRED


# -- what the rows share


class Unary(Op):
    """out[i] = function(operand[i]) (UN-2)."""

    arity = 1
    form = "map"
    rules = "UN"
    elementwise = True
    kinds: ClassVar[frozenset[str]]
    kinds_rule: ClassVar[str] = "UN-6"
    exact_complex: ClassVar[bool] = True
    function: ClassVar[Callable[..., Any]]
    rule: ClassVar[Rule]

    def infer(self, operand: Shape) -> Shape:
        if operand.dtype.kind not in self.kinds:
            reject_kind(operand, "operand", self.kinds, "UN-3", self.kinds_rule)
        return operand

    def reference(self, operand: Array) -> Any:
        return narrow(type(self).function(widen(operand)), operand.dtype)

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        return type(self).rule(emit, operand)

    def is_exact(self, *operands: Shape) -> bool:
        return self.exact_complex or not operands[0].dtype.is_complex


class Binary(Op):
    """out[i] = function(lhs[i], rhs[i]), operands of one shape and element type (BIN-1, BIN-2)."""

    arity = 2
    form = "map"
    rules = "BIN-1 BIN-2 BIN-3 BIN-9"
    elementwise = True
    kinds: ClassVar[frozenset[str]]
    kinds_rule: ClassVar[str] = "BIN-4"
    exact_complex: ClassVar[bool] = True
    function: ClassVar[Callable[..., Any]]
    rule: ClassVar[Rule]

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        if lhs is not rhs:
            lhs = merged(lhs, rhs)
        if lhs.dtype.kind not in self.kinds:
            reject_kind(lhs, "operands", self.kinds, "BIN-3", self.kinds_rule)
        return lhs

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return narrow(type(self).function(widen(lhs), widen(rhs)), lhs.dtype)

    def scalar(self, emit: Emitter, lhs: Value, rhs: Value) -> Value:
        return type(self).rule(emit, lhs, rhs)

    def is_exact(self, *operands: Shape) -> bool:
        return self.exact_complex or not operands[0].dtype.is_complex


def reject_kind(shape: Shape, argument: str, kinds: frozenset[str], not_array: str, wrong_kind: str) -> None:
    """Raises the ShapeError for an operand that is not an array, or of an element type outside `kinds`."""
    if not shape.is_array:
        raise ShapeError(not_array, argument, shape, "an array")
    expected = " or ".join(name for name in ("pred", "signed", "unsigned", "floating", "complex") if name in kinds)
    raise ShapeError(wrong_kind, f"element type of {argument}", shape.dtype, expected)


def merged(lhs: Shape, rhs: Shape, types_rule: str = "BIN-2") -> Shape:
    """The one shape of two operands, in lhs's layout: a dimension is dynamic if either's is (DYN-BCAST-1).

    An unbounded dimension takes the other's size (BEY-30). Raises ShapeError: BIN-3 for what is not an array,
    `types_rule` for different element types, also floating ones (TYPE-6, TYPE-7), BUILDER-15 for different sizes.
    """
    if not (lhs.is_array and rhs.is_array):
        raise ShapeError("BIN-3", "operands", (lhs, rhs), "arrays")
    if lhs.dtype is not rhs.dtype:
        raise ShapeError(types_rule, "element types", (lhs.dtype, rhs.dtype), "one type")
    sizes = lhs.dimensions
    if sizes == rhs.dimensions:
        return lhs.with_dynamic([f or g for f, g in zip(lhs.dynamic, rhs.dynamic, strict=True)])
    meets = (m == n or UNBOUNDED in (m, n) for m, n in zip(sizes, rhs.dimensions, strict=False))
    if len(sizes) != rhs.rank or not all(meets):
        raise ShapeError("BUILDER-15", "operands", (lhs, rhs), "equal dimensions")
    pairs = list(zip(sizes, lhs.dynamic, rhs.dimensions, rhs.dynamic, strict=True))
    dimensions = [max(m, n) for m, _, n, _ in pairs]
    flags = [g if m == UNBOUNDED else f if n == UNBOUNDED else f or g for m, f, n, g in pairs]
    return Shape.array(lhs.dtype, dimensions, flags, lhs.layout)


# -- one operand


class Abs(Unary, name="abs"):
    """|x|, which wraps for the smallest integer; for complex numbers the modulus, in the component type."""

    rounding = None
    rules, kinds, kinds_rule = "ABS", SIGNED, "ABS-4"
    rule = rule_of("abs", complex=complex_rules.absolute)
    exact_complex = False

    def infer(self, operand: Shape) -> Shape:
        return super().infer(operand).with_dtype(operand.dtype.real)

    def reference(self, operand: Array) -> Any:
        return narrow(np.abs(widen(operand)), element_type(operand.dtype).real.numpy)


class Negate(Unary, name="negate"):
    """-x: flips a float's sign bit, also of zero and NaN; integers wrap."""

    rounding = None
    rules, kinds, kinds_rule = "NEG", ARITHMETIC, "NEG-3"
    function = np.negative
    rule = rule_of("neg", complex=complex_rules.negate)


class Sign(Unary, name="sign"):
    """The sign of x, -1, 0 or 1; zeros and NaN are kept; x/|x| for complex numbers."""

    rounding = None
    rules, kinds, kinds_rule = "SIGN", SIGNED, "SIGN-4"
    function = functions.sign
    rule = rule_of(scalar_rules.sign, complex=complex_rules.sign)
    exact_complex = False


class Ceil(Unary, name="ceil"):
    """The smallest integral value not below x."""

    rounding = None
    rules, kinds, function = "CEIL", FLOATING, np.ceil
    rule = rule_of("ceil")


class Floor(Unary, name="floor"):
    """The largest integral value not above x."""

    rounding = None
    rules, kinds, function = "FLOOR", FLOATING, np.floor
    rule = rule_of("floor")


class RoundNearestAfz(Unary, name="round-nearest-afz"):
    """The nearest integral value, ties away from zero."""

    rounding = None
    rules, kinds, function = "ROUND", FLOATING, functions.round_away
    rule = scalar_rules.round_away


class RoundNearestEven(Unary, name="round-nearest-even"):
    """The nearest integral value, ties to the even one."""

    rounding = None
    rules, kinds, function = "ROUND", FLOATING, np.rint
    rule = rule_of("round_even")


class IsFinite(Unary, name="is-finite"):
    """Whether x is neither infinite nor NaN."""

    rules, kinds, kinds_rule = "ISFINITE", FLOATING, "ISFINITE-2"
    rule = scalar_rules.is_finite

    def infer(self, operand: Shape) -> Shape:
        return super().infer(operand).with_dtype(dtypes.pred)

    def reference(self, operand: Array) -> Any:
        return np.isfinite(widen(operand))


class Real(Unary, name="real"):
    """The real part, in the component type; a real number itself."""

    rounding = None
    rules, kinds, kinds_rule = "REAL", FLOATING | COMPLEX, "REAL-2"
    computes_wide = False

    def infer(self, operand: Shape) -> Shape:
        return super().infer(operand).with_dtype(operand.dtype.real)

    def reference(self, operand: Array) -> Any:
        return operand.real if operand.dtype.kind == "c" else operand

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        return emit.real(operand) if operand.dtype.is_complex else operand


class Imag(Real, name="imag"):
    """The imaginary part, in the component type; +0 for a real number."""

    rounding = None
    rules = "IMAG"

    def reference(self, operand: Array) -> Any:
        return operand.imag if operand.dtype.kind == "c" else np.zeros_like(operand)

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        if operand.dtype.is_complex:
            return emit.imag(operand)
        return emit.constant(np.zeros((), operand.dtype.numpy)[()], operand.dtype)  # f8e8m0fnu has no 0.0


class Not(Unary, name="not"):
    """Logical not of pred, bitwise not of integers."""

    rules, kinds, kinds_rule = "NOT", PRED | INTEGRAL, "NOT-2"
    function = np.invert
    rule = rule_of("not")


class PopulationCount(Unary, name="popcnt"):
    """The number of 1 bits, in the operand's type."""

    rules, kinds = "POPCNT", INTEGRAL
    rule, computes_wide = scalar_rules.population_count, False

    def reference(self, operand: Array) -> Any:
        return narrow(np.bitwise_count(bits_of(operand)), operand.dtype)


class CountLeadingZeros(Unary, name="count-leading-zeros"):
    """The number of 0 bits above the highest 1, in the operand's type; its width for 0."""

    rules, kinds = "BEY-14", INTEGRAL
    rule, computes_wide = scalar_rules.leading_zeros, False

    def reference(self, operand: Array) -> Any:
        width = element_type(operand.dtype).bits
        return narrow(functions.leading_zeros(bits_of(operand), width), operand.dtype)


class Copy(Op, name="copy"):
    """The operand, array or tuple, unchanged; its layout may differ (BEY-19)."""

    rounding = None
    arity = 1
    form = "map"
    rules = "BEY-19"
    same_elements = True
    elementwise = True
    passes_on = True
    whole_values = True
    computes_wide = False

    def infer(self, operand: Shape) -> Shape:
        return operand

    def reference(self, operand: Any) -> Any:
        return operand

    def scalar(self, emit: Emitter, operand: Value) -> Value:
        return operand


# -- two operands


class Add(Binary, name="add"):
    """x + y; logical or of pred."""

    rules = "BIN-4 BIN-6 BIN-7"
    kinds, commutative, function = ANY, True, np.add
    rule = rule_of("add", pred="or", complex=complex_rules.add)

    def associates(self, dtype: DType) -> bool:
        return _is_exact(dtype)

    def neutral(self, dtype: DType) -> Any:
        return -0.0 if dtype.is_floating else 0  # x + +0 makes -0 a +0


class Subtract(Binary, name="subtract"):
    """x - y."""

    rules = "BIN-4 BIN-6"
    kinds, function = ARITHMETIC, np.subtract
    rule = rule_of("sub", complex=complex_rules.subtract)


class Multiply(Binary, name="multiply"):
    """x * y; logical and of pred."""

    rules = "BIN-4 BIN-6 BIN-7"
    rounding = COMPOSED
    kinds, commutative, function = ANY, True, np.multiply
    rule = rule_of("mul", pred="and", complex=complex_rules.multiply)
    exact_complex = False

    def associates(self, dtype: DType) -> bool:
        return _is_exact(dtype)

    def neutral(self, dtype: DType) -> Any:
        return 1


class Divide(Binary, name="divide"):
    """x / y; integers round towards zero, and division by zero gives all ones."""

    rounding = COMPOSED
    rules, kinds, function = "BIN-4 DIV", ARITHMETIC, functions.divide
    rule = rule_of(scalar_rules.divide, complex=complex_rules.divide)
    exact_complex = False


class Remainder(Binary, name="remainder"):
    """The remainder of a division rounded towards zero, with x's sign; exact for floats."""

    rounding = COMPOSED
    rules, kinds, function = "BIN-4 REM", INTEGRAL | FLOATING, functions.remainder
    rule = scalar_rules.remainder

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        if lhs.dtype.is_complex and rhs.dtype is lhs.dtype:
            raise ShapeError("REM-5", "element type of operands", lhs.dtype, "signed or unsigned or floating")
        return super().infer(lhs, rhs)


class Maximum(Binary, name="maximum"):
    """The larger of x and y; NaN if either is NaN; +0 is larger than -0."""

    rounding = None
    rules, kinds, kinds_rule = "BIN-4 BIN-7 MAX", ANY - COMPLEX, "MAX-4"
    commutative, function = True, functions.maximum
    rule = scalar_rules.MAXIMUM

    def associates(self, dtype: DType) -> bool:
        return True

    def neutral(self, dtype: DType) -> Any:
        return _limits(dtype)[0]


class Minimum(Binary, name="minimum"):
    """The smaller of x and y; NaN if either is NaN; -0 is smaller than +0."""

    rounding = None
    rules, kinds, kinds_rule = "BIN-4 BIN-7 MAX", ANY - COMPLEX, "MAX-4"
    commutative, function = True, functions.minimum
    rule = scalar_rules.MINIMUM

    def associates(self, dtype: DType) -> bool:
        return True

    def neutral(self, dtype: DType) -> Any:
        return _limits(dtype)[1]


class Power(Binary, name="power"):
    """x to the power of y; for integers modulo 2^bits, and 0 for negative exponents unless x is 1 or -1."""

    rounding = APPROXIMATED
    rules, kinds, kinds_rule = "BEY-8 BEY-9", ARITHMETIC, "BEY-8"
    rule = rule_of(scalar_rules.power, complex=complex_rules.power)
    exact_complex = False
    transcendental = True

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return narrow(functions.power(widen_precisely(lhs), widen_precisely(rhs)), lhs.dtype)


class Atan2(Binary, name="atan2"):
    """The angle of the point (rhs, lhs), in (-pi, pi]."""

    rounding = APPROXIMATED
    rules, kinds, kinds_rule = "BEY-7", FLOATING | COMPLEX, "BEY-7"
    rule = rule_of("atan2", complex=complex_rules.atan2)
    exact_complex = False
    transcendental = True

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return narrow(functions.atan2(widen_precisely(lhs), widen_precisely(rhs)), lhs.dtype)


class And(Binary, name="and"):
    """Logical and of pred, bitwise and of integers."""

    rules = "BIN-5 BIN-8"
    kinds, kinds_rule = PRED | INTEGRAL, "BIN-5"
    commutative, function = True, np.bitwise_and
    rule = rule_of("and")

    def associates(self, dtype: DType) -> bool:
        return True

    def neutral(self, dtype: DType) -> Any:
        return -1 if dtype.kind == "signed" else _limits(dtype)[1]


class Or(Binary, name="or"):
    """Logical or of pred, bitwise or of integers."""

    rules = "BIN-5 BIN-8"
    kinds, kinds_rule = PRED | INTEGRAL, "BIN-5"
    commutative, function = True, np.bitwise_or
    rule = rule_of("or")

    def associates(self, dtype: DType) -> bool:
        return True

    def neutral(self, dtype: DType) -> Any:
        return 0


class Xor(Binary, name="xor"):
    """Logical exclusive or of pred, bitwise of integers."""

    rules, kinds, kinds_rule = "BEY-12", PRED | INTEGRAL, "BEY-12"
    commutative, function = True, np.bitwise_xor
    rule = rule_of("xor")

    def associates(self, dtype: DType) -> bool:
        return True

    def neutral(self, dtype: DType) -> Any:
        return 0


class Shift(Binary):
    """x shifted by y bits, y read as unsigned (BEY-13)."""

    rules, kinds, kinds_rule = "BEY-13", INTEGRAL, "BEY-13"
    computes_wide = False


class ShiftLeft(Shift, name="shift-left"):
    """x * 2^y; 0 if y is the type's width or more."""

    rule = scalar_rules.shift_left

    def reference(self, lhs: Array, rhs: Array) -> Any:
        amount, width = bits_of(rhs), element_type(lhs.dtype).bits
        moved = np.left_shift(bits_of(lhs), np.minimum(amount, width - 1))
        return from_bits(np.where(amount < width, moved, 0).astype(moved.dtype), lhs.dtype)


class ShiftRightLogical(Shift, name="shift-right-logical"):
    """x's bits moved down by y; zeros fill the top. 0 if y is the type's width or more."""

    rule = scalar_rules.shift_right_logical

    def reference(self, lhs: Array, rhs: Array) -> Any:
        amount, width = bits_of(rhs), element_type(lhs.dtype).bits
        moved = np.right_shift(bits_of(lhs), np.minimum(amount, width - 1))
        return from_bits(np.where(amount < width, moved, 0).astype(moved.dtype), lhs.dtype)


class ShiftRightArithmetic(Shift, name="shift-right-arithmetic"):
    """x's bits moved down by y; copies of the highest bit fill the top."""

    rule = scalar_rules.shift_right_arithmetic

    def reference(self, lhs: Array, rhs: Array) -> Any:
        amount = np.minimum(bits_of(rhs), element_type(lhs.dtype).bits - 1)
        signed = signed_bits_of(lhs)
        moved = np.right_shift(signed, amount.astype(signed.dtype))
        return from_bits(np.asarray(moved).view(bits_of(lhs).dtype), lhs.dtype)


class Complex(Binary, name="complex"):
    """The complex number with these real and imaginary parts: c64 of f32, c128 of f64."""

    rounding = None
    rules, kinds, kinds_rule = "BEY-10", FLOATING, "BEY-10"
    rule = rule_of("complex")

    def infer(self, lhs: Shape, rhs: Shape) -> Shape:
        parts = super().infer(lhs, rhs)
        check(parts.dtype.bits >= 32, "BEY-10", "element type of operands", parts.dtype, "f32 or f64")
        return parts.with_dtype(dtypes.c64 if parts.dtype is dtypes.f32 else dtypes.c128)

    def reference(self, lhs: Array, rhs: Array) -> Any:
        return functions.make_complex(lhs, rhs)


class Mulhi(Binary, name="mulhi"):
    """The upper half of the product at twice the width."""

    rules, kinds, kinds_rule, commutative = "BEY-15", INTEGRAL, "BEY-15", True
    rule, computes_wide = scalar_rules.high_product, False

    def reference(self, lhs: Array, rhs: Array) -> Any:
        bits = element_type(lhs.dtype).bits
        return narrow(functions.high_product(widen(lhs), widen(rhs), bits), lhs.dtype)


# -- three operands


class Select(Op, name="select"):
    """on_true where pred holds, else on_false; a scalar pred selects for all elements."""

    rounding = None
    arity = 3
    form = "map"
    rules = "SEL"
    elementwise = True
    computes_wide = False

    def infer(self, pred: Shape, on_true: Shape, on_false: Shape) -> Shape:
        if pred.dtype is not dtypes.pred:
            raise ShapeError("SEL-3", "pred", pred, "an array of pred")
        if not on_true.is_array or on_true.static is not on_false.static:
            raise ShapeError("SEL-4", "on_true, on_false", (on_true, on_false), "arrays of one shape")
        if pred.dimensions and pred.dimensions != on_true.dimensions:
            raise ShapeError("SEL-5", "pred", pred, f"pred[] or the dimensions of {on_true}")
        result = on_true if on_true is on_false else merged(on_true, on_false)
        if pred.is_dynamic:
            result = result.with_dynamic([f or g for f, g in zip(pred.dynamic, result.dynamic, strict=True)])
        return result

    def reference(self, pred: Array, on_true: Array, on_false: Array) -> Any:
        return np.where(pred, on_true, on_false)

    def scalar(self, emit: Emitter, pred: Value, on_true: Value, on_false: Value) -> Value:
        return emit.select(pred, on_true, on_false)


class Clamp(Op, name="clamp"):
    """minimum(maximum(min, operand), max); scalar bounds apply to all elements."""

    rounding = None
    arity = 3
    form = "map"
    rules = "CLAMP"
    elementwise = True

    def infer(self, min: Shape, operand: Shape, max: Shape) -> Shape:
        if operand.dtype.kind not in ANY - COMPLEX:
            reject_kind(operand, "operand", ANY - COMPLEX, "UN-3", "CLAMP-10")
        for name, bound in (("min", min), ("max", max)):
            if bound.dtype is not operand.dtype:
                raise ShapeError("CLAMP-3", f"element type of {name}", bound.dtype, operand.dtype)
            if bound.dimensions and bound.dimensions != operand.dimensions:
                raise ShapeError("CLAMP-4", name, bound, f"a scalar or the dimensions of {operand}")
            if any(bounds and not has for bounds, has in zip(bound.dynamic, operand.dynamic, strict=False)):
                raise ShapeError("CLAMP-4", name, bound, f"static dimensions where {operand} has them")
        return operand

    def reference(self, min: Array, operand: Array, max: Array) -> Any:
        raised = functions.maximum(widen(min), widen(operand))
        return narrow(functions.minimum(raised, widen(max)), operand.dtype)

    def scalar(self, emit: Emitter, min: Value, operand: Value, max: Value) -> Value:
        return scalar_rules.clamp(emit, min, operand, max)


def _is_exact(dtype: DType) -> bool:
    """Sums and products of this type are not rounded."""
    return dtype.is_integral or dtype.kind == "pred"


def _limits(dtype: DType) -> tuple[Any, Any]:
    """The least and the greatest value."""
    if dtype.kind == "pred":
        return False, True
    if dtype.is_floating:
        return -np.inf, np.inf
    highest = 2 ** (dtype.bits - (dtype.kind == "signed")) - 1
    return (-highest - 1 if dtype.kind == "signed" else 0), highest
