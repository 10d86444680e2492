"""A diff as lines of text, as `hlokit diff` prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hlokit.hlo.computation import counted
from hlokit.hlo.instruction import Instruction
from hlokit.judge.diff.records import Change, ComputationDiff, Differences, Kind, Pair

SIGNS: dict[Kind, str] = {"same": " ", "changed": "~", "moved": ">", "a": "-", "b": "+"}
"""The first character of a line, by the kind of its pair."""
KIND_NAMES: dict[Kind, str] = {
    "same": "same", "changed": "changed", "moved": "moved", "a": "only in the first", "b": "only in the second",
}  # fmt: skip


class Line(NamedTuple):
    """A line and what it tells of: the kind of a pair, "head" or "detail"."""

    kind: str
    text: str


def lines_of(diff: Differences) -> Iterator[Line]:
    """The differences; of what is the same only how much there is."""
    yield Line("head", f"HloModule {diff.a.name} -> {diff.b.name}: {summary(diff)}")
    yield from map(_detail, diff.changes)
    for computation in diff.computations:
        if computation.a is None or computation.b is None:
            yield _alone(computation)
        elif not computation.is_equal:
            yield Line("head", heading(computation, diff))
            yield from map(_detail, computation.changes)
        for pair in computation.pairs:
            alone = computation.a is None or computation.b is None
            if pair.kind != "same" and (pair.kind == "moved" or not alone or pair.changes):
                yield from _of_pair(pair, computation)


def summary(diff: Differences) -> str:
    """ "12 same, 1 changed, 3 only in the second"; of what differs beside instructions only that it does."""
    told = [f"{count:,} {KIND_NAMES[kind]}" for kind, count in diff.counts.items() if count or kind == "same"]
    if diff.changes:
        told.append("header changed")
    return ", ".join(told)


def heading(computation: ComputationDiff, diff: Differences) -> str:
    """ "ENTRY %main.4 -> %main.7"."""
    names = [f"%{c.name}" for c in (computation.a, computation.b) if c is not None]
    is_entry = computation.a is diff.a.entry or computation.b is diff.b.entry
    return ("ENTRY " if is_entry else "") + " -> ".join(dict.fromkeys(names))


def line_of(instruction: Instruction) -> str:
    """The instruction as HLO text without its metadata, which has lines of its own where it differs."""
    from hlokit.text.printer import PrintOptions, instruction_text

    root = "ROOT " if instruction.is_root else ""
    return root + instruction_text(instruction, PrintOptions(print_metadata=False))


def _alone(computation: ComputationDiff) -> Line:
    kind: Kind = "a" if computation.b is None else "b"
    there = computation.a or computation.b
    assert there is not None
    return Line(kind, f"{SIGNS[kind]} %{there.name} ({counted(len(there), 'instruction')}): {KIND_NAMES[kind]}")


def _of_pair(pair: Pair, where: ComputationDiff) -> Iterator[Line]:
    sign = SIGNS[pair.kind]
    a, b = pair.a, pair.b
    first = a or b
    assert first is not None
    if a is not None and b is not None and a.parent is not where.a:
        return  # told where it was
    yield Line(pair.kind, f"{sign} {line_of(first)}")
    if a is None or b is None:
        return
    if pair.changes:
        yield Line(pair.kind, f"  {line_of(b)}")
    if pair.moved:
        there = f"to %{b.parent.name}" if b.parent is not None and b.parent is not where.b else "in the schedule"
        yield Line("detail", f"    moved {there}")
    yield from map(_detail, pair.changes)


def _detail(change: Change) -> Line:
    return Line("detail", f"    {change.what}: {change.a or 'none'} -> {change.b or 'none'}")
