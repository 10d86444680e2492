"""Checks random programs of JAX: python -m tests.jax.random.run --count 100 --seed 0 [--operations | --compositions].

Each seed draws a composition of JAX's functions on large arrays (compositions.py) and a single operation (operations.py).
Both run on the platform hlokit and on JAX's CPU client; where results differ, the reference interpreter decides which of
them is wrong. Prints a line for each finding, with the seed that shows it, and for each error or difference of XLA
alone, which is not a finding; then counts. Exit status 1 if there is a finding. `--show SEED` prints that seed's programs.
"""

# JAX's annotations leave parts of its types open.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import jax

from tests.fuzz.run import raised
from tests.jax.random.compare import Kind, Outcome, compare, stablehlo
from tests.jax.random.compositions import random_composition
from tests.jax.random.operations import KINDS, random_operation
from tests.jax.random.program import Program

CACHED = 20
"""The number of compiled programs that JAX may keep in memory before its caches are cleared."""

Draws = dict[str, Callable[[int], Program]]
"""Functions that draw the program of a seed, by the name of what they draw."""


def draws_of(options: argparse.Namespace) -> Draws:
    """The functions that the options select."""
    found: Draws = {}
    if not options.operations and not options.kinds:
        found["composition"] = partial(random_composition, elements=options.elements)
    if not options.compositions:
        found["operation"] = partial(random_operation, kinds=options.kinds or tuple(KINDS))
    return found


def checked(draw: Callable[[int], Program], seed: int) -> Outcome:
    """The comparison of a seed's program. A draw that fails counts as a finding, though the fault is in tests.jax.random."""
    try:
        return compare(draw(seed))
    except Exception as error:
        return Outcome(Kind.FINDING, raised(error))


def shown(name: str, program: Program) -> str:
    """The description of the program, as comments, and its StableHLO."""
    comments = [f"// {line}" for line in (name, *program.description.splitlines())]
    return "\n".join([*comments, stablehlo(program)])


def summary(done: Counter[str], outcomes: Counter[Kind], seconds: float) -> str:
    programs = [f"{count} {name}s" for name, count in done.items()]
    ends = [f"{outcomes[kind]} {kind}" for kind in Kind if kind is not Kind.AGREE]
    return ", ".join([*programs, *ends, f"{seconds:.1f} s"])


def kinds_in(text: str) -> tuple[str, ...]:
    """The kinds of operations that the text names."""
    kinds = tuple(text.split(","))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(KINDS)}")
    return kinds


def options_in(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.jax.random.run", description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="seeds")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so many")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--compositions", action="store_true", help="no operations")
    chosen.add_argument("--operations", action="store_true", help="no compositions")
    chosen.add_argument("--kinds", type=kinds_in, metavar="KIND,...", help=f"operations of {', '.join(KINDS)} only")
    parser.add_argument("--elements", type=int, default=2_000_000, help="the largest size of a composition's argument")
    parser.add_argument("--verbose", action="store_true", help="print each seed first, to see in which the process crashes")
    parser.add_argument("--show", type=int, metavar="SEED")
    options = parser.parse_args(arguments)
    if options.elements < 1:
        parser.error("--elements is at least 1")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_in(arguments)
    jax.config.update("jax_platforms", "hlokit,cpu")
    jax.config.update("jax_enable_x64", True)
    draws = draws_of(options)
    if options.show is not None:
        for name, draw in draws.items():
            print(shown(f"{name} {options.show}", draw(options.show)))
        return 0
    start, done, outcomes = time.perf_counter(), Counter(dict.fromkeys(draws, 0)), Counter[Kind]()
    for seed in range(options.seed, options.seed + options.count):
        if time.perf_counter() - start > options.seconds:
            break
        for name, draw in draws.items():
            if options.verbose:
                print(f"# {name} {seed}", flush=True)
            outcome = checked(draw, seed)
            if outcome.found:
                print(f"{name} {seed}: {outcome.found}", flush=True)
            done[name] += 1
            outcomes[outcome.kind] += 1
            if done.total() % CACHED == 0:
                jax.clear_caches()
    print(summary(done, outcomes, time.perf_counter() - start))
    return 1 if outcomes[Kind.FINDING] else 0


if __name__ == "__main__":
    sys.exit(main())
