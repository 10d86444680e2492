"""The command; what it does is said in __init__.py. Exit status 1 if there is a finding."""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
from collections import Counter
from pathlib import Path

from tests.fuzz import readers
from tests.fuzz.readers.fuzzer import MEMORY, UNLIMITED
from tests.fuzz.readers.process import rounds


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.readers", description=readers.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--reader", choices=[*readers.READERS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=60, help="for each reader")
    parser.add_argument("--count", type=int, default=UNLIMITED, help="inputs for each reader")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--corpus", type=Path, nargs="*", default=[], help="files and folders of more inputs")
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print this input and what comes of it")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    names = list(readers.READERS) if options.reader == "all" else [options.reader]
    if options.show is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        one = readers.fuzzer(names[0])
        data = one.made(one.inputs(options.corpus), seed, options.show)
        print(data if isinstance(data, str) else data.decode(errors="backslashreplace"))
        print("----", one.tried(data), sep="\n")
        return 0
    bad = 0
    for name in names:
        counts, failures = Counter[str](), 0
        end = time.monotonic() + options.seconds
        for number, found, way in rounds(name, seed, options.count, end, options.corpus):
            counts[way] += 1
            if found is not None:
                failures += 1
                print(f"{name} --seed {seed} --show {number}: {found}", flush=True)
        print(f"{name}: seed {seed}, {counts.total()} inputs, {dict(counts)}, {failures} findings", flush=True)
        bad += failures
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
