"""Device groups and shardings in text (HGRP, HSHARD): reading. Writing is their `str`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlokit.errors import ShapeError
from hlokit.text.lexer import ATTRIBUTE, END, Lexer
from hlokit.text.lists import read_integers, read_lists
from hlokit.text.metadata import metadata_list_text, read_metadata_list
from hlokit.types.groups import ReplicaGroups
from hlokit.types.iota import merged_iota
from hlokit.types.mesh import Axis, Mesh
from hlokit.types.sharding import REDUCTIONS, SUBGROUPS, DimensionSharding, NamedSharding, Sharding

_PLAIN_KINDS = ("replicated", "manual", "unknown", "unreduced")
_MESHES = ("mesh", "maximal_mesh", "single_device")


def parse_replica_groups(text: str) -> ReplicaGroups:
    """The groups that `text` says: "{{0,1},{2,3}}", "[2,2]<=[4]" or "mesh['a'=2,'b'=2] {'b'}". Raises ParseError."""
    lexer = Lexer(text)
    groups = read_replica_groups(lexer)
    if lexer.kind != END:
        raise lexer.unexpected("the end of the replica groups", "HGRP-1")
    return groups


def parse_sharding(text: str) -> Sharding:
    """The sharding that `text` says: "{devices=[2,1]0,1}" or "{mesh['a'=2], [{'a'}, {}]}". Raises ParseError."""
    lexer = Lexer(text)
    sharding = read_sharding(lexer)
    if lexer.kind != END:
        raise lexer.unexpected("the end of the sharding", "HSHARD-1")
    return sharding


def read_replica_groups(lexer: Lexer) -> ReplicaGroups:
    """Reads lists of devices, the iota form, or axes of a mesh."""
    if lexer.value == "{":
        return ReplicaGroups(read_lists(lexer, "HGRP-1"))
    if lexer.value in _MESHES:
        return _read_groups_along(lexer)
    if lexer.value != "[":
        raise lexer.unexpected("'{', '[' or 'mesh'", "HGRP-1")
    start = lexer.start
    count_and_size = read_integers(lexer, "HGRP-2", "[", "]")
    sizes, order = _read_iota(lexer, "HGRP-3")
    if len(count_and_size) != 2:
        raise lexer.error("the iota form has two dimensions, groups and group size", "HGRP-3", start)
    try:
        return ReplicaGroups.iota(*count_and_size, sizes, order)
    except ShapeError as error:
        raise lexer.error(str(error), error.label, start) from None


def _read_groups_along(lexer: Lexer) -> ReplicaGroups:
    """mesh['a'=2,'b'=2] {'b'}, or with device_ids=(...) (HGRP-6)."""
    start = lexer.start
    mesh = _read_mesh(lexer)
    if lexer.value == "," and not mesh.is_maximal and lexer.peek() == "device_ids=":
        mesh = _read_device_order(lexer, mesh)
    axes = _read_axes(lexer, mesh, "HGRP-6")
    try:
        return ReplicaGroups.along(mesh, axes)
    except ShapeError as error:
        raise lexer.error(str(error), error.label, start) from error


# -- meshes and their axes


def _read_mesh(lexer: Lexer) -> Mesh:
    """mesh['a'=2,'b'=4], without the order of its devices; maximal_mesh[device_id=3] (HMESH-1, HMESH-2)."""
    word, start = lexer.value, lexer.start
    lexer.advance()
    lexer.expect("[", "HMESH-1")
    axes: list[tuple[str, int]] = []
    if word != "mesh":
        lexer.expect("device_id=", "HMESH-2")
        devices = [lexer.integer("HMESH-2", 0)]
        lexer.expect("]", "HMESH-2")
        return Mesh.make((), devices)
    while lexer.value != "]":
        name = lexer.string("HMESH-1")
        lexer.expect("=", "HMESH-1")
        axes.append((name, lexer.integer("HMESH-1", 1)))
        if not lexer.accept(","):
            break
    lexer.expect("]", "HMESH-1")
    return _made(lexer, start, axes)


def _made(lexer: Lexer, start: int, axes: Iterable[tuple[str, int]], **order: Iterable[int]) -> Mesh:
    try:
        return Mesh.make(axes, **order)
    except ShapeError as error:
        raise lexer.error(str(error), error.label, start) from error


def _read_device_order(lexer: Lexer, mesh: Mesh) -> Mesh:
    """, device_ids=(3,2,1,0) or device_ids=([4,2]T(1,0)) (HMESH-2)."""
    start = lexer.start
    lexer.expect(",", "HMESH-2")
    lexer.expect("device_ids=", "HMESH-2")
    if lexer.peek() != "[":
        devices = read_integers(lexer, "HMESH-2", "(", ")")
        if len(devices) != mesh.size:
            raise lexer.error(f"{len(devices)} devices in a mesh of {mesh.size}", "HMESH-2", start)
        return _made(lexer, start, mesh.axes, devices=devices)
    lexer.expect("(", "HMESH-2")
    sizes, order = _read_order(lexer, "HMESH-2")
    lexer.expect(")", "HMESH-2")
    return _made(lexer, start, mesh.axes, reshape=sizes, transpose=order or (0,))


def _read_axis(lexer: Lexer, mesh: Mesh) -> Axis:
    """'a', or 'a':(2)4; the number of an axis does for its name (HMESH-3)."""
    start = lexer.start
    name = lexer.string("HMESH-3")
    if not mesh.axis_size(name) and name.isdecimal() and len(name) < 4 and int(name) < len(mesh.axes):
        name = mesh.axes[int(name)][0]
    if not mesh.axis_size(name):
        raise lexer.error(f"no axis of {mesh} is called {name[:60]!r}", "HMESH-3", start)
    if not lexer.accept(":"):
        return Axis(name)
    lexer.expect("(", "HMESH-3")
    before = lexer.integer("HMESH-3", 1)
    lexer.expect(")", "HMESH-3")
    return Axis(name, before, lexer.integer("HMESH-3", 2))


def _read_axes(lexer: Lexer, mesh: Mesh, label: str) -> tuple[Axis, ...]:
    """{'a', 'b':(1)2}."""
    found = _read_dimension(lexer, mesh, label)
    if found.is_open:
        raise lexer.error("'?' stands in dimensions only", label)
    return found.axes


def _read_dimension(lexer: Lexer, mesh: Mesh, label: str) -> DimensionSharding:
    """{'a', ?}."""
    lexer.expect("{", label)
    axes: list[Axis] = []
    is_open = False
    while lexer.value != "}" and not is_open:
        if lexer.accept("?"):
            is_open = True
        else:
            axes.append(_read_axis(lexer, mesh))
            if not lexer.accept(","):
                break
    lexer.expect("}", label)
    return DimensionSharding(tuple(axes), is_open)


# -- iota forms


def _read_iota(lexer: Lexer, label: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Reads `<=[4,2]T(1,0)`."""
    lexer.expect("<=", label)
    return _read_order(lexer, label)


def _read_order(lexer: Lexer, label: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Reads `[4,2]T(1,0)`."""
    start = lexer.start
    sizes = read_integers(lexer, label, "[", "]")
    if lexer.accept("T"):
        return sizes, read_integers(lexer, label, "(", ")")
    if len(sizes) != 1:
        raise lexer.error("more than one dimension needs T(...)", label, start)
    return sizes, None


# -- shardings


def read_sharding(lexer: Lexer) -> Sharding:
    """Reads and checks a sharding; gives its normal form."""
    start = lexer.start
    sharding = _read_sharding(lexer)
    try:
        sharding.check()
        return sharding.normal()
    except ShapeError as error:
        raise lexer.error(str(error), error.label, start) from None


def _read_sharding(lexer: Lexer) -> Sharding:
    if lexer.value == "{" and lexer.peek() in ("{", "}"):
        return _read_tuple_sharding(lexer)
    lexer.expect("{", "HSHARD-1")
    if lexer.value in _MESHES:
        return _read_named_sharding(lexer)
    fields: dict[str, object] = {}
    if lexer.value in _PLAIN_KINDS:
        fields["kind"] = lexer.value
        lexer.advance()
    elif lexer.accept("maximal"):
        fields["kind"] = "maximal"
        lexer.expect("device=", "HSHARD-1")
        fields["device"] = lexer.integer("HSHARD-1", 0)
    elif lexer.value == "devices=":
        _read_tiles(lexer, fields)
    else:
        raise lexer.unexpected("replicated, manual, maximal, unknown, unreduced, devices= or mesh", "HSHARD-1")
    _read_sharding_tail(lexer, fields)
    lexer.expect("}", "HSHARD-1")
    return Sharding(**fields)  # type: ignore[arg-type]


def _read_named_sharding(lexer: Lexer) -> Sharding:
    """mesh['a'=2,'b'=4], [{'a'}, {?}], replicated={..}, unreduced=max{..}, manual={..}, metadata={..}} (HSHARD-6)."""
    mesh = _read_mesh(lexer)
    if mesh.is_maximal:
        metadata = _read_named_tail(lexer, mesh, {})
        return Sharding("named", named=NamedSharding(mesh), metadata=metadata)
    if lexer.value == "," and lexer.peek() == "device_ids=":
        mesh = _read_device_order(lexer, mesh)
    lexer.accept(",")
    fields: dict[str, Any] = {}
    everything = tuple(Axis(name) for name, _ in mesh.axes)
    if lexer.value in ("replicated", "unreduced", "manual"):
        fields = {} if lexer.value == "replicated" else {lexer.value: everything}
        lexer.advance()
        metadata = _read_named_tail(lexer, mesh, {})
        return Sharding("named", named=NamedSharding(mesh, **fields), metadata=metadata)
    lexer.expect("[", "HSHARD-6")
    dimensions: list[DimensionSharding] = []
    while lexer.value == "{":
        dimensions.append(_read_dimension(lexer, mesh, "HSHARD-6"))
        if not lexer.accept(","):
            break
    lexer.expect("]", "HSHARD-6")
    fields = {"replicated": (), "unreduced": (), "manual": ()}
    metadata = _read_named_tail(lexer, mesh, fields)
    return Sharding("named", named=NamedSharding(mesh, tuple(dimensions), **fields), metadata=metadata)


def _read_named_tail(lexer: Lexer, mesh: Mesh, fields: dict[str, Any]) -> str:
    """Reads after the dimensions, up to the brace: axes by name into `fields`; gives the metadata as printed."""
    metadata, said = "", set[str]()
    while lexer.accept(","):
        name = lexer.value[:-1]
        if lexer.kind != ATTRIBUTE or name not in ("metadata", *fields) or name in said:
            raise lexer.unexpected("one of " + " ".join(f"{field}=" for field in (*fields, "metadata")), "HSHARD-6")
        said.add(name)
        lexer.advance()
        if name == "metadata":
            found = _read_metadata(lexer)
            metadata = found if found.startswith("{{") else f"{{{found}}}"
            continue
        if name == "unreduced" and lexer.value in REDUCTIONS:
            fields["reduction"] = lexer.value
            lexer.advance()
        fields[name] = _read_axes(lexer, mesh, "HSHARD-6")
    lexer.expect("}", "HSHARD-6")
    return metadata


def _read_tuple_sharding(lexer: Lexer) -> Sharding:
    lexer.enter()
    lexer.advance()
    elements: list[Sharding] = []
    while lexer.value == "{":
        elements.append(_read_sharding(lexer))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HSHARD-4")
    lexer.leave()
    return Sharding("tuple", elements=tuple(elements))


def _read_tiles(lexer: Lexer, fields: dict[str, object]) -> None:
    """devices=[2,1]0,1 or devices=[2,1]<=[2]."""
    lexer.advance()
    start = lexer.start
    fields["kind"] = "tiled"
    tile = fields["tile"] = read_integers(lexer, "HSHARD-2", "[", "]")
    if not tile or min(tile) < 1:
        raise lexer.error("the tile sizes must be >= 1", "HSHARD-2", start)
    if lexer.value == "<=":
        sizes, order = _read_iota(lexer, "HSHARD-2")
        if not sizes or min(sizes) < 1 or (order is not None and sorted(order) != list(range(len(sizes)))):
            raise lexer.error("the iota's sizes must be >= 1 and T(...) a permutation", "HSHARD-2", start)
        sizes, order = merged_iota(sizes, order or tuple(range(len(sizes))))
        fields["reshape"], fields["transpose"] = sizes, order if len(sizes) > 1 else ()
        return
    devices = [lexer.integer("HSHARD-2", 0)]
    while lexer.value == "," and lexer.peek().isdecimal():
        lexer.advance()
        devices.append(lexer.integer("HSHARD-2", 0))
    fields["devices"] = tuple(devices)


def _read_sharding_tail(lexer: Lexer, fields: dict[str, object]) -> None:
    """Reads the optional parts inside the braces (HSHARD-2, HSHARD-3), in any order."""
    while lexer.value != "}":
        lexer.accept(",")
        if lexer.accept("last_tile_dim_replicate"):
            fields["replicate_last"] = True
        elif lexer.accept("last_tile_dims="):
            kinds = _read_kinds(lexer)
            if kinds == ("replicated",):
                fields["replicate_last"] = True
            else:
                fields["last_tile_dims"] = kinds
        elif lexer.value in ("shard_as", "shard_like"):
            word = lexer.value
            lexer.advance()
            fields["group"] = (word, lexer.integer("HSHARD-3", 0))
        elif lexer.accept("metadata="):
            fields["metadata"] = _read_metadata(lexer)
        else:
            raise lexer.unexpected("'}'", "HSHARD-2")


def _read_metadata(lexer: Lexer) -> str:
    """{op_name="x"}, or a list of such, as it will be printed."""
    return metadata_list_text(read_metadata_list(lexer, "HSHARD-3"))


def _read_kinds(lexer: Lexer) -> tuple[str, ...]:
    lexer.expect("{", "HSHARD-2")
    kinds: list[str] = []
    while lexer.value in SUBGROUPS:
        kinds.append(lexer.value)
        lexer.advance()
        if not lexer.accept(","):
            break
    lexer.expect("}", "HSHARD-2")
    return tuple(kinds)
