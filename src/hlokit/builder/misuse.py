"""Errors for arguments of a wrong type, which no rule covers; they name the argument.

Imported when a call has failed: calls that succeed cost nothing.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Iterable, Sequence, Sized
from numbers import Real
from operator import index
from types import NoneType, TracebackType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import numpy as np

from hlokit.builder.core import Builder, XlaOp
from hlokit.errors import MisuseError
from hlokit.hlo.computation import Computation
from hlokit.hlo.module import HloModule
from hlokit.types.attributes import Kind
from hlokit.types.dtype import DType
from hlokit.types.shape import Shape

_LIBRARIES = ("hlokit", "numpy", "ml_dtypes", "collections", "functools", "contextlib")
_NAMES: dict[Any, str] = {
    Builder: "a builder", Computation: "a computation", DType: "an element type, as hk.f32", HloModule: "a module",
    Shape: "a shape, as hk.f32[2, 3]", XlaOp: "a handle", bool: "True or False", float: "a number", int: "an int",
    str: "a str", NoneType: "None",
}  # fmt: skip


def misuse(error: Exception, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Exception:
    """The exception to raise for `error`: a MisuseError that names the first argument of a wrong type.

    `error` itself where none is: of code of the caller's that the function called, or a fault of this package.
    """
    try:
        given = inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return error
    if not _is_own(error.__traceback__):
        return error
    for name, value in given.arguments.items():
        hint = _hint(function, name)
        if name == "self" or hint is None:
            continue
        kind = given.signature.parameters[name].kind
        values = value if kind is inspect.Parameter.VAR_POSITIONAL else [value]
        for each in values:
            if not _fits(each, hint):
                found = f"{reprlib.repr(each)}, of type {type(each).__name__}"
                return MisuseError(f"{function.__name__}: {name}: found {found}, expected {_expected(hint)}")
    return error


def _is_own(tb: TracebackType | None) -> bool:
    """Whether the error comes from this package or from what it called, and not from code of the caller's."""
    modules: list[str] = []
    while tb is not None:
        modules.append(str(tb.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        tb = tb.tb_next
    return all(module in _LIBRARIES for module in modules)


def _hint(function: Callable[..., Any], name: str) -> Any:
    """The annotation of a parameter as an object; None if it cannot be known here."""
    function = inspect.unwrap(function)
    annotation = function.__annotations__.get(name)
    try:
        return eval(annotation, function.__globals__) if isinstance(annotation, str) else annotation
    except (NameError, TypeError):
        return None


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of an annotated type, as functions take it: NumPy's arrays are sequences."""
    hint = _resolved(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin in (Union, UnionType):
        return any(_fits(value, option) for option in inner)
    if origin is Annotated:
        kind = next((part for part in inner[1:] if isinstance(part, Kind)), None)
        return _is_normal(value, kind) if kind is not None else _fits(value, inner[0])
    if origin is Callable:
        return callable(value)
    if origin is tuple:
        fixed = inner if ... not in inner else None
        return _is_list(value) and (
            all(_fits(v, inner[0]) for v in value)
            if fixed is None
            else len(value) == len(fixed) and all(map(_fits, value, fixed))
        )
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _is_list(value) and all(_fits(part, inner[0]) for part in value)
    return _is_one(value, hint)


def _is_one(value: Any, hint: Any) -> bool:
    if hint is int:
        try:
            index(value)
        except TypeError:
            return False
        return True
    if hint is bool:
        return isinstance(value, (bool, np.bool_))
    if hint is float:
        return isinstance(value, (Real, np.bool_))
    return isinstance(value, hint) if isinstance(hint, type) else True


def _is_normal(value: Any, kind: Kind) -> bool:
    try:
        kind.normal(value)
    except Exception:
        return False
    return True


def _is_list(value: Any) -> bool:
    """Whether it has a length and parts; an iterator has none, and a handle is one thing."""
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sized) and isinstance(value, Iterable) and not isinstance(value, (str, bytes, XlaOp))


def _resolved(hint: Any) -> Any:
    """An alias that is text, as the object that it names."""
    if not isinstance(hint, str):
        return hint
    from hlokit.builder import collectives, contraction, core, prng

    names = {name: value for module in (core, collectives, contraction, prng) for name, value in vars(module).items()}
    return eval(hint, names)


def _expected(hint: Any) -> str:
    hint = _resolved(hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(_expected(option) for option in inner))
    if origin is Annotated:
        kind = next((part for part in inner[1:] if isinstance(part, Kind)), None)
        return kind.expected or kind.name if kind is not None else _expected(inner[0])
    if origin is tuple and ... not in inner:
        return f"({', '.join(map(_expected, inner))})"
    if origin is not None and inner and isinstance(origin, type) and issubclass(origin, Iterable):
        return f"a sequence, each {_expected(inner[0])}"
    if origin is not None:
        return "a function"
    return _NAMES.get(hint, getattr(hint, "__name__", str(hint)))
