"""What JAX's dispatch costs on hlokit and on JAX's own CPU client: `python bench/dispatch.py [--repeat N]`.

The two run in processes of their own, in turns, on one core; the table has the medians over the turns of a call's time
in microseconds, each the least of several runs of many calls, and the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PLATFORMS = ("cpu", "hlokit")
CALLS, RUNS = 2000, 5


def least(call: Callable[[], Any]) -> float:
    """Seconds a call, the least of some runs."""
    times: list[float] = []
    for _ in range(RUNS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter() - start) / CALLS)
    return min(times)


def measure(platform: str) -> dict[str, float]:
    """Microseconds a call of each row, on the platform of this process."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    assert jax.default_backend() == platform, jax.default_backend()
    one = jax.jit(lambda x: x + 1)
    many = jax.jit(lambda *xs: [x + 1 for x in xs])
    scalar, twenty, four = jnp.float32(1), [jnp.float32(i) for i in range(20)], np.ones(4, np.float32)
    floats = jnp.ones(4)
    rows: dict[str, Callable[[], Any]] = {
        "x + 1, a scalar": lambda: one(scalar),
        "x + 1, a scalar, awaited": lambda: one(scalar).block_until_ready(),
        "20 scalars in, 20 out": lambda: many(*twenty),
        "device_put of 4 floats": lambda: jax.device_put(four),
        "x + 1 of 4 floats, np.asarray": lambda: np.asarray(one(floats)),
    }
    for call in rows.values():
        call()
    return {name: 1e6 * least(call) for name, call in rows.items()}


def turn(platform: str) -> dict[str, float]:
    """`measure` in a process of its own."""
    root = Path(__file__).parents[1]
    path = os.pathsep.join([str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "JAX_PLATFORMS": f"{platform},cpu" if platform != "cpu" else "cpu", "PYTHONPATH": path}
    command = [sys.executable, __file__, "--platform", platform]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="turns of each")
    parser.add_argument("--platform", choices=PLATFORMS, help="measure this one here, as a line of JSON")
    given = parser.parse_args()
    if given.platform:
        print(json.dumps(measure(given.platform)))
        return
    turns: dict[str, list[dict[str, float]]] = {platform: [] for platform in PLATFORMS}
    for _ in range(given.repeat):
        for platform in PLATFORMS:
            turns[platform].append(turn(platform))
    print(f"{'microseconds a call':32}{'JAX':>9}{'hlokit':>9}{'ratio':>8}")
    for name in turns["cpu"][0]:
        theirs, ours = (statistics.median(t[name] for t in turns[platform]) for platform in PLATFORMS)
        print(f"{name:32}{theirs:9.2f}{ours:9.2f}{ours / theirs:8.2f}")


if __name__ == "__main__":
    main()
