"""Tracebacks of errors that are raised deliberately end where this package was called: its own frames are omitted.

An error that passes a function marked `public` on its way to the caller's code loses the frames of this package;
frames of the caller's own functions that the package called stay. Errors that a sound program cannot raise keep all:
what is not an HlokitError, and what is_internal finds. HLOKIT_TRACEBACK_FILTERING=off keeps all frames of all errors.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from types import FrameType, FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

from hlokit.errors import BuildError, HlokitError, MissingNameError, ShadowMismatch, ShapeError, VerifyError

_P = ParamSpec("_P")
_T = TypeVar("_T")
_Class = TypeVar("_Class", bound=type)
_LIBRARY = sysconfig.get_path("stdlib")
_MACHINERY = ("hlokit.passes.", "hlokit.cpu.")
"""Packages that change programs: one that was right when they got it stays right."""


def public(
    function: Callable[_P, _T],
    complete: Callable[[HlokitError, str, tuple[Any, ...]], None] | None = None,
    misuse: Callable[[Exception, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Exception] | None = None,
) -> Callable[_P, _T]:
    """`function`, whose errors have tracebacks that end in the caller's code.

    `complete(error, name, arguments)`: puts in what the error does not say of the call. Arguments that do not fit the
    signature are named with it. `misuse(error, function, args, kwargs)`: what to raise in the place of an error of no
    class of this package.
    """

    @wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except HlokitError as error:
            if not _is_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                if misuse is not None and isinstance(error, MissingNameError):  # of an argument that is a handle
                    found = misuse(error, function, args, kwargs)
                    if found is not error:
                        raise found from None
                if complete is not None:
                    complete(error, function.__name__, (*args, *kwargs.values()))
                shorten(error)
            raise
        except Exception as error:
            if not _binds(function, args, kwargs):
                _name_signature(error, function)
            elif misuse is not None and not _is_own(sys._getframe(1)):  # pyright: ignore[reportPrivateUsage]
                found = misuse(error, function, args, kwargs)
                if found is not error:
                    raise found from None
            raise

    return run


def _binds(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the arguments fit the signature."""
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def public_methods(
    *operators: str,
    but: Sequence[str] = (),
    misuse: Callable[[Exception, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Exception] | None = None,
) -> Callable[[_Class], _Class]:
    """Makes a class's methods public, but some, and these operators; `misuse` as for `public`."""

    def decorate(cls: _Class) -> _Class:
        for name, value in list(vars(cls).items()):
            if isinstance(value, FunctionType) and (name in operators or not (name.startswith("_") or name in but)):
                setattr(cls, name, public(value, misuse=misuse))
        return cls

    return decorate


def shorten(error: HlokitError) -> None:
    """Takes this package's frames out of the error's traceback, which `raise` without operand keeps so."""
    if os.environ.get("HLOKIT_TRACEBACK_FILTERING") == "off" or is_internal(error):
        return
    kept = [tb for tb, own in _frames(error) if not own]
    shortened = None
    for tb in reversed(kept):
        shortened = TracebackType(shortened, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__traceback__ = shortened


def is_internal(error: HlokitError) -> bool:
    """Whether it is a fault of this package: a pass or the compiler broke a program, or made wrong code of it."""
    if isinstance(error, VerifyError) and error.after is not None:
        return True
    if isinstance(error, (ShapeError, BuildError, VerifyError)):
        modules = [_module(tb.tb_frame) for tb in _chain(error)]
        return any(name.startswith(_MACHINERY) for name in modules)
    return isinstance(error, ShadowMismatch)


def own_frames(error: HlokitError) -> list[str]:
    """The modules of this package that the error came through since the caller's code was left for the last time."""
    found: list[str] = []
    for tb, own in _frames(error):
        if not own:
            found.clear()
        elif _module(tb.tb_frame) != __name__:
            found.append(_module(tb.tb_frame))
    return found


def _frames(error: HlokitError) -> Iterator[tuple[TracebackType, bool]]:
    """The traceback's entries, and whether each is this package's or the standard library's at work for it."""
    own = False
    for tb in _chain(error):
        own = _is_own(tb.tb_frame) or (own and tb.tb_frame.f_code.co_filename.startswith(_LIBRARY))
        yield tb, own


def _chain(error: HlokitError) -> Iterable[TracebackType]:
    tb = error.__traceback__
    while tb is not None:
        yield tb
        tb = tb.tb_next


def _is_own(frame: FrameType) -> bool:
    name = _module(frame)
    return name == "hlokit" or name.startswith("hlokit.")


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _name_signature(error: Exception, function: Callable[..., Any]) -> None:
    """Adds the signature to the error for arguments that do not fit it; its only frame is the wrapper's, and goes."""
    parameters = [
        str(parameter.replace(annotation=parameter.empty))
        for name, parameter in inspect.signature(function).parameters.items()
        if name != "self"
    ]
    error.args = (f"{error}: its arguments are ({', '.join(parameters)})",)
    error.__traceback__ = None
