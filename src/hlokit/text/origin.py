"""Origins in text: the arrays of an earlier program that a value holds (HCATTR-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hlokit.errors import ParseError
from hlokit.text.lexer import MAX_NESTING, Lexer, escaped
from hlokit.text.lists import integers_text, read_integers

Leaf = tuple[tuple[int, ...], str, tuple[int, ...]]
"""A place in the value, and the instruction whose value is there, with the place in it; no name if nobody knows."""
SYNTHETIC = "{[synthetic_call]}"
"""The origin of a call that was not in the earlier program."""
_MOST_PLACES = 1_000_000


def read_origin(lexer: Lexer, label: str) -> str:
    """Reads `{({"a" {1}}, {"b"})}` or `{[synthetic_call]}`; gives it as XLA prints it."""
    lexer.expect("{", label)
    if lexer.accept("["):
        lexer.expect("synthetic_call", label)
        lexer.expect("]", label)
        lexer.expect("}", label)
        return SYNTHETIC
    leaves = [] if lexer.value == "}" else list(_read_tree(lexer, label, ()))
    lexer.expect("}", label)
    return origin_text(leaves)


def _read_tree(lexer: Lexer, label: str, place: tuple[int, ...]) -> list[Leaf]:
    if lexer.accept("{"):
        name, index = "", ()
        if lexer.value != "}":
            name = lexer.string(label)
            index = read_integers(lexer, label) if lexer.value == "{" else ()
        lexer.expect("}", label)
        return [(place, name, index)]
    lexer.enter()
    lexer.expect("(", label)
    leaves: list[Leaf] = []
    position = 0
    while lexer.value != ")":
        leaves += _read_tree(lexer, label, (*place, position))
        position += 1
        if not lexer.accept(","):
            break
    lexer.expect(")", label)
    lexer.leave()
    return leaves


def leaves_of(text: str) -> list[Leaf]:
    """The leaves of an origin that `read_origin` gave; none of a synthetic call."""
    if text == SYNTHETIC:
        return []
    lexer = Lexer(text)
    lexer.expect("{", "HCATTR-9")
    return _read_tree(lexer, "HCATTR-9", ())


def origin_text(leaves: Iterable[Leaf]) -> str:
    """The text of an origin; positions between leaves are empty tuples.

    Raises ParseError for two leaves at one place, a leaf inside of another, or places that no text can list.
    """
    tree: dict[int, Any] | str | None = None
    places = 0
    for place, name, index in leaves:
        if len(place) > MAX_NESTING or min(place, default=0) < 0:
            raise ParseError(f"origin: a place {integers_text(place)}", label="HCATTR-9")
        leaf = f'"{escaped(name)}"{" " + integers_text(index) if index else ""}' if name else ""
        if not place:
            if tree is not None:
                raise ParseError("origin: a place inside of another", label="HCATTR-9")
            tree = f"{{{leaf}}}"
            continue
        tree = {} if tree is None else tree
        node: Any = tree
        for position in place[:-1]:
            node = node.setdefault(position, {}) if isinstance(node, dict) else node
        if not isinstance(node, dict) or place[-1] in node:
            raise ParseError("origin: a place inside of another", label="HCATTR-9")
        node[place[-1]] = f"{{{leaf}}}"
        places += place[-1]
        if max(place) > _MOST_PLACES or places > _MOST_PLACES:
            raise ParseError(f"origin: more than {_MOST_PLACES} places", label="HCATTR-9")
    return f"{{{_tree_text({} if tree is None else tree)}}}"


def _tree_text(tree: dict[int, Any] | str) -> str:
    if isinstance(tree, str):
        return tree
    inner = (_tree_text(tree.get(position, {})) for position in range(max(tree, default=-1) + 1))
    return f"({', '.join(inner)})"
