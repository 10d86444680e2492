"""Transcendental functions: computed in f64 or c128 and rounded once, whatever accuracy is asked for (UN-7)."""

from typing import Any, ClassVar

import numpy as np

from hlokit.hlo.op import attr
from hlokit.hlo.values import Array
from hlokit.ops import functions
from hlokit.ops.elementwise import COMPLEX, FLOATING, Unary
from hlokit.ops.numerics import narrow, widen_precisely
from hlokit.types.attributes import Accuracy


class Transcendental(Unary):
    """A function of floats and complex numbers; `result_accuracy` is what a backend must meet (BEY-17)."""

    result_accuracy: Accuracy = attr(None)

    kinds: ClassVar[frozenset[str]] = FLOATING | COMPLEX

    def reference(self, operand: Array) -> Any:
        return narrow(type(self).function(widen_precisely(operand)), operand.dtype)


class Exponential(Transcendental, name="exponential"):
    """e to the x."""

    rules, function = "EXP", np.exp


class ExponentialMinusOne(Transcendental, name="exponential-minus-one"):
    """exp(x) - 1 without cancellation near 0."""

    rules, function = "BEY", np.expm1


class Log(Transcendental, name="log"):
    """The natural logarithm; of complex numbers with imaginary part in (-pi, pi]."""

    rules, function = "LOG", np.log


class LogPlusOne(Transcendental, name="log-plus-one"):
    """log(1 + x) without cancellation near 0."""

    rules, function = "BEY", functions.log_plus_one


class Logistic(Transcendental, name="logistic"):
    """1 / (1 + exp(-x))."""

    rules, function = "LOGISTIC", functions.logistic


class Sqrt(Transcendental, name="sqrt"):
    """The square root; of complex numbers the one with nonnegative real part."""

    rules, function = "SQRT", np.sqrt


class Rsqrt(Transcendental, name="rsqrt"):
    """1 / sqrt(x)."""

    rules, function = "RSQRT", functions.reciprocal_square_root


class Cbrt(Transcendental, name="cbrt"):
    """The real cube root."""

    rules, kinds, function = "CBRT", FLOATING, np.cbrt


class Sine(Transcendental, name="sine"):
    """sin(x)."""

    rules, function = "BEY", np.sin


class Cosine(Transcendental, name="cosine"):
    """cos(x)."""

    rules, function = "COS", np.cos


class Tan(Transcendental, name="tan"):
    """tan(x)."""

    rules, function = "BEY", np.tan


class Tanh(Transcendental, name="tanh"):
    """The hyperbolic tangent."""

    rules, function = "TANH", np.tanh


class Erf(Transcendental, name="erf"):
    """The error function."""

    rules, kinds, function = "BEY", FLOATING, functions.error_function


class Acos(Transcendental, name="acos"):
    """The inverse cosine, in [0, pi]."""

    rules, function = "BEY", np.arccos


class Acosh(Transcendental, name="acosh"):
    """The inverse hyperbolic cosine."""

    rules, function = "BEY", np.arccosh


class Asin(Transcendental, name="asin"):
    """The inverse sine, in [-pi/2, pi/2]."""

    rules, function = "BEY", np.arcsin


class Asinh(Transcendental, name="asinh"):
    """The inverse hyperbolic sine."""

    rules, function = "BEY", np.arcsinh


class Atan(Transcendental, name="atan"):
    """The inverse tangent, in [-pi/2, pi/2]."""

    rules, function = "BEY", np.arctan


class Atanh(Transcendental, name="atanh"):
    """The inverse hyperbolic tangent."""

    rules, function = "BEY", np.arctanh


class Cosh(Transcendental, name="cosh"):
    """The hyperbolic cosine."""

    rules, function = "BEY", np.cosh


class Sinh(Transcendental, name="sinh"):
    """The hyperbolic sine."""

    rules, function = "BEY", np.sinh
