"""`python -m hlokit.launch`: output by rank, exit statuses, signals, and the variables that the processes get."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from hlokit.launch.__main__ import main
from tests.mpi.launch import MPIRUN, ROOT, SECONDS, needs_mpi

ENGINES = [pytest.param("mpi", marks=needs_mpi), "gloo"]
SUM = """
import sys
import numpy as np
import hlokit as hk
b = hk.Builder("sum")
module = b.build(hk.all_reduce(b.parameter(0, hk.f32[2]), lambda p, q: p + q))
world = hk.mpi_world()
for turn in range(3):
    print(hk.evaluate(module, [1.0, world.rank], replicas=world.size, world=world).tolist())
    if world.rank == 1 and turn == 1 and sys.argv[1:]:
        import os
        os.kill(os.getpid(), 9)
"""


Shell = Callable[..., tuple[int, list[str], str]]


def started(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hlokit.launch", *map(str, arguments)], cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), **environment},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    """Exit status, lines of output in order of their ranks, standard error."""
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        raise AssertionError(f"hangs\n{out}\n{err}") from None
    return process.returncode, sorted(out.splitlines()), err


def launch(*arguments: object, **environment: str) -> tuple[int, list[str], str]:
    return ended(started(*arguments, **environment))


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str]) -> Shell:
    """Launches from this process."""

    def run(engine: str, count: int, text: str, *options: object) -> tuple[int, list[str], str]:
        status = main(["-n", str(count), "--collectives", engine, *map(str, options), "--", "bash", "-c", text])
        out, err = capfd.readouterr()
        return status, sorted(out.splitlines()), err

    return run


def is_alive(pid: int) -> bool:
    """A zombie, which nobody here waits for, is not."""
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.parametrize("engine", ENGINES)
def test_lines_say_which_process_they_are_of(shell: Shell, engine: str) -> None:
    text = "echo out $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE; echo err >&2; cat; printf 'no end'"
    status, out, err = shell(engine, 3, text)
    assert status == 0
    assert out == [line for k in range(3) for line in (f"[{k}] no end", f"[{k}] out {k} of 3")]
    assert sorted(err.splitlines()) == ["[0] err", "[1] err", "[2] err"]


def test_the_processes_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HLOKIT_THREADS", "7")
    names = "$HLOKIT_COLLECTIVES $HLOKIT_NUM_DEVICES $HLOKIT_THREADS $JAX_COORDINATOR_ADDRESS"
    status, out, _ = shell("gloo", 1, f"echo {names}; echo ${{HLOKIT_LAUNCH_RANK-none}}", "--devices", 2)
    assert status == 0 and out[0].startswith("[0] gloo 2 7 127.0.0.1:") and out[1] == "[0] none"


@pytest.mark.parametrize("engine", ENGINES)
def test_the_first_failure_ends_the_others(shell: Shell, tmp_path: Path, engine: str) -> None:
    last = f"until [ $(ls {tmp_path} | wc -l) = 2 ]; do sleep 0.05; done; exit 7"
    text = f"[ $OMPI_COMM_WORLD_RANK = 1 ] && {{ {last}; }}; echo $$; touch {tmp_path}/$$; sleep 1000 & wait"
    status, out, err = shell(engine, 3, text, "--grace", 0.2)
    assert status == 7 and err.startswith("launch: process 1 (pid ") and err.endswith("ended with status 7\n")
    assert len(out) == 2 and not any(is_alive(int(line.split()[1])) for line in out)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_process_that_is_killed(shell: Shell, engine: str) -> None:
    status, _, err = shell(engine, 2, "[ $OMPI_COMM_WORLD_RANK = 1 ] && kill -9 $$; trap '' TERM; sleep 1000", "--grace", 0.1)
    assert status == 128 + signal.SIGKILL and "was ended by SIGKILL" in err


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("number", "wanted"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_all(engine: str, number: int, wanted: int) -> None:
    process = started("-n", 2, "--collectives", engine, "--", "bash", "-c", "trap 'echo heard; exit 0' INT TERM; echo up; sleep 1000 & wait")
    assert process.stdout is not None
    assert [process.stdout.readline()[3:] for _ in range(2)] == [" up\n", " up\n"]
    process.send_signal(number)
    status, out, _ = ended(process)
    assert status == wanted and out == ["[0] heard", "[1] heard"]


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_outlives_the_launcher(engine: str) -> None:
    process = started("-n", 2, "--collectives", engine, "--", "bash", "-c", "echo $$; exec sleep 1000")
    assert process.stdout is not None
    pids = [int(process.stdout.readline().split()[1]) for _ in range(2)]
    assert all(map(is_alive, pids))
    process.kill()
    process.wait()
    end = time.monotonic() + SECONDS
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(is_alive, pids))
    process.communicate()


def test_what_cannot_be_started(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["-n", "2", "--collectives", "gloo", "--grace", "0", "--", "no-such-program"]) == 127
    assert "error: no-such-program: no such file or directory" in capfd.readouterr().err
    for wrong in (["-n", "0", "--", "true"], ["-n", "2"], ["-n", "2", "--grace", "-1", "--", "true"]):
        with pytest.raises(SystemExit) as end:
            main(wrong)
        assert end.value.code == 2
    capfd.readouterr()
    assert main(["-n", "2", "--collectives", "mpi", "--mpirun", "/no/mpirun", "--", "true"]) == 2
    assert capfd.readouterr().err.startswith("error: no program /no/mpirun")
    assert main(["-n", "2", "--collectives", "mpi", "--mpirun", "false", "--", "true"]) == 1
    assert capfd.readouterr().err.startswith("error: not all processes could be started")


@needs_mpi
def test_ranks_over_mpi() -> None:
    status, out, err = launch("-n", 2, "--", sys.executable, "-c", SUM)
    assert (status, out) == (0, [f"[{k}] [2.0, 1.0]" for k in range(2) for _ in range(3)]), err
    status, out, err = launch("-n", 3, "--", sys.executable, "-c", SUM, "kill")
    assert status == 128 + signal.SIGKILL
    assert all(f"[{rank}] hlokit.errors.EvaluationError: rank 1 is gone: its process ended" in err for rank in (0, 2)), err
    assert "BAD TERMINATION" not in err


@pytest.mark.slow
@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
@pytest.mark.parametrize("engine", ENGINES)
def test_jax_needs_no_arguments(engine: str) -> None:
    """JAX's own CPU client: its coordinator takes address, number and count from the environment."""
    text = "import jax; jax.distributed.initialize(); print(jax.process_index(), jax.process_count(), jax.device_count())"
    status, out, err = launch("-n", 2, "--collectives", engine, "--", sys.executable, "-c", text, JAX_PLATFORMS="cpu")
    assert status == 0 and [line for line in out if "loo]" not in line] == ["[0] 0 2 2", "[1] 1 2 2"], err


@pytest.mark.slow
@needs_mpi
@pytest.mark.skipif(find_spec("jax") is None, reason="no JAX")
def test_jax_on_hlokit_needs_no_arguments() -> None:
    """Two processes of two devices, which add up the parts of an array."""
    text = """
import jax, numpy as np
jax.distributed.initialize()
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((4,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
whole = np.arange(32, dtype=np.float32).reshape(8, 4)
x = jax.make_array_from_callback((8, 4), NamedSharding(mesh, P("data")), lambda index: whole[index])
total = jax.jit(lambda x: x.sum(), out_shardings=NamedSharding(mesh, P()))(x)
print(jax.process_index(), jax.process_count(), jax.devices()[0].platform, jax.device_count(), float(total))
"""
    arguments = ("-n", 2, "--devices", 2, "--collectives", "mpi", "--", sys.executable, "-c", text)
    status, out, err = launch(*arguments, JAX_PLATFORMS="hlokit,cpu")
    assert status == 0 and out == [f"[{k}] {k} 2 hlokit 4 496.0" for k in range(2)], err


def test_the_mpirun_beside_this_python_is_found() -> None:
    from hlokit.launch.launcher import _found_mpirun  # pyright: ignore[reportPrivateUsage]

    if MPIRUN.exists():
        assert _found_mpirun(None) == str(MPIRUN)
    assert _found_mpirun("true") == "true"
