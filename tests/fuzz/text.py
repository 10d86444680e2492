"""Fuzzing of the HLO text parser: python -m tests.fuzz.text [--golden DIR] [--seconds N] [--seed S].

Mutates HLO texts at random. Whatever the bytes are, parse_hlo must give a module or raise ParseError, in bounded time
and memory; what it accepts must print, and read back as the same module. Prints the seed and each failing text's
place; exit status 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from hlokit.errors import ParseError
from hlokit.hlo.compare import same_module
from hlokit.text.parser import parse_hlo
from hlokit.text.printer import PrintOptions
from tests.golden.check import CaseTimeout, time_limit
from tests.text.witness import golden_texts, read_bundle

T = TypeVar("T")

SECONDS_PER_TEXT = 20
MEMORY = 8 << 30
EXACT = PrintOptions(print_large_constants=True)

_TOKEN = re.compile(rb"[A-Za-z_%][\w.\-]*|-?[0-9][\w.\-]*|\s+|.", re.DOTALL)
_WORDS = (
    b"0 -1 1 2 3 4 9223372036854775807 -9223372036854775808 18446744073709551615 1e400 -nan nan(0x1) inf -0 { } "
    b"( ) [ ] , = : %x x ROOT ENTRY HloModule f32[] f32[2]{0} f32[1000000000000000000] s1 u8 pred[] token[] "
    b"opaque[] (f32[]) b(f32[2]) <=4 ? ... -> /* */ // \" ' \\ parameter constant tuple get-tuple-element while "
    b"conditional call fusion custom-call to_apply= dimensions={0} dimensions={0,0} metadata={ "
    b"sharding={replicated} backend_config= {...} replica_groups=[2,2]<=[4] window={size=2x2} slice={[0:1]} "
    b"padding=1_1 async-start add-start add-done f8e4m3fn[3] c64[] bf16[?]"
).split(b" ")


def mutated(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """`data` after a few random edits, some with parts of `other`."""

    def noise() -> bytes:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(1, 6)))

    return b"".join(edited(_TOKEN.findall(data), _TOKEN.findall(other), _WORDS, noise, random_))


def edited(
    tokens: list[T], others: list[T], words: Sequence[T], noise: Callable[[], T], random_: random.Random
) -> list[T]:
    """The tokens after a few random edits: parts cut out, said again, or replaced by words, noise or parts of others."""
    for _ in range(random_.choice((1, 1, 2, 3, 8))):
        at = random_.randrange(len(tokens) + 1)
        end = min(len(tokens), at + random_.choice((0, 1, 1, 2, 5, 40)))
        match random_.randrange(7):
            case 0:
                tokens[at:end] = []
            case 1:
                tokens[at:end] = tokens[at:end] * random_.choice((2, 2, 3, 50))
            case 2:
                tokens[at:end] = [random_.choice(words)]
            case 3:
                tokens[at:at] = [random_.choice(words)]
            case 4:
                tokens[at:end] = [noise()]
            case 5:
                tokens[at:end] = [random_.choice(tokens or words)]
            case _:
                start = random_.randrange(len(others) + 1)
                tokens[at:end] = others[start : start + random_.choice((1, 5, 30))]
    return tokens


def check(data: bytes) -> str | None:
    """What is wrong with how `data` is treated, or None. Also which way it went: "read", "refused"."""
    try:
        with time_limit(SECONDS_PER_TEXT):
            return _check(data)
    except CaseTimeout:
        return f"takes more than {SECONDS_PER_TEXT} s"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _check(data: bytes) -> str | None:
    try:
        module = parse_hlo(data)
    except ParseError as error:
        return None if error.line and error.label and str(error) else f"an error without line or label: {error}"
    text = module.to_text(EXACT)
    again = parse_hlo(text)
    difference = same_module(module, again)
    if difference is not None and not is_async_wrapper(difference):
        return f"read back otherwise: {difference}"
    return None if again.to_text(EXACT) == text else "prints otherwise after reading back"


def is_async_wrapper(difference: str) -> bool:
    """The short form of async ops forgets names and metadata of the wrapped computation (HASYNC-3)."""
    return "async_" in difference or difference.startswith("number of computations")


def large_text(texts: Sequence[bytes], size: int = 1 << 20) -> bytes:
    """A text of about `size` bytes: those of the texts that are one computation, one after the other."""
    single = [
        text
        for text in texts
        if text.count(b"\n}") == 1 and text.startswith(b"HloModule") and text.count(b"parameter(0)") < 2
    ]
    bodies: list[bytes] = []
    total = 0
    while total < size:
        body = single[len(bodies) % len(single)].partition(b"ENTRY ")[2]
        bodies.append(b"computation_%d%s" % (len(bodies), body[body.index(b" ") :]))
        total += len(bodies[-1])
    return b"HloModule large\n" + b"\n".join(bodies)


def run(texts: Sequence[bytes], seed: int, seconds: float, count: int = sys.maxsize) -> tuple[list[str], Counter[str]]:
    """Fuzzes for a time or a number of texts: the failures, and figures."""
    failures: list[str] = []
    counts: Counter[str] = Counter()
    end = time.monotonic() + seconds
    large = large_text(texts)
    number = 0
    while number < count and time.monotonic() < end:
        random_ = random.Random(f"{seed}-{number}")
        source = large if number % 200 == 199 else random_.choice(texts)
        data = mutated(source, random_.choice(texts), random_)
        wrong = check(data)
        counts["texts"] += 1
        counts["large"] += source is large
        if wrong is not None:
            failures.append(f"seed {seed}, number {number}: {wrong}")
        number += 1
    return failures, counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.text", description=__doc__)
    parser.add_argument(
        "--golden", type=Path, metavar="DIR", help="texts of all golden cases (default: the bundled ones)"
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print the text of this number and what comes of it")
    options = parser.parse_args(arguments)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    pairs = golden_texts(options.golden) if options.golden else ((name, text) for name, text, _ in read_bundle())
    texts = [text.encode() for _, text in pairs]
    if options.show is not None:
        random_ = random.Random(f"{seed}-{options.show}")
        source = large_text(texts) if options.show % 200 == 199 else random_.choice(texts)
        data = mutated(source, random_.choice(texts), random_)
        print(data.decode(errors="backslashreplace"), check(data), sep="\n----\n")
        return 0
    print(f"seed {seed}")
    failures, counts = run(texts, seed, options.seconds)
    for failure in failures[:50]:
        print(failure)
    print(f"{counts['texts']} texts ({counts['large']} large), {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
