"""Buffer assignment: which buffers share memory, and where each lies."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hlokit.cpu.expr import Buffer
from hlokit.cpu.program import Block, ConditionalStep, CopyStep, RoutineStep, Step, WhileStep

ALIGNMENT = 64


@dataclass(eq=False)
class Home:
    """A place in memory, of one buffer or of several that follow each other in it.

    kind    argument, result, constant (`offset`: its number) or arena (`offset`: bytes from its start)
    slot    for homes that change places with another in a loop: the number of the pointer variable; else None
    """

    buffers: list[Buffer]
    kind: str = "arena"
    offset: int = 0
    nbytes: int = 0
    first: int = 1 << 60
    last: int = -1
    slot: int | None = None
    writable: bool = True


@dataclass
class Assignment:
    """homes by buffer; `nbytes` of the arena; `slots`: the homes that pointer variables begin with, in order."""

    homes: dict[Buffer, Home] = field(default_factory=dict[Buffer, Home])
    nbytes: int = 0
    slots: list[Home] = field(default_factory=list[Home])
    times: dict[Step, tuple[int, int]] = field(default_factory=dict[Step, "tuple[int, int]"])
    copies: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    lives: list[Home] = field(default_factory=list[Home])


def assign(
    block: Block,
    arguments: Sequence[Buffer],
    results: Sequence[Buffer],
    constants: Iterable[Buffer],
    donated: Iterable[int] = (),
) -> Assignment:
    """Homes for all buffers of the program: arguments, results and constants where the caller has them, others in the
    arena, each there only as long as it is needed."""
    found = Assignment()
    homes = found.homes
    given = set(donated)
    for kind, buffers in (("argument", arguments), ("result", results), ("constant", constants)):
        for k, buffer in enumerate(buffers):
            writable = kind == "result" or (kind == "argument" and k in given)
            homes[buffer] = Home([buffer], kind, k, buffer.nbytes, writable=writable)
    _Timer(found).block(block)
    for buffer in results:
        homes[buffer].last = 1 << 59
    for buffer in arguments:
        homes[buffer].first = -1
    _share(found, block, None)
    _make_slots(found, block)
    _place(found)
    _note_copies(found, block)
    return found


class _Timer:
    """Numbers the steps in their order, those in loops and branches among them, and sees when buffers are used."""

    def __init__(self, found: Assignment) -> None:
        self.found = found
        self.now = 0

    def block(self, block: Block) -> None:
        for step in block.steps:
            self.step(step)

    def step(self, step: Step) -> None:
        start = self.now
        self.now += 1
        if isinstance(step, WhileStep):
            self.block(step.condition)
            self.touch(step.predicate, self.now)
            self.block(step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                self.block(branch)
        end = self.now
        self.now += 1
        self.found.times[step] = (start, end)
        for buffer in (*step.reads, *step.writes):
            self.touch(buffer, start)
            self.touch(buffer, end)
        if isinstance(step, RoutineStep) and step.scratch is not None:
            self.touch(step.scratch, start)
        if isinstance(step, WhileStep):
            for current, following in step.carries:
                for buffer in (current, following):
                    self.touch(buffer, start)
                    self.touch(buffer, end)

    def touch(self, buffer: Buffer, time: int) -> None:
        home = self.found.homes.get(buffer)
        if home is None:
            home = self.found.homes[buffer] = Home([buffer], nbytes=buffer.nbytes)
        home.first = min(home.first, time)
        home.last = max(home.last, time)


def _share(found: Assignment, block: Block, loop: WhileStep | None) -> None:
    """Lets a copy's source and result be one place wherever nothing reads the source afterwards."""
    for k, step in enumerate(block.steps):
        if isinstance(step, WhileStep):
            _share(found, step.condition, None)
            _share(found, step.body, step)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _share(found, branch, None)
        elif isinstance(step, CopyStep):
            _share_copy(found, block, k, step, loop)


def _share_copy(found: Assignment, block: Block, place: int, step: CopyStep, loop: WhileStep | None) -> None:
    source, result = found.homes[step.reads[0]], found.homes[step.writes[0]]
    if source is result or not source.writable or source.nbytes != result.nbytes:
        return
    if source.kind != "arena" and result.kind != "arena":
        return
    start, end = found.times[step]
    carried = loop is not None and any(
        found.homes[a] is source and found.homes[b] is result for a, b in loop.carries
    )
    if not carried and source.last > end:
        return
    if carried:
        after = block.steps[place + 1 :]
        if any(_touches(found, other, source) for other in after):
            return
        if any(_touches(found, other, result) for other in block.steps[:place]):
            return
    elif result.first < start and any(_touches(found, other, result) for other in block.steps[:place]):
        return
    elif result.first < start and not _is_branch_result(step, block, place):
        return
    _merge(found, source, result)


def _is_branch_result(step: CopyStep, block: Block, place: int) -> bool:
    """A copy at a branch's end: other branches have written the result before in time, but not in this run."""
    return step.reason == "the result of a branch"


def _touches(found: Assignment, step: Step, home: Home) -> bool:
    buffers = [*step.reads, *step.writes]
    return any(found.homes[b] is home for b in buffers)


def _merge(found: Assignment, source: Home, result: Home) -> None:
    kept, gone = (result, source) if result.kind != "arena" else (source, result)
    kept.buffers += gone.buffers
    kept.first = min(kept.first, gone.first)
    kept.last = max(kept.last, gone.last)
    for buffer in gone.buffers:
        found.homes[buffer] = kept


def _make_slots(found: Assignment, block: Block) -> None:
    for step in block.steps:
        if isinstance(step, WhileStep):
            for current, following in step.carries:
                one, two = found.homes[current], found.homes[following]
                if one is two:
                    continue
                for home in (one, two):
                    if home.slot is None:
                        home.slot = len(found.slots)
                        found.slots.append(home)
                first, last = min(one.first, two.first), max(one.last, two.last)
                for home in (one, two):  # either may hold the last value
                    home.first, home.last = first, last
            _make_slots(found, step.condition)
            _make_slots(found, step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _make_slots(found, branch)


def _place(found: Assignment) -> None:
    """Offsets in the arena, in the order in which buffers come to life: the least gap that fits."""
    homes = list(dict.fromkeys(home for home in found.homes.values() if home.kind == "arena" and home.last >= 0))
    homes.sort(key=lambda home: (home.first, home.buffers[0].number))
    found.lives = homes
    ends: list[tuple[int, int, int]] = []  # (last use, offset, size) of what is alive
    gaps: list[tuple[int, int]] = []  # (offset, size), by offset
    top = 0
    for home in homes:
        while ends and ends[0][0] < home.first:
            _, offset, size = ends.pop(0)
            _free(gaps, offset, size)
        size = max(ALIGNMENT, -(-home.nbytes // ALIGNMENT) * ALIGNMENT)
        best = min((g for g in gaps if g[1] >= size), key=lambda g: (g[1], g[0]), default=None)
        if best is not None:
            gaps.remove(best)
            home.offset = best[0]
            if best[1] > size:
                insort(gaps, (best[0] + size, best[1] - size))
        elif gaps and gaps[-1][0] + gaps[-1][1] == top:
            home.offset = gaps.pop()[0]
            top = home.offset + size
        else:
            home.offset = top
            top += size
        insort(ends, (home.last, home.offset, size))
        found.nbytes = max(found.nbytes, top)


def _free(gaps: list[tuple[int, int]], offset: int, size: int) -> None:
    insort(gaps, (offset, size))
    k = gaps.index((offset, size))
    if k + 1 < len(gaps) and offset + size == gaps[k + 1][0]:
        size += gaps.pop(k + 1)[1]
        gaps[k] = (offset, size)
    if k and gaps[k - 1][0] + gaps[k - 1][1] == offset:
        gaps[k - 1] = (gaps[k - 1][0], gaps[k - 1][1] + size)
        gaps.pop(k)


def _note_copies(found: Assignment, block: Block) -> None:
    """What is copied after all, and why."""
    for step in block.steps:
        if isinstance(step, CopyStep) and found.homes[step.reads[0]] is not found.homes[step.writes[0]]:
            found.copies.append((step.name, step.reads[0].nbytes, step.reason))
        elif isinstance(step, WhileStep):
            _note_copies(found, step.condition)
            _note_copies(found, step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _note_copies(found, branch)

