"""Rematerialisation: values are computed again where they are needed, instead of being kept, to save memory."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.emit.estimates import duration
from hlokit.cpu.emit.preparation import Prepared
from hlokit.cpu.loops.canonical import renamed
from hlokit.cpu.loops.expr import Buffer
from hlokit.cpu.lower.context import Context
from hlokit.cpu.lower.lives import Lives
from hlokit.cpu.lower.steps import CallStep, CopyStep, KernelStep, RoutineStep, Step, StepBlock


def recompute(
    block: StepBlock, context: Context, prepared: dict[Step, Prepared], kept: Collection[Buffer], limit: int
) -> bool:
    """Repeats steps of a block so that its buffers need at most `limit` bytes at once, or as few as is found; False if
    there is nothing to repeat.

    Where most memory is in use, the value is chosen that is not needed for some time and that takes the least time to
    compute again for its size: from values that are there when it is needed next, or that are computed again too.

    prepared  the functions of routines, which are written
    kept      buffers that lie elsewhere: the program's results
    """
    search, before = _Search(block, context, prepared, kept), len(block.steps)
    while search.saved(limit):
        pass
    return len(block.steps) > before


@dataclass(frozen=True)
class _Again:
    """A value to compute again: its buffer, the place of the step before which that is done, and what is repeated."""

    buffer: Buffer
    place: int
    steps: tuple[Step, ...]


class _Search:
    def __init__(
        self, block: StepBlock, context: Context, prepared: dict[Step, Prepared], kept: Collection[Buffer]
    ) -> None:
        self.block = block
        self.context = context
        self.prepared = prepared
        self.kept = kept
        self.fixed = {step for chain in block.chains for step in chain}
        self.durations: dict[Step, float] = {}

    def saved(self, limit: int) -> bool:
        """Repeats steps for one value, if more than `limit` bytes are needed and there is such a value."""
        lives = Lives(self.block, self.context, self.kept)
        needs = lives.needs(lives.units)
        most = self.block.peak = max(needs, default=0)
        if not needs or most <= limit:
            return False
        steps = self.block.steps
        self.own = {buffer for unit in lives.units for buffer in unit.touched}
        self.used: dict[Buffer, list[int]] = {}
        makers: dict[Buffer, list[int]] = {}
        for k, step in enumerate(steps):
            for buffer in dict.fromkeys((*step.reads, *step.writes)):
                self.used.setdefault(buffer, []).append(k)
            for buffer in step.writes:
                makers.setdefault(buffer, []).append(k)
        self.maker = {buffer: steps[places[0]] for buffer, places in makers.items() if len(places) == 1}
        inside: list[int] = []  # of each step the number of its unit
        for number, unit in enumerate(lives.units):
            inside += [number] * len(unit.steps)
        peak = inside.index(needs.index(most))
        found = [
            again
            for buffer in self.own
            if buffer in self.maker and (again := self._again(buffer, peak)) is not None
            if needs[inside[again.place]] + self._more(again) < most
        ]
        if not found:
            return False
        self._repeat(min(found, key=lambda again: (self._price(again), again.buffer.number)))
        return True

    def _again(self, buffer: Buffer, peak: int) -> _Again | None:
        """The steps that compute the buffer again, if it is alive at the peak and not touched there."""
        used = self.used[buffer]
        if not used[0] < peak < used[-1] or peak in used:
            return None
        place = next(k for k in used if k > peak)
        if any(not self._takes_others(self.block.steps[k]) for k in used if k >= place):
            return None
        steps: list[Step] = []
        return _Again(buffer, place, tuple(steps)) if self._plan(buffer, place, steps) else None

    def _takes_others(self, step: Step) -> bool:
        """Whether the step may read another buffer instead."""
        return step not in self.fixed and isinstance(step, (KernelStep, RoutineStep, CopyStep, CallStep))

    def _plan(self, buffer: Buffer, place: int, steps: list[Step], depth: int = 0) -> bool:
        """Appends the steps that compute the buffer again before `place`; False if that cannot be done."""
        step = self.maker.get(buffer)
        if step is None or depth == _STEPS or not self._is_repeatable(step):
            return False
        for read in step.reads:
            is_there = read not in self.own or self.used[read][0] < place <= self.used[read][-1]
            made = any(read in other.writes for other in steps)
            if not is_there and not made and not self._plan(read, place, steps, depth + 1):
                return False
        steps.append(step)
        return len(steps) <= _STEPS

    def _is_repeatable(self, step: Step) -> bool:
        if step in self.fixed or any(map(self.context.has_effect, step.instructions)):
            return False
        if not set(step.writes).isdisjoint(step.reads) or not all(b in self.own for b in step.writes):
            return False
        return isinstance(step, RoutineStep) or (isinstance(step, KernelStep) and step.source is None)

    def _more(self, again: _Again) -> int:
        """Bytes that are needed besides while the steps are repeated."""
        return sum(b.nbytes for step in again.steps for b in (*step.writes, *_scratch(step)) if b is not again.buffer)

    def _price(self, again: _Again) -> float:
        """Nanoseconds for each byte that is saved."""
        return sum(map(self._duration, again.steps)) / again.buffer.nbytes

    def _duration(self, step: Step) -> float:
        found = self.durations.get(step)
        if found is None:
            found = self.durations[step] = duration(step)
        return found

    def _repeat(self, again: _Again) -> None:
        """Puts copies of the steps, which write other buffers, before the place from which on these are read."""
        steps, others = self.block.steps, dict[Buffer, Buffer]()
        copies: list[Step] = []
        for step in again.steps:
            others |= {b: self.context.like(f"{b.name}.again", b) for b in (*step.writes, *_scratch(step))}
            copies.append(self._renamed(replace(step), others, self.prepared.get(step)))
        for k in self.used[again.buffer]:
            if k >= again.place:
                self._renamed(steps[k], {again.buffer: others[again.buffer]}, self.prepared.get(steps[k]))
        steps[again.place : again.place] = copies
        name, nbytes = again.buffer.name, again.buffer.nbytes
        self.context.reasons.add(name, "computed again", f"its {nbytes:,} bytes are not kept, to fit the memory limit")

    def _renamed(self, step: Step, buffers: Mapping[Buffer, Buffer], prepared: Prepared | None) -> Step:
        """The step, changed to touch other buffers."""
        step.reads, step.writes = _others(step.reads, buffers), _others(step.writes, buffers)
        if isinstance(step, KernelStep):
            step.loops = renamed(step.loops, buffers)
            step.roots = tuple((leaf, buffers.get(b, b)) for leaf, b in step.roots)
            if step.source is not None:
                step.source = buffers.get(step.source, step.source)
        elif isinstance(step, RoutineStep):
            if step.scratch is not None:
                step.scratch = buffers.get(step.scratch, step.scratch)
            if step.packed is not None:
                step.packed = step.packed[0], buffers.get(step.packed[1], step.packed[1])
            if step.epilogue is not None:
                kernel = self._renamed(replace(step.epilogue.kernel), buffers, None)
                routine = self._renamed(replace(step.epilogue.routine), buffers, None)
                step.epilogue = replace(step.epilogue, kernel=kernel, routine=routine)
            if step.prologue is not None:
                step.prologue = replace(
                    step.prologue, kernel=self._renamed(replace(step.prologue.kernel), buffers, None)
                )
        if prepared is not None:
            self.prepared[step] = replace(prepared, table=_others(prepared.table, buffers))
        return step


_STEPS = 8
"""Steps that are repeated for one value at most."""


def _others(names: Sequence[Buffer], buffers: Mapping[Buffer, Buffer]) -> tuple[Buffer, ...]:
    return tuple(buffers.get(buffer, buffer) for buffer in names)


def _scratch(step: Step) -> tuple[Buffer, ...]:
    return (step.scratch,) if isinstance(step, RoutineStep) and step.scratch is not None else ()
