"""hlokit opt: rewrites a program by passes."""

from __future__ import annotations

import runpy
from pathlib import Path

from hlokit.api import load as load_module
from hlokit.api import verify
from hlokit.errors import HlokitError
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import PASSES, optimize


def opt(
    file: Path | None = None,
    *,
    passes: str | None = None,
    load: Path | None = None,
    print_after_all: bool = False,
    list_passes: bool = False,
) -> None:
    """Runs passes on a module and prints the result, verified after each.

    Parameters
    ----------
    file:
        HLO or StableHLO text, or a serialized HloModuleProto.
    passes:
        names with commas between them; without it the default pipeline.
    load:
        a Python file that defines passes or rules of one's own; it is run.
    print_after_all:
        print the module before the first pass and after each that changed it.
    list_passes:
        list the passes instead.
    """
    if load is not None:
        runpy.run_path(str(load))
    if list_passes:
        width = max(map(len, PASSES))
        for name in sorted(PASSES):
            print(f"{name:{width}} {(PASSES[name].__doc__ or '').splitlines()[0]}")
        return
    if file is None:
        raise HlokitError("opt: no file to rewrite")
    module = load_module(file)
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

    names = [name.strip() for name in passes.split(",")] if passes is not None else None
    result = optimize(module, names, verify_each=True, observe=observe)
    if not print_after_all:
        print(result.to_text(), end="")
