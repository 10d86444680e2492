"""The results of convolutions in matrix registers: sums from memory to the epilogue or the result."""

from __future__ import annotations

from collections.abc import Sequence

from hlokit.cpu.kernels.contraction.elements import first_lanes, load, pointer, rounded, write
from hlokit.cpu.kernels.contraction.matrix_convolution_plan import LINE, ROWS, MatrixPlan
from hlokit.cpu.kernels.contraction.matrix_convolution_tile import SUMS_BYTES, turn
from hlokit.cpu.kernels.contraction.scalar_convolution import affine
from hlokit.cpu.kernels.contraction.windows import finished_apart, strides
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.routine import Call
from hlokit.cpu.llvm import Function, Module, scalar_type


class Results:
    """Hands out sums.

    void f(ptr table, ptr sums, i64 feature, i64 valid, i64 first..., i64 count...): `valid` features from `feature` on
    """

    def __init__(self, call: Call, module: Module, plan: MatrixPlan) -> None:
        self.call, self.module, self.plan, self.s = call, module, plan, plan.sliding
        self.scalar = scalar_type(self.s.wide)

    def written(self) -> str:
        p = self.plan
        axes = range(len(p.axes))
        parameters = [("ptr", "table"), ("ptr", "sums"), ("i64", "feature"), ("i64", "valid")]
        parameters += [("i64", f"{name}{i}") for name in ("first", "count") for i in axes]
        f = self.f = Function("", parameters, attributes="noinline nounwind")
        if p.turned_result is not None:
            self.kept = f.alloca(self.scalar, ROWS * ROWS)
        order = sorted(axes, key=lambda i: i == p.turned_result)
        self._over(order, "0", ["0"] * len(self.s.dimensions))
        return finished_apart(f, self.module, "convolution_results")

    def _over(self, axes: Sequence[int], number: str, index: list[str]) -> None:
        """axes: those still to loop over; number: of the output in the grid."""
        p, f = self.plan, self.f
        if not axes:
            self._features(number, index)
            return
        i = axes[0]
        if i == p.turned_result:
            with f.loop("0", f"%count{i}", ROWS) as loop:
                self._axis(i, number, index, loop.index)
        elif p.axes[i].block == 1:
            self._over(axes[1:], number, self._moved(index, i, "0"))
        else:
            with f.loop("0", f"%count{i}") as loop:
                moved = affine(f, 0, [(number, 1), (loop.index, p.pitches[i])])
                self._over(axes[1:], moved, self._moved(index, i, loop.index))

    def _moved(self, index: list[str], i: int, output: str) -> list[str]:
        axis = self.plan.axes[i].axis
        if axis.dim < 0:
            return index
        here = affine(self.f, axis.first, [(f"%first{i}", axis.step), (output, axis.step)])
        return [here if d == axis.dim else v for d, v in enumerate(index)]

    def _features(self, number: str, index: list[str]) -> None:
        f, s = self.f, self.s
        row = pointer(f, "%sums", number, SUMS_BYTES)
        with f.loop("0", "%valid", ROWS) as loop:
            value = load(f, self.scalar, ROWS, pointer(f, row, loop.index, 4))
            place = list(index)
            place[s.feature_dim] = f.let(f"add i64 %feature, {loop.index}")
            mask = None
            if s.output.size % ROWS:
                mask = first_lanes(f, affine(f, 0, [("%valid", 1), (loop.index, -1)]), ROWS)
            self._put(place, value, mask)

    def _axis(self, i: int, number: str, index: list[str], first: str) -> None:
        """16 outputs along the axis, of each feature: squares of sums, turned."""
        p, f, s = self.plan, self.f, self.s
        pitch = p.pitches[i]
        source = pointer(f, "%sums", affine(f, 0, [(number, 1), (first, pitch)]), SUMS_BYTES)
        left = affine(f, 0, [(f"%count{i}", 1), (first, -1)])
        mask = first_lanes(f, left, ROWS)
        index = self._moved(index, i, first)
        with f.loop("0", "%valid", ROWS) as loop:
            square = pointer(f, source, loop.index, 4)
            turn(f, self.module, square, pitch * SUMS_BYTES, self.kept, LINE)
            count = affine(f, 0, [("%valid", 1), (loop.index, -1)])
            with f.loop("0", least(f, count, str(ROWS))) as feature:
                value = load(f, self.scalar, ROWS, pointer(f, self.kept, feature.index, LINE))
                place = list(index)
                place[s.feature_dim] = affine(f, 0, [("%feature", 1), (loop.index, 1), (feature.index, 1)])
                self._put(place, value, mask)

    def _put(self, index: Sequence[str], value: str, mask: str | None) -> None:
        f, s = self.f, self.s
        value = rounded(f, s.result, value, ROWS, self.scalar)
        if self.call.store is not None:
            self.call.store(f, index, value, ROWS, mask)
            return
        out = f.let(f"load ptr, ptr {f.let('getelementptr ptr, ptr %table, i64 2')}")
        number = affine(f, 0, list(zip(index, strides(s.dimensions), strict=True)))
        write(f, s.result, out, number, value, ROWS, mask)
