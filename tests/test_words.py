"""The wording: docstrings say what a thing is or does first, a class has a name of its own, the glossary is used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "hlokit"

SHARED_NAMES = {
    ("interop/xla_client", "CompileOptions"): "jaxlib's `xla_client` and its `ifrt_programs` both have one",
}
"""Classes that two modules of a package name alike, and why."""
_NOT_A_THING = re.compile(r"(What|Of|How|Who|That of)\b")


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """The docstrings of modules, classes and functions, and the strings below assignments that describe them."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if not isinstance(node, ast.Lambda | ast.IfExp) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                if isinstance(statement.value.value, str):
                    yield statement.value


def faults(text: str) -> list[int]:
    """The lines of docstrings that begin with a word by which nobody can tell what the thing is."""
    return [d.lineno for d in docstrings(ast.parse(text)) if _NOT_A_THING.match(str(d.value).strip())]


def test_docstrings_say_what_the_thing_is() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line in faults(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""What it does."""', [1]),
        ('X = 1\n"""Of integers."""', [2]),
        ('def f():\n    """What f gives.\n\n    More.\n    """', [2]),
        ('class C:\n    """A thing."""\n    x: int\n    """Of what."""', [4]),
        ('def f():\n    """How many there are."""', [2]),
        ('def f():\n    """Whatever f gives."""', []),
        ('def f():\n    """The result: what f gives."""', []),
    ],
)
def test_faults(text: str, lines: list[int]) -> None:
    assert faults(text) == lines


def package_of(path: Path) -> str:
    """The part of hlokit that is read at a time: a folder, of interop each interface."""
    parts = path.relative_to(SOURCE).parts
    return "/".join(parts[: 2 if parts[0] == "interop" else 1])


def test_classes_of_a_package_have_names_of_their_own() -> None:
    places: dict[tuple[str, str], list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault((package_of(path), node.name), []).append(path.name)
    twice = {key: names for key, names in places.items() if len(names) > 1}
    assert twice.keys() == SHARED_NAMES.keys(), twice


GLOSSARY = SOURCE.parents[1] / "docs" / "glossary.md"


def entries() -> list[tuple[str, str, str]]:
    """The glossary's rows: word, meaning, folder after a link to a page."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| \[[^|]+\]\([^|]+\), `([^|]+)/` \|$", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    return [(word, meaning, folder) for word, meaning, folder in rows]


def test_the_glossary_is_in_order() -> None:
    words = [row[0] for row in entries()]
    assert len(words) > 15 and words == sorted({*words}), words


@pytest.mark.parametrize(("word", "meaning", "folder"), entries(), ids=[word for word, _, _ in entries()])
def test_words_of_the_glossary_are_used(word: str, meaning: str, folder: str) -> None:
    used = re.compile(rf"(?<![a-z]){word.replace(' ', '[ _]')}(s|es|ed)?(?![a-z])|\b{word.title().replace(' ', '')}", re.IGNORECASE)
    files = [path for path in (SOURCE / folder).rglob("*.*") if path.suffix in (".py", ".md")]
    assert files and any(used.search(path.read_text(encoding="utf-8")) for path in files)
