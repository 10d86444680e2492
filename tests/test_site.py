"""The checks of the built site find what they look for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import site

INDEX = """<html><body><nav><a href="b.html">Sidebar</a></nav><article>
<a href="b.html#there">To b</a> <a href="https://host.org/page">Outside</a></article></body></html>"""
OTHER = '<html><body><article><p id="there">An answer, and <b>more of it</b>.</p></article></body></html>'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    site.page.cache_clear()
    (tmp_path / "index.html").write_text(INDEX, encoding="utf-8")
    (tmp_path / "b.html").write_text(OTHER, encoding="utf-8")
    return tmp_path


def test_a_sound_site_has_no_faults(root: Path) -> None:
    assert site.faults(root) == []


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("b.html#there", "b.html#gone", "leads to b.html, which has no id gone"),
        ("b.html#there", "c.html", "leads to no file"),
        ("b.html#there", "../outside.html", "leads to no file"),
        ("https://host", "http://host", "is not an address of the form https://HOST/PATH"),
        ("host.org/page", "host/page", "is not an address of the form https://HOST/PATH"),
        ("host.org/page", "host.org/../page", "is not an address of the form https://HOST/PATH"),
    ],
)
def test_links_that_lead_nowhere(root: Path, old: str, new: str, what: str) -> None:
    (root / "index.html").write_text(INDEX.replace(old, new), encoding="utf-8")
    (found,) = site.faults(root)
    assert found.endswith(what)


@pytest.mark.parametrize(
    ("path", "answer", "why"),
    [
        (["To b"], ["answer", "more of it"], ""),
        (["To b"], ["more of it", "answer"], "b.html does not say 'answer'"),
        (["Sidebar"], ["answer"], "index.html has no link 'Sidebar'"),
        (["To b"] * 4, ["answer"], "4 clicks"),
    ],
)
def test_tasks(root: Path, path: list[str], answer: list[str], why: str) -> None:
    minutes, found = site.solved(root, {"path": path, "answer": answer})
    assert found == why and (minutes > 0) == (not why)
