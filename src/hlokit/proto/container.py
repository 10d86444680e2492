"""Messages that contain a module: recognises the kind of a message, and reads the module.

XLA's dumps hold a HloProto (`.hlo.pb`), a HloSnapshot (`.snapshot.N.pb`: with the arguments and the result of a call),
or a HloUnoptimizedSnapshot (`.hlo_unoptimized_snapshot.pb`: with the arguments of each device); jaxlib gives a
HloModuleProto alone. The content distinguishes them: the first field is a different message for each, or a name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hlokit.errors import ParseError
from hlokit.proto.schema import message_class
from hlokit.proto.wire import NotAMessage, first, is_message, varint

_OPCODE = re.compile(rb"[a-z][a-z0-9-]*")
_MODULE, _HLO, SNAPSHOT, _UNOPTIMIZED = "HloModuleProto", "HloProto", "HloSnapshot", "HloUnoptimizedSnapshot"
CLASSES = {_MODULE: "Module", _HLO: "HloProto", SNAPSHOT: "HloSnapshot", _UNOPTIMIZED: "HloUnoptimizedSnapshot"}


@dataclass(frozen=True)
class ProtoContainer:
    """A message that holds a module.

    kind      XLA's name of the message
    message   its bytes
    behind    what stands behind the message, for a HloUnoptimizedSnapshot whose length stands before it: the literals,
              as XLA serializes them outside of messages
    """

    kind: str
    message: memoryview
    behind: memoryview | None = None

    @property
    def module(self) -> Any:
        """The HloModuleProto."""
        if self.kind == _MODULE:
            return self.proto
        return self.proto.hlo.hlo_module if self.kind == SNAPSHOT else self.proto.hlo_module

    @cached_property
    def proto(self) -> Any:
        """The whole message. Raises ParseError where a field of it is none."""
        from google.protobuf.message import DecodeError

        message = message_class(CLASSES[self.kind])()
        try:
            message.ParseFromString(self.message.tobytes())
        except DecodeError as error:
            raise ParseError(f"proto: {self.kind}: {error}") from None
        return message

    @property
    def has_arguments(self) -> bool:
        """Whether it says what the module was called with."""
        return self.kind in (SNAPSHOT, _UNOPTIMIZED)


def container_of(data: bytes) -> ProtoContainer | None:
    """The message that `data` is, if it holds a module; else None."""
    whole = memoryview(data)
    kind = _kind(whole)
    if kind:
        return ProtoContainer(kind, whole)
    try:
        length, start = varint(whole, 0)
    except NotAMessage:
        return None
    message = whole[start : start + length]
    if len(message) == length and _kind(message) in (_HLO, _UNOPTIMIZED):  # a call without arguments has no partitions
        return ProtoContainer(_UNOPTIMIZED, message, whole[start + length :])
    return None


def _kind(data: memoryview) -> str:
    """The message that `data` is; empty for one that holds no module."""
    if not is_message(data):
        return ""
    if _is_module(data):
        return _MODULE
    inner = first(data, 1)
    if inner is None or not is_message(inner):
        return ""
    if _is_module(inner):
        return _UNOPTIMIZED if first(data, 2) is not None else _HLO
    module = first(inner, 1)
    return SNAPSHOT if module is not None and is_message(module) and _is_module(module) else ""


def _is_module(data: memoryview) -> bool:
    """Whether a message has a computation with an instruction with an opcode, where a HloModuleProto has them."""
    computation = first(data, 3)
    instruction = first(computation, 2) if computation is not None else None
    opcode = first(instruction, 2) if instruction is not None else None
    return opcode is not None and _OPCODE.fullmatch(opcode) is not None
