"""A diff as one page: both modules side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from hlokit.judge.diff.records import Change, ComputationDiff, Differences, Pair
from hlokit.judge.diff.text import SIGNS, heading, line_of, summary

_SHOWN = 3
"""Lines that are the same, shown before and after one that is not; the others are folded."""

_STYLE = """
:root { color-scheme: light dark; --line: light-dark(#d0d0d0, #444); --a: light-dark(#ffe3e0, #5a2320);
  --b: light-dark(#dcf5dc, #1f4a26); --changed: light-dark(#fff3c4, #554410); --moved: light-dark(#e0ecff, #24395e); }
body { font: 15px/1.45 system-ui, sans-serif; margin: 1rem; }
table { border-collapse: collapse; table-layout: fixed; width: 100%; }
td { font: 12.5px/1.5 ui-monospace, monospace; overflow-wrap: anywhere; padding: 1px 6px; vertical-align: top;
  white-space: pre-wrap; border-left: 1px solid var(--line); }
td.sign { width: 1.2em; text-align: center; border: 0; }
col.sign { width: 1.8em; }
tr.a td { background: var(--a); } tr.b td { background: var(--b); }
tr.changed td { background: var(--changed); } tr.moved td { background: var(--moved); }
.changes { color: light-dark(#444, #ccc); display: block; }
summary { cursor: pointer; font-size: 12px; padding: 2px 6px; color: light-dark(#555, #aaa); }
h2 { font-size: 1rem; margin: 1.4rem 0 .3rem; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_HEAD = (
    '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
)
_COLUMNS = '<colgroup><col class="sign"><col><col></colgroup>'


def page_of(diffs: Sequence[tuple[str, Differences]]) -> str:
    """The page of one or several diffs, each with its title. All that comes from the modules is text, never markup."""
    first = diffs[0][1] if diffs else None
    title = f"{first.a.name} → {first.b.name}" if first is not None else "nothing to compare"
    body = "".join(line for name, diff in diffs for line in _body(name, diff))
    return f"{_HEAD}<title>{text_of(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"


def text_of(text: str) -> str:
    """Text as HTML: characters that do not show, or turn the direction of writing, are written as their codes."""
    shown = "".join(c if c.isprintable() or c == "\n" else f"\\u{ord(c):04x}" for c in text)
    return escape(shown)


def _body(title: str, diff: Differences) -> Iterator[str]:
    yield f"<h1>{text_of(title or f'{diff.a.name} → {diff.b.name}')}</h1>\n<p>{text_of(summary(diff))}.</p>\n"
    yield _changes(diff.changes)
    if diff.is_equal:
        return
    for computation in diff.computations:
        yield f"<h2>{text_of(heading(computation, diff))}</h2>\n{_changes(computation.changes)}"
        yield from _computation(computation)


def _computation(computation: ComputationDiff) -> Iterator[str]:
    """The pairs as rows of tables; long runs of what is the same are folded."""
    for is_same, group in groupby(computation.pairs, key=lambda pair: pair.kind == "same"):
        pairs = list(group)
        if is_same and len(pairs) > 2 * _SHOWN + 1:
            hidden = pairs[_SHOWN:-_SHOWN]
            yield _table(pairs[:_SHOWN])
            yield f"<details><summary>{len(hidden):,} the same</summary>{_table(hidden)}</details>\n"
            yield _table(pairs[-_SHOWN:])
        else:
            yield _table(pairs)


def _table(pairs: Sequence[Pair]) -> str:
    return f"<table>{_COLUMNS}{''.join(map(_row, pairs))}</table>\n"


def _row(pair: Pair) -> str:
    cells = [text_of(line_of(i)) if i is not None else "" for i in (pair.a, pair.b)]
    moved = pair.moved and pair.b is not None and pair.b.parent is not None
    notes = _changes(pair.changes) + (f'<span class="changes">now in %{text_of(_place(pair))}</span>' if moved else "")
    sign = f'<td class="sign">{SIGNS[pair.kind].strip()}</td>'
    return f'<tr class="{pair.kind}">{sign}<td>{cells[0]}</td><td>{cells[1]}{notes}</td></tr>'


def _place(pair: Pair) -> str:
    return pair.b.parent.name if pair.b is not None and pair.b.parent is not None else ""


def _changes(changes: Sequence[Change]) -> str:
    told = [text_of(f"{c.what}: {c.a or 'none'} → {c.b or 'none'}") for c in changes]
    return "".join(f'<span class="changes">{line}</span>' for line in told)
