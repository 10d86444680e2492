"""The inputs that a chunk of a convolution reads, laid out on the stack in the order of lhs, with zeros for padding."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.convolution_plan import Laid, WindowPlan
from hlokit.cpu.kernels.contraction.elements import read
from hlokit.cpu.kernels.contraction.space import affine
from hlokit.cpu.kernels.contraction.windows import both, each
from hlokit.cpu.llvm import I32, Index, Pointer, Value


class Patch:
    """Loops over the places of a chunk's inputs. Subclasses say what is laid out at each: `line`.

    base    address of lhs of the chunk's group
    patch   where the inputs go, as elements that sums are made of
    starts  each axis's place that the first output meets with its first tap
    """

    def __init__(self, plan: WindowPlan, base: Pointer, patch: Pointer, starts: Sequence[Index]) -> None:
        self.plan, self.base, self.patch, self.starts = plan, base, patch, starts
        self.fn, self.scalar = base.fn, patch.element

    def over(self, axes: Sequence[int], source: Index | int = 0) -> None:
        """Lays out all places along these axes, from an element of lhs on."""
        self._over(axes, self.fn.index(source), self.fn.index(0), None)

    def _over(self, axes: Sequence[int], source: Index, target: Index, inside: Value | None) -> None:
        if not axes:
            self.line(source, target, inside)
            return
        number, laid = axes[0], self.plan.axes[axes[0]]
        with each(self.fn, laid.extent) as k:
            at = self.starts[number] + k * laid.step
            here = inside if laid.is_inside else both(inside, at.compare("ult", laid.axis.inputs))
            self._over(axes[1:], source + at * laid.axis.lhs, target + k * laid.place, here)

    def line(self, source: Index, target: Index, inside: Value | None) -> None:
        """Lays out what is at one place of the axes; `inside` says whether it is there, None that it always is."""
        raise NotImplementedError

    def present(self, first: Index, limit: int, inside: Value | None) -> Value:
        """Which lanes of a vector from number `first` on are below the limit, and not below 0."""
        lanes = self.plan.lanes
        places = first.trunc(32).splat(lanes)
        bound = self.fn.constant(limit, places.type)
        if inside is not None:
            bound = inside.select(self.fn.constant(limit, I32), 0).splat(lanes)
        return (places + self.fn.lane_numbers(places.type)).compare("ult", bound)


class InputPatch(Patch):
    """Copies and widens what a chunk reads, with zeros for padding."""

    def __init__(self, plan: WindowPlan, base: Pointer, patch: Pointer, starts: Sequence[Index]) -> None:
        super().__init__(plan, base, patch, starts)
        axes, (self.inner, self.limit, self.extent) = _runs(plan)
        self.over(axes)

    def line(self, source: Index, target: Index, inside: Value | None) -> None:
        laid, inputs = self.plan.axes[self.inner], max(1, self.plan.axes[self.inner].axis.inputs)
        each_input = self.limit // inputs
        if laid.step == 1 and laid.axis.lhs // each_input == 1 and self.extent > 1:
            self._by_vectors(source, target, inside, self.starts[self.inner] * each_input)
            return
        fn, s = self.fn, self.plan.space
        with fn.loop(0, laid.extent) as loop:
            at = self.starts[self.inner] + loop.index * laid.step
            here = both(inside, at.compare("ult", laid.axis.inputs))
            number = fn.index(here.select(affine(fn, 0, [(source, 1), (at, laid.axis.lhs)]), 0))
            (value,) = read(s.operand, self.base, number, 1, self.scalar)
            self.patch[target + loop.index * laid.place].store(here.select(value, 0))

    def _by_vectors(self, source: Index, target: Index, inside: Value | None, start: Index) -> None:
        """Vectors of a run: elements from `start` on of those that are there, 0..limit; zeros beyond."""
        lanes = self.plan.lanes
        with self.fn.loop(0, self.extent, lanes) as loop:
            at = start + loop.index
            mask = self.present(at, self.limit, inside)
            (value,) = read(self.plan.space.operand, self.base, source + at, lanes, self.scalar, mask)
            self.patch[target + loop.index].store(value)


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
