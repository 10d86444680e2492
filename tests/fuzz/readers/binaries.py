"""Bytes other than programs: compile options of the plugin, its serialized executables, entries of the cache."""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from functools import cache
from pathlib import Path

from hlokit.cpu.jit import cache as caches
from hlokit.cpu.jit.cache import Cache, Key
from hlokit.interop.pjrt import options
from hlokit.interop.pjrt.options import varint
from tests.fuzz.readers import stablehlo_artifact
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, any_of, edited_bytes

# -- compile options


def _field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def _options(replicas: int, partitions: int, *columns: bytes, first: int = -1) -> bytes:
    assignment = b"".join(_field(3, column) for column in columns)
    build = _field(1, first) + _field(4, replicas) + _field(5, partitions) + _field(6, 1)
    return _field(3, build + (_field(9, assignment) if columns else b""))


OPTIONS = Fuzzer(
    any_of(
        _options(1, 1), _options(2, 1), _options(2, 2, _field(1, b"\0\1"), _field(1, b"\2\3")), _options(1, 1, first=3),
        _options(2, 1, _field(1, 1) + _field(1, 0)), b"",
        _options(1, 1) + b"".join(
            _field(7, _field(1, b"xla_cpu_enable_fast_math") + _field(2, value))
            for value in (_field(2, 1), _field(1, b"true"), _field(3, 5), varint(4 << 3 | 1) + bytes(8))
        ),
    ),
    edited_bytes,
    lambda data: "read" if options.parse(data, 4).count <= 4 else "wrong",
)  # fmt: skip


# -- executables of the plugin


def _serialized(code: bytes) -> bytes:
    head = json.dumps({"options": len(_options(1, 1)), "code": len(code)}).encode()
    return b"hlokit 1\n" + head + b"\n" + _options(1, 1) + code


def _executables() -> list[bytes]:
    text = b"module @m { func.func public @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> } }"
    return [_serialized(code) for code in (text, b"", *stablehlo_artifact.artifacts()[:20])]


def _load(data: bytes) -> str:
    from hlokit.interop.pjrt.loaded import load
    from hlokit.interop.pjrt.programs import deserialized

    program = load(deserialized(data, b"")).program
    if not data.endswith(program.serialized_options + program.code):
        raise Broken("an executable of another program")
    return "read"


EXECUTABLE = Fuzzer(_executables, edited_bytes, _load)


# -- the cache

_KEY = Key.of("program", text="a" * 64, opt=2)


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def _entries() -> list[bytes]:
    """Without the digest, which half of what is tried has right."""
    header = {"name": _KEY.name, "created": 1.0, "seconds": 0.5, "parts": _KEY.parts}
    return [
        json.dumps(header).encode() + b"\n" + payload for payload in (b"", b"[2, 3]\nabcde", b"\x7fELF" + bytes(99))
    ]


def _entry(data: bytes, other: bytes, random_: random.Random) -> bytes:
    body = edited_bytes(data, other, random_)
    entry = hashlib.sha256(body).hexdigest().encode() + b"\n" + body
    return entry if random_.random() < 0.5 else edited_bytes(entry, entry, random_)


def _look(data: bytes) -> str:
    cache = Cache(Path(_folder().name))
    assert cache.folder is not None
    path = cache.folder / _KEY.file
    path.write_bytes(data)
    listed = cache.entries()
    why = cache.explain(_KEY)
    found = cache.lookup(_KEY)
    if found is not None and not data.endswith(found):
        raise Broken("a payload that the entry does not have")
    path.write_bytes(data)
    objects = caches.stored_objects(_KEY, cache=cache)
    if objects is not None and b"".join(map(bytes, objects)) not in data:
        raise Broken("objects that the entry does not have")
    if not isinstance(why, str) or len(listed) > 1:
        raise Broken("an entry too many")
    return "refused" if found is None else "read"


CACHE = Fuzzer(_entries, _entry, _look)
