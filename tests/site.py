"""Checks of the built site: every link leads somewhere, and the tasks of its readers are solved from the landing page.

    python -m tests.site build/docs

Links within the site lead to files and to ids that exist; addresses outside are checked for their form only, as there
need be no network. Rules stand on their pages letter by letter. Exit status 1 with a line for each fault.
`make docs` runs it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hlokit import rules

TASKS = Path(__file__).parents[1] / "docs" / "tasks.toml"
MOST_CLICKS = 3
_WORDS_A_MINUTE, _MINUTES_A_CLICK = 230, 0.2


@dataclass
class Page(HTMLParser):
    """A page: its ids, all links, the links of its text with theirs, and the text."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    inside: list[tuple[str, str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._in_article = 0
        self._link: str | None = None
        self._in_picture = 0
        self.feed(self.path.read_text(encoding="utf-8"))
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids |= {given[name] or "" for name in ("id", "name") if name in given}
        self._in_article += tag == "article"
        self._in_picture += tag == "svg"
        address = given.get("href") if tag in ("a", "link") else given.get("src")
        if address is not None:
            self.links.append(address)
        if tag == "a" and self._in_article and address is not None:
            self._link = address
            self.inside.append((address, ""))
        if self._in_article and tag == "svg":
            self.text += f" {given.get('class') or ''} "

    def handle_endtag(self, tag: str) -> None:
        self._in_article -= tag == "article"
        self._in_picture -= tag == "svg"
        if tag == "a":
            self._link = None

    def handle_data(self, data: str) -> None:
        if self._in_article and not self._in_picture:
            self.text += data
        if self._link is not None:
            address, text = self.inside[-1]
            self.inside[-1] = address, text + data


@cache
def page(path: Path) -> Page:
    return Page(path)


def target(start: Path, address: str) -> tuple[Path, str]:
    """The file that a link of a page leads to, and the id on it."""
    parts = urlsplit(address)
    path = start if not parts.path else (start.parent / unquote(parts.path)).resolve()
    return (path / "index.html" if path.is_dir() else path), unquote(parts.fragment)


def fault(root: Path, start: Path, address: str) -> str:
    """What is wrong with a link; empty if nothing is."""
    parts = urlsplit(address)
    if parts.scheme in ("http", "https"):
        good = re.fullmatch(r"[\w.-]+\.[a-z]+", parts.netloc) and not re.search(r"[\s<>`{}]|\.\.|//", parts.path)
        return "" if good and parts.scheme == "https" else "is not an address of the form https://HOST/PATH"
    if parts.scheme in ("mailto", "data", "javascript"):
        return ""
    if start.name == "404.html":  # whose links are absolute, below where the site is served
        path, anchor = root / parts.path.removeprefix("/en/latest/"), parts.fragment
        path = path / "index.html" if path.is_dir() else path
    else:
        path, anchor = target(start, address)
    if not path.is_relative_to(root) or not path.exists():
        return "leads to no file"
    if anchor and path.suffix == ".html" and anchor not in page(path).ids and parts.path != "search.html":
        return f"leads to {path.name}, which has no id {anchor}"
    return ""


def faults(root: Path) -> list[str]:
    """The links of the site that lead nowhere."""
    found: list[str] = []
    for path in sorted(root.rglob("*.html")):
        if "_static" in path.parts:
            continue
        said = {address: fault(root, path, address) for address in dict.fromkeys(page(path).links)}
        found += [f"{path.relative_to(root)}: {address} {what}" for address, what in said.items() if what]
    return found


def solved(root: Path, task: dict[str, object]) -> tuple[float, str]:
    """About how many minutes a task takes; or why it is not solved."""
    here = root / "index.html"
    path, answer = list(map(str, task["path"])), list(map(str, task["answer"]))  # type: ignore[call-overload]
    if len(path) > MOST_CLICKS:
        return 0, f"{len(path)} clicks"
    for text in path:
        address = next((address for address, said in page(here).inside if " ".join(said.split()) == text), None)
        if address is None:
            return 0, f"{here.relative_to(root)} has no link {text!r}"
        here, anchor = target(here, address)
    at = 0
    for part in answer:
        at = page(here).text.find(part, at)
        if at < 0:
            return 0, f"{here.relative_to(root)} does not say {part!r}"
    words = len(page(here).text[:at].split()) if not anchor else 60
    return _MINUTES_A_CLICK * len(path) + words / _WORDS_A_MINUTE, ""


def misprints(root: Path) -> list[str]:
    """The rules whose text is not on their chapter's page letter by letter, and pages that name a kernel's files."""
    found: list[str] = []
    for rule in rules.rules().values():
        if " ".join(rule.text.replace("`", "").split()) not in page(root / f"reference/rules/{rule.chapter}.html").text:
            found.append(f"{rule.label} is not on its page as it is in the rule book")
    for path in sorted((root / "tutorials").glob("*.html")):
        found += [f"{path.name} names a file of ipykernel"] * ("ipykernel_" in path.read_text(encoding="utf-8"))
    return found


def main() -> int:
    root = Path(sys.argv[1]).resolve()
    wrong = faults(root) + misprints(root)
    for line in wrong:
        print(line)
    tasks = tomllib.loads(TASKS.read_text(encoding="utf-8"))["task"]
    times: list[float] = []
    for task in tasks:
        minutes, why = solved(root, task)
        times.append(minutes)
        print(f"{task['reader']}: {task['question']} {len(task['path'])} clicks, {why or f'{minutes:.1f} minutes'}")
        wrong += [task["question"]] if why or minutes > 3 else []
    pages = len([*root.rglob("*.html")])
    print(f"{pages} pages, {len(tasks)} tasks, at most {max(times):.1f} minutes, {len(wrong)} faults")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
