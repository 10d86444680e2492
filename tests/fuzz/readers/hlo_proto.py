"""HloModuleProto: a module that verifies, or ParseError or UnsupportedError. Fields are changed as well as bytes."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import hlokit as hk
from hlokit.proto.module import module_from_proto, module_to_proto
from hlokit.proto.schema import message_class
from tests.fuzz.readers import hlo_text
from tests.fuzz.readers.fuzzer import Broken, Fuzzer, edited_bytes, sound

_INTEGERS = (0, 1, -1, 2, 3, 5, 12, 64, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
_STRINGS = ("", "x", "add", "while", "parameter", "f32[2]", "a b", "\x1b[2J", "\n", '"', "}", "é", "..", "/" * 300)


def mutated(data: bytes, other: bytes, random_: random.Random) -> bytes:
    """`data` with some bytes changed, or some fields of its messages, some taken from `other`."""
    if random_.random() < 0.2:
        return edited_bytes(data, other, random_)
    module, second = message_class("Module")(), message_class("Module")()
    module.ParseFromString(data)
    second.ParseFromString(other)
    for _ in range(random_.choice((1, 1, 2, 3, 8))):
        _change(_somewhere(module, random_), second, random_)
    return module.SerializeToString(deterministic=True)


def _somewhere(message: Any, random_: random.Random) -> Any:
    """A message in the message."""
    while random_.random() > 0.1:
        inner = [value for field, value in message.ListFields() if field.type == field.TYPE_MESSAGE]
        inner = [v for v in inner if not _is_repeated(v) or len(v)]
        if not inner:
            break
        chosen = random_.choice(inner)
        message = random_.choice(chosen) if _is_repeated(chosen) else chosen
    return message


def _change(message: Any, other: Any, random_: random.Random) -> None:
    present = [field for field, _ in message.ListFields()]
    every = list(message.DESCRIPTOR.fields)
    field = random_.choice(present if present and random_.random() < 0.8 else every)
    if random_.random() < 0.1:
        message.ClearField(field.name)
        return
    now = getattr(message, field.name)
    if field.type == field.TYPE_MESSAGE:
        _change_messages(message, field, other, random_)
    elif _is_repeated(now):
        values = list(now)
        at = random_.randrange(len(values) + 1)
        match random_.randrange(4):
            case 0:
                values[at : at + 1] = []
            case 1:
                values[at:at] = [_value(field, random_)] * random_.choice((1, 1, 2, 100))
            case 2:
                random_.shuffle(values)
            case _:
                values[at : at + 1] = [_value(field, random_)]
        message.ClearField(field.name)
        getattr(message, field.name).extend(values)
    else:
        setattr(message, field.name, _value(field, random_))


def _change_messages(message: Any, field: Any, other: Any, random_: random.Random) -> None:
    """Takes a message of this kind from elsewhere, drops one, or puts them in another order."""
    now = getattr(message, field.name)
    found = [m for m in (_somewhere(other, random_) for _ in range(20)) if m.DESCRIPTOR is field.message_type]
    if not _is_repeated(now):
        if found:
            now.CopyFrom(found[0])
        else:
            now.SetInParent()
        return
    values = list(now)
    at = random_.randrange(len(values) + 1)
    match random_.randrange(4):
        case 0:
            values[at : at + 1] = []
        case 1:
            values[at:at] = found[:1] or [field.message_type._concrete_class()]
        case 2:
            values[at:at] = values[at : at + 1] * random_.choice((1, 2, 20))
        case _:
            random_.shuffle(values)
    copies = [type(value).FromString(value.SerializeToString()) for value in values]
    message.ClearField(field.name)
    getattr(message, field.name).extend(copies)


def _value(field: Any, random_: random.Random) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_BOOL:
            return random_.random() < 0.5
        case field.CPPTYPE_STRING:
            text = random_.choice((*_STRINGS, random_.choice(list(hk.OPS))))
            return text.encode() if field.type == field.TYPE_BYTES else text
        case field.CPPTYPE_FLOAT | field.CPPTYPE_DOUBLE:
            return random_.choice((0.0, 1.5, -1e30, float("inf"), float("nan")))
        case field.CPPTYPE_INT32 | field.CPPTYPE_ENUM:
            return random_.choice([i for i in _INTEGERS if -(2**31) <= i < 2**31])
        case field.CPPTYPE_UINT32:
            return random_.choice([i for i in _INTEGERS if 0 <= i < 2**32])
        case field.CPPTYPE_UINT64:
            return random_.choice([i for i in _INTEGERS if i >= 0])
        case _:
            return random_.choice((*_INTEGERS, random_.randrange(64), 1 << 32 | random_.randrange(8)))


def _is_repeated(value: Any) -> bool:
    return hasattr(value, "extend")


def check(data: bytes) -> str:
    """Reads; what was read gives a proto that reads back the same."""
    module = module_from_proto(data)
    sound(module, data)
    again = module_to_proto(module)
    back = module_from_proto(again)
    if str(back) != str(module):
        raise Broken("the module from its proto prints otherwise")
    if module_to_proto(back) != again:
        raise Broken("the module from its proto gives another proto")
    return "read"


@cache
def protos() -> list[bytes]:
    """Those of the bundled HLO texts that have one."""
    found: list[bytes] = []
    for text in hlo_text.texts():
        try:
            found.append(module_to_proto(hk.parse(text)))
        except hk.HlokitError:
            continue
    return found


FUZZER = Fuzzer(protos, mutated, check, (".pb",), lambda data: [data])
