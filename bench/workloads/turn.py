"""A turn: one workload on one platform in this process, as a line of JSON.

    python -m bench.workloads.turn training/gpt cpu --seconds 2 --observed FILE.npz

Times are in seconds. `lower`: tracing and lowering, which are JAX's own on either platform; `first`: from the lowered
program to the first result; `steps`: each step after it. `peak`: the greatest resident memory of the process in bytes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.workloads.loop import Loop

PROGRAMS = {
    "training": ("mlp", "resnet18", "resnet50", "vit", "gpt", "bert", "lstm", "mamba", "unet", "gnn", "moe"),
    "inference": (
        *("resnet50", "vit", "whisper", "mobilenet", "efficientnet"),
        *("decode_f32", "decode_bf16", "decode_int8", "decode_int4"),
    ),
    "science": (
        *("numpyro_nuts", "blackjax_nuts", "neural_ode", "stiff_ode", "molecular_dynamics", "navier_stokes"),
        *("lattice_boltzmann", "mujoco", "pinn", "gaussian_process", "kalman", "ppo", "option_pricing"),
    ),
    "eager": ("mlp", "transformer", "statistics"),
}
NAMES = tuple(f"{group}/{name}" for group, names in PROGRAMS.items() for name in names)
AS_CPU = frozenset({"science/mujoco"})
"""Programs whose libraries know JAX's own platforms alone: hlokit runs them as JAX's CPU."""
OBSERVED = 3
"""The steps whose results are compared."""


def made(name: str) -> Loop:
    """The workload GROUP/NAME; ImportError says which package it wants."""
    group, _, function = name.partition("/")
    return getattr(importlib.import_module(f"bench.workloads.{group}"), function)()


def steps(loop: Loop, call: Any) -> Iterator[tuple[float, Any]]:
    """Seconds of each step and what is observed, without end."""
    import jax

    state, number = loop.state, 0
    while True:
        batch = loop.batches[number % len(loop.batches)]
        start = time.perf_counter()
        state, observed = call(state, *batch)
        jax.block_until_ready((state, observed))
        yield time.perf_counter() - start, observed
        number += 1


def measured(name: str, seconds: float, least: int, observed: Path | None) -> dict[str, Any]:
    """The times of a turn on JAX's default platform."""
    import jax
    import numpy as np

    loop = made(name)
    jax.block_until_ready((loop.state, loop.batches))
    call, lower, first = loop.step, 0.0, 0.0
    if hasattr(call, "lower"):
        start = time.perf_counter()
        lowered = call.lower(loop.state, *loop.batches[0])
        lower = time.perf_counter() - start
        call = lowered.compile()
        first = time.perf_counter() - start - lower
    times: list[float] = []
    seen: dict[str, Any] = {}
    for taken, values in steps(loop, call):
        if len(times) < OBSERVED:
            seen |= {f"{len(times)}.{k}": np.asarray(leaf) for k, leaf in enumerate(jax.tree.leaves(values))}
        times.append(taken)
        if len(times) > least and sum(times[1:]) > seconds:
            break
    if observed is not None:
        np.savez(observed, **seen)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"lower": lower, "first": first + times[0], "steps": times[1:], "peak": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=NAMES, metavar="GROUP/NAME", help=", ".join(NAMES))
    parser.add_argument("platform", choices=("cpu", "hlokit"))
    parser.add_argument("--seconds", type=float, default=1.0, help="of steps")
    parser.add_argument("--least", type=int, default=5, help="steps")
    parser.add_argument("--observed", type=Path, metavar="FILE.npz", help="what the first steps gave")
    options = parser.parse_args()
    import jax

    wanted = "cpu" if options.name in AS_CPU else options.platform
    assert jax.default_backend() == wanted, jax.default_backend()
    try:
        reply = measured(options.name, options.seconds, options.least, options.observed)
    except ImportError as missing:
        reply = {"missing": missing.name or str(missing)}
    print(json.dumps(reply))


if __name__ == "__main__":
    main()
