"""The command `hlokit`: one function per subcommand, in files of their own."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any, Literal

from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnusedCliTokensError
from rich.console import Console

from hlokit.errors import HlokitError
from hlokit.tools.bench import bench
from hlokit.tools.cache import cache
from hlokit.tools.check import check
from hlokit.tools.compare import compare
from hlokit.tools.compile import compile
from hlokit.tools.conform import conform
from hlokit.tools.convert import convert
from hlokit.tools.cost import cost
from hlokit.tools.debug import debug
from hlokit.tools.devices import devices
from hlokit.tools.diff import diff
from hlokit.tools.examples import epilogue
from hlokit.tools.explain import explain
from hlokit.tools.extract import extract
from hlokit.tools.fuzz import fuzz
from hlokit.tools.ops import ops
from hlokit.tools.opt import opt
from hlokit.tools.partition import partition
from hlokit.tools.print import print_module
from hlokit.tools.reduce import reduce
from hlokit.tools.run import run
from hlokit.tools.simulate import simulate
from hlokit.tools.status import BAD, DONE, message_of, say, status_of
from hlokit.tools.version import versions
from hlokit.tools.view import view

_HELP = """XLA in Python: read, check, show and run HLO programs.

Files may be `-`, standard input or output. Exit status: 0 done; 1 a finding or a difference; 2 bad input, a file that
cannot be read or is not a program, an unsupported feature, or wrong usage; 130 interrupted.
"""


class _Console(Console):
    """Rich's, which ends the process with status 1 when its output is not read."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _usage(error: CycloptsError) -> str:
    """The message, of one line, for words of a command line that are wrong."""
    message = str(error)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        name, field = error.argument.name, error.argument.field_info
        if field.is_positional:
            message = f"{name.removeprefix('--').upper()} is missing."
        else:
            count = max(1, error.argument.token_count()[0])
            values = "a value" if count == 1 else f"{count} values"
            message = f"{name} is missing." if field.required else f"{name} takes {values}."
    elif isinstance(error, UnusedCliTokensError):
        message = f"Unexpected: {' '.join(error.unused_tokens or [])}."
    return f"error: {message} (hlokit {' '.join((*(error.command_chain or ()), '--help'))} tells more)"


app = App(
    name="hlokit", help=_HELP, version=versions, version_format="plaintext", console=_Console(), error_formatter=_usage,
    suppress_keyboard_interrupt=False, default_parameter=Parameter(negative=()),
    error_console=_Console(stderr=True, soft_wrap=True, highlight=False, markup=False),
)  # fmt: skip


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Prints a script with which a shell completes subcommands, options, their values and files.

    For the current shell only: source <(hlokit completion bash). For all sessions: docs/command.md says where to put
    the script.

    Parameters
    ----------
    shell:
        bash, zsh or fish.
    """
    print(app.generate_completion(shell=shell))


for _command in (
    run, check, convert, opt, diff, view, compare, reduce, extract, fuzz, conform, cost, bench, debug, compile,
    partition, simulate, devices, ops, explain, completion,
):  # fmt: skip
    app.command(_command, help_epilogue=epilogue(_command.__name__))
app.command(print_module, name="print", help_epilogue=epilogue("print"))
app.command(cache)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits, with a status of the table in status.py; of an error it prints what is wrong."""
    _write_utf8()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            status = app([_word(word) for word in given], exit_on_error=False)
        finally:
            sys.stdout.flush()
    except CycloptsError:  # printed already
        status = BAD
    except BrokenPipeError as error:
        status = status_of(error)
        _drop_output()
    except (KeyboardInterrupt, HlokitError, OSError, MemoryError) as error:
        status = status_of(error)
        say(message_of(error))
    sys.exit(status if isinstance(status, int) else DONE)


def _word(word: str) -> str:
    """`-` as a path, which it is here, and no option without a name."""
    return "./-" if word == "-" else word


def _write_utf8() -> None:
    """Output to files and pipes is UTF-8 in any locale; a terminal shows escapes for what it has no characters for."""
    out: Any = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        return
    if out.isatty():
        out.reconfigure(errors="backslashreplace")
    else:
        out.reconfigure(encoding="utf-8", errors="surrogateescape")  # as names of files come


def _drop_output() -> None:
    """Drops what is still to be written: Python would say at its exit that it cannot be."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):  # not a file of the system's
        pass
    finally:
        os.close(nowhere)


if __name__ == "__main__":
    main()
