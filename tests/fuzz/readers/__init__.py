"""Fuzzers of everything that reads what others wrote: python -m tests.fuzz.readers --reader hlo_text --seconds 3600.

Inputs are known ones, changed at random; each is told by a seed and a number. Whatever it is, the reader gives a result
or a HlokitError, in bounded time and memory; a program that was read verifies, prints, reads back as what it prints,
and, if small, runs, compiled as interpreted. Readers work in a process of their own: one that crashes or hangs is a
finding, and the next input goes on.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from tests.fuzz.readers.fuzzer import Fuzzer

READERS = {
    "hlo_text": "hlo_text:FUZZER",
    "hlo_proto": "hlo_proto:FUZZER",
    "stablehlo_text": "stablehlo_text:FUZZER",
    "stablehlo_artifact": "stablehlo_artifact:FUZZER",
    "stablehlo_writer": "stablehlo_writer:FUZZER",
    "file": "files:FUZZER",
    "literal": "parts:LITERAL",
    "shape": "parts:SHAPE",
    "program_shape": "parts:PROGRAM_SHAPE",
    "sharding": "parts:SHARDING",
    "replica_groups": "parts:GROUPS",
    "compile_options": "binaries:OPTIONS",
    "executable": "binaries:EXECUTABLE",
    "cache_entry": "binaries:CACHE",
    "command": "command:FUZZER",
}
"""Reader -> where its Fuzzer is."""


def fuzzer(reader: str) -> Fuzzer[Any]:
    """The reader's Fuzzer. HLOKIT_FUZZ_TRIAL has the place of one more, `trial`: a test's."""
    place = READERS.get(reader) or os.environ["HLOKIT_FUZZ_TRIAL"]
    module, _, name = place.partition(":")
    return getattr(import_module(f"tests.fuzz.readers.{module}"), name)
