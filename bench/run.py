"""Runs the programs on every framework at hand, taking turns, and reports.

    python -m bench.run                       # about 15 minutes
    python -m bench.run --quick               # two minutes: the shorter programs, fewer turns
    python -m bench.run --only gemm --engines hlokit,xla --json out.json --markdown out.md --svg out.svg

Each framework has a process of its own. For each program all draw the same arguments; XLA lowers it, and hlokit gets
that HLO; each compiles it, runs it once, and hlokit's results are compared with XLA's. Then they take turns in rounds,
with a pause before each turn, since threads of the one before may still spin. XLA runs twice: plain, and with malloc
tunables that spare it page faults; only the better of them counts. HLOKIT_BENCH_NEWEST names a Python that has a newer
jaxlib, which then runs twice too.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from bench.cold import cold_start
from bench.engines import KINDS
from bench.limits import Limits
from bench.lower import stored_text
from bench.noise import Others
from bench.process import ROOT, Failed, Process
from bench.programs import CATEGORIES, HELD_OUT, Program, select
from bench.report import Report, Row, Timing, markdown, read_notes, row_line, summary, svg
from bench.results import store

ENGINES = tuple(KINDS)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    rounds    turns of each framework on a program
    turn      seconds of calls in a turn, and `least` calls however long they take
    pause     seconds before a turn
    compiles  times each program is compiled
    cold      fresh processes for the cold start
    seconds   for all programs: once behind this schedule, a program gets one turn
    patience  seconds for any one answer of a framework
    """

    rounds: int
    turn: float
    least: int
    pause: float
    compiles: int
    cold: int
    seconds: float
    patience: float

    def hurried(self) -> Effort:
        return replace(self, rounds=1, turn=0.0, least=2, compiles=1)


FULL = Effort(rounds=5, turn=0.15, least=3, pause=0.05, compiles=3, cold=9, seconds=1500, patience=120)
QUICK = Effort(rounds=2, turn=0.04, least=2, pause=0.01, compiles=1, cold=3, seconds=105, patience=20)


class Bench:
    """The workers, and what a program goes through."""

    def __init__(self, kinds: list[str], limits: Limits, scratch: Path, patience: float, fresh: bool) -> None:
        self.limits = limits
        self.scratch = scratch
        self.patience = patience
        self.fresh = fresh
        self.processes = {kind: Process(kind, scratch / f"{kind}.log") for kind in kinds}
        self.others = Others(lambda: [process.child.pid for process in self.processes.values()])

    def row(self, program: Program, effort: Effort) -> Row:
        self.others.share()
        timings = {kind: Timing() for kind in self.processes}
        error = None
        drawn = program.draw()
        in_bytes, out_bytes = sum(value.nbytes for value in drawn), 0
        store(drawn, self.scratch / "arguments")
        del drawn
        lowered = self.load(program, timings)
        for _ in range(effort.compiles):
            for kind in self.sound(timings):
                more = {"hlo": str(lowered)} if kind == "hlokit" else {}
                reply = self.ask(timings, kind, do="compile", **more)
                if reply.get("seconds") is not None:
                    timings[kind].compile_ms.append(reply["seconds"] * 1e3)
        expected = self.scratch / "expected"
        for kind in self.sound(timings):
            request: dict[str, Any] = {"do": "first"}
            if kind == "xla":
                request["store_in"] = str(expected)
            elif kind == "hlokit" and "xla" in self.sound(timings):
                request["compare"] = str(expected)
            reply = self.ask(timings, kind, **request)
            out_bytes = max(out_bytes, reply.get("bytes_out", 0))
            error = reply.get("error", error)
        for number in range(effort.rounds):
            kinds = self.sound(timings)
            shift = number % max(1, len(kinds))
            for kind in kinds[shift:] + kinds[:shift]:
                time.sleep(effort.pause)
                reply = self.ask(timings, kind, do="sample", seconds=effort.turn, least=effort.least)
                timings[kind].times_ms += reply.get("times_ms", [])
        for kind in self.sound(timings):
            self.ask(timings, kind, do="drop")
        shutil.rmtree(expected, ignore_errors=True)
        floor, bound = self.limits.floor_ms(program, in_bytes, out_bytes)
        shown = {kind: timing for kind, timing in timings.items() if not timing.absent}
        return Row(program.category, program.name, floor, bound, shown, error, self.others.share())

    def load(self, program: Program, timings: dict[str, Timing]) -> Path:
        """Loads the program in all processes at once; where its lowered HLO is."""
        for process in self.processes.values():
            if self.fresh:
                process.restart()
            process.send(do="load", program=program.name, arguments=str(self.scratch / "arguments"))
        replies = [self.caught(timings, kind) for kind in self.processes]
        texts = [reply["hlo_text"] for reply in replies if reply.get("hlo_text")]
        lowered = self.scratch / "lowered.hlo"
        lowered.write_text(texts[0] if texts else stored_text(program.name))
        shutil.rmtree(self.scratch / "arguments")
        return lowered

    def sound(self, timings: dict[str, Timing]) -> list[str]:
        """The frameworks that still run the program; XLA first, whose results are the measure."""
        kinds = [kind for kind, timing in timings.items() if timing.failed is None and not timing.absent]
        return sorted(kinds, key=lambda kind: kind != "xla")

    def ask(self, timings: dict[str, Timing], kind: str, **request: Any) -> dict[str, Any]:
        self.processes[kind].send(**request)
        return self.caught(timings, kind)

    def caught(self, timings: dict[str, Timing], kind: str) -> dict[str, Any]:
        """The reply, or an empty one with the failure noted."""
        try:
            return self.processes[kind].reply(self.patience)
        except Failed as failure:
            if failure.absent:
                timings[kind].absent = True
            else:
                timings[kind].failed = str(failure)
            return {}

    def stop(self) -> None:
        for process in self.processes.values():
            process.stop()


def available(engines: list[str]) -> Iterator[str]:
    modules = {"xla": "jax", "xla-tunables": "jax"}
    for engine in engines:
        if engine.startswith("xla-newest"):
            if os.environ.get("HLOKIT_BENCH_NEWEST"):
                yield engine
        elif importlib.util.find_spec(modules.get(engine, engine)):
            yield engine
        else:
            print(f"{engine}: not installed, left out", file=sys.stderr)


def machine() -> dict[str, Any]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line for line in lines if line.startswith("model name")]
    versions: dict[str, str] = {}
    for package in ("hlokit", "jaxlib", "numpy", "scipy", "torch", "llvmlite"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    if newest := os.environ.get("HLOKIT_BENCH_NEWEST"):
        command = [newest, "-c", "import jaxlib; print(jaxlib.__version__)"]
        versions["newest jaxlib"] = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return {
        "cpu": names[0].split(":", 1)[1].strip() if names else platform.machine(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions,
    }


def measured_limits() -> Limits:
    """In a process of its own: its kernels need some hundred MB. Where they do not run, those of another machine."""
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        command = [sys.executable, "-m", "bench.measure", "--json", file.name]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode == 0:
            return Limits.load(Path(file.name))
    print("the machine's limits could not be measured; floors are those of bench/limits.py", file=sys.stderr)
    return Limits()


def measure(programs: list[Program], kinds: list[str], effort: Effort, limits: Limits, fresh: bool) -> Report:
    started = time.monotonic()
    report = Report(machine() | {"limits": asdict(limits)}, [], {}, 0.0)
    # results to compare lie in memory where the system has such a folder
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="hlokit-bench-", dir=folder) as scratch:
        report.cold_start_ms = cold_start(kinds, effort.cold) if effort.cold else {}
        bench = Bench(kinds, limits, Path(scratch), effort.patience, fresh)
        try:
            begun = time.monotonic()
            for number, program in enumerate(programs):
                behind = time.monotonic() - begun > effort.seconds * (number + 1) / len(programs)
                row = bench.row(program, effort.hurried() if behind else effort)
                report.rows.append(row)
                print(row_line(row), flush=True)
        except KeyboardInterrupt:
            print("interrupted: the report holds what was measured", file=sys.stderr)
        finally:
            bench.stop()
    report.seconds = time.monotonic() - started
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the shorter programs, fewer turns")
    parser.add_argument("--only", metavar="REGEX", help="programs whose name holds this")
    parser.add_argument("--category", action="append", choices=CATEGORIES, default=[], help="programs of this category")
    parser.add_argument("--engines", default=",".join(ENGINES), help="of " + ", ".join(ENGINES))
    parser.add_argument(
        "--held-out", type=int, choices=sorted(HELD_OUT), help="instead, forty programs that were held out"
    )
    parser.add_argument("--rounds", type=int, help="turns of each framework on a program")
    parser.add_argument("--no-cold", action="store_true", help="leave out the cold start")
    parser.add_argument("--fresh", action="store_true", help="new processes for each program")
    parser.add_argument("--limits", type=Path, metavar="JSON", help="this machine's limits; without: measured")
    parser.add_argument("--json", type=Path, help="where the figures go")
    parser.add_argument("--markdown", type=Path, help="where the table goes")
    parser.add_argument("--svg", type=Path, help="where the plot goes")
    options = parser.parse_args()

    engines = options.engines.split(",")
    if unknown := [engine for engine in engines if engine not in ENGINES]:
        parser.error(f"no engine {unknown[0]!r}; there are {', '.join(ENGINES)}")
    base = QUICK if options.quick else FULL
    effort = replace(base, rounds=options.rounds or base.rounds, cold=0 if options.no_cold else base.cold)
    limits = Limits.load(options.limits) if options.limits else measured_limits()
    programs = (
        list(HELD_OUT[options.held_out])
        if options.held_out
        else select(options.only, tuple(options.category), options.quick)
    )
    report = measure(programs, list(available(engines)), effort, limits, options.fresh)
    print(summary(report))
    for path, text in (
        (options.json, json.dumps(report.to_json(), indent=1) + "\n"),
        (options.markdown, markdown(report, read_notes())),
        (options.svg, svg(report)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
