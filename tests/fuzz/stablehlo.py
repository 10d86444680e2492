"""Fuzzing of the StableHLO text parser: python -m tests.fuzz.stablehlo [--seconds N] [--seed S] [--show NUMBER].

Mutates the recorded programs at random. Whatever the text is, parse_stablehlo must give a module that verifies or
raise ParseError (with a line) or UnsupportedError, in bounded time and memory. Prints the seed and each failure.
"""

from __future__ import annotations

import argparse
import gzip
import random
import re
import resource
import sys
import time
import traceback
from collections import Counter
from collections.abc import Sequence

from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.verifier import verify
from hlokit.stablehlo.lowering import parse_stablehlo
from tests.fuzz.text import MEMORY, SECONDS_PER_TEXT, edited
from tests.golden.check import CaseTimeout, time_limit
from tests.golden.programs import BUNDLED, STABLEHLO

_TOKEN = re.compile(r"[A-Za-z_%#@!][\w.$\-]*|-?[0-9][\w.\-]*|\s+|.", re.DOTALL)
_WORDS = [
    "0",
    "-1",
    "1",
    "2",
    "9223372036854775807",
    "18446744073709551616",
    "1.0e400",
    "0x7FC00000",
    "true",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    ",",
    "=",
    ":",
    "x",
    "->",
    ":",
    "?",
    "tensor<f32>",
    "tensor<?xf32>",
    "tensor<1000000000000x1000000000000xf32>",
    "tensor<0xi1>",
    "tensor<2x3xi4>",
    "tuple<>",
    "tuple<tensor<f32>>",
    "!stablehlo.token",
    "tensor<*xf32>",
    "complex<f32>",
    "tensor<complex<f32>>",
    "i1",
    "index",
    "none",
    "loc(",
    "#loc",
    "dense<0>",
    "dense<[]>",
    "array<i64:",
    "dense_resource<x>",
    "%0",
    "%arg0",
    "%0#1",
    "@main",
    "#stablehlo<precision",
    "DEFAULT>",
    "%9",
    "^bb0",
    "#stablehlo.gather<offset_dims=[0]>",
    "loc(unknown)",
    "attributes",
    "func.func",
    "module",
    "stablehlo.add",
    "stablehlo.return",
    "return",
    "call",
    "chlo.erf",
    "stablehlo.custom_call",
    "@Qr",
    "stablehlo.dynamic_reshape",
    "stablehlo.get_dimension_size",
    "//",
    '"',
    "\\",
    "stablehlo.tuple",
    "stablehlo.iota",
    "stablehlo.reshape",
    "dim",
    "dims",
    "init",
    "applies",
    "across",
    "sizes",
    "<{",
    "}>",
    "({",
    "})",
]


def mutated(text: str, other: str, random_: random.Random) -> str:
    """`text` after a few random edits, some with parts of `other`."""

    def noise() -> str:
        return chr(random_.choice((random_.randrange(128), random_.randrange(0x3000))))

    return "".join(edited(_TOKEN.findall(text), _TOKEN.findall(other), _WORDS, noise, random_))


def check(text: str) -> tuple[str | None, str]:
    """What is wrong with how `text` is treated, or None; and which way it went."""
    try:
        with time_limit(SECONDS_PER_TEXT):
            try:
                module = parse_stablehlo(text)
            except ParseError as error:
                return (None if error.line and str(error) else f"an error without line: {error}"), "refused"
            except UnsupportedError:
                return None, "unsupported"
            verify(module)
            return None, "read"
    except CaseTimeout:
        return f"takes more than {SECONDS_PER_TEXT} s", "slow"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})", "wrong"


def programs() -> list[str]:
    """The bundled texts."""
    return [gzip.decompress(path.read_bytes()).decode() for path in sorted(BUNDLED.glob(f"*{STABLEHLO}.gz"))]


def run(seed: int, seconds: float, count: int = sys.maxsize) -> tuple[list[str], Counter[str]]:
    """Fuzzes for a time or a number of texts: the failures, and how often what happened."""
    texts = [text for text in programs() if len(text) < 20_000]
    failures: list[str] = []
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    number = 0
    while number < count and time.monotonic() < end:
        wrong, way = check(made(texts, seed, number))
        counts[way] += 1
        if wrong is not None:
            failures.append(f"seed {seed}, number {number}: {wrong}")
        number += 1
    return failures, counts


def made(texts: Sequence[str], seed: int, number: int) -> str:
    """The text of this number."""
    random_ = random.Random(f"{seed}-{number}")
    return mutated(random_.choice(texts), random_.choice(texts), random_)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.stablehlo", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print the text of this number and what comes of it")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    if options.show is not None:
        text = made([text for text in programs() if len(text) < 20_000], seed, options.show)
        print(text, check(text), sep="\n----\n")
        return 0
    print(f"seed {seed}")
    failures, counts = run(seed, options.seconds)
    print("\n".join(failures[:50]))
    print(f"{counts.total()} texts, {dict(counts)}, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
