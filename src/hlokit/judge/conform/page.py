"""A conformance report as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from hlokit.judge.conform.cases import STATUSES
from hlokit.rules import rules
from hlokit.view.page import shown

if TYPE_CHECKING:
    from hlokit.judge.conform.conforming import Conformance
    from hlokit.judge.conform.result import CaseResult

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d0d0d0, #444); --bad: light-dark(#ffe3e0, #5a2320);
  --none: light-dark(#fff3c4, #554410); }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem auto; max-width: 70rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
td, th { border-top: 1px solid var(--line); padding: 2px 8px; text-align: left; vertical-align: top; }
td.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.failed > td { background: var(--bad); } tr.unsupported > td { background: var(--none); }
pre { overflow-x: auto; font: 12.5px/1.5 ui-monospace, monospace; }
h2 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
"""
_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
)


def page_of(report: Conformance) -> str:
    """The page. All that comes from cases and engines is text, never markup."""
    title = f"Conformance of {report.engine}"
    body = "".join(_body(report, title))
    return f"{_HEAD}<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"


def _text(text: str) -> str:
    """Text as HTML."""
    return escape(shown(text))


def _body(report: Conformance, title: str) -> Iterator[str]:
    counts = report.counts()
    yield f"<h1>{_text(title)}</h1>\n<p>{len(report.results)} cases of {len(report.by_rule)} rules: "
    yield ", ".join(f"{counts[status]} {status}" for status in STATUSES) + ".</p>\n"
    for chapter, labels in groupby(report.by_rule, key=lambda label: rules()[label].chapter):
        yield f"<h2>{_text(chapter.replace('_', ' '))}</h2>\n<table>\n<tr><th>rule<th>"
        yield "<th>".join(STATUSES) + "<th>text</tr>\n"
        for label in labels:
            yield from _row(report, label)
        yield "</table>\n"


def _row(report: Conformance, label: str) -> Iterator[str]:
    counts, results = report.counts(label), report.by_rule[label]
    kind = "failed" if counts["failed"] else "unsupported" if not counts["passed"] else ""
    numbers = "".join(f'<td class="n">{counts[status]}' for status in STATUSES)
    yield f'<tr id="{label}" class="{kind}"><td>{label}{numbers}<td>{_text(rules()[label].text)}'
    for result in results:
        if result.status == "failed":
            yield _failed(result)
    yield "</tr>\n"


def _failed(result: CaseResult) -> str:
    what = f"{result.case.name}: {result.judgement.verdict}: {result.judgement.message}"
    text = "\n\n".join(filter(None, (result.judgement.printed, result.case.text)))
    return f"<details><summary>{_text(what[:500])}</summary><pre>{_text(text)}</pre></details>"
