"""Compiles the tests' handlers against the headers that jaxlib brings."""

from __future__ import annotations

import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

_COMMANDS = {
    ".c": ("cc", "gcc", "clang"),
    ".cc": ("c++", "g++", "clang++"),
}


def missing() -> str:
    """Why handlers cannot be compiled here; empty if they can."""
    if not all(any(map(shutil.which, names)) for names in _COMMANDS.values()):
        return "no compiler for C and C++"
    return "" if include() else "no headers: jaxlib is not installed"


@cache
def include() -> str:
    """The folder of the headers: jaxlib's, or HLOKIT_FFI_INCLUDE for those of another version."""
    if "HLOKIT_FFI_INCLUDE" in os.environ:
        return os.environ["HLOKIT_FFI_INCLUDE"]
    spec = importlib.util.find_spec("jaxlib")
    found = Path((spec.submodule_search_locations or [""])[0], "include") if spec is not None else Path()
    return str(found) if (found / "xla/ffi/api/c_api.h").exists() else ""


@cache
def path(source: str) -> str:
    """The shared library of a source beside this file. Made once for a run of the tests, whose processes share a cache."""
    file = Path(__file__).parent / source
    compiler = next(found for found in map(shutil.which, _COMMANDS[file.suffix]) if found)
    options = ["-shared", "-fPIC", "-w", "-O0", "-I", include(), *(["-std=c++17"] if file.suffix == ".cc" else [])]
    key = hashlib.sha256("\n".join([file.read_text(), compiler, *options]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("HLOKIT_CACHE_DIR") or tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / f"{file.stem}{file.suffix.replace('.', '-')}-{key}.so"
    if not library.exists():
        made = library.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, *options, "-o", str(made), str(file), "-lpthread"], check=True, stdout=sys.stderr)
        made.replace(library)
    return str(library)


@cache
def load(source: str) -> ctypes.CDLL:
    """The library, loaded."""
    return ctypes.CDLL(path(source))
