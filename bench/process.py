"""The controller's end of a worker: requests with a time limit, and a new process for one that died."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.engines import TUNABLES

ROOT = Path(__file__).parent.parent


class Failed(Exception):
    """The framework could not do what was asked of it; `absent`: the program is not said in it."""

    def __init__(self, message: str, absent: bool = False) -> None:
        super().__init__(message)
        self.absent = absent


def interpreter(kind: str) -> str:
    """The Python that a framework runs in: the newest XLA has one of its own."""
    return os.environ["HLOKIT_BENCH_NEWEST"] if kind.startswith("xla-newest") else sys.executable


def environment(kind: str) -> dict[str, str]:
    """The worker's environment; no setting of the user's shell favours one side."""
    variables = {name: value for name, value in os.environ.items() if name not in ("GLIBC_TUNABLES", "XLA_FLAGS")}
    variables["JAX_PLATFORMS"] = "cpu"
    variables["HLOKIT_CACHE_DIR"] = ""  # no cache of objects: compile times are those of compiling
    variables["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), variables.get("PYTHONPATH", "")])
    if kind.endswith("-tunables"):
        variables["GLIBC_TUNABLES"] = TUNABLES
    return variables


class Process:
    """A worker of one kind, on all cores or on the one that is named."""

    def __init__(self, kind: str, log: Path, core: int | None = None) -> None:
        self.kind = kind
        self.log = log
        self.core = core
        self.start()

    def start(self) -> None:
        with self.log.open("a") as log:
            prefix = [] if self.core is None else ["taskset", "-c", str(self.core)]
            self.child = subprocess.Popen(
                [*prefix, interpreter(self.kind), "-m", "bench.worker", self.kind],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment(self.kind), cwd=ROOT,
            )  # fmt: skip

    def send(self, **request: Any) -> None:
        assert self.child.stdin is not None
        with suppress(BrokenPipeError):  # `reply` tells
            self.child.stdin.write((json.dumps(request) + "\n").encode())
            self.child.stdin.flush()

    def reply(self, timeout: float) -> dict[str, Any]:
        """The worker's reply. Failed: it says so, died, or took longer than `timeout` seconds."""
        out = self.child.stdout
        assert out is not None
        if not select.select([out], [], [], timeout)[0]:
            self.restart()
            raise Failed(f"no answer in {timeout:g} s")
        line = out.readline()
        if not line:
            code = self.child.wait()
            self.restart()
            raise Failed(f"the process ended with code {code}")
        reply = json.loads(line)
        if "failed" in reply:
            raise Failed(reply["failed"], reply["absent"])
        return reply

    def restart(self) -> None:
        self.stop()
        self.start()

    def stop(self) -> None:
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):  # what was written last has no reader
                    pipe.close()
