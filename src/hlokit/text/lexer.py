"""Lexer of HLO text (LEX rules): one regular expression, one current token, errors with line, column and caret."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hlokit.errors import ParseError
from hlokit.hlo.names import KEYWORDS

if TYPE_CHECKING:
    from hlokit.types.shape import Shape

_IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_.\-]*+"
_PAD = r"-?[0-9]++_-?[0-9]++(?:_[0-9]++)?"

# One group per kind of token. The order is that of LEX-16, but for what cannot collide, which stands where it is cheap.
_TOKEN = re.compile(
    r"(?:[ \t\r\n]++|/\*(?s:.*?)\*/|//[^\n]*+)*+(?:"
    rf"(%{_IDENTIFIER})"
    r"|([0-9bf?]{2,}+_[0-9io?]{2,}+->[0-9bf?]{2,}+)"
    r"|(->|<=|\.\.\.|[=,:*#+~\[\]{}()?])"
    r"|(-?nan\(0x[0-9a-fA-F]++\))"
    rf"|({_IDENTIFIER}=)"
    rf"|({_IDENTIFIER}:)"
    rf"|({_IDENTIFIER})"
    r"|(-?(?:[0-9]++\.[0-9]*+|\.[0-9]++|[0-9]++(?=[eE][+-]?[0-9]))(?:[eE][+-]?[0-9]++)?)"
    r"|([0-9]++(?:x[0-9]++)++)"
    rf"|({_PAD}(?:x{_PAD})*+)"
    r"|(-?[0-9]++)"
    r"|(-inf(?![\w.\-])|-nan(?![\w.\-]))"
    r"""|("(?s:[^"\\]++|\\.)*+"|'(?s:[^'\\]++|\\.)*+')"""
    r"|(\Z)"
    r")"
)
NAME, CONV_LABELS, PUNCTUATION, NAN_PAYLOAD, ATTRIBUTE, LABEL, WORD = range(1, 8)
DECIMAL, SIZES, PADDING, INTEGER, SPECIAL, STRING, END = range(8, 15)
KINDS = (
    "nothing", "a name", "convolution labels", "punctuation", "a NaN", "an attribute name", "a parameter name",
    "a word", "a number", "window sizes", "padding", "an integer", "a special number", "a string",
    "the end of the text",
)  # fmt: skip

_BRACES = re.compile(r"""[^"{}]++|"(?s:[^"\\]++|\\.)*+"|[{}]""")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_SIMPLE_ESCAPES = {
    b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
MAX_NESTING = 64
_MAX_INTEGER = 40
_MAX_NUMBER = 2000


class Lexer:
    """The current token of a text: `kind`, `value` (as written) and where it lies; `advance` goes to the next.

    `shapes` caches the shapes read so far by their text; `depth` is how deep what is being read is nested.
    """

    __slots__ = ("_match", "depth", "end", "kind", "shapes", "start", "text", "value")

    kind: int
    value: str

    def __init__(self, text: str, position: int = 0) -> None:
        self.text = text
        self.end = position
        self.start = position
        self.kind = 0
        self.value = ""
        self.shapes: dict[str, Shape] = {}
        self._match = _TOKEN.match
        self.depth = 0
        self.advance()

    def advance(self) -> None:
        """Reads the next token."""
        found = self._match(self.text, self.end)
        if found is None:
            raise self._unreadable()
        kind: int = found.lastindex  # pyright: ignore[reportAssignmentType]  # every alternative is a group
        self.kind = kind
        self.value = found[kind]
        self.end = end = found.end()
        self.start = end - len(self.value)

    def jump(self, position: int) -> None:
        """Reads the token at `position`."""
        self.end = position
        self.advance()

    def peek(self) -> str:
        """The token after the current one, as written; empty at the end or where nothing can be read."""
        found = self._match(self.text, self.end)
        return found[found.lastindex or 0] if found is not None else ""

    def accept(self, value: str) -> bool:
        """Whether the current token is written like this; if so, it is read."""
        if self.value != value:
            return False
        self.advance()
        return True

    def expect(self, value: str, label: str) -> None:
        """Reads a token that must be written like this."""
        if self.value != value:
            raise self.unexpected(f"'{value}'", label)
        self.advance()

    def choice(self, values: Sequence[str], label: str) -> str:
        """Reads a token that must be written like one of these."""
        value = self.value
        if value not in values:
            raise self.unexpected("one of " + " ".join(values), label)
        self.advance()
        return value

    def take(self, kind: int, label: str, what: str = "") -> str:
        """Reads a token that must be of this kind; gives it as written."""
        if self.kind != kind:
            raise self.unexpected(what or KINDS[kind], label)
        value = self.value
        self.advance()
        return value

    def integer(self, label: str, low: int = -(2**63), high: int = 2**63 - 1) -> int:
        """Reads an integer within bounds (LEX-10)."""
        if self.kind != INTEGER:
            raise self.unexpected("an integer", label)
        value = self.number_of(self.value)
        if not low <= value <= high:
            raise self.error(f"{value} is outside {low} .. {high}", label)
        self.advance()
        return value

    def number_of(self, digits: str) -> int:
        """The integer token's value; refused if it cannot fit 64 bits."""
        if len(digits) > _MAX_INTEGER:
            raise self.error(f"{digits[:20]}... does not fit 64 bits", "LEX-10")
        return int(digits)

    def decimal(self, label: str) -> float:
        """Reads an integer, decimal or special decimal without payload (LEX-11, LEX-12)."""
        if self.kind not in (INTEGER, DECIMAL, SPECIAL) and self.value not in ("inf", "nan"):
            raise self.unexpected("a number", label)
        if len(self.value) > _MAX_NUMBER:
            raise self.error(f"a number of more than {_MAX_NUMBER} characters", "LEX-11")
        value = float(self.value)
        self.advance()
        return value

    def boolean(self, label: str) -> bool:
        """Reads true, false, 1 or 0."""
        if self.value not in ("true", "false", "1", "0"):
            raise self.unexpected("true or false", label)
        value = self.value in ("true", "1")
        self.advance()
        return value

    def string(self, label: str) -> str:
        """Reads a quoted string and gives its content (LEX-7)."""
        start = self.start
        body = self.take(STRING, label, "a quoted string")[1:-1]
        if "\\" not in body:
            return body
        return self._unescaped(body, start)

    def name(self, label: str) -> str:
        """Reads the name of an instruction or computation, with or without % (LEX-4, LEX-8)."""
        value = self.value
        if self.kind == NAME:
            self.advance()
            return value[1:]
        if self.kind == LABEL:
            value = value[:-1]
        elif self.kind != WORD or value in KEYWORDS:
            raise self.unexpected("a name", label if self.kind != WORD else "LEX-8")
        self.advance()
        return value

    def balanced(self, label: str) -> str:
        """Reads `{...}` with balanced braces, of whatever is inside, and gives it as written."""
        if self.value != "{":
            raise self.unexpected("'{'", label)
        end = balanced_end(self.text, self.start)
        if end < 0:
            raise self._syntax("'{' without its '}', or a quote without its end", label, self.start)
        text = self.text[self.start : end]
        self.jump(end)
        return text

    def enter(self) -> None:
        """One level of nesting deeper. A limit guards the stack: every reader that calls itself uses it."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise self.error(f"nested more than {MAX_NESTING} deep", "HMOD-1")

    def leave(self) -> None:
        self.depth -= 1

    # -- errors

    def unexpected(self, expected: str, label: str) -> ParseError:
        """The error that something else stands here."""
        found = KINDS[END] if self.kind == END else f"'{self.value[:60]}'"
        return self._syntax(f"expected {expected}, found {found}", label, self.start)

    def _syntax(self, message: str, label: str, at: int) -> ParseError:
        error = self.error(message, label, at)
        error.is_syntax = True
        return error

    def error(self, message: str, label: str, at: int | None = None) -> ParseError:
        """An error at a position, or at the current token."""
        return error_at(self.text, self.start if at is None else at, message, label)

    def _unreadable(self) -> ParseError:
        position = re.compile(r"(?:[ \t\r\n]++|/\*(?s:.*?)\*/|//[^\n]*+)*+").match(self.text, self.end).end()  # type: ignore[union-attr]
        character = self.text[position]
        if self.text.startswith("/*", position):
            return self._syntax("a comment without its end", "LEX-2", position)
        if character in "\"'":
            return self._syntax("a string without its closing quote", "LEX-7", position)
        return self._syntax(f"{character!r} starts no token", "LEX-6", position)

    def _unescaped(self, body: str, start: int) -> str:
        def replaced(escape: re.Match[bytes]) -> bytes:
            if escape[1] or escape[2]:
                return bytes([int(escape[1], 16) if escape[1] else int(escape[2], 8) & 255])
            if escape[3] not in _SIMPLE_ESCAPES:
                raise self.error(f"bad escape {escape[0].decode(errors='replace')!r}", "LEX-7", start)
            return _SIMPLE_ESCAPES[escape[3]]

        return _ESCAPE.sub(replaced, body.encode()).decode(errors="surrogateescape")


def error_at(text: str, position: int, message: str, label: str) -> ParseError:
    """A ParseError that shows the line of `position`."""
    start = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    line = text[start : end if end >= 0 else len(text)].rstrip("\r")
    return ParseError(
        message, line=text.count("\n", 0, position) + 1, column=position - start + 1, source_line=line, label=label
    )


def balanced_end(text: str, start: int) -> int:
    """The end of the `{` at `start`, where its `}` is; -1 if there is none. Braces in quoted strings do not count."""
    depth, end = 0, start
    for part in _BRACES.finditer(text, start):
        if part.start() != end:  # a quote without its end
            return -1
        end = part.end()
        depth += (part[0] == "{") - (part[0] == "}")
        if depth == 0:
            return end
    return -1


def escaped(text: str) -> str:
    """`text` as the content of a quoted string, with C escapes (HCATTR-7); its bytes beyond ASCII in octal."""
    return _UNSAFE.sub(_escape, text) if _UNSAFE.search(text) else text


_UNSAFE = re.compile(r"""[^ !#-&(-\[\]-~]""")
_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    return _ESCAPES.get(character) or "".join(f"\\{byte:03o}" for byte in character.encode(errors="surrogateescape"))
