"""XlaRuntimeError, and the conversion of hlokit's errors to it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

from hlokit.errors import EvaluationError, HlokitError, UnknownTargetError, UnsupportedError

P = ParamSpec("P")
R = TypeVar("R")


class XlaRuntimeError(RuntimeError, HlokitError):
    """An error of the client. Its text starts with the status that XLA gives and holds the rule's label.

    Examples
    --------
    >>> from hlokit.interop import xla_client as xc
    >>> builder = xc.XlaBuilder("mixed")
    >>> one = xc.ops.Constant(builder, np.float32(1))
    >>> broken = xc.ops.Add(one, xc.ops.Constant(builder, np.int32(1)))
    >>> try:
    ...     builder.build()
    ... except xc.XlaRuntimeError as error:
    ...     print(str(error).partition(":")[0], "BIN-2" in str(error))
    INVALID_ARGUMENT True
    """


def status_error(error: HlokitError) -> XlaRuntimeError:
    """`error` as an XlaRuntimeError."""
    if isinstance(error, XlaRuntimeError):
        return error
    status = "INVALID_ARGUMENT"
    if isinstance(error, UnknownTargetError):
        status = "NOT_FOUND"
    elif isinstance(error, UnsupportedError):
        status = "UNIMPLEMENTED"
    elif isinstance(error, EvaluationError):
        status = "INTERNAL"
    return XlaRuntimeError(f"{status}: {error}")


@contextmanager
def status_errors() -> Generator[None]:
    """Errors of hlokit leave the block as XlaRuntimeError."""
    try:
        yield
    except XlaRuntimeError:
        raise
    except HlokitError as error:
        raise status_error(error) from error


def raises_status(function: Callable[P, R]) -> Callable[P, R]:
    """Errors of hlokit leave the function as XlaRuntimeError."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with status_errors():
            return function(*args, **kwargs)

    return wrapper


def invalid(message: str) -> XlaRuntimeError:
    return XlaRuntimeError(f"INVALID_ARGUMENT: {message}")


def unimplemented(message: str) -> XlaRuntimeError:
    return XlaRuntimeError(f"UNIMPLEMENTED: {message}")
