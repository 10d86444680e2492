"""Random programs in parts on processes: mpirun -n 4 python -m tests.partition.campaign_mpi --count 1000.

Every rank partitions the programs of campaign.py whose meshes have as many devices as there are ranks, runs its part
under MPI, and compares its result, bit for bit, with what threads give the device of its number.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

import hlokit as hk
from hlokit.passes.partitioner import partition
from tests.partition.campaign import NETWORKS, program


def arrays(value: Any) -> list[Any]:
    """The arrays of a result."""
    return [leaf for element in value for leaf in arrays(element)] if isinstance(value, tuple) else [value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    world = hk.mpi_world()
    seed, done, wrong = given.seed, 0, 0
    while done < given.count:
        module, mesh, arguments, _ = program(seed)
        seed += 1
        if mesh.size != world.size:
            continue
        try:
            found = partition(module, mesh, network=NETWORKS[seed % len(NETWORKS)])
        except hk.UnsupportedError:
            continue
        parts = found.split(*arguments)
        with np.errstate(all="ignore"):
            got = hk.evaluate(found.module, *parts[world.rank], world=world)
            want = hk.evaluate(found.module, *parts)[world.rank]
        pairs = zip(arrays(got), arrays(want), strict=True)
        done += 1
        if any(b is not None and a.tobytes() != b.tobytes() for a, b in pairs):
            wrong += 1
            print(f"rank {world.rank}, seed {seed - 1}: other bits than on threads")
    print(f"rank {world.rank}: {done} programs, {wrong} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
