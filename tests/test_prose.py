"""The word list finds what it is for, and the documentation has none of it."""

from __future__ import annotations

import pytest

from docs import generate
from tests import prose


def test_pages_have_none_of_the_phrases() -> None:
    assert len(prose.pages()) > 50
    found = {path.name: prose.faults(path.read_text(encoding="utf-8")) for path in prose.pages()}
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_reference_has_none_of_the_phrases() -> None:
    """The pages that are made of docstrings."""
    found = {name: prose.faults(text) for name, text in generate.reference_pages().items()}
    assert len(found) > 150
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The log says what came of it.", [(1, "what came of it")]),
        ("Devices wait for\never.", [(1, "for ever")]),
        ("one\n\nProgrammes are read anew.", [(3, "anew")]),
        ("Use `utilize` and\n```\nin order to\n```\n.", []),
        ("But\nfor what comes of mending", [(1, "But for"), (2, "comes of"), (2, "mending")]),
        ("A renewed forever; the leverages.", [(1, "leverages")]),
    ],
)
def test_phrases_are_found(text: str, found: list[tuple[int, str]]) -> None:
    assert [(line, phrase) for line, phrase, _ in prose.faults(text)] == found
