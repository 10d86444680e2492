"""Faults of processes, drawn by a seed: what do the others say, and when?

python -m tests.mpi.faults --seed 0 --count 20 [--processes 3] [--engine mpi] [--script jax] [--kinds killed late]
    [--late SECONDS] [--out FILE]

Each job trains on several processes, which hlokit.launch starts, and one of them meets a fault. Over gloo they are forks of
this process, which saves the imports. Then:

- no job hangs;
- every survivor says the cause, within 10 seconds (a process that is gone before all have come together, only the
  launcher can name);
- of the flight recorders' dumps `hlokit devices` says that it is the doomed process for which others wait, or which failed; a
  late one has all processes write theirs;
- a job that is started again goes on from the checkpoint, and ends with the weights of one without a fault.

Faults of the disk and the network need root, for a file system and a network namespace of the test's own. Over MPI the
network's needs MPICH, which is told to use no shared memory.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import ctypes
import functools
import io
import json
import math
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

import numpy as np

import hlokit as hk
from hlokit.devices.flight_report import read_dumps, reports
from hlokit.launch import worker
from hlokit.launch.launcher import Launcher
from tests.devices.programs import program

STEPS, LATE, GRACE, LIMIT = 8, 4.0, 12.0, 10.0
"""Steps of a job; seconds: that a late process takes, that the launcher leaves to the others, that they may take."""
KINDS = (
    "killed computing", "killed exchanging", "killed compiling", "killed at start", "late", "other program",
    "fewer steps", "other version", "full disk", "network down",
)  # fmt: skip
_DISK = 1 << 17
"""Bytes of the doomed process's file system: room for a page for each step's checkpoint, and more."""
_NEED_ROOT = ("full disk", "network down")
_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
_HERE, _THERE = "10.213.7.1", "10.213.7.2"


# -- a process of a job


def training_step(rate: float) -> hk.HloModule:
    def step(b: hk.Builder, w: Any, x: Any) -> Any:
        gradient = hk.all_reduce(hk.tanh(w * x) - x, lambda p, q: p + q)
        largest = hk.all_reduce(hk.abs(gradient), hk.max)
        return w - gradient / (largest + np.float32(1)) * np.float32(rate)

    return program(step, hk.f32[32], hk.f32[32], name="step")


def work(fault: dict[str, Any], folder: Path) -> None:
    """Trains from the last checkpoint that all have, and meets the fault."""
    rank = int(os.environ["RANK"])
    (folder / str(rank) / "pid").write_text(str(os.getpid()), encoding="utf-8")
    if fault["kind"]:
        os.environ["HLOKIT_FLIGHT_RECORDER"] = str(folder / "flight")
    kind = fault["kind"] if rank == fault["doomed"] else ""
    if fault["kind"] == "network down":
        _apart(fault, is_there=kind != "")
    if kind == "killed at start":
        _die(folder)
    if kind == "other version":
        hk.__version__ = "0.0.1"
        if fault["script"] == "hlo":
            _now(folder)
    (_in_jax if fault["script"] == "jax" else _in_hlo)(kind, fault, folder, rank)


def _in_hlo(kind: str, fault: dict[str, Any], folder: Path, rank: int) -> None:
    with hk.process_world(fault["engine"]) as world:
        if kind == "killed compiling":
            threading.Timer(fault["delay"], _die, [folder]).start()
            for number in range(10**6):
                hk.compile(training_step(1.0 + number), replicas=world.size)
        module = training_step(0.25 if kind == "other program" else 0.5)
        run = hk.compile(module, replicas=world.size)
        first, weights = _restored(folder, world.size, rank)
        x = np.random.default_rng(rank).standard_normal(32).astype(np.float32)
        for step in range(first, STEPS):
            if step == fault["step"]:
                _meet(kind, fault, folder, world)
            if kind == "other program" and step == first:
                _now(folder)
            weights = run(weights, x, world=world)
            _save(folder, step, rank, weights)
    print(f"weights {weights.tobytes().hex()[:64]}", flush=True)


def _in_jax(kind: str, fault: dict[str, Any], folder: Path, rank: int) -> None:
    import jax
    import jax.numpy as jnp

    from hlokit.interop.jax import use

    use(as_cpu=True)
    jax.distributed.initialize()
    if kind == "other version":
        _now(folder)
    size = jax.device_count()
    rows = jax.NamedSharding(jax.make_mesh((size,), ("x",), (jax.sharding.AxisType.Auto,)), jax.P("x"))

    def step_of(rate: float) -> Any:
        @functools.partial(jax.jit, donate_argnums=0)
        def step(w: Any, x: Any) -> Any:
            gradient = jnp.sum(jnp.tanh(w * x) - x, 0, keepdims=True)
            return w - gradient / (jnp.max(jnp.abs(gradient)) + 1) * np.float32(rate)

        return step

    def spread(row: Any) -> jax.Array:
        return jax.make_array_from_process_local_data(rows, row[None])

    first, weights = _restored(folder, size, rank)
    w, x = spread(weights), spread(np.random.default_rng(rank).standard_normal(32).astype(np.float32))
    if kind == "killed compiling":
        threading.Timer(fault["delay"], _die, [folder]).start()
        for number in range(10**6):
            step_of(1.0 + number).lower(w, x).compile()
    run = step_of(0.25 if kind == "other program" else 0.5)
    for step in range(first, STEPS):
        if step == fault["step"]:
            from hlokit.interop.pjrt.client import job

            _meet(kind, fault, folder, job().world)
        if kind == "other program" and step == first:
            _now(folder)
        w = run(w, x)
        _save(folder, step, rank, np.asarray(w.addressable_shards[0].data)[0])
    print(f"weights {np.asarray(w.addressable_shards[0].data).tobytes().hex()[:64]}", flush=True)


def _meet(kind: str, fault: dict[str, Any], folder: Path, world: Any) -> None:
    if kind == "killed computing":
        _die(folder)
    elif kind == "killed exchanging":
        world._engine.exchange = lambda *_: _die(folder)
        world._engine.gather = lambda *_: _die(folder)
    elif kind == "late":
        time.sleep(fault["late"])
        _write_dumps(folder, world.size)
    elif kind == "fewer steps":
        _now(folder)
        world.close()
        raise SystemExit(0)
    elif kind == "full disk":
        _now(folder)
        with contextlib.suppress(OSError):
            (folder / str(world.rank) / "filling").write_bytes(bytes(_DISK))
    elif kind == "network down":
        _now(folder)
        subprocess.run(["ip", "link", "set", fault["namespace"], "down"], check=True)


def _write_dumps(folder: Path, count: int) -> None:
    """Asks all processes for what they are at."""
    for file in folder.glob("*/pid"):
        os.kill(int(file.read_text(encoding="utf-8")), signal.SIGUSR2)
    end = time.monotonic() + LIMIT
    while len([*folder.glob("flight/*.json")]) < count and time.monotonic() < end:
        time.sleep(0.05)


def _restored(folder: Path, size: int, rank: int) -> tuple[int, Any]:
    """The first step that is to be done, and the weights before it."""
    for step in reversed(range(STEPS)):
        files = [folder / str(other) / f"{step}.npy" for other in range(size)]
        if all(file.exists() for file in files):
            return step + 1, np.load(files[rank])
    return 0, np.zeros(32, np.float32)


def _save(folder: Path, step: int, rank: int, weights: Any) -> None:
    """A checkpoint is whole, or there is none."""
    with open(folder / str(rank) / "new", "wb") as file:
        np.save(file, weights)
        file.flush()
        os.fsync(file.fileno())
    os.replace(folder / str(rank) / "new", folder / str(rank) / f"{step}.npy")


def _now(folder: Path) -> None:
    (folder / "when").write_text(str(time.time()), encoding="utf-8")


def _die(folder: Path) -> NoReturn:
    _now(folder)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _apart(fault: dict[str, Any], *, is_there: bool) -> None:
    """The doomed process and the others are as on two machines, whose names are their addresses."""
    namespace, host = fault["namespace"], _THERE if fault["doomed"] == 0 else _HERE
    os.environ["MASTER_ADDR"] = host
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_COORDINATOR_BIND_ADDRESS"):
        os.environ[name] = f"{host}:{os.environ[name].rsplit(':', 1)[1]}"
    interface = namespace if is_there else f"{namespace}h"
    os.environ.update(MPIR_CVAR_NOLOCAL="1", UCX_TLS="tcp", UCX_NET_DEVICES=interface)  # MPICH: no shared memory
    libc = ctypes.CDLL(None, use_errno=True)
    _succeeded(libc.unshare(_CLONE_NEWUTS | _CLONE_NEWNS))
    if is_there:
        with open(f"/run/netns/{namespace}", encoding="utf-8") as file:
            _succeeded(libc.setns(file.fileno(), _CLONE_NEWNET))
        for line in ("--make-rslave /", "-t sysfs none /sys"):  # which lists the interfaces
            _shell(f"mount {line}")
    socket.sethostname(_THERE if is_there else _HERE)


def _succeeded(status: int) -> None:
    if status:
        raise OSError(ctypes.get_errno(), "a system call failed")


# -- a job


class _Fork:
    """A child, as subprocess.Popen would give it."""

    def __init__(self, body: Callable[[], None]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.setpgid(0, 0)
                body()
            finally:
                os._exit(1)

    def poll(self) -> int | None:
        if self.returncode is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float = math.inf) -> int:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("fork", timeout)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode


class Forking(Launcher):
    """The launcher, whose processes are forks that run `work`."""

    def __init__(self, count: int, fault: dict[str, Any], folder: Path) -> None:
        super().__init__(["work"], count, collectives="gloo", grace=GRACE)
        self._fault, self._folder = fault, folder

    def _start(self, folder: str) -> None:
        for rank in range(self._count):
            environment = {**self._environment, "HLOKIT_LAUNCH_RANK": str(rank)}
            self._started.append(_Fork(lambda e=environment: self._run_worker(f"{folder}/s", e)))  # type: ignore[arg-type]

    def _run_worker(self, path: str, environment: dict[str, str]) -> None:
        os.environ.clear()
        os.environ.update(environment)
        signal.set_wakeup_fd(-1)
        os.execvpe = self._become  # type: ignore[assignment]  # in the worker's child
        worker.main(path, ["work"])

    def _become(self, file: str, arguments: list[str], environment: dict[str, str]) -> NoReturn:
        os.environ.clear()
        os.environ.update(environment)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        status = told(self._fault, self._folder)
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def told(fault: dict[str, Any], folder: Path) -> int:
    """The exit status of a process, which prints its error as Python does when nobody catches it."""
    try:
        work(fault, folder)
    except SystemExit as end:
        return int(end.code or 0)
    except BaseException as error:
        sys.last_value = error
        print(f"said {type(error).__name__}: {error}".replace("\n", "; "), flush=True)
        traceback.print_exc()
        return 1
    return 0


class _Clocked(io.StringIO):
    """Puts the time before each line."""

    def write(self, text: str) -> int:
        return super().write(re.sub(r"^(?=.)", f"{time.time():.2f} ", text, flags=re.MULTILINE))


def launched(count: int, fault: dict[str, Any], folder: Path) -> tuple[int, str]:
    """The exit status, and all that was printed, each line behind the time at which it came."""
    if fault["engine"] == "gloo":
        launcher: Launcher = Forking(count, fault, folder)
    else:
        process = ["-m", "tests.mpi.faults", "--process", json.dumps(fault), str(folder)]
        launcher = Launcher([sys.executable, *process], count, collectives="mpi", grace=GRACE)
    with contextlib.redirect_stdout(_Clocked()) as out, contextlib.redirect_stderr(_Clocked()) as err:
        status = launcher.run()
    return status, out.getvalue() + err.getvalue()


CAUSES = {  # a JAX program's error ends it, and the others hear of that
    "killed computing": r"rank {d} is gone", "killed exchanging": r"rank {d} is gone", "killed compiling": r"rank {d} is gone",
    "other program": r"rank ({d}|1) runs another program than rank 0", "fewer steps": r"rank {d} (has left|is gone)",
    "other version": r"has hlokit[ =](?!.*\[)",
    "full disk": r"rank {d}: OSError: \[Errno 28\] No space left on device",
    "network down": r"rank {d} is gone: its machine does not answer",
}  # fmt: skip


def judged(count: int, fault: dict[str, Any], folder: Path, status: int, text: str) -> tuple[list[str], list[float]]:
    """What is wrong, and the seconds that each survivor took to say the cause."""
    kind, doomed = fault["kind"], fault["doomed"]
    wrong = reported(fault, folder)
    if kind == "late":
        ends = set(re.findall(r"weights (\w+)", text))
        return [*wrong, *([] if status == 0 and len(ends) == 1 else ["a late process is an error"])], []
    if not (folder / "when").exists():
        return ["the fault did not come about"], []
    when = float((folder / "when").read_text(encoding="utf-8"))
    if kind == "killed at start":
        named = f"launch: process {doomed} (pid" in text and "was ended by SIGKILL" in text
        return ([] if named else ["the launcher does not name the process"]), []
    if kind == "full disk" and fault["step"] == STEPS - 1:
        ends = re.findall(r"weights (\w+)", text)
        named = re.search(rf"^\S+ \[{doomed}\] said OSError: \[Errno 28\]", text, re.MULTILINE)
        return ([] if named and len(ends) == count - 1 and len(set(ends)) == 1 else ["the others do not end well"]), []
    seconds: list[float] = []
    for rank in set(range(count)) - {doomed}:
        said = re.findall(rf"^(\S+) \[{rank}\] (?:said \w+|error): (.*)$", text, re.MULTILINE)
        at, cause = min(((float(time), line) for time, line in said), default=(0.0, ""))
        if not said:
            wrong.append(f"rank {rank} says nothing")
        elif re.search(CAUSES[kind].format(d=doomed), cause) is None:
            wrong.append(f"rank {rank} says {cause[:300]!r}")
        else:
            seconds.append(at - when)
    if seconds and max(seconds) > LIMIT:
        wrong.append(f"after {max(seconds):.1f} s")
    return wrong, seconds


def reported(fault: dict[str, Any], folder: Path) -> list[str]:
    """What is wrong with the findings of `hlokit devices`."""
    kind, doomed = fault["kind"], fault["doomed"]
    is_last = kind == "full disk" and fault["step"] == STEPS - 1  # after the last exchange nobody misses anyone
    if is_last or kind in ("killed at start", "other version"):  # before there is a world that records
        return []
    dumps = read_dumps(sorted(folder.glob("flight/*.json")))
    found = [finding for report in reports(dumps) for finding in report.findings]
    return [] if any(re.search(rf"rank {doomed}\b", finding) for finding in found) else [f"findings: {found}"]


@contextlib.contextmanager
def prepared(count: int, fault: dict[str, Any]) -> Any:
    """The job's folder, in which the doomed process has a file system of its own, or its network."""
    folder = Path(tempfile.mkdtemp(prefix="hlokit_faults"))
    for rank in range(count):
        (folder / str(rank)).mkdir()
    small, namespace = folder / str(fault["doomed"]), fault["namespace"]
    try:
        if fault["kind"] == "full disk":
            _shell(f"mount -t tmpfs -o size={_DISK} none {small}")
        if fault["kind"] == "network down":
            for line in (
                f"netns add {namespace}", f"link add {namespace}h type veth peer name {namespace} netns {namespace}",
                f"addr add {_HERE}/24 dev {namespace}h", f"link set {namespace}h up",
                f"-n {namespace} addr add {_THERE}/24 dev {namespace}", f"-n {namespace} link set {namespace} up",
                f"-n {namespace} link set lo up",
            ):  # fmt: skip
                _shell(f"ip {line}")
        yield folder
    finally:
        if fault["kind"] == "full disk":
            _shell(f"umount {small}")
        if fault["kind"] == "network down":
            for what in (f"link del {namespace}h", f"netns del {namespace}"):
                subprocess.run(["ip", *what.split()], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(folder, ignore_errors=True)


def _shell(command: str) -> None:
    subprocess.run(command.split(), check=True)


def drawn(numbers: random.Random, count: int, kinds: list[str], number: int) -> dict[str, Any]:
    return {
        "kind": numbers.choice(kinds), "doomed": numbers.randrange(count), "step": numbers.randrange(1, STEPS),
        "delay": numbers.uniform(0.0, 0.3), "namespace": f"hk{os.getpid() % 10**6}n{number % 1000}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--only", type=int, nargs="+", help="the numbers of the faults that are tried; all are drawn")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--engine", choices=("gloo", "mpi"), default="gloo")
    parser.add_argument("--script", choices=("hlo", "jax"), default="hlo")
    parser.add_argument("--late", type=float, default=LATE, help="seconds that a late process takes")
    parser.add_argument("--out", type=Path, help="a line of JSON for each fault")
    parser.add_argument("--process", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.process is not None:
        fault, folder = given.process
        sys.exit(told(json.loads(fault), Path(folder)))
    if given.engine == "gloo":  # forks have it then
        import hlokit.devices.processes.gloo  # noqa: F401

        if given.script == "jax":
            import jax  # noqa: F401
    kinds = [kind for kind in given.kinds if kind not in _NEED_ROOT or os.geteuid() == 0]
    for kind in set(given.kinds) - set(kinds):
        print(f"left out, without root: {kind}")
    setting = {"engine": given.engine, "script": given.script, "late": given.late}
    numbers, times, bad = random.Random(given.seed), defaultdict[str, list[float]](list), 0
    done, restarts = defaultdict[str, int](int), 0
    none = {"kind": "", "doomed": -1, "step": -1, "namespace": "", **setting}
    with prepared(given.processes, none) as folder:
        wanted = set(re.findall(r"weights (\w+)", launched(given.processes, none, folder)[1]))
    assert len(wanted) == 1, wanted
    for number in range(given.count):
        fault = drawn(numbers, given.processes, kinds, number) | setting
        if given.only and number not in given.only:
            continue
        with prepared(given.processes, fault) as folder:
            begin = time.monotonic()
            status, text = launched(given.processes, fault, folder)
            lasted = time.monotonic() - begin
            wrong, seconds = judged(given.processes, fault, folder, status, text)
            if fault["kind"] != "late":
                if fault["kind"] == "full disk":
                    _shell(f"mount -o remount,size=1m {folder / str(fault['doomed'])}")
                again, after = launched(given.processes, none, folder)
                restarts += 1
                if again or set(re.findall(r"weights (\w+)", after)) != wanted:
                    wrong.append(f"started again: {after[-500:]}")
        done[fault["kind"]] += 1
        times[fault["kind"]] += seconds
        if wrong:
            bad += 1
            print(f"fault {number} {fault}: {wrong}\n{text[-3000:]}", flush=True)
        if given.out is not None:
            with given.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**fault, "wrong": wrong, "seconds": seconds, "lasted": lasted}) + "\n")
    for kind in kinds:
        if done[kind]:
            found = sorted(times[kind])
            text = f"median {median(found):.2f} s, longest {found[-1]:.2f} s" if found else ""
            print(f"{kind:18s} {done[kind]:4d} faults  {text}")
    print(f"{sum(done.values())} faults, {bad} not as they should be; {restarts} started again")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
