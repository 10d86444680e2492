"""Launcher: starts the processes of a job on this machine, prints their output by rank, and ends them together."""

from __future__ import annotations

import array
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from hlokit.errors import UnsupportedError

if sys.platform == "win32":
    raise UnsupportedError("hlokit.launch: Windows has no process groups and signals to end a job's processes by")

_WORKER = Path(__file__).parent / "worker.py"
_TERM_SECONDS = 3.0
"""For a process to end after SIGTERM, before it is killed."""
_DRAIN_SECONDS = 0.5
"""For output to come after the process has ended: what it has started may hold the pipe open for ever."""
_ENGINES = ("mpi", "gloo")


@dataclass
class _Member:
    """A process of the job. `status`: as subprocess gives it; None while it runs."""

    line: socket.socket
    rank: int = -1
    pid: int = 0
    status: int | None = None
    received: bytearray = field(default_factory=bytearray)


class Launcher:
    """A job of `count` processes.

    devices      of each process; None: as the environment says
    collectives  "mpi": by mpirun, so that MPI connects the processes; "gloo": without it
    mpirun       the program; default: the one next to this Python, else on PATH
    grace        seconds that processes have to end by themselves when one has failed
    """

    def __init__(
        self, command: Sequence[str], count: int, *, devices: int | None = None, collectives: str = "mpi",
        mpirun: str | None = None, grace: float = 10.0,
    ) -> None:  # fmt: skip
        if collectives not in _ENGINES:
            expected = " or ".join(_ENGINES)
            raise UnsupportedError(f"collectives between processes: found {collectives!r}, expected {expected}")
        self._command = list(command)
        self._count = count
        self._mpirun = _found_mpirun(mpirun) if collectives == "mpi" else None
        self._environment = _environment(count, devices, collectives)
        self._grace = grace
        self._selector = selectors.DefaultSelector()
        self._members: list[_Member] = []
        self._started: list[subprocess.Popen[bytes]] = []
        self._output: dict[int, _Output] = {}
        self._said = Path(os.devnull)
        """The file of what mpirun itself, or the workers, print: of use only if they cannot start."""
        self._first: int | None = None
        """The exit status of the first process that failed, or of an interrupt."""
        self._steps: list[tuple[float, int]] = []
        """When to send the processes that are left which signal."""

    def run(self) -> int:
        """The exit status: of the first process that failed, 128 + n if it was ended by signal n; else 0."""
        with TemporaryDirectory(prefix="hlokit") as folder, _Signals(self._interrupted) as signals:
            server = socket.socket(socket.AF_UNIX)
            server.bind(f"{folder}/s")
            server.listen(self._count)
            self._selector.register(server, selectors.EVENT_READ, self._accept)
            self._selector.register(signals.end, selectors.EVENT_READ, signals.heard)
            try:
                self._start(folder)
                while not self._is_over():
                    self._step()
                self._check_start()
                self._drain()
            finally:
                self._end(server)
        return self._first or 0

    def _start(self, folder: str) -> None:
        worker = [sys.executable, str(_WORKER), f"{folder}/s", *self._command]
        if self._mpirun is not None:
            commands = [([self._mpirun, "-n", str(self._count), *worker], self._environment)]
        else:
            commands = [(worker, {**self._environment, "HLOKIT_LAUNCH_RANK": str(k)}) for k in range(self._count)]
        self._said = Path(folder) / "said"
        with self._said.open("wb") as said:
            for command, environment in commands:  # in groups of their own: this process tells them of Ctrl-C
                self._started.append(
                    subprocess.Popen(
                        command, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, process_group=0
                    )
                )

    def _step(self) -> None:
        pause = min((when for when, _ in self._steps), default=time.monotonic() + 1.0) - time.monotonic()
        for key, _ in self._selector.select(min(1.0, max(0.0, pause))):
            key.data()
        while self._steps and self._steps[0][0] <= time.monotonic():
            _, number = self._steps.pop(0)
            self._tell(number)
        self._check_start()

    def _check_start(self) -> None:
        """Workers, and mpirun, stay until this process hangs up."""
        if len(self._members) == self._count or any(process.poll() is None for process in self._started):
            return
        if self._first is None:
            text = self._said.read_text(errors="replace").strip()
            print(f"error: not all processes could be started\n{text}".strip(), file=sys.stderr)
        self._fail(next((p.returncode for p in self._started if p.returncode), 1), grace=0.0)

    def _is_over(self) -> bool:
        is_whole = len(self._members) == self._count or all(process.poll() is not None for process in self._started)
        return is_whole and all(member.status is not None for member in self._members)

    # -- processes

    def _accept(self) -> None:
        server: Any = next(key.fileobj for key in self._selector.get_map().values() if key.data == self._accept)
        line, _ = server.accept()
        member = _Member(line)
        self._selector.register(line, selectors.EVENT_READ, lambda: self._hear(member))

    def _hear(self, member: _Member) -> None:
        try:
            data, pipes = _received(member.line)
        except OSError:
            data, pipes = b"", []
        member.received += data
        *messages, rest = bytes(member.received).split(b"\n")
        member.received[:] = rest
        for message in map(json.loads, messages):
            if "pid" in message:
                member.rank, member.pid = message["rank"], message["pid"]
                self._members.append(member)
                self._listen(member.rank, pipes)
                if self._first is not None:
                    self._signal(member, signal.SIGKILL)
            else:
                self._ended(member, message["status"])
        if not data:
            self._selector.unregister(member.line)
            if member.pid and member.status is None:
                self._ended(member, -signal.SIGKILL)  # its worker was killed, and it with that

    def _listen(self, rank: int, pipes: Sequence[int]) -> None:
        for pipe, target in zip(pipes, (sys.stdout, sys.stderr), strict=True):
            output = self._output[pipe] = _Output(rank, pipe, target)
            self._selector.register(pipe, selectors.EVENT_READ, partial(self._read, output))

    def _read(self, output: _Output) -> None:
        if not output.read():
            self._selector.unregister(output.pipe)
            os.close(output.pipe)
            del self._output[output.pipe]

    def _ended(self, member: _Member, status: int) -> None:
        member.status = status
        if status:
            self._fail(status, self._grace, f"process {member.rank} (pid {member.pid}) {_said(status)}")

    def _fail(self, status: int, grace: float, text: str = "") -> None:
        """The first failure: the others are to end."""
        if self._first is not None:
            return
        self._first = 128 - status if status < 0 else status
        if text:
            print(f"launch: {text}", file=sys.stderr, flush=True)
        now = time.monotonic()
        self._steps = [(now + grace, signal.SIGTERM), (now + grace + _TERM_SECONDS, signal.SIGKILL)]

    def _interrupted(self, number: int) -> None:
        """Ctrl-C once: all hear it, and have some time. Twice: they are ended."""
        again = self._first == 128 + number
        self._first = 128 + number
        now = time.monotonic()
        grace = 0.0 if again else self._grace
        self._tell(signal.SIGTERM if again else number)
        self._steps = [(now + grace, signal.SIGTERM), (now + grace + _TERM_SECONDS, signal.SIGKILL)]

    def _tell(self, number: int) -> None:
        for member in self._members:
            self._signal(member, number)
        if len(self._members) < self._count:  # some have not even begun
            for process in self._started:
                with suppress(OSError):
                    os.killpg(process.pid, number)

    def _signal(self, member: _Member, number: int) -> None:
        if member.status is None:
            with suppress(OSError):
                os.killpg(member.pid, number)

    # -- the end

    def _drain(self) -> None:
        """Prints what is left of the output."""
        end = time.monotonic() + _DRAIN_SECONDS
        while self._output and time.monotonic() < end:
            for key, _ in self._selector.select(0.05):
                if isinstance(key.fileobj, int) and key.fileobj in self._output:
                    end = max(end, time.monotonic() + 0.1)
                    key.data()
        for output in self._output.values():
            output.finish()

    def _end(self, server: socket.socket) -> None:
        """Hangs up: workers end, and with them what of their processes is left."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, socket.socket):
                key.fileobj.close()
        server.close()
        for process in self._started:
            try:
                process.wait(_TERM_SECONDS)
            except subprocess.TimeoutExpired:
                with suppress(OSError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class _Output:
    """One stream of a process, whose lines get its rank before them."""

    def __init__(self, rank: int, pipe: int, target: TextIO) -> None:
        self.pipe = pipe
        self._prefix = f"[{rank}] ".encode()
        self._target = target
        self._rest = b""

    def read(self) -> bool:
        """Prints what has come. False at the end."""
        data = os.read(self.pipe, 1 << 16)
        if not data:
            self.finish()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._write(b"".join(self._prefix + line + b"\n" for line in lines))
        return True

    def finish(self) -> None:
        if self._rest:
            self._write(self._prefix + self._rest + b"\n")
            self._rest = b""

    def _write(self, data: bytes) -> None:
        self._target.flush()
        stream: Any = getattr(self._target, "buffer", None)
        if stream is None:  # a stream of text alone
            self._target.write(data.decode(errors="replace"))
        else:
            stream.write(data)
        self._target.flush()


class _Signals:
    """While the block runs, SIGINT, SIGTERM and SIGHUP are heard from `end`."""

    def __init__(self, act: Callable[[int], None]) -> None:
        self._act = act
        self.end, self._other = socket.socketpair()
        self._other.setblocking(False)

    def heard(self) -> None:
        for number in self.end.recv(64):
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                self._act(number)

    def __enter__(self) -> _Signals:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._before = {number: signal.signal(number, lambda number, frame: None) for number in numbers}
        self._wakeup = signal.set_wakeup_fd(self._other.fileno())
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._other.close()


def _received(line: socket.socket) -> tuple[bytes, list[int]]:
    """Bytes, and the files that came with them, which no child inherits."""
    data, ancillary, _, _ = line.recvmsg(1 << 12, socket.CMSG_LEN(2 * array.array("i").itemsize))
    files = array.array("i")
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            files.frombytes(content[: len(content) - len(content) % files.itemsize])
    for file in files:
        os.set_inheritable(file, False)
    return data, list(files)


def _environment(count: int, devices: int | None, collectives: str) -> dict[str, str]:
    """The environment of every process: where JAX's coordinator and PyTorch's store are, a share of the processors."""
    with socket.create_server(("127.0.0.1", 0)) as free, socket.create_server(("127.0.0.1", 0)) as other:
        address, port = f"127.0.0.1:{free.getsockname()[1]}", other.getsockname()[1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    own = {
        "JAX_COORDINATOR_ADDRESS": address, "JAX_COORDINATOR_BIND_ADDRESS": address,
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count),
        "HLOKIT_COLLECTIVES": collectives, "HLOKIT_LAUNCH_SIZE": str(count),
    }  # fmt: skip
    if devices is not None:
        own["HLOKIT_NUM_DEVICES"] = str(devices)
    defaults = {"HLOKIT_THREADS": str(max(1, cores // count)), "PYTHONUNBUFFERED": "1"}
    return {**defaults, **os.environ, **own}


def _found_mpirun(given: str | None) -> str:
    beside = Path(sys.executable).parent / "mpirun"
    found = given or (str(beside) if beside.exists() else None) or shutil.which("mpirun") or shutil.which("mpiexec")
    if found is None or shutil.which(found) is None:
        raise UnsupportedError(
            f"no program {given or 'mpirun'}: `pip install mpich` gives one; `--collectives gloo` needs no MPI"
        )
    return found


def _said(status: int) -> str:
    if status < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
