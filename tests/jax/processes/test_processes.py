"""JAX in several processes, as the platform hlokit and in place of JAX's CPU client: see scripts/arrays.py."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.jax.pjrt.harness import plugged
from tests.mpi.launch import mpirun, needs_mpi

pytestmark = needs_mpi
SCRIPTS = Path(__file__).parent / "scripts"


def passed(script: str, count: int, folder: Path, **environment: str) -> None:
    """Every check passes in every process."""
    names = [line[4 : line.index("(")] for line in _lines(script) if line.startswith("def check_")]
    with plugged(**environment) as variables:
        done = mpirun(count, SCRIPTS / "run.py", SCRIPTS / script, folder, environment=variables)
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


def test_two_processes_with_a_coordinator(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, COORDINATOR=address())


def test_two_processes_of_two_devices_that_ask_mpi(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, HLOKIT_NUM_DEVICES="2", HLOKIT_AS_CPU="1", JAX_PLATFORMS="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("count", "each"), [(2, 3), (3, 1), (4, 2)])
def test_other_numbers(count: int, each: int, tmp_path: Path) -> None:
    passed("arrays.py", count, tmp_path, HLOKIT_NUM_DEVICES=str(each), COORDINATOR=address())


@pytest.mark.slow
def test_in_the_interpreter(tmp_path: Path) -> None:
    passed("arrays.py", 2, tmp_path, HLOKIT_NUM_DEVICES="2", HLOKIT_BACKEND="interpreter", COORDINATOR=address())
