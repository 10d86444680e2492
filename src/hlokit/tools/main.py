"""The command `hlokit`: one function per subcommand, in files of their own."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App

from hlokit import __version__
from hlokit.errors import HlokitError
from hlokit.tools.cache import cache
from hlokit.tools.check import check
from hlokit.tools.compile import compile
from hlokit.tools.convert import convert
from hlokit.tools.explain import explain
from hlokit.tools.ops import ops
from hlokit.tools.opt import opt
from hlokit.tools.print import print_module
from hlokit.tools.run import run
from hlokit.tools.simulate import simulate

app = App(name="hlokit", help="XLA in Python: read, check, show and run HLO programs.", version=__version__)
app.command(run)
app.command(check)
app.command(print_module, name="print")
app.command(convert)
app.command(opt)
app.command(compile)
app.command(simulate)
app.command(ops)
app.command(explain)
app.command(cache)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits: status 0, or 1 with one error on stderr."""
    _write_utf8()
    try:
        status = app(arguments)
    except HlokitError as error:
        status = _fail("\n  ".join([str(error), *error.__notes__]))
    except FileNotFoundError as error:
        status = _fail(f"{error.filename}: no such file")
    except OSError as error:
        status = _fail(str(error))
    sys.exit(status if isinstance(status, int) else 0)


def _write_utf8() -> None:
    """Output to files and pipes is UTF-8 in any locale; a terminal shows escapes for what it has no characters for."""
    out: Any = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        return
    if out.isatty():
        out.reconfigure(errors="backslashreplace")
    else:
        out.reconfigure(encoding="utf-8", errors="surrogateescape")  # as names of files come


def _fail(message: str) -> int:
    """At most a screen of the error on stderr."""
    lines = message.splitlines()
    if len(lines) > 30:
        lines = [*lines[:30], f"... ({len(lines) - 30} more lines)"]
    print("error: " + "\n".join(lines), file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
