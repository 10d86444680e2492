"""hlokit check: does a file hold a legal program?"""

from __future__ import annotations

from pathlib import Path

from hlokit.api import load, verify


def check(file: Path) -> None:
    """Reads a module and verifies every rule of the language; lists all findings.

    Parameters
    ----------
    file: HLO text or a serialized HloModuleProto.
    """
    module = load(file)
    verify(module)
    computations = module.all_computations
    count = sum(len(c) for c in computations)
    print(f"{module.name}: ok, {len(computations)} computation(s), {count} instruction(s)")
    print(f"  {module.program_shape}")
