"""Transcendental functions: computed in f64 or c128 and rounded once, regardless of the requested accuracy (UN-7)."""

from typing import Any, ClassVar

import numpy as np

from hlokit.hlo.op import APPROXIMATED, attr
from hlokit.hlo.values import Array
from hlokit.ops import complex_rules, functions, scalar_rules
from hlokit.ops.elementwise import COMPLEX, FLOATING, Unary
from hlokit.ops.numerics import narrow, widen_precisely
from hlokit.ops.scalar_rules import rule_of
from hlokit.types.attributes import Accuracy
from hlokit.types.shape import Shape


class Transcendental(Unary):
    """A function of floats and complex numbers; `result_accuracy` is what a backend must meet (BEY-17)."""

    result_accuracy: Accuracy = attr(None)

    rounding = APPROXIMATED
    kinds: ClassVar[frozenset[str]] = FLOATING | COMPLEX
    exact_complex = False
    transcendental = True

    def reference(self, operand: Array) -> Any:
        return narrow(type(self).function(widen_precisely(operand)), operand.dtype)


class Exponential(Transcendental, name="exponential"):
    """e to the power of x."""

    rules, function = "EXP", np.exp
    rule = rule_of("exp", complex=complex_rules.exponential)


class Exp2(Transcendental, name="exp2"):
    """2 to the power of x."""

    rules, kinds, function = "BEY-81", FLOATING, np.exp2
    rule = rule_of(scalar_rules.power_of_two)

    def is_exact(self, *operands: Shape) -> bool:
        return False


class ExponentialMinusOne(Transcendental, name="exponential-minus-one"):
    """exp(x) - 1 without cancellation near 0."""

    rules, function = "BEY-4", functions.exponential_minus_one
    rule = rule_of("expm1", complex=complex_rules.exponential_minus_one)


class Log(Transcendental, name="log"):
    """The natural logarithm; of complex numbers with imaginary part in (-pi, pi]."""

    rules, function = "LOG", np.log
    rule = rule_of("log", complex=complex_rules.log)


class Log2(Transcendental, name="log2"):
    """The logarithm to the base 2."""

    rules, kinds, function = "BEY-81", FLOATING, np.log2
    rule = rule_of(scalar_rules.logarithm_to_two)

    def is_exact(self, *operands: Shape) -> bool:
        return False


class LogPlusOne(Transcendental, name="log-plus-one"):
    """log(1 + x) without cancellation near 0."""

    rules, function = "BEY-5", functions.log_plus_one
    rule = rule_of("log1p", complex=complex_rules.log_plus_one)


class Logistic(Transcendental, name="logistic"):
    """1 / (1 + exp(-x))."""

    rules, function = "LOGISTIC", functions.logistic
    rule = rule_of(scalar_rules.logistic, complex=complex_rules.logistic)


class Sqrt(Transcendental, name="sqrt"):
    """The square root; of complex numbers the one with nonnegative real part."""

    rules, function = "SQRT", np.sqrt
    rule = rule_of("sqrt", complex=complex_rules.sqrt)


class Rsqrt(Transcendental, name="rsqrt"):
    """1 / sqrt(x)."""

    rules, function = "RSQRT", functions.reciprocal_square_root
    rule = rule_of(scalar_rules.rsqrt, complex=complex_rules.rsqrt)

    def is_exact(self, *operands: Shape) -> bool:
        return operands[0].dtype.name == "f64"  # else two roundings of the type where the reference has one


class Cbrt(Transcendental, name="cbrt"):
    """The real cube root."""

    rules, kinds, function = "CBRT", FLOATING, np.cbrt
    rule = rule_of("cbrt")


class Sine(Transcendental, name="sine"):
    """sin(x)."""

    rules, function = "BEY-1", np.sin
    rule = rule_of("sin", complex=complex_rules.sine)


class Cosine(Transcendental, name="cosine"):
    """cos(x)."""

    rules, function = "COS", np.cos
    rule = rule_of("cos", complex=complex_rules.cosine)


class Tan(Transcendental, name="tan"):
    """tan(x)."""

    rules, function = "BEY-2", functions.tan
    rule = rule_of(scalar_rules.tan, complex=complex_rules.tan)


class Tanh(Transcendental, name="tanh"):
    """The hyperbolic tangent."""

    rules, function = "TANH", functions.tanh
    rule = rule_of("tanh", complex=complex_rules.tanh)


class Erf(Transcendental, name="erf"):
    """The error function."""

    rules, kinds, function = "BEY-3", FLOATING, functions.error_function
    rule = rule_of("erf")


class Acos(Transcendental, name="acos"):
    """The inverse cosine, in [0, pi]."""

    rules, function = "BEY-6", np.arccos
    rule = rule_of(scalar_rules.acos, complex=complex_rules.acos)


class Acosh(Transcendental, name="acosh"):
    """The inverse hyperbolic cosine."""

    rules, function = "BEY-6", np.arccosh
    rule = rule_of(scalar_rules.acosh, complex=complex_rules.acosh)


class Asin(Transcendental, name="asin"):
    """The inverse sine, in [-pi/2, pi/2]."""

    rules, function = "BEY-6", np.arcsin
    rule = rule_of(scalar_rules.asin, complex=complex_rules.asin)


class Asinh(Transcendental, name="asinh"):
    """The inverse hyperbolic sine."""

    rules, function = "BEY-6", np.arcsinh
    rule = rule_of(scalar_rules.asinh, complex=complex_rules.asinh)


class Atan(Transcendental, name="atan"):
    """The inverse tangent, in [-pi/2, pi/2]."""

    rules, function = "BEY-6", np.arctan
    rule = rule_of(scalar_rules.atan, complex=complex_rules.atan)


class Atanh(Transcendental, name="atanh"):
    """The inverse hyperbolic tangent."""

    rules, function = "BEY-6", np.arctanh
    rule = rule_of(scalar_rules.atanh, complex=complex_rules.atanh)


class Cosh(Transcendental, name="cosh"):
    """The hyperbolic cosine."""

    rules, function = "BEY-6", np.cosh
    rule = rule_of(scalar_rules.cosh, complex=complex_rules.cosh)


class Sinh(Transcendental, name="sinh"):
    """The hyperbolic sine."""

    rules, function = "BEY-6", np.sinh
    rule = rule_of(scalar_rules.sinh, complex=complex_rules.sinh)
