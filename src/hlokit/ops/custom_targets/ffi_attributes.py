"""The attributes of a typed FFI call: backend_config as a dictionary in MLIR's spelling, `{uplo = 76 : ui8}`."""

from __future__ import annotations

import ast
import re
from typing import Any

from hlokit.errors import EvaluationError

_TOKEN = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*")
      | (?P<number>-?(?:0x[0-9a-fA-F]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
      | (?P<word>[A-Za-z_][\w.$-]*)
      | (?P<mark>[{}\[\]<>=,:]))""",
    re.VERBOSE,
)
_WORDS = {"true": True, "false": False, "unit": None}


def ffi_attributes(text: str) -> dict[str, Any]:
    """The attributes by name: bool, int, float, str, list, dict, None for a unit. EvaluationError: not a dictionary."""
    reader = _Reader(text)
    try:
        attributes = reader.dictionary() if text.strip() else {}
        reader.expect("")
    except (ValueError, SyntaxError, RecursionError) as error:
        raise EvaluationError(f"backend_config {text[:80]!r} is no dictionary of attributes: {error}") from None
    return attributes


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                self._tokens.append(text[at:].strip()[0])  # no production begins so: it is refused where it stands
                break
            self._tokens.append(match.group().strip())
            at = match.end()
        self._tokens.append("")
        self._at = 0

    def peek(self) -> str:
        return self._tokens[self._at]

    def take(self) -> str:
        token = self.peek()
        self._at += 1 if token else 0
        return token

    def expect(self, token: str) -> None:
        found = self.take()
        if found != token:
            raise ValueError(f"found {found!r}, expected {token or 'the end'!r}")

    def dictionary(self) -> dict[str, Any]:
        self.expect("{")
        attributes: dict[str, Any] = {}
        while self.peek() != "}":
            name = self.take()
            if name.startswith('"'):
                name = ast.literal_eval(name)
            elif not name[:1].isidentifier():
                raise ValueError(f"found {name!r}, expected a name")
            if self.peek() == "=":
                self.take()
                attributes[name] = self.value()
            else:
                attributes[name] = None
            if self.peek() != "}":
                self.expect(",")
        self.take()
        return attributes

    def value(self) -> Any:
        if self.peek() == "{":
            return self.dictionary()
        if self.peek() == "[":
            self.take()
            return self._items("]")
        token = self.take()
        if token == "array":
            return self._dense()
        if token in _WORDS:
            return _WORDS[token]
        literal: Any = ast.literal_eval(token)
        if self.peek() == ":":
            self.take()
            self.take()
        return literal

    def _items(self, end: str) -> list[Any]:
        items: list[Any] = []
        while self.peek() != end:
            items.append(self.value())
            if self.peek() != end:
                self.expect(",")
        self.take()
        return items

    def _dense(self) -> list[Any]:
        """array<i64: 1, 2>, after its first word."""
        self.expect("<")
        self.take()
        if self.peek() == ":":
            self.take()
        return self._items(">")
