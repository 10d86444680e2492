"""The results of convolutions in AMX: sums from memory to the epilogue or the result."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.amx_convolution_plan import LINE, ROWS, AmxPlan
from hlokit.cpu.kernels.contraction.amx_convolution_tile import SUMS_BYTES, turn
from hlokit.cpu.kernels.contraction.results import put
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Function, Index, Module, Value


class Results:
    """Hands out sums.

    void f(ptr table, ptr sums, i64 feature, i64 valid, i64 first..., i64 count...): `valid` features from `feature` on
    """

    def __init__(self, call: Call, module: Module, plan: AmxPlan) -> None:
        self.call, self.module, self.plan, self.s = call, module, plan, plan.space
        axes = range(len(plan.axes))
        names = ["feature", "valid", *(f"first{i}" for i in axes), *(f"count{i}" for i in axes)]
        parameters = [("ptr", "table"), ("ptr", "sums"), *(("i64", name) for name in names)]
        self.f = f = Function("", parameters, attributes="noinline nounwind", target=call.target)
        self.scalar = plan.factors.total
        self.sums = f.pointer("sums", self.scalar)
        self.feature, self.valid, *bounds = map(f.index_argument, names)
        self.firsts, self.counts = bounds[: len(axes)], bounds[len(axes) :]

    def written(self) -> str:
        """Adds the function; gives its name."""
        p, f = self.plan, self.f
        if p.turned_result is not None:
            self.kept = f.local(self.scalar, ROWS * ROWS, 64)
        order = sorted(range(len(p.axes)), key=lambda i: i == p.turned_result)
        self._over(order, f.index(0), [f.index(0)] * len(self.s.dimensions))
        f.returns()
        return self.module.add_by_text(f, "convolution_results")

    def _over(self, axes: Sequence[int], number: Index, index: list[Index]) -> None:
        """axes: those still to loop over; number: of the output in the grid."""
        p, f = self.plan, self.f
        if not axes:
            self._features(number, index)
            return
        i = axes[0]
        if i == p.turned_result:
            with f.loop(0, self.counts[i], ROWS) as loop:
                self._axis(i, number, index, loop.index)
        elif p.axes[i].block == 1:
            self._over(axes[1:], number, self._moved(index, i, f.index(0)))
        else:
            with f.loop(0, self.counts[i]) as loop:
                self._over(axes[1:], number + loop.index * p.pitches[i], self._moved(index, i, loop.index))

    def _moved(self, index: list[Index], i: int, output: Index) -> list[Index]:
        axis = self.plan.axes[i].axis
        if axis.dim < 0:
            return index
        here = self.firsts[i] * axis.step + output * axis.step + axis.first
        return [here if d == axis.dim else place for d, place in enumerate(index)]

    def _at(self, index: Sequence[Index], feature: Index) -> list[Index]:
        """The index with a feature."""
        return [feature if d == self.s.feature_dim else place for d, place in enumerate(index)]

    def _features(self, number: Index, index: list[Index]) -> None:
        """All features of one output."""
        row = self.sums + number * SUMS_BYTES
        with self.f.loop(0, self.valid, ROWS) as loop:
            mask = (self.valid - loop.index).first_lanes(ROWS) if self.s.output.size % ROWS else None
            self._put(self._at(index, self.feature + loop.index), row[loop.index].load(ROWS), mask)

    def _axis(self, i: int, number: Index, index: list[Index], first: Index) -> None:
        """16 outputs along the axis, of each feature: squares of sums, turned."""
        f, pitch = self.f, self.plan.pitches[i]
        source = self.sums + (number + first * pitch) * SUMS_BYTES
        mask = (self.counts[i] - first).first_lanes(ROWS)
        index = self._moved(index, i, first)
        with f.loop(0, self.valid, ROWS) as loop:
            turn(self.module, source[loop.index], pitch * SUMS_BYTES, self.kept, LINE)
            with f.loop(0, (self.valid - loop.index).smin(ROWS)) as feature:
                value = (self.kept + feature.index * LINE).load(ROWS)
                self._put(self._at(index, self.feature + loop.index + feature.index), value, mask)

    def _put(self, index: Sequence[Index], value: Value, mask: Value | None) -> None:
        put(self.f, self.call, index, [value], mask)
