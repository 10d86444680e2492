"""Convolution in Intel's AMX: bf16 and 8-bit integers, and f32 by bf16x3 splitting (split.py).

First all weights are packed, then each chunk lays out the lines that it reads, split into parts, multiplies them panel
by panel, and hands out the sums. A chunk whose numbers do not fit the registers' range is done by vectors instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from hlokit.cpu.kernels.contraction.amx import configure, release
from hlokit.cpu.kernels.contraction.amx_convolution_lines import LinePatch, Weights, head
from hlokit.cpu.kernels.contraction.amx_convolution_plan import LINE, ROWS, AmxPlan, amx_plan
from hlokit.cpu.kernels.contraction.amx_convolution_results import Results
from hlokit.cpu.kernels.contraction.amx_convolution_tile import SUMS_BYTES, tile, whole
from hlokit.cpu.kernels.contraction.elements import memory_of
from hlokit.cpu.kernels.contraction.space import affine, unravelled
from hlokit.cpu.kernels.contraction.split import RANGE_BYTES, fits, has_raw
from hlokit.cpu.kernels.contraction.windows import WindowSpace, each, phase_function
from hlokit.cpu.kernels.routine import Call, Phase, Routine
from hlokit.cpu.llvm import I1, I8, I64, Global, IfElse, Index, Module, Pointer, Value


def plan_amx(call: Call, s: WindowSpace) -> AmxConvolution | None:
    """Sums without holes, over at least one product. None: the machine has no such registers, or vectors are faster."""
    plan = amx_plan(s, call.target)
    return None if plan is None else AmxConvolution(call, plan)


@dataclass(frozen=True)
class AmxConvolution:
    """A convolution that goes this way."""

    call: Call
    plan: AmxPlan

    def write(self, module: Module) -> Routine:
        """Writes the functions into the module."""
        p = self.plan
        phases = (Weights(module, p).written(self.call), _AmxChunks(self.call, module, p).written())
        return Routine(phases, head(p) + p.space.group.size * p.panels * p.panel)


class _AmxChunks:
    """The products, and what becomes of the sums."""

    def __init__(self, call: Call, module: Module, plan: AmxPlan) -> None:
        self.call, self.module, self.plan, self.s = call, module, plan, plan.space
        self.f, self.parts = phase_function(call), plan.factors.parts

    def written(self) -> Phase:
        p, s, f = self.plan, self.s, self.f
        lhs, self.scratch = f.table(0, memory_of(s.operand)), f.table(3)
        self.places = f.address(_table(self.module, [LINE * place for place in p.places]))
        self.patch = f.local(I8, p.patch, 64)
        self.sums, self.range = (f.local(I8, n, 64) for n in (p.kept * p.rows * SUMS_BYTES, RANGE_BYTES))
        self.lay_out = LinePatch(self.module, p).written()
        self.hand_out = Results(self.call, self.module, p).written()
        configure(f, self.module)
        with f.loop(f.index_argument("begin"), f.index_argument("end")) as chunk:
            sizes = [s.group.size, *(a.blocks for a in p.axes), p.panel_blocks]
            group, *blocks, panels = unravelled(chunk.index, sizes)
            self.group, self.group_panel = group, group * p.panels
            self.firsts = [block * a.block for a, block in zip(p.axes, blocks, strict=True)]
            self.counts = [self._count(a.axis.outputs, a.block, n) for a, n in zip(p.axes, self.firsts, strict=True)]
            self.outputs = affine(f, 1 - sum(p.pitches), list(zip(self.counts, p.pitches, strict=True)))
            self.low, self.high = self._panels(panels)
            base = lhs[group * s.group.lhs]
            starts = [affine(f, -a.axis.low, [(n, a.axis.stride)]) for a, n in zip(p.axes, self.firsts, strict=True)]
            with each(f, p.passes) as number:
                if p.split is None:
                    self._pass(base[number * (p.lines_at_once * p.factors.depth * p.channel.lhs)], starts, number)
                else:
                    a, moved = p.axes[p.split], list(starts)
                    moved[p.split] = starts[p.split] + number * (a.taps * a.axis.tap)
                    self._pass(base, moved, number)
            if p.passes > 1:
                self._pairs(lambda rhs, panel, columns: self._results(panel, columns))
        release(f)
        f.is_cold = True
        return Phase(f.end(self.module, "convolution", exported=True), p.chunks)

    def _pass(self, lhs: Pointer, starts: Sequence[Index], number: Index) -> None:
        """Lays out lines and adds their products."""
        f = self.f

        def lines(*, is_raw: bool) -> None:
            f.call(self.lay_out, lhs, self.patch, *starts, f.constant(is_raw, I1), self.range)

        def multiplied(multiply: Callable[[Pointer, Index, int, Index], None]) -> None:
            def one(rhs: Pointer, panel: Index, columns: int) -> None:
                multiply(rhs, panel, columns, number)
                if self.plan.passes == 1:
                    self._results(panel, columns)

            self._pairs(one)

        lines(is_raw=False)
        if self.parts == 1:
            multiplied(self._tiles)
            return
        choice = IfElse(f, self._fits())
        multiplied(self._tiles)
        choice.otherwise()
        lines(is_raw=True)
        multiplied(self._whole)
        choice.end()

    def _count(self, outputs: int, block: int, first: Index) -> Index:
        """The chunk's outputs along an axis."""
        f = self.f
        return f.index(block) if outputs % block == 0 else (f.index(outputs) - first).smin(block)

    def _panels(self, block: Index) -> tuple[Index, Index]:
        """The chunk's panels, by pairs."""
        p, pairs = self.plan, self.plan.pairs
        if p.panel_blocks == 1:
            return self.f.index(0), self.f.index(p.panels)
        low, high = ((block * pairs + n) // p.panel_blocks * 2 for n in (0, pairs))
        return low, high.smin(p.panels)

    def _range(self, panel: Index) -> Pointer:
        return self.scratch + (self.group_panel + panel) * RANGE_BYTES

    def _fits(self) -> Value:
        """Whether the lines fit the weights of all of the chunk's panels."""
        f = self.f
        with f.loop(self.low, self.high, 1, [f.constant(True, I1)]) as loop:
            loop.next = [loop.carried[0] & fits(self.range, self._range(loop.index), self.s.steps)]
        return loop.results[0]

    def _pairs(self, body: Callable[[Pointer, Index, int], None]) -> None:
        """body(packed panel, its number, columns) for the chunk's panels, two at once."""
        p, f = self.plan, self.f
        packed = self.scratch + head(p)

        def over(panel: Index, columns: int) -> None:
            body(packed + (self.group_panel + panel) * p.panel, panel, columns)

        if p.panels > 1:
            full = self.high if p.panels % 2 == 0 else self.high.least(p.panels - 1)
            with f.loop(self.low, full, 2) as loop:
                over(loop.index, 2)
        if p.panels % 2:
            with f.when(f.constant(True, I1) if p.panel_blocks == 1 else self.high.eq(p.panels)):
                over(f.index(p.panels - 1), 1)

    def _sums(self, panel: Index) -> Pointer:
        """Where the pair of panels that begins with this one has its sums."""
        p = self.plan
        if p.kept == 1:
            return self.sums
        return self.sums + ((panel - self.low) >> 1) * (p.rows * SUMS_BYTES)

    def _results(self, panel: Index, columns: int) -> None:
        """Hands out the sums of one or two panels."""
        f, size = self.f, self.s.output.size
        feature, valid = self.group * size + panel * ROWS, affine(f, size, [(panel, -ROWS)]).least(columns * ROWS)
        f.call(self.hand_out, f.pointer("table"), self._sums(panel), feature, valid, *self.firsts, *self.counts)

    def _step(self, rhs: Pointer, number: Index) -> tuple[Pointer, tuple[Index, Index], Value]:
        """(rhs of the pass, its steps and the bytes of a part, whether it is the first)."""
        p, f = self.plan, self.f
        first = f.constant(True, I1) if p.passes == 1 else number.eq(0)
        sizes = f.index(p.steps // p.passes), f.index(p.part * LINE)
        return rhs + number * (p.panel // p.passes), sizes, first

    def _tiles(self, rhs: Pointer, panel: Index, columns: int, number: Index) -> None:
        """The products of one or two panels, in AMX."""
        p, f = self.plan, self.f
        rhs, sizes, first = self._step(rhs, number)
        sums, more = self._sums(panel), affine(f, ROWS - 1, [(self.outputs, 1)])
        done = f.index(int(more.number) & -2 * ROWS) if more.number is not None else more & -2 * ROWS

        def one(row: Index, rows: int) -> None:
            lhs, out, name = self.patch + row * LINE, sums + row * SUMS_BYTES, tile(self.module, p.factors, rows)
            for j in range(columns):
                f.call(name, lhs, rhs + j * p.panel, out + j * LINE, self.places, *sizes, first)

        with f.loop(0, done, 2 * ROWS) as loop:
            one(loop.index, 2)
        outputs = self.outputs.number
        if outputs is not None and done.number is not None and done.number >= outputs:
            return
        with f.when(done < self.outputs):
            one(done, 1)

    def _whole(self, rhs: Pointer, panel: Index, columns: int, number: Index) -> None:
        """The products of one or two panels, by vectors."""
        p, f = self.plan, self.f
        rhs, sizes, first = self._step(rhs, number)
        sums, name = self._sums(panel), whole(self.module)
        for j in range(columns):
            is_raw = has_raw(self._range(panel + j))
            operands = self.patch, rhs + j * p.panel, sums + j * LINE, self.places
            f.call(name, *operands, *sizes, self.outputs, is_raw, first)


def _table(module: Module, values: Sequence[int]) -> Global:
    """A table of i64 that is named by what it holds."""
    name = "places_" + sha256(repr(values).encode()).hexdigest()[:16]
    return module.table(name, I64, values)
