"""The steps that hold a workload: python -m bench.workloads.profile training/gpt [science/ppo ...] [--rows 12]

The lowered program is compiled by hlokit alone, in this process, and its steps are timed on the first batch. A
program that is not jitted has no steps.
"""

from __future__ import annotations

import argparse
import os

os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np

import hlokit as hk
from bench.workloads.turn import NAMES, made


def table(name: str, rows: int, repeat: int) -> str:
    """The dearest steps of a workload, with the part of the machine's limits that they reach."""
    import jax

    loop = made(name)
    if not hasattr(loop.step, "lower"):
        return f"{name} is not jitted"
    lowered = jax.jit(loop.step.__wrapped__).lower(loop.state, *loop.batches[0])  # nothing is donated here
    leaves, types = (jax.tree.leaves(tree) for tree in ((loop.state, *loop.batches[0]), lowered.in_avals))
    arguments = [np.asarray(leaf).astype(of.dtype, copy=False) for leaf, of in zip(leaves, types, strict=True)]
    kept = lowered._lowering.compile_args["kept_var_idx"]  # arguments that the program reads
    executable = hk.compile(hk.parse(lowered.as_text()))
    found = executable.profile(*(arguments[k] for k in sorted(kept)), repeat=repeat)
    return f"{name}\n{found.table(rows)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=NAMES, metavar="GROUP/NAME", help=", ".join(NAMES))
    parser.add_argument("--rows", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=5, help="calls")
    options = parser.parse_args()
    for name in options.names:
        print(table(name, options.rows, options.repeat))


if __name__ == "__main__":
    main()
