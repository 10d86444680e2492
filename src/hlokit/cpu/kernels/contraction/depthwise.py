"""Inputs of depthwise convolutions: output features with their own inputs are adjacent in vectors."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.convolution_plan import Panel, WindowPlan
from hlokit.cpu.kernels.contraction.elements import lanes_up_to, read
from hlokit.cpu.kernels.contraction.patch import Patch, PatchPlace, along
from hlokit.cpu.kernels.contraction.space import affine
from hlokit.cpu.kernels.contraction.windows import WindowSpace, each
from hlokit.cpu.llvm import I1, Index, Pointer, Value, transposed


def suits(s: WindowSpace, lanes: int) -> bool:
    """Whether vectors along the groups are better than vectors along a group's output features."""
    return s.group.size >= lanes // 2 and 4 * s.output.size <= lanes and (_lies_in_lines(s, lanes) or _can_turn(s))


def _lies_in_lines(s: WindowSpace, lanes: int) -> bool:
    return s.group.lhs == 1 and lanes % s.output.size == 0


def _can_turn(s: WindowSpace) -> bool:
    return s.output.size == 1


class FeaturePatch(Patch):
    """The inputs that a chunk reads for a panel: a vector of features for each place, zeros for padding."""

    def __init__(
        self, plan: WindowPlan, panel: Panel, base: Pointer, patch: Pointer, starts: Sequence[Index], nth: Index
    ) -> None:
        super().__init__(base)
        self.plan, self.scalar = plan, patch.element
        s, lanes, width = plan.space, plan.lanes, panel.vectors * plan.lanes
        self.panel = panel
        self.in_lines = s.output.lhs == 1 and lanes % s.shared == 0
        numbers = [i for i, a in enumerate(plan.axes) if a.extent > 1 or a.axis.inputs > 1 or not a.axis.is_inside]
        self.turned: int | None = None
        if self.in_lines:
            channel = affine(self.fn, panel.first // s.shared, [(nth, width // s.shared)])
        else:
            channel = affine(self.fn, panel.first * s.output.lhs, [(nth, width * s.output.lhs)])
            lines = [i for i in numbers if plan.axes[i].axis.lhs == 1 and plan.axes[i].step == 1]
            lines = [i for i in lines if plan.axes[i].extent > 1]
            self.turned = lines[-1] if lines else None
            numbers = [i for i in numbers if i != self.turned]
        self.over(along(plan, numbers), PatchPlace(patch, dict(enumerate(starts)), channel))

    def line(self, here: PatchPlace, carried: Sequence[Value]) -> Sequence[Value]:
        if self.turned is not None:
            self._turned_line(self.turned, here)
            return carried
        s, lanes = self.plan.space, self.plan.lanes
        for v in range(self.panel.vectors):
            to, valid = here.target[v * lanes], self._valid(v)
            if self.in_lines:
                to.store(self._in_line(here.source + v * lanes // s.shared, here.inside, -(-valid // s.shared)))
            else:
                self._one_by_one(here.source + v * lanes * s.output.lhs, to, here.inside, valid)
        return carried

    def _valid(self, v: int) -> int:
        """The features that a vector has."""
        return self.panel.valid if v == self.panel.vectors - 1 else self.plan.lanes

    def _in_line(self, source: Index, inside: Value | None, count: int) -> Value:
        """A vector of features; where neighbours have the same inputs, each of them so often."""
        fn, s, lanes = self.fn, self.plan.space, self.plan.lanes
        mask: Value | None = lanes_up_to(fn, count, lanes)
        if inside is not None:
            mask = inside.splat(lanes) if mask is None else inside.splat(lanes) & mask
        (value,) = read(s.operand, self.base, source, lanes, self.scalar, mask)
        return value if s.shared == 1 else value.shuffled([i // s.shared for i in range(lanes)])

    def _one_by_one(self, source: Index, target: Pointer, inside: Value | None, count: int) -> None:
        fn, s = self.fn, self.plan.space
        target.store(fn.constant(0, self.scalar.of(self.plan.lanes)))
        with fn.when(fn.constant(True, I1) if inside is None else inside), fn.loop(0, count) as loop:
            (value,) = read(s.operand, self.base, source + loop.index * s.output.lhs, 1, self.scalar)
            target[loop.index].store(value)

    def _turned_line(self, number: int, here: PatchPlace) -> None:
        """Squares of lanes places and lanes features, read along the places and turned."""
        fn, panel, lanes, laid = self.fn, self.panel, self.plan.lanes, self.plan.axes[number]
        s = self.plan.space
        full = panel.vectors if panel.valid == lanes else panel.vectors - 1

        def square(v: Index, count: int) -> None:
            rows = [fn.constant(0, self.scalar.of(lanes))] * lanes
            for i in range(count):
                row = affine(fn, i * s.output.lhs, [(v, lanes * s.output.lhs), (here.source, 1), (at, 1)])
                (rows[i],) = read(s.operand, self.base, row, lanes, self.scalar, mask)
            first = here.target[affine(fn, 0, [(v, lanes), (loop.index, laid.place)])]
            for i, value in enumerate(transposed(rows)):
                first[i * laid.place].store(value)

        with fn.loop(0, laid.extent, lanes) as loop:
            at = here.at[number] + loop.index
            mask = self.present(at, range(lanes), laid.axis.inputs, here.inside)
            if full:
                with each(fn, full) as v:
                    square(v, lanes)
            if full < panel.vectors:
                square(fn.index(full), panel.valid)
