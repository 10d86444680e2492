"""Packing for convolutions in matrix registers: inputs as lines, weights as panels, both split into parts if f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlokit.cpu.kernels.contraction.depthwise import each
from hlokit.cpu.kernels.contraction.elements import (
    broadcast,
    constant_mask,
    first_lanes,
    lane_numbers,
    load,
    pointer,
    store,
)
from hlokit.cpu.kernels.contraction.matrix_convolution_plan import LINE, ROWS, MatrixPlan
from hlokit.cpu.kernels.contraction.matrix_convolution_tile import turn
from hlokit.cpu.kernels.contraction.scalar_convolution import affine, decoded, is_number
from hlokit.cpu.kernels.contraction.split import BOUND, NO_RANGE, RANGE_BYTES, has_raw, split, store_range, widened
from hlokit.cpu.kernels.contraction.windows import finished, finished_apart, kernel_function
from hlokit.cpu.kernels.flow import least
from hlokit.cpu.kernels.routine import Phase
from hlokit.cpu.llvm import Function, Module, memory_type, vector


def head(p: MatrixPlan) -> int:
    """Bytes before the packed panels: their ranges."""
    return -(-p.sliding.group.size * p.panels * RANGE_BYTES // LINE) * LINE if p.factors.parts > 1 else 0


def both(f: Function, a: str, b: str) -> str:
    """Whether both i1 hold."""
    return b if a == "true" else f.let(f"and i1 {a}, {b}")


class Lines:
    """How factors get into lines, common to both operands."""

    def __init__(self, module: Module, plan: MatrixPlan) -> None:
        self.module, self.plan, self.s = module, plan, plan.sliding
        self.scalar = memory_type(self.s.operand)
        self.size = self.s.operand.bits // 8
        self.parts, self.group = plan.factors.parts, plan.factors.group

    def pairs(self, f: Function, values: Sequence[str]) -> list[str]:
        """Vectors of 16 elements that share 32 bits, as the parts' registers."""
        if self.parts > 1:
            return split(f, values[0], values[1], self.parts)
        bits, kind = 32 // self.group, vector("i32", ROWS)
        total = ""
        for i, value in enumerate(values):
            wide = f.let(f"zext {vector(self.scalar, ROWS)} {value} to {kind}")
            wide = f.let(f"shl {kind} {wide}, splat (i32 {i * bits})") if i else wide
            total = f.let(f"or {kind} {total}, {wide}") if total else wide
        return [total]

    def put(self, f: Function, values: Sequence[str], is_raw: str, places: Sequence[str]) -> list[str]:
        """Stores the parts, or, if `is_raw` holds, the numbers in place of the first two; gives the parts."""
        found = self.pairs(f, values)
        for value, place in zip(found, places, strict=True):
            store(f, "i32", ROWS, value, place)
        if self.parts > 1:
            with f.when(is_raw):
                for value, place in zip(values, places, strict=False):
                    store(f, self.scalar, ROWS, value, place)
        return found

    def bounds(self) -> list[tuple[str, str]]:
        return [(BOUND, b) for b in NO_RANGE] if self.parts > 1 else []

    def widened(self, f: Function, bounds: list[str], pairs: Sequence[str]) -> list[str]:
        return widened(f, bounds, pairs[0]) if self.parts > 1 else []

    def vectors(self, f: Function, base: str, number: str, stride: int, mask: str) -> str:
        """16 elements, so far apart in memory; 0 where the mask is not set."""
        first = f.let(f"getelementptr {self.scalar}, ptr {base}, i64 {number}")
        if stride == 1:
            return load(f, self.scalar, ROWS, first, mask)
        kind = vector(self.scalar, ROWS)
        offsets = "<" + ", ".join(f"i64 {i * stride}" for i in range(ROWS)) + ">"
        if self.size == 4:
            places = f.let(f"getelementptr {self.scalar}, ptr {first}, <{ROWS} x i64> {offsets}")
            name = f"llvm.masked.gather.v{ROWS}f32.v{ROWS}p0"
            operands = f"<{ROWS} x ptr> {places}, i32 4, <{ROWS} x i1> {mask}, {kind} zeroinitializer"
            return f.let(f"call {kind} @{name}({operands})")
        room = f.alloca(self.scalar, ROWS)
        store(f, self.scalar, ROWS, "zeroinitializer", room)
        with f.loop("0", str(ROWS)) as lane:
            here = f.let(f"extractelement <{ROWS} x i1> {mask}, i64 {lane.index}")
            with f.when(here):
                one = pointer(f, first, affine(f, 0, [(lane.index, stride)]), self.size)
                to = pointer(f, room, lane.index, self.size)
                store(f, self.scalar, 1, load(f, self.scalar, 1, one), to)
        return load(f, self.scalar, ROWS, room)

    def content(self, f: Function, number: str) -> tuple[str, str]:
        """(tap of the merged axis, feature) of a factor of the lines with this number."""
        if self.plan.merged is None:
            return "0", number
        features = self.plan.channel.taps
        if features == 1:
            return number, "0"
        return f.let(f"udiv i64 {number}, {features}"), f.let(f"urem i64 {number}, {features}")


class Weights(Lines):
    """Packs rhs: by group and panel of 16 output features, step, part; a register of units each."""

    def written(self) -> Phase:
        p, s = self.plan, self.s
        f, (_, rhs, _, scratch) = kernel_function(4)
        with f.loop("%begin", "%end") as chunk:
            packed = pointer(f, scratch, str(head(p)), 1)
            packed = pointer(f, packed, chunk.index, p.panel)
            group, panel = decoded(f, chunk.index, [s.group.size, p.panels])
            source = affine(f, s.rhs_start, [(group, s.group.rhs), (panel, ROWS * s.output.rhs)])
            count = affine(f, s.output.size, [(panel, -ROWS)])
            count = count if is_number(count) else least(f, count, str(ROWS))
            how = f"ptr {rhs}, ptr {packed}, i64 {source}, i64 {count}"
            name = self._panel()
            bounds = pointer(f, scratch, chunk.index, RANGE_BYTES)
            f.do(f"call void @{name}({how}, i1 false, ptr {bounds})")
            if self.parts > 1:
                with f.when(has_raw(f, bounds)):
                    f.do(f"call void @{name}({how}, i1 true, ptr {bounds})")
        f.is_cold = True
        return Phase(finished(f, self.module, "convolution_weights"), s.group.size * p.panels)

    def _panel(self) -> str:
        """void f(ptr rhs, ptr packed, i64 source, i64 count, i1 raw, ptr range): one panel."""
        p = self.plan
        parameters = [("ptr", "rhs"), ("ptr", "packed"), ("i64", "source"), ("i64", "count"), ("i1", "raw")]
        f = Function("", [*parameters, ("ptr", "range")], attributes="noinline nounwind")
        features = first_lanes(f, "%count", ROWS)
        sizes = [p.goes, *(a.taps for a in p.axes), p.lines_at_once]
        with f.loop("0", str(p.steps), carries=self.bounds()) as step:
            go, *taps, line = decoded(f, step.index, sizes)
            if p.split is None:
                line = affine(f, 0, [(go, p.lines_at_once), (line, 1)])
            else:
                taps[p.split] = affine(f, 0, [(go, p.axes[p.split].taps), (taps[p.split], 1)])
            source = affine(
                f,
                0,
                [
                    ("%source", 1),
                    *((k, a.axis.rhs) for i, (k, a) in enumerate(zip(taps, p.axes, strict=True)) if i != p.merged),
                ],
            )
            target = pointer(f, "%packed", step.index, self.parts * ROWS * LINE)
            carries = list(zip((kind for kind, _ in self.bounds()), step.carried, strict=True))
            with f.loop("0", str(ROWS), carries=carries) as unit:
                values = [self._row(f, source, line, unit.index, own, features) for own in range(self.group)]
                places = [
                    pointer(f, pointer(f, target, unit.index, LINE), str(q * ROWS * LINE), 1) for q in range(self.parts)
                ]
                found = self.put(f, values, "%raw", places)
                unit.next = self.widened(f, unit.carried, found)
            step.next = unit.results
        if self.parts > 1:
            with f.when(f.let("xor i1 %raw, true")):
                store_range(f, step.results, "%range")
        return finished_apart(f, self.module, "convolution_panel")

    def _row(self, f: Function, source: str, line: str, unit: str, own: int, features: str) -> str:
        p, s = self.plan, self.s
        factor = p.factors.number(0, 1) * own
        number = affine(f, factor, [(line, p.factors.deep), (unit, 1 if self.parts > 1 else self.group)])
        tap, feature = self.content(f, number)
        rhs = p.axes[p.merged].axis.rhs if p.merged is not None else 0
        place = affine(f, 0, [(source, 1), (feature, p.channel.rhs), (tap, rhs)])
        mask = features
        if p.contents % p.factors.deep:
            here = broadcast(f, f.let(f"icmp slt i64 {number}, {p.contents}"), "i1", ROWS)
            mask = f.let(f"and <{ROWS} x i1> {features}, {here}")
        if s.output.rhs == 1:  # a line of each row: too far apart for the machine to see them as a row
            ahead = affine(f, p.factors.deep * p.channel.rhs, [(place, 1)])
            address = f.let(f"getelementptr {self.scalar}, ptr %rhs, i64 {ahead}")
            f.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 3, i32 1)")
        return self.vectors(f, "%rhs", place, s.output.rhs, mask)


class Patch(Lines):
    """Lays out the lines that a chunk reads.

    void f(ptr lhs, ptr patch, i64 start..., i1 raw, ptr range): lhs of the group; start: each axis's first place
    """

    def written(self) -> str:
        p = self.plan
        self.starts = [f"%start{i}" for i in range(len(p.axes))]
        parameters = [("ptr", "lhs"), ("ptr", "patch"), *(("i64", name[1:]) for name in self.starts)]
        f = self.f = Function("", [*parameters, ("i1", "raw"), ("ptr", "range")], attributes="noinline nounwind")
        if p.turned is not None:
            self.kept = f.alloca("i32", self.parts * ROWS * ROWS)
        bounds = self._phases(0, "0", {}, [b for _, b in self.bounds()])
        if self.parts > 1:
            with f.when(f.let("xor i1 %raw, true")):
                store_range(f, bounds, "%range")
        return finished_apart(f, self.module, "convolution_lines")

    def _loop(
        self, count: str, bounds: list[str], body: Callable[[str, list[str]], list[str]], by: int = 1
    ) -> list[str]:
        if count == "1":
            return body("0", bounds)
        carries = list(zip((kind for kind, _ in self.bounds()), bounds, strict=True))
        with self.f.loop("0", count, by, carries) as loop:
            loop.next = body(loop.index, loop.carried)
        return loop.results

    def _phases(self, i: int, number: str, phases: dict[int, str], bounds: list[str]) -> list[str]:
        """Grid by grid: what is written beyond a row's end is overwritten by the next row."""
        p, f = self.plan, self.f
        if i == len(p.axes):
            target = pointer(f, "%patch", affine(f, 0, [(number, p.grid)]), LINE)
            return self._places(0, phases, {}, target, "0", "true", bounds)
        a = p.axes[i]

        def body(phase: str, bounds: list[str]) -> list[str]:
            return self._phases(i + 1, affine(f, 0, [(number, a.phases), (phase, 1)]), {**phases, i: phase}, bounds)

        return self._loop(str(a.phases), bounds, body)

    def _place(self, i: int, phase: str, q: str) -> str:
        a = self.plan.axes[i]
        return affine(self.f, 0, [(self.starts[i], 1), (q, a.stride * a.step), (phase, a.step)])

    def _places(
        self,
        i: int,
        phases: dict[int, str],
        at: dict[int, str],
        target: str,
        source: str,
        inside: str,
        bounds: list[str],
    ) -> list[str]:
        """at: the place along the axes so far, `inside` of which those are that have no say of their own."""
        p, f = self.plan, self.f
        if i == len(p.axes):
            return self._line(target, source, at, inside, bounds)
        a, pitch = p.axes[i], p.pitches[i]

        def body(q: str, bounds: list[str]) -> list[str]:
            place = self._place(i, phases[i], q)
            here = inside
            if i not in (p.merged, p.turned) and not _is_inside(p, i):
                here = both(f, inside, f.let(f"icmp ult i64 {place}, {a.axis.inputs}"))
            moved = pointer(f, target, affine(f, 0, [(q, pitch)]), LINE)
            number = affine(f, 0, [(source, 1), (place, a.axis.lhs)])
            return self._places(i + 1, phases, {**at, i: place}, moved, number, here, bounds)

        return self._loop(str(a.extent), bounds, body, ROWS if i == p.turned else 1)

    def _line(self, target: str, source: str, at: dict[int, str], inside: str, bounds: list[str]) -> list[str]:
        """The lines of one place, or, turned, of 16."""
        p = self.plan
        full, rest = divmod(p.contents, p.factors.deep)
        if p.lines_at_once < p.lines:
            full = p.lines_at_once

        def body(line: str, bounds: list[str]) -> list[str]:
            to = pointer(self.f, target, affine(self.f, 0, [(line, self.parts * p.part)]), LINE)
            how = self._as_it_lies if p.turned is None else self._turned
            is_last = not is_number(line) or int(line) == full
            return how(line, to, source, at, inside, rest if is_number(line) and is_last else 0, bounds)

        if full:
            bounds = self._loop(str(full), bounds, body)
        return body(str(full), bounds) if rest else bounds

    def _as_it_lies(
        self, line: str, target: str, source: str, at: dict[int, str], inside: str, rest: int, bounds: list[str]
    ) -> list[str]:
        p, f = self.plan, self.f
        deep = p.factors.deep
        lanes = ROWS if self.parts > 1 else deep
        values: list[str] = []
        for first in range(0, deep, lanes):
            number = affine(f, first, [(source, 1), (line, deep)])
            mask = constant_mask(max(0, rest - first), lanes) if rest else None
            if p.merged is not None:
                mask = self._window(
                    f, affine(f, first, [(at[p.merged], p.channel.taps), (line, deep)]), lanes, inside, mask
                )
            elif inside != "true":
                here = broadcast(f, inside, "i1", lanes)
                mask = here if mask is None else f.let(f"and <{lanes} x i1> {here}, {mask}")
            address = f.let(f"getelementptr {self.scalar}, ptr %lhs, i64 {number}")
            values.append(load(f, self.scalar, lanes, address, mask))
        if self.parts == 1:
            store(f, self.scalar, lanes, values[0], target)
            return []
        places = [pointer(f, target, str(q * p.part), LINE) for q in range(self.parts)]
        return self.widened(f, bounds, self.put(f, values, "%raw", places))

    def _window(self, f: Function, first: str, lanes: int, inside: str, mask: str | None) -> str:
        """Of the elements from the merged axis's `first` on those that are there."""
        p = self.plan
        assert p.merged is not None
        limit = p.axes[p.merged].axis.inputs * p.channel.taps
        short = broadcast(f, f.let(f"trunc i64 {first} to i32"), "i32", lanes)
        places = f.let(f"add <{lanes} x i32> {short}, {lane_numbers(lanes, 'i32')}")
        bound = broadcast(f, f.let(f"select i1 {inside}, i32 {limit}, i32 0"), "i32", lanes)
        here = f.let(f"icmp ult <{lanes} x i32> {places}, {bound}")
        return here if mask is None else f.let(f"and <{lanes} x i1> {here}, {mask}")

    def _turned(
        self, line: str, target: str, source: str, at: dict[int, str], inside: str, rest: int, bounds: list[str]
    ) -> list[str]:
        """Reads 16 places along the axis for each factor of the line, and turns them."""
        p, f = self.plan, self.f
        carries = list(zip((kind for kind, _ in self.bounds()), bounds, strict=True))
        with f.loop("0", str(ROWS), carries=carries) as unit:
            values = [self._across(line, unit.index, own, source, at, inside) for own in range(self.group)]
            places = [pointer(f, self.kept, affine(f, q * ROWS, [(unit.index, 1)]), LINE) for q in range(self.parts)]
            unit.next = self.widened(f, unit.carried, self.put(f, values, "%raw", places))
        with each(f, self.parts) as part:
            square = pointer(f, self.kept, part, ROWS * LINE)
            to = pointer(f, target, affine(f, 0, [(part, p.part)]), LINE)
            turn(f, self.module, square, LINE, to, LINE)
        return unit.results

    def _across(self, line: str, unit: str, own: int, source: str, at: dict[int, str], inside: str) -> str:
        """One factor of 16 places' lines."""
        p, f, turned = self.plan, self.f, self.plan.turned
        assert turned is not None
        a = p.axes[turned]
        by = a.stride * a.step
        number = affine(
            f, p.factors.number(0, 1) * own, [(line, p.factors.deep), (unit, 1 if self.parts > 1 else self.group)]
        )
        tap, feature = self.content(f, number)
        terms, place, here = [(source, 1), (feature, p.channel.lhs)], at[turned], inside
        if p.contents % p.factors.deep:
            here = both(f, here, f.let(f"icmp slt i64 {number}, {p.contents}"))
        if p.merged is not None:
            axis = p.axes[p.merged].axis
            terms.append((tap, axis.tap * axis.lhs))
            moved = affine(f, 0, [(at[p.merged], 1), (tap, axis.tap)])
            if p.merged == turned:
                place = moved
            else:
                here = both(f, here, f.let(f"icmp ult i64 {moved}, {axis.inputs}"))
        short = broadcast(f, f.let(f"trunc i64 {place} to i32"), "i32", ROWS)
        lanes = "<" + ", ".join(f"i32 {i * by}" for i in range(ROWS)) + ">"
        places = f.let(f"add <{ROWS} x i32> {short}, {lanes}")
        bound = f.let(f"select i1 {here}, i32 {a.axis.inputs}, i32 0")
        mask = f.let(f"icmp ult <{ROWS} x i32> {places}, {broadcast(f, bound, 'i32', ROWS)}")
        return self.vectors(f, "%lhs", affine(f, 0, terms), by * a.axis.lhs, mask)


def _is_inside(p: MatrixPlan, i: int) -> bool:
    """No chunk's place along the axis is beyond the input."""
    a, axis = p.axes[i], p.axes[i].axis
    last = (a.blocks - 1) * a.block * axis.stride - axis.low + ((a.extent - 1) * a.stride + a.phases - 1) * a.step
    last += (p.goes - 1) * a.taps * axis.tap if i == p.split else 0
    return axis.low <= 0 and last < axis.inputs
