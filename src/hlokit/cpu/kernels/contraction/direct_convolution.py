"""Convolution in tiles of outputs in registers: weights are packed once, inputs chunk by chunk, without im2col."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from hlokit.cpu.costs import LINE_BYTES
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
from hlokit.cpu.llvm import Function, Index, Module, Pointer, Value


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
        weights = () if plan.keeps_rhs else (_Weights(call, module, plan).written(),)
        chunks = _Chunks(call, module, plan)
        sums = plan.chunks * plan.sums if plan.parts > 1 else 0
        phases = (*weights, chunks.written(), *((_Totals(call, module, plan).written(),) if sums else ()))
        return Routine(phases, (plan.weights + sums) * s.arithmetic.total.bytes)


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
        self.weights = self.fn.table(1 if plan.keeps_rhs else 3, self.scalar)

    def written(self) -> Phase:
        fn, plan, s = self.fn, self.plan, self.s
        lhs = fn.table(0, memory_of(s.operand))
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as loop:
            sizes = [s.group.size, *(a.blocks for a in plan.axes), plan.panel_blocks, plan.parts]
            self.group, *blocks, panel_block, part = unravelled(loop.index, sizes)
            lows = [block * a.block for a, block in zip(plan.axes, blocks, strict=True)]
            self.bounds = [(low, (low + a.block).least(a.cut.parts)) for a, low in zip(plan.axes, lows, strict=True)]
            self.firsts = [_first_of(a, low) for a, low in zip(plan.axes, lows, strict=True)]
            self.base = lhs[self.group * s.group.lhs]
            if plan.is_direct:
                self.firsts = [fn.index(0)] * len(plan.axes)
                self.inputs = self.base[-sum(a.axis.low * a.axis.lhs for a in plan.axes)]
            else:
                self.inputs = fn.local(self.scalar, plan.patch, 64)
            if plan.tap_blocks == 1:
                self._some_taps([fn.index(0)] * len(plan.axes), panel_block, None)
            else:
                self._all_taps(loop.index, panel_block, part)
        return Phase(fn.end(self.module, "convolution", exported=True), plan.chunks)

    def _all_taps(self, chunk: Index, panel_block: Index, part: Index) -> None:
        """The blocks of taps of a part, which add to the same sums."""
        fn, plan = self.fn, self.plan
        if plan.parts > 1:
            sums = fn.table(3, self.scalar)[chunk * plan.sums + plan.weights]
        else:
            sums = fn.local(self.scalar, plan.sums, 64)
        fn.memset(sums, 0, plan.sums * self.scalar.bytes)
        low, high = ((part + i) * plan.tap_blocks // plan.parts for i in (0, 1))
        with fn.loop(low, high) as loop:
            numbers = unravelled(loop.index, [a.tap_blocks for a in plan.axes])
            taps = [number * a.taps for a, number in zip(plan.axes, numbers, strict=True)]
            self._some_taps(taps, panel_block, (sums, loop.index.eq(plan.tap_blocks - 1)))

    def _some_taps(self, taps: Sequence[Index], panel_block: Index, kept: tuple[Pointer, Value] | None) -> None:
        """Lays out what the taps of a block, from these on, meet, and adds their products for all panels."""
        plan, s, inputs = self.plan, self.s, self.inputs
        starts = self._starts(taps)
        if plan.is_direct:
            moves = [(tap, a.axis.tap * a.axis.lhs) for a, tap in zip(plan.axes, taps, strict=True)]
            inputs = inputs[affine(self.fn, 0, moves)]
        elif not s.shared:
            InputPatch(plan, self.base, inputs, starts)
        if plan.by_rows:
            self._by_rows(taps, panel_block, inputs)
            return
        for panel, nth, place in _panels(self.fn, plan, panel_block):
            if s.shared:
                FeaturePatch(plan, panel, self.base, inputs, starts, nth)
            tiles = self._tiles(panel, nth)
            tiles.weights, tiles.begin = self._weights(panel, nth, taps), place * plan.tiles
            if kept is not None:
                cut = plan.cut_axis
                left = plan.axes[cut].axis.taps - taps[cut] if cut is not None else self.fn.index(0)
                tiles.kept, tiles.last = kept
                tiles.taps = left.least(plan.axes[cut or 0].taps)
            tiles.over(plan.order, inputs, {}, {}, place)

    def _by_rows(self, taps: Sequence[Index], panel_block: Index, inputs: Pointer) -> None:
        """Tile by tile all panels: what is stored, and what an epilogue reads, goes along rows of the result."""

        def call(inputs: Pointer | None, sizes: dict[int, int], index: dict[int, Index], number: Index) -> None:
            for panel, nth, _ in _panels(self.fn, self.plan, panel_block):
                tiles = self._tiles(panel, nth)
                tiles.weights = self._weights(panel, nth, taps)
                tiles.call_tile(inputs, sizes, index, number)

        tiles = self._tiles(self.plan.panels[0], self.fn.index(0))
        tiles.over(self.plan.order, inputs, {}, {}, self.fn.index(0), call)

    def _tiles(self, panel: Panel, nth: Index) -> _Tiles:
        """The loops over the tiles of a panel."""
        plan = self.plan
        feature = affine(self.fn, panel.first, [(self.group, self.s.output.size), (nth, panel.vectors * plan.lanes)])
        return _Tiles(self.call, self.module, plan, panel, feature, self.bounds, self.firsts)

    def _starts(self, taps: Sequence[Index]) -> list[Index]:
        """Each axis's place that the first output meets with this tap."""
        return [
            affine(self.fn, -a.axis.low, [(first, a.axis.stride), (tap, a.axis.tap)])
            for a, first, tap in zip(self.plan.axes, self.firsts, taps, strict=True)
        ]

    def _weights(self, panel: Panel, nth: Index, taps: Sequence[Index]) -> Pointer:
        """Those of a panel from these taps on."""
        plan, s, width = self.plan, self.s, panel.vectors * self.plan.lanes
        axes = [a.axis for a in plan.axes]
        if plan.keeps_rhs:
            moves = [(self.group, s.group.rhs), (nth, width * s.output.rhs)]
            moves += [(tap, a.rhs) for a, tap in zip(axes, taps, strict=True)]
            return self.weights[affine(self.fn, s.rhs_start + panel.first * s.output.rhs, moves)]
        moves = [(self.group, plan.features * s.steps), (nth, width * s.steps)]
        moves += [(tap // a.together, plan.rest(i) * width) for i, (a, tap) in enumerate(zip(axes, taps, strict=True))]
        return self.weights[affine(self.fn, panel.first * s.steps, moves)]


class _Totals:
    """Adds up the sums of parts, and passes them on: chunks are groups, blocks of panels, and tiles along an axis."""

    def __init__(self, call: Call, module: Module, plan: WindowPlan) -> None:
        self.call, self.module, self.plan, self.fn = call, module, plan, phase_function(call)

    def written(self) -> Phase:
        fn, plan, s = self.fn, self.plan, self.plan.space
        divided = max(range(len(plan.axes)), key=lambda i: plan.axes[i].cut.parts)
        whole = plan.axes[divided].cut.parts
        wanted = min(whole, max(1, plan.sums * plan.parts * s.arithmetic.total.bytes // costs.STREAMED_BYTES))
        scratch = fn.table(3, s.arithmetic.total)
        sizes = [s.group.size, plan.panel_blocks, wanted]
        with fn.loop(fn.index_argument("begin"), fn.index_argument("end")) as loop:
            group, panel_block, number = unravelled(loop.index, sizes)
            bounds = [(fn.index(0), fn.index(a.cut.parts)) for a in plan.axes]
            bounds[divided] = (number * whole // wanted, (number + 1) * whole // wanted)
            block = (group * plan.panel_blocks + panel_block) * (plan.parts * plan.sums)
            for panel, nth, place in _panels(fn, plan, panel_block):
                feature = affine(fn, panel.first, [(group, s.output.size), (nth, panel.vectors * plan.lanes)])
                tiles = _Tiles(self.call, self.module, plan, panel, feature, bounds, [fn.index(0)] * len(plan.axes))
                tiles.kept = scratch[block + plan.weights]
                tiles.over(plan.order, None, {}, {}, place)
        return Phase(fn.end(self.module, "convolution_totals", exported=True), math.prod(sizes))


def _panels(fn: Function, plan: WindowPlan, block: Index) -> Iterator[tuple[Panel, Index, Index]]:
    """Loops over the panels of a block: the kind, the number among those of its kind, and that among the block's."""
    count, passed = sum(p.count for p in plan.panels), 0
    low, high = fn.index(0), fn.index(count)
    if plan.panel_blocks > 1:
        low, high = block * count // plan.panel_blocks, (block * count + count) // plan.panel_blocks
    for panel in plan.panels:
        with fn.loop(low.greatest(passed), high.least(passed + panel.count)) as loop:
            yield panel, affine(fn, -passed, [(loop.index, 1)]), loop.index - low
        passed += panel.count


def _first_of(laid: Laid, part: Index) -> Index:
    """The first output of a part."""
    cut = laid.cut
    return part * cut.least + part.least(cut.extra) if cut.extra else part * cut.least


_Call: TypeAlias = Callable[["Pointer | None", dict[int, int], dict[int, Index], Index], None]


class _Tiles:
    """The loops over tiles of one panel: a range of parts along each axis, whose first outputs are given.

    weights  the panel's
    begin    the number of the panel's first tile
    kept     the sums, where a plan has several blocks of taps; then whether this is the `last` of these, and how many
             `taps` it has along the axis that is cut
    """

    weights: Pointer
    begin: Index
    kept: Pointer | None = None
    last: Value
    taps: Index

    def __init__(
        self,
        call: Call,
        module: Module,
        plan: WindowPlan,
        panel: Panel,
        feature: Index,
        bounds: Sequence[tuple[Index, Index]],
        firsts: Sequence[Index],
    ) -> None:
        self.call, self.fn, self.module, self.plan, self.panel = call, feature.fn, module, plan, panel
        self.feature, self.bounds, self.firsts = feature, bounds, firsts

    def over(
        self,
        axes: Sequence[int],
        inputs: Pointer | None,
        sizes: dict[int, int],
        index: dict[int, Index],
        number: Index,
        call: _Call | None = None,
    ) -> None:
        """axes: numbers of those to loop over. sizes: of the tile so far. index: of its first output, by axis.

        inputs  None: the tiles are done but for the totals
        number  the panel's; then the tile's, in the block
        call    writes what is done at each tile; None: `call_tile`
        """
        if not axes:
            (call or self.call_tile)(inputs, sizes, index, number)
            return
        axis = axes[0]
        laid, (low, high) = self.plan.axes[axis], self.bounds[axis]
        whole = len(laid.cut.sizes) == 1

        def at(part: Index, size: int) -> None:
            """One part of the first axis, and what is inside."""
            is_first = laid.block == 1 and not self.plan.is_direct
            output, moved, before = self.firsts[axis], inputs, fn.index(0) if inputs is None else low
            if not is_first:
                output = _first_of(laid, part)
            if inputs is not None and not is_first:
                places = [(output, laid.per_output), (self.firsts[axis], -laid.per_output)]
                moved = inputs[affine(self.fn, 0, places)]
            tile = number * min(laid.block, laid.cut.parts) + (part - before)
            self.over(axes[1:], moved, {**sizes, axis: size}, {**index, axis: output}, tile, call)

        fn = self.fn
        for size, first, last in laid.cut.sizes:
            if whole and laid.block == 1:
                at(low, size)
                continue
            bounds = (low, high) if whole else (low.greatest(first), high.least(last))
            with self.fn.loop(*bounds) as loop:
                at(loop.index, size)

    def call_tile(self, inputs: Pointer | None, sizes: dict[int, int], index: dict[int, Index], number: Index) -> None:
        """The tile of these sizes."""
        fn, plan, s = self.fn, self.plan, self.plan.space
        rows, columns, is_total = sizes[plan.rows], sizes[plan.columns], inputs is None
        tile = ConvolutionTile(self.call, plan, self.panel, rows, columns, is_total=is_total)
        place = [fn.index(0)] * len(s.dimensions)
        place[s.feature_dim] = self.feature
        for axis, output in index.items():
            a = plan.axes[axis].axis
            if a.dim >= 0:
                place[a.dim] = affine(fn, a.first, [(output, a.step)])
        sums = [] if self.kept is None else [self.kept[number * plan.tile]]
        if inputs is None:
            fn.call(tile.finished(self.module), fn.pointer("table"), *place, *sums)
            return
        more = [self.last, self.taps] if sums else []
        if plan.prefetched:
            line = (number - self.begin) * plan.prefetched
            next_panel = line * LINE_BYTES + plan.width * s.arithmetic.total.bytes
            more.append((line < plan.panel_lines).select(next_panel, 0))
        fn.call(tile.written(self.module), fn.pointer("table"), *place, *sums, inputs, self.weights, *more)
