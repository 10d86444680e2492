"""Device groups and shardings in text (HGRP, HSHARD): reading. Writing is their `str`."""

from __future__ import annotations

from hlokit.errors import ShapeError
from hlokit.text.lexer import END, Lexer
from hlokit.text.lists import read_integers, read_lists
from hlokit.text.metadata import metadata_text, read_metadata
from hlokit.types.groups import ReplicaGroups, merged_iota
from hlokit.types.sharding import SUBGROUPS, Sharding

_PLAIN_KINDS = ("replicated", "manual", "unknown", "unreduced")


def parse_replica_groups(text: str) -> ReplicaGroups:
    """The groups that `text` says, e.g. "{{0,1},{2,3}}" or "[2,2]<=[4]". Raises ParseError."""
    lexer = Lexer(text)
    groups = read_replica_groups(lexer)
    if lexer.kind != END:
        raise lexer.unexpected("the end of the replica groups", "HGRP-1")
    return groups


def parse_sharding(text: str) -> Sharding:
    """The sharding that `text` says, e.g. "{devices=[2,1]0,1}". Raises ParseError."""
    lexer = Lexer(text)
    sharding = read_sharding(lexer)
    if lexer.kind != END:
        raise lexer.unexpected("the end of the sharding", "HSHARD-1")
    return sharding


def read_replica_groups(lexer: Lexer) -> ReplicaGroups:
    """Reads explicit groups or the iota form."""
    if lexer.value == "{":
        return ReplicaGroups(read_lists(lexer, "HGRP-1"))
    if lexer.value != "[":
        raise lexer.unexpected("'{' or '[' (a form with mesh axes is not supported)", "HGRP-6")
    start = lexer.start
    count_and_size = read_integers(lexer, "HGRP-2", "[", "]")
    sizes, order = _read_iota(lexer, "HGRP-3")
    if len(count_and_size) != 2:
        raise lexer.error("the iota form has two dimensions, groups and group size", "HGRP-3", start)
    try:
        groups = ReplicaGroups.iota(*count_and_size, sizes, order)
        sizes, order = merged_iota(groups.reshape, groups.transpose)
        return ReplicaGroups.iota(*count_and_size, sizes, order)
    except ShapeError as error:
        raise lexer.error(str(error), error.label, start) from None


def _read_iota(lexer: Lexer, label: str) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Reads `<=[4,2]T(1,0)`."""
    lexer.expect("<=", label)
    start = lexer.start
    sizes = read_integers(lexer, label, "[", "]")
    if lexer.accept("T"):
        return sizes, read_integers(lexer, label, "(", ")")
    if len(sizes) != 1:
        raise lexer.error("more than one dimension needs T(...)", label, start)
    return sizes, None


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
        raise lexer.unexpected("replicated, manual, maximal, unknown, unreduced or devices=", "HSHARD-1")
    _read_sharding_tail(lexer, fields)
    lexer.expect("}", "HSHARD-1")
    return Sharding(**fields)  # type: ignore[arg-type]


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
    """What may follow inside the braces (HSHARD-2, HSHARD-3), in any order."""
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
    if lexer.peek() != "{":
        return metadata_text(read_metadata(lexer, "HSHARD-3"))
    lexer.advance()
    parts: list[str] = []
    while lexer.value == "{":
        parts.append(metadata_text(read_metadata(lexer, "HSHARD-3")))
        if not lexer.accept(","):
            break
    lexer.expect("}", "HSHARD-3")
    return f"{{{', '.join(parts)}}}"


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
