"""docs/jax_tests.md, out of results.json, into which this takes the logs of `python -m tests.jax.suite.run`.

    python -m tests.jax.suite.table --out FOLDER [--page docs/jax_tests.md] [--show]

The logs of a file in a mode take the place of its earlier results, unless the file was not run to its end and more of it
was before; what has no logs stays as it was. causes.toml says what each failure comes from: the first cause that fits a
test counts. `--show` prints the failures in the logs that no cause fits, with the end of their errors, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.jax.suite import logs
from tests.jax.suite.run import LEFT_OUT, MODES, ROOT, X64, Job, alone, files, skipped_there, suite_folder

CAUSES = Path(__file__).parent / "causes.toml"
RESULTS = Path(__file__).parent / "results.json"
NO_CAUSE = "not sorted yet"
TITLES = {
    "hlokit": "As the platform `hlokit`",
    "x64": "As the platform `hlokit`, with 64-bit types",
    "cpu": "In place of JAX's CPU client",
}
_MOST_NAMED = 12
"""Tests up to which those of a file that are skipped there, or cut off, are named."""


@dataclass
class Row:
    """A file in a mode. `alone`: the tests that fail on hlokit alone, with their causes' names.

    Of tests that are skipped there or were cut off the names, or, of many, their number.
    """

    passed: int
    skipped: int
    both: int
    complete: bool
    alone: dict[str, str]
    skipped_there: Sequence[str] | int = ()
    cut_off: Sequence[str] | int = ()

    @property
    def tests(self) -> int:
        """How many were run."""
        return self.passed + self.skipped + self.both + len(self.alone) + _count(self.skipped_there) + _count(self.cut_off)

    def cells(self, file: str) -> list[str]:
        name = file + ("" if self.complete else " (not to its end)")
        there, cut_off = _count(self.skipped_there), _count(self.cut_off)
        return [name, *map(str, (self.passed, len(self.alone), there, self.both, self.skipped, cut_off))]


def _count(tests: Sequence[str] | int) -> int:
    return tests if isinstance(tests, int) else len(tests)


@dataclass
class Runs:
    """What the rows were made by: `versions` of the last run; all commits; the first date and the last."""

    versions: dict[str, str] = field(default_factory=dict[str, str])
    commits: list[str] = field(default_factory=list[str])
    dates: list[str] = field(default_factory=list[str])
    limit: float = 0

    def add(self, process: Mapping[str, Any]) -> None:
        if not self.dates or process["date"] >= self.dates[-1]:
            self.versions = {name: text for name, text in process.items() if name not in ("hlokit", "date", "limit")}
        self.dates = sorted({*self.dates[:1], *self.dates[-1:], process["date"]})
        self.dates = [self.dates[0], self.dates[-1]]
        self.commits += [process["hlokit"]] * (process["hlokit"] not in self.commits)
        self.limit = max(self.limit, float(process["limit"]))


Table = dict[str, dict[str, Row]]
"""The rows by mode and file."""


def recorded(path: Path = RESULTS) -> tuple[Runs, Table]:
    """What earlier runs came to."""
    found: Any = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"runs": {}, "modes": {}}
    table = {mode: {file: Row(**row) for file, row in rows.items()} for mode, rows in found["modes"].items()}
    return Runs(**found["runs"]), {mode: table.get(mode, {}) for mode in MODES}


def record(runs: Runs, table: Table, path: Path = RESULTS) -> None:
    """Writes what `recorded` reads."""
    modes = [
        f"{json.dumps(mode)}: {{\n"
        + ",\n".join(f"{json.dumps(file)}: {json.dumps(asdict(row))}" for file, row in sorted(rows.items()))
        + "\n}"
        for mode, rows in table.items()
    ]
    text = f'{{"runs": {json.dumps(asdict(runs))},\n"modes": {{\n' + ",\n".join(modes) + "\n}}\n"
    path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Cause:
    name: str
    tests: re.Pattern[str]
    text: re.Pattern[str]
    modes: tuple[str, ...]

    def fits(self, mode: str, test: logs.Test) -> bool:
        return mode in self.modes and bool(self.tests.search(test.id) and self.text.search(test.text))


def causes(path: Path = CAUSES) -> list[Cause]:
    """A cause's tests and texts are regular expressions, which are searched in the test's id and its error."""
    found = tomllib.loads(path.read_text(encoding="utf-8"))["cause"]
    return [
        Cause(
            row["name"], re.compile(row.get("tests", "")), re.compile(row.get("text", "")),
            tuple(row.get("modes", MODES)),
        )
        for row in found
    ]  # fmt: skip


def cause_of(test: logs.Test, mode: str, known: Iterable[Cause]) -> str:
    """The name of the first cause that fits; NO_CAUSE where none does."""
    return next((cause.name for cause in known if cause.fits(mode, test)), NO_CAUSE)


def take(runs: Runs, table: Table, job: Job, known: Iterable[Cause]) -> None:
    """Puts what a job's logs say, if it was begun, in the place of its row."""
    here, there = logs.read(job.log()), logs.read(job.log(".there"))
    if not here.tests and not here.complete:
        return
    only, unasked = alone(here, there), skipped_there(here, there)
    count = Counter(test.outcome for test in here.tests.values())
    row = Row(
        count["passed"],
        count["skipped"],
        count["failed"] + count[logs.DIED] - len(only) - len(unasked),
        here.complete,
        {_name(test): cause_of(test, job.mode, known) for test in only},
        _named(unasked),
        _named([test for test in here.tests.values() if test.outcome == logs.CUT_OFF]),
    )
    before = table[job.mode].get(job.file)
    if not row.complete and before is not None and (before.complete or before.tests > row.tests):
        return
    table[job.mode][job.file] = row
    for process in here.processes:
        runs.add(process)


def _name(test: logs.Test) -> str:
    return test.id.removeprefix("tests/")


def _named(tests: Sequence[logs.Test]) -> Sequence[str] | int:
    return len(tests) if len(tests) > _MOST_NAMED else [_name(test) for test in tests]


def page(runs: Runs, table: Table, every: Sequence[str]) -> str:
    """The page, as text. `every`: the names of all files."""
    lines = ["# Test results: JAX", "", *_head(runs), "", *_sums(table), "", *_by_cause(table), ""]
    for mode, rows in table.items():
        if rows:
            ordered = sorted(rows.items(), key=lambda item: _rank(*item))
            cells = [row.cells(file) for file, row in ordered]
            lines += [f"## {TITLES[mode]}", "", *_table(["file", *COLUMNS], cells), ""]
    lines += ["## Not run", "", *_not_run(table, every), ""]
    return "\n".join(lines)


COLUMNS = ["passed", "fail only on hlokit", "fail, skipped there", "fail on both", "skipped", "cut off"]


def _rank(file: str, row: Row) -> tuple[int, int, str]:
    """The worst files first."""
    return -len(row.alone) - _count(row.cut_off), -row.both, file


def _head(runs: Runs) -> list[str]:
    if not runs.dates:
        return ["Nothing was run."]
    first, last = runs.dates
    names = ("jax", "jaxlib", "numpy", "scipy", "llvmlite", "pytest", "hypothesis")
    versions = ", ".join(f"{name} {runs.versions[name]}" for name in names)
    return [
        "This page shows results of JAX's own test files, unmodified, at the tag of the installed jax, on hlokit. Each test runs with",
        "one generated case and without the slow ones (`JAX_NUM_GENERATED_CASES=1 JAX_SKIP_SLOW_TESTS=1`), on 8 devices if the file",
        "requires several. A file runs in one process, or in several if a process ran out of memory or died. A test is stopped after",
        f"{runs.limit:g} s. Tests that fail on hlokit are also run on JAX's CPU client: those under *fail only on hlokit* pass there, those",
        "under *fail on both* do not, and those under *fail, skipped there* skip the platform `cpu` by its name. A test during which the",
        "process died counts as failed. *Not to its end* means that the rest of the file has not been run yet.",
        "",
        f"Run {'on' if first == last else f'from {first} to'} {last}: {versions},",
        f"Python {runs.versions['python']}; {runs.versions['cpu']}; hlokit at {', '.join(f'`{c}`' for c in runs.commits)}.",
        "",
        "```sh",
        "make jax-suite MIRROR=/path/to/snapshots OUT=/path/to/logs   # continues after an interruption; takes hours",
        "```",
        "",
        "It runs `python -m tests.jax.suite.run`, whose `--help` describes how to run single files, and writes this page. New",
        "results replace earlier ones of the same files, which are kept in `tests/jax/suite/results.json`.",
    ]


def _sums(table: Table) -> list[str]:
    cells: list[list[str]] = []
    for mode, rows in table.items():
        columns = [[int(cell) for cell in row.cells(file)[1:]] for file, row in rows.items()]
        total = [sum(column) for column in zip(*columns, strict=True)] or [0] * len(COLUMNS)
        cells.append([TITLES[mode], str(len(rows)), *map(str, total)])
    return _table(["", "files", *COLUMNS], cells)


def _by_cause(table: Table) -> list[str]:
    """The tests that fail only on hlokit by their causes: NO_CAUSE first, then the most frequent."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for rows in table.values():
        for row in rows.values():
            for test, cause in row.alone.items():
                found[cause][test] += 1
    lines = ["## Tests that fail only on hlokit, by cause", ""]
    for cause, tests in sorted(found.items(), key=lambda item: (item[0] != NO_CAUSE, -item[1].total(), item[0])):
        lines += [f"- {cause}: {tests.total()}"]
        lines += [f"  - `{test}`" + (f" ({times} modes)" if times > 1 else "") for test, times in sorted(tests.items())]
    lines += [] if found else ["Nothing."]
    for title, name in (
        ("Tests that fail, and that are skipped on JAX's CPU client by its name", "skipped_there"),
        ("Cut off", "cut_off"),
    ):
        names = [
            line
            for mode, rows in table.items()
            for file, row in sorted(rows.items(), key=lambda item: _rank(*item))
            for line in _listed(file, mode, getattr(row, name))
        ]
        lines += ["", f"{title}:", "", *names] if names else []
    return lines


def _listed(file: str, mode: str, tests: Sequence[str] | int) -> list[str]:
    """A line for each test, or one for all of a file where they are many."""
    if isinstance(tests, int):
        return [f"- `{file}` ({mode}): {tests} tests"]
    return [f"- `{test}` ({mode})" for test in tests]


def _not_run(table: Table, every: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for mode, rows in table.items():
        left = [name for name in every if name not in rows and (mode != "x64" or X64.fullmatch(name))]
        lines += [f"{TITLES[mode]}: {', '.join(f'`{name}`' for name in left) or 'none'}.", ""]
    folders = "; ".join(f"`{folder}` ({why})" for folder, why in LEFT_OUT.items())
    return [*lines, f"Folders that are never run: {folders}."]


def _table(head: list[str], cells: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def _show(job: Job, known: Sequence[Cause]) -> None:
    here, there = logs.read(job.log()), logs.read(job.log(".there"))
    for test in alone(here, there):
        if cause_of(test, job.mode, known) == NO_CAUSE:
            errors = [line for line in test.text.splitlines() if line.startswith("E ")]
            print(f"{job.mode}: {test.id}\n  " + "\n  ".join((errors or test.text.splitlines())[-4:])[:600])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the logs")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "jax_tests.md")
    parser.add_argument("--show", action="store_true", help="print failures without a cause")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    folder, known = suite_folder(out), causes()
    every = files(folder)
    jobs = [Job(folder, out, name, mode) for mode in MODES for name in every]
    if options.show:
        for job in jobs:
            _show(job, known)
        return 0
    runs, table = recorded()
    for job in jobs:
        take(runs, table, job, known)
    record(runs, table)
    options.page.write_text(page(runs, table, every), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
