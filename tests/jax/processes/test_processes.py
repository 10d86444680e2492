"""JAX in several processes, as the platform hlokit and in place of JAX's CPU client: see scripts/arrays.py."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from bench.processes import turn
from tests.jax.pjrt.harness import plugged
from tests.mpi.launch import MPI_OR_GLOO, ROOT, SECONDS, mpirun, needs_gloo, needs_mpi, over_gloo

SCRIPTS = Path(__file__).parent / "scripts"


def passed(script: str, count: int, folder: Path, start: Any = mpirun, **environment: str) -> None:
    """Every check passes in every process."""
    names = [line[4 : line.index("(")] for line in _lines(script) if line.startswith("def check_")]
    with plugged(**environment) as variables:
        done = start(count, SCRIPTS / "run.py", SCRIPTS / script, folder, environment=variables)
    for rank in range(count):
        file = folder / f"{rank}.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        assert found == dict.fromkeys(names, ""), f"process {rank}: {found}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert done.returncode == 0, done.stdout + done.stderr


def _lines(script: str) -> list[str]:
    return (SCRIPTS / script).read_text(encoding="utf-8").splitlines()


def address() -> str:
    """Of a port that is free now."""
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{end.getsockname()[1]}"


@needs_mpi
def test_two_processes_with_a_coordinator(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, COORDINATOR=address())


@needs_gloo
@pytest.mark.parametrize("each", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_two_processes_over_gloo(each: int, tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, over_gloo, HLOKIT_NUM_DEVICES=str(each))


@needs_mpi
def test_two_processes_of_two_devices_that_ask_mpi(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, HLOKIT_NUM_DEVICES="2", HLOKIT_AS_CPU="1", JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("who", [1, pytest.param(0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("collectives", MPI_OR_GLOO)
def test_a_killed_process_fails_the_others_with_its_number_and_the_collective(who: int, collectives: str) -> None:
    script = SCRIPTS / "killed.py"
    with plugged(HLOKIT_NUM_DEVICES="2") as variables:
        done = launched(3, str(script), str(who), environment=variables, collectives=collectives)
    assert done.returncode != 0
    line = next(n for n, text in enumerate(script.read_text(encoding="utf-8").splitlines(), 1) if "x.sum" in text)
    for other in {0, 1, 2} - {who}:
        said = re.search(rf"process {other} [0-9.]+: (.*)", done.stdout)
        assert said, done.stdout + done.stderr
        assert f"rank {who} is gone: its process ended" in said[1]
        assert "(all-reduce)" in said[1] and f"killed.py:{line}" in said[1], said[1]


@needs_mpi
def test_a_process_that_compiles_hears_of_a_loss_between_two_stages(tmp_path: Path) -> None:
    with plugged() as variables:
        done = launched(2, str(SCRIPTS / "compiling.py"), "1", str(tmp_path), environment=variables)
    lost = "rank 1 is gone: its process ended"
    assert f"error: {lost}; rank 0 raises this error when it runs the next program with it" in done.stderr, done.stderr
    said = re.search(rf"process 0 after ([0-9.]+) s: .*{lost}; rank 0 compiles jit__lambda", done.stdout)
    assert said and float(said[1]) < 10, done.stdout + done.stderr


@needs_mpi
def test_a_process_that_compiles_prints_the_loss_of_jax_s_coordinator_which_ends_it(tmp_path: Path) -> None:
    with plugged() as variables:
        done = launched(2, str(SCRIPTS / "compiling.py"), "0", str(tmp_path), environment=variables)
    assert "[1] error: rank 0 is gone: its process ended; rank 1 raises" in done.stderr, done.stdout + done.stderr


@needs_mpi
def test_arrays_go_from_one_process_to_another_by_sockets() -> None:
    ports = [address().rsplit(":", 1)[1] for _ in range(2)]
    with plugged(HLOKIT_NUM_DEVICES="2") as variables:
        done = launched(2, str(SCRIPTS / "transfer.py"), *ports, environment=variables)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"[{k}] process {k}: {n}" for k in (0, 1) for n in (8, 1000, 100000))


@pytest.mark.parametrize("way", ["data", *(pytest.param(way, marks=pytest.mark.slow) for way in ("fsdp", "tensor"))])
@pytest.mark.parametrize("collectives", MPI_OR_GLOO)
def test_losses_are_the_same_on_threads_and_processes(way: str, collectives: str) -> None:
    found: list[list[str]] = []
    for count, each in [(1, 4), (2, 2), (4, 1)]:
        with plugged(HLOKIT_PARTITION="parts") as variables:
            done = launched(
                count, "examples/train_processes.py", way, each=each, environment=variables, collectives=collectives
            )
        assert done.returncode == 0, done.stdout + done.stderr
        found.append(done.stdout.splitlines())
    assert found[0] == found[1] == found[2]
    losses = [float.fromhex(line.split()[-1]) for line in found[0]]
    assert len(losses) == 5 and losses[-1] < losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("collectives", MPI_OR_GLOO)
@pytest.mark.parametrize("way", ["data", "fsdp", "tensor"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peaks are Linux's")
def test_a_step_takes_little_more_memory_than_its_program_needs(way: str, collectives: str) -> None:
    for found in turn(f"hlokit-{collectives}", way, 2, 2):
        assert found["taken"] <= 1.2 * found["needs"], found


@needs_mpi
@pytest.mark.slow
@pytest.mark.skipif(find_spec("orbax") is None, reason="no orbax: pip install orbax-checkpoint")
def test_a_checkpoint_of_four_processes_is_restored_on_two(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    for count, what in [(4, "save"), (2, "restore")]:
        with plugged(PYTHONPATH=path) as variables:
            script = str(SCRIPTS / "checkpoint.py")
            done = launched(count, script, what, str(tmp_path / "state"), environment=variables)
        assert done.returncode == 0 and done.stdout.count(what) == count, done.stdout + done.stderr


@pytest.mark.parametrize("collectives", MPI_OR_GLOO)
@pytest.mark.slow
@pytest.mark.skipif(find_spec("orbax") is None, reason="no orbax: pip install orbax-checkpoint")
def test_a_job_that_is_started_again_has_the_same_losses(collectives: str, tmp_path: Path) -> None:
    script = str(SCRIPTS / "restarted.py")

    def losses(folder: str, *doomed: str) -> tuple[int, dict[int, set[str]]]:
        with plugged(HLOKIT_NUM_DEVICES="2") as variables:
            done = launched(2, script, str(tmp_path / folder), *doomed, environment=variables, collectives=collectives)
        found: dict[int, set[str]] = {}
        for number, loss in re.findall(r"step (\d+) loss (\S+)", done.stdout):
            found.setdefault(int(number), set()).add(loss)
        assert found, done.stdout + done.stderr
        return done.returncode, found

    status, wanted = losses("whole")
    assert status == 0 and sorted(wanted) == [0, 1, 2, 3, 4, 5]
    assert all(len(found) == 1 for found in wanted.values()), wanted  # of both processes
    status, before = losses("broken", "3")
    assert status != 0 and set(before) <= {0, 1, 2, 3}, before
    status, after = losses("broken")
    assert status == 0 and sorted(after) in ([3, 4, 5], [4, 5]), after
    assert {**before, **after} == wanted


def launched(
    count: int, *arguments: str, environment: dict[str, str], each: int | None = None, collectives: str = "mpi"
) -> subprocess.CompletedProcess[str]:
    """By hlokit.launch."""
    devices = [] if each is None else ["--devices", str(each)]
    launcher = [sys.executable, "-m", "hlokit.launch", "-n", str(count), "--collectives", collectives, *devices]
    command = [*launcher, "--", sys.executable, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )  # fmt: skip


@needs_mpi
@pytest.mark.slow
@pytest.mark.parametrize(("count", "each"), [(2, 3), (3, 1), (4, 2)])
def test_other_numbers(count: int, each: int, tmp_path: Path) -> None:
    passed("arrays.py", count, tmp_path, HLOKIT_NUM_DEVICES=str(each), COORDINATOR=address())


@needs_mpi
@pytest.mark.slow
def test_in_the_interpreter(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, HLOKIT_NUM_DEVICES="2", HLOKIT_BACKEND="interpreter", COORDINATOR=address())
