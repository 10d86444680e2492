"""hlokit opt: rewrites a program by passes."""

from __future__ import annotations

import runpy
import traceback
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from hlokit.api import verify
from hlokit.errors import ArgumentError, HlokitError
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import PASSES, optimize
from hlokit.tools.files import loaded, write


def opt(
    file: Path | None = None,
    *,
    passes: str | None = None,
    load: Path | None = None,
    print_after_all: bool = False,
    list_passes: bool = False,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
) -> None:
    """Runs passes on a module, verifies it after each, and prints or writes the result.

    Parameters
    ----------
    file:
        a program in any kind of file that hlokit reads; `-` is standard input.
    passes:
        names separated by commas, e.g. algsimp,constant-folding,dce; without it the default pipeline.
    load:
        a Python file that defines your own passes or rules; it is run.
    print_after_all:
        print the module before the first pass and after each that changed it.
    list_passes:
        list the passes and do nothing else.
    output:
        the file to write, as HLO text; by default standard output.
    """
    if load is not None:
        _run(load)
    if list_passes:
        width = max(map(len, PASSES))
        for name in sorted(PASSES):
            print(f"{name:{width}} {(PASSES[name].__doc__ or '').splitlines()[0]}")
        return
    if file is None:
        raise ArgumentError("opt: FILE is missing")
    module = loaded(file)
    verify(module)
    last = module.to_text()
    if print_after_all:
        print(f"// before all passes\n{last}")

    def observe(name: str, now: HloModule) -> None:
        nonlocal last
        text = now.to_text()
        if print_after_all:
            print(f"// after {name}" + (f"\n{text}" if text != last else ": unchanged\n"))
        last = text

    names = [name.strip() for name in passes.split(",") if name.strip()] if passes is not None else None
    if names == []:
        raise ArgumentError("opt --passes: expected at least one name")
    result = optimize(module, names, verify_each=True, observe=observe)
    if not print_after_all or output is not None:
        write(output, result.to_text().encode())


def _run(path: Path) -> None:
    """Runs a Python file. What goes wrong in it is an ArgumentError with the line."""
    try:
        runpy.run_path(str(path))
    except (OSError, HlokitError):
        raise
    except Exception as error:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else next(reversed(places), None)
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ArgumentError(f"--load {path}: line {line}: {type(error).__name__}: {what}") from error
