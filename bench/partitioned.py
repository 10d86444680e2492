"""A step of ten models on two devices of a process and on one: hlokit beside JAX's own CPU client.

    python -m bench.partitioned --rounds 5 --markdown FILE

The models are those of `python -m tests.partition.models`; the weights of training steps are donated. A turn is a
process of one engine with one number of devices, and takes all models; turns alternate. Times are those of the least
step of all turns. The goal is the ratio of a step on two devices to one on one device: at most XLA's. `in parts` is
hlokit's where HLOKIT_PARTITION=parts has every device run its part; without it an estimate chooses between parts and
whole values. Processor times, of a step in the mean and of the least turn, are what other work on the machine disturbs
least.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENGINES = ("hlokit", "cpu")
KEYS = (("hlokit", 1), ("cpu", 1), ("hlokit", 2), ("cpu", 2), ("parts", 2))
"""Engines and numbers of devices."""
Times = dict[str, tuple[float, float]]
"""For each model the seconds of the least step, and the processor's seconds of a step in the mean."""


def step_times(name: str, devices: int, seconds: float) -> tuple[float, float]:
    """Seconds of the model's least step, and processor time of a step, on so many of this process's devices."""
    import jax

    from tests.partition import models

    function, arguments, taken, given = getattr(models, name)(devices)
    state, *batch = jax.device_put(arguments, taken)
    trains = isinstance(given, tuple)  # the new weights are the next step's
    call = jax.jit(function, in_shardings=taken, out_shardings=given, donate_argnums=0 if trains else ())

    def step() -> None:
        nonlocal state
        results = jax.block_until_ready(call(state, *batch))
        if trains:
            state = results[0]

    for _ in range(3):
        step()
    least, count, start, cpu = float("inf"), 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - start < seconds or count < 5:
        before = time.perf_counter()
        step()
        least, count = min(least, time.perf_counter() - before), count + 1
    return least, (time.process_time() - cpu) / count


def turn(engine: str, devices: int, names: list[str], seconds: float) -> Times:
    """The models' times in a process of their own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    kept |= {"PYTHONPATH": path, "TF_CPP_MIN_LOG_LEVEL": "3", "HLOKIT_NUM_DEVICES": str(devices)}
    kept |= {"HLOKIT_PARTITION": "parts" if engine == "parts" else "auto"}
    kept |= {"JAX_PLATFORMS": "cpu" if engine == "cpu" else "hlokit,cpu"}
    kept |= {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, "-m", "bench.partitioned", *names, "--turn", str(devices), "--seconds", str(seconds)]
    done = subprocess.run(command, env=kept, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return json.loads(done.stdout.splitlines()[-1])


def table(turns: dict[tuple[str, int], list[Times]], names: list[str]) -> str:
    """Markdown; the model that does worst beside XLA first."""
    heads = ["model", "hlokit, 1 device", "2 devices", "XLA, 1 device", "2 devices", "hlokit's ratio", "XLA's"]
    heads += ["hlokit's in parts", "of processor time: hlokit's", "XLA's", "in parts"]
    lines = ["| " + " | ".join(heads) + " |", "| --- " + "| ---: " * (len(heads) - 1) + "|"]
    rows: list[tuple[float, str]] = []
    good = 0
    for name in names:
        wall, cpu = ({key: min(t[name][k] for t in found) for key, found in turns.items()} for k in (0, 1))
        pairs = [(engine, "hlokit" if engine == "parts" else engine) for engine in (*ENGINES, "parts")]
        ratios = [[took[engine, 2] / took[one, 1] for engine, one in pairs] for took in (wall, cpu)]
        ours, theirs = ratios[0][:2]
        good += ours <= theirs
        times = [f"{1e3 * wall[engine, devices]:.3g} ms" for engine in ENGINES for devices in (1, 2)]
        cells = [name.replace("_", " "), *times, *(f"{ratio:.2f}" for row in ratios for ratio in row)]
        rows.append((theirs / ours, "| " + " | ".join(cells) + " |"))
    lines += [row for _, row in sorted(rows)]
    return "\n".join(lines) + f"\n\nAt most XLA's ratio: {good} of {len(names)}.\n"


def main() -> None:
    from tests.partition import models

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="MODEL", help=", ".join(models.NAMES))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps of a model in a turn")
    parser.add_argument("--markdown", type=Path, metavar="FILE")
    parser.add_argument("--turn", type=int, metavar="DEVICES", help="only JAX's platform of this process, as JSON")
    options = parser.parse_args()
    names: list[str] = options.names or list(models.NAMES)
    if unknown := set(names) - set(models.NAMES):
        parser.error(f"no such model: {', '.join(sorted(unknown))}")
    if options.turn:
        print(json.dumps({name: step_times(name, options.turn, options.seconds) for name in names}))
        return
    turns: dict[tuple[str, int], list[Times]] = {key: [] for key in KEYS}
    loads: list[float] = []
    for number in range(options.rounds):
        for key in KEYS[:: 1 if number % 2 == 0 else -1]:
            turns[key].append(turn(*key, names, options.seconds))
            loads.append(os.getloadavg()[0])
    found = table(turns, names)
    found += f"Load average: {min(loads):.1f} to {max(loads):.1f}, {statistics.median(loads):.1f} in the median.\n"
    print(found)
    if options.markdown:
        options.markdown.write_text(found, encoding="utf-8")


if __name__ == "__main__":
    main()
