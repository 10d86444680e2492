"""Whether whole runs give the same bits on any number of threads and next to other work.

    python -m bench.workloads.bits                           # eleven training runs of 200 steps: some 15 minutes
    python -m bench.workloads.bits --only 'gpt|mlp' --steps 50

Each program runs on hlokit on one, two and three threads, and on two next to two processes that compute without end; on
fewer cores than threads these take turns. Digests of what each step gives to be observed, and of the last state, are
compared.
Exits with status 1 if two differ or a run fails.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.busy import Load
from bench.workloads.__main__ import ROOT, environment
from bench.workloads.turn import NAMES, made

WAYS = {"1 thread": (1, 0), "2 threads": (2, 0), "3 threads": (3, 0), "2 threads, two busy": (2, 2)}
"""Threads, and busy processes."""


def digest(name: str, count: int) -> str:
    """The digest of so many steps on JAX's default platform: what each gave to be observed, and the last state."""
    import jax
    import numpy as np

    loop, found = made(name), hashlib.sha256()
    state = loop.state
    for number in range(count):
        state, observed = loop.step(state, *loop.batches[number % len(loop.batches)])
        for leaf in jax.tree.leaves(observed):
            found.update(np.asarray(leaf).tobytes())
    for leaf in jax.tree.leaves(state):
        found.update(np.asarray(leaf).tobytes())
    return found.hexdigest()


def run(name: str, steps: int, threads: int) -> str:
    """The digest of a process with an empty cache, or the last line of its error."""
    command = [sys.executable, "-m", "bench.workloads.bits", "--digest", name, "--steps", str(steps)]
    with tempfile.TemporaryDirectory() as cache:
        settings = {**environment(name, "hlokit", Path(cache)), "HLOKIT_THREADS": str(threads)}
        done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        return f"failed: {(done.stderr.strip() or f'status {done.returncode}').splitlines()[-1]}"
    return done.stdout.splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="REGEX", default="^training/", help="programs whose name holds this")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument(
        "--digest", choices=NAMES, metavar="GROUP/NAME", help="prints the digest of a run in this process"
    )
    options = parser.parse_args()
    if options.digest:
        print(digest(options.digest, options.steps))
        return 0
    names, differing = [name for name in NAMES if re.search(options.only, name)], 0
    load = Load(max(busy for _, busy in WAYS.values()))
    try:
        for name in names:
            found: dict[str, str] = {}
            for way, (threads, busy) in WAYS.items():
                load.hold(busy)
                found[way] = run(name, options.steps, threads)
            is_same = len(set(found.values())) == 1 and not found["1 thread"].startswith("failed")
            differing += not is_same
            print(f"{name:24} {'same: ' + found['1 thread'][:16] if is_same else found}", flush=True)
    finally:
        load.stop()
    print(f"{len(names)} runs of {options.steps} steps in {len(WAYS)} ways, {differing} with other bits or failed")
    return int(differing > 0 or not names)


if __name__ == "__main__":
    sys.exit(main())
