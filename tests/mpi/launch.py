"""Runs a Python module on several processes under mpirun."""

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
SECONDS = 180.0
"""After which what hangs is ended. Nothing here takes a tenth of it, even on a busy machine."""


def mpirun(
    count: int, *arguments: object, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """`python ARGUMENTS` on so many processes."""
    environment = environment or {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    command = [str(MPIRUN), "-n", str(count), sys.executable, *map(str, arguments)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=environment,
    )  # fmt: skip
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"{arguments} hangs\n{out}\n{err}") from None
    return subprocess.CompletedProcess(command, process.returncode, out, err)
