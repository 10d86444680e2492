"""JAX's own tests of several processes, unmodified, on hlokit over MPI, and on JAX's CPU client over gloo.

    python -m tests.jax.processes.jax_tests --mirror FOLDER --out FOLDER [FILE ...] [--each 1] [--engine hlokit gloo]

FILE is a file's name, `array_test` for tests/multiprocess/array_test.py; without one, all files of the installed jax's
tag, out of the git snapshot FOLDER/jax-ml+jax/repo. Each file runs on two processes of `--each` devices, which start
as its own runner starts them, or by mpirun. A file that dies or takes longer than `--limit` seconds goes on behind the
test that it was in. It needs absl-py. The logs are in `--out`; the table of what ran goes to standard output, where a
test has the worse outcome of the two processes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import re
import signal
import socket
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.jax.pjrt.harness import ROOT, plugged
from tests.mpi.launch import MPIRUN

ENGINES = ("gloo", "hlokit")
COUNT = 2
"""Processes."""
_WORST = ["passed", "skipped", "failed", "ended"]
"""`ended`: the process died or hung in it."""
_OUTCOMES = {"OK": "passed", "SKIPPED": "skipped", "FAILED": "failed", "RUN": "ended"}
_ROW = re.compile(r"^\[\s*(OK|SKIPPED|FAILED|RUN)\s*\] (\w+\.\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Setting:
    suite: Path
    out: Path
    each: int
    limit: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--mirror", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--each", type=int, default=1)
    parser.add_argument("--limit", type=float, default=300)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=ENGINES)
    given = parser.parse_args()
    out: Path = given.out
    out.mkdir(parents=True, exist_ok=True)
    setting = Setting(_taken(given.mirror, out), out, given.each, given.limit)
    files = given.files or sorted(path.stem for path in setting.suite.glob("*_test.py"))
    total: dict[str, Counter[str]] = {engine: Counter() for engine in given.engine}
    for file in files:
        known: set[str] = set()
        for engine in given.engine:
            found = outcomes(setting, engine, file, known)
            known |= set(found)
            total[engine].update(found.values())
            print(f"{file}, {engine}: {dict(Counter(found.values()))}", flush=True)
            for test, outcome in found.items():
                if outcome in ("failed", "ended"):
                    print(f"    {outcome}: {test}", flush=True)
    for engine, counts in total.items():
        print(f"{engine}, {COUNT} processes of {given.each}: {dict(counts)}")


def _taken(mirror: Path, out: Path) -> Path:
    """The folder of tests."""
    tag = f"jax-v{importlib.metadata.version('jax')}"
    command = ["git", f"--git-dir={mirror / 'jax-ml+jax/repo'}", "archive", tag, "tests/multiprocess"]
    archive = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(out, filter="data")
    return out / "tests/multiprocess"


def outcomes(setting: Setting, engine: str, file: str, known: Iterable[str]) -> dict[str, str]:
    """Of each test. `known`: tests that there are at least, to go on with behind one that ends the processes."""
    found: dict[str, str] = {}
    chosen: list[str] = []
    while True:
        texts = _run(setting, engine, file, chosen)
        rows = [{test: _OUTCOMES[word] for word, test in _ROW.findall(text)} for text in texts]
        new = {
            test: max((row.get(test, "ended") for row in rows), key=_WORST.index)
            for test in dict.fromkeys(test for row in rows for test in row)
        }
        fresh = [test for test in new if test not in found]
        found.update(new)
        chosen = [test for test in known if test not in found]
        if not fresh or not chosen:
            return found


def _run(setting: Setting, engine: str, file: str, chosen: list[str]) -> list[str]:
    """What each process said on standard error."""
    arguments = [
        str(setting.suite / f"{file}.py"), f"--num_processes={COUNT}", "--barrier_timeout=30", "--shutdown_timeout=15",
        "--initialization_timeout=120", "--heartbeat_timeout=20", f"--multiprocess_test_controller_address={_address()}",
    ]  # fmt: skip
    logs = [setting.out / f"{file}_{engine}_{setting.each}_{rank}.log" for rank in range(COUNT)]
    for log in logs:
        log.write_bytes(b"")
    with plugged(**_environment(setting, engine)) as variables:
        number = "--multiprocess_test_worker_id"
        if engine == "hlokit":
            stem = setting.out / f"{file}_{engine}_{setting.each}_"
            script = f'exec "$0" "$@" {number}=$PMI_RANK 2>"{stem}$PMI_RANK.log"'
            shell = ["sh", "-c", script, sys.executable, *arguments, *chosen]
            commands = [[str(MPIRUN), "-disable-auto-cleanup", "-n", str(COUNT), *shell]]
            processes = [_started(command, variables, None) for command in commands]
        else:
            own = [[sys.executable, *arguments, f"{number}={rank}", *chosen] for rank in range(COUNT)]
            processes = [_started(command, variables, log) for command, log in zip(own, logs, strict=True)]
        try:
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(setting.limit)
        finally:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return [log.read_text(encoding="utf-8", errors="replace") for log in logs]


def _started(command: list[str], variables: dict[str, str], log: Path | None) -> subprocess.Popen[bytes]:
    with open(os.devnull if log is None else log, "wb") as stream:
        return subprocess.Popen(
            command, env=variables, stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True
        )  # fmt: skip


def _environment(setting: Setting, engine: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    shared = {"PYTHONPATH": path, "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(setting.each)}
    if engine == "hlokit":
        return {**shared, "HLOKIT_AS_CPU": "1"}
    return {**shared, "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}


def _address() -> str:
    with socket.socket() as end:
        end.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{end.getsockname()[1]}"


if __name__ == "__main__":
    main()
