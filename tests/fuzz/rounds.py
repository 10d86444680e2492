"""What the fuzzers of StableHLO's readers share: rounds for a time, each reproducible by its number, and the command."""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tests.fuzz.text import MEMORY

T = TypeVar("T", bytes, str)


class Fuzzer(Generic[T]):
    """`known`: what to start from; `mutated(data, other, random)`; `check`: (what is wrong or None, what happened)."""

    def __init__(
        self,
        known: Callable[[], list[T]],
        mutated: Callable[[T, T, random.Random], T],
        check: Callable[[T], tuple[str | None, str]],
    ) -> None:
        self.known, self.mutated, self.check = known, mutated, check

    def run(self, seed: int, seconds: float, count: int = sys.maxsize) -> tuple[list[str], Counter[str]]:
        """Fuzzes for a time or a number of inputs: the failures, and how often what happened."""
        known = self.known()
        failures: list[str] = []
        counts: Counter[str] = Counter()
        end = time.monotonic() + seconds
        number = 0
        while number < count and time.monotonic() < end:
            wrong, way = self.check(self.made(known, seed, number))
            counts[way] += 1
            if wrong is not None:
                failures.append(f"seed {seed}, number {number}: {wrong}")
            number += 1
        return failures, counts

    def made(self, known: Sequence[T], seed: int, number: int) -> T:
        """The input of this number."""
        random_ = random.Random(f"{seed}-{number}")
        return self.mutated(random_.choice(known), random_.choice(known), random_)

    def main(self, program: str, about: str | None) -> int:
        parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about)
        parser.add_argument("--seconds", type=float, default=60)
        parser.add_argument("--seed", type=int, default=None)
        parser.add_argument("--show", type=int, metavar="NUMBER", help="print this input and what comes of it")
        options = parser.parse_args()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
        if options.show is not None:
            data = self.made(self.known(), seed, options.show)
            print(data, self.check(data), sep="\n----\n")
            return 0
        print(f"seed {seed}")
        failures, counts = self.run(seed, options.seconds)
        print("\n".join(failures[:50]))
        print(f"{counts.total()} inputs, {dict(counts)}, {len(failures)} failures")
        return 1 if failures else 0
