"""JAX's own tests, unmodified, on hlokit; those that fail run on JAX's CPU client too.

    python -m tests.jax.suite.run --mirror FOLDER --out FOLDER [FILE ...] [--mode hlokit|x64|cpu] [--limit SECONDS]

FILE is a test file's name, `lax_test` for tests/lax_test.py; without one, all files of the installed jax's tag. They are
taken from the git snapshot FOLDER/jax-ml+jax/repo. Each test runs with one generated case, without the slow ones, and in
one process for each file, so that whatever tests share is shared. A process that dies or hangs goes on behind the test it
was in. The log in `--out` is the state: the same command goes on where it was stopped, runs again what was cut off at
a lower limit, and with `--again` what fails on hlokit alone and was run by another version of hlokit.

The modes: `hlokit`, the platform; `x64`, the platform with 64-bit types, for the files of X64; `cpu`, hlokit in place of
JAX's CPU client. `python -m tests.jax.suite.table` makes the table of docs/jax_tests.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.jax.suite import logs

ROOT = Path(__file__).parents[3]
PLUGIN = Path(__file__).parent / "plugin"
MODES = ("hlokit", "x64", "cpu")
X64 = re.compile(
    r"(lax|linalg|random|lax_numpy)(_.*)?_test|(scipy|lax_scipy)_.*_test|fft_test|svd_test|eigh_test|qdwh_test"
)
"""Files that run with 64-bit types too: of lax, linear algebra, random numbers, numpy and scipy."""
LEFT_OUT = {
    "mosaic": "a compiler for GPUs",
    "multiprocess": "a launcher starts these in several processes",
}
"""Folders of JAX's tests that are not run."""
FIRST = [
    "layout_test", "export_test", "debugging_primitives_test", "pmap_test", "shard_map_test", "pjit_test",
    "array_test", "api_test", "lax_test", "lax_numpy_test", "lax_control_flow_test", "linalg_test", "random_lax_test",
    "random_test", "memories_test", "buffer_callback_test", "python_callback_test", "multi_device_test", "aot_test",
    "compilation_cache_test", "cache_key_test", "lax_numpy_indexing_test", "lax_autodiff_test", "lax_vmap_test",
    "lax_scipy_test", "lax_numpy_reducers_test", "lax_numpy_operators_test", "batching_test", "ffi_test",
    "jaxpr_effects_test", "hijax_test", "mutable_array_test", "state_test", "checkify_test", "nn_test", "fft_test",
    "svd_test", "eigh_test", "dtypes_test", "async_collectives_test", "ragged_collective_test",
    "linalg_sharding_test", "custom_api_test", "lax_scipy_special_functions_test", "scipy_stats_test",
]  # fmt: skip


BESIDE = ("jax/_src/hypothesis_test_util.py", "jax/_src/pallas/pallas_test_util.py")
"""Modules that tests import and the installed package has not."""
COLLECTING = 900
"""Seconds that a process may take at least where it is in no test."""


@dataclass(frozen=True)
class Job:
    """A file in a mode."""

    suite: Path
    """The folder that holds `tests`."""
    out: Path
    file: str
    mode: str

    @property
    def path(self) -> str:
        return f"tests/{self.file}.py"

    def log(self, where: str = "") -> Path:
        """The log of the tests on hlokit, or of those that ran on JAX's CPU client too (`where`: `.there`)."""
        return self.out / f"{self.file.replace('/', '.')}.{self.mode}{where}.jsonl"

    def environment(self, on_hlokit: bool) -> dict[str, str]:
        own = ("JAX_", "XLA_", "HLOKIT_NUM", "HLOKIT_AS", "HLOKIT_BACKEND", "HLOKIT_SHADOW", "PYTEST_")
        variables = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        variables |= {"JAX_NUM_GENERATED_CASES": "1", "JAX_SKIP_SLOW_TESTS": "1", "PYTHONDONTWRITEBYTECODE": ""}
        variables |= {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(PLUGIN)])}
        asks = "request_cpu_devices" in (self.suite / self.path).read_text(encoding="utf-8")
        devices = "8" if asks else "1"
        if self.mode == "x64":
            variables["JAX_ENABLE_X64"] = "1"
        if on_hlokit and self.mode != "cpu":
            return variables | {"JAX_PLATFORMS": "hlokit,cpu", "HLOKIT_NUM_DEVICES": devices}
        variables["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
        return variables | ({"HLOKIT_AS_CPU": "1"} if on_hlokit else {"JAX_PLATFORMS": "cpu"})


def suite_folder(out: Path) -> Path:
    return out / f"jax-{importlib.metadata.version('jax')}"


def suite(mirror: Path, out: Path) -> Path:
    """The folder of JAX's tests of the installed jax's tag, made once."""
    version = importlib.metadata.version("jax")
    folder = suite_folder(out)
    if not (folder / "tests").exists():
        names = ["tests", "conftest.py", "pyproject.toml"]
        repository = str(mirror / "jax-ml+jax" / "repo")
        command = ["git", f"--git-dir={repository}", "archive", f"jax-v{version}", *names]
        # git names objects that a partial snapshot lacks, and ends with an error: the archive is whole nonetheless
        done = subprocess.run(command, capture_output=True, check=False)
        if not done.stdout:
            raise SystemExit(f"{repository} has no tests of jax-v{version}: {done.stderr.decode()[-500:]}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
    for name in BESIDE:
        path = folder / "beside" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["git", f"--git-dir={mirror / 'jax-ml+jax' / 'repo'}", "show", f"jax-v{version}:{name}"]
        if not path.exists():
            path.write_bytes(subprocess.run(command, capture_output=True, check=False).stdout)  # empty in other versions
    return folder


def files(folder: Path) -> list[str]:
    """The test files of a suite, the most telling first, then the smallest."""
    found = {
        str(path.relative_to(folder / "tests").with_suffix("")): path for path in folder.glob("tests/**/*_test.py")
    }
    first = [name for name in FIRST if name in found]
    rest = [name for name in found if name not in first and name.split("/")[0] not in LEFT_OUT]
    # those of accelerators, most of which are skipped, behind the others
    return first + sorted(rest, key=lambda name: ("/" in name, found[name].stat().st_size))


def run_job(job: Job, limit: float, memory: int, again: bool) -> None:
    """The job's tests that were not run yet, on hlokit, then those that failed on JAX's CPU client."""
    here, there = job.log(), job.log(".there")
    before = logs.read(here)
    other = [*alone(before, logs.read(there)), *skipped_there(before, logs.read(there))] if again else []
    stale = {test.id for test in other if test.process["hlokit"] != _commit()}
    _run(job, here, True, None, stale, limit, memory)
    failed = [test for test in logs.read(here).tests.values() if test.failed or test.outcome == logs.CUT_OFF]
    if any(test.is_file for test in failed):
        _run(job, there, False, [], set(), limit, memory)
    if wanted := [test.id for test in failed if not test.is_file]:
        _run(job, there, False, wanted, set(), limit, memory)


def alone(here: logs.Log, there: logs.Log) -> list[logs.Test]:
    """The tests that fail on hlokit and pass on JAX's CPU client (or were not run there yet)."""
    return [test for test in here.tests.values() if test.failed and _there(test, there) not in ("failed", "skipped")]


def skipped_there(here: logs.Log, there: logs.Log) -> list[logs.Test]:
    """The tests that fail on hlokit, and that say of JAX's CPU client that they are not for it."""
    return [test for test in here.tests.values() if test.failed and _there(test, there) == "skipped"]


def _there(test: logs.Test, there: logs.Log) -> str:
    other = there.tests.get(test.id)
    return "" if other is None else "failed" if other.failed else other.outcome


def _run(
    job: Job, log: Path, on_hlokit: bool, wanted: list[str] | None, stale: set[str], limit: float, memory: int
) -> None:
    """Processes, until one ends by itself. `wanted`: only these tests; an empty list: only collect."""
    while True:
        done = [
            test.id
            for test in logs.read(log).tests.values()
            if test.outcome
            and not (test.outcome == logs.CUT_OFF and test.process["limit"] < limit)
            and test.id not in stale
        ]
        if wanted and set(wanted) <= set(done):
            return
        if wanted is None and not stale and logs.read(log).complete:
            if not any(test.id not in done for test in logs.read(log).tests.values()):
                return
        ended = _process(job, log, on_hlokit, wanted, done, limit, memory)
        stale -= {test.id for test in logs.read(log).tests.values() if test.process["hlokit"] == _commit()}
        if ended:
            return


def _process(
    job: Job, log: Path, on_hlokit: bool, wanted: list[str] | None, done: Iterable[str], limit: float, memory: int
) -> bool:
    """Whether the process ran all of its tests."""
    logs.append(log, process={"limit": limit, **versions()})
    lists = {"JAX_SUITE_TESTS": wanted or None, "JAX_SUITE_DONE": sorted(done)}
    environment = job.environment(on_hlokit) | {"JAX_SUITE_LOG": str(log), "JAX_SUITE_MEMORY": str(memory)}
    for name, ids in lists.items():
        if ids is not None:
            path = log.with_suffix(f".{name[10:].lower()}")
            path.write_text(json.dumps(ids), encoding="utf-8")
            environment[name] = str(path)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "jax_suite_log", "--tb=short"]
    command += ["--override-ini=filterwarnings=", *(["--collect-only"] if wanted == [] else []), job.path]
    output = log.with_suffix(".out")
    with output.open("ab") as file:
        start = file.tell()
        process = subprocess.Popen(command, cwd=job.suite, env=environment, stdout=file, stderr=subprocess.STDOUT)
        try:
            hung = _wait(process, log, limit)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    state = logs.read(log)
    # a process that ends in no test ends badly where it collects the file, or after its last test
    bad = hung or process.returncode not in (0, 1, 2, 5)
    if state.begun or bad:
        text = output.read_bytes()[start:].decode(errors="replace")[-8000:]
        outcome = logs.CUT_OFF if hung else logs.DIED
        why = f"no end within {limit} s" if hung else f"exit status {process.returncode}"
        logs.append(log, id=state.begun or job.path, outcome=outcome, text=f"{why}\n{text}", seconds=0)
        return not state.begun
    return state.complete


def _wait(process: subprocess.Popen[bytes], log: Path, limit: float) -> bool:
    """Waits for the process to end; whether it was stopped since its log stood still for so long."""
    while True:
        try:
            process.wait(timeout=0.5)
            return False
        except subprocess.TimeoutExpired:
            pass
        in_test = '"begins"' in log.read_text(encoding="utf-8")[-1000:].splitlines()[-1]
        if time.time() - log.stat().st_mtime > (limit if in_test else max(limit, COLLECTING)):
            process.send_signal(signal.SIGABRT)  # pytest's faulthandler prints where its threads are
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            return True


def versions() -> dict[str, str]:
    names = ("jax", "jaxlib", "numpy", "scipy", "llvmlite", "pytest", "hypothesis")
    found = {name: importlib.metadata.version(name) for name in names}
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"hlokit": _commit(), "date": date, "python": platform.python_version(), "cpu": _cpu(), **found}


def _commit() -> str:
    """The commit of this checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    rows = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((row.split(":", 1)[1].strip() for row in rows if row.startswith("model name")), platform.machine())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="names of test files; default: all")
    parser.add_argument("--mirror", type=Path, default=os.environ.get("MIRROR"), help="the folder of snapshots")
    parser.add_argument("--out", type=Path, required=True, help="logs, and JAX's tests")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: each, where it is for the file")
    parser.add_argument("--limit", type=float, default=600, help="seconds for one test")
    parser.add_argument("--memory", type=float, default=4, help="GB at which a file goes on in another process")
    parser.add_argument("--again", action="store_true", help="run again what failed on hlokit alone, with other code")
    options = parser.parse_args()
    if options.mirror is None:
        parser.error("--mirror, or the environment variable MIRROR, names the folder of snapshots")
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    folder = suite(options.mirror, out)
    known = files(folder)
    if unknown := [name for name in options.files if name not in known]:
        parser.error(f"{', '.join(unknown)}: not a test file of this jax")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # as Ctrl-C: with the process it started
    for mode in options.mode or MODES:
        for name in options.files or known:
            if mode == "x64" and not X64.fullmatch(name):
                continue
            job = Job(folder, out, name, mode)
            run_job(job, options.limit, int(options.memory * 2**30), options.again)
            print(summary(job), flush=True)
    return 0


def summary(job: Job) -> str:
    here, there = logs.read(job.log()), logs.read(job.log(".there"))
    outcomes = [test.outcome for test in here.tests.values()]
    count = {outcome: outcomes.count(outcome) for outcome in ("passed", "skipped", logs.CUT_OFF)}
    only, unasked = len(alone(here, there)), len(skipped_there(here, there))
    both = sum(test.failed for test in here.tests.values()) - only - unasked
    return (
        f"{job.file:40} {job.mode:6} passed {count['passed']:5}  hlokit alone {only:4}  skipped there {unasked:4}  both {both:4}  "
        f"skipped {count['skipped']:5}  cut off {count[logs.CUT_OFF]:3}  {sum(t.seconds for t in here.tests.values()):7.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
