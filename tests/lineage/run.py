"""Checks lineage on many programs: python -m tests.lineage.run [--random 1000] [--bench]."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import hlokit as hk
from hlokit.cpu.compiler import PIPELINE
from hlokit.judge.fuzz.graph import Options
from hlokit.judge.fuzz.programs import random_module
from hlokit.judge.fuzz.values import arguments
from tests.golden.programs import BUNDLED, program_names, read_program
from tests.lineage import EXACT, complete, wrong


def programs(count: int) -> Iterator[tuple[str, hk.HloModule, Sequence[Any]]]:
    """The recorded programs, then random ones."""
    for name in program_names(BUNDLED):
        recorded = read_program(BUNDLED, name)
        yield name, hk.parse(recorded.hlo), recorded.inputs
    for seed in range(count):
        module = random_module(seed, Options(instructions=12))
        yield f"random {seed}", module, arguments(module, seed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--random", type=int, default=1000)
    parser.add_argument("--bench", action="store_true")
    given = parser.parse_args()
    bad, skipped, counts, largest = 0, 0, list[int](), list[tuple[int, str]]()

    def measured(name: str, module: hk.HloModule) -> None:
        optimised = hk.optimize(module, PIPELINE, lineage=True)
        assert optimised.lineage is not None
        nonlocal bad
        for one in complete(optimised):
            bad += 1
            print(f"{name}: {one} has no origin")
        sizes = optimised.lineage.sizes()
        counts.extend(sizes.values())
        largest.extend((n, f"{name} {i.opcode} {i.name}") for i, n in list(sizes.items())[:3])

    for name, module, inputs in programs(given.random):
        try:
            found = wrong(module, EXACT, inputs)
            measured(name, module)
        except hk.HlokitError as error:
            skipped += 1
            print(f"{name}: skipped: {str(error)[:120]}")
            continue
        bad += len(found)
        for line in found:
            print(f"{name}: {line}")
    if given.bench:
        from bench.lower import FOLDER, stored_text

        for path in sorted(FOLDER.glob("*.hlo.gz")):
            name = path.name.removesuffix(".hlo.gz")
            measured(name, hk.parse(stored_text(name)))
    print(f"{len(counts)} instructions, {bad} wrong, {skipped} programs skipped; origins: median", end=" ")
    print(f"{statistics.median(counts)}, mean {statistics.fmean(counts):.2f}; the most:")
    for n, where in sorted(largest, reverse=True)[:10]:
        print(f"  {n:5} {where}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
