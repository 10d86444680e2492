"""Lives: an estimate of the memory that a block's steps have in use at once, before buffers have places."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.steps import ConditionalStep, CopyStep, KernelStep, RoutineStep, Step, StepBlock, WhileStep


@dataclass(frozen=True, eq=False)
class Unit:
    """Steps that follow each other: a chain, or one alone.

    touched  the buffers of the block that they read or write
    inside   bytes that they need besides, while they run
    """

    steps: tuple[Step, ...]
    touched: tuple[Buffer, ...]
    inside: int

    @property
    def may_share(self) -> bool:
        """Whether a result may take the memory of an operand."""
        return len(self.steps) == 1 and isinstance(self.steps[0], (KernelStep, CopyStep))


class Lives:
    """The buffers that a block keeps in memory of its own, and the units that touch them.

    kept  buffers that lie elsewhere: a program's results
    loop  the loop whose body the block is: what a pass reads is there from the beginning, what the next one reads
          stays to the end
    """

    def __init__(
        self, block: StepBlock, context: Context, kept: Collection[Buffer] = (), loop: WhileStep | None = None
    ) -> None:
        carries = loop.carries if loop is not None else ()
        self.before = {current: None for current, _ in carries}
        self.after = {following for _, following in carries}
        written = (buffer for step in block.steps for buffer in step.writes)
        own = {b for b in (*self.before, *written) if b in context.fresh and b not in kept}
        self.units = [
            Unit(
                steps,
                tuple(dict.fromkeys(b for step in steps for b in (*step.reads, *step.writes) if b in own)),
                sum(map(_inside, steps)),
            )
            for steps in _together(block)
        ]

    def peak(self, units: Sequence[Unit]) -> int:
        """The most bytes in use at once, if the units run in this order."""
        return max(self.needs(units), default=0)

    def needs(self, units: Sequence[Unit]) -> list[int]:
        """The bytes in use while each of the units runs, in this order."""
        last = {buffer: k for k, unit in enumerate(units) for buffer in unit.touched}
        alive = dict(self.before)
        now = sum(buffer.nbytes for buffer in alive)
        found: list[int] = []
        for k, unit in enumerate(units):
            begin = [buffer for buffer in unit.touched if buffer not in alive]
            end = [buffer for buffer in unit.touched if last[buffer] == k and buffer not in self.after]
            now += sum(buffer.nbytes for buffer in begin)
            shared = _shared(begin, [b for b in end if b in alive]) if unit.may_share else 0
            found.append(now + unit.inside - shared)
            now -= sum(buffer.nbytes for buffer in end)
            alive.update(dict.fromkeys(begin))
        return found

    def growth(self) -> Growth:
        """The bytes that each unit adds to the memory in use, none having run yet."""
        return Growth(self)


class Growth:
    """The bytes by which the memory in use grows when a unit runs next."""

    def __init__(self, lives: Lives) -> None:
        self.units = lives.units
        self.kept = lives.after
        self.alive = set(lives.before)
        self.waiting: dict[Buffer, set[int]] = {}
        for k, unit in enumerate(lives.units):
            for buffer in unit.touched:
                self.waiting.setdefault(buffer, set()).add(k)

    def of(self, number: int) -> int:
        """The bytes of what the unit begins, less those of what no other unit needs afterwards."""
        touched = self.units[number].touched
        begun = sum(buffer.nbytes for buffer in touched if buffer not in self.alive)
        return begun - sum(b.nbytes for b in touched if len(self.waiting[b]) == 1 and b not in self.kept)

    def done(self, number: int) -> set[int]:
        """Counts the unit as run; the numbers of others whose growth is another now."""
        changed: set[int] = set()
        for buffer in self.units[number].touched:
            waiting = self.waiting[buffer]
            waiting.remove(number)
            if buffer not in self.alive or len(waiting) == 1:
                changed |= waiting
            self.alive.add(buffer)
        return changed


def _together(block: StepBlock) -> Iterable[tuple[Step, ...]]:
    """The block's steps in their order, those of a chain together."""
    chains = {chain[0]: chain for chain in block.chains}
    inside = {step for chain in block.chains for step in chain[1:]}
    for step in block.steps:
        if step not in inside:
            yield chains.get(step, (step,))


def _inside(step: Step) -> int:
    """Bytes that a step needs besides what it reads and writes: scratch memory, the buffers of blocks in it."""
    if isinstance(step, RoutineStep):
        return step.scratch.nbytes if step.scratch is not None else 0
    if isinstance(step, ConditionalStep):
        return max((branch.peak for branch in step.branches), default=0)
    if isinstance(step, WhileStep):
        carried = sum(current.nbytes for current, _ in step.carries)
        return max(step.condition.peak, step.body.peak - carried)
    return 0


def _shared(begin: Sequence[Buffer], end: Sequence[Buffer]) -> int:
    """Bytes of what begins that may lie where something of the same size ends."""
    sizes = [buffer.nbytes for buffer in end]
    found = 0
    for buffer in begin:
        if buffer.nbytes in sizes:
            sizes.remove(buffer.nbytes)
            found += buffer.nbytes
    return found
