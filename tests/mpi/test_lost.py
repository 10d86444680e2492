"""A rank that is killed, or leaves, makes the others fail with a clear error."""

from __future__ import annotations

import re

import pytest

from tests.mpi.launch import mpirun, needs_gloo, needs_mpi, over_gloo


@needs_gloo
@pytest.mark.parametrize(
    ("doomed", "when"),
    [(1, "computing"), *(pytest.param(*p, marks=pytest.mark.slow) for p in [(0, "computing"), (2, "moving"), (1, "idle")])],
)
def test_a_killed_rank_fails_the_others_over_gloo(doomed: int, when: str) -> None:
    done = over_gloo(3, "-m", "tests.mpi.doomed", doomed, when)
    assert done.returncode != 0
    for rank in {0, 1, 2} - {doomed}:
        said = f"rank {doomed} is gone: its process ended"
        assert re.search(rf"rank {rank}: {said}; (replica|rank) {rank} [^;]*\(all-reduce\)", done.stdout), done.stdout + done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("doomed", "when"),
    [
        (1, "computing"),
        (0, "computing"),
        (1, "grouping"),
        pytest.param(2, "moving", marks=pytest.mark.slow),
        pytest.param(2, "idle", marks=pytest.mark.slow),
        pytest.param(1, "machine code", marks=pytest.mark.slow),
    ],
)
def test_a_killed_rank_fails_the_others(doomed: int, when: str) -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", doomed, when)
    assert done.returncode != 0
    for rank in {0, 1, 2} - {doomed}:
        said = f"rank {doomed} is gone: its process ended"
        assert said in done.stdout + done.stderr, done.stdout + done.stderr
        if when != "grouping":  # there MPI itself waits, and is ended
            assert f"rank {rank}: {said}" in done.stdout, done.stdout + done.stderr
            assert re.search(rf"{said}; (replica|rank) {rank} [^;]*\(all-reduce\)", done.stdout), done.stdout


@needs_mpi
def test_a_rank_that_is_in_no_run_prints_that_another_is_gone() -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", 1, "busy")
    lost = "rank 1 is gone: its process ended"
    for rank in (0, 2):
        assert f"error: {lost}; rank {rank} raises this error when it runs the next program with it" in done.stderr, done.stderr
        assert f"rank {rank}: {lost}; rank {rank} waits for all to begin" in done.stdout, done.stdout + done.stderr


@needs_mpi
@pytest.mark.parametrize(
    ("rank", "times"), [(1, 3), pytest.param(0, 20, marks=pytest.mark.slow), pytest.param(2, 20, marks=pytest.mark.slow)]
)
def test_an_interrupt_is_the_ranks_own_and_a_loss_to_the_others(rank: int, times: int) -> None:
    lost = f"rank {rank}(?:: KeyboardInterrupt| has left)"  # in a run, or before
    for number in range(times):
        done = mpirun(4, "-m", "tests.mpi.interrupted", rank, 0.2 + 0.0137 * number)
        told = re.findall(rf"rank (\d): (KeyboardInterrupt|EvaluationError: {lost})", done.stdout)  # mpirun may join lines
        said = dict(told)
        assert said.pop(str(rank)) == "KeyboardInterrupt", done.stdout + done.stderr
        assert len(told) == 4 and len(said) == 3, done.stdout + done.stderr
        assert all(text.startswith("EvaluationError") for text in said.values()), done.stdout + done.stderr


@needs_mpi
def test_a_rank_that_raises_outside_of_a_run_is_missed() -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", 1, "raising")
    assert done.returncode != 0 and "ValueError: not in a run" in done.stderr
    for rank in (0, 2):
        assert f"rank {rank}: rank 1: ValueError: not in a run" in done.stdout, done.stdout + done.stderr
        assert f"error: rank 1: ValueError: not in a run; rank {rank} raises this error" in done.stderr, done.stderr


@needs_mpi
def test_failed_runs_leave_no_communicators_behind() -> None:
    done = mpirun(2, "-m", "tests.mpi.renewed", 5000)  # MPICH has 2048
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"rank \d: \d+", done.stdout)) == ["rank 0: 5000", "rank 1: 5000"], done.stdout


@needs_mpi
def test_without_a_guard_mpirun_ends_all() -> None:
    done = mpirun(3, "-m", "tests.mpi.doomed", 1, "unguarded")
    assert done.returncode != 0


@needs_mpi
def test_a_rank_that_leaves_after_the_last_run_is_not_missed() -> None:
    done = mpirun(2, "-m", "tests.mpi.left")
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(re.findall(r"rank \d: \d", done.stdout)) == ["rank 0: 3", "rank 1: 3"], done.stdout


@needs_mpi
def test_mpi_does_not_survive_the_guards_fork() -> None:
    code = "from mpi4py import MPI; from hlokit.devices.processes.guard import guarded; guarded()"
    done = mpirun(1, "-c", code)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("call guarded() before mpi4py.MPI is imported"), done.stderr
