"""A diff as a page of the viewer: both modules side by side, and as graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hlokit.hlo.instruction import Instruction
from hlokit.hlo.lineage import Mark
from hlokit.judge.diff.records import Change, Differences, Kind, Pair
from hlokit.judge.diff.text import heading, line_of, summary
from hlokit.stack import with_stack
from hlokit.view.data import PageData
from hlokit.view.making import LARGE
from hlokit.view.page import View, page


@with_stack
def view_of(diffs: Sequence[tuple[str, Differences]]) -> View:
    """The page of one or several diffs, each with its title. That of one has the graphs of both modules as well."""
    data = PageData(_title(diffs[0][1]) if diffs else "nothing to compare")
    numbers: dict[Instruction, int] = {}
    if len(diffs) == 1:
        numbers = _graphs(data, diffs[0][1])
    data.diff([_one(name, diff, numbers) for name, diff in diffs])
    return page(data.json())


def _title(diff: Differences) -> str:
    return f"{diff.a.name} → {diff.b.name}"


def _graphs(data: PageData, diff: Differences) -> dict[Instruction, int]:
    """Both modules as stages, and the numbers of their instructions in them; nothing of large ones."""
    if sum(len(c) for m in (diff.a, diff.b) for c in m.computations()) >= LARGE:
        return {}
    data.stage(f"first: {diff.a.name}", diff.a)
    origins: dict[Instruction, dict[Instruction, Mark]] = {i: {} for c in diff.b.computations() for i in c.post_order()}
    kinds: dict[Instruction, Kind] = {}
    for pair in _pairs(diff):
        if pair.b is not None:
            kinds[pair.b] = pair.kind
            if pair.a is not None:
                origins[pair.b] = {pair.a: Mark.SAME}
    data.stage(f"second: {diff.b.name}", diff.b, origins, kinds)
    return {**data.numbers(0), **data.numbers(1)}


def _pairs(diff: Differences) -> list[Pair]:
    return [pair for computation in diff.computations for pair in computation.pairs]


def _one(title: str, diff: Differences, numbers: dict[Instruction, int]) -> dict[str, Any]:
    return {
        "title": title or _title(diff),
        "summary": summary(diff),
        "changes": _texts(diff.changes),
        "computations": [
            {
                "title": heading(computation, diff),
                "changes": _texts(computation.changes),
                "rows": [_row(pair, numbers) for pair in computation.pairs],
            }
            for computation in (() if diff.is_equal else diff.computations)
        ],
    }


def _row(pair: Pair, numbers: dict[Instruction, int]) -> list[Any]:
    """The kind, both lines, what differs, and the numbers of both in the graphs, -1 where there is none."""
    place = pair.b.parent.name if pair.moved and pair.b is not None and pair.b.parent is not None else ""
    notes = [*_texts(pair.changes), *([f"now in %{place}"] if place else [])]
    texts = ("" if i is None else line_of(i) for i in (pair.a, pair.b))
    return [pair.kind, *texts, notes, *(-1 if i is None else numbers.get(i, -1) for i in (pair.a, pair.b))]


def _texts(changes: Sequence[Change]) -> list[str]:
    return [f"{c.what}: {c.a or 'none'} → {c.b or 'none'}" for c in changes]
