"""JAX's exported programs (`jax.export`, `Exported.serialize`): the StableHLO artifact in the flatbuffer.

The schema is JAX's (jax/_src/export/serialization.fbs). A table of a flatbuffer says in its vtable where each of its
fields is; bytes are untrusted, and an offset that leads elsewhere makes them no exported program.
"""

from __future__ import annotations

_MODULE = 13
"""The number of the field `mlir_module_serialized` in the root table."""
_BYTECODE = b"ML\xefR"


def artifact_of(data: bytes) -> bytes | None:
    """The artifact in the bytes of `Exported.serialize()`; None if they are something else."""
    root = _number(data, 0, 4)
    table = root - _number(data, root, 4, signed=True)  # of where the fields are
    if root < 4 or table < 4 or _number(data, table, 2) < 4 + 2 * (_MODULE + 1):
        return None
    field = _number(data, table + 4 + 2 * _MODULE, 2)
    if not field:
        return None
    vector = root + field + _number(data, root + field, 4)
    artifact = data[vector + 4 : vector + 4 + _number(data, vector, 4)]
    return artifact if artifact.startswith(_BYTECODE) else None


def _number(data: bytes, position: int, size: int, *, signed: bool = False) -> int:
    """The little-endian number of so many bytes; 0 beyond the end."""
    content = data[position : position + size] if position >= 0 else b""
    return int.from_bytes(content, "little", signed=signed) if len(content) == size else 0
