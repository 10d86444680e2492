"""Packing for convolutions in AMX: inputs as lines, weights as panels, both split into bf16x3 if f32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hlokit.cpu.kernels.contraction.amx_convolution_plan import LINE, ROWS, AmxPlan
from hlokit.cpu.kernels.contraction.amx_convolution_tile import turn
from hlokit.cpu.kernels.contraction.elements import first_lanes, lanes_up_to, memory_of
from hlokit.cpu.kernels.contraction.space import affine, unravelled
from hlokit.cpu.kernels.contraction.split import RANGE_BYTES, has_raw, no_range, split, store_range, widened
from hlokit.cpu.kernels.contraction.windows import both, each, phase_function
from hlokit.cpu.kernels.routine import Call, Phase
from hlokit.cpu.llvm import I1, I32, I64, Function, Index, Module, Pointer, Value


def head(p: AmxPlan) -> int:
    """Bytes before the packed panels: their ranges."""
    return -(-p.space.group.size * p.panels * RANGE_BYTES // LINE) * LINE if p.factors.parts > 1 else 0


class Lines:
    """Puts factors into lines: what both operands have in common."""

    def __init__(self, module: Module, plan: AmxPlan) -> None:
        self.module, self.plan, self.s = module, plan, plan.space
        self.element = memory_of(self.s.operand)
        self.parts, self.group = plan.factors.parts, plan.factors.group

    def pairs(self, values: Sequence[Value]) -> list[Value]:
        """Vectors of 16 elements that share 32 bits, as the parts' registers."""
        if self.parts > 1:
            return split(values[0], values[1], self.parts)
        total, *others = (value.zext(32) for value in values)
        for i, value in enumerate(others, 1):
            total = total | (value << (i * (32 // self.group)))
        return [total]

    def put(
        self, values: Sequence[Value], is_raw: Value, places: Sequence[Pointer], bounds: Sequence[Value]
    ) -> list[Value]:
        """Stores the parts, or, if `is_raw` holds, the numbers in place of the first two; the bounds with them."""
        found = self.pairs(values)
        for value, place in zip(found, places, strict=True):
            place.to(I32).store(value)
        if self.parts == 1:
            return []
        with is_raw.fn.when(is_raw):
            for value, place in zip(values, places, strict=False):
                place.to(self.element).store(value)
        return widened(bounds, found[0])

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
        return affine(line.fn, first, [(line, p.factors.deep), (unit, 1 if self.parts > 1 else self.group)])


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
        features = first_lanes(f.index_argument("count"), ROWS)
        sizes = [p.goes, *(a.taps for a in p.axes), p.lines_at_once]
        with f.loop(0, p.steps, 1, self.bounds(f)) as step:
            go, *taps, line = unravelled(step.index, sizes)
            if p.split is None:
                line = go * p.lines_at_once + line
            else:
                taps[p.split] = go * p.axes[p.split].taps + taps[p.split]
            moves = [(k, a.axis.rhs) for i, (k, a) in enumerate(zip(taps, p.axes, strict=True)) if i != p.merged]
            source = affine(f, 0, [(f.index_argument("source"), 1), *moves])
            target = f.pointer("packed") + step.index * (self.parts * ROWS * LINE)
            with f.loop(0, ROWS, 1, step.carried) as unit:
                values = [self._row(f, source, line, unit.index, own, features) for own in range(self.group)]
                places = [target + unit.index * LINE + q * ROWS * LINE for q in range(self.parts)]
                unit.next = self.put(values, f.argument("raw"), places, unit.carried)
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
        if p.contents % p.factors.deep:
            mask = features & (number < p.contents).splat(ROWS)
        if s.output.rhs == 1:  # a line of each row: too far apart for the machine to see them as a row
            rhs[p.factors.deep * p.channel.rhs].prefetch()
        return self.vectors(rhs, s.output.rhs, mask)


@dataclass(frozen=True)
class _Place:
    """Where a line is laid out, and what of.

    target   its address
    source   the number of the element of lhs that it begins with
    at       the place along each axis
    inside   whether the place is one of the inputs', but for the axes that lines cross; None: it is
    """

    target: Pointer
    source: Index
    at: Mapping[int, Index]
    inside: Value | None


class LinePatch(Lines):
    """Lays out the lines that a chunk reads.

    void f(ptr lhs, ptr patch, i64 start..., i1 raw, ptr range): lhs of the group; start: each axis's first place
    """

    def written(self) -> str:
        """Adds the function; gives its name."""
        p = self.plan
        names = [f"start{i}" for i in range(len(p.axes))]
        parameters = [("ptr", "lhs"), ("ptr", "patch"), *(("i64", name) for name in names)]
        f = self.f = Function("", [*parameters, ("i1", "raw"), ("ptr", "range")], attributes="noinline nounwind")
        self.starts = [f.index_argument(name) for name in names]
        self.lhs, self.raw = f.pointer("lhs", self.element), f.argument("raw")
        if p.turned is not None:
            self.kept = f.local(I32, self.parts * ROWS * ROWS, 64)
        self.note_range(f, self._phases(0, f.index(0), {}, self.bounds(f)))
        f.returns()
        return self.module.add_by_text(f, "convolution_lines")

    def _loop(
        self, count: int, bounds: list[Value], body: Callable[[Index, list[Value]], list[Value]], by: int = 1
    ) -> list[Value]:
        """The bounds after `body` of each index; no loop for one alone."""
        if count == 1:
            return body(self.f.index(0), bounds)
        with self.f.loop(0, count, by, bounds) as loop:
            loop.next = body(loop.index, loop.carried)
        return loop.results

    def _phases(self, i: int, number: Index, phases: Mapping[int, Index], bounds: list[Value]) -> list[Value]:
        """Grid by grid: what is written beyond a row's end is overwritten by the next row."""
        p, f = self.plan, self.f
        if i == len(p.axes):
            target = f.pointer("patch") + number * p.grid * LINE
            return self._places(0, phases, _Place(target, f.index(0), {}, None), bounds)
        a = p.axes[i]

        def body(phase: Index, bounds: list[Value]) -> list[Value]:
            return self._phases(i + 1, number * a.phases + phase, {**phases, i: phase}, bounds)

        return self._loop(a.phases, bounds, body)

    def _places(self, i: int, phases: Mapping[int, Index], here: _Place, bounds: list[Value]) -> list[Value]:
        """All places along the axes from number i on."""
        p, f = self.plan, self.f
        if i == len(p.axes):
            return self._line(here, bounds)
        a, pitch = p.axes[i], p.pitches[i]

        def body(q: Index, bounds: list[Value]) -> list[Value]:
            place = affine(f, 0, [(self.starts[i], 1), (q, a.stride * a.step), (phases[i], a.step)])
            inside = here.inside
            if i not in (p.merged, p.turned) and not _is_inside(p, i):
                inside = both(inside, place.compare("ult", a.axis.inputs))
            target, source = here.target + q * pitch * LINE, here.source + place * a.axis.lhs
            return self._places(i + 1, phases, _Place(target, source, {**here.at, i: place}, inside), bounds)

        return self._loop(a.extent, bounds, body, ROWS if i == p.turned else 1)

    def _line(self, here: _Place, bounds: list[Value]) -> list[Value]:
        """The lines of one place, or, turned, of 16."""
        p = self.plan
        full, rest = divmod(p.contents, p.factors.deep)
        if p.lines_at_once < p.lines:
            full = p.lines_at_once

        def body(line: Index, bounds: list[Value]) -> list[Value]:
            to = replace(here, target=here.target + line * (self.parts * p.part * LINE))
            if p.turned is not None:
                return self._turned(line, to, bounds)
            return self._as_it_lies(line, to, rest if line.number == full else 0, bounds)

        if full:
            bounds = self._loop(full, bounds, body)
        return body(self.f.index(full), bounds) if rest else bounds

    def _as_it_lies(self, line: Index, here: _Place, rest: int, bounds: list[Value]) -> list[Value]:
        """Lines whose factors lie side by side in memory; of the last one `rest` exist, if that is not 0."""
        p, f = self.plan, self.f
        deep = p.factors.deep
        lanes = ROWS if self.parts > 1 else deep
        values: list[Value] = []
        for first in range(0, deep, lanes):
            mask: Value | None = lanes_up_to(f, max(0, rest - first), lanes) if rest else None
            if p.merged is not None:
                place = affine(f, first, [(here.at[p.merged], p.channel.taps), (line, deep)])
                mask = both(mask, self._window(place, lanes, here.inside))
            elif here.inside is not None:
                mask = both(mask, here.inside.splat(lanes))
            values.append(self.lhs[affine(f, first, [(here.source, 1), (line, deep)])].load(lanes, mask))
        if self.parts == 1:
            here.target.to(self.element).store(values[0])
            return []
        places = [here.target + q * p.part * LINE for q in range(self.parts)]
        return self.put(values, self.raw, places, bounds)

    def _window(self, first: Index, lanes: int, inside: Value | None) -> Value:
        """The elements from the merged axis's `first` on that are there, as a mask."""
        p = self.plan
        assert p.merged is not None
        return self._below(first, range(lanes), p.axes[p.merged].axis.inputs * p.channel.taps, inside)

    def _below(self, first: Index, steps: Sequence[int], limit: int, inside: Value | None) -> Value:
        """Which of the places `first` + step are below the limit and not below 0, if `inside` holds."""
        f, short = self.f, first.trunc(32).splat(len(steps))
        bound = f.constant(limit, short.type)
        if inside is not None:
            bound = inside.select(f.constant(limit, I32), 0).splat(len(steps))
        return (short + f.vector_constant(steps, I32)).compare("ult", bound)

    def _turned(self, line: Index, here: _Place, bounds: list[Value]) -> list[Value]:
        """Reads 16 places along the axis for each factor of the line, and turns them."""
        p, f = self.plan, self.f
        with f.loop(0, ROWS, 1, bounds) as unit:
            values = [self._across(line, unit.index, own, here) for own in range(self.group)]
            places = [self.kept + unit.index * LINE + q * ROWS * LINE for q in range(self.parts)]
            unit.next = self.put(values, self.raw, places, unit.carried)
        with each(f, self.parts) as part:
            turn(self.module, self.kept + part * (ROWS * LINE), LINE, here.target + part * (p.part * LINE), LINE)
        return unit.results

    def _across(self, line: Index, unit: Index, own: int, here: _Place) -> Value:
        """One factor of 16 places' lines."""
        p, f, turned = self.plan, self.f, self.plan.turned
        assert turned is not None
        a = p.axes[turned]
        by = a.stride * a.step
        number = self.factor(line, unit, own)
        tap, feature = self.content(number)
        terms, place, inside = [(here.source, 1), (feature, p.channel.lhs)], here.at[turned], here.inside
        if p.contents % p.factors.deep:
            inside = both(inside, number < p.contents)
        if p.merged is not None:
            axis = p.axes[p.merged].axis
            terms.append((tap, axis.tap * axis.lhs))
            moved = here.at[p.merged] + tap * axis.tap
            if p.merged == turned:
                place = moved
            else:
                inside = both(inside, moved.compare("ult", axis.inputs))
        mask = self._below(place, range(0, ROWS * by, by), a.axis.inputs, inside)
        return self.vectors(self.lhs[affine(f, 0, terms)], by * a.axis.lhs, mask)


def _is_inside(p: AmxPlan, i: int) -> bool:
    """No chunk's place along the axis is beyond the input."""
    a, axis = p.axes[i], p.axes[i].axis
    last = (a.blocks - 1) * a.block * axis.stride - axis.low + ((a.extent - 1) * a.stride + a.phases - 1) * a.step
    last += (p.goes - 1) * a.taps * axis.tap if i == p.split else 0
    return axis.low <= 0 and last < axis.inputs
