"""Checks of the operands of mathematical functions, and computing narrow types in f32."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

from hlokit.builder.broadcasting import scalar_to
from hlokit.builder.core import XlaOp, handles, rejected
from hlokit.errors import HlokitError, ShapeError
from hlokit.types import dtype as dtypes

P = ParamSpec("P")


def real_function(function: Callable[P, XlaOp]) -> Callable[P, XlaOp]:
    """A function of real floating arrays, all of one type and shape; numbers become constants of that shape.

    Types of less than 32 bits are computed in f32 and rounded once. Raises ShapeError (BEY-80).
    """
    names = list(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> XlaOp:
        operands = _of_one_shape(function.__name__, _in_order(names, args, kwargs))
        if not operands[0].dtype.is_floating:
            raise reject("BEY-80", function.__name__, "operands", "real floating", *operands)
        return _at_least_f32(function, operands)

    return checked


def elementary(of_complex: Callable[[XlaOp], XlaOp]) -> Callable[[Callable[[XlaOp], XlaOp]], Callable[[XlaOp], XlaOp]]:
    """A function of one real floating operand, for which `of_complex` stands in on complex ones.

    Types of less than 32 bits are computed in f32 and rounded once. Raises ShapeError (BEY-6).
    """

    def decorate(function: Callable[[XlaOp], XlaOp]) -> Callable[[XlaOp], XlaOp]:
        @wraps(function)
        def checked(operand: XlaOp) -> XlaOp:
            (operand,) = handles(operand)
            if operand.dtype.is_complex:
                return of_complex(operand)
            if not operand.dtype.is_floating:
                raise reject("BEY-6", function.__name__, "operand", "floating or complex", operand)
            return _at_least_f32(function, [operand])

        return checked

    return decorate


def reject(label: str, function: str, argument: str, expected: object, *operands: XlaOp) -> HlokitError:
    """The error of a composite function whose operands break a rule: raise what this returns."""
    found = operands[0].shape if len(operands) == 1 else tuple(o.shape for o in operands)
    return rejected(ShapeError(label, argument, found, expected), function, *operands)


def _in_order(names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    if len(args) + len(kwargs) != len(names) or not set(kwargs) <= set(names[len(args) :]):
        raise TypeError(f"expected the arguments {', '.join(names)}")
    return [*args, *(kwargs[name] for name in names[len(args) :])]


def _of_one_shape(function: str, arguments: list[Any]) -> list[XlaOp]:
    operands = list(handles(*arguments))
    given = [o for o, a in zip(operands, arguments) if isinstance(a, XlaOp)]
    if any(o.shape.static is not given[0].shape.static for o in given):
        raise reject("BEY-80", function, "operands", "one type and one shape", *operands)
    return [o if o.rank else scalar_to(o, given[0].shape.dimensions) for o in operands]


def _at_least_f32(function: Callable[..., XlaOp], operands: list[XlaOp]) -> XlaOp:
    narrow = operands[0].dtype
    if narrow.bits >= 32:
        return function(*operands)
    from hlokit.builder.elementwise import convert_element_type

    return convert_element_type(function(*(convert_element_type(o, dtypes.f32) for o in operands)), narrow)
