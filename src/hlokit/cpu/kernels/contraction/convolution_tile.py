"""Tiles of convolutions: outputs whose sums stay in registers, and how they are passed on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlokit.cpu.kernels.contraction.convolution_plan import Panel, ProductLoop, WindowPlan
from hlokit.cpu.kernels.contraction.elements import lanes_up_to
from hlokit.cpu.kernels.contraction.results import put, totals
from hlokit.cpu.kernels.contraction.tile import Steps, VectorTile
from hlokit.cpu.kernels.routine import Call, up
from hlokit.cpu.llvm import Function, Index, Module, Pointer, Value, transposed

_FEW_SUMS = 24
"""Sums of a tile that leave LLVM registers for the factors of more than two steps."""


class ConvolutionTile:
    """Writes `void @tile(ptr table, ptr lhs, ptr rhs, i64 index...)` for tiles of rows x columns x a panel's features.

    lhs, rhs  the first input and weight, where the plan lays them
    index     of the tile's first output, in the result
    sums, last  where a plan sums in several blocks of taps: what the tile has so far, and whether this is the last
    taps      of the axis that is cut, in this block, if the last has fewer
    ahead     where a plan prefetches weights: bytes from each weight to those that are
    """

    def __init__(
        self, call: Call, plan: WindowPlan, panel: Panel, rows: int, columns: int, *, is_total: bool = False
    ) -> None:
        s = plan.space
        self.call, self.plan, self.panel, self.s = call, plan, panel, s
        self.lanes, self.scalar = plan.lanes, plan.space.arithmetic.total
        names = [f"d{i}" for i in range(len(s.dimensions))]
        fields = [("ptr", "table"), *(("i64", name) for name in names)]
        fields += [] if plan.tap_blocks == 1 else [("ptr", "sums")]
        fields += [] if is_total else [("ptr", "lhs"), ("ptr", "rhs")]
        fields += [] if plan.tap_blocks == 1 or is_total else [("i1", "last"), ("i64", "taps")]
        fields += [("i64", "ahead")] if plan.prefetched and not is_total else []
        self.f = Function("", fields, attributes="noinline nounwind", target=call.target)
        self.first = [self.f.index_argument(name) for name in names]
        self.is_turned = plan.axes[plan.rows].axis.dim == len(s.dimensions) - 1
        outer, inner = (columns, rows) if self.is_turned else (rows, columns)
        self.inner = inner
        pairs = [(i, j) for i in range(outer) for j in range(inner)]
        self.outputs = [(j, i) if self.is_turned else (i, j) for i, j in pairs]
        """(row, column) of each output; those along the result's last dimension are neighbours."""

    def written(self, module: Module) -> str:
        """Adds the function; gives its name."""
        f, lhs, rhs = self.f, self.f.pointer("lhs", self.scalar), self.f.pointer("rhs", self.scalar)
        kernel, loops = self._kernel(), self._loops()
        if self.plan.prefetched:
            kernel = replace(kernel, ahead=f.index_argument("ahead"), prefetched=self.plan.prefetched)
        sums = kernel.zeros(f)
        if self.plan.tap_blocks == 1:
            self._store(kernel.summed(loops, lhs, rhs, sums))
        else:
            kept = f.pointer("sums", self.scalar)
            places = [kept[i * self.lanes] for i in range(len(sums))]
            sums = kernel.summed(loops, lhs, rhs, [place.load(self.lanes) for place in places])
            for place, value in zip(places, sums, strict=True):
                place.store(value)
            if self.plan.parts == 1:
                with f.when(f.argument("last")):
                    self._store(sums)
        f.returns()
        return module.add_by_text(f, "convolution_tile")

    def finished(self, module: Module) -> str:
        """Adds the function that adds up the sums of all parts, and passes them on; gives its name."""
        f, plan, count = self.f, self.plan, len(self._kernel().places)
        kept, nothing = f.pointer("sums", self.scalar), f.constant(0, self.scalar.of(self.lanes))
        sums = f.local(self.scalar, count * self.lanes, 64)
        with f.loop(0, count * self.lanes, self.lanes) as loop:
            with f.loop(0, plan.parts, 1, [nothing]) as part:
                part.next = [part.carried[0] + kept[loop.index + part.index * plan.sums].load(self.lanes)]
            sums[loop.index].store(part.results[0])
        self._store([sums[i * self.lanes].load(self.lanes) for i in range(count)])
        f.returns()
        return module.add_by_text(f, "convolution_sums")

    # -- products

    def _kernel(self) -> VectorTile:
        """The sums of the tile: a row for each output."""
        rows = tuple(self._input(output) for output in self.outputs)
        is_along, columns, apart = self.s.together > 1, None, 0
        if self.plan.keeps_rhs and is_along:
            apart = self.s.output.rhs
        elif self.plan.keeps_rhs:
            columns = (self.panel.vectors - 1) * self.lanes + self.panel.valid
        return VectorTile(
            self.s.arithmetic, self.lanes, rows, self.panel.vectors, columns, self.s.shared > 0, is_along, apart
        )

    def _input(self, output: tuple[int, int]) -> int:
        """Bytes from the tile's first input to that of an output."""
        plan, (i, j) = self.plan, output
        place = i * plan.axes[plan.rows].per_output + j * plan.axes[plan.columns].per_output
        return place * self.scalar.bytes

    def _loops(self) -> list[Steps]:
        """Loops over the products. Some steps of the innermost one are written out in a row.

        None that read an input twice, for LLVM would keep it in a register that is not there. Nor two of a long run of
        neighbours: in a loop on its own LLVM then keeps all sums of a full tile in memory; for some CPUs it does so
        wherever more than two steps of a full tile are in a row.
        """
        *outer, last = self.plan.steps(self.panel.vectors * self.lanes) or [ProductLoop(1, 1, 0, 0)]
        counts = (last.taps,) if not outer and last.lhs == self.scalar.bytes else (last.taps, 2, 3)
        is_free = last.together == 1 and not last.is_cut
        most = 4 if len(self._kernel().places) <= _FEW_SUMS else 2
        fitting = (n for n in counts if is_free and n <= most and last.taps % n == 0 and self._are_apart(n, last.lhs))
        return [*map(self._steps, outer), replace(self._steps(last), unroll=next(fitting, 1))]

    def _steps(self, loop: ProductLoop) -> Steps:
        """The loop, and, of vectors along taps, those that do not fill one."""
        taps = self.f.index_argument("taps") if loop.is_cut else self.f.index(loop.taps)
        has_rest = (loop.is_cut and loop.together > 1) or loop.taps % loop.together > 0
        rest = taps % loop.together if has_rest else None
        return Steps(taps // loop.together, loop.lhs, loop.rhs, rest=rest)

    def _are_apart(self, count: int, step: int) -> bool:
        """Whether so many steps read no input twice."""
        places = [self._input(output) for output in self.outputs]
        return len({i * step + place for i in range(count) for place in places}) == count * len(places)

    # -- outputs

    def _store(self, sums: Sequence[Value]) -> None:
        last, spanned = len(self.s.dimensions) - 1, self._spanned()
        if self.s.together > 1:
            self._store_totals(sums)
        elif self.s.feature_dim == last:
            self._store_features(sums)
        elif last in spanned and self.plan.axes[spanned[last]].axis.step == 1:
            self._store_turned(sums)
        else:
            self._store_each(sums)

    def _spanned(self) -> dict[int, int]:
        """The result's dimensions that the tile spans beside the features, with the axes' numbers."""
        plan = self.plan
        return {plan.axes[i].axis.dim: i for i in (plan.rows, plan.columns) if plan.axes[i].axis.dim >= 0}

    def _index(self, output: tuple[int | Index, int | Index], feature: int | Index) -> list[Index]:
        """The result's index of one output, at a feature of the panel."""
        index = list(self.first)
        for number, offset in zip((self.plan.rows, self.plan.columns), output, strict=True):
            axis = self.plan.axes[number].axis
            if axis.dim >= 0:
                index[axis.dim] = index[axis.dim] + offset * axis.step
        index[self.s.feature_dim] = index[self.s.feature_dim] + feature
        return index

    def _put(self, index: Sequence[Index], value: Value, mask: Value | None) -> None:
        """Sums that lie along the result's last dimension, to the epilogue or the result."""
        put(self.f, self.call, index, [value], mask)

    def _valid(self, v: int) -> int:
        """The features that a vector has."""
        return self.panel.valid if v == self.panel.vectors - 1 else self.lanes

    def _store_features(self, sums: Sequence[Value]) -> None:
        vectors = self.panel.vectors
        if self.call.store is not None:
            kept = self._kept(sums, len(sums) * self.lanes)
            self._store_looped(kept, self.lanes, [self._valid(v) for v in range(vectors)])
            return
        for m, output in enumerate(self.outputs):
            for v in range(vectors):
                count, value = self._valid(v), sums[m * vectors + v]
                index = self._index(output, v * self.lanes)
                if count == 1:  # LLVM 20 stores too many bytes for a masked store of one constant lane that truncates
                    self._put(index, value.lane(0), None)
                else:
                    self._put(index, value, lanes_up_to(self.f, count, self.lanes))

    def _kept(self, sums: Sequence[Value], room: int) -> Pointer:
        """The sums one after the other on the stack, with room for so many elements."""
        kept = self.f.local(self.scalar, room, 64)
        for i, value in enumerate(sums):
            kept[i * self.lanes].store(value)
        return kept

    def _store_looped(self, kept: Pointer, lanes: int, valid: Sequence[int]) -> None:
        """Output by output, from memory, vectors of `lanes` of which so many are `valid`: an epilogue is written out
        once for all of them."""
        f, width = self.f, len(valid) * lanes
        rows, columns = (max(output[k] for output in self.outputs) + 1 for k in (0, 1))
        with f.loop(0, rows) as row, f.loop(0, columns) as column:
            line = kept[row.index * (columns * width) + column.index * width]
            for v, count in enumerate(valid):
                value = line[v * lanes].load(1 if count == 1 else lanes)
                mask = None if count == 1 else lanes_up_to(f, count, lanes)
                self._put(self._index((row.index, column.index), v * lanes), value, mask)

    def _store_totals(self, sums: Sequence[Value]) -> None:
        """The totals of vectors along inputs: for each output the features, to a power of two, side by side."""
        f, lanes, features = self.f, self.lanes, self.panel.vectors
        few = 1 << (features - 1).bit_length()
        nothing = f.constant(0, self.scalar.of(lanes))
        room = up(len(self.outputs) * few, lanes)
        lines = [nothing] * room
        for i, value in enumerate(sums):
            lines[i // features * few + i % features] = value
        kept = f.local(self.scalar, room, 64)
        for i in range(0, room, lanes):
            kept[i].store(totals(lines[i : i + lanes]))
        if self.s.feature_dim == len(self.s.dimensions) - 1:
            self._store_looped(kept, few, [features])
            return
        for m, output in enumerate(self.outputs):
            with f.loop(0, features) as feature:
                self._put(self._index(output, feature.index), kept[feature.index + m * few].load(), None)

    def _store_turned(self, sums: Sequence[Value]) -> None:
        """Turned in registers, then feature by feature, a line of outputs at a time."""
        f, lanes, vectors = self.f, self.lanes, self.panel.vectors
        room, width = up(len(self.outputs), lanes), vectors * lanes
        kept, turned = self._kept(sums, width * room), f.local(self.scalar, (width + 1) * room, 64)
        with f.loop(0, vectors * room // lanes) as loop:
            first, v = loop.index // vectors, loop.index % vectors
            source = kept[first * (lanes * width) + v * lanes]
            target = turned[v * (lanes * room) + first * lanes]
            for i, line in enumerate(transposed([source[i * width].load(lanes) for i in range(lanes)])):
                target[i * room].store(line)
        with f.loop(0, (vectors - 1) * lanes + self.panel.valid) as feature:
            line = turned[feature.index * room]
            for first in range(0, len(self.outputs), self.inner):
                for part in range(0, self.inner, lanes):
                    count = min(lanes, self.inner - part)
                    few = 1 << (count - 1).bit_length()
                    index = self._index(self.outputs[first + part], feature.index)
                    self._put(index, line[first + part].load(few), lanes_up_to(f, count, few))

    def _store_each(self, sums: Sequence[Value]) -> None:
        """One by one, where the result's last dimension is one that the tile does not span."""
        lanes, vectors = self.lanes, self.panel.vectors
        kept = self._kept(sums, len(sums) * lanes)
        for m, output in enumerate(self.outputs):
            with self.f.loop(0, (vectors - 1) * lanes + self.panel.valid) as feature:
                value = kept[feature.index + m * vectors * lanes].load()
                self._put(self._index(output, feature.index), value, None)
