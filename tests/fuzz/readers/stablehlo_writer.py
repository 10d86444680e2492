"""StableHLO text to a portable artifact: what is written is read as the module that the text is, or a HlokitError."""

from __future__ import annotations

import zlib

import hlokit as hk
from hlokit.errors import HlokitError, ParseError
from hlokit.hlo.compare import same_module
from hlokit.stablehlo.artifact import parse_artifact
from hlokit.stablehlo.lowering import UnknownSizes
from tests.fuzz.readers.fuzzer import Broken, Fuzzer
from tests.fuzz.readers.stablehlo_text import FUZZER as TEXTS
from tests.fuzz.readers.stablehlo_text import parsed

_VERSIONS = ("0.9.0", "0.12.0", "0.14.0", "1.0.0", "1.17.0", "1.20.0")


def check(text: str) -> str:
    """The version is chosen by the text."""
    version = _VERSIONS[zlib.crc32(text.encode(errors="surrogatepass")) % len(_VERSIONS)]
    try:
        expected = parsed(text)
    except HlokitError:
        hk.to_stablehlo_artifact(text, version)
        return "written"
    try:
        data = hk.to_stablehlo_artifact(text, version)
    except ParseError as error:
        if "types for" in str(error):  # the reader finds out types that are left out
            raise
        raise Broken(f"version {version}: text that is read is not written: {error}") from None
    try:
        found = parse_artifact(data)
    except UnknownSizes:
        found = parse_artifact(data, [p.shape for p in expected.entry.parameters])
    difference = same_module(_plain(expected), _plain(found), names=False)
    if difference is not None:
        raise Broken(f"version {version}: what is read is another module: {difference}")
    return "read"


def _plain(module: hk.HloModule) -> hk.HloModule:
    """Without places, of which an artifact keeps less."""
    for instruction in module.instructions():
        if instruction.extra is not None:
            instruction.extra.metadata = None
    return module


FUZZER = Fuzzer(TEXTS.known, TEXTS.mutated, check, TEXTS.suffixes, TEXTS.split)
