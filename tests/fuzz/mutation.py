"""Text that is almost HLO: one small change somewhere in a module's text."""

from __future__ import annotations

import random
import re

_PIECES = ("{", "}", "(", ")", ",", "=", "[", "]", "->", "ROOT", "{}", "-1", "0", "99999999999999999999", "f32", "<=3", "?", '"', "...", "/*", "%x", "true", "nan", "é", "\x00")  # fmt: skip


def mutated(text: str, seed: int) -> str:
    """`text` with a token or a line dropped, doubled, swapped or replaced."""
    source = random.Random(seed)
    kind = source.randrange(6)
    if kind == 0:
        lines = text.split("\n")
        place = source.randrange(len(lines))
        lines[place : place + 1] = source.choice([[], [lines[place]] * 2, [source.choice(lines)]])
        return "\n".join(lines)
    if kind == 1:
        place = source.randrange(len(text))
        return text[:place] + text[place + source.randint(1, 4) :]
    tokens = list(re.finditer(r"[\w.%\-]+|[^\w\s]", text))
    token = source.choice(tokens)
    if kind == 2:
        new = source.choice(_PIECES)
    elif kind == 3:
        new = source.choice(tokens).group()
    elif kind == 4:
        new = token.group() + source.choice(_PIECES)
    else:
        numbers = [t for t in tokens if t.group().lstrip("-").isdigit()]
        token = source.choice(numbers or tokens)
        new = str(source.choice([-1, 0, 1, 2, 3, 5, 2**31, 2**63, -(2**63) - 1, 10**30]))
    return text[: token.start()] + new + text[token.end() :]
