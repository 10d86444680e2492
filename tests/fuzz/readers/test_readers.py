"""Every reader on changed inputs, some seconds each: the same inputs on each machine (the long version is a command)."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence

import pytest

import hlokit as hk
from tests.fuzz import readers
from tests.fuzz.readers import process
from tests.fuzz.readers.fuzzer import Fuzzer, any_of
from tests.fuzz.readers.process import rounds

SEED = 20260
COUNTS = {
    "hlo_text": 1000,
    "hlo_proto": 250,
    "stablehlo_text": 500,
    "stablehlo_artifact": 500,
    "stablehlo_writer": 300,
    "file": 400,
    "literal": 2000,
    "shape": 3000,
    "program_shape": 3000,
    "sharding": 3000,
    "replica_groups": 3000,
    "compile_options": 3000,
    "executable": 150,
    "cache_entry": 500,
    "command": 40,
}
"""Inputs of each reader: a few seconds' worth."""


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of memory is POSIX's")
@pytest.mark.parametrize("reader", readers.READERS)
def test_every_input_gives_a_result_or_an_error(reader: str) -> None:
    counts, findings = Counter[str](), list[str]()
    for number, found, way in rounds(reader, SEED, COUNTS[reader]):
        counts[way] += 1
        if found:
            findings.append(f"--reader {reader} --seed {SEED} --show {number}: {found}")
    assert not findings
    assert counts.total() == COUNTS[reader]
    assert counts["read"] and counts["refused"]


def _check(text: str) -> str:
    match text:
        case "crash":
            os.abort()
        case "hang":
            signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])  # as code that hears no signals
            time.sleep(600)
        case "memory":
            bytearray(process.MEMORY)
        case "error":
            raise KeyError(text)
        case "escape":
            raise hk.ParseError("\x1b[2J")
        case "long":
            raise hk.ParseError("x" * 10**6)
    return "read"


_INPUTS = ("fine", "crash", "hang", "memory", "error", "escape", "long")


class _InOrder(Fuzzer[str]):
    def made(self, known: Sequence[str], seed: int, number: int) -> str:
        return known[number]


TRIAL = _InOrder(any_of(*_INPUTS), lambda data, other, random: data, _check)


@pytest.mark.skipif(sys.platform == "win32", reason="the limit of memory is POSIX's")
def test_what_goes_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that crashes, hangs, raises or takes too much is found, and the inputs after it are tried."""
    monkeypatch.setenv("HLOKIT_FUZZ_TRIAL", "test_readers:TRIAL")
    monkeypatch.setattr(process, "PATIENCE", 2)
    found = {_INPUTS[number]: (what or "", way) for number, what, way in rounds("trial", 0, len(_INPUTS))}
    assert {name: way for name, (_, way) in found.items()} == {
        "fine": "read", "escape": "refused", "crash": "dead", "hang": "dead", "memory": "wrong", "error": "wrong", "long": "wrong",
    }  # fmt: skip
    assert "status -6" in found["crash"][0] and "MemoryError" in found["memory"][0]
