"""The links of the documentation, from its sources: every link, anchor and entry of a table of contents exists, and every
page is reached from the landing page. `make docs` checks the same on the built site (tests/site.py), which takes minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from posixpath import join, normpath

import pytest
from pygments.lexers import get_all_lexers  # pyright: ignore[reportMissingModuleSource]

from docs import generate
from tests import site

DOCS = Path(__file__).parents[1] / "docs"
UNLISTED = {"status.md"}
"""Pages that are not on the site: for those who work on it."""
_CODE = re.compile(r"^( *)(`{3,}|~{3,})[^\n]*\n.*?^ *\2`*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)|(?:href|src)=\"([^\"]+)\"")
_TREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Page:
    """A page's links, entries of tables of contents, anchors, labels, levels of headings and languages of code."""

    links: tuple[str, ...]
    entries: tuple[str, ...]
    anchors: frozenset[str]
    labels: tuple[str, ...]
    levels: tuple[int, ...]
    languages: frozenset[str]


def read(text: str) -> Page:
    """The page of this Markdown."""
    entries = [entry for tree in _TREE.findall(text) for entry in tree.split("\n") if entry and not entry.startswith(":")]
    languages = frozenset(re.findall(r"^ *```(\w+)$", text, re.MULTILINE))
    prose = _CODE.sub("", text)
    headings = re.findall(r"^(#{1,6}) +(.+?) *$", prose, re.MULTILINE)
    anchors: list[str] = []
    for marks, title in headings:
        if len(marks) <= 3:  # myst_heading_anchors
            slug = re.sub(r"[^\w\- ]", "", _plain(title).strip().lower().replace(" ", "-"))
            anchors.append(next(name for k in range(100) if (name := f"{slug}-{k}" if k else slug) not in anchors))
    labels = re.findall(r"^\(([\w-]+)\)=$", prose, re.MULTILINE)
    ids = re.findall(r"id=\"([^\"]+)\"", prose)
    links = [first or second for first, second in _LINK.findall(_SPAN.sub("", prose))]
    return Page(
        tuple(links), tuple(entries), frozenset([*anchors, *labels, *ids]), tuple(labels), tuple(len(m) for m, _ in headings), languages
    )


def _plain(title: str) -> str:
    """A heading's text without the marks of links and code."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").replace("*", "")


@cache
def pages() -> dict[str, Page]:
    """All pages by their path in docs: those that are written by hand, and those that are generated."""
    texts = {path.relative_to(DOCS).as_posix(): path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md") if "reference" not in path.parts}
    texts |= {f"reference/{name}": text for name, text in generate.reference_pages().items()}
    for name, text in texts.items():  # an included file's links are of the page
        for included in re.findall(r"^```\{include\} (\S+)$", text, re.MULTILINE):
            texts[name] += (DOCS / name).parent.joinpath(included).read_text(encoding="utf-8")
    return {name: read(text) for name, text in texts.items()}


def fault(name: str, link: str, known: dict[str, Page], folder: Path = DOCS) -> str:
    """What is wrong with a link of a page; empty if nothing is."""
    if re.match(r"\w+:", link):
        return site.fault(folder, folder / name, link)
    path, _, anchor = link.partition("#")
    target = normpath(join(name, "..", path)) if path else name
    if target.endswith(".html"):
        target = target.removesuffix(".html") + ".md"
    if target not in known:
        exists = not target.startswith("..") and target not in UNLISTED and (folder / target).is_file()
        return "" if exists and not target.endswith(".md") else "leads to no page and no file"
    return f"leads to {target}, which has no anchor {anchor}" if anchor and anchor not in known[target].anchors else ""


def below(name: str, known: dict[str, Page]) -> list[str]:
    """The pages that the tables of contents of a page list; an entry that names none as it is."""
    found: list[str] = []
    for entry in known[name].entries:
        pattern = normpath(join(name, "..", f"{entry}.md"))
        shape = re.compile(re.escape(pattern).replace(r"\*", "[^/]*"))
        found += [other for other in sorted(known) if shape.fullmatch(other)] or [pattern]
    return found


def reached(known: dict[str, Page]) -> set[str]:
    """The pages to which tables of contents lead from the landing page."""
    found, todo = set[str](), ["index.md"]
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += [other for other in below(name, known) if other in known]
    return found


def test_links_lead_somewhere() -> None:
    links = [(name, link) for name, page in pages().items() for link in page.links]
    assert len(links) > 2500
    assert [f"{name}: {link} {wrong}" for name, link in links if (wrong := fault(name, link, pages()))] == []


def test_every_page_is_reached_from_the_landing_page() -> None:
    listed = {other for name in pages() for other in below(name, pages())}
    assert listed - {*pages()} == set()  # entries that name no page
    assert {*pages()} - reached(pages()) == UNLISTED


def test_labels_are_unique() -> None:
    labels = [label for page in pages().values() for label in page.labels]
    assert len(labels) > 300 and sorted(labels) == sorted({*labels})


def test_pages_begin_with_a_title_and_headings_go_down_by_one_level() -> None:
    for name, page in pages().items():
        if name != "changelog.md":
            assert page.levels[:1] == (1,), name
        assert all(after <= before + 1 for before, after in zip(page.levels, page.levels[1:])), name


def test_languages_of_code_are_known() -> None:
    known = {alias for _, aliases, _, _ in get_all_lexers() for alias in aliases}
    assert {language: name for name, page in pages().items() for language in page.languages - known} == {}


KNOWN = {
    "index.md": read("# Title\n\n## A `b` & c\n\n```{toctree}\nfolder/*\n```\n"),
    "folder/one.md": read("(label)=\n# One\n\n## Two\n\n### Two\n"),
    "lost.md": read("# Lost\n"),
}


@pytest.mark.parametrize(
    ("link", "wrong"),
    [
        ("folder/one.md#label", ""),
        ("folder/one.html#two-1", ""),
        ("#a-b--c", ""),
        ("conf.py", ""),
        ("#gone", "leads to index.md, which has no anchor gone"),
        ("folder/one.md#three", "leads to folder/one.md, which has no anchor three"),
        ("folder/gone.md", "leads to no page and no file"),
        ("status.md", "leads to no page and no file"),
        ("../README.md", "leads to no page and no file"),
        ("gone.svg", "leads to no page and no file"),
        ("http://host.org", "is not an address of the form https://HOST/PATH"),
    ],
)
def test_faults(link: str, wrong: str) -> None:
    assert fault("index.md", link, KNOWN) == wrong


def test_what_is_read_of_a_page() -> None:
    page = read("# T\n\n[x](a.md) `[y](b.md)` <a href=\"c.html\">z</a>\n\n```sh\n[w](d.md)\n# no heading\n```\n\n![p](e.svg)\n")
    assert page.links == ("a.md", "c.html", "e.svg") and page.levels == (1,) and page.languages == {"sh"}


def test_pages_that_nothing_reaches() -> None:
    assert reached(KNOWN) == {"index.md", "folder/one.md"}
    assert below("index.md", {**KNOWN, "index.md": read("# T\n\n```{toctree}\n:hidden:\n\ngone\n```\n")}) == ["gone.md"]
