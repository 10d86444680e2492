"""What it takes that processes start and agree, and to keep count of them.

python -m tests.mpi.startup [--counts 2 4 8] [--jax]

For each number of processes: seconds from the launcher's start until all have imported hlokit, made a world together and
added a number; processor time of a process for that; the processor time of the hub's thread until then, for a run of a
program, and for a collective of a program in which devices ask before they meet (where it is known that they come to the same
collectives, they do not). The last lines extrapolate: a straight line through the hub's times.

With --jax the processes import JAX, with hlokit as its CPU, and call `jax.distributed.initialize`; the sum is over an array of
all devices. Then: the seconds, the most memory that a process takes, and its processor time by what it does.
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
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
MORE = 200
"""Collectives, and runs."""
JAX_PARTS = ("Python", "import jax", "hlokit", "initialize", "devices", "compile", "run")
"""What the processor time of a process goes to: Python with NumPy; hlokit's imports; JAX's coordinator; making the client with
the other processes; the first program."""


def process(out: Path) -> None:
    import hlokit as hk
    from tests.devices.programs import add, program

    imported = time.process_time()
    world = hk.mpi_world()
    module = program(lambda b, x: hk.all_reduce(x, add), hk.f32[4])
    x = np.ones(4, np.float32)
    hub = world._hub
    clock = None if hub is None or hub._thread.ident is None else time.pthread_getcpuclockid(hub._thread.ident)

    def hub_cpu() -> float:
        return 0.0 if clock is None else time.clock_gettime(clock)

    total = hk.evaluate(module, x, replicas=world.size, world=world)
    assert total.tolist() == [world.size] * 4
    facts = {"agreed": time.time(), "import_cpu": imported, "start_cpu": time.process_time(), "hub_start_cpu": hub_cpu()}

    def asking(b: Any, x: Any) -> Any:
        state = hk.tuple_(b, [hk.reshape(hk.slice_in_dim(x, 0, 1, 1, 0), []), x])
        body = lambda s: [s[0] - 1, hk.all_reduce(s[1], hk.max)]  # noqa: E731
        return hk.while_(lambda s: hk.gt(s[0], np.float32(0)), body, state)[1]

    for name, function, given, runs in (
        ("hub_run_cpu", lambda b, x: hk.all_reduce(x, hk.max), x, MORE),
        ("hub_more_cpu", asking, np.full(4, MORE, np.float32), 1),
    ):
        run = hk.compile(program(function, hk.f32[4]), replicas=world.size)
        run(given, world=world)
        before = hub_cpu()
        for _ in range(runs):
            run(given, world=world)
        facts[name] = (hub_cpu() - before) / MORE
    (out / f"{world.rank}.json").write_text(json.dumps(facts), encoding="utf-8")


def jax_process(out: Path) -> None:
    clock = [time.process_time()]

    def passed() -> None:
        clock.append(time.process_time())

    import jax

    passed()
    from bench.processes import of_process
    from hlokit.interop.jax import use

    use(as_cpu=True)
    passed()
    jax.distributed.initialize()
    passed()
    count = jax.device_count()
    passed()
    rows = jax.NamedSharding(jax.make_mesh((count,), ("x",), (jax.sharding.AxisType.Auto,)), jax.P("x"))
    x = jax.make_array_from_callback((count,), rows, lambda index: np.ones(count, np.float32)[index])
    compiled = jax.jit(lambda x: x.sum()).lower(x).compile()
    passed()
    assert float(compiled(x)) == count == jax.process_count()
    passed()
    facts = {name: end - begin for name, (begin, end) in zip(JAX_PARTS, pairwise([0.0, *clock]), strict=True)}
    facts |= {"agreed": time.time(), "memory": of_process("VmHWM")}
    (out / f"{jax.process_index()}.json").write_text(json.dumps(facts), encoding="utf-8")


def measured(count: int, kind: str) -> tuple[float, list[dict[str, float]]]:
    """Seconds until all have agreed, and the figures of each process."""
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        command = [sys.executable, "-m", "hlokit.launch", "-n", str(count), "--devices", "1", "--collectives", "mpi", "--"]
        command += [sys.executable, "-m", "tests.mpi.startup", kind, folder]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # else every process compiles all that it imports
        subprocess.run(command, cwd=ROOT, check=True, env=environment)
        found = [json.loads((Path(folder) / f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]
    return max(f["agreed"] for f in found) - begin, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4, 8, 16, 32])
    parser.add_argument("--jax", action="store_true")
    for name in ("--process", "--jax-process"):
        parser.add_argument(name, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.process is not None:
        process(given.process)
        return
    if given.jax_process is not None:
        jax_process(given.jax_process)
        return
    measured(given.counts[0], "--jax-process" if given.jax else "--process")  # fills the caches
    load = re.split(r"\s", Path("/proc/loadavg").read_text(encoding="utf-8"))[0]
    print(f"{os.cpu_count()} processors, load {load} before the start")
    if given.jax:
        print("processes  seconds  memory, MB  CPU s a process: all", *JAX_PARTS, sep="  ")
        for count in given.counts:
            seconds, found = measured(count, "--jax-process")
            parts = [fmean(f[name] for f in found) for name in JAX_PARTS]
            most = max(f["memory"] for f in found)
            texts = "".join(f"  {part:{len(name)}.2f}" for name, part in zip(JAX_PARTS, parts, strict=True))
            print(f"{count:9d} {seconds:8.1f} {most / 1e6:11.0f} {sum(parts):22.2f}{texts}", flush=True)
        return
    rows: list[dict[str, float]] = []
    for count in given.counts:
        seconds, found = measured(count, "--process")
        means = {name: fmean(f[name] for f in found) for name in ("import_cpu", "start_cpu")}
        rows.append({**found[0], "count": count, "seconds": seconds, **means})
    print("processes  seconds  CPU s: import  a process  hub, start  a run (us)  a collective asked for (us)")
    for row in rows:
        print(f"{row['count']:9d} {row['seconds']:8.1f} {row['import_cpu']:14.2f} {row['start_cpu']:10.2f} "
              f"{row['hub_start_cpu']:11.3f} {1e6 * row['hub_run_cpu']:11.0f} {1e6 * row['hub_more_cpu']:12.0f}")  # fmt: skip
    if len(rows) > 1:
        counts = np.array([row["count"] for row in rows])
        for what, name, scale in (
            ("hub_start_cpu", "start, ms", 1e3), ("hub_run_cpu", "a run, us", 1e6),
            ("hub_more_cpu", "a collective asked for, us", 1e6),
        ):  # fmt: skip
            slope, first = np.polyfit(counts, [row[what] * scale for row in rows], 1)
            far = ", ".join(f"{n:,}: {first + slope * n:,.0f}" for n in (64, 1024, 4096))
            print(f"hub, {name}: {first:.1f} + {slope:.2f} n; {far}")


if __name__ == "__main__":
    main()
