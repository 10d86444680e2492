"""Breaks rules in a copy of the code, one at a time, and expects the tests that name them to fail.

python -m tests.mutation.run [LABEL ...] [--jobs 2]              the mutants of mutants.py
python -m tests.mutation.run --checks [LABEL ...] [--jobs 2]     every check in the code, switched off (long)

KILLED    a test that names the rule fails: as it should
SURVIVED  all of them pass: they do not test the rule
STALE     the snippet that the mutant replaces is not in the file, or more than once: the code changed
ERROR     the tests did not run, or did not end; nothing is shown

Ends with status 1 unless every mutant is killed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.mutation.checks import switched_off
from tests.mutation.labels import NOT_BREAKABLE
from tests.mutation.mutants import MUTANTS, Mutant
from tests.rules.test_labels import LABEL

ROOT = Path(__file__).parents[2]
COPIED = ("src", "tests", "bench", "docs", "README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml")
TIME_LIMIT = 180
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutation.selection"]
NOT_SLOW = ["-m", "not slow and not golden_full"]


@dataclass(frozen=True)
class Tests:
    """The tests that name a rule: `by` says how."""

    ids: list[str]
    by: str


@dataclass(frozen=True)
class Outcome:
    label: str
    where: str
    verdict: str
    tests: Tests
    note: str


def stale(mutant: Mutant, root: Path = ROOT) -> str:
    """Why the mutant cannot be applied; empty if it can."""
    path = root / "src" / "hlokit" / mutant.file
    if not path.exists():
        return f"no file {mutant.file}"
    count = path.read_text().count(mutant.old)
    return "" if count == 1 else f"{count} times in {mutant.file}"


def copy_tree(to: Path, root: Path = ROOT) -> Path:
    """A copy of the code and its tests. Compiled files come along: they spare most of the time of imports."""
    for name in COPIED:
        source = root / name
        (shutil.copytree if source.is_dir() else shutil.copy2)(source, to / name)
    return to


def pytest_in(folder: Path, arguments: list[str], limit: float = TIME_LIMIT) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
    return subprocess.run(
        [*PYTEST, *NOT_SLOW, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=limit
    )


def named_by_tests(folder: Path, labels: Iterable[str], widely: bool = False) -> dict[str, Tests]:
    """For each label the tests that name it in a marker, an id or a parameter; else in their source; else by file.

    `widely`: those that name it in their source in any case.
    """
    wanted = set(labels)
    files = [p for p in sorted((folder / "tests").glob("*/**/test_*.py")) if p.parent.name != "mutation"]
    files = [p for p in files if wanted & set(LABEL.findall(p.read_text()))]
    naming = folder / "naming.jsonl"
    found = pytest_in(folder, ["--collect-only", f"--naming={naming}", *map(str, files)])
    if found.returncode != 0:
        raise SystemExit(f"the tests cannot be collected:\n{found.stdout[-3000:]}{found.stderr[-1000:]}")
    rows = [json.loads(line) for line in naming.read_text().splitlines()]
    result: dict[str, Tests] = {}
    for label in wanted:
        marked = [test for test, names, others in rows if label in names or (widely and label in others)]
        in_source = [test for test, _, names in rows if label in names]
        in_file = [str(p.relative_to(folder)) for p in files if label in LABEL.findall(p.read_text())]
        result[label] = Tests(marked or in_source or in_file, "id" if marked else "source" if in_source else "file")
    return result


def check_unbroken(folder: Path, tests: Iterable[Tests]) -> None:
    """A test that fails anyway shows nothing."""
    ids = sorted({test for group in tests for test in group.ids})
    if not ids:
        return
    done = pytest_in(folder, ids, limit=10 * TIME_LIMIT)
    if done.returncode != 0:
        raise SystemExit(f"tests fail on the code as it is:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")


def judge(root: Path, label: str, where: str, mutant: Mutant, tests: Tests) -> Outcome:
    """What becomes of one mutant, in a copy of its own."""
    if reason := stale(mutant, root):
        return Outcome(label, where, "STALE", tests, reason)
    if not tests.ids:
        return Outcome(label, where, "SURVIVED", tests, "no test names it")
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = copy_tree(Path(name), root)
        path = folder / "src" / "hlokit" / mutant.file
        path.write_text(path.read_text().replace(mutant.old, mutant.new))
        try:
            done = pytest_in(folder, ["-x", "--tb=line", *tests.ids])
        except subprocess.TimeoutExpired:
            return Outcome(label, where, "ERROR", tests, f"no end within {TIME_LIMIT} s")
    lines = done.stdout.splitlines()
    if done.returncode == 0:
        return Outcome(label, where, "SURVIVED", tests, lines[-1] if lines else "")
    if done.returncode != 1:
        return Outcome(label, where, "ERROR", tests, " ".join((lines + done.stderr.splitlines())[-3:])[:200])
    failed = next((line for line in lines if line.startswith("FAILED ")), lines[-1])
    return Outcome(label, where, "KILLED", tests, failed.removeprefix("FAILED ").split(" - ")[0])


def chosen(root: Path, labels: list[str], checks: bool) -> list[tuple[str, str, Mutant]]:
    """(label, where, mutant) of these labels, of all if there are none."""
    if checks:
        return list(switched_off(root / "src" / "hlokit", set(labels)))
    return [(label, MUTANTS[label].file, MUTANTS[label]) for label in labels or MUTANTS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("labels", nargs="*", metavar="LABEL", help="rules to break; all that have a mutant if none")
    parser.add_argument("--checks", action="store_true", help="switch off checks instead")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    arguments = parser.parse_args()
    if unknown := [label for label in arguments.labels if label not in MUTANTS and not arguments.checks]:
        parser.error(f"no mutant for {' '.join(unknown)}")
    totals = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="mutant-") as name, ThreadPoolExecutor(arguments.jobs) as pool:
        root = copy_tree(Path(name))
        mutants = chosen(root, arguments.labels, arguments.checks)
        tests = named_by_tests(root, [label for label, _, _ in mutants], widely=arguments.checks)
        check_unbroken(root, tests.values())
        for outcome in pool.map(lambda m: judge(root, *m, tests[m[0]]), mutants):
            totals[outcome.verdict] += 1
            by = f"{len(outcome.tests.ids)} by {outcome.tests.by}"
            print(f"{outcome.verdict:9} {outcome.label:12} {outcome.where:28} {by:13} {outcome.note[:120]}", flush=True)
    print(f"{len(mutants)} mutants: " + ", ".join(f"{count} {verdict}" for verdict, count in sorted(totals.items())))
    if not arguments.checks:
        print(*(f"not breakable: {label}: {reason}" for label, reason in NOT_BREAKABLE.items()), sep="\n")
    return 0 if set(totals) <= {"KILLED"} else 1


if __name__ == "__main__":
    sys.exit(main())
