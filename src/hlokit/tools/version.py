"""hlokit --version: the versions that a report of a fault needs."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

from hlokit import __version__

_PACKAGES = ("numpy", "ml_dtypes", "scipy", "llvmlite", "jax", "jaxlib", "protobuf", "mpi4py")


def versions() -> str:
    """hlokit's, Python's, the packages' and LLVM's versions, and the processor that code is made for."""
    lines = [f"hlokit {__version__}", f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"]
    for name in _PACKAGES:
        try:
            lines.append(f"{name} {version(name)}{_llvm() if name == 'llvmlite' else ''}")
        except PackageNotFoundError:
            lines.append(f"{name} is not installed")
    return "\n".join([*lines, _processor()])


def _llvm() -> str:
    try:
        from hlokit.cpu.target import llvm_library

        return f" (LLVM {'.'.join(map(str, llvm_library().llvm_version_info))})"
    except Exception as error:  # it must be told with the rest, whatever it is
        return f" (which does not load: {error})"


def _processor() -> str:
    try:
        from hlokit.cpu.target import host

        target = host()
        return f"processor {target.cpu}, {8 * target.vector_bytes}-bit vectors, {target.threads} threads"
    except Exception as error:
        return f"processor unknown: {error}"
