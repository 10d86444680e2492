"""The whole JAX programs in parts, with random shardings of parameters: python -m tests.partition.programs [NAME...].

Their recorded outputs are the witness, with their tolerances. Each runs on meshes of 2, 4 and 8 devices.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator

import numpy as np

import hlokit as hk
from hlokit.judge.fuzz.shardings import random_sharding
from hlokit.types.mesh import Mesh
from tests.golden.check import Mismatch
from tests.golden.compare import compare_outputs
from tests.golden.player import flatten
from tests.golden.programs import BUNDLED, program_names, read_program

MESHES = (Mesh((("a", 2),)), Mesh((("a", 2), ("b", 2))), Mesh((("a", 2), ("b", 4))))
"""The meshes that each program is partitioned for."""


def compared(name: str, mesh: Mesh, seed: int = 0) -> Counter[str]:
    """Runs a program in parts, compiled, against what was recorded; the kinds of reasons, ops on whole values by name.

    Raises Mismatch for other outputs.
    """
    recorded = read_program(BUNDLED, name)
    module = hk.parse(recorded.hlo)
    chance = random.Random(f"{name} {mesh.size} {seed}")
    for parameter in module.entry.parameters:
        if parameter.shape.is_array and chance.random() < 0.7:
            parameter.ensure_extra().sharding = random_sharding(chance, mesh, parameter.shape.rank)
    found = hk.partition(module, mesh)
    with np.errstate(all="ignore"):
        joined = found.join(hk.compile(found.module)(*found.split(*recorded.inputs)))
    problem = compare_outputs(flatten(joined), recorded.outputs, recorded.tolerance, recorded.inputs)
    if problem is not None:
        raise Mismatch(problem)
    return Counter(f"whole {r.opcode}" if r.kind == "whole" else r.kind for r in found.reasons)


def names(given: list[str]) -> Iterator[str]:
    """The programs of these names, or all."""
    yield from given or program_names(BUNDLED)


def main() -> None:
    failed = 0
    total: Counter[str] = Counter()
    for name in names(sys.argv[1:]):
        for mesh in MESHES:
            try:
                found = compared(name, mesh)
            except Exception as error:
                failed += 1
                print(f"{name} on {mesh.size}: {type(error).__name__}: {str(error)[:300]}")
            else:
                total += found
                print(f"{name} on {mesh.size}: equal; {', '.join(f'{k} {n}' for k, n in found.most_common())}")
    print(f"{failed} failed;", ", ".join(f"{k} {n}" for k, n in total.most_common()))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
