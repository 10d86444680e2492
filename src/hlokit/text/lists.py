"""Lists of integers in text."""

from __future__ import annotations

from hlokit.text.lexer import INTEGER, Lexer


def read_integers(lexer: Lexer, label: str, opening: str = "{", closing: str = "}") -> tuple[int, ...]:
    """Reads `{0,1,2}`."""
    lexer.expect(opening, label)
    values: list[int] = []
    while lexer.kind == INTEGER:
        values.append(lexer.integer(label))
        if not lexer.accept(","):
            break
    lexer.expect(closing, label)
    return tuple(values)


def read_lists(lexer: Lexer, label: str) -> tuple[tuple[int, ...], ...]:
    """Reads `{{0,1},{2,3}}`."""
    lexer.expect("{", label)
    lists: list[tuple[int, ...]] = []
    while lexer.value == "{":
        lists.append(read_integers(lexer, label))
        if not lexer.accept(","):
            break
    lexer.expect("}", label)
    return tuple(lists)


def integers_text(values: tuple[int, ...]) -> str:
    """`{0,1,2}`."""
    return f"{{{','.join(map(str, values))}}}"
