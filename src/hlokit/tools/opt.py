"""hlokit opt: rewrites a program by passes."""

from __future__ import annotations

from pathlib import Path

from hlokit.api import load, verify
from hlokit.hlo.module import HloModule
from hlokit.passes.pipeline import PASSES, optimize


def opt(file: Path, *, passes: str | None = None, print_after_all: bool = False, list_passes: bool = False) -> None:
    """Runs passes on a module and prints the result, verified after each.

    Parameters
    ----------
    file: HLO text or a serialized HloModuleProto.
    passes: names with commas between them; without it the default pipeline.
    print_after_all: print the module before the first pass and after each that changed it.
    list_passes: list the passes instead.
    """
    if list_passes:
        for name in sorted(PASSES):
            print(f"{name:20} {(PASSES[name].__doc__ or '').splitlines()[0]}")
        return
    module = load(file)
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
