"""Tests of machine code on an emulated aarch64: python -m tests.aarch64.run, or make test-aarch64.

Runs the tests of tests/cpu and the golden cases in the emulated Python of `tests.aarch64.setup`, which it makes first.
Emulation is some 20 times slower than the machine: by default a sample is run, the same for a seed. Exit status 0 if
all passed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.aarch64.setup import FOLDER, ROOT, prepare

_WHERE = ("tests/cpu", "tests/forms", "tests/runtime/test_export.py")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64.run", description=__doc__)
    parser.add_argument("--golden", type=Path, metavar="DIR", help="golden cases; without it the bundled ones alone")
    parser.add_argument("--count", type=int, default=300, help="tests, and golden cases, in the sample (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="all of them: hours")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--cpu", default="neoverse-n1", help="QEMU's name of the CPU: neoverse-v1 has SVE, max all")
    parser.add_argument("where", nargs="*", default=_WHERE, metavar="PATH", help=f"tests; default: {' '.join(_WHERE)}")
    options = parser.parse_args(arguments)
    python = prepare(FOLDER)
    sample = [] if options.all else [f"--sample={options.count}", f"--seed={options.seed}"]
    with tempfile.TemporaryDirectory(prefix="hlokit-aarch64-") as cache:
        environment = {**os.environ, "HLOKIT_AARCH64_CPU": options.cpu, "HLOKIT_CACHE_DIR": cache}
        environment.pop("PYTHONPATH", None)

        def run(*command: str) -> int:
            print(" ".join(command), flush=True)
            return subprocess.run(["nice", "-n", "19", python, "-m", *command], env=environment, cwd=ROOT).returncode

        status = 0
        if options.golden is not None:
            golden = [f"--golden={options.golden}", "--engine=compiled", "--route=text", "--seconds=1200"]
            status = run("tests.golden.run", *golden, f"--jobs={options.jobs}", *sample)
        workers = [f"-n={options.jobs}"] if options.jobs > 1 else []
        plugin = ["-q", "-p", "tests.sampling", "-p", "no:cacheprovider", "-m", "not slow"]
        return run("pytest", *plugin, *workers, *sample, *options.where) or status


if __name__ == "__main__":
    sys.exit(main())
