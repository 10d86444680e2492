"""Measures a grid of operations and finds cliffs: cells that reach far less of the limit than their neighbours.

    python -m bench.map                           # three sizes apart by ten, one thread; some 40 minutes
    python -m bench.map --step 2 --threads 2      # twice as many sizes, two threads
    python -m bench.map --only 'product/.*square' --target x86-64-avx2
    python -m bench.map --report                  # what was measured so far

Convolutions and their gradients, products, reductions, scans, sorts, scatters, FFTs and decompositions, over three
decades of size. A cell's share is the least time that the machine's limits allow (arithmetic by type, bandwidth by
working set, and what a call of a trivial program takes) over the time measured. Limits are measured before, in the
midst and after; each is the best seen. A time is the least of several calls, in turns with XLA's.

What was measured is kept in FOLDER/<target>-<threads>.jsonl, and another run goes on from there. The report is
FOLDER/<target>-<threads>.csv, .svg and .txt.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.limits import Limits
from bench.map.cells import Cell, cells
from bench.map.report import Point, findings, judge, picture, write_table
from bench.map.worker import best_of
from bench.process import ROOT, environment

LIMITS_EVERY = 200
"""Cells between two measurements of the machine's limits."""


class Worker:
    """A process that measures; a new one after one that died or took too long."""

    def __init__(self, arguments: list[str], target: str, log: Path) -> None:
        self.arguments, self.log = arguments, log
        self.variables = environment("hlokit") | {"HLOKIT_TARGET": target}
        if target == "host":
            del self.variables["HLOKIT_TARGET"]
        self.child: subprocess.Popen[str] | None = None

    def ask(self, request: str, patience: float) -> dict[str, Any]:
        """Its answer; a problem where it has none within `patience` seconds."""
        if self.child is None:
            with self.log.open("a") as log:
                self.child = subprocess.Popen(
                    [sys.executable, "-m", "bench.map.worker", *self.arguments],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=self.variables, cwd=ROOT, text=True,
                )  # fmt: skip
            patience += 60
        assert self.child.stdin is not None and self.child.stdout is not None
        with suppress(BrokenPipeError):
            print(request, file=self.child.stdin, flush=True)
        if not select.select([self.child.stdout], [], [], patience)[0]:
            self.stop()
            return {"problem": f"no time in {patience:.0f} s"}
        line = self.child.stdout.readline()
        if not line:
            code = self.child.wait()
            self.stop()
            return {"problem": f"the process ended with code {code}"}
        return json.loads(line)

    def stop(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.wait()
            self.child = None


def measure(wanted: list[tuple[int, Cell]], worker: Worker, store: Path, patience: float) -> None:
    """Appends a line for each cell that the file lacks; a line with the limits between."""
    known = {line.get("cell") for line in stored(store)}
    missing = [(number, cell) for number, cell in wanted if cell.name not in known]
    begun = time.monotonic()
    with store.open("a", encoding="utf-8") as file:
        try:
            for count, (number, cell) in enumerate(missing):
                if count % LIMITS_EVERY == 0:
                    print(json.dumps(worker.ask("limits", 60 + patience)), file=file, flush=True)
                reply = {"cell": cell.name} | worker.ask(str(number), patience)
                print(json.dumps(reply), file=file, flush=True)
                if count % 20 == 19:
                    left = (time.monotonic() - begun) / (count + 1) * (len(missing) - count - 1) / 60
                    print(f"{count + 1} of {len(missing)}, {left:.0f} minutes left", file=sys.stderr, flush=True)
            if missing:
                print(json.dumps(worker.ask("limits", 60 + patience)), file=file, flush=True)
        finally:
            worker.stop()


def stored(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's file; one that was cut off in the midst is left out."""
    lines: list[dict[str, Any]] = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            lines.append(json.loads(line))
    return lines


def points(wanted: list[tuple[int, Cell]], lines: list[dict[str, Any]]) -> list[Point]:
    """The measured cells, judged by the best limits seen."""
    cell_of = {cell.name: cell for _, cell in wanted}
    fields = ("seconds", "xla", "bytes_in", "bytes_out", "problem")
    found = {
        line["cell"]: Point(cell_of[line["cell"]], **{name: line[name] for name in fields if name in line})
        for line in lines
        if line.get("cell") in cell_of
    }
    seen = [line for line in lines if "limits" in line]
    if seen:
        limits = best_of(*(Limits(**line["limits"]) for line in seen))
        judge([*found.values()], limits, min(line["call"] for line in seen))
    return [*found.values()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="cells with this in FAMILY/AXIS=VALUE,...")
    parser.add_argument("--step", type=int, default=1, help="sizes a decade")
    parser.add_argument("--threads", type=int, default=1, help="that take part in a call")
    parser.add_argument("--target", default="host", help="host, or a lesser machine as HLOKIT_TARGET takes it")
    parser.add_argument("--patience", type=float, default=30.0, metavar="SECONDS", help="for a cell")
    parser.add_argument("--no-xla", action="store_true", help="leave XLA out")
    parser.add_argument("--to", type=Path, default=Path("build/map"), metavar="FOLDER")
    parser.add_argument("--list", action="store_true", help="print the cells' names, measure nothing")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    options = parser.parse_args()
    wanted = [(number, cell) for number, cell in enumerate(cells(options.step)) if re.search(options.only, cell.name)]
    if not wanted:
        parser.error(f"--only {options.only}: no such cell")
    if options.list:
        print("\n".join(cell.name for _, cell in wanted))
        return 0
    options.to.mkdir(parents=True, exist_ok=True)
    base = options.to / f"{options.target}-{options.threads}"
    store = base.with_suffix(".jsonl")
    if not options.report:
        arguments = [str(options.step), str(options.threads), str(int(not options.no_xla))]
        with suppress(KeyboardInterrupt):
            worker = Worker(arguments, options.target, base.with_suffix(".log"))
            measure(wanted, worker, store, options.patience)
    found = points(wanted, stored(store))
    write_table(found, base.with_suffix(".csv"))
    title = f"{options.target}, {options.threads} of {os.cpu_count()} threads"
    base.with_suffix(".svg").write_text(picture(found, title), encoding="utf-8")
    text = findings(found)
    base.with_suffix(".txt").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
