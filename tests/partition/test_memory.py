"""A device needs memory for its part."""

from __future__ import annotations

import sys

import pytest

from tests.mpi.launch import mpirun, needs_mpi


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits are Linux's")
def test_sharded_step_under_a_limit() -> None:
    """A fully sharded step takes what the memory analysis says, under a limit that whole values do not fit."""
    done = mpirun(4, "-m", "tests.partition.memory", "--layers", 24)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("times the") == 4 and "and fit" not in done.stdout
