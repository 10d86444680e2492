"""Text that a terminal shows as it is: control characters of a program's names do nothing."""

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
