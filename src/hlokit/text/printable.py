"""Text that is safe to show in a terminal: control characters in a program's names are replaced."""

from __future__ import annotations

import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str) -> str:
    r"""`text` with control, bidirectional and unassigned characters as escapes; lines stay lines.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in _UNSAFE else c.encode("unicode_escape").decode() for c in text
    )
