"""Fuzzing of the reader of artifacts: python -m tests.fuzz.artifact [--seconds N] [--seed S] [--show NUMBER].

Mutates the recorded artifacts at random. Whatever the bytes are, parse_artifact must give a module that verifies or
raise ParseError (with the number of a byte) or UnsupportedError, in bounded time and memory. Prints the seed and each
failure.
"""

from __future__ import annotations

import random
import sys
import traceback

from hlokit.errors import ParseError, UnsupportedError
from hlokit.hlo.verifier import verify
from hlokit.stablehlo.artifact import parse_artifact
from tests.fuzz.rounds import Fuzzer
from tests.fuzz.text import SECONDS_PER_TEXT, edited
from tests.golden.check import CaseTimeout, time_limit
from tests.stablehlo.make_artifacts import recorded

_NUMBERS = [bytes([value]) for value in (0, 1, 2, 3, 4, 5, 7, 0x11, 0x29, 0x40, 0x7F, 0x80, 0x81, 0xFE, 0xFF)]
_NUMBERS += [bytes(8), b"\x00" + b"\xff" * 8, b"\xfe\xff", b"\xf8\xff\xff\xff", b"\x80" + b"\xff" * 7]


def mutated(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """`data` after a few random edits: most keep its length, so that the sections stay where they are."""
    if random_.random() < 0.1:
        return data[: random_.randrange(len(data))]
    if random_.random() < 0.3:
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


def check(data: bytes) -> tuple[str | None, str]:
    """What is wrong with how `data` is treated, or None; and which way it went."""
    try:
        with time_limit(SECONDS_PER_TEXT):
            try:
                module = parse_artifact(data)
            except ParseError as error:
                return (None if "byte " in str(error) else f"an error without a byte: {error}"), "refused"
            except UnsupportedError:
                return None, "unsupported"
            verify(module)
            return None, "read"
    except CaseTimeout:
        return f"takes more than {SECONDS_PER_TEXT} s", "slow"
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {str(error)[:300]} ({place.filename}:{place.lineno})", "wrong"


def artifacts() -> list[bytes]:
    """The recorded artifacts."""
    return [data for record in recorded() for data in record["artifacts"].values()]


FUZZER = Fuzzer(artifacts, mutated, check)

if __name__ == "__main__":
    sys.exit(FUZZER.main("tests.fuzz.artifact", __doc__))
