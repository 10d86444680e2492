"""Packing for convolutions in AMX: inputs as lines, weights as panels, both split into bf16x3 if f32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hlokit.cpu.kernels.contraction.amx_convolution_plan import LINE, ROWS, AmxPlan
from hlokit.cpu.kernels.contraction.amx_convolution_tile import turn
from hlokit.cpu.kernels.contraction.elements import lanes_up_to, memory_of
from hlokit.cpu.kernels.contraction.patch import Along, Patch, PatchPlace
from hlokit.cpu.kernels.contraction.space import affine, unravelled
from hlokit.cpu.kernels.contraction.split import RANGE_BYTES, has_raw, no_range, packed, store_range
from hlokit.cpu.kernels.contraction.windows import both, counted, each, phase_function
from hlokit.cpu.kernels.routine import Call, Phase, up
from hlokit.cpu.llvm import I1, I32, I64, Function, Index, Module, Pointer, Value


def head(p: AmxPlan) -> int:
    """Bytes before the packed panels: their ranges."""
    return up(p.space.group.size * p.panels * RANGE_BYTES, LINE) if p.factors.parts > 1 else 0


class Lines:
    """Puts factors into lines: what both operands have in common."""

    def __init__(self, module: Module, plan: AmxPlan) -> None:
        self.module, self.plan, self.s = module, plan, plan.space
        self.element = memory_of(self.s.operand)
        self.parts, self.group = plan.factors.parts, plan.factors.group

    def put(
        self, values: Sequence[Value], is_raw: Value, places: Sequence[Pointer], bounds: Sequence[Value]
    ) -> Sequence[Value]:
        """Stores the parts; the bounds with them."""
        found, bounds = packed(values, self.parts, bounds, is_raw)
        for value, place in zip(found, places, strict=True):
            place.to(I32).store(value)
        return bounds

    def bounds(self, f: Function) -> list[Value]:
        """Those of no numbers; none where there are no parts."""
        return no_range(f) if self.parts > 1 else []

    def note_range(self, f: Function, bounds: Sequence[Value]) -> None:
        """Stores the range, unless numbers are kept as they are."""
        if self.parts > 1:
            with f.when(~f.argument("raw")):
                store_range(bounds, f.pointer("range"))

    def vectors(self, first: Pointer, stride: int, mask: Value) -> Value:
        """16 elements, so far apart in memory; 0 where the mask is not set."""
        f = first.fn
        if stride == 1:
            return first.load(ROWS, mask)
        if self.element.bytes == 4:
            return first.elements(f.vector_constant([i * stride for i in range(ROWS)], I64)).gather(mask)
        room = f.local(self.element, ROWS, 64)
        room.store(f.constant(0, self.element.of(ROWS)))
        with f.loop(0, ROWS) as lane, f.when(mask.lane(lane.index)):
            room[lane.index].store(first[lane.index * stride].load())
        return room.load(ROWS)

    def content(self, number: Index) -> tuple[Index, Index]:
        """(tap of the merged axis, feature) of a factor of the lines with this number."""
        zero, features = number.fn.index(0), self.plan.channel.taps
        if self.plan.merged is None:
            return zero, number
        return (number, zero) if features == 1 else (number // features, number % features)

    def factor(self, line: Index, unit: Index, own: int) -> Index:
        """The number of a factor of a line that lies in these 32 bits at this place."""
        p = self.plan
        first = p.factors.number(0, 1) * own
        return affine(line.fn, first, [(line, p.factors.depth), (unit, 1 if self.parts > 1 else self.group)])


class Weights(Lines):
    """Packs rhs: by group and panel of 16 output features, step, part; a register of units each."""

    def written(self, call: Call) -> Phase:
        """The phase, a panel a chunk."""
        p, s, f = self.plan, self.s, phase_function(call)
        rhs, scratch, name = f.table(1), f.table(3), self._panel()
        with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
            packed = scratch + head(p) + chunk.index * p.panel
            group, panel = unravelled(chunk.index, [s.group.size, p.panels])
            source = affine(f, s.rhs_start, [(group, s.group.rhs), (panel, ROWS * s.output.rhs)])
            count = affine(f, s.output.size, [(panel, -ROWS)]).least(ROWS)
            range = scratch + chunk.index * RANGE_BYTES
            f.call(name, rhs, packed, source, count, f.constant(False, I1), range)
            if self.parts > 1:
                with f.when(has_raw(range)):
                    f.call(name, rhs, packed, source, count, f.constant(True, I1), range)
        f.is_cold = True
        return Phase(f.end(self.module, "convolution_weights", exported=True), s.group.size * p.panels)

    def _panel(self) -> str:
        """void f(ptr rhs, ptr packed, i64 source, i64 count, i1 raw, ptr range): one panel."""
        p = self.plan
        parameters = [("ptr", "rhs"), ("ptr", "packed"), ("i64", "source"), ("i64", "count"), ("i1", "raw")]
        f = Function("", [*parameters, ("ptr", "range")], attributes="noinline nounwind")
        features = f.index_argument("count").first_lanes(ROWS)
        sizes = [p.passes, *(a.taps for a in p.axes), p.lines_at_once]
        with f.loop(0, p.steps, 1, self.bounds(f)) as step:
            number, *taps, line = unravelled(step.index, sizes)
            if p.split is None:
                line = number * p.lines_at_once + line
            else:
                taps[p.split] = number * p.axes[p.split].taps + taps[p.split]
            moves = [(k, a.axis.rhs) for i, (k, a) in enumerate(zip(taps, p.axes, strict=True)) if i != p.merged]
            source = affine(f, 0, [(f.index_argument("source"), 1), *moves])
            target = f.pointer("packed") + step.index * (self.parts * ROWS * LINE)
            with f.loop(0, ROWS, 1, step.carried) as unit:
                values = [self._row(f, source, line, unit.index, own, features) for own in range(self.group)]
                places = [target + unit.index * LINE + q * ROWS * LINE for q in range(self.parts)]
                unit.next = [*self.put(values, f.argument("raw"), places, unit.carried)]
            step.next = unit.results
        self.note_range(f, step.results)
        f.returns()
        return self.module.add_by_text(f, "convolution_panel")

    def _row(self, f: Function, source: Index, line: Index, unit: Index, own: int, features: Value) -> Value:
        """A factor of 16 output features."""
        p, s = self.plan, self.s
        number = self.factor(line, unit, own)
        tap, feature = self.content(number)
        by_tap = p.axes[p.merged].axis.rhs if p.merged is not None else 0
        place = affine(f, 0, [(source, 1), (feature, p.channel.rhs), (tap, by_tap)])
        rhs, mask = f.pointer("rhs", self.element)[place], features
        if p.contents % p.factors.depth:
            mask = features & (number < p.contents).splat(ROWS)
        if s.output.rhs == 1:  # a line of each row: too far apart for the machine to see them as a row
            rhs[p.factors.depth * p.channel.rhs].prefetch()
        return self.vectors(rhs, s.output.rhs, mask)


class LinePatch(Patch):
    """Lays out the lines that a chunk reads.

    void f(ptr lhs, ptr patch, i64 start..., i1 raw, ptr range): lhs of the group; start: each axis's first input
    """

    def __init__(self, module: Module, plan: AmxPlan) -> None:
        self.module, self.plan, self.lines = module, plan, Lines(module, plan)
        names = [f"start{i}" for i in range(len(plan.axes))]
        parameters = [("ptr", "lhs"), ("ptr", "patch"), *(("i64", name) for name in names)]
        f = Function("", [*parameters, ("i1", "raw"), ("ptr", "range")], attributes="noinline nounwind")
        super().__init__(f.pointer("lhs", self.lines.element))
        self.starts = [f.index_argument(name) for name in names]
        self.raw, self.parts = f.argument("raw"), plan.factors.parts
        if plan.turned is not None:
            self.kept = f.local(I32, self.parts * ROWS * ROWS, 64)

    def written(self) -> str:
        """Adds the function; gives its name."""
        f = self.fn
        self.lines.note_range(f, self._phases(f.index(0), (), self.lines.bounds(f)))
        f.returns()
        return self.module.add_by_text(f, "convolution_lines")

    def _phases(self, number: Index, starts: Sequence[Index], bounds: Sequence[Value]) -> Sequence[Value]:
        """Grid by grid: what is written beyond a row's end is overwritten by the next row."""
        p, f, i = self.plan, self.fn, len(starts)
        if i == len(p.axes):
            grid = f.pointer("patch") + number * p.grid * LINE
            return self.over(self._along(), PatchPlace(grid, dict(enumerate(starts)), f.index(0)), bounds)
        a = p.axes[i]
        with counted(f, a.phases, bounds) as phase:
            start = affine(f, 0, [(self.starts[i], 1), (phase.index, a.step)])
            phase.next = [*self._phases(number * a.phases + phase.index, (*starts, start), phase.carried)]
        return phase.results

    def _along(self) -> list[Along]:
        """The places along all axes; lines cross some of them."""
        p = self.plan
        return [
            Along(
                number=i,
                axis=a.axis,
                count=a.extent,
                step=a.stride * a.step,
                pitch=pitch * LINE,
                is_inside=i in (p.merged, p.turned) or _is_inside(p, i),
                by=ROWS if i == p.turned else 1,
            )
            for i, (a, pitch) in enumerate(zip(p.axes, p.pitches, strict=True))
        ]

    def line(self, here: PatchPlace, carried: Sequence[Value]) -> Sequence[Value]:
        """The lines of one place, or, turned, of 16."""
        p = self.plan
        full, rest = divmod(p.contents, p.factors.depth)
        if p.lines_at_once < p.lines:
            full = p.lines_at_once

        def one(number: Index, rest: int, bounds: Sequence[Value]) -> Sequence[Value]:
            to = replace(here, target=here.target + number * (self.parts * p.part * LINE))
            return self._as_it_lies(number, to, rest, bounds) if p.turned is None else self._turned(number, to, bounds)

        if full:
            with counted(self.fn, full, carried) as loop:
                loop.next = [*one(loop.index, 0, loop.carried)]
            carried = loop.results
        return one(self.fn.index(full), rest, carried) if rest else carried

    def _as_it_lies(self, line: Index, here: PatchPlace, rest: int, bounds: Sequence[Value]) -> Sequence[Value]:
        """Lines whose factors lie side by side in memory; of the last one `rest` exist, if that is not 0."""
        p, f = self.plan, self.fn
        deep = p.factors.depth
        lanes = ROWS if self.parts > 1 else deep
        values: list[Value] = []
        for first in range(0, deep, lanes):
            mask: Value | None = lanes_up_to(f, max(0, rest - first), lanes) if rest else None
            if p.merged is not None:
                place = affine(f, first, [(here.at[p.merged], p.channel.taps), (line, deep)])
                limit = p.axes[p.merged].axis.inputs * p.channel.taps
                mask = both(mask, self.present(place, range(lanes), limit, here.inside))
            elif here.inside is not None:
                mask = both(mask, here.inside.splat(lanes))
            values.append(self.base[affine(f, first, [(here.source, 1), (line, deep)])].load(lanes, mask))
        if self.parts == 1:
            here.target.to(self.lines.element).store(values[0])
            return []
        places = [here.target + q * p.part * LINE for q in range(self.parts)]
        return self.lines.put(values, self.raw, places, bounds)

    def _turned(self, line: Index, here: PatchPlace, bounds: Sequence[Value]) -> Sequence[Value]:
        """Reads 16 places along the axis for each factor of the line, and turns them."""
        p, f = self.plan, self.fn
        with f.loop(0, ROWS, 1, bounds) as unit:
            values = [self._across(line, unit.index, own, here) for own in range(p.factors.group)]
            places = [self.kept + unit.index * LINE + q * ROWS * LINE for q in range(self.parts)]
            unit.next = [*self.lines.put(values, self.raw, places, unit.carried)]
        with each(f, self.parts) as part:
            turn(self.module, self.kept + part * (ROWS * LINE), LINE, here.target + part * (p.part * LINE), LINE)
        return unit.results

    def _across(self, line: Index, unit: Index, own: int, here: PatchPlace) -> Value:
        """One factor of 16 places' lines."""
        p, f, turned = self.plan, self.fn, self.plan.turned
        assert turned is not None
        a = p.axes[turned]
        by = a.stride * a.step
        number = self.lines.factor(line, unit, own)
        tap, feature = self.lines.content(number)
        terms, place, inside = [(here.source, 1), (feature, p.channel.lhs)], here.at[turned], here.inside
        if p.contents % p.factors.depth:
            inside = both(inside, number < p.contents)
        if p.merged is not None:
            axis = p.axes[p.merged].axis
            terms.append((tap, axis.tap * axis.lhs))
            moved = here.at[p.merged] + tap * axis.tap
            if p.merged == turned:
                place = moved
            else:
                inside = both(inside, moved.compare("ult", axis.inputs))
        mask = self.present(place, range(0, ROWS * by, by), a.axis.inputs, inside)
        return self.lines.vectors(self.base[affine(f, 0, terms)], by * a.axis.lhs, mask)


def _is_inside(p: AmxPlan, i: int) -> bool:
    """No chunk's place along the axis is beyond the input."""
    a, axis = p.axes[i], p.axes[i].axis
    last = (a.blocks - 1) * a.block * axis.stride - axis.low + ((a.extent - 1) * a.stride + a.phases - 1) * a.step
    last += (p.passes - 1) * a.taps * axis.tap if i == p.split else 0
    return axis.low <= 0 and last < axis.inputs
