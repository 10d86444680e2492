"""Ray and Dask start a JAX script's processes: examples/launch_with_ray.py and examples/launch_with_dask.py."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.jax.pjrt.harness import plugged
from tests.mpi.launch import ROOT, SECONDS, needs_gloo

MODULES = {"ray": "ray", "dask": "distributed"}


@needs_gloo
@pytest.mark.parametrize("name", MODULES)
def test_the_example_trains(name: str) -> None:
    if find_spec(MODULES[name]) is None:
        pytest.skip(f"no {name}: pip install 'hlokit[{name}]'")
    example = ["examples/train_processes.py", "fsdp"]
    found = [
        _losses([f"examples/launch_with_{name}.py", "2", *example]),
        _losses(["-m", "hlokit.launch", "-n", "2", "--collectives", "gloo", "--", sys.executable, *example]),
    ]
    assert found[0] == found[1] and len(found[0]) == 5, found


@needs_gloo
@pytest.mark.parametrize("name", MODULES)
def test_the_example_ends_with_the_status_of_a_process_that_fails(name: str) -> None:
    if find_spec(MODULES[name]) is None:
        pytest.skip(f"no {name}: pip install 'hlokit[{name}]'")
    done = _run([f"examples/launch_with_{name}.py", "2", "-c", "import os; print('so'); exit(3 * int(os.environ['RANK']))"])
    assert done.returncode == 3 and done.stdout.split() == ["[0]", "so", "[1]", "so"], done.stdout + done.stderr


def _losses(arguments: list[str]) -> list[str]:
    done = _run(arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.removeprefix("[0] ") for line in done.stdout.splitlines() if line.startswith("[0] 0x")]


def _run(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with plugged(PYTHONPATH=path, HLOKIT_NUM_DEVICES="2") as variables:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=variables, capture_output=True, text=True, timeout=3 * SECONDS,
            check=False,
        )  # fmt: skip
    if "timed out during startup" in done.stderr:
        pytest.skip("Ray gives its own processes 30 s to start, too little for this machine now")
    return done
