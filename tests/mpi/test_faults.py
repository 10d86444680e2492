"""Faults of processes over gloo are named by all others, in time, and a job that is started again goes on: see faults.py."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.mpi.launch import ROOT, needs_gloo


@needs_gloo
@pytest.mark.parametrize(
    "kinds", [["killed computing", "killed exchanging", "other version"], pytest.param([], marks=pytest.mark.slow)]
)
def test_faults_are_named_and_jobs_go_on(kinds: list[str]) -> None:
    options = ["--kinds", *kinds] if kinds else []
    count = str(max(3, 10 * (not kinds)))
    command = [sys.executable, "-m", "tests.mpi.faults", "--seed", "1", "--count", count, *options]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0 and f"{count} faults, 0 not as they should be" in done.stdout, done.stdout + done.stderr
