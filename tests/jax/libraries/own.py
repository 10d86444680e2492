"""The own tests of libraries of JAX, unmodified, on hlokit; those that fail run on JAX's CPU client too.

    python -m tests.jax.libraries.own --mirror FOLDER --out FOLDER [NAME ...] [--mode hlokit|cpu] [--limit SECONDS]
    python -m tests.jax.libraries.own --out FOLDER --table docs/libraries.md

NAME is a library's, or LIBRARY:FILE for one file of its tests; without one, the sample of each library that is installed.
The tests are those of the git snapshot FOLDER/OWNER+NAME/repo at the installed version's tag. The modes: `hlokit`, the
platform; `cpu`, hlokit in place of JAX's CPU client. The logs in `--out` are the state, as with tests.jax.suite.run: the
same command goes on where it was stopped.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from tests.jax.suite import logs
from tests.jax.suite.run import Job, alone, run_job, skipped_there

ROOT = Path(__file__).parents[3]
MODES = ("hlokit", "cpu")


@dataclass(frozen=True)
class Library:
    """Where a library's tests are, and which of its files are the sample.

    tag    of a version's commit; x64: its tests are for 64-bit types
    """

    repository: str
    files: tuple[str, ...]
    tag: str = "v{}"
    x64: bool = False


LIBRARIES = {
    "lineax": Library(
        "patrick-kidger/lineax",
        ("tests/test_misc.py", "tests/test_norm.py", "tests/test_invert.py", "tests/test_well_posed.py"),
    ),
    "equinox": Library(
        "patrick-kidger/equinox",
        ("tests/test_nn.py", "tests/test_ad.py", "tests/test_vmap.py", "tests/test_while_loop.py", "tests/test_jit.py"),
    ),
    "optax": Library(
        "google-deepmind/optax",
        (
            "optax/_src/linear_algebra_test.py",
            "optax/_src/update_test.py",
            "optax/transforms/_clipping_test.py",
            "optax/losses/_regression_test.py",
            "optax/schedules/_schedule_test.py",
        ),
    ),
    "diffrax": Library(
        "patrick-kidger/diffrax",
        ("test/test_interpolation.py", "test/test_step_to.py", "test/test_term.py", "test/test_vmap.py"),
    ),
    "flax": Library(
        "google/flax",
        (
            "tests/linen/linen_linear_test.py",
            "tests/linen/linen_attention_test.py",
            "tests/linen/linen_recurrent_test.py",
            "tests/nnx/nn/conv_test.py",
            "tests/nnx/nn/normalization_test.py",
            "tests/nnx/transforms_test.py",
        ),
    ),
    "numpyro": Library(
        "pyro-ppl/numpyro",
        (
            "test/test_distributions_util.py",
            "test/test_handlers.py",
            "test/infer/test_hmc_util.py",
            "test/infer/test_svi.py",
            "test/test_flows.py",
        ),
        tag="{}",
    ),
    "dynamiqs": Library(
        "dynamiqs/dynamiqs",
        ("tests/utils/test_operators.py", "tests/utils/test_states.py", "tests/sesolve/test_adaptive.py"),
    ),
    "jax-md": Library(
        "jax-md/jax-md",
        ("tests/space_test.py", "tests/quantity_test.py", "tests/smap_test.py"),
        tag="jax-md-v{}",
        x64=True,
    ),
    "netket": Library(
        "netket/netket",
        ("test/jax/test_math.py", "test/jax/test_sort.py", "test/jax/test_vjp.py", "test/nn/test_activation.py"),
    ),
}


@dataclass(frozen=True)
class OwnJob(Job):
    """A file of a library's tests in a mode; `file`: its path in the snapshot."""

    library: str = ""

    @property
    def path(self) -> str:
        return self.file

    def log(self, where: str = "") -> Path:
        return self.out / f"{self.library}.{self.file.replace('/', '.').removesuffix('.py')}.{self.mode}{where}.jsonl"

    def environment(self, on_hlokit: bool) -> dict[str, str]:
        variables = super().environment(on_hlokit)
        return variables | ({"JAX_ENABLE_X64": "1"} if LIBRARIES[self.library].x64 else {})


def installed(name: str) -> str:
    """The installed version; "" if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def suite(mirror: Path, out: Path, name: str) -> Path:
    """The folder of the library's snapshot at the tag of the installed version, or the last one before; made once."""
    library = LIBRARIES[name]
    git = ["git", f"--git-dir={mirror / library.repository.replace('/', '+') / 'repo'}"]
    tags = subprocess.run([*git, "tag"], capture_output=True, text=True, check=False).stdout.split()
    form = re.compile(re.escape(library.tag).replace(r"\{\}", r"(\d+(?:\.\d+)*)"))
    dated = {Version(found[1]): tag for tag in tags if (found := form.fullmatch(tag))}
    known = [version for version in dated if version <= Version(installed(name))]
    if not known:
        raise SystemExit(f"{git[1]} has no tag of {name} {installed(name)}")
    folder = out / f"{name}-{max(known)}"
    if not folder.exists():
        # The package is the installed one. A snapshot may lack large files: of the tests only Python is taken
        command = [*git, "ls-tree", "--name-only", dated[max(known)]]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        paths = [name for name in ("conftest.py", "pyproject.toml", "pytest.ini") if name in listed.stdout.split()]
        paths += [f":(glob){top}/**/*.py" for top in dict.fromkeys(file.split("/")[0] for file in library.files)]
        done = subprocess.run([*git, "archive", dated[max(known)], "--", *paths], capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(f"{git[1]}: {done.stderr.decode()[-300:]}")
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            archive.extractall(folder, filter="data")
    return folder


def chosen(names: Iterable[str]) -> list[tuple[str, str]]:
    """The files to run, each with its library."""
    found: list[tuple[str, str]] = []
    for given in names:
        name, _, file = given.partition(":")
        if name not in LIBRARIES or not installed(name):
            raise SystemExit(f"{name}: not one of {', '.join(LIBRARIES)} that is installed")
        found += [(name, file)] if file else [(name, each) for each in LIBRARIES[name].files]
    return found


def table(out: Path, before: str = "") -> str:
    """The outcomes by library and mode, and the tests that fail only on hlokit: of the logs, else of the page `before`."""
    rows = ["| library | as | files | tests | passed | skipped | cut off | fail on both | fail only on hlokit |"]
    rows += ["| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    wrong: list[str] = []
    for name in LIBRARIES:
        for mode in MODES:
            paths = sorted(path for path in out.glob(f"{name}.*.{mode}.jsonl"))
            pairs = [(logs.read(path), logs.read(path.with_suffix(".there.jsonl"))) for path in paths]
            tests = [test for here, _ in pairs for test in here.tests.values() if test.outcome]
            if not tests:
                lines = before.splitlines()
                rows += [line for line in lines if re.match(rf"\| {name} \S+ \| {mode} \|", line)]
                wrong += [line for line in lines if line.startswith(f"- {name}, {mode}: ")]
                continue
            only = [test for here, there in pairs for test in alone(here, there) + skipped_there(here, there)]
            count = {o: sum(test.outcome == o for test in tests) for o in ("passed", "skipped", logs.CUT_OFF)}
            both = sum(test.failed for test in tests) - len(only)
            stopped = sum(not here.complete for here, _ in pairs)
            files = f"{len(paths)}, {stopped} not to the end" if stopped else str(len(paths))
            rows.append(
                f"| {name} {installed(name)} | {mode} | {files} | {len(tests)} | {count['passed']} | {count['skipped']} "
                f"| {count[logs.CUT_OFF]} | {both} | {len(only)} |"
            )
            wrong += [f"- {name}, {mode}: `{test.id}`: {_reason(test)}" for test in only]
    return "\n".join([*rows, "", *(wrong or ["No test fails only on hlokit."])])


def _reason(test: logs.Test) -> str:
    """The error of a failed test, on a line."""
    lines = [line for line in test.text.splitlines() if re.match(r"E  +\S", line)]
    return re.sub(r"\s+", " ", (lines or test.text.splitlines() or ["?"])[0].removeprefix("E").strip())[:200]


HEAD = """\
# Test results: JAX libraries

This page shows results of libraries' own tests on hlokit, in addition to `make test-libraries` (programs of flax, optax, equinox,
diffrax, numpyro and mujoco-mjx, whose results are compared with those of JAX's CPU client). Samples of the tests were run
unmodified, with hlokit as the platform and in place of JAX's CPU client. Tests that fail on hlokit were also run on JAX's CPU
client.

`make library-suites` writes this page; it needs git snapshots of the libraries and takes hours. The table lists the number of
files that were run (`tests/jax/libraries/own.py` lists the sample). The rows of what is run again are replaced.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="libraries, or LIBRARY:FILE; default: all installed")
    parser.add_argument("--mirror", type=Path, default=os.environ.get("MIRROR"), help="the folder of snapshots")
    parser.add_argument("--out", type=Path, required=True, help="logs, and the libraries' tests")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: each")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one test")
    parser.add_argument("--table", type=Path, help="run nothing: write this page from the logs")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if options.table is not None:
        before = options.table.read_text(encoding="utf-8") if options.table.exists() else ""
        options.table.write_text(HEAD + table(out, before) + "\n", encoding="utf-8")
        return 0
    if options.mirror is None:
        parser.error("--mirror, or the environment variable MIRROR, names the folder of snapshots")
    for name, file in chosen(options.names or [name for name in LIBRARIES if installed(name)]):
        folder = suite(options.mirror, out, name)
        if not (folder / file).exists():
            raise SystemExit(f"{folder.name} has no {file}")
        for mode in options.mode or MODES:
            job = OwnJob(folder, out, file, mode, name)
            run_job(job, options.limit, 4 * 2**30, again=False)
            outcomes = [test.outcome for test in logs.read(job.log()).tests.values()]
            only = alone(logs.read(job.log()), logs.read(job.log(".there")))
            print(f"{name} {file} {mode}: {outcomes.count('passed')} of {len(outcomes)} passed, {len(only)} fail alone", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
