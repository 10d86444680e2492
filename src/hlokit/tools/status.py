"""Exit statuses: one table for all subcommands, the errors that end with each, and the printing of errors."""

from __future__ import annotations

import sys

from hlokit.errors import EvaluationError, HlokitError, OutOfMemoryError, ParseError, ShadowMismatch, VerifyError

DONE = 0
FOUND = 1
"""A finding or a difference: a finding of `check`, a pass that breaks a rule, a program that fails while it runs."""
BAD = 2
"""Nothing was done: bad input, a file that cannot be read or is not a program, an unsupported feature, wrong usage."""
INTERRUPTED = 130
BROKEN_PIPE = 141
"""The reader of the output closed it before its end."""


def status_of(error: BaseException) -> int:
    """The exit status of a command that ends with this error."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, BrokenPipeError):
        return BROKEN_PIPE
    if isinstance(error, VerifyError):
        return FOUND if error.after else BAD
    found = isinstance(error, (EvaluationError, ShadowMismatch)) and not isinstance(error, OutOfMemoryError)
    return FOUND if found else BAD


def is_finding(error: HlokitError) -> bool:
    """Whether `check` takes an error for a finding: a program that can be read breaks a rule."""
    if isinstance(error, ParseError):
        return bool(error.label) and not error.is_syntax
    return isinstance(error, VerifyError) or status_of(error) == FOUND


def message_of(error: BaseException) -> str:
    """The message of an error, without the traceback."""
    if isinstance(error, HlokitError):
        return "\n  ".join([str(error), *error.__notes__])
    if isinstance(error, OSError) and error.strerror:
        reason = error.strerror[0].lower() + error.strerror[1:]
        if isinstance(error, IsADirectoryError):
            reason += "; expected one of its files"
        return f"{error.filename}: {reason}" if error.filename else reason
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)


def say(message: str) -> None:
    """Prints at most a screen of the error on stderr."""
    lines = message.splitlines()
    if len(lines) > 30:
        lines = [*lines[:30], f"... ({len(lines) - 30} more lines)"]
    print("error: " + "\n".join(lines), file=sys.stderr)
