"""Interrupts and exits by the thousand: python -m tests.jax.pjrt.interrupts --count 10000, --exits 200, --abandoned 5.

Ctrl-C may come at any time: in JAX, in the plugin, between the two. None may be lost, and no process may die of it. See
scripts/interrupts.py. An exit is that of a process under `-X dev`, which overwrites memory that Python frees.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from typing import Any

from tests.jax.pjrt.harness import SCRIPTS, python

_A_PROCESS = 500


def interrupted(count: int, seed: int, **environment: str) -> dict[str, Any]:
    """What became of so many interrupts in one process. AssertionError: it died, or hung."""
    with tempfile.TemporaryDirectory() as folder:  # an empty cache, so that compiles are compiles
        environment = {"HLOKIT_CACHE_DIR": folder, **environment}
        done = python(str(SCRIPTS / "interrupts.py"), str(count), str(seed), timeout=1200, **environment)
    assert done.returncode == 0, f"seed {seed}: exit code {done.returncode}\n{done.stdout[-1000:]}\n{done.stderr[-6000:]}"
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=0, help="interrupts")
    parser.add_argument("--exits", type=int, default=0, help="exits under -X dev")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--platform", default="hlokit,cpu", help="JAX_PLATFORMS; cpu: JAX's own client, for comparison")
    parser.add_argument("--abandoned", type=int, default=0, help="compiles that an interrupt abandons before they begin")
    options = parser.parse_args()
    failed = _campaign(options.count, options.seed, options.platform) if options.count else 0
    failed = failed or (_exits(options.exits, options.platform) if options.exits else 0)
    return failed or (_abandoned(options.abandoned, options.platform) if options.abandoned else 0)


_PROGRAM = """
import jax.numpy as jnp


class Log:
    def __del__(self, keep=[]):
        for n in range(64, 4096, 8):
            keep.extend(b"\\xff" * (n + 0 * i) for i in range(8))


_log = Log()
y = jnp.ones(3)
"""


def _exits(count: int, platform: str) -> int:
    """Exits with an array that is alive, while memory that Python has freed is overwritten."""
    codes: Counter[int] = Counter()
    for number in range(count):
        codes[python("-X", "dev", "-c", _PROGRAM, JAX_PLATFORMS=platform).returncode] += 1
        if number % 20 == 19:
            print(f"exit codes {dict(codes)}", flush=True)
    return int(set(codes) != {0})


def _abandoned(count: int, platform: str) -> int:
    """Processes with a compile that jaxlib begins after an interrupt: jaxlib 0.10.2 dies of it on any platform."""
    ends: Counter[str] = Counter()
    for _ in range(count):
        done = python(str(SCRIPTS / "abandoned.py"), timeout=1200, JAX_PLATFORMS=platform, MALLOC_PERTURB_="165")
        ends[done.stdout.strip() or f"exit code {done.returncode}"] += 1
        print(dict(ends), flush=True)
    return int(any(end.startswith("exit code") for end in ends))


def _campaign(count: int, seed: int, platform: str) -> int:
    total: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    errors: Counter[str] = Counter()
    lost: list[list[str]] = []
    failures = 0
    began = time.monotonic()
    while total["sent"] < count:
        seed += 1
        part = min(_A_PROCESS, count - total["sent"])
        try:
            found = interrupted(part, seed, JAX_PLATFORMS=platform)
        except AssertionError as error:
            print(error, flush=True)
            failures += 1
            total["sent"] += part
            continue
        for name in ("sent", "handled", "caught", "rounds"):
            total[name] += found[name]
        lost += found["lost"]
        dropped.update(found["dropped"])
        errors.update(found["errors"])
        print(f"{time.monotonic() - began:6.0f} s {dict(total)} lost {len(lost)}, by Python {sum(dropped.values())}", flush=True)
    print(json.dumps({"deaths": failures, "lost": lost, **total, "dropped": dropped, "errors": errors}, indent=1))
    return int(failures > 0 or bool(lost))


if __name__ == "__main__":
    sys.exit(main())
