"""Files of every kind that hold a program, and starts of some that hold none: bytes that are told apart by content."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import hlokit as hk
from hlokit.files.reading import snapshot_of_bytes
from hlokit.proto.module import hlo_proto
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, edited_bytes, sound

_DATA = Path(__file__).parents[2] / "data/files"
_OTHERS = (
    b"digraph G {\n}",
    b"BufferAssignment:\n",
    b"\x7fELF\2\1\1",
    b"PK\3\4",
    b"\x08\1\x12\3cpu",
    b"",
    b"#!/bin/sh\n",
)


def _files() -> list[bytes]:
    recorded = [path.read_bytes() for path in sorted(_DATA.iterdir())]
    module = hk.parse("HloModule m\nENTRY e { x = f32[2] parameter(0)\n ROOT r = f32[2] negate(x) }")
    made = [hlo_proto(module), str(module).encode(), *_OTHERS]
    return [*recorded, *made, *(gzip.compress(data, mtime=0) for data in (recorded[0], made[1]))]


def _mutated(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """Compressed data are changed as they are, or before they are compressed."""
    if data.startswith(b"\x1f\x8b") and random_.random() < 0.7:
        return gzip.compress(edited_bytes(gzip.decompress(data), other, random_), mtime=0)
    return edited_bytes(data, other, random_)


def check(data: bytes) -> str:
    """Reads the module; if there are arguments, those too."""
    module = hk.parse(data)
    sound(module, data)
    snapshot = snapshot_of_bytes(data)
    if snapshot is not None and str(snapshot.module) != str(module):
        raise Broken("a snapshot of another module")
    return "read"


FUZZER = Fuzzer(_files, _mutated, check, (".pb", ".gz", ".bin"), lambda data: [data])
