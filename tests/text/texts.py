"""Small HLO texts for the tests of the parser and printer."""

from __future__ import annotations

import pytest

from hlokit.errors import ParseError
from hlokit.hlo.module import HloModule
from hlokit.text.parser import parse_hlo
from hlokit.text.printer import PrintOptions, module_text

EXACT = PrintOptions(print_large_constants=True)
"""The default options, with all constants."""


def entry(body: str, header: str = "", before: str = "") -> str:
    """A module whose entry has these instructions."""
    return f"HloModule m{header}\n{before}\nENTRY e {{\n{body}\n}}\n"


def line_of(module: HloModule, name: str = "y") -> str:
    """The printed line of the instruction of that name, without indentation and ROOT."""
    lines = (line.strip().removeprefix("ROOT ") for line in module_text(module, EXACT).splitlines())
    return next(line for line in lines if line.startswith(f"%{name} = "))


def printed(body: str, name: str = "y", before: str = "") -> str:
    """How the instruction `name` of an entry with these instructions prints."""
    module = parse_hlo(entry(body, before=before))
    line = line_of(module, name)
    assert line_of(parse_hlo(module_text(module, EXACT)), name) == line
    return line


def refused(text: str, *labels: str) -> ParseError:
    """The error with which the parser refuses the text: it carries a label, line, column and caret."""
    with pytest.raises(ParseError) as caught:
        parse_hlo(text)
    error = caught.value
    assert error.label in labels, f"expected {labels}: {error}"
    assert error.line >= 1 and error.column >= 1
    assert str(error).endswith("^")
    return error


def by_label(rows: list[tuple[str, ...]]) -> pytest.MarkDecorator:
    """Parametrises over rows whose first entry is "LABEL: what it is about"; the test gets the rest."""
    names = {2: "text", 3: "text, expected", 4: "text, expected, more"}[len(rows[0])]
    return pytest.mark.parametrize(
        names, [row[1:] if len(row) > 2 else row[1] for row in rows], ids=[row[0] for row in rows]
    )
