"""HLO text: bytes are a module or a ParseError with line and label; what is read prints, and reads back the same."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from hlokit.errors import ParseError
from hlokit.hlo.compare import same_module
from hlokit.text.findings import findings
from hlokit.text.parser import parse_hlo
from tests.fuzz.readers.fuzzer import EXACT, Broken, Fuzzer, edited, settled, sound
from tests.text.witness import read_bundle

_TOKEN = re.compile(rb"[A-Za-z_%][\w.\-]*|-?[0-9][\w.\-]*|\s+|.", re.DOTALL)
_WORDS = (
    b"0 -1 1 2 3 4 9223372036854775807 -9223372036854775808 18446744073709551615 1e400 -nan nan(0x1) inf -0 { } "
    b"( ) [ ] , = : %x x ROOT ENTRY HloModule f32[] f32[2]{0} f32[1000000000000000000] s1 u8 pred[] token[] "
    b"opaque[] (f32[]) b(f32[2]) <=4 ? ... -> /* */ // \" ' \\ parameter constant tuple get-tuple-element while "
    b"conditional call fusion custom-call to_apply= dimensions={0} dimensions={0,0} metadata={ "
    b"sharding={replicated} backend_config= {...} replica_groups=[2,2]<=[4] window={size=2x2} slice={[0:1]} "
    b"padding=1_1 async-start add-start add-done f8e4m3fn[3] c64[] bf16[?] \r\n \xef\xbb\xbf \x00 \x1b[2J"
).split(b" ")


def mutated(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """`data` after a few random edits, some with parts of `other`."""

    def noise() -> bytes:
        return bytes(random_.randrange(256) for _ in range(random_.randrange(1, 6)))

    return b"".join(edited(_TOKEN.findall(data), _TOKEN.findall(other), _WORDS, noise, random_))


def check(data: bytes) -> str:
    """Reads; what was read is compared with what its text says."""
    try:
        module = parse_hlo(data)
    except ParseError as error:
        if not (error.line and error.label and str(error)):
            raise Broken(f"an error without line or label: {error}") from None
        if len(data) < 1 << 16 and "UTF-8" not in str(error):
            _check_findings(data.decode(), error)
        raise
    module = settled(module)
    text = module.to_text(EXACT)
    again = parse_hlo(text)
    difference = same_module(module, again)
    if difference is not None and not _is_async_wrapper(difference):
        raise Broken(f"read back otherwise: {difference}")
    if again.to_text(EXACT) != text:
        raise Broken("prints otherwise after reading back")
    if len(data) < 1 << 16:
        sound(module, data)
    return "read"


def _check_findings(text: str, error: ParseError) -> None:
    """All that is wrong with a text is at least what the parser ends with."""
    found = findings(text)
    if not any(finding.line and finding.line <= error.line for finding in found):
        raise Broken(f"the findings lack the error: {error}") from None


def _is_async_wrapper(difference: str) -> bool:
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


def texts() -> list[bytes]:
    """The bundled texts."""
    return [text.encode() for _, text, _ in read_bundle()]


def known() -> list[bytes]:
    """The bundled texts, and one of a megabyte."""
    found = texts()
    return [*found, large_text(found)]


FUZZER = Fuzzer(known, mutated, check, (".hlo", ".hlo.txt"), lambda data: [data])
