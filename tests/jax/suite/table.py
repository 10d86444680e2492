"""docs/jax_tests.md, out of the logs of `python -m tests.jax.suite.run`.

    python -m tests.jax.suite.table --out FOLDER [--page docs/jax_tests.md] [--show]

causes.toml says what each failure comes from: the first cause that fits a test counts. `--show` prints the failures
that no cause fits, with the end of their errors, and no page.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.jax.suite import logs
from tests.jax.suite.run import LEFT_OUT, MODES, ROOT, X64, Job, alone, files, skipped_there, suite_folder

CAUSES = Path(__file__).parent / "causes.toml"
NO_CAUSE = "not sorted yet"
TITLES = {
    "hlokit": "As the platform `hlokit`",
    "x64": "As the platform `hlokit`, with 64-bit types",
    "cpu": "In place of JAX's CPU client",
}


@dataclass
class Row:
    """A file in a mode."""

    job: Job
    count: Counter[str]
    alone: list[logs.Test]
    skipped_there: list[logs.Test]
    both: int
    complete: bool
    processes: list[dict[str, str]]
    cut_off: list[logs.Test] = field(default_factory=list[logs.Test])

    @property
    def cells(self) -> list[str]:
        name = self.job.file + ("" if self.complete else " (not to its end)")
        skipped, cut_off = self.count["skipped"], self.count[logs.CUT_OFF]
        numbers = (self.count["passed"], len(self.alone), len(self.skipped_there), self.both, skipped, cut_off)
        return [name, *map(str, numbers)]


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


def rows(folder: Path, out: Path, mode: str) -> list[Row]:
    """The files that were begun, worst first."""
    found: list[Row] = []
    for name in files(folder):
        job = Job(folder, out, name, mode)
        here, there = logs.read(job.log()), logs.read(job.log(".there"))
        if not here.tests and not here.complete:
            continue
        only, unasked = alone(here, there), skipped_there(here, there)
        count = Counter(test.outcome for test in here.tests.values())
        both = count["failed"] + count[logs.DIED] - len(only) - len(unasked)
        cut = [test for test in here.tests.values() if test.outcome == logs.CUT_OFF]
        found.append(Row(job, count, only, unasked, both, here.complete, here.processes, cut))
    return sorted(found, key=lambda row: (-len(row.alone) - len(row.cut_off), -row.both, row.job.file))


def sorted_by_cause(table: Iterable[Row], known: list[Cause]) -> dict[str, list[tuple[Row, logs.Test]]]:
    """The failures on hlokit alone by the names of their causes, most first, NO_CAUSE first of all."""
    found: dict[str, list[tuple[Row, logs.Test]]] = defaultdict(list)
    for row in table:
        for test in row.alone:
            name = next((cause.name for cause in known if cause.fits(row.job.mode, test)), NO_CAUSE)
            found[name].append((row, test))
    return dict(sorted(found.items(), key=lambda item: (item[0] != NO_CAUSE, -len(item[1]))))


def page(tables: Mapping[str, list[Row]], known: list[Cause], every: list[str]) -> str:
    """The page, as text. `every`: the names of all files."""
    lines = ["# JAX's own tests", "", *_head(tables), "", *_sums(tables), "", *_by_cause(tables, known), ""]
    for mode, table in tables.items():
        if table:
            lines += [f"## {TITLES[mode]}", "", *_table(["file", *COLUMNS], [row.cells for row in table]), ""]
    lines += ["## Not run", "", *_not_run(tables, every), ""]
    return "\n".join(lines)


COLUMNS = ["passed", "fail on hlokit alone", "fail, skipped there", "fail on both", "skipped", "cut off"]


def _head(tables: Mapping[str, list[Row]]) -> list[str]:
    processes = [process for table in tables.values() for row in table for process in row.processes]
    if not processes:
        return ["Nothing was run."]
    newest = max(processes, key=lambda process: process["date"])
    dates = sorted({process["date"] for process in processes})
    names = ("jax", "jaxlib", "numpy", "scipy", "llvmlite", "pytest", "hypothesis")
    versions = ", ".join(f"{name} {newest[name]}" for name in names)
    commits = list(dict.fromkeys(process["hlokit"] for process in processes))
    limit = max(float(process["limit"]) for process in processes)
    return [
        "JAX's test files, unmodified, of the tag of the installed jax, on hlokit. Each test runs with one",
        "generated case, without the slow ones (`JAX_NUM_GENERATED_CASES=1 JAX_SKIP_SLOW_TESTS=1`), on 8 devices",
        "where the file asks for several; a file runs in one process, or in several where one has used up its",
        f"memory or died. A test is stopped after {limit:g} s. What fails runs on JAX's CPU",
        "client too: *fail on hlokit alone* passes there, *fail on both* does not, *fail, skipped there* is a",
        "test that leaves out the platform `cpu` by its name. A test during which the process died counts as",
        "failed. *Not to its end*: the rest of the file has not been run yet.",
        "",
        f"Run {'on' if len(dates) == 1 else f'from {dates[0]} to'} {dates[-1]}: {versions},",
        f"Python {newest['python']}; {newest['cpu']}; hlokit at {', '.join(f'`{commit}`' for commit in commits)}.",
        "",
        "```sh",
        "make jax-suite MIRROR=/path/to/snapshots OUT=/path/to/logs   # goes on where it was stopped; takes hours",
        "```",
        "",
        "It runs `python -m tests.jax.suite.run`, whose `--help` says how to run single files, and writes this page.",
    ]


def _sums(tables: Mapping[str, list[Row]]) -> list[str]:
    cells: list[list[str]] = []
    for mode, table in tables.items():
        columns = [[int(cell) for cell in row.cells[1:]] for row in table]
        total = [sum(column) for column in zip(*columns, strict=True)] or [0] * len(COLUMNS)
        cells.append([TITLES[mode], str(len(table)), *map(str, total)])
    return _table(["", "files", *COLUMNS], cells)


def _by_cause(tables: Mapping[str, list[Row]], known: list[Cause]) -> list[str]:
    everything = sorted_by_cause([row for table in tables.values() for row in table], known)
    lines = ["## What fails on hlokit alone, by cause", ""]
    for name, failures in everything.items():
        lines += [f"- {name}: {len(failures)}"]
        tests = Counter(test.id.removeprefix("tests/") for _, test in failures)
        lines += [f"  - `{test}`" + (f" ({times} modes)" if times > 1 else "") for test, times in sorted(tests.items())]
    lines += [] if everything else ["Nothing."]
    whole = [row for table in tables.values() for row in table]
    for title, pick in (
        ("Fail, and are skipped on JAX's CPU client by its name", lambda row: row.skipped_there),
        ("Cut off", lambda row: row.cut_off),
    ):
        names = [line for row in whole for line in _listed(row, pick(row))]
        lines += ["", f"{title}:", "", *names] if names else []
    return lines


def _listed(row: Row, tests: list[logs.Test]) -> list[str]:
    """A line for each test, or one for all of a file where they are many."""
    if len(tests) > 12:
        return [f"- `{row.job.file}` ({row.job.mode}): {len(tests)} tests"]
    return [f"- `{test.id.removeprefix('tests/')}` ({row.job.mode})" for test in tests]


def _not_run(tables: Mapping[str, list[Row]], every: list[str]) -> list[str]:
    lines: list[str] = []
    for mode, table in tables.items():
        run = {row.job.file for row in table}
        left = [name for name in every if name not in run and (mode != "x64" or X64.fullmatch(name))]
        lines += [f"{TITLES[mode]}: {', '.join(f'`{name}`' for name in left) or 'nothing was left'}.", ""]
    folders = "; ".join(f"`{folder}` ({why})" for folder, why in LEFT_OUT.items())
    return [*lines, f"Never: the folders {folders}."]


def _table(head: list[str], cells: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *cells)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the folder of the logs")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "jax_tests.md")
    parser.add_argument("--show", action="store_true", help="print failures without a cause")
    options = parser.parse_args()
    out: Path = options.out.resolve()
    folder = suite_folder(out)
    tables = {mode: rows(folder, out, mode) for mode in MODES}
    if not options.show:
        options.page.write_text(page(tables, causes(), files(folder)), encoding="utf-8")
        return 0
    for row, test in sorted_by_cause([row for table in tables.values() for row in table], causes()).get(NO_CAUSE, []):
        errors = [line for line in test.text.splitlines() if line.startswith("E ")]
        print(f"{row.job.mode}: {test.id}\n  " + "\n  ".join((errors or test.text.splitlines())[-4:])[:600])
    return 0


if __name__ == "__main__":
    sys.exit(main())
