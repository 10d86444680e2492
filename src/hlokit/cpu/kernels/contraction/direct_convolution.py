"""Convolution in tiles of outputs in registers: weights are packed once, inputs chunk by chunk, without im2col."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hlokit.cpu.kernels.contraction import costs
from hlokit.cpu.kernels.contraction.convolution_plan import Laid, Panel, WindowPlan, planned
from hlokit.cpu.kernels.contraction.convolution_tile import ConvolutionTile
from hlokit.cpu.kernels.contraction.depthwise import FeaturePatch
from hlokit.cpu.kernels.contraction.elements import memory_of
from hlokit.cpu.kernels.contraction.packing import Operand, Panels, ProductSide, Run, pack_panels
from hlokit.cpu.kernels.contraction.patch import InputPatch
from hlokit.cpu.kernels.contraction.space import Axis, affine, unravelled
from hlokit.cpu.kernels.contraction.windows import WindowSpace, phase_function, shared_out
from hlokit.cpu.kernels.routine import Call, Phase, Routine, up
from hlokit.cpu.llvm import I64, Index, Module, Pointer, Value


def plan_tiles(call: Call, s: WindowSpace) -> TiledConvolution | None:
    """Sums of real numbers without holes, over at least one product. None: such a plan does not suit."""
    plan = planned(s, call.target)
    return None if plan is None else TiledConvolution(call, plan)


@dataclass(frozen=True)
class TiledConvolution:
    """A convolution that goes this way."""

    call: Call
    plan: WindowPlan

    def write(self, module: Module) -> Routine:
        """Writes the functions into the module."""
        call, plan, s = self.call, self.plan, self.plan.space
        phases = (_Weights(call, module, plan).written(), _Chunks(call, module, plan).written())
        return Routine(phases, s.group.size * plan.features * s.steps * s.arithmetic.total.bytes)


# -- weights


class _Weights:
    """Packs rhs: group, panel, vector of products, feature, the products in the order in which they are summed.

    steps  vectors of products in a sum
    """

    def __init__(self, call: Call, module: Module, plan: WindowPlan) -> None:
        self.plan, self.s, self.fn = plan, plan.space, phase_function(call)
        self.scratch = self.fn.table(3, plan.space.arithmetic.total)
        taps = [laid.axis for laid in plan.tap_axes]
        counts, strides = tuple(a.taps // a.together for a in taps), tuple(a.rhs * a.together for a in taps)
        lanes = [a for a in taps if a.together > 1]
        sizes = (self.s.output.size, *(a.together for a in lanes))
        features = Axis(sizes, {"rhs": (self.s.output.rhs, *(a.rhs for a in lanes))})
        self.steps = math.prod(counts)
        inner = Axis(counts, {"rhs": strides})
        side = ProductSide(1, self.s.operand, "rhs", features, inner, plan.space.arithmetic)
        self.operand = Operand(module, call.target, self.fn.table(1), side)

    def written(self) -> Phase:
        plan, s, fn = self.plan, self.s, self.fn
        panels = s.group.size * sum(p.count for p in plan.panels)
        wanted = max(1, min(64, panels * self.steps * plan.width // costs.WEIGHTS_CHUNK))
        depth = up(-(-self.steps // -(-wanted // panels)), _RUN)
        sizes = [s.group.size, panels // s.group.size, -(-self.steps // depth)]
        units = math.prod(sizes)
        with fn.loop(*shared_out(fn, units, min(units, wanted))) as loop:
            group, number, part = unravelled(loop.index, sizes)
            begin, passed = part * depth, 0
            count = (fn.index(self.steps) - begin).least(depth)
            for panel in plan.panels:
                with fn.when((number - passed).compare("ult", panel.count)):
                    self._panel(panel, group, number - passed, Run(begin, count, count))
                passed += panel.count
        return Phase(fn.end(self.operand.module, "convolution_weights", exported=True), min(units, wanted))

    def _panel(self, panel: Panel, group: Index, nth: Index, run: Run) -> None:
        """Packs a run of products of a group's panel of this number."""
        plan, s, fn = self.plan, self.s, self.fn
        width = panel.vectors * plan.lanes
        first = affine(fn, panel.first, [(nth, width)])
        place = affine(fn, 0, [(group, plan.features * s.steps), (first, s.steps), (run.begin, width)])
        valid = None if panel.valid == plan.lanes else fn.index(width - plan.lanes + panel.valid)
        panels = Panels(self.scratch[place], 0, first, first + 1, width, plan.lanes)
        base = affine(fn, s.rhs_start, [(group, s.group.rhs)])
        is_small = s.group.size * plan.features * s.steps < costs.WEIGHTS_CHUNK
        pack_panels(self.operand, panels, base, valid, run, is_small=is_small)


_RUN = 64
"""Products of a panel that are packed at once begin at a multiple of it: vectors of rhs along them do, too."""


# -- outputs


class _Chunks:
    """The tiles of each chunk, panel by panel: a panel's weights stay in the cache for all of them."""

    def __init__(self, call: Call, module: Module, plan: WindowPlan) -> None:
        self.call, self.module, self.plan, self.s = call, module, plan, plan.space
        self.fn, self.scalar = phase_function(call), plan.space.arithmetic.total

    def written(self) -> Phase:
        fn, plan, s, scalar = self.fn, self.plan, self.s, self.scalar
        lhs, self.scratch = fn.table(0, memory_of(s.operand)), fn.table(3, scalar)
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as loop:
            sizes = [s.group.size, *(a.blocks for a in plan.axes), plan.panel_blocks]
            self.group, *blocks, panel_block = unravelled(loop.index, sizes)
            lows = [block * a.block for a, block in zip(plan.axes, blocks, strict=True)]
            self.parts = [(low, (low + a.block).least(a.cut.parts)) for a, low in zip(plan.axes, lows, strict=True)]
            self.firsts = [_first_of(a, low) for a, low in zip(plan.axes, lows, strict=True)]
            self.base = lhs[self.group * s.group.lhs]
            if plan.is_direct:
                self.firsts = [fn.index(0)] * len(plan.axes)
                self.inputs = self.base[-sum(a.axis.low * a.axis.lhs for a in plan.axes)]
            else:
                self.inputs = fn.local(scalar, plan.patch, 64)
                if not plan.is_by_panel:
                    InputPatch(plan, self.base, self.inputs, self._starts(fn.index(0)))
            self._panels(panel_block)
        return Phase(fn.end(self.module, "convolution", exported=True), plan.chunks)

    def _starts(self, tap: Index) -> list[Index]:
        """Each axis's place that the first output meets with its first tap; with `tap` along the axis that is split."""
        return [
            affine(self.fn, -a.axis.low, [(first, a.axis.stride), (tap, a.axis.tap if i == self.plan.split else 0)])
            for i, (a, first) in enumerate(zip(self.plan.axes, self.firsts, strict=True))
        ]

    def _panels(self, block: Index) -> None:
        fn, plan, s, count = self.fn, self.plan, self.s, sum(p.count for p in self.plan.panels)
        low, high = fn.index(0), fn.index(count)
        if plan.panel_blocks > 1:
            low, high = block * count // plan.panel_blocks, (block * count + count) // plan.panel_blocks
        passed = 0
        for panel in plan.panels:
            width = panel.vectors * plan.lanes
            with fn.loop(low.greatest(passed), high.least(passed + panel.count)) as loop:
                nth = affine(fn, -passed, [(loop.index, 1)])
                steps = [(self.group, plan.features * s.steps), (nth, width * s.steps)]
                weights = self.scratch[affine(fn, panel.first * s.steps, steps)]
                feature = affine(fn, panel.first, [(self.group, s.output.size), (nth, width)])
                tiles = _Tiles(self.call, self.module, plan, panel, weights, feature, self.parts, self.firsts)
                if plan.is_by_panel:
                    self._in_goes(tiles, nth)
                else:
                    tiles.over(plan.order, self.inputs, {}, {})
            passed += panel.count

    def _in_goes(self, tiles: _Tiles, nth: Index) -> None:
        """Lays out what a panel reads, all at once or a block of taps at a time, with the tiles after each."""
        fn, plan, patch = self.fn, self.plan, self.inputs

        def lay_out(tap: Index) -> None:
            starts = self._starts(tap)
            if plan.space.shared:
                FeaturePatch(plan, tiles.panel, self.base, patch, starts, nth)
            else:
                InputPatch(plan, self.base, patch, starts)

        if plan.split is None:
            lay_out(fn.index(0))
            tiles.over(plan.order, patch, {}, {})
            return
        laid, room = plan.axes[plan.split], plan.tile * plan.tiles
        sums, counter = fn.local(self.scalar, room, 64), fn.local(I64)
        fn.memset(sums, 0, room * self.scalar.bytes)
        weights = tiles.weights
        with fn.loop(0, laid.axis.taps, laid.taps) as loop:
            lay_out(loop.index)
            counter.store(0)
            tiles.weights = weights[loop.index * (plan.rest(plan.split) * tiles.panel.vectors * plan.lanes)]
            tiles.kept = (sums, counter, loop.index.eq(laid.axis.taps - laid.taps))
            tiles.over(plan.order, patch, {}, {})


def _first_of(laid: Laid, part: Index) -> Index:
    """The first output of a part."""
    cut = laid.cut
    return part * cut.least + part.least(cut.extra) if cut.extra else part * cut.least


class _Tiles:
    """The loops over a chunk's tiles of one panel.

    kept  where a plan sums in several goes: sums, the number of those that were taken, whether the go is the last
    """

    def __init__(
        self,
        call: Call,
        module: Module,
        plan: WindowPlan,
        panel: Panel,
        weights: Pointer,
        feature: Index,
        parts: Sequence[tuple[Index, Index]],
        firsts: Sequence[Index],
    ) -> None:
        self.call, self.fn, self.module, self.plan, self.panel = call, weights.fn, module, plan, panel
        self.weights, self.feature, self.parts, self.firsts = weights, feature, parts, firsts
        self.kept: tuple[Pointer, Pointer, Value] | None = None

    def over(self, axes: Sequence[int], inputs: Pointer, sizes: dict[int, int], index: dict[int, Index]) -> None:
        """axes: numbers of those to loop over. sizes: of the tile so far. index: of its first output, by axis."""
        if not axes:
            self._call(inputs, sizes, index)
            return
        number = axes[0]
        laid, (low, high) = self.plan.axes[number], self.parts[number]
        whole = len(laid.cut.sizes) == 1

        def at(part: Index, size: int) -> None:
            """One part of the first axis, and what is inside."""
            is_first = laid.block == 1 and not self.plan.is_direct
            output, moved = self.firsts[number], inputs
            if not is_first:
                output = _first_of(laid, part)
                moved = inputs[affine(self.fn, 0, [(output, laid.per_output), (self.firsts[number], -laid.per_output)])]
            self.over(axes[1:], moved, {**sizes, number: size}, {**index, number: output})

        for size, first, last in laid.cut.sizes:
            if whole and laid.block == 1:
                at(low, size)
                continue
            bounds = (low, high) if whole else (low.greatest(first), high.least(last))
            with self.fn.loop(*bounds) as loop:
                at(loop.index, size)

    def _call(self, inputs: Pointer, sizes: dict[int, int], index: dict[int, Index]) -> None:
        """The tile of these sizes."""
        fn, plan, s = self.fn, self.plan, self.plan.space
        tile = ConvolutionTile(self.call, plan, self.panel, sizes[plan.rows], sizes[plan.columns]).written(self.module)
        place = [fn.index(0)] * len(s.dimensions)
        place[s.feature_dim] = self.feature
        for number, output in index.items():
            axis = plan.axes[number].axis
            if axis.dim >= 0:
                place[axis.dim] = affine(fn, axis.first, [(output, axis.step)])
        more: list[Value] = []
        if self.kept is not None:
            sums, counter, is_last = self.kept
            number = fn.index(counter.load())
            counter.store(number + 1)
            more = [sums[number * plan.tile], is_last]
        fn.call(tile, fn.pointer("table"), inputs, self.weights, *place, *more)
