"""What the fuzzers of readers share: mutation, what must hold of a module that was read, rounds reproducible by number."""

from __future__ import annotations

import random
import re
import sys
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import hlokit as hk
from hlokit.analysis.cost import cost_of_module
from hlokit.judge.fuzz.values import arguments
from hlokit.text.printer import PrintOptions
from tests.fuzz.machine_code import wrong
from tests.golden.check import CaseTimeout, time_limit

T = TypeVar("T", bytes, str)
U = TypeVar("U")

SECONDS_PER_INPUT = 20
MEMORY = 8 << 30
"""Of address space, for the process that reads."""
EXACT = PrintOptions(print_large_constants=True)
_READ_OTHERWISE = re.compile(
    r"E\(\d+\)[^ =]*\} constant\("  # HLAY-8
    r"|\{devices=\[(?:1,)+\d+\][^{}]* last_tile_dims=\{unreduced\}"  # HSHARD-8
)
"""Text that XLA, too, reads otherwise than it prints it."""
MOST_CHARACTERS = 20_000
"""Of an error's message: it names what is wrong, and does not repeat the input."""
_EVALUATED = 1e6
"""Operations and bytes of a module that is run."""
_COMPILED_EVERY = 50
"""One of so many modules that run is compiled too."""
_CONTROL = dict.fromkeys([*range(32), 127, *range(128, 160)], "")
del _CONTROL[ord("\n")], _CONTROL[ord("\t")]


class Broken(AssertionError):
    """A property that does not hold of what was read."""


@dataclass(frozen=True)
class Fuzzer(Generic[T]):
    """What tries one reader.

    known      the inputs to start from
    mutated    (input, another, random numbers) -> what to read
    check      reads it; gives a word for what happened ("read", "refused"). Any exception but HlokitError is a finding
    suffixes   of files that are inputs too; `split` takes such a file's content apart
    """

    known: Callable[[], Sequence[T]]
    mutated: Callable[[T, T, random.Random], T]
    check: Callable[[T], str]
    suffixes: tuple[str, ...] = ()
    split: Callable[[bytes], Sequence[T]] = field(default=lambda data: ())

    def inputs(self, more: Sequence[Path] = ()) -> list[T]:
        """The inputs to start from, with those in `more`: files and folders."""
        found = list(self.known())
        for path in more:
            files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
            for file in files:
                if file.name.endswith(self.suffixes):
                    found += self.split(file.read_bytes())
        return found

    def made(self, known: Sequence[T], seed: int, number: int) -> T:
        """The input of this number."""
        random_ = random.Random(f"{seed}-{number}")
        return self.mutated(random_.choice(known), random_.choice(known), random_)

    def tried(self, data: T) -> tuple[str | None, str]:
        """What is wrong with how `data` is treated, or None; and which way it went."""
        try:
            with time_limit(SECONDS_PER_INPUT), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return None, self._checked(data)
        except CaseTimeout:
            return f"takes more than {SECONDS_PER_INPUT} s", "slow"
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {str(error)[:500]} ({place.filename}:{place.lineno})", "wrong"

    def _checked(self, data: T) -> str:
        try:
            return self.check(data)
        except hk.HlokitError as error:
            text = str(error)
            if len(text) > MOST_CHARACTERS:
                raise Broken(f"an error of {len(text)} characters: {text[:200]}") from None
            if text.translate(_CONTROL) != text:
                raise Broken(f"control characters in an error: {text!r}") from None
            return "unsupported" if isinstance(error, hk.UnsupportedError) else "refused"

    def run(self, seed: int, count: int, seconds: float = float("inf")) -> tuple[list[str], Counter[str]]:
        """Tries so many inputs, or for so long: the failures, and how often what happened."""
        known = self.inputs()
        failures: list[str] = []
        counts: Counter[str] = Counter()
        end = time.monotonic() + seconds
        for number in range(count):
            if time.monotonic() >= end:
                break
            found, way = self.tried(self.made(known, seed, number))
            counts[way] += 1
            if found is not None:
                failures.append(f"seed {seed}, number {number}: {found}")
        return failures, counts


# -- what must hold of a module that was read


def sound(module: hk.HloModule, key: bytes) -> None:
    """It is legal, prints, reads back as what it prints, and runs; `key` says whether it is compiled as well."""
    hk.verify(module)
    module = settled(module)
    text = module.to_text(EXACT)
    again = hk.parse(text)
    if again.to_text(EXACT) != text:
        raise Broken("prints otherwise after reading back")
    run(module, zlib.crc32(key))


def settled(module: hk.HloModule) -> hk.HloModule:
    """The module, or what its text says where that is read otherwise than it was printed."""
    text = module.to_text(EXACT)
    return hk.parse(text) if _READ_OTHERWISE.search(text) else module


def run(module: hk.HloModule, seed: int) -> None:
    """Evaluates a module that is small enough, and compiles one of many. Raises Broken where the values differ."""
    if not _is_small(module):
        return
    values = arguments(module, seed % 1000)
    if seed % _COMPILED_EVERY == 0 and module.replica_count * module.num_partitions == 1:
        found = wrong(module, seed % 1000, donate=False)
        if found:
            raise Broken(f"machine code: {found}")
        return
    try:
        hk.evaluate(module, *values, memory_limit=1 << 28, replicas=1, partitions=1)
    except hk.HlokitError:
        return


_UNBOUNDED = frozenset({"while", "custom-call", "infeed", "recv", "recv-done", "send", "send-done"})
"""Ops that a module may not have that is run: it might not end."""


def _is_small(module: hk.HloModule) -> bool:
    instructions = [i for computation in module.all_computations for i in computation.instructions]
    if len(instructions) > 200 or any(i.opcode in _UNBOUNDED for i in instructions):
        return False
    shapes = [i.shape for i in instructions]
    if any(leaf.is_array and (leaf.is_unbounded or leaf.nbytes > _EVALUATED) for s in shapes for leaf in s.leaves()):
        return False
    cost = cost_of_module(module)
    return cost.flops + cost.transcendentals + cost.bytes_accessed < _EVALUATED


# -- mutation


def edited(
    tokens: list[U], others: list[U], words: Sequence[U], noise: Callable[[], U], random_: random.Random
) -> list[U]:
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


_NUMBERS = [bytes([value]) for value in (0, 1, 2, 3, 4, 5, 7, 0x11, 0x29, 0x40, 0x7F, 0x80, 0x81, 0xFE, 0xFF)]
_NUMBERS += [bytes(8), b"\x00" + b"\xff" * 8, b"\xfe\xff", b"\xf8\xff\xff\xff", b"\x80" + b"\xff" * 7]
_NUMBERS += [b"\xff" * 9 + b"\x01", b"\x80" * 4 + b"\x08", b"\xff" * 4 + b"\x07"]


def edited_bytes(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """`data` after a few random edits: most keep its length, so that lengths and offsets in it stay right."""
    if random_.random() < 0.1:
        return data[: random_.randrange(len(data) + 1)]
    if random_.random() < 0.3 or not data:
        tokens, others = ([whole[i : i + 1] for i in range(len(whole))] for whole in (data, other))
        return b"".join(edited(tokens, others, _NUMBERS, lambda: random_.randbytes(random_.randrange(1, 6)), random_))
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 1, 2, 3, 8))):
        at = random_.randrange(len(changed))
        match random_.randrange(4):
            case 0:
                changed[at] = random_.randrange(256)
            case 1:
                changed[at] ^= 1 << random_.randrange(8)
            case 2:
                changed[at] = (changed[at] + random_.choice((-4, -2, 2, 4))) % 256
            case _:
                number = random_.choice(_NUMBERS)[: len(changed) - at]
                changed[at : at + len(number)] = number
    return bytes(changed)


def noise(random_: random.Random) -> str:
    """A character that most texts do not have."""
    return chr(random_.choice((random_.randrange(128), random_.randrange(0x3000), random_.randrange(0xD800))))


def decoded(data: bytes) -> list[str]:
    """A file's text, if it is one."""
    try:
        return [data.decode()]
    except UnicodeDecodeError:
        return []


def any_of(*values: Any) -> Callable[[], Sequence[Any]]:
    """Inputs that are listed."""
    return lambda: values


UNLIMITED = sys.maxsize
