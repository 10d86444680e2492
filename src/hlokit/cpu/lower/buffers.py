"""Buffer assignment: which buffers share memory, and the address of each."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hlokit.cpu.loops.expr import Buffer, Node, RuntimeInt, reachable, with_combiner
from hlokit.cpu.loops.nest import Loops
from hlokit.cpu.lower.chains import internal
from hlokit.cpu.lower.steps import (
    CallStep,
    ConditionalStep,
    CopyStep,
    KernelStep,
    RoutineStep,
    Step,
    StepBlock,
    WhileStep,
)
from hlokit.cpu.target import ALIGNMENT
from hlokit.forms.affine import Affine


@dataclass(eq=False)
class Home:
    """A place in memory, of one buffer or of several that follow each other in it.

    kind    argument, result, constant (`offset`: its number) or arena (`offset`: bytes from its start)
    slot    for homes that change places with another in a loop: the number of the pointer variable; else None
    result  the number of the result that lies here, in an argument's home too; else None
    """

    buffers: list[Buffer]
    kind: str = "arena"
    offset: int = 0
    nbytes: int = 0
    first: int = 1 << 60
    last: int = -1
    slot: int | None = None
    writable: bool = True
    result: int | None = None


@dataclass
class Assignment:
    """homes by buffer; `nbytes` of the arena, `outside`: of arguments, results and constants; `slots`: the homes that
    pointer variables begin with, in order."""

    homes: dict[Buffer, Home] = field(default_factory=dict[Buffer, Home])
    nbytes: int = 0
    outside: int = 0
    slots: list[Home] = field(default_factory=list[Home])
    times: dict[Step, tuple[int, int]] = field(default_factory=dict[Step, "tuple[int, int]"])
    copies: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    lives: list[Home] = field(default_factory=list[Home])
    aliases: dict[int, int] = field(default_factory=dict[int, int])
    overwritten: list[int] = field(default_factory=list[int])
    aligned: bool = False
    written: dict[Buffer, list[int]] = field(default_factory=dict[Buffer, "list[int]"])

    @property
    def total(self) -> int:
        """The bytes that a call needs."""
        return self.nbytes + self.outside

    def holder(self) -> tuple[str, int]:
        """The largest buffer of the arena at the time when it is fullest, and its bytes."""
        starts = [(home.first, 1, k) for k, home in enumerate(self.lives)]
        events = sorted(starts + [(home.last + 1, 0, k) for k, home in enumerate(self.lives)])
        now = most = fullest = 0
        for place, (_, begins, k) in enumerate(events, 1):
            now += self.lives[k].nbytes if begins else -self.lives[k].nbytes
            if now > most:
                most, fullest = now, place
        alive: set[int] = set()
        for _, begins, k in events[:fullest]:
            (alive.add if begins else alive.remove)(k)
        largest = max((self.lives[k] for k in alive), key=lambda h: (h.nbytes, -h.buffers[0].number), default=None)
        return (largest.buffers[0].name, largest.nbytes) if largest is not None else ("nothing", 0)


def assign(
    block: StepBlock,
    arguments: Sequence[Buffer],
    results: Sequence[Buffer],
    constants: Iterable[Buffer],
    donated: Iterable[int] = (),
) -> Assignment:
    """Homes for all buffers of the program: arguments, results and constants where the caller has them, others in the
    arena, each there only as long as it is needed.

    Arguments of the numbers `donated` may be overwritten; results that lie there are `aliases`: result -> argument. All
    that are overwritten are listed, since what lies in other memory too must not be; `aligned`: past the caches.
    """
    found = Assignment()
    homes = found.homes
    given = set(donated)
    outside = [*arguments, *results, *constants]
    for kind, buffers in (("argument", arguments), ("result", results), ("constant", constants)):
        for k, buffer in enumerate(buffers):
            writable = kind == "result" or (kind == "argument" and k in given)
            homes[buffer] = Home([buffer], kind, k, buffer.nbytes, writable=writable)
            if kind == "result":
                homes[buffer].result = k
    _delay_counters(block)
    _Timer(found).block(block)
    for buffer in results:
        homes[buffer].last = 1 << 59
    for buffer in arguments:
        homes[buffer].first = -1
    _share(found, block, None)
    _outlast(found, block)
    _reuse(found, [homes[b] for b in arguments], [homes[b] for b in results])
    _make_slots(found, block)
    found.overwritten = [h.offset for a in arguments if (h := homes[a]).writable and len(h.buffers) > 1]
    found.aliases = {h.result: h.offset for h in homes.values() if h.kind == "argument" and h.result is not None}
    found.outside = sum(buffer.nbytes for buffer in outside)
    found.outside -= sum(results[number].nbytes for number in found.aliases)
    _place(found)
    _note_copies(found, block)
    return found


def _delay_counters(block: StepBlock) -> None:
    """In loops, what makes a carry's next value comes after what reads its present one, so that it may be in place: a
    counter goes up when all have seen it. The copy that a scatter begins with comes last, too, and is then not made."""
    for step in block.steps:
        if isinstance(step, WhileStep):
            _delay_counters(step.condition)
            _delay_counters(step.body)
            _Delays(step.body.steps).all(step.carries)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _delay_counters(branch)


class _Delays:
    """Moves kernels and copies of a loop's body. `places`: where each step stands; `uses`: what touches a buffer."""

    def __init__(self, steps: list[Step]) -> None:
        self.steps = steps
        self.places = {step: k for k, step in enumerate(steps)}
        self.uses = _uses(steps)

    def all(self, carries: Sequence[tuple[Buffer, Buffer]]) -> None:
        for current, following in carries:
            makers = [s for s in self.uses.get(following, ()) if following in s.writes]
            for step in sorted(makers, key=self.places.__getitem__, reverse=True):
                if isinstance(step, (KernelStep, CopyStep)):
                    self._delay(step, current)

    def _delay(self, step: Step, current: Buffer) -> None:
        place = self.places[step]
        last = max((self.places[other] for other in self.uses.get(current, ())), default=place)
        if last <= place:
            return
        between = self.steps[place + 1 : last + 1]
        reads, writes = set(step.reads), set(step.writes)
        if any(not writes.isdisjoint((*s.reads, *s.writes)) or not reads.isdisjoint(s.writes) for s in between):
            return
        self.steps[place : last + 1] = [*between, step]
        self.places |= {moved: k for k, moved in enumerate(self.steps[place : last + 1], place)}


def _uses(steps: Iterable[Step]) -> dict[Buffer, list[Step]]:
    found: dict[Buffer, list[Step]] = {}
    for step in steps:
        for buffer in dict.fromkeys((*step.reads, *step.writes)):
            found.setdefault(buffer, []).append(step)
    return found


class _Timer:
    """Numbers the steps in their order, those in loops and branches among them, and sees when buffers are used."""

    def __init__(self, found: Assignment) -> None:
        self.found = found
        self.now = 0

    def block(self, block: StepBlock) -> None:
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
        if isinstance(step, (RoutineStep, CallStep)) and step.scratch is not None:
            self.touch(step.scratch, start)
        changed = step.writes
        if isinstance(step, WhileStep):
            changed = tuple(buffer for pair in step.carries for buffer in pair)
            for buffer in changed:
                self.touch(buffer, start)
                self.touch(buffer, end)
        elif isinstance(step, ConditionalStep):
            changed = ()
        for buffer in changed:
            self.found.written.setdefault(buffer, []).append(end)

    def touch(self, buffer: Buffer, time: int) -> None:
        home = self.found.homes.get(buffer)
        if home is None:
            home = self.found.homes[buffer] = Home([buffer], nbytes=buffer.nbytes)
        home.first = min(home.first, time)
        home.last = max(home.last, time)


def _share(found: Assignment, block: StepBlock, loop: WhileStep | None) -> None:
    """Lets a copy's source and result be one place wherever nothing reads the source afterwards, likewise what a kernel
    reads and writes at the same places."""
    chained = internal(block)
    sharing = _Sharing(found, block, loop)
    for k, step in enumerate(block.steps):
        if isinstance(step, WhileStep):
            _share(found, step.condition, None)
            _share(found, step.body, step)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _share(found, branch, None)
        elif isinstance(step, CopyStep):
            if not _shared_as_it_is(found, step):
                sharing.tried(k, step, step.reads, step.writes[0])
        elif _loops(step) is not None:
            for written in step.writes:
                sharing.tried(k, step, [b for b in step.reads if step not in chained or b in chained[step]], written)


def _outlast(found: Assignment, block: StepBlock) -> None:
    """The steps of a chain are at work together: all that they touch is in use from the first to the last."""
    for step in block.steps:
        if isinstance(step, WhileStep):
            _outlast(found, step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _outlast(found, branch)
    for chain in block.chains:
        start, end = found.times[chain[0]][0], found.times[chain[-1]][1]
        for step in chain:
            scratch = (step.scratch,) if isinstance(step, RoutineStep) and step.scratch is not None else ()
            for buffer in (*step.reads, *step.writes, *scratch):
                home = found.homes[buffer]
                home.first, home.last = min(home.first, start), max(home.last, end)


def _loops(step: Step) -> Loops | None:
    """The loops that a step does, if it may do them in place."""
    if isinstance(step, RoutineStep) and step.epilogue is not None:
        return step.epilogue.kernel.loops
    return step.loops if isinstance(step, KernelStep) else None


def _shared_as_it_is(found: Assignment, step: CopyStep) -> bool:
    """Whether nothing changes the copy nor its source: then they are one."""
    source, result = found.homes[step.reads[0]], found.homes[step.writes[0]]
    if not _is_only_read(found, step, source, result):
        return False
    source.last = max(source.last, result.last)
    source.buffers += result.buffers
    for buffer in result.buffers:
        found.homes[buffer] = source
    return True


def _is_only_read(found: Assignment, step: CopyStep, source: Home, result: Home) -> bool:
    """Whether nothing changes the copy, nor its source as long as the copy is needed."""
    if source is result or result.kind != "arena" or source.nbytes != result.nbytes:
        return False
    _, end = found.times[step]
    times = [time for buffer in result.buffers for time in found.written.get(buffer, ())]
    if times != [end]:
        return False
    later = (time for buffer in source.buffers for time in found.written.get(buffer, ()))
    return not any(end < time <= result.last for time in later)


class _Sharing:
    """The updates that the steps of a block may do in place.

    first, last  the places in the block where each buffer is touched
    following    of a loop's body: what has the next value of each carry
    """

    def __init__(self, found: Assignment, block: StepBlock, loop: WhileStep | None) -> None:
        self.found = found
        self.first: dict[Buffer, int] = {}
        self.last: dict[Buffer, int] = {}
        for k, step in enumerate(block.steps):
            for buffer in (*step.reads, *step.writes):
                self.first.setdefault(buffer, k)
                self.last[buffer] = k
        self.following: dict[Buffer, list[Buffer]] = {}
        for current, following in loop.carries if loop is not None else ():
            self.following.setdefault(current, []).append(following)

    def tried(self, place: int, step: Step, reads: Sequence[Buffer], written: Buffer) -> None:
        """Puts what the step, the one at this place, writes where the first of `reads` is that allows it."""
        homes = self.found.homes
        result = homes[written]
        if any(homes[buffer] is result for buffer in step.reads):
            return
        for read in reads:
            if self._may_share(place, step, read, written):
                _merge(self.found, homes[read], result)
                return

    def _may_share(self, place: int, step: Step, read: Buffer, written: Buffer) -> bool:
        homes = self.found.homes
        source, result = homes[read], homes[written]
        if not source.writable or source.nbytes != result.nbytes:
            return False
        if source.kind != "arena" and result.kind != "arena" and not _is_donation(source, result):
            return False
        if any(homes[buffer] is source for buffer in step.writes):
            return False
        start, end = self.found.times[step]
        carried = bool(self.following) and any(
            homes[b] is result for a in source.buffers for b in self.following.get(a, ())
        )
        if not carried and source.last > end:
            return False
        is_before = any(self.first.get(buffer, place) < place for buffer in result.buffers)
        if carried and (is_before or any(self.last.get(buffer, place) > place for buffer in source.buffers)):
            return False
        if not carried and result.first < start and (is_before or not _is_branch_result(step)):
            return False
        loops = _loops(step)
        if loops is not None and not is_in_place(loops, read, written):
            return False
        # a routine reads its operands all the while
        return not (isinstance(step, RoutineStep) and any(homes[b] is source for b in (*step.table, *step.loaded)))


def _is_branch_result(step: Step) -> bool:
    """A copy at a branch's end: other branches have written the result before in time, but not in this run."""
    return isinstance(step, CopyStep) and step.reason == "the result of a branch"


def _is_donation(source: Home, result: Home) -> bool:
    """Whether the element types are one (or a complex one and its components'): an argument is aligned for its own."""
    if source.kind != "argument" or not source.writable or source.result is not None or result.kind != "result":
        return False
    return source.buffers[0].dtype is result.buffers[0].dtype


def _reuse(found: Assignment, arguments: list[Home], results: list[Home]) -> None:
    """Results that nothing has put there yet take the memory of donated arguments that are read no more by then."""
    given = [argument for argument in arguments if argument.writable]
    for result in results if given else ():
        for argument in given:
            fits = result.kind == "result" and argument.nbytes == result.nbytes and argument is not result
            if fits and argument.last < result.first and _is_donation(argument, result):
                _merge(found, argument, result)
                break


def is_in_place(loops: Loops, read: Buffer, written: Buffer) -> bool:
    """Whether the kernel may have both in one memory: each element is read for the last time in the very step that
    stores its successor, by what is stored."""
    if read.size != written.size or read.dtype.numpy.itemsize != written.dtype.numpy.itemsize or read is written:
        return False
    stores = [store for store in loops.stores if store.buffer is written]
    inside = {store.place: set(reachable([store.node])) for store in stores}
    if len(inside) != len(stores) or any(store.guards for store in stores) or loops.serial:
        return False
    if any(axis.extent > 1 and not axis.bit & store.deps for axis in loops.order for store in stores):
        return False  # the axis's next step would read what the first one has stored
    roots = [r for s in loops.stores for r in (s.node, *s.guards, *_place_nodes(s.place))]
    nodes = reachable(roots, with_combiner)
    loads = [node for node in nodes if node.op in ("load", "current") and node.data[0] is read]
    if any(node.op == "current" or node not in inside.get(node.data[1], ()) for node in loads):
        return False
    folds = [node for node in nodes if node.op == "fold" and not set(loads).isdisjoint(reachable(node.data.bodies))]
    return all(_is_by_rows(loops, fold) for fold in folds)


def _is_by_rows(loops: Loops, fold: Node) -> bool:
    """Whether the fold is done before the main nest stores what it reads, and by the thread that stores it."""
    bound = [k for k, axis in enumerate(loops.order) if axis in fold.data.bound]
    around = [k for k, axis in enumerate(loops.order) if axis.bit & fold.deps]
    if fold.data.scan is not None:
        return not bound
    parallel = range(loops.parallel)
    return max(around, default=-1) < min(bound, default=len(loops.order)) and set(parallel) <= set(around)


def _merge(found: Assignment, source: Home, result: Home) -> None:
    kept, gone = (result, source) if result.kind != "arena" and source.kind == "arena" else (source, result)
    kept.buffers += gone.buffers
    kept.result = gone.result if kept.result is None else kept.result
    kept.first = min(kept.first, gone.first)
    kept.last = max(kept.last, gone.last)
    for buffer in gone.buffers:
        found.homes[buffer] = kept


def _make_slots(found: Assignment, block: StepBlock) -> None:
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


def _note_copies(found: Assignment, block: StepBlock) -> None:
    """The reasons: arrays that are copied after all, and why; those that kernels change in place."""
    for step in block.steps:
        if isinstance(step, KernelStep):
            read = {found.homes[buffer] for buffer in step.reads}
            step.loops.in_place = frozenset(buffer for buffer in step.writes if found.homes[buffer] in read)
            given = [b for b in step.writes if found.homes[b].kind == "argument" and b not in step.loops.in_place]
            found.aligned |= step.loops.streamed and bool(given)
        if isinstance(step, CallStep):  # which may store past the caches
            found.aligned |= any(found.homes[b].kind == "argument" for b in step.writes)
        if isinstance(step, CopyStep):
            step.vanished = found.homes[step.reads[0]] is found.homes[step.writes[0]]
            if not step.vanished:
                found.copies.append((step.name, step.reads[0].nbytes, step.reason))
        elif isinstance(step, WhileStep):
            _note_copies(found, step.condition)
            _note_copies(found, step.body)
        elif isinstance(step, ConditionalStep):
            for branch in step.branches:
                _note_copies(found, branch)


def _place_nodes(affine: Affine) -> list[Node]:
    return [key.node for key, _ in affine.terms if isinstance(key, RuntimeInt)]
