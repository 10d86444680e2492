"""Collectives, channels, queues and errors on processes, over MPI and gloo, are those of threads, bit for bit: see cases.py."""

from __future__ import annotations

import pytest

from tests.mpi.cases import CASES, SEVERAL
from tests.mpi.launch import mpirun, needs_gloo, needs_mpi, over_gloo
from tests.rules.labels import rule


def passed(count: int, each: int = 1) -> None:
    done = mpirun(count, "-m", "tests.mpi.cases", each)
    cases = CASES if each == 1 else SEVERAL
    assert done.stdout.splitlines() == [f"ok {case}" for case in cases], done.stdout + done.stderr


@needs_gloo
@pytest.mark.parametrize(
    ("count", "each"),
    [(2, 1), (2, 2), *(pytest.param(*numbers, marks=pytest.mark.slow) for numbers in [(3, 1), (4, 1), (3, 2)])],
)
def test_ranks_over_gloo_agree_with_threads(count: int, each: int) -> None:
    done = over_gloo(count, "-m", "tests.mpi.cases", each)
    told = [line for line in done.stdout.splitlines() if "[Gloo]" not in line]
    cases = CASES if each == 1 else SEVERAL
    assert told == [f"[0] ok {case}" for case in cases], done.stdout + done.stderr


@needs_mpi
@rule("ARED-2", "ARED-7", "MAX-1", "MAX-2", "AGATHER-2", "RSCAT-2", "A2A-2", "CPERM-2", "BEY-63", "BEY-65", "GRP-4")
@rule("COMM-1", "COMM-11", "COMM-14", "INFEED-2", "OUTFEED-2", "RNG-7", "GRP-6", "GRP-8", "EXEC-2", "EXEC-3")
def test_two_ranks_agree_with_threads() -> None:
    passed(2)


@needs_mpi
def test_two_ranks_of_two_devices_agree_with_threads() -> None:
    passed(2, 2)


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("count", "each"), [(2, 3), (3, 2), (1, 2)])
def test_ranks_of_several_devices_agree_with_threads(count: int, each: int) -> None:
    passed(count, each)


@needs_mpi
@pytest.mark.slow
def test_four_ranks_agree_with_threads() -> None:
    passed(4)


@needs_mpi
@pytest.mark.slow
def test_random_programs_on_four_ranks() -> None:
    done = mpirun(4, "-m", "tests.fuzz.devices_mpi", "--count", 40, "--seed", 7000)
    assert done.returncode == 0 and "0 failures" in done.stdout, done.stdout + done.stderr
