"""Origins in protos: metadata of instructions and of shardings, origins of values, read and written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlokit.hlo.instruction import Metadata
from hlokit.proto.schema import message_class
from hlokit.text.lexer import Lexer
from hlokit.text.metadata import metadata_list_text, read_metadata_list
from hlokit.text.origin import SYNTHETIC, Leaf, leaves_of, origin_text

_FIELDS = tuple(Metadata.__slots__)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType, reportAttributeAccessIssue]


def metadata_to_proto(metadata: Metadata, proto: Any) -> None:
    for name in _FIELDS:
        value = getattr(metadata, name)
        if name == "profile_type":
            proto.profile_type.extend(value)
        elif name != "metadata_payload":
            setattr(proto, name, value)
        elif value:
            proto.metadata_payload.value = value.encode("utf-8", "surrogateescape")


def metadata_from_proto(proto: Any) -> Metadata:
    values: dict[str, Any] = {name: getattr(proto, name) for name in _FIELDS}
    values["profile_type"] = tuple(values["profile_type"])
    values["metadata_payload"] = values["metadata_payload"].value.decode("utf-8", "surrogateescape")
    return Metadata(**values)


def sharding_metadata_to_proto(text: str, proto: Any) -> None:
    """Writes the metadata of a sharding, a text, into a repeated field of OpMetadata."""
    for metadata in read_metadata_list(Lexer(text), "HSHARD-3") if text else ():
        metadata_to_proto(metadata, proto.add())


def sharding_metadata_from_proto(proto: Iterable[Any]) -> str:
    """The metadata of a sharding as text; empty if there is none."""
    found = [metadata_from_proto(each) for each in proto]
    return metadata_list_text(found) if found else ""


def origin_to_proto(text: str, proto: Any) -> None:
    """Writes an instruction's origin into an OriginalValueProto."""
    proto.SetInParent()
    proto.is_synthetic_call = text == SYNTHETIC
    for place, name, index in leaves_of(text):
        element = proto.elements.add(shape_index=place)
        if name:
            array = message_class("OriginalArray")(instruction_name=name, shape_index=index)
            element.original_array = array.SerializeToString(deterministic=True)


def origin_from_proto(proto: Any) -> str:
    """The origin in an OriginalValueProto. Raises ParseError for leaves at one place or too many."""
    return SYNTHETIC if proto.is_synthetic_call else origin_text(map(_leaf, proto.elements))


def _leaf(element: Any) -> Leaf:
    """A leaf; files of before 2025 have the instruction's name where newer ones have a message."""
    data = element.original_array
    if data[:1] not in (b"", b"\n", b"\x12"):  # no name starts like the fields of that message
        return tuple(element.shape_index), data.decode("utf-8", "replace"), tuple(element.old_shape_index)
    array = message_class("OriginalArray").FromString(data)
    return tuple(element.shape_index), array.instruction_name, tuple(array.shape_index)
