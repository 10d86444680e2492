"""The figures of starting: see startup.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mpi.launch import ROOT, SECONDS, needs_mpi


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--jax"]])
def test_two_processes_start_and_agree(options: list[str]) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "tests.mpi.startup", "--counts", "2", *options], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": path}, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    row = done.stdout.splitlines()[2].split()
    assert row[0] == "2" and all(float(figure) > 0 for figure in row[1:4]), done.stdout
