"""What it takes that processes start and agree, and to keep count of them: python -m tests.mpi.startup [--counts 1 2 4 8].

For each number of processes: seconds from the launcher's start until all have imported hlokit, made a world together and
added a number; processor time of a process for that; the processor time that rank 0 takes beyond the others', which is the
hub's, for the start and for each of 200 collectives more. The last lines extrapolate: a straight line through the hub's times.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
MORE = 200


def process(out: Path) -> None:
    import hlokit as hk
    from tests.devices.programs import add, program

    imported = time.process_time()
    world = hk.mpi_world()
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[4])
    x = np.ones(4, np.float32)
    total = hk.evaluate(module, x, replicas=world.size, world=world)
    assert total.tolist() == [world.size] * 4
    agreed, agreed_cpu = time.time(), time.process_time()

    def many(b: Any, x: Any) -> Any:
        for _ in range(MORE):
            x = hk.all_reduce(x, hk.max)
        return x

    module = program(many, hk.f32[4])
    before = time.process_time()
    hk.evaluate(module, x, replicas=world.size, world=world)
    facts = {
        "agreed": agreed, "imported_cpu": imported, "start_cpu": agreed_cpu,
        "more_cpu": (time.process_time() - before) / MORE,
    }  # fmt: skip
    (out / f"{world.rank}.json").write_text(json.dumps(facts), encoding="utf-8")


def measured(count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        command = [sys.executable, "-m", "hlokit.launch", "-n", str(count), "--collectives", "mpi", "--", sys.executable]
        subprocess.run([*command, "-m", "tests.mpi.startup", "--process", folder], cwd=ROOT, check=True, env=os.environ)
        found = [json.loads((Path(folder) / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]
    others = found[1:] or found
    return {
        "count": count, "seconds": max(f["agreed"] for f in found) - begin,
        "import_cpu": fmean(f["imported_cpu"] for f in found), "start_cpu": fmean(f["start_cpu"] for f in others),
        "hub_start_cpu": found[0]["start_cpu"] - fmean(f["start_cpu"] for f in others),
        "hub_more_cpu": found[0]["more_cpu"] - fmean(f["more_cpu"] for f in others),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--process", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.process is not None:
        process(given.process)
        return
    load = re.split(r"\s", Path("/proc/loadavg").read_text(encoding="utf-8"))[0]
    print(f"{os.cpu_count()} processors, load {load} before the start")
    rows = [measured(count) for count in given.counts]
    print("processes  seconds  CPU s: import  a process  hub, start  hub, a collective (us)")
    for row in rows:
        print(f"{row['count']:9d} {row['seconds']:8.1f} {row['import_cpu']:14.2f} {row['start_cpu']:10.2f} "
              f"{row['hub_start_cpu']:11.3f} {1e6 * row['hub_more_cpu']:12.0f}")  # fmt: skip
    if len(rows) > 1:
        counts = np.array([row["count"] for row in rows])
        for what, name, scale in (("hub_start_cpu", "start, ms", 1e3), ("hub_more_cpu", "a collective, us", 1e6)):
            slope, first = np.polyfit(counts, [row[what] * scale for row in rows], 1)
            far = ", ".join(f"{n:,}: {first + slope * n:,.0f}" for n in (64, 1024, 4096))
            print(f"hub, {name}: {first:.1f} + {slope:.2f} n; {far}")


if __name__ == "__main__":
    main()
