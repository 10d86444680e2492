"""A reader in a process of its own: python -m tests.fuzz.readers.process READER SEED FIRST COUNT [CORPUS...].

It says of each input, in a line of JSON, what happened, before that its number. `rounds` starts it, and again after an
input that ended it.
"""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.fuzz import readers
from tests.fuzz.readers.fuzzer import MEMORY, SECONDS_PER_INPUT

PATIENCE = 3 * SECONDS_PER_INPUT
"""Seconds without a word until a process is taken to hang: inputs are given SECONDS_PER_INPUT, if they can be stopped."""
_START = 120
ROOT = Path(__file__).parents[3]


def rounds(
    reader: str, seed: int, count: int, end: float = float("inf"), corpus: Sequence[Path] = ()
) -> Iterator[tuple[int, str | None, str]]:
    """(number, what is wrong or None, what happened) of inputs 0, 1, ..., until `end` of the monotonic clock."""
    first = 0
    while first < count and time.monotonic() < end:
        command = [sys.executable, "-m", "tests.fuzz.readers.process", reader, str(seed), str(first), str(count)]
        with subprocess.Popen(
            [*command, *map(str, corpus)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            started = -1
            for word in _words(process, end):
                if isinstance(word, int):
                    started = word
                else:
                    yield started, *word
                    first, started = started + 1, -1
            ended = time.monotonic() >= end
            process.wait()
        if started >= 0 and not ended:
            yield started, f"the process ended with status {process.returncode}", "dead"
            first = started + 1
        elif not ended and first < count:
            raise RuntimeError(f"{' '.join(command)}: status {process.returncode} before the first input")


def _words(process: subprocess.Popen[bytes], end: float) -> Iterator[int | tuple[str | None, str]]:
    """What the process says; if it says nothing for too long, it is killed."""
    assert process.stdout is not None
    patience: float = _START
    rest = b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], max(0, min(patience, end - time.monotonic())))
        said = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not said:
            process.kill()
            return
        patience = PATIENCE
        *lines, rest = (rest + said).split(b"\n")
        for line in lines:
            word = json.loads(line)
            yield word if isinstance(word, int) else (word[0], word[1])


def main(reader: str, seed: int, first: int, count: int, corpus: Sequence[Path]) -> None:
    """Tries the inputs from `first` on."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a reader prints is no word of ours
    fuzzer = readers.fuzzer(reader)
    known = fuzzer.inputs(corpus)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    for number in range(first, count):
        data = fuzzer.made(known, seed, number)
        print(number, file=out, flush=True)
        print(json.dumps(fuzzer.tried(data)), file=out, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), [Path(p) for p in sys.argv[5:]])
