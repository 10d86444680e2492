"""The codes of Shardy's dialect, converted to the text of its attributes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlokit.stablehlo.artifact.cursor import Cursor
from hlokit.stablehlo.artifact.entries import Codec, Entries
from hlokit.stablehlo.tree import DialectAttribute, Symbol


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _texts(entries: Entries, cursor: Cursor, kind: str) -> list[str]:
    """A list of attributes of one kind, each as text."""
    found: list[str] = []
    for number in cursor.varints(cursor.varint()):
        found.append(_text(entries.attribute(number, cursor), cursor, kind))
        entries.count(len(found[-1]), cursor)
    return found


def _text(value: Any, cursor: Cursor, kind: str) -> str:
    if not isinstance(value, DialectAttribute) or value.name != f"sdy.{kind}":
        raise cursor.error(f"an attribute that is not a #sdy.{kind}")
    return str(value.value)


def _attribute(kind: str, text: str) -> DialectAttribute:
    return DialectAttribute(f"sdy.{kind}", text)


def _manual_axes(entries: Entries, cursor: Cursor) -> DialectAttribute:
    names: list[str] = []
    for number in cursor.varints(cursor.varint()):
        name = entries.attribute(number, cursor)
        if not isinstance(name, str):
            raise cursor.error("an axis whose name is not a string")
        names.append(_quoted(name))
        entries.count(len(name), cursor)
    return _attribute("manual_axes", ", ".join(names))


def _mesh_axis(entries: Entries, cursor: Cursor) -> DialectAttribute:
    name = entries.string(cursor)
    return _attribute("mesh_axis", f"{_quoted(name)}={cursor.signed()}")


def _mesh(entries: Entries, cursor: Cursor) -> DialectAttribute:
    """["x"=2, "y"=4], device_ids=[..]."""
    axes = _texts(entries, cursor, "mesh_axis")
    devices = cursor.signed_list()
    listed = f", device_ids=[{_joined(devices)}]" if devices else ""
    return _attribute("mesh", f"[{', '.join(axes)}]{listed}")


def _sub_axis(entries: Entries, cursor: Cursor) -> DialectAttribute:
    pre = cursor.signed()
    return _attribute("sub_axis_info", f"({pre}){cursor.signed()}")


def _axis(entries: Entries, cursor: Cursor) -> DialectAttribute:
    """An axis, or the part "x":(1)2 of one."""
    name = _quoted(entries.string(cursor))
    index, is_part = cursor.flagged()
    part = _text(entries.attribute(index, cursor), cursor, "sub_axis_info") if is_part else ""
    return _attribute("axis_ref", f"{name}:{part}" if part else name)


def _dimension(entries: Entries, cursor: Cursor) -> DialectAttribute:
    """{"x", ?}p0."""
    axes = _texts(entries, cursor, "axis_ref")
    is_closed = cursor.byte()
    priority, has_priority = cursor.flagged()
    listed = ", ".join(axes if is_closed else [*axes, "?"])
    return _attribute("dimension_sharding", f"{{{listed}}}" + (f"p{priority}" if has_priority else ""))


def _sharding(unreduced: bool, has_operation: bool = False) -> Codec:
    """@mesh, [{"x"}, {}], replicated={"y"}, unreduced={"z"}."""

    def codec(entries: Entries, cursor: Cursor) -> DialectAttribute:
        mesh = entries.inner(cursor)
        name = f"@{mesh.name}" if isinstance(mesh, Symbol) else f"mesh<{_text(mesh, cursor, 'mesh')}>"
        text = f"{name}, [{', '.join(_texts(entries, cursor, 'dimension_sharding'))}]"
        for word in ("replicated", "unreduced") if unreduced else ("replicated",):
            axes = _texts(entries, cursor, "axis_ref")
            text += f", {word}={{{', '.join(axes)}}}" if axes else ""
        if has_operation:
            cursor.signed()
        return _attribute("sharding", text)

    return codec


def _per_value(entries: Entries, cursor: Cursor) -> DialectAttribute:
    shardings = _texts(entries, cursor, "sharding")
    return _attribute("sharding_per_value", f"[{', '.join(f'<{text}>' for text in shardings)}]")


def _dimension_mapping(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return _attribute("dim_mapping", _joined(cursor.signed_list()))


def _tensor_mapping(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return _attribute("tensor_mapping", ", ".join(_texts(entries, cursor, "dim_mapping")))


def _rule(entries: Entries, cursor: Cursor) -> DialectAttribute:
    """A sharding rule, as text: a hint for a partitioner, which nobody here is."""
    cursor.signed_list()
    for _ in range(2):
        _texts(entries, cursor, "tensor_mapping")
    for _ in range(4):
        cursor.signed_list()
    cursor.byte()
    return _attribute("op_sharding_rule", "")


def _axis_list(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return _attribute("axis_ref_list", f"{{{', '.join(_texts(entries, cursor, 'axis_ref'))}}}")


def _axis_lists(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return _attribute("list_of_axis_ref_lists", f"[{', '.join(_texts(entries, cursor, 'axis_ref_list'))}]")


def _exchange(entries: Entries, cursor: Cursor) -> DialectAttribute:
    """{"x"}: 0->1."""
    axes = ", ".join(_texts(entries, cursor, "axis_ref"))
    source = cursor.signed()
    return _attribute("all_to_all_param", f"{{{axes}}}: {source}->{cursor.signed()}")


def _exchanges(entries: Entries, cursor: Cursor) -> DialectAttribute:
    return _attribute("all_to_all_param_list", f"[{', '.join(_texts(entries, cursor, 'all_to_all_param'))}]")


def _joined(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


ATTRIBUTES: dict[int, Codec] = {
    0: _manual_axes,
    1: _mesh_axis,
    2: _mesh,
    3: _sub_axis,
    4: _axis,
    5: _dimension,
    6: _sharding(unreduced=False),
    7: _per_value,
    8: _dimension_mapping,
    9: _tensor_mapping,
    10: _rule,
    11: _axis_list,
    12: _axis_lists,
    13: _exchange,
    14: _exchanges,
    15: _sharding(unreduced=True),
    16: _per_value,
    17: _sharding(unreduced=True, has_operation=True),
}
