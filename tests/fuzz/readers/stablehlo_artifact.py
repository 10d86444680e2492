"""StableHLO artifacts: a module that verifies, or ParseError with the number of a byte, or UnsupportedError."""

from __future__ import annotations

from hlokit.errors import ParseError
from hlokit.stablehlo.artifact import parse_artifact
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, edited_bytes, sound
from tests.stablehlo.make_artifacts import recorded


def check(data: bytes) -> str:
    """Reads."""
    try:
        module = parse_artifact(data)
    except ParseError as error:
        if "byte " not in str(error):
            raise Broken(f"an error without a byte: {error}") from None
        raise
    sound(module, data)
    return "read"


def artifacts() -> list[bytes]:
    """The recorded artifacts."""
    return [data for record in recorded() for data in record["artifacts"].values()]


FUZZER = Fuzzer(artifacts, edited_bytes, check, (".mlirbc", ".bc", ".mlir.bc"), lambda data: [data])
