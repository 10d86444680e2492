"""Builds programs of a family: python -m tests.corpora.making FAMILY FOLDER NAME...

Runs in the environment of the corpora, and imports nothing of hlokit. Each program gets a folder in FOLDER, with
`program` (an HloProto or StableHLO), `in.npz` and `out.npz` (in0, in1, ..., out0, out1, ...: what the framework was
given and what it gave) and `made.json`: versions of the packages, and "absent" (packages that are not installed) or
"error" (what the framework said) if there is no program.
"""

# pyright: basic

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Made:
    """A program, its arguments, and the results that its framework gave: arrays in order."""

    program: bytes
    arguments: Sequence[Any]
    results: Sequence[Any]


def of_jax(function: Any, *arguments: Any) -> Made:
    """The HLO that JAX lowers a function to, and what JAX's CPU client gives."""
    import jax

    lowered = jax.jit(function, keep_unused=True).lower(*arguments)
    program = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return Made(program, jax.tree.leaves(arguments), jax.tree.leaves(lowered.compile()(*arguments)))


def folder_of(folder: Path, family: str, name: str) -> Path:
    """Where a program's files are."""
    return folder / f"{family}-{name.replace(' ', '-')}"


def _store(path: Path, arrays: Sequence[Any], stem: str) -> None:
    """Writes arrays; those of types that NumPy lacks as unsigned integers of their size."""
    found = [np.asarray(a) for a in arrays]
    plain = [a if hasattr(np, a.dtype.name) else a.view(f"uint{a.dtype.itemsize * 8}") for a in found]
    np.savez(path, **{f"{stem}{number}": array for number, array in enumerate(plain)})


def _version(package: str) -> str:
    """The installed version; "" without one."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _make(module: Any, name: str, folder: Path) -> dict[str, Any]:
    """Writes a program's files; what made.json is to have."""
    versions = {package: _version(package) for package in module.packages(name)}
    absent = [package for package, version in versions.items() if not version]
    if absent:
        return {"absent": absent}
    try:
        made = module.make(name)
        (folder / "program").write_bytes(made.program)
        _store(folder / "in.npz", made.arguments, "in")
        _store(folder / "out.npz", made.results, "out")
    except Exception as error:  # whatever a framework raises is what it said
        return {"versions": versions, "error": f"{type(error).__name__}: {error}"[:2000]}
    return {"versions": versions}


def main() -> None:
    family, folder = sys.argv[1], Path(sys.argv[2])
    module = importlib.import_module(f"tests.corpora.families.{family}")
    for name in sys.argv[3:]:
        place = folder_of(folder, family, name)
        place.mkdir(parents=True, exist_ok=True)
        record = _make(module, name, place)
        (place / "made.json").write_text(json.dumps(record), encoding="utf-8")


if __name__ == "__main__":
    main()
