"""The inputs that a chunk of a convolution reads, laid out on the stack in the order of lhs, with zeros for padding.

A patch is a loop over the places of the chunk's inputs (Patch). Its kinds say what is laid out at each: runs of lhs,
widened (InputPatch); vectors of features (depthwise.py); rows of AMX registers (amx_convolution_lines.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction.convolution_plan import Laid, WindowPlan
from hlokit.cpu.kernels.contraction.elements import read
from hlokit.cpu.kernels.contraction.space import affine
from hlokit.cpu.kernels.contraction.windows import WindowAxis, both, counted
from hlokit.cpu.llvm import I32, Index, Pointer, Value


@dataclass(frozen=True)
class Along:
    """The places along an axis.

    number     of the axis, by which lines know it
    count, by  how many, and how many of them a line takes
    step       inputs from one to the next
    pitch      bytes from one to the next in the patch
    is_inside  whether all are inputs; or lines find out themselves
    """

    number: int
    axis: WindowAxis
    count: int
    step: int
    pitch: int
    is_inside: bool
    by: int = 1


@dataclass(frozen=True)
class PatchPlace:
    """Where a line is laid out, and what of.

    target   its address
    at       the input along each axis, by number: at first the one that the first output meets with its first tap
    source   the number of the element of lhs that it begins with
    inside   whether the place is one of the inputs'; None: it is
    """

    target: Pointer
    at: Mapping[int, Index]
    source: Index
    inside: Value | None = None


class Patch:
    """Loops over places of lhs, whose group's begins at `base`. Subclasses say what is laid out at each: `line`."""

    def __init__(self, base: Pointer) -> None:
        self.base, self.fn = base, base.fn

    def over(self, axes: Sequence[Along], here: PatchPlace, carried: Sequence[Value] = ()) -> Sequence[Value]:
        """Lays out all places along these axes; `carried` is what a line hands to the next one."""
        if not axes:
            return self.line(here, carried)
        now, *inner = axes
        with counted(self.fn, now.count, carried, now.by) as loop:
            number, inside = here.at[now.number] + loop.index * now.step, here.inside
            if not now.is_inside:
                inside = both(inside, number.compare("ult", now.axis.inputs))
            target, source = here.target + loop.index * now.pitch, here.source + number * now.axis.lhs
            if inside is not None:  # a load of no lanes takes a microsecond where no memory is mapped
                source = self.fn.index(inside.select(source, 0))
            there = PatchPlace(target, {**here.at, now.number: number}, source, inside)
            loop.next = [*self.over(inner, there, loop.carried)]
        return loop.results

    def line(self, here: PatchPlace, carried: Sequence[Value]) -> Sequence[Value]:
        """Lays out what is at one place."""
        raise NotImplementedError

    def present(self, first: Index, steps: Sequence[int], limit: int, inside: Value | None) -> Value:
        """Which of the numbers `first` + step are below the limit and not below 0, if `inside` holds."""
        short = first.trunc(32).splat(len(steps))
        bound = self.fn.constant(limit, short.type)
        if inside is not None:
            bound = inside.select(self.fn.constant(limit, I32), 0).splat(len(steps))
        return (short + self.fn.vector_constant(steps, I32)).compare("ult", bound)


def along(plan: WindowPlan, numbers: Sequence[int]) -> list[Along]:
    """The places along the axes of these numbers."""
    size, laid = plan.space.arithmetic.total.bytes, [(i, plan.axes[i]) for i in numbers]
    return [Along(i, a.axis, a.extent, a.step, a.place * size, a.is_inside) for i, a in laid]


class InputPatch(Patch):
    """Copies and widens what a chunk reads, with zeros for padding."""

    def __init__(self, plan: WindowPlan, base: Pointer, patch: Pointer, starts: Sequence[Index]) -> None:
        super().__init__(base)
        self.plan, self.scalar = plan, patch.element
        axes, (self.inner, self.limit, self.extent) = _runs(plan)
        looped = along(plan, axes)
        self.next_line = next((a.step * a.axis.lhs for a in reversed(looped) if a.count > 1), 0)
        self.over(looped, PatchPlace(patch, dict(enumerate(starts)), base.fn.index(0)))

    def line(self, here: PatchPlace, carried: Sequence[Value]) -> Sequence[Value]:
        laid, inputs = self.plan.axes[self.inner], max(1, self.plan.axes[self.inner].axis.inputs)
        each_input = self.limit // inputs
        if laid.step == 1 and laid.axis.lhs // each_input == 1 and self.extent > 1:
            self._by_vectors(here, here.at[self.inner] * each_input)
            return carried
        fn, s = self.fn, self.plan.space
        with fn.loop(0, laid.extent) as loop:
            at = here.at[self.inner] + loop.index * laid.step
            inside = both(here.inside, at.compare("ult", laid.axis.inputs))
            number = fn.index(inside.select(affine(fn, 0, [(here.source, 1), (at, laid.axis.lhs)]), 0))
            (value,) = read(s.operand, self.base, number, 1, self.scalar)
            here.target[loop.index * laid.place].store(inside.select(value, 0))
        return carried

    def _by_vectors(self, here: PatchPlace, start: Index) -> None:
        """Vectors of a run: elements from `start` on of those that are there, 0..limit; zeros beyond.

        The next run is prefetched: the machine's own prefetching does not see it coming.
        """
        lanes = self.plan.lanes
        with self.fn.loop(0, self.extent, lanes) as loop:
            at = start + loop.index
            mask = self.present(at, range(lanes), self.limit, here.inside)
            has_some = (at + (lanes - 1)).compare("ult", self.limit + lanes - 1)
            place = has_some.select(here.source + at, 0)
            if self.next_line:
                self.base[place + self.next_line].prefetch()
            (value,) = read(self.plan.space.operand, self.base, place, lanes, self.scalar, mask)
            here.target[loop.index].store(value)


def _runs(plan: WindowPlan) -> tuple[list[int], tuple[int, int, int]]:
    """The axes to loop over, and the one along which lhs is copied: its number, elements there, elements wanted.

    Axes after it that are wanted as they are, whole, belong to the run.
    """
    numbers = [i for i, a in enumerate(plan.axes) if a.extent > 1 or a.axis.inputs > 1 or not a.axis.is_inside] or [0]
    inner = numbers.pop()
    run = 1
    laid = plan.axes[inner]
    while numbers and _is_whole(laid, run) and _joins(plan.axes[numbers[-1]], laid, run):
        run *= laid.extent
        inner = numbers.pop()
        laid = plan.axes[inner]
    return numbers, (inner, laid.axis.inputs * run, laid.extent * run)


def _is_whole(laid: Laid, run: int) -> bool:
    axis = laid.axis
    return (
        laid.taps == axis.taps
        and laid.step == 1
        and axis.low == 0
        and laid.extent == axis.inputs
        and axis.lhs == run == laid.place
    )


def _joins(outer: Laid, laid: Laid, run: int) -> bool:
    return outer.step == 1 and outer.axis.lhs == outer.place == run * laid.extent
