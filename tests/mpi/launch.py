"""Runs a Python module on several processes, under mpirun, or over gloo by hlokit.launch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).parent / "mpirun"
needs_mpi = pytest.mark.skipif(
    find_spec("mpi4py") is None or not MPIRUN.exists(), reason="no MPI: pip install mpi4py mpich"
)
needs_gloo = pytest.mark.skipif(find_spec("torch") is None, reason="no gloo: pip install 'hlokit[gloo]'")
MPI_OR_GLOO = [pytest.param("mpi", marks=needs_mpi), pytest.param("gloo", marks=needs_gloo)]
"""Engines, of tests' parameters."""
SECONDS = 180.0
"""After which what hangs is ended. Nothing here takes a tenth of it, even on a busy machine."""


def mpirun(
    count: int, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` on so many processes."""
    return _ran([str(MPIRUN), "-n", str(count), sys.executable, *map(str, arguments)], environment)


def over_gloo(
    count: int, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` on so many processes, whose lines begin with their numbers."""
    launcher = [sys.executable, "-m", "hlokit.launch", "--collectives", "gloo", "-n", str(count), "--"]
    return _ran([*launcher, sys.executable, *map(str, arguments)], environment)


def _ran(command: list[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[str]:
    environment = environment or {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=environment,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{command} hangs\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
