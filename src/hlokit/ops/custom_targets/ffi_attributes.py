"""The attributes of a typed FFI call: backend_config as a dictionary in MLIR's spelling, `{uplo = 76 : ui8}`."""

from __future__ import annotations

import ast
import re
import struct
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
_ESCAPE = re.compile(rb"\\([0-9a-fA-F]{2}|.)", re.DOTALL)
_FLOATS = {"f64": ("<Q", "<d"), "f32": ("<I", "<f"), "f16": ("<H", "<e")}
"""How the bits of a float, and how the float, are packed."""


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
                name = _unquoted(name)
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

    def value(self, element: str = "") -> Any:
        """`element`: the type of a number that does not say its own."""
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
        if self.peek() == ":":
            self.take()
            element = self.take()
        return _unquoted(token) if token.startswith('"') else _number(token, element)

    def _items(self, end: str, element: str = "") -> list[Any]:
        items: list[Any] = []
        while self.peek() != end:
            items.append(self.value(element))
            if self.peek() != end:
                self.expect(",")
        self.take()
        return items

    def _dense(self) -> list[Any]:
        """array<i64: 1, 2>, after its first word."""
        self.expect("<")
        element = self.take()
        if self.peek() == ":":
            self.take()
        return self._items(">", element)


def _unquoted(token: str) -> str:
    """A string as MLIR writes it: a backslash before a quote, a backslash, n, t or a byte's two hexadecimal digits."""

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if len(code) == 2:
            return bytes.fromhex(code.decode())
        return {b"n": b"\n", b"t": b"\t"}.get(code, code)

    return _ESCAPE.sub(byte, token[1:-1].encode()).decode()


def _number(token: str, element: str) -> int | float:
    """A number; of a float type in hexadecimal they are its bits: so MLIR writes infinities and NaNs."""
    literal: Any = ast.literal_eval(token)
    if "0x" not in token or element not in ("bf16", *_FLOATS):
        return literal
    bits, value = _FLOATS.get(element, _FLOATS["f32"])
    try:
        return struct.unpack(value, struct.pack(bits, literal << 16 if element == "bf16" else literal))[0]
    except struct.error:
        raise ValueError(f"{token} is more than the bits of {element}") from None
