"""Whole programs through JAX on hlokit and on JAX's own CPU client, a process for each turn.

    python -m bench.workloads                                  # all, on a machine left alone: about 40 minutes a round
    python -m bench.workloads --only 'training|decode' --rounds 3 --to build/workloads
    python -m bench.workloads --conditions alone,busy,core --newest .venv-newest/bin/python

In a round each program takes a turn on each platform with empty caches of compiled programs, and one with the caches
that it left (JAX's compilation cache on both platforms, and hlokit's own); the order changes from round to round. Times
are medians over all turns. What the first steps gave is compared between the platforms. Results are kept in
FOLDER/turns.jsonl, from which a run that was ended goes on; the table, the picture and the CSV are made from it. A
program whose packages are not there is named.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.busy import Load
from bench.noise import Others
from bench.workloads.report import Turn, csv_text, distance, markdown, rows_of, svg
from bench.workloads.turn import AS_CPU, NAMES

ROOT = Path(__file__).parents[2]
CONDITIONS = {"alone": 0, "one": 1, "two": 2, "core": 0}
"""How many busy processes there are beside the program; `core`: on one core."""


def environment(name: str, platform: str, cache: Path) -> dict[str, str]:
    """The variables of a turn: nothing of JAX's or hlokit's from outside, its own folder for compiled programs, where
    JAX's cache keeps also those that take little time."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "HLOKIT_"))}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)  # as pip installs hlokit, its byte code is there
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept |= {
        "PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_COMPILATION_CACHE_DIR": str(cache / "jax"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }  # fmt: skip
    if platform == "cpu":
        return kept | {"JAX_PLATFORMS": "cpu"}
    kept |= {"HLOKIT_CACHE_DIR": str(cache / "hlokit")}
    if name in AS_CPU:
        return kept | {"JAX_PLATFORMS": "cpu", "HLOKIT_AS_CPU": "1"}
    return kept | {"JAX_PLATFORMS": "hlokit,cpu"}


def taken(name: str, engine: str, python: str, cache: Path, observed: Path, condition: str, seconds: float) -> Any:
    """What a turn's process said, or the last line of its error."""
    platform = "hlokit" if engine == "hlokit" else "cpu"
    command = [
        python,
        "-m",
        "bench.workloads.turn",
        name,
        platform,
        "--seconds",
        str(seconds),
        "--observed",
        str(observed),
    ]
    if condition == "core":
        command = ["taskset", "-c", str(max(os.sched_getaffinity(0))), *command]
    try:
        done = subprocess.run(
            command,
            env=environment(name, platform, cache),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
            cwd=ROOT,
        )
    except subprocess.TimeoutExpired:
        return {"failed": "no result in 900 s"}
    if done.returncode:
        return {"failed": (done.stderr.strip() or f"status {done.returncode}").splitlines()[-1][:300]}
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="", help="programs whose name holds this")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps in a turn")
    parser.add_argument("--conditions", default="alone", help=f"some of {','.join(CONDITIONS)}")
    parser.add_argument("--newest", metavar="PYTHON", help="one with the newest JAX, whose CPU client takes part")
    parser.add_argument("--to", type=Path, default=Path("build/workloads"), metavar="FOLDER")
    options = parser.parse_args()
    names = [name for name in NAMES if re.search(options.only, name)]
    conditions = options.conditions.split(",")
    if not names or not set(conditions) <= set(CONDITIONS):
        parser.error("no such program" if not names else f"conditions are {', '.join(CONDITIONS)}")
    engines = {"hlokit": sys.executable, "jax": sys.executable} | ({"newest": options.newest} if options.newest else {})
    options.to.mkdir(parents=True, exist_ok=True)
    log = options.to / "turns.jsonl"
    turns = [Turn(**json.loads(line)) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []
    done = {(turn.program, turn.condition, turn.round) for turn in turns}
    load = Load(max(CONDITIONS[condition] for condition in conditions))
    others = Others(lambda: [process.pid for process in load.processes])
    try:
        for number in range(options.rounds):
            for name in names:
                for condition in conditions:
                    if (name, condition, number) in done:
                        continue
                    load.hold(CONDITIONS[condition])
                    new = round_of(name, condition, number, engines, options.seconds)
                    load.hold(0)
                    turns += new
                    with log.open("a", encoding="utf-8") as out:
                        out.writelines(json.dumps(vars(turn)) + "\n" for turn in new)
                    shown = "  ".join(turn.shown() for turn in new)
                    print(f"{name:28} {condition:6} {shown}  others {others.share():.0%}", file=sys.stderr, flush=True)
    finally:
        load.stop()
    rows = rows_of(turns)
    for suffix, text in (("md", markdown(rows)), ("csv", csv_text(rows)), ("svg", svg(rows))):
        (options.to / f"workloads.{suffix}").write_text(text, encoding="utf-8")
    print(markdown(rows))
    return 0


def round_of(name: str, condition: str, number: int, engines: dict[str, str], seconds: float) -> list[Turn]:
    """A turn of each engine with an empty cache, then one with a full cache."""
    order = list(engines)[:: 1 if number % 2 == 0 else -1]
    found: list[Turn] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for cache in ("cold", "warm"):
            for engine in order:
                store, observed = folder / engine, folder / f"{engine}.npz"
                reply = taken(name, engine, engines[engine], store, observed, condition, seconds)
                found.append(Turn(name, condition, number, engine, cache, **reply))
        files = [folder / f"{engine}.npz" for engine in ("hlokit", "jax")]
        apart = distance(*files) if all(file.exists() for file in files) else None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    for turn in found:
        turn.apart = apart if turn.engine == "hlokit" else None
    return found


if __name__ == "__main__":
    sys.exit(main())
