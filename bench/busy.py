"""Calls beside busy processes and on one core, hlokit and XLA in turns.

    python -m bench.busy                        # the quick programs and five training steps, 15 minutes
    python -m bench.busy --only training --rounds 20 --json busy.json --markdown busy.md

Each program runs on a machine left alone, beside one and beside two processes that compute without end, and in workers
that `taskset` keeps on one core. In a round each condition is held for one turn of either engine, the order changing.
A slowdown is the median time of all rounds over the same engine's median on the machine left alone; the last column of
each condition is hlokit's slowdown over XLA's. More rows: two executables at once, in two threads of a process
(programs whose name ends in `x2`), and bursts of 64 short calls, one each millisecond (`x64`).

Worst first. Other work on the machine counts as a busy process: `others` is the share of all cores that it took.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.noise import Others
from bench.process import Failed, Process
from bench.programs import named, select
from bench.programs.training import NAMES
from bench.results import store

KINDS = ("hlokit", "xla")
CONDITIONS = {"alone": 0, "one busy": 1, "two busy": 2, "one core": 0}
"""How many busy processes there are."""
PAIRS = ("gemm_f32_512", "chain_mid_256K", "training/mlp")
SHORT = ("tiny_add_1elt", "chain_small_4K")
_CALLS, _PERIOD = 64, 1e-3
_PAUSE = 0.02
_PATIENCE = 300.0


@dataclass
class Row:
    """A program's times in milliseconds, by condition and engine; others: the share of the cores that others took."""

    name: str
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    others: float = 0.0
    failed: str | None = None

    def median(self, condition: str, kind: str) -> float:
        return statistics.median(self.times[condition][kind])

    def slowdown(self, condition: str, kind: str) -> float:
        return self.median(condition, kind) / self.median("alone", kind)

    def relative(self, condition: str) -> float:
        """hlokit's slowdown over XLA's."""
        return self.slowdown(condition, "hlokit") / self.slowdown(condition, "xla")

    @property
    def worst(self) -> float:
        return max(self.relative(condition) for condition in CONDITIONS if condition != "alone")


class Load:
    """Processes that compute without end, stopped but for when they are wanted."""

    def __init__(self, most: int) -> None:
        self.processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(most)]
        self.hold(0)

    def hold(self, count: int) -> None:
        for number, process in enumerate(self.processes):
            process.send_signal(signal.SIGCONT if number < count else signal.SIGSTOP)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Busy:
    """Workers of both engines, on all cores and on one, and the busy processes beside them."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        core = max(os.sched_getaffinity(0))
        self.free = {kind: Process(kind, scratch / f"{kind}.log") for kind in KINDS}
        self.bound = {kind: Process(kind, scratch / f"{kind}.log", core) for kind in KINDS}
        self.load = Load(max(CONDITIONS.values()))
        self.others = Others(self.pids)

    def pids(self) -> list[int]:
        workers = [process.child.pid for process in (*self.free.values(), *self.bound.values())]
        return workers + [process.pid for process in self.load.processes]

    def workers(self, condition: str) -> dict[str, Process]:
        return self.bound if condition == "one core" else self.free

    def row(self, label: str, rounds: int, seconds: float) -> Row:
        name, _, times = label.partition(" x")
        row = Row(label, {condition: {kind: [] for kind in KINDS} for condition in CONDITIONS})
        self.others.share()
        try:
            self.prepare(name, 2 if times == "2" else 1)
            for number in range(rounds):
                for condition, busy in CONDITIONS.items():
                    self.load.hold(busy)
                    for kind in KINDS[:: 1 if number % 2 == 0 else -1]:
                        time.sleep(_PAUSE)
                        request: dict[str, Any] = {"do": "sample", "seconds": seconds, "least": 3}
                        if times == str(_CALLS):
                            request = {"do": "bursts", "seconds": seconds, "count": _CALLS, "period": _PERIOD}
                        reply = asked(self.workers(condition)[kind], **request)
                        row.times[condition][kind] += reply["times_ms"]
                self.load.hold(0)
            for process in (*self.free.values(), *self.bound.values()):
                asked(process, do="drop")
        except Failed as failure:
            row.failed = str(failure)
        finally:
            self.load.hold(0)
        row.others = self.others.share()
        return row

    def prepare(self, name: str, copies: int) -> None:
        """Loads and compiles the program everywhere."""
        store(named(name).draw(), self.scratch / "arguments")
        lowered = self.scratch / "lowered.hlo"
        for workers in (self.free, self.bound):
            for kind in reversed(KINDS):  # XLA lowers
                request = {"program": name, "arguments": str(self.scratch / "arguments"), "copies": copies}
                reply = asked(workers[kind], do="load", **request)
                if reply["hlo_text"]:
                    lowered.write_text(reply["hlo_text"])
                asked(workers[kind], do="compile", **({"hlo": str(lowered)} if kind == "hlokit" else {}))
                asked(workers[kind], do="first")
        shutil.rmtree(self.scratch / "arguments")

    def stop(self) -> None:
        self.load.stop()
        for process in (*self.free.values(), *self.bound.values()):
            process.stop()


def asked(process: Process, **request: Any) -> dict[str, Any]:
    process.send(**request)
    return process.reply(_PATIENCE)


def markdown(rows: list[Row]) -> str:
    """The table, worst first, and what of it is judged."""
    loaded = [condition for condition in CONDITIONS if condition != "alone"]
    heads = ["program", "alone, ms: hlokit", "XLA", *(f"{c}: hlokit | XLA | ratio" for c in loaded), "others"]
    lines = ["| " + " | ".join(heads) + " |"]
    lines.append("| --- " + "| ---: " * (3 + 3 * len(loaded)) + "|")
    sound = sorted((row for row in rows if row.failed is None), key=lambda row: -row.worst)
    for row in sound:
        cells = [row.name, *(f"{row.median('alone', kind):.3g}" for kind in KINDS)]
        for condition in loaded:
            cells += [f"{row.slowdown(condition, kind):.2f}" for kind in KINDS] + [f"{row.relative(condition):.2f}"]
        lines.append("| " + " | ".join([*cells, f"{row.others:.0%}"]) + " |")
    lines += [f"| {row.name} | failed: {row.failed} |" for row in rows if row.failed is not None]
    lines.append("")
    for condition in loaded:
        ratios = sorted(row.relative(condition) for row in sound)
        no_worse = sum(ratio <= 1 for ratio in ratios)
        times = {kind: [row.median(condition, kind) for row in sound] for kind in KINDS}
        faster = statistics.geometric_mean(x / h for h, x in zip(times["hlokit"], times["xla"]))
        lines.append(
            f"{condition}: hlokit's slowdown is at most XLA's on {no_worse} of {len(ratios)} rows, the median ratio "
            f"{statistics.median(ratios):.2f}, the worst {ratios[-1]:.2f}; {faster:.2f} times XLA's speed there."
        )
    return "\n".join(lines) + "\n"


def csv_text(rows: list[Row]) -> str:
    """A line for each program and condition: medians in milliseconds, and XLA's over hlokit's."""
    lines = ["program,condition,hlokit_ms,xla_ms,ratio"]
    for row in rows:
        for condition in CONDITIONS if row.failed is None else ():
            hlokit, xla = (row.median(condition, kind) for kind in KINDS)
            lines.append(f"{row.name},{condition},{hlokit:.4g},{xla:.4g},{xla / hlokit:.3g}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="rows whose name holds this")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine in each condition")
    parser.add_argument("--turn", type=float, default=0.1, metavar="SECONDS", help="of a turn")
    parser.add_argument("--json", type=Path, help="all times, as JSON")
    parser.add_argument("--markdown", type=Path, help="the table")
    parser.add_argument("--csv", type=Path, help="medians, as CSV")
    options = parser.parse_args()
    labels = [*NAMES, *(f"{name} x2" for name in PAIRS), *(f"{name} x{_CALLS}" for name in SHORT)]
    labels += [program.name for program in select(quick=True)]
    labels = [label for label in labels if re.search(options.only, label)]
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        busy = Busy(Path(scratch))
        try:
            for label in labels:
                row = busy.row(label, options.rounds, options.turn)
                rows.append(row)
                shown = row.failed or "  ".join(
                    f"{c} {row.slowdown(c, 'hlokit'):.2f}/{row.slowdown(c, 'xla'):.2f}" for c in CONDITIONS
                )
                print(f"{label:36} {shown}  others {row.others:.0%}", file=sys.stderr, flush=True)
        finally:
            busy.stop()
    if not rows:
        parser.error(f"--only {options.only}: no such row")
    table = markdown(rows)
    print(table)
    if options.markdown:
        options.markdown.write_text(table, encoding="utf-8")
    if options.csv:
        options.csv.write_text(csv_text(rows), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows]) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
