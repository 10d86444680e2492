"""`hlokit run` on several devices, and the example of training, in threads and under mpirun."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.mpi.launch import ROOT, mpirun, needs_mpi
from tests.test_tools import command

SUM = """
HloModule sum

add {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = f32[] add(p, q)
}

ENTRY main {
  x = f32[2] parameter(0)
  ROOT y = f32[2] all-reduce(x), to_apply=add
}
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "sum.hlo"
    path.write_text(SUM)
    for device in range(3):
        np.savez(tmp_path / f"in_{device}.npz", x=np.float32([device, 10]))
    return path


def run(program: Path, *options: object) -> list[str]:
    return ["-m", "hlokit.tools.main", "run", str(program), *map(str, options)]


def test_threads_print_device_by_device(capsys: pytest.CaptureFixture[str], program: Path, tmp_path: Path) -> None:
    given, taken = tmp_path / "in_{device}.npz", tmp_path / "out_{device}.npz"
    for backend in ("interpreter", "cpu"):
        status, out, _ = command(
            capsys, "run", program, "--input", given, "--output", taken, "--replicas", 3, "--backend", backend
        )
        assert status == 0
        assert out == "".join(f"replica {d}:\nout0 = f32[2]\n[ 3. 30.]\n" for d in range(3))
        for device in range(3):
            assert np.load(tmp_path / f"out_{device}.npz")["out0"].tolist() == [3, 30]


def test_what_is_wrong_with_several_devices(capsys: pytest.CaptureFixture[str], program: Path, tmp_path: Path) -> None:
    one = ("run", program, "--input", tmp_path / "in_1.npz")
    assert "[ 3. 30.]" in command(capsys, *one, "--replicas", 3)[1]  # the same for all
    status, _, error = command(capsys, *one, "--replicas", 3, "--output", tmp_path / "out.npz")
    assert status == 2 and "{device}" in error
    status, _, error = command(capsys, "run", program, "--input", tmp_path / "in_{device}.npz", "--replicas", 4)
    assert status == 2 and "in_3.npz: no such file" in error
    first, again, other = (command(capsys, "run", program, "--random", seed, "--replicas", 2) for seed in (1, 1, 2))
    assert first == again != other


@needs_mpi
def test_ranks_print_what_threads_print(capsys: pytest.CaptureFixture[str], program: Path, tmp_path: Path) -> None:
    options = ("--input", tmp_path / "in_{device}.npz", "--output", tmp_path / "rank_{device}.npz", "--backend", "cpu")
    wanted = command(capsys, "run", program, *options, "--replicas", 3)[1]
    for path in tmp_path.glob("rank_*"):
        path.unlink()
    done = mpirun(3, *run(program, *options))
    assert (done.returncode, done.stdout) == (0, wanted), done.stderr
    assert np.load(tmp_path / "rank_2.npz")["out0"].tolist() == [3, 30]


@needs_mpi
def test_of_an_error_one_rank_tells(program: Path, tmp_path: Path) -> None:
    done = mpirun(2, *run(program, "--random", 1, "--replicas", 3))
    assert done.returncode == 2 and done.stderr.count("3 replicas of 1 partition on 2 processes") == 1
    (tmp_path / "in_1.npz").unlink()
    done = mpirun(2, *run(program, "--input", tmp_path / "in_{device}.npz"))
    # mpirun joins the ranks' statuses
    assert done.returncode & 2 and done.stderr.count("error: ") == 1 and "in_1.npz" in done.stderr, done.stderr


@needs_mpi
def test_training_gives_the_same_weights_in_threads_and_processes() -> None:
    example = ROOT / "examples/data_parallel.py"
    threads = subprocess.run([sys.executable, str(example)], capture_output=True, text=True)
    assert threads.returncode == 0, threads.stderr
    processes = mpirun(4, example)
    assert processes.returncode == 0, processes.stderr
    assert threads.stdout.removeprefix("4 threads") == processes.stdout.removeprefix("4 processes")


@needs_mpi
def test_no_thread_of_a_world_outlives_it() -> None:
    """One that wakes while the interpreter is finalized, as MPI_Finalize waits for other ranks, ends the process."""
    script = """
import threading, time
import hlokit as hk
world = hk.mpi_world()
if world.rank == 0:
    time.sleep(0.5)  # the other rank has left by then, which this one hears
world.close()
print([t.name for t in threading.enumerate() if t is not threading.main_thread()])
"""
    done = mpirun(2, "-c", script)
    assert (done.returncode, done.stdout) == (0, "[]\n[]\n"), done.stdout + done.stderr
