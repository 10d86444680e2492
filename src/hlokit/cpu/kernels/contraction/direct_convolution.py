"""Convolution by tiles of outputs in registers: weights are laid out once, inputs chunk by chunk; no im2col."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hlokit.cpu.kernels import flow
from hlokit.cpu.kernels.contraction.convolution_plan import Laid, Panel, Plan, planned
from hlokit.cpu.kernels.contraction.convolution_tile import Tile
from hlokit.cpu.kernels.contraction.depthwise import also_inside, each, lay_out_features
from hlokit.cpu.kernels.contraction.elements import broadcast, constant_mask, lane_numbers, read, store
from hlokit.cpu.kernels.contraction.scalar_convolution import affine, decoded, is_number
from hlokit.cpu.kernels.contraction.windows import WindowSpace, finished, kernel_function
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.llvm import Function, Module, memory_type, scalar_type

_WEIGHTS_A_CHUNK = 1 << 16


def tile_by_tile(call: Call, module: Module, s: WindowSpace) -> Routine | None:
    """Sums of real numbers without holes, over at least one product. None: the plan does not suit."""
    plan = planned(s, call.target)
    if plan is None:
        return None
    weights = s.group.size * plan.features * s.steps
    phases = (_weights(module, plan), _outputs(call, module, plan))
    return Routine(phases, weights * (s.wide.bits // 8))


# -- weights


def _weights(module: Module, plan: Plan) -> Phase:
    """Lays out rhs: group, panel, product, feature, the products in the order in which they are summed."""
    s = plan.sliding
    f, (_, rhs, _, scratch) = kernel_function(4)
    axes = [laid.axis for laid in plan.tap_axes]
    outer, inner = axes[:-1], axes[-1] if axes else None
    sizes = [s.group.size, sum(p.count for p in plan.panels), *(a.taps for a in outer)]
    units, run = math.prod(sizes), inner.taps if inner else 1
    chunks = max(1, min(units, 64, units * run * plan.width // _WEIGHTS_A_CHUNK))
    first = f.let(f"udiv i64 {f.let(f'mul i64 %begin, {units}')}, {chunks}")
    last = f.let(f"udiv i64 {f.let(f'mul i64 %end, {units}')}, {chunks}")
    with f.loop(first, last) as loop:
        group, number, *taps = decoded(f, loop.index, sizes)
        source = [(group, s.group.rhs), *((k, a.rhs) for k, a in zip(taps, outer, strict=True))]
        before = "0"
        for k, a in zip(taps, outer, strict=True):
            before = affine(f, 0, [(before, a.taps), (k, 1)])
        passed = 0
        for panel in plan.panels:
            width = panel.vectors * plan.lanes
            here = f.let(f"icmp ult i64 {affine(f, -passed, [(number, 1)])}, {panel.count}")
            with f.when(here):
                nth = affine(f, -passed, [(number, 1)])
                feature = affine(f, panel.first, [(nth, width)])
                start = affine(f, s.rhs_start, [*source, (feature, s.output.rhs)])
                target = affine(f, panel.first * s.steps, [(group, plan.features * s.steps), (nth, width * s.steps)])
                target = affine(f, 0, [(target, 1), (before, run * width)])
                _copy_weights(f, module, plan, panel, rhs, scratch, start, target, run, inner.rhs if inner else 0)
            passed += panel.count
    return Phase(finished(f, module, "convolution_weights"), chunks)


def _copy_weights(
    f: Function,
    module: Module,
    plan: Plan,
    panel: Panel,
    rhs: str,
    scratch: str,
    start: str,
    target: str,
    run: int,
    by: int,
) -> None:
    s, lanes, scalar = plan.sliding, plan.lanes, scalar_type(plan.sliding.wide)
    with f.loop("0", str(run)) as loop:
        source = affine(f, 0, [(start, 1), (loop.index, by)])
        place = affine(f, 0, [(target, 1), (loop.index, panel.vectors * lanes)])
        for v in range(panel.vectors):
            valid = panel.valid if v == panel.vectors - 1 else lanes
            at = affine(f, v * lanes * s.output.rhs, [(source, 1)])
            put = affine(f, v * lanes, [(place, 1)])
            if s.output.rhs == 1 and not (s.operand.bits < 16 and s.operand.is_floating):
                value = read(f, module, s.operand, rhs, at, lanes, scalar, constant_mask(valid, lanes))[0]
                store(f, scalar, lanes, value, f.let(f"getelementptr {scalar}, ptr {scratch}, i64 {put}"))
                continue
            if valid < lanes:
                to = f.let(f"getelementptr {scalar}, ptr {scratch}, i64 {put}")
                store(f, scalar, lanes, "zeroinitializer", to)
            with f.loop("0", str(valid)) as each_lane:
                number = affine(f, 0, [(at, 1), (each_lane.index, s.output.rhs)])
                value = read(f, module, s.operand, rhs, number, 1, scalar)[0]
                to = affine(f, 0, [(put, 1), (each_lane.index, 1)])
                store(f, scalar, 1, value, f.let(f"getelementptr {scalar}, ptr {scratch}, i64 {to}"))


# -- outputs


def _outputs(call: Call, module: Module, plan: Plan) -> Phase:
    s, scalar = plan.sliding, scalar_type(plan.sliding.wide)
    f, (lhs, _, _, scratch) = kernel_function(4)
    patch = "" if plan.is_direct else f.alloca(scalar, plan.patch)
    with f.loop("%begin", "%end") as loop:
        sizes = [s.group.size, *(a.blocks for a in plan.axes), plan.panel_blocks]
        group, *blocks, panel_block = decoded(f, loop.index, sizes)
        parts, firsts = list[tuple[str, str]](), list[str]()
        for laid, block in zip(plan.axes, blocks, strict=True):
            low = affine(f, 0, [(block, laid.block)])
            parts.append((low, least(f, affine(f, laid.block, [(low, 1)]), str(laid.cut.parts))))
            firsts.append(_first_of(f, laid, low))
        base = f.let(f"getelementptr {_memory(s)}, ptr {lhs}, i64 {affine(f, 0, [(group, s.group.lhs)])}")
        if plan.is_direct:
            firsts = ["0"] * len(plan.axes)
            start = -sum(a.axis.low * a.axis.lhs for a in plan.axes)
            inputs = f.let(f"getelementptr {scalar}, ptr {base}, i64 {start}")
        else:
            inputs = patch
            if not plan.is_by_panel:
                _lay_out(f, module, plan, base, patch, input_starts(f, plan, firsts, "0"))
        _panels(call, f, module, plan, base, inputs, scratch, group, panel_block, parts, firsts)
    return Phase(finished(f, module, "convolution"), plan.chunks)


def _memory(s: WindowSpace) -> str:
    return memory_type(s.operand)


def least(f: Function, a: str, b: str) -> str:
    return str(min(int(a), int(b))) if is_number(a) and is_number(b) else flow.least(f, a, b)


def greatest(f: Function, a: str, b: str) -> str:
    return str(max(int(a), int(b))) if is_number(a) and is_number(b) else flow.greatest(f, a, b)


def _first_of(f: Function, laid: Laid, part: str) -> str:
    """The first output of a part."""
    cut = laid.cut
    start = affine(f, 0, [(part, cut.least)])
    return affine(f, 0, [(start, 1), (least(f, part, str(cut.extra)), 1)]) if cut.extra else start


def _panels(
    call: Call,
    f: Function,
    module: Module,
    plan: Plan,
    base: str,
    inputs: str,
    scratch: str,
    group: str,
    block: str,
    parts: Sequence[tuple[str, str]],
    firsts: Sequence[str],
) -> None:
    """The tiles of a chunk, panel by panel: a panel's weights stay in the cache for all of them."""
    s, count = plan.sliding, sum(p.count for p in plan.panels)
    low, high = "0", str(count)
    if plan.panel_blocks > 1:
        low = f.let(f"udiv i64 {affine(f, 0, [(block, count)])}, {plan.panel_blocks}")
        high = f.let(f"udiv i64 {affine(f, count, [(block, count)])}, {plan.panel_blocks}")
    passed = 0
    for panel in plan.panels:
        width = panel.vectors * plan.lanes
        start, end = greatest(f, low, str(passed)), least(f, high, str(passed + panel.count))
        with f.loop(start, end) as loop:
            nth = affine(f, -passed, [(loop.index, 1)])
            place = affine(f, panel.first * s.steps, [(group, plan.features * s.steps), (nth, width * s.steps)])
            weights = f.let(f"getelementptr {scalar_type(s.wide)}, ptr {scratch}, i64 {place}")
            feature = affine(f, panel.first, [(group, s.output.size), (nth, width)])
            tiles = _Tiles(call, f, module, plan, panel, weights, feature, parts, firsts)
            if plan.is_by_panel:
                _in_goes(tiles, base, inputs, nth)
            else:
                tiles.over(plan.order, inputs, {})
        passed += panel.count


def _in_goes(tiles: _Tiles, base: str, patch: str, nth: str) -> None:
    """Lays out what a panel reads, all at once or a block of taps at a time, with the tiles after each."""
    f, module, plan = tiles.f, tiles.module, tiles.plan

    def lay_out(tap: str) -> None:
        starts = input_starts(f, plan, tiles.firsts, tap)
        if plan.sliding.shared:
            lay_out_features(f, module, plan, tiles.panel, base, patch, starts, nth)
        else:
            _lay_out(f, module, plan, base, patch, starts)

    if plan.split is None:
        lay_out("0")
        tiles.over(plan.order, patch, {})
        return
    laid, scalar = plan.axes[plan.split], scalar_type(plan.sliding.wide)
    sums, counter = f.alloca(scalar, plan.tile * plan.tiles), f.alloca("i64")
    size = plan.tile * plan.tiles * (plan.sliding.wide.bits // 8)
    f.do(f"call void @llvm.memset.p0.i64(ptr {sums}, i8 0, i64 {size}, i1 false)")
    weights = tiles.weights
    with f.loop("0", str(laid.axis.taps), laid.taps) as loop:
        lay_out(loop.index)
        f.do(f"store i64 0, ptr {counter}")
        by = plan.rest(plan.split) * tiles.panel.vectors * plan.lanes
        tiles.weights = f.let(f"getelementptr {scalar}, ptr {weights}, i64 {affine(f, 0, [(loop.index, by)])}")
        is_last = f.let(f"icmp eq i64 {loop.index}, {laid.axis.taps - laid.taps}")
        tiles.kept = (sums, counter, is_last)
        tiles.over(plan.order, patch, {})


def input_starts(f: Function, plan: Plan, firsts: Sequence[str], tap: str) -> list[str]:
    """Each axis's place that the first output meets with its first tap; with `tap` along the axis that is split."""
    starts: list[str] = []
    for i, (laid, first) in enumerate(zip(plan.axes, firsts, strict=True)):
        terms = [(first, laid.axis.stride), *([(tap, laid.axis.tap)] if i == plan.split else [])]
        starts.append(affine(f, -laid.axis.low, terms))
    return starts


class _Tiles:
    """The loops over a chunk's tiles of one panel."""

    def __init__(
        self,
        call: Call,
        f: Function,
        module: Module,
        plan: Plan,
        panel: Panel,
        weights: str,
        feature: str,
        parts: Sequence[tuple[str, str]],
        firsts: Sequence[str],
    ) -> None:
        self.call, self.f, self.module, self.plan, self.panel = call, f, module, plan, panel
        self.weights, self.feature, self.parts, self.firsts = weights, feature, parts, firsts
        self.kept: tuple[str, str, str] | None = None

    def over(
        self, axes: Sequence[int], inputs: str, sizes: dict[int, int], index: dict[int, str] | None = None
    ) -> None:
        """axes: numbers of those to loop over. sizes: of the tile so far. index: of its first output, by axis."""
        index = index or {}
        if not axes:
            self._call(inputs, sizes, index)
            return
        f, number = self.f, axes[0]
        laid, (low, high) = self.plan.axes[number], self.parts[number]
        for size, first, last in laid.cut.sizes:
            whole = len(laid.cut.sizes) == 1
            if whole and laid.block == 1:
                self._at(axes, inputs, sizes, index, low, size)
                continue
            start = low if whole else greatest(f, low, str(first))
            end = high if whole else least(f, high, str(last))
            with f.loop(start, end) as loop:
                self._at(axes, inputs, sizes, index, loop.index, size)

    def _at(
        self, axes: Sequence[int], inputs: str, sizes: dict[int, int], index: dict[int, str], part: str, size: int
    ) -> None:
        """One part of the first axis, and what is inside."""
        f, number = self.f, axes[0]
        laid, first = self.plan.axes[number], self.firsts[number]
        output = first if laid.block == 1 and not self.plan.is_direct else _first_of(f, laid, part)
        if output != first:
            moved = affine(f, 0, [(output, laid.per_output), (first, -laid.per_output)])
            inputs = f.let(f"getelementptr {scalar_type(self.plan.sliding.wide)}, ptr {inputs}, i64 {moved}")
        self.over(axes[1:], inputs, {**sizes, number: size}, {**index, number: output})

    def _call(self, inputs: str, sizes: dict[int, int], index: dict[int, str]) -> None:
        plan, s = self.plan, self.plan.sliding
        tile = Tile(self.call, plan, self.panel, sizes[plan.rows], sizes[plan.columns]).written(self.module)
        place = ["0"] * len(s.dimensions)
        place[s.feature_dim] = self.feature
        for number, output in index.items():
            axis = plan.axes[number].axis
            if axis.dim >= 0:
                place[axis.dim] = affine(self.f, axis.first, [(output, axis.step)])
        arguments = ", ".join(f"i64 {v}" for v in place)
        if self.kept is not None:
            sums, counter, is_last = self.kept
            number = self.f.let(f"load i64, ptr {counter}")
            self.f.do(f"store i64 {affine(self.f, 1, [(number, 1)])}, ptr {counter}")
            kind = f"[{plan.tile} x {scalar_type(s.wide)}]"
            arguments += f", ptr {self.f.let(f'getelementptr {kind}, ptr {sums}, i64 {number}')}, i1 {is_last}"
        self.f.do(f"call void @{tile}(ptr %table, ptr {inputs}, ptr {self.weights}, {arguments})")


# -- inputs


def _lay_out(f: Function, module: Module, plan: Plan, base: str, patch: str, starts: Sequence[str]) -> None:
    """Copies and widens what a chunk reads, in the order of lhs, with zeros for padding."""
    s, scalar = plan.sliding, scalar_type(plan.sliding.wide)
    axes, (inner, limit, extent) = runs(plan)

    def line(source: str, target: str, inside: str) -> None:
        start = affine(f, 0, [(starts[inner], limit // max(1, plan.axes[inner].axis.inputs))])
        if plan.axes[inner].step == 1 and _distance(plan, inner, limit) == 1 and extent > 1:
            _copy_line(f, module, plan, base, patch, source, target, inside, start, limit, extent)
            return
        laid = plan.axes[inner]
        with f.loop("0", str(laid.extent)) as loop:
            at = affine(f, 0, [(starts[inner], 1), (loop.index, laid.step)])
            here = f.let(f"and i1 {inside}, {f.let(f'icmp ult i64 {at}, {laid.axis.inputs}')}")
            number = affine(f, 0, [(source, 1), (at, laid.axis.lhs)])
            number = f.let(f"select i1 {here}, i64 {number}, i64 0")
            value = read(f, module, s.operand, base, number, 1, scalar)[0]
            none = "0.0" if s.wide.is_floating else "0"
            value = f.let(f"select i1 {here}, {scalar} {value}, {scalar} {none}")
            place = affine(f, 0, [(target, 1), (loop.index, laid.place)])
            f.do(f"store {scalar} {value}, ptr {f.let(f'getelementptr {scalar}, ptr {patch}, i64 {place}')}")

    def over(axes: Sequence[int], source: str, target: str, inside: str) -> None:
        if not axes:
            line(source, target, inside)
            return
        number, laid = axes[0], plan.axes[axes[0]]
        with each(f, laid.extent) as nth:
            at = affine(f, 0, [(starts[number], 1), (nth, laid.step)])
            here = also_inside(f, laid, at, inside)
            nested = affine(f, 0, [(source, 1), (at, laid.axis.lhs)])
            over(axes[1:], nested, affine(f, 0, [(target, 1), (nth, laid.place)]), here)

    over(axes, "0", "0", "true")


def _distance(plan: Plan, inner: int, limit: int) -> int:
    """Elements of lhs from one to the next within a run."""
    axis = plan.axes[inner].axis
    return axis.lhs // (limit // max(1, axis.inputs))


def runs(plan: Plan) -> tuple[list[int], tuple[int, int, int]]:
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


def _copy_line(
    f: Function,
    module: Module,
    plan: Plan,
    base: str,
    patch: str,
    source: str,
    target: str,
    inside: str,
    start: str,
    limit: int,
    extent: int,
) -> None:
    """Vectors of a run: elements start..start+extent of those that are there, 0..limit; zeros beyond."""
    s, lanes, scalar = plan.sliding, plan.lanes, scalar_type(plan.sliding.wide)
    with f.loop("0", str(extent), lanes) as loop:
        at = affine(f, 0, [(start, 1), (loop.index, 1)])
        short = broadcast(f, f.let(f"trunc i64 {at} to i32"), "i32", lanes)
        places = f.let(f"add <{lanes} x i32> {short}, {lane_numbers(lanes, 'i32')}")
        bound = f.let(f"select i1 {inside}, i32 {limit}, i32 0")
        mask = f.let(f"icmp ult <{lanes} x i32> {places}, {broadcast(f, bound, 'i32', lanes)}")
        value = read(f, module, s.operand, base, affine(f, 0, [(source, 1), (at, 1)]), lanes, scalar, mask)[0]
        place = affine(f, 0, [(target, 1), (loop.index, 1)])
        store(f, scalar, lanes, value, f.let(f"getelementptr {scalar}, ptr {patch}, i64 {place}"))
