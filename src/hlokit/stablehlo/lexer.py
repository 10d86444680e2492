"""Lexer of MLIR's text: one regular expression, one current token, errors with line, column and caret."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hlokit.errors import ParseError
from hlokit.text.lexer import MAX_NESTING, error_at

_SPACE = r"(?:[ \t\r\n]++|//[^\n]*+)*+"
_TOKEN = re.compile(
    _SPACE + r"(?:"
    r"(%[\w$.\-]++(?:\#[0-9]++)?)"
    r"|(@(?:[A-Za-z_][\w$.\-]*+|\"(?:[^\"\\\n]++|\\.)*+\"))"
    r"|(->|::|\{-\#|\#-\}|[=,:<>(){}\[\]?*+|/])"
    r"|([A-Za-z_][\w$.]*+)"
    r"|(-?[0-9]++\.[0-9]*+(?:[eE][+-]?[0-9]++)?)"
    r"|(0x[0-9a-fA-F]++|-?[0-9]++)"
    r"|(\"(?:[^\"\\\n]++|\\.)*+\")"
    r"|(\#[A-Za-z_][\w$.]*+)"
    r"|(![A-Za-z_][\w$.]*+)"
    r"|(\^[\w$.\-]++)"
    r"|(-)"
    r"|(\Z)"
    r")"
)
VALUE, SYMBOL, PUNCTUATION, WORD, FLOAT, INTEGER, STRING, ATTRIBUTE, TYPE, BLOCK, MINUS, END = range(1, 13)
KINDS = (
    "nothing", "a value", "a symbol", "punctuation", "a word", "a number", "an integer", "a string", "an attribute",
    "a type", "a block", "'-'", "the end of the text",
)  # fmt: skip

_BRACKETS = re.compile(r"\"(?:[^\"\\\n]++|\\.)*+\"|->|[<>(){}\[\]]|[^\"<>(){}\[\]\-]++|-")
_OPENING = {"<": ">", "(": ")", "[": "]", "{": "}"}
_ESCAPE = re.compile(rb"\\(?:([0-9a-fA-F]{2})|(.))", re.DOTALL)
_SIMPLE = {b"n": b"\n", b"t": b"\t", b"\\": b"\\", b'"': b'"'}
_MAX_DIGITS = 40


class MlirLexer:
    """The current token of a text: `kind`, `value` (as written), where it lies; `advance` goes to the next."""

    __slots__ = ("_depth", "end", "kind", "start", "text", "value")

    kind: int
    value: str

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0
        self._depth = 0
        self.advance()

    def advance(self) -> None:
        """Reads the next token."""
        found = _TOKEN.match(self.text, self.end)
        if found is None:
            position = re.compile(_SPACE).match(self.text, self.end).end()  # type: ignore[union-attr]
            raise self.error(f"{self.text[position]!r} starts no token", position)
        self.kind = found.lastindex or 0
        self.value = found[self.kind]
        self.end = found.end()
        self.start = self.end - len(self.value)

    def jump(self, position: int) -> None:
        """Reads the token at `position`."""
        self.end = position
        self.advance()

    def peek(self) -> str:
        """The token after the current one, as written; empty at the end or where nothing can be read."""
        found = _TOKEN.match(self.text, self.end)
        return found[found.lastindex or 0] if found is not None else ""

    def at(self, value: str) -> bool:
        """Whether the current token is written like this."""
        return self.value == value and self.kind != STRING

    def accept(self, value: str) -> bool:
        """Whether the current token is written like this; if so, it is read."""
        if self.value != value or self.kind == STRING:
            return False
        self.advance()
        return True

    def expect(self, value: str) -> None:
        """Reads a token that must be written like this."""
        if not self.accept(value):
            raise self.unexpected(f"'{value}'")

    def items(self, opening: str, closing: str) -> Iterator[None]:
        """Reads `( item, item )`: the loop over this reads one item each time. A comma may stand behind the last."""
        self.expect(opening)
        while self.value != closing:
            yield
            if not self.accept(","):
                break
        self.expect(closing)

    def take(self, kind: int, what: str = "") -> str:
        """Reads a token that must be of this kind; gives it as written."""
        if self.kind != kind:
            raise self.unexpected(what or KINDS[kind])
        value = self.value
        self.advance()
        return value

    def integer(self) -> int:
        """Reads an integer: decimal or hexadecimal."""
        if self.kind != INTEGER:
            raise self.unexpected("an integer")
        if len(self.value) > _MAX_DIGITS:
            raise self.error(f"{self.value[:20]}... is too large")
        value = int(self.value, 16 if self.value.startswith("0x") else 10)
        self.advance()
        return value

    def string(self) -> str:
        """Reads a quoted string and gives its content."""
        return unescaped(self.take(STRING))

    def symbol(self) -> str:
        """Reads `@name` or `@"name"`, with nested names; gives the name."""
        names = [self.take(SYMBOL)[1:]]
        while self.accept("::"):
            names.append(self.take(SYMBOL)[1:])
        return "::".join(unescaped(name) if name.startswith('"') else name for name in names)

    def balanced(self) -> str:
        """Reads from the opening bracket that stands here to the one that closes it; gives the text between."""
        closing: list[str] = []
        end = self.start
        for part in _BRACKETS.finditer(self.text, self.start):
            if part.start() != end:
                break
            end = part.end()
            if part[0] in _OPENING:
                closing.append(_OPENING[part[0]])
            elif closing and part[0] == closing[-1]:
                closing.pop()
                if not closing:
                    text = self.text[self.start + 1 : end - 1]
                    self.jump(end)
                    return text
            elif part[0] in (">", ")", "]", "}") or not closing:
                break
        raise self.error(f"'{self.value[:20]}' without the bracket that closes it")

    def enter(self) -> None:
        """One level of nesting deeper. A limit guards the stack: every reader that calls itself uses it."""
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} deep")

    def leave(self) -> None:
        self._depth -= 1

    def unexpected(self, expected: str) -> ParseError:
        """The error that something else stands here."""
        found = KINDS[END] if self.kind == END else f"'{self.value[:60]}'"
        return self.error(f"expected {expected}, found {found}")

    def error(self, message: str, at: int | None = None, label: str | None = None) -> ParseError:
        """An error at a position, or at the current token."""
        error = error_at(self.text, self.start if at is None else at, message, "")
        error.label = label
        return error

    def where(self, position: int) -> str:
        """The text by which an error that is not a ParseError names a position."""
        line = self.text.count("\n", 0, position) + 1
        return f"line {line}"


def unescaped(quoted: str) -> str:
    """The content of a quoted string: \\n, \\t, \\\\, \\" and two hexadecimal digits for any byte."""
    body = quoted[1:-1]
    if "\\" not in body:
        return body

    def replaced(escape: re.Match[bytes]) -> bytes:
        return bytes([int(escape[1], 16)]) if escape[1] else _SIMPLE.get(escape[2], escape[2])

    return _ESCAPE.sub(replaced, body.encode(errors="surrogatepass")).decode(errors="surrogateescape")
