"""Shardings as XLA's OpSharding, and messages written field by field."""

from __future__ import annotations

from typing import Any

from hlokit.interop.pjrt.options import varint
from hlokit.types.sharding import Sharding

_KINDS = {"replicated": 0, "maximal": 1, "tuple": 2, "tiled": 3, "manual": 4, "unknown": 5, "unreduced": 6}


def known(sharding: Sharding | None) -> Sharding:
    """The sharding, or that of a value that every device has whole."""
    return sharding or Sharding("replicated")


def sharding_proto(sharding: Sharding) -> bytes:
    """The sharding as the bytes of XLA's OpSharding."""
    out = number(1, _KINDS[sharding.kind])
    if sharding.kind == "maximal":
        out += numbers(3, [1]) + numbers(4, [sharding.device])
    if sharding.kind == "tiled":
        out += numbers(3, sharding.tile) + numbers(4, sharding.device_ids())
        out += number(6, int(sharding.replicate_last))
        out += numbers(8, [_KINDS[name] for name in sharding.last_tile_dims])
    return out + b"".join(message(5, sharding_proto(element)) for element in sharding.elements)


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def numbers(field: int, values: Any) -> bytes:
    return message(field, b"".join(map(varint, values))) if values else b""


def message(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data
